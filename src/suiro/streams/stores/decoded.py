"""Rows as values: each is decoded and encoded at most once in a micro-batch.

`Cells` stands between a store and its ordered map. The caller gets a value of its own, as if it had just been read from
its bytes: an aggregator may change it in place, and operators below may change a value that was put. So a value that
can change is copied when it is put and when it is read. A value is kept only if its serde would read it back as it is
(`reader_of`). Any other value is encoded at once, as without `keeps`, so that `put` itself raises the error.
"""

from __future__ import annotations

import datetime
import decimal
import marshal
import struct
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any

import msgspec

from suiro.foundation.nesting import MAX_NESTING
from suiro.streams import serdes
from suiro.streams.serdes.block_forms import encode_block
from suiro.streams.stores.ordered import OrderedMap
from suiro.streams.topology.nodes import StoreSpec

Copy = Callable[[Any], Any]
"""Returns a value that belongs to the caller."""

_TIMESTAMP = struct.Struct(">q")
_INTEGERS = 1 << 63
"""All serdes have a form for integers up to here; larger ones are encoded at once."""


class Cells:
    """The rows of one store. `stamped`: a row is its timestamp (int64) and the serialised value; else the value alone,
    and its timestamp is 0. `keeps`: rows are kept as values until the micro-batch's end."""

    def __init__(self, spec: StoreSpec, rows: OrderedMap, *, stamped: bool, keeps: bool = False) -> None:
        self._rows = rows
        self._serde = spec.value
        self._topic = f"{spec.name}-changelog"
        self._start = _TIMESTAMP.size if stamped else 0
        self._keeps = keeps
        self._form = reader_of(spec.value) if keeps else None
        self._is_json = type(spec.value) is serdes.JsonSerde  # what it reads, msgspec copies in C
        self.own_copy: Copy = msgspec.to_builtins if self._form in (_json, _tagged) else _same
        """Copies what `self._form` gave."""
        if keeps:
            rows.write = self._write

    def get(self, key: bytes) -> tuple[Any, int] | None:
        """Returns value and timestamp. The value belongs to the caller."""
        if not self._keeps:
            data = self._rows.get(key)
            return None if data is None else self.decoded(data)
        row = self._rows.held(key)
        if row is None:
            return None
        if type(row) is _Row:
            return row.copy(row.value), row.timestamp
        assert isinstance(row, bytes)
        value, timestamp = self.decoded(row)
        made = msgspec.to_builtins if self._is_json else copier_of(value)
        if made is not None:
            self._rows.hold(key, _Row(self, made(value), timestamp, row, made))
        return value, timestamp

    def put(self, key: bytes, value: Any, timestamp: int = 0) -> None:
        """Puts a row. The value still belongs to the caller."""
        if self._form is not None and type(timestamp) is int and -_INTEGERS <= timestamp < _INTEGERS:
            try:
                own = self._form(value)
            except _NotExact:
                pass
            else:
                row = self._rows.held(key)
                if type(row) is _Row and row.is_change:
                    row.value, row.timestamp, row.data = own, timestamp, None
                else:
                    self._rows.put(key, _Row(self, own, timestamp, None, self.own_copy))
                return
        self._rows.put(key, self.encoded(value, timestamp))

    def snapshot(self, key: bytes) -> Snapshot:
        """Returns the row as it is now, for `row_of`."""
        row = self._rows.held(key)
        if not isinstance(row, _Row):
            assert row is None or isinstance(row, bytes)
            return row
        # A later put changes the held row, but not its value.
        return _Row(self, row.value, row.timestamp, row.data, row.copy)

    def row_of(self, snapshot: Snapshot) -> tuple[Any, int] | None:
        """Returns what `get` would have returned then. The value belongs to the caller."""
        if isinstance(snapshot, _Row):
            return snapshot.copy(snapshot.value), snapshot.timestamp
        return None if snapshot is None else self.decoded(snapshot)

    def decoded(self, row: bytes) -> tuple[Any, int]:
        if self._start:
            return self._serde.deserialize(self._topic, row[8:]), _TIMESTAMP.unpack_from(row)[0]
        return self._serde.deserialize(self._topic, row), 0

    def encoded(self, value: Any, timestamp: int) -> bytes:
        return self._stamped(self._serde.serialize(self._topic, value), timestamp)

    def _stamped(self, data: bytes, timestamp: int) -> bytes:
        return _TIMESTAMP.pack(timestamp) + data if self._start else data

    def _write(self, rows: Sequence[_Row]) -> None:
        rows = [row for row in rows if row.data is None]
        found = encode_block(self._serde, [row.value for row in rows], self._topic)
        for row, data in zip(rows, found, strict=True):
            assert data is not None
            row.data = self._stamped(data, row.timestamp)


