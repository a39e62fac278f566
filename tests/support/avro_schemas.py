"""Avro schemas with fields of every kind, and values that fastavro writes with what a registry in memory knows."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable
from typing import Any

import fastavro

from suiro.registry import Schema, registry_client

_numbers = itertools.count()


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


SCALARS = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL: dict[str, Any] = {
    "date": {"type": "int", "logicalType": "date"},
    "tms": {"type": "int", "logicalType": "time-millis"},
    "tus": {"type": "long", "logicalType": "time-micros"},
    "at": {"type": "long", "logicalType": "timestamp-millis"},
    "atus": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "unknown": {"type": "long", "logicalType": "mood"},
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}
WIDE = record(
    nothing="null",
    **{name: name for name in SCALARS},
    **{f"maybe_{name}": ["null", name] for name in SCALARS},
    rarely=["string", "null"],
    pair={"type": "fixed", "name": "Pair", "size": 2},
    suit=["null", {"type": "enum", "name": "Suit", "symbols": ["H", "S"]}],
    again=["null", "Suit"],
    inner=["null", {**record(x="int", y=["null", "string"], z="Pair", at=LOGICAL["at"]), "name": "Inner"}],
    last="long",
)


class Registered:
    """A registry in memory, and values written by fastavro with what is registered there."""

    def __init__(self) -> None:
        self.url = f"mock://written-{next(_numbers)}"
        self._client = registry_client(self.url)
        self._client.set_compatibility("NONE")

    def write(self, schema: Any, values: Iterable[Any]) -> list[bytes | None]:
        schema_id = self._client.register("t-value", Schema(json.dumps(schema)))
        parsed = fastavro.parse_schema(schema, {})
        made: list[bytes | None] = []
        for value in values:
            out = io.BytesIO()
            out.write(b"\0" + schema_id.to_bytes(4))
            fastavro.schemaless_writer(out, parsed, value)
            made.append(out.getvalue())
        return made
