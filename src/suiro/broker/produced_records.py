"""What a topic may refuse of single records: a missing key where it is compacted, a timestamp out of range.

The one place of the node that looks into batches of producers: where a topic asks for it, and to say which records
of a refused batch are to blame. The codecs are loaded when the first compressed batch comes here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suiro.errors import CorruptRecordError, UsageError
from suiro.log import LogConfig
from suiro.log.config import MAX_LONG
from suiro.protocol.compression import TooMuchError
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import read_header, verify
from suiro.protocol.records import count_without_key, decode_batch

_SHOWN = 3
_LEAST_RECORD = 7  # bytes of a record without key, value and headers
EXPANSION = 16
"""A compressed batch is looked into up to so many times `max.message.bytes`: a few crafted bytes must not fill the
node's memory. Nor may it hold more records than an uncompressed one could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blamed:
    """Why a batch is refused, and the records to blame for it by their place in the batch."""

    code: ErrorCode
    message: str
    records: Mapping[int, str]


def blame(batch: bytes, config: LogConfig, *, now_ms: int) -> Blamed | None:
    """None where nothing is wrong, or where the log will say better what is (a checksum that does not match)."""
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    try:
        header = read_header(batch)
        dated = config.message_timestamp_type == "CreateTime" and (
            config.message_timestamp_before_max_ms != MAX_LONG or header.max_timestamp > latest
        )
        stamped = config.message_timestamp_type == "LogAppendTime" and header.is_log_append_time
        if not dated and not stamped and header.compression == 0 and not count_without_key(batch):
            return None
        if header.count > config.max_message_bytes // _LEAST_RECORD:
            raise TooMuchError(f"a batch of {header.count} records")
        records = decode_batch(batch, limit=EXPANSION * config.max_message_bytes)
    except (CorruptRecordError, UsageError) as error:
        return _garbled(batch, error)
    keyless = {
        place: "a compacted topic takes no record without a key"
        for place, record in enumerate(records)
        if config.compacted and record.key is None
    }
    misdated = {
        place: f"timestamp {record.timestamp} is outside {earliest} to {latest} "
        "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
        for place, record in enumerate(records)
        if dated and record.timestamp >= 0 and not earliest <= record.timestamp <= latest
    }
    if stamped:
        misdated = dict.fromkeys(range(len(records)), "only the log gives its time (message.timestamp.type)")
    if not keyless and not misdated:
        return None
    together = dict(sorted((misdated | keyless).items()))
    shown = "; ".join(f"record {place}: {text}" for place, text in list(together.items())[:_SHOWN])
    code = ErrorCode.invalid_timestamp if misdated else ErrorCode.invalid_record
    return Blamed(code=code, message=f"{len(together)} records are refused: {shown}", records=together)


def _garbled(batch: bytes, error: Exception) -> Blamed | None:
    """Records that contradict their batch, as the producer made them, which nobody could read or compact; or too
    many to look at, which a producer sends again in smaller batches when it is told so."""
    try:
        verify(batch, 0, read_header(batch))
    except CorruptRecordError:
        return None
    if isinstance(error, TooMuchError):
        return Blamed(
            code=ErrorCode.message_too_large,
            message=f"{error}, too many for a topic that looks into batches: send smaller ones, or set a higher "
            f"max.message.bytes (a batch may expand to {EXPANSION} times as much)",
            records={},
        )
    return Blamed(code=ErrorCode.invalid_record, message=f"the batch cannot be read: {error}", records={})
