"""`Admin`: requests of administrators, with the names of Kafka's admin client. `Client.admin` returns it."""

from __future__ import annotations

from suiro.client.access import AccessRequests
from suiro.client.cluster import Cluster
from suiro.client.configs import ConfigRequests
from suiro.client.groups import GroupRequests
from suiro.client.partitions import PartitionRequests


class Admin(PartitionRequests, ConfigRequests, GroupRequests, AccessRequests):
    """Each operation retries transient errors until `default.api.timeout.ms` has passed, as `Client` does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
