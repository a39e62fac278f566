"""Records by file: what a client of this machine reads in the node's files is what any client is sent.

One node with small segments. Two clients read it: one takes files, one does not; and where a file cannot be had, the
first is sent the bytes as well.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from support.batches import read_all
from support.waiting import wait_until

from suiro.broker import node as broker_node
from suiro.broker.net import server
from suiro.client import LATEST, Client, Fetched, NewTopic
from suiro.client.connection import Connection
from suiro.node import InProcessNode, NodeProcess
from suiro.protocol.columnar import decode, encode
from suiro.protocol.file_regions import MOST_FILES, FileRegion, FileUnreachableError

RECORDS = 40_000
SETTINGS = {"log.cleaner.backoff.ms": "50", "log.segment.bytes": str(1 << 20)}
TIERED = {"remote.storage.enable": "true", "local.retention.bytes": "1", "retention.ms": "-1"}
AT_ONCE = 256 * 1024

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files are named by way of /proc")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    log = NodeProcess.start(data=tmp_path_factory.mktemp("log"), settings=SETTINGS)
    yield log
    log.stop()


@pytest.fixture
def by_file(node: NodeProcess) -> Iterator[Client]:
    with Client(node.bootstrap_servers) as client:
        yield client


@pytest.fixture
def by_wire(node: NodeProcess) -> Iterator[Client]:
    with Client(node.bootstrap_servers, settings={"fetch.from.files": "false"}) as client:
        yield client


def made(client: Client, topic: str, **configs: str) -> str:
    client.create_topics([NewTopic(topic, 1, configs={"segment.bytes": str(1 << 20)} | configs)])
    return topic


def written(client: Client, topic: str, *, keys: int = 1 << 62, first: int = 0) -> None:
    client.produce_many(batch[:3] for batch in batches_of(topic, keys=keys, first=first))


def batches_of(topic: str, *, keys: int = 1 << 62, first: int = 0) -> list[tuple[str, int, bytes, int]]:
    numbers = np.arange(first, first + RECORDS)
    batches = encode(
        keys=pa.array([b"%d" % (number % keys) for number in numbers.tolist()]),
        values=pa.array([b"%0100d" % number for number in numbers.tolist()]),
        timestamps=np.full(RECORDS, 1_700_000_000_000),
        partitions=np.zeros(RECORDS, np.int32),
        num_partitions=1,
        max_batch_bytes=16 * 1024,
    )
    return [(topic, batch.partition, batch.data, batch.count) for batch in batches]


def fetched(client: Client, topic: str, offset: int) -> Fetched:
    place = (topic, 0)
    return client.fetch({place: offset}, max_bytes=AT_ONCE, partition_max_bytes=AT_ONCE)[place]


def is_mapped(found: Fetched) -> bool:
    return isinstance(found.data.obj, mmap.mmap)


def test_both_read_the_same_and_one_of_them_in_the_files(by_file: Client, by_wire: Client) -> None:
    topic = made(by_file, "same")
    written(by_file, topic)
    mapped = at = 0
    while at < RECORDS:
        ours, theirs = fetched(by_file, topic, at), fetched(by_wire, topic, at)
        assert not is_mapped(theirs)
        assert (ours.data, ours.aborted) == (theirs.data, theirs.aborted)
        assert (ours.high_watermark, ours.last_stable_offset, ours.log_start_offset) == (RECORDS, RECORDS, 0)
        mapped += is_mapped(ours)
        at = decode(ours.data, start_offset=at, end_offset=RECORDS).next_offset
    assert mapped > 15
    # Of a few bytes nothing is gained.
    assert not is_mapped(fetched(by_file, topic, RECORDS - 1))


def test_what_is_open_or_aborted_is_no_more_to_be_had_than_over_the_wire(by_file: Client, by_wire: Client) -> None:
    topic = made(by_file, "transactions")
    producer = by_wire.transaction("files")
    for commit, first in ((False, 0), (True, RECORDS), (None, 2 * RECORDS)):
        producer.init()
        producer.produce(batches_of(topic, first=first))
        if commit is not None:
            producer.end(commit=commit)
    committed = [f"{number:0100d}" for number in range(RECORDS, 2 * RECORDS)]
    assert is_mapped(fetched(by_file, topic, 0))
    assert read_all(by_file, topic) == read_all(by_wire, topic) == committed
    end = by_file.list_offsets({(topic, 0): LATEST}, read_committed=True)[topic, 0].offset
    assert len(fetched(by_file, topic, end).data) == 0
    producer.end(commit=False)


def test_a_mapped_part_outlives_its_segment(by_file: Client) -> None:
    topic = made(by_file, "gone")
    written(by_file, topic)
    found = fetched(by_file, topic, 0)
    before = bytes(found.data)
    assert is_mapped(found)
    by_file.delete_topics([topic])
    wait_until(lambda: topic not in by_file.metadata(), what="the topic to be gone")
    assert found.data == before


def test_a_file_that_was_named_is_held_until_the_next_request(
    node: NodeProcess, by_file: Client, by_wire: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile neither its descriptor nor its inode becomes another file's."""
    topic = made(by_file, "held")
    written(by_file, topic)
    expected = bytes(fetched(by_wire, topic, 0).data)
    original = FileRegion.map

    def late(region: FileRegion) -> memoryview:
        by_wire.delete_topics([topic])
        wait_until(lambda: topic not in by_wire.metadata(), what="the topic to be gone")
        for number in range(3):  # files that would take the numbers
            written(by_wire, made(by_wire, f"later-{number}"))
        assert region.descriptor in held(node.pid, topic)
        return original(region)

    monkeypatch.setattr(FileRegion, "map", late)
    assert fetched(by_file, topic, 0).data == expected
    by_file.metadata()
    wait_until(lambda: not held(node.pid, topic), what="the files to be let go of")


