"""Replays the log through one version's topology, and records the changes of some rows and their source records.

`replay` runs the topology over its whole input in the tracing interpreter (`suiro.lineage`). Records that cannot belong
to a requested key are dropped if the re-key points allow it. The result is then verified: the records that were found
must alone make the same row again (`reproduces`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from suiro.errors import UsageError
from suiro.lineage import (
    InputRecord,
    KeyPrefilter,
    Link,
    Log,
    Place,
    RekeyPoints,
    TracingInterpreter,
    global_topics,
    rekey_points_of,
    sources_of,
)
from suiro.streams.interpreter import Emitted, Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Windowed
from suiro.streams.topology.topology import Topology
from suiro.views.definition import RowCodec
from suiro.views.store.keys import place_of

OUTPUT = "view-output"
"""The name of the node that writes a view's rows."""

KNOWN_MAX = 500_000
KEPT_BYTES_MAX, RECORD_BYTES = 1 << 30, 500
"""The limit of the kept records; the size of one without key, value and headers. The interpreter's state is extra."""

Key = tuple[Any, ...]


class RowKey(tuple[Any, ...]):
    """A row's key for a dict. As in a store, a part may be a list, and 1 is not True."""

    __slots__ = ()

    def __hash__(self) -> int:
        try:
            return super().__hash__()
        except TypeError:
            return hash(place_of(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and place_of(self) == place_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A version to explain. `rows`: the rows of its store by key, JSON or None, to check the replayed rows."""

    version: int
    topology: Topology
    codec: RowCodec
    rows: Mapping[Key, str | None] = field(default_factory=dict)
    settings: TaskSettings | None = None
    on_deserialization_error: str = "fail"


@dataclass(frozen=True, slots=True)
class Step:
    """The row after one input record. `state`: the store of the aggregate behind the row, and the aggregate before and
    after."""

    place: Place | None
    row: bytes | None
    state: tuple[str, bytes | None, bytes | None] | None


@dataclass(slots=True, kw_only=True)
class Traced:
    """A key's row in one version: its steps in the order of the input, and its sources at the end."""

    key_bytes: bytes | None = None
    steps: list[Step] = field(default_factory=list)
    last: Link | None = None
    kept: set[Place] = field(default_factory=set)
    """The records that passed a re-key point for this key."""

    @property
    def row(self) -> bytes | None:
        return self.steps[-1].row if self.steps else None

    def sources(self, *, with_triggers: bool = False) -> set[Place]:
        return set() if self.last is None else sources_of(self.last, with_triggers=with_triggers)


@dataclass(slots=True, kw_only=True)
class Replay:
    """`order`: the number of each kept record among all that were read. `after`: for each record that came late, the
    record that had advanced the time."""

    side: Side
    traced: dict[Key, Traced]
    order: dict[Place, int] = field(default_factory=dict)
    after: dict[Place, Place] = field(default_factory=dict)
    is_filtered: bool = False
    sees_time: bool = True
    is_pure: bool = False
    """The records kept for a key are all that its row can come from, and the replay had no others."""
    read: int = 0


def replay(
    side: Side, keys: Sequence[Key], inputs: Log, records: dict[Place, InputRecord], *, filtered: bool = True
) -> Replay:
    """Puts all records into `records` that the rows may come from: all, or those that passed a re-key point."""
    points = rekey_points_of(side.topology, OUTPUT) if filtered else RekeyPoints(sees_time=True)
    wanted = _Wanted(side, keys, points)
    points = wanted.points
    found = Replay(
        side=side,
        traced=wanted.traced,
        is_filtered=bool(points.nodes),
        sees_time=points.sees_time,
        is_pure=bool(points.nodes) and points.above_is_stateless and not points.sees_time,
    )
    interpreter = TracingInterpreter(
        side.topology,
        on_result=wanted.on_result,
        kept_at=points.nodes,
        keep=wanted.is_wanted,
        settings=side.settings,
        on_deserialization_error=side.on_deserialization_error,
    )
    tables = global_topics(side.topology)
    found.is_pure = found.is_pure and not tables
    keeps_all = not points.nodes or not points.above_is_stateless
    prefilter = None
    if found.is_pure:
        prefilter = KeyPrefilter(side.topology, points.nodes, wanted.has)
    latest: tuple[int, int, InputRecord] | None = None
    kept_bytes = sum(_size(record) for record in records.values())
    number = -1
    read = inputs.read(side.topology)
    checked = zip(read, repeat(True), repeat(None)) if prefilter is None else prefilter.filtered(read)
    for number, (record, passes, decoded) in enumerate(checked):
        timestamp = record.timestamp
        if passes:
            record = record._replace(headers=tuple(record.headers))  # or it would keep its whole batch
            wanted.passed.clear()
            record.pipe(interpreter, decoded)
        if passes and (keeps_all or interpreter.was_kept or record.topic in tables):
            place = record.place
            if place not in records:
                kept_bytes += _size(record)
                if kept_bytes > KEPT_BYTES_MAX:
                    raise _too_much(side, len(records))
            records[place] = record
            found.order[place] = number
            if latest is not None and timestamp < latest[0]:
                _, its_number, its_record = latest
                found.after[place] = its_record.place
                records[its_record.place] = its_record
                found.order[its_record.place] = its_number
            for key_columns in wanted.passed:
                found.traced[key_columns].kept.add(place)
        if latest is None or timestamp > latest[0]:
            latest = timestamp, number, record
    found.read = number + 1
    interpreter.end_of_batch()
    interpreter.close()
    return found


def _size(record: InputRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _too_much(side: Side, count: int) -> UsageError:
    return UsageError(
        f"more than {count:,} records may belong to these rows of version {side.version}, and an explanation keeps no "
        f"more than {KEPT_BYTES_MAX >> 20} MiB of them in memory. Explain fewer rows at once; where a state comes "
        "before the rows get their key, every record of the inputs may belong to them"
    )


def reproduces(side: Side, key: Key, row: bytes | None, records: Iterable[InputRecord]) -> bool:
    """Whether these records alone, in the version's order, make this row."""
    found: bytes | None = None
    is_wanted: dict[bytes, bool] = {}
    interpreter = Interpreter(
        side.topology, settings=side.settings, on_deserialization_error=side.on_deserialization_error
    )

    def look() -> None:
        nonlocal found
        for emitted in interpreter.outputs:
            if emitted.topic != side.codec.topic or emitted.key is None:
                continue
            if emitted.key not in is_wanted:
                (columns,), _ = side.codec.decode([emitted.key], [None])
                is_wanted[emitted.key] = place_of(columns) == place_of(key)
            if is_wanted[emitted.key]:
                found = emitted.value
        interpreter.outputs.clear()

    for record in records:
        record.pipe(interpreter)
        look()
    interpreter.end_of_batch()
    look()
    interpreter.close()
    return found == row


class _Wanted:
    """Selects the records of the requested keys, and records their results in `traced`."""

    def __init__(self, side: Side, keys: Sequence[Key], points: RekeyPoints) -> None:
        self._side = side
        self._by_place = {place_of(key): key for key in keys}
        self.traced = {key: Traced() for key in keys}
        self._of_key: dict[bytes, Traced | None] = {}
        self._known: dict[Any, tuple[Key, ...]] = {}
        self.passed: set[Key] = set()
        self._windows: list[tuple[int, int]] = []
        if points.is_windowed:
            windows = [key[-2:] for key in keys]
            if all(isinstance(part, int) for window in windows for part in window) and len(set(windows)) <= 50:
                self._windows = sorted(set(windows))
            else:
                points = RekeyPoints(sees_time=True)
        self.points = points

    def on_result(self, emitted: Emitted, place: Place | None, link: Link) -> None:
        key_bytes = emitted.key
        if emitted.topic != self._side.codec.topic or key_bytes is None:
            return
        if key_bytes not in self._of_key:
            key = self.of_bytes(key_bytes)
            self._of_key[key_bytes] = None if key is None else self.traced[key]
        traced = self._of_key[key_bytes]
        if traced is None:
            return
        traced.key_bytes = key_bytes
        state = _state_of(link)
        if traced.steps and place is not None and traced.steps[-1].place == place:
            before = traced.steps[-1].state
            if state is not None and before is not None and state[0] == before[0]:
                state = (state[0], before[1], state[2])
            traced.steps[-1] = Step(place, emitted.value, state)
        else:
            traced.steps.append(Step(place, emitted.value, state))
        traced.last = link

    def of_bytes(self, key: bytes) -> Key | None:
        (columns,), _ = self._side.codec.decode([key], [None])
        return self._by_place.get(place_of(columns))

    def is_wanted(self, key: Any) -> bool:
        found = self._found(key)
        self.passed.update(found)
        return bool(found)

    def has(self, key: Any) -> bool:
        return bool(self._found(key))

    def _found(self, key: Any) -> tuple[Key, ...]:
        try:
            found = self._known.get((type(key), key))
        except TypeError:  # the key cannot be hashed, such as a dict
            return self._keys_of(key)
        else:
            if found is None:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                found = self._known[type(key), key] = self._keys_of(key)
            return found

    def _keys_of(self, key: Any) -> tuple[Key, ...]:
        codec = self._side.codec
        written = [Windowed(key, *window) for window in self._windows] or [key]
        found = (self.of_bytes(codec.key_serde.serialize(codec.topic, each)) for each in written)
        return tuple(each for each in found if each is not None)


def _state_of(link: Link) -> tuple[str, bytes | None, bytes | None] | None:
    """Returns the aggregate that a result was made from, if the same input record wrote it."""
    pending, seen = [link], 0
    while pending and seen < 32:
        at = pending.pop(0)
        seen += 1
        if at.change is not None:
            return at.change
        pending.extend(parent for parent in at.parents if parent.place == link.place)
    return None
