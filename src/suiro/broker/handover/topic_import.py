"""Imports topic folders of Apache Kafka into a node that is not running: all of them, or none.

The folders are copied next to the node's own and opened there as after a crash: every batch is read and compared with
its CRC, indexes and producer state are rebuilt. Then they are renamed to their places, and only then does the list of
topics name them. A crash before that leaves folders that the next start puts aside. Kafka's checkpoints beside the
folders, if any, say where a log begins and how far it is compacted. The node continues in the latest leader epoch of
each log, and gives no producer an id that a producer of the logs has.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from suiro.broker.coordination.transactions.producer_ids import ProducerIds
from suiro.broker.storage.topic_list import TopicEntry, TopicList
from suiro.broker.storage.topics import INTERNAL_TOPICS, METADATA_TOPIC
from suiro.clock import Clock
from suiro.errors import ConfigError
from suiro.log import DataDirectory, LogConfig, PartitionLog, PartitionPlace, partition_place

_SEGMENT = re.compile(r"\d{20}\.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTopic:
    """An imported topic. `records` counts offsets from start to end."""

    name: str
    topic_id: UUID
    partitions: int
    size: int
    records: int
    open_transactions: tuple[tuple[int, int, int], ...]
    """(partition, producer id, first offset) of the transactions that no producer of this node will end."""


def import_topics(
    data: Path, folders: Sequence[Path], *, configs: Mapping[str, str], clock: Clock
) -> list[ImportedTopic]:
    """Import the partitions in `folders` (named `topic-0` and so on) into the node's data directory.

    Raises `ConfigError`, with nothing changed, where one is no partition, is damaged, or exists already.
    """
    config = LogConfig.from_settings(configs)
    places = [_place(folder) for folder in folders]
    directory = DataDirectory.open(data)
    try:
        known = TopicList(data)
        known.load()
        try:
            topics = _checked(places, known, directory)
            imported = _take_in(directory, topics, known, config, configs, clock)
        finally:
            known.close()
    finally:
        directory.leave()
    return imported


def _place(folder: Path) -> PartitionPlace:
    place = partition_place(folder.resolve())
    if place is None or not folder.is_dir():
        raise ConfigError(f"{folder} is no partition's folder: expected a directory named TOPIC-NUMBER")
    if place.topic_id is None:
        raise ConfigError(f"{folder} has no partition.metadata, so the topic's id is not known")
    if place.topic in INTERNAL_TOPICS or place.topic == METADATA_TOPIC:
        raise ConfigError(f"{folder}: {place.topic} belongs to Apache Kafka itself; leave it out")
    if not any(_SEGMENT.fullmatch(path.name) for path in folder.iterdir()):
        raise ConfigError(f"{folder} holds no segment (no file named like {0:020d}.log)")
    return place


def _checked(
    places: Sequence[PartitionPlace], known: TopicList, directory: DataDirectory
) -> dict[str, list[PartitionPlace]]:
    """The places by topic, in order of partitions."""
    if not known.exists and directory.partitions():
        raise ConfigError(f"{directory.path} has partitions but no list of topics; start the node on it once")
    topics: dict[str, list[PartitionPlace]] = {}
    for place in sorted(places, key=lambda place: (place.topic, place.partition)):
        topics.setdefault(place.topic, []).append(place)
    names = {entry.name for entry in known.topics.values()}
    for name, found in topics.items():
        topic_id = found[0].topic_id
        assert topic_id is not None
        numbers = [place.partition for place in found]
        if name in names or topic_id in known.topics or topic_id in known.deleting:
            raise ConfigError(f"topic {name} (id {topic_id}) exists in {directory.path}; delete it first")
        if any(place.topic_id != topic_id for place in found):
            raise ConfigError(f"the folders of topic {name} have different topic ids: they are of different topics")
        if numbers != list(range(len(numbers))):
            raise ConfigError(f"topic {name} needs the folders of all its partitions from 0 on, given: {numbers}")
        for place in found:
            if (directory.path / place.directory.name).exists():
                raise ConfigError(f"{directory.path / place.directory.name} exists; move it away")
    return topics


def _take_in(
    directory: DataDirectory,
    topics: Mapping[str, Sequence[PartitionPlace]],
    known: TopicList,
    config: LogConfig,
    configs: Mapping[str, str],
    clock: Clock,
) -> list[ImportedTopic]:
    # If the process dies, the next start of the node removes a folder with such a name.
    staging = directory.path / f"import.{uuid.uuid4().hex}-delete"
    staging.mkdir()
    moved: list[Path] = []
    try:
        imported, entries, logs = [], [], []
        for name, places in topics.items():
            copies = [directory.check_copy(place, staging, config=config, clock=clock) for place in places]
            topic = _imported(name, copies)
            logs += copies
            imported.append(topic)
            entries.append(
                TopicEntry(name=name, topic_id=topic.topic_id, partitions=len(copies), configs=dict(configs))
            )
        for copy in sorted(staging.iterdir()):
            copy.rename(directory.path / copy.name)
            moved.append(directory.path / copy.name)
        directory.adopt(logs)
        ProducerIds(directory.path).keep_off(logs)
        with known.together():
            known.put(*entries)
        known.fold()
    except BaseException:
        for folder in moved:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return imported


def _imported(name: str, logs: Sequence[PartitionLog]) -> ImportedTopic:
    return ImportedTopic(
        name=name,
        topic_id=logs[0].topic_id,
        partitions=len(logs),
        size=sum(log.size for log in logs),
        records=sum(log.log_end_offset - log.log_start_offset for log in logs),
        open_transactions=tuple(
            (log.partition, producer.producer_id, producer.transaction_first_offset)
            for log in logs
            for producer in log.producer_states()
            if producer.transaction_first_offset >= 0
        ),
    )
