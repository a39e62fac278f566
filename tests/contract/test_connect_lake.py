"""The lake sinks: tables read back by another library, offsets in the table's own commit, whoever else writes."""

from __future__ import annotations

import datetime
import decimal
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import LogUnderTest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from support.connecting import committed, reaches, running, send, state
from support.delta import read_delta
from support.full_disk import no_space
from support.iceberg import metadata_of, read_iceberg
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.clock import SystemClock
from suiro.connect import About, SettingError, SinkBatch, SinkRecord
from suiro.connect.sinks import delta
from suiro.connect.sinks.delta import DeltaSink
from suiro.connect.sinks.iceberg import IcebergSink
from suiro.connect.sinks.parquet import ParquetSink
from suiro.errors import TransientError, UsageError
from suiro.protocol.records import Record, encode_batch

COLUMNS = """
n = "long"
name = "string"
price = "decimal(6,2)"
at = "timestamp"
day = "date"
ok = "boolean"
more = "json"
"""


@pytest.fixture(scope="session")
def log_under_test(suiro_node: Any) -> LogUnderTest:
    return LogUnderTest("node", suiro_node.bootstrap_servers)


@pytest.fixture
def topic(client: Client, unique: str) -> str:
    client.create_topics([NewTopic(unique, 2)])
    return unique


def section(kind: str, topic: str, columns: str = "", more: str = "") -> str:
    place = {
        "delta": 'table = "lake"',
        "parquet": 'folder = "lake"',
        "iceberg": 'table = "db.t"\ncatalog = { type = "sql", uri = "sqlite:///lake.db", warehouse = "lake" }',
    }[kind]
    text = f'[sink.{topic}]\nkind = "{kind}"\n{place}\ntopics = ["{topic}"]\nlinger_ms = 1\n{more}\n'
    return text + (f"[sink.{topic}.columns]\n{columns}" if columns else "")


def read(kind: str, folder: Path) -> list[dict[str, Any]]:
    if kind == "delta":
        rows, _ = read_delta(folder)
    elif kind == "iceberg":
        rows = read_iceberg(folder.with_suffix(".db"), "db.t")
    else:
        rows = [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_no_record_of_a_stranger_stops_the_sink_for_ever(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, kind: str
) -> None:
    """The reason quotes a value that fills a batch; text that is none in UTF-8; nanoseconds for milliseconds."""
    dead = f"dead-{unique}"
    client.create_topics([NewTopic(unique, 1, configs={"message.timestamp.after.max.ms": str((1 << 63) - 1)})])
    send(client, unique, [{"n": "x" * 700_000}])
    send(client, unique, [rb'{"\ud800": 1}', rb'{"name": "\ud800"}', {"name": "before", "n": 1}])
    late = Record(offset=0, timestamp=1_700_000_000 * 10**9, key=None, value=b'{"n": 2}')
    client.produce({(unique, 0): encode_batch([late])})
    send(client, unique, [{"n": 3}])
    text = section(kind, unique, COLUMNS, f'dead_letter_topic = "{dead}"')
    with running(tmp_path, bootstrap, text) as runtime:
        told = reaches(runtime, unique, lambda at: at["records"] == 6, "all records")
    assert (told["rejected"], told["restarts"]) == (4, 0)
    assert [row["n"] for row in read(kind, tmp_path / "lake")] == [1, 3]
    reasons = [row["headers"]["__connect.errors.exception.message"] for row in committed(client, dead)]
    assert all(len(reason) <= 1_100 for reason in reasons)
    for said, times in (
        (b"field 'n' is 'xxx", 1),
        (b"half of a surrogate pair", 2),
        (b"its timestamp is 17000", 1),
    ):
        assert sum(said in reason for reason in reasons) == times, reasons


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_records_become_rows_once_over_restarts(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str
) -> None:
    first = {
        "n": 1,
        "name": "ä",
        "price": 1.5,
        "at": "2024-01-02T03:04:05+01:00",
        "day": "2024-01-02",
        "ok": True,
    }
    send(client, topic, [first, None, {"more": {"a": [1]}}], keys=["a", "b", None], commit=True)
    send(client, topic, [{"n": 9}], commit=False)
    send(client, topic, [{"n": 2, "at": 1_000, "price": "12.30"}], partition=1)
    text = section(kind, topic, COLUMNS)
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 4, "four records")
    with running(tmp_path, bootstrap, text) as runtime:
        send(client, topic, [{"n": 3}])
        reaches(runtime, topic, lambda at: at["records"] == 1, "one more")
    rows = read(kind, tmp_path / "lake")
    assert [row["n"] for row in rows] == [1, None, None, 3, 2]
    utc = datetime.UTC
    assert rows[0] == {
        "n": 1,
        "name": "ä",
        "price": decimal.Decimal("1.50"),
        "at": datetime.datetime(2024, 1, 2, 2, 4, 5, tzinfo=utc),
        "day": datetime.date(2024, 1, 2),
        "ok": True,
        "more": None,
        "_topic": topic,
        "_partition": 0,
        "_offset": 0,
        "_timestamp": datetime.datetime.fromtimestamp(1_700_000_000, utc),
        "_key": "a",
    }
    assert (rows[1]["_key"], rows[1]["name"]) == ("b", None)
    assert json.loads(rows[2]["more"]) == {"a": [1]}
    assert rows[4]["price"] == decimal.Decimal("12.30")


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_without_columns_the_value_is_text(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str
) -> None:
    send(client, topic, [b"plain", b"\xff"])
    with running(tmp_path, bootstrap, section(kind, topic, more='format = "bytes"')) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
    assert [row["value"] for row in read(kind, tmp_path / "lake")] == ["plain", "\\xff"]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_offsets_are_kept_without_any_rows(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str
) -> None:
    """ "latest" is stored before there is a record, and a batch of dead letters is stored as well."""
    send(client, topic, [{"n": 1}])
    text = section(kind, topic, 'n = "long"', f'start = "latest"\ndead_letter_topic = "dead-{topic}"')
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["lag"] == 0, "no lag")
    send(client, topic, [{"n": "bad"}])
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "the bad one")
    send(client, topic, [{"n": 3}])
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "the good one")
    assert [row["n"] for row in read(kind, tmp_path / "lake")] == [3]
    assert len(committed(client, f"dead-{topic}")) == 1