def test_and_no_longer_than_for_some_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads no more does not keep the disk of what was deleted."""
    for module in (broker_node, server):
        monkeypatch.setattr(module, "NAMED_FOR_MS", 1_000)
    topics = [f"idle-{number}" for number in range(MOST_FILES + 4)]
    with (
        InProcessNode.start(data=tmp_path, settings=SETTINGS) as node,
        Client(node.bootstrap_servers) as reader,
        Client(node.bootstrap_servers) as writer,
    ):
        batches = batches_of("")[:40]  # more than is asked for at once
        for topic in topics:
            made(writer, topic)
            writer.produce_many((topic, *batch[1:3]) for batch in batches)
        # The parts are let go of at once: they hold descriptors of this process as well.
        found = reader.fetch({(topic, 0): 0 for topic in topics}, partition_max_bytes=AT_ONCE).values()
        mapped = [is_mapped(part) for part in found]
        del found
        assert mapped.count(True) == MOST_FILES
        writer.delete_topics(topics)
        wait_until(lambda: not any(held(os.getpid(), topic) for topic in topics), 30, "the files to be let go of")


def held(pid: int, topic: str) -> list[int]:
    """Descriptors of the node's of the topic's deleted log files."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed since
            name = os.readlink(entry)
            if f"/{topic}-0" in name and ".log" in name:
                found.append(int(entry.name))
    return found


def test_what_is_only_in_the_remote_tier_is_mapped_too(
    tmp_path: Path,
) -> None:
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": (tmp_path / "tier").as_uri(),
        "remote.log.manager.task.interval.ms": "50",
        "log.retention.check.interval.ms": "50",
    }
    tiered = NodeProcess.start(data=tmp_path / "log", settings=SETTINGS | settings)
    try:
        with Client(tiered.bootstrap_servers) as client:
            topic = made(client, "tiered", **TIERED)
            written(client, topic)
            first = tmp_path / "log" / f"{topic}-0" / f"{0:020d}.log"
            wait_until(lambda: not first.exists(), what="the first segment to be in the tier only")
            # It takes a second fetch where the tier takes longer than the node waits for it.
            wait_until(lambda: len(fetched(client, topic, 0).data), what="records out of the tier")
            found = fetched(client, topic, 0)
            assert is_mapped(found)
            rows = decode(found.data, start_offset=0, end_offset=RECORDS).batch.column("value").to_pylist()
            assert rows == [b"%0100d" % number for number in range(len(rows))]
    finally:
        tiered.stop()


