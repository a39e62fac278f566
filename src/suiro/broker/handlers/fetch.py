"""Fetch: record bytes go from the log's files to the socket untouched.

The response is laid out by hand around the file regions (Kafka's FetchResponse, versions 4 to 18), because a
response object would hold the records. If there is less than `min_bytes`, the fetch waits in every partition it
reads until one of them grows, or until `max_wait` is over.

There are no fetch sessions (KIP-227): an answer with session id 0 tells a client to name all its partitions again
next time, which every client does.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from suiro.broker.broker import Broker
from suiro.broker.connection import Piece
from suiro.broker.dispatch import Exchange, RawResponse
from suiro.broker.handlers import whole_ms
from suiro.broker.purgatory import Delayed
from suiro.broker.topics import Partition
from suiro.log import LogError, ReadResult
from suiro.protocol.messages import ErrorCode


@dataclass(slots=True, kw_only=True)
class _Wanted:
    """One partition of the request, and what reading it gave."""

    index: int
    offset: int
    max_bytes: int
    partition: Partition | None
    code: ErrorCode
    result: ReadResult | None = None


@dataclass(slots=True, kw_only=True)
class _Plan:
    topics: list[tuple[str | UUID | None, list[_Wanted]]]
    max_bytes: int
    read_committed: bool
    size: int = 0
    failed: bool = False
    all: list[_Wanted] = field(default_factory=list)


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    if getattr(request, "session_id", 0) != 0 and getattr(request, "session_epoch", -1) != -1:
        return _layout(exchange.version, (), error=ErrorCode.fetch_session_id_not_found)
    plan = _plan(broker, exchange, request)
    _read(plan)
    wait_ms = min(whole_ms(request.max_wait), broker.settings.fetch_max_wait_ms)
    if plan.size >= request.min_bytes or plan.failed or wait_ms <= 0 or not plan.all:
        return _layout(exchange.version, plan.topics, read_committed=plan.read_committed)

    def ready() -> bool:
        _read(plan)
        return plan.size >= request.min_bytes or plan.failed

    delayed = Delayed(
        broker.loop,
        partitions=[wanted.partition for wanted in plan.all if wanted.partition is not None],
        is_ready=ready,
        finish=lambda: exchange.answer(
            _layout(exchange.version, plan.topics, read_committed=plan.read_committed)
        ),
        wait_ms=wait_ms,
    )
    exchange.on_abandoned(delayed.cancel)
    return None


def _plan(broker: Broker, exchange: Exchange, request: Any) -> _Plan:
    plan = _Plan(
        topics=[],
        max_bytes=min(request.max_bytes, broker.settings.fetch_max_bytes),
        read_committed=request.isolation_level == 1,
    )
    for entry in request.topics:
        if exchange.version >= 13:
            topic = broker.topics.topic_by_id(entry.topic_id)
            key, missing = entry.topic_id, ErrorCode.unknown_topic_id
        else:
            topic = broker.topics.topic(entry.topic)
            key, missing = entry.topic, ErrorCode.unknown_topic_or_partition
        name = topic.name if topic is not None else ""
        wanted = []
        for part in entry.partitions:
            partition = broker.topics.partition(name, part.partition)
            code = broker.check_leader_epoch(getattr(part, "current_leader_epoch", -1))
            if partition is None:
                code = missing if topic is None else ErrorCode.unknown_topic_or_partition
            wanted.append(
                _Wanted(
                    index=part.partition,
                    offset=part.fetch_offset,
                    max_bytes=part.partition_max_bytes,
                    partition=partition,
                    code=code,
                )
            )
        plan.topics.append((key, wanted))
        plan.all.extend(wanted)
    return plan


def _read(plan: _Plan) -> None:
    """Read every partition up to the response's limit; the first that has anything gives at least one batch."""
    left = plan.max_bytes
    plan.size = 0
    for wanted in plan.all:
        partition = wanted.partition
        if partition is None or wanted.code is not ErrorCode.none:
            plan.failed = True
            continue
        if partition.deleted:
            wanted.code, wanted.result, plan.failed = ErrorCode.unknown_topic_or_partition, None, True
            continue
        try:
            wanted.result = partition.log.read(
                wanted.offset,
                max_bytes=max(0, min(wanted.max_bytes, left)),
                read_committed=plan.read_committed,
                min_one_batch=plan.size == 0,
            )
        except LogError as error:
            wanted.code, wanted.result, plan.failed = error.code, None, True
            continue
        plan.size += wanted.result.size
        left -= wanted.result.size


# FetchResponse by hand. Flexible versions (12 and up) have compact lengths and a tag section (always empty: one
# zero byte) after every structure; version 13 names topics by id.

_PARTITION_5 = struct.Struct(">ihqqq")
_PARTITION_4 = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")


def _layout(
    version: int,
    topics: Any,
    *,
    error: ErrorCode = ErrorCode.none,
    read_committed: bool = False,
) -> RawResponse:
    flexible = version >= 12
    pieces: list[Piece] = []
    head = bytearray(4)  # throttle time
    if version >= 7:
        head += error.to_bytes(2, "big", signed=True) + bytes(4)  # session id 0
    head += _array_length(len(topics), flexible)
    for key, wanted in topics:
        head += _topic_key(key, version)
        head += _array_length(len(wanted), flexible)
        for part in wanted:
            _partition_head(head, part, version, read_committed=read_committed)
            result = part.result
            size = result.size if result is not None else 0
            head += _uvarint(size + 1) if flexible else size.to_bytes(4, "big")
            if result is not None and size:
                pieces.append(bytes(head))
                pieces.extend(result.regions)
                head = bytearray()
            if flexible:
                head.append(0)
        if flexible:
            head.append(0)
    if flexible:
        head.append(0)
    if head:
        pieces.append(bytes(head))
    return RawResponse(pieces, flexible)


def _partition_head(head: bytearray, part: _Wanted, version: int, *, read_committed: bool) -> None:
    """Everything of a partition in front of its records' length."""
    flexible, result, code = version >= 12, part.result, part.code
    high_watermark = result.high_watermark if result else -1
    stable = result.last_stable_offset if result else -1
    start = result.log_start_offset if result else -1
    if version >= 5:
        head += _PARTITION_5.pack(part.index, code, high_watermark, stable, start)
    else:
        head += _PARTITION_4.pack(part.index, code, high_watermark, stable)
    if read_committed and result is not None:
        head += _array_length(len(result.aborted), flexible)
        for producer_id, first_offset in result.aborted:
            head += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                head.append(0)
    else:
        head += b"\0" if flexible else b"\xff\xff\xff\xff"  # null
    if version >= 11:
        head += b"\xff\xff\xff\xff"  # no preferred read replica


def _topic_key(key: str | UUID | None, version: int) -> bytes:
    if version >= 13:
        return key.bytes if isinstance(key, UUID) else bytes(16)
    name = str(key).encode()
    return (_uvarint(len(name) + 1) if version >= 12 else len(name).to_bytes(2, "big")) + name


def _array_length(count: int, flexible: bool) -> bytes:
    return _uvarint(count + 1) if flexible else count.to_bytes(4, "big")


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
