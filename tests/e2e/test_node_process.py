"""The node as users run it: a process of its own, clients that we did not write, and kill -9."""

from __future__ import annotations

import json
import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.waiting import wait_until

from suiro.config import STANDARD_AUTHORIZER
from suiro.errors import ConfigError
from suiro.node import InProcessNode, NodeProcess

DEADLINE_S = 30.0


@pytest.fixture
def running(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess.start(data=tmp_path / "data", log=tmp_path / "node.log") as process:
        yield process


def consume(bootstrap: str, topic: str, count: int, *, committed: bool = True, group: str | None = None) -> list[bytes]:
    """`count` values of a topic from its start, and proof that no more come before the partitions' ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group or f"group-{uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    partitions = len(consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions)
    consumer.subscribe([topic])
    values: list[bytes] = []
    ended: set[int] = set()

    def done() -> bool:
        for message in consumer.consume(500, 0.05):
            if message.error():
                ended.add(message.partition())
            else:
                ended.discard(message.partition())
                values.append(message.value())
        return len(values) >= count and len(ended) == partitions

    try:
        wait_until(done, DEADLINE_S, f"{count} records of {topic}")
    finally:
        consumer.close()
    return values


def produce(producer: Producer, topic: str, values: range) -> list[int]:
    """Produce numbers; returns those that were acknowledged."""
    acknowledged: list[int] = []

    for number in values:

        def delivered(error: object, message: object, number: int = number) -> None:
            if error is None:
                acknowledged.append(number)

        producer.produce(topic, key=str(number), value=str(number), on_delivery=delivered)
    producer.flush(DEADLINE_S)
    return acknowledged


def transactional(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings}  # type: ignore[dict-item]
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(DEADLINE_S)


def test_what_is_produced_is_consumed_by_a_group(running: NodeProcess) -> None:
    create(running.bootstrap_servers, "t", 4)
    producer = Producer({"bootstrap.servers": running.bootstrap_servers, "enable.idempotence": True})
    assert len(produce(producer, "t", range(5000))) == 5000
    values = consume(running.bootstrap_servers, "t", 5000)
    assert sorted(map(int, values)) == list(range(5000))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_pass_through(running: NodeProcess, codec: str) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap_servers, "compression.type": codec})
    assert len(produce(producer, "auto-created", range(500))) == 500
    assert len(consume(running.bootstrap_servers, "auto-created", 500)) == 500


def test_committed_offsets_and_two_members_share_a_topic(running: NodeProcess) -> None:
    create(running.bootstrap_servers, "t", 4)
    settings = {
        "bootstrap.servers": running.bootstrap_servers,
        "group.id": "shared",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 100,
    }
    first, second = Consumer(settings), Consumer(settings)
    try:
        for consumer in (first, second):
            consumer.subscribe(["t"])

        def shared() -> bool:
            for consumer in (first, second):
                consumer.poll(0.02)
            return {len(first.assignment()), len(second.assignment())} == {2}

        wait_until(shared, DEADLINE_S, "each member has two partitions")
        first.commit(offsets=[TopicPartition("t", first.assignment()[0].partition, 17)], asynchronous=False)
        committed = second.committed([TopicPartition("t", index) for index in range(4)], timeout=DEADLINE_S)
        assert sorted(place.offset for place in committed)[-1] == 17
        second.close()

        def alone() -> bool:
            first.poll(0.02)
            return len(first.assignment()) == 4

        wait_until(alone, DEADLINE_S, "the one that stays has all partitions")
    finally:
        first.close()


def test_transactions_commit_and_abort(running: NodeProcess) -> None:
    create(running.bootstrap_servers, "t", 2)
    producer = transactional(running.bootstrap_servers, "tx")
    for number in range(6):
        producer.begin_transaction()
        for index in range(10):
            producer.produce("t", value=f"{number}", partition=index % 2)
        producer.flush(DEADLINE_S)
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    assert sorted(consume(running.bootstrap_servers, "t", 30)) == sorted([b"0", b"2", b"4"] * 10)
    assert len(consume(running.bootstrap_servers, "t", 60, committed=False)) == 60


def test_everything_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "node.log"
    acknowledged: list[int] = []
    for round_number in range(4):
        with NodeProcess.start(data=data, log=log) as process:
            if round_number == 0:
                create(process.bootstrap_servers, "t", 3)
            producer = Producer(
                {
                    "bootstrap.servers": process.bootstrap_servers,
                    "enable.idempotence": True,
                    "message.timeout.ms": 1000,
                    "batch.num.messages": 50,
                    "reconnect.backoff.max.ms": 100,
                }
            )
            fresh: list[int] = []
            start = round_number * 100_000
            for number in range(start, start + 100_000):

                def delivered(error: object, _: object, number: int = number, fresh: list[int] = fresh) -> None:
                    if error is None:
                        fresh.append(number)

                producer.produce("t", key=str(number), value=str(number), on_delivery=delivered)
                producer.poll(0.001 if number % 20 == 0 else 0)
                if len(fresh) > 1000 * (round_number + 1):
                    break
            process.kill()  # in the middle of what is in flight
            producer.flush(DEADLINE_S)
            acknowledged += fresh
    assert len(acknowledged) > 1000
    with NodeProcess.start(data=data, log=log) as process:
        values = {int(value) for value in consume(process.bootstrap_servers, "t", len(acknowledged))}
    assert set(acknowledged) <= values


def test_a_transaction_caught_by_kill_9_ends_as_the_log_says(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "node.log"
    with NodeProcess.start(data=data, log=log) as process:
        create(process.bootstrap_servers, "t", 1)
        create(process.bootstrap_servers, "source", 1)
        producer = transactional(process.bootstrap_servers, "tx")
        group = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "g"})
        metadata = group.consumer_group_metadata()
        for value, commits in (("committed", True), ("caught", False)):
            producer.begin_transaction()
            producer.produce("t", value=value)
            producer.send_offsets_to_transaction(
                [TopicPartition("source", 0, 10 if commits else 20)], metadata, DEADLINE_S
            )
            if commits:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.flush(DEADLINE_S)
                process.kill()
        group.close()
    with NodeProcess.start(data=data, log=log) as process:
        successor = transactional(process.bootstrap_servers, "tx")  # fences, and so aborts what was open
        successor.begin_transaction()
        successor.produce("t", value="after")
        successor.commit_transaction(DEADLINE_S)
        assert consume(process.bootstrap_servers, "t", 2) == [b"committed", b"after"]
        reader = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "g"})
        (place,) = reader.committed([TopicPartition("source", 0)], timeout=DEADLINE_S)
        assert place.offset == 10
        reader.close()


def test_a_transaction_nobody_ends_is_aborted_at_its_timeout(running: NodeProcess) -> None:
    producer = transactional(running.bootstrap_servers, "tx", **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    producer.produce("t", value="late")
    producer.flush(DEADLINE_S)
    other = Producer({"bootstrap.servers": running.bootstrap_servers})
    produce(other, "t", range(1))
    assert consume(running.bootstrap_servers, "t", 1) == [b"0"]  # visible once the abort marker is written
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_S)


def test_a_clean_stop_is_quick_and_leaves_a_clean_directory(tmp_path: Path) -> None:
    process = NodeProcess.start(data=tmp_path / "data", log=tmp_path / "node.log")
    producer = Producer({"bootstrap.servers": process.bootstrap_servers})
    produce(producer, "t", range(100))
    consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "waits in a long poll"})
    consumer.subscribe(["t"])
    consumer.poll(0.2)
    assert process.stop() == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    consumer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_line_says_ready_and_obeys_signals(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "suiro", "node", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready.keys() == {"event", "bootstrap", "registry", "pid"}
        assert (ready["event"], ready["registry"], ready["pid"]) == ("ready", None, process.pid)
        socket.create_connection(("127.0.0.1", int(ready["bootstrap"].split(":")[1]))).close()
        process.send_signal(number)
        assert process.wait(5) == 0
        assert process.stderr is not None
        assert b"without --data, everything is removed" in process.stderr.readline()


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({}, True),
        ({"listeners": "PLAINTEXT://127.0.0.1:0,PLAINTEXT_OUT://0.0.0.0:0"}, True),
        ({"listeners": "PLAINTEXT://localhost:0"}, False),
        ({"listeners": "SASL_PLAINTEXT://0.0.0.0:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}, False),
        ({"authorizer.class.name": STANDARD_AUTHORIZER}, False),
        ({"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}, True),
    ],
)
def test_listeners_that_are_open_to_everybody_are_known(settings: dict[str, str], is_open: bool) -> None:
    mapped = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PLAINTEXT_OUT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    }
    listen = None if "listeners" in settings else "0.0.0.0:0"
    users = ["SCRAM-SHA-256=[name=alice,password=secret]"] if "SASL" in settings.get("listeners", "") else []
    with InProcessNode.start(listen=listen, settings={**mapped, **settings}, add_scram=users) as node:
        assert [one.host for one in node.broker.open_listeners] == ["0.0.0.0"] * is_open


@pytest.mark.parametrize("options", [[], ["--insecure"]])
def test_the_command_warns_of_them_unless_it_is_meant_so(tmp_path: Path, options: list[str]) -> None:
    with NodeProcess.start(listen="0.0.0.0:0", log=tmp_path / "log", options=options):
        warned = "open to everybody who reaches this machine" in (tmp_path / "log").read_text()
        assert warned == (not options)


def test_a_second_node_on_the_same_directory_is_refused(running: NodeProcess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another node is running on"):
        NodeProcess.start(data=tmp_path / "data", log=tmp_path / "second.log")
    assert running.is_running


def test_a_taken_port_is_refused(running: NodeProcess) -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        NodeProcess.start(listen=running.bootstrap_servers)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("log.segment.byte=5", "unknown setting; did you mean log.segment.bytes?"),
        ("ssl.provider=x", "a setting of Apache Kafka that a suiro node does not have"),
        ("num.partitions=none", "expected a whole number"),
        ("num.partitions=0", "must be between 1 and"),
        ("segment.bytes=1048576", "its node-wide default is log.segment.bytes"),
        ("nonsense", "expected NAME=VALUE"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "suiro", "node", "--listen", "127.0.0.1:0", "--set", setting],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert setting.split("=")[0] in done.stderr


def test_settings_from_a_properties_file(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("# ours\nnum.partitions=3\nlog.retention.hours = 2\n")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "suiro", "node", "--listen", "127.0.0.1:0"),
            *("--config", str(tmp_path / "server.properties"), "--set", "num.partitions=5"),
        ],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        bootstrap = json.loads(process.stdout.readline())["bootstrap"]
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "allow.auto.create.topics": True})
        topics = consumer.list_topics("fresh", timeout=DEADLINE_S).topics
        assert len(topics["fresh"].partitions) == 5
        consumer.close()
        process.terminate()
        assert process.wait(5) == 0


def frame(api_key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, 1) + b"x"
    return struct.pack(">i", len(header) + len(body)) + header + body


def connect(process: NodeProcess) -> socket.socket:
    host, _, port = process.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


def receive(sock: socket.socket) -> bytes:
    """One response frame."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = sock.recv(4 + int.from_bytes(data[:4], "big") - len(data) if len(data) >= 4 else 4 - len(data))
        assert part, "the node closed the connection"
        data += part
    return data[4:]


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", -5),
        struct.pack(">i", 2**31 - 1) + b"xx",
        struct.pack(">i", 3) + b"abc",
        frame(999, 0, 1),  # unknown API
        frame(0, 99, 1),  # unknown version
        frame(3, 12, 1, b"\xff" * 50),
        frame(1, 12, 1, b"\0\0\0"),
        frame(0, 9, 1, b"\0" * 7),
    ],
)
def test_garbage_closes_its_connection_with_one_log_line(running: NodeProcess, garbage: bytes) -> None:
    with connect(running) as bystander, connect(running) as bad:
        bad.sendall(garbage)
        assert is_closed(bad)
        bystander.sendall(frame(18, 0, 1))
        assert receive(bystander)
    lines = [line for line in running.log.read_text().splitlines() if "closing connection" in line]
    assert len(lines) == 1
    assert "Traceback" not in running.log.read_text()


