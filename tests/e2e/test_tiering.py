"""A node whose old segments are in S3: moto's server stands in for it, as a process that can be stopped and go on.

The rules and every step of a death are tested with a directory in tests/unit/broker/tier; here are the real client,
the real protocol to S3 and the real Kafka client.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyarrow.fs import FileSelector, FileType, S3FileSystem
from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

from suiro.node import NodeProcess

VALUE = b"x" * 1000
RECORDS = 400
LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING_UPLOAD = -1, -2, -4, -5, -6


class S3:
    """A server and a bucket in it. The server starts when first needed, and may be stopped for a while."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port
        self.bucket = f"bucket-{uuid4().hex[:12]}"
        self.files = S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def make_bucket(self) -> None:
        self.files.create_dir(self.bucket)

    @property
    def settings(self) -> dict[str, str]:
        return {
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.uri": f"s3://{self.bucket}/tier?endpoint_override=127.0.0.1:{self.port}"
            "&scheme=http&region=us-east-1&connect_timeout=2&request_timeout=5",
            "remote.log.storage.access.key": "key",
            "remote.log.storage.secret.key": "secret",
            "remote.log.manager.task.interval.ms": "50",
            "remote.log.manager.task.retry.backoff.ms": "50",
            "remote.log.manager.task.retry.backoff.max.ms": "200",
            "remote.fetch.max.wait.ms": "200",
            "remote.log.read.ahead.bytes": "65536",
            "log.retention.check.interval.ms": "50",
        }

    def objects(self) -> list[str]:
        found = self.files.get_file_info(FileSelector(self.bucket, recursive=True, allow_not_found=True))
        return [info.path for info in found if info.type is FileType.File]

    def demand_credentials(self, after: str) -> None:
        """From so many requests on (`inf`: never) only known keys are let in, and none is known."""
        url = f"http://127.0.0.1:{self.port}/moto-api/reset-auth"
        request = urllib.request.Request(
            url, data=after.encode(), method="POST", headers={"Content-Type": "text/plain"}
        )
        urllib.request.urlopen(request).read()


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    wait_until(answers, 60, "moto's server")
    yield process, port
    process.kill()
    process.wait()


@pytest.fixture
def s3(server: tuple[subprocess.Popen[bytes], int]) -> S3:
    return S3(*server)


def create(bootstrap: str, topic: str, **configs: str) -> None:
    settings = {
        "remote.storage.enable": "true",
        "internal.segment.bytes": "60000",
        "retention.ms": "-1",
        "local.retention.bytes": "30000",
        **{name.replace("_", "."): value for name, value in configs.items()},
    }
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(30)


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 10})
    for number in range(first, first + count):
        producer.produce(topic, VALUE, key=str(number), timestamp=1_000_000 + number)
    assert producer.flush(30) == 0


def place(bootstrap: str, topic: str, timestamp: int) -> int:
    return look_up(bootstrap, topic, timestamp)["offset"]


def look_up(bootstrap: str, topic: str, timestamp: int) -> Any:
    partition = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    with Wire(bootstrap) as wire:
        answer = ask(wire, "list_offsets", 11, replica_id=-1, topics=[{"name": topic, "partitions": [partition]}])
    return answer["topics"][0]["partitions"][0]


def tiered(bootstrap: str, topic: str) -> bool:
    """All but the active segment is in the tier, and here is little more than that one."""
    return place(bootstrap, topic, EARLIEST_LOCAL) > place(bootstrap, topic, LATEST) - 130


