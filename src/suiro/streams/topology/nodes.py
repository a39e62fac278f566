"""A topology as data: frozen nodes, each with an operator that names a rule but has no code.

The DSL builds them (`builder`, `kstream`, `ktable`); `task` runs them one record at a time by the rules in
`operators/`; `describe` prints them. A node's parents are ordered: a record from `parents[i]` comes in by port i, which
is how joins and co-groups tell their sides apart.

Functions in operators are Python callables with Kafka Streams' parameters, or expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from suiro.streams.expressions.expression import Expression
from suiro.streams.serdes import Serde
from suiro.streams.windows import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows

Function = Callable[..., Any] | Expression
JoinType = Literal["inner", "left", "outer"]
AggregationKind = Literal["count", "reduce", "aggregate"]
StoreKind = Literal["key-value", "versioned", "window", "session", "stream-join", "buffer", "global"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSpec:
    """A state store: what `stores.open_store` makes of it, and what its changelog topic is like.

    `key` and `value` are the serdes of the plain key (not of the windowed one) and the value. `retention_ms` is the
    history of a versioned store, and how long windows are kept in window, session and stream-join stores.
    """

    name: str
    kind: StoreKind
    key: Serde
    value: Serde
    retention_ms: int | None = None
    window_size_ms: int | None = None
    logged: bool = True  # a changelog topic is written
    named_by_user: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """The base of operators."""


# Sources and sinks


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Operator):
    """Topics to read. `timestamp`: an object with `extract(record, partition_time) -> int`, see `extractors`."""

    topics: tuple[str, ...]
    key: Serde
    value: Serde
    timestamp: Any = None
    on_deserialization_error: str | None = None  # "fail", "skip", "dead-letter:<topic>"; None: the application's


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource(Operator):
    """Stream records become rows: the source of a table, and `to_table`. Without a store it knows no old values."""

    store: str | None
    versioned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalTableSource(Operator):
    """All partitions of a topic in every task. Its parent is a `Source` of that topic alone."""

    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink(Operator):
    """`topic`: a name, or a callable (key, value, record) -> name. `key`, `value`: None is `serdes.natural`."""

    topic: str | Callable[..., str]
    key: Serde | None = None
    value: Serde | None = None
    partitioner: Callable[..., int | None] | None = None  # (topic, key, value, partition count) -> partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition(Operator):
    """A cut through the topology: records go on in the task that owns their new key.

    `topic` is the internal topic's name without the application id. `partitions` None: as many as the largest of the
    source topics above has. `is_change`: the records are `Change`s of a table; the two sides travel apart unless both
    have one key. `keeps_null_keys`: records without a key go on, to a partition of their value's hash (KIP-962).
    """

    topic: str
    key: Serde
    value: Serde
    partitions: int | None = None
    partitioner: Callable[..., int | None] | None = None
    is_change: bool = False
    keeps_null_keys: bool = False
    asked_for: bool = False  # `repartition()`: a real topic, others may read it


# Record by record


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Operator):
    predicate: Function  # (key, value)
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Map(Operator):
    mapper: Function  # (key, value) -> (key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapValues(Operator):
    mapper: Function  # (value) -> value


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMap(Operator):
    mapper: Function  # (key, value) -> iterable of (key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatMapValues(Operator):
    mapper: Function  # (value) -> iterable of values


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectKey(Operator):
    mapper: Function  # (key, value) -> key


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek(Operator):
    action: Callable[..., Any]  # (key, value)


CallKind = Literal["filter", "filter_not", "flat_map_values", "map", "map_values", "peek"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncCall(Operator):
    """An `async def` function in the place of a plain one; `kind`: the operator that its results go through, whose
    parameters it has. `retry_on`: None is every exception but those of `calls.NOT_RETRIED`. `by_key`: calls of one key
    run one after the other."""

    kind: CallKind
    function: Callable[..., Coroutine[Any, Any, Any]]
    concurrency: int
    timeout_ms: int | None
    retries: int
    backoff_ms: int
    retry_on: tuple[type[Exception], ...] | None
    by_key: bool


BatchFormat = Literal["pyarrow", "pandas", "polars"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a batch: name and type, the latter Arrow's or its name. `is_value`: the one column is the value
    itself; else they are fields of values that are dicts."""

    fields: tuple[tuple[str, Any], ...]
    is_value: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapBatches(Operator):
    """Values by a function of a table of many records. `key_type`: of the column of keys; None: there is none."""

    function: Callable[[Any], Any]
    format: BatchFormat
    reads: Columns
    gives: Columns
    key_type: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge(Operator):
    """Passes everything on, from any port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Operator):
    """A record goes to the child whose name stands beside the first predicate that holds; None always holds."""

    predicates: tuple[tuple[Function | None, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Operator):
    """The Processor API. `supplier()` gives a processor with `init(context)`, `process(record)`, `close()`.

    `fixed_key`: `process_values`; forwarding another key is an error.
    """

    supplier: Callable[[], Any]
    stores: tuple[str, ...] = ()
    fixed_key: bool = False


# Aggregations of streams


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """The functions of `count`, `reduce` or `aggregate`: one aggregator for each port (several in a co-group).

    `kind` "count": no functions. "reduce": `aggregators` take (aggregate, value), the first value is the first
    aggregate. "aggregate": `initializer()` and aggregators (key, value, aggregate).
    """

    kind: AggregationKind
    initializer: Callable[[], Any] | None = None
    aggregators: tuple[Function, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAggregate(Operator):
    aggregation: Aggregation
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindowAggregate(Operator):
    aggregation: Aggregation
    windows: TimeWindows
    store: str
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingAggregate(Operator):
    aggregation: Aggregation
    windows: SlidingWindows
    store: str
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAggregate(Operator):
    aggregation: Aggregation
    windows: SessionWindows
    store: str
    merger: Function | None = None  # (key, aggregate, aggregate); None for count and reduce, which need none
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE


WindowedAggregate = TimeWindowAggregate | SlidingAggregate | SessionAggregate


# Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter(Operator):
    """`sends_old`: an operator below asked for old rows and they are known, so a tombstone that changes nothing is left
    out.

    Below a versioned table (`of_versions`, KIP-914) it is not left out: a tombstone that changes nothing now is still a
    version.
    """

    predicate: Function  # (key, value)
    negated: bool = False
    sends_old: bool = False
    of_versions: bool = False
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapValues(Operator):
    mapper: Function  # (value) -> value
    sends_old: bool = False
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGroupBy(Operator):
    """Re-keys a table's changes, on their way to a `Repartition(is_change=True)` and a `TableAggregate`."""

    mapper: Function  # (key, value) -> (key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAggregate(Operator):
    """Takes the old row out, then puts the new row in."""

    kind: AggregationKind
    store: str
    initializer: Callable[[], Any] | None = None
    adder: Function | None = None  # as `Aggregation`'s
    subtractor: Function | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStream(Operator):
    """A table's changes become records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppress(Operator):
    """`closing_delay_ms` (window close: grace, and gap for sessions) or `time_limit_ms`; then limits of the buffer.

    `inclusive_end`: the windows' end is inclusive (sliding, session), see `windows`.
    """

    store: str
    closing_delay_ms: int | None = None
    inclusive_end: bool = False
    time_limit_ms: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    emits_early_when_full: bool = True  # False: full is an error


# Joins


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStreamJoin(Operator):
    """Port 0 left, port 1 right. `outer_store` keeps unmatched records of left and outer joins."""

    join: JoinType
    joiner: Function  # (left, right)
    windows: JoinWindows
    left_store: str
    right_store: str
    outer_store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTableJoin(Operator):
    """Port 0 the stream; port 1 the table's node, whose changes wake nothing. `table_store` holds the table's rows.

    `grace_ms` and `buffer_store`: with a versioned table, stream records wait for late rows.
    """

    join: JoinType
    joiner: Function  # (stream value, table value)
    table_store: str
    versioned: bool = False
    grace_ms: int | None = None
    buffer_store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamGlobalTableJoin(Operator):
    join: JoinType
    key_mapper: Function  # (key, value) -> the table's key
    joiner: Function  # (stream value, table value)
    table_store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTableJoin(Operator):
    """Port 0 left, port 1 right, both `Change`s. A side's rows are in its store; `left_store`, `right_store` name them.

    `left_versioned`, `right_versioned`: updates of that side that are not its latest are left out (KIP-914).
    `sends_old`: somebody asked for the results that are replaced; else they are not made.
    """

    join: JoinType
    joiner: Function  # (left, right)
    left_store: str
    right_store: str
    left_versioned: bool = False
    right_versioned: bool = False
    sends_old: bool = False
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeySubscribe(Operator):
    """Left changes become subscriptions at the foreign key; on to a `Repartition`, then `ForeignKeyRespond`."""

    join: JoinType
    foreign_key: Function  # (value) -> the right table's key
    left_key: Serde
    left_value: Serde
    foreign: Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyRespond(Operator):
    """Port 0 subscriptions, port 1 changes of the right table; answers go back through a `Repartition`."""

    join: JoinType
    subscription_store: str
    right_store: str
    left_key: Serde
    foreign: Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyResolve(Operator):
    """Joins answers with the left rows that asked, unless a later answer to the row was joined already.

    `asked_store` keeps the last answer of each row. `left_store` is the left table's: Kafka Streams reads it here, and
    its description says so.
    """

    join: JoinType
    joiner: Function  # (left, right)
    left_store: str
    left_key: Serde
    left_value: Serde
    asked_store: str
    store: str | None = None


COUNTING_NULL_KEYS = (StreamStreamJoin, Process)
COUNTING_NULLS = (*COUNTING_NULL_KEYS, TimeWindowAggregate, SessionAggregate)
"""Operators whose time records with null keys advance, and those with null values."""
DROPPING_NULL_KEYS = (TimeWindowAggregate, SlidingAggregate, SessionAggregate, StreamTableJoin, TableSource)
"""Operators whose own time, or that of those below, records with null keys do not advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """`named_by_user`: False if the name is derived from the node's place and changes with it. `key`, `value`: the
    serdes of its records, if it is a stream and they are known."""

    name: str
    parents: tuple[str, ...]
    operator: Operator
    named_by_user: bool = False
    aliases: tuple[str, ...] = ()  # the further processors that Kafka Streams makes of this one, for `describe`
    key: Serde | None = None
    value: Serde | None = None