def test_compaction_between_the_reads_loses_nothing(by_file: Client, by_wire: Client) -> None:
    topic = made(by_file, "compacted", **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    latest: dict[bytes, bytes] = {}
    for turn in range(3):
        written(by_wire, topic, keys=1_000, first=turn * RECORDS)
        at, end = 0, (turn + 1) * RECORDS
        seen: dict[bytes, bytes] = {}
        while at < end:
            found = fetched(by_file, topic, at)
            decoded = decode(found.data, start_offset=at, end_offset=end)
            columns = (decoded.batch.column(name).to_pylist() for name in ("key", "value"))
            seen.update(zip(*columns, strict=True))
            at = decoded.next_offset
        latest = {b"%d" % (number % 1_000): b"%0100d" % number for number in range(end - 1_000, end)}
        assert seen == latest


@pytest.mark.parametrize(
    "wrong", [{"inode": 1}, {"descriptor": 1_000_000}, {"process": 0}, {"head": b"x" * 61}], ids=str
)
def test_a_file_that_cannot_be_had_is_sent(
    wrong: dict[str, Any], by_file: Client, by_wire: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = made(by_file, f"missed-{next(iter(wrong))}")
    written(by_file, topic)
    told: list[FileRegion] = []
    original = FileRegion.map

    def is_away(region: FileRegion) -> memoryview:
        told.append(region)
        return original(region._replace(**wrong))

    monkeypatch.setattr(FileRegion, "map", is_away)
    assert fetched(by_file, topic, 0).data == fetched(by_wire, topic, 0).data
    assert len(told) == 1  # and now it does not ask any more
    assert fetched(by_file, topic, 0).data == fetched(by_wire, topic, 0).data
    assert len(told) == 1


def test_a_client_under_another_kernel_is_sent_the_bytes(by_file: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = made(by_file, "another-kernel")
    written(by_file, topic)
    assert is_mapped(fetched(by_file, topic, 0))
    monkeypatch.setattr("suiro.protocol.file_regions._kernel", lambda: uuid4().bytes)
    assert not is_mapped(fetched(by_file, topic, 0))


def test_a_client_of_another_machine_does_not_ask(by_file: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = made(by_file, "another-machine")
    written(by_file, topic)
    monkeypatch.setattr(Connection, "is_local", False)
    monkeypatch.setattr("suiro.client.fetch.file_regions.question", lambda: pytest.fail("it asked"))
    assert not is_mapped(fetched(by_file, topic, 0))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_another_user_is_sent_the_bytes(node: NodeProcess, by_file: Client) -> None:
    topic = made(by_file, "another-user")
    written(by_file, topic)
    program = f"""
import os
from suiro.client import Client
with Client({node.bootstrap_servers!r}) as client:
    # The first fetch is the node's own user's. It also loads all modules: the other user may not read them, where
    # Python lies in a private home directory.
    for user in (os.geteuid(), 65534):
        if user != os.geteuid():
            os.setgroups([]); os.setgid(user); os.setuid(user)
        place = ({topic!r}, 0)
        found = client.fetch({{place: 0}}, max_bytes={AT_ONCE}, partition_max_bytes={AT_ONCE})[place]
        print(type(found.data.obj).__name__, len(found.data))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    size = str(len(fetched(by_file, topic, 0).data))
    assert told.stdout.split() == ["mmap", size, "bytes", size], told.stderr


def test_a_region_says_only_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1024)
    with path.open("rb") as file:
        region = FileRegion.of(file.fileno(), 5_000, 100_000)
        again = FileRegion.from_bytes(region.tagged_fields()[5:])
        assert region.head == path.read_bytes()[5_000:5_061]
        assert again == region
        assert region.map() == path.read_bytes()[5_000:105_000]
        assert len(region.tagged_fields()) < 128  # its length is one byte
        with pytest.raises(FileUnreachableError, match="bytes, not"):
            region._replace(length=300_000).map()
        with pytest.raises(FileUnreachableError, match="not the node's file"):
            region._replace(device=region.device + 1).map()
        with path.open("ab") as more:
            more.write(b"x")  # an active segment grows behind the region
        assert region.map() == path.read_bytes()[5_000:105_000]
    with pytest.raises(ValueError, match="a file region of 3 bytes"):
        FileRegion.from_bytes(b"abc")
