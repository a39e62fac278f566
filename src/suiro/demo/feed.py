"""The flights that are inserted while the demo runs: transaction by transaction, not far ahead of the pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pyarrow as pa

from suiro.demo.database import insert

__all__ = ["Feed"]

ROWS = 1_000  # in a transaction: about a day of flights
LOOK_EVERY_S = 0.05


class Feed:
    """On a thread from `start` to `stop`. `processed`: how many flights the pipeline has done, `before` and these."""

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

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                while self.inserted < len(self._rows) and not self._ended.is_set():
                    if self._before + self.inserted - self._processed() > self._ahead:
                        self._ended.wait(LOOK_EVERY_S)
                        continue
                    rows = self._rows.slice(self.inserted, ROWS)
                    insert(connection, "flights", rows)
                    self.inserted += len(rows)
                    self.transactions += 1
        except BaseException as error:
            self.failure = error