def consume(bootstrap: str, topic: str, first: int, count: int) -> list[int]:
    """The keys from an offset on; every one must come in order, and no error at all."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, first)])
    found: list[int] = []
    ends = time.monotonic() + 30
    while len(found) < count and time.monotonic() < ends:
        for message in consumer.consume(1000, 0.1):
            assert message.error() is None
            assert message.value() == VALUE
            found.append(int(message.key()))
    consumer.close()
    return found


def test_old_records_are_read_from_s3_as_if_they_were_here(tmp_path: Path, s3: S3) -> None:
    s3.make_bucket()
    with NodeProcess.start(data=tmp_path / "node", settings=s3.settings) as node:
        bootstrap = node.bootstrap_servers
        create(bootstrap, "flights")
        produce(bootstrap, "flights", 0, RECORDS)
        wait_until(lambda: tiered(bootstrap, "flights"), what="the copy")
        local = place(bootstrap, "flights", EARLIEST_LOCAL)
        assert place(bootstrap, "flights", EARLIEST) == 0
        assert local <= place(bootstrap, "flights", LATEST_TIERED) + 1
        assert place(bootstrap, "flights", PENDING_UPLOAD) == place(bootstrap, "flights", LATEST_TIERED) + 1
        assert consume(bootstrap, "flights", 0, RECORDS) == list(range(RECORDS))
        assert consume(bootstrap, "flights", 33, RECORDS - 33) == list(range(33, RECORDS))
        found = look_up(bootstrap, "flights", 1_000_000 + 57)
        assert (found["error_code"], found["offset"], found["timestamp"]) == ("none", 57, 1_000_057)
        assert place(bootstrap, "flights", 1_000_000 + RECORDS) == -1
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics(["flights"])["flights"].result(30)
        wait_until(lambda: s3.objects() == [], what="the removal of the topic's objects")


def test_a_fetch_session_waits_for_the_store_and_goes_on(tmp_path: Path, s3: S3) -> None:
    s3.make_bucket()
    with (
        NodeProcess.start(data=tmp_path / "node", settings=s3.settings) as node,
        Wire(node.bootstrap_servers) as wire,
    ):
        create(node.bootstrap_servers, "flights")
        create(node.bootstrap_servers, "recent")
        produce(node.bootstrap_servers, "flights", 0, RECORDS)
        produce(node.bootstrap_servers, "recent", 0, 5)
        wait_until(lambda: tiered(node.bootstrap_servers, "flights"), what="the copy")
        s3.process.send_signal(signal.SIGSTOP)
        try:
            session, parts = fetch(wire, {"flights": 0, "recent": 0}, session=0, epoch=0)
            assert parts["flights"] == ("none", 0)
            assert parts["recent"][1] > 5 * len(VALUE)
        finally:
            s3.process.send_signal(signal.SIGCONT)

        def old_records() -> int:
            nonlocal epoch
            epoch += 1
            _, parts = fetch(wire, {"recent": 5}, session=session, epoch=epoch)
            return parts.get("flights", ("", 0))[1]

        epoch = 0
        assert wait_until(old_records, what="records of the store") > len(VALUE)
        epoch += 1
        _, parts = fetch(wire, {"flights": RECORDS - 1, "recent": 5}, session=session, epoch=epoch)
        assert parts["flights"][1] > len(VALUE)


def fetch(wire: Wire, offsets: dict[str, int], *, session: int, epoch: int) -> tuple[int, dict[str, tuple[str, int]]]:
    """(session, {topic: (error, bytes of records)}) of one fetch; each topic has one partition."""
    topics = [
        {
            "topic": topic,
            "partitions": [
                {
                    "partition": 0,
                    "fetch_offset": offset,
                    "partition_max_bytes": 1 << 20,
                    "current_leader_epoch": -1,
                    "last_fetched_epoch": -1,
                }
            ],
        }
        for topic, offset in offsets.items()
    ]
    answer = ask(wire, "fetch", 12, max_bytes=10 << 20, session_id=session, session_epoch=epoch, topics=topics)
    assert answer["error_code"] == "none"
    found = {
        topic["topic"]: (topic["partitions"][0]["error_code"], len(topic["partitions"][0]["records"] or b""))
        for topic in answer["responses"]
    }
    return answer["session_id"], found


def test_a_death_in_the_middle_of_copying_loses_nothing(tmp_path: Path, s3: S3) -> None:
    s3.make_bucket()
    slow = {**s3.settings, "remote.log.manager.copy.max.bytes.per.second": "200000"}
    node = NodeProcess.start(data=tmp_path / "node", settings=slow)
    create(node.bootstrap_servers, "flights")
    produce(node.bootstrap_servers, "flights", 0, RECORDS)
    wait_until(lambda: len(s3.objects()) > 8, what="a part of the copy")
    node.kill()
    with NodeProcess.start(data=tmp_path / "node", settings=s3.settings) as node:
        wait_until(lambda: tiered(node.bootstrap_servers, "flights"), what="the copy")
        assert consume(node.bootstrap_servers, "flights", 0, RECORDS) == list(range(RECORDS))
        logs = [name.split("/")[-1][:20] for name in s3.objects() if name.endswith(".log")]
        assert len(logs) == len(set(logs))


def test_a_compacted_topic_is_cleaned_in_s3_too(tmp_path: Path, s3: S3) -> None:
    s3.make_bucket()
    settings = {**s3.settings, "log.cleaner.backoff.ms": "50"}
    keys = 10
    with NodeProcess.start(data=tmp_path / "node", settings=settings) as node:
        bootstrap = node.bootstrap_servers
        create(bootstrap, "flights", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        for rounds in range(2):
            producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 10})
            for number in range(RECORDS):
                producer.produce("flights", VALUE + b"%d-%d" % (rounds, number), key=str(number % keys))
            assert producer.flush(30) == 0
            end = place(bootstrap, "flights", LATEST)
            what = f"the copy of what was cleaned up to near {end}"
            wait_until(lambda: place(bootstrap, "flights", LATEST_TIERED) > end - 130, what=what)  # noqa: B023
            wait_until(lambda: remote_bytes(s3) < 3 * keys * len(VALUE), what="what is left in S3")
        newest: dict[str, bytes] = {}
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid4().hex, "enable.partition.eof": True})
        consumer.assign([TopicPartition("flights", 0, 0)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            newest[message.key().decode()] = message.value()
        consumer.close()
        last = range(RECORDS - keys, RECORDS)
        assert newest == {str(number % keys): VALUE + b"1-%d" % number for number in last}


def remote_bytes(s3: S3) -> int:
    return sum(s3.files.get_file_info(name).size for name in s3.objects() if name.endswith(".log"))


def test_a_store_that_hangs_or_refuses_holds_up_nobody(tmp_path: Path, s3: S3) -> None:
    log = tmp_path / "log"
    with NodeProcess.start(data=tmp_path / "node", settings=s3.settings, log=log) as node:
        bootstrap = node.bootstrap_servers
        create(bootstrap, "flights")
        produce(bootstrap, "flights", 0, RECORDS)  # there is no bucket yet
        wait_until(lambda: "NO_SUCH_BUCKET" in log.read_text(), what="the first refusal")
        assert place(bootstrap, "flights", LATEST_TIERED) == -1
        assert place(bootstrap, "flights", EARLIEST_LOCAL) == 0
        s3.make_bucket()
        wait_until(lambda: tiered(bootstrap, "flights"), what="the copy")

        s3.demand_credentials("0")
        produce(bootstrap, "flights", RECORDS, RECORDS)
        wait_until(lambda: "ACCESS_DENIED" in log.read_text(), what="the second refusal")
        copied = place(bootstrap, "flights", LATEST_TIERED)
        assert copied < RECORDS
        assert consume(bootstrap, "flights", RECORDS, RECORDS) == list(range(RECORDS, 2 * RECORDS))
        s3.demand_credentials("inf")
        wait_until(lambda: place(bootstrap, "flights", LATEST_TIERED) > copied, what="the copy to go on")

        s3.process.send_signal(signal.SIGSTOP)
        try:
            code, records, took = fetch_once(bootstrap, "flights", 0)
            assert (code, records) == ("none", 0)
            assert took < 5
            produce(bootstrap, "flights", 2 * RECORDS, 10)
            assert consume(bootstrap, "flights", 2 * RECORDS, 10) == list(range(2 * RECORDS, 2 * RECORDS + 10))
        finally:
            s3.process.send_signal(signal.SIGCONT)
        everything = 2 * RECORDS + 10
        assert consume(bootstrap, "flights", 0, everything) == list(range(everything))


def fetch_once(bootstrap: str, topic: str, offset: int) -> tuple[str, int, float]:
    """(error, bytes of records, seconds) of one raw fetch without a session."""
    with Wire(bootstrap) as wire:
        begin = time.monotonic()
        _, parts = fetch(wire, {topic: offset}, session=0, epoch=-1)
        return *parts[topic], time.monotonic() - begin
