"""The client's every function, against the node and against Apache Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import UUID

import pytest
from conftest import LogUnderTest
from support.batches import TIMESTAMP, batch_of, owned_batch, read_all, values_of
from support.wire import Wire

from suiro.client import EARLIEST, LATEST, MAX_TIMESTAMP, Client, NewTopic
from suiro.errors import (
    BrokerFailureError,
    KafkaError,
    OffsetOutOfRangeError,
    RefusedError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)

NewTopicFixture = Callable[..., str]


# -- topics ---------------------------------------------------------------------------------------------------


def test_metadata_names_partitions_in_order(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic(3)
    info = client.metadata([topic])[topic]
    assert [item.partition for item in info.partitions] == [0, 1, 2]
    assert all(item.leader >= 0 for item in info.partitions)
    assert isinstance(info.topic_id, UUID)
    assert not info.internal
    assert topic in client.metadata()


def test_metadata_leaves_out_what_does_not_exist_and_does_not_create_it(client: Client, unique: str) -> None:
    assert client.metadata([unique]) == {}
    assert unique not in client.metadata()


def test_a_recreated_topic_has_another_id(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    before = client.metadata([topic])[topic].topic_id
    client.delete_topics([topic])
    assert client.metadata([topic]) == {}
    client.create_topics([NewTopic(topic, 1)])
    after = client.metadata([topic])[topic].topic_id
    assert after != before
    assert before is not None
    assert after is not None
    client.produce({(topic, 0): batch_of("new")})
    found = client.fetch({(topic, 0): 0}, topic_ids={topic: after}, max_wait_ms=5_000)
    assert values_of(found[topic, 0]) == ["new"]
    with pytest.raises(UnknownTopicError, match="another topic") as refused:
        client.fetch({(topic, 0): 0}, topic_ids={topic: before}, max_wait_ms=100)
    assert refused.value.code_name == "UNKNOWN_TOPIC_ID"


def test_creating_an_existing_topic(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with pytest.raises(TopicExistsError, match=topic):
        client.create_topics([NewTopic(topic, 1)])
    client.create_topics([NewTopic(topic, 1)], exist_ok=True)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("not/legal", 1), "INVALID_TOPIC_EXCEPTION"),
        (NewTopic("", 1), "INVALID_TOPIC_EXCEPTION"),
        (NewTopic("x" * 250, 1), "INVALID_TOPIC_EXCEPTION"),
        (NewTopic("no-partitions", 0), "INVALID_PARTITIONS"),
        (NewTopic("three-replicas", 1, 3), "INVALID_REPLICATION_FACTOR"),
        (NewTopic("unknown-setting", 1, configs={"no.such.setting": "1"}), "INVALID_CONFIG"),
        (NewTopic("bad-value", 1, configs={"segment.bytes": "many"}), "INVALID_CONFIG"),
    ],
)
def test_topics_that_cannot_be_created(client: Client, topic: NewTopic, code: str) -> None:
    with pytest.raises(RefusedError) as refused:
        client.create_topics([topic])
    assert refused.value.code_name == code


def test_settings_of_a_topic(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic(cleanup_policy="compact", max_message_bytes="12345")
    settings = client.describe_configs([topic])[topic]
    assert settings["cleanup.policy"] == "compact"
    assert settings["max.message.bytes"] == "12345"
    assert settings["segment.bytes"] == str(1 << 30)


@pytest.mark.usefixtures("impatient")
def test_settings_of_a_missing_topic(client: Client, unique: str) -> None:
    with pytest.raises(KafkaError, match=unique) as error:
        client.describe_configs([unique])
    assert isinstance(error.value, UnknownTopicError)


def test_deleting_a_missing_topic(client: Client, unique: str) -> None:
    with pytest.raises(UnknownTopicError, match=unique):
        client.delete_topics([unique])
    client.delete_topics([unique], missing_ok=True)


# -- produce and fetch ----------------------------------------------------------------------------------------


def test_what_is_produced_is_fetched(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic(2)
    assert client.produce({(topic, 0): batch_of("a", "b"), (topic, 1): batch_of("c")}) == {
        (topic, 0): 0,
        (topic, 1): 0,
    }
    assert client.produce({(topic, 0): batch_of("d")}) == {(topic, 0): 2}
    fetched = client.fetch({(topic, 0): 0, (topic, 1): 0})
    assert values_of(fetched[topic, 0]) == ["a", "b", "d"]
    assert values_of(fetched[topic, 1]) == ["c"]
    assert fetched[topic, 0].high_watermark == fetched[topic, 0].last_stable_offset == 3
    assert fetched[topic, 0].log_start_offset == 0
    assert fetched[topic, 0].aborted == ()


def test_many_batches_keep_their_order(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic(3)
    batches = [(topic, number % 3, batch_of(f"{number}-a", f"{number}-b")) for number in range(90)]
    offsets = client.produce_many(iter(batches))
    assert offsets == [2 * (number // 3) for number in range(90)]
    for partition in range(3):
        expected = [f"{number}-{half}" for number in range(partition, 90, 3) for half in "ab"]
        assert read_all(client, topic, partition) == expected


def test_another_topic_in_the_middle_of_a_pipeline(log_under_test: LogUnderTest, new_topic: NewTopicFixture) -> None:
    """Its leader is asked for once no answer of the first topic's batches is due on that connection."""
    topics = [new_topic(), new_topic()]
    batches = [
        (topic, 0, owned_batch(f"{n}", producer_id=500_000, epoch=0, sequence=n)) for topic in topics for n in range(12)
    ]
    settings = {"buffer.memory": 4 * len(batches[0][2])}
    with Client(log_under_test.bootstrap_servers, settings=settings) as client:
        assert client.produce_many(iter(batches)) == 2 * list(range(12))
        for topic in topics:
            assert read_all(client, topic) == [f"{n}" for n in range(12)]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_every_compression(client: Client, new_topic: NewTopicFixture, codec: int) -> None:
    topic = new_topic()
    values = [f"value {number}" for number in range(100)]
    client.produce({(topic, 0): batch_of(*values, compression=codec)})
    assert read_all(client, topic) == values


