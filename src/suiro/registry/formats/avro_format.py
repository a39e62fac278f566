"""Avro: parses the text of a schema into nodes, and writes it in one form.

The canonical form is that of Java's `Schema.toString()`, which Confluent's registry stores: no blanks, members in a
fixed order, names without an inherited namespace. Documentation, defaults, aliases and user properties are kept. The
normalised form also sorts user properties by name.

The checks are those of Java's parser: names, duplicates, undefined names, unions, and whether a default is a value of
its field's type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from suiro.registry.formats.parsed import Budget, Import, InvalidSchema, Parsed
from suiro.registry.records import compact_json
from suiro.registry.schemas import AVRO

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "error", "enum", "fixed")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INT_RANGE = {"int": 1 << 31, "long": 1 << 63}
# Java's Avro reserves them in every type, also in "int" (`Schema.SCHEMA_RESERVED`).
_RESERVED = frozenset({"doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"})
_ENUM_RESERVED = _RESERVED | {"default"}
_FIELD_RESERVED = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_ABSENT: Any = object()


@dataclass(slots=True, eq=False, repr=False)
class Field:
    name: str
    type: Node
    doc: str | None = None
    default: Any = _ABSENT
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not _ABSENT


# Without repr: a recursive graph would have no end.
@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One type. A repeated name is the same node, so a recursive schema is a graph."""

    type: str
    name: str = ""  # without namespace
    namespace: str | None = None
    doc: str | None = None
    aliases: tuple[str, ...] = ()  # full names
    fields: dict[str, Field] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    enum_default: str | None = None
    size: int = 0
    items: Node | None = None  # of an array; the values of a map
    branches: tuple[Node, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


def parse(text: str, imports: Sequence[Import], *, strict: bool, budget: Budget) -> Parsed:
    names: dict[str, Node] = {}
    for one in imports:
        try:
            _Parser(names, budget, strict=False).parse_text(one.text)
        except InvalidSchema as error:
            raise InvalidSchema(f"reference {one.name!r}: {error}") from None
    known = set(names)
    node = _Parser(names, budget, strict=strict).parse_text(text)
    return Parsed(
        type=AVRO,
        canonical=compact_json(_Writer(known, ordered=False).write(node, None), allow_nan=not strict),
        normalized=compact_json(_Writer(known, ordered=True).write(node, None), allow_nan=not strict),
        model=node,
    )


def formatted(parsed: Parsed, form: str) -> str:
    """`resolved` is the form with all references expanded."""
    if form != "resolved":
        raise InvalidSchema(f"format={form}: an Avro schema has the format 'resolved', or none")
    return compact_json(_Writer(set(), ordered=False).write(parsed.model, None))


class _Parser:
    def __init__(self, names: dict[str, Node], budget: Budget, *, strict: bool) -> None:
        self._names = names
        self._budget = budget
        self._strict = strict
        self._defaults: list[tuple[str, Node, Any]] = []

    def parse_text(self, text: str) -> Node:
        try:
            data = json.loads(text)
        except ValueError as error:
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", text.strip()):
                data = text.strip()  # a bare name; Java accepts it too
            else:
                raise InvalidSchema(f"not JSON: {error}") from None
        node = self._type(data, None)
        for where, type_, default in self._defaults if self._strict else ():
            if not _Defaults(self._budget).fits(default, type_):
                raise InvalidSchema(
                    f"Invalid default for field {where}: {json.dumps(default)[:500]} is not a {type_.type}"
                )
        return node

    def _type(self, data: Any, namespace: str | None) -> Node:
        self._budget.spend()
        if isinstance(data, str):
            return self._reference(data, namespace)
        if isinstance(data, list):
            return self._union(data, namespace)
        if not isinstance(data, dict) or "type" not in data:
            raise InvalidSchema(f"No type: {compact_json(data)}")
        type_ = data["type"]
        if not isinstance(type_, str):
            return self._type(type_, namespace)  # {"type": {"type": ...}}: Java accepts it
        if type_ in PRIMITIVES:
            return Node(type=type_, properties=_properties(data, _RESERVED))
        if type_ in _NAMED:
            return self._named(type_, data, namespace)
        if type_ == "array" or type_ == "map":
            inner = "items" if type_ == "array" else "values"
            if inner not in data:
                raise InvalidSchema(f"{type_} without {inner}: {compact_json(data)}")
            return Node(type=type_, items=self._type(data[inner], namespace), properties=_properties(data, _RESERVED))
        return self._reference(type_, namespace)

    def _reference(self, name: str, namespace: str | None) -> Node:
        if name in PRIMITIVES:
            return Node(type=name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        node = self._names.get(full) or self._names.get(name)
        if node is None:
            raise InvalidSchema(f"Undefined schema: {full}")
        return node

    def _union(self, data: list[Any], namespace: str | None) -> Node:
        branches = tuple(self._type(one, namespace) for one in data)
        seen: set[str] = set()
        for branch in branches:
            if branch.type == "union":
                raise InvalidSchema("Nested union: a union cannot directly contain another")
            name = branch.full_name or branch.type
            if name in seen:
                raise InvalidSchema(f"Duplicate in union: {name}")
            seen.add(name)
        return Node(type="union", branches=branches)

    def _named(self, type_: str, data: dict[str, Any], outer: str | None) -> Node:
        name, namespace = data.get("name"), data.get("namespace")
        if not isinstance(namespace, str):
            namespace = outer
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"No name in schema: {compact_json(data)}")
        if "." in name:
            namespace, _, name = name.rpartition(".")
        for part in (name, *namespace.split(".")) if namespace else (name,):
            _check_name(part)
        namespace = namespace or None
        if not namespace and name in PRIMITIVES:
            raise InvalidSchema(f"Schemas may not be named after primitives: {name}")
        node = Node(
            type=type_,
            name=name,
            namespace=namespace,
            doc=data.get("doc"),
            aliases=tuple(one if "." in one or not namespace else f"{namespace}.{one}" for one in _names(data)),
            properties=_properties(data, _ENUM_RESERVED if type_ == "enum" else _RESERVED),
        )
        if node.full_name in self._names:
            raise InvalidSchema(f"Can't redefine: {node.full_name}")
        self._names[node.full_name] = node
        if type_ == "fixed":
            size = data.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < _INT_RANGE["int"]:
                raise InvalidSchema(f"Invalid or no size: {compact_json(data)}")
            node.size = size
        elif type_ == "enum":
            self._enum(node, data)
        else:
            self._fields(node, data)
        return node

    @staticmethod
    def _enum(node: Node, data: dict[str, Any]) -> None:
        symbols = data.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchema(f"Enum has no symbols: {compact_json(data)}")
        for symbol in symbols:
            _check_name(symbol)
        if len(set(symbols)) != len(symbols):
            raise InvalidSchema(f"Duplicate enum symbol in {node.full_name}")
        node.symbols = tuple(symbols)
        node.enum_default = data.get("default")
        if node.enum_default is not None and node.enum_default not in symbols:
            raise InvalidSchema(f"The Enum Default: {node.enum_default} is not in the enum symbol set: {symbols}")

    def _fields(self, node: Node, data: dict[str, Any]) -> None:
        fields = data.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"Record has no fields: {compact_json(data)}")
        for one in fields:
            if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                raise InvalidSchema(f"No field name: {compact_json(one)}")
            _check_name(one["name"])
            if one["name"] in node.fields:
                raise InvalidSchema(f"Duplicate field {one['name']} in record {node.full_name}")
            if "type" not in one:
                raise InvalidSchema(f"No field type: {compact_json(one)}")
            order = one.get("order", "ascending")
            if order not in ("ascending", "descending", "ignore"):
                raise InvalidSchema(f"Field {one['name']}: order is ascending, descending or ignore, not {order!r}")
            made = Field(
                name=one["name"],
                type=self._type(one["type"], node.namespace),
                doc=one.get("doc"),
                default=one.get("default", _ABSENT),
                order=order,
                aliases=_names(one),
                properties=_properties(one, _FIELD_RESERVED),
            )
            node.fields[made.name] = made
            if made.has_default:
                self._defaults.append((f"{node.full_name}.{made.name}", made.type, made.default))


