"""Values to bytes and back by schemas of a registry, in Confluent's wire format: what serdes and Spark functions share.

- `wire`: the five bytes in front, subjects, which id a value is written with.
- `avro`, `json_schema`, `protobuf`: one codec each.
- `avro_columns`: Avro to Arrow. `avro_rows`, `avro_writing`: many values at once to Python and back. `avro_kernels`:
  the loops of all three.

A codec is made once per process and settings (`codec_of`), opens its client when it first asks, and keeps schemas by
id for good. `Undecodable` is the data's fault; what is the registry's (it is down, it refuses the user) stays a
`RegistryError`, so that no sound record is put aside for it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from suiro.extras import require
from suiro.registry.codecs.wire import Codec, CodecSettings, NotOneColumn, Undecodable, Unencodable

if TYPE_CHECKING:
    from suiro.registry.codecs.avro import AvroCodec

__all__ = ["AvroCodec", "Codec", "CodecSettings", "NotOneColumn", "Undecodable", "Unencodable", "codec_of"]

_lock = threading.Lock()
_codecs: dict[tuple[int, str, CodecSettings], Codec] = {}


def codec_of(language: str, settings: CodecSettings) -> Codec:
    """`language`: AVRO, JSON or PROTOBUF. The process is part of the key: a fork must not share connections."""
    key = (os.getpid(), language, settings)
    with _lock:
        found = _codecs.get(key)
        if found is None:
            found = _codecs[key] = _make(language, settings)
        return found


def _make(language: str, settings: CodecSettings) -> Codec:
    require("registry")
    match language:
        case "AVRO":
            from suiro.registry.codecs.avro import AvroCodec

            return AvroCodec(settings)
        case "JSON":
            from suiro.registry.codecs.json_schema import JsonSchemaCodec

            return JsonSchemaCodec(settings)
        case "PROTOBUF":
            from suiro.registry.codecs.protobuf import ProtobufCodec

            return ProtobufCodec(settings)
    raise AssertionError(language)
