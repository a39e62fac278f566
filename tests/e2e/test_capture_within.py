"""Captures within the test's process: a part of each is replaced, or what it meets is made to last."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from support.capturing import DOCS, ROWS, CaptureScene, CaptureWithin, Connection, make_slot, records
from support.postgres import VERSION, Postgres
from support.waiting import wait_until

from suiro.client import LATEST, Client
from suiro.clock import monotonic_s
from suiro.connect.postgres.changes import UNKNOWN_REQUESTS_MAX, Changes
from suiro.connect.postgres.delivery import Delivery
from suiro.connect.postgres.encoding.avro_rows import RowEncoder
from suiro.connect.postgres.encoding.encoded_rows import EncodedRows
from suiro.connect.postgres.encoding.pgoutput import Block
from suiro.connect.postgres.server import slot_peek, stream
from suiro.connect.postgres.server.database import Database, parse_lsn
from suiro.connect.postgres.snapshot import ranges, topic_state
from suiro.connect.postgres.snapshot.snapshots import Snapshots
from suiro.errors import ConfigError, FencedError
from suiro.node import NodeProcess

Within = Callable[..., CaptureWithin]


@pytest.fixture
def within(scene: CaptureScene) -> Within:
    return partial(scene.within, tables=("t",))


@pytest.mark.parametrize("change", ["update t set v = 1 where k = 1", "truncate t"])
def test_reading_a_topic_may_last_longer_than_postgres_bears_silence(
    within: Within,
    scene: CaptureScene,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    """The next session would have the same to read: the capture never got any further."""
    connection.execute(DOCS.encode())
    connection.execute(f"alter database {scene.prefix} set wal_sender_timeout = '1s'".encode())
    monkeypatch.setattr(stream, "STATUS_INTERVAL_MS", 100)
    batches = topic_state.batches
    served = "select pid from pg_stat_replication where application_name = 'suiro capture'"

    def lasting(*arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Three times as long as the server waits, unless that has given up."""
        found = connection.execute(served.encode()).fetchall()
        ends = monotonic_s() + 3
        while monotonic_s() < ends and connection.execute(served.encode()).fetchall() == found:
            yield pa.RecordBatch.from_pylist([])
        yield from batches(*arguments, **options)

    with within(heartbeat_s=30) as running:
        running.reaches(running.is_ready, "ready")
        before = len(records(scene))
        monkeypatch.setattr(topic_state, "batches", lasting)
        connection.execute(change.encode())
        running.reaches(lambda: len(records(scene)) > before or running.capture.status.restarts, "the change")
        assert running.capture.status.restarts == 0


@pytest.mark.parametrize(
    "setting",
    [
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        pytest.param(
            "transaction_timeout",
            marks=pytest.mark.skipif(VERSION < 17, reason="Postgres 17 has it first"),
        ),
    ],
)
def test_no_time_limit_of_the_database_ends_a_first_snapshot(
    within: Within,
    scene: CaptureScene,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
) -> None:
    """It lasts for hours, in one transaction, whose connections wait for each other."""
    connection.execute("create table t (k int primary key); insert into t select generate_series(1, 5000)")
    connection.execute("create table u (k int primary key); insert into u values (1)")
    connection.execute(f"alter database {scene.prefix} set {setting} = '500ms'".encode())
    emit = Snapshots.emit
    waiting = (
        "select count(*) from pg_stat_activity where datname = current_database() and"
        " application_name = 'suiro capture' and state like 'idle%' and clock_timestamp() - state_change < '750ms'"
    )

    def lasting(self: Snapshots, *arguments: Any, **options: Any) -> None:
        emit(self, *arguments, **options)
        wait_until(lambda: connection.execute(waiting.encode()).fetchone() == (0,), 30, "idle connections")

    monkeypatch.setattr(Snapshots, "emit", lasting)
    with within(tables=("t", "u"), heartbeat_s=30) as running:
        running.reaches(running.is_ready, "ready")
        assert running.capture.status.restarts == 0
    assert len(records(scene)) == 5_000


