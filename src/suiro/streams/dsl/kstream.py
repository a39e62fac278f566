"""`KStream`: a stream of records, and its operators.

A stream knows the node it comes from, the serdes of its keys and values as far as they are known, and whether its
keys were changed since the records were last brought together by key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from suiro.streams import serdes
from suiro.streams.dsl.checks import function, partitioner_function, processor_supplier, python_function
from suiro.streams.dsl.graph import check_one_builder
from suiro.streams.dsl.kstream_calls import CallOperators
from suiro.streams.dsl.named import (
    Grouped,
    Joined,
    Materialized,
    Name,
    Partitioner,
    Produced,
    Repartitioned,
    StreamJoined,
    legal_name,
    name_of,
    options_of,
)
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde, SessionWindowedSerde, TimeWindowedSerde
from suiro.streams.serdes.primitives import integer_of
from suiro.streams.topology import nodes
from suiro.streams.topology.nodes import Function
from suiro.streams.windows import Duration, JoinWindows

if TYPE_CHECKING:
    from suiro.streams.dsl.grouped import KGroupedStream
    from suiro.streams.dsl.ktable import GlobalKTable, KTable


class KStream(CallOperators):
    """Records, one after the other. Every operation gives a new stream and leaves this one as it is.

    A result of one record has the record's timestamp. In the examples, `delays` is a stream of carriers and minutes.
    `results(stream, delays=[...])` gives (key, value, timestamp) of the results for records of its topic.
    """

    __slots__ = ()

    # Record by record

    def filter(self, predicate: Function, *, name: Name = None) -> KStream:
        """Keeps the records for which `predicate(key, value)` holds. Keys and values may be None.

        >>> late = delays.filter(lambda carrier, minutes: minutes > 15)
        >>> results(late, delays=[("UA", 3, 0), ("AA", 20, 1)])
        [('AA', 20, 1)]
        """
        operator = nodes.Filter(predicate=function(predicate, "the predicate of filter", "key", "value"))
        return self._next(operator, "KSTREAM-FILTER-", name, key=self.key, value=self.value)

    def filter_not(self, predicate: Function, *, name: Name = None) -> KStream:
        """Leaves out the records for which `predicate(key, value)` holds.

        >>> punctual = delays.filter_not(lambda carrier, minutes: minutes > 15)
        >>> results(punctual, delays=[("UA", 3, 0), ("AA", 20, 1)])
        [('UA', 3, 0)]
        """
        operator = nodes.Filter(
            predicate=function(predicate, "the predicate of filter_not", "key", "value"), negated=True
        )
        return self._next(operator, "KSTREAM-FILTER-", name, key=self.key, value=self.value)

    def map(
        self, mapper: Function, *, key: Serde | None = None, value: Serde | None = None, name: Name = None
    ) -> KStream:
        """`mapper(key, value)` gives the new (key, value). Grouping or joining by the new keys needs a repartition.

        >>> swapped = delays.map(lambda carrier, minutes: (minutes, carrier))
        >>> results(swapped, delays=[("UA", 3, 0)])
        [(3, 'UA', 0)]
        """
        operator = nodes.Map(mapper=function(mapper, "the mapper of map", "key", "value"))
        return self._next(operator, "KSTREAM-MAP-", name, key=key, value=value, rekeyed=True)

    def map_values(self, mapper: Function, *, value: Serde | None = None, name: Name = None) -> KStream:
        """`mapper(value)` gives the new value; keys stay, so nothing has to be repartitioned.

        >>> hours = delays.map_values(lambda minutes: minutes / 60)
        >>> results(hours, delays=[("UA", 90, 0)])
        [('UA', 1.5, 0)]
        """
        operator = nodes.MapValues(mapper=function(mapper, "the mapper of map_values", "value"))
        return self._next(operator, "KSTREAM-MAPVALUES-", name, key=self.key, value=value)

    def flat_map(
        self, mapper: Function, *, key: Serde | None = None, value: Serde | None = None, name: Name = None
    ) -> KStream:
        """`mapper(key, value)` gives any number of (key, value), which all have the record's timestamp.

        >>> both = delays.flat_map(lambda carrier, minutes: [(carrier, minutes), ("all", minutes)])
        >>> results(both, delays=[("UA", 3, 0)])
        [('UA', 3, 0), ('all', 3, 0)]
        """
        operator = nodes.FlatMap(mapper=function(mapper, "the mapper of flat_map", "key", "value"))
        return self._next(operator, "KSTREAM-FLATMAP-", name, key=key, value=value, rekeyed=True)

    def flat_map_values(self, mapper: Function, *, value: Serde | None = None, name: Name = None) -> KStream:
        """`mapper(value)` gives any number of values, each under the record's key.

        >>> digits = delays.flat_map_values(lambda minutes: [int(digit) for digit in str(minutes)])
        >>> results(digits, delays=[("UA", 35, 0)])
        [('UA', 3, 0), ('UA', 5, 0)]
        """
        operator = nodes.FlatMapValues(mapper=function(mapper, "the mapper of flat_map_values", "value"))
        return self._next(operator, "KSTREAM-FLATMAPVALUES-", name, key=self.key, value=value)

    def select_key(self, mapper: Function, *, key: Serde | None = None, name: Name = None) -> KStream:
        """`mapper(key, value)` gives the new key. Grouping or joining by it needs a repartition.

        >>> by_lateness = delays.select_key(lambda carrier, minutes: "late" if minutes > 15 else "punctual")
        >>> results(by_lateness, delays=[("UA", 3, 0)])
        [('punctual', 3, 0)]
        """
        operator = nodes.SelectKey(mapper=function(mapper, "the mapper of select_key", "key", "value"))
        return self._next(operator, "KSTREAM-KEY-SELECT-", name, key=key, value=self.value, rekeyed=True)

    def peek(self, action: Callable[[Any, Any], Any], *, name: Name = None) -> KStream:
        """Calls `action(key, value)` and passes the record on. It may be called again after a failure.

        >>> results(delays.peek(lambda carrier, minutes: print(carrier)), delays=[("UA", 3, 0)])
        UA
        [('UA', 3, 0)]
        """
        operator = nodes.Peek(action=python_function(action, "the action of peek", "key", "value"))
        return self._next(operator, "KSTREAM-PEEK-", name, key=self.key, value=self.value)

    def merge(self, other: KStream, *, name: Name = None) -> KStream:
        """The records of both streams, in the order they are read. Raises `TopologyError` for a table.

        >>> more = builder.stream("more", key=serdes.string, value=serdes.long)
        >>> results(delays.merge(more), delays=[("UA", 3, 0)], more=[("AA", 20, 1)])
        [('UA', 3, 0), ('AA', 20, 1)]
        """
        if not isinstance(other, KStream):
            raise TopologyError(f"merge takes a stream, not {other!r}; a table becomes one with to_stream()")
        check_one_builder(self, other, "merge")
        node = self.graph.add_processor("KSTREAM-MERGE-", name, nodes.Merge(), [self.node, other.node])
        return KStream(
            self.graph,
            node,
            key=self.key if self.key == other.key else None,
            value=self.value if self.value == other.value else None,
            rekeyed=self.rekeyed or other.rekeyed,
        )

    def split(self, *, name: Name = None) -> BranchedKStream:
        """Sends each record to one branch, that of the first predicate that holds.

        >>> ways = delays.split().branch(lambda carrier, minutes: minutes > 15, "late").default_branch("punctual")
        >>> results(ways["late"], delays=[("UA", 3, 0), ("AA", 20, 1)])
        [('AA', 20, 1)]
        """
        return BranchedKStream(self, name)

    def process(
        self,
        supplier: Callable[[], Any],
        *stores: str,
        key: Serde | None = None,
        value: Serde | None = None,
        name: Name = None,
    ) -> KStream:
        """The Processor API: `supplier()` gives an object with `process(record)`, and `init(context)`, `close()`.

        Forwarded records may have any key, value and timestamp. The stores are added with
        `StreamsBuilder.add_state_store`. On Spark, the object lasts for one micro-batch; what must last longer belongs
        into stores.

        >>> class FirstOfEach:
        ...     def init(self, context):
        ...         self.context, self.seen = context, context.get_state_store("seen")
        ...     def process(self, record):
        ...         if self.seen.get(record.key) is None:
        ...             self.seen.put(record.key, 1)
        ...             self.context.forward(record)
        >>> _ = builder.add_state_store("seen", key=serdes.string, value=serdes.long)
        >>> results(delays.process(FirstOfEach, "seen"), delays=[("UA", 3, 0), ("UA", 4, 1)])
        [('UA', 3, 0)]
        """
        operator = nodes.Process(supplier=processor_supplier(supplier, "process"), stores=stores)
        return self._next(operator, "KSTREAM-PROCESSOR-", name, key=key, value=value, rekeyed=True)

    def process_values(
        self, supplier: Callable[[], Any], *stores: str, value: Serde | None = None, name: Name = None
    ) -> KStream:
        """As `process`, but keys stay, so nothing has to be repartitioned. Forwarding another key is an error.

        >>> class Doubled:
        ...     def init(self, context):
        ...         self.context = context
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(2 * record.value))
        >>> results(delays.process_values(Doubled), delays=[("UA", 3, 0)])
        [('UA', 6, 0)]
        """
        operator = nodes.Process(
            supplier=processor_supplier(supplier, "process_values"),
            stores=stores,
            fixed_key=True,
        )
        return self._next(operator, "KSTREAM-PROCESSVALUES-", name, key=self.key, value=value, rekeyed=self.rekeyed)

    # Sinks and repartitions

    def to(
        self,
        topic: str | Callable[..., str],
        produced: Produced | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Partitioner | None = None,
        name: Name = None,
    ) -> None:
        """Writes to a topic; `topic` may be a function (key, value, record) -> name. The record has `headers` and
        `timestamp`, as the record context of Kafka Streams.

        Without a serde, `serdes.natural` is used: text as UTF-8, numbers as 64 bits, dicts as JSON. A null value stays
        null, which deletes the row of a compacted topic.

        >>> delays.to("late", key=serdes.string, value=serdes.json)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("delays").pipe_input("UA", 20)
        ...     driver.create_output_topic("late").read_key_values_to_list()
        [('UA', 20)]
        """
        produced = options_of(produced, Produced)
        if not isinstance(topic, str):
            python_function(topic, "the topic of to()", "key", "value", "record")
        else:
            legal_name(topic)
        sink = nodes.Sink(
            topic=topic,
            key=key or produced.key or _for_readers(self.key),
            value=value or produced.value or self.value,
            partitioner=partitioner_function(partitioner or produced.partitioner, "to()"),
        )
        self.graph.add_processor("KSTREAM-SINK-", name_of(name) or produced.name, sink, [self.node])

    def repartition(
        self,
        repartitioned: Repartitioned | None = None,
        *,
        name: Name = None,
        partitions: int | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> KStream:
        """Sends records through a separate topic, so that records with one key are together, in any number of
        partitions.

        Records keep their timestamps. One with a null key is dropped, unless a left or outer join follows. The topic is
        `<application id>-<name>-repartition`. Other programs may read it; it has the cluster's retention.
        `partitioner(topic, key, value, partitions)` gives a partition, or None for the key's. `TopologyError`: fewer
        than 1 partition.

        >>> spread = delays.repartition(name="spread", partitions=8)
        >>> results(spread, delays=[("UA", 3, 0)])
        [('UA', 3, 0)]
        """
        options = options_of(repartitioned, Repartitioned)
        count = partitions if partitions is not None else options.partitions
        if count is not None and (integer_of(count) is None or count < 1):
            raise TopologyError(f"repartition() has {count!r} partitions; give at least 1")
        given = name_of(name) or options.name
        base = self.graph.names.generate("KSTREAM-REPARTITION-") if given is None else given
        key, value = key or options.key or self.key, value or options.value or self.value
        node = self.graph.repartition(
            self.node,
            base,
            key=key,
            value=value,
            partitions=count,
            partitioner=partitioner_function(partitioner or options.partitioner, "repartition()"),
            asked_for=True,
            named=given is not None,
        )
        return KStream(self.graph, node, key=key, value=value)

    # To groups and tables

    def group_by(
        self,
        selector: Function,
        grouped: Grouped | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: Name = None,
    ) -> KGroupedStream:
        """Groups by `selector(key, value)`. The name is that of the repartition topic. A record with a null value or
        without a new key is left out.

        >>> lateness = delays.group_by(lambda carrier, minutes: minutes > 15).count()
        >>> results(lateness, delays=[("UA", 3, 0), ("AA", 20, 1), ("UA", 30, 2)])
        [(False, 1, 0), (True, 1, 1), (True, 2, 2)]
        """
        from suiro.streams.dsl.grouped import KGroupedStream

        grouped = options_of(grouped, Grouped)
        given = name_of(name) or grouped.name
        operator = nodes.SelectKey(mapper=function(selector, "the selector of group_by", "key", "value"))
        value = value or grouped.value or self.value
        rekeyed = self._next(operator, "KSTREAM-KEY-SELECT-", given, key=key or grouped.key, value=value, rekeyed=True)
        return KGroupedStream(rekeyed, given)

    def group_by_key(
        self,
        grouped: Grouped | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: Name = None,
    ) -> KGroupedStream:
        """Groups by the keys as they are. It needs a repartition only if keys were changed above.

        >>> results(delays.group_by_key().count(), delays=[("UA", 3, 0), (None, 5, 1), ("UA", 4, 2)])
        [('UA', 1, 0), ('UA', 2, 2)]
        """
        from suiro.streams.dsl.grouped import KGroupedStream

        grouped = options_of(grouped, Grouped)
        stream = self.with_serdes(key or grouped.key, value or grouped.value)
        return KGroupedStream(stream, name_of(name) or grouped.name)

    def to_table(
        self,
        *,
        materialized: Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: Name = None,
    ) -> KTable:
        """A key's last record becomes its row; a null value deletes it, and a record without a key is left out.

        >>> latest = delays.to_table(materialized=Materialized.as_("latest"))
        >>> results(latest, delays=[("UA", 3, 0), ("UA", None, 1)])
        [('UA', 3, 0), ('UA', None, 1)]
        """
        from suiro.streams.dsl.ktable import add_table

        graph = self.graph
        stored = options_of(materialized, Materialized)
        node = graph.names.processor("KSTREAM-TOTABLE-", name)
        store = "" if stored.name is not None else graph.names.store("KSTREAM-TOTABLE-")
        stream = self.with_serdes(key or stored.key, value or stored.value).by_key(node, named=name is not None)
        return add_table(
            graph,
            node,
            nodes.TableSource(store=None),
            [stream.node],
            key=stream.key,
            value=stream.value,
            materialized=materialized,
            reserved=store,
            logged=True,
            named=name is not None,
        )

    # Joins

    @overload
    def join(
        self,
        other: KStream,
        joiner: Function,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: Name = None,
    ) -> KStream: ...

    @overload
    def join(
        self,
        other: KTable,
        joiner: Function,
        joined: Joined | None = None,
        *,
        grace: Duration | None = None,
        name: Name = None,
    ) -> KStream: ...

    @overload
    def join(self, other: GlobalKTable, key_mapper: Function, joiner: Function, *, name: Name = None) -> KStream: ...

    def join(self, other: Any, *arguments: Any, **options: Any) -> KStream:
        """Joins records with the same key. A record without a match, a key or a value gives nothing.

        With a stream: `join(other, joiner, windows)`; the result has the later timestamp of both. With a table:
        `join(table, joiner)`; it uses the current row or, with `grace=` and a versioned table, the row as of the
        record's time. With a global table: `join(table, key_mapper, joiner)`, where `key_mapper(key, value)` gives the
        table's key. With tables, the result has the stream's timestamp.

        Both sides need the same number of partitions, except with a global table; else the application does not start.
        A stream whose keys were changed is repartitioned for it.

        >>> names = builder.table("names", key=serdes.string, value=serdes.string)
        >>> named = delays.join(names, lambda minutes, name: f"{name}: {minutes}")
        >>> results(named, names=[("UA", "United", 0)], delays=[("UA", 3, 1), ("AA", 20, 2)])
        [('UA', 'United: 3', 1)]
        >>> winds = builder.stream("winds", key=serdes.string, value=serdes.long)
        >>> windy = delays.join(winds, lambda minutes, wind: [minutes, wind], JoinWindows.of(before=10, after=0))
        >>> results(windy, winds=[("UA", 7, 5)], delays=[("UA", 3, 9), ("UA", 4, 16)])
        [('UA', [3, 7], 9)]
        """
        from suiro.streams.dsl.joins import join_stream

        return join_stream("inner", self, other, *arguments, **options)

    @overload
    def left_join(
        self,
        other: KStream,
        joiner: Function,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: Name = None,
    ) -> KStream: ...

    @overload
    def left_join(
        self,
        other: KTable,
        joiner: Function,
        joined: Joined | None = None,
        *,
        grace: Duration | None = None,
        name: Name = None,
    ) -> KStream: ...

    @overload
    def left_join(
        self, other: GlobalKTable, key_mapper: Function, joiner: Function, *, name: Name = None
    ) -> KStream: ...

    def left_join(self, other: Any, *arguments: Any, **options: Any) -> KStream:
        """As `join`; a record of this stream without a match gives `joiner(value, None)`, also one without a key. With
        a stream, it comes when the window has closed.

        >>> names = builder.table("names", key=serdes.string, value=serdes.string)
        >>> results(delays.left_join(names, lambda minutes, name: [minutes, name]), delays=[("UA", 3, 1)])
        [('UA', [3, None], 1)]
        """
        from suiro.streams.dsl.joins import join_stream

        return join_stream("left", self, other, *arguments, **options)

    def outer_join(
        self,
        other: KStream,
        joiner: Function,
        windows: JoinWindows,
        joined: StreamJoined | None = None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        other_value: Serde | None = None,
        name: Name = None,
    ) -> KStream:
        """As `join` with a stream; a record of either one without a match is joined with None, when its window has
        closed.

        >>> winds = builder.stream("winds", key=serdes.string, value=serdes.long)
        >>> both = delays.outer_join(winds, lambda minutes, wind: [minutes, wind], JoinWindows.of_time_difference(10))
        >>> results(both, delays=[("UA", 3, 0)], winds=[("AA", 7, 20)])
        [('UA', [3, None], 0)]
        """
        from suiro.streams.dsl.joins import join_stream

        if not isinstance(other, KStream):
            raise TopologyError(f"outer_join takes a stream, not {other!r}; left_join() takes tables")
        return join_stream(
            "outer",
            self,
            other,
            joiner,
            windows,
            joined,
            key=key,
            value=value,
            other_value=other_value,
            name=name,
        )

    # For the other modules of the DSL

    def with_serdes(self, key: Serde | None, value: Serde | None) -> KStream:
        """This stream with other serdes; None: the serde that it has."""
        return KStream(self.graph, self.node, key=key or self.key, value=value or self.value, rekeyed=self.rekeyed)

    def by_key(self, base: str, *, named: bool) -> KStream:
        """This stream with records of one key together: itself, or behind a repartition named after `base`."""
        if not self.rekeyed:
            return self
        node = self.graph.repartition(self.node, base, key=self.key, value=self.value, named=named)
        return KStream(self.graph, node, key=self.key, value=self.value)


class BranchedKStream:
    """A stream that is being split; `default_branch` or `no_default_branch` ends the split and returns the branches."""

    __slots__ = ("_branches", "_node", "_predicates", "_stream")

    def __init__(self, stream: KStream, name: Name) -> None:
        self._stream = stream
        self._node = stream.graph.add_processor("KSTREAM-BRANCH-", name, nodes.Branch(predicates=()), [stream.node])
        self._predicates: list[tuple[Function | None, str]] = []
        self._branches: dict[str, KStream] = {}

    def branch(self, predicate: Function, name: Name = None) -> BranchedKStream:
        """Takes the records for which `predicate(key, value)` holds, and no earlier predicate. Without a name: "1",
        "2", ...

        >>> ways = delays.split().branch(lambda carrier, minutes: minutes > 15).default_branch()
        >>> sorted(ways)
        ['0', '1']
        """
        return self._add(
            function(predicate, "the predicate of branch", "key", "value"), name, str(len(self._predicates) + 1)
        )

    def default_branch(self, name: Name = None) -> dict[str, KStream]:
        """Takes all other records, under `name` (or "0"); returns all branches by name.

        >>> ways = delays.split().branch(lambda carrier, minutes: minutes > 15, "late").default_branch("punctual")
        >>> results(ways["punctual"], delays=[("UA", 3, 0), ("AA", 20, 1)])
        [('UA', 3, 0)]
        """
        return self._add(None, name, "0")._branches

    def no_default_branch(self) -> dict[str, KStream]:
        """Drops all other records; returns all branches by name.

        >>> sorted(delays.split().branch(lambda carrier, minutes: minutes > 15, "late").no_default_branch())
        ['late']
        """
        return self._branches

    def _add(self, predicate: Function | None, name: Name, otherwise: str) -> BranchedKStream:
        graph, stream = self._stream.graph, self._stream
        short = name_of(name) or otherwise
        graph.names.generate("KSTREAM-BRANCHCHILD-")
        child = graph.add(self._node + short, nodes.Merge(), [self._node], named=name is not None)
        self._predicates.append((predicate, child))
        graph.replace(self._node, predicates=tuple(self._predicates))
        self._branches[short] = KStream(graph, child, key=stream.key, value=stream.value, rekeyed=stream.rekeyed)
        return self


def _for_readers(key: Serde | None) -> Serde | None:
    """Windowed keys whose inner serde is not known are written naturally, as other unknown keys are."""
    if isinstance(key, TimeWindowedSerde | SessionWindowedSerde) and key.inner == serdes.tagged:
        return replace(key, inner=serdes.natural)
    return key
