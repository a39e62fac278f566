"""A block: pgoutput messages (protocol version 1) in one buffer. Both ways of reading changes return blocks.

A block holds whole transactions, or a part of one transaction that is too large for a block. Messages are in commit
order. A block has no messages of transactions that were rolled back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_BEGIN = struct.Struct(">cqqI")
_COMMIT = struct.Struct(">cBqqq")

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Message i is `buffer[starts[i] : ends[i]]`, and its LSN is `lsns[i]`."""

    buffer: bytes | memoryview
    starts: Int64s
    ends: Int64s
    lsns: Int64s

    def __len__(self) -> int:
        return len(self.starts)


def join(payloads: Sequence[bytes], lsns: Sequence[int]) -> Block:
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    ends = np.cumsum(lengths)
    return Block(buffer=b"".join(payloads), starts=ends - lengths, ends=ends, lsns=np.array(lsns, np.int64))


def begin_message(*, lsn: int, commit_us: int, xid: int) -> bytes:
    """`commit_us`: microseconds since 2000-01-01, as in Postgres."""
    return _BEGIN.pack(b"B", lsn, commit_us, xid)


def commit_message(*, lsn: int, end_lsn: int, commit_us: int) -> bytes:
    return _COMMIT.pack(b"C", 0, lsn, end_lsn, commit_us)
