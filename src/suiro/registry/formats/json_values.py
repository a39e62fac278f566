"""Validates a value against a JSON Schema with `jsonschema`, within a budget.

The author of a schema decides how much work its validation is: patterns can backtrack, and combinations can double at
each level. So every keyword costs steps (`budget`). Keywords that run regular expressions, or whose work grows with the
square of the value, are implemented here; all others are those of `jsonschema`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from jsonschema import validators
from jsonschema.exceptions import UndefinedTypeCheck, UnknownType, ValidationError, best_match
from referencing.exceptions import Unresolvable
from referencing.jsonschema import lookup_recursive_ref

from suiro.registry.formats.parsed import Budget, TooComplex, is_end_of_stack
from suiro.registry.formats.patterns import InvalidPattern, search

MAX_ERRORS = 100
"""The number of errors from which the most relevant one is chosen."""
MAX_MESSAGE_CHARS = 500
CHARS_PER_STEP = 10

_OF_NUMBERS_AND_SCHEMAS = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, UndefinedTypeCheck, UnknownType
)  # fmt: skip

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]

_budget: ContextVar[Budget] = ContextVar("budget")  # of the validation on this thread


class Validator:
    def __init__(self, schema: Any, registry: Any) -> None:
        draft: Any = validators.validator_for(schema, default=validators.Draft7Validator)
        self._validator = _counted(draft)(schema, registry=registry)

    def problem(self, value: Any, budget: Budget) -> str | None:
        """Returns why the value is invalid; None if it is valid. Raises `TooComplex`."""
        token = _budget.set(budget)
        try:
            errors = self._validator.iter_errors(value)
            worst = best_match(one for one, _ in zip(errors, range(MAX_ERRORS), strict=False))
        except InvalidPattern as error:
            raise TooComplex(f"the pattern {str(error)[:100]!r} is none that can be run") from None
        except Unresolvable as error:
            raise TooComplex(f"$ref {error.ref!r} leads nowhere") from None
        # Numbers may be too large for doubles. A schema of another registry may have been checked less than here.
        except _OF_NUMBERS_AND_SCHEMAS as error:
            raise TooComplex(f"{type(error).__name__}: {str(error)[:MAX_MESSAGE_CHARS]}") from None
        except BaseException as error:
            if not is_end_of_stack(error):
                raise
            raise TooComplex("value and schema are nested too deeply") from None
        finally:
            _budget.reset(token)
        if worst is None:
            return None
        place = "/".join(str(part) for part in worst.absolute_path)
        return f"at /{place}: {worst.message[:MAX_MESSAGE_CHARS]}"


@lru_cache(maxsize=32)
def _counted(draft: Any) -> Any:
    """Returns a validator of the draft whose keywords spend the budget."""
    keywords = {**draft.VALIDATORS, **{name: ours for name, ours in _OURS.items() if name in draft.VALIDATORS}}
    made = validators.extend(draft, {name: _spending(keyword) for name, keyword in keywords.items()})

    def evolve(self: Any, **changes: Any) -> Any:
        # A part of a schema may name another draft. Its keywords are counted too.
        schema = changes.setdefault("schema", self.schema)
        other = validators.validator_for(schema, default=draft)
        kind = made if other is draft else _counted(other)
        for name in ("resolver", "format_checker", "registry", "_resolver"):
            changes.setdefault(name, getattr(self, _FIELDS.get(name, name)))
        return kind(**changes)

    made.evolve = evolve
    return made


_FIELDS = {"resolver": "_ref_resolver", "registry": "_registry"}


def _spending(keyword: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget = _budget.get()
        budget.spend(1 + _size(value) + _size(instance))
        for error in keyword(validator, value, instance, schema) or ():
            # Messages contain the value. With a large value and many branches they would cost most.
            budget.spend(len(error.message) // CHARS_PER_STEP)
            error.message = error.message[:MAX_MESSAGE_CHARS]
            yield error

    return counted


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _found(pattern: str, text: str) -> bool:
    _budget.get().spend()
    return search(pattern, text)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    for pattern, inner in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if _found(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _others(instance: dict[str, Any], schema: Any) -> list[str]:
    """The properties that `properties` and `patternProperties` do not name."""
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return [name for name in instance if name not in named and not any(_found(pattern, name) for pattern in patterns)]


def _additional_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    others = _others(instance, schema)
    if inner is False and others:
        yield ValidationError(f"Additional properties are not allowed: {', '.join(map(repr, others[:10]))}")
    elif isinstance(inner, dict):
        for name in others:
            yield from validator.descend(instance[name], inner, path=name)


def _unevaluated_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    beside = {name: one for name, one in schema.items() if name != "unevaluatedProperties"}
    evaluated = _evaluated(validator, instance, beside)
    for name, value in instance.items():
        if name not in evaluated and next(validator.descend(value, inner, path=name), None) is not None:
            yield ValidationError(f"Unevaluated properties are not allowed: {name!r}")


def _evaluated(validator: Any, instance: dict[str, Any], schema: Any) -> set[str]:
    """Returns the properties that a schema evaluates, if the object is valid for it ("unevaluatedProperties" of the
    drafts from 2019-09 on)."""
    _budget.get().spend(1 + len(instance))
    if not isinstance(schema, dict):
        return set()
    found = {name for name in instance if name in schema.get("properties", {})}
    found |= {name for pattern in schema.get("patternProperties", {}) for name in instance if _found(pattern, name)}
    if "additionalProperties" in schema:
        found |= set(_others(instance, schema))
    if "unevaluatedProperties" in schema:
        return set(instance)
    applied = [one for name in ("allOf", "anyOf", "oneOf") for one in schema.get(name, ())]
    applied += [one for name, one in schema.get("dependentSchemas", {}).items() if name in instance]
    if "if" in schema:
        holds = validator.evolve(schema=schema["if"]).is_valid(instance)
        applied += [schema[name] for name in (("if", "then") if holds else ("else",)) if name in schema]
    for one in applied:
        if validator.evolve(schema=one).is_valid(instance):
            found |= _evaluated(validator, instance, one)
    for resolved in _targets(validator, schema):
        there = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
        found |= _evaluated(there, instance, resolved.contents)
    return found


def _targets(validator: Any, schema: dict[str, Any]) -> Iterator[Any]:
    for name in ("$ref", "$dynamicRef"):
        if name in schema:
            yield validator._resolver.lookup(schema[name])
    if "$recursiveRef" in schema:
        yield lookup_recursive_ref(validator._resolver)


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if unique and isinstance(instance, list):
        seen: set[Hashable] = set()
        for one in instance:
            key = json_key(one, _budget.get())
            if key in seen:
                yield ValidationError(f"{str(one)[:MAX_MESSAGE_CHARS]} is there twice; the items are to be unique")
                return
            seen.add(key)


def json_key(value: Any, budget: Budget) -> Hashable:
    """Equal for values that are equal as JSON: 1 is 1.0, and true is not 1."""
    budget.spend()
    match value:
        case bool():
            return ("boolean", value)
        case dict():
            return ("object", frozenset((name, json_key(one, budget)) for name, one in value.items()))
        case list():
            return ("array", tuple(json_key(one, budget) for one in value))
    return value if isinstance(value, Hashable) else id(value)


_OURS: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "uniqueItems": _unique_items,
}
