"""Checks the view: every comparison, every answer to a reader, the explanation, the rollback.

This is a pure function of the recorded answers, so that tests can give it wrong ones. The expected answer of each
version at any offsets is computed from the flights that were read back (`FlightLog`), and at the end from the CSV
files: sums of a few integers, without the code of the view or the interpreter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from suiro.demo.anomalies import some
from suiro.demo.expected import Departures, Row
from suiro.demo.reading import Read

ROLLBACK_MS = 1_000
ROUTES = (1, 2, 1, 2)
"""The versions that answer a caller, in order: shifted, rolled back, forward. Some may be missing."""

Rows = Mapping[str, Mapping[str, Any]]
Offsets = Mapping[int, int]  # the next offset of each partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The result of `suiro view compare`, its offsets, and the rows of each version there."""

    offsets: Offsets
    equal: int
    differing: int
    alone: int
    rows: Mapping[int, Rows]


@dataclass(slots=True, kw_only=True)
class ViewAccount:
    """`answers` is the file of the reader. `explained` and `to_explain` count rows of the first comparison.
    `same_bytes` tells whether the answer at the same offsets was equal before the shift and after the rollback."""

    comparisons: list[Compared] = field(default_factory=list)
    explained: int = 0
    to_explain: int = 0
    rollback_ms: float = 0.0
    same_bytes: bool = False
    kills: int = 0
    rebuilt: int = 0
    rebuilt_s: float = 0.0
    answers: Mapping[str, Any] = field(default_factory=dict)


def row_of(version: int, departures: Departures) -> Row | None:
    """Returns a carrier's row of version 1 or 2; None without flights. Version 1 divides by all flights: those that
    never departed count as if they had been on time."""
    flights, cancelled = departures.flights, departures.cancelled
    if not flights:
        return None
    number = flights if version == 1 else flights - cancelled
    mean = departures.minutes / number if number else None
    return {"flights": flights, "cancelled": cancelled, "mean_dep_delay": mean}


def _mean(row: Mapping[str, Any] | None) -> float:
    return float(row["mean_dep_delay"] or 0) if row else 0.0


def most_apart(rows: Mapping[int, Rows]) -> str:
    """Returns the carrier with the largest difference between its two rows."""
    return max(sorted(rows[1]), key=lambda carrier: abs(_mean(rows[2].get(carrier)) - _mean(rows[1][carrier])))


class Facts(NamedTuple):
    """The effect of the bug. `name` is the carrier whose mean changes most; `means` and `places` are its values by
    version. Place 1 has the largest mean delay."""

    carriers: int
    equal: tuple[str, ...]
    differing: int
    cancelled: int
    name: str
    means: tuple[float, float]
    places: tuple[int, int]


def facts_of(rows: Mapping[int, Rows]) -> Facts:
    """`rows`: of both versions at the same offsets."""
    means = [{name: _mean(rows[version].get(name)) for name in rows[1]} for version in (1, 2)]
    name = most_apart(rows)
    first, second = (1 + sum(mean > of[name] for mean in of.values()) for of in means)
    equal = tuple(sorted(name for name, row in rows[1].items() if row == rows[2].get(name)))
    return Facts(
        carriers=len(rows[1]),
        equal=equal,
        differing=len(rows[1]) - len(equal),
        cancelled=sum(row["cancelled"] for row in rows[1].values()),
        name=name,
        means=(means[0][name], means[1][name]),
        places=(first, second),
    )


