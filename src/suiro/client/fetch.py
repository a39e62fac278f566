"""Fetch: raw record batches of many partitions, without a copy between the socket and the caller.

Versions 4 to 13 are encoded and decoded by hand: they are simple structs, and the records are returned as read-only
views of the one `bytes` object that was received. From version 12 on, a node on the same machine can return a region of
its log file instead (`file_regions`), so the kernel copies nothing either. Version 13 names topics by their ids.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from suiro.client.connection import Connection
from suiro.client.error_codes import error_for
from suiro.client.leaders import Answered, ask_leaders, by_topic
from suiro.client.offsets import EARLIEST, LATEST, OffsetRequests
from suiro.errors import (
    BrokenConnectionError,
    CorruptRecordError,
    KafkaError,
    OffsetOutOfRangeError,
    SuiroError,
    UsageError,
)
from suiro.foundation.types import TopicPartition
from suiro.protocol import file_regions
from suiro.protocol.fields import array_length, read_uvarint, string
from suiro.protocol.file_regions import FileRegion, FileUnreachableError
from suiro.protocol.messages import API_KEYS, ErrorCode
from suiro.protocol.record_batch import read_header

LOWEST_VERSION, HIGHEST_VERSION = 4, 13
FLEXIBLE_SINCE = 12
"""Compact lengths, and tagged fields behind every structure (KIP-482)."""
IDS_SINCE = 13
"""Topic ids in place of their names (KIP-516)."""

_API_KEY = API_KEYS["fetch"]
_HEADER = struct.Struct(">hhih")
_LIMITS = struct.Struct(">iiiib")
_NO_SESSION = struct.pack(">ii", 0, -1)
_NO_TAGS = b"\0"
_ABORTED = struct.Struct(">qq")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_OFFSET = struct.Struct(">q")
_PARTITION = struct.Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ID_BYTES = 16
_ANOTHER_TOPIC = frozenset({ErrorCode.unknown_topic_id, ErrorCode.inconsistent_topic_id})

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The response of one partition."""

    data: memoryview  # whole batches from the one that holds the offset; the last may be cut off
    aborted: tuple[tuple[int, int], ...]  # (producer id, first offset) of aborted transactions in `data`
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FetchRequests(OffsetRequests):
    """A part of `Client`."""

    def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        read_committed: bool = True,
        max_bytes: int = 32 * 1024 * 1024,
        partition_max_bytes: int = 4 * 1024 * 1024,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        topic_ids: Mapping[str, UUID] | None = None,
        timeout_ms: int | None = None,
        leader_wait_ms: int | None = None,
    ) -> dict[TopicPartition, Fetched]:
        """Returns the batches of each partition from its offset; `data` is empty if none arrived within `max_wait_ms`.

        `data` is a read-only memoryview of the response. The first batch may begin before the offset, the last
        may be cut off, and aborted transactions are still in it (`Fetched.aborted`). `topic_ids`: the ids of all these
        topics; a topic that was made again under its name is not read. A broker without topic ids goes by the names.

        Raises `OffsetOutOfRangeError`; `UnknownTopicError` if the topic is gone; with `leader_wait_ms`,
        `RetriableKafkaError` (LEADER_NOT_AVAILABLE) if a partition has no leader for this time.
        """
        cluster, ids = self._cluster, topic_ids or {}
        max_wait_ms = min(max_wait_ms, cluster.settings.request_timeout_ms // 2)
        client_id = cluster.settings.client_id.encode()
        limits = _LIMITS.pack(-1, max_wait_ms, min_bytes, max_bytes, 1 if read_committed else 0)
        asked: dict[Connection, tuple[int, bool]] = {}  # version, and whether for files

        def send(connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int) -> None:
            version = connection.version("fetch", LOWEST_VERSION, HIGHEST_VERSION if ids else IDS_SINCE - 1)
            for_files = version >= FLEXIBLE_SINCE and connection.is_local and cluster.takes_files
            asked[connection] = version, for_files
            correlation_id = connection.take_correlation_id()
            header = _HEADER.pack(_API_KEY, version, correlation_id, len(client_id)) + client_id
            body = _topics(items, version, partition_max_bytes, ids)
            tags = b""
            if version >= FLEXIBLE_SINCE:
                header += _NO_TAGS
                tags = file_regions.question() if for_files else _NO_TAGS
            connection.send_frame([header, limits, body, tags], deadline_ms=deadline_ms)

        def receive(connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int) -> Answered[Fetched]:
            frame = connection.receive_frame(deadline_ms=deadline_ms)
            version, for_files = asked[connection]
            response = _Response(frame, version, items, takes_files=for_files, topic_ids=ids)
            try:
                found = response.read()
            except (struct.error, UnicodeDecodeError, ValueError) as error:
                connection.close()
                raise BrokenConnectionError(
                    f"{connection.address} answered a fetch with bytes that cannot be read: {error}"
                ) from error
            if response.throttle_ms and not found:
                # A broker that holds its client to a quota names no partition (Kafka's `getThrottledResponse`).
                what = f"fetch from {connection.address}, which holds this client to its quota"
                found = [(place, error_for(ErrorCode.throttling_quota_exceeded, what)) for place in items]
            return found

        while True:
            try:
                return ask_leaders(
                    cluster,
                    "fetch",
                    offsets,
                    send=send,
                    receive=receive,
                    timeout_ms=timeout_ms,
                    leader_wait_ms=leader_wait_ms,
                )
            except FileUnreachableError as error:
                cluster.files_missed = True
                logger.info("records come over the connection from now on, not by file: %s", error)
            except _OutOfRange as error:
                raise error.explained(self, offsets) from None


def _topics(
    items: Mapping[TopicPartition, int], version: int, partition_max_bytes: int, topic_ids: Mapping[str, UUID]
) -> bytes:
    """From the session to the end, without the tagged fields there."""
    flexible = version >= FLEXIBLE_SINCE
    count = partial(array_length, flexible=flexible)
    topics = by_topic(items)
    parts = [_NO_SESSION if version >= 7 else b"", count(len(topics))]
    for topic, partitions in topics.items():
        named = topic_ids[topic].bytes if version >= IDS_SINCE else string(topic, flexible=flexible)
        parts += (named, count(len(partitions)))
        for partition, offset in partitions:
            parts.append(_INT.pack(partition))
            if version >= 9:
                parts.append(_INT.pack(-1))  # current leader epoch: not checked
            try:
                parts.append(_OFFSET.pack(offset))
            except struct.error:
                raise UsageError(
                    f"fetch from {topic}-{partition}: offsets are numbers of 64 bits, and {offset} has more"
                ) from None
            if version >= 12:
                parts.append(_INT.pack(-1))  # epoch of what was fetched last: not checked
            if version >= 5:
                parts.append(_OFFSET.pack(-1))  # log start offset: only followers have one
            parts.append(_INT.pack(partition_max_bytes))
            if flexible:
                parts.append(_NO_TAGS)
        if flexible:
            parts.append(_NO_TAGS)
    if version >= 7:
        parts.append(count(0))  # no forgotten topics
    if version >= 11:
        parts.append(string("", flexible=flexible))  # no rack
    return b"".join(parts)


class _Response:
    """Reads one response frame from front to back. `takes_files`: whether they were asked for. `offsets`: what was."""

    def __init__(
        self,
        frame: bytes,
        version: int,
        offsets: Mapping[TopicPartition, int],
        *,
        takes_files: bool = False,
        topic_ids: Mapping[str, UUID] | None = None,
    ) -> None:
        self._view = memoryview(frame)
        self._version = version
        self._offsets = offsets
        self._flexible = version >= FLEXIBLE_SINCE
        self._takes_files = takes_files
        self._names = {topic_id.bytes: topic for topic, topic_id in (topic_ids or {}).items()}
        self._position = 4  # after the correlation id
        self.throttle_ms = 0

    def read(self) -> Answered[Fetched]:
        self._tags()
        (self.throttle_ms,) = _INT.unpack(self._take(4))
        if self._version >= 7:
            (code,) = _SHORT.unpack(self._take(2))
            self._take(4)  # session id
            if code:
                raise error_for(ErrorCode(code), "fetch")
        result: list[tuple[TopicPartition, Fetched | KafkaError]] = []
        for _ in range(self._length(_INT)):
            topic = self._topic()
            for _ in range(self._length(_INT)):
                partition, answer = self._partition(topic)
                result.append(((topic, partition), answer))
            self._tags()
        self._tags()
        return result

    def _topic(self) -> str:
        if self._version < IDS_SINCE:
            return self._take(self._length(_SHORT)).tobytes().decode()
        topic_id = self._take(_ID_BYTES).tobytes()
        if topic_id not in self._names:
            raise ValueError(f"it names the topic id {UUID(bytes=topic_id)}, which was not asked for")
        return self._names[topic_id]

    def _partition(self, topic: str) -> tuple[int, Fetched | KafkaError]:
        partition, code, high_watermark, last_stable_offset = _PARTITION.unpack(self._take(_PARTITION.size))
        log_start_offset = -1
        if self._version >= 5:
            (log_start_offset,) = _OFFSET.unpack(self._take(8))
        aborted = []
        for _ in range(self._length(_INT)):
            aborted.append(_ABORTED.unpack(self._take(16)))
            self._tags()
        if self._version >= 11:
            self._take(4)  # preferred read replica
        data = self._take(self._length(_INT))
        if (topic, partition) not in self._offsets:
            raise ValueError(f"it names {topic}-{partition}, which was not asked for")
        region = self._tags().get(file_regions.TAG)
        if region is not None:
            if not self._takes_files:
                raise ValueError("it names a file, which was not asked for")
            data = FileRegion.from_bytes(region).map()
        if code == ErrorCode.offset_out_of_range:
            raise _OutOfRange(topic, partition)
        offset = self._offsets[topic, partition]
        if code in _ANOTHER_TOPIC and self._version >= IDS_SINCE:
            code = ErrorCode.unknown_topic_id
        if code:
            return partition, error_for(ErrorCode(code), f"fetch from {topic}-{partition} at offset {offset}")
        # A reader of such an answer would ask again for the same offset, without end.
        if data and _ends_before(data, offset):
            raise ValueError(f"the first batch of {topic}-{partition} ends before {offset}, which was asked for")
        return partition, Fetched(
            data=data,
            aborted=tuple(aborted),
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
        )

    def _tags(self) -> dict[int, memoryview]:
        """The tagged fields behind a structure."""
        if not self._flexible:
            return {}
        count = self._uvarint()
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(count)}

    def _length(self, plain: struct.Struct) -> int:
        """Of an array, a string or records; null is empty."""
        if self._flexible:
            return max(self._uvarint() - 1, 0)
        return max(int(plain.unpack(self._take(plain.size))[0]), 0)

    def _uvarint(self) -> int:
        value, self._position = read_uvarint(self._view, self._position)
        return value

    def _take(self, size: int) -> memoryview:
        start = self._position
        self._position = end = start + size
        if end > len(self._view):
            raise ValueError(f"a field of {size} bytes at {start} in a response of {len(self._view)}")
        return self._view[start:end]


def _ends_before(data: memoryview, offset: int) -> bool:
    """Whether the first batch does. What is not a batch is refused by its reader."""
    try:
        return read_header(data).last_offset < offset
    except CorruptRecordError:
        return False


class _OutOfRange(SuiroError):
    """Becomes `OffsetOutOfRangeError` once we know which offsets the partition does hold."""

    def explained(self, client: OffsetRequests, offsets: Mapping[TopicPartition, int]) -> OffsetOutOfRangeError:
        partition: TopicPartition = (self.args[0], self.args[1])
        earliest = client.list_offsets({partition: EARLIEST})[partition].offset
        latest = client.list_offsets({partition: LATEST})[partition].offset
        return OffsetOutOfRangeError(*partition, offsets[partition], earliest, latest)
