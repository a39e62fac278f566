"""JSON Schema, drafts 4 to 2020-12: parses a schema, checks it against its draft, and resolves each `$ref`.

`jsonschema` and `referencing` do the work. A schema that does not name its draft is of draft 7. A `$ref` leads into the
schema itself, to a reference by its name, or to the schema of a draft. Nothing is fetched.

The canonical form is the text without blanks. The normalised form also sorts the members of every object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jsonschema.validators import Draft7Validator, validator_for
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, specification_with

from suiro.registry.formats.json_values import Validator
from suiro.registry.formats.parsed import Budget, Import, InvalidSchema, Parsed
from suiro.registry.records import compact_json
from suiro.registry.schemas import JSON

ROOT_URI = "suiro:schema"
STEPS_OF_A_REFERENCE = 100
_SIBLINGS_COUNT_FROM = ("2019-09", "2020-12")
DATA = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data, even if they look like schemas."""
NAMING = frozenset({"properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies"})
"""Keywords whose members have names chosen by the author, which may be equal to keywords."""


@dataclass(frozen=True, slots=True, eq=False)
class Subschema:
    """A schema in its document, so that a relative `$ref` can be resolved."""

    schema: Any
    resolver: Any
    siblings_count: bool  # from draft 2019-09 on, keywords beside a `$ref` count

    def below(self, schema: Any) -> Subschema:
        if isinstance(schema, dict) and any(isinstance(schema.get(name), str) for name in ("$id", "id")):
            try:
                resource = Resource.from_contents(schema, default_specification=DRAFT7)
                resolver = self.resolver.in_subresource(resource)
            except (AttributeError, ValueError):
                raise InvalidSchema("the $schema or the id of a part of it is no text, or no URI") from None
            return Subschema(schema, resolver, self.siblings_count)
        return Subschema(schema, self.resolver, self.siblings_count)

    def follow(self, reference: str) -> Subschema:
        """Raises `InvalidSchema` if the reference leads nowhere."""
        try:
            found = self.resolver.lookup(reference)
        # The last ones are of a pointer into what is no schema, and of parts that the draft does not check.
        except (Unresolvable, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InvalidSchema(
                f"$ref {reference!r} leads nowhere ({type(error).__name__}); it is in this schema, or the name of a "
                "reference"
            ) from None
        return Subschema(found.contents, found.resolver, self.siblings_count)


def parse(text: str, imports: Sequence[Import], *, strict: bool, budget: Budget) -> Parsed:
    schema = _load(text)
    registry = _registry(imports)
    resource = Resource.from_contents(schema, default_specification=DRAFT7)
    if strict:
        draft = validator_for(schema, default=Draft7Validator)
        # Formats are not checked: patterns are those of ECMAScript, and Python's check would refuse some.
        problem = Validator(draft.META_SCHEMA, REGISTRY).problem(schema, budget)
        if problem is not None:
            raise InvalidSchema(problem)
    uri = resource.id() or ROOT_URI
    resolver = registry.with_resource(uri, resource).resolver(uri)
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    root = Subschema(schema, resolver, any(draft in dialect for draft in _SIBLINGS_COUNT_FROM))
    followed: set[tuple[int, str]] = set()
    for reference, inside in _references(root, budget):
        if (id(inside.resolver), reference) not in followed:
            budget.spend(STEPS_OF_A_REFERENCE)
            followed.add((id(inside.resolver), reference))
            inside.follow(reference)
    return Parsed(
        type=JSON,
        canonical=compact_json(schema, allow_nan=not strict),
        normalized=compact_json(_sorted(schema), allow_nan=not strict),
        model=root,
    )


def formatted(parsed: Parsed, form: str) -> str:
    raise InvalidSchema(f"format={form}: a JSON Schema has one format only; leave it out")


def validator(text: str, imports: Sequence[Import]) -> Validator:
    """Returns a validator of values. Raises `InvalidSchema`."""
    try:
        return Validator(_load(text), _registry(imports))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidSchema(f"what was not checked is no schema: {error}") from None


def _registry(imports: Sequence[Import]) -> Registry[Any]:
    registry: Registry[Any] = REGISTRY
    for one in imports:
        resource = Resource.from_contents(_load(one.text), default_specification=DRAFT7)
        registry = registry.with_resource(one.name, resource)
        try:
            uri = resource.id()
        except AttributeError:  # it was imported without checks
            raise InvalidSchema(f"reference {one.name!r}: its id is no text") from None
        if uri:
            registry = registry.with_resource(uri, resource)
    return registry


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


READER = json.JSONDecoder(parse_constant=_refuse_constant)


def _load(text: str) -> Any:
    try:
        schema = READER.decode(text)
    except ValueError as error:
        raise InvalidSchema(f"not JSON: {error}") from None
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None
    if not isinstance(schema, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    if isinstance(schema, dict) and "$schema" in schema:
        try:
            specification_with(str(schema["$schema"]))
        except Exception:  # noqa: BLE001 - the library raises many kinds for what it does not know
            raise InvalidSchema(f"$schema {schema['$schema']!r} is not a draft we know") from None
    return schema


def _references(subschema: Subschema, budget: Budget) -> Iterator[tuple[str, Subschema]]:
    budget.spend()
    schema = subschema.schema
    if isinstance(schema, list):
        for one in schema:
            yield from _references(subschema.below(one), budget)
    elif isinstance(schema, dict):
        for name, value in schema.items():
            if name == "$ref" and isinstance(value, str):
                yield value, subschema
            elif name in NAMING and isinstance(value, dict):
                for one in value.values():
                    yield from _references(subschema.below(one), budget)
            elif name not in DATA:
                yield from _references(subschema.below(value), budget)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value
