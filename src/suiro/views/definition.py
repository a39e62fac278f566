"""The definition of a view (`@view`) and of a version of it (`VersionSpec`), which JSON preserves.

A view is a function that builds a topology and returns one table, whose rows are the view's. The table gets one sink,
the version's own output topic. The topology must not write other topics, because both versions would write them.

A row has key columns and a JSON object. A table without a serde for its keys or values is written as JSON.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, get_args
from uuid import UUID

from suiro.errors import UsageError
from suiro.streams import KTable, StreamsBuilder, Topology, Windowed, serdes
from suiro.streams.dsl.registries import with_registry
from suiro.streams.durations import milliseconds
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import JsonSerde, Serde, SessionWindowedSerde, TimeWindowedSerde
from suiro.streams.topology.nodes import Repartition, Sink, StreamGlobalTableJoin, StreamTableJoin

Serve = Literal["sqlite", "postgres"]
WINDOW_COLUMNS = ("window_start", "window_end")

_VIEW_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_OPEN = (None, serdes.natural, serdes.tagged)
SPEC_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDefinition:
    """The arguments of `@view`. `search`: the fields of a row for full-text search. `history_ms`: how long older states
    can be read. `build`: (StreamsBuilder) -> KTable."""

    name: str
    key: tuple[str, ...]
    serve: Serve
    search: tuple[str, ...]
    history_ms: int
    build: Callable[[StreamsBuilder], KTable]


def view(
    name: str,
    *,
    key: str | Sequence[str],
    serve: Serve = "sqlite",
    search: str | Sequence[str] = (),
    history: str | timedelta | int = "1 hour",
) -> Callable[[Callable[[StreamsBuilder], Any]], Callable[[StreamsBuilder], Any]]:
    """Marks a function that builds a view. The function stays as it is, and gets an attribute `definition`.

    `key` names the columns of the table's key: one column for a text or a number; the fields of a JSON object; the
    items of a list, in order. The key of a window has the columns of its key, then `window_start` and `window_end`
    (ms), which may be left out here.

    >>> @view("carrier_delays", key=("carrier", "day"), serve="sqlite")
    ... def carrier_delays(builder):
    ...     ...
    """
    if not isinstance(name, str) or not _VIEW_NAME.fullmatch(name):
        raise UsageError(
            f"a view is named {name!r}; give up to 100 small letters, digits and '_', a letter first: the name becomes "
            "a part of topics and tables"
        )
    columns = _columns(f"the key of view {name!r}", key)
    if not columns:
        raise UsageError(f'view {name!r} has no key columns; name them, key=("carrier", "day")')
    if serve not in get_args(Serve):
        raise UsageError(f"view {name!r} is served from {serve!r}; give one of {', '.join(get_args(Serve))}")
    found = _columns(f"search of view {name!r}", search)
    history_ms = milliseconds(history, what=f"the history of view {name!r}")

    def decorate(build: Callable[[StreamsBuilder], Any]) -> Callable[[StreamsBuilder], Any]:
        if not callable(build):
            raise UsageError(f"@view({name!r}) is for a function that takes a builder and returns a table")
        build.definition = ViewDefinition(  # type: ignore[attr-defined]
            name=name, key=columns, serve=serve, search=found, history_ms=history_ms, build=build
        )
        return build

    return decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionSpec:
    """One version of a view: everything that its pipeline, its follower and its readers need.

    `code`: the SHA-256 of the archive. `entry`: "app.py:function" in it. `inputs`: the source topics. `settings`: see
    `settings`. `leader_cuts_topic`: the cuts of the version beside which it is built, None for the first version.
    `journal_id`: the id of the topic in which it was deployed, which tells versions of different logs apart. It is
    empty with a broker that has no topic ids. `by_arrival`: see the function. `internal_topics`: the changelogs and
    repartition topics that it writes.
    """

    view: str
    version: int
    key: tuple[str, ...]
    serve: Serve
    search: tuple[str, ...]
    history_ms: int
    application_id: str
    output_topic: str
    cuts_topic: str
    code: str
    entry: str
    fingerprint: str
    inputs: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    schema_registry_url: str | None = None
    leader_cuts_topic: str | None = None
    journal_id: str = ""
    by_arrival: tuple[str, ...] = ()
    internal_topics: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        definition: ViewDefinition,
        version: int,
        *,
        code: str,
        entry: str,
        settings: Mapping[str, str] | None = None,
        schema_registry_url: str | None = None,
        leader: VersionSpec | None = None,
        journal_id: str = "",
    ) -> VersionSpec:
        """Builds the topology, to refuse one that cannot work. Raises `TopologyError`, `ConfigError`."""
        name, application_id = f"{definition.name}.v{version}", f"{definition.name}-v{version}"
        topology = with_registry(topology_of(definition, name), schema_registry_url)
        codec = RowCodec(topology, definition.key)
        said = dict(sorted((settings or {}).items()))
        told = [code, entry, codec.key, definition.serve, definition.search, definition.history_ms, said]
        return cls(
            view=definition.name,
            version=version,
            key=codec.key,
            serve=definition.serve,
            search=definition.search,
            history_ms=definition.history_ms,
            application_id=application_id,
            output_topic=name,
            cuts_topic=f"{name}.cuts",
            code=code,
            entry=entry,
            fingerprint=hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16],
            inputs=tuple(sorted(topology.source_topics)),
            settings=said,
            schema_registry_url=schema_registry_url,
            leader_cuts_topic=None if leader is None else leader.cuts_topic,
            journal_id=journal_id,
            by_arrival=by_arrival(topology),
            internal_topics=tuple(f"{application_id}-{topic}" for topic in _internal_topics(topology)),
        )

    def topology_of(self, definition: ViewDefinition) -> Topology:
        """Returns the topology that this version runs, with its output topic and registry. Raises as `of` does."""
        return with_registry(topology_of(definition, self.output_topic), self.schema_registry_url)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return found | {"v": SPEC_VERSION}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> VersionSpec:
        unknown = value.keys() - {"v", *(each.name for each in dataclasses.fields(cls))}
        if value.get("v") != SPEC_VERSION or unknown:
            fields = f" with {', '.join(sorted(unknown))}" if unknown else ""
            raise UsageError(
                f"a version of a view was recorded in format {value.get('v')}{fields}, this version of suiro reads "
                f"{SPEC_VERSION}{' without' if unknown else ''}: use the one that wrote it"
            )
        lists = {"key", "search", "inputs", "by_arrival", "internal_topics"}
        given: dict[str, Any] = {
            name: tuple(item) if name in lists else item for name, item in value.items() if name != "v"
        }
        return cls(**given)


def topology_of(definition: ViewDefinition, output_topic: str) -> Topology:
    """Returns the view's topology, which writes its table to `output_topic`. Raises `TopologyError`."""
    builder = StreamsBuilder()
    table = definition.build(builder)
    if not isinstance(table, KTable):
        raise TopologyError(
            f"view {definition.name!r} returned {'nothing' if table is None else f'a {type(table).__name__}'}; it must "
            "return its table, a KTable: the result of count(), reduce(), aggregate(), of builder.table(...), or "
            "stream.to_table()"
        )
    key, value = _settled_key(table.key), serdes.json if table.value in _OPEN else table.value
    for what, serde in (("keys", key), ("values", value)):
        inner = serde.inner if isinstance(serde, TimeWindowedSerde | SessionWindowedSerde) else serde
        if inner == serdes.bytes:
            raise TopologyError(
                f"the {what} of view {definition.name!r} are plain bytes, and a row is columns and a JSON object: give "
                f"a serde, builder.stream(..., {what[:-1]}=serdes.json) or Materialized(..., {what[:-1]}=serdes.json)"
            )
    table.to_stream(name="view-rows").to(output_topic, key=key, value=value, name="view-output")
    topology = builder.build()
    shared = [node for node in topology.nodes if isinstance(node.operator, Sink) and node.name != "view-output"]
    if shared:
        raise TopologyError(
            f"view {definition.name!r} also writes topics of its own ({', '.join(node.name for node in shared)}): two "
            "versions run beside each other, and both would write there. Return the table and leave out to(...)"
        )
    return topology


