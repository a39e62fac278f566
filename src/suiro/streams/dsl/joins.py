"""Builds joins: their stores, the repartitions before them, and Kafka Streams' names for both. The rules of joins are
in `operators`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from suiro.streams import serdes
from suiro.streams.dsl.checks import function
from suiro.streams.dsl.graph import check_one_builder, common_serde, known
from suiro.streams.dsl.kstream import KStream
from suiro.streams.dsl.ktable import GlobalKTable, KTable, add_table
from suiro.streams.dsl.named import Joined, Materialized, Name, StreamJoined, name_of, options_of
from suiro.streams.durations import milliseconds
from suiro.streams.errors import TopologyError
from suiro.streams.operators.foreign_key_join import ResponseSerde, SubscriptionSerde, response_partition
from suiro.streams.serdes import Serde
from suiro.streams.topology import nodes
from suiro.streams.topology.nodes import Function, JoinType, StoreKind
from suiro.streams.windows import Duration, JoinWindows


def join_stream(join: JoinType, stream: KStream, other: Any, *arguments: Any, **options: Any) -> KStream:
    """Joins a stream with a stream, a table or a global table."""
    if isinstance(other, KStream | KTable | GlobalKTable):
        check_one_builder(stream, other, "a join")
    build: Callable[..., KStream]
    match other:
        case KStream():
            build, what = _stream_stream, "a stream"
        case KTable():
            build, what = _stream_table, "a table"
        case GlobalKTable():
            build, what = _stream_global_table, "a global table"
        case _:
            raise TopologyError(f"a stream cannot join {other!r}; give a stream, a table or a global table")
    signature = inspect.signature(build)
    try:
        signature.bind(join, stream, other, *arguments, **options)
    except TypeError as error:
        taken = ", ".join([*signature.parameters][3:])
        raise TopologyError(f"the join of {stream.node} with {what}: {error}; it takes {taken}") from None
    return build(join, stream, other, *arguments, **options)


# Joins of streams


def _stream_stream(
    join: JoinType,
    left: KStream,
    right: KStream,
    joiner: Function,
    windows: JoinWindows | None = None,
    joined: StreamJoined | None = None,
    *,
    key: Serde | None = None,
    value: Serde | None = None,
    other_value: Serde | None = None,
    name: Name = None,
) -> KStream:
    if not isinstance(windows, JoinWindows):
        raise TopologyError(
            f"the join of {left.node} and {right.node} has {windows!r} as its windows; say how far apart "
            'records may be: JoinWindows.of(before="5 minutes", after=0)'
        )
    function(joiner, "the joiner", "left", "right")
    joined = options_of(joined, StreamJoined)
    given = name_of(name) or joined.name
    graph, names = left.graph, left.graph.names
    key = key or joined.key or common_serde((left.key, right.key))
    left_value = value or joined.value or left.value
    right_value = other_value or joined.other_value or right.value
    sides = ((left, left_value, "-left"), (right, right_value, "-right"))
    left, right = (
        stream.with_serdes(key, of_side).by_key(
            stream.node if given is None else given + suffix, named=given is not None
        )
        for stream, of_side, suffix in sides
    )

    this_suffix = "-outer-this-join" if join == "outer" else "-this-join"
    other_suffix = "-other-join" if join == "inner" else "-outer-other-join"
    this_windowed = names.processor("KSTREAM-WINDOWED-", given, "-this-windowed")
    other_windowed = names.processor("KSTREAM-WINDOWED-", given, "-other-windowed")
    this = names.generate("KSTREAM-OUTERTHIS-" if join == "outer" else "KSTREAM-JOINTHIS-")
    other = names.generate("KSTREAM-JOINOTHER-" if join == "inner" else "KSTREAM-OUTEROTHER-")
    node = names.processor("KSTREAM-MERGE-", given, "-merge")
    base = joined.store_name

    def add_store(generated: str, suffix: str, kind: StoreKind, *serdes_: Serde | None, **more: Any) -> str:
        more |= {"retention_ms": windows.retention_ms, "logged": joined.logged, "named_by_user": base is not None}
        return graph.add_store(f"{generated if base is None else base + suffix}-store", kind, *serdes_, **more)

    width_ms = windows.before_ms + windows.after_ms
    stores = {
        "left_store": add_store(this, this_suffix, "stream-join", key, left_value, window_size_ms=width_ms),
        "right_store": add_store(other, other_suffix, "stream-join", key, right_value, window_size_ms=width_ms),
    }
    if join != "inner":
        shared = "-outer-shared-join" if join == "outer" else "-left-shared-join"
        # It holds the bytes of either side.
        of_both = (serdes.bytes, serdes.bytes)
        stores["outer_store"] = add_store(f"KSTREAM-OUTERSHARED-{this[-10:]}", shared, "buffer", *of_both)
    operator = nodes.StreamStreamJoin(join=join, joiner=joiner, windows=windows, **stores)
    joins = (this, other) if given is None else (given + this_suffix, given + other_suffix)
    aliases = (this_windowed, other_windowed, *joins)
    graph.add(node, operator, [left.node, right.node], named=given is not None, aliases=aliases)
    return KStream(graph, node, key=key, value=None)


def _stream_table(
    join: JoinType,
    stream: KStream,
    table: KTable,
    joiner: Function,
    joined: Joined | None = None,
    *,
    grace: Duration | None = None,
    name: Name = None,
) -> KStream:
    function(joiner, "the joiner", "left", "right")
    if join == "outer":
        raise TopologyError("a stream and a table have no outer join; use left_join()")
    if joined is not None and not isinstance(joined, Joined):
        raise TopologyError(f"a join with a table has {joined!r} behind its joiner; give Joined.with_(...) or nothing")
    joined = options_of(joined, Joined)
    given = name_of(name) or joined.name
    graph = stream.graph
    grace = joined.grace if grace is None else grace
    grace_ms = None if grace is None else milliseconds(grace, what="the grace of a join")
    table_node, table_store_name = graph.ensure_rows(table.node)
    versioned = graph.is_versioned(table_node)
    if grace_ms is not None:
        history_ms = graph.stores[table_store_name].retention_ms
        if not versioned:
            raise TopologyError(
                f"the join of {stream.node} with {table.node} has a grace, which needs rows as of a time; give "
                "the table materialized=Materialized.versioned(name, history=...)"
            )
        if history_ms is not None and grace_ms > history_ms:
            raise TopologyError(
                f"the join of {stream.node} waits {grace_ms} ms, but {table.node} has a history of {history_ms} ms "
                "only; give the table a longer history, or the join a shorter grace"
            )
    keyed = stream.with_serdes(joined.key or stream.key or table.key, joined.value)
    keyed = keyed.by_key(given or stream.node, named=given is not None)
    node = graph.names.processor("KSTREAM-LEFTJOIN-" if join == "left" else "KSTREAM-JOIN-", given)
    buffer = None
    if grace_ms is not None:
        options = {"retention_ms": grace_ms, "named_by_user": given is not None}
        buffer = graph.add_store(f"{node}-Buffer", "buffer", keyed.key, keyed.value, **options)
    operator = nodes.StreamTableJoin(
        join=join,
        joiner=joiner,
        table_store=table_store_name,
        versioned=versioned,
        grace_ms=grace_ms,
        buffer_store=buffer,
    )
    graph.add(node, operator, [keyed.node, table_node], named=given is not None)
    return KStream(graph, node, key=keyed.key, value=None)


def _stream_global_table(
    join: JoinType,
    stream: KStream,
    table: GlobalKTable,
    key_mapper: Function | None = None,
    joiner: Function | None = None,
    *,
    name: Name = None,
) -> KStream:
    if key_mapper is None or joiner is None:
        raise TopologyError(
            f"the join of {stream.node} with the global table {table.node} needs a key mapper and a joiner: "
            "join(table, lambda key, value: <the table's key>, lambda value, row: ...)"
        )
    if join == "outer":
        raise TopologyError("a stream and a global table have no outer join; use left_join()")
    operator = nodes.StreamGlobalTableJoin(
        join=join,
        key_mapper=function(key_mapper, "the key mapper of a join", "key", "value"),
        joiner=function(joiner, "the joiner", "left", "right"),
        table_store=table.store_name,
    )
    # The prefix is that of inner joins too, as in Kafka Streams.
    node = stream.graph.add_processor("KSTREAM-LEFTJOIN-", name, operator, [stream.node])
    return KStream(stream.graph, node, key=stream.key, value=None, rekeyed=stream.rekeyed)


# Tables


def join_tables(
    join: JoinType,
    left: KTable,
    right: KTable,
    joiner: Function,
    foreign_key: Function | None,
    *,
    value: Serde | None,
    materialized: Materialized | None,
    name: Name,
) -> KTable:
    if not isinstance(right, KTable):
        raise TopologyError(f"a table cannot join {right!r}; give a table, or join from the stream's side")
    check_one_builder(left, right, "a join")
    function(joiner, "the joiner", "left", "right")
    stored = options_of(materialized, Materialized)
    if stored.history_ms is not None:
        raise TopologyError(
            f"store {stored.name} of a join cannot be versioned: its rows come from two tables' times; use "
            "Materialized.as_"
        )
    if foreign_key is not None:
        function(foreign_key, "the foreign_key of a join", "value")
        return _foreign_key(join, left, right, joiner, foreign_key, value, materialized, name)
    graph, names = left.graph, left.graph.names
    # Only a side that may stand alone asks for old rows: where both are None there is nothing to take back.
    if join != "inner":
        graph.send_old(left.node, at_any_price=True)
    if join == "outer":
        graph.send_old(right.node, at_any_price=True)
    for table in (left, right):
        graph.ensure_source_rows(table.node)
    left_node, left_store = graph.ensure_rows(left.node)
    right_node, right_store = graph.ensure_rows(right.node)
    node = names.processor("KTABLE-MERGE-", name)
    this = names.processor("KTABLE-JOINTHIS-", name, "-join-this")
    other = names.processor("KTABLE-JOINOTHER-", name, "-join-other")
    return add_table(
        graph,
        node,
        nodes.TableTableJoin(
            join=join,
            joiner=joiner,
            left_store=left_store,
            right_store=right_store,
            left_versioned=graph.is_versioned(left_node),
            right_versioned=graph.is_versioned(right_node),
        ),
        [left_node, right_node],
        key=stored.key or common_serde((left.key, right.key)),
        value=stored.value or value,
        materialized=materialized,
        reserved=f"{node}-store",
        logged=False,
        named=name is not None,
        aliases=(this, other),
    )


def _foreign_key(
    join: JoinType,
    left: KTable,
    right: KTable,
    joiner: Function,
    foreign_key: Function,
    value: Serde | None,
    materialized: Materialized | None,
    name: Name,
) -> KTable:
    """The left table subscribes at the foreign keys, the right one's tasks answer, the left one's tasks join."""
    if join == "outer":
        raise TopologyError("a foreign-key join cannot be an outer one; use left_join()")
    graph, names, given = left.graph, left.graph.names, name_of(name)
    for table in (right, left):
        graph.send_old(table.node, at_any_price=True)
    left_node, left_store = graph.ensure_rows(left.node)
    right_node, right_store = graph.ensure_rows(right.node)
    left_key, left_value, foreign = known(left.key), known(left.value), known(right.key)
    of_left: dict[str, Any] = {"left_store": left_store, "left_key": left_key, "left_value": left_value}

    def processor(what: str, suffix: str) -> str:
        return names.processor(f"KTABLE-{what}-", name, suffix)

    def ends(message: str) -> list[str]:
        return [processor(end.upper(), f"-subscription-{message}-{end}") for end in ("sink", "source")]

    def add(node: str, operator: nodes.Operator, parents: Sequence[str], aliases: Sequence[str] = ()) -> None:
        graph.add(node, operator, parents, named=given is not None, aliases=aliases)

    # Names take their numbers in Kafka Streams' order.
    prefix = "FK-JOIN-SUBSCRIPTION"
    topic = processor(f"{prefix}-REGISTRATION", "-subscription-registration") + "-topic"
    subscribe = processor(f"{prefix}-REGISTRATION", "-subscription-registration-processor")
    topic_ends = ends("registration")
    generated = names.store(f"KTABLE-{prefix}-")
    store = generated if given is None else f"{given}-subscription-store"
    graph.add_store(store, "key-value", serdes.bytes, serdes.bytes, named_by_user=given is not None)
    subscribing = nodes.ForeignKeySubscribe(
        join=join, foreign_key=foreign_key, left_key=left_key, left_value=left_value, foreign=foreign
    )
    add(subscribe, subscribing, [left_node])
    # In a left join, a row that names no key has an answer too: none.
    to_right = nodes.Repartition(
        topic=topic, key=foreign, value=SubscriptionSerde(left_key), keeps_null_keys=join == "left"
    )
    add(topic, to_right, [subscribe], topic_ends)
    suffixes = ("-subscription-receive", "-subscription-join-foreign", "-foreign-join-subscription")
    respond, *others = [processor(f"{prefix}-PROCESSOR", suffix) for suffix in suffixes]
    responding = nodes.ForeignKeyRespond(
        join=join, subscription_store=store, right_store=right_store, left_key=left_key, foreign=foreign
    )
    add(respond, responding, [topic, right_node], others)
    response_topic = processor(f"{prefix}-RESPONSE", "-subscription-response") + "-topic"
    answers = ResponseSerde(known(right.value))
    to_left = nodes.Repartition(topic=response_topic, key=left_key, value=answers, partitioner=response_partition)
    add(response_topic, to_left, [respond], ends("response"))
    resolver = processor(f"{prefix}-RESPONSE-RESOLVER-PROCESSOR", "-subscription-response-resolver")
    node = processor("FK-JOIN-OUTPUT", "-result")
    stored, asked_store = options_of(materialized, Materialized), f"{node}-asked-store"
    table = add_table(
        graph,
        node,
        nodes.ForeignKeyResolve(join=join, joiner=joiner, asked_store=asked_store, **of_left),
        [response_topic],
        key=stored.key or left.key,
        value=stored.value or value,
        materialized=materialized,
        reserved=names.store("KTABLE-FK-JOIN-OUTPUT-") if stored.name is None else "",
        logged=True,
        named=given is not None,
        aliases=[resolver],
    )
    graph.add_store(asked_store, "key-value", serdes.bytes, serdes.bytes, logged=False)
    return table
