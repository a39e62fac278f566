"""Checks the view: every comparison, every answer to a reader, the explanation, the rollback.

This is a pure rule over what was recorded, so that tests can show it a wrong answer. The expected figures come from
the flights as they were read back (`FlightLog`), and at the end from the CSV files (`Expected`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suiro.demo.expected import Departures
from suiro.demo.view_figures import FlightLog, place_of, row_of

__all__ = ["Compared", "Facts", "ViewAccount", "check_view", "facts_of", "is_route", "most_apart"]

NAMED_EXAMPLES = 3
ROLLBACK_MS = 1_000
ROUTES = (1, 2, 1, 2)
"""The versions that a caller is answered by, in this order: shifted, rolled back, forward. Some may be left out."""

Rows = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What `suiro view compare` said, at which offsets, and the rows that each version answered with there."""

    offsets: Mapping[int, int]
    equal: int
    differing: int
    alone: int
    rows: Mapping[int, Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewAccount:
    """`answers`: the reader's file. `explained`, `to_explain`: rows, of the first comparison. `same_bytes`: whether the
    answer at the same offsets was the same before the shift and after the rollback."""

    comparisons: Sequence[Compared] = ()
    explained: int = 0
    to_explain: int = 0
    rollback_ms: float = 0.0
    same_bytes: bool = False
    kills: int = 0
    rebuilt: int = 0
    rebuilt_s: float = 0.0
    answers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the mended bug changes in the flights there are. `name`: the carrier whose mean it changes most; `means` and
    `places` are its own."""

    carriers: int
    equal: tuple[str, ...]
    differing: int
    cancelled: int
    name: str
    means: tuple[float, float]
    places: tuple[int, int]


def facts_of(departures: Mapping[str, Departures]) -> Facts:
    rows = {name: [row_of(version, each) for version in (1, 2)] for name, each in departures.items()}
    equal = tuple(sorted(name for name, (first, second) in rows.items() if first == second))
    name = max(sorted(departures), key=lambda one: _apart(*rows[one]))
    means = [0.0 if row is None else row["mean_dep_delay"] or 0.0 for row in rows[name]]
    return Facts(
        carriers=len(departures),
        equal=equal,
        differing=len(departures) - len(equal),
        cancelled=sum(each.cancelled for each in departures.values()),
        name=name,
        means=(means[0], means[1]),
        places=(place_of(name, 1, departures), place_of(name, 2, departures)),
    )


def most_apart(rows: Mapping[int, Rows]) -> str:
    """The carrier whose two rows are the furthest apart."""
    first, second = rows[1], rows[2]
    return max(sorted(first), key=lambda carrier: _apart(first[carrier], second.get(carrier)))


def _apart(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> float:
    before, after = (0.0 if row is None else float(row["mean_dep_delay"] or 0) for row in (first, second))
    return abs(after - before)


def check_view(
    account: ViewAccount, flights: FlightLog, departures: Mapping[str, Departures]
) -> tuple[str, ...]:
    """Every difference in words; none means that all is as it must be."""
    return (
        *_comparisons(account.comparisons, flights, departures),
        *_explanation(account),
        *_rollback(account),
        *_reader(account.answers, flights),
    )


def _comparisons(
    comparisons: Sequence[Compared], flights: FlightLog, departures: Mapping[str, Departures]
) -> Iterator[str]:
    if not comparisons:
        yield "the versions were never compared"
        return
    for number, compared in enumerate(comparisons, 1):
        equal, differing = flights.differing(compared.offsets)
        wanted, found = (
            (len(equal), len(differing), 0),
            (compared.equal, compared.differing, compared.alone),
        )
        if wanted != found:
            yield (
                f"comparison {number}: {found[0]} rows equal, {found[1]} differing, {found[2]} in one version only; "
                f"expected {wanted[0]}, {wanted[1]} and {wanted[2]}"
            )
        for version, rows in compared.rows.items():
            made = {
                carrier: flights.row(version, carrier, compared.offsets) for carrier in (*equal, *differing)
            }
            yield from _rows(f"comparison {number}, v{version}", rows, made)
    for version, rows in comparisons[-1].rows.items():
        made = {carrier: row_of(version, each) for carrier, each in departures.items()}
        yield from _rows(f"v{version} at the end, by the CSV file", rows, made)


def _rows(what: str, found: Rows, wanted: Mapping[str, Any]) -> Iterator[str]:
    for carrier in sorted(found.keys() | wanted.keys()):
        if found.get(carrier) != wanted.get(carrier):
            yield f"{what}: {carrier} is {found.get(carrier)}, expected {wanted.get(carrier)}"


def _explanation(account: ViewAccount) -> Iterator[str]:
    if account.explained != account.to_explain:
        yield f"{account.explained} of {account.to_explain} differences are explained"
    if account.comparisons and account.to_explain != account.comparisons[0].differing:
        yield f"{account.to_explain} differences were explained, and {account.comparisons[0].differing} compared"


def _rollback(account: ViewAccount) -> Iterator[str]:
    if not account.same_bytes:
        yield "after the rollback the same question, at the same offsets, had another answer than before the shift"
    if account.rollback_ms >= ROLLBACK_MS:
        yield f"the rollback took {account.rollback_ms:.0f} ms, and must take less than {ROLLBACK_MS}"


def _reader(answers: Mapping[str, Any], flights: FlightLog) -> Iterator[str]:
    if not answers.get("reads"):
        yield "the reader was never answered"
        return
    if answers["errors"]:
        yield f"{answers['errors']} reads failed: {_some(answers['error_texts'])}"
    if answers["torn"]:
        yield f"{answers['torn']} answers of one cut were two different rows"
    if answers["back"]:
        yield f"{answers['back']} answers were of an older cut than the caller had seen before"
    mixed = {caller: walk for caller, walk in answers["walks"].items() if not is_route(walk)}
    if mixed:
        yield f"{len(mixed)} callers saw a mix of versions: {_some([f'{c}: {w}' for c, w in mixed.items()])}"
    offsets = {
        (version, cut): {int(p): end for p, end in ends.items()} for version, cut, ends in answers["cuts"]
    }
    wrong = [
        f"{carrier} of v{version} at cut {cut} is {row}, expected {wanted}"
        for version, cut, carrier, row in answers["rows"]
        if row != (wanted := flights.row(version, carrier, offsets[version, cut]))
    ]
    if wrong:
        yield f"{len(wrong)} answers are not what their version makes of their offsets: {_some(wrong)}"


def is_route(walk: Sequence[int]) -> bool:
    """Whether these versions can follow one another, for one caller."""
    rest = iter(ROUTES)
    return all(version in rest for version in walk)


def _some(texts: Sequence[str]) -> str:
    return "; ".join(texts[:NAMED_EXAMPLES]) + ("; ..." if len(texts) > NAMED_EXAMPLES else "")