def test_frames_arrive_in_any_pieces_and_are_answered_in_order(running: NodeProcess) -> None:
    with connect(running) as sock:
        for byte in frame(18, 0, 1):
            sock.sendall(bytes((byte,)))
        assert receive(sock)[:4] == struct.pack(">i", 1)
        sock.sendall(b"".join(frame(18, 0, number) for number in range(1000)))
        answers = [struct.unpack(">i", receive(sock)[:4])[0] for _ in range(1000)]
        assert answers == list(range(1000))


def test_an_unknown_version_of_api_versions_gets_the_list(running: NodeProcess) -> None:
    with connect(running) as sock:
        sock.sendall(frame(18, 77, 5))
        correlation_id, error, count = struct.unpack(">ihi", receive(sock)[:10])
        assert (correlation_id, error) == (5, 35)
        assert count == 1  # only what this API itself is spoken in, as Kafka (KIP-511)


def test_random_bytes_leave_the_node_serving(running: NodeProcess) -> None:
    chance = random.Random(20_260_101)
    for number in range(200):
        with connect(running) as sock:
            body = chance.randbytes(chance.randrange(200))
            sock.sendall(frame(chance.randrange(61), chance.randrange(14), number, body))
    half_open = [connect(running) for _ in range(20)]
    for sock in half_open:
        sock.sendall(struct.pack(">i", 50_000_000) + bytes(100))
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    assert len(produce(producer, "t", range(100))) == 100
    for sock in half_open:
        sock.close()
    assert "Traceback" not in running.log.read_text()


