"""Real Apache Kafka from Maven's jars: one for tests and comparisons, or a cluster of three to try and to grow into.

Nothing of this is needed to use suiro. Enter here: `KafkaProcess` is one, with free ports and small topics of its own;
`KafkaCluster` is one or three with Kafka's defaults in a folder that is kept, which is what `suiro kafka up` runs.

- `process`: the jars, Java, one server as a process. `cluster`: several of them, and where each listens.
- `properties`: their `server.properties`.
"""

from suiro.kafka.cluster import SIZES, KafkaCluster, data_directory, write_settings
from suiro.kafka.process import (
    KAFKA_VERSION,
    LOGGING_OPTIONS,
    KafkaProcess,
    KafkaUnavailable,
    java_command,
    kafka_classpath,
    kafka_tool,
)

__all__ = [
    "KAFKA_VERSION",
    "LOGGING_OPTIONS",
    "SIZES",
    "KafkaCluster",
    "KafkaProcess",
    "KafkaUnavailable",
    "data_directory",
    "java_command",
    "kafka_classpath",
    "kafka_tool",
    "write_settings",
]
