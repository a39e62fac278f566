"""Reads every topic from the start in two processes, and records its contents.

Python compares about 25,000 records per second and core, and the demo writes more than a million. Each process reads
half of the partitions.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from suiro.demo.expected import Expected
from suiro.demo.names import RAW
from suiro.demo.reading import Read, read
from suiro.demo.verify import Noted
from suiro.demo.view_figures import FlightLog

__all__ = ["ReadBack", "read_back"]

READERS = 2


@dataclass(slots=True)
class ReadBack:
    """`records`: how many were read. `flights`: what the versions of the view could see."""

    noted: Noted
    flights: FlightLog = field(default_factory=FlightLog)
    records: int = 0

    def merge(self, other: ReadBack) -> None:
        self.noted.merge(other.noted)
        self.flights.merge(other.flights)
        self.records += other.records


def read_back(
    bootstrap_servers: str,
    topics: Sequence[str],
    *,
    registry: str,
    expected: Expected,
    readers: int = READERS,
) -> ReadBack:
    """Raises `FatalError` where nothing comes."""
    # Forked, they would have our connections and none of our threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, readers - 1), mp_context=context) as pool:
        others = [
            pool.submit(_read_share, bootstrap_servers, topics, registry, expected, share, readers)
            for share in range(1, readers)
        ]
        found = _read_share(bootstrap_servers, topics, registry, expected, 0, readers)
        for other in others:
            found.merge(other.result())
    return found


def _read_share(
    bootstrap_servers: str, topics: Sequence[str], registry: str, expected: Expected, share: int, shares: int
) -> ReadBack:
    found = ReadBack(Noted(expected))

    def seen() -> Iterator[tuple[str, Read]]:
        for topic, record in read(
            bootstrap_servers, topics, registry=registry, wanted=lambda partition: partition % shares == share
        ):
            found.records += 1
            if topic == RAW:
                found.flights.note(record)
            yield topic, record

    found.noted.note_all(seen(), expected)
    return found
