"""Looks into batches of producers: checks their records (a missing key in a compacted topic, a timestamp out of range),
and converts a batch to the codec of its topic (`compression.type`).

Only here does the node look into batches of producers: if a topic asks for it, and to name the refused records of a
batch. The codecs are loaded with the first compressed batch. The size of a batch does not tell what that costs, so
`costs_much` says which ones are checked, or compressed again, in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from suiro.config import MAX_LONG
from suiro.errors import CorruptRecordError, UsageError
from suiro.log import LogConfig
from suiro.protocol import compression
from suiro.protocol.compression import CODEC_NAMES, TooMuchError, decompress
from suiro.protocol.crc32c import crc32c
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import (
    COMPRESSION_BITS,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MIN_RECORD_SIZE,
    BatchHeader,
    pack_header,
    read_header,
    verify,
)
from suiro.protocol.record_check import FEW_RECORDS, MOST_NAMED, Findings, check_records
from suiro.protocol.records import count_without_key

_SHOWN = 3
_ATTRIBUTES = 22  # their low byte
_MAX_TIMESTAMP = slice(35, 43)
EXPANSION = 16
"""A compressed batch may expand to so many times `max.message.bytes`: a few crafted bytes must not fill the node's
memory. Nor may it hold more records than an uncompressed one could."""
_LZ4_FAST = 9
"""Kafka's default level, which uses the fast compressor; the other levels use the slow one."""
AT_ONCE_BYTES = 16 << 10
"""The event loop itself looks into uncompressed batches up to this size: it takes a few milliseconds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedBatch:
    """Why a batch is refused, and the records that were refused, by their place in the batch."""

    code: ErrorCode
    message: str
    records: Mapping[int, str]


def is_inspected(config: LogConfig) -> bool:
    """Whether the topic asks for a look into every batch."""
    return config.compacted or config.message_timestamp_before_max_ms != MAX_LONG


def is_misdated(batch: bytes, config: LogConfig, *, now_ms: int) -> bool:
    """Whether the log will refuse the batch for its time, so that the refused records must be named."""
    if config.message_timestamp_type == "LogAppendTime":
        return bool(batch[_ATTRIBUTES] & LOG_APPEND_TIME_BIT)
    latest = now_ms + config.message_timestamp_after_max_ms
    return int.from_bytes(batch[_MAX_TIMESTAMP], "big", signed=True) > latest


def costs_much(batch: bytes, config: LogConfig, *, now_ms: int) -> bool:
    """Whether this batch is looked into or compressed again, and the event loop must not wait for it."""
    if not HEADER_SIZE <= len(batch) <= config.max_message_bytes:  # the log refuses it
        return False
    codec = batch[_ATTRIBUTES] & COMPRESSION_BITS
    if codec == 0 and len(batch) <= AT_ONCE_BYTES:
        return False
    return (
        is_inspected(config)
        or config.compression_type not in ("producer", CODEC_NAMES.get(codec))
        or is_misdated(batch, config, now_ms=now_ms)
    )


def refusal_of(batch: bytes, config: LogConfig, *, now_ms: int) -> RefusedBatch | None:
    """Returns None if nothing is wrong, or if the log has the better error (a checksum that does not match)."""
    try:
        header = read_header(batch)
        between = _times(header, config, now_ms)
        stamped = config.message_timestamp_type == "LogAppendTime" and header.is_log_append_time
        few = header.compression == 0 and header.count <= FEW_RECORDS
        if between is None and not stamped and few and not count_without_key(batch):
            return None
        if header.count > config.max_message_bytes // MIN_RECORD_SIZE:
            raise TooMuchError(f"a batch of {header.count} records")
        payload = memoryview(batch)[HEADER_SIZE : header.size]
        records = decompress(header.compression, payload, limit=EXPANSION * config.max_message_bytes)
        findings = check_records(records, header, keyed=config.compacted, between=between)
    except (CorruptRecordError, UsageError) as error:
        return _garbled(batch, error)
    return _refused_time(header) if stamped else _refused_records(findings, between)


def _times(header: BatchHeader, config: LogConfig, now_ms: int) -> tuple[int, int] | None:
    """The earliest and the latest timestamp that a record may have; None where that need not be looked at."""
    latest = now_ms + config.message_timestamp_after_max_ms
    if config.message_timestamp_type != "CreateTime":
        return None
    if config.message_timestamp_before_max_ms == MAX_LONG and header.max_timestamp <= latest:
        return None
    return max(now_ms - config.message_timestamp_before_max_ms, -MAX_LONG), min(latest, MAX_LONG)


def _refused_records(findings: Findings, between: tuple[int, int] | None) -> RefusedBatch | None:
    if not findings.count:
        return None
    texts = {}
    for found in findings.first:
        if found.keyless:
            texts[found.place] = "a compacted topic takes no record without a key"
        else:
            assert between is not None
            texts[found.place] = (
                f"timestamp {found.timestamp} is outside {between[0]} to {between[1]} "
                "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
            )
    code = ErrorCode.invalid_record
    if any(found.misdated for found in findings.first):
        code = ErrorCode.invalid_timestamp
    return _refusal(code, findings.count, texts)


def _refused_time(header: BatchHeader) -> RefusedBatch:
    text = "only the log gives its time (message.timestamp.type)"
    return _refusal(
        ErrorCode.invalid_timestamp, header.count, dict.fromkeys(range(min(header.count, MOST_NAMED)), text)
    )


def _refusal(code: ErrorCode, count: int, texts: Mapping[int, str]) -> RefusedBatch:
    shown = "; ".join(f"record {place}: {text}" for place, text in list(texts.items())[:_SHOWN])
    return RefusedBatch(code=code, message=f"{count} records are refused: {shown}", records=texts)


def _garbled(batch: bytes, error: Exception) -> RefusedBatch | None:
    """The producer made records that contradict their batch, which nobody could read or compact; or too many to look
    at, which it can send in smaller batches."""
    try:
        verify(batch, 0, read_header(batch))
    except CorruptRecordError:
        return None
    if isinstance(error, TooMuchError):
        return RefusedBatch(
            code=ErrorCode.message_too_large,
            message=f"{error}, too many for a topic that looks into batches: send smaller ones, or set a higher "
            f"max.message.bytes (a batch may expand to {EXPANSION} times as much)",
            records={},
        )
    return RefusedBatch(code=ErrorCode.invalid_record, message=f"the batch cannot be read: {error}", records={})


class UnreadableBatchError(Exception):
    """The checksum of the batch is right, but its records cannot be read, or are too many."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


