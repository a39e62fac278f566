"""What is told of topics and partitions, looked up when somebody asks for the metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from suiro.broker.metrics import Samples
from suiro.broker.topics import Partition

if TYPE_CHECKING:
    from suiro.broker.broker import Broker

_RUNNING = 3
_LOG = "kafka_log_log_"
_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"


def offer_gauges(broker: Broker) -> None:
    """Give the registry the gauges of a broker that has its topics."""

    def of_partitions(read: Callable[[Partition], float]) -> Callable[[], Samples]:
        return lambda: [
            ((partition.topic, str(partition.index)), read(partition))
            for partition in broker.topics.partitions()
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
