"""The columns of a schema's text: Avro and JSON Schema, with limits, because schemas come from others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suiro.foundation.nesting import parse_json
from suiro.telemetry.openlineage import Column

COLUMNS_MAX = 1_000
"""Of one schema, those of structs included. Further ones are left out."""
DEPTH_MAX = 8


def columns_of(language: str, text: str) -> tuple[Column, ...]:
    """`language`: AVRO or JSON, as a registry names it. Empty where the schema has no columns, or cannot be read."""
    if language not in ("AVRO", "JSON"):
        return ()
    try:
        schema = parse_json(text)
    except (ValueError, RecursionError):
        return ()
    read = _avro if language == "AVRO" else _json
    return tuple(read(schema, 0, _Budget()))


class _Budget:
    def __init__(self) -> None:
        self.left = COLUMNS_MAX

    def takes(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _avro(schema: Any, depth: int, budget: _Budget) -> Iterator[Column]:
    record = _record_in(schema)
    fields = record.get("fields") if record is not None and depth < DEPTH_MAX else None
    for one in fields if isinstance(fields, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            continue
        if not budget.takes():
            return
        kind = one.get("type")
        yield Column(name=one["name"], type=_avro_type(kind), columns=tuple(_avro(kind, depth + 1, budget)))


def _record_in(schema: Any) -> dict[str, Any] | None:
    """A record, also that of a union with null or of the items of an array."""
    for _ in range(DEPTH_MAX):
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            schema = others[0] if len(others) == 1 else None
        if not isinstance(schema, dict):
            return None
        kind = schema.get("type")
        if kind == "record":
            return schema
        schema = schema.get("items") if kind == "array" else kind
    return None


def _avro_type(kind: Any, depth: int = 0) -> str | None:
    if isinstance(kind, str):
        return kind
    if depth >= DEPTH_MAX:
        return None
    if isinstance(kind, list):
        names = [_avro_type(one, depth + 1) for one in kind[:16] if one != "null"]
        return " or ".join(name for name in names if name is not None) or "null"
    if isinstance(kind, dict):
        logical = kind.get("logicalType")
        if isinstance(logical, str):
            return logical
        if kind.get("type") == "array":
            return f"array<{_avro_type(kind.get('items'), depth + 1)}>"
        return _avro_type(kind.get("type"), depth + 1)
    return None


def _json(schema: Any, depth: int, budget: _Budget) -> Iterator[Column]:
    properties = schema.get("properties") if isinstance(schema, dict) and depth < DEPTH_MAX else None
    for name, one in properties.items() if isinstance(properties, dict) else ():
        if not budget.takes():
            return
        kind = one.get("type") if isinstance(one, dict) else None
        if isinstance(kind, list):
            kind = " or ".join(str(item) for item in kind[:16] if item != "null")
        yield Column(
            name=name,
            type=kind if isinstance(kind, str) else None,
            columns=tuple(_json(one, depth + 1, budget)),
        )
