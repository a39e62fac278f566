"""The Postgres sink against a real Postgres: rows by key, deletions, refusals, and offsets in its transaction."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import LogUnderTest
from support.connecting import committed, reaches, running, send, state
from support.pooler import pooled
from support.postgres import Postgres
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.clock import SystemClock
from suiro.connect import About, Runtime, SettingError, SinkBatch, SinkRecord
from suiro.connect.sinks.postgres import PostgresSink
from suiro.errors import TransientError, UsageError

Database = psycopg.Connection[Any]


@pytest.fixture(scope="session")
def log_under_test(suiro_node: Any) -> LogUnderTest:
    return LogUnderTest("node", suiro_node.bootstrap_servers)


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def table(database: Database, unique: str) -> str:
    name = unique.replace("-", "_")
    database.execute(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text NOT NULL DEFAULT 'nobody', price numeric(10,2), "
        "at timestamptz, tags jsonb)"
    )
    return name


@pytest.fixture
def topic(client: Client, unique: str) -> str:
    client.create_topics([NewTopic(unique, 1)])
    return unique


def section(name: str, topic: str, table: str, dsn: str, more: str = "") -> str:
    return (
        f'[sink.{name}]\nkind = "postgres"\ndsn = "{dsn}"\ntable = "{table}"\nkey = ["id"]\n'
        f'topics = ["{topic}"]\n{more}\n'
    )


@dataclass(frozen=True)
class Sink:
    """A sink of a topic into a table, and what comes of it."""

    folder: Path
    bootstrap: str
    dsn: str
    client: Client
    database: Database
    topic: str
    table: str

    @property
    def puts_aside(self) -> str:
        return f'dead_letter_topic = "dead-{self.topic}"'

    def running(self, more: str = "") -> AbstractContextManager[Runtime]:
        text = section(self.topic, self.topic, self.table, self.dsn, more)
        return running(self.folder, self.bootstrap, text)

    def send(self, values: list[Any], **options: Any) -> None:
        send(self.client, self.topic, values, **options)

    def rows(self) -> list[tuple[Any, ...]]:
        columns = "id, name, price::text, tags"
        return self.database.execute(f"SELECT {columns} FROM {self.table} ORDER BY id").fetchall()

    def dead_letters(self) -> list[dict[str, Any]]:
        return committed(self.client, f"dead-{self.topic}")


@pytest.fixture
def sink(
    tmp_path: Path, bootstrap: str, client: Client, database: Database, postgres: Postgres,
    topic: str, table: str,
) -> Sink:  # fmt: skip
    return Sink(tmp_path, bootstrap, postgres.dsn, client, database, topic, table)


def batch(topic: str, values: list[dict[str, Any]], settle: Callable[[], None]) -> SinkBatch:
    """The first batch of partition 0."""
    records = [
        SinkRecord(
            topic=topic, partition=0, offset=at, timestamp_ms=0, key=None, value=value, headers=(),
            raw_key=None, raw_value=None,
        )
        for at, value in enumerate(values)
    ]  # fmt: skip
    target = (topic, 0)
    return SinkBatch(
        records=records, first_offsets={target: 0}, next_offsets={target: len(records)},
        reject=lambda record, reason: None, settle=settle,
    )  # fmt: skip


def test_rows_follow_the_records_of_their_key(sink: Sink, database: Database, topic: str) -> None:
    sink.send(
        [
            {"id": 1, "name": "a", "price": "1.5", "tags": [1]},
            {"id": 1, "price": 2},  # the name stays
            {"id": 2, "name": "b"},
            None,
            {"id": 2, "price": 3},  # the name is new again
            {"id": 3, "name": "c"},
            {"id": 3, "name": "d"},
            None,
            {"id": "4", "name": "e"},
            {"id": 4, "name": "f"},
        ],
        keys=["1", "1", "2", "2", "2", "3", "3", '{"id": 3}', "4", "4"],
        commit=True,
    )
    with sink.running() as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 10, "ten records")
    assert sink.rows() == [
        (1, "a", "2.00", [1]), (2, "nobody", "3.00", None), (4, "f", None, None),
    ]  # fmt: skip
    (stored,) = database.execute(
        "SELECT partition, next_offset FROM suiro_connect_offsets WHERE connector = %s", (topic,)
    ).fetchall()
    assert stored in [(0, 10), (0, 11)]  # before or behind the marker


def test_what_postgres_refuses_is_put_aside_and_the_rest_is_written(sink: Sink, topic: str) -> None:
    bad = [
        {"id": "x", "name": "no number"},
        {"id": 2, "name": None},
        {"id": 3, "at": "yesterday-ish"},
        {"id": 4, "colour": "red"},
        {"name": "nobody's"},
        [1],
    ]
    sink.send([{"id": 1, "name": "a"}, *bad, {"id": 9, "name": "z"}])
    with sink.running(sink.puts_aside) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 8, "eight records")
    assert [row[0] for row in sink.rows()] == [1, 9]
    reasons = [row["headers"]["__connect.errors.exception.message"].decode() for row in sink.dead_letters()]
    assert len(reasons) == 6
    for said in (
        "not-null",
        "type bigint",
        "yesterday-ish",
        "no column for colour",
        "neither value",
        "is list",
    ):
        assert any(said in reason for reason in reasons), reasons


def test_what_a_deferred_constraint_refuses_is_put_aside(
    sink: Sink, database: Database, topic: str, table: str
) -> None:
    """It is checked at the commit, as those are that Django makes. Of a batch as a whole: a child may come first."""
    database.execute(f"ALTER TABLE {table} ADD parent bigint REFERENCES {table} DEFERRABLE INITIALLY DEFERRED")
    sink.send([{"id": 2, "parent": 1}, {"id": 1}])
    with sink.running(sink.puts_aside) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
        sink.send([{"id": 3, "parent": 2}, {"id": 4, "parent": 99}, {"id": 5}])
        reaches(runtime, topic, lambda at: at["records"] == 5, "five records")
    assert [row[0] for row in sink.rows()] == [1, 2, 3, 5]
    (letter,) = sink.dead_letters()
    assert b"violates foreign key constraint" in letter["headers"]["__connect.errors.exception.message"]


def test_a_row_may_need_a_later_one_where_another_record_is_put_aside(
    sink: Sink, database: Database, topic: str, table: str
) -> None:
    """A deferred constraint is not checked record by record, for it may hold for all of them together."""
    database.execute(f"ALTER TABLE {table} ADD parent bigint REFERENCES {table} DEFERRABLE INITIALLY DEFERRED")
    sink.send([{"id": 2, "parent": 1}, {"id": "x"}, {"id": 1}])
    with sink.running(sink.puts_aside) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert [row[0] for row in sink.rows()] == [1, 2]
    (letter,) = sink.dead_letters()
    assert b"type bigint" in letter["headers"]["__connect.errors.exception.message"]


def test_what_the_check_option_of_a_view_refuses_is_put_aside(
    sink: Sink, tmp_path: Path, bootstrap: str, database: Database, postgres: Postgres, topic: str, table: str
) -> None:
    database.execute(f"CREATE VIEW {table}_cheap AS SELECT * FROM {table} WHERE price < 100 WITH CHECK OPTION")
    sink.send([{"id": 1, "price": 1}, {"id": 2, "price": 100}, {"id": 3, "price": 3}])
    more = sink.puts_aside
    text = section(topic, topic, f"{table}_cheap", postgres.dsn, more)
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert [row[0] for row in sink.rows()] == [1, 3]
    (letter,) = sink.dead_letters()
    assert b"violates check option for view" in letter["headers"]["__connect.errors.exception.message"]


def test_what_a_trigger_refuses_by_a_code_of_its_own_is_put_aside(
    sink: Sink, database: Database, topic: str, table: str
) -> None:
    database.execute(
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN RAISE EXCEPTION ''too dear'' USING ERRCODE = ''MY001''; END'"
    )
    database.execute(
        f"CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW WHEN (new.price >= 100) "
        f"EXECUTE FUNCTION {table}_refuse()"
    )
    sink.send([{"id": 1, "price": 1}, {"id": 2, "price": 100}, {"id": 3, "price": 3}])
    with sink.running(sink.puts_aside) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert [row[0] for row in sink.rows()] == [1, 3]
    (letter,) = sink.dead_letters()
    assert letter["headers"]["__connect.errors.exception.message"] == b"Postgres rejects it: too dear"


def test_what_row_level_security_refuses_is_put_aside_and_a_missing_right_is_not(
    sink: Sink, tmp_path: Path, bootstrap: str, database: Database, postgres: Postgres, topic: str, table: str
) -> None:
    role = f"role_{table}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}")
    database.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    database.execute(f"CREATE POLICY cheap ON {table} USING (price < 100)")
    database.execute(f"INSERT INTO {table} (id, price) VALUES (4, 100)")
    database.execute(f"CREATE SCHEMA {table}_offsets AUTHORIZATION {role}")
    sink.send([{"id": 1, "price": 1}, {"id": 2, "price": 100}, {"id": 4, "price": 4}])
    more = f'dead_letter_topic = "dead-{topic}"\noffsets_schema = "{table}_offsets"'
    dsn = postgres.dsn.replace("postgres:@", f"{role}:@")
    with running(tmp_path, bootstrap, section(topic, topic, table, dsn, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
        database.execute(f"REVOKE INSERT ON {table} FROM {role}")
        sink.send([{"id": 5, "price": 5}])
        told = reaches(runtime, topic, lambda at: at["error"], "an error")
        assert f"permission denied for table {table}" in told["error"]
        assert told["rejected"] == 2
    assert [row[0] for row in sink.rows()] == [1, 4]
    letters = sink.dead_letters()
    assert [letter["offset"] for letter in letters] == [0, 1]
    assert all(
        b"violates row-level security policy" in letter["headers"]["__connect.errors.exception.message"]
        for letter in letters
    )


def test_a_key_too_long_for_the_index_is_put_aside(sink: Sink, database: Database, topic: str, table: str) -> None:
    database.execute(f"ALTER TABLE {table} ALTER id TYPE text")
    long = random.Random(1).randbytes(10_000).hex()  # which nothing makes shorter
    sink.send([{"id": "a"}, {"id": long}, {"id": "b"}])
    with sink.running(sink.puts_aside) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert [row[0] for row in sink.rows()] == ["a", "b"]
    (letter,) = sink.dead_letters()
    assert b"Postgres rejects it: index row" in letter["headers"]["__connect.errors.exception.message"]


def test_behind_a_pooler_each_sink_writes_its_own_table(
    tmp_path: Path, bootstrap: str, client: Client, database: Database, postgres: Postgres,
    topic: str, table: str,
) -> None:  # fmt: skip
    """It gives a sink a connection of the server, between two transactions, that the other one had before."""
    other = f"other-{topic}"
    client.create_topics([NewTopic(other, 1)])
    database.execute(f"CREATE TABLE {table}_other (id bigint PRIMARY KEY, name text, price numeric)")
    with pooled(postgres.dsn) as dsn:
        text = section(topic, topic, table, dsn) + section(other, other, f"{table}_other", dsn)
        with running(tmp_path, bootstrap, text) as runtime:
            for number in range(12):  # the driver prepares what it has executed five times
                for name in (topic, other):
                    send(client, name, [{"id": number, "name": name}])
                for name in (topic, other):
                    reaches(runtime, name, lambda at, n=number: at["records"] == n + 1, "the record")
            assert [state(runtime, name)["restarts"] for name in (topic, other)] == [0, 0]
    for place, name in ((table, topic), (f"{table}_other", other)):
        found = database.execute(f"SELECT count(*), min(name), max(name) FROM {place}").fetchone()
        assert found == (12, name, name)


@pytest.mark.parametrize(("kind", "key", "again"), [("bigint", 1, "01"), ("jsonb", [1], [1.0])])
def test_keys_that_only_postgres_takes_for_equal_are_written_in_their_order(
    sink: Sink, database: Database, topic: str, table: str, kind: str, key: Any, again: Any
) -> None:
    """Records with the same fields are one statement. That must not bring an older one behind a newer one."""
    database.execute(f"ALTER TABLE {table} ALTER id TYPE {kind} USING NULL")
    sink.send([{"id": key, "name": "a"}, {"id": again, "name": "b", "price": 1}, {"id": key, "name": "c"}])
    with sink.running() as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert sink.rows() == [(key, "c", "1.00", None)]


@pytest.mark.parametrize(("kind", "keys"), [("text", [True, "True"]), ("jsonb", [[1], "[1]", True, "True"])])
def test_keys_that_only_python_writes_alike_are_several_rows(
    sink: Sink, database: Database, topic: str, table: str, kind: str, keys: list[Any]
) -> None:
    database.execute(f"ALTER TABLE {table} ALTER id TYPE {kind} USING NULL")
    sink.send([{"id": key, "price": number} for number, key in enumerate(keys)])
    with sink.running() as runtime:
        reaches(runtime, topic, lambda at: at["records"] == len(keys), "all records")
    found = database.execute(f"SELECT price FROM {table} ORDER BY price").fetchall()
    assert found == [(number,) for number in range(len(keys))]


def test_values_within_json(tmp_path: Path, database: Database, postgres: Postgres, topic: str, table: str) -> None:
    """Infinity of a capture, and an array of which a schema says that it has JSON, whoever wrote that."""
    database.execute(f"ALTER TABLE {table} ADD docs jsonb[]")
    about = About(name=topic, folder=tmp_path, clock=SystemClock())
    to = PostgresSink({"dsn": postgres.dsn, "table": table, "key": ["id"]}, about)
    records = batch(topic, [{"id": 1, "tags": [datetime.max], "docs": ["[1]", 2, {"a": [None]}]}], lambda: None)
    to.open()
    to.put(replace(records, records=[replace(one, json_texts={"docs": True}) for one in records.records]))
    to.close()
    found = database.execute(f"SELECT tags, docs FROM {table}").fetchall()
    assert found == [(["infinity"], [[1], 2, {"a": [None]}])]


@pytest.mark.parametrize("unknown", ["fail", "ignore"])
def test_a_column_that_the_table_gets_is_written(
    sink: Sink, database: Database, topic: str, table: str, unknown: str
) -> None:
    sink.send([{"id": 1}])
    more = f'dead_letter_topic = "dead-{topic}"\nunknown_fields = "{unknown}"'
    with sink.running(more) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "one record")
        database.execute(f"ALTER TABLE {table} ADD colour text")
        sink.send([{"id": 2, "colour": "red"}])
        reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
        assert state(runtime, topic)["rejected"] == 0
    found = database.execute(f"SELECT id, colour FROM {table} ORDER BY id").fetchall()
    assert found == [(1, None), (2, "red")]


def test_records_wait_for_a_column_of_the_key(sink: Sink, database: Database, topic: str, table: str) -> None:
    sink.send([{"id": 1}])
    with sink.running(sink.puts_aside) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "one record")
        database.execute(f"ALTER TABLE {table} RENAME id TO other")
        sink.send([{"id": 2}])
        reaches(runtime, topic, lambda at: "no column 'id', which key names" in (at["error"] or ""), "an error")
        database.execute(f"ALTER TABLE {table} RENAME other TO id")
        wait_until(lambda: [row[0] for row in sink.rows()] == [1, 2], what="the second row")
        assert state(runtime, topic)["rejected"] == 0


def test_offsets_are_kept_without_any_rows(
    sink: Sink, tmp_path: Path, bootstrap: str, postgres: Postgres, topic: str, table: str
) -> None:
    sink.send([{"id": 1}])
    text = section(topic, topic, table, postgres.dsn, 'start = "latest"')
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["lag"] == 0, "no lag")
    sink.send([{"id": 2}])
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "one record")
    assert [row[0] for row in sink.rows()] == [2]


def test_without_dead_letters_nothing_of_the_batch_is_written(sink: Sink, topic: str) -> None:
    sink.send([{"id": 1}, {"id": "x"}])
    with sink.running() as runtime:
        told = reaches(runtime, topic, lambda at: at["error"], "an error")
        assert f"{topic}-0@1 cannot be taken: Postgres rejects it" in told["error"]
    assert sink.rows() == []


def test_a_postgres_that_goes_away_is_waited_for(sink: Sink, database: Database, topic: str) -> None:
    sink.send([{"id": 1}])
    with sink.running() as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "one record")
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
            (f"suiro-connect-{topic}",),
        )
        sink.send([{"id": 2}])
        wait_until(lambda: len(sink.rows()) == 2, what="the second row")
        assert state(runtime, topic)["restarts"] == 1


def test_a_second_process_does_not_write_a_batch_again(sink: Sink, database: Database, topic: str) -> None:
    """Somebody else moves the offset on; the batch that follows the old one is refused as a whole."""
    sink.send([{"id": 1}])
    with sink.running() as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "one record")
        database.execute("UPDATE suiro_connect_offsets SET next_offset = 2 WHERE connector = %s", (topic,))
        sink.send([{"id": 2}, {"id": 3}])
        wait_until(lambda: [row[0] for row in sink.rows()] == [1, 3], what="the third row")
        assert state(runtime, topic)["restarts"] == 1


def test_two_processes_that_write_their_first_batch_at_once(
    sink: Sink, tmp_path: Path, database: Database, postgres: Postgres, topic: str, table: str
) -> None:
    """There are no offsets yet that one of them could lock."""
    about = About(name=topic, folder=tmp_path, clock=SystemClock())
    settings = {"dsn": postgres.dsn, "table": table, "key": ["id"]}
    first, second = PostgresSink(settings, about), PostgresSink(settings, about)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"

    with ThreadPoolExecutor(1) as beside:
        first.open()
        second.open()
        assert first.offsets([(topic, 0)]) == second.offsets([(topic, 0)]) == {}
        late: list[Future[None]] = []

        def meanwhile() -> None:
            late.append(beside.submit(second.put, batch(topic, [{"id": 1, "name": "old"}], lambda: None)))
            name = f"suiro-connect-{topic}"
            wait_until(lambda: database.execute(waits, (name,)).fetchone() == (1,), what="a lock")

        first.put(batch(topic, [{"id": 1, "name": "old"}, {"id": 1, "name": "new"}], meanwhile))
        with pytest.raises(TransientError, match="another process runs the same connector"):
            late[0].result()
        assert second.offsets([(topic, 0)]) == {(topic, 0): 2}
        first.close()
        second.close()
    assert [row[:2] for row in sink.rows()] == [(1, "new")]


@pytest.mark.parametrize("limit", ["statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"])
def test_a_batch_may_take_longer_than_a_limit_of_the_role(
    sink: Sink, tmp_path: Path, database: Database, postgres: Postgres, topic: str, table: str, limit: str
) -> None:
    """It would take as long each time that it is repeated."""
    database.execute(
        f"CREATE FUNCTION {table}_slow() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_sleep(0.3); RETURN new; END'"
    )
    database.execute(f"CREATE TRIGGER slow BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_slow()")
    idle = (
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND state = 'idle in transaction' "
        "AND clock_timestamp() - state_change > '300 ms'"
    )

    def settle() -> None:
        name = f"suiro-connect-{topic}"
        wait_until(lambda: database.execute(idle, (name,)).fetchone() == (1,), what="a long wait")

    dsn = f"{postgres.dsn}&options=-c%20{limit}%3D150"
    writing = PostgresSink(
        {"dsn": dsn, "table": table, "key": ["id"]},
        About(name=topic, folder=tmp_path, clock=SystemClock()),
    )
    writing.open()
    try:
        assert writing.offsets([(topic, 0)]) == {}
        writing.put(batch(topic, [{"id": 1}], settle))
        assert writing.offsets([(topic, 0)]) == {(topic, 0): 1}
    finally:
        writing.close()
    assert [row[0] for row in sink.rows()] == [1]


def test_a_wait_for_a_lock_takes_no_longer_than_a_statement_of_the_role_may(
    sink: Sink, tmp_path: Path, database: Database, postgres: Postgres, topic: str, table: str
) -> None:
    """Otherwise the connector would stand still, and tell nothing of it."""
    database.execute(f"INSERT INTO {table} (id) VALUES (1)")
    writing = PostgresSink(
        {"dsn": f"{postgres.dsn}&options=-c%20statement_timeout%3D100", "table": table, "key": ["id"]},
        About(name=topic, folder=tmp_path, clock=SystemClock()),
    )
    writing.open()
    try:
        with database.transaction():
            database.execute(f"SELECT FROM {table} FOR UPDATE")
            with pytest.raises(TransientError, match="lock timeout"):
                writing.put(batch(topic, [{"id": 1, "name": "a"}], lambda: None))
        writing.put(batch(topic, [{"id": 1, "name": "a"}], lambda: None))
    finally:
        writing.close()
    assert [row[:2] for row in sink.rows()] == [(1, "a")]


def test_a_role_that_may_not_create_tables_uses_the_table_of_offsets_that_is_there(
    sink: Sink, tmp_path: Path, database: Database, postgres: Postgres, topic: str, table: str
) -> None:
    role = f"role_{table}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    database.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}")
    database.execute(f"CREATE SCHEMA {table}_offsets")
    database.execute(f"GRANT USAGE ON SCHEMA {table}_offsets TO {role}")
    about = About(name=topic, folder=tmp_path, clock=SystemClock())
    settings = {"dsn": postgres.dsn, "table": table, "key": ["id"], "offsets_schema": f"{table}_offsets"}
    restricted = settings | {"dsn": postgres.dsn.replace("postgres:@", f"{role}:@")}
    writing = PostgresSink(restricted, about)
    with pytest.raises(UsageError, match=f"{topic}: Postgres says: permission denied for schema"):
        writing.open()
    writing.close()
    writing = PostgresSink(settings, about)
    writing.open()
    writing.close()
    database.execute(f"GRANT SELECT, INSERT, UPDATE ON {table}_offsets.suiro_connect_offsets TO {role}")
    writing = PostgresSink(restricted, about)
    writing.open()
    try:
        writing.put(batch(topic, [{"id": 1}], lambda: None))
        assert writing.offsets([(topic, 0)]) == {(topic, 0): 1}
    finally:
        writing.close()
    assert [row[0] for row in sink.rows()] == [1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dsn": "host=x port"}, "dsn: is no connection string"),
        ({"key": []}, "key: names no column"),
        ({"unknown_fields": "drop"}, "unknown_fields: expected"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    settings = {"dsn": "host=x", "table": "t", "key": ["id"]} | change
    with pytest.raises(SettingError) as raised:
        PostgresSink(settings, About(name="x", folder=tmp_path, clock=SystemClock()))
    assert said in str(raised.value)


@pytest.mark.parametrize(("name", "said"), [("nowhere", "there is no table"), ("pg_class", "no column 'id'")])
def test_a_table_that_is_not_there_is_named(
    tmp_path: Path, bootstrap: str, postgres: Postgres, topic: str, name: str, said: str
) -> None:
    with running(tmp_path, bootstrap, section(topic, topic, name, postgres.dsn)) as runtime:
        told = reaches(runtime, topic, lambda at: at["error"], "an error")
    assert said in told["error"]


def test_a_network_that_goes_silent_ends_the_connection(postgres: Postgres, table: str, tmp_path: Path) -> None:
    """With the system's own limits, a sink waited for hours. The server kept the locks of a machine that had died."""
    about = About(name="x", folder=tmp_path, clock=SystemClock())
    sink = PostgresSink({"dsn": f"{postgres.dsn}&keepalives_idle=7", "table": table, "key": ["id"]}, about)
    try:
        sink.open()
        used = sink._connected.info.get_parameters()
        with sink._transaction():
            # On a socket of Unix they have no effect, and are shown as 0.
            set_here = sink._connected.execute(
                "SELECT name FROM pg_settings WHERE name LIKE 'tcp%' AND source = 'session' ORDER BY name"
            ).fetchall()
    finally:
        sink.close()
    assert {name: used.get(name) for name in ("keepalives_idle", "keepalives_count", "tcp_user_timeout")} == {
        "keepalives_idle": "7", "keepalives_count": "3", "tcp_user_timeout": "60000"
    }  # fmt: skip
    assert [name for (name,) in set_here] == [
        "tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout"
    ]  # fmt: skip


