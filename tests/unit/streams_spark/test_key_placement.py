"""Keys that a join cannot find, because the producer put them into other partitions."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from suiro.client import Client
from suiro.errors import DeadlineExceededError
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.records import Record, encode_batch
from suiro.streams import StreamsBuilder, col, serdes
from suiro.streams_spark.key_placement import SAMPLE_BYTES, warn_of_misplaced_keys

KEYS = [b"key %d" % n for n in range(40)]
Placed = Callable[[bytes], int]


def by_crc32(key: bytes) -> int:
    """librdkafka's `consistent_random`, the default."""
    return zlib.crc32(key) % 3


def by_murmur2(key: bytes) -> int:
    return partition_for_key(key, 3)


class FakeClient:
    def __init__(self, topics: Mapping[str, Placed], keys: list[bytes]) -> None:
        self._topics, self._keys = topics, keys
        self.requests = 0
        self.value = b"{}"

    def list_offsets(self, wanted: Mapping[Any, int], **_: int) -> dict[Any, Any]:
        self.requests += 1
        return {place: SimpleNamespace(offset=0) for place in wanted}

    def fetch(self, offsets: Mapping[Any, int], *, partition_max_bytes: int, **_: int) -> dict[Any, Any]:
        """As a broker: only the first partition that has records gives a batch that is too large."""
        self.requests += 1
        found: dict[Any, Any] = {}
        is_first = True
        for place in offsets:
            data = self._batch(*place)
            end = 0 if not data else 1
            if not is_first:
                data = data[:partition_max_bytes]
            is_first &= not data
            found[place] = SimpleNamespace(data=memoryview(data), last_stable_offset=end)
        return found

    def _batch(self, topic: str, partition: int) -> bytes:
        keys = [key for key in self._keys if self._topics[topic](key) == partition]
        return encode_batch([Record(offset=n, timestamp=0, key=key, value=self.value) for n, key in enumerate(keys)])


def joined_by_key(builder: StreamsBuilder) -> None:
    builder.stream("a").join(builder.table("b"), lambda left, right: left, name="join").to("out")


def joined_by_a_new_key(builder: StreamsBuilder) -> None:
    stream = builder.stream("a").select_key(col("other"))
    stream.join(builder.table("b"), lambda left, right: left, name="join").to("out")


def joined_by_a_foreign_key(builder: StreamsBuilder) -> None:
    table = builder.table("a").join(builder.table("b"), lambda left, right: left, foreign_key=col("other"), name="join")
    table.to_stream().to("out")


@pytest.mark.parametrize(
    ("build", "a", "b", "warned"),
    [
        (joined_by_key, by_crc32, by_crc32, []),
        (joined_by_key, by_murmur2, by_murmur2, []),
        (joined_by_key, by_murmur2, by_crc32, ["b"]),
        (joined_by_key, by_crc32, by_murmur2, ["a"]),
        (joined_by_a_new_key, by_crc32, by_murmur2, []),
        (joined_by_a_new_key, by_murmur2, by_crc32, ["b"]),
        (joined_by_a_foreign_key, by_crc32, by_murmur2, []),
        (joined_by_a_foreign_key, by_murmur2, by_crc32, ["b"]),
    ],
)
def test_a_topic_that_a_join_cannot_find_is_told(
    caplog: pytest.LogCaptureFixture,
    build: Callable[[StreamsBuilder], None],
    a: Placed,
    b: Placed,
    warned: list[str],
) -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    build(builder)
    client = cast("Client", FakeClient({"a": a, "b": b}, KEYS))
    with caplog.at_level(logging.WARNING):
        warn_of_misplaced_keys(client, builder.build(), {"a": 3, "b": 3})
    told = [str(record.args[1]) for record in caplog.records if isinstance(record.args, tuple)]
    assert told == warned
    for text in caplog.messages:
        assert "murmur2_random" in text
        assert "is in partition" in text


def no_leader(*_: Any, **__: Any) -> Any:
    raise DeadlineExceededError("a partition has no leader")


def unreadable(_: Any, offsets: Mapping[Any, int], **__: Any) -> dict[Any, Any]:
    """As records that a broker of before Kafka 0.11 has written."""
    return {place: SimpleNamespace(data=memoryview(bytes(100))) for place in offsets}


@pytest.mark.parametrize(("name", "answer"), [("list_offsets", no_leader), ("fetch", unreadable)])
def test_topics_that_cannot_be_read_now_do_not_keep_an_application_from_its_start(
    name: str, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeClient, name, answer)
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    joined_by_key(builder)
    client = cast("Client", FakeClient({"a": by_murmur2, "b": by_crc32}, KEYS))
    warn_of_misplaced_keys(client, builder.build(), {"a": 3, "b": 3})


def test_a_few_keys_say_nothing_of_the_partitioner(caplog: pytest.LogCaptureFixture) -> None:
    """A topic whose only keys are where murmur2 puts them by chance is no reason to warn of another."""
    both = [key for key in KEYS if by_crc32(key) == by_murmur2(key)][:2]
    other = next(key for key in KEYS if by_crc32(key) != by_murmur2(key))
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    joined_by_key(builder)
    few = FakeClient({"a": by_crc32, "b": by_crc32}, [*both, other])
    few._topics = {"a": lambda key: by_crc32(key) if key in both else -1, "b": by_crc32}
    with caplog.at_level(logging.WARNING):
        warn_of_misplaced_keys(cast("Client", few), builder.build(), {"a": 3, "b": 3})
    assert not caplog.messages


def test_the_log_is_asked_once_for_all_topics(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    joined_by_key(builder)
    builder.stream("c").join(builder.table("d"), lambda left, right: left, name="another").to("out")
    client = FakeClient({"a": by_murmur2, "b": by_crc32, "c": by_crc32, "d": by_murmur2}, KEYS)
    with caplog.at_level(logging.WARNING):
        warn_of_misplaced_keys(cast("Client", client), builder.build(), dict.fromkeys("abcd", 3))
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        "operator join will miss records of topic 'b'",
        "operator another will miss records of topic 'c'",
    ]
    assert client.requests == 2


def test_topics_of_large_batches_are_checked_too(caplog: pytest.LogCaptureFixture) -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    joined_by_key(builder)
    client = FakeClient({"a": by_murmur2, "b": by_crc32}, KEYS)
    client.value = b"0" * SAMPLE_BYTES
    with caplog.at_level(logging.WARNING):
        warn_of_misplaced_keys(cast("Client", client), builder.build(), {"a": 3, "b": 3})
    assert [message.partition(": ")[0] for message in caplog.messages] == [
        "operator join will miss records of topic 'b'"
    ]
    assert client.requests == 3