def _properties(data: dict[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in reserved}


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidSchema(f"Illegal name: {name!r}; a name is a letter or _, then letters, digits and _")


def _names(data: dict[str, Any]) -> tuple[str, ...]:
    aliases = data.get("aliases") or []
    if not isinstance(aliases, list) or not all(isinstance(one, str) for one in aliases):
        raise InvalidSchema(f"aliases not an array of names: {compact_json(aliases)}")
    return tuple(aliases)


class _Defaults:
    """Decides whether JSON is a valid default of a type, as Java's Avro does (`Schema.isValidDefault`), which producers
    use: a default may match any branch of a union, need not be a symbol of its enum, and may have any length for a
    fixed."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._known: dict[tuple[int, int], bool] = {}  # by id; the default keeps the values alive

    def fits(self, value: Any, node: Node | None) -> bool:
        assert node is not None
        if not isinstance(value, dict | list):
            return self._fits(value, node)
        pair = (id(value), id(node))
        if pair not in self._known:
            self._known[pair] = self._fits(value, node)
        return self._known[pair]

    def _fits(self, value: Any, node: Node) -> bool:
        self._budget.spend()
        match node.type:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long":
                limit = _INT_RANGE[node.type]
                return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
            case "float" | "double":
                if isinstance(value, str):
                    return value in ("NaN", "Infinity", "-Infinity")
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "string" | "bytes" | "fixed" | "enum":
                return isinstance(value, str)
            case "array":
                return isinstance(value, list) and all(self.fits(one, node.items) for one in value)
            case "map":
                return isinstance(value, dict) and all(self.fits(one, node.items) for one in value.values())
            case "union":
                return any(self.fits(value, branch) for branch in node.branches)
            case _:
                return isinstance(value, dict) and all(
                    self.fits(value[name], one.type) if name in value else one.has_default
                    for name, one in node.fields.items()
                )


class _Writer:
    """`known` has the names that other schemas define. `ordered`: user properties are sorted."""

    def __init__(self, known: set[str], *, ordered: bool) -> None:
        self._written = set(known)
        self._ordered = ordered

    def _properties(self, of: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(of.items())) if self._ordered else of

    def write(self, node: Node, namespace: str | None) -> Any:
        """Returns the JSON of a type."""
        if node.type in PRIMITIVES:
            return {"type": node.type, **self._properties(node.properties)} if node.properties else node.type
        if node.type == "union":
            return [self.write(branch, namespace) for branch in node.branches]
        if node.items is not None:
            inner = "items" if node.type == "array" else "values"
            return {"type": node.type, inner: self.write(node.items, namespace), **self._properties(node.properties)}
        if node.full_name in self._written:
            return node.name if node.namespace == namespace else node.full_name
        self._written.add(node.full_name)
        made: dict[str, Any] = {"type": node.type, "name": node.name}
        if node.namespace != namespace:
            made["namespace"] = node.namespace or ""
        if node.doc is not None:
            made["doc"] = node.doc
        if node.type == "enum":
            made["symbols"] = list(node.symbols)
            if node.enum_default is not None:
                made["default"] = node.enum_default
        elif node.type == "fixed":
            made["size"] = node.size
        else:
            made["fields"] = [self._field(one, node.namespace) for one in node.fields.values()]
        made.update(self._properties(node.properties))
        if node.aliases:
            prefix = f"{node.namespace}." if node.namespace else ""
            short = [alias.removeprefix(prefix) for alias in node.aliases]
            made["aliases"] = [full if "." in one else one for full, one in zip(node.aliases, short, strict=True)]
        return made

    def _field(self, one: Field, namespace: str | None) -> dict[str, Any]:
        made = {"name": one.name, "type": self.write(one.type, namespace)}
        if one.doc is not None:
            made["doc"] = one.doc
        if one.has_default:
            made["default"] = one.default
        if one.order != "ascending":
            made["order"] = one.order
        if one.aliases:
            made["aliases"] = list(one.aliases)
        return made | self._properties(one.properties)
