"""Reads the committed position of an application from the log, to rebuild its state if the checkpoint is lost.

The group's committed offsets say which records of the sources were processed: all below them, none from them on. A
rebuild reads everything again; up to there, the boundary, micro-batches are replayed: they fill the state and write
nothing. The first one behind it writes all changelogs (`run_task`). `<checkpoint>/suiro-rebuild.json` keeps
the boundary, so that a rebuild that was interrupted goes on.

Records that were read but waited for another input partition do not count as processed (`settled`). Beside the offset
stands the time of the record that waited there, so that those carried over repartitions wait for it again at the
boundary.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suiro.foundation.files import replace_file
from suiro.foundation.types import TopicPartition
from suiro.spark import Positions, SinkOptions, newest_in
from suiro.streams.errors import CheckpointError

FILE = "suiro-rebuild.json"
FORMAT_VERSION = 1
NOT_READ = "-1"
"""The metadata of a committed offset whose next record was in the log but not read. If it was read and waited, the
metadata is its time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The offset of each partition up to which everything was processed before. `waiting`: where there was more to
    process, the time of the record that waited, or -1 where it was not read yet. `marker`: the one that was committed
    with them, "" where there was none; None after a switch."""

    offsets: Mapping[TopicPartition, int]
    waiting: Mapping[TopicPartition, int] = field(default_factory=dict)
    marker: str | None = None

    def paused(self, positions: Positions) -> dict[TopicPartition, int]:
        """Those of `waiting` that stand at the boundary in a replayed micro-batch."""
        if not positions.replayed:
            return {}
        return {
            place: time
            for place, time in self.waiting.items()
            if place in positions.offsets and positions.offsets[place] >= self.offsets[place]
        }

    def save(self, checkpoint: Path) -> None:
        value: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "offsets": Positions(offsets=self.offsets).to_json(),
            "waiting": [[*place, time] for place, time in sorted(self.waiting.items())],
        }
        if self.marker is not None:
            value["marker"] = self.marker
        checkpoint.mkdir(parents=True, exist_ok=True)
        replace_file(checkpoint / FILE, json.dumps(value, indent=1) + "\n")

    @classmethod
    def load(cls, checkpoint: Path) -> Boundary | None:
        try:
            value = read_versioned(checkpoint / FILE, FORMAT_VERSION)
        except FileNotFoundError:
            return None
        waiting = {(topic, partition): time for topic, partition, time in value["waiting"]}
        offsets = Positions.from_json(value["offsets"]).offsets
        return cls(offsets=offsets, waiting=waiting, marker=value.get("marker"))


def read_versioned(path: Path, version: int) -> dict[str, Any]:
    """The JSON object in a file of ours in the checkpoint. Raises `CheckpointError` for another format and damage."""
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = value["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged ({type(error).__name__}: {error}). Restore the checkpoint from a copy; or move it away "
            "and rebuild (rebuild=True, suiro run --rebuild)"
        ) from error
    if found != version:
        raise CheckpointError(
            f"{path} has format {found}, this version of suiro reads {version}: use the version that wrote it, or a "
            "new application id"
        )
    return value


@dataclass(frozen=True, slots=True)
class BufferedFrom:
    """A task's report to the driver: records of this partition from `offset` on wait for another input partition.
    `time` is the time of the first one."""

    topic: str
    partition: int
    offset: int
    time: int


def begins_anew(checkpoint: Path) -> bool:
    """Whether the directory has no state: at a first start, or at a rebuild of an application that has run before."""
    return not has_offsets(checkpoint) and not (checkpoint / FILE).exists()


def boundary_of(
    client: Any,
    sink: SinkOptions,
    topics: Sequence[str],
    checkpoint: Path,
    *,
    rebuild: bool,
    internal_topics: Sequence[str] = (),
    output_topics: Sequence[str] = (),
) -> Boundary | None:
    """Returns the boundary that this start must keep; None if it is no rebuild. `client` is a `suiro.client.Client`.
    `internal_topics`: those of the application, which have records if it has run before.

    Raises `CheckpointError` where the log knows the application and the checkpoint does not, or, asked to rebuild,
    where there is state already or nobody knows any more what is written. Writes the boundary's file, and nothing else.
    """
    from suiro.spark import MARKER_TOPIC, Destination

    begun = Boundary.load(checkpoint)
    if begun is not None:
        if not has_offsets(checkpoint):
            # Which topics these were is noted with the first plan.
            check_log(client, begun, sink)
        return begun
    if has_offsets(checkpoint):
        if rebuild:
            raise CheckpointError(
                f"{checkpoint} has the state of {sink.application_id!r} already, and a rebuild begins with none: start "
                "without rebuild to go on with it, or move this directory away first"
            )
        return None
    if rebuild:
        # Whoever still writes with this application id is fenced, and what it left open is over.
        client.transaction(Destination.of(sink).transactional_id, timeout_ms=sink.transaction_timeout_ms).init()
    committed = _committed(client, sink, is_stable=rebuild)
    if not committed:
        _look_for_records(client, sink, internal_topics, rebuild=rebuild)
        if rebuild and (there := _with_records(client, output_topics)):
            _log.warning(
                "application %r is to be rebuilt, but its group on %s has no committed offsets: it has not run before, "
                "or brokers have forgotten them. All results are written, also those that are in %s already",
                sink.application_id,
                sink.bootstrap_servers,
                ", ".join(there),
            )
        return None
    if not rebuild:
        raise CheckpointError(_gone(sink, checkpoint, committed))
    # Until the first micro-batch from here is written, another driver may go on: it has to find this very marker.
    marker = committed.get((MARKER_TOPIC, 0))
    boundary = replace(_of_topics(committed, topics), marker="" if marker is None else marker.metadata)
    check_log(client, boundary, sink)
    boundary.save(checkpoint)
    return boundary


def committed_boundary(client: Any, sink: SinkOptions, topics: Collection[str], *, is_stable: bool) -> Boundary | None:
    """Returns the boundary that the group has committed now; None if it has committed nothing. `is_stable`: wait for a
    transaction that may change it."""
    committed = _committed(client, sink, is_stable=is_stable)
    return _of_topics(committed, topics) if committed else None


def _of_topics(committed: Mapping[TopicPartition, Any], topics: Collection[str]) -> Boundary:
    found = {place: item for place, item in committed.items() if place[0] in topics}
    return Boundary(
        offsets={place: item.offset for place, item in found.items()},
        waiting={
            place: int(item.metadata) for place, item in found.items() if item.metadata.removeprefix("-").isdecimal()
        },
    )


def settled(
    positions: Sequence[Positions],
    offsets: Mapping[TopicPartition, int],
    buffered: Iterable[BufferedFrom],
    boundary: Boundary | None,
) -> dict[TopicPartition, tuple[int, str]]:
    """Returns the offsets and metadata to commit for the sources. A rebuild finds its boundary in them. Where several
    tasks read a partition, it is the first record that waits in any of them."""
    if boundary is not None and any(item.replayed for item in positions):
        return {
            place: (boundary.offsets.get(place, offset), str(boundary.waiting.get(place, "")))
            for place, offset in offsets.items()
        }
    behind = {place for item in positions for place in item.behind}
    found = {place: (offset, NOT_READ if place in behind else "") for place, offset in offsets.items()}
    for item in sorted(buffered, key=lambda item: item.offset, reverse=True):
        if (item.topic, item.partition) in found:
            found[item.topic, item.partition] = (item.offset, str(item.time))
    return found


def has_offsets(checkpoint: Path) -> bool:
    """Whether Spark has planned a micro-batch with it."""
    return newest_in(str(checkpoint), "offsets") >= 0


def _committed(client: Any, sink: SinkOptions, *, is_stable: bool) -> dict[TopicPartition, Any]:
    from suiro.spark import Destination

    found = client.offset_fetch(Destination.of(sink).group, None, require_stable=is_stable)
    return {place: item for place, item in found.items() if item is not None}


def _gone(sink: SinkOptions, checkpoint: Path, committed: Mapping[TopicPartition, Any]) -> str:
    from suiro.spark import MARKER_TOPIC

    sources = ", ".join(
        f"{topic}-{partition} at {item.offset}"
        for (topic, partition), item in sorted(committed.items())
        if topic != MARKER_TOPIC
    )
    marker = committed.get((MARKER_TOPIC, 0))
    said = [] if marker is None else [f"{marker.offset} micro-batches"]
    said += [f"sources read up to {sources}"] if sources else []
    return (
        f"application {sink.application_id!r} has run before: its group on {sink.bootstrap_servers} has "
        f"{'; '.join(said)}. But its checkpoint is not in {checkpoint}. Started without it, every result would be "
        "written again. Restore the checkpoint there (or name its place with state_dir); or take a new application "
        "id, which reads from the beginning and writes everything; or rebuild (rebuild=True, suiro run --rebuild): "
        "that reads the sources again for the state, and writes only the results of what comes after these offsets"
    )


def _look_for_records(client: Any, sink: SinkOptions, topics: Sequence[str], *, rebuild: bool) -> None:
    """In the internal topics of an application without committed offsets: if it has run before, everything is written
    again. Warns, or raises `CheckpointError` if it was asked to rebuild."""
    written = _with_records(client, topics)
    if not written:
        return
    said = (
        f"application {sink.application_id!r} has run before, for {', '.join(written)} has records. But its group on "
        f"{sink.bootstrap_servers} has no committed offsets: the group was deleted, or the application was stopped "
        "for longer than brokers keep them (offsets.retention.minutes, 7 days)"
    )
    if rebuild:
        raise CheckpointError(
            f"{said}. So nobody knows which results are written, and a rebuild would write all of them again. Restore "
            "the checkpoint; or start without rebuild, which reads from the beginning and writes everything again, or "
            "with a new application id"
        )
    _log.warning("%s. Everything is read and written again", said)


def _with_records(client: Any, topics: Sequence[str]) -> list[str]:
    from suiro.client import LATEST

    infos = client.metadata([*topics]) if topics else {}
    places = [(name, item.partition) for name, info in infos.items() for item in info.partitions]
    ends = client.list_offsets(dict.fromkeys(places, LATEST))
    return sorted({topic for topic, partition in places if ends[topic, partition].offset > 0})


def check_log(client: Any, boundary: Boundary, sink: SinkOptions) -> None:
    """Raises `CheckpointError` if the log ends before the offsets that were read. Warns if retention has removed
    records."""
    from suiro.client import EARLIEST, LATEST

    places = list(boundary.offsets)
    earliest = client.list_offsets(dict.fromkeys(places, EARLIEST))
    latest = client.list_offsets(dict.fromkeys(places, LATEST))
    short = [place for place in places if latest[place].offset < boundary.offsets[place]]
    if short:
        listed = ", ".join(
            f"{topic}-{partition} ends at {latest[topic, partition].offset} and was read up to "
            f"{boundary.offsets[topic, partition]}"
            for topic, partition in short
        )
        raise CheckpointError(
            f"the state of {sink.application_id!r} cannot be rebuilt: {listed}. The topic was deleted and made again; "
            "take a new application id, which reads from the beginning"
        )
    for place in sorted(places):
        first = earliest[place].offset
        if first > 0 and boundary.offsets[place] > 0:
            _log.warning(
                "the rebuilt state of %r misses what retention removed: %s-%d begins at offset %d, and was read up "
                "to %d",
                sink.application_id,
                *place,
                first,
                boundary.offsets[place],
            )