def _internal_topics(topology: Topology) -> Iterator[str]:
    """Yields their names without the application id."""
    yield from (f"{store.name}-changelog" for store in topology.stores if store.logged)
    for node in topology.nodes:
        if isinstance(node.operator, Repartition) and node.operator.asked_for:
            yield node.operator.topic


class RowCodec:
    """Decodes records of the output topic to rows. `topology`: from `topology_of`, its serdes bound to a registry."""

    def __init__(self, topology: Topology, key: Sequence[str]) -> None:
        sink = topology.node("view-output").operator
        assert isinstance(sink, Sink)
        assert isinstance(sink.topic, str)
        assert sink.key is not None
        assert sink.value is not None
        self.topic, self.key_serde, self._value = sink.topic, sink.key, sink.value
        self._is_windowed = isinstance(sink.key, TimeWindowedSerde | SessionWindowedSerde)
        plain = tuple(key)
        if self._is_windowed and plain[-2:] == WINDOW_COLUMNS:
            plain = plain[:-2]
        if not plain:
            raise TopologyError(f"the key of {self.topic} has no columns but its window's; name those of its key too")
        self._names = plain
        self.key = plain + WINDOW_COLUMNS if self._is_windowed else plain
        """All key columns, including those of a window."""

    def decode(
        self, keys: Sequence[bytes], values: Sequence[bytes | None]
    ) -> tuple[list[tuple[Any, ...]], list[str | None]]:
        """Returns the key columns (text, numbers, bool, None, or lists and dicts of them) and the rows: JSON objects as
        text, None for a deleted row. Raises `UsageError` if a key does not have the named columns."""
        if isinstance(self._value, JsonSerde):
            texts = [None if value is None else _as_object(value) for value in values]
        else:
            read = self._value.deserialize
            texts = [None if value is None else _written(read(self.topic, value)) for value in values]
        found = (self.key_serde.deserialize(self.topic, key) for key in keys)
        columns = [
            (*self._parts(key.key), key.start, key.end) if isinstance(key, Windowed) else self._parts(key)
            for key in found
        ]
        return columns, texts

    def _parts(self, key: Any) -> tuple[Any, ...]:
        names = self._names
        if isinstance(key, dict):
            if key.keys() == set(names):
                return tuple(_plain(key[name]) for name in names)
            has = f"the fields {', '.join(map(str, key))}"
        elif isinstance(key, list | tuple):
            if len(key) == len(names):
                return tuple(_plain(item) for item in key)
            has = f"{len(key)} items"
        else:
            if len(names) == 1:
                return (_plain(key),)
            has = f"one value, {key!r}"
        raise UsageError(
            f"a key of {self.topic} has {has}, and the view says key=({', '.join(map(repr, names))}): name the parts "
            "that the table's key has, one column for one value"
        )