def test_what_does_not_fit_is_put_aside(tmp_path: Path, bootstrap: str, client: Client, topic: str) -> None:
    bad = [
        {"n": "1"},
        {"n": 1 << 63},
        {"price": 10_000},
        {"price": 1.234},
        {"at": "soon"},
        {"day": 3},
        {"x": 1},
        [1],
    ]
    send(client, topic, [*bad, {"n": 1}])
    more = f'dead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, section("delta", topic, COLUMNS, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 9, "nine records")
    assert [row["n"] for row in read("delta", tmp_path / "lake")] == [1]
    dead = committed(client, f"dead-{topic}")
    assert [json.loads(row["value"]) for row in dead] == bad
    reasons = [row["headers"]["__connect.errors.exception.message"].decode() for row in dead]
    assert "field 'n' is '1', not of type long" in reasons[0]
    assert "columns has no x" in reasons[6]


def test_delta_keeps_offsets_over_checkpoints_and_beside_other_writers(
    tmp_path: Path, bootstrap: str, client: Client, topic: str
) -> None:
    text = section("delta", topic, 'n = "long"', 'metadata = false\nconfiguration = {"delta.checkpointInterval" = "3"}')
    for round_ in range(3):
        with running(tmp_path, bootstrap, text) as runtime:
            for number in range(3):
                send(client, topic, [{"n": round_ * 3 + number}])
                reaches(runtime, topic, lambda at, n=number: at["records"] == n + 1, "one more")
        table = DeltaTable(tmp_path / "lake")
        table.optimize.compact()
        write_deltalake(table, pa.table({"n": pa.array([100], pa.int64())}), mode="append")
    rows, transactions = read_delta(tmp_path / "lake")
    assert sorted(row["n"] for row in rows) == [*range(9), 100, 100, 100]
    assert transactions == {f"suiro-connect/{topic}/{topic}-0": 9}
    assert (tmp_path / "lake" / "_delta_log" / "_last_checkpoint").exists()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_commit_of_another_with_the_same_name_is_no_second_copy(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str
) -> None:
    """Two processes run the same sink; whichever commits first, every record is there once."""
    other = tmp_path / "other"
    other.mkdir()
    first = section(kind, topic, 'n = "long"')
    second = first.replace('"lake"', '"../lake"').replace("///lake.db", "///../lake.db")

    def is_there(number: int) -> bool:
        return number in {row["n"] for row in read(kind, tmp_path / "lake")}

    with running(tmp_path, bootstrap, first) as runtime:
        send(client, topic, [{"n": 0}])
        reaches(runtime, topic, lambda at: at["records"] == 1, "the table")
        with running(other, bootstrap, second):
            for number in range(1, 10):
                send(client, topic, [{"n": number}])
                wait_until(lambda n=number: is_there(n), what="the row")
    assert [row["n"] for row in read(kind, tmp_path / "lake")] == list(range(10))


