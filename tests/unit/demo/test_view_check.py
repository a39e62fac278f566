"""The check of the view is checked: every kind of wrong answer makes it fail, and is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from suiro.demo.expected import Departures
from suiro.demo.reader import Notes
from suiro.demo.reading import Read
from suiro.demo.view_check import (
    Compared,
    Facts,
    FlightLog,
    ViewAccount,
    check_view,
    facts_of,
    is_route,
    row_of,
)

DELAYS = (("YV", 30), ("HA", 4), ("YV", None), ("HA", 6), ("YV", 10), ("AA", 15))
"""Two partitions, in turn: HA has no cancelled flight."""
DEPARTURES = {
    "AA": Departures(flights=1, minutes=15),
    "HA": Departures(flights=2, minutes=10),
    "YV": Departures(flights=3, cancelled=1, minutes=40),
}
ENDS = {0: 3, 1: 3}


def _row(flights: int, cancelled: int, mean: float | None) -> dict[str, Any]:
    return {"flights": flights, "cancelled": cancelled, "mean_dep_delay": mean}


def _answer(version: int, cut: int, row: Any, ends: dict[int, int]) -> dict[str, Any]:
    offsets = {str(partition): end for partition, end in ends.items()}
    value = None if row is None else {"value": row}
    return {"version": version, "cut": cut, "row": value, "offsets": {"nyc.public.flights": offsets}}


@pytest.fixture
def log() -> FlightLog:
    return FlightLog(
        Read(
            number % 2,
            number // 2,
            f"F{number}",
            {"carrier": carrier, "dep_delay": delay},
            MappingProxyType({}),
        )
        for number, (carrier, delay) in enumerate(DELAYS)
    )


@pytest.fixture
def notes() -> Notes:
    notes = Notes()
    notes.answered("a", "YV", _answer(1, 0, _row(1, 0, 30.0), {0: 1, 1: 0}), 0.998, 1.0)
    notes.answered("a", "OO", _answer(1, 0, None, {0: 1, 1: 0}), 1.498, 1.5)
    notes.answered("a", "YV", _answer(2, 4, _row(3, 1, 20.0), ENDS), 1.99, 2.0)
    notes.answered("b", "YV", _answer(1, 7, _row(3, 1, 40 / 3), ENDS), 2.998, 3.0)
    return notes


@pytest.fixture
def account(notes: Notes) -> ViewAccount:
    """Of a right run."""
    rows = {v: {name: row_of(v, each) for name, each in DEPARTURES.items()} for v in (1, 2)}
    return ViewAccount(
        comparisons=[Compared(offsets=ENDS, equal=2, differing=1, alone=0, rows=rows)],  # type: ignore[arg-type]
        explained=1,
        to_explain=1,
        rollback_ms=30,
        same_bytes=True,
        answers=notes.to_json(),
    )


def test_rows_are_those_of_the_flights_below_the_offsets(log: FlightLog) -> None:
    assert log.row(1, "YV", {0: 3, 1: 0}) == _row(3, 1, 40 / 3)
    assert log.row(2, "YV", {0: 3, 1: 0}) == _row(3, 1, 20.0)
    assert log.row(2, "YV", {0: 2, 1: 0}) == _row(2, 1, 30.0)
    assert log.row(1, "HA", {0: 3, 1: 1}) == _row(1, 0, 4.0)
    assert log.row(1, "HA", {0: 3, 1: 0}) is log.row(1, "OO", ENDS) is None
    assert set(log.rows(1, ENDS)) == {"AA", "HA", "YV"}
    assert log.rows(2, {0: 1, 1: 0}) == {"YV": _row(1, 0, 30.0)}
    assert row_of(2, Departures(flights=2, cancelled=2)) == _row(2, 2, None)


def test_what_the_bug_changes(account: ViewAccount) -> None:
    assert facts_of(account.comparisons[0].rows) == Facts(
        carriers=3,
        equal=("AA", "HA"),
        differing=1,
        cancelled=1,
        name="YV",
        means=(40 / 3, 20.0),
        places=(2, 1),
    )


def test_a_right_account_has_no_differences(account: ViewAccount, log: FlightLog) -> None:
    assert check_view(account, log, DEPARTURES) == []
    assert (account.answers["reads"], account.answers["p99_ms"], account.answers["p50_ms"]) == (4, 10.1, 2.1)
    assert account.answers["callers"] == {"1": 1, "2": 1}


def _compared(**changes: Any) -> Callable[[ViewAccount], ViewAccount]:
    return lambda account: replace(account, comparisons=[replace(account.comparisons[0], **changes)])


def _answers(**changes: Any) -> Callable[[ViewAccount], ViewAccount]:
    return lambda account: replace(account, answers={**account.answers, **changes})


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (_compared(equal=3, differing=0), "3 rows equal, 0 differing"),
        (_compared(alone=1), "1 in one version only"),
        (_compared(rows={1: {"YV": _row(3, 1, 20.0)}}), "comparison 1, v1: YV is"),
        (_compared(offsets={0: 2, 1: 3}), "comparison 1, v2: YV is"),
        (lambda account: replace(account, comparisons=[]), "never compared"),
        (lambda account: replace(account, explained=0), "0 of 1 differences are explained"),
        (lambda account: replace(account, explained=2, to_explain=2), "2 differences were explained"),
        (lambda account: replace(account, same_bytes=False), "after the rollback"),
        (lambda account: replace(account, rollback_ms=1_000), "the rollback took 1000 ms"),
        (_answers(reads=0), "never answered"),
        (_answers(errors=1, error_texts=["caller-1: gone"]), "1 reads failed: caller-1: gone"),
        (_answers(torn=1), "two different rows"),
        (_answers(back=2), "older cut"),
        (_answers(walks={"a": [2, 1, 2]}), ""),
        (_answers(walks={"a": [1, 2, 1, 2, 1]}), "1 callers saw a mix of versions: a: [1, 2, 1, 2, 1]"),
        (_answers(rows=[[2, 4, "YV", _row(3, 1, 40 / 3)]]), "1 answers are not what their version makes"),
        (_answers(rows=[[2, 4, "YV", None]]), "YV of v2 at cut 4 is None"),
    ],
)
def test_what_is_wrong_is_named(
    account: ViewAccount, log: FlightLog, spoil: Callable[[ViewAccount], ViewAccount], named: str
) -> None:
    found = check_view(spoil(account), log, DEPARTURES)
    assert any(named in text for text in found) if named else not found


def test_at_the_end_the_rows_are_those_of_the_file(account: ViewAccount, log: FlightLog) -> None:
    more = DEPARTURES | {"AA": Departures(flights=2, minutes=15)}
    assert any("v2 at the end, by the CSV file: AA is" in text for text in check_view(account, log, more))


def test_versions_follow_one_another_as_they_are_routed() -> None:
    assert all(map(is_route, ([1], [2], [1, 2], [1, 2, 1, 2], [2, 1])))
    assert not any(map(is_route, ([2, 1, 2, 1], [1, 2, 1, 2, 1], [3], [1, 3])))


def test_the_reader_sees_what_must_not_be(notes: Notes) -> None:
    notes.answered("b", "YV", _answer(1, 7, _row(3, 1, 20.0), ENDS), 3.998, 4.0)
    notes.answered("b", "HA", _answer(1, 7, _row(1, 0, 4.0), {0: 3, 1: 1}), 3.998, 4.0)
    assert (notes.torn, notes.back) == (2, 0)
    notes.answered("b", "YV", _answer(1, 0, _row(1, 0, 30.0), {0: 1, 1: 0}), 3.998, 4.0)
    assert notes.back == 1
    notes.answered("b", "YV", _answer(2, 4, _row(3, 1, 20.0), ENDS), 4.998, 5.0)
    assert (notes.walks["b"], notes.back) == ([1, 2], 1), "another version has other cuts"
    assert notes.summary()["last_s"] == {"1": 4.0, "2": 5.0}
    for number in range(30):
        notes.failed(f"error {number}")
    assert (notes.error_count, len(notes.errors)) == (30, 20)
