"""A capture as a process of its own, to be killed; and its topics folded, beside the tables they should equal."""

from __future__ import annotations

import io
import json
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import fastavro
import psycopg

from suiro.client import EARLIEST, LATEST, Client
from suiro.connect import CaptureOptions, PostgresCapture
from suiro.connect.postgres.encoding import engine
from suiro.protocol import columnar
from suiro.registry import RegistryClient
from support.forking import Forked
from support.postgres import Postgres
from support.waiting import wait_until

Row = dict[str, Any]
Connection = psycopg.Connection[Any]

ROWS = 2_000
DOCS = f"""
create table t (k int primary key, v int, doc text, note text);
alter table t alter doc set storage external, alter note set storage external;
insert into t select g, 0, repeat(md5(g::text), 80), repeat(md5((-g)::text), 80) from generate_series(1, {ROWS}) g
"""
"""Rows whose values are TOASTed: an update does not send those that it leaves alone."""


class Capture:
    """`suiro capture postgres`; what it prints is in `events`."""

    def __init__(self, log: Path, **options: Any) -> None:
        # Into the disk cache: processes that are killed young would compile again and again.
        engine.load(timeout_s=None)
        self._log = log
        arguments = []
        for name, value in options.items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        with log.open("ab") as errors:
            self.process = Forked("capture", "postgres", *arguments, stderr=errors)
        self.events: list[Row] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def ready(self, deadline_s: float = 90.0) -> Row:
        def found() -> Row | None:
            assert self.process.poll() is None, self.said()
            return next((event for event in self.events if event["event"] == "ready"), None)

        event = wait_until(found, deadline_s, f"ready, of {self._log}")
        assert event is not None
        return event

    @property
    def is_ready(self) -> bool:
        return any(event["event"] == "ready" for event in self.events)

    def said(self) -> str:
        return self._log.read_text()

    def ended(self, deadline_s: float = 60.0) -> int:
        """Waits for its end by itself; the exit code."""
        return self.process.wait(deadline_s)

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self._end()
        return code

    def _end(self) -> None:
        self.process.wait(30)
        self._reader.join(10)


class Topics:
    """What a reader with read_committed sees of a capture's topics, from offset 0."""

    def __init__(self, bootstrap: str, registry: str) -> None:
        self.client = Client(bootstrap)
        self._registry = RegistryClient(registry)
        self._schemas: dict[int, Any] = {}

    def close(self) -> None:
        self.client.close()
        self._registry.close()

    def records(self, topic: str, *, headers: bool = False) -> list[Row]:
        """In the order of each partition: key, value, offset, timestamp and perhaps headers."""
        info = self.client.metadata([topic]).get(topic)
        found: list[Row] = []
        for partition in range(len(info.partitions) if info is not None else 0):
            place = (topic, partition)
            start = self.client.list_offsets({place: EARLIEST})[place].offset
            end = self.client.list_offsets({place: LATEST}, read_committed=True)[place].offset
            while start < end:
                fetched = self.client.fetch({place: start})[place]
                rows = columnar.decode(
                    fetched.data, start_offset=start, end_offset=end, aborted=fetched.aborted, headers=headers
                )
                found += rows.batch.to_pylist()
                start = rows.next_offset
        return found

    def fold(self, topic: str, columns: Iterable[str] = ()) -> dict[tuple[Any, ...], Row]:
        """The rows of a table, by key: the last value of each, read by the schema with these columns. (A table that
        gets an earlier form back has its earlier schema, and the newest is another one.) Else by the newest."""
        last: dict[bytes, bytes] = {}
        for record in self.records(topic):
            if record["value"] is None:
                last.pop(record["key"], None)
            else:
                last[record["key"]] = record["value"]
        newest = self._reader(f"{topic}-value", last.values(), set(columns)) if last else None
        folded = {}
        for key, value in last.items():
            row = self.decoded(value, newest)
            folded[tuple(self.decoded(key).values())] = row
        assert len(folded) == len(last), "two keys in bytes are one in values"
        return folded

    def history(self, topic: str, key: tuple[Any, ...]) -> str:
        """The last records of one key, for what a failed test says."""
        lines = [f"{key}:"]
        for record in self.records(topic, headers=True):
            if tuple(self.decoded(record["key"]).values()) == key:
                value = None if record["value"] is None else self.decoded(record["value"])
                cut = value and {name: str(cell)[:40] for name, cell in value.items()}
                lines.append(f"  {record['offset']} {[header['value'].decode() for header in record['headers']]} {cut}")
        return "\n".join([lines[0], *lines[1:][-12:], ""])

    def decoded(self, data: bytes, reader: Any = None) -> Row:
        assert data[0] == 0
        writer = self._schema(int.from_bytes(data[1:5], "big"))
        row = fastavro.schemaless_reader(io.BytesIO(data[5:]), writer, reader)
        assert isinstance(row, dict)
        return row

    def _reader(self, subject: str, values: Iterable[bytes], columns: set[str]) -> Any:
        ids = [self._registry.latest(subject).id, *{int.from_bytes(value[1:5], "big") for value in values}]
        schemas = [self._schema(one) for one in ids]
        fitting = (one for one in schemas if {field["name"] for field in one["fields"]} == columns)
        return next(fitting, schemas[0])

    def _schema(self, schema_id: int) -> Any:
        if schema_id not in self._schemas:
            self._schemas[schema_id] = fastavro.parse_schema(json.loads(self._registry.schema(schema_id).text))
        return self._schemas[schema_id]


