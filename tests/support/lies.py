"""Lies of a broker: responses as they are, with one field changed to something that no broker says.

`lies(frame, message_class)` goes over a response field by field, as kio's schema has them. Most lies can be read: an
array is null, empty, without its last element or has it twice, a number is negative or huge.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from suiro.protocol.fields import read_uvarint, uvarint
from suiro.protocol.frame_check import _FIXED, Field, layout

CLAIM = 0x7FFFFFFF


class Lie(NamedTuple):
    what: str
    frame: bytes


class _Value(NamedTuple):
    """One value of a response: where it is, and what else could be there."""

    path: str
    start: int
    end: int
    others: dict[str, bytes]


def lies(frame: bytes, message_class: Any) -> list[Lie]:
    """`frame` begins with the correlation id."""
    start = 5 if message_class.__header_schema__.__flexible__ else 4
    values: list[_Value] = []
    _message(frame, start, message_class, "", values)
    told = [
        Lie(f"{value.path} is {what}", frame[: value.start] + other + frame[value.end :])
        for value in values
        for what, other in value.others.items()
        if other != frame[value.start : value.end]
    ]
    number = struct.unpack_from(">i", frame)[0] + 1 & CLAIM
    told.append(Lie("its number is another's", struct.pack(">i", number) + frame[4:]))
    told += [Lie(f"it ends after {size} bytes", frame[:size]) for size in {4, 5, len(frame) // 2, len(frame) - 1}]
    return told


def _message(frame: bytes, position: int, message_class: Any, path: str, values: list[_Value]) -> int:
    flexible = message_class.__flexible__
    for field in layout(message_class):
        if "tag" not in field.metadata:
            position = _field(frame, position, field, f"{path}{field.name}", flexible, values)
    if flexible:
        count, position = read_uvarint(frame, position)
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    return position


def _field(frame: bytes, position: int, field: Field, path: str, flexible: bool, values: list[_Value]) -> int:
    if not field.many:
        return _one(frame, position, field, path, flexible, values)
    start = position
    count, position = _length(frame, position, 4, flexible)
    elements, places = position, [position]
    for number in range(count):
        # What is said of the first element is said of all.
        into = values if number == 0 else []
        position = _one(frame, position, field, f"{path}[]", flexible, into)
        places.append(position)
    whole = frame[elements:position]
    others = {
        "null": _count(-1, flexible),
        "empty": _count(0, flexible),
        "billions": _count(CLAIM - 1, flexible) + whole,
    }
    if not flexible:
        others["negative"] = struct.pack(">i", -7) + whole
    if count:
        last = frame[places[-2] : places[-1]]
        others["without its last"] = _count(count - 1, flexible) + frame[elements : places[-2]]
        others["with its last twice"] = _count(count + 1, flexible) + whole + last
    values.append(_Value(path, start, position, others))
    return position


def _one(frame: bytes, position: int, field: Field, path: str, flexible: bool, values: list[_Value]) -> int:
    start = position
    if field.nested is not None:
        if field.optional and not field.many:
            position += 1
            if frame[start] > 0x7F:
                return position
        return _message(frame, position, field.nested, f"{path}.", values)
    kind = field.metadata["kafka_type"]
    if kind in _FIXED:
        size = _FIXED[kind]
        values.append(_Value(path, start, start + size, dict(_numbers(frame[start : start + size], kind))))
        return start + size
    width = 2 if kind == "string" else 4
    length, position = _length(frame, position, width, flexible)
    end = position + max(length, 0)
    texts = {
        "null": None,
        "empty": b"",
        "another": b"lie",
        "not UTF-8": b"\xff\xfe",
        "longer": frame[position:end] + b"x",
    }
    if kind != "string":
        half = frame[position : position + max(length, 0) // 2]
        flipped = bytes((*half[:-1], half[-1] ^ 1)) + frame[position + len(half) : end] if half else b"\1"
        texts = {"null": None, "empty": b"", "cut": half, "garbage": b"\2" * 80, "changed": flipped}
    others = {what: _text(text, width, flexible) for what, text in texts.items()}
    others["beyond the end"] = _lengths(len(frame) * 2, width, flexible)
    values.append(_Value(path, start, end, others))
    return end


def _numbers(now: bytes, kind: str) -> Iterator[tuple[str, bytes]]:
    size = len(now)
    if kind == "float64":
        yield from (("nan", struct.pack(">d", float("nan"))), ("-inf", struct.pack(">d", float("-inf"))))
        return
    yield "zero", bytes(size)
    yield "-1", b"\xff" * size
    if kind in ("bool", "uuid"):
        return
    yield "least", b"\x80" + bytes(size - 1)
    yield "most", b"\x7f" + b"\xff" * (size - 1)
    value = int.from_bytes(now, "big", signed=True)
    for step in (-1, 1):
        if -(1 << 8 * size - 1) <= value + step < 1 << 8 * size - 1:
            yield f"{step:+}", (value + step).to_bytes(size, "big", signed=True)


def _length(frame: bytes, position: int, width: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        value, position = read_uvarint(frame, position)
        return value - 1, position
    return int.from_bytes(frame[position : position + width], "big", signed=True), position + width


def _count(count: int, flexible: bool) -> bytes:
    return _lengths(count, 4, flexible)


def _lengths(length: int, width: int, flexible: bool) -> bytes:
    return (
        uvarint(length + 1) if flexible else min(length, (1 << 8 * width - 1) - 1).to_bytes(width, "big", signed=True)
    )


def _text(text: bytes | None, width: int, flexible: bool) -> bytes:
    return _lengths(-1 if text is None else len(text), width, flexible) + (text or b"")
