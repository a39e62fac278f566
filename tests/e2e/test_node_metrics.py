"""What the metrics tell of groups, producers and the remote tier of a running node."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from support.waiting import wait_until

from suiro.node import InProcessNode

TOPICS = "kafka_server_brokertopicmetrics_"


def counted(node: InProcessNode, name: str) -> dict[tuple[str, ...], object]:
    snapshot = node.call(node.broker.metrics.snapshot)
    return {labels: value for family, shown in snapshot if family.name == name for labels, value in shown}


def test_groups_and_producers() -> None:
    with InProcessNode.start() as node:
        at = {"bootstrap.servers": node.bootstrap_servers}
        producer = Producer(at | {"enable.idempotence": True})
        for value in ("a", "b", "c"):
            producer.produce("t", value)
        assert producer.flush(30) == 0
        assert counted(node, "kafka_server_replicamanager_produceridcount") == {(): 1}
        for group in ("g", "g" * 301):  # An id may have 32,767 bytes, and be repeated for each partition.
            consumer = Consumer(at | {"group.id": group})
            consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
            consumer.close()
        assert counted(node, "kafka_server_group_coordinator_metrics_group_count") == {
            ("classic",): 2,
            ("consumer",): 0,
        }
        assert counted(node, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == {(): 2}
        assert counted(node, "kafka_consumergroup_lag") == {("g", "t", "0"): 2}
        assert counted(node, "kafka_log_logcleanermanager_uncleanable_partitions_count") == {(): 0}


def test_the_remote_tier(tmp_path: Path) -> None:
    """First the store cannot be written: the lag grows, and failures. Then it is all there, and read from there."""
    store = tmp_path / "store"
    store.write_text("a file where the directory of the store should be")
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": store.as_uri(),
        "remote.log.manager.task.interval.ms": "20",
        "remote.log.manager.task.retry.backoff.ms": "20",
        "remote.log.manager.task.retry.backoff.max.ms": "50",
        "log.retention.check.interval.ms": "20",
    }
    tiered = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.bytes": "1"}
    with InProcessNode.start(data=tmp_path / "data", settings=settings) as node:

        def of_topic(name: str) -> int:
            value = counted(node, TOPICS + name).get(("t",), 0)
            assert isinstance(value, int)
            return value

        at = {"bootstrap.servers": node.bootstrap_servers}
        topic = NewTopic("t", 1, 1, config=tiered | {"segment.bytes": "1048576"})
        admin = AdminClient(at)
        admin.create_topics([topic])["t"].result(30)
        producer = Producer(at)
        for _ in range(25):
            producer.produce("t", b"x" * 100_000)
            producer.flush(30)
        wait_until(lambda: of_topic("remotecopyerrors_total") > 0, what="a copy to fail")
        assert (of_topic("remotecopylagsegments"), of_topic("remotecopybytes_total")) == (2, 0)
        assert of_topic("remotecopylagbytes") > 1_900_000
        store.unlink()
        wait_until(lambda: of_topic("remotecopybytes_total") > 1_900_000, what="both segments to be copied")
        assert of_topic("remotelogsizebytes") == of_topic("remotecopybytes_total")
        assert of_topic("remotecopylagbytes") == 0
        assert of_topic("remotecopyrequests_total") == 2 + of_topic("remotecopyerrors_total")
        wait_until(lambda: node.call(lambda: node.broker.topics.partition("t", 0).log.local_log_start_offset) > 0)
        consumer = Consumer(at | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("t", 0, 0)])
        assert wait_until(lambda: consumer.poll(0.1)).offset() == 0
        consumer.close()
        assert of_topic("remotefetchrequests_total") >= 1
        assert of_topic("remotefetchbytes_total") >= 100_000
        assert of_topic("remotefetcherrors_total") == 0