def test_iceberg_keeps_offsets_beside_other_writers_and_without_old_snapshots(
    tmp_path: Path, bootstrap: str, client: Client, topic: str
) -> None:
    more = 'partition_by = ["n", "day(at)"]\nproperties = { "write.parquet.compression-codec" = "gzip" }\n'
    text = section("iceberg", topic, 'n = "long"\nat = "timestamp"', more)
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": "x"}
    for round_ in range(2):
        with running(tmp_path, bootstrap, text) as runtime:
            for number in range(2):
                send(client, topic, [{"n": round_ * 2 + number, "at": 1}])
                reaches(runtime, topic, lambda at, n=number: at["records"] == n + 1, "one more")
        table = load_catalog("default", **settings).load_table("db.t")
        table.append(pa.table({"n": pa.array([100], pa.int64()), "at": pa.nulls(1, pa.timestamp("us", "UTC"))}))
        table.maintenance.expire_snapshots().by_ids(
            [one.snapshot_id for one in table.snapshots() if one != table.current_snapshot()]
        ).commit()
    assert sorted(row["n"] for row in read_iceberg(tmp_path / "lake.db", "db.t")) == [0, 1, 2, 3, 100, 100]
    metadata = metadata_of(tmp_path / "lake.db", "db.t")
    assert len(metadata["snapshots"]) == 1
    assert metadata["properties"][f"suiro-connect.{topic}.{topic}-0"] == "4"
    assert "commit.retry.num-retries" not in metadata["properties"], "other writers keep their retries"
    assert [one["transform"] for one in metadata["partition-specs"][-1]["fields"]] == ["identity", "day"]


def test_offsets_of_iceberg_are_those_of_one_connector(tmp_path: Path) -> None:
    """Connector a.b with topic c had the property of connector a with topic b.c, and continued at its offset."""
    catalog = {"type": "sql", "uri": "sqlite:///lake.db", "warehouse": "lake"}
    settings = {"table": "db.t", "catalog": catalog, "columns": {"n": "long"}}

    def opened(name: str) -> IcebergSink:
        sink = IcebergSink(settings, About(name=name, folder=tmp_path, clock=SystemClock()))
        sink.open()
        return sink

    def put(sink: IcebergSink, topic: str, offset: int) -> None:
        first, following = ({(topic, partition): at for partition in range(2)} for at in (0, offset))
        sink.put(
            SinkBatch(
                records=[],
                first_offsets=first,
                next_offsets=following,
                reject=lambda *_: None,
                settle=lambda: None,
            )
        )

    put(opened("a.b"), "c", 7)
    other = opened("a")
    assert other.offsets([("b.c", 0)]) == {}
    put(other, "b.c", 3)
    again = opened("a.b")
    assert again.offsets([("c", 0), ("c", 1)]) == {("c", 0): 7, ("c", 1): 7}
    put(opened("a"), "b.d", 5)
    with pytest.raises(
        UsageError,
        match=r"set suiro-connect\.a%2Eb\.d-0 = 5, suiro-connect\.a%2Eb\.d-1 = 5 and remove "
        r"suiro-connect\.a\.b\.d-0, suiro-connect\.a\.b\.d-1,",
    ):
        opened("a.b").offsets([("d", 0), ("d", 1)])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_new_fields_become_columns(tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str) -> None:
    text = section(kind, topic, 'n = "long"', f'unknown_fields = "add"\ndead_letter_topic = "dead-{topic}"')
    send(client, topic, [{"n": 1}, {"n": 2, "who": "ann", "at": None}])
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
    send(client, topic, [{"n": "bad", "worse": 1}, {"n": 3, "who": {"id": 7}}, {"x y": 1}, {"Who": 1}])
    send(client, topic, [{"n": 4, "more": [1], "deep": 1.5, "ok": True}])
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 5, "five more")
    rows = read(kind, tmp_path / "lake")
    assert [row["n"] for row in rows] == [1, 2, 3, 4]
    assert rows[1]["who"] == "ann"
    assert (rows[2]["who"], rows[2].get("worse")) == ('{"id":7}', None), "the table's column keeps its type"
    assert (rows[3]["more"], rows[3]["deep"], rows[3]["ok"]) == ("[1]", 1.5, True)
    assert not any("worse" in row for row in rows), "a record that is rejected adds no column"
    dead = committed(client, f"dead-{topic}")
    reasons = [row["headers"]["__connect.errors.exception.message"].decode() for row in dead]
    assert "field 'n' is 'bad'" in reasons[0]
    assert "'x y' cannot be a column" in reasons[1]
    assert "'Who' cannot be a column next to 'who'" in reasons[2]


