"""Moves a consumer group from a version's output topic to that of another version, by the input offsets of their cuts.

The group's old cut is the newest cut whose output it has consumed completely. The new cut is the other version's newest
one at the same inputs, or before them if there is none. The group continues after the outputs of the new cut. It skips
nothing. The other version delivers the results after the cut again, unless the group was exactly at a cut that both
versions have.

The group must have no members meanwhile, as for any reset of offsets. Its offsets in the old topic do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suiro.client import LATEST, Client
from suiro.errors import KafkaError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.topic_table import batches
from suiro.views.cuts import Cut, CutLog, require_topic
from suiro.views.definition import VersionSpec

HAS_MEMBERS = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS")


def move_group(client: Client, group: str, old: VersionSpec, new: VersionSpec) -> dict[str, Any]:
    """Moves the group from the output topic of `old` to that of `new`, and returns how, for JSON: among others the
    number of the cut that it has consumed (`old_cut`), and of the one after which it continues (`new_cut`; None: the
    beginning). With `is_exact`, nothing is delivered again. Raises `UsageError` for a group that has consumed nothing
    of the old topic, or has members."""
    for spec in (old, new):
        require_topic(client, spec.output_topic)
    committed = _committed(client, group, old.output_topic)
    positions = {p: _next_record(client, old.output_topic, p, offset) for p, offset in committed.items()}
    old_cuts, new_cuts = (CutLog(client, spec.cuts_topic).poll() for spec in (old, new))
    old_cut, new_cut = matching_cuts(positions, old_cuts, new_cuts)
    count = len(client.metadata([new.output_topic])[new.output_topic].partitions)
    offsets = {p: 0 if new_cut is None else new_cut.outputs.get(p, 0) for p in range(count)}
    is_exact = (
        old_cut is not None
        and new_cut is not None
        and new_cut.meets(old_cut)
        and all(
            _next_record(client, old.output_topic, p, old_cut.outputs.get(p, 0)) >= offset
            for p, offset in committed.items()
        )
    )
    try:
        client.offset_commit(group, {(new.output_topic, p): (offset, "") for p, offset in offsets.items()})
    except KafkaError as error:
        if error.code_name in HAS_MEMBERS:
            raise UsageError(
                f"group {group!r} has members, and only they can move it: stop its consumers, move it, and start them "
                f"with topic {new.output_topic!r}"
            ) from error
        raise
    return {
        "group": group,
        "from_topic": old.output_topic,
        "to_topic": new.output_topic,
        "old_cut": None if old_cut is None else old_cut.number,
        "new_cut": None if new_cut is None else new_cut.number,
        "offsets": {str(p): offset for p, offset in sorted(offsets.items())},
        "is_exact": is_exact,
    }


def matching_cuts(
    positions: Mapping[int, int], old: Sequence[Cut], new: Sequence[Cut]
) -> tuple[Cut | None, Cut | None]:
    """Returns the newest consumed cut that the new version has, too, and its match. Without a match, returns the newest
    consumed cut, and the newest new cut before it. `positions`: the next record to consume in each partition of the old
    topic.

    The old cut must be settled. The new version may already include records that still wait in the old cut, and the
    group would miss their results.
    """
    consumed = [
        cut for cut in old if cut.is_settled and all(positions.get(p, 0) >= at for p, at in cut.outputs.items())
    ]
    if not consumed:
        return None, None
    newest = consumed[-1]
    topics = newest.topics & new[-1].topics if new else None
    if not topics:
        return newest, None
    matching: dict[frozenset[tuple[TopicPartition, int]], Cut] = {}
    for cut in new:
        # Of several cuts at the same inputs, the first one skips no output.
        matching.setdefault(cut.offsets_of(topics), cut)
    for cut in reversed(consumed):
        match = matching.get(cut.offsets_of(topics))
        if match is not None:
            return cut, match
    before = [cut for cut in new if newest.covers(cut)]
    return newest, before[-1] if before else None


def _committed(client: Client, group: str, topic: str) -> dict[int, int]:
    found = client.offset_fetch(group, None)
    committed = {
        partition: item.offset for (name, partition), item in found.items() if name == topic and item is not None
    }
    if not committed:
        raise UsageError(
            f"group {group!r} has no offsets in topic {topic!r}: there is no place to move it from. A group that is "
            "new to the view just starts with the other topic"
        )
    return committed


def _next_record(client: Client, topic: str, partition: int, position: int) -> int:
    """Returns the offset of the next record that a consumer sees from `position` on, or the end. Ends of transactions
    and compacted records do not count."""
    place = (topic, partition)
    end = client.list_offsets({place: LATEST}, read_committed=True)[place].offset
    for batch in batches(client, place, position, end, compacted=False):
        if batch.num_rows:
            return int(batch.column("offset")[0].as_py())
    return end
