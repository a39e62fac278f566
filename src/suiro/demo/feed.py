"""Inserts flights while the demo runs: transaction by transaction, at the speed that the story sets."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pyarrow as pa

from suiro.demo.database import insert

ROWS = 1_000  # in a transaction at the most: about a day of flights
LOOK_EVERY_S = 0.05


class Feed:
    """Runs on a thread from `start` to `stop`. `before` is the number of flights already in the table. `processed`
    returns how many the pipeline has processed, including those. At most `ahead` more are inserted."""

    def __init__(self, dsn: str, rows: pa.Table, *, before: int, ahead: int, processed: Callable[[], int]) -> None:
        self._dsn = dsn
        self._rows = rows
        self._before = before
        self._ahead = ahead
        self._processed = processed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-feed", daemon=True)
        self._pace: tuple[int, int, float] = (0, ROWS, 0.0)
        self.inserted = 0
        self.failure: BaseException | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def go_on(self, until: int, *, rows: int = ROWS, every_s: float = 0.0) -> None:
        """Inserts until `until` flights are inserted in total, `rows` in each transaction. `every_s` is the pause
        between two."""
        self._pace = until, rows, every_s

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while self.inserted < len(self._rows) and not self._ended.is_set():
                    until, rows, every_s = self._pace
                    count = min(rows, until - self.inserted)
                    if count <= 0 or self._before + self.inserted - self._processed() > self._ahead:
                        self._ended.wait(LOOK_EVERY_S)
                        continue
                    insert(connection, "flights", self._rows.slice(self.inserted, count))
                    self.inserted += count
                    self._ended.wait(every_s)
        except BaseException as error:  # noqa: BLE001 - the demo raises it
            self.failure = error
