"""Reads the data folder of a stopped node and copies it for Apache Kafka. The folder is locked and only read.

Opening it does what the next start of the node would do: a log that was not closed cleanly is recovered. The folder of
each partition is copied as it is, since the files are Kafka's. Only the coordinators' topics are written again, where
Kafka is to have another number of partitions of them. The rest (topics, settings, access rules, users, quotas) becomes
metadata records. Segments in a remote store cannot be handed over: they are refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID, uuid4

from suiro.broker.handover import metadata_records
from suiro.broker.handover.coordinator_topics import Targets, distribute, distribute_transactions
from suiro.broker.handover.metadata_records import BrokerIdentity, cluster_records, producer_ids_from
from suiro.broker.settings.cluster_state import ClusterState
from suiro.broker.settings.dynamic_settings import DynamicSettings
from suiro.broker.storage.topics import (
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    TIER_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicRegistry,
)
from suiro.clock import Clock
from suiro.config import NodeSettings, read_properties
from suiro.errors import ConfigError
from suiro.log import (
    HANDED_OVER,
    DataDirectory,
    LogConfig,
    LogExtent,
    PartitionLog,
    copy_partition,
    finish_folder,
    replace_file,
)

_BROKER_EPOCH = 1
_COORDINATORS = {
    # Kafka's settings of these topics; the node's alterations are applied on top.
    OFFSETS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    TRANSACTIONS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The result of a handover."""

    cluster_id: str
    topics: int
    partitions: int
    size: int
    open_transactions: int
    next_producer_id: int
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicToGo:
    name: str
    topic_id: UUID
    configs: Mapping[str, str]
    partitions: int
    logs: tuple[PartitionLog, ...]
    """The logs of the partitions that have one."""
    leader_epoch: int
    """The least leader epoch that its partitions continue from."""


def node_id_of(data: Path) -> int:
    """The id of the node that the folder belongs to. Raises `ConfigError` if it belongs to none."""
    if not (data / "topics.json").exists():
        raise ConfigError(
            f"{data} is not the data folder of a node (it has no topics.json); name the one that the node was "
            "started with"
        )
    return int(read_properties(data / "meta.properties").get("node.id", 1))


@contextmanager
def handing_over(
    data: Path,
    folders: Mapping[int, Path],
    *,
    staging: Path,
    settings: NodeSettings,
    coordinator_partitions: Mapping[str, int],
    min_insync_replicas: int,
    destination: str,
    link: bool,
    clock: Clock,
) -> Iterator[HandedOver]:
    """Fill a data folder for each broker, by node id, from a stopped node's. They lie in `staging`, which is made anew.

    The block behind puts that in its place; then the node's folder is marked, and no node starts on it any more.
    `coordinator_partitions` is how many `__consumer_offsets` and `__transaction_state` are to have. Raises
    `ConfigError` and OSError, and then the node's folder is as it was.
    """
    directory = DataDirectory.open(data, node_id=node_id_of(data))
    scratch = staging / "scratch"
    brokers = [
        BrokerIdentity(node_id=node_id, epoch=_BROKER_EPOCH, incarnation_id=uuid4(), directory_id=uuid4())
        for node_id in folders
    ]
    try:
        # Only after the lock: another handover of the same node may be writing there.
        shutil.rmtree(staging, ignore_errors=True)
        for folder in (*folders.values(), scratch):
            folder.mkdir(parents=True)
        topics, records, handed_over = _read(
            directory,
            scratch,
            brokers=brokers,
            settings=settings,
            coordinator_partitions=coordinator_partitions,
            min_insync_replicas=min_insync_replicas,
            clock=clock,
        )
        checkpoint = metadata_records.checkpoint(records, timestamp=clock.wall_ms())
        size = 0
        for broker, folder in zip(brokers, folders.values(), strict=True):
            # The second name of a segment is for one broker only: no two of a cluster may share a file.
            size = _fill(folder, broker, topics, directory, link=link and broker is brokers[0])
            replace_file(folder / metadata_records.FILE_NAME, checkpoint, mode=0o600)
        shutil.rmtree(scratch)
        yield replace(handed_over, size=size)
        replace_file(data / HANDED_OVER, f"in {destination}\n".encode())
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        directory.leave()
        raise
    directory.close()


def _read(
    directory: DataDirectory,
    scratch: Path,
    *,
    brokers: Sequence[BrokerIdentity],
    settings: NodeSettings,
    coordinator_partitions: Mapping[str, int],
    min_insync_replicas: int,
    clock: Clock,
) -> tuple[list[_TopicToGo], list[bytes], HandedOver]:
    """The topics, whose logs are closed, the records of the cluster's metadata, and the result, of which the size is
    not known yet."""
    state = ClusterState(directory.path)
    dynamic = DynamicSettings(settings, state)
    registry = TopicRegistry(directory, settings=dynamic.effective, clock=clock)
    try:
        registry.load()
        _check(registry)
        topics, made = _lay_out(registry, scratch, coordinator_partitions, min_insync_replicas, clock)
        next_id = producer_ids_from(directory.path, registry)
        records = [
            *cluster_records(state, dynamic, brokers, min_insync_replicas=min_insync_replicas),
            *_topic_records(topics, brokers),
            metadata_records.next_producer_id(next_id, brokers[0]),
        ]
        open_producers = {
            entry.producer_id
            for topic in topics
            for log in topic.logs
            for entry in log.producer_states()
            if entry.transaction_first_offset >= 0
        }
        handed_over = HandedOver(
            cluster_id=directory.cluster_id,
            topics=len(topics),
            partitions=sum(topic.partitions for topic in topics),
            size=0,
            open_transactions=len(open_producers),
            next_producer_id=next_id,
            left_out=tuple(topic.name for topic in registry if topic.name == TIER_TOPIC),
        )
        for log in (*directory.logs.values(), *made):
            log.close()
    finally:
        registry.close()
    return topics, records, handed_over