def test_a_large_response_comes_whole(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    batch = batch_of(*("x" * 1000 for _ in range(400)))
    client.produce_many([(topic, 0, batch)] * 20)
    fetched = client.fetch({(topic, 0): 0}, partition_max_bytes=32 << 20, max_bytes=64 << 20)[topic, 0]
    assert len(fetched.data) == 20 * len(batch)
    assert fetched.data.readonly


def test_a_fetch_in_small_pieces_always_progresses(client: Client, new_topic: NewTopicFixture) -> None:
    """The first batch comes even when it is larger than the limit (KIP-74)."""
    topic = new_topic()
    client.produce_many([(topic, 0, batch_of(f"{number}" * 500)) for number in range(5)])
    position, values = 0, []
    while position < 5:
        got = values_of(client.fetch({(topic, 0): position}, partition_max_bytes=100)[topic, 0])
        assert len(got) == 1
        values += got
        position += 1
    assert values == [f"{number}" * 500 for number in range(5)]


def test_a_fetch_from_inside_a_batch_returns_the_whole_batch(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch_of("a", "b", "c")})
    assert values_of(client.fetch({(topic, 0): 1})[topic, 0]) == ["a", "b", "c"]


def test_a_fetch_at_the_end_waits_and_is_empty(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch_of("a")})
    fetched = client.fetch({(topic, 0): 1}, max_wait_ms=20)[topic, 0]
    assert len(fetched.data) == 0
    assert fetched.high_watermark == 1


def test_a_waiting_fetch_wakes_up_when_a_batch_arrives(
    log_under_test: LogUnderTest, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    client.fetch({(topic, 0): 0}, max_wait_ms=0)
    got: list[str] = []
    with Client(log_under_test.bootstrap_servers) as reader:
        reader.metadata([topic])
        waiting = threading.Thread(
            target=lambda: got.extend(values_of(reader.fetch({(topic, 0): 0}, max_wait_ms=15_000)[topic, 0]))
        )
        waiting.start()
        client.produce({(topic, 0): batch_of("a")})
        waiting.join(10)
        assert not waiting.is_alive(), "a fetch that has data must not wait for its max_wait_ms"
    assert got == ["a"]


def test_an_offset_outside_of_the_log(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch_of("a", "b")})
    with pytest.raises(OffsetOutOfRangeError) as error:
        client.fetch({(topic, 0): 3})
    assert (error.value.topic, error.value.partition, error.value.offset) == (topic, 0, 3)
    assert (error.value.log_start_offset, error.value.log_end_offset) == (0, 2)


@pytest.mark.parametrize("offset", [1 << 63, -(1 << 63) - 1])
def test_an_offset_that_no_request_can_carry_is_a_wrong_call(
    client: Client, new_topic: NewTopicFixture, offset: int
) -> None:
    """It was an error of `struct`, which named neither the partition nor the offset."""
    topic = new_topic()
    client.produce({(topic, 0): batch_of("a")})
    with pytest.raises(UsageError, match=f"{topic}-0: .* {offset} has more"):
        client.fetch({(topic, 0): offset})
    assert values_of(client.fetch({(topic, 0): 0})[topic, 0]) == ["a"]


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_does_not_exist_is_named(client: Client, unique: str) -> None:
    with pytest.raises(UnknownTopicError, match=unique):
        client.fetch({(unique, 0): 0})
    with pytest.raises(UnknownTopicError, match=unique):
        client.produce({(unique, 0): batch_of("a")})
    with pytest.raises(UnknownTopicError, match=unique):
        client.list_offsets({(unique, 0): LATEST})


