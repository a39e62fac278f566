"""What a broker answers to fetches, request by request: sessions, limits, waiting, errors. Apache Kafka is the
reference, and both subjects pass the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from conftest import LogUnderTest
from support.admin import ask, filled, plain
from support.batches import batch_of, owned_batch
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import LATEST, Client, NewTopic
from suiro.protocol.messages import API_KEYS, read_response, request_class, write_request

NewTopicFixture = Callable[..., str]
WAIT_MS = 10_000
"""Longer than any test takes: an answer that comes did not wait for the time to pass."""
BRIEFLY_MS = 150
BY_NAME, BY_ID = 12, 18


@dataclass(frozen=True)
class Part:
    """A partition in a request."""

    topic: str | UUID
    index: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20
    leader_epoch: int = -1
    last_epoch: int = -1


@dataclass(frozen=True)
class Told:
    """A partition in a response."""

    topic: str | UUID
    index: int
    error: str
    high_watermark: int
    log_start: int
    size: int
    raw: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    error: str
    session: int
    partitions: list[Told]

    @property
    def brief(self) -> list[tuple[int, str, int]]:
        """(index, error, high watermark)."""
        return [(told.index, told.error, told.high_watermark) for told in self.partitions]


class Reader:
    """Fetches in one version."""

    def __init__(self, wire: Wire, version: int) -> None:
        self.wire, self.version = wire, version

    def name(self, topic: str) -> str | UUID:
        """What this version calls a topic."""
        return topic if self.version < 13 else topic_id(self.wire, topic)

    def request(
        self,
        *parts: Part,
        session: int = 0,
        epoch: int = -1,
        forget: tuple[tuple[str | UUID, int], ...] = (),
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        committed: bool = False,
        replica: int = -1,
    ) -> Any:
        version = self.version
        key = "topic_id" if version >= 13 else "topic"

        def partition(part: Part) -> dict[str, Any]:
            fields = {
                "partition": part.index,
                "fetch_offset": part.offset,
                "partition_max_bytes": part.max_bytes,
            }
            if version >= 5:
                fields["log_start_offset"] = -1
            if version >= 9:
                fields["current_leader_epoch"] = part.leader_epoch
            if version >= 12:
                fields["last_fetched_epoch"] = part.last_epoch
            return fields

        fields: dict[str, Any] = {
            "max_wait": wait_ms,
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": int(committed),
            "topics": [{key: part.topic, "partitions": [partition(part)]} for part in parts],
        }
        if version >= 15:
            fields["replica_state"] = {"replica_id": replica, "replica_epoch": -1}
        else:
            fields["replica_id"] = replica
        if version >= 7:
            fields |= {
                "session_id": session,
                "session_epoch": epoch,
                "forgotten_topics_data": [{key: topic, "partitions": [index]} for topic, index in forget],
            }
        if version >= 11:
            fields["rack_id"] = ""
        return filled(request_class(API_KEYS["fetch"], version), fields)

    def fetch(self, *parts: Part, **fields: Any) -> Answer:
        return self._answer(plain(self.wire.call(self.request(*parts, **fields))))

    def begin_fetch(self, *parts: Part, **fields: Any) -> Callable[[], Answer]:
        """Send a fetch; the result waits for its answer."""
        self.wire.send_bytes(write_request(self.request(*parts, **fields), correlation_id=77, client_id="reader"))

        def end() -> Answer:
            _, response = read_response(self.wire.receive_bytes(), API_KEYS["fetch"], self.version)
            return self._answer(plain(response))

        return end

    def _answer(self, response: dict[str, Any]) -> Answer:
        return Answer(
            response.get("error_code", "none"),
            response.get("session_id", 0),
            [
                Told(
                    topic.get("topic") or topic["topic_id"],
                    part["partition_index"],
                    part["error_code"],
                    part["high_watermark"],
                    part.get("log_start_offset", -1),
                    len(part["records"] or b""),
                    part,
                )
                for topic in response["responses"]
                for part in topic["partitions"]
            ],
        )


@pytest.fixture(params=[7, BY_NAME, BY_ID])
def reader(request: pytest.FixtureRequest, wire: Wire) -> Reader:
    return Reader(wire, request.param)


@pytest.fixture(params=[BY_NAME, BY_ID])
def newer(request: pytest.FixtureRequest, wire: Wire) -> Reader:
    """In the versions that know of epochs."""
    return Reader(wire, request.param)


def topic_id(wire: Wire, topic: str) -> UUID:
    found = ask(wire, "metadata", 12, topics=[{"name": topic, "topic_id": None}])["topics"][0]["topic_id"]
    assert isinstance(found, UUID)
    return found


# -- sessions -------------------------------------------------------------------------------------------------


def test_an_incremental_answer_names_only_what_changed(reader: Reader, wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic(3)
    topic = reader.name(name)
    full = reader.fetch(*(Part(topic, index) for index in range(3)), epoch=0)
    assert full.session > 0
    assert full.brief == [(0, "none", 0), (1, "none", 0), (2, "none", 0)]
    assert reader.fetch(session=full.session, epoch=1) == Answer("none", full.session, [])

    wire.produce(name, batch_of("a"), partition=1)
    grown = reader.fetch(session=full.session, epoch=2)
    assert grown.brief == [(1, "none", 1)]
    assert grown.partitions[0].size > 0
    again = reader.fetch(session=full.session, epoch=3)  # nobody said that it has been read
    assert again.brief == [(1, "none", 1)]
    assert again.partitions[0].size > 0
    assert reader.fetch(Part(topic, 1, 1), session=full.session, epoch=4).brief == []


def test_a_session_is_told_of_a_new_log_start(reader: Reader, wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    wire.produce(name, batch_of("a", "b", "c"))
    session = reader.fetch(Part(reader.name(name), 0, 3), epoch=0).session
    delete_records(wire, name, 0, 2)
    (told,) = reader.fetch(session=session, epoch=1).partitions
    assert (told.log_start, told.high_watermark, told.size) == (2, 3, 0)
    assert reader.fetch(session=session, epoch=2).partitions == []


def test_partitions_that_gave_records_go_last(reader: Reader, wire: Wire, new_topic: NewTopicFixture) -> None:
    """With room for one batch in an answer, everybody has their turn."""
    name = new_topic(3)
    topic = reader.name(name)
    session = reader.fetch(*(Part(topic, index) for index in range(3)), epoch=0, max_bytes=1).session
    for index in range(3):
        wire.produce(name, batch_of("a"), partition=index)
    turns = []
    for epoch in range(1, 7):
        answer = reader.fetch(session=session, epoch=epoch, max_bytes=1)
        turns.append([told.index for told in answer.partitions if told.size])
    assert turns == [[0], [1], [2]] * 2


def test_forgotten_partitions_are_silent(reader: Reader, wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic(2)
    topic = reader.name(name)
    session = reader.fetch(Part(topic, 0), epoch=0).session
    wire.produce(name, batch_of("a"), partition=0)
    answer = reader.fetch(Part(topic, 1), session=session, epoch=1, forget=((topic, 0),))
    assert answer.brief == [(1, "none", 0)]
    empty = reader.fetch(session=session, epoch=2, forget=((topic, 1),))
    assert empty == Answer("none", 0, [])  # a session without partitions ends
    assert reader.fetch(session=session, epoch=3).error == "fetch_session_id_not_found"


def test_epochs_of_a_session(reader: Reader, new_topic: NewTopicFixture) -> None:
    part = Part(reader.name(new_topic()))
    session = reader.fetch(part, epoch=0).session
    assert reader.fetch(session=session, epoch=2) == Answer("invalid_fetch_session_epoch", 0, [])
    assert reader.fetch(session=session, epoch=1).error == "none"
    assert reader.fetch(session=session, epoch=1).error == "invalid_fetch_session_epoch"
    assert reader.fetch(session=session, epoch=2).error == "none"


def test_a_full_request_ends_the_session_it_names(reader: Reader, new_topic: NewTopicFixture) -> None:
    part = Part(reader.name(new_topic()))
    first = reader.fetch(part, epoch=0).session
    second = reader.fetch(part, session=first, epoch=0).session
    assert second not in (0, first)
    assert reader.fetch(session=first, epoch=1).error == "fetch_session_id_not_found"
    final = reader.fetch(part, session=second, epoch=-1)
    assert (final.session, final.brief) == (0, [(0, "none", 0)])
    assert reader.fetch(session=second, epoch=1).error == "fetch_session_id_not_found"


def test_names_and_ids_do_not_mix_in_a_session(wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    by_name, by_id = Reader(wire, BY_NAME), Reader(wire, BY_ID)
    named = by_name.fetch(Part(name), epoch=0).session
    known = by_id.fetch(Part(by_id.name(name)), epoch=0).session
    assert by_id.fetch(session=named, epoch=1) == Answer("fetch_session_topic_id_error", 0, [])
    assert by_name.fetch(session=known, epoch=1) == Answer("fetch_session_topic_id_error", 0, [])


def test_an_error_is_repeated_until_it_is_over(reader: Reader, new_topic: NewTopicFixture) -> None:
    topic = reader.name(new_topic())
    session = reader.fetch(Part(topic), epoch=0).session
    wrong = reader.fetch(Part(topic, 0, 100), session=session, epoch=1, wait_ms=WAIT_MS)
    assert wrong.brief == [(0, "offset_out_of_range", -1)]
    assert reader.fetch(session=session, epoch=2, wait_ms=WAIT_MS).brief == wrong.brief
    assert reader.fetch(Part(topic), session=session, epoch=3).brief == [(0, "none", 0)]
    assert reader.fetch(session=session, epoch=4).brief == []


def test_a_topic_deleted_and_made_again(wire: Wire, client: Client, new_topic: NewTopicFixture) -> None:
    """By name the session goes on with the new topic; by id the old one stays gone."""
    name, other = new_topic(), new_topic()
    by_name, by_id = Reader(wire, BY_NAME), Reader(wire, BY_ID)
    old_id, other_id = by_id.name(name), by_id.name(other)
    named = by_name.fetch(Part(name), Part(other), epoch=0).session
    known = by_id.fetch(Part(old_id), Part(other_id), epoch=0).session
    ask(wire, "delete_topics", 4, topic_names=[name], timeout=5000)
    wait_until(lambda: not exists(wire, name), what="the topic to be gone")
    gone = [(0, "unknown_topic_or_partition", -1)]
    assert by_name.fetch(session=named, epoch=1).brief == gone
    assert by_id.fetch(session=known, epoch=1).brief == gone

    remake(client, name)
    assert by_id.fetch(session=known, epoch=2, wait_ms=WAIT_MS).brief == [(0, "inconsistent_topic_id", -1)]
    assert by_name.fetch(session=named, epoch=2).brief == [(0, "none", 0)]
    both = by_id.fetch(Part(by_id.name(name)), session=known, epoch=3)
    assert [(told.topic == old_id, told.error) for told in both.partitions] == [
        (True, "inconsistent_topic_id"),
        (False, "none"),
    ]


def test_an_unknown_name_becomes_known(wire: Wire, client: Client, new_topic: NewTopicFixture) -> None:
    reader, name, other = Reader(wire, BY_NAME), f"later-{uuid4().hex[:8]}", new_topic()
    opened = reader.fetch(Part(name), Part(other), epoch=0)
    assert opened.brief == [(0, "none", 0), (0, "unknown_topic_or_partition", -1)]  # errors come last
    remake(client, name)
    assert reader.fetch(session=opened.session, epoch=1).brief == [(0, "none", 0)]
    assert reader.fetch(session=opened.session, epoch=2).brief == []


# -- waiting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_session", [False, True])
def test_a_produce_ends_the_wait(
    in_session: bool, reader: Reader, log_under_test: LogUnderTest, new_topic: NewTopicFixture
) -> None:
    name = new_topic(2)
    parts = [Part(reader.name(name), index) for index in range(2)]
    session = reader.fetch(*parts, epoch=0).session if in_session else 0
    if in_session:
        end = reader.begin_fetch(session=session, epoch=1, wait_ms=WAIT_MS)
    else:
        end = reader.begin_fetch(*parts, wait_ms=WAIT_MS)
    with Wire(log_under_test.bootstrap_servers) as other:
        other.produce(name, batch_of("a"), partition=1)
    answer = end()
    sizes = {told.index: told.size > 0 for told in answer.partitions}
    assert sizes == ({1: True} if in_session else {0: False, 1: True})
    assert answer.session == session


def test_min_bytes_gather(reader: Reader, log_under_test: LogUnderTest, new_topic: NewTopicFixture) -> None:
    name = new_topic(2)
    parts = [Part(reader.name(name), index) for index in range(2)]
    batch = batch_of("a")
    session = reader.fetch(*parts, epoch=0).session
    end = reader.begin_fetch(session=session, epoch=1, wait_ms=WAIT_MS, min_bytes=2 * len(batch))
    with Wire(log_under_test.bootstrap_servers) as other:
        other.produce(name, batch, partition=1)
        other.produce(name, batch, partition=0)
    assert sorted((told.index, told.size) for told in end().partitions) == [(0, len(batch)), (1, len(batch))]


def test_min_bytes_are_at_most_max_bytes(reader: Reader, wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    wire.produce(name, batch_of("a"))
    answer = reader.fetch(Part(reader.name(name)), wait_ms=WAIT_MS, min_bytes=1000, max_bytes=10)
    assert answer.partitions[0].size > 10  # and the first batch comes whole


def test_an_unknown_partition_does_not_end_the_wait_of_others(reader: Reader, new_topic: NewTopicFixture) -> None:
    topic = reader.name(new_topic())
    begun = time.monotonic()
    answer = reader.fetch(Part(topic, 99), Part(topic), wait_ms=BRIEFLY_MS)
    assert time.monotonic() - begun >= 0.9 * BRIEFLY_MS / 1000
    assert answer.brief == [(0, "none", 0), (99, "unknown_topic_or_partition", -1)]
    alone = reader.fetch(Part(topic, 99), wait_ms=WAIT_MS)  # with nothing to wait for there is no wait
    assert alone.brief == [(99, "unknown_topic_or_partition", -1)]


def test_a_topic_deleted_under_a_waiting_fetch(
    newer: Reader, log_under_test: LogUnderTest, new_topic: NewTopicFixture
) -> None:
    name = new_topic()
    end = newer.begin_fetch(Part(newer.name(name)), wait_ms=WAIT_MS)
    with Wire(log_under_test.bootstrap_servers) as other:
        ask(other, "delete_topics", 4, topic_names=[name], timeout=5000)
    (told,) = end().partitions
    assert told.error in ("unknown_topic_or_partition", "not_leader_or_follower", "unknown_topic_id")


def test_the_next_request_of_a_session_overtakes_a_waiting_one(
    newer: Reader, log_under_test: LogUnderTest, new_topic: NewTopicFixture
) -> None:
    name = new_topic()
    session = newer.fetch(Part(newer.name(name)), epoch=0).session
    end = newer.begin_fetch(session=session, epoch=1, wait_ms=WAIT_MS)
    with Wire(log_under_test.bootstrap_servers) as other:
        elsewhere = Reader(other, newer.version)
        wait_until(lambda: elsewhere.fetch(session=session, epoch=2).error == "none", what="the first to be taken")
        other.produce(name, batch_of("a"))
    assert end() == Answer("invalid_fetch_session_epoch", session, [])


# -- limits ---------------------------------------------------------------------------------------------------


def test_the_first_batch_is_whole_and_the_rest_within_the_limits(
    reader: Reader, wire: Wire, new_topic: NewTopicFixture
) -> None:
    name = new_topic(2)
    topic = reader.name(name)
    batch = batch_of("a" * 100)
    for index in (0, 0, 1, 1):
        wire.produce(name, batch, partition=index)

    def sizes(*parts: Part, max_bytes: int = 1 << 20) -> list[int]:
        return [told.size for told in reader.fetch(*parts, max_bytes=max_bytes).partitions]

    size = len(batch)
    assert sizes(Part(topic, 0), Part(topic, 1)) == [2 * size, 2 * size]
    assert sizes(Part(topic, 0), Part(topic, 1), max_bytes=0) == [size, 0]
    assert sizes(Part(topic, 0, max_bytes=0), Part(topic, 1)) == [size, 2 * size]
    assert sizes(Part(topic, 0), Part(topic, 1, max_bytes=1)) == [2 * size, 0]
    assert sizes(Part(topic, 0, 2), Part(topic, 1, max_bytes=1)) == [0, size]
    assert sizes(Part(topic, 0), Part(topic, 1), max_bytes=3 * size) == [2 * size, size]


def test_a_partition_named_twice_is_read_as_it_was_named_last(
    reader: Reader, wire: Wire, new_topic: NewTopicFixture
) -> None:
    name, other = new_topic(), new_topic()
    wire.produce(name, batch_of("a"))
    topic = reader.name(name)
    answer = reader.fetch(Part(topic), Part(reader.name(other)), Part(topic, 0, 1))
    assert [(told.topic == topic, told.size) for told in answer.partitions] == [(True, 0), (False, 0)]


# -- what is in an answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version(version: int, wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic(2)
    batch = batch_of("a", "b")
    wire.produce(name, batch)
    reader = Reader(wire, version)
    topic = reader.name(name)
    first, unknown = reader.fetch(Part(topic), Part(topic, 5)).partitions
    assert (first.topic, first.error, first.high_watermark, first.size) == (topic, "none", 2, len(batch))
    assert (unknown.error, unknown.high_watermark, unknown.size) == ("unknown_topic_or_partition", -1, 0)
    assert (first.raw["last_stable_offset"], unknown.raw["last_stable_offset"]) == (2, -1)
    assert (first.raw["aborted_transactions"], unknown.raw["aborted_transactions"]) == (None, [])


def test_read_committed(newer: Reader, wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    name = new_topic()
    part = Part(newer.name(name))
    producer_id, epoch = wire.new_producer(unique)
    wire.produce(name, batch_of("before"))
    wire.add_partitions(unique, producer_id, epoch, name, 0)
    batch = owned_batch("a", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    wire.produce(name, batch, transactional_id=unique)

    session = newer.fetch(part, epoch=0, committed=True).session
    (open_,) = newer.fetch(session=session, epoch=1, committed=True).partitions
    assert (open_.high_watermark, open_.raw["last_stable_offset"]) == (2, 1)
    assert open_.raw["aborted_transactions"] == []
    assert open_.size == len(batch_of("before"))
    # The same session read uncommitted shows what is behind the last stable offset.
    (all_,) = newer.fetch(Part(part.topic, 0, 1), session=session, epoch=2).partitions
    assert (all_.size, all_.raw["aborted_transactions"]) == (len(batch), None)
    assert newer.fetch(session=session, epoch=3, committed=True).brief == []

    wire.end_txn(unique, producer_id, epoch, commit=False)
    (aborted,) = newer.fetch(session=session, epoch=4, committed=True, wait_ms=WAIT_MS).partitions
    found = aborted.raw["aborted_transactions"]
    assert [(item["producer_id"], item["first_offset"]) for item in found] == [(producer_id, 1)]
    assert (aborted.high_watermark, aborted.raw["last_stable_offset"]) == (3, 3)


def test_leader_epochs(newer: Reader, wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    wire.produce(name, batch_of("a"))
    topic = newer.name(name)

    def fetch(offset: int, **fields: int) -> tuple[str, int, int, int]:
        (told,) = newer.fetch(Part(topic, 0, offset, **fields)).partitions
        diverging = told.raw["diverging_epoch"]
        return told.error, told.size, diverging["epoch"], diverging["end_offset"]

    assert fetch(1, leader_epoch=0) == ("none", 0, -1, -1)
    assert fetch(1, leader_epoch=7) == ("unknown_leader_epoch", 0, -1, -1)
    assert fetch(1, last_epoch=0) == ("none", 0, -1, -1)
    assert fetch(50, last_epoch=0) == ("none", 0, 0, 1)  # the reader's log went on where ours ended
    assert fetch(1, last_epoch=5) == ("offset_out_of_range", 0, -1, -1)
    waited = newer.fetch(Part(topic, 0, 50, last_epoch=0), wait_ms=WAIT_MS)  # divergence ends a wait
    assert waited.partitions[0].raw["diverging_epoch"]["end_offset"] == 1


def test_a_replica_of_nothing(newer: Reader, new_topic: NewTopicFixture) -> None:
    topic = newer.name(new_topic())
    plainly = newer.fetch(Part(topic), replica=5, wait_ms=WAIT_MS)
    assert plainly.brief == [(0, "not_leader_or_follower", -1)]
    with_epoch = newer.fetch(Part(topic, leader_epoch=0), replica=5, wait_ms=WAIT_MS)
    assert with_epoch.brief == [(0, "unknown_leader_epoch", -1)]


def exists(wire: Wire, topic: str) -> bool:
    fields: dict[str, Any] = {
        "topics": [{"name": topic, "topic_id": None}],
        "allow_auto_topic_creation": False,
    }
    return bool(ask(wire, "metadata", 12, **fields)["topics"][0]["error_code"] == "none")


def remake(client: Client, topic: str) -> None:
    """Create a topic and have its leader serve it."""
    client.create_topics([NewTopic(topic, 1, configs={})])
    client.list_offsets({(topic, 0): LATEST})


def delete_records(wire: Wire, topic: str, partition: int, offset: int) -> None:
    ask(
        wire,
        "delete_records",
        2,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}],
        timeout=5000,
    )
