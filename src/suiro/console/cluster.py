"""The cluster: its brokers, its size, its current problems."""

from __future__ import annotations

from dataclasses import dataclass

from suiro.client import Broker, Client


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    cluster_id: str
    controller: int
    brokers: tuple[Broker, ...]
    topics: int  # without internal ones
    partitions: int
    under_replicated: int  # partitions with fewer replicas in sync than they have
    without_leader: int
    groups: int


def describe_cluster(client: Client) -> ClusterSummary:
    described = client.admin.describe_cluster()
    topics = [topic for topic in client.metadata().values() if not topic.internal]
    partitions = [partition for topic in topics for partition in topic.partitions]
    return ClusterSummary(
        cluster_id=described.cluster_id,
        controller=described.controller,
        brokers=described.brokers,
        topics=len(topics),
        partitions=len(partitions),
        under_replicated=sum(len(one.in_sync) < len(one.replicas) for one in partitions),
        without_leader=sum(one.leader < 0 for one in partitions),
        groups=len(client.admin.list_groups()),
    )
