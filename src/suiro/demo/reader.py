"""Reads the view all the time: `python -m suiro.demo.reader URL FILE`, a separate process.

Many callers take turns at a steady rate of look-ups. Each is a user of the view that a shift may move. The process
prints its status regularly until standard input closes. Then it writes all answers to FILE.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from suiro.clock import monotonic_s, sleep_s
from suiro.demo.names import RAW, VIEW
from suiro.errors import FatalError, SuiroError
from suiro.foundation.stopping import Stopping

CALLERS = tuple(f"caller-{number}" for number in range(1, 101))
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
READS_PER_SECOND = 100
THREADS = 4
REPORT_EVERY_S = 0.2
TIMEOUT_S = 30.0
PAUSE_S = 0.02
TRY_AGAIN = (502, 503)
ERRORS_KEPT = 20


@dataclass(slots=True)
class Notes:
    """The answers. `rows` are by version, cut and carrier. `walks` has the versions that answered each caller, in
    order. `torn` counts cuts of a version with two different rows for a carrier, or different offsets. `back` counts
    answers of an older cut of the same version than before. `last_s` is the time of the last answer of each version,
    `asked_s` the time of the last answered request of each caller."""

    latencies: Counter[int] = field(default_factory=Counter)  # in tenths of a millisecond
    errors: list[str] = field(default_factory=list)
    error_count: int = 0
    rows: dict[tuple[int, int, str], Any] = field(default_factory=dict)
    offsets: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    walks: dict[str, list[int]] = field(default_factory=dict)
    torn: int = 0
    back: int = 0
    last_s: dict[int, float] = field(default_factory=dict)
    asked_s: dict[str, float] = field(default_factory=dict)
    _cuts: dict[str, int] = field(default_factory=dict)

    @property
    def reads(self) -> int:
        return self.latencies.total()

    def failed(self, why: str) -> None:
        self.error_count += 1
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(why)

    def answered(self, caller: str, carrier: str, answer: dict[str, Any], asked_s: float, now_s: float) -> None:
        self.latencies[int((now_s - asked_s) * 10_000)] += 1
        version, cut, row = answer["version"], answer["cut"], answer["row"]
        value = None if row is None else row["value"]
        offsets = answer["offsets"].get(RAW, {})
        self.torn += self.rows.setdefault((version, cut, carrier), value) != value
        self.torn += self.offsets.setdefault((version, cut), offsets) != offsets
        walk = self.walks.setdefault(caller, [])
        if not walk or walk[-1] != version:
            walk.append(version)
        elif cut < self._cuts[caller]:
            self.back += 1
        self._cuts[caller] = cut
        self.last_s[version] = now_s
        self.asked_s[caller] = asked_s

    def latency_ms(self, share: float) -> float | None:
        """Returns the latency that this share of the reads did not exceed."""
        steps = sorted(self.latencies.elements())
        return (steps[ceil(share * len(steps)) - 1] + 1) / 10 if steps else None

    def summary(self) -> dict[str, Any]:
        now_on = Counter(walk[-1] for walk in self.walks.values())
        return {
            "reads": self.reads,
            "errors": self.error_count,
            "p50_ms": self.latency_ms(0.5),
            "p99_ms": self.latency_ms(0.99),
            "callers": {str(version): count for version, count in sorted(now_on.items())},
            "last_s": {str(version): at for version, at in self.last_s.items()},
            "all_since_s": min(self.asked_s.values()) if len(self.asked_s) == len(CALLERS) else 0.0,
        }

    def to_json(self) -> dict[str, Any]:
        return {
            **self.summary(),
            "error_texts": self.errors,
            "torn": self.torn,
            "back": self.back,
            "walks": self.walks,
            "cuts": [[version, cut, offsets] for (version, cut), offsets in self.offsets.items()],
            "rows": [[version, cut, carrier, row] for (version, cut, carrier), row in self.rows.items()],
        }


class _Door:
    """Look-ups over HTTP on one connection, retried as by `Views`. With `Views`, a hundred per second take a fifth of a
    processor, which the demo needs for other work."""

    def __init__(self, url: str) -> None:
        self._http = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
        self.close = self._http.close

    def get(self, carrier: str, caller: str) -> dict[str, Any]:
        """Raises `SuiroError`."""
        ends_s = monotonic_s() + TIMEOUT_S
        while True:
            try:
                self._http.request("GET", f"/views/{VIEW}/rows/{carrier}?caller={caller}")
                response = self._http.getresponse()
                body, status = response.read(), response.status
            except (OSError, HTTPException) as error:
                self._http.close()  # the next request connects again
                failure = f"{type(error).__name__}: {error}"
            else:
                if status == 200:
                    answer: dict[str, Any] = json.loads(body)
                    return answer
                failure = f"status {status}: {body.decode(errors='replace')}"
                if status not in TRY_AGAIN:
                    raise FatalError(failure)
            if monotonic_s() > ends_s:
                raise FatalError(failure)
            sleep_s(PAUSE_S)


class _Reading:
    """Each thread reads for the same callers all the time, so that the answers of each caller are in order."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._notes = Notes()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(CALLERS[number::THREADS],), daemon=True)
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> Notes:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        return self._notes

    def summary(self) -> dict[str, Any]:
        with self._lock:
            return self._notes.summary()

    def _read(self, callers: Sequence[str]) -> None:
        due_s = monotonic_s()
        with closing(_Door(self._url)) as door:
            for turn in count():
                if self._ended.wait(max(0.0, due_s - monotonic_s())):
                    return
                caller = callers[turn % len(callers)]
                carrier = CARRIERS[(turn + turn // len(callers)) % len(CARRIERS)]
                asked_s = monotonic_s()
                try:
                    answer = door.get(carrier, caller)
                except SuiroError as error:
                    with self._lock:
                        self._notes.failed(f"{caller}: {type(error).__name__}: {error}")
                else:
                    with self._lock:
                        self._notes.answered(caller, carrier, answer, asked_s, monotonic_s())
                # Reads that were missed during a slow one are skipped.
                due_s = max(due_s, asked_s) + THREADS / READS_PER_SECOND


def main(arguments: Sequence[str] | None = None) -> int:
    url, file = sys.argv[1:] if arguments is None else arguments
    reading = _Reading(url)
    stopping = Stopping(while_stdin_is_open=True)
    while not stopping.wait(REPORT_EVERY_S):
        print(json.dumps({"event": "reads"} | reading.summary()), flush=True)
    Path(file).write_text(json.dumps(reading.stop().to_json()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
