"""Readers of the view: `python -m suiro.demo.reader URL FILE`, a separate process.

Many callers take turns at a steady rate of lookups. Each is a user of the view, whom a shift may move. The status is
printed now and then until standard input closes; then all answers are written to FILE.
"""

from __future__ import annotations

import json
import sys
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from suiro.clock import monotonic_s, sleep_s
from suiro.demo.names import RAW, VIEW
from suiro.errors import FatalError, SuiroError

__all__ = ["CALLERS", "ROUND", "Notes", "main"]

CALLERS = tuple(f"caller-{number}" for number in range(1, 101))
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA", "US", "VX", "WN", "YV")
READS_PER_SECOND = 100
THREADS = 4
ROUND = len(CALLERS) // THREADS
"""After so many turns of each thread, every caller was answered once."""
REPORT_EVERY_S = 0.2
TIMEOUT_S = 30.0
PAUSE_S = 0.02
TRY_AGAIN = (502, 503)
ERRORS_KEPT = 20


@dataclass(slots=True)
class Notes:
    """What was answered. `rows`: by version, cut and carrier. `walks`: the versions that each caller was answered by,
    one after another. `torn`: one cut of a version gave two rows for a carrier, or two offsets; `back`: a caller saw
    an older cut than before, of the same version."""

    latencies: Counter[int] = field(default_factory=Counter)  # in tenths of a millisecond
    errors: list[str] = field(default_factory=list)
    error_count: int = 0
    rows: dict[tuple[int, int, str], Any] = field(default_factory=dict)
    offsets: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    walks: dict[str, list[int]] = field(default_factory=dict)
    torn: int = 0
    back: int = 0
    last_s: dict[int, float] = field(default_factory=dict)  # when a version last answered
    _cuts: dict[str, int] = field(default_factory=dict)

    @property
    def reads(self) -> int:
        return self.latencies.total()

    def failed(self, why: str) -> None:
        self.error_count += 1
        if len(self.errors) < ERRORS_KEPT:
            self.errors.append(why)

    def answered(
        self, caller: str, carrier: str, answer: dict[str, Any], took_s: float, now_s: float
    ) -> None:
        self.latencies[int(took_s * 10_000)] += 1
        version, cut, row = answer["version"], answer["cut"], answer["row"]
        value = None if row is None else row["value"]
        offsets = answer["offsets"].get(RAW, {})
        if self.rows.setdefault((version, cut, carrier), value) != value:
            self.torn += 1
        if self.offsets.setdefault((version, cut), offsets) != offsets:
            self.torn += 1
        walk = self.walks.setdefault(caller, [])
        if not walk or walk[-1] != version:
            walk.append(version)
        elif cut < self._cuts[caller]:
            self.back += 1
        self._cuts[caller] = cut
        self.last_s[version] = now_s

    def latency_ms(self, share: float) -> float | None:
        """The latency that this share of the reads did not exceed."""
        steps = sorted(self.latencies)
        if not steps:
            return None
        sums, total = [], 0
        for step in steps:
            total += self.latencies[step]
            sums.append(total)
        return (steps[bisect_left(sums, share * total)] + 1) / 10

    def summary(self) -> dict[str, Any]:
        now_on = Counter(walk[-1] for walk in self.walks.values())
        return {
            "reads": self.reads,
            "errors": self.error_count,
            "p50_ms": self.latency_ms(0.5),
            "p99_ms": self.latency_ms(0.99),
            "callers": {str(version): count for version, count in sorted(now_on.items())},
            "last_s": {str(version): at for version, at in self.last_s.items()},
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
    """Look-ups over HTTP on one connection, with nothing but what Python has: a hundred a second should not be what the
    demo's machine is busy with. Asks again for as long as `Views` would: a host that starts again costs time, not an
    error."""

    def __init__(self, url: str) -> None:
        self._http = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, carrier: str, caller: str) -> dict[str, Any]:
        """Raises `SuiroError`."""
        ends_s = monotonic_s() + TIMEOUT_S
        while True:
            try:
                self._http.request("GET", f"/views/{VIEW}/rows/{carrier}?caller={caller}")
                response = self._http.getresponse()
                body, status = response.read(), response.status
            except (OSError, HTTPException) as error:
                self._http.close()  # it connects again by itself
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
    """A caller is always read for by the same thread, so that its answers come in order."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._notes = Notes()
        self._turns = [0] * THREADS
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._read, args=(lane, CALLERS[lane::THREADS]), daemon=True)
            for lane in range(THREADS)
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
            return self._notes.summary() | {"turns": list(self._turns)}

    def _read(self, lane: int, callers: Sequence[str]) -> None:
        due_s = monotonic_s()
        with _Door(self._url) as door:
            for turn in count():
                if self._ended.wait(max(0.0, due_s - monotonic_s())):
                    return
                caller = callers[turn % len(callers)]
                carrier = CARRIERS[(turn + turn // len(callers)) % len(CARRIERS)]
                begun_s = monotonic_s()
                try:
                    answer = door.get(carrier, caller)
                except SuiroError as error:
                    with self._lock:
                        self._notes.failed(f"{caller}: {type(error).__name__}: {error}")
                else:
                    now_s = monotonic_s()
                    with self._lock:
                        self._notes.answered(caller, carrier, answer, now_s - begun_s, now_s)
                self._turns[lane] = turn + 1
                # Reads that were missed while this one took long are not made up for.
                due_s = max(due_s, begun_s) + THREADS / READS_PER_SECOND


def main(arguments: Sequence[str] | None = None) -> int:
    url, file = sys.argv[1:] if arguments is None else arguments
    reading = _Reading(url)
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    while not ended.wait(REPORT_EVERY_S):
        print(json.dumps({"event": "reads"} | reading.summary()), flush=True)
    notes = reading.stop()
    Path(file).write_text(json.dumps(notes.to_json()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
