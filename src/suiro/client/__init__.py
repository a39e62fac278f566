"""A small blocking client for any Kafka cluster: the requests that the Spark source and sink, the console and commands
need.

Applications produce and consume with confluent-kafka or any other Kafka client. This client does not decode records:
batches go in and out as bytes (`suiro.protocol.columnar` and `suiro.protocol.records` encode and decode them).

- `kafka_client`: `Client`, the entry point.
- `connection`, `security`: one connection. `cluster`: metadata. `leaders`, `retry`: repeated requests.
- `fetch`, `produce`, `offsets`, `transaction`, `topics`: one group of requests each.
- `admin`: `Admin`, loaded on first use. `configs`, `partitions`, `groups`, `access`: its requests.
- `error_codes`: error codes to exceptions. `settings`: names of the settings.
"""

from typing import TYPE_CHECKING

from suiro.client.cluster import PartitionInfo, TopicInfo
from suiro.client.fetch import Fetched
from suiro.client.kafka_client import Client
from suiro.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, CommittedOffset, ListedOffset
from suiro.client.retry import NO_LEADER
from suiro.client.settings import ClientSettings
from suiro.client.topics import NewTopic
from suiro.client.transaction import ProducerIdentity, TransactionalBatch, TransactionalProducer
from suiro.extras import on_first_use
from suiro.foundation.types import TopicPartition

if TYPE_CHECKING:
    from suiro.client.access import (
        ACL_OPERATIONS,
        ACL_PATTERNS,
        ACL_PERMISSIONS,
        ACL_RESOURCES,
        Acl,
        AclFilter,
        Quota,
        ScramUser,
    )
    from suiro.client.admin import Admin
    from suiro.client.configs import ConfigEntry
    from suiro.client.groups import GroupDescription, GroupMember, ListedGroup
    from suiro.client.partitions import Broker, ClusterDescription

__all__ = [
    "ACL_OPERATIONS",
    "ACL_PATTERNS",
    "ACL_PERMISSIONS",
    "ACL_RESOURCES",
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "NO_LEADER",
    "Acl",
    "AclFilter",
    "Admin",
    "Broker",
    "Client",
    "ClientSettings",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "Fetched",
    "GroupDescription",
    "GroupMember",
    "ListedGroup",
    "ListedOffset",
    "NewTopic",
    "PartitionInfo",
    "ProducerIdentity",
    "Quota",
    "ScramUser",
    "TopicInfo",
    "TopicPartition",
    "TransactionalBatch",
    "TransactionalProducer",
]

# What only administration needs.
__getattr__ = on_first_use(
    __name__,
    {
        "access": "ACL_OPERATIONS ACL_PATTERNS ACL_PERMISSIONS ACL_RESOURCES Acl AclFilter Quota ScramUser",
        "admin": "Admin",
        "configs": "ConfigEntry",
        "groups": "GroupDescription GroupMember ListedGroup",
        "partitions": "Broker ClusterDescription",
    },
)