class _Row:
    """A row as a value. `data`: its bytes, if they are known. `is_change`: the row was put, not only read."""

    __slots__ = ("_cells", "copy", "data", "is_change", "timestamp", "value")

    def __init__(self, cells: Cells, value: Any, timestamp: int, read: bytes | None, copy: Copy) -> None:
        self._cells = cells
        self.value = value
        self.timestamp = timestamp
        self.data = read
        self.copy = copy
        """Copies the value for a caller."""
        self.is_change = read is None

    def encoded(self) -> bytes:
        if self.data is None:
            self.data = self._cells.encoded(self.value, self.timestamp)
        return self.data


Snapshot = _Row | bytes | None
"""A row as it was; None if there was none."""


# Copies of values that were read

_NO_JSON = (bytes, datetime.date, datetime.time, datetime.datetime, datetime.timedelta, decimal.Decimal, uuid.UUID)
_ATOMS = frozenset({str, int, bool, float, type(None), *_NO_JSON})
_copied = partial(msgspec.to_builtins, builtin_types=_NO_JSON)


def copier_of(value: Any) -> Copy | None:
    """Returns a function that copies this value with everything in it that can change; None if none is known."""
    kind = type(value)
    if kind in _ATOMS:
        return _same
    if kind is dict and _ATOMS.issuperset(map(type, value.values())) and _ATOMS.issuperset(map(type, value)):
        return dict.copy
    if kind is list and _ATOMS.issuperset(map(type, value)):
        return list.copy
    try:
        return _copied if _is_known(value) else None
    except RecursionError:
        return None


def _same(value: Any) -> Any:
    return value


def _is_known(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(_is_known(key) and _is_known(item) for key, item in value.items())
    if kind is list or kind is tuple:
        return all(map(_is_known, value))
    return kind in _ATOMS


# Values as they are read back


class _NotExact(Exception):
    """The serde might give back another value, or refuse this one."""


def reader_of(serde: serdes.Serde) -> Copy | None:
    """Returns a function that returns what the serde would read from the bytes it writes for a value, or raises
    `_NotExact`. None: there is no such function for this serde."""
    return _FORMS.get(type(serde))


def _only(kind: type) -> Copy:
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise _NotExact

    return read


def _integers_of(bits: int) -> Copy:
    limit = 1 << (bits - 1)

    def read(value: Any) -> Any:
        if type(value) is int and -limit <= value < limit:
            return value
        raise _NotExact

    return read


def _string(value: Any) -> Any:
    if type(value) is not str:
        raise _NotExact
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # a surrogate
            raise _NotExact from None
    return value


def _json(value: Any) -> Any:
    """The fields of an object come back sorted. msgspec writes and reads a list or dict, which takes less time than
    checking all its items. A value that comes back as another one (a tuple, a date, NaN) is not exact."""
    kind = type(value)
    if kind is dict or kind is list:
        try:
            data = _write(value)
            own = _read(data)
            is_exact = bool(own == value)
        except Exception:  # noqa: BLE001 - a user's class may raise anything
            raise _NotExact from None
        if is_exact and (len(data) <= MAX_NESTING or data.count(b"[") + data.count(b"{") <= MAX_NESTING):
            return own
    elif kind is int:
        if -_INTEGERS <= value < _INTEGERS:
            return value
    elif kind is str:
        return _string(value)
    elif kind is bool or (kind is float and isfinite(value)):
        return value
    raise _NotExact


def _tagged(value: Any) -> Any:
    """Unlike `_json`, refuses enumerations and classes derived from those of JSON.

    `marshal` takes no derived classes. It takes more than JSON has (tuples, bytes), which `_json` finds to be unequal.
    A text of numpy's is equal, but marshal writes it as a buffer, in another size.
    """
    try:
        size = len(marshal.dumps(value, 0))
    except ValueError:
        raise _NotExact from None
    own = _json(value)
    if len(marshal.dumps(own, 0)) != size:
        raise _NotExact
    return own


_write, _read = msgspec.json.Encoder(order="sorted").encode, msgspec.json.Decoder().decode

_FORMS: dict[type, Copy] = {
    serdes.LongSerde: _integers_of(64),
    serdes.IntSerde: _integers_of(32),
    serdes.DoubleSerde: _only(float),
    serdes.BooleanSerde: _only(bool),
    serdes.BytesSerde: _only(bytes),
    serdes.StringSerde: _string,
    serdes.JsonSerde: _json,
    serdes.TaggedSerde: _tagged,
}
