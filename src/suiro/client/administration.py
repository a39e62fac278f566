"""`Admin`: requests of administrators, with the names of Kafka's admin client. `Client.admin` returns it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from suiro.client import access, configs, groups, partitions
from suiro.client.access import Acl, AclFilter, Quota, ScramUser
from suiro.client.cluster import Cluster
from suiro.client.configs import ConfigEntry
from suiro.client.groups import GroupDescription, ListedGroup
from suiro.client.partitions import ClusterDescription
from suiro.foundation.types import TopicPartition

__all__ = ["Admin"]


class Admin:
    """Each operation repeats what may succeed later until `default.api.timeout.ms` has passed, as `Client` does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # -- cluster, partitions, settings --------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        return partitions.describe_cluster(self._cluster)

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """`counts`: {topic: the new number of partitions}."""
        partitions.create_partitions(self._cluster, counts, validate_only=validate_only)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the records before an offset (-1: all); returns the new log start offset of each partition."""
        return partitions.delete_records(self._cluster, offsets)

    def partition_sizes(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, int]:
        """Returns the size on disk, in bytes, of the largest replica of each partition."""
        return partitions.partition_sizes(self._cluster, topics)

    def config_entries(self, kind: str, names: Sequence[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        """`kind`: "topic" or "broker" (named by its id; "" for the cluster-wide default). Defaults are included."""
        return configs.config_entries(self._cluster, kind, names)

    def alter_configs(
        self, kind: str, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Changes single settings; None removes one."""
        configs.alter_configs(self._cluster, kind, changes, validate_only=validate_only)

    # -- groups ------------------------------------------------------------------------------------------

    def list_groups(self) -> tuple[ListedGroup, ...]:
        return groups.list_groups(self._cluster)

    def describe_group(self, group: str) -> GroupDescription:
        """A group that does not exist has state "Dead" and no members."""
        return groups.describe_group(self._cluster, group)

    def delete_group(self, group: str) -> None:
        """Deletes a group and its committed offsets. The broker rejects this while the group has members."""
        groups.delete_group(self._cluster, group)

    def delete_offsets(self, group: str, of: Iterable[TopicPartition]) -> None:
        groups.delete_offsets(self._cluster, group, of)

    # -- access rules, users, quotas -----------------------------------------------------------------------

    def describe_acls(self, wanted: AclFilter | None = None) -> tuple[Acl, ...]:
        return access.describe_acls(self._cluster, wanted or AclFilter())

    def create_acls(self, acls: Sequence[Acl]) -> None:
        access.create_acls(self._cluster, acls)

    def delete_acls(self, filters: Sequence[AclFilter]) -> tuple[Acl, ...]:
        """Deletes the matching ACLs and returns them."""
        return access.delete_acls(self._cluster, filters)

    def describe_scram_users(self, names: Iterable[str] | None = None) -> tuple[ScramUser, ...]:
        return access.describe_scram_users(self._cluster, names)

    def upsert_scram_user(
        self, name: str, password: str, *, mechanism: str = "SCRAM-SHA-512", iterations: int = 4096
    ) -> None:
        """Creates or changes a user. The password itself does not leave this process."""
        access.upsert_scram_user(self._cluster, name, password, mechanism=mechanism, iterations=iterations)

    def delete_scram_user(self, name: str, *, mechanism: str) -> None:
        access.delete_scram_user(self._cluster, name, mechanism=mechanism)

    def describe_quotas(self, entity: Mapping[str, str | None] | None = None) -> tuple[Quota, ...]:
        """Returns the quotas of exactly this entity ({"user": "ada"}; None is the default), or all."""
        return access.describe_quotas(self._cluster, entity)

    def alter_quotas(
        self,
        entity: Mapping[str, str | None],
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Sets quotas by their Kafka names; None removes one."""
        access.alter_quotas(self._cluster, entity, changes, validate_only=validate_only)
