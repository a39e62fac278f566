"""What the check reads: committed records only, and how many there are with those of aborted transactions."""

from __future__ import annotations

from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from suiro.demo.reading import count_uncommitted, read
from suiro.node import NodeProcess

PARTITIONS = 2


def test_aborted_records_are_counted_and_never_read(suiro_node: NodeProcess) -> None:
    bootstrap = suiro_node.bootstrap_servers
    topic = f"read-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number, is_committed in enumerate((True, False, True)):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            for place in range(3):
                value = b'{"n": %d}' % (number * 10 + place)
                producer.produce(topic, key=b"k", value=value, partition=partition)
        producer.flush(30)  # aborted records are in the log, too
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    found = list(read(bootstrap, [topic], registry="http://127.0.0.1:1"))

    assert {name for name, _ in found} == {topic}
    for partition in range(PARTITIONS):
        values = [record.value for _, record in found if record.partition == partition]
        assert values == [{"n": number} for number in (0, 1, 2, 20, 21, 22)]
    assert count_uncommitted(bootstrap, [topic]) == 3 * 3 * PARTITIONS
