"""Inserts flights while the demo runs: transaction by transaction, at the rate that the story sets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import pyarrow as pa

from suiro.clock import monotonic_s
from suiro.demo.database import insert

__all__ = ["Feed", "FeedRate"]

ROWS = 1_000  # in a transaction at the most: about a day of flights
TRANSACTIONS_PER_SECOND = 2  # where the rate is set by time
LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRate:
    """`until`: so many flights in all, of those that the feed has. `per_second`: none, as fast as they are taken."""

    until: int
    per_second: float | None = None

    def allowed(self, inserted: int, since: int, passed_s: float) -> int:
        """How many go into the next transaction. `since`, `passed_s`: what was inserted when this rate began, and how
        long ago that was."""
        if self.per_second is None:
            return max(0, min(ROWS, self.until - inserted))
        due = min(self.until, since + int(passed_s * self.per_second))
        # A full transaction's worth, or what is left: not one flight at a time.
        wanted = min(self.until - inserted, max(1, min(ROWS, int(self.per_second / TRANSACTIONS_PER_SECOND))))
        return wanted if due - inserted >= wanted > 0 else 0


class Feed:
    """On a thread from `start` to `stop`. `before`: flights that are in the table already; `processed`: how many the
    pipeline has done, with those; never more than `ahead` of it are inserted."""

    def __init__(
        self, dsn: str, rows: pa.Table, *, before: int, ahead: int, processed: Callable[[], int]
    ) -> None:
        self._dsn = dsn
        self._rows = rows
        self._before = before
        self._ahead = ahead
        self._processed = processed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-feed", daemon=True)
        self.inserted = 0
        self.transactions = 0
        self.failure: BaseException | None = None
        self._rate = (FeedRate(until=0), 0, 0.0)

    def __len__(self) -> int:
        return len(self._rows)

    def go_on(self, rate: FeedRate) -> None:
        self._rate = (rate, self.inserted, monotonic_s())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while self.inserted < len(self._rows) and not self._ended.is_set():
                    rate, since, began = self._rate
                    count = rate.allowed(self.inserted, since, monotonic_s() - began)
                    if not count or self._before + self.inserted - self._processed() > self._ahead:
                        self._ended.wait(LOOK_EVERY_S)
                        continue
                    rows = self._rows.slice(self.inserted, count)
                    insert(connection, "flights", rows)
                    self.inserted += len(rows)
                    self.transactions += 1
        except BaseException as error:  # noqa: BLE001 - the demo raises it
            self.failure = error
