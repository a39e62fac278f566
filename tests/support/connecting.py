"""Connectors under test: a configuration from TOML text, a running runtime, and what topics hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from suiro.client import EARLIEST, LATEST, Client, TopicPartition
from suiro.connect import Runtime, read_configuration, sink_task
from suiro.connect.sources import webhook
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from support.forking import Forked
from support.waiting import wait_until


@contextmanager
def running(folder: Path, bootstrap_servers: str, text: str, **options: Any) -> Iterator[Runtime]:
    """The connectors of a TOML text, in this process."""
    runtime = Runtime(read_configuration(write(folder, bootstrap_servers, text)), first_backoff_ms=20, **options)
    # A stop waits for as long as these.
    with patch.object(sink_task, "FETCH_WAIT_MS", 50), patch.object(webhook, "POLL_S", 0.05):
        runtime.start()
        try:
            yield runtime
        finally:
            assert runtime.stop(), runtime.status()


def write(folder: Path, bootstrap_servers: str, text: str) -> Path:
    path = folder / "connectors.toml"
    shared = f'[connect]\nbootstrap_servers = "{bootstrap_servers}"\nlisten = "127.0.0.1:0"\n'
    path.write_text(text if "[connect]" in text else shared + text, encoding="utf-8")
    return path


class Running:
    """`suiro connect run` as a process of its own, to be killed."""

    def __init__(self, path: Path, *, environment: dict[str, str] | None = None) -> None:
        with (path.parent / "connect.log").open("ab") as errors:
            self._process = Forked("connect", "run", str(path), stderr=errors, env=environment)
        line = self._process.stdout.readline()
        assert line, (path.parent / "connect.log").read_text()
        self.url: str = json.loads(line)["url"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(30)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None


def state(runtime: Runtime, name: str) -> dict[str, Any]:
    return runtime.status(name)[0]


def reaches(runtime: Runtime, name: str, condition: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
    """The status of a connector once it is as wanted."""
    try:
        wait_until(lambda: condition(state(runtime, name)), what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {state(runtime, name)}") from None
    return state(runtime, name)


def send(
    client: Client,
    topic: str,
    values: list[Any],
    *,
    keys: list[str | None] | None = None,
    partition: int = 0,
    commit: bool | None = None,
) -> None:
    """One batch of JSON values (bytes and None as they are); `commit`: in a transaction that ends so."""
    records = [
        Record(
            offset=at,
            timestamp=1_700_000_000_000 + at,
            key=None if keys is None or keys[at] is None else str(keys[at]).encode(),
            value=value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
        )
        for at, value in enumerate(values)
    ]
    batch = encode_batch(records)
    if commit is None:
        client.produce({(topic, partition): batch})
        return
    producer = client.transaction(f"send-{topic}-{partition}")
    producer.init()
    producer.add_partitions([(topic, partition)])
    producer.produce([(topic, partition, batch, len(records))])
    producer.end(commit=commit)
    producer.init()


def committed(client: Client, topic: str) -> list[dict[str, Any]]:
    """Every committed record, by partition and offset: partition, offset, key, value, headers."""
    info = client.metadata([topic]).get(topic)
    if info is None:
        return []
    found: list[dict[str, Any]] = []
    for item in info.partitions:
        target: TopicPartition = (topic, item.partition)
        start = client.list_offsets({target: EARLIEST})[target].offset
        end = client.list_offsets({target: LATEST}, read_committed=True)[target].offset
        while start < end:
            part = client.fetch({target: start})[target]
            rows = columnar.decode(part.data, start_offset=start, end_offset=end, aborted=part.aborted, headers=True)
            for row in rows.batch.to_pylist():
                row["partition"] = item.partition
                row["headers"] = {header["key"]: header["value"] for header in row["headers"]}
                found.append(row)
            start = rows.next_offset
    return found


def values(client: Client, topic: str) -> list[Any]:
    """The JSON values of `committed`."""
    return [None if row["value"] is None else json.loads(row["value"]) for row in committed(client, topic)]
