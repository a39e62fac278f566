"""Rules in text pick what they say, and take nothing that could do anything else."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.connect import SettingError
from suiro.connect.rules import rule
from suiro.streams.expressions import ExpressionError

VALUE = {"delay": 20, "carrier": "UA", "gate": None, "place": {"code": "EWR"}, "late": True}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("delay > 15", True),
        ("delay > 15 and carrier == 'AA'", False),
        ("delay > 15 or carrier == 'AA'", True),
        ("not delay > 15", False),
        ("15 < delay <= 20", True),
        ("15 < delay < 20", False),
        ("delay * 2 - 10 == 30", True),
        ("delay > -1", True),
        ("carrier in ['UA', 'AA']", True),
        ("carrier not in ['UA', 'AA']", False),
        ("place.code == 'EWR'", True),
        ("carrier.lower().starts_with('u')", True),
        ("gate.is_null()", True),
        ("gate == 'A1'", False),  # null is not true
        ("not gate == 'A1'", False),
        ("absent > 3", False),
        ("coalesce(absent, 7) > 3", True),
        ("abs(delay - 30) == 10", True),
        ("record_key() == 'k' and record_timestamp() == 5", True),
        ("late", True),
        ("delay", False),
        ("True", True),
        ("place.__class__.is_not_null()", False),  # a field like any other, and there is none
    ],
)
def test_a_rule(text: str, holds: bool) -> None:
    assert rule("when", text)(VALUE, "k", 5) is holds


@pytest.mark.parametrize(
    "text",
    [
        "", "delay >", "x = 3", "delay is None", "open('x')", "().__class__.__bases__[0]",
        "carrier.as_callable('record')", "[x for x in y]", "lambda: 1", "delay if late else 1", "f'{delay}'",
        "carrier.upper(x=1)", "delay ** 9", "b'x' == carrier",
    ],
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(SettingError, match=r"when: .* is no rule"):
        rule("when", text)


@pytest.mark.parametrize(("text", "value"), [("delay > 3", {"delay": "x"}), ("delay > 3", {"delay": True})])
def test_a_value_of_another_kind_is_said(text: str, value: Any) -> None:
    with pytest.raises(ExpressionError):
        rule("when", text)(value, None, 0)
