"""Group requests on the wire, written short: members of the new consumer protocol, and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from suiro.protocol.messages import API_KEYS, nested, request_class
from support.admin import ask
from support.wire import Wire

HEARTBEAT = "consumer_group_heartbeat"
ASSIGN_AT_ONCE = {"consumer.assignment.interval.ms": "0"}
BEAT_OFTEN = {"consumer.heartbeat.interval.ms": "100"}
"""Settings of a group, else of seconds: a test need not wait for them."""


def set_of_group(wire: Wire, group: str, settings: Mapping[str, str]) -> None:
    changes = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
    resource = {"resource_type": 32, "resource_name": group, "configs": changes}
    answer = ask(wire, "incremental_alter_configs", 1, resources=[resource])
    assert answer["responses"][0]["error_code"] == "none", answer


@dataclass
class Member:
    """One member of a consumer group: what it was told, and what it does with it."""

    wire: Wire
    group: str
    member_id: str = field(default_factory=lambda: str(uuid4()))
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[UUID, set[int]] = field(default_factory=dict)

    def join(self, *topics: str, regex: str | None = None, assignor: str | None = None, **fields: Any) -> Any:
        """The first heartbeat, or the one that begins anew."""
        self.owned = {}
        return self.send(
            epoch=0,
            rebalance_timeout=timedelta(seconds=60),
            subscribed_topic_names=topics if topics or regex is None else None,
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=(),
            **fields,
        )

    def beat(self, **fields: Any) -> Any:
        """A heartbeat that reports what the member owns, and takes over what it is told."""
        message = request_class(API_KEYS[HEARTBEAT], 1)
        owned = tuple(
            nested(message, "TopicPartitions")(topic_id=topic, partitions=tuple(sorted(some)))
            for topic, some in self.owned.items()
        )
        return self.send(epoch=self.epoch, **{"topic_partitions": owned, **fields})

    def leave(self, *, epoch: int = -1) -> Any:
        return self.send(epoch=epoch, topic_partitions=None)

    def send(self, *, epoch: int, **fields: Any) -> Any:
        response = self.wire.call(
            request_class(API_KEYS[HEARTBEAT], 1)(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                **{"topic_partitions": None, **fields},
            )
        )
        if response.error_code.name == "none" and epoch >= 0:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                told = response.assignment.topic_partitions
                self.owned = {entry.topic_id: set(entry.partitions) for entry in told}
        return response

    @property
    def partitions(self) -> set[int]:
        """Of a group with one topic."""
        return set().union(*self.owned.values())


def describe(wire: Wire, group: str) -> Any:
    message = request_class(API_KEYS["consumer_group_describe"], 1)
    return wire.call(message(group_ids=(group,), include_authorized_operations=False)).groups[0]


def commit(
    wire: Wire,
    group: str,
    offsets: Mapping[tuple[Any, int], int],
    *,
    member_id: str = "",
    epoch: int = -1,
    version: int = 9,
    **fields: Any,
) -> list[str]:
    """OffsetCommit; a topic is named by its name, from version 10 on by its id. The code of each, in order."""
    message = request_class(API_KEYS["offset_commit"], version)
    key = "topic_id" if version >= 10 else "name"
    topics = tuple(
        nested(message, "OffsetCommitRequestTopic")(
            **{key: topic},
            partitions=(
                nested(message, "OffsetCommitRequestPartition")(
                    partition_index=index, committed_offset=offset, committed_metadata=""
                ),
            ),
        )
        for (topic, index), offset in offsets.items()
    )
    response = wire.call(
        message(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=topics,
            **fields,
        )
    )
    return [entry.error_code.name for topic in response.topics for entry in topic.partitions]


def fetch(
    wire: Wire,
    groups: Mapping[str, Mapping[Any, Iterable[int]] | None],
    *,
    version: int = 9,
    member_id: str | None = None,
    epoch: int = -1,
) -> list[tuple[str, dict[tuple[Any, int], tuple[str, int]]]]:
    """OffsetFetch of several groups: (code, {(topic, partition): (code, offset)}) of each."""
    message = request_class(API_KEYS["offset_fetch"], version)
    key = "topic_id" if version >= 10 else "name"
    asked = tuple(
        nested(message, "OffsetFetchRequestGroup")(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            topics=None
            if topics is None
            else tuple(
                nested(message, "OffsetFetchRequestTopics")(**{key: topic}, partition_indexes=tuple(some))
                for topic, some in topics.items()
            ),
        )
        for group, topics in groups.items()
    )
    response = wire.call(message(groups=asked, require_stable=False))
    return [
        (
            group.error_code.name,
            {
                (getattr(topic, key), entry.partition_index): (entry.error_code.name, entry.committed_offset)
                for topic in group.topics
                for entry in topic.partitions
            },
        )
        for group in response.groups
    ]


def delete_offsets(wire: Wire, group: str, topic: str, *partitions: int) -> tuple[str, list[str]]:
    message = request_class(API_KEYS["offset_delete"], 0)
    response = wire.call(
        message(
            group_id=group,
            topics=(
                nested(message, "OffsetDeleteRequestTopic")(
                    name=topic,
                    partitions=tuple(
                        nested(message, "OffsetDeleteRequestPartition")(partition_index=index) for index in partitions
                    ),
                ),
            ),
        )
    )
    codes = [entry.error_code.name for found in response.topics for entry in found.partitions]
    return response.error_code.name, codes


def list_groups(wire: Wire, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, Any]:
    message = request_class(API_KEYS["list_groups"], 5)
    listed = wire.call(message(states_filter=states, types_filter=types)).groups
    return {group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in listed}


def delete_group(wire: Wire, group: str) -> str:
    message = request_class(API_KEYS["delete_groups"], 2)
    return str(wire.call(message(groups_names=(group,))).results[0].error_code.name)
