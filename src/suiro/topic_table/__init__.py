"""Compacted topics as tables: what the registry, connectors, views and store readers need of one.

- `table`: `TopicTable`, a topic folded into a state by a thread that follows it. Kafka's own is called KafkaBasedLog.
- `reading`: the records of a partition up to an offset, or from its end backwards.
- `topic`: a topic of one compacted partition, made or checked.

Light to import: what reads columns loads their kernels when it is used.
"""

from suiro.topic_table.reading import Pair, batches, decode_pairs, pairs, slices_from_the_end
from suiro.topic_table.table import TopicTable
from suiro.topic_table.topic import BROKERS_DEFAULT, one_compacted_partition

__all__ = [
    "BROKERS_DEFAULT",
    "Pair",
    "TopicTable",
    "batches",
    "decode_pairs",
    "one_compacted_partition",
    "pairs",
    "slices_from_the_end",
]
