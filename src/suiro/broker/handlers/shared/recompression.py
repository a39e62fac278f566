"""Converts a batch to the codec of its topic (`compression.type`), if the producer used another one.

The records are decompressed and compressed again as bytes, after a check that they are as many as the batch claims. The
compression runs in a thread. Producers that compress as the topic asks cost nothing. The codecs are loaded with the
first batch that needs one.
"""

from __future__ import annotations

from dataclasses import replace

from suiro.broker.handlers.shared.produced_records import EXPANSION
from suiro.errors import CorruptRecordError
from suiro.log import LogConfig
from suiro.protocol import compression
from suiro.protocol.crc32c import crc32c
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import COMPRESSION_BITS, HEADER_SIZE, LOG_OVERHEAD, pack_header, read_header, verify
from suiro.protocol.record_check import check_records

_LZ4_FAST = 9
"""Kafka's default level, which uses the fast compressor; the other levels use the slow one."""


class UnreadableBatchError(Exception):
    """The checksum of the batch is right, but its records cannot be read, or are too many."""

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


def recompressed(batch: bytes, config: LogConfig) -> bytes:
    """The same records in the topic's codec. One that the log will refuse anyway comes back as it is.

    Raises `UnreadableBatchError`.
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
