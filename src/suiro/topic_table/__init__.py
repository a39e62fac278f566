"""Compacted topics as tables: what the registry, connectors, views and store readers need of one.

- `table`: `TopicTable`, a topic folded into a state by a thread that follows it. Kafka's own is called KafkaBasedLog.
- `topic`: a topic of one compacted partition, made or checked.

Light to import: what reads columns loads their kernels when it is used.
"""

from suiro.topic_table.table import TopicTable
from suiro.topic_table.topic import BROKERS_DEFAULT, one_compacted_partition

__all__ = ["BROKERS_DEFAULT", "TopicTable", "one_compacted_partition"]
