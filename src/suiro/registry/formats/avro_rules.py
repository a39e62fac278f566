"""Decides whether data written with one Avro schema can be read with another, by the rules of schema resolution in
Avro's specification. The verdicts are those of Java's `SchemaCompatibility`, and so those of Confluent's registry.

As there, these are ignored: logical types (a decimal whose scale changes passes, although it is read wrongly),
documentation, order, and user properties.

The checker of the `avro` package is not used, although its verdicts are the same (the tests compare them on all their
pairs of schemas). Its messages lack the place where branches of a union differ. For a field without a default whose
type is an enum with one, it looks the enum up in the record.
"""

from __future__ import annotations

from suiro.registry.formats.avro_format import PRIMITIVES, Field, Node
from suiro.registry.formats.differences import READER, WRITER, Found, Incompatibility, Pairs
from suiro.registry.formats.parsed import Budget

_PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
_RECORDS = ("record", "error")


def incompatibilities(reader: Node, writer: Node, budget: Budget) -> list[Incompatibility]:
    return _Check(budget).compare(reader, writer, "")


class _Check:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.compare = Pairs[Node](budget, lambda reader, writer: (id(reader), id(writer)), self._compare).compare

    def _compare(self, reader: Node, writer: Node, path: str) -> Found:
        if writer.type == "union":
            for index, branch in enumerate(writer.branches):
                if reader.type != "union":
                    yield from self.compare(reader, branch, path)
                elif self.compare(reader, branch, f"{path}/{index}"):
                    yield _missing_branch(branch, f"{path}/{index}")
        elif reader.type == "union":
            if all(self.compare(branch, writer, path) for branch in reader.branches):
                yield _missing_branch(writer, path)
        elif reader.type == writer.type or (reader.type in _RECORDS and writer.type in _RECORDS):
            yield from self._compare_same(reader, writer, path)
        elif writer.type not in _PROMOTIONS.get(reader.type, ()):
            yield Incompatibility(
                "TYPE_MISMATCH",
                path or "/",
                f"The type (path '{path or '/'}') of a field in the {READER} schema does not match with the {WRITER} "
                f"schema: reader type {reader.type.upper()} not compatible with writer type {writer.type.upper()}",
            )

    def _compare_same(self, reader: Node, writer: Node, path: str) -> Found:
        if reader.type in PRIMITIVES:
            return
        if reader.items is not None and writer.items is not None:
            inner = "items" if reader.type == "array" else "values"
            yield from self.compare(reader.items, writer.items, f"{path}/{inner}")
            return
        if reader.name != writer.name and writer.full_name not in reader.aliases:
            yield Incompatibility(
                "NAME_MISMATCH",
                f"{path}/name",
                f"The name of the schema has changed (path '{path}/name'): expected {writer.full_name}",
            )
        if reader.type == "fixed" and reader.size != writer.size:
            yield Incompatibility(
                "FIXED_SIZE_MISMATCH",
                f"{path}/size",
                f"The size of FIXED type field at path '{path}/size' in the {READER} schema does not match with the "
                f"{WRITER} schema: expected {writer.size}, found {reader.size}",
            )
        elif reader.type == "enum" and reader.enum_default is None:
            symbols = set(reader.symbols)
            self._budget.spend(len(symbols) + len(writer.symbols))
            missing = [symbol for symbol in writer.symbols if symbol not in symbols]
            if missing:
                yield Incompatibility(
                    "MISSING_ENUM_SYMBOLS",
                    f"{path}/symbols",
                    f"The {READER} schema is missing enum symbols '[{', '.join(missing)}]' at path '{path}/symbols' in "
                    f"the {WRITER} schema",
                )
        elif reader.type in _RECORDS:
            for index, one in enumerate(reader.fields.values()):
                yield from self._compare_field(one, writer, f"{path}/fields/{index}")

    def _compare_field(self, field: Field, writer: Node, path: str) -> Found:
        names = (field.name, *field.aliases)
        self._budget.spend(len(names))
        written = next((writer.fields[name] for name in names if name in writer.fields), None)
        if written is not None:
            yield from self.compare(field.type, written.type, f"{path}/type")
        elif not field.has_default:
            yield Incompatibility(
                "READER_FIELD_MISSING_DEFAULT_VALUE",
                field.name,
                f"The field '{field.name}' at path '{path}' in the {READER} schema has no default value and is missing "
                f"in the {WRITER} schema",
            )


def _missing_branch(branch: Node, path: str) -> Incompatibility:
    name = branch.full_name or branch.type.upper()
    return Incompatibility(
        "MISSING_UNION_BRANCH",
        path or "/",
        f"The {READER} schema is missing a type inside a union field at path '{path or '/'}' in the {WRITER} "
        f"schema: reader union lacking writer type {name}",
    )