def _fill(
    folder: Path,
    broker: BrokerIdentity,
    topics: Sequence[_TopicToGo],
    directory: DataDirectory,
    *,
    link: bool,
) -> int:
    """One broker's folder. Returns the size of its partitions in bytes."""
    logs = [log for topic in topics for log in topic.logs]
    size = sum(copy_partition(log.directory, folder, link=link) for log in logs)
    finish_folder(
        folder,
        cluster_id=directory.cluster_id,
        node_id=broker.node_id,
        directory_id=broker.directory_id,
        broker_epoch=broker.epoch,
        logs=[_extent(log) for log in logs],
    )
    return size


def _check(registry: TopicRegistry) -> None:
    for topic in registry:
        if topic.name == METADATA_TOPIC:
            raise ConfigError(f"there is a topic {METADATA_TOPIC}: the folder is Apache Kafka's already")
        for partition in topic.partitions:
            log, name = partition.log, f"{topic.name}-{partition.index}"
            if log.offline is not None:
                raise ConfigError(f"{name} cannot be read: {log.offline}")
            if log.config.remote_storage_enable or log.log_start_offset < log.local_log_start_offset:
                raise ConfigError(
                    f"topic {topic.name} has a remote tier, which Apache Kafka cannot read from this node's store. "
                    "Start the node again and either copy the topic to one without a tier, or give up what is only "
                    "in the store: kafka-configs.sh --alter --entity-type topics --entity-name "
                    f"{topic.name} --add-config remote.storage.enable=false,remote.log.delete.on.disable=true"
                )


def _lay_out(
    registry: TopicRegistry,
    scratch: Path,
    coordinator_partitions: Mapping[str, int],
    min_insync_replicas: int,
    clock: Clock,
) -> tuple[list[_TopicToGo], list[PartitionLog]]:
    """The topics as Kafka is to have them, and the logs that were made for it."""
    made: list[PartitionLog] = []
    going = []
    offsets_partitions = None
    for topic in sorted(registry, key=lambda topic: topic.name):  # offsets come before transactions
        if topic.name == TIER_TOPIC:
            continue
        logs = tuple(partition.log for partition in topic.partitions)
        go = _TopicToGo(
            name=topic.name,
            topic_id=topic.topic_id,
            configs=topic.configs,
            partitions=len(logs),
            logs=logs,
            leader_epoch=0,
        )
        if topic.is_internal:
            go = _as_kafka_makes_it(go, registry, min_insync_replicas)
            wanted = coordinator_partitions[topic.name]
            is_other = wanted != len(logs)
            if is_other or (topic.name == TRANSACTIONS_TOPIC and offsets_partitions is not None):
                # A new id: the new topic has other offsets, and a client must not take it for the old one.
                topic_id = uuid4()
                targets = Targets(wanted, _new_logs(topic.name, topic_id, scratch, clock))
                if topic.name == OFFSETS_TOPIC:
                    offsets_partitions = wanted
                    distribute(logs, targets)
                else:
                    distribute_transactions(logs, targets, offsets_partitions=offsets_partitions)
                new = tuple(targets.made.values())
                go = replace(go, topic_id=topic_id, partitions=wanted, logs=new)
                made += new
        going.append(go)
    return going, made


def _as_kafka_makes_it(go: _TopicToGo, registry: TopicRegistry, min_insync_replicas: int) -> _TopicToGo:
    configs = {**_COORDINATORS[go.name], **go.configs}
    if go.name == TRANSACTIONS_TOPIC:
        configs.setdefault("min.insync.replicas", str(min_insync_replicas))
    # A coordinator's markers bear the leader epoch of its partition, which may not be below an earlier one.
    epochs = [
        entry.coordinator_epoch for partition in registry.partitions() for entry in partition.log.producer_states()
    ]
    return replace(go, configs=configs, leader_epoch=max(epochs, default=0))


def _new_logs(name: str, topic_id: UUID, scratch: Path, clock: Clock) -> Callable[[int], PartitionLog]:
    """Creates the log of a partition of a coordinators' topic. Kafka creates those that nothing is written to."""
    config = LogConfig.from_settings(_COORDINATORS[name])
    return lambda index: PartitionLog(
        scratch / f"{name}-{index}",
        topic=name,
        partition=index,
        topic_id=topic_id,
        config=config,
        clock=clock,
        clean_shutdown=False,
    )


def _topic_records(topics: Sequence[_TopicToGo], brokers: Sequence[BrokerIdentity]) -> Iterator[bytes]:
    turn = 0
    for topic in topics:
        yield metadata_records.topic(topic.name, topic.topic_id)
        epochs = {log.partition: log.leader_epoch for log in topic.logs}
        for index in range(topic.partitions):
            first = turn % len(brokers)  # each broker leads its share
            turn += 1
            yield metadata_records.partition(
                topic.topic_id,
                index,
                replicas=[*brokers[first:], *brokers[:first]],
                leader_epoch=max(topic.leader_epoch, epochs.get(index, 0)),
            )
        for name, value in topic.configs.items():
            yield metadata_records.config(metadata_records.TOPICS, topic.name, name, value)


def _extent(log: PartitionLog) -> LogExtent:
    return LogExtent(
        topic=log.topic,
        partition=log.partition,
        start=log.log_start_offset,
        end=log.log_end_offset,
        cleaned=log.cleaned_offset,
    )
