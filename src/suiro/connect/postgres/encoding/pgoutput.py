"""Blocks of pgoutput messages (protocol version 1), and the parser that turns them into columns.

A block is one buffer of messages in commit order. Both ways of reading changes return blocks. A block holds whole
transactions, or a part of one transaction that is too large for a block, and no messages of transactions that were
rolled back.

A message is read only within its own bytes. One that is truncated, unknown, or longer than its content raises
`CorruptMessageError`, which names its position. No Python object is created per value: a row change gives the offsets
of its tuples in the buffer, and `avro_rows` reads the values from there.

Values must be sent as text: use pgoutput with `binary 'false'` (the default) and a session with
`types.SESSION_SETTINGS`. Binary was rejected: types without a send function have no binary format, those of extensions
are not documented, and only the text format is the same in every version.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
import numpy.typing as npt

from suiro.connect.postgres.encoding.engine import kernels
from suiro.errors import FatalError

EPOCH_MICROS = 946_684_800_000_000
"""Postgres counts microseconds from 2000-01-01; everything here from 1970-01-01."""

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

FACTS = 9
"""The number of facts of a message: the fields of `Messages` from `kind` on, as the kernel fills them."""


class CorruptMessageError(FatalError):
    """Bytes that should be a message of pgoutput, or a row of COPY, are not."""


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


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type: int
    typmod: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    """pgoutput's announcement of a table, before its first change and after each change of its encoding."""

    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages of a block. A fact that a kind of message does not have is -1 (a place) or 0."""

    data: Bytes
    starts: Int64s
    ends: Int64s
    kind: Int64s  # the first byte, such as `ord("I")`
    xid: Int64s  # of Begin: the transaction
    relation: Int64s
    lsn: Int64s  # of Begin: the commit's; of Commit and LogicalMessage: their own
    end_lsn: Int64s  # of Commit: where the transaction ends
    time: Int64s  # of Begin and Commit: the commit's, in microseconds since 1970
    old_at: Int64s  # where in `data` the old tuple is
    new_at: Int64s  # where in `data` the new tuple is
    unchanged: Int64s  # how many TOAST values of the new tuple were left out, and are not in the old tuple

    def __len__(self) -> int:
        return len(self.starts)

    def relation_message(self, index: int) -> RelationMessage:
        """Returns the announcement of a message of kind R."""
        reader = self._reader(index)
        oid = reader.integer(">I")
        schema, name = reader.text(), reader.text()
        identity = chr(reader.integer(">B"))
        columns = []
        for _ in range(reader.integer(">H")):
            flags = reader.integer(">B")
            columns.append(
                RelationColumn(
                    name=reader.text(),
                    type=reader.integer(">I"),
                    typmod=reader.integer(">i"),
                    is_key=bool(flags & 1),
                )
            )
        reader.finish()
        return RelationMessage(
            oid=oid,
            schema=schema or "pg_catalog",  # pgoutput sends an empty name for it
            name=name,
            replica_identity=identity,
            columns=tuple(columns),
        )

    def truncated(self, index: int) -> list[int]:
        """Returns the oids of the tables of a message of kind T."""
        reader = self._reader(index)
        count = reader.integer(">I")
        reader.integer(">B")  # cascade, restart identity
        oids = [reader.integer(">I") for _ in range(count)]
        reader.finish()
        return oids

    def logical_message(self, index: int) -> tuple[bool, str, bytes]:
        """Returns (transactional, prefix, content) of a message of kind M, as `pg_logical_emit_message` wrote it."""
        reader = self._reader(index)
        flags = reader.integer(">B")
        reader.integer(">Q")
        prefix = reader.text()
        content = reader.take(reader.integer(">I"))
        reader.finish()
        return bool(flags & 1), prefix, content

    def values(self, index: int, *, old: bool = False) -> list[bytes | EllipsisType | None] | None:
        """Returns a change's tuple as text of Postgres. None is null, `...` an unchanged TOAST value."""
        at = int(self.old_at[index] if old else self.new_at[index])
        if at < 0:
            return None
        reader = _Reader(self.data, at, int(self.ends[index]), index)
        return [reader.value() for _ in range(reader.integer(">H"))]

    def _reader(self, index: int) -> _Reader:
        return _Reader(self.data, int(self.starts[index]) + 1, int(self.ends[index]), index)


