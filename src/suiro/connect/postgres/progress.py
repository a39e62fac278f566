"""The progress of a capture for people: the rows that snapshots have read of each table, and changes of schemas.

The capture's thread writes it, other threads read it. The capture itself does not depend on it: the position in Kafka
says which tables are complete (`snapshot.table_state`).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from suiro.clock import Clock
from suiro.connect.postgres.snapshot.table_state import TableState

SCHEMA_CHANGES_KEPT = 50


class ReadRows:
    """The rows that the snapshots of one session have read."""

    def __init__(self, states: Mapping[str, TableState]) -> None:
        self._rows: Counter[str] = Counter()
        self._expected: dict[str, int] = {}
        self._resumed = {name for name, state in states.items() if state.running and state.after is not None}

    def begin(self, table: str) -> None:
        """The table is read from its first row."""
        self._rows.pop(table, None)
        self._expected.pop(table, None)
        self._resumed.discard(table)

    def expect(self, table: str, rows: float) -> None:
        self._expected.setdefault(table, int(rows))

    def add(self, table: str, rows: int) -> None:
        self._rows[table] += rows

    def progress(
        self, states: Mapping[str, TableState], locked: Mapping[str, Any], topic_of: Callable[[str], str]
    ) -> list[dict[str, Any]]:
        """Returns the progress of all tables, those that are being read first. `state`: "waiting", "reading", "locked"
        by another transaction, or "complete". `rows`: read by this session. `expected`: an estimate of the table's
        rows; None: not known yet. `is_resumed`: earlier sessions have read rows that are not in `rows`."""
        found = [
            {
                "table": name,
                "topic": topic_of(name),
                "state": self._state(name, state, name in locked),
                "rows": self._rows[name],
                "expected": self._expected.get(name),
                "is_resumed": name in self._resumed,
            }
            for name, state in list(states.items())  # the capture's thread changes it
        ]
        return sorted(found, key=lambda one: (_ORDER.index(one["state"]), one["table"]))

    def _state(self, name: str, state: TableState, is_locked: bool) -> str:
        if not state.running:
            return "complete"
        if is_locked:
            return "locked"
        return "reading" if name in self._expected else "waiting"


_ORDER = ("reading", "locked", "waiting", "complete")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """From one place in the stream on, a table had another schema."""

    at_ms: int
    table: str
    topic: str
    schema_id: int
    changes: tuple[str, ...]


class SchemaChanges:
    """The last `SCHEMA_CHANGES_KEPT` changes since the process started. Thread-safe."""

    def __init__(self, clock: Clock, on_change: Callable[[SchemaChange], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._lock = threading.Lock()
        self._last: deque[SchemaChange] = deque(maxlen=SCHEMA_CHANGES_KEPT)
        self._schemas: dict[str, Mapping[str, Any]] = {}

    def see(
        self,
        table: str,
        topic: str,
        schema_id: int,
        now: Mapping[str, Any],
        registered: Mapping[str, Any] | None,
    ) -> None:
        """`registered`: the subject's latest schema before this one, if this one is new."""
        before = self._schemas.get(topic, registered)
        self._schemas[topic] = now
        if before is None or before == now:
            return
        change = SchemaChange(
            at_ms=self._clock.wall_ms(),
            table=table,
            topic=topic,
            schema_id=schema_id,
            changes=tuple(differences(before, now)) or ("the order or the defaults of its columns",),
        )
        with self._lock:
            self._last.append(change)
        self._on_change(change)

    def newest_first(self) -> tuple[SchemaChange, ...]:
        with self._lock:
            return tuple(reversed(self._last))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Describes the differences of two Avro schemas of a table, in Postgres's words."""
    old, new = fields_by_name(before), fields_by_name(after)
    changes = [
        changed_column(old[name], field)
        for name, field in new.items()
        if name in old and old[name]["type"] != field["type"]
    ]
    changes += [f"column {name!r} is new" for name in new if name not in old]
    changes += [f"column {name!r} was dropped" for name in old if name not in new]
    return changes


def changed_column(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Describes how the type of a column changed, by two fields of Avro schemas."""
    was, now = old.get("postgres.type"), new.get("postgres.type")
    if was == now:
        if _avro(old) == _avro(new):
            return f"column {new['name']!r} ({now}) has other attributes, or arrays of another depth"
        # Another value of `as_text` or `decimals`.
        return f"column {new['name']!r} ({now}) was captured as {_avro(old)} and is captured as {_avro(new)}"
    return f"column {new['name']!r} was {was} and is {now}"


def _avro(field: Mapping[str, Any]) -> str:
    kind = field["type"][-1] if isinstance(field["type"], list) else field["type"]
    return kind if isinstance(kind, str) else str(kind.get("logicalType", kind["type"]))


def fields_by_name(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {field["name"]: field for field in schema["fields"]}
