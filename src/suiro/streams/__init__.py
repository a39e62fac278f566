"""Kafka Streams in Python: topologies built from streams and tables.

    from suiro.streams import StreamsBuilder, TimeWindows, col, serdes

    builder = StreamsBuilder()
    flights = builder.stream("flights", key=serdes.string, value=serdes.json)
    flights.group_by(col("carrier")).windowed_by(TimeWindows.of_size("1 day")).count().to_stream().to("carrier.daily")
    topology = builder.build()

The names are Kafka Streams' in snake_case. A name's module is imported when the name is first used; building a
topology takes neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.streams import serdes
    from suiro.streams.dsl.builder import StreamsBuilder
    from suiro.streams.dsl.grouped import (
        CogroupedKStream,
        KGroupedStream,
        KGroupedTable,
        WindowedCogroupedKStream,
        WindowedKStream,
    )
    from suiro.streams.dsl.kstream import BranchedKStream, KStream
    from suiro.streams.dsl.kstream_calls import CallOptions
    from suiro.streams.dsl.ktable import GlobalKTable, KTable
    from suiro.streams.dsl.named import (
        Consumed,
        Grouped,
        Joined,
        Materialized,
        Named,
        Produced,
        Repartitioned,
        StreamJoined,
        Suppressed,
    )
    from suiro.streams.errors import ProcessingError, TopologyError
    from suiro.streams.explanation import explain
    from suiro.streams.expressions.expression import (
        Expression,
        aggregate,
        coalesce,
        col,
        concat,
        day_of,
        greatest,
        hour_of,
        least,
        left,
        lit,
        record_key,
        record_timestamp,
        record_value,
        right,
        struct,
        when,
    )
    from suiro.streams.extractors import (
        FailOnInvalidTimestamp,
        LogAndSkipOnInvalidTimestamp,
        SourceRecord,
        TimestampExtractor,
        UsePartitionTimeOnInvalidTimestamp,
        WallclockTimestampExtractor,
        field_timestamp,
    )
    from suiro.streams.operators.processor_api import Processor, ProcessorContext
    from suiro.streams.queries.store_reader import Answer, AsyncReadOnlyStore, ReadOnlyStore
    from suiro.streams.records import Change, Record, Windowed
    from suiro.streams.topology.topology import Topology
    from suiro.streams.windows import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows
    from suiro.streams_spark import KafkaStreams

__all__ = [
    "Answer",
    "AsyncReadOnlyStore",
    "BranchedKStream",
    "CallOptions",
    "Change",
    "CogroupedKStream",
    "Consumed",
    "EmitStrategy",
    "Expression",
    "FailOnInvalidTimestamp",
    "GlobalKTable",
    "Grouped",
    "JoinWindows",
    "Joined",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "LogAndSkipOnInvalidTimestamp",
    "Materialized",
    "Named",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "Produced",
    "ReadOnlyStore",
    "Record",
    "Repartitioned",
    "SessionWindows",
    "SlidingWindows",
    "SourceRecord",
    "StreamJoined",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindows",
    "TimestampExtractor",
    "Topology",
    "TopologyError",
    "UsePartitionTimeOnInvalidTimestamp",
    "WallclockTimestampExtractor",
    "Windowed",
    "WindowedCogroupedKStream",
    "WindowedKStream",
    "aggregate",
    "coalesce",
    "col",
    "concat",
    "day_of",
    "explain",
    "field_timestamp",
    "greatest",
    "hour_of",
    "least",
    "left",
    "lit",
    "record_key",
    "record_timestamp",
    "record_value",
    "right",
    "serdes",
    "struct",
    "when",
]

_get = on_first_use(
    __name__,
    {
        "dsl.builder": "StreamsBuilder",
        "dsl.grouped": "CogroupedKStream KGroupedStream KGroupedTable WindowedCogroupedKStream WindowedKStream",
        "dsl.kstream": "BranchedKStream KStream",
        "dsl.kstream_calls": "CallOptions",
        "dsl.ktable": "GlobalKTable KTable",
        "dsl.named": "Consumed Grouped Joined Materialized Named Produced Repartitioned StreamJoined Suppressed",
        "errors": "ProcessingError TopologyError",
        "explanation": "explain",
        "expressions.expression": "Expression aggregate coalesce col concat day_of greatest hour_of least left lit "
        "record_key record_timestamp record_value right struct when",
        "extractors": "FailOnInvalidTimestamp LogAndSkipOnInvalidTimestamp SourceRecord TimestampExtractor "
        "UsePartitionTimeOnInvalidTimestamp WallclockTimestampExtractor field_timestamp",
        "operators.processor_api": "Processor ProcessorContext",
        "queries.store_reader": "Answer AsyncReadOnlyStore ReadOnlyStore",
        "records": "Change Record Windowed",
        "topology.topology": "Topology",
        "windows": "EmitStrategy JoinWindows SessionWindows SlidingWindows TimeWindows",
    },
)


def __getattr__(name: str) -> Any:
    if name == "serdes":
        return import_module("suiro.streams.serdes")
    if name == "KafkaStreams":  # of the package above: what it runs on is loaded with it
        return import_module("suiro.streams_spark").KafkaStreams
    return _get(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
