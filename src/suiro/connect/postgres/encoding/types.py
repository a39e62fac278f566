"""How each Postgres type is written in Avro, and what must be asked of Postgres to know it.

| Postgres | Avro | remarks |
|---|---|---|
| `smallint`, `integer` | `int` | |
| `bigint`, `oid` | `long` | |
| `numeric(p,s)` | `bytes`, `decimal` | p and s as declared; a negative s gives precision p-s and scale 0, an s above p gives precision s. `NaN` has no place in it: capture stops and names the column (list it in `as_text`) |
| `numeric` without precision | `string` | as Postgres prints it: every digit, `NaN`, `Infinity`; with `decimals = "string"` all numerics |
| `real`, `double precision` | `float`, `double` | `NaN`, infinities and -0 are kept |
| `boolean` | `boolean` | |
| `text`, `varchar`, `char(n)`, `name`, `"char"`, `citext` | `string` | `char(n)` with its padding |
| `bytea` | `bytes` | |
| `date` | `int`, `date` | `infinity` is 2147483647, `-infinity` -2147483648 |
| `time` | `long`, `time-micros` | `24:00` is 86400000000 |
| `timetz` | `string` | `04:05:06.789-08`; Avro has no such type |
| `timestamp` | `long`, `local-timestamp-micros` | `infinity` is 9223372036854775807, `-infinity` -9223372036854775808, the numbers Postgres uses; later than 294247-01-10 04:00:54 does not fit and stops capture |
| `timestamptz` | `long`, `timestamp-micros` | the same |
| `interval` | `string` | ISO 8601: `P1Y2M3DT4H5M6.789S`; Avro's duration cannot be negative |
| `uuid` | `string`, `uuid` | |
| `json`, `jsonb` | `string` | |
| enums | `string` | the label. Not an Avro enum: `ALTER TYPE ... ADD VALUE` is not announced in the WAL, and a reader with yesterday's schema could not read today's label |
| arrays | `array` | elements nullable; nested as deep as declared (`int[][]`: two). Postgres does not hold values to the declared depth: when the first one has another, the schema gets a version whose items are elements or arrays. For arrays of domains over arrays, such a value stops capture. Lower bounds are left out |
| composites | `record` | all attributes nullable |
| domains | as the base type | |
| ranges, multiranges | `string` | `[2024-01-01,2024-02-01)` |
| `inet`, `cidr`, `macaddr`, geometric, `bit`, `xml`, `money`, `tsvector`, `pg_lsn`, everything else, types of extensions (`hstore`, PostGIS, `vector`) | `string` | as Postgres prints it; `money` with `lc_monetary = C` |

Any column can be written as a `string`, as Postgres prints it, by naming it in `as_text`.

Every column of a value is a union with null, whose default is null, even where the table says NOT NULL: the
catalogue is read later than the rows in the WAL were written, `SET NOT NULL` would otherwise be an incompatible
change of the schema, and an added or dropped column is a compatible one. Columns of a primary key are plain in
the key.

suiro's readers give Python's last and first date for infinity (`datetime.max`, `date.min`), as those of asyncpg do,
and Python's last time for `24:00`. The sink `postgres` writes `infinity` and `24:00` again. Other readers that turn dates and timestamps into Python's `datetime`
(fastavro does) refuse infinity. All of them refuse years before 1 and after 9999, as `datetime` itself does; read such
columns without logical types, or capture them as text.

Stored generated columns are in the topic where the publication publishes them (Postgres 18,
`publish_generated_columns = stored`) and otherwise not; virtual ones never are.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from suiro.connect.postgres.encoding import avro_text
from suiro.connect.postgres.encoding.avro_text import Encode
from suiro.connect.postgres.encoding.names import avro_name, avro_names

SESSION_SETTINGS: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
}
"""Settings that every session must have whose bytes come here: walsender, peek and COPY alike (in the connection's
`options`, as `-c name=value`). With them a value is printed one way only, and a float to its last bit."""

TYPES_QUERY = """
with recursive wanted(oid) as (
    select unnest(%(oids)s::oid[])
  union
    select n.oid from wanted w join pg_catalog.pg_type t on t.oid = w.oid cross join lateral (
        select t.typelem where t.typelem <> 0
        union all select t.typbasetype where t.typbasetype <> 0
        union all select a.atttypid from pg_catalog.pg_attribute a
            where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
    ) n(oid)
)
select t.oid::int8, n.nspname::text, t.typname::text,
    case when e.oid is not null then 'array' when t.typtype = 'd' then 'domain' when t.typtype = 'c' then 'composite'
         when t.typtype = 'e' then 'enum' else 'base' end,
    case when e.oid is not null then t.typelem else 0 end::int8, coalesce(e.typdelim, ',')::text,
    t.typbasetype::int8, t.typtypmod, t.typndims,
    coalesce((select json_agg(case when a.attisdropped then to_json(age(a.xmin)) else
            json_build_array(a.attname, a.atttypid::int8, a.atttypmod, a.attndims) end order by a.attnum)
        from pg_catalog.pg_attribute a where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0), '[]')