def test_a_second_parquet_sink_is_no_second_copy(tmp_path: Path, bootstrap: str, client: Client, topic: str) -> None:
    other = tmp_path / "other"
    other.mkdir()
    first = section("parquet", topic, 'n = "long"')
    second = first.replace('"lake"', '"../lake"')
    with running(tmp_path, bootstrap, first), running(other, bootstrap, second):
        for number in range(10):
            send(client, topic, [{"n": number}])
            wait_until(lambda n=number: n in {row["n"] for row in read("parquet", tmp_path / "lake")}, what="the row")
    assert [row["n"] for row in read("parquet", tmp_path / "lake")] == list(range(10))
    (tmp_path / "lake" / "_manifest.json").unlink()
    with running(tmp_path, bootstrap, first) as runtime:  # the manifest is made from the files
        reaches(runtime, topic, lambda at: at["lag"] == 0, "no lag")
    files = json.loads((tmp_path / "lake" / "_manifest.json").read_text())["files"]
    assert sum(entry["rows"] for entry in files) == 10
    assert files[-1]["offsets"] == {f"{topic}-0": 10}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_time_that_is_in_no_year_in_utc_is_put_aside(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str
) -> None:
    times = ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59Z"]
    send(client, topic, [{"at": at} for at in times])
    text = section(kind, topic, 'at = "timestamp"', f'dead_letter_topic = "dead-{topic}"')
    with running(tmp_path, bootstrap, text) as runtime:
        told = reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert told["rejected"] == 2
    (row,) = read(kind, tmp_path / "lake")
    assert row["at"] == datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_partition_whose_name_no_folder_can_have_is_put_aside(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str
) -> None:
    names = ["a", "x" * 300, "\u00e9" * 60, "b" * 200]
    send(client, topic, [{"name": name} for name in names])
    more = f'partition_by = ["name"]\ndead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, section(kind, topic, 'name = "string"', more)) as runtime:
        told = reaches(runtime, topic, lambda at: at["records"] == 4, "four records")
    assert (told["rejected"], told["restarts"]) == (2, 0)
    assert [row["name"] for row in read(kind, tmp_path / "lake")] == ["a", "b" * 200]


@pytest.mark.parametrize(("kind", "rejected"), [("delta", 1), ("iceberg", 0)])
def test_a_partition_is_put_aside_only_if_no_folder_can_have_its_name(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str, rejected: int
) -> None:
    """Delta writes a space as three characters."""
    send(client, topic, [{"name": name} for name in ("x" * 250, " " * 84)])
    more = f'partition_by = ["name"]\ndead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, section(kind, topic, 'name = "string"', more)) as runtime:
        told = reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
    assert (told["rejected"], told["restarts"]) == (rejected, 0)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("is_partitioned", [True, False])
def test_what_folders_are_named_by_is_told_by_the_table(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, kind: str, is_partitioned: bool
) -> None:
    """`partition_by` is of a table that the sink makes; somebody else may have made it."""

    def text(by: bool) -> str:
        more = f'dead_letter_topic = "dead-{topic}"\n' + ('partition_by = ["name"]' if by else "")
        return section(kind, topic, 'name = "string"', more)

    with running(tmp_path, bootstrap, text(is_partitioned)) as runtime:
        send(client, topic, [{"name": "a"}])
        reaches(runtime, topic, lambda at: at["records"] == 1, "a record")
    with running(tmp_path, bootstrap, text(not is_partitioned)) as runtime:
        send(client, topic, [{"name": "x" * 300}])
        told = reaches(runtime, topic, lambda at: at["records"] == 1, "another record")
    assert (told["rejected"], told["restarts"]) == (int(is_partitioned), 0)
    assert len(read(kind, tmp_path / "lake")) == 2 - is_partitioned


def test_a_bucket_has_folders_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "x" * 300
    schema = pa.schema([("name", pa.string())])
    table = SimpleNamespace(
        metadata=lambda: SimpleNamespace(configuration={}, partition_columns=["name"]),
        schema=lambda: SimpleNamespace(fields=list(schema), to_arrow=lambda: schema),
        update_incremental=lambda: None,
        transaction_version=lambda identifier: None,
    )
    written: list[pa.Table] = []
    monkeypatch.setattr(delta, "DeltaTable", lambda *_, **__: table)
    monkeypatch.setattr(delta, "write_deltalake", lambda table, rows, **_: written.append(rows))
    settings = {
        "table": "s3://lake/t", "partition_by": ["name"], "columns": {"name": "string"}, "metadata": False,
    }  # fmt: skip
    sink = DeltaSink(settings, About(name="s", folder=tmp_path, clock=SystemClock()))
    sink.open()
    rejected: list[str] = []
    record = SinkRecord(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=None, value={"name": long}, headers=(),
        raw_key=None, raw_value=b"",
    )  # fmt: skip
    sink.put(
        SinkBatch(
            records=[record], first_offsets={("t", 0): 0}, next_offsets={("t", 0): 1},
            reject=lambda record, reason: rejected.append(reason), settle=lambda: None,
        )
    )  # fmt: skip
    assert rejected == []
    assert written[0].to_pylist() == [{"name": long}]


