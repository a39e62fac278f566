"""Converts values to bytes and back with schemas of a registry, in Confluent's wire format. Used by serdes and Spark.

- `wire`: the five-byte prefix, subjects, and the choice of the schema id.
- `avro`, `json_schema`, `protobuf`: one codec each.
- `avro_columns`: Avro to Arrow. `avro_rows`: many values at once to Python and back. `avro_kernels`: the loops of both.
  `avro_schemas`: the schemas for fastavro. `avro_infinity`: infinite dates of Postgres.

A codec is created once per process and settings (`codec_of`). It opens its client on first use and caches schemas by
id. `Undecodable` means that the data is invalid. A failure of the registry (it is down, it rejects the user) is a
`RegistryError`, so that valid records are not rejected for it.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING

from suiro.extras import require
from suiro.registry.codecs.wire import Codec, CodecSettings, NotOneColumn, Undecodable, Unencodable

if TYPE_CHECKING:
    from suiro.registry.codecs.avro import AvroCodec

__all__ = ["AvroCodec", "Codec", "CodecSettings", "NotOneColumn", "Undecodable", "Unencodable", "codec_of"]

_CODECS = {"AVRO": "avro.Avro", "JSON": "json_schema.JsonSchema", "PROTOBUF": "protobuf.Protobuf"}
_lock = threading.Lock()
_codecs: dict[tuple[int, str, CodecSettings], Codec] = {}


def codec_of(language: str, settings: CodecSettings) -> Codec:
    """`language` is AVRO, JSON or PROTOBUF. The key has the process id, because a fork must not share connections."""
    key = (os.getpid(), language, settings)
    with _lock:
        found = _codecs.get(key)
        if found is None:
            found = _codecs[key] = _make(language, settings)
        return found


def _make(language: str, settings: CodecSettings) -> Codec:
    """Imports the module of the language on first use."""
    require("registry")
    module, _, name = _CODECS[language].partition(".")
    made: Codec = getattr(import_module(f"{__name__}.{module}"), f"{name}Codec")(settings)
    return made
