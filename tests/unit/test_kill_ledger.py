"""The checker of the kill tests finds what it is there to find: each anomaly, planted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.kill_ledger import Ledger, Place, Write

PLACE: Place = ("t", 0)
OTHER: Place = ("t", 1)


def acknowledged(ledger: Ledger, place: Place, writer: str, value: str, offset: int, of: Any = None) -> Write:
    write = ledger.write(place, writer, value, of)
    write.state, write.offset = "acknowledged", offset
    return write


@pytest.fixture
def ledger() -> Ledger:
    """Two acknowledged records, one under way, three transactions, a register."""
    made = Ledger()
    acknowledged(made, PLACE, "w", "a", 0)
    acknowledged(made, PLACE, "w", "b", 1)
    made.write(PLACE, "w", "c")
    for number, state in enumerate(("committed", "aborted", "unknown")):
        transaction = made.begin("x")
        transaction.state, transaction.offset = state, number  # type: ignore[assignment]
        acknowledged(made, PLACE, "x", f"x{number}-0", 10 + number, transaction)
        acknowledged(made, OTHER, "x", f"x{number}-1", number, transaction)
    register = made.register("key", "one")
    register.sent("two")
    return made


def good() -> tuple[dict[Place, list[tuple[int, str]]], dict[str, Any], dict[str, int]]:
    return {PLACE: [(0, "a"), (1, "b"), (10, "x0-0")], OTHER: [(0, "x0-1")]}, {"key": "one"}, {"x": 0}


def test_a_good_log_passes_with_and_without_what_was_under_way(ledger: Ledger) -> None:
    found = good()[0]
    found[PLACE] += [(12, "x2-0"), (13, "c")]
    found[OTHER] += [(2, "x2-1")]
    assert ledger.check(found, {"key": "two"}, {"x": 2}) == []
    assert ledger.check(found, {"key": "two"}, {"x": 2}) == []


def test_what_was_under_way_need_not_be_there(ledger: Ledger) -> None:
    assert ledger.check(*good()) == []


@pytest.mark.parametrize(
    ("place", "records", "complaint"),
    [
        (PLACE, [(0, "a"), (10, "x0-0")], "b was acknowledged at 1 and is lost"),
        (PLACE, [(0, "a"), (1, "b"), (2, "b"), (10, "x0-0")], "b is there 2 times"),
        (PLACE, [(0, "b"), (1, "a"), (10, "x0-0")], "a of w stands before|b of w stands before"),
        (PLACE, [(0, "a"), (3, "b"), (10, "x0-0")], "b was acknowledged at 1 and is at 3"),
        (PLACE, [(0, "a"), (1, "b"), (1, "c"), (10, "x0-0")], "offsets go back"),
        (PLACE, [(0, "a"), (1, "b"), (10, "x0-0"), (11, "x1-0")], "x1-0 at 11 was aborted"),
        (PLACE, [(0, "a"), (1, "b"), (10, "x0-0"), (12, "x2-0")], "is there in part"),
        (PLACE, [(0, "a"), (1, "b")], "x0-0 was committed and is lost"),
        (OTHER, [], "x0-1 was committed and is lost"),
        (OTHER, [(0, "x0-1"), (5, "ghost")], "nobody wrote ghost"),
    ],
)
def test_anomalies_of_the_log(ledger: Ledger, place: Place, records: Any, complaint: str) -> None:
    found, values, offsets = good()
    found[place] = records
    assert re.search(complaint, "\n".join(ledger.check(found, values, offsets)))


def test_what_was_found_may_not_go_again_nor_come_later(ledger: Ledger) -> None:
    found, values, offsets = good()
    assert ledger.check(found, values, offsets) == []
    found[PLACE] += [(12, "x2-0"), (13, "c")]
    found[OTHER] += [(2, "x2-1")]
    complaints = "\n".join(ledger.check(found, {"key": "two"}, {"x": 2}))
    for complaint in (
        "x2-0 at 12 was aborted",
        "c was not there",
        "key is 'two'",
        "group of x is at 2, not at 0",
    ):
        assert complaint in complaints


def test_offsets_and_values(ledger: Ledger) -> None:
    found, _, _ = good()
    complaints = "\n".join(ledger.check(found, {"key": "zero", "more": 1}, {"x": 7}))
    for complaint in ("key is 'zero'", "nobody made more", "group of x is at 7, not at 0"):
        assert complaint in complaints


def test_a_refusal_is_an_anomaly(ledger: Ledger) -> None:
    ledger.refused.append("w was answered unknown_server_error")
    assert ledger.check(*good()) == ["w was answered unknown_server_error"]
