"""The journal's records on the wire: the batches of a transaction, and the columns of records that were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from suiro.client import Fetched
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from suiro.views.control.journal_records import SIGNATURE

RECORD_BYTES = 256
"""Size of a record without its key and value: the signature and lengths."""


def size_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + RECORD_BYTES


def encoded(part: Sequence[Record]) -> bytes:
    """Returns one record batch, whose offsets are relative to the first."""
    return encode_batch([replace(record, offset=at) for at, record in enumerate(part)])


def decode(part: Fetched, position: int) -> tuple[pa.RecordBatch, int]:
    """Returns the committed records from `position` on, and the offset behind them."""
    rows = columnar.decode(
        part.data,
        start_offset=position,
        end_offset=part.last_stable_offset,
        aborted=part.aborted,
        headers=True,
    )
    return rows.batch, rows.next_offset


def signature_of(headers: Sequence[Mapping[str, Any]] | None) -> bytes | None:
    """Returns the signature of a record without other headers. A record with others is refused: they are not signed."""
    if headers is None or len(headers) != 1 or headers[0]["key"] != SIGNATURE:
        return None
    signature: bytes | None = headers[0]["value"]
    return signature
