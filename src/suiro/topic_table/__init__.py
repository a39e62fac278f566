"""Compacted topics as tables, for the registry, connectors, views and store readers.

- `table`: `TopicTable`, a topic as a state in memory that a thread keeps current. Kafka's equivalent is KafkaBasedLog.
  Creates a topic with one compacted partition, and checks that topics are compacted.
- `reading`: the committed records of a partition up to an offset, or from its end backwards.

Importing it loads no kernels; the functions that decode columns load them on first use.
"""

from suiro.topic_table.reading import Pair, batches, committed_range, decode_pairs, pairs, slices_from_the_end
from suiro.topic_table.table import BROKERS_DEFAULT, TopicTable, one_compacted_partition, require_compacted

__all__ = [
    "BROKERS_DEFAULT",
    "Pair",
    "TopicTable",
    "batches",
    "committed_range",
    "decode_pairs",
    "one_compacted_partition",
    "pairs",
    "require_compacted",
    "slices_from_the_end",
]
