"""Fetch: raw record batches of many partitions, without a copy between the socket and the caller.

Versions 4 to 11, written and read by hand: they are plain structs, and the records, which are all of the weight,
are handed on as read-only views of the one `bytes` object that the kernel filled.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from suiro.client.cluster import Cluster, TopicPartition
from suiro.client.connection import Connection
from suiro.client.error_codes import error_for
from suiro.client.leaders import ask_leaders, by_topic
from suiro.errors import BrokenConnectionError, KafkaError, OffsetOutOfRangeError, SuiroError
from suiro.protocol.messages import API_KEYS, ErrorCode

__all__ = ["Fetched", "fetch"]

LOWEST_VERSION, HIGHEST_VERSION = 4, 11

_API_KEY = API_KEYS["fetch"]
_HEADER = struct.Struct(">hhih")
_LIMITS = struct.Struct(">iiiib")
_NO_SESSION = struct.pack(">ii", 0, -1)
_RESPONSE_STATE = struct.Struct(">qq")
_ABORTED = struct.Struct(">qq")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PARTITION = struct.Struct(">ih")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What one partition had from the offset asked for."""

    data: memoryview  # whole batches from the one that holds the offset; the last may be cut off
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset) of aborted transactions in `data`
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


def fetch(
    cluster: Cluster,
    offsets: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    max_bytes: int,
    partition_max_bytes: int,
    max_wait_ms: int,
    min_bytes: int,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Fetched]:
    max_wait_ms = min(max_wait_ms, cluster.settings.request_timeout_ms // 2)
    client_id = cluster.settings.client_id.encode()
    versions: dict[Connection, int] = {}

    def send(connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int) -> None:
        version = connection.version("fetch", LOWEST_VERSION, HIGHEST_VERSION)
        versions[connection] = version
        correlation_id = connection.take_correlation_id()
        header = _HEADER.pack(_API_KEY, version, correlation_id, len(client_id)) + client_id
        limits = _LIMITS.pack(-1, max_wait_ms, min_bytes, max_bytes, 1 if read_committed else 0)
        body = _topics(items, version, partition_max_bytes)
        connection.send_frame([header, limits, body], correlation_id, deadline_ms=deadline_ms)

    def receive(
        connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int
    ) -> dict[TopicPartition, Fetched | KafkaError]:
        frame = connection.receive_frame(deadline_ms=deadline_ms)
        try:
            return _Response(frame, versions[connection]).read()
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            connection.close()
            raise BrokenConnectionError(
                f"{connection.address} answered a fetch with bytes that cannot be read: {error}"
            ) from error

    try:
        return ask_leaders(cluster, "fetch", offsets, send=send, receive=receive, timeout_ms=timeout_ms)
    except _OutOfRange as error:
        raise error.explained(cluster, offsets) from None


def _topics(items: Mapping[TopicPartition, int], version: int, partition_max_bytes: int) -> bytes:
    topics = by_topic(items)
    parts = [_NO_SESSION if version >= 7 else b"", _INT.pack(len(topics))]
    for topic, partitions in topics.items():
        name = topic.encode()
        parts += (_SHORT.pack(len(name)), name, _INT.pack(len(partitions)))
        for partition, offset in partitions:
            parts.append(_INT.pack(partition))
            if version >= 9:
                parts.append(_INT.pack(-1))  # current leader epoch: not checked
            parts.append(struct.pack(">q", offset))
            if version >= 5:
                parts.append(struct.pack(">q", -1))  # log start offset: only followers have one
            parts.append(_INT.pack(partition_max_bytes))
    if version >= 7:
        parts.append(_INT.pack(0))  # no forgotten topics
    if version >= 11:
        parts.append(_SHORT.pack(0))  # no rack
    return b"".join(parts)


class _Response:
    """Reads one response frame from front to back."""

    def __init__(self, frame: bytes, version: int) -> None:
        self._frame = frame
        self._view = memoryview(frame)
        self._version = version
        self._position = 4  # after the correlation id

    def read(self) -> dict[TopicPartition, Fetched | KafkaError]:
        self._position += 4  # throttle time
        if self._version >= 7:
            code = self._short()
            self._position += 4  # session id
            if code:
                raise error_for(ErrorCode(code), "fetch")
        result: dict[TopicPartition, Fetched | KafkaError] = {}
        for _ in range(self._count()):
            size = self._short()
            topic = self._take(size).tobytes().decode()
            for _ in range(self._count()):
                partition, answer = self._partition(topic)
                result[topic, partition] = answer
        return result

    def _partition(self, topic: str) -> tuple[int, Fetched | KafkaError]:
        partition, code = _PARTITION.unpack(self._take(6))
        high_watermark, last_stable_offset = _RESPONSE_STATE.unpack(self._take(16))
        log_start_offset = -1
        if self._version >= 5:
            (log_start_offset,) = struct.unpack(">q", self._take(8))
        aborted = tuple(_ABORTED.unpack(self._take(16)) for _ in range(self._count()))
        if self._version >= 11:
            self._position += 4  # preferred read replica
        data = self._take(max(self._int(), 0))
        if code == ErrorCode.offset_out_of_range:
            raise _OutOfRange(topic, partition)
        if code:
            return partition, error_for(ErrorCode(code), f"fetch from {topic}-{partition}")
        return partition, Fetched(
            data=data,
            aborted=aborted,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
        )

    def _take(self, size: int) -> memoryview:
        start = self._position
        self._position = end = start + size
        if size < 0 or end > len(self._frame):
            raise ValueError(f"a field of {size} bytes at {start} in a response of {len(self._frame)}")
        return self._view[start:end]

    def _short(self) -> int:
        return int(_SHORT.unpack(self._take(2))[0])

    def _int(self) -> int:
        return int(_INT.unpack(self._take(4))[0])

    def _count(self) -> int:
        return max(self._int(), 0)  # a null array is an empty one


class _OutOfRange(SuiroError):
    """Becomes `OffsetOutOfRangeError` once we know which offsets the partition does hold."""

    def explained(self, cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> OffsetOutOfRangeError:
        from suiro.client.offsets import EARLIEST, LATEST, list_offsets

        partition: TopicPartition = (self.args[0], self.args[1])
        earliest = list_offsets(cluster, {partition: EARLIEST}, read_committed=False)[partition].offset
        latest = list_offsets(cluster, {partition: LATEST}, read_committed=False)[partition].offset
        return OffsetOutOfRangeError(*partition, offsets[partition], earliest, latest)
