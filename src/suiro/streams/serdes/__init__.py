"""How keys and values become the bytes of a topic and back: `from suiro.streams import serdes`, `serdes.string`.

A serde never sees None: a null key or value stays null. Every serde here is picklable and compares by value.
`bytes string int long double boolean json` are Kafka's formats; `time_windowed` and `session_windowed` wrap
another serde for windowed keys; `natural` and `tagged` serve where no serde was given.

This module gives names only. Several of them hide a builtin, so nothing here may use `int`, `bytes`, ...
"""

from __future__ import annotations

from typing import Any

from suiro.errors import UsageError
from suiro.streams.serdes.json_text import JsonSerde
from suiro.streams.serdes.primitives import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    IntSerde,
    LongSerde,
    StringSerde,
)
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
    "BooleanSerde",
    "BytesSerde",
    "ColumnarSerde",
    "DeserializationError",
    "DoubleSerde",
    "IntSerde",
    "JsonSerde",
    "LongSerde",
    "NaturalSerde",
    "NotColumnarError",
    "Serde",
    "SerializationError",
    "SessionWindowedSerde",
    "StringSerde",
    "TaggedSerde",
    "TimeWindowedSerde",
    "boolean",
    "bytes",
    "double",
    "int",
    "json",
    "long",
    "natural",
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


def __getattr__(name: str) -> Any:
    if name == "avro":
        raise UsageError(
            "serdes.avro is not there yet: it follows with the schema registry; use serdes.json until then"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
