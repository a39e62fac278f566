"""The APIs of the node with their versions, as ApiVersions reports them to clients."""

from __future__ import annotations

from dataclasses import dataclass

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One Kafka API as this node speaks it. The handler has the API's name, in this module of `handlers`."""

    key: int
    name: str
    module: str
    min_version: int
    max_version: int


# The APIs of Apache Kafka 4.3 without share groups, Streams groups, delegation tokens and client telemetry.
APIS: dict[int, Api] = {
    key: Api(key=key, name=name, module=module, min_version=low, max_version=high)
    for key, name, module, low, high in (
        (0, "produce", "produce", 3, 13),
        (1, "fetch", "fetch", 4, 18),
        (2, "list_offsets", "log_offsets", 1, 11),
        (3, "metadata", "metadata", 0, 13),
        (8, "offset_commit", "offsets", 2, 10),
        (9, "offset_fetch", "offsets", 1, 10),
        (10, "find_coordinator", "transactions", 0, 6),
        (11, "join_group", "members", 0, 9),
        (12, "heartbeat", "members", 0, 4),
        (13, "leave_group", "members", 0, 5),
        (14, "sync_group", "members", 0, 5),
        (15, "describe_groups", "groups", 0, 6),
        (16, "list_groups", "groups", 0, 5),
        (17, "sasl_handshake", "logins", 0, 1),
        (18, "api_versions", "cluster", 0, 4),
        (19, "create_topics", "topics", 2, 7),
        (20, "delete_topics", "topics", 1, 6),
        (21, "delete_records", "log_offsets", 0, 2),
        (22, "init_producer_id", "transactions", 0, 5),
        (23, "offset_for_leader_epoch", "log_offsets", 2, 4),
        (24, "add_partitions_to_txn", "transactions", 0, 5),
        (25, "add_offsets_to_txn", "transactions", 0, 4),
        (26, "end_txn", "transactions", 0, 5),
        (27, "write_txn_markers", "transactions", 1, 2),
        (28, "txn_offset_commit", "offsets", 0, 5),
        (29, "describe_acls", "acls", 1, 3),
        (30, "create_acls", "acls", 1, 3),
        (31, "delete_acls", "acls", 1, 3),
        (32, "describe_configs", "configs", 1, 4),
        (33, "alter_configs", "configs", 0, 2),
        (34, "alter_replica_log_dirs", "replicas", 1, 2),
        (35, "describe_log_dirs", "replicas", 1, 5),
        (36, "sasl_authenticate", "logins", 0, 2),
        (37, "create_partitions", "topics", 0, 3),
        (42, "delete_groups", "groups", 0, 2),
        (43, "elect_leaders", "replicas", 0, 2),
        (44, "incremental_alter_configs", "configs", 0, 1),
        (45, "alter_partition_reassignments", "replicas", 0, 1),
        (46, "list_partition_reassignments", "replicas", 0, 0),
        (47, "offset_delete", "offsets", 0, 0),
        (48, "describe_client_quotas", "users", 0, 1),
        (49, "alter_client_quotas", "users", 0, 1),
        (50, "describe_user_scram_credentials", "users", 0, 0),
        (51, "alter_user_scram_credentials", "users", 0, 0),
        (55, "describe_quorum", "cluster", 0, 2),
        (57, "update_features", "cluster", 0, 2),
        (60, "describe_cluster", "cluster", 0, 2),
        (61, "describe_producers", "transactions", 0, 0),
        (65, "describe_transactions", "transactions", 0, 0),
        (66, "list_transactions", "transactions", 0, 2),
        (68, "consumer_group_heartbeat", "members", 0, 1),
        (69, "consumer_group_describe", "groups", 0, 1),
        (64, "unregister_broker", "cluster", 0, 0),
        (74, "list_config_resources", "configs", 0, 1),
        (75, "describe_topic_partitions", "metadata", 0, 0),
    )
}
IN_STEPS = frozenset((19, 20, 32, 33, 37, 44))
"""The APIs whose handlers take turns (`Exchange.in_steps`): create_topics, delete_topics, describe_configs,
alter_configs, create_partitions and incremental_alter_configs."""
MAY_TAKE_LONG = IN_STEPS | {2}
"""The APIs of which few large requests are handled at a time: those, and list_offsets, which may wait for threads and
for a store."""
