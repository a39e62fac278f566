"""Groups for administrators: list them, describe their members, delete groups and committed offsets.

Classic consumer groups and those of KIP-848 are described in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from suiro.client.cluster import GROUP, Cluster
from suiro.client.connection import Change, Connection, each_partition
from suiro.client.error_codes import raise_for
from suiro.client.leaders import by_topic
from suiro.errors import RefusedError, UnsupportedVersionError
from suiro.foundation.types import TopicPartition
from suiro.protocol.fields import FieldReader
from suiro.protocol.messages import ErrorCode

NO_MEMBERS = frozenset({"Empty", "Dead"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group: str
    protocol_type: str  # "consumer", or "" where only offsets were committed
    state: str  # "" where the broker does not say
    type: str  # "classic", "consumer", ...; "" where the broker does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group: str
    state: str  # Kafka's names; "Dead" for a group that does not exist
    type: str
    protocol_type: str
    assignor: str
    coordinator: str  # host:port
    members: tuple[GroupMember, ...]

    @property
    def has_members(self) -> bool:
        return bool(self.members) or self.state not in NO_MEMBERS


class GroupRequests:
    """A part of `Admin`."""

    _cluster: Cluster

    def list_groups(self) -> tuple[ListedGroup, ...]:
        """Lists the groups of all brokers; each broker knows those that it coordinates."""
        found: dict[str, ListedGroup] = {}

        def once(connection: Connection, deadline_ms: int) -> None:
            request = connection.request("list_groups", 0, 5, states_filter=(), types_filter=())
            answer = connection.call(request, deadline_ms=deadline_ms)
            raise_for(answer.error_code, f"list the groups of {connection.address}")
            for item in answer.groups:
                found[item.group_id] = ListedGroup(
                    group=item.group_id,
                    protocol_type=item.protocol_type,
                    state=getattr(item, "group_state", ""),
                    type=getattr(item, "group_type", ""),
                )

        self._cluster.at_each_broker("list groups", once)
        return tuple(found[name] for name in sorted(found))

    def describe_group(self, group: str) -> GroupDescription:
        """A group that does not exist has state "Dead" and no members."""
        what = f"describe group {group!r}"

        def once(connection: Connection, deadline_ms: int) -> GroupDescription:
            try:
                request = connection.request(
                    "consumer_group_describe", 0, 1, group_ids=(group,), include_authorized_operations=False
                )
            except UnsupportedVersionError:
                return _classic(connection, group, what, deadline_ms)
            item = _one(connection, group, what, connection.call(request, deadline_ms=deadline_ms).groups)
            if item.error_code in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version):
                return _classic(connection, group, what, deadline_ms)  # a classic one, or none
            raise_for(item.error_code, what, detail=item.error_message)
            return GroupDescription(
                group=item.group_id,
                state=item.group_state,
                type="consumer",
                protocol_type="consumer",
                assignor=item.assignor_name,
                coordinator=connection.address,
                members=tuple(
                    GroupMember(
                        member_id=member.member_id,
                        instance_id=member.instance_id,
                        client_id=member.client_id,
                        host=member.client_host,
                        assignment=tuple(
                            (topic.topic_name, partition)
                            for topic in member.assignment.topic_partitions
                            for partition in topic.partitions
                        ),
                    )
                    for member in item.members
                ),
            )

        return self._cluster.at_coordinator(GROUP, group, what, once)

    def delete_group(self, group: str) -> None:
        """Deletes a group and its committed offsets. The broker rejects this while the group has members."""
        what = f"delete group {group!r}"
        change = Change()

        def once(connection: Connection, deadline_ms: int) -> None:
            request = connection.request("delete_groups", 0, 2, groups_names=(group,))
            item = _one(connection, group, what, change.call(connection, request, deadline_ms=deadline_ms).results)
            if item.error_code is not ErrorCode.group_id_not_found or not change.may_be_done:
                _raise_of_group(item.error_code, what)

        self._cluster.at_coordinator(GROUP, group, what, once)

    def delete_offsets(self, group: str, of: Iterable[TopicPartition]) -> None:
        """Deletes committed offsets. The broker rejects this if a member of the group is subscribed to the topic."""
        what = f"delete offsets of group {group!r}"
        topics = by_topic(dict.fromkeys(of))
        change = Change()

        def once(connection: Connection, deadline_ms: int) -> None:
            asked = [
                {"name": name, "partitions": [{"partition_index": index} for index, _ in items]}
                for name, items in topics.items()
            ]
            request = connection.request("offset_delete", 0, 0, group_id=group, topics=asked)
            answer = change.call(connection, request, deadline_ms=deadline_ms)
            if answer.error_code is ErrorCode.group_id_not_found and change.may_be_done:
                return  # without offsets and members there is no group any more
            _raise_of_group(answer.error_code, what)
            # Kafka 3.7 leaves partitions without an offset out, if it has the new coordinator.
            answers = connection.matched(what, None, each_partition(answer.topics))
            for (topic, partition), item in answers.items():
                _raise_of_group(item.error_code, f"{what} in {topic}-{partition}")

        self._cluster.at_coordinator(GROUP, group, what, once)


def _one(connection: Connection, group: str, what: str, results: Iterable[Any]) -> Any:
    """What is answered about the group."""
    return connection.matched(what, (group,), ((item.group_id, item) for item in results))[group]


def _classic(connection: Connection, group: str, what: str, deadline_ms: int) -> GroupDescription:
    request = connection.request("describe_groups", 0, 6, groups=(group,), include_authorized_operations=False)
    item = _one(connection, group, what, connection.call(request, deadline_ms=deadline_ms).groups)
    if item.error_code is not ErrorCode.group_id_not_found:
        raise_for(item.error_code, what, detail=getattr(item, "error_message", None))
    return GroupDescription(
        group=item.group_id,
        state=item.group_state or "Dead",
        type="classic",
        protocol_type=item.protocol_type,
        assignor=item.protocol_data,
        coordinator=connection.address,
        members=tuple(_classic_member(member, item.protocol_type) for member in item.members),
    )


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    assignment: tuple[TopicPartition, ...] = ()
    if protocol_type == "consumer":
        assignment = _assignment(bytes(member.member_assignment))
    return GroupMember(
        member_id=member.member_id,
        instance_id=getattr(member, "group_instance_id", None),
        client_id=member.client_id,
        host=member.client_host,
        assignment=assignment,
    )


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Kafka's ConsumerProtocolAssignment. Members can write any bytes here; invalid bytes count as no assignment."""
    found: list[TopicPartition] = []
    reader = FieldReader(data)
    try:
        reader.int16()  # the version
        for _ in range(reader.int32()):
            topic, count = reader.optional_string(), reader.int32()
            if topic is None or count < 0:
                return ()
            found += [(topic, reader.int32()) for _ in range(count)]
    except ValueError:
        return ()
    return tuple(found)


def _raise_of_group(code: ErrorCode, what: str) -> None:
    advice = {
        ErrorCode.non_empty_group: "the group has members; stop them first",
        ErrorCode.group_subscribed_to_topic: "a member of the group reads the topic; stop it first",
        ErrorCode.group_id_not_found: "there is no such group",
    }.get(code)
    if advice is not None:
        raise RefusedError(f"{what}: {advice}", code.name.upper())
    raise_for(code, what)
