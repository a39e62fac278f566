"""Kafka's primitive fields: what is written is read back, and hostile lengths are ValueErrors."""

from __future__ import annotations

from uuid import UUID

import pytest

from suiro.protocol.fields import FieldReader, FieldWriter, put_varint, read_uvarint, uvarint

ID = UUID(int=0x0123456789ABCDEF)


def test_every_field_is_read_back() -> None:
    data = (
        FieldWriter()
        .int8(-1)
        .int16(-2)
        .int32(-3)
        .int64(-4)
        .string("older")
        .string(None)
        .octets(b"bytes")
        .uvarint(300)
        .compact_string("flexible")
        .compact_octets(None)
        .compact_count(2)
        .uuid(ID)
        .tags({7: b"seven", 0: b""})
        .done()
    )
    reader = FieldReader(data)
    assert (reader.int8(), reader.int16(), reader.int32(), reader.int64()) == (-1, -2, -3, -4)
    assert (reader.string(), reader.optional_string(), reader.octets()) == ("older", None, b"bytes")
    assert (reader.uvarint(), reader.compact_string(), reader.compact_octets()) == (300, "flexible", b"")
    assert (reader.compact_count(), reader.uuid(), reader.tags()) == (2, ID, {0: b"", 7: b"seven"})


@pytest.mark.parametrize("value", [0, 127, 128, 300, 2**32 - 1])
def test_an_unsigned_varint_ends_where_it_says(value: int) -> None:
    assert read_uvarint(b"\xff" + uvarint(value) + b"\0", 1) == (value, 1 + len(uvarint(value)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01"])
def test_a_torn_or_endless_varint_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends in the middle|more than 32 bits"):
        FieldReader(data).uvarint()


def test_a_length_past_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="ends too early"):
        FieldReader(uvarint(2**31) + b"short").compact_string()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (-65, b"\x81\1"), (2**63 - 1, b"\xfe" + b"\xff" * 8 + b"\1")],
)
def test_a_signed_varint_is_zigzag(value: int, encoded: bytes) -> None:
    out = bytearray()
    put_varint(out, value)
    assert bytes(out) == encoded
