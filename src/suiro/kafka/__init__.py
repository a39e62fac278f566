"""Apache Kafka from Maven: one broker for tests and comparisons, or a cluster of up to three in a folder.

suiro does not need this package. `KafkaProcess` is one broker with free ports and small internal topics. `KafkaCluster`
is one broker or three, with Kafka's defaults, in a folder that is kept; `suiro kafka up` runs it.

- `process`: the jars, Java, one server as a process. `cluster`: several of them, and their listeners.
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