def recompressed(batch: bytes, config: LogConfig) -> bytes:
    """The same records in the topic's codec. One that the log will refuse anyway comes back as it is.

    They are decompressed and compressed again as bytes, after a check that they are as many as the batch claims.
    Producers that compress as the topic asks cost nothing. Raises `UnreadableBatchError`.
    """
    wanted = config.compression_type
    if wanted == "producer" or len(batch) > config.max_message_bytes:
        return batch
    target = compression.NONE if wanted == "uncompressed" else compression.codec_id(wanted)
    try:
        header = read_header(batch)
        if header.compression == target:
            return batch
        verify(batch, 0, header)
    except CorruptRecordError:
        return batch
    try:
        plain = compression.decompress(
            header.compression,
            memoryview(batch)[HEADER_SIZE:],
            limit=max(len(batch), EXPANSION * config.max_message_bytes),
        )
        check_records(plain, header)  # for what it raises
    except compression.TooMuchError as error:
        raise UnreadableBatchError(str(error), ErrorCode.message_too_large) from error
    except CorruptRecordError as error:
        raise UnreadableBatchError(str(error), ErrorCode.invalid_record) from error
    records = compression.compress(target, plain, level=_level(target, config))
    new = replace(
        header,
        length=HEADER_SIZE - LOG_OVERHEAD + len(records),
        attributes=header.attributes & ~COMPRESSION_BITS | target,
    )
    return pack_header(new, crc_tail=crc32c(records)) + records


def _level(codec: int, config: LogConfig) -> int | None:
    match codec:
        case compression.GZIP:
            return config.compression_gzip_level
        case compression.LZ4:
            level = config.compression_lz4_level
            return None if level == _LZ4_FAST else level
        case compression.ZSTD:
            return config.compression_zstd_level
    return None
