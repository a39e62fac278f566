"""Rejects frames that kio's parser must not see: impossible counts and lengths, arrays that are null and must not be,
and tagged fields of later versions.

kio makes room for as many elements as an array claims. A claim of billions in a frame of a few bytes would end the
process, not raise. And kio returns None for an array that is null, whatever the field's type. This module reads only
counts and lengths. Each must fit into the rest of the frame, and all counts together into the caller's limit, because
an element in memory takes a hundred times its bytes.

Tagged fields are Kafka's way to extend a message without a new version of it (KIP-482): readers skip those that they do
not know. kio refuses the message, so its unknown tagged fields are removed first.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
import threading
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from suiro.protocol.fields import MAX_STRING_BYTES, read_uvarint, uvarint

Bytes: TypeAlias = bytes | memoryview
_Check: TypeAlias = Callable[[Bytes, int], int]
"""Goes over one value: from its first position to the one behind it."""

_FIXED = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}


class Field(NamedTuple):
    """One field of kio's message classes."""

    name: str
    metadata: Mapping[str, Any]
    nested: Any
    """The class of the structure, or of the array's structures; None: it has none."""
    many: bool
    optional: bool
    required: bool


@cache
def layout(message_class: Any) -> tuple[Field, ...]:
    """The fields in their order."""
    hints = typing.get_type_hints(message_class, vars(sys.modules[message_class.__module__]))
    found = []
    for field in dataclasses.fields(message_class):
        hint = hints[field.name]
        parts = typing.get_args(hint)
        optional = type(None) in parts
        inner = next((part for part in parts if part is not type(None)), hint) if optional else hint
        many = typing.get_origin(inner) is tuple
        element = typing.get_args(inner)[0] if many else inner
        nested = element if dataclasses.is_dataclass(element) else None
        required = field.default is dataclasses.MISSING
        found.append(Field(field.name, field.metadata, nested, many, optional, required))
    return tuple(found)


class TooManyElementsError(ValueError):
    """Its arrays have more elements than the caller takes."""


class _Allowance(threading.local):
    """Elements that the frame which this thread looks at may still have."""

    left = sys.maxsize


_allowance = _Allowance()


def check_counts(frame: Bytes, message_class: Any, *, max_elements: int | None = None) -> None:
    """Raises `ValueError` unless every count and length of a request or response, header included, fits into its frame,
    and every array is there; `TooManyElementsError` where its arrays have more elements together than that."""
    _allowance.left = sys.maxsize if max_elements is None else max_elements
    try:
        position = _message(message_class.__header_schema__)(frame, 0)
        position = _message(message_class)(frame, position)
    except (IndexError, struct.error):
        position = len(frame) + 1
    if position > len(frame):
        raise ValueError("it ends in the middle")


def without_unknown_tags(frame: Bytes, message_class: Any) -> bytes:
    """The frame of a request or response, header included, without the tagged fields that kio does not know, at
    whatever depth. Raises `ValueError` as `check_counts` does."""
    sections: list[tuple[int, int, bytes]] = []
    _rewritten.sections = sections
    try:
        check_counts(frame, message_class)
    finally:
        _rewritten.sections = None
    return _replaced(frame, 0, len(frame), sections)


_rewritten = threading.local()
"""`sections`: of the frame that this thread looks through, where sections of tagged fields are and what they become.
None, or not there, while nobody asks."""


def _replaced(frame: Bytes, position: int, end: int, sections: list[tuple[int, int, bytes]]) -> bytes:
    parts: list[Bytes] = []
    for start, behind, section in sections:
        parts += (frame[position:start], section)
        position = behind
    return b"".join((*parts, frame[position:end]))


def _fits(frame: Bytes, position: int, size: int) -> int:
    if size > len(frame) - position:
        raise ValueError(f"at byte {position} it claims {size} more, and has {max(0, len(frame) - position)} left")
    return position


def _plain(size: int) -> Callable[[Bytes, int], tuple[int, int]]:
    """Reads a length of so many bytes; null is -1."""
    unpack = struct.Struct(">h" if size == 2 else ">i").unpack_from

    def read(frame: Bytes, position: int) -> tuple[int, int]:
        return unpack(frame, position)[0], position + size

    return read


def _compact(frame: Bytes, position: int) -> tuple[int, int]:
    """Null is -1, too."""
    value = frame[position]
    if value < 0x80:
        position += 1
    else:
        value, position = read_uvarint(frame, position)
    return value - 1, position


