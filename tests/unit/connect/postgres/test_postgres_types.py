# ruff: noqa: E501 - a line for each type is easier to read
"""Every type of Postgres, from a real server, through pgoutput and COPY, by both engines, read back with fastavro."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from support.postgres import VERSION
from support.postgres_rows import (
    Connection,
    changes_of,
    decoded,
    facts,
    relation_of,
    slot_over_all,
    snapshot,
)

from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.avro_rows import RowEncoder
from suiro.connect.postgres.encoding.schemas import Relation, announced, key_schema, value_schema
from suiro.connect.postgres.encoding.types import Rules

RULES = Rules(namespace="shop")

SETUP = """
create type mood as enum ('sad', 'it''s "fine"', 'größe');
create domain positive as integer check (value > 0);
create domain money_like as numeric(12,3);
create type point3 as (x integer, "the y" text, z numeric(6,2));
create type nested as (p point3, tags text[], "when" timestamptz);
create domain mood_domain as mood;
"""

I64 = 2**63

# type, [(literal of SQL, what Avro holds with logical types off)]
CASES: list[tuple[str, list[tuple[str, Any]]]] = [
    ("smallint", [("-32768", -32768), ("32767", 32767), ("0", 0)]),
    ("integer", [("-2147483648", -(2**31)), ("2147483647", 2**31 - 1), ("-1", -1)]),
    ("bigint", [("-9223372036854775808", -I64), ("9223372036854775807", I64 - 1), ("64", 64)]),
    ("oid", [("4294967295", 2**32 - 1), ("0", 0)]),
    ("numeric(10,2)", [("12345678.90", "12345678.90"), ("-0.01", "-0.01"), ("0", "0.00"), ("-99999999.99", "-99999999.99")]),
    ("numeric(3,0)", [("127", "127"), ("128", "128"), ("-128", "-128"), ("-129", "-129"), ("-1", "-1"), ("256", "256")]),
    ("numeric(40,10)", [("'" + "9" * 30 + "." + "9" * 10 + "'", "9" * 30 + "." + "9" * 10), ("-1e-10", "-0.0000000001")]),
    ("numeric(1000,500)", [("'-" + "7" * 500 + "." + "3" * 500 + "'", "-" + "7" * 500 + "." + "3" * 500)]),
    ("numeric(3,-2)", [("12345", "12300"), ("-99900", "-99900")]),
    ("numeric(2,5)", [("0.00012", "0.00012"), ("-0.00099", "-0.00099")]),
    ("numeric", [("'NaN'", "NaN"), ("'-Infinity'", "-Infinity"), ("1e-20", "0.00000000000000000001"), ("1e30", "1" + "0" * 30), ("1.500", "1.500")]),
    ("real", [("'NaN'", math.nan), ("'Infinity'", math.inf), ("'-Infinity'", -math.inf), ("3.4028235e38", 3.4028234663852886e38), ("1e-45", 1.401298464324817e-45), ("'-0'", -0.0), ("0.1", 0.10000000149011612)]),
    ("double precision", [("'NaN'", math.nan), ("'-Infinity'", -math.inf), ("1.7976931348623157e308", 1.7976931348623157e308), ("5e-324", 5e-324), ("0.1", 0.1), ("'-0'", -0.0), ("123456789012345.67", 123456789012345.67), ("2.2250738585072011e-308", 2.2250738585072011e-308), ("9007199254740993", 9007199254740992.0), ("1e22", 1e22), ("1e23", 1e23)]),
    ("boolean", [("true", True), ("false", False)]),
    ("text", [("''", ""), ("'größe 漢字 🎈'", "größe 漢字 🎈"), ("E'a\\tb\\nc\\\\'", "a\tb\nc\\"), ("'null'", "null"), ("repeat('x', 100000)", "x" * 100000)]),
    ("varchar(20)", [("'é'", "é")]),
    ("char(5)", [("'ab'", "ab   ")]),
    ("name", [("'abc'", "abc")]),
    ('"char"', [("'x'", "x"), ("''", "")]),
    ("bytea", [("'\\x'", b""), ("'\\x00ff10ab'", b"\0\xff\x10\xab"), ("decode(repeat('ab', 70000), 'hex')", b"\xab" * 70000)]),
    ("date", [("'1970-01-01'", 0), ("'infinity'", 2**31 - 1), ("'-infinity'", -(2**31)), ("'4713-01-01 BC'", -2440550), ("'5874897-12-31'", 2145042905), ("'2000-02-29'", 11016), ("'0001-12-31 BC'", -719163), ("'0001-01-01'", -719162)]),
    ("time", [("'00:00'", 0), ("'24:00'", 86400000000), ("'23:59:59.999999'", 86399999999), ("'04:05:06.7'", 14706700000)]),
    ("time(2)", [("'04:05:06.789'", 14706790000)]),
    ("timetz", [("'04:05:06.789-08'", "04:05:06.789-08"), ("'24:00:00+15:59:59'", "24:00:00+15:59:59")]),
    ("timestamp", [("'1970-01-01'", 0), ("'infinity'", I64 - 1), ("'-infinity'", -I64), ("'2024-02-29 23:59:59.999999'", 1709251199999999), ("'4713-01-01 00:00:00 BC'", -2440550 * 86400000000), ("'294246-12-31 23:59:59'", 9223371244799000000), ("'1969-12-31 23:59:59.5'", -500000)]),
    ("timestamptz", [("'1970-01-01 00:00:00+00'", 0), ("'infinity'", I64 - 1), ("'-infinity'", -I64), ("'2024-07-01 12:00:00.000001+05:30'", 1719815400000001), ("'0044-03-15 12:00:00+00 BC'", -63517780800000000)]),
    ("interval", [("'1 year 2 mons 3 days 04:05:06.789'", "P1Y2M3DT4H5M6.789S"), ("'-1 year -3 days'", "P-1Y-3D"), ("'infinity'", "infinity"), ("'0'", "PT0S")]),
    ("uuid", [("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")]),
    ("json", [("""'{"b" : 1,  "a":null}'""", '{"b" : 1,  "a":null}')]),
    ("jsonb", [("""'{"b" : 1,  "a":null}'""", '{"a": null, "b": 1}'), ("'null'", "null")]),
    ("mood", [("""'it''s "fine"'""", "it's \"fine\""), ("'größe'", "größe")]),
    ("mood_domain", [("'sad'", "sad")]),
    ("positive", [("7", 7)]),
    ("money_like", [("1.5", "1.500")]),
    ("integer[]", [("'{}'", []), ("'{1,NULL,-3}'", [1, None, -3]), ("'[0:2]={1,2,3}'", [1, 2, 3])]),
    ("integer[][]", [("'{{1,2},{3,NULL}}'", [[1, 2], [3, None]]), ("'{}'", [])]),
    ("text[]", [("array['', 'null', 'NULL', null, 'a\"b', 'c\\d', '{x,y}', ' ', 'é']", ["", "null", "NULL", None, 'a"b', "c\\d", "{x,y}", " ", "é"])]),
    ("numeric(5,1)[]", [("'{1.5,-2}'", ["1.5", "-2.0"])]),
    ("timestamptz[]", [("'{1970-01-01 00:00:01+00,infinity}'", [1000000, I64 - 1])]),
    ("bytea[]", [("array['\\x00ff'::bytea]", [b"\0\xff"])]),
    ("boolean[]", [("'{t,f,null}'", [True, False, None])]),
    ("mood[]", [("array['sad','it''s \"fine\"']::mood[]", ["sad", "it's \"fine\""])]),
    ("positive[]", [("'{1,2}'", [1, 2])]),
    ("box[]", [("array['(1,1),(0,0)'::box, '(3,3),(2,2)']", ["(1,1),(0,0)", "(3,3),(2,2)"])]),
    ("point3", [("(1, 'a \"b\" (c),\\', 2.5)::point3", {"x": 1, "the_y_32ff65": "a \"b\" (c),\\", "z": "2.50"}), ("(null, '', null)::point3", {"x": None, "the_y_32ff65": "", "z": None}), ("row(null, null, null)::point3", {"x": None, "the_y_32ff65": None, "z": None})]),
    ("point3[]", [("array[(1,'x',null)::point3, null]", [{"x": 1, "the_y_32ff65": "x", "z": None}, None])]),
    ("nested", [("((1,'q',2)::point3, array['a',null], '1970-01-01 00:00:00+00')::nested", {"p": {"x": 1, "the_y_32ff65": "q", "z": "2.00"}, "tags": ["a", None], "when": 0})]),
    ("int4range", [("'[1,5)'", "[1,5)"), ("'empty'", "empty")]),
    ("tstzrange", [("'[2024-01-01 00:00:00+00,)'", '["2024-01-01 00:00:00+00",)')]),
    ("nummultirange", [("'{[1.5,2],[3,4)}'", "{[1.5,2],[3,4)}")]),
    ("inet", [("'192.168.0.1'", "192.168.0.1"), ("'10.0.0.0/8'", "10.0.0.0/8"), ("'::1'", "::1")]),
    ("cidr", [("'10.0.0.0/8'", "10.0.0.0/8")]),
    ("macaddr", [("'08:00:2b:01:02:03'", "08:00:2b:01:02:03")]),
    ("point", [("'(1.5,-2)'", "(1.5,-2)")]),
    ("polygon", [("'((0,0),(1,1),(1,0))'", "((0,0),(1,1),(1,0))")]),
    ("circle", [("'<(1,2),3>'", "<(1,2),3>")]),
    ("bit(4)", [("B'1010'", "1010")]),
    ("varbit", [("B'101'", "101"), ("B''", "")]),
    ("money", [("1234.5", "$1,234.50")]),
    ("tsvector", [("'a:1 b:2'", "'a':1 'b':2")]),
    ("tsquery", [("'a & b'", "'a' & 'b'")]),
    ("pg_lsn", [("'16/B374D848'", "16/B374D848")]),
    ("jsonpath", [("'$.a'", '$."a"')]),
    ("xid8", [("'12'", "12")]),
    ("regclass", [("'pg_class'", "pg_class")]),
    ("vector(3)", [("'[1,2,3]'", "[1,2,3]")]),
    ("int2vector", [("'1 2 3'", "1 2 3")]),
]  # fmt: skip


SINCE = {"numeric(3,-2)": 15, "numeric(2,5)": 15}
HAS_VECTOR = VERSION in (16, 18)  # an extension that only the wheel's servers have
CASES = [
    (kind, [value for value in values if (kind, value[0], VERSION < 17) != ("interval", "'infinity'", True)])
    for kind, values in CASES
    if SINCE.get(kind, 0) <= VERSION and (HAS_VECTOR or kind != "vector(3)")
]


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, Decimal):
        return isinstance(wanted, str) and found == Decimal(wanted) and f"{found:f}" == f"{Decimal(wanted):f}"
    if isinstance(wanted, float):
        return repr(found) == repr(wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(same(found[key], wanted[key]) for key in wanted)
    return type(found) is type(wanted) and bool(found == wanted)


@pytest.fixture(scope="module")
def table(connection: Connection) -> Iterator[tuple[list[bytes], Relation, bytes]]:
    """(messages, table, snapshot) of a table with every type."""
    connection.execute(SETUP)
    if HAS_VECTOR:
        connection.execute("create extension if not exists vector")
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(CASES))
    with slot_over_all(connection, "types") as slot:
        connection.execute(f"create table every_type (id integer primary key, {columns})")
        for row in range(DEPTH):
            given = {f"c{number}": values[row][0] for number, (_, values) in enumerate(CASES) if row < len(values)}
            names = ", ".join(["id", *given])
            literals = ", ".join([str(row), *given.values()])
            connection.execute(f"insert into every_type ({names}) values ({literals})".encode())
        row, types = facts(connection, "every_type")
        relation = relation_of(connection, "every_type")
        messages = slot.messages()
    parsed, _ = changes_of(messages, relation.oid)
    announcement = next(n for n in range(len(parsed)) if parsed.kind[n] == ord("R"))
    assert announced(parsed.relation_message(announcement), types=types, row=row) == relation
    yield messages, relation, snapshot(connection, "every_type", relation, RULES)
    connection.execute("drop table every_type")


DEPTH = max(len(values) for _, values in CASES) + 1


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "kernels"])
def test_every_type_comes_out_as_documented(table: tuple[list[bytes], Relation, bytes], compiled: bool) -> None:
    messages, relation, copied_bytes = table
    with engine.choose(compiled=compiled):
        encoder = RowEncoder(relation, RULES, key_schema_id=7, value_schema_id=70000)
        live = encoder.encode_changes(*changes_of(messages, relation.oid))
        copied = encoder.encode_copy(copied_bytes)
    for encoded in (live, copied):
        found = decoded(encoded, value_schema(relation, RULES))
        assert len(found) == DEPTH
        for row_number, record in enumerate(found):
            assert record["id"] == row_number
            for number, (kind, values) in enumerate(CASES):
                wanted = values[row_number][1] if row_number < len(values) else None
                assert same(record[f"c{number}"], wanted), (kind, record[f"c{number}"], wanted)
    assert [live.key(n) for n in range(DEPTH)] == [copied.key(n) for n in range(DEPTH)]
    assert [live.value(n) for n in range(DEPTH)] == [copied.value(n) for n in range(DEPTH)]
    assert [live.key(n) for n in range(3)] == [b"\0\0\0\0\7" + bytes([2 * n]) for n in range(3)]


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "kernels"])
def test_every_column_as_text_is_what_postgres_prints(
    connection: Connection, table: tuple[list[bytes], Relation, bytes], compiled: bool
) -> None:
    messages, relation, _ = table
    rules = Rules(namespace="shop", as_text=frozenset(f"public.every_type.c{number}" for number in range(len(CASES))))
    with engine.choose(compiled=compiled):
        encoder = RowEncoder(relation, rules, key_schema_id=7, value_schema_id=8)
        parsed, changes = changes_of(messages, relation.oid)
        live = encoder.encode_changes(parsed, changes)
        copied = encoder.encode_copy(snapshot(connection, "every_type", relation, rules))
    schema = value_schema(relation, rules)
    found = decoded(live, schema)
    assert found == decoded(copied, schema)
    for record, index in zip(found, changes.tolist(), strict=True):
        printed = parsed.values(index)
        assert printed is not None
        texts = [value.decode() if isinstance(value, bytes) else None for value in printed]
        assert [str(record["id"]), *list(record.values())[1:]] == texts


def test_values_read_with_logical_types_are_those_of_psycopg(connection: Connection) -> None:
    """What Python's own types can hold, as a consumer with fastavro sees it, and as a client of Postgres does."""
    kinds = [
        "smallint",
        "numeric(10,2)",
        "double precision",
        "boolean",
        "text",
        "bytea",
        "date",
        "time",
        "uuid",
    ]
    kinds += ["timestamp", "timestamptz", "integer[]", "integer[][]", "text[]", "bytea[]", "boolean[]"]
    literals = {kind: values[0][0] for kind, values in CASES} | {"double precision": "1e23"}
    connection.execute(
        f"create table python_values ({', '.join(f'c{n} {kind}' for n, kind in enumerate(kinds))})".encode()
    )
    connection.execute("alter table python_values replica identity full")
    connection.execute(f"insert into python_values values ({', '.join(literals[kind] for kind in kinds)})".encode())
    wanted = connection.execute("select * from python_values").fetchone()
    relation = relation_of(connection, "python_values")
    assert relation.nullable_key
    encoder = RowEncoder(relation, RULES, key_schema_id=7, value_schema_id=8)
    encoded = encoder.encode_copy(snapshot(connection, "python_values", relation, RULES))
    for schema, data in (
        (value_schema(relation, RULES), encoded.value(0)),
        (key_schema(relation, RULES), encoded.key(0)),
    ):
        assert data is not None
        record: Any = fastavro.schemaless_reader(io.BytesIO(data[5:]), fastavro.parse_schema(schema), None)
        assert [type(value) for value in record.values()] == [type(value) for value in wanted]
        assert list(record.values()) == list(wanted)
    connection.execute("drop table python_values")