def _columns(what: str, given: str | Sequence[str]) -> tuple[str, ...]:
    columns = (given,) if isinstance(given, str) else tuple(given)
    for column in columns:
        if not isinstance(column, str) or not _COLUMN_NAME.fullmatch(column):
            raise UsageError(f"{what} names column {column!r}; give letters, digits and '_', a letter first")
    if len({column.lower() for column in columns}) != len(columns):
        raise UsageError(f"{what} names a column twice: {', '.join(columns)}")
    return columns


def _settled_key(key: Serde | None) -> Serde:
    match key:
        case TimeWindowedSerde(inner=inner, size_ms=size_ms) if inner in _OPEN:
            return serdes.time_windowed(serdes.json, size_ms)
        case SessionWindowedSerde(inner=inner) if inner in _OPEN:
            return serdes.session_windowed(serdes.json)
        case _:
            return serdes.json if key is None or key in _OPEN else key


def _as_object(data: bytes) -> str:
    text = data.decode()
    return text if text.startswith("{") else f'{{"value":{text}}}'


def _written(value: Any) -> str:
    plain = _plain(value)
    if not isinstance(plain, dict):
        plain = {"value": plain}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Returns the value as JSON: bytes as base64, times as ISO 8601, exact numbers as text, NaN as null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value - value == 0 else None
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case Mapping():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case Windowed():
            return {"key": _plain(value.key), "start": value.start, "end": value.end}
        case _:
            raise UsageError(f"a row holds a {type(value).__name__}, which JSON has no form for: {value!r}")


def by_arrival(topology: Topology) -> tuple[str, ...]:
    """Returns the names of the joins whose result depends on which of two records was processed first.

    A stream record that joins a table takes the row that is there when it is processed. In live operation, that depends
    on which record was written first; in a rebuild, on the timestamps. So two versions of the same code may differ in
    such rows, and `compare` says so. A join with a versioned table and a grace period is none of them.
    """
    return tuple(
        node.name
        for node in topology.nodes
        if isinstance(node.operator, StreamGlobalTableJoin)
        or (isinstance(node.operator, StreamTableJoin) and not node.operator.grace_ms)
    )


def note_of(joins_by_version: dict[int, tuple[str, ...]]) -> str | None:
    """Returns a note for a comparison that finds differences, or None without such joins."""
    told = [f"version {number} by {', '.join(joins)}" for number, joins in joins_by_version.items() if joins]
    if not told:
        return None
    return (
        f"Some differences may come from the order of arrival and not from the code: {'; '.join(told)} joins each "
        "record of a stream with the row that a table has at that moment, which in a rebuild is decided by timestamps. "
        "A versioned table with grace=... makes it the same always."
    )
