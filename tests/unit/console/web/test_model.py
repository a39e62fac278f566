"""The console's model over a client that says what it is told: rates, lag, problems, and rounds that fail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from suiro.client import (
    EARLIEST,
    NO_LEADER,
    Broker,
    CommittedOffset,
    ListedGroup,
    ListedOffset,
    PartitionInfo,
    TopicInfo,
)
from suiro.clock import ManualClock
from suiro.console.groups import first_waits_since
from suiro.console.pages import LEADER_WAIT_MS
from suiro.console.web import model as modelling
from suiro.console.web.model import Model
from suiro.errors import BrokenConnectionError, RetriableKafkaError, UnknownTopicError

PLACE = tuple[str, int]


class ToldClient:
    """One broker; `ends` are the offsets behind the last records, `committed` those of groups."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.ends: dict[PLACE, int] = {("orders", 0): 10, ("orders", 1): 0}
        self.committed: dict[str, dict[PLACE, int]] = {}
        self.protocols: dict[str, str] = {}
        self.leaderless: set[PLACE] = set()
        self.failures: list[Exception] = []
        self.waits: set[int | None] = set()
        self.admin = self

    def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id="c", controller=1, brokers=(Broker(id=1, host="b", port=1, rack=None),))

    def metadata(self) -> dict[str, TopicInfo]:
        topics: dict[str, list[PartitionInfo]] = {}
        for topic, partition in sorted(self.ends):
            leader = -1 if (topic, partition) in self.leaderless else 1
            info = PartitionInfo(partition=partition, leader=leader, leader_epoch=0, replicas=(1,), in_sync=(1,))
            topics.setdefault(topic, []).append(info)
        return {
            name: TopicInfo(name=name, topic_id=uuid4(), internal=False, partitions=tuple(infos))
            for name, infos in topics.items()
        }

    def list_offsets(self, wanted: Mapping[PLACE, int], **limits: int) -> dict[PLACE, ListedOffset]:
        self.waits.add(limits.get("leader_wait_ms"))
        if self.failures:
            raise self.failures.pop(0)
        return {
            place: ListedOffset(offset=0 if which == EARLIEST else self.ends[place], timestamp=-1, leader_epoch=-1)
            for place, which in wanted.items()
        }

    def partition_sizes(self) -> dict[PLACE, int]:
        return dict.fromkeys(self.ends, 7)

    def list_groups(self) -> tuple[ListedGroup, ...]:
        return tuple(
            ListedGroup(group=name, protocol_type=self.protocols.get(name, ""), state="Empty", type="classic")
            for name in self.committed
        )

    def offset_fetch(self, group: str, *, require_stable: bool) -> dict[PLACE, CommittedOffset | None]:
        return {
            place: CommittedOffset(offset=offset, metadata="", leader_epoch=-1)
            for place, offset in self.committed[group].items()
        }

    def fetch(self, offsets: Mapping[PLACE, int], **limits: int) -> Any:
        self.waits.add(limits.get("leader_wait_ms"))
        raise RetriableKafkaError("fetch: it has no leader", NO_LEADER)

    def close(self) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ms=1_700_000_000_000)


@pytest.fixture
def client(clock: ManualClock) -> ToldClient:
    return ToldClient(clock)


