"""What a broker takes from a producer and what it refuses: the node and Apache Kafka alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from conftest import LogUnderTest
from support.admin import ask, plain
from support.batches import TIMESTAMP, batch_of, owned_batch, read_all
from support.wire import Wire

from suiro.client import Client
from suiro.protocol.crc32c import crc32c
from suiro.protocol.messages import API_KEYS, nested, request_class
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import Record, encode_batch

NewTopic = Callable[..., str]
GZIP, ZSTD = 1, 4
TIMEOUT = timedelta(seconds=10)


def produce(
    wire: Wire,
    topic: str | UUID | None,
    *batches: tuple[int, bytes | None],
    version: int = 12,
    acks: int = -1,
    more: tuple[tuple[str, int, bytes], ...] = (),
    transactional_id: str | None = None,
) -> list[dict[str, Any]]:
    """The answers of all partitions. kio's request is built here because it knows no records but bytes."""
    message = request_class(API_KEYS["produce"], version)
    topic_class, data_class = nested(message, "TopicProduceData"), nested(message, "PartitionProduceData")
    by = "topic_id" if version >= 13 else "name"
    data = [
        topic_class(
            **{by: topic},
            partition_data=tuple(data_class(index=index, records=records) for index, records in batches),
        )
    ]
    data += [
        topic_class(**{by: name}, partition_data=(data_class(index=index, records=records),))
        for name, index, records in more
    ]
    answer = plain(
        wire.call(message(transactional_id=transactional_id, acks=acks, timeout=TIMEOUT, topic_data=tuple(data)))
    )
    return [
        {"topic": found[by], **partition} for found in answer["responses"] for partition in found["partition_responses"]
    ]


def codes(answers: list[dict[str, Any]]) -> list[str]:
    return [answer["error_code"] for answer in answers]


