"""What each version of the view must answer, at any offsets: computed from the flights that the topic holds.

Neither the view's code nor the interpreter is used here: sums of a few integers, version 1's with its bug.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from suiro.demo.expected import Departures
from suiro.demo.reading import Read
from suiro.foundation.types import TopicPartition

__all__ = ["FlightLog", "mean_of", "place_of", "row_of"]

Offsets = Mapping[int, int]  # the next offset of each partition


def row_of(version: int, departures: Departures) -> dict[str, Any] | None:
    """A carrier's row of version 1 or 2; None where there is no flight."""
    if not departures.flights:
        return None
    return {
        "flights": departures.flights,
        "cancelled": departures.cancelled,
        "mean_dep_delay": mean_of(version, departures),
    }


def mean_of(version: int, departures: Departures) -> float | None:
    """Version 1 divides by all flights: those that never departed count as if they had been on time."""
    number = departures.flights if version == 1 else departures.flights - departures.cancelled
    return departures.minutes / number if number else None


def place_of(carrier: str, version: int, carriers: Mapping[str, Departures]) -> int:
    """From 1 on: 1 has the largest mean delay."""
    means = {name: mean_of(version, each) or 0.0 for name, each in carriers.items()}
    return 1 + sum(mean > means[carrier] for mean in means.values())


@dataclass(slots=True)
class _Lane:
    """A carrier's flights in one partition, summed up to each."""

    offsets: list[int] = field(default_factory=list)
    minutes: list[int] = field(default_factory=lambda: [0])
    cancelled: list[int] = field(default_factory=lambda: [0])

    def add(self, offset: int, delay: int | None) -> None:
        self.offsets.append(offset)
        self.minutes.append(self.minutes[-1] + (delay or 0))
        self.cancelled.append(self.cancelled[-1] + (delay is None))

    def below(self, offset: int) -> Departures:
        count = bisect_left(self.offsets, offset)
        return Departures(flights=count, cancelled=self.cancelled[count], minutes=self.minutes[count])


class FlightLog:
    """The topic of flights, as it was read back: record by record, each partition in order."""

    def __init__(self, records: Iterable[Read] = ()) -> None:
        self._lanes: dict[TopicPartition, _Lane] = {}
        for record in records:
            self.note(record)

    def note(self, record: Read) -> None:
        if record.value is None:
            return
        place = record.value["carrier"], record.partition
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane()
        lane.add(record.offset, record.value["dep_delay"])

    def merge(self, other: FlightLog) -> None:
        """Of other partitions."""
        self._lanes |= other._lanes

    @property
    def carriers(self) -> list[str]:
        return sorted({carrier for carrier, _ in self._lanes})

    def departures(self, carrier: str, offsets: Offsets) -> Departures:
        """Of the flights below these offsets."""
        found = Departures()
        for partition, offset in offsets.items():
            lane = self._lanes.get((carrier, partition))
            if lane is not None:
                found = found + lane.below(offset)
        return found

    def row(self, version: int, carrier: str, offsets: Offsets) -> dict[str, Any] | None:
        return row_of(version, self.departures(carrier, offsets))

    def differing(self, offsets: Offsets) -> tuple[list[str], list[str]]:
        """Carriers whose rows are equal in both versions, and carriers whose rows are not."""
        equal: list[str] = []
        differing: list[str] = []
        for carrier in self.carriers:
            first, second = (self.row(version, carrier, offsets) for version in (1, 2))
            if first is not None:
                (equal if first == second else differing).append(carrier)
        return equal, differing
