"""kill -9 of `suiro connect run` at drawn moments: files to a topic, the topic to Postgres, Delta, Iceberg and Parquet.

The process is killed when something it does has gone on by a drawn number of steps: records in the topic, rows in
Postgres, commits of the Delta and Iceberg tables, files of the Parquet folder. At the end every row is in every place
once.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow.parquet as pq
import pytest
from support.connecting import Running, committed, values, write
from support.delta import read_delta
from support.iceberg import read_iceberg
from support.postgres import Postgres
from support.waiting import wait_until

from suiro.client import LATEST, Client

ROWS_PER_FILE = 400
BAD_EVERY = 50


def _configuration(name: str, dsn: str) -> str:
    shared = f'topics = ["{name}"]\nmax_records = 60\n'
    return f"""
[source.{name}]
kind = "files"
folder = "in"
topic = "{name}"
partitions = 3
key = "id"
types = {{ id = "long", amount = "double" }}
max_records = 40
interval_ms = 20
dead_letter_topic = "dead-{name}"

[sink.pg-{name}]
kind = "postgres"
dsn = "{dsn}"
table = "kill_rows"
key = ["id"]
{shared}
[sink.delta-{name}]
kind = "delta"
table = "delta"
linger_ms = 0
{shared}
[sink.delta-{name}.columns]
id = "long"
amount = "double"
file = "string"

[sink.iceberg-{name}]
kind = "iceberg"
table = "db.t"
catalog = {{ type = "sql", uri = "sqlite:///iceberg.db", warehouse = "iceberg" }}
linger_ms = 0
{shared}
[sink.iceberg-{name}.columns]
id = "long"
amount = "double"
file = "string"

