"""Checks that a version can be built from offset 0: its inputs are complete, and its own names are free.

The check runs before anything is written. Records in the remote tier count as present, because consumers can read them.
A compacted topic is complete, because it has the last record of each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from suiro.client import EARLIEST, Client
from suiro.errors import UnknownTopicError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.views.definition import VersionSpec


class InputsGoneError(UsageError):
    """Retention has removed the beginning of an input topic. The rest would make another view."""


class NameTakenError(UsageError):
    """A topic or a group with the version's name exists: of somebody else, or of a view that the log does not know."""


def own_topics(client: Client, spec: VersionSpec) -> list[str]:
    """Returns the topics that exist of those that the version writes."""
    own = {spec.output_topic, spec.cuts_topic, *spec.internal_topics}
    return [name for name in client.metadata() if name in own]


def check_names(client: Client, spec: VersionSpec) -> None:
    """Raises `NameTakenError`. Rows of others in the output topic would become rows of the view. The version would
    leave out the records that a group of its name has processed. And its end deletes all topics with its names."""
    taken = [f"topic {name!r}" for name in own_topics(client, spec)]
    if client.offset_fetch(spec.application_id, None):
        taken.append(f"consumer group {spec.application_id!r}")
    if taken:
        raise NameTakenError(
            f"version {spec.version} of view {spec.view!r} is new, but there is {' and '.join(taken)} already: of "
            "somebody else, or left from a view that topic _suiro_views does not know any more. Delete what is not "
            "needed (kafka-topics --delete, kafka-consumer-groups --delete), or give the view another name"
        )


def check_inputs(
    client: Client, spec: VersionSpec, *, processed: Mapping[TopicPartition, int] = MappingProxyType({})
) -> None:
    """Raises `UnknownTopicError` if a topic does not exist, and `InputsGoneError` if one lacks its beginning.
    `processed`: the offsets below which no record is needed any more."""
    found = client.metadata(list(spec.inputs))
    missing = sorted(set(spec.inputs) - set(found))
    if missing:
        raise UnknownTopicError(
            f"view {spec.view!r} reads topic {', '.join(map(repr, missing))}, which does not exist; create it first",
            "UNKNOWN_TOPIC_OR_PARTITION",
        )
    if any(name.lower().startswith("starting") for name in spec.settings):
        return  # it says where to begin
    places = [(topic, item.partition) for topic, info in found.items() for item in info.partitions]
    starts = client.list_offsets(dict.fromkeys(places, EARLIEST))
    late = {place: item.offset for place, item in sorted(starts.items()) if item.offset > processed.get(place, 0)}
    policies = client.describe_configs(sorted({topic for topic, _ in late})) if late else {}
    gone = {
        place: offset
        for place, offset in late.items()
        if (policies[place[0]].get("cleanup.policy") or "delete").replace(" ", "") != "compact"
    }
    if gone:
        listed = ", ".join(f"{topic}-{partition} begins at offset {at}" for (topic, partition), at in gone.items())
        raise InputsGoneError(
            f"view {spec.view!r} cannot be built from the beginning of its inputs: {listed}; what was before, "
            "retention (or DeleteRecords) removed. Keep more of it (retention.ms=-1, or remote.storage.enable=true), "
            "read a compacted topic, or say that the rest is enough: the setting startingOffsets=earliest"
        )
