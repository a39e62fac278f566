"""Schemas for fastavro's readers and writers.

Defaults are values there. fastavro uses the JSON of the schema: text for bytes, numbers for dates. It also shares a
list or dict between all records, so that a change of one would change the others.

Logical types that have infinity have names of suiro there. fastavro finds readers by name, for the whole process, so
the names in use keep their readers.

In a union, Java's Avro takes the branch of exactly the type of a value, if there is one. fastavro takes the first that
can hold it: a float before a long, text before bytes. Logical types of suiro keep it from that. Of several records,
fastavro takes the one with the most fields of a dict, even if others of its fields get defaults: `branch_chooser`.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import fastavro

from suiro.registry.codecs.avro_infinity import INFINITE
from suiro.registry.formats.avro_format import PRIMITIVES

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


def with_infinite(logical: str) -> str:
    """Returns the name of the logical type that fastavro reads with infinity, if there is one."""
    return logical.replace("-", "-suiro-", 1) if logical in INFINITE else logical


for _name in INFINITE:
    fastavro.read.LOGICAL_READERS[with_infinite(_name)] = _reader(_name)


_TURNED_INTO = {
    "int": {"float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "bytes": {"string"},
    "string": {"bytes"},
}
"""The types into which fastavro turns the values of a type, if the reader's schema has them."""


def _as_written(value: Any, writer: Any = None, reader: Any = None) -> Any:
    return value


for _kind in _TURNED_INTO:
    fastavro.read.LOGICAL_READERS[f"{_kind}-suiro-as-written"] = _as_written


def _only_floats(limit: int) -> Callable[[Any, Any], Any]:
    """Returns a writer of floats that refuses whole numbers below the limit: another branch of the union takes them."""
    return lambda value, schema: None if type(value) is int and -limit <= value < limit else value


for _kind in ("float", "double"):
    fastavro.write.LOGICAL_WRITERS[f"{_kind}-suiro-beside-int"] = _only_floats(1 << 31)
    fastavro.write.LOGICAL_WRITERS[f"{_kind}-suiro-beside-long"] = _only_floats(1 << 63)


def for_writing(schema: Any) -> Any:
    """Returns a parsed schema for fastavro's writers."""
    made, _ = with_values(schema)
    for one in _all(made):
        kinds = [_primitive(branch) for branch in one] if isinstance(one, list) else []
        plain = {kind[0] for kind in kinds if kind is not None and kind[1] is None}
        if whole := plain & {"int", "long"}:
            for place, kind in enumerate(kinds):
                if kind is not None and kind[0] in ("float", "double"):
                    one[place] = {"type": kind[0], "logicalType": f"suiro-beside-{max(whole)}"}
    return made


def branch_chooser(schema: Any) -> Callable[[Any], Any] | None:
    """Returns a function that names the record of each dict in a union of several, as fastavro takes it; None if there
    is no such union. `schema` is one of `for_writing`."""
    named = {one["name"]: one for one in named_types(schema)}
    marks = {"__fastavro_parsed": True, "__named_schemas": named}

    def records(union: list[Any]) -> list[Any]:
        return [one for one in (meant(each, named) for each in union) if isinstance(one, dict) and "fields" in one]

    def chosen(value: Any, kind: Any) -> Any:
        kind = meant(kind, named)
        if isinstance(kind, list):
            return chosen_of(value, kind)
        if not isinstance(kind, dict):
            return value
        if "fields" in kind and isinstance(value, dict):
            types = {one["name"]: one["type"] for one in kind["fields"]}
            return value | {name: chosen(value[name], one) for name, one in types.items() if name in value}
        if kind["type"] == "array" and isinstance(value, list):
            return [chosen(one, kind["items"]) for one in value]
        if kind["type"] == "map" and isinstance(value, dict):
            return {name: chosen(one, kind["values"]) for name, one in value.items()}
        return value

    def chosen_of(value: Any, union: list[Any]) -> Any:
        found = [
            one
            for one in (records(union) if isinstance(value, dict) else union)
            if isinstance(one, dict) and fastavro.validation.validate(value, one | marks, raise_errors=False)
        ]
        if not found or "map" in map(kind_of, union):
            return value

        def likeness(one: Any) -> tuple[int, int]:
            names = [field["name"] for field in one.get("fields", ())]
            return sum(name in value for name in names), -len(names)

        best = max(found, key=likeness)
        return (best["name"], chosen(value, best)) if "fields" in best else chosen(value, best)

    def choose(value: Any) -> Any:
        try:
            return chosen(value, schema)
        except RecursionError:
            return value  # nested too deeply: fastavro chooses

    return choose if any(isinstance(one, list) and len(records(one)) > 1 for one in _all(schema)) else None


def for_reading(writer: Any, reader: Any) -> tuple[Any, Any, frozenset[int]]:
    """Returns the parsed schemas of a writer and of a reader for fastavro's readers, and the ids of the reader's
    defaults that are lists or dicts."""
    filled, shared = with_values(reader)
    holder = [with_infinity(writer)]
    if holder[0] is writer and not isinstance(writer, str):
        return writer, filled, shared  # it is nested too deeply to be copied, and others use it
    if not _keep_types(holder, filled):
        holder = [with_infinity(writer)]
    return holder[0], filled, shared