class _Sums:
    """The running sums of a carrier's flights in one partition."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._minutes, self._cancelled = [0], [0]

    def add(self, offset: int, delay: int | None) -> None:
        self._offsets.append(offset)
        self._minutes.append(self._minutes[-1] + (delay or 0))
        self._cancelled.append(self._cancelled[-1] + (delay is None))

    def below(self, offset: int) -> Departures:
        count = bisect_left(self._offsets, offset)
        return Departures(flights=count, cancelled=self._cancelled[count], minutes=self._minutes[count])


class FlightLog:
    """The topic of flights as it was read back, each partition in order."""

    def __init__(self, records: Iterable[Read] = ()) -> None:
        self._sums: defaultdict[str, defaultdict[int, _Sums]] = defaultdict(lambda: defaultdict(_Sums))
        for record in records:
            self.note(record)

    def note(self, record: Read) -> None:
        if record.value is not None:
            sums = self._sums[record.value["carrier"]][record.partition]
            sums.add(record.offset, record.value["dep_delay"])

    def row(self, version: int, carrier: str, offsets: Offsets) -> Row | None:
        """Returns the row for the flights below these offsets."""
        found = Departures()
        of_carrier: Mapping[int, _Sums] = self._sums.get(carrier, {})
        for partition, offset in offsets.items():
            if partition in of_carrier:
                found.add(of_carrier[partition].below(offset))
        return row_of(version, found)

    def rows(self, version: int, offsets: Offsets) -> dict[str, Row]:
        found = {carrier: self.row(version, carrier, offsets) for carrier in sorted(self._sums)}
        return {carrier: row for carrier, row in found.items() if row is not None}


def check_view(account: ViewAccount, flights: FlightLog, departures: Mapping[str, Departures]) -> list[str]:
    """Returns every difference as text; none if everything is as expected."""
    return [
        *_comparisons(account.comparisons, flights, departures),
        *_explanation_and_rollback(account),
        *_reader(account.answers, flights),
    ]


def _comparisons(
    comparisons: Sequence[Compared], flights: FlightLog, departures: Mapping[str, Departures]
) -> Iterator[str]:
    if not comparisons:
        yield "the versions were never compared"
        return
    for number, compared in enumerate(comparisons, 1):
        made = {version: flights.rows(version, compared.offsets) for version in (1, 2)}
        equal = sum(made[1][carrier] == made[2][carrier] for carrier in made[1])
        wanted = equal, len(made[1]) - equal, 0
        found = compared.equal, compared.differing, compared.alone
        if wanted != found:
            yield (
                f"comparison {number}: {found[0]} rows equal, {found[1]} differing, {found[2]} in one version only; "
                f"expected {wanted[0]}, {wanted[1]} and {wanted[2]}"
            )
        for version, rows in compared.rows.items():
            yield from _rows(f"comparison {number}, v{version}", rows, made[version])
    for version, rows in comparisons[-1].rows.items():
        by_file = {carrier: row_of(version, each) for carrier, each in departures.items()}
        yield from _rows(f"v{version} at the end, by the CSV file", rows, by_file)


def _rows(what: str, found: Rows, wanted: Mapping[str, Any]) -> Iterator[str]:
    for carrier in sorted(found.keys() | wanted.keys()):
        if found.get(carrier) != wanted.get(carrier):
            yield f"{what}: {carrier} is {found.get(carrier)}, expected {wanted.get(carrier)}"


def _explanation_and_rollback(account: ViewAccount) -> Iterator[str]:
    if account.explained != account.to_explain:
        yield f"{account.explained} of {account.to_explain} differences are explained"
    if account.comparisons and account.to_explain != account.comparisons[0].differing:
        yield f"{account.to_explain} differences were explained, and {account.comparisons[0].differing} compared"
    if not account.same_bytes:
        yield "after the rollback the same question, at the same offsets, had another answer than before the shift"
    if account.rollback_ms >= ROLLBACK_MS:
        yield f"the rollback took {account.rollback_ms:.0f} ms, and must take less than {ROLLBACK_MS}"


def _reader(answers: Mapping[str, Any], flights: FlightLog) -> Iterator[str]:
    if not answers.get("reads"):
        yield "the reader was never answered"
        return
    if answers["errors"]:
        yield f"{answers['errors']} reads failed: {some(answers['error_texts'])}"
    if answers["torn"]:
        yield f"{answers['torn']} answers of one cut were two different rows"
    if answers["back"]:
        yield f"{answers['back']} answers were of an older cut than the caller had seen before"
    mixed = {caller: walk for caller, walk in answers["walks"].items() if not is_route(walk)}
    if mixed:
        yield f"{len(mixed)} callers saw a mix of versions: {some([f'{c}: {w}' for c, w in mixed.items()])}"
    offsets = {(version, cut): {int(p): end for p, end in ends.items()} for version, cut, ends in answers["cuts"]}
    wrong = [
        f"{carrier} of v{version} at cut {cut} is {row}, expected {wanted}"
        for version, cut, carrier, row in answers["rows"]
        if row != (wanted := flights.row(version, carrier, offsets[version, cut]))
    ]
    if wrong:
        yield f"{len(wrong)} answers are not what their version makes of their offsets: {some(wrong)}"


def is_route(walk: Sequence[int]) -> bool:
    """Whether one caller may be answered by these versions in this order."""
    rest = iter(ROUTES)
    return all(version in rest for version in walk)
