"""The process that checks everything: it computes what must come out, and does not end unnoticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from suiro.demo.check import Check
from suiro.demo.expected import expected
from suiro.demo.names import REJECTED, VALIDATED
from suiro.demo.view_check import ViewAccount
from suiro.errors import FatalError


@pytest.fixture
def check() -> Iterator[Check]:
    made = Check(limit=2_000)
    yield made
    made.close()


def test_it_computes_what_must_come_out(check: Check) -> None:
    assert check.totals == expected(limit=2_000).totals
    assert check.is_computed
    assert check.totals[VALIDATED] + check.totals[REJECTED] == 2_000


def test_its_end_is_an_error(check: Check) -> None:
    assert check.totals
    check._process.kill()
    check._process.join()
    with pytest.raises(FatalError, match="the process that checks the records ended"):
        check.verdict({}, ViewAccount())
