"""Decides whether data that is valid for one JSON Schema (the writer's) is always valid for another (the reader's).

The schemas are compared keyword by keyword, as Confluent's registry documents its checks. The names of differences are
Confluent's. A property that a schema does not name may have any value, unless `additionalProperties` says otherwise.
So

| change | the writer's object is open | closed | has a schema for others |
|---|---|---|---|
| the reader names one more property | incompatible, unless it takes anything | fine, if optional | fine if it fits |

| change | the reader's object is open | closed | has a schema for others |
|---|---|---|---|
| the reader names one property less | fine | incompatible | fine if it fits |

As in Confluent's registry, a new required property passes if it has a `default`, or if `properties` does not name it,
although a validator requires it.

In combined schemas (`allOf`, `anyOf`, `oneOf`, `not`), every condition of the reader must follow from one condition of
the writer. This is conservative: a pair that passes is safe, and some pairs are refused that are safe only because of
several conditions together.

These keywords are ignored, because most validators do not check them: `format`, `content*`, `default`, `title`,
`description`, `examples`. These must be identical: `contains`, `if`/`then`/`else`, `propertyNames`, `$dynamicRef`, and
next to combinations `unevaluatedProperties` and `unevaluatedItems`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeVar

from suiro.registry.formats.differences import Found, Incompatibility, Pairs, differs
from suiro.registry.formats.json_format import DATA, NAMING, STEPS_OF_A_REFERENCE, Subschema
from suiro.registry.formats.json_values import json_key
from suiro.registry.formats.parsed import Budget, TooComplex
from suiro.registry.formats.patterns import InvalidPattern, search

_TYPES = frozenset({"null", "boolean", "object", "array", "number", "string"})
_COMBINING = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "$ref")
_APPLYING = frozenset({*_COMBINING, "$dynamicRef", "$recursiveRef", "dependencies", "dependentSchemas", "contains"})
"""Keywords whose schemas may have evaluated properties and items."""
_ONLY_THE_SAME = (
    ("contains", "array"),
    ("unevaluatedItems", "array"),
    ("propertyNames", "object"),
    ("unevaluatedProperties", "object"),
    ("$dynamicRef", ""),
    ("$recursiveRef", ""),
)
_NEVER_IDLE = ("contains",)  # `contains: true` requires an item
MAX_SHOWN_CHARS = 500  # of values in a message


def incompatibilities(reader: Subschema, writer: Subschema, budget: Budget) -> list[Incompatibility]:
    return _Check(budget).compare(reader, writer, "#")


def _ids(reader: Subschema, writer: Subschema) -> tuple[int, int] | None:
    fits = reader.schema is True or writer.schema is False or reader.schema == {}
    return None if fits else (id(reader.schema), id(writer.schema))


class _Check:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.compare = Pairs(budget, _ids, self._compare).compare
        # By the id of a schema, which is stored to keep it alive. None: it is being split.
        self._conditions_of: dict[int, tuple[Any, list[_Condition] | None]] = {}
        self._conjunctions: dict[tuple[int, ...], Subschema] = {}

    def _conditions(self, subschema: Subschema) -> list[_Condition]:
        """Returns the conditions that must all hold: ("plain", schema), ("anyOf", branches), ("oneOf", branches),
        ("not", schema), ("if", ...)."""
        schema, key = subschema.schema, id(subschema.schema)
        if key in self._conditions_of:
            return self._conditions_of[key][1] or []  # a schema that refers to itself adds nothing
        self._conditions_of[key] = (schema, None)
        self._budget.spend()
        unique = {id(one): one for one in self._split(subschema)}
        self._budget.spend(len(unique))
        found = list(unique.values())
        self._conditions_of[key] = (schema, found)
        return found

    def _split(self, subschema: Subschema) -> Iterator[_Condition]:
        schema = subschema.schema
        if schema is False:
            yield ("plain", subschema)
        if not isinstance(schema, dict):
            return
        if isinstance(schema.get("$ref"), str):
            self._budget.spend(STEPS_OF_A_REFERENCE)
            yield from self._conditions(subschema.follow(schema["$ref"]))
            if not subschema.siblings_count:
                return
            schema = {name: value for name, value in schema.items() if name != "$ref"}
        plain = {name: value for name, value in schema.items() if name not in _COMBINING}
        if subschema.siblings_count and not _APPLYING & subschema.schema.keys():
            plain = _evaluated_alone(plain)
        if plain:
            yield ("plain", Subschema(plain, subschema.resolver, subschema.siblings_count))
        for one in schema.get("allOf") or ():
            yield from self._conditions(subschema.below(one))
        for kind in ("anyOf", "oneOf"):
            if schema.get(kind):
                yield (kind, [subschema.below(one) for one in schema[kind]])
        if "not" in schema:
            yield ("not", subschema.below(schema["not"]))
        if "if" in schema and ("then" in schema or "else" in schema):
            conditional = {name: schema[name] for name in ("if", "then", "else") if name in schema}
            yield ("if", Subschema(conditional, subschema.resolver, subschema.siblings_count))

    def _conjunction(self, subschema: Subschema, schemas: list[Any]) -> Subschema:
        if len(schemas) == 1:
            return subschema.below(schemas[0])
        key = tuple(map(id, schemas))
        if key not in self._conjunctions:
            self._conjunctions[key] = Subschema({"allOf": schemas}, subschema.resolver, True)
        return self._conjunctions[key]

    def _compare(self, reader: Subschema, writer: Subschema, path: str) -> Found:
        conditions = self._conditions(reader)
        before = self._conditions(writer) or [("plain", Subschema({}, None, False))]
        for condition in conditions:
            self._budget.spend(len(before))
            results = [self._follows(condition, one, path) for one in before]
            if all(results):
                yield from _most_telling(condition, before, results)

    def _follows(self, reader: _Condition, writer: _Condition, path: str) -> list[Incompatibility]:
        changed = "has another combination of schemas at"
        match reader, writer:
            case ("plain", Subschema() as one), ("plain", Subschema() as other):
                return list(self._compare_plain(one, other, path))
            case (_, Subschema() as one), (kind, list(branches)) if kind != "if" and reader[0] == "plain":
                # Each branch alone: the conditions beside it are compared separately.
                return [each for branch in branches for each in self.compare(one, branch, path)]
            case (("anyOf" | "oneOf"), list(branches)), ("plain", Subschema() as other):
                if any(not self.compare(branch, other, path) for branch in branches):
                    return []
                changed = "has no fitting branch at"
            case (("anyOf" | "oneOf") as kind, list(branches)), (("anyOf" | "oneOf") as old, list(others)):
                if kind != "oneOf" or old != "anyOf" or len(others) < 2:
                    return list(self._match(branches, others, f"{path}/{kind}"))
                changed = "turns anyOf into oneOf at"
            case ("not", Subschema() as one), ("not", Subschema() as other):
                if self.compare(other, one, path):
                    return [differs("NOT_TYPE_EXTENDED", f"{path}/not", "excludes more at")]
                return []
            case ("if", Subschema() as one), ("if", Subschema() as other) if self._is_same(one, other, set()):
                return []
        return [differs("COMBINED_TYPE_CHANGED", f"{path}/{reader[0]}", changed)]

    def _match(self, readers: Sequence[Subschema], writers: Sequence[Subschema], path: str) -> Found:
        """Each branch of the writer needs a different branch of the reader."""
        fits = [
            [index for index, reader in enumerate(readers) if not self.compare(reader, writer, path)]
            for writer in writers
        ]
        taken: dict[int, int] = {}

        def place(writer: int, tried: set[int]) -> bool:
            self._budget.spend(1 + len(fits[writer]))
            for reader in fits[writer]:
                if reader in tried:
                    continue
                tried.add(reader)
                if reader not in taken or place(taken[reader], tried):
                    taken[reader] = writer
                    return True
            return False

        for index in range(len(writers)):
            if not place(index, set()):
                yield differs("SUM_TYPE_NARROWED", f"{path}/{index}", "lacks a branch that fits the one of the")

    # Without combinations

    def _compare_plain(self, reader: Subschema, writer: Subschema, path: str) -> Found:
        if writer.schema is False:
            return
        if reader.schema is False:
            yield differs("TYPE_NARROWED", path, "accepts nothing at")
            return
        new, old = _object(reader.schema), _object(writer.schema)
        new_types, old_types = _types(new), _types(old)
        shared = {one for one in old_types if one in new_types or (one == "integer" and "number" in new_types)}
        if shared != old_types:
            overlap = shared or ("integer" in new_types and "number" in old_types)
            kind = "TYPE_NARROWED" if overlap else "TYPE_CHANGED"
            lost = ", ".join(sorted(old_types - shared))
            yield differs(kind, path, f"does not take the type {lost} any more at")
            return
        self._budget.spend(len(new) + len(old))
        yield from self._compare_values(new, old, path)
        if "string" in shared:
            yield from _compare_strings(new, old, path)
        if shared & {"number", "integer"}:
            yield from _compare_numbers(new, old, path)
        if "object" in shared:
            yield from self._compare_objects(reader, writer, path)
        if "array" in shared:
            yield from self._compare_arrays(reader, writer, path)
        for name, type_ in _ONLY_THE_SAME:
            applies = name in new and (not type_ or type_ in shared)
            says_nothing = name not in _NEVER_IDLE and new.get(name) in (True, {})
            if not applies or says_nothing:
                continue
            if name not in old or not self._is_same(reader.below(new[name]), writer.below(old[name]), set()):
                yield differs("KEYWORD_CHANGED", f"{path}/{name}", f"has another '{name}' at")

    def _compare_objects(self, reader: Subschema, writer: Subschema, path: str) -> Found:
        new, old = _object(reader.schema), _object(writer.schema)
        yield from _compare_limits(new, old, path, "maxProperties", "minProperties", "PROPERTIES")
        properties, old_properties = new.get("properties") or {}, old.get("properties") or {}
        required = set(old.get("required") or ())
        self._budget.spend(len(required))
        for name in new.get("required") or ():
            self._budget.spend()
            described = properties.get(name)
            has_default = isinstance(described, dict) and "default" in described
            if name not in required and described is not None and not has_default:
                place = f"{path}/required/{name}"
                yield differs("REQUIRED_ATTRIBUTE_ADDED", place, f"requires the property '{name}' at")
        for name in dict.fromkeys([*properties, *old_properties]):
            kind = ""
            if name not in old_properties:
                kind = f"PROPERTY_ADDED_{_model(_others(old))}"
            elif name not in properties:
                kind = f"PROPERTY_REMOVED_{_model(_others(new))}"
            place = f"{path}/properties/{name}"
            old_schema = self._conjunction(writer, self._schemas_of(old, name, in_doubt=False))
            for schema in self._schemas_of(new, name, in_doubt=True):
                inner = self.compare(reader.below(schema), old_schema, place)
                if inner and kind:
                    yield differs(kind, place, f"and the other differ in property '{name}' at")
                else:
                    yield from inner
        yield from self._compare_patterns(reader, writer, path)
        place = f"{path}/additionalProperties"
        if self.compare(reader.below(_others(new)), writer.below(_others(old)), place):
            kind = "REMOVED" if _others(new) is False else "NARROWED"
            yield differs(f"ADDITIONAL_PROPERTIES_{kind}", place, "takes fewer other properties at")
        yield from self._compare_dependencies(reader, writer, path)

    def _compare_patterns(self, reader: Subschema, writer: Subschema, path: str) -> Found:
        new, old = _object(reader.schema), _object(writer.schema)
        patterns, old_patterns = new.get("patternProperties") or {}, old.get("patternProperties") or {}
        for pattern in dict.fromkeys([*patterns, *old_patterns]):
            schema = patterns.get(pattern, _others(new))
            place = f"{path}/patternProperties/{pattern}"
            # A name that matches a new pattern may match any of the old ones.
            before = [old_patterns[pattern]] if pattern in old_patterns else [*old_patterns.values(), _others(old)]
            self._budget.spend(len(before))
            for old_schema in before:
                yield from self.compare(reader.below(schema), writer.below(old_schema), place)

    def _compare_dependencies(self, reader: Subschema, writer: Subschema, path: str) -> Found:
        new, old = _dependencies(reader.schema), _dependencies(writer.schema)
        for name, needed in new.items():
            before = old.get(name)
            place = f"{path}/dependencies/{name}"
            if isinstance(needed, list):
                if needed and not (isinstance(before, list) and set(needed) <= set(before)):
                    yield differs("DEPENDENCY_ARRAY_ADDED", place, "has a stricter dependency at")
            elif before is None or isinstance(before, list):
                if needed not in (True, {}):
                    yield differs("DEPENDENCY_SCHEMA_ADDED", place, "has a stricter dependency at")
            else:
                yield from self.compare(reader.below(needed), writer.below(before), place)

    def _compare_arrays(self, reader: Subschema, writer: Subschema, path: str) -> Found:
        new, old = _object(reader.schema), _object(writer.schema)
        yield from _compare_limits(new, old, path, "maxItems", "minItems", "ITEMS")
        if new.get("uniqueItems") and not old.get("uniqueItems"):
            yield differs("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", "asks for unique items at")
        first, rest = _items(new)
        old_first, old_rest = _items(old)
        for index in range(max(len(first), len(old_first))):
            schema = first[index] if index < len(first) else rest
            old_schema = old_first[index] if index < len(old_first) else old_rest
            yield from self.compare(reader.below(schema), writer.below(old_schema), f"{path}/items/{index}")
        yield from self.compare(reader.below(rest), writer.below(old_rest), f"{path}/items")
        if not first and not old_first and "additionalItems" in new:
            # It has no meaning without a list of items, but gets one if a list is added later.
            others, old_others = new["additionalItems"], old.get("additionalItems", True)
            yield from self.compare(reader.below(others), writer.below(old_others), f"{path}/additionalItems")
        if "contains" in new and "contains" in old:
            if new.get("minContains", 1) > old.get("minContains", 1):
                yield differs("MIN_CONTAINS_INCREASED", f"{path}/minContains", "asks for more items at")
            if new.get("maxContains", math.inf) < old.get("maxContains", math.inf):
                yield differs("MAX_CONTAINS_DECREASED", f"{path}/maxContains", "takes fewer items at")

    def _compare_values(self, new: dict[str, Any], old: dict[str, Any], path: str) -> Found:
        values, old_values = self._values(new), self._values(old)
        if values is None or (old_values is None and old.get("type") == "null" and None in values):
            return
        if old_values is None:
            yield differs("ENUM_ARRAY_CHANGED", f"{path}/enum", "names the only values at")
        elif lost := [value for key, value in old_values.items() if key not in values]:
            shown = json.dumps(lost)[:MAX_SHOWN_CHARS]
            yield differs("ENUM_ARRAY_NARROWED", f"{path}/enum", f"lacks the values {shown} at")

    def _values(self, schema: dict[str, Any]) -> dict[Hashable, Any] | None:
        """Returns the allowed values by their keys; None if any is allowed."""
        found = None
        for name in ("enum", "const"):
            if name in schema:
                given = schema["enum"] if name == "enum" else [schema["const"]]
                named = {json_key(one, self._budget): one for one in given}
                found = {key: one for key, one in named.items() if found is None or key in found}
        return found

    def _is_same(self, one: Subschema, other: Subschema, known: set[tuple[int, int]]) -> bool:
        """Whether both are the same, following references. `known` has the pairs that were met before."""
        self._budget.spend()
        new, old = one.schema, other.schema
        if (id(new), id(old)) in known:
            return True
        known.add((id(new), id(old)))
        if isinstance(new, list) and isinstance(old, list):
            pairs = zip(new, old, strict=False)
            return len(new) == len(old) and all(self._is_same(one.below(a), other.below(b), known) for a, b in pairs)
        if not isinstance(new, dict) or not isinstance(old, dict):
            return json_key(new, self._budget) == json_key(old, self._budget)
        if new.keys() != old.keys():
            return False
        for name, inner in new.items():
            if name in DATA:
                same = json_key(inner, self._budget) == json_key(old[name], self._budget)
            elif name in NAMING and isinstance(inner, dict) and isinstance(old[name], dict):
                same = inner.keys() == old[name].keys() and all(
                    self._is_same(one.below(inner[key]), other.below(old[name][key]), known) for key in inner
                )
            elif name == "$ref" and isinstance(inner, str) and isinstance(old[name], str):
                self._budget.spend(STEPS_OF_A_REFERENCE)
                same = self._is_same(one.follow(inner), other.follow(old[name]), known)
            else:
                same = self._is_same(one.below(inner), other.below(old[name]), known)
            if not same:
                return False
        return True

    def _schemas_of(self, schema: dict[str, Any], name: str, *, in_doubt: bool) -> list[Any]:
        """Returns the schemas for a property of this name. `in_doubt`: whether a pattern that cannot be run matches."""
        found = [schema["properties"][name]] if name in (schema.get("properties") or {}) else []
        for pattern, one in (schema.get("patternProperties") or {}).items():
            self._budget.spend()
            try:
                matches = search(pattern, name)
            except (InvalidPattern, TooComplex):
                matches = in_doubt
            if matches:
                found.append(one)
        return found or [_others(schema)]


_Condition = tuple[str, Any]
T = TypeVar("T")


def _most_telling(reader: _Condition, writers: list[_Condition], results: list[T]) -> T:
    """Returns the result for a condition of the same kind if there is one, because it says most."""
    same = (result for writer, result in zip(writers, results, strict=True) if writer[0] == reader[0])
    return next(same, results[0])


def _object(schema: Any) -> dict[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _types(schema: dict[str, Any]) -> set[str]:
    type_ = schema.get("type")
    if type_ is not None:
        found = set(type_) if isinstance(type_, list) else {type_}
        return found - {"integer"} if "number" in found else found
    if "const" in schema:
        return {_type_of(schema["const"])}
    return {_type_of(value) for value in schema["enum"]} if "enum" in schema else set(_TYPES)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _compare_limits(new: dict[str, Any], old: dict[str, Any], path: str, most: str, least: str, kind: str) -> Found:
    if most in new and (most not in old or new[most] < old[most]):
        what = "ADDED" if most not in old else "DECREASED"
        yield differs(f"MAX_{kind}_{what}", f"{path}/{most}", f"has the limit {most} {new[most]} at")
    if new.get(least) and (least not in old or new[least] > old[least]):
        what = "ADDED" if least not in old else "INCREASED"
        yield differs(f"MIN_{kind}_{what}", f"{path}/{least}", f"has the limit {least} {new[least]} at")


def _compare_strings(new: dict[str, Any], old: dict[str, Any], path: str) -> Found:
    yield from _compare_limits(new, old, path, "maxLength", "minLength", "LENGTH")
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        kind = "PATTERN_CHANGED" if "pattern" in old else "PATTERN_ADDED"
        yield differs(kind, f"{path}/pattern", "has another pattern at")


def _bounds(schema: dict[str, Any], inclusive: str, exclusive: str) -> tuple[float | None, bool]:
    """Returns the limit, and whether it is exclusive: a boolean in draft 4, a number in later drafts."""
    limit, excluded = schema.get(inclusive), schema.get(exclusive)
    if isinstance(excluded, bool) or excluded is None:
        return limit, bool(excluded)
    if limit is None:
        return excluded, True
    stricter = excluded <= limit if inclusive == "maximum" else excluded >= limit
    return (excluded, True) if stricter else (limit, False)


def _compare_numbers(new: dict[str, Any], old: dict[str, Any], path: str) -> Found:
    for inclusive, exclusive, sign in (("maximum", "exclusiveMaximum", 1), ("minimum", "exclusiveMinimum", -1)):
        limit, excluded = _bounds(new, inclusive, exclusive)
        if limit is None:
            continue
        old_limit, old_excluded = _bounds(old, inclusive, exclusive)
        name = (exclusive if excluded else inclusive).replace("M", "_M").upper()
        place = f"{path}/{exclusive if excluded else inclusive}"
        if old_limit is None:
            yield differs(f"{name}_ADDED", place, f"has the limit {limit} at")
        elif sign * old_limit > sign * limit or (old_limit == limit and excluded and not old_excluded):
            change = "DECREASED" if sign > 0 else "INCREASED"
            yield differs(f"{name}_{change}", place, f"has the stricter limit {limit} at")
    step, old_step = new.get("multipleOf"), old.get("multipleOf")
    if step is not None and (old_step is None or old_step % step):
        kind = "MULTIPLE_OF_ADDED" if old_step is None else "MULTIPLE_OF_CHANGED"
        yield differs(kind, f"{path}/multipleOf", f"asks for multiples of {step} at")


def _evaluated_alone(schema: dict[str, Any]) -> dict[str, Any]:
    """Without other applicable keywords, unevaluated is the same as additional."""
    schema = dict(schema)
    if "unevaluatedProperties" in schema:
        others = schema.pop("unevaluatedProperties")
        schema.setdefault("additionalProperties", others)
    if "unevaluatedItems" in schema:
        others = schema.pop("unevaluatedItems")
        schema.setdefault("additionalItems" if isinstance(schema.get("items"), list) else "items", others)
    return schema


def _others(schema: dict[str, Any]) -> Any:
    return schema.get("additionalProperties", True)


def _model(others: Any) -> str:
    if others is False:
        return "CLOSED_CONTENT_MODEL"
    return "OPEN_CONTENT_MODEL" if others in (True, {}) else "PARTIALLY_OPEN_CONTENT_MODEL"


def _dependencies(schema: Any) -> dict[str, Any]:
    found = dict(_object(schema).get("dependencies") or {})
    for name in ("dependentRequired", "dependentSchemas"):
        found |= _object(schema).get(name) or {}
    return found


def _items(schema: dict[str, Any]) -> tuple[list[Any], Any]:
    """Returns the schemas of the first items, and the schema of the rest."""
    if isinstance(schema.get("items"), list):
        return schema["items"], schema.get("additionalItems", True)
    return schema.get("prefixItems") or [], schema.get("items", True)