class CaptureScene:
    """A capture's surroundings, on the node or on an Apache Kafka."""

    def __init__(self, bootstrap: str, registry: str, dsn: str, prefix: str, log: Path) -> None:
        self.options = {"dsn": dsn, "bootstrap": bootstrap, "registry": registry, "topic_prefix": prefix}
        self.topics = Topics(bootstrap, registry)
        self.prefix = prefix
        self._log = log
        self.captures: list[Capture] = []

    def start(self, **options: Any) -> Capture:
        self.captures.append(Capture(self._log, **(self.options | {"heartbeat": 0.5} | options)))
        return self.captures[-1]

    def started(self, **options: Any) -> Capture:
        """One that has all tables' snapshots."""
        capture = self.start(**options)
        capture.ready()
        return capture

    def within_options(self, **options: Any) -> dict[str, Any]:
        """Those of `CaptureOptions`."""
        given = {name: self.options[name] for name in ("dsn", "registry", "topic_prefix")}
        return given | {"bootstrap_servers": self.options["bootstrap"], "heartbeat_s": 0.5} | options

    def within(self, **options: Any) -> CaptureWithin:
        return CaptureWithin(**self.within_options(**options))

    def wait_same(self, connection: Connection, table: str, query: str, key: list[str]) -> None:
        """Until the topic is what the query gives."""
        said = ""

        folded: dict[Any, Row] = {}
        rows: dict[Any, Row] = {}

        def compared() -> bool:
            nonlocal said, folded, rows
            rows = table_rows(connection, query, key)
            folded = self.topics.fold(f"{self.prefix}.public.{table}", next(iter(rows.values()), ()))
            said = difference(folded, rows)
            return not said

        try:
            wait_until(compared, 300, f"the topic of {table}")
        except AssertionError as error:
            wrong = first_difference(folded, rows)
            history = "" if wrong is None else self.topics.history(f"{self.prefix}.public.{table}", wrong)
            raise AssertionError(f"{error}\n{said}\n{history}{self.captures[-1].said()[-3000:]}") from None

    def close(self) -> None:
        for capture in self.captures:
            if capture.process.poll() is None:
                capture.kill()
        self.topics.close()


def make_slot(connection: Connection, scene: CaptureScene) -> None:
    """As the guide says for failover: the slot has exported no snapshot, so tables are read beside the stream."""
    connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (f"suiro_{scene.prefix}",))


def records(scene: CaptureScene, table: str = "t") -> list[Row]:
    return scene.topics.records(f"{scene.prefix}.public.{table}", headers=True)


def in_the_middle(scene: CaptureScene, postgres: Postgres, statement: str, *, rows: int = 1) -> None:
    """Once so many rows are in the topic the table is locked, so no range is read until the statement has run."""
    wait_until(lambda: len(records(scene)) >= rows, 60, "the first rows")
    with psycopg.connect(postgres.dsn, dbname=scene.prefix) as other:
        other.execute("lock table t in access exclusive mode")
        assert len(records(scene)) < ROWS, "too late: the table was read"
        other.execute(statement.encode())


def killed(scene: CaptureScene, capture: Capture, connection: Connection) -> None:
    capture.kill()
    free = "select not active from pg_replication_slots where slot_name = %s"
    wait_until(lambda: connection.execute(free, (f"suiro_{scene.prefix}",)).fetchone() == (True,), 60, "a free slot")


def dsn_of(postgres: Postgres, database: str) -> str:
    return dsn_at(postgres.dsn, database)


def dsn_at(dsn: str, database: str) -> str:
    return dsn.replace("/postgres?", f"/{database}?")


def table_rows(connection: psycopg.Connection[Any], table: str, key: list[str]) -> dict[tuple[Any, ...], Row]:
    """`SELECT *`, by key."""
    cursor = connection.execute(f"select * from {table}")
    assert cursor.description is not None
    names = [column.name for column in cursor.description]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows)
    return found


def first_difference(folded: dict[Any, Row], table: dict[Any, Row]) -> Any:
    """A key whose rows are not the same."""
    return next(
        (
            one
            for one in folded.keys() | table.keys()
            if sorted(folded.get(one, {}).items(), key=repr) != sorted(table.get(one, {}).items(), key=repr)
        ),
        None,
    )


def difference(folded: dict[Any, Row], table: dict[Any, Row]) -> str:
    """Empty where both are the same."""
    lines = [f"not in the topic: {key}" for key in list(table.keys() - folded.keys())[:5]]
    lines += [f"only in the topic: {key}" for key in list(folded.keys() - table.keys())[:5]]
    for key in folded.keys() & table.keys():
        if repr(sorted(folded[key].items())) != repr(sorted(table[key].items())) and len(lines) < 12:
            wrong = {
                name: (str(folded[key].get(name))[:60], str(table[key].get(name))[:60])
                for name in folded[key].keys() | table[key].keys()
                if repr(folded[key].get(name)) != repr(table[key].get(name))
            }
            lines.append(f"{key}: topic, table: {wrong}")
    return "\n".join(lines)


class CaptureWithin:
    """A capture on a thread of the test's process, where something of it can be replaced."""

    def __init__(self, **options: Any) -> None:
        self.events: list[Row] = []
        self.capture = PostgresCapture(CaptureOptions(**options), on_event=self.events.append)
        self.failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.capture.stop()
        self._thread.join(60)
        assert not self._thread.is_alive(), "it does not stop"

    def reaches(self, condition: Callable[[], object], what: str, deadline_s: float = 60.0) -> None:
        """Waits; an error of the capture is the test's."""
        wait_until(lambda: self.failed is not None or condition(), deadline_s, what)
        if self.failed is not None:
            raise self.failed

    def is_ready(self) -> bool:
        return any(event["event"] == "ready" for event in self.events)

    def _run(self) -> None:
        try:
            self.capture.run()
        except BaseException as error:
            self.failed = error
