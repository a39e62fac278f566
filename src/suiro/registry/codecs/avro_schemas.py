"""Schemas for fastavro's readers.

Defaults are values there. fastavro uses the JSON of the schema: text for bytes, numbers for dates. It also shares a
list or dict between all records, so that a change of one would change the others.

Logical types that have infinity have names of suiro there. fastavro finds readers by name, for the whole process, so
the names in use keep their readers.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import fastavro

from suiro.registry.codecs.avro_infinity import INFINITE
from suiro.registry.codecs.avro_limits import named_types

_KINDS: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": (int, float),
    "double": (int, float),
    "array": list,
    "map": dict,
    "record": dict,
    "error": dict,
}


def _reader(name: str) -> Callable[..., Any]:
    read, infinite = fastavro.read.LOGICAL_READERS[name], INFINITE[name]

    def read_infinite(value: int, writer: Any = None, reader: Any = None) -> Any:
        found = infinite.get(value)
        return read(value, writer, reader) if found is None else found

    return read_infinite


for _name in INFINITE:
    fastavro.read.LOGICAL_READERS[_name.replace("-", "-suiro-", 1)] = _reader(_name)


def with_infinity(schema: Any) -> Any:
    """Returns a parsed schema of a writer, whose values may be infinity."""
    made, types = _copied(schema)
    for one in types:
        logical = one.get("logicalType")
        if f"{one.get('type')}-{logical}" in INFINITE:
            one["logicalType"] = f"suiro-{logical}"
    return made


def with_values(schema: Any) -> tuple[Any, frozenset[int]]:
    """Returns a parsed schema for fastavro, and the ids of its defaults that are lists or dicts."""
    made, types = _copied(schema)
    named = {one["name"]: one for one in types if "name" in one}
    records = [one for one in types if "fields" in one]
    raw = {id(field): field["default"] for one in records for field in one["fields"] if "default" in field}
    shared: set[int] = set()
    for record in records:
        for field in record["fields"]:
            if id(field) not in raw:
                continue
            with contextlib.suppress(Exception):  # a default that does not fit its type stays as it is
                field["default"] = _value(raw[id(field)], field["type"], named, raw)
            if isinstance(field["default"], list | dict):
                shared.add(id(field["default"]))
    return made, frozenset(shared)


def own(value: Any, shared: frozenset[int]) -> Any:
    """Replaces shared defaults in the value by copies. Returns the value."""
    waiting = [value] if shared else []
    while waiting:
        one = waiting.pop()
        for key, inner in list(one.items() if isinstance(one, dict) else enumerate(one)):
            if id(inner) in shared:
                one[key] = copy.deepcopy(inner)
            elif isinstance(inner, list | dict):
                waiting.append(inner)
    return value


def _copied(schema: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Returns a copy of a parsed schema, and all types in it that are not only names. A schema that is nested too
    deeply to be copied is returned itself, without types."""
    try:
        made = copy.deepcopy(schema)
    except RecursionError:
        return schema, []
    types: list[dict[str, Any]] = []
    waiting = [made, *named_types(made)]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        if not isinstance(one, dict):
            continue
        types.append(one)
        waiting += [field["type"] for field in one.get("fields", ())]
        waiting += [one[name] for name in ("type", "items", "values") if name in one]
    return made, types


def _value(default: Any, schema: Any, named: dict[str, Any], raw: dict[int, Any]) -> Any:
    if isinstance(schema, list):
        schema = next((one for one in schema if _fits(default, one, named)), schema[0])
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return _value(default, kind, named, raw)
    value = default
    if kind in ("bytes", "fixed"):
        value = default.encode("latin-1")
    elif kind in ("float", "double"):
        value = float(default)
    elif kind == "array":
        value = [_value(one, schema["items"], named, raw) for one in default]
    elif kind == "map":
        value = {name: _value(one, schema["values"], named, raw) for name, one in default.items()}
    elif kind in ("record", "error"):
        value = {
            field["name"]: _value(
                default[field["name"]] if field["name"] in default else raw[id(field)],
                field["type"],
                named,
                raw,
            )
            for field in schema["fields"]
        }
    logical = isinstance(schema, dict) and fastavro.read.LOGICAL_READERS.get(
        f"{kind}-{schema.get('logicalType')}"
    )
    return logical(value, schema, None) if logical else value


def _fits(default: Any, schema: Any, named: dict[str, Any]) -> bool:
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    kind = schema if isinstance(schema, str) else schema["type"]
    if isinstance(kind, dict | list):
        return _fits(default, kind, named)
    return isinstance(default, _KINDS.get(kind, str)) and isinstance(default, bool) == (kind == "boolean")
