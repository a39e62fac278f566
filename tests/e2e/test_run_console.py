"""`suiro run --console` and `suiro console --app`, both as commands: an application that is killed, and comes back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from suiro.client import Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.soak]

APP = """
from suiro.streams import Materialized, serdes

def build(builder):
    orders = builder.stream("orders", key=serdes.string, value=serdes.string)
    orders.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to("out", value=serdes.json)
"""
DEADLINE_S = 240


@contextmanager
def running(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        command = [sys.executable, "-m", "suiro", *arguments]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def said(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    def found() -> str | None:
        assert process.poll() is None, log.read_text()
        match = re.search(pattern, log.read_text())
        return match[1] if match else None

    return wait_until(found, DEADLINE_S, f"{pattern} in {log.name}") or ""


def produce(client: Client, keys: list[bytes]) -> None:
    now = int(time.time() * 1_000)  # of another year, retention would take them
    records = [Record(offset=n, timestamp=now, key=key, value=b"v") for n, key in enumerate(keys)]
    client.produce({("orders", 0): encode_batch(records)})


def test_an_application_is_seen_killed_and_seen_again(tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(APP)
    with NodeProcess.start(data=tmp_path / "log") as node, Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic(name, 1) for name in ("orders", "out")])
        produce(client, [b"a", b"b", b"a"])
        run = ("run", str(tmp_path / "counting.py"), "--bootstrap-servers", node.bootstrap_servers)
        run += ("--state-dir", str(tmp_path / "state"))
        with running(*run, "--console", "127.0.0.1:0", log=tmp_path / "first.log") as first:
            url = said(first, tmp_path / "first.log", r"console: (http\S+)")
            look = ("console", "--bootstrap-servers", node.bootstrap_servers, "--app", url)
            with running(*look, "--listen", "127.0.0.1:0", log=tmp_path / "console.log") as console:
                ready = json.loads(said(console, tmp_path / "console.log", r'(\{"event": "ready".*\})'))
                with httpx.Client(base_url=f"{ready['url']}/api/v1", timeout=60) as http:

                    def application() -> dict[str, Any]:
                        return http.get("/apps").json()["apps"][0]

                    def wait_for_rows(expected: dict[str, str], log: Path) -> None:
                        seen: Any = None

                        def are_there() -> bool:
                            nonlocal seen
                            seen = http.get("/apps/0/stores/counts").json()
                            return {row["key"]: row["value"] for row in seen.get("rows", ())} == expected

                        try:
                            wait_until(are_there, DEADLINE_S, "the rows", poll_s=0.5)
                        except AssertionError:
                            pytest.fail(f"last seen: {seen}, {application()}\n{log.read_text()[-4_000:]}")

                    wait_for_rows({"a": "2", "b": "1"}, tmp_path / "first.log")
                    row = {"key": "a", "window": None}
                    made = http.post("/apps/0/stores/counts/explain", json=row).json()
                    assert [(one["topic"], one["partition"], one["offset"]) for one in made["records"]] == [
                        ("orders", 0, 0),
                        ("orders", 0, 2),
                    ]
                    assert (made["value"], made["proven"]) == ("2", True)
                    (store,) = application()["stores"]
                    assert (store["rows"], store["bytes"] > 0) == (2, True)
                    assert (application()["held"], application()["batches"][-1]["retries"]) == ([], 0)
                    before = application()
                    assert (before["application_id"], before["state"], before["error"]) == (
                        "counting",
                        "RUNNING",
                        None,
                    )
                    assert [one["kind"] for one in before["graph"]["nodes"]].count("source") == 1
                    related = http.get("/topics/orders").json()["related"]
                    assert [(one["kind"], one["name"]) for one in related] == [("application", "counting")]
                    first.kill()
                    first.wait()
                    wait_until(lambda: application()["error"], DEADLINE_S, "the application's end is seen")
                    assert "no answer from" in application()["error"]
                    assert "state" not in application()
                    gone = http.get("/apps/0/stores/counts")
                    assert (gone.status_code, "no answer" in gone.json()["message"]) == (503, True)
                    assert http.get("/topics/orders").json()["related"] == []
                    produce(client, [b"a"])
                    again = urlsplit(url).netloc
                    with running(*run, "--console", again, log=tmp_path / "second.log"):
                        wait_for_rows({"a": "3", "b": "1"}, tmp_path / "second.log")
                        assert (application()["state"], application()["error"]) == ("RUNNING", None)