from wanted w join pg_catalog.pg_type t on t.oid = w.oid join pg_catalog.pg_namespace n on n.oid = t.typnamespace
    left join pg_catalog.pg_type e on e.typarray = t.oid
"""
"""Everything about types, with those they are made of; give the oids as parameter `oids`, the rows to `types_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, or an attribute of a composite type. `dimensions`: the declared depth of an array.
    `deepest`: of the arrays in the topic, if they have different depths."""

    name: str
    type: int
    typmod: int = -1
    dimensions: int = 0
    deepest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PgType:
    """One row of `pg_type`, as far as it matters here. `fields`: for attributes that were dropped, 0 for the last of
    them, 1 for the one before, and so on."""

    oid: int
    schema: str
    name: str
    kind: Literal["base", "array", "domain", "composite", "enum"] = "base"
    element: int = 0
    delimiter: str = ","
    base: int = 0
    base_typmod: int = -1
    base_dimensions: int = 0
    fields: tuple[Column | int, ...] = ()


Types = Mapping[int, PgType]


def types_of(rows: Iterable[tuple[Any, ...]]) -> dict[int, PgType]:
    """The answer to `TYPES_QUERY`, by oid."""
    types = {}
    for oid, schema, name, kind, element, delimiter, base, typmod, dimensions, fields in rows:
        ages = sorted({one for one in fields if isinstance(one, int)})
        types[oid] = PgType(
            oid=oid,
            schema=schema,
            name=name,
            kind=kind,
            element=element,
            delimiter=delimiter,
            base=base,
            base_typmod=typmod,
            base_dimensions=dimensions,
            fields=tuple(
                ages.index(one)
                if isinstance(one, int)
                else Column(name=one[0], type=one[1], typmod=one[2], dimensions=one[3])
                for one in fields
            ),
        )
    return types


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a user may choose. `as_text` names columns as `schema.table.column`."""

    namespace: str
    numeric: Literal["decimal", "string"] = "decimal"
    as_text: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEncoding:
    """How one column is written.

    `avro` is its schema without the union; `encode` the rule from Postgres's text; `code` the kernels' name for
    that rule ("python": they have none) with two parameters. `copy` says what a snapshot selects: the column
    itself in its binary form (`code` names that too), cast to text, or printed by its output function.
    """

    avro: Any
    encode: Encode
    code: str
    copy: Literal["binary", "cast", "print"]
    first: int = 0
    second: int = 0


Name = Callable[[str, int], tuple[str, bool]]
"""(name of a record, the oid of its type or 0) -> (its full name in Avro, whether this is its first use)."""

PRINTED = ColumnEncoding(avro="string", encode=avro_text.string, code="string", copy="print")
_TEXT = ColumnEncoding(avro="string", encode=avro_text.string, code="string", copy="binary")
_CAST = ColumnEncoding(avro="string", encode=avro_text.string, code="string", copy="cast")


def _integer(avro: str, bits: int, *, signed: bool = True) -> ColumnEncoding:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    encode = avro_text.integer_encoder(bits, signed=signed)
    code = f"int{bits // 8}" if signed else f"uint{bits // 8}"
    return ColumnEncoding(avro=avro, encode=encode, code=code, copy="binary", first=low, second=high)


def _binary(avro: str, logical: str, encode: Encode, code: str) -> ColumnEncoding:
    """A type that a snapshot reads in its binary form. `logical`: Avro's logical type, or nothing."""
    kind = {"type": avro, "logicalType": logical} if logical else avro
    return ColumnEncoding(avro=kind, encode=encode, code=code, copy="binary")


_NUMERIC, _JSON, _JSONB = 1700, 114, 3802
_BASE: dict[int, tuple[str, ColumnEncoding]] = {
    16: ("boolean", _binary("boolean", "", avro_text.bool_, "bool")),
    17: ("bytea", _binary("bytes", "", avro_text.bytea, "bytea")),
    18: ('"char"', PRINTED),
    19: ("name", _TEXT),
    20: ("bigint", _integer("long", 64)),
    21: ("smallint", _integer("int", 16)),
    23: ("integer", _integer("int", 32)),
    25: ("text", _TEXT),
    26: ("oid", _integer("long", 32, signed=False)),
    _JSON: ("json", _TEXT),
    700: ("real", _binary("float", "", avro_text.float_, "float4")),
    701: ("double precision", _binary("double", "", avro_text.double, "float8")),
    1042: ("character", _TEXT),
    1043: ("character varying", _TEXT),
    1082: ("date", _binary("int", "date", avro_text.date, "date")),
    1083: ("time", _binary("long", "time-micros", avro_text.time, "time")),
    1114: ("timestamp", _binary("long", "local-timestamp-micros", avro_text.timestamp, "timestamp")),
    1184: ("timestamptz", _binary("long", "timestamp-micros", avro_text.timestamptz, "timestamptz")),
    1186: ("interval", _CAST),
    1266: ("timetz", _CAST),
    1560: ("bit", PRINTED),
    1562: ("bit varying", PRINTED),
    _NUMERIC: ("numeric", _CAST),
    2950: ("uuid", _binary("string", "uuid", avro_text.string, "uuid")),
    _JSONB: ("jsonb", _CAST),
}


@dataclass(frozen=True, slots=True)
class Encodings:
    """How values of types are written. `name` names composite types."""

    types: Types
    rules: Rules
    name: Name

    def of(self, column: Column) -> ColumnEncoding:
        """An unknown type is written as its text."""
        oid, typmod = column.type, column.typmod
        if oid == _NUMERIC and typmod >= 4 and self.rules.numeric == "decimal":
            return _decimal(typmod)
        if oid in _BASE:
            return _BASE[oid][1]
        known = self.types.get(oid)
        if known is None:
            return PRINTED
        if known.kind == "domain":
            depth = max(column.dimensions, known.base_dimensions)
            return self.of(replace(column, type=known.base, typmod=known.base_typmod, dimensions=depth))
        if known.kind == "array":
            inner = self.of(replace(column, type=known.element, dimensions=0, deepest=0))
            return _array(inner, max(1, column.dimensions), known.delimiter, deepest=column.deepest)
        if known.kind == "composite":
            return self._composite(known)
        return PRINTED

    def _composite(self, known: PgType) -> ColumnEncoding:
        full_name, is_first = self.name(record_name(known), known.oid)
        encodings = [one if isinstance(one, int) else self._attribute(known, one) for one in known.fields]
        avro: Any = full_name
        if is_first:
            alive = [
                (field, encoding)
                for field, encoding in zip(known.fields, encodings, strict=True)
                if isinstance(field, Column) and isinstance(encoding, ColumnEncoding)
            ]
            written = avro_names([field.name for field, _ in alive])
            fields = [
                avro_field(field, name, encoding, self.types)
                for (field, encoding), name in zip(alive, written, strict=True)
            ]
            avro = {"type": "record", "name": full_name, "fields": fields}
        encode = avro_text.composite_encoder(
            known.name, [one if isinstance(one, int) else one.encode for one in encodings]
        )
        return ColumnEncoding(avro=avro, encode=encode, code="python", copy="print")

    def _attribute(self, known: PgType, attribute: Column) -> ColumnEncoding:
        encoding = self.of(attribute)
        if depth_of_array(encoding.avro) == 0:
            return encoding
        return replace(encoding, encode=avro_text.attribute_encoder(encoding.encode, (known.oid, attribute.name)))


def _array(inner: ColumnEncoding, depth: int, delimiter: str, *, deepest: int = 0) -> ColumnEncoding:
    """`deepest`: see `Column`. A union cannot have two arrays, so arrays of arrays have only one depth."""
    is_mixed = deepest > 0 and depth_of_array(inner.avro) == 0
    depth = max(depth, deepest) if is_mixed else depth
    is_defined = isinstance(inner.avro, dict) and inner.avro["type"] == "record"
    avro: Any = None
    for level in range(depth):
        if is_mixed:
            # The outermost level comes first in the schema.
            element = inner.avro["name"] if is_defined and level < depth - 1 else inner.avro
            avro = {"type": "array", "items": ["null", element, *([avro] if level else [])]}
        else:
            avro = {"type": "array", "items": avro if level else ["null", inner.avro]}
    encode = avro_text.array_encoder(inner.encode, dimensions=depth, delimiter=delimiter, is_mixed=is_mixed)
    return ColumnEncoding(avro=avro, encode=encode, code="python", copy="print")


_OF_AVRO = {
    encoding.avro if isinstance(encoding.avro, str) else encoding.avro["logicalType"]: encoding.encode
    for encoding in (_BASE[oid][1] for oid in (16, 17, 20, 23, 25, 700, 701, 1082, 1083, 1114, 1184, 2950))
}
"""The rules of the widest types, by Avro's type or logical type."""


def encoding_of_avro(avro: Any, name: Name) -> ColumnEncoding:
    """How a column was written, by the type in a schema of an earlier time, where each record is defined."""
    if isinstance(avro, dict) and avro["type"] == "array":
        depth = depth_of_array(avro)
        deepest = depth if has_mixed_depths(avro) else 0
        return _array(encoding_of_avro(element_of_array(avro), name), depth, ",", deepest=deepest)
    if isinstance(avro, dict) and avro["type"] == "record":
        full_name, is_first = name(avro["name"], 0)
        encodings = [encoding_of_avro(field["type"][1], name) for field in avro["fields"]]
        encode = avro_text.composite_encoder(avro["name"], [one.encode for one in encodings])
        fields = [field | {"type": ["null", one.avro]} for field, one in zip(avro["fields"], encodings, strict=True)]
        written = {"type": "record", "name": full_name, "fields": fields} if is_first else full_name
        return ColumnEncoding(avro=written, encode=encode, code="python", copy="print")
    kind = avro if isinstance(avro, str) else avro["logicalType"]
    encode = avro_text.decimal_encoder(avro["precision"], avro["scale"]) if kind == "decimal" else _OF_AVRO[kind]
    return ColumnEncoding(avro=avro, encode=encode, code="python", copy="print")


def depth_of_array(avro: Any) -> int:
    """Returns the depth of a column's arrays, or that of the deepest ones; 0 for another type."""
    if not isinstance(avro, dict) or avro["type"] != "array":
        return 0
    items = avro["items"]
    if isinstance(items, list):
        items = items[2] if has_mixed_depths(avro) else None
    return 1 + depth_of_array(items)


def element_of_array(avro: Any) -> Any:
    items = avro["items"]
    while isinstance(items, dict):
        items = items["items"]
    return items[1]


def has_mixed_depths(avro: Any) -> bool:
    """Whether the type is an array whose items may be elements or arrays."""
    is_array = isinstance(avro, dict) and avro["type"] == "array"
    return is_array and isinstance(avro["items"], list) and len(avro["items"]) == 3


def record_name(known: PgType) -> str:
    """Returns the name of a composite type's record, unless the topic has it with another one."""
    return f"{avro_name(known.schema)}_{avro_name(known.name)}"


def avro_field(
    column: Column, name: str, encoding: ColumnEncoding, types: Types, *, nullable: bool = True
) -> dict[str, Any]:
    """The field of a column in the schema of a record. `name`: its name in Avro."""
    entry: dict[str, Any] = {"name": name}
    if nullable:
        entry |= {"type": ["null", encoding.avro], "default": None}
    else:
        entry["type"] = encoding.avro
    if name != column.name:
        entry["postgres.name"] = column.name
    entry["postgres.type"] = type_name(column.type, column.typmod, types)
    if (base := _json_below(column.type, types)) not in ("", entry["postgres.type"]):
        entry["postgres.base"] = base
    return entry


def _json_below(oid: int, types: Types) -> str:
    """Returns the type below domains if it is json, jsonb or an array of one; else nothing. Other domains do not get a
    `postgres.base`: with another schema, the keys that are in the topics would be others."""
    known = types.get(oid)
    if known is not None and known.kind == "domain":
        return _json_below(known.base, types)
    if known is not None and known.kind == "array":
        below = _json_below(known.element, types)
        return below and f"{below}[]"
    return type_name(oid, -1, types) if oid in (_JSON, _JSONB) else ""


def _decimal(typmod: int) -> ColumnEncoding:
    precision, scale = _digits(typmod)
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return ColumnEncoding(
        avro={"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale},
        encode=avro_text.decimal_encoder(precision, scale),
        code="decimal",
        copy="cast",
        first=precision,
        second=scale,
    )


def _digits(typmod: int) -> tuple[int, int]:
    """Returns the declared precision and scale of a numeric."""
    return ((typmod - 4) >> 16) & 0xFFFF, (((typmod - 4) & 0x7FF) ^ 1024) - 1024


def type_name(oid: int, typmod: int, types: Types) -> str:
    """The type as one would declare it: `numeric(10,2)`, `mood`, `integer[]`."""
    if oid in _BASE:
        return _BASE[oid][0] + _modifier(oid, typmod)
    known = types.get(oid)
    if known is None:
        return f"type with oid {oid}"
    if known.kind == "array":
        return type_name(known.element, typmod, types) + "[]"
    return known.name if known.schema in ("pg_catalog", "public") else f"{known.schema}.{known.name}"


def is_built_in(name: str) -> bool:
    """Whether `type_name` gives this name for a type of Postgres that nobody can drop."""
    return name.removesuffix("[]").partition("(")[0] in {known for known, _ in _BASE.values()}


def _modifier(oid: int, typmod: int) -> str:
    if typmod < 0:
        return ""
    if oid == _NUMERIC:
        return "({},{})".format(*_digits(typmod))
    if oid in (1042, 1043):
        return f"({typmod - 4})"
    if oid in (1560, 1562, 1083, 1114, 1184, 1266):
        return f"({typmod})"
    return ""
