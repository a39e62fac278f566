"""Takes over the checkpoint of a query that ran with Spark's own Kafka connector.

Spark keeps source offsets as the connector writes them, and format "suiro" reads the same JSON; state stores and
watermarks are Spark's own and stay. Only the marker is missing, by which the exactly-once sink knows where the query is
(`decide`). `adopt` writes it in a transaction of its own, with the sources' offsets for tools that show lag. It only
reads the checkpoint, so the old job can still go on until the new one has run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from suiro.client import Client, NewTopic
from suiro.errors import UsageError
from suiro.foundation.types import TopicPartition
from suiro.spark.checkpoint import PlannedOffsets, newest_in, query_id_of, read_planned
from suiro.spark.committer import MARKER_TOPIC, Destination, offsets_with_marker, read_marker
from suiro.spark.decide import Marker
from suiro.spark.offsets import Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """`micro_batch`: the last one that counts as written; -1 where none does. `offsets`: where the next one begins."""

    query_id: str
    micro_batch: int
    offsets: Mapping[TopicPartition, int]


def adopt(
    checkpoint: str,
    *,
    application_id: str,
    bootstrap_servers: str,
    sink_name: str = "",
    settings: Mapping[str, str] | None = None,
    rewrite_last: bool = False,
) -> Adopted:
    """`checkpoint`: a path, or a URI as Spark has it. `rewrite_last`: write everything again of a micro-batch that the
    old job began and did not finish. May be called twice. Raises `UsageError` if the checkpoint is not one of the
    connector's or is in the middle of a micro-batch, or if the application id belongs to another query."""
    lineage = _query_id(checkpoint)
    last, done = newest_in(checkpoint, "offsets"), newest_in(checkpoint, "commits")
    if last < 0:
        raise UsageError(
            f"{checkpoint} has no offsets: its query has never run; start the new one with startingOffsets"
        )
    planned = _planned(checkpoint, last)
    # One of format suiro was refused for want of a marker: nothing of it is in Kafka.
    is_half_written = done < last and not planned.positions
    if is_half_written and not rewrite_last:
        raise UsageError(
            f"micro-batch {last} of {checkpoint} was begun and not finished: some of its records may be in the topic. "
            "Run the old job once more, with Trigger.AvailableNow, until it stops; or have the micro-batch written "
            "again in whole with --rewrite-last, and live with those records twice"
        )
    written = _of_connector(checkpoint, done) if done >= 0 else None
    offsets = {} if written is None else _positions(written)
    with Client(bootstrap_servers, settings=settings) as client:
        _check_topics(client, checkpoint, _positions(planned))
        if written is not None:
            marker = Marker(
                lineage=lineage, batch_id=done, end_digest=written.digest, start_digest="", run_id="adopted"
            )
            destination = Destination(application_id=application_id, sink_name=sink_name)
            _write_marker(client, destination, marker, offsets)
    return Adopted(query_id=lineage, micro_batch=done, offsets=offsets)


def _write_marker(
    client: Client, destination: Destination, marker: Marker, offsets: Mapping[TopicPartition, int]
) -> None:
    """Fence, then ask, then write: a driver that runs under this name is stopped, and its marker respected."""
    if MARKER_TOPIC not in client.metadata([MARKER_TOPIC]):
        client.create_topics([NewTopic(MARKER_TOPIC, 1)], exist_ok=True)
    transaction = client.transaction(destination.transactional_id)
    transaction.init()
    known = read_marker(client, destination, stable=True)
    if known is not None and (known.lineage, known.batch_id) != (marker.lineage, marker.batch_id):
        raise UsageError(
            f"application id {destination.application_id!r} is used already: Kafka holds micro-batch {known.batch_id} "
            f"of query {known.lineage}, the checkpoint is at {marker.batch_id} of {marker.lineage}; choose another name"
        )
    transaction.add_offsets(destination.group)
    transaction.commit_offsets(destination.group, offsets_with_marker(marker, offsets, {}))
    transaction.end(commit=True)


def _query_id(checkpoint: str) -> str:
    found = query_id_of(checkpoint)
    if found is None:
        raise UsageError(f"{checkpoint} is not a checkpoint of a streaming query: it has no file metadata")
    return found


def _planned(checkpoint: str, batch_id: int) -> PlannedOffsets:
    planned = read_planned(checkpoint, batch_id)
    if planned is None:
        raise UsageError(f"{checkpoint}/offsets/{batch_id} is not there; adopt the whole checkpoint, not a part of it")
    return planned


def _of_connector(checkpoint: str, batch_id: int) -> PlannedOffsets:
    planned = _planned(checkpoint, batch_id)
    if planned.positions:
        raise UsageError(f"the query of {checkpoint} has read with format suiro already: there is nothing to adopt")
    if not _positions(planned):
        raise UsageError(
            f"no source of {checkpoint} is Spark's Kafka connector: micro-batch {batch_id} has the offsets "
            f"{planned.sources}"
        )
    return planned


def _positions(planned: PlannedOffsets) -> dict[TopicPartition, int]:
    """Of the sources whose offsets look like the connector's, `{"topic": {"0": 12}}`."""
    found: dict[TopicPartition, int] = {}
    for text in planned.sources:
        try:
            value = json.loads(text) if text else None
            found |= Positions.from_json(value).offsets if isinstance(value, dict) else {}
        except (ValueError, AttributeError, TypeError):
            continue  # another source's own format
    return found


def _check_topics(client: Client, checkpoint: str, offsets: Mapping[TopicPartition, int]) -> None:
    topics = sorted({topic for topic, _ in offsets})
    infos = client.metadata(topics)
    there = {(name, item.partition) for name, info in infos.items() for item in info.partitions}
    missing = sorted(f"{topic}-{partition}" for topic, partition in offsets.keys() - there)
    if missing:
        raise UsageError(
            f"{checkpoint} reads {', '.join(missing)}, which this cluster does not have: name the cluster that the old "
            "job reads and writes"
        )