@pytest.mark.skipif(VERSION < 17, reason="Postgres 17 has transaction_timeout first")
def test_no_time_limit_of_the_database_ends_the_reading_of_a_transaction(
    within: Within, scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server decodes it within a transaction, and waits there until the capture takes what it sends."""
    connection.execute("create table t (k int primary key, v text)")
    connection.execute(f"alter database {scene.prefix} set transaction_timeout = '500ms'".encode())
    process = Changes.process
    served = "select pid from pg_stat_replication where application_name = 'suiro capture'"

    def lasting(self: Changes, block: Block) -> None:
        """Three times as long as the limit, unless the server has ended the connection."""
        found, ends = connection.execute(served.encode()).fetchall(), monotonic_s() + 1.5
        while len(block) > 50 and monotonic_s() < ends:
            if connection.execute(served.encode()).fetchall() != found:
                break
        process(self, block)

    with within(heartbeat_s=30) as running:
        running.reaches(running.is_ready, "ready")
        monkeypatch.setattr(Changes, "process", lasting)
        connection.execute("insert into t select g, repeat(g::text, 20000) from generate_series(1, 300) g")
        running.reaches(lambda: len(records(scene)) == 300 or running.capture.status.restarts, "the rows")
        assert running.capture.status.restarts == 0


def test_a_composite_type_gets_an_attribute_in_a_first_snapshot(
    within: Within, scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot shows the rows of before, with the attributes of now."""
    connection.execute("create type pair as (x int, y int); create table t (k int primary key, p pair)")
    connection.execute("insert into t select g, row(g, g)::pair from generate_series(1, 2000) g")
    emit = Snapshots.emit

    def alters(self: Snapshots, *arguments: Any, **options: Any) -> None:
        emit(self, *arguments, **options)
        monkeypatch.setattr(Snapshots, "emit", emit)
        connection.execute("alter type pair add attribute z int")

    monkeypatch.setattr(Snapshots, "emit", alters)
    with within(chunk_rows=100) as running:
        running.reaches(running.is_ready, "ready")
        assert running.capture.status.restarts == 0
    rows = [scene.topics.decoded(record["value"]) for record in records(scene)]
    assert sorted(row["k"] for row in rows) == list(range(1, 2_001))
    assert [row["p"] for row in rows if row["k"] == 2_000] == [{"x": 2_000, "y": 2_000, "z": None}]


def test_last_values_of_all_tables_share_their_memory(
    within: Within, scene: CaptureScene, connection: Connection
) -> None:
    tables = ("t", "u", "w")
    for table in tables:
        connection.execute(DOCS.replace(" t ", f" {table} ").replace("table t;", f"table {table};").encode())
    limit = 4 << 20
    with within(tables=tables, memory_bytes=limit) as running:
        running.reaches(running.is_ready, "ready")
        for table in tables:
            connection.execute(f"update {table} set v = 1 where k <= 100".encode())
        for table in tables:
            topic = f"{scene.prefix}.public.{table}"
            running.reaches(lambda topic=topic: len(scene.topics.records(topic)) == ROWS + 100, topic)
        session = running.capture._running
        assert session is not None
        loaded = session._changes._last_values.values()
        assert len(loaded) == len(tables)
        (file,) = {one._file for one in loaded}
        assert file.run("pragma cache_size") == [(-(limit >> 10),)]
    for table in tables:
        scene.wait_same(connection, table, table, ["k"])


@pytest.mark.parametrize("is_once", [True, False], ids=["it slept", "it is too large"])
def test_a_transaction_that_was_open_for_too_long(
    within: Within,
    scene: CaptureScene,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    is_once: bool,
) -> None:
    """The coordinator aborts it and fences the capture, which nobody has taken the place of."""
    connection.execute("create table t (k int primary key)")
    commit, place = Delivery.commit, (f"{scene.prefix}.public.t", 0)
    slept: list[object] = []

    def sleeps(self: Delivery, *arguments: Any, **options: Any) -> None:
        if self._waiting and not (slept and is_once):
            self.flush()
            slept.append(self)
            with Client(scene.options["bootstrap"]) as client:  # of this thread
                end = client.list_offsets({place: LATEST})[place].offset
                wait_until(
                    lambda: client.list_offsets({place: LATEST}, read_committed=True)[place].offset > end,
                    60,
                    "the marker of the coordinator",
                )
        commit(self, *arguments, **options)

    with within(transaction_timeout_ms=1_000) as running:
        running.reaches(running.is_ready, "ready")
        monkeypatch.setattr(Delivery, "commit", sleeps)
        connection.execute("insert into t values (1)")
        if is_once:
            running.reaches(lambda: len(records(scene)) == 1, "the row")
            assert running.capture.status.restarts == 1
        else:
            with pytest.raises(FencedError, match="open for longer than 1,000 ms"):
                running.reaches(lambda: False, "its end", 120)
    assert len(slept) >= (1 if is_once else 2)
    assert len(records(scene)) == is_once


def test_a_slot_that_another_program_reads_from_is_not_taken(
    within: Within, connection: Connection, tmp_path: Path
) -> None:
    """Here a capture into another Kafka. It would lose what the second one takes."""
    connection.execute("create table t (k int primary key)")
    reader = "select active_pid from pg_replication_slots where database = current_database()"
    with within() as first, NodeProcess.start(data=tmp_path / "node", listen="127.0.0.1:0") as other:
        first.reaches(first.is_ready, "ready")
        before = connection.execute(reader).fetchone()
        with (
            pytest.raises(ConfigError, match="reads from slot"),
            within(bootstrap_servers=other.bootstrap_servers) as second,
        ):
            second.reaches(second.is_ready, "its end")
        assert connection.execute(reader).fetchone() == before
        assert first.capture.status.restarts == 0


@pytest.mark.parametrize("is_beside", [False, True], ids=["first snapshot", "beside the stream"])
def test_large_rows_beside_many_small_ones_are_read_in_parts(
    within: Within,
    scene: CaptureScene,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    is_beside: bool,
) -> None:
    """By the average of the table, a range has thousands of rows. As many large ones were in memory at once."""
    connection.execute("create table t (k int primary key, v text)")
    connection.execute("insert into t select g, '' from generate_series(1, 6000) g")
    connection.execute("insert into t select g, repeat(g::text, 20000) from generate_series(6001, 6100) g")
    if is_beside:
        make_slot(connection, scene)
    monkeypatch.setattr(ranges, "RANGE_BYTES", 1 << 20, raising=False)
    encode, sizes = RowEncoder.encode_copy, []

    def counted(self: RowEncoder, data: bytes) -> EncodedRows:
        sizes.append(len(data))
        return encode(self, data)

    monkeypatch.setattr(RowEncoder, "encode_copy", counted)
    with within() as running:
        running.reaches(running.is_ready, "ready")
        assert running.capture.status.restarts == 0
    assert sum(sizes) > 8_000_000
    assert max(sizes) < 2 << 20
    assert len(records(scene)) == 6_100
    scene.wait_same(connection, "t", "t", ["k"])


@pytest.mark.parametrize("is_beside", [False, True], ids=["first snapshot", "beside the stream"])
def test_rows_that_are_compressed_on_disk_are_read_once(
    within: Within,
    scene: CaptureScene,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
    is_beside: bool,
) -> None:
    """By their place on disk, all ranges had too many rows. Each was read up to the limit, then half of it again."""
    connection.execute("create table t (k int primary key, v text)")
    connection.execute("insert into t select g, repeat('x', 20000) from generate_series(1, 1500) g; analyze t")
    if is_beside:
        make_slot(connection, scene)
    monkeypatch.setattr(ranges, "RANGE_BYTES", 1 << 20)
    read = Database.copy_until_full
    is_full: list[bool] = []

    def counted(self: Database, sql: str, sink: Any, *, what: str) -> bytes:
        taken = read(self, sql, sink, what=what)
        is_full.append(sink.is_full)
        return taken

    monkeypatch.setattr(Database, "copy_until_full", counted)
    with within() as running:
        running.reaches(running.is_ready, "ready")
        assert running.capture.status.restarts == 0
    assert len(records(scene)) == 1_500
    assert len(is_full) > 20
    assert 0 < sum(is_full) < len(is_full) / 4
    scene.wait_same(connection, "t", "t", ["k"])


def test_more_logical_messages_of_no_transaction_than_one_look_at_the_slot_gives(
    within: Within, scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any role of the database may write them. Without a commit among them, the same ones were read for ever."""
    monkeypatch.setattr(slot_peek, "PEEK_CHANGES", 20)
    connection.execute("create table t (k int primary key)")
    with within() as running:
        running.reaches(running.is_ready, "ready")
    emit = "select pg_logical_emit_message(false, 'other', repeat('x', 40000)) from generate_series(1, 60)"
    connection.execute(emit.encode())
    connection.execute("insert into t values (1)")
    with within(catch_up_bytes=1 << 20) as running:
        running.reaches(lambda: len(records(scene)) == 1, "the row behind them")
        assert running.capture.status.restarts == 0


REQUEST = "select pg_logical_emit_message(true, 'suiro', %s::text) from generate_series(1, %s)"


def request_text(capture: str, table: str) -> str:
    return json.dumps({"capture": capture, "snapshot": table})


def test_requests_of_a_stranger_do_not_hold_the_stream_up(
    within: Within, scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any role of the database may write them. Each one began a snapshot, before anything else was done."""
    connection.execute("create table t (k int primary key)")
    begin, begun = Snapshots.begin, []

    def counted(self: Snapshots, *arguments: Any, **options: Any) -> None:
        begun.append(arguments)
        begin(self, *arguments, **options)

    with within() as running:
        running.reaches(running.is_ready, "ready")
        name = running.capture.options.name
        monkeypatch.setattr(Snapshots, "begin", counted)
        with connection.transaction():
            connection.execute(REQUEST, (request_text(name, "public.t"), 500))
            connection.execute(
                "select pg_logical_emit_message(true, 'suiro', format(%s::text, g)) from generate_series(1, 500) g",
                (request_text(name, "public.%s"),),
            )
            connection.execute("insert into t values (1)")
        running.reaches(lambda: len(records(scene)) > 0, "the row")
        running.reaches(lambda: running.capture.status.tables_running == 0, "the table, read again")
        assert running.capture.status.restarts == 0
    assert len(begun) == 1
    refused = [event for event in running.events if event["event"] == "snapshot_refused"]
    assert 0 < len(refused) <= UNKNOWN_REQUESTS_MAX


def test_a_request_that_cannot_be_served_does_not_end_the_capture(
    within: Within, scene: CaptureScene, connection: Connection
) -> None:
    """A table without a unique key is read as a whole while changes flow, unless it is too large. The capture ended,
    and so did each one after it."""
    connection.execute(
        """
        create table t (k int, v text); alter table t replica identity full, alter v set storage plain;
        insert into t select g, repeat('x', 5000) from generate_series(1, 700) g
        """
    )
    with within(memory_bytes=1 << 20) as running:
        running.reaches(running.is_ready, "ready")
        connection.execute(REQUEST, (request_text(running.capture.options.name, "public.t"), 1))
        connection.execute("insert into t values (0)")
        running.reaches(lambda: len(records(scene)) == 701, "the row")
        (refused,) = [event for event in running.events if event["event"] == "snapshot_refused"]
    assert "too large" in refused["reason"]


def test_a_request_lets_the_snapshot_under_way_come_to_its_end(
    within: Within, scene: CaptureScene, connection: Connection, postgres: Postgres
) -> None:
    """Each one began it from the first row, so requests now and then kept a large table from ever being read."""
    connection.execute(DOCS.encode())
    with within(chunk_rows=100) as running:
        running.reaches(running.is_ready, "ready")
        text = request_text(running.capture.options.name, "public.t")
        connection.execute(REQUEST, (text, 1))
        running.reaches(lambda: len(records(scene)) > ROWS, "the first rows again")
        with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
            other.execute("lock table t in access exclusive mode")
            assert len(records(scene)) < 2 * ROWS, "too late: the table was read"
            connection.execute(REQUEST, (text, 3))
            written = connection.execute("select pg_current_wal_lsn()").fetchone()
            session = running.capture._running
            assert written is not None
            assert session is not None
            running.reaches(lambda: session.committed >= parse_lsn(written[0]), "the requests")
        running.reaches(lambda: len(records(scene)) == 3 * ROWS, "the table, read twice")
        running.reaches(lambda: running.capture.status.tables_running == 0, "its end")
        assert running.capture.status.restarts == 0
    assert len(records(scene)) == 3 * ROWS
    scene.wait_same(connection, "t", "t", ["k"])


def newest_rows(scene: CaptureScene) -> dict[bytes, bytes | None]:
    """The last record of each key by its place in the log, whatever its partition."""
    newest: dict[bytes, tuple[str, bytes | None]] = {}
    for record in records(scene):
        lsn = next(header["value"].decode() for header in record["headers"] if header["key"] == "lsn")
        if lsn >= newest.get(record["key"], ("", None))[0]:
            newest[record["key"]] = (lsn, record["value"])
    return {key: value for key, (_, value) in newest.items()}


def test_a_topic_gets_more_partitions(within: Within, scene: CaptureScene, connection: Connection) -> None:
    """Keys move, some to an earlier partition. What their former partition has was taken for their last value: updates
    got old TOAST values, and a new snapshot deleted their rows."""
    connection.execute(DOCS.encode())
    topic = f"{scene.prefix}.public.t"
    with within(partitions=2) as running:
        running.reaches(running.is_ready, "ready")
    scene.topics.client.admin.create_partitions({topic: 3})
    with within() as running:
        running.reaches(running.is_ready, "ready")
        connection.execute("update t set v = 1, doc = repeat(md5((-k)::text), 80)")
        running.reaches(lambda: len(records(scene)) == 2 * ROWS, "the rows in their new partitions")
    with within() as running:
        running.reaches(running.is_ready, "ready")
        connection.execute("update t set v = 2")
        running.reaches(lambda: len(records(scene)) == 3 * ROWS, "rows without their large values")
        connection.execute(REQUEST, (request_text(running.capture.options.name, "public.t"), 1))
        running.reaches(lambda: len(records(scene)) >= 4 * ROWS, "the table again")
        running.reaches(lambda: running.capture.status.tables_running == 0, "its end")
    rows = [None if value is None else scene.topics.decoded(value) for value in newest_rows(scene).values()]
    table = connection.execute("select k, v, doc, note from t order by k").fetchall()
    assert sorted((tuple(row.values()) for row in rows if row is not None), key=lambda row: row[0]) == table


def test_a_table_is_dropped_while_a_session_starts(
    within: Within, scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed already. The capture ended, as for a table that cannot be captured."""
    connection.execute("create table t (k int primary key); create table u (k int primary key)")
    with within(tables=()) as running:
        running.reaches(running.is_ready, "ready")
    create = Delivery.create_topics

    def drops(self: Delivery, names: Sequence[str]) -> None:
        connection.execute("drop table if exists u")
        create(self, names)

    monkeypatch.setattr(Delivery, "create_topics", drops)
    with within(tables=()) as running:
        running.reaches(running.is_ready, "ready")
        connection.execute("insert into t values (1)")
        running.reaches(lambda: len(records(scene)) == 1, "the row")


def test_requests_without_end_delay_neither_ready_nor_other_tables(
    within: Within, scene: CaptureScene, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of the table meets the next request, so it is never complete."""
    connection.execute("create table t (k int primary key); insert into t select generate_series(1, 100)")
    connection.execute("create table u (k int primary key); insert into u select generate_series(1, 100)")
    make_slot(connection, scene)
    start_reading, readings = Snapshots.start_reading, []

    with within(tables=("t", "u"), chunk_rows=10) as running:
        name = running.capture.options.name

        def requested(self: Snapshots, table: str) -> None:
            start_reading(self, table)
            if table == "public.t":
                connection.execute(REQUEST, (request_text(name, table), 1))
                if "public.u" in self._repeated and self.states["public.u"].running:
                    readings.append(table)

        monkeypatch.setattr(Snapshots, "start_reading", requested)
        running.reaches(running.is_ready, "ready")
        assert len(records(scene, "u")) == 100
        with psycopg.connect(scene.options["dsn"], autocommit=True) as other:
            other.execute(REQUEST, (request_text(name, "public.u"), 1))
        running.reaches(lambda: len(records(scene, "u")) == 200, "the other table, as requested")
        assert running.capture.status.restarts == 0
    assert len(readings) <= 2
