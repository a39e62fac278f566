"""Finds the input records of a row in a running application's store, by a replay in a process of its own.

The functions of the topology run there once more, so they cannot stop or slow the application. The process ends at its
limits of records, time and memory, and says so. If it goes beyond them, it is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suiro.clock import SystemClock
from suiro.errors import TransientError, UsageError
from suiro.foundation.process import answer, answered
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Windowed
from suiro.streams.topology.topology import Topology
from suiro.streams_spark.program import packed, unpacked

TEXT_CHARS = 4 * 1024
RECORDS_MAX = 1_000
"""Of one answer: the last ones of the row."""
RECORDS, SECONDS, BYTES = 1_000_000, 60.0, 1024 * 1024 * 1024
KILLED_AFTER_S = 30.0
"""Beyond `SECONDS`: for its start, and what it does with what it has found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceable:
    """The values that a process needs to run the topology again."""

    topology: Topology
    settings: TaskSettings
    on_deserialization_error: str
    connection: tuple[str, Mapping[str, str]]


class RowTracer:
    """One row at a time. Thread-safe."""

    def __init__(self, of: Traceable) -> None:
        self._of = of
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def trace(self, store: str, key: str, window: tuple[int, int] | None) -> dict[str, Any]:
        """`key` and `window` as `ApplicationStatus.rows` gives them. Raises `UsageError`, `TransientError` and
        `FatalError`."""
        if len(key) >= TEXT_CHARS:
            raise UsageError(f"a key of {TEXT_CHARS} characters or more is shown cut, and is no name of a row")
        if not self._turn.acquire(blocking=False):
            raise TransientError("the input records of another row are being looked for; try again")
        try:
            return self._run(packed((self._of, store, key, window)).encode())
        finally:
            self._turn.release()

    def stop(self) -> None:
        """Ends what runs."""
        process = self._process
        if process is not None:
            process.kill()

    def _run(self, asked: bytes) -> dict[str, Any]:
        command = [sys.executable, "-m", "suiro.streams_spark.row_trace"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self._process = process
        try:
            found, _ = process.communicate(asked, timeout=SECONDS + KILLED_AFTER_S)
        except subprocess.TimeoutExpired:
            raise TransientError(
                f"the records of this row were not found within {SECONDS + KILLED_AFTER_S:g} s; "
                "a function of the topology may take long"
            ) from None
        finally:
            self._process = None
            process.kill()
            process.wait()
        ok: dict[str, Any] = answered(
            found,
            missing=f"the process that looked for records ended with exit code {process.returncode}; "
            "the application's log says why",
        )
        return ok


# Rows as text, for people: keys and values are JSON where they can be, and cut where they are long.


def row_of(key: Any, value: Any) -> dict[str, Any]:
    window = None
    if isinstance(key, Windowed):
        key, window = key.key, [key.start, key.end]
    return {"key": text_of(key), "value": text_of(value), "window": window}


def text_of(value: Any) -> str:
    """JSON where it is that. Half of a surrogate pair, which JSON may have in it, is shown by its number: UTF-8 has no
    form for it."""
    if isinstance(value, bytes):
        return value[: TEXT_CHARS // 2].hex()
    try:
        text = value if isinstance(value, str) else _json(value)
    except RecursionError:
        return f"({type(value).__name__}, nested too deeply to be shown)"
    return text[:TEXT_CHARS].encode("utf-8", "backslashreplace").decode()


def _json(value: Any) -> str:
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


# In the process of its own


def main() -> int:
    answer(lambda: _traced(*unpacked(sys.stdin.read())))
    return 0


def _traced(of: Traceable, store: str, key: str, window: tuple[int, int] | None) -> dict[str, Any]:
    from suiro.client import LATEST, Client
    from suiro.lineage import Bounds, Inputs, sources_of_row, topology_above

    topology = topology_above(of.topology, store)
    servers, settings = of.connection

    def is_key(found: Any) -> bool:
        return text_of(found) == key

    def is_row(found: Any) -> bool:
        if isinstance(found, Windowed):
            return window == (found.start, found.end) and is_key(found.key)
        return window is None and is_key(found)

    with Client(servers, settings=settings) as client:
        topics = client.metadata(list(topology.source_topics))
        places = [(name, number) for name, topic in topics.items() for number in range(len(topic.partitions))]
        ends = client.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
        inputs = Inputs(client, {place: end.offset for place, end in ends.items()}, may_begin_later=True)
        found = sources_of_row(
            of.topology,
            store,
            inputs,
            is_key=is_key,
            is_row=is_row,
            bounds=Bounds(records=RECORDS, seconds=SECONDS, bytes=BYTES),
            clock=SystemClock(),
            settings=of.settings,
            on_deserialization_error=of.on_deserialization_error,
        )
    return {
        "store": store,
        "key": key,
        "window": window,
        "found": found.found,
        "value": text_of(found.value) if found.found else None,
        "records": [
            {"topic": one.topic, "partition": one.partition, "offset": one.offset, "timestamp": one.timestamp}
            for one in found.records[-RECORDS_MAX:]
        ],
        "earlier": max(len(found.records) - RECORDS_MAX, 0),
        "read": found.read,
        "stopped": found.stopped,
        "proven": found.is_proven,
        "begin_later": [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in sorted(inputs.begin_later.items())
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
