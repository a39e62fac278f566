"""What a client asks before and beside fetching, request by request: offsets, epochs, metadata, and the deletion of
records. Apache Kafka is the reference, and both subjects pass the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from conftest import LogUnderTest
from support.admin import ask
from support.batches import TIMESTAMP, batch_of, owned_batch
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import LATEST, Client, NewTopic

NewTopicFixture = Callable[..., str]
NOWHERE = ("none", -1, -1)
TOPIC_OPERATIONS = 0b110111111000  # READ to ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
NOT_ASKED = -(2**31)


# -- ListOffsets ----------------------------------------------------------------------------------------------


def list_offsets(
    wire: Wire,
    topic: str,
    timestamp: int,
    *more: int,
    version: int = 11,
    partition: int = 0,
    committed: bool = False,
    epoch: int = -1,
) -> list[tuple[str, int, int]]:
    """(error, offset, timestamp) for each of the times, all of one partition."""
    fields: dict[str, Any] = {"replica_id": -1}
    entry = {"partition_index": partition, **({"current_leader_epoch": epoch} if version >= 4 else {})}
    fields["topics"] = [{"name": topic, "partitions": [entry | {"timestamp": time} for time in (timestamp, *more)]}]
    if version >= 2:
        fields["isolation_level"] = int(committed)
    (answer,) = ask(wire, "list_offsets", version, **fields)["topics"]
    for part in answer["partitions"]:
        assert part.get("leader_epoch", 0) == (0 if version < 4 or part["offset"] >= 0 else -1)
    return [(part["error_code"], part["offset"], part["timestamp"]) for part in answer["partitions"]]


@pytest.mark.parametrize("version", range(1, 12))
def test_places_by_version(version: int, wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic(2)
    for number in range(3):
        wire.produce(topic, batch_of("a", "b", "c", timestamp=TIMESTAMP + 10 * number))
    places = {
        -1: (1, ("none", 9, -1)),
        -2: (1, ("none", 0, -1)),
        -3: (7, ("none", 8, TIMESTAMP + 22)),
        -4: (8, ("none", 0, -1)),
        -5: (9, NOWHERE),
        -6: (11, NOWHERE),
        -7: (99, NOWHERE),
    }
    for place, (since, expected) in places.items():
        if version < since:
            expected = ("unsupported_version", -1, -1)
        assert list_offsets(wire, topic, place, version=version) == [expected], place
    (empty,) = list_offsets(wire, topic, -1, version=version, partition=1)
    assert empty == ("none", 0, -1)


def test_times_are_exact_to_the_record(wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    for number in (0, 10, 20, 15):  # the last is late
        wire.produce(topic, batch_of("a", "b", "c", timestamp=TIMESTAMP + number))
    found = {delta: list_offsets(wire, topic, TIMESTAMP + delta)[0] for delta in (-5, 0, 2, 3, 11, 21, 22, 23)}
    assert found == {
        -5: ("none", 0, TIMESTAMP),
        0: ("none", 0, TIMESTAMP),
        2: ("none", 2, TIMESTAMP + 2),
        3: ("none", 3, TIMESTAMP + 10),
        11: ("none", 4, TIMESTAMP + 11),
        21: ("none", 7, TIMESTAMP + 21),
        22: ("none", 8, TIMESTAMP + 22),
        23: NOWHERE,
    }
    assert list_offsets(wire, topic, 0) == [("none", 0, TIMESTAMP)]


def test_times_in_a_log_of_many_segments(wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic(segment_bytes="1048576", index_interval_bytes="4096")
    filler = "x" * 10_000
    for number in range(260):
        wire.produce(topic, batch_of(filler, timestamp=TIMESTAMP + 100 * number))
    for number in (1, 97, 131, 258):
        for delta in (-99, 0):
            place = TIMESTAMP + 100 * number + delta
            assert list_offsets(wire, topic, place) == [("none", number, TIMESTAMP + 100 * number)]


def test_a_partition_named_twice(wire: Wire, new_topic: NewTopicFixture) -> None:
    assert list_offsets(wire, new_topic(), -1, -2) == [("invalid_request", -1, -1)]


def test_list_offsets_errors(wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    unknown = [("unknown_topic_or_partition", -1, -1)]
    assert list_offsets(wire, topic, -1, partition=7) == unknown
    assert list_offsets(wire, "no-such-topic", -1) == unknown
    assert list_offsets(wire, topic, -1, epoch=0) == [("none", 0, -1)]
    assert list_offsets(wire, topic, -1, epoch=9) == [("unknown_leader_epoch", -1, -1)]
    assert list_offsets(wire, topic, -1, epoch=-2) == [("fenced_leader_epoch", -1, -1)]


def test_a_committed_reader_finds_nothing_that_is_undecided(
    wire: Wire, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic()
    wire.produce(topic, batch_of("a", timestamp=TIMESTAMP - 1000))
    producer_id, epoch = wire.new_producer(unique)
    wire.add_partitions(unique, producer_id, epoch, topic, 0)
    batch = owned_batch("b", "c", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    wire.produce(topic, batch, transactional_id=unique)
    for committed, end, by_time in ((False, 3, ("none", 1, TIMESTAMP)), (True, 1, NOWHERE)):
        assert list_offsets(wire, topic, -1, committed=committed) == [("none", end, -1)]
        assert list_offsets(wire, topic, TIMESTAMP, committed=committed) == [by_time]
    assert list_offsets(wire, topic, -3, committed=True) == [NOWHERE]
    wire.end_txn(unique, producer_id, epoch, commit=True)
    wait_until(lambda: list_offsets(wire, topic, -1, committed=True) == [("none", 4, -1)], what="the marker")
    assert list_offsets(wire, topic, TIMESTAMP, committed=True) == [("none", 1, TIMESTAMP)]


# -- DeleteRecords --------------------------------------------------------------------------------------------


def delete_records(wire: Wire, topic: str, offset: int, *, partition: int = 0) -> tuple[str, int]:
    entry = {"partition_index": partition, "offset": offset}
    fields: dict[str, Any] = {"topics": [{"name": topic, "partitions": [entry]}], "timeout": 5000}
    answer = ask(wire, "delete_records", 2, **fields)["topics"][0]["partitions"][0]
    return answer["error_code"], answer["low_watermark"]


def test_delete_records(wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    wire.produce(topic, batch_of("a", "b", "c", "d"))
    assert delete_records(wire, topic, 2) == ("none", 2)
    assert delete_records(wire, topic, 1) == ("none", 2)
    assert delete_records(wire, topic, 5) == ("offset_out_of_range", -1)
    assert delete_records(wire, topic, -2) == ("offset_out_of_range", -1)
    assert delete_records(wire, topic, 0, partition=3) == ("unknown_topic_or_partition", -1)
    assert list_offsets(wire, topic, -2) == [("none", 2, -1)]
    assert list_offsets(wire, topic, TIMESTAMP) == [("none", 2, TIMESTAMP + 2)]
    assert delete_records(wire, topic, -1) == ("none", 4)
    assert list_offsets(wire, topic, -2) == [("none", 4, -1)]
    assert list_offsets(wire, topic, TIMESTAMP) == [NOWHERE]


def test_records_that_may_not_be_deleted(wire: Wire, new_topic: NewTopicFixture) -> None:
    compacted, both = new_topic(cleanup_policy="compact"), new_topic(cleanup_policy="compact,delete")
    assert delete_records(wire, compacted, 0) == ("policy_violation", -1)
    assert delete_records(wire, compacted, 99) == ("policy_violation", -1)
    assert delete_records(wire, both, 0) == ("none", 0)
    assert delete_records(wire, new_topic(cleanup_policy=""), 0) == ("none", 0)
    wire.new_producer(f"id-{uuid4().hex}")  # there is a __transaction_state now
    assert delete_records(wire, "__transaction_state", 0) == ("invalid_topic_exception", -1)


# -- OffsetForLeaderEpoch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ends(version: int, wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic(2)
    wire.produce(topic, batch_of("a", "b"))

    def end_of(epoch: int, *, current: int = -1, partition: int = 0, of: str = topic) -> tuple[str, int, int]:
        entry = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        fields: dict[str, Any] = {"topics": [{"topic": of, "partitions": [entry]}]}
        if version >= 3:
            fields["replica_id"] = -1
        answer = ask(wire, "offset_for_leader_epoch", version, **fields)["topics"][0]["partitions"][0]
        return answer["error_code"], answer["leader_epoch"], answer["end_offset"]

    assert end_of(0) == end_of(0, current=0) == ("none", 0, 2)
    assert end_of(0, partition=1) == ("none", 0, 0)  # an empty log has its epoch, too
    assert end_of(1) == end_of(-1) == ("none", -1, -1)
    assert end_of(0, current=3) == ("unknown_leader_epoch", -1, -1)
    assert end_of(0, partition=9) == ("unknown_topic_or_partition", -1, -1)
    assert end_of(0, of="no-such-topic") == ("unknown_topic_or_partition", -1, -1)


# -- Metadata -------------------------------------------------------------------------------------------------


def metadata(wire: Wire, version: int, topics: Any, **fields: Any) -> dict[str, Any]:
    if version >= 4:
        fields.setdefault("allow_auto_topic_creation", False)
    return ask(wire, "metadata", version, topics=topics, **fields)


def named(version: int, *names: str) -> list[dict[str, Any]]:
    return [{"name": name, **({"topic_id": None} if version >= 10 else {})} for name in names]


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_topics(version: int, wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic(3)
    answer = metadata(wire, version, named(version, topic, topic))
    (found,) = answer["topics"]
    (broker,) = answer["brokers"]
    assert (found["name"], found["error_code"], len(found["partitions"])) == (topic, "none", 3)
    assert {part["leader_id"] for part in found["partitions"]} == {broker["node_id"]}
    assert all(part["replica_nodes"] == part["isr_nodes"] == [broker["node_id"]] for part in found["partitions"])
    if version >= 1:
        assert (found["is_internal"], answer["controller_id"]) == (False, broker["node_id"])
        assert metadata(wire, version, [])["topics"] == []
    if version >= 8:
        assert found["topic_authorized_operations"] == NOT_ASKED
    everything = metadata(wire, version, None if version >= 1 else [])
    assert topic in {item["name"] for item in everything["topics"]}


@pytest.mark.parametrize("version", [4, 9, 13])
def test_metadata_of_topics_that_are_not(version: int, wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    asked = named(version, "no-such-topic", "b@d", "..", "", topic)
    answer = metadata(wire, version, asked)["topics"]
    assert answer[0]["name"] == topic  # those that exist come first
    assert {item["name"]: item["error_code"] for item in answer[1:]} == {
        "no-such-topic": "unknown_topic_or_partition",
        "b@d": "invalid_topic_exception",
        "..": "invalid_topic_exception",
        "": "invalid_topic_exception",
    }


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_metadata_by_id(version: int, wire: Wire, new_topic: NewTopicFixture) -> None:
    topic, unknown = new_topic(), uuid4()
    known = metadata(wire, 12, named(12, topic))["topics"][0]["topic_id"]

    def ask_for(*topics: tuple[str | None, Any]) -> list[tuple[str | None, str]]:
        answer = metadata(wire, version, [{"name": name, "topic_id": id} for name, id in topics])
        return [(item["name"], item["error_code"]) for item in answer["topics"]]

    if version < 12:  # the field is there, but it may not be used
        assert ask_for((None, known)) == [("", "invalid_request")]
        assert ask_for((topic, known)) == [(topic, "invalid_request")]
    else:
        assert ask_for((None, known)) == ask_for((topic, known)) == [(topic, "none")]
        assert ask_for((None, unknown)) == ask_for(("other", unknown)) == [(None, "unknown_topic_id")]
        assert ask_for((None, known), (None, unknown)) == [(None, "unknown_topic_id"), (topic, "none")]
        assert ask_for(("other", None), (None, known)) == [(topic, "none")]  # with an id, names do not count


@pytest.mark.parametrize("version", [8, 10, 11, 13])
def test_authorized_operations(version: int, wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    fields = {"include_topic_authorized_operations": True}
    if version <= 10:
        fields["include_cluster_authorized_operations"] = True
    answer = metadata(wire, version, named(version, topic, "no-such-topic"), **fields)
    assert [item["topic_authorized_operations"] for item in answer["topics"]] == [TOPIC_OPERATIONS] * 2
    if version <= 10:
        assert answer["cluster_authorized_operations"] == 0b1111110100000


def test_a_topic_made_on_first_use(wire: Wire, log_under_test: LogUnderTest) -> None:
    """Apache Kafka answers with an error and makes the topic meanwhile. The node answers with the topic."""
    topic = f"auto-{uuid4().hex[:8]}"
    asked = named(12, topic, "b@d")

    def created() -> bool:
        answer = metadata(wire, 12, asked, allow_auto_topic_creation=True)["topics"]
        codes = {item["name"]: item["error_code"] for item in answer}
        assert codes["b@d"] == "invalid_topic_exception"
        assert codes[topic] in ("unknown_topic_or_partition", "leader_not_available", "none")
        return codes[topic] == "none"

    assert created() is (log_under_test.name == "node")
    wait_until(created, what="the topic")
    unknown = metadata(wire, 12, [{"name": None, "topic_id": uuid4()}], allow_auto_topic_creation=True)
    assert [item["error_code"] for item in unknown["topics"]] == ["unknown_topic_id"]


# -- DescribeTopicPartitions ----------------------------------------------------------------------------------


@pytest.fixture
def three(client: Client, wire: Wire) -> list[str]:
    """Topics in the order of their names, with 2, 3 and 1 partitions."""
    stem = f"describe-{uuid4().hex[:8]}"
    names = [f"{stem}-{end}" for end in "xyz"]
    client.create_topics([NewTopic(name, count, configs={}) for name, count in zip(names, (2, 3, 1), strict=True)])
    for name, count in zip(names, (2, 3, 1), strict=True):
        client.list_offsets({(name, partition): LATEST for partition in range(count)})
    return names


def describe(
    wire: Wire, topics: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, str, list[int]]], tuple[str, int] | None]:
    """([(topic, error, partitions)], next cursor)."""
    answer = ask(
        wire,
        "describe_topic_partitions",
        0,
        topics=[{"name": name} for name in topics],
        response_partition_limit=limit,
        cursor=cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    )
    after = answer["next_cursor"]
    return (
        [
            (item["name"], item["error_code"], [part["partition_index"] for part in item["partitions"]])
            for item in answer["topics"]
        ],
        after and (after["topic_name"], after["partition_index"]),
    )


def test_describe_topic_partitions(wire: Wire, three: list[str]) -> None:
    x, y, z = three
    whole = [(x, "none", [0, 1]), (y, "none", [0, 1, 2]), (z, "none", [0])]
    assert describe(wire, [z, y, x, x]) == (whole, None)
    assert describe(wire, [z, y, x], 6) == (whole, None)
    assert describe(wire, [z, y, x], 5) == (whole[:2], (z, 0))
    assert describe(wire, [z, y, x], 3) == ([whole[0], (y, "none", [0])], (y, 1))
    assert describe(wire, [z, y, x], 2) == (whole[:1], (y, 0))
    for limit in (1, 0, -1):
        assert describe(wire, [z, y, x], limit) == ([(x, "none", [0])], (x, 1))
    raw = ask(wire, "describe_topic_partitions", 0, topics=[{"name": z}], response_partition_limit=10)
    (topic,) = raw["topics"]
    (part,) = topic["partitions"]
    assert (topic["is_internal"], topic["topic_authorized_operations"]) == (False, TOPIC_OPERATIONS)
    assert (part["eligible_leader_replicas"], part["last_known_elr"], part["offline_replicas"]) == (
        [],
        [],
        [],
    )
    assert part["replica_nodes"] == part["isr_nodes"] == [part["leader_id"]]


def test_the_cursor(wire: Wire, three: list[str]) -> None:
    x, y, z = three
    assert describe(wire, three, 2, (y, 1)) == ([(y, "none", [1, 2])], (z, 0))
    assert describe(wire, three, 2, (y, 3)) == ([(y, "none", []), (z, "none", [0])], None)
    assert describe(wire, [x, z], 2, (y, 1)) == (
        [(x, "invalid_request", []), (z, "invalid_request", [])],
        None,
    )
    assert describe(wire, [z, y], 2, (y, -1)) == (
        [(z, "invalid_request", []), (y, "invalid_request", [])],
        None,
    )
    assert describe(wire, [], 3, (x, 1)) == ([(x, "none", [1]), (y, "none", [0, 1])], (y, 2))
    assert describe(wire, [], 1, (f"{x}-gone", 1)) == ([(y, "none", [0])], (y, 1))
    pages, cursor = [], None
    for _ in range(6):
        page, cursor = describe(wire, three, 1, cursor)
        pages += [(name, index) for name, _, indexes in page for index in indexes]
        if cursor is None:
            break
    assert pages == [(x, 0), (x, 1), (y, 0), (y, 1), (y, 2), (z, 0)]


def test_described_topics_that_are_not(wire: Wire, three: list[str]) -> None:
    x = three[0]
    missing = [("aaa-no-such", "unknown_topic_or_partition", []), ("b@d", "invalid_topic_exception", [])]
    assert describe(wire, ["b@d", x, "aaa-no-such"], 1) == ([*missing, (x, "none", [0])], (x, 1))
    assert describe(wire, [""]) == ([("", "unknown_server_error", [])], None)