@pytest.mark.usefixtures("impatient")
def test_a_partition_that_does_not_exist_is_named(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic(1)
    with pytest.raises(UnknownTopicError, match=f"{topic}-7"):
        client.fetch({(topic, 7): 0})


def test_a_batch_that_is_too_large(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic(max_message_bytes="1000")
    with pytest.raises(RefusedError, match=f"{topic}-0") as refused:
        client.produce({(topic, 0): batch_of("x" * 2000)})
    assert refused.value.code_name == "MESSAGE_TOO_LARGE"
    assert read_all(client, topic) == []


def test_a_batch_with_a_wrong_crc(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    damaged = bytearray(batch_of("a"))
    damaged[-2] ^= 1
    with pytest.raises(BrokerFailureError) as error:
        client.produce({(topic, 0): bytes(damaged)})
    assert error.value.code_name == "CORRUPT_MESSAGE"
    assert read_all(client, topic) == []


def test_a_record_without_a_key_in_a_compacted_topic(client: Client, new_topic: NewTopicFixture) -> None:
    from suiro.protocol.records import Record, encode_batch

    topic = new_topic(cleanup_policy="compact")
    keyless = encode_batch([Record(offset=0, timestamp=TIMESTAMP, key=None, value=b"v")])
    with pytest.raises(RefusedError) as refused:
        client.produce({(topic, 0): keyless})
    assert refused.value.code_name == "INVALID_RECORD"


def test_a_repeated_idempotent_batch_is_there_once(
    log_under_test: LogUnderTest, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    with Wire(log_under_test.bootstrap_servers) as wire:
        producer_id, epoch = wire.new_producer()
    batch = owned_batch("a", "b", producer_id=producer_id, epoch=epoch, sequence=0)
    assert client.produce({(topic, 0): batch}) == {(topic, 0): 0}
    assert client.produce({(topic, 0): batch}) == {(topic, 0): 0}
    assert read_all(client, topic) == ["a", "b"]


# -- offsets --------------------------------------------------------------------------------------------------


def test_offsets_by_place_and_by_time(client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    target = (topic, 0)

    def offset(at: int) -> int:
        return client.list_offsets({target: at})[target].offset

    assert (offset(EARLIEST), offset(LATEST), offset(TIMESTAMP)) == (0, 0, -1)
    client.produce_many([(topic, 0, batch_of("a", "b", "c")), (topic, 0, batch_of("d", timestamp=TIMESTAMP + 10))])
    assert (offset(EARLIEST), offset(LATEST)) == (0, 4)
    assert offset(0) == 0
    assert offset(TIMESTAMP + 1) == 1
    assert offset(TIMESTAMP + 3) == 3
    assert client.list_offsets({target: TIMESTAMP + 3})[target].timestamp == TIMESTAMP + 10
    assert offset(TIMESTAMP + 11) == -1
    assert offset(MAX_TIMESTAMP) == 3


def test_offsets_of_many_partitions(client: Client, new_topic: NewTopicFixture) -> None:
    first, second = new_topic(2), new_topic(1)
    client.produce({(first, 1): batch_of("a", "b"), (second, 0): batch_of("c")})
    wanted = {(first, 0): LATEST, (first, 1): LATEST, (second, 0): EARLIEST}
    found = client.list_offsets(wanted)
    assert {partition: item.offset for partition, item in found.items()} == {
        (first, 0): 0,
        (first, 1): 2,
        (second, 0): 0,
    }


def test_committed_offsets(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(2)
    assert client.offset_fetch(unique, [(topic, 0)]) == {(topic, 0): None}
    client.offset_commit(unique, {(topic, 0): (5, "five")})
    found = client.offset_fetch(unique, [(topic, 0), (topic, 1)])
    committed = found[topic, 0]
    assert committed is not None
    assert (committed.offset, committed.metadata) == (5, "five")
    assert found[topic, 1] is None
    assert list(client.offset_fetch(unique)) == [(topic, 0)]


def test_metadata_of_an_offset_has_a_limit(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic()
    client.offset_commit(unique, {(topic, 0): (1, "x" * 4096)})
    with pytest.raises(UsageError, match="4097"):
        client.offset_commit(unique, {(topic, 0): (1, "x" * 4097)})
