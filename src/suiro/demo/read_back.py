"""Reads every topic from the start in processes of their own, and notes what is in them.

Python compares about 25,000 records per second and core, and the demo writes more than a million. So the processes
start while the story goes on, read along at a lower priority, and come to the end of each partition once nothing is
written any more. Each reads its share of the partitions.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Self

from suiro.demo.expected import expected
from suiro.demo.names import RAW
from suiro.demo.reading import Read, read
from suiro.demo.verify import Noted
from suiro.demo.view_figures import FlightLog
from suiro.errors import FatalError

__all__ = ["ReadBack", "ReadingAlong"]

NICENESS = 10
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


class ReadingAlong:
    """Begins to read at once. `limit`: of flights, as for `expected`. As a context manager it ends its processes."""

    def __init__(
        self,
        bootstrap_servers: str,
        topics: Sequence[str],
        *,
        registry: str,
        limit: int | None,
        readers: int = READERS,
    ) -> None:
        # Forked, they would have our connections and none of our threads.
        context = multiprocessing.get_context("spawn")
        self._is_over = context.Event()
        self._pool = ProcessPoolExecutor(
            readers, mp_context=context, initializer=_begin, initargs=(self._is_over,)
        )
        self._shares = [
            self._pool.submit(_read_share, bootstrap_servers, topics, registry, limit, share, readers)
            for share in range(readers)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._pool.shutdown(cancel_futures=True)

    def finish(self) -> ReadBack:
        """What is in the topics, which nobody writes any more. Raises `FatalError` where nothing comes."""
        self._is_over.set()
        found, *others = (share.result() for share in self._shares)
        for other in others:
            found.merge(other)
        return found


_over: Event


def _begin(is_over: Event) -> None:
    global _over
    _over = is_over
    os.nice(NICENESS)


def _is_over() -> bool:
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        raise FatalError("the demo has ended")
    return _over.is_set()


def _read_share(
    bootstrap_servers: str, topics: Sequence[str], registry: str, limit: int | None, share: int, shares: int
) -> ReadBack:
    wanted = expected(limit=limit)
    found = ReadBack(Noted(wanted))

    def seen() -> Iterator[tuple[str, Read]]:
        for topic, record in read(
            bootstrap_servers,
            topics,
            registry=registry,
            wanted=lambda partition: partition % shares == share,
            is_over=_is_over,
        ):
            found.records += 1
            if topic == RAW:
                found.flights.note(record)
            yield topic, record

    found.noted.note_all(seen(), wanted)
    return found