def test_functions_of_others_are_not_called(sink: Sink, database: Database, topic: str, table: str) -> None:
    """Who may create one in the schema of the table would run it as the sink's role. Its arguments fit better."""
    functions = (
        "pg_advisory_xact_lock(int) returns void",
        f"jsonb_populate_recordset({table}, jsonb) returns setof {table}",
        "same(oid, regclass) returns bool",
    )
    for one in functions:
        database.execute(f"create function {one} language plpgsql as $$begin raise exception 'called'; end$$".encode())
    database.execute("create operator = (leftarg = oid, rightarg = regclass, function = same)")
    try:
        values = [{"id": 1, "name": "a"}, None, {"id": 2}, {"id": 3, "name": "c"}]
        sink.send(values, keys=["1", "1", "2", "3"])
        with sink.running() as runtime:
            reaches(runtime, topic, lambda at: at["records"] == 4, "four records")
    finally:
        for one in functions:
            database.execute(f"drop function {one.partition(' returns')[0]} cascade".encode())
    assert [row[0] for row in sink.rows()] == [2, 3]


def test_names_may_have_any_character(
    sink: Sink,
    tmp_path: Path,
    bootstrap: str,
    database: Database,
    postgres: Postgres,
    topic: str,
    unique: str,
) -> None:
    schema, table, key = f"{unique} %s", 'a"b %', "no. %"
    quoted_table = f'"{schema}"."a""b %"'
    database.execute(
        f'create schema "{schema}"; create table {quoted_table} ("{key}" int primary key, "rate %d" int)'.encode()
    )
    values = [{key: 1, "rate %d": 5}, {key: 2}, {key: 3}, None]
    sink.send(values, keys=["1", "2", "3", "3"])
    text = (
        f'[sink.{topic}]\nkind = "postgres"\ndsn = "{postgres.dsn}"\ntable = \'{schema}.{table}\'\n'
        f"key = ['{key}']\ntopics = [\"{topic}\"]\n"
    )
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 4, "four records")
    assert database.execute(f"select * from {quoted_table} order by 1".encode()).fetchall() == [
        (1, 5),
        (2, None),
    ]