def parse(block: Block) -> Messages:
    """Parses the messages of a block. Its buffer must not change afterwards."""
    data = np.frombuffer(block.buffer, np.uint8)
    data.flags.writeable = False
    starts, ends = block.starts, block.ends
    facts = np.zeros((FACTS, len(block)), np.int64)
    parsed = Messages(data, starts, ends, *facts)
    if len(block) and (starts.min() < 0 or ends.max() > len(data) or (ends < starts).any()):
        raise CorruptMessageError(f"places of messages outside the buffer of {len(data)} bytes")
    compiled = kernels()
    if compiled is None:
        for index in range(len(block)):
            _parse_one(parsed, index)
        return parsed
    bad = compiled.parse(data, starts, ends, facts)
    if bad >= 0:
        _parse_one(parsed, int(bad))  # raises the same error with a message
        raise CorruptMessageError(f"message {bad} of the buffer is not one of pgoutput")
    return parsed


def _parse_one(parsed: Messages, index: int) -> None:
    reader = _Reader(parsed.data, int(parsed.starts[index]), int(parsed.ends[index]), index)
    kind = chr(reader.integer(">B"))
    parsed.kind[index] = ord(kind)
    parsed.old_at[index] = parsed.new_at[index] = parsed.relation[index] = -1
    if kind == "B":
        parsed.lsn[index] = reader.integer(">q")
        parsed.time[index] = reader.time()
        parsed.xid[index] = reader.integer(">I")
    elif kind == "C":
        reader.integer(">B")
        parsed.lsn[index] = reader.integer(">q")
        parsed.end_lsn[index] = reader.integer(">q")
        parsed.time[index] = reader.time()
    elif kind == "O":
        parsed.lsn[index] = reader.integer(">q")
        reader.name()
    elif kind in "RYTMA":  # Postgres 18 sends stream aborts (A) also where nothing is streamed (BUG #19616)
        if kind == "R":
            parsed.relation[index] = int.from_bytes(reader.take(4), "big")
        if kind == "M":
            reader.integer(">B")
            parsed.lsn[index] = reader.integer(">q")
        return  # the methods of `Messages` read the rest
    elif kind in "IUD":
        _parse_change(parsed, reader, index, kind)
    else:
        raise reader.corrupt(f"pgoutput has no kind {kind!r}; ask for proto_version 1, without two_phase")
    reader.finish()


def _parse_change(parsed: Messages, reader: _Reader, index: int, kind: str) -> None:
    parsed.relation[index] = reader.integer(">I")
    mark = chr(reader.integer(">B"))
    old: list[bytes | EllipsisType | None] = []
    if mark in "KO" and kind in "UD":
        parsed.old_at[index] = reader.at
        old = [reader.value() for _ in range(reader.integer(">H"))]
        if kind == "D":
            return
        mark = chr(reader.integer(">B"))
    if mark != "N" or kind == "D":
        raise reader.corrupt(f"{mark!r} where a tuple should begin")
    parsed.new_at[index] = reader.at
    new = [reader.value() for _ in range(reader.integer(">H"))]
    if old and len(old) != len(new):
        raise reader.corrupt(f"{len(old)} old columns and {len(new)} new ones")
    # With replica identity full, the old tuple has all values; otherwise those of the key, and null for others.
    given = [value is not None and value is not ... for value in old] or [False] * len(new)
    parsed.unchanged[index] = sum(value is ... and not has_old for value, has_old in zip(new, given, strict=True))


class _Reader:
    """Reads the bytes of one message, never beyond its end."""

    __slots__ = ("at", "data", "end", "index")

    def __init__(self, data: Bytes, at: int, end: int, index: int) -> None:
        self.data = data
        self.at = at
        self.end = end
        self.index = index

    def corrupt(self, what: str) -> CorruptMessageError:
        return CorruptMessageError(f"message {self.index} of the buffer, at byte {self.at}: {what}")

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.end - self.at:
            raise self.corrupt(f"{size} bytes are needed, {self.end - self.at} are available")
        self.at += size
        return self.data[self.at - size : self.at].tobytes()

    def integer(self, layout: str) -> int:
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def time(self) -> int:
        """Microseconds since 1970."""
        value = self.integer(">q") + EPOCH_MICROS
        if value >= 1 << 63:
            raise self.corrupt("a time beyond all times")
        return value

    def name(self) -> bytes:
        rest = self.data[self.at : self.end].tobytes()
        size = rest.find(b"\0")
        if size < 0:
            raise self.corrupt("a name that does not end")
        self.at += size + 1
        return rest[:size]

    def text(self) -> str:
        name = self.name()
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise self.corrupt("a name that is not UTF-8; the session's client_encoding must be UTF8") from None

    def value(self) -> bytes | EllipsisType | None:
        kind = self.take(1)
        if kind == b"n":
            return None
        if kind == b"u":
            return ...
        if kind == b"t":
            return self.take(self.integer(">i"))
        if kind == b"b":
            raise self.corrupt("a value in binary; ask pgoutput for text (binary 'false')")
        raise self.corrupt(f"a value of kind {kind!r}")

    def finish(self) -> None:
        if self.at != self.end:
            raise self.corrupt(f"{self.end - self.at} bytes are left over")