def _octets(read: Callable[[Bytes, int], tuple[int, int]], most: int = sys.maxsize) -> _Check:
    """A string, bytes or records, with so many bytes at most."""

    def check(frame: Bytes, position: int) -> int:
        size, position = read(frame, position)
        if size <= 0:
            return position
        end = position + size
        if end > len(frame):
            _fits(frame, position, size)
        if size > most:
            raise ValueError(f"at byte {position} a string has {size} bytes, the most is {most}")
        return end

    return check


def _array(read: Callable[[Bytes, int], tuple[int, int]], element: int | _Check, field: Field) -> _Check:
    """With elements of fixed size they are not visited."""

    def counted(frame: Bytes, position: int) -> tuple[int, int]:
        count, position = read(frame, position)
        if count > 0:
            _allowance.left -= count
            if _allowance.left < 0:
                raise TooManyElementsError(f"at byte {position} its arrays have too many elements")
        elif count < 0:
            if not field.optional:
                raise ValueError(f"at byte {position} the array {field.name} is null")
            count = 0
        return count, position

    if isinstance(element, int):
        size = element

        def check_fixed(frame: Bytes, position: int) -> int:
            count, position = counted(frame, position)
            end = position + count * size
            if end > len(frame):
                _fits(frame, position, count * size)
            return end

        return check_fixed
    one = element

    def check(frame: Bytes, position: int) -> int:
        count, position = counted(frame, position)
        if position + count > len(frame):  # none takes less than a byte
            _fits(frame, position, count)
        for _ in range(count):
            position = one(frame, position)
        return position

    return check


@cache
def _message(message_class: Any) -> _Check:
    flexible = message_class.__flexible__
    steps: list[int | _Check] = []
    tagged: dict[int, _Check] = {}
    for field in layout(message_class):
        if field.name == "client_id" and "header" in message_class.__module__:
            step: int | _Check = _octets(_plain(2))  # in every header of the old form
        else:
            step = _field(field, flexible=flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = _sequence([step])
        else:
            steps.append(step)
    if flexible:
        steps.append(_tags(tagged))
    return _sequence(steps)


def _field(field: Field, *, flexible: bool) -> int | _Check:
    kind = field.metadata.get("kafka_type", "")
    one: int | _Check
    if field.nested is not None:
        one = _message(field.nested)
        if field.optional and not field.many:
            one = _nullable(one)
    elif kind in _FIXED:
        one = _FIXED[kind]
    else:  # only strings have short lengths, and only without compact ones
        assert kind in ("string", "bytes", "records"), kind
        if not flexible:
            one = _octets(_plain(2 if kind == "string" else 4))
        else:  # Kafka refuses a string that is longer than the older form allows, too
            one = _octets(_compact, MAX_STRING_BYTES if kind == "string" else sys.maxsize)
    return _array(_compact if flexible else _plain(4), one, field) if field.many else one


def _nullable(message: _Check) -> _Check:
    def check(frame: Bytes, position: int) -> int:
        return position + 1 if frame[position] > 0x7F else message(frame, position + 1)

    return check


def _tags(known: dict[int, _Check]) -> _Check:
    def check(frame: Bytes, position: int) -> int:
        if not frame[position]:
            return position + 1  # none, as nearly always
        start = position
        sections: list[tuple[int, int, bytes]] | None = getattr(_rewritten, "sections", None)
        kept: list[bytes] = []
        count, position = read_uvarint(frame, position)
        _fits(frame, position, count)
        for _ in range(count):
            tag, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            _fits(frame, position, size)
            if tag in known:
                before = 0 if sections is None else len(sections)
                if known[tag](frame, position) != position + size:  # kio goes by the value, not by the size
                    raise ValueError(f"at byte {position} tag {tag} claims {size} bytes, and its value has others")
                if sections is not None:
                    field = _replaced(frame, position, position + size, sections[before:])
                    del sections[before:]
                    kept.append(uvarint(tag) + uvarint(len(field)) + field)
            position += size
        if sections is not None:
            sections.append((start, position, uvarint(len(kept)) + b"".join(kept)))
        return position

    return check


def _sequence(steps: list[int | _Check]) -> _Check:
    """One after another; neighbours of fixed size are passed over in one step."""
    merged: list[int | _Check] = []
    for step in steps:
        if isinstance(step, int) and merged and isinstance(merged[-1], int):
            merged[-1] += step
        else:
            merged.append(step)
    checks: list[tuple[int, _Check]] = []  # each with what is passed over before it
    skip = 0
    for step in merged:
        if isinstance(step, int):
            skip = step
        else:
            checks.append((skip, step))
            skip = 0

    def check(frame: Bytes, position: int) -> int:
        for before, one in checks:
            position = one(frame, position + before)
        return position + skip

    return check