[sink.parquet-{name}]
kind = "parquet"
folder = "parquet"
linger_ms = 0
{shared}
[sink.parquet-{name}.columns]
id = "long"
amount = "double"
file = "string"
"""


class _World:
    """What the pipeline has done so far, each a number that only grows."""

    def __init__(self, folder: Path, bootstrap_servers: str, dsn: str, name: str) -> None:
        self.folder, self.name = folder, name
        self.client = Client(bootstrap_servers)
        self.database = psycopg.connect(dsn, autocommit=True)
        self.database.execute(
            "CREATE TABLE kill_rows (id bigint PRIMARY KEY, amount float, file text, writes int DEFAULT 1)"
        )
        # An upsert would hide a second write of a row; this counts them.
        self.database.execute(
            "CREATE FUNCTION counted() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN NEW.writes := OLD.writes + 1; RETURN NEW; END'"
        )
        self.database.execute(
            "CREATE TRIGGER counting BEFORE UPDATE ON kill_rows FOR EACH ROW EXECUTE FUNCTION counted()"
        )

    def close(self) -> None:
        self.client.close()
        self.database.close()

    def topic(self) -> int:
        info = self.client.metadata([self.name]).get(self.name)
        if info is None:
            return 0
        wanted = {(self.name, item.partition): LATEST for item in info.partitions}
        return sum(found.offset for found in self.client.list_offsets(wanted).values())

    def postgres(self) -> int:
        (count,) = self.database.execute("SELECT count(*) FROM kill_rows").fetchone() or (0,)
        return int(count)

    def delta(self) -> int:
        return len(list((self.folder / "delta" / "_delta_log").glob("*.json")))

    def iceberg(self) -> int:
        return len(list((self.folder / "iceberg" / "db" / "t" / "metadata").glob("*.metadata.json")))

    def parquet(self) -> int:
        return len(list((self.folder / "parquet").glob("*.parquet")))


def _run(folder: Path, bootstrap_servers: str, dsn: str, name: str, *, seed: int, files: int, kills: int) -> None:
    draw = random.Random(seed)
    (folder / "in").mkdir()
    configuration = write(folder, bootstrap_servers, _configuration(name, dsn))
    world = _World(folder, bootstrap_servers, dsn, name)
    process: Running | None = None
    good: list[int] = []
    bad = 0
    steps: dict[str, tuple[Callable[[], int], int]] = {
        "topic": (world.topic, 150),
        "postgres": (world.postgres, 100),
        "delta": (world.delta, 4),
        "iceberg": (world.iceberg, 4),
        "parquet": (world.parquet, 4),
    }
    try:
        for number in range(files):
            path = folder / "in" / f"rows-{number}.csv"
            lines = ["id,amount,file\n"]
            for row in range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE):
                if row % BAD_EVERY == 7:
                    lines.append(f"{row},much,{path.name}\n")
                    bad += 1
                else:
                    lines.append(f"{row},{row / 2},{path.name}\n")
                    good.append(row)
            cut = draw.randrange(1, len(lines))
            path.write_text("".join(lines[:cut]))  # it grows while it is read
            for part in range(kills // files):
                process = process or Running(configuration)
                counter, most = steps[draw.choice(sorted(steps))]
                wanted = counter() + draw.randrange(1, most)
                if part == 0:
                    with path.open("a") as file:
                        file.write("".join(lines[cut:]))
                    if draw.random() < 0.5:
                        path.rename(path.with_name(f"rotated-{number}.csv"))
                _until(counter, wanted, world, len(good))
                process.kill()
                process = None
        process = Running(configuration)
        wait_until(lambda: _idle(world, len(good)), 60, what="everything to be everywhere")
        _check(world, good, bad)
        assert process.stop() == 0
        process = None
    finally:
        if process is not None:
            process.kill()
        world.close()


def _until(counter: Callable[[], int], wanted: int, world: _World, good: int) -> None:
    wait_until(lambda: counter() >= wanted or _idle(world, good), what="its doing something")


def _idle(world: _World, good: int) -> bool:
    """All of it is there; more of it would be a fault, which `_check` finds."""
    if world.postgres() < good:
        return False
    rows, _ = read_delta(world.folder / "delta")
    if len(rows) < good or len(read_iceberg(world.folder / "iceberg.db", "db.t")) < good:
        return False
    files = sorted((world.folder / "parquet").glob("*.parquet"))
    return sum(pq.read_metadata(path).num_rows for path in files) >= good


def _check(world: _World, good: list[int], bad: int) -> None:
    in_topic = values(world.client, world.name)
    assert sorted(value["id"] for value in in_topic) == good
    assert len(committed(world.client, f"dead-{world.name}")) == bad
    table = world.database.execute("SELECT id, amount, writes FROM kill_rows ORDER BY id").fetchall()
    assert table == [(row, row / 2, 1) for row in good]
    expected = [(row, row / 2) for row in good]
    lake, _ = read_delta(world.folder / "delta")
    assert sorted((row["id"], row["amount"]) for row in lake) == expected
    lake = read_iceberg(world.folder / "iceberg.db", "db.t")
    assert sorted((row["id"], row["amount"]) for row in lake) == expected
    paths = sorted((world.folder / "parquet").glob("*.parquet"))
    files: list[dict[str, Any]] = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert sorted((row["id"], row["amount"]) for row in files) == expected


def test_killed_at_drawn_moments(tmp_path: Path, suiro_node: Any, postgres: Postgres, unique: str) -> None:
    _run(tmp_path, suiro_node.bootstrap_servers, postgres.dsn, unique, seed=1, files=1, kills=2)


@pytest.mark.soak
def test_senders_of_webhooks_hear_200_only_for_what_is_there(tmp_path: Path, suiro_node: Any, unique: str) -> None:
    """Eight senders repeat every post until it is answered 200, while the process is killed under them."""
    port = _free_port()
    text = (
        f'[source.{unique}]\nkind = "webhook"\nlisten = "127.0.0.1:{port}"\nunsigned = true\nid_header = "X-Id"\n'
        f'topic = "{unique}"\npartitions = 2\n'
    )
    configuration = write(tmp_path, suiro_node.bootstrap_servers, text)
    draw = random.Random(11)
    count, answered, ending = 1_500, set[int](), threading.Event()
    http = httpx.Client(verify=False, timeout=10, limits=httpx.Limits(max_keepalive_connections=0))

    def post(number: int) -> None:
        while not ending.is_set():
            try:
                answer = http.post(f"http://127.0.0.1:{port}/", content=str(number), headers={"X-Id": f"n{number}"})
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                answered.add(number)
                return

    process = Running(configuration)
    with Client(suiro_node.bootstrap_servers) as client, ThreadPoolExecutor(8) as pool:
        try:
            sent = [pool.submit(post, number) for number in range(count)]
            for _ in range(5):
                wanted = len(answered) + draw.randrange(1, 250)
                wait_until(lambda most=wanted: len(answered) >= most, 60, what="more answers")  # type: ignore[misc]
                process.kill()
                heard = set(answered)
                assert heard <= set(values(client, unique)), "answered with 200, and not there"
                process = Running(configuration)
            for one in sent:
                one.result(timeout=120)
        finally:
            ending.set()
            process.kill()
        assert sorted(values(client, unique)) == list(range(count))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 7))
def test_killed_often(
    tmp_path: Path, suiro_node: Any, tmp_path_factory: pytest.TempPathFactory, unique: str, seed: int
) -> None:
    server = Postgres(tmp_path_factory.mktemp("pg") / "data")
    try:
        _run(tmp_path, suiro_node.bootstrap_servers, server.dsn, unique, seed=seed, files=6, kills=24)
    finally:
        server.stop()