def test_random_rows_are_the_same_from_text_and_from_binary(connection: Connection) -> None:
    """Two independent ways to each value: what pgoutput prints, and the binary form of COPY."""
    columns = {
        "f8": "double precision",
        "f4": "real",
        "day": "date",
        "at": "time",
        "local": "timestamp",
        "instant": "timestamptz",
        "key": "uuid",
        "data": "bytea",
        "small": "smallint",
        "big": "bigint",
        "words": "text",
    }
    made = [
        "(random() - 0.5) * 10 ^ (random() * 600 - 300)",
        "((random() - 0.5) * 10 ^ (random() * 60 - 30))::real",
        "date '4713-01-01 BC' + (random() * 2147483000)::integer",
        "time '00:00' + random() * interval '86399.999999 s'",
        "timestamp '4713-01-02 BC' + make_interval(days => (random() * 109000000)::integer, secs => random() * 86400)",
        "timestamptz '4713-01-02 00:00:00+00 BC' + make_interval(days => (random() * 10000000)::integer, secs => random() * 9)",
        "gen_random_uuid()",
        "decode(repeat(md5(random()::text), (random() * 5)::integer), 'hex')",
        "(random() * 65535 - 32768)::integer",
        "((random() - 0.5) * 2 ^ (random() * 63))::bigint",
        "repeat(chr((random() * 50000)::integer + 32), (random() * 20)::integer)",
    ]
    with slot_over_all(connection, "random") as slot:
        declared = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        connection.execute(f"create table random_rows (id integer primary key, {declared})".encode())
        try:
            connection.execute("select setseed(0.42)")
            connection.execute(
                f"insert into random_rows select n, {', '.join(made)} from generate_series(1, 2000) n".encode()
            )
            relation = relation_of(connection, "random_rows")
            encoder = RowEncoder(relation, RULES, key_schema_id=7, value_schema_id=8)
            copied = snapshot(connection, "random_rows", relation, RULES)
            messages = slot.messages()
            results = []
            for compiled in (True, False):
                with engine.choose(compiled=compiled):
                    results.append(encoder.encode_changes(*changes_of(messages, relation.oid)))
                    results.append(encoder.encode_copy(copied))
            rows = decoded(results[0], value_schema(relation, RULES))
            for other in results[1:]:
                assert other.values.to_pylist() == results[0].values.to_pylist()
                assert other.keys.to_pylist() == results[0].keys.to_pylist()
            for given, found in zip(
                connection.execute("select id, f8, key, data, small, big, words from random_rows order by id"),
                rows,
                strict=True,
            ):
                wanted = {"id": given[0], "f8": given[1], "key": str(given[2]), "data": given[3]}
                wanted |= {"small": given[4], "big": given[5], "words": given[6]}
                assert {name: found[name] for name in wanted} == wanted
        finally:
            connection.execute("drop table random_rows")
