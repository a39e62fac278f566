"""A node and an Apache Kafka with the same settings, one after the other, and plain sockets to both.

`Raw` sends requests that were encoded beforehand, so that the client costs little where single requests are
measured. `interleaved` runs a measurement on both sides in turns: what the machine does besides meets both.
"""

from __future__ import annotations

import os
import random
import socket
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess
from suiro.protocol.messages import API_KEYS, nested, read_response, request_class, write_request
from suiro.protocol.records import Record, encode_batch

Subject: TypeAlias = Literal["suiro", "kafka"]
SUBJECTS: tuple[Subject, ...] = ("suiro", "kafka")
KAFKA = "Apache Kafka 4.3.1"
Figures: TypeAlias = dict[str, dict[str, list[float]]]
"""Of each work, of each subject, the rounds."""


class Side:
    """One broker of the two, on a folder of its own."""

    def __init__(self, subject: Subject, directory: Path, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._process: KafkaProcess | NodeProcess
        if subject == "kafka":
            self._process = KafkaProcess.start(directory, settings=settings)
            self.data = self._process.data_directory
        else:
            self.data = directory
            self._process = NodeProcess.start(data=directory, settings=settings)
        self.bootstrap_servers = self._process.bootstrap_servers

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()

    def restart(self) -> None:
        if isinstance(self._process, KafkaProcess):
            self._process.restart()
        else:
            self._process.stop()
            self._process = NodeProcess.start(data=self.data, listen=self.bootstrap_servers, settings=self._settings)

    def stop(self) -> None:
        self._process.stop()


def interleaved(
    measure: Callable[[Side], Mapping[str, float]],
    *,
    rounds: int,
    settings: Mapping[str, str],
    only: Subject | None = None,
) -> Figures:
    """Each round starts both sides anew, one after the other."""
    figures: Figures = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for subject in (only,) if only else SUBJECTS:
            with tempfile.TemporaryDirectory(prefix="suiro-bench-", ignore_cleanup_errors=True) as name:
                side = Side(subject, Path(name) / "data", settings)
                try:
                    for work, value in measure(side).items():
                        figures[work][subject].append(value)
                finally:
                    side.stop()
    return figures


def ours_and_theirs(figures: Figures, work: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """With one side alone, it is its own peer."""
    ours, theirs = (figures[work][subject] for subject in SUBJECTS)
    return tuple(ours or theirs), tuple(theirs or ours)


class Raw:
    """One connection."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def receive(self) -> bytes:
        """One response without its length."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.receive()

    def call(self, request: Any) -> Any:
        data = self.ask(framed(request))
        return read_response(data, request.__api_key__, request.__version__)[1]

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = self.socket.recv(size)
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data


def framed(request: Any) -> bytes:
    body = write_request(request, correlation_id=1, client_id="benchmark")
    return len(body).to_bytes(4, "big") + body


def batch(records: int, record_bytes: int, *, keys: Sequence[int] | None = None, compression: int = 0) -> bytes:
    """Records of this size with random values, numbered keys where keys are given."""
    now_ms = time.time_ns() // 1_000_000
    chosen = [b"%016d" % key for key in keys] if keys is not None else [None] * records
    return encode_batch(
        [
            Record(offset=n, timestamp=now_ms, key=key, value=os.urandom(record_bytes - len(key or b"") - 10))
            for n, key in enumerate(chosen)
        ],
        compression=compression,
    )


def produce_frame(topic: str, partition: int, data: bytes) -> bytes:
    """A produce with acks=all."""
    kind = request_class(API_KEYS["produce"], 9)
    part = nested(kind, "PartitionProduceData")(index=partition, records=data)
    return framed(
        kind(
            transactional_id=None,
            acks=-1,
            timeout=timedelta(seconds=30),
            topic_data=(nested(kind, "TopicProduceData")(name=topic, partition_data=(part,)),),
        )
    )


def create_topic(raw: Raw, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create it, and wait until every partition has a leader."""
    kind = request_class(API_KEYS["create_topics"], 5)
    config = nested(kind, "CreatableTopicConfig")
    entry = nested(kind, "CreatableTopic")(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        assignments=(),
        configs=tuple(config(name=name, value=value) for name, value in configs.items()),
    )
    answer = raw.call(kind(topics=(entry,), timeout=timedelta(seconds=60), validate_only=False))
    if answer.topics[0].error_code != 0:
        raise RuntimeError(f"cannot create {topic}: {answer.topics[0].error_code.name}")
    kind = request_class(API_KEYS["metadata"], 9)
    asked = kind(
        topics=(nested(kind, "MetadataRequestTopic")(name=topic),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    until(
        lambda: [p.error_code for t in raw.call(asked).topics for p in t.partitions] == [0] * partitions,
        within_s=120,
    )


def end_offset(raw: Raw, topic: str, partition: int) -> int:
    """-1 while the broker has no answer."""
    kind = request_class(API_KEYS["list_offsets"], 5)
    part = nested(kind, "ListOffsetsPartition")(partition_index=partition, current_leader_epoch=-1, timestamp=-1)
    answer = raw.call(
        kind(
            replica_id=-1,
            isolation_level=0,
            topics=(nested(kind, "ListOffsetsTopic")(name=topic, partitions=(part,)),),
        )
    )
    (found,) = answer.topics[0].partitions
    return int(found.offset) if found.error_code == 0 else -1


def fill(raw: Raw, topic: str, batches: Sequence[bytes], *, megabytes: float, in_flight: int = 4) -> None:
    """Produce batches, drawn from these, into partition 0 until it has so much."""
    frames = [produce_frame(topic, 0, data) for data in batches]
    chance = random.Random(1)
    sent, waiting = 0, 0
    while sent < megabytes * 1_000_000:
        frame = chance.choice(frames)
        raw.send(frame)
        sent += len(frame)
        waiting += 1
        if waiting == in_flight:
            raw.receive()
            waiting -= 1
    for _ in range(waiting):
        raw.receive()


def until(is_true: Callable[[], bool], *, within_s: float, every_s: float = 0.005) -> float:
    """Wait; the seconds it took."""
    began = time.monotonic()
    while not is_true():
        if time.monotonic() - began > within_s:
            raise TimeoutError(f"it did not come true within {within_s:g} s")
        time.sleep(every_s)
    return time.monotonic() - began


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def recent(values: Iterable[float], count: int) -> list[float]:
    """The last ones: those before were the warm-up."""
    return list(deque(values, maxlen=count))