def test_many_small_batches_do_not_write_the_manifest_anew_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    replace = Path.replace

    def replaced(self: Path, target: Path) -> Path:
        sizes.append(self.stat().st_size)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replaced)
    sink = ParquetSink({"folder": "lake"}, About(name="s", folder=tmp_path, clock=SystemClock()))
    sink.open()
    count = 200

    def put(number: int) -> None:
        sink.put(
            SinkBatch(
                records=[], first_offsets={("t", 0): number}, next_offsets={("t", 0): number + 1},
                reject=lambda record, reason: None, settle=lambda: None,
            )
        )  # fmt: skip

    for number in range(count):
        put(number)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        with pytest.raises(TransientError, match=r"cannot write to .*lake: .* No space left"):
            put(count)
    (files,) = json.loads((tmp_path / "lake" / "_manifest.json").read_text()).values()
    assert len(files) >= 0.98 * count - 1
    sink.close()
    (files,) = json.loads((tmp_path / "lake" / "_manifest.json").read_text()).values()
    assert [entry["offsets"]["t-0"] for entry in files] == list(range(1, count + 1))
    assert sum(sizes) < 60 * sizes[-1]  # not 100 times as much


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: DeltaTable.create(folder, pa.schema([("m", pa.int64())])), "has no column n"),
        (
            lambda folder: DeltaTable.create(
                folder,
                pa.schema([("n", pa.int64())]),
                configuration={"delta.setTransactionRetentionDuration": "interval 1 days"},
            ),
            "forgets the offsets",
        ),
    ],
)
def test_a_table_that_does_not_do_is_named(tmp_path: Path, bootstrap: str, topic: str, make: Any, said: str) -> None:
    make(tmp_path / "lake")
    with running(tmp_path, bootstrap, section("delta", topic, 'n = "long"', "metadata = false")) as runtime:
        told = reaches(runtime, topic, lambda at: at["error"], "an error")
    assert said in told["error"]


def test_a_folder_of_somebody_else_is_named(tmp_path: Path, bootstrap: str, topic: str) -> None:
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "lake" / "part-0.parquet")
    with running(tmp_path, bootstrap, section("parquet", topic)) as runtime:
        told = reaches(runtime, topic, lambda at: at["state"] == "FAILED", "failed")
        assert "was not written by this sink" in told["error"]
        assert state(runtime, topic)["records"] == 0


@pytest.mark.parametrize(
    ("made", "settings", "said"),
    [
        (DeltaSink, {"table": "t", "columns": {"n": "number"}}, "columns.n: expected one of string"),
        (DeltaSink, {"table": "t", "columns": {"n": "decimal(40,2)"}}, "1 to 38 digits"),
        (DeltaSink, {"table": "t", "partition_by": ["x"]}, "partition_by: there is no column 'x'"),
        (DeltaSink, {"columns": {}}, "table: is missing"),
        (DeltaSink, {"table": "t", "unknown_fields": "add", "metadata": False}, "columns: give at least one"),
        (IcebergSink, {"table": "t", "catalog": {}}, "table: expected NAMESPACE.TABLE, got 't'"),
        (IcebergSink, {"table": "a.t", "catalog": {}, "partition_by": ["day(x)"]}, "there is no column 'x'"),
        (
            IcebergSink,
            {"table": "a.t", "catalog": {}, "partition_by": ["week(_key)"]},
            "expected a column or one",
        ),
        (
            ParquetSink,
            {"folder": "x", "compression_of_files": "rar"},
            "compression_of_files: expected one of",
        ),
        (ParquetSink, {"folder": "x", "unknown_fields": "drop"}, "unknown_fields: expected"),
        (ParquetSink, {"folder": "x", "columns": {"_key": "string"}}, "columns._key: is a column of the metadata"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, made: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as raised:
        made(settings, About(name="x", folder=tmp_path, clock=SystemClock()))
    assert said in str(raised.value)
