"""Rules that every checker of exactly once shares: observations go in, `Anomaly` come out. No I/O, no clock.

Three checkers feed them: `tests/matrix/checker.py` with what can be seen at one moment, `tests/sim/checker.py` after
every event of a simulation, `tests/soak/checker.py` round by round, with a memory that does not grow with records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, Literal, TypeVar

from suiro.demo.anomalies import Anomaly

Place = tuple[str, int]
Fate = Literal["commit", "abort"]
T = TypeVar("T")

MISSING_MAX = 1000
TRANSACTIONS_MAX = 20_000


class Numbers:
    """The numbers of each key of one topic: they go up by one, without a gap and without a repetition."""

    def __init__(self, topic: str, *, first: int) -> None:
        self.topic = topic
        self.total = 0
        self._first = first
        self._next: dict[str, int] = {}
        self._missing: set[tuple[str, int]] = set()

    def take(self, key: str, number: int, where: str) -> Anomaly | None:
        due = self._next.get(key, self._first)
        self.total += 1
        if number == due:
            self._next[key] = due + 1
            return None
        if number > due:
            self._next[key] = number + 1
            self._missing |= {(key, one) for one in range(due, min(number, due + MISSING_MAX))}
            return Anomaly(
                "lost write", f"{where}: {key} goes from {due - 1} to {number} (lost, unless it comes later)"
            )
        if (key, number) in self._missing:
            self._missing.discard((key, number))
            return Anomaly("order inversion", f"{where}: {key} has {number} after {due - 1}")
        return Anomaly("duplicate", f"{where}: {key} has {number} again, it was at {due - 1}")

    def counts(self) -> dict[str, int]:
        """How many of each key."""
        return {key: number - self._first for key, number in self._next.items()}


class Transactions(Generic[T]):
    """The fate of each transaction, from the markers in each partition's own log (KIP-98). A producer is its id and its
    epoch; one epoch is one transaction. `T`: what the checker keeps of data until its marker comes."""

    def __init__(self) -> None:
        self.committed = self.aborted = 0
        self._open: dict[tuple[Place, int], tuple[int, list[T]]] = {}
        self._fates: dict[tuple[int, int], tuple[Fate, Place]] = {}

    def data(self, place: Place, producer: tuple[int, int], what: list[T]) -> Anomaly | None:
        producer_id, epoch = producer
        before, kept = self._open.setdefault((place, producer_id), (epoch, []))
        kept += what
        if before != epoch:
            self._open[place, producer_id] = (epoch, kept)
            return Anomaly(
                "torn transaction",
                f"{place}: producer {producer_id} has epochs {before} and {epoch} before one marker",
            )
        return None

    def marker(self, place: Place, producer_id: int, fate: Fate) -> tuple[list[T], Anomaly | None]:
        """Returns the data that it decides."""
        epoch, kept = self._open.pop((place, producer_id), (-1, []))
        if epoch < 0:
            return [], None  # of a transaction that wrote nothing here
        known = self._fates.get((producer_id, epoch))
        if known is None:
            self._fates[producer_id, epoch] = (fate, place)
            self.committed += fate == "commit"
            self.aborted += fate == "abort"
            if len(self._fates) > TRANSACTIONS_MAX:
                del self._fates[next(iter(self._fates))]
        elif known[0] != fate:
            words = f"producer {producer_id}, epoch {epoch}: {known[0]} in {known[1]}, {fate} in {place}"
            return kept, Anomaly("torn transaction", words)
        return kept, None

    def open_in(self, place: Place) -> bool:
        return any(where == place for where, _ in self._open)


def micro_batches(written: Mapping[int, tuple[int, int]], *, marker: int, finished: int) -> Iterator[Anomaly]:
    """`written`: of each micro-batch, how many of its records can be read, and how many it has. `marker`: the last one
    that the marker says is written, `finished`: that the checkpoint counts as finished; -1."""
    for batch_id, (found, planned) in written.items():
        if 0 < found < planned:
            yield Anomaly("torn transaction", f"micro-batch {batch_id}: {found} of {planned} records")
        elif planned and not found and batch_id <= max(marker, finished):
            words = f"micro-batch {batch_id}: none; marker at {marker}, finished {finished}"
            yield Anomaly("lost write", words)
    if finished > marker:
        words = f"micro-batch {finished} counts as finished, the marker is at {marker}"
        yield Anomaly("offsets behind data", words)
    last = last_written(written, marker)
    if marker != last:
        words = f"the marker is at micro-batch {marker}, data at {last}"
        yield Anomaly("offsets ahead of data" if marker > last else "offsets behind data", words)


def last_written(written: Mapping[int, tuple[int, int]], marker: int) -> int:
    """The last micro-batch of which something can be read; one without records is written when the marker says so."""
    return max(
        (number for number, (found, planned) in written.items() if found or (not planned and number <= marker)),
        default=-1,
    )


def offsets(committed: Mapping[Place, int], due: Mapping[Place, int]) -> Iterator[Anomaly]:
    """Of the source. A partition that is in one of them only counts as 0 in the other."""
    for place in committed.keys() | due.keys():
        at, wanted = committed.get(place, 0), due.get(place, 0)
        if at != wanted:
            yield Anomaly(
                "offsets ahead of data" if at > wanted else "offsets behind data",
                f"{place} is committed at {at}, data at {wanted}",
            )


def blocked(place: Place, stable: int, end: int) -> Iterator[Anomaly]:
    """Where no transaction can be open."""
    if stable != end:
        yield Anomaly("blocked readers", f"{place}: last stable offset {stable}, end {end}")
