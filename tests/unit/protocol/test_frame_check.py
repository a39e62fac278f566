"""Counts and lengths that cannot be true are refused before the parser makes room for them."""

from __future__ import annotations

import struct

import pytest
from support.fuzzing import frames

from suiro.protocol.frame_check import check_counts
from suiro.protocol.messages import read_request, request_class, write_request

HUGE = b"\xff\xff\xff\xff\x0f"


def test_every_request_as_it_should_be_passes_and_not_a_byte_less() -> None:
    for frame in frames():
        message_class = request_class(*struct.unpack_from(">hh", frame))
        check_counts(frame, message_class)
        check_counts(memoryview(frame), message_class)
        with pytest.raises(ValueError, match=r"claims|ends in the middle"):
            check_counts(frame[:-1], message_class)


@pytest.mark.parametrize(
    ("key", "version", "rest"),
    [
        (42, 2, b"\0\0\0" + b"\xff\xff\xff\xff\x75" + b"zz\0\1\0"),  # more than 32 bits: 253 GB of names
        (42, 2, b"\0\0\0" + HUGE),
        (42, 0, struct.pack(">hi", 0, 2**31 - 1)),
        (3, 1, struct.pack(">hi", -1, 2**31 - 1)),
        (3, 12, b"\0\0\0" + b"\0\0\0" + HUGE + b"x"),  # the count of tags
        (1, 12, b"\0\0\0" + b"\0" * 25 + b"\1\1\1" + b"\1\0" + HUGE),
        (0, 9, b"\0\0\0" + b"\0" + b"\xff\xff\0\0\0\0" + b"\2\2t" + HUGE),
        (75, 0, b"\0\0\0" + b"\1" + b"\0\0\0\1" + b"\1" + HUGE),  # in a struct that may be null
        (36, 0, struct.pack(">hi", 0, 2**31 - 1)),
        (3, 1, struct.pack(">h", 32767)),
    ],
)
def test_claims_that_cannot_be_true(key: int, version: int, rest: bytes) -> None:
    frame = struct.pack(">hhi", key, version, 7) + rest
    with pytest.raises(ValueError, match=r"claims|32 bits|ends in the middle"):
        read_request(frame, key, version)


def test_null_is_no_claim() -> None:
    metadata = request_class(3, 12)(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    frame = write_request(metadata, correlation_id=1, client_id=None)
    assert read_request(frame, 3, 12)[1] == metadata
