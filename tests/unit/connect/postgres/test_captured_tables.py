"""Tables as capture meets them: their schemas, how these evolve, and rows of real tables in all states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import avro.schema
import fastavro
import numpy as np
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from support.postgres_rows import (
    Connection,
    Slot,
    changes_of,
    decoded,
    facts,
    parsed_messages,
    relation_of,
    slot_over_all,
    snapshot,
)

from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.avro_fields import FieldExtractor
from suiro.connect.postgres.encoding.avro_rows import RowEncoder
from suiro.connect.postgres.encoding.names import avro_names
from suiro.connect.postgres.encoding.pgoutput import RelationColumn, RelationMessage, parse
from suiro.connect.postgres.encoding.schemas import (
    RELATION_QUERY,
    Relation,
    announced,
    changed_meanings,
    key_schema,
    types_of_fields,
    value_schema,
    with_earlier_types,
)
from suiro.connect.postgres.encoding.types import Column, PgType, Rules
from suiro.connect.postgres.server import stream
from suiro.connect.postgres.server.stream import ReplicationStream
from suiro.errors import CorruptRecordError, UsageError

RULES = Rules(namespace="shop")
INT, BIGINT, TEXT, BYTEA = 23, 20, 25, 17


@pytest.fixture
def slot(connection: Connection) -> Iterator[Slot]:
    with slot_over_all(connection, "tables") as opened:
        yield opened


def relation(*columns: tuple[str, int], key: tuple[int, ...] = (0,), types: Any = None) -> Relation:
    return Relation(
        oid=1,
        schema="public",
        name="t",
        columns=tuple(Column(name=name, type=kind) for name, kind in columns),
        key=key,
        types=types or {},
    )


def encoder_of(table: Relation) -> RowEncoder:
    return RowEncoder(table, RULES, key_schema_id=1, value_schema_id=2)


def reads(reader: dict[str, Any], writer: dict[str, Any]) -> bool:
    """Whether Avro lets one who knows `reader` read what `writer` wrote."""
    found = ReaderWriterCompatibilityChecker().get_compatibility(
        avro.schema.parse(json.dumps(reader)), avro.schema.parse(json.dumps(writer))
    )
    return bool(found.compatibility is SchemaCompatibilityType.compatible)


def test_names_that_avro_does_not_allow() -> None:
    names = ["id", "größe", "a-b", "a b", "1st", "a_b", "", "漢"]
    written = avro_names(names)
    assert written[0] == "id"
    assert written[5] == "a_b"
    assert len(set(written)) == len(written)
    assert written[1].startswith("gr__e_")
    assert written[4].startswith("_1st_")
    # Each is the same alone as among others.
    assert [avro_names([name])[0] for name in names] == written
    schema = value_schema(relation(*((name, TEXT) for name in names)), RULES)
    fastavro.parse_schema(schema)
    assert [field.get("postgres.name", field["name"]) for field in schema["fields"]] == names


def test_a_name_that_is_another_ones_sanitised_form_takes_more_digits() -> None:
    plain = avro_names(["a-b"])[0]
    both = avro_names([plain, "a-b"])
    assert both[0] == plain
    assert both[1].startswith(plain)
    assert both[1] != plain


def test_schemas_of_tables_with_odd_names_parse() -> None:
    odd = replace(relation(("id", INT)), schema="my schema", name="Bestellungen (alt)")
    for schema in (key_schema(odd, RULES), value_schema(odd, RULES)):
        fastavro.parse_schema(schema)
        avro.schema.parse(json.dumps(schema))
    assert key_schema(odd, RULES)["fields"] == [{"name": "id", "type": "int", "postgres.type": "integer"}]


def test_columns_come_and_go_without_breaking_readers() -> None:
    before = value_schema(relation(("id", INT), ("a", TEXT)), RULES)
    added = value_schema(relation(("id", INT), ("a", TEXT), ("b", BYTEA)), RULES)
    widened = value_schema(relation(("id", BIGINT), ("a", TEXT)), RULES)
    assert reads(added, before)
    assert reads(before, added)
    assert reads(widened, before)
    assert not reads(before, widened)
    assert not reads(value_schema(relation(("id", TEXT)), RULES), before)


@pytest.mark.parametrize(
    ("before", "after", "is_misread"),
    [
        ((1700, 10, 2), (1700, 12, 2), False),
        ((1700, 10, 2), (1700, 10, 4), True),  # the same bytes, a hundred times less
        ((1700, 10, 2), (TEXT, 0, 0), True),  # Avro reads bytes as a string
        ((1082, 0, 0), (1184, 0, 0), True),  # days as microseconds
        ((1114, 0, 0), (1184, 0, 0), True),
        ((INT, 0, 0), (BIGINT, 0, 0), False),
        ((2950, 0, 0), (TEXT, 0, 0), False),
    ],
)
def test_changes_of_type_that_avro_lets_pass_and_gets_wrong(
    before: tuple[int, int, int], after: tuple[int, int, int], is_misread: bool
) -> None:
    def schema(kind: int, precision: int, scale: int) -> dict[str, Any]:
        column = Column(name="a", type=kind, typmod=((precision << 16) | scale) + 4 if precision else -1)
        return value_schema(replace(relation(("id", INT)), columns=(column,)), RULES)

    assert changed_meanings(schema(*before), schema(*after)) == (["a"] if is_misread else [])
    assert reads(schema(*after), schema(*before))


def test_a_change_of_type_that_avro_refuses_is_the_registrys_to_refuse() -> None:
    """The capture advised to register the schema, which the registry did not take."""
    before, after = (value_schema(relation(("at", kind)), RULES) for kind in (1083, TEXT))
    assert not reads(after, before)
    assert changed_meanings(before, after) == []


def test_a_composite_type_may_get_and_lose_attributes_of_any_type() -> None:
    """Those with a logical type were a change of meaning, and so was a type whose first column was dropped."""

    def schema(*columns: str, **fields: int) -> dict[str, Any]:
        attributes = tuple(Column(name=name, type=kind) for name, kind in fields.items())
        kind = PgType(oid=50_000, schema="public", name="pair", kind="composite", fields=attributes)
        table = relation(("id", INT), *((name, 50_000) for name in columns or "a"), types={50_000: kind})
        return value_schema(table, RULES)

    before = schema(n=INT, on=1082)
    assert changed_meanings(before, schema(n=INT, on=1082, at=1184)) == []
    assert changed_meanings(before, schema(n=INT, at=1184)) == []
    assert changed_meanings(before, schema(n=INT, on=1184)) == ["a"]
    assert changed_meanings(before, schema(n=1082, on=1082)) == ["a"]
    assert changed_meanings(schema("b", "a", n=INT, on=1082), before) == []
    # To capture the column as text is nothing that Avro reads, so the registry decides.
    text = value_schema(relation(("id", INT), ("a", TEXT)), RULES)
    assert changed_meanings(schema(n=INT), text) == changed_meanings(text, schema(n=INT)) == []


def test_a_value_that_the_newest_form_of_a_composite_type_cannot_be_is_of_an_older_one() -> None:
    """One from before a DROP and an ADD ATTRIBUTE ended the capture, at each start again."""
    fields = (Column(name="x", type=INT), 0, Column(name="z", type=INT))
    pair = PgType(oid=50_000, schema="public", name="pair", kind="composite", fields=fields)
    table = relation(("id", INT), ("a", 50_000), types={50_000: pair})

    def read(text: bytes) -> Any:
        cells = (b"t" + len(cell).to_bytes(4, "big") + cell for cell in (b"1", text))
        encoded = encoder_of(table).encode_changes(parsed_messages([b"I\0\0\0\1N\0\2" + b"".join(cells)]), [0])
        return decoded(encoded, value_schema(table, RULES))[0]["a"]

    assert [read(text) for text in (b"(1,old)", b"(1,2)", b"(1)")] == [
        {"x": 1, "z": None},
        {"x": 1, "z": 2},
        {"x": 1, "z": None},
    ]
    with pytest.raises(UsageError, match=r"holds '\(y,old\)': it is not an integer"):
        read(b"(y,old)")


def test_a_composite_type_is_defined_once_and_named_after() -> None:
    point = PgType(
        oid=50_000,
        schema="public",
        name="point 2",
        kind="composite",
        fields=(Column(name="x", type=INT), Column(name="y y", type=TEXT)),
    )
    points = PgType(oid=50_001, schema="public", name="_point", kind="array", element=50_000)
    table = relation(("id", INT), ("a", 50_000), ("b", 50_001), types={50_000: point, 50_001: points})
    schema = value_schema(table, RULES)
    fastavro.parse_schema(schema)
    name = schema["fields"][1]["type"][1]["name"]
    assert schema["fields"][2]["type"][1]["items"] == ["null", name]
    data = b"I\0\0\0\1N\0\3" + b"".join(
        b"t" + len(text).to_bytes(4, "big") + text for text in (b"1", b'(2,"a b")', b'{"(3,)",NULL}')
    )
    encoded = encoder_of(table).encode_changes(parsed_messages([data]), [0])
    value = encoded.value(0)
    assert value is not None
    (row,) = decoded(encoded, schema)
    odd = avro_names(["y y"])[0]
    assert row == {"id": 1, "a": {"x": 2, odd: "a b"}, "b": [{"x": 3, odd: None}, None]}
    # The extractor finds each column, the array of composites that are only named among them.
    extractor = FieldExtractor(schema)
    cells = [extractor.extract(value, field["name"]) for field in schema["fields"]]
    assert b"".join(cells) == value[5:]
    assert extractor.has("id", schema["fields"][0]["type"])
    assert not extractor.has("id", ["null", "long"])
    # Registries may write the namespace on its own.
    given = '"name": "shop.public.t.Value.'
    apart = json.dumps(schema).replace(given, '"namespace": "shop.public.t.Value", "name": "')
    assert apart.count('"namespace"') == 2
    registered = FieldExtractor(json.loads(apart))
    assert [registered.extract(value, field["name"]) for field in schema["fields"]] == cells
    assert all(registered.has(*field) for field in types_of_fields(schema).items())
    for end in range(5, len(value)):
        with pytest.raises(CorruptRecordError):
            extractor.extract(value[:end], "b")


def test_two_composite_types_whose_names_are_one_in_avro() -> None:
    """Values of the second one were written as of the first."""
    types = {
        50_000: PgType(oid=50_000, schema="a_b", name="c", kind="composite", fields=(Column(name="n", type=INT),)),
        50_001: PgType(oid=50_001, schema="a", name="b_c", kind="composite", fields=(Column(name="s", type=TEXT),)),
    }
    table = relation(("id", INT), ("one", 50_000), ("two", 50_001), ("again", 50_001), types=types)
    data = b"I\0\0\0\1N\0\4" + b"".join(
        b"t" + len(text).to_bytes(4, "big") + text for text in (b"1", b"(2)", b"(x)", b"(y)")
    )
    (row,) = decoded(encoder_of(table).encode_changes(parsed_messages([data]), [0]), value_schema(table, RULES))
    assert row == {"id": 1, "one": {"n": 2}, "two": {"s": "x"}, "again": {"s": "y"}}


def test_types_that_were_dropped_are_those_of_the_topics_schemas() -> None:
    """The newest version is of a session that came further before it was killed, and has another column of a name."""
    alive = {
        INT: PgType(oid=INT, schema="pg_catalog", name="int4"),
        1007: PgType(oid=1007, schema="pg_catalog", name="_int4", kind="array", element=INT),
    }
    inner = (Column(name="at", type=1184), Column(name="n n", type=1700, typmod=((6 << 16) | 2) + 4))
    outer = (Column(name="inner", type=50_000), Column(name="all", type=50_001))
    dropped = {
        50_000: PgType(oid=50_000, schema="public", name="inner", kind="composite", fields=inner),
        50_001: PgType(oid=50_001, schema="public", name="_inner", kind="array", element=50_000),
        50_002: PgType(oid=50_002, schema="public", name="offer", kind="composite", fields=outer),
        50_003: PgType(oid=50_003, schema="public", name="mood", kind="enum"),
        50_004: PgType(oid=50_004, schema="public", name="_mood", kind="array", element=50_003),
    }
    kinds = {"k": INT, "a": 50_002, "b": 50_002, "moods": 50_004, "deep": 1007, "retyped": 1007}
    announcement = relation(*kinds.items(), key=(0, 2), types=alive)
    columns = tuple(replace(one, dimensions=2) if one.type == 1007 else one for one in announcement.columns)
    before = replace(announcement, columns=columns, types=alive | dropped)
    written = json.dumps(value_schema(before, RULES))
    apart = '"namespace": "shop.public.t.Value", "name": "public_'  # as other registries write it
    written = written.replace('"name": "shop.public.t.Value.public_', apart)
    assert written.count(apart) == 2
    later = value_schema(relation(("k", INT), ("a", INT), ("deep", TEXT)), RULES)
    now = with_earlier_types(
        announcement,
        row=([["k", 0, 1, INT], ["a", 0, 2, INT], ["retyped", 0, 6, TEXT]], [1]),
        versions=[later, json.loads(written)],
    )
    assert value_schema(now, RULES) == value_schema(before, RULES)
    assert key_schema(now, RULES) == key_schema(before, RULES)
    offer = b'("(""2024-01-01 00:00:00+00"",1.50)","{NULL}")'
    cells = (b"1", offer, offer, b"{ok,NULL}", b"{{1},{2}}", b"{}")
    data = b"I\0\0\0\1N\0\6" + b"".join(b"t" + len(text).to_bytes(4, "big") + text for text in cells)
    rows = [encoder_of(one).encode_changes(parsed_messages([data]), [0]) for one in (now, before)]
    assert (rows[0].key(0), rows[0].value(0)) == (rows[1].key(0), rows[1].value(0))


def test_an_announced_table_without_a_key_says_what_to_choose() -> None:
    def told(identity: str, keys: str, key: list[str] | None = None) -> Relation:
        columns = tuple(RelationColumn(name=name, type=INT, typmod=-1, is_key=name in keys) for name in "ab")
        return announced(RelationMessage(1, "public", "t", identity, columns), types={}, key=key)

    with pytest.raises(UsageError, match=r"public\.t: it has no primary key.*REPLICA IDENTITY FULL"):
        told("d", "")
    assert told("i", "a").key == (0,)
    whole, named = told("f", "ab"), told("f", "ab", ["b"])
    assert (whole.key, whole.nullable_key) == ((0, 1), True)
    assert (named.key, named.nullable_key) == ((1,), False)


def test_a_table_whose_columns_were_all_dropped_is_announced(connection: Connection) -> None:
    connection.execute("create table bare ()")
    try:
        (oid,) = connection.execute("select 'bare'::regclass::oid::int8").fetchone() or (0,)
        row = connection.execute(RELATION_QUERY, {"relation": oid}).fetchone()
    finally:
        connection.execute("drop table bare")
    column = RelationColumn(name="k", type=INT, typmod=-1, is_key=True)
    known = {INT: PgType(oid=INT, schema="pg_catalog", name="int4")}
    now = announced(RelationMessage(oid, "public", "bare", "d", (column,)), types=known, row=row)
    assert with_earlier_types(now, row=row, versions=[]).key == (0,)


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "kernels"])
def test_the_life_of_a_table(connection: Connection, slot: Slot, compiled: bool) -> None:
    """Generated and dropped columns, TOAST left untouched, changed keys, deletes, a column added, renamed, retyped."""
    connection.execute(
        "create table life (gone integer, id integer primary key, big text,"
        ' twice integer generated always as (id * 2) stored, "odd name" text)'
    )
    big = "x" * 3000 + "".join(chr(97 + n * n % 26) for n in range(9000))
    try:
        connection.execute("alter table life alter big set storage external")
        connection.execute("alter table life drop gone")
        table = relation_of(connection, "life")
        assert [column.name for column in table.columns] == ["id", "big", "odd name"]
        connection.execute("insert into life (id, big, \"odd name\") values (1, %s, 'a')", [big])
        connection.execute("update life set \"odd name\" = 'b'")
        connection.execute("update life set id = 5")
        connection.execute("delete from life")
        odd = avro_names(["odd name"])[0]
        with engine.choose(compiled=compiled):
            parsed, changes = changes_of(slot.messages(), table.oid)
            encoder = encoder_of(table)
            rows, columns = encoder.unchanged(parsed, changes)
            assert rows.tolist() == [1, 2]  # both updates left `big` where it was
            assert columns.tolist() == [1, 1]
            first = encoder.encode_changes(parsed, changes[:1])
            value = first.value(0)
            assert value is not None
            cell = FieldExtractor(value_schema(table, RULES)).extract(value, "big")
            encoded = encoder.encode_changes(parsed, changes, fill=[cell, cell])
        schema = value_schema(table, RULES)
        assert decoded(encoded, schema) == [
            {"id": 1, "big": big, odd: "a"},
            {"id": 1, "big": big, odd: "b"},
            None,
            {"id": 5, "big": big, odd: "b"},
            None,
        ]
        assert encoded.sources.tolist() == [0, 1, 2, 2, 3]
        assert [encoded.key(n)[5:] for n in range(5)] == [b"\2", b"\2", b"\2", b"\n", b"\n"]

        connection.execute("alter table life replica identity full")
        connection.execute("alter table life add more jsonb")
        connection.execute('alter table life rename "odd name" to even')
        connection.execute("alter table life drop twice")  # it hangs on the type of id
        connection.execute("alter table life alter id type bigint")
        connection.execute("insert into life (id, big, even, more) values (6, %s, 'c', '{}')", [big])
        connection.execute("update life set even = 'd'")
        row, types = facts(connection, "life")
        messages = slot.messages()
        with engine.choose(compiled=compiled):
            parsed, changes = changes_of(messages, table.oid)
            announcement = next(n for n in range(len(parsed)) if parsed.kind[n] == ord("R"))
            now = announced(parsed.relation_message(announcement), types=types, row=row, key=["id"])
            assert now == relation_of(connection, "life")
            encoded = encoder_of(now).encode_changes(parsed, changes)  # the old tuple gives `big`
            copied = encoder_of(now).encode_copy(snapshot(connection, "life", now, RULES))
        assert decoded(encoded, value_schema(now, RULES))[-1] == {
            "id": 6,
            "big": big,
            "even": "d",
            "more": "{}",
        }
        assert copied.value(0) == encoded.value(1)
    finally:
        connection.execute("drop table life")


class Scripted:
    """In place of a connection: it brings these messages."""

    confirmed = wal_end = 0

    def __init__(self, messages: list[bytes]) -> None:
        self._messages = iter(messages)

    def read(self) -> tuple[int, bytes] | None:
        message = next(self._messages, None)
        return None if message is None else (1, message)

    def send_status(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "kernels"])
def test_large_transactions(
    connection: Connection, slot: Slot, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction larger than the server's memory comes after its commit, without a subtransaction that aborted."""
    connection.execute("create table streamed (id integer primary key, filler text)")
    try:
        slot.messages()
        connection.execute("set logical_decoding_work_mem = '64kB'")
        with connection.transaction():
            connection.execute("insert into streamed select n, repeat('x', 100) from generate_series(1, 2000) n")
            try:
                with connection.transaction():
                    connection.execute("insert into streamed select -id, filler from streamed")
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            connection.execute("select pg_logical_emit_message(true, 'suiro', 'within')")
        connection.execute("truncate streamed")
        made: Any = Scripted(slot.messages())
        monkeypatch.setattr(stream, "Replication", lambda *arguments, **options: made)
        reading = ReplicationStream("", slot="s", publication="p", start_lsn=0)
        blocks = [block for _ in range(2) if (block := reading.read_block()) is not None]
        reading.close()
        table = relation_of(connection, "streamed")
        rows = []
        with engine.choose(compiled=compiled):
            parts = [parse(block) for block in blocks]
            for parsed in parts:
                changes = np.flatnonzero(parsed.kind == ord("I"))
                encoded = encoder_of(table).encode_changes(parsed, changes)
                rows += decoded(encoded, value_schema(table, RULES))
        kinds = [[chr(kind) for kind in parsed.kind] for parsed in parts]
        assert [row["id"] for row in rows] == list(range(1, 2001))
        assert {kind for part in kinds for kind in part} == set("BRIMCT")
        large, truncated = parts
        assert (kinds[0][0], kinds[0][-1]) == ("B", "C")
        assert large.logical_message(kinds[0].index("M")) == (True, "suiro", b"within")
        assert truncated.truncated(kinds[1].index("T")) == [table.oid]
        assert large.xid[0] > 0
        assert large.time[-1] > 1_700_000_000_000_000
        assert large.end_lsn[-1] > large.lsn[-1] > 0
    finally:
        connection.execute("reset logical_decoding_work_mem")
        connection.execute("drop table streamed")
