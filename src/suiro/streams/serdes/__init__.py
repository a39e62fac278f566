"""Serializers and deserializers for keys and values: `from suiro.streams import serdes`, `serdes.string`.

A serde never sees None: a null key or value stays null. Every serde here is picklable and compares by value.
`bytes string int long double boolean json` are Kafka's formats; `time_windowed` and `session_windowed` wrap
another serde for windowed keys; `avro json_schema protobuf` use the schemas of a registry; `natural` and `tagged` are
used if no serde was given. `decode_rows` and `encode_rows` take a block of values, of any serde.

This module gives names only. Several of them hide a builtin, so nothing here may use `int`, `bytes`, ...
"""

from __future__ import annotations

from suiro.streams.serdes.block_forms import BlockSerde, decode_block, decode_rows, encode_block, encode_rows
from suiro.streams.serdes.json_text import JsonSerde
from suiro.streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    IntSerde,
    LongSerde,
    StringSerde,
)
from suiro.streams.serdes.registered import AvroSerde, JsonSchemaSerde, ProtobufSerde
from suiro.streams.serdes.serde import (
    ColumnarSerde,
    DeserializationError,
    NotColumnarError,
    Serde,
    SerializationError,
)
from suiro.streams.serdes.untyped import NaturalSerde, TaggedSerde
from suiro.streams.serdes.windowed_keys import (
    SessionWindowedSerde,
    TimeWindowedSerde,
    session_windowed,
    time_windowed,
)

__all__ = [
    "AvroSerde",
    "BlockSerde",
    "BooleanSerde",
    "BytesSerde",
    "ColumnarSerde",
    "DeserializationError",
    "DoubleSerde",
    "IntSerde",
    "JsonSchemaSerde",
    "JsonSerde",
    "LongSerde",
    "NaturalSerde",
    "NotColumnarError",
    "ProtobufSerde",
    "Serde",
    "SerializationError",
    "SessionWindowedSerde",
    "StringSerde",
    "TaggedSerde",
    "TimeWindowedSerde",
    "avro",
    "boolean",
    "bytes",
    "decode_block",
    "decode_rows",
    "double",
    "encode_block",
    "encode_rows",
    "int",
    "json",
    "json_schema",
    "long",
    "natural",
    "protobuf",
    "session_windowed",
    "string",
    "tagged",
    "time_windowed",
]

bytes = BytesSerde()
string = StringSerde()
int = IntSerde()
long = LongSerde()
double = DoubleSerde()
boolean = BooleanSerde()
json = JsonSerde()
natural = NaturalSerde()
tagged = TaggedSerde()
avro = AvroSerde()
json_schema = JsonSchemaSerde()
protobuf = ProtobufSerde()
