"""The target assignment of a group, computed by the assignor that most members ask for from the topics that exist."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from uuid import UUID

from suiro.broker.coordination.groups.assignors import ASSIGNORS, AssigningGroup, AssigningMember
from suiro.broker.coordination.groups.consumer_member import ConsumerMember, Partitions, TopicImage
from suiro.broker.coordination.groups.regexes import ResolvedRegex
from suiro.broker.coordination.java_hashes import hash_order, string_hash


def new_target(
    members: Mapping[str, ConsumerMember],
    *,
    before: Mapping[str, Partitions],
    assigned: Iterable[Partitions],
    regexes: Mapping[str, ResolvedRegex],
    image: TopicImage,
    default_assignor: str,
) -> Mapping[str, Partitions]:
    """The target of every member. `before` is their target so far, `assigned` all targets of the group so far.

    The two differ where a static member has just been replaced: its old target counts as assigned, and is that of its
    new id.
    """
    wants = {member_id: topic_ids(member, regexes, image) for member_id, member in members.items()}
    counts: dict[UUID, int] = {}
    for name in {name for topics in wants.values() for name in topics}:
        described = image.describe(name)
        if described is not None:
            counts[described[0]] = described[1]
    group = AssigningGroup(
        members={
            member_id: AssigningMember(
                instance_id=member.instance_id,
                topics=frozenset(wants[member_id].values()),
                target=before.get(member_id, {}),
            )
            for member_id, member in members.items()
        },
        partitions=counts,
        assigned=frozenset(
            (topic_id, partition)
            for target in assigned
            for topic_id, partitions in target.items()
            for partition in partitions
        ),
        same_topics=_have_same_topics(members.values()),
    )
    return ASSIGNORS[preferred_assignor(members.values()) or default_assignor](group)


def topic_ids(member: ConsumerMember, regexes: Mapping[str, ResolvedRegex], image: TopicImage) -> Mapping[str, UUID]:
    """The topics that a member wants and that exist."""
    names = set(member.topic_names)
    if member.topic_regex and member.topic_regex in regexes:
        names |= regexes[member.topic_regex].topics
    described = {name: image.describe(name) for name in names}
    return {name: found[0] for name, found in described.items() if found is not None}


def preferred_assignor(members: Iterable[ConsumerMember]) -> str | None:
    counts = Counter(member.server_assignor for member in members if member.server_assignor is not None)
    return max(hash_order(counts, string_hash), key=lambda name: counts[name], default=None)


def _have_same_topics(members: Iterable[ConsumerMember]) -> bool:
    """As Kafka counts it: by the names that members gave, or by the one expression that all gave."""
    listed = list(members)
    regexes = {member.topic_regex for member in listed if member.topic_regex}
    names = {name for member in listed for name in member.topic_names}
    if not regexes:
        return all(member.topic_names == names for member in listed)
    return len(regexes) == 1 and not names and all(member.topic_regex for member in listed)


def hash_topics(names: Iterable[str], image: TopicImage) -> int:
    """Changes when one of the topics is made, deleted or gets partitions. Signed, 0 for none, as in the record.

    Not Kafka's own hash, so a group that Apache Kafka takes over computes its target once anew.
    """
    digest = hashlib.blake2b(digest_size=8)
    empty = True
    for name in sorted(names):
        described = image.describe(name)
        if described is not None:
            empty = False
            digest.update(described[0].bytes + described[1].to_bytes(4, "big"))
    return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True)