def _keep_types(holder: list[Any], reader: Any) -> bool:
    """Marks the types of the writer's schema in the holder that a union of the reader's has, too, behind a type that
    fastavro would turn their values into. Returns false if one record of the writer's becomes several of the
    reader's."""
    writers = {one["name"]: one for one in named_types(holder[0])}
    readers = {one["name"]: one for one in named_types(reader)}
    read: dict[str, str] = {}
    waiting: list[tuple[Any, Any, Any]] = [(holder, 0, reader)]
    while waiting:
        place, key, wanted = waiting.pop()
        while isinstance(place[key], dict) and not isinstance(place[key]["type"], str):
            place, key = place[key], "type"
        wanted = meant(wanted, readers)
        others = [meant(one, readers) for one in (wanted if isinstance(wanted, list) else [wanted])]
        places = [(place, key)]
        if isinstance(place[key], list):
            places = [(place[key], number) for number in range(len(place[key]))]
        for place, key in places:
            one = meant(place[key], writers)
            kind = _primitive(one)
            if kind is not None:
                kinds = [_primitive(other) for other in others]
                # A value for which fastavro has a reader of the logical type is not turned into another type.
                if kind in kinds and f"{kind[0]}-{kind[1]}" not in fastavro.read.LOGICAL_READERS:
                    before = {other[0] for other in kinds[: kinds.index(kind)] if other is not None}
                    if before & _TURNED_INTO.get(kind[0], set()):
                        place[key] = {"type": kind[0], "logicalType": "suiro-as-written"}
                continue
            other = next((other for other in others if _is_read_by(one, other)), None)
            if other is None:
                continue
            if "fields" in one:
                is_known = one["name"] in read
                if read.setdefault(one["name"], other["name"]) != other["name"]:
                    return False
                if is_known:
                    continue
            waiting += _pairs(one, other)
    return True


def _primitive(one: Any) -> tuple[Any, ...] | None:
    """Returns what two primitive types have in common whose values are the same."""
    kind, more = (one, {}) if isinstance(one, str) else (one["type"], one)
    return (kind, *map(more.get, ("logicalType", "precision", "scale"))) if kind in PRIMITIVES else None


def _is_read_by(one: Any, other: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict) or one["type"] != other["type"]:
        return False
    if "fields" not in one:
        return one["type"] in ("array", "map")
    name = one["name"].rpartition(".")[2]
    return name == other["name"].rpartition(".")[2] or not {one["name"], name}.isdisjoint(other.get("aliases", ()))


def _pairs(one: Any, other: Any) -> list[tuple[Any, Any, Any]]:
    """Returns the places of the parts of the writer's type, each with the reader's type."""
    if "fields" not in one:
        name = "items" if one["type"] == "array" else "values"
        return [(one, name, other[name])]
    fields = {alias: each for each in other["fields"] for alias in each.get("aliases", ())}
    fields |= {each["name"]: each for each in other["fields"]}
    return [(each, "type", fields[each["name"]]["type"]) for each in one["fields"] if each["name"] in fields]


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
    return made, [one for one in _all(made) if isinstance(one, dict)]


def _all(schema: Any) -> list[Any]:
    """Returns all types and unions in a parsed schema that are not only names."""
    found: list[Any] = []
    waiting = [schema, *named_types(schema)]
    while waiting:
        one = waiting.pop()
        if not isinstance(one, str):
            found.append(one)
            waiting += parts_of(one)
    return found


def named_types(schema: Any) -> list[Any]:
    """Returns the types that a parsed schema refers to by name. They may be of other schemas."""
    for root in schema if isinstance(schema, list) else [schema]:
        if isinstance(root, dict) and "__named_schemas" in root:
            return list(root["__named_schemas"].values())
    return []


def meant(one: Any, named: dict[str, Any]) -> Any:
    """Returns the type that a name, or a type around another one, stands for."""
    while isinstance(one, dict) and not isinstance(one["type"], str):
        one = one["type"]
    if isinstance(one, dict):
        return named.get(one["type"], one)
    return named.get(one, one) if isinstance(one, str) else one


def kind_of(one: Any) -> str:
    return "union" if isinstance(one, list) else str(one["type"] if isinstance(one, dict) else one)


def parts_of(one: Any) -> list[Any]:
    """Returns the branches of a union, or the types in a type."""
    if not isinstance(one, dict):
        return one if isinstance(one, list) else []
    if not isinstance(one["type"], str):
        return [one["type"]]
    return [field["type"] for field in one.get("fields", ())] + [
        one[name] for name in ("items", "values") if name in one
    ]


def _value(default: Any, schema: Any, named: dict[str, Any], raw: dict[int, Any]) -> Any:
    schema = meant(schema, named)
    if isinstance(schema, list):
        branch = next((one for one in schema if _fits(default, one, named)), schema[0])
        return _value(default, branch, named, raw)
    kind = kind_of(schema)
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
                default[field["name"]] if field["name"] in default else raw[id(field)], field["type"], named, raw
            )
            for field in schema["fields"]
        }
    logical = isinstance(schema, dict) and fastavro.read.LOGICAL_READERS.get(f"{kind}-{schema.get('logicalType')}")
    return logical(value, schema, None) if logical else value


def _fits(default: Any, schema: Any, named: dict[str, Any]) -> bool:
    kind = kind_of(meant(schema, named))
    return isinstance(default, _KINDS.get(kind, str)) and isinstance(default, bool) == (kind == "boolean")
