"""The gauges of topics, partitions and groups. Their values are read when the metrics are requested."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.metrics.metrics import Samples
from suiro.broker.refusals import CHARACTERS_SHOWN
from suiro.broker.storage.topics import Partition

if TYPE_CHECKING:
    from suiro.broker.context import BrokerContext
    from suiro.broker.storage.cleaner import Cleaner
    from suiro.broker.storage.tier import RemoteTier

LAGS = 10_000
"""All are read at once, on the loop's thread: in about 10 ms."""
_RUNNING = 3
_LOG = "kafka_log_log_"
_REPLICAS = "kafka_server_replicamanager_"
_TOPICS = "kafka_server_brokertopicmetrics_"
_CONTROLLER = "kafka_controller_kafkacontroller_"


def offer_gauges(broker: BrokerContext, cleaner: Cleaner) -> None:
    """Register the gauges of a broker that has its topics."""

    def of_partitions(read: Callable[[Partition], float]) -> Callable[[], Samples]:
        return lambda: [
            ((partition.topic, str(partition.index)), read(partition)) for partition in broker.topics.partitions()
        ]

    def partitions() -> int:
        return sum(len(topic.partitions) for topic in broker.topics)

    def offline() -> int:
        return sum(partition.log.offline is not None for partition in broker.topics.partitions())

    gauges, gauge = broker.metrics.gauges, broker.metrics.gauge
    gauges(_LOG + "size", of_partitions(lambda partition: partition.log.size))
    gauges(_LOG + "numlogsegments", of_partitions(lambda partition: len(partition.log.segments)))
    gauges(_LOG + "logstartoffset", of_partitions(lambda partition: partition.log.log_start_offset))
    gauges(_LOG + "logendoffset", of_partitions(lambda partition: partition.log.log_end_offset))
    gauge(_REPLICAS + "partitioncount", partitions)
    gauge(_REPLICAS + "leadercount", partitions)
    gauge(_REPLICAS + "underreplicatedpartitions", lambda: 0)
    gauge(_REPLICAS + "offlinereplicacount", offline)
    gauge(_CONTROLLER + "activecontrollercount", lambda: 1)
    gauge(_CONTROLLER + "globaltopiccount", lambda: sum(1 for _ in broker.topics))
    gauge(_CONTROLLER + "globalpartitioncount", partitions)
    gauge(_CONTROLLER + "offlinepartitionscount", offline)
    gauge("kafka_server_kafkaserver_brokerstate", lambda: _RUNNING)
    gauge(_REPLICAS + "produceridcount", lambda: _producers(broker))
    gauge("kafka_log_logcleanermanager_uncleanable_partitions_count", lambda: cleaner.uncleanable_partitions)
    gauge("kafka_coordinator_group_groupmetadatamanager_numoffsets", lambda: _offsets(broker))
    gauges("kafka_consumergroup_lag", lambda: islice(_lags(broker), LAGS))
    gauges("kafka_server_group_coordinator_metrics_group_count", lambda: _groups(broker))
    gauges(_TOPICS + "remotecopylagbytes", lambda: _of_tier(broker, lambda tier, part: tier.not_copied(part)[0]))
    gauges(
        _TOPICS + "remotecopylagsegments",
        lambda: _of_tier(broker, lambda tier, part: tier.not_copied(part)[1]),
    )
    gauges(_TOPICS + "remotelogsizebytes", lambda: _of_tier(broker, lambda tier, part: tier.size(part)))


def _producers(broker: BrokerContext) -> int:
    return sum(len(partition.log.producer_states()) for partition in broker.topics.partitions())


def _offsets(broker: BrokerContext) -> int:
    return sum(len(committed) for _, committed in broker.groups.offsets.store)


def _lags(broker: BrokerContext) -> Samples:
    for group_id, committed in broker.groups.offsets.store:
        if len(group_id) > CHARACTERS_SHOWN:
            continue  # It would be repeated for each partition, and may have 32,767 bytes.
        for (topic, index), entry in committed.items():
            partition = broker.topics.partition(topic, index)
            if partition is not None:
                lag = max(partition.log.log_end_offset - entry.value.offset, 0)
                yield (group_id, topic, str(index)), lag


def _groups(broker: BrokerContext) -> Samples:
    groups = broker.groups.groups.values()
    consumer = sum(isinstance(group, ConsumerGroup) for group in groups)
    return [(("classic",), len(groups) - consumer), (("consumer",), consumer)]


def _of_tier(broker: BrokerContext, read: Callable[[RemoteTier, Partition], int]) -> Samples:
    tier = broker.tier
    by_topic: dict[str, int] = {}
    if tier is not None:
        for partition in broker.topics.partitions():
            if partition.log.config.remote_storage_enable:
                by_topic[partition.topic] = by_topic.get(partition.topic, 0) + read(tier, partition)
    return [((topic,), size) for topic, size in by_topic.items()]