def test_an_answer_whole(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    first, second = (produce(wire, topic, (0, batch_of("a", "b")))[0] for _ in range(2))
    del first["current_leader"], second["current_leader"]
    assert first == {
        "topic": topic,
        "index": 0,
        "error_code": "none",
        "base_offset": 0,
        "log_append_time": None,
        "log_start_offset": 0,
        "record_errors": [],
        "error_message": None,
    }
    assert second == {**first, "base_offset": 2}


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version(wire: Wire, new_topic: NewTopic, version: int) -> None:
    topic = new_topic()
    (answer,) = produce(wire, topic, (0, batch_of("a")), version=version)
    assert (answer["error_code"], answer["base_offset"]) == ("none", 0)
    (answer,) = produce(wire, topic, (3, batch_of("a")), version=version)
    assert (answer["error_code"], answer["base_offset"]) == ("unknown_topic_or_partition", -1)


def test_topics_by_id(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    described = ask(wire, "metadata", 12, topics=[{"topic_id": None, "name": topic}])
    topic_id = described["topics"][0]["topic_id"]
    (answer,) = produce(wire, topic_id, (0, batch_of("a")), version=13)
    assert (answer["topic"], answer["error_code"], answer["base_offset"]) == (topic_id, "none", 0)
    unknown = produce(wire, uuid4(), (0, batch_of("a")), (1, batch_of("b")), version=13)
    assert codes(unknown) == ["unknown_topic_id", "unknown_topic_id"]
    assert codes(produce(wire, topic_id, (5, batch_of("a")), version=13)) == ["unknown_topic_or_partition"]
    (answer,) = produce(wire, None, (0, batch_of("a")), version=13)
    assert (answer["topic"], answer["error_code"]) == (None, "unknown_topic_id")


def test_a_partition_named_twice_counts_once(wire: Wire, new_topic: NewTopic, client: Client) -> None:
    topic = new_topic(2)
    answers = produce(
        wire,
        topic,
        (0, batch_of("first")),
        (1, batch_of("other")),
        (0, batch_of("second")),
        more=((topic, 0, batch_of("third")),),
    )
    assert sorted((a["index"], a["error_code"], a["base_offset"]) for a in answers) == [
        (0, "none", 0),
        (1, "none", 0),
    ]
    assert read_all(client, topic) == ["third"]


def test_one_bad_partition_does_not_spoil_the_others(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    answers = produce(wire, topic, (0, b""), (1, batch_of("a")), (9, batch_of("a")))
    assert sorted((a["index"], a["error_code"]) for a in answers) == [
        (0, "invalid_record"),
        (1, "none"),
        (9, "unknown_topic_or_partition"),
    ]


def with_bytes(batch: bytes, position: int, value: bytes) -> bytes:
    return batch[:position] + value + batch[position + len(value) :]


BATCH = batch_of("a", "b")
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "invalid_record"),
    "a few bytes": (BATCH[:10], "invalid_record"),
    "a batch cut short": (BATCH[:-1], "invalid_record"),
    "two batches": (BATCH + BATCH, "invalid_record"),
    "an old format": (with_bytes(BATCH, 16, b"\1"), "invalid_record"),
    "a format to come": (with_bytes(BATCH, 16, b"\3"), "corrupt_message"),
    "a length that cannot be": (with_bytes(BATCH, 8, b"\0\0\0\5"), "corrupt_message"),
    "a wrong checksum": (with_bytes(BATCH, 17, b"\0\0\0\0"), "corrupt_message"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_refused(wire: Wire, new_topic: NewTopic, name: str) -> None:
    batch, code = REFUSED[name]
    (answer,) = produce(wire, new_topic(), (0, batch))
    assert (answer["error_code"], answer["base_offset"], answer["log_start_offset"]) == (code, -1, -1)


def test_what_hangs_behind_a_batch_is_left_out(wire: Wire, new_topic: NewTopic, client: Client) -> None:
    topic = new_topic()
    assert codes(produce(wire, topic, (0, BATCH + BATCH[:30]))) == ["none"]
    assert codes(produce(wire, topic, (0, BATCH + b"xy"))) == ["none"]
    assert read_all(client, topic) == ["a", "b", "a", "b"]


def test_zstd_is_for_newer_versions(wire: Wire, new_topic: NewTopic) -> None:
    batch = batch_of("a", compression=ZSTD)
    topic = new_topic()
    assert codes(produce(wire, topic, (0, batch), version=6)) == ["unsupported_compression_type"]
    assert codes(produce(wire, topic, (0, batch), version=7)) == ["none"]


def test_a_batch_larger_than_the_topic_takes(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="200")
    (answer,) = produce(wire, topic, (0, batch_of("x" * 200)))
    assert (answer["error_code"], answer["log_start_offset"]) == ("message_too_large", -1)
    assert codes(produce(wire, topic, (0, batch_of("x")))) == ["none"]


@pytest.mark.parametrize("acks", [2, -2])
def test_acks_that_do_not_exist(wire: Wire, new_topic: NewTopic, acks: int) -> None:
    answers = produce(wire, new_topic(), (0, BATCH), (7, BATCH), acks=acks)
    assert sorted(codes(answers)) == ["invalid_required_acks", "unknown_topic_or_partition"]


def test_internal_topics_are_not_written(wire: Wire, new_topic: NewTopic, client: Client) -> None:
    client.offset_commit("some-group", {(new_topic(), 0): (1, "")})
    assert codes(produce(wire, "__consumer_offsets", (0, BATCH))) == ["invalid_topic_exception"]


# What is said of single records (KIP-467).


@pytest.mark.parametrize("compression", [0, GZIP])
def test_a_compacted_topic_takes_no_record_without_a_key(
    wire: Wire, new_topic: NewTopic, client: Client, compression: int
) -> None:
    topic = new_topic(cleanup_policy="compact")
    records = [
        Record(offset=place, timestamp=TIMESTAMP, key=key, value=b"v")
        for place, key in enumerate([b"k", None, b"k", None])
    ]
    (answer,) = produce(wire, topic, (0, encode_batch(records, compression=compression)))
    assert (answer["error_code"], answer["log_start_offset"]) == ("invalid_record", 0)
    assert [error["batch_index"] for error in answer["record_errors"]] == [1, 3]
    assert all(error["batch_index_error_message"] for error in answer["record_errors"])
    assert answer["error_message"]
    (kept,) = produce(wire, topic, (0, encode_batch(records[:1], compression=compression)))
    assert kept["error_code"] == "none"
    (old,) = produce(wire, topic, (0, encode_batch(records[1:2])), version=7)
    assert old["error_code"] == "invalid_record"
    assert read_all(client, topic) == ["v"]


def test_timestamps_outside_of_what_the_topic_allows(wire: Wire, new_topic: NewTopic, client: Client) -> None:
    now = int(time.time() * 1000)
    topic = new_topic(message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000")

    def stamped(*timestamps: int) -> dict[str, Any]:
        records = [
            Record(offset=place, timestamp=timestamp, key=b"k", value=b"v")
            for place, timestamp in enumerate(timestamps)
        ]
        return produce(wire, topic, (0, encode_batch(records)))[0]

    assert stamped(now)["error_code"] == "none"
    late = stamped(now, now + 120_000)
    assert (late["error_code"], late["log_start_offset"]) == ("invalid_timestamp", 0)
    assert [error["batch_index"] for error in late["record_errors"]] == [1]
    old = stamped(now, now - 120_000, now)
    assert (old["error_code"], old["log_start_offset"]) == ("invalid_timestamp", 0)
    assert [error["batch_index"] for error in old["record_errors"]] == [1]


def stamped_by_hand(batch: bytes, position: int, value: bytes) -> bytes:
    """With other bytes under a CRC that is right."""
    altered = with_bytes(batch, position, value)
    return with_bytes(altered, 17, crc32c(altered[21:]).to_bytes(4, "big"))


# What a header says of itself: the CRC is right, so nothing was spoiled on the way.
CONTRADICTIONS: dict[str, tuple[bytes, str]] = {
    "an offset of its own": (stamped_by_hand(BATCH, 0, bytes(7) + b"\5"), "invalid_record"),
    "more records": (stamped_by_hand(BATCH, 57, b"\0\0\0\3"), "invalid_record"),
    "fewer records": (stamped_by_hand(BATCH, 57, b"\0\0\0\1"), "invalid_record"),
    "no records": (stamped_by_hand(BATCH, 57, b"\0\0\0\0"), "invalid_record"),
    "a negative count": (stamped_by_hand(BATCH, 57, b"\xff\xff\xff\xff"), "invalid_record"),
    "another last offset": (stamped_by_hand(BATCH, 23, b"\0\0\0\5"), "invalid_record"),
    "a producer without sequence": (
        stamped_by_hand(BATCH, 43, bytes(7) + b"\7" + bytes(2) + b"\xff" * 4),
        "invalid_record",
    ),
    "a sequence without producer": (stamped_by_hand(BATCH, 53, b"\0\0\0\4"), "none"),
    "a leader epoch": (stamped_by_hand(BATCH, 12, b"\0\0\0\7"), "none"),
    "an attribute to come": (stamped_by_hand(BATCH, 21, b"\0\x80"), "none"),
    "a largest timestamp that is not": (stamped_by_hand(BATCH, 35, bytes(8)), "none"),
    "no timestamps": (batch_of("a", timestamp=-1), "none"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_headers_that_contradict_themselves(wire: Wire, new_topic: NewTopic, name: str) -> None:
    batch, code = CONTRADICTIONS[name]
    (answer,) = produce(wire, new_topic(), (0, batch))
    assert (answer["error_code"], answer["log_start_offset"]) == (code, 0)


def test_a_batch_larger_than_a_segment(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes="3000000", segment_bytes=str(1 << 20))
    (answer,) = produce(wire, topic, (0, batch_of("x" * (1 << 20))))
    assert (answer["error_code"], answer["log_start_offset"]) == ("record_list_too_large", -1)
    assert codes(produce(wire, topic, (0, batch_of("x" * 400_000)))) == ["none"]


@pytest.mark.parametrize("name", ["a b", "..", "x" * 300, ""])
def test_topics_that_cannot_be_are_unknown(wire: Wire, new_topic: NewTopic, name: str) -> None:
    assert codes(produce(wire, name, (0, BATCH))) == ["unknown_topic_or_partition"]


@pytest.mark.parametrize("at", [61, 65], ids=["a length", "a key"])
def test_a_compacted_topic_takes_no_record_that_cannot_be_read(
    wire: Wire, new_topic: NewTopic, at: int, log_under_test: LogUnderTest
) -> None:
    """Compaction would stop at it for ever. (Apache Kafka has no name for some of them.)"""
    topic = new_topic(cleanup_policy="compact")
    (answer,) = produce(wire, topic, (0, stamped_by_hand(BATCH, at, b"\x7f")))
    wanted = {"invalid_record"} if log_under_test.name == "node" else {"invalid_record", "unknown_server_error"}
    assert answer["error_code"] in wanted
    (answer,) = produce(wire, topic, (0, BATCH))
    assert (answer["error_code"], answer["base_offset"]) == ("none", 0)


def test_only_the_log_gives_its_time(wire: Wire, new_topic: NewTopic) -> None:
    claims = stamped_by_hand(BATCH, 21, b"\0\x08")
    (answer,) = produce(wire, new_topic(message_timestamp_type="LogAppendTime"), (0, claims))
    assert (answer["error_code"], answer["log_start_offset"]) == ("invalid_timestamp", 0)
    assert [error["batch_index"] for error in answer["record_errors"]] == [0, 1]
    assert codes(produce(wire, new_topic(), (0, claims))) == ["none"]


def test_the_append_time_where_the_topic_asks_for_it(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    (answer,) = produce(wire, topic, (0, BATCH))
    assert answer["log_append_time"].timestamp() > TIMESTAMP / 1000


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_stored_in_the_codec_of_the_topic(
    wire: Wire, new_topic: NewTopic, client: Client, wanted: str
) -> None:
    topic = new_topic(compression_type=wanted)
    codec = ("uncompressed", "gzip", "snappy", "lz4", "zstd").index(wanted)
    values = [letter * 2000 for letter in "abc"]
    producer_id, epoch = wire.new_producer()
    owned = owned_batch(*values, producer_id=producer_id, epoch=epoch, sequence=0)
    for _ in range(2):  # the second time it is known again
        assert produce(wire, topic, (0, owned))[0]["base_offset"] == 0
    for sent in range(5):
        assert codes(produce(wire, topic, (0, batch_of(*values, compression=sent)))) == ["none"]
    assert read_all(client, topic) == values * 6
    stored = client.fetch({(topic, 0): 0}, max_wait_ms=0)[topic, 0].data
    found = [(header.compression, header.size) for _, header in iter_headers(stored)]
    assert {each for each, _ in found} == {codec}
    assert all((size < 2000) == (codec > 0) for _, size in found)


def test_a_batch_that_cannot_be_taken_out_of_its_codec(
    wire: Wire, new_topic: NewTopic, log_under_test: LogUnderTest
) -> None:
    garbled = stamped_by_hand(batch_of("a", compression=2), 61, bytes(4))
    (answer,) = produce(wire, new_topic(compression_type="gzip"), (0, garbled))
    # Apache Kafka has no name for it.
    code = "invalid_record" if log_under_test.name == "node" else "unknown_server_error"
    assert (answer["error_code"], answer["log_start_offset"]) == (code, 0)


def test_the_size_of_a_batch_counts_as_it_comes_and_as_it_is_stored(wire: Wire, new_topic: NewTopic) -> None:
    smaller, larger = (new_topic(compression_type=codec, max_message_bytes="500") for codec in ("gzip", "uncompressed"))
    assert codes(produce(wire, smaller, (0, batch_of("x" * 1000)))) == ["message_too_large"]
    assert codes(produce(wire, larger, (0, batch_of("x" * 1000, compression=GZIP)))) == ["message_too_large"]


# Identities.


def test_what_a_refused_sequence_says(wire: Wire, new_topic: NewTopic, unique: str) -> None:
    topic = new_topic()
    producer_id, epoch = wire.new_producer()

    def batch(sequence: int, *, at: int = epoch) -> bytes:
        return owned_batch("a", producer_id=producer_id, epoch=at, sequence=sequence)

    assert codes(produce(wire, topic, (0, batch(0, at=1)))) == ["none"]
    (gap,) = produce(wire, topic, (0, batch(5, at=1)))
    assert (gap["error_code"], gap["log_start_offset"]) == ("out_of_order_sequence_number", 0)
    (old,) = produce(wire, topic, (0, batch(0)))
    assert (old["error_code"], old["log_start_offset"]) == ("invalid_producer_epoch", 0)
    producer_id, epoch = wire.new_producer(unique)
    late = owned_batch("a", producer_id=producer_id, epoch=epoch, sequence=1, transactional=True)
    (gap,) = produce(wire, topic, (0, late), transactional_id=unique)
    assert (gap["error_code"], gap["log_start_offset"]) == ("out_of_order_sequence_number", 0)
    assert "not in an open transaction" not in (gap["error_message"] or "")


def test_two_producers_in_one_transactional_request(wire: Wire, new_topic: NewTopic, unique: str) -> None:
    topic = new_topic(2)
    producer_id, epoch = wire.new_producer(unique)
    batches = [
        owned_batch("a", producer_id=producer_id + n, epoch=epoch, sequence=0, transactional=True) for n in range(2)
    ]
    answers = produce(wire, topic, *enumerate(batches), transactional_id=unique)
    assert codes(answers) == ["invalid_producer_id_mapping"] * 2


def test_a_transaction_without_its_id_is_not_allowed(wire: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    batch = owned_batch("a", producer_id=1, epoch=0, sequence=0, transactional=True)
    answers = produce(wire, topic, (0, batch), (7, BATCH))
    assert codes(answers) == ["transactional_id_authorization_failed"] * 2
