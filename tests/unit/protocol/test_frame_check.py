"""Counts and lengths that cannot be true are refused before the parser makes room for them."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

import pytest
from support.fuzzing import frames

from suiro.protocol.frame_check import TooManyElementsError, check_counts
from suiro.protocol.messages import nested, read_request, read_response, request_class, write_request

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


@pytest.mark.parametrize(("version", "rest"), [(0, struct.pack(">hi", -1, -1)), (2, b"\xff\xff\0" + b"\0\0")])
def test_an_array_that_is_null_and_must_not_be(version: int, rest: bytes) -> None:
    """The parser returns None for it, whatever the type of the field is."""
    with pytest.raises(ValueError, match="the array groups_names is null"):
        read_request(struct.pack(">hhi", 42, version, 7) + rest, 42, version)
    with pytest.raises(ValueError, match="the array brokers is null"):
        read_response(struct.pack(">iiii", 7, -1, 0, -1), 3, 1)
    # This one may be.
    assert read_request(struct.pack(">hhihi", 3, 1, 7, -1, -1), 3, 1)[1].topics is None


def test_a_string_is_no_longer_than_in_the_older_form() -> None:
    message = request_class(3, 12)
    for size, is_read in ((32_767, True), (32_768, False)):
        topic = nested(message, "MetadataRequestTopic")(topic_id=None, name="x" * size)
        asked = message(topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        frame = write_request(asked, correlation_id=1, client_id=None)
        if is_read:
            assert read_request(frame, 3, 12)[1] == asked
        else:
            with pytest.raises(ValueError, match="a string has 32768 bytes, the most is 32767"):
                read_request(frame, 3, 12)


def test_null_is_no_claim() -> None:
    metadata = request_class(3, 12)(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    frame = write_request(metadata, correlation_id=1, client_id=None)
    assert read_request(frame, 3, 12)[1] == metadata


def _metadata(names: int) -> Any:
    message = request_class(3, 12)
    named = nested(message, "MetadataRequestTopic")
    return message(
        topics=tuple(named(topic_id=None, name=f"t{n}") for n in range(names)),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def _delete_records(topics: int, partitions: int) -> Any:
    message = request_class(21, 2)
    entry = nested(message, "DeleteRecordsPartition")
    entries = tuple(entry(partition_index=n, offset=0) for n in range(partitions))
    named = nested(message, "DeleteRecordsTopic")
    return message(
        topics=tuple(named(name=f"t{n}", partitions=entries) for n in range(topics)),
        timeout=timedelta(seconds=1),
    )


def _add_partitions(partitions: int) -> Any:
    message = request_class(24, 3)
    named = nested(message, "AddPartitionsToTxnTopic")
    return message(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=(named(name="t", partitions=tuple(range(partitions))),),
    )


@pytest.mark.parametrize(
    ("request_", "elements"),
    [(_metadata(100), 100), (_delete_records(10, 9), 100), (_add_partitions(99), 100)],
    ids=["names", "nested", "numbers"],
)
def test_elements_are_counted_at_every_depth(request_: Any, elements: int) -> None:
    frame = write_request(request_, correlation_id=1, client_id="x")
    key, version = struct.unpack_from(">hh", frame)
    assert read_request(frame, key, version, max_elements=elements)[1] == request_
    with pytest.raises(TooManyElementsError):
        read_request(frame, key, version, max_elements=elements - 1)
    assert read_request(frame, key, version)[1] == request_
