"""A captured table, and the Avro schemas of the keys and values of its topic.

The schemas depend on the table only, not on when the capture first read it. A column keeps its Avro name as long as it
keeps its own name. Fields are in the order of the table's columns, also in the key.

If Avro does not allow the name of a column (see `names`), the field has the original name as `postgres.name`. Each
field has the declared type of its column as `postgres.type`. If that is a domain over JSON, the type below is its
`postgres.base`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suiro.connect.postgres.encoding.avro_text import Place
from suiro.connect.postgres.encoding.names import avro_name, avro_names
from suiro.connect.postgres.encoding.pgoutput import RelationMessage
from suiro.connect.postgres.encoding.types import (
    PRINTED,
    Column,
    ColumnEncoding,
    Encodings,
    PgType,
    Rules,
    Types,
    avro_field,
    depth_of_array,
    element_of_array,
    encoding_of_avro,
    has_mixed_depths,
    is_built_in,
    record_name,
    type_name,
)
from suiro.errors import UsageError

RELATION_QUERY = """
select
    coalesce((select json_agg(json_build_array(a.attname, a.attndims, a.attnum, a.atttypid::int8) order by a.attnum)
        from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped), '[]')
from pg_catalog.pg_class c where c.oid = %(relation)s::oid
"""
"""The columns of a table: name, declared dimensions, number, type."""


class KeylessTableError(UsageError):
    """Nothing in the log names a row of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table: its columns, in the order in which pgoutput and a snapshot send them, and its key.

    `key` has positions in `columns`, in ascending order. `nullable_key`: no constraint keeps nulls out of the key (with
    replica identity full and no unique key, the whole row is the key). `earlier`: columns whose types were dropped
    since, as fields of the value's schema that they had; a record in them is defined wherever it is used. `records`:
    names that composite types had in the topic before they were renamed, by oid.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    key: tuple[int, ...]
    nullable_key: bool = False
    types: Types = field(default_factory=dict)
    earlier: Mapping[str, Any] = field(default_factory=dict)
    records: Mapping[int, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


def announced(
    message: RelationMessage,
    *,
    types: Types,
    row: tuple[Any, ...] | None = None,
    key: Sequence[str] | None = None,
) -> Relation:
    """Returns a table from pgoutput's announcement, which describes the changes that follow it.

    row: the table's row of `RELATION_QUERY`, which may be newer than the announcement, or None if the table was
    dropped. It adds the declared depths of arrays.
    key: the columns of the key with replica identity full, which the log does not tell; None: all columns.
    """
    depths = {name: dimensions for name, dimensions, _, _ in row[0]} if row is not None else {}
    columns = tuple(
        Column(name=column.name, type=column.type, typmod=column.typmod, dimensions=depths.get(column.name, 0))
        for column in message.columns
    )
    positions = tuple(
        place for place, column in enumerate(message.columns) if column.is_key and (key is None or column.name in key)
    )
    if not positions:
        table = f"{message.schema}.{message.name}"
        raise KeylessTableError(
            f"nothing in the WAL names a row of {table}: it has no primary key. Give it a primary key, or ALTER TABLE "
            f"{table} REPLICA IDENTITY USING INDEX <a unique index over NOT NULL columns>, or REPLICA IDENTITY FULL "
            "(the key of a record is then the whole row)"
        )
    return Relation(
        oid=message.oid,
        schema=message.schema,
        name=message.name,
        columns=columns,
        key=positions,
        nullable_key=message.replica_identity == "f" and key is None,
        types=types,
    )


def with_earlier_types(
    relation: Relation, *, row: tuple[Any, ...] | None, versions: Iterable[Mapping[str, Any]]
) -> Relation:
    """Returns a table of an announcement with what the catalogue does not have any more: types that were dropped, and
    the depths of arrays in columns that were dropped, renamed or got another type.

    versions: the schemas of the topic's values, newest first. They may be newer than the announcement, too: a session
    that was killed may have come further.
    """
    present = {(name, kind) for name, _, _, kind in row[0]} if row is not None else set()

    def is_lost(column: Column) -> bool:
        known = relation.types.get(column.type)
        return known is None or (known.kind == "array" and (column.name, column.type) not in present)

    lost = [one for one in relation.columns if is_lost(one)]
    found: dict[str, Any] = {}
    for schema in versions if lost else ():
        fields = _fields_of(schema)
        fitting = {
            one.name: fields[one.name]
            for one in lost
            if one.name in fields and _may_be_of(one, fields[one.name], relation.types)
        }
        if len(fitting) > len(found):
            found = fitting
        if len(found) == len(lost):
            break
    depths = {name: depth_of_array(field["type"][1]) for name, field in found.items()}
    columns = tuple(replace(one, dimensions=depths.get(one.name) or one.dimensions) for one in relation.columns)
    dropped = {one.name for one in lost if one.type not in relation.types}
    return replace(
        relation,
        columns=columns,
        earlier={name: field for name, field in found.items() if name in dropped},
    )


def as_in_topic(
    relation: Relation, rules: Rules, *, latest: Mapping[str, Any] | None, met: Mapping[Place, int]
) -> Relation:
    """Returns a table with what its topic has besides the catalogue: depths of arrays that are not those that are
    declared, and the names of records. With another name, readers would not know the record of a type that was renamed.

    latest: the schema of the topic's values. met: depths of values.
    """
    types = relation.types
    arrays, names = _known_of(relation, latest)
    plain = Encodings(types, rules, lambda record, _: (record, False))

    def fitted(column: Column, place: Place, encoding: ColumnEncoding) -> Column:
        depth, known, of_value = depth_of_array(encoding.avro), arrays.get(place), met.get(place, 0)
        is_mixed = has_mixed_depths(known) or not {depth_of_array(known), of_value} <= {0, depth}
        deepest = max(depth, depth_of_array(known), of_value)
        return replace(column, deepest=deepest) if depth and is_mixed else column

    def with_attributes(known: PgType) -> PgType:
        fields = (
            one if isinstance(one, int) else fitted(one, (known.oid, one.name), plain.of(one)) for one in known.fields
        )
        return replace(known, fields=tuple(fields))

    columns = zip(relation.columns, encodings_of(relation, rules), strict=True)
    return replace(
        relation,
        columns=tuple(fitted(column, (0, column.name), encoding) for column, encoding in columns),
        types={oid: with_attributes(known) if known.fields else known for oid, known in types.items()},
        records={oid: name for oid, name in names.items() if name != record_name(types[oid])},
    )


def _known_of(relation: Relation, latest: Mapping[str, Any] | None) -> tuple[dict[Place, Any], dict[int, str]]:
    """Returns the arrays that a topic has, and the names of the records of composite types, by oid."""
    arrays: dict[Place, Any] = {}
    names: dict[int, str] = {}

    def look(place: Place, oid: int, avro: Any) -> None:
        known = relation.types.get(oid)
        if known is None or not isinstance(avro, dict):
            return
        if known.kind == "domain":
            look(place, known.base, avro)
        elif known.kind == "array" and avro["type"] == "array":
            arrays.setdefault(place, avro)
            look(place, known.element, element_of_array(avro))
        elif known.kind == "composite" and avro["type"] == "record" and oid not in names:
            names[oid] = avro["name"]
            look_at_all(oid, known.fields, _fields_of(avro))

    def look_at_all(owner: int, columns: Sequence[Column | int], fields: Mapping[str, Any]) -> None:
        for one in columns:
            if isinstance(one, Column) and one.name in fields:
                look((owner, one.name), one.type, fields[one.name]["type"][1])

    look_at_all(0, relation.columns, _fields_of(latest) if latest is not None else {})
    return arrays, names


def _may_be_of(column: Column, field: Mapping[str, Any], types: Types) -> bool:
    if column.type in types:
        return bool(field["postgres.type"] == type_name(column.type, column.typmod, types))
    return not is_built_in(field["postgres.type"])


def _fields_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a capture's columns by the columns' names, with each record defined where it is used."""
    types = types_of_fields(schema)
    return {
        one.get("postgres.name", one["name"]): one | {"type": types[one["name"]]}
        for one in schema["fields"]
        if "postgres.type" in one
    }


def types_of_fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the types of a schema's fields by their names in Avro, with each record defined where it is used. They
    are the same for a schema that a registry has written in its own way."""
    records: dict[str, Any] = {}
    return {one["name"]: _inlined(one["type"], records) for one in schema["fields"]}


def _inlined(avro: Any, records: dict[str, Any]) -> Any:
    """`records`: those that were defined before, by their names without the namespace, which registries may write on
    its own."""
    if isinstance(avro, list):
        return [_inlined(branch, records) for branch in avro]
    if isinstance(avro, str):
        return records.get(avro.rpartition(".")[2], avro)
    if avro["type"] == "array":
        return avro | {"items": _inlined(avro["items"], records)}
    if avro["type"] == "record":
        name = avro["name"].rpartition(".")[2]
        fields = [field | {"type": _inlined(field["type"], records)} for field in avro["fields"]]
        records[name] = {"type": "record", "name": name, "fields": fields}
        return records[name]
    return avro


def key_schema(relation: Relation, rules: Rules) -> dict[str, Any]:
    """The Avro schema of the topic's keys: the key's columns, in the table's order."""
    return _record(relation, rules, "Key", relation.key, nullable=relation.nullable_key)


def value_schema(relation: Relation, rules: Rules) -> dict[str, Any]:
    """The Avro schema of the topic's values: every column, nullable, with null as its default."""
    return _record(relation, rules, "Value", range(len(relation.columns)), nullable=True)


def encodings_of(relation: Relation, rules: Rules, *, namespace: str = "") -> list[ColumnEncoding]:
    """Returns how each column is written. A composite type is defined at its first use, and named at later ones."""
    seen: dict[str, int] = {}

    def name(record: str, oid: int) -> tuple[str, bool]:
        full = f"{namespace}.{relation.records.get(oid, record)}"
        while seen.get(full, oid) != oid:  # type c of schema a_b, and b_c of a
            full += "_"
        is_first = full not in seen
        seen[full] = oid
        return full, is_first

    encodings = Encodings(relation.types, rules, name)
    return [
        PRINTED
        if f"{relation.full_name}.{column.name}" in rules.as_text
        else encoding_of_avro(relation.earlier[column.name]["type"][1], name)
        if column.name in relation.earlier
        else encodings.of(column)
        for column in relation.columns
    ]


def changed_meanings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Returns the names of fields whose values Avro would read with the other schema, but with a wrong result.

    The rules of Avro, and so of a registry, ignore the scale of a decimal, read days as microseconds, and read the
    bytes of a decimal as a string.
    """
    old, new = ({name: _meaning(kind) for name, kind in types_of_fields(schema).items()} for schema in (before, after))
    return [name for name, meaning in new.items() if name in old and _is_another(old[name], meaning)]


def _is_another(old: Any, new: Any) -> bool:
    """Attributes that only one of two forms of a composite type has are no values of the other one. Avro itself reads
    no other type as a record."""
    if isinstance(old, dict) and isinstance(new, dict):
        return any(_is_another(old[name], new[name]) for name in old.keys() & new.keys())
    if isinstance(old, dict) or isinstance(new, dict) or None in (old, new):
        return False
    return new[0] in _READ_AS.get(old[0], (old[0],)) and bool(old[1:] != new[1:])


_READ_AS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "bytes": ("bytes", "string"),
    "string": ("string", "bytes"),
}
"""As what Avro reads values of a type. The registry refuses other changes itself."""


def _meaning(kind: Any) -> Any:
    """Returns the Avro type and what values mean beyond it, of a record by fields; None for a null."""
    if isinstance(kind, list):
        return next((_meaning(branch) for branch in kind if branch != "null"), None)
    if not isinstance(kind, dict):
        return (kind, None, None)
    if kind["type"] == "array":
        return _meaning(kind["items"])
    if kind["type"] == "record":
        return {field["name"]: _meaning(field["type"]) for field in kind["fields"]}
    logical = kind.get("logicalType")
    return (kind["type"], None if logical == "uuid" else logical, kind.get("scale"))


def _record(
    relation: Relation, rules: Rules, record: str, positions: Sequence[int], *, nullable: bool
) -> dict[str, Any]:
    parts = [*rules.namespace.split("."), relation.schema, relation.name]
    namespace = ".".join(avro_name(part) for part in parts if part)
    chosen = replace(relation, columns=tuple(relation.columns[position] for position in positions))
    encodings = encodings_of(chosen, rules, namespace=f"{namespace}.{record}")
    names = avro_names([column.name for column in relation.columns])
    fields = [
        avro_field(column, names[position], encoding, relation.types, nullable=nullable)
        for position, column, encoding in zip(positions, chosen.columns, encodings, strict=True)
    ]
    for column, one in zip(chosen.columns, fields, strict=True):
        earlier = relation.earlier.get(column.name, {})
        one |= {name: earlier[name] for name in ("postgres.type", "postgres.base") if name in earlier}
    return {"type": "record", "name": record, "namespace": namespace, "fields": fields}