@pytest.fixture
def model(client: ToldClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Model:
    since = clock.wall_ms() - 5_000
    monkeypatch.setattr(modelling, "first_waits_since", lambda client, offsets, **limits: dict.fromkeys(offsets, since))
    return Model(lambda: client, clock=clock)  # type: ignore[arg-type, return-value]


def rounds(model: Model, client: ToldClient, count: int = 1) -> None:
    for _ in range(count):
        client.clock.advance(5_000)
        model._whole_round(client)  # type: ignore[arg-type]


def test_rates_and_sizes(model: Model, client: ToldClient) -> None:
    rounds(model, client)
    assert (model.topics["orders"].records, model.topics["orders"].in_per_s) == (10, None)
    client.ends["orders", 1] = 50
    rounds(model, client)
    orders = model.topics["orders"]
    assert (orders.records, orders.in_per_s, orders.size_bytes) == (60, 10.0, 14)
    assert (model.overview.in_per_s, [one.name for one in model.overview.busiest]) == (10.0, ["orders"])
    client.ends["orders", 0] = 3  # deleted, and made anew under its name
    rounds(model, client)
    assert model.topics["orders"].in_per_s == 0
    assert json.loads(model.topics_json)["topics"][0]["name"] == "orders"


def test_the_clock_may_be_set_back(model: Model, client: ToldClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and first offsets were not read again until it had caught up."""
    rounds(model, client)
    client.clock._wall_ms -= 3_600_000
    client.ends["orders", 1] = 50
    rounds(model, client)
    assert model.topics["orders"].in_per_s == 10.0
    monkeypatch.setattr(client, "partition_sizes", lambda: dict.fromkeys(client.ends, 9))
    rounds(model, client, 4)
    assert model.topics["orders"].size_bytes == 18


def test_lag_in_records_and_in_time(model: Model, client: ToldClient) -> None:
    client.committed = {
        "readers": {("orders", 0): 4, ("orders", 1): 0},
        "done": {("orders", 0): 10},
        "new": {},
    }
    rounds(model, client)
    rounds(model, client)
    readers = model.groups["readers"]
    assert (readers.lag, readers.lag_ms, readers.topics, readers.trend) == (6, 15_000, ("orders",), (6, 6))
    assert (model.groups["done"].lag, model.groups["done"].lag_ms) == (0, 0)
    assert (model.groups["new"].lag, model.groups["new"].lag_ms) == (None, None)
    assert [one.group for one in model.overview.lagging] == ["readers"]
    del client.committed["readers"]
    rounds(model, client)
    assert "readers" not in model.groups


def test_what_is_wrong_is_named(model: Model, client: ToldClient) -> None:
    client.committed = {"left": {("orders", 0): 4}, "application": {("orders", 0): 4}}
    client.protocols = {"left": "consumer"}
    client.leaderless = {("orders", 1)}
    for end in (10, 20, 30, 40):
        client.ends["orders", 0] = end
        rounds(model, client)
    said = {one.link: one.text for one in model.overview.problems}
    assert "1 of 2 partitions of orders have no leader" in said["#/topics/orders"]
    assert "Nobody reads for group left, and its lag grows: 36 records" in said["#/groups/left"]
    assert "#/groups/application" not in said  # it commits without being a member
    assert model.topics["orders"].records is None  # of a partition without a leader nobody can say


def test_a_group_waits_for_a_leader_no_longer_than_the_rest_of_the_round(
    model: Model, client: ToldClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited 20 s, and the overview said that the cluster does not answer."""
    monkeypatch.setattr(modelling, "first_waits_since", first_waits_since)
    client.committed = {"late": {("orders", 0): 4}}
    rounds(model, client)
    assert (model.overview.error, client.waits) == (None, {LEADER_WAIT_MS})
    assert model.groups["late"].lag == 6


def test_new_dead_letters_are_a_problem_for_some_minutes(model: Model, client: ToldClient) -> None:
    client.ends["orders.dead-letters", 0] = 7
    rounds(model, client, 2)
    assert model.overview.problems == ()  # those that were there before
    client.ends["orders.dead-letters", 0] = 8
    rounds(model, client)
    (found,) = model.overview.problems
    assert found.text == "New dead letters in orders.dead-letters within the last minutes"
    assert (found.severity, found.link) == ("warning", "#/dead-letters/orders.dead-letters")
    rounds(model, client, modelling.TOPIC_HISTORY)
    assert model.overview.problems == ()


def test_a_topic_that_is_deleted_within_a_round(model: Model, client: ToldClient) -> None:
    gone = UnknownTopicError("topic 'x' does not exist", "UNKNOWN_TOPIC_OR_PARTITION")
    client.failures = [gone, gone]
    rounds(model, client)
    assert (model.overview.error, model.topics["orders"].records) == (None, 10)
    client.failures = [gone] * modelling.ROUNDS_BEGUN
    with pytest.raises(UnknownTopicError):
        rounds(model, client)


def test_a_partition_that_loses_its_leader_within_a_round(model: Model, client: ToldClient) -> None:
    """The round waited 20 s, and then the overview said that the cluster does not answer."""
    client.failures = [RetriableKafkaError("orders-1 has no leader", NO_LEADER)]
    rounds(model, client)
    assert (model.overview.error, model.topics["orders"].records) == (None, 10)
    assert client.waits == {LEADER_WAIT_MS}
    client.failures = [RetriableKafkaError("the broker is busy", "REQUEST_TIMED_OUT")]
    with pytest.raises(RetriableKafkaError):
        rounds(model, client)


def test_only_what_changed_is_told(model: Model, client: ToldClient) -> None:
    told: list[Any] = []
    with model.subscribed(lambda event: told.append(json.loads(event.split(b"data: ")[1]))):
        rounds(model, client, 2)
        rounds(model, client)
        assert [one["topics"]["changed"] for one in told[2:]] == [[]]
        client.ends["new", 0] = 0
        rounds(model, client)
        assert [one["name"] for one in told[-1]["topics"]["changed"]] == ["new"]
        del client.ends["new", 0]
        rounds(model, client)
        assert told[-1]["topics"]["removed"] == ["new"]
        model._publish_failure("the cluster does not answer: nobody is there")
        assert told[-1]["overview"]["error"] == "the cluster does not answer: nobody is there"
        assert told[-1]["overview"]["problems"][0]["severity"] == "error"
    client.failures = [BrokenConnectionError("away")]
    with pytest.raises(BrokenConnectionError):
        rounds(model, client)
    assert model.topics["orders"].records == 10
