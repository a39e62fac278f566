"""Groups whose records cannot be read: how long one has waited, and the lag of the others."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from support.batches import batch_of

from suiro.client import (
    Client,
    CommittedOffset,
    Fetched,
    GroupDescription,
    ListedOffset,
    PartitionInfo,
    TopicInfo,
)
from suiro.console.groups import describe_group, first_waits_since
from suiro.errors import BrokerFailureError, DeadlineExceededError, OffsetOutOfRangeError, RefusedError
from suiro.foundation.types import TopicPartition

PLACE = ("t", 0)


def told(fetch: Any) -> Client:
    listed = {PLACE: ListedOffset(offset=0, timestamp=-1, leader_epoch=-1)}
    return SimpleNamespace(list_offsets=lambda wanted, **more: listed, fetch=fetch)  # type: ignore[return-value]


def fetched(data: bytes, last_stable_offset: int = 1) -> Fetched:
    return Fetched(
        data=memoryview(data),
        aborted=(),
        high_watermark=1,
        last_stable_offset=last_stable_offset,
        log_start_offset=0,
    )


def gone(*arguments: Any, **more: Any) -> Any:
    raise OffsetOutOfRangeError(*PLACE, 0, 5, 9)


@pytest.mark.parametrize(
    "client",
    [
        told(lambda offsets, **more: {PLACE: fetched(batch_of("a")[:-1] + b"\1")}),
        told(gone),
    ],
    ids=["damaged", "gone by now"],
)
def test_a_record_that_cannot_be_read_has_no_time(client: Client) -> None:
    """A group whose next record is damaged must not take the list of all groups with it."""
    assert first_waits_since(client, {PLACE: 0}) == {PLACE: None}


def test_the_times_of_many_partitions_take_few_requests() -> None:
    """Each partition took two. A batch that is larger than a partition's share comes when its turn is first."""
    places = [("t", number) for number in range(300)] + [("hidden", number) for number in range(3)]
    asked: list[int] = []

    def list_offsets(wanted: Any, **more: Any) -> Any:
        asked.append(len(wanted))
        return dict.fromkeys(wanted, ListedOffset(offset=0, timestamp=-1, leader_epoch=-1))

    def fetch(offsets: Any, **more: Any) -> Any:
        asked.append(len(offsets))
        if any(topic == "hidden" for topic, _ in offsets):
            raise RefusedError("fetch from hidden-0", "TOPIC_AUTHORIZATION_FAILED")
        first = next(iter(offsets))
        return {
            (topic, number): fetched(b"" if number in (7, 8, 9) and number != first[1] else batch_of("a"))
            for topic, number in offsets
        }

    client: Any = SimpleNamespace(list_offsets=list_offsets, fetch=fetch)
    found = first_waits_since(client, dict.fromkeys(places, 0))
    assert {place for place, since in found.items() if since is None} == {("hidden", n) for n in range(3)}
    assert asked == [303, 303, 300, 300, 3, 2, 1, 3, 3]


def test_partitions_with_open_transactions_are_not_fetched_again_and_again() -> None:
    """Each of them had a turn as the first of all that were left."""
    asked: list[int] = []

    def fetch(offsets: Any, **more: Any) -> Any:
        asked.append(len(offsets))
        return dict.fromkeys(offsets, fetched(b"", 0))

    places = [("t", number) for number in range(300)]
    listed = dict.fromkeys(places, ListedOffset(offset=0, timestamp=-1, leader_epoch=-1))
    client: Any = SimpleNamespace(list_offsets=lambda wanted, **more: listed, fetch=fetch)
    assert set(first_waits_since(client, dict.fromkeys(places, 0)).values()) == {None}
    assert asked == [300]


def test_a_damaged_partition_takes_the_time_of_no_other() -> None:
    def fetch(offsets: Any, **more: Any) -> Any:
        if ("t", 1) in offsets:
            raise BrokerFailureError("fetch from t-1", "CORRUPT_MESSAGE")
        return dict.fromkeys(offsets, fetched(batch_of("a")))

    places = [(topic, number) for topic in ("t", "u") for number in range(3)]
    listed = dict.fromkeys(places, ListedOffset(offset=0, timestamp=-1, leader_epoch=-1))
    client: Any = SimpleNamespace(list_offsets=lambda wanted, **more: listed, fetch=fetch)
    found = first_waits_since(client, dict.fromkeys(places, 0))
    assert [place for place, since in found.items() if since is None] == [("t", 1)]


def metadata(topics: Any = None) -> dict[str, TopicInfo]:
    """Without names, what the user may describe."""
    if topics is not None and len(topics) >= 50_000:
        raise DeadlineExceededError("could not fetch metadata: the connection broke")
    if topics is not None and topics != ["t"]:
        raise RefusedError("ask for the metadata of topic hidden", "TOPIC_AUTHORIZATION_FAILED")
    partitions = tuple(
        PartitionInfo(partition=number, leader=leader, leader_epoch=0) for number, leader in ((0, 1), (1, -1))
    )
    return {"t": TopicInfo(name="t", topic_id=None, internal=False, partitions=partitions)}


@pytest.mark.parametrize(
    "others",
    [{("t", 1)}, {("hidden", 0)}, {(f"made-up-{number}", 0) for number in range(50_000)}],
    ids=["without a leader", "of others", "too many"],
)
def test_partitions_that_cannot_be_asked_about_hide_no_other(others: set[TopicPartition]) -> None:
    """The whole group was an error: for 20 s without a leader, or if a member reads a topic of others, or names more
    topics than a request may have."""

    def list_offsets(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        if others.intersection(wanted):
            raise DeadlineExceededError("partition t-1 has no leader")
        return {place: ListedOffset(offset=9, timestamp=-1, leader_epoch=-1) for place in wanted}

    described = GroupDescription(
        group="g",
        state="Empty",
        type="classic",
        protocol_type="consumer",
        assignor="",
        coordinator="",
        members=(),
    )
    committed = CommittedOffset(offset=4, metadata="", leader_epoch=-1)
    client: Any = SimpleNamespace(
        admin=SimpleNamespace(describe_group=lambda group: described),
        offset_fetch=lambda group, require_stable: dict.fromkeys([("t", 0), *others], committed),
        metadata=metadata,
        list_offsets=list_offsets,
    )
    found = describe_group(client, "g")
    assert {(one.topic, one.partition): (one.end_offset, one.lag) for one in found.partitions} == {
        ("t", 0): (9, 5),
        **dict.fromkeys(others, (None, None)),
    }
