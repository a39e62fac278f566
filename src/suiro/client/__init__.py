"""A small blocking client for any Kafka: what the Spark source and sink need, no more.

Users produce and consume with confluent-kafka or any other Kafka client. Records are not decoded here: batches go
in and out as bytes (`suiro.protocol.columnar` and `suiro.protocol.records` make and read them).

- `kafka_client`: `Client`, the one object to use.
- `connection`, `security`: one socket. `cluster`: which broker does what. `leaders`, `retry`: ask again.
- `fetch`, `produce`, `offsets`, `transaction`, `admin`: one group of requests each.
- `error_codes`: what a broker's answer means to the caller. `settings`: every limit's name.
"""

from suiro.client.admin import NewTopic
from suiro.client.cluster import PartitionInfo, TopicInfo, TopicPartition
from suiro.client.fetch import Fetched
from suiro.client.kafka_client import Client
from suiro.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, CommittedOffset, ListedOffset
from suiro.client.settings import ClientSettings
from suiro.client.transaction import ProducerIdentity, TransactionalBatch, TransactionalProducer

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Client",
    "ClientSettings",
    "CommittedOffset",
    "Fetched",
    "ListedOffset",
    "NewTopic",
    "PartitionInfo",
    "ProducerIdentity",
    "TopicInfo",
    "TopicPartition",
    "TransactionalBatch",
    "TransactionalProducer",
]