def test_deleted_topics_stay_deleted(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "node.log"
    with NodeProcess.start(data=data, log=log) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        for topic in ("kept", "gone"):
            create(process.bootstrap_servers, topic, 2)
        admin.delete_topics(["gone"])["gone"].result()
        assert not list(data.glob("gone-[01]"))
        process.kill()
    with NodeProcess.start(data=data, log=log) as process:
        found = AdminClient({"bootstrap.servers": process.bootstrap_servers}).list_topics(timeout=DEADLINE_S)
        assert set(found.topics) == {"kept"}


def test_the_node_loads_neither_arrow_nor_numba(running: NodeProcess) -> None:
    produce(Producer({"bootstrap.servers": running.bootstrap_servers}), "t", range(10))
    mapped = Path(f"/proc/{running.pid}/maps")
    if not mapped.exists():
        pytest.skip("no /proc here")
    assert not [name for name in ("pyarrow", "llvmlite", "numpy") if name in mapped.read_text()]


def test_a_node_does_not_outlive_the_program_that_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time; from suiro.node import NodeProcess; "
        f"node = NodeProcess.start(data={str(tmp_path / 'data')!r}, log={str(tmp_path / 'node.log')!r}); "
        "print(node.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    node = Path(f"/proc/{int(parent.stdout.readline())}")
    if not node.exists():
        pytest.skip("no /proc here")
    parent.kill()
    parent.wait()
    wait_until(lambda: "stopping" in (tmp_path / "node.log").read_text(), what="the node's clean stop")
    parent.stdin.close()
    parent.stdout.close()
