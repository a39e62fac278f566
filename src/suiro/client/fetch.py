"""Fetch: raw record batches of many partitions, without a copy between the socket and the caller.

Version 12, which brokers since Kafka 2.7 have, written and read by hand: its structures are plain, and the records,
which are all of the weight, are handed on as read-only views of the one `bytes` object that the kernel filled. A node
on the same machine may name a region of its log's file instead (`file_regions`): then not even the kernel copies them.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from suiro.client.cluster import Cluster, TopicPartition
from suiro.client.connection import Connection
from suiro.client.error_codes import error_for
from suiro.client.leaders import ask_leaders, by_topic
from suiro.errors import BrokenConnectionError, KafkaError, OffsetOutOfRangeError, SuiroError
from suiro.protocol import file_regions
from suiro.protocol.file_regions import FileRegion, FileUnreachableError
from suiro.protocol.messages import API_KEYS, ErrorCode

__all__ = ["Fetched", "fetch"]

VERSION = 12
_API_KEY = API_KEYS["fetch"]
_HEADER = struct.Struct(">hhih")
_LIMITS = struct.Struct(">iiiib")
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_TAGS = b"\0"
_NOTHING = b"\1"  # a compact array or string that is empty
_ASKED = struct.Struct(
    ">iiqiqi"
)  # partition, leader epoch, offset, epoch fetched last, log start offset, bytes
_STATE = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")

logger = logging.getLogger(__name__)


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
    limits = _LIMITS.pack(-1, max_wait_ms, min_bytes, max_bytes, 1 if read_committed else 0)

    def send(connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int) -> None:
        connection.version("fetch", VERSION, VERSION)
        correlation_id = connection.take_correlation_id()
        header = _HEADER.pack(_API_KEY, VERSION, correlation_id, len(client_id)) + client_id + _NO_TAGS
        tags = file_regions.question() if cluster.takes_files else _NO_TAGS
        topics = _topics(items, partition_max_bytes)
        connection.send_frame(
            [header, limits, _NO_SESSION, topics, _NOTHING, _NOTHING, tags],
            correlation_id,
            deadline_ms=deadline_ms,
        )

    def receive(
        connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int
    ) -> dict[TopicPartition, Fetched | KafkaError]:
        frame = connection.receive_frame(deadline_ms=deadline_ms)
        try:
            return _Response(frame).read()
        except FileUnreachableError:
            raise
        except (struct.error, UnicodeDecodeError, ValueError) as error:
            connection.close()
            raise BrokenConnectionError(
                f"{connection.address} answered a fetch with bytes that cannot be read: {error}"
            ) from error

    while True:
        try:
            return ask_leaders(cluster, "fetch", offsets, send=send, receive=receive, timeout_ms=timeout_ms)
        except FileUnreachableError as error:
            cluster.files_missed = True
            logger.info("records come over the connection from now on, not by file: %s", error)
        except _OutOfRange as error:
            raise error.explained(cluster, offsets) from None


def _topics(items: Mapping[TopicPartition, int], partition_max_bytes: int) -> bytes:
    topics = by_topic(items)
    parts = [_uvarint(len(topics) + 1)]
    for topic, partitions in topics.items():
        name = topic.encode()
        parts += (_uvarint(len(name) + 1), name, _uvarint(len(partitions) + 1))
        for partition, offset in partitions:
            # No leader epoch is checked, and only followers have a log start offset.
            parts += (_ASKED.pack(partition, -1, offset, -1, -1, partition_max_bytes), _NO_TAGS)
        parts.append(_NO_TAGS)
    return b"".join(parts)


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _Response:
    """Reads one response frame from front to back."""

    def __init__(self, frame: bytes) -> None:
        self._view = memoryview(frame)
        self._position = 4  # after the correlation id

    def read(self) -> dict[TopicPartition, Fetched | KafkaError]:
        self._tags()
        self._take(4)  # throttle time
        (code,) = _SHORT.unpack(self._take(2))
        self._take(4)  # session id
        if code:
            raise error_for(ErrorCode(code), "fetch")
        result: dict[TopicPartition, Fetched | KafkaError] = {}
        for _ in range(self._length()):
            topic = self._take(self._length()).tobytes().decode()
            for _ in range(self._length()):
                partition, answer = self._partition(topic)
                result[topic, partition] = answer
            self._tags()
        self._tags()
        return result

    def _partition(self, topic: str) -> tuple[int, Fetched | KafkaError]:
        partition, code, high_watermark, last_stable_offset, log_start_offset = _STATE.unpack(
            self._take(_STATE.size)
        )
        aborted = []
        for _ in range(self._length()):
            aborted.append(_ABORTED.unpack(self._take(16)))
            self._tags()
        self._take(4)  # preferred read replica
        data = self._take(self._length())
        region = self._tags().get(file_regions.TAG)
        if region is not None:
            data = FileRegion.from_bytes(region).map()
        if code == ErrorCode.offset_out_of_range:
            raise _OutOfRange(topic, partition)
        if code:
            return partition, error_for(ErrorCode(code), f"fetch from {topic}-{partition}")
        return partition, Fetched(
            data=data,
            aborted=tuple(aborted),
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
        )

    def _tags(self) -> dict[int, memoryview]:
        count = self._uvarint()
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(count)}

    def _length(self) -> int:
        """Of a compact array, string or bytes; null is empty."""
        return max(self._uvarint() - 1, 0)

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError(f"a length of more than five bytes at {self._position}")

    def _take(self, size: int) -> memoryview:
        start = self._position
        self._position = end = start + size
        if end > len(self._view):
            raise ValueError(f"a field of {size} bytes at {start} in a response of {len(self._view)}")
        return self._view[start:end]


class _OutOfRange(SuiroError):
    """Becomes `OffsetOutOfRangeError` once we know which offsets the partition does hold."""

    def explained(self, cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> OffsetOutOfRangeError:
        from suiro.client.offsets import EARLIEST, LATEST, list_offsets

        partition: TopicPartition = (self.args[0], self.args[1])
        earliest = list_offsets(cluster, {partition: EARLIEST}, read_committed=False)[partition].offset
        latest = list_offsets(cluster, {partition: LATEST}, read_committed=False)[partition].offset
        return OffsetOutOfRangeError(*partition, offsets[partition], earliest, latest)
