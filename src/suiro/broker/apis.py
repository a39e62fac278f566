"""The APIs of the node with their versions, as ApiVersions reports them to clients."""

from __future__ import annotations

from dataclasses import dataclass

API_VERSIONS_KEY = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One Kafka API as this node speaks it. The handler's module bears the API's name."""

    key: int
    name: str
    min_version: int
    max_version: int


# The APIs of Apache Kafka 4.3 without share groups, Streams groups, delegation tokens and client telemetry.
APIS: dict[int, Api] = {
    key: Api(key=key, name=name, min_version=low, max_version=high)
    for key, name, low, high in (
        (0, "produce", 3, 13),
        (1, "fetch", 4, 18),
        (2, "list_offsets", 1, 11),
        (3, "metadata", 0, 13),
        (8, "offset_commit", 2, 10),
        (9, "offset_fetch", 1, 10),
        (10, "find_coordinator", 0, 6),
        (11, "join_group", 0, 9),
        (12, "heartbeat", 0, 4),
        (13, "leave_group", 0, 5),
        (14, "sync_group", 0, 5),
        (15, "describe_groups", 0, 6),
        (16, "list_groups", 0, 5),
        (17, "sasl_handshake", 0, 1),
        (18, "api_versions", 0, 4),
        (19, "create_topics", 2, 7),
        (20, "delete_topics", 1, 6),
        (21, "delete_records", 0, 2),
        (22, "init_producer_id", 0, 5),
        (23, "offset_for_leader_epoch", 2, 4),
        (24, "add_partitions_to_txn", 0, 5),
        (25, "add_offsets_to_txn", 0, 4),
        (26, "end_txn", 0, 5),
        (27, "write_txn_markers", 1, 2),
        (28, "txn_offset_commit", 0, 5),
        (29, "describe_acls", 1, 3),
        (30, "create_acls", 1, 3),
        (31, "delete_acls", 1, 3),
        (32, "describe_configs", 1, 4),
        (33, "alter_configs", 0, 2),
        (34, "alter_replica_log_dirs", 1, 2),
        (35, "describe_log_dirs", 1, 5),
        (36, "sasl_authenticate", 0, 2),
        (37, "create_partitions", 0, 3),
        (42, "delete_groups", 0, 2),
        (43, "elect_leaders", 0, 2),
        (44, "incremental_alter_configs", 0, 1),
        (45, "alter_partition_reassignments", 0, 1),
        (46, "list_partition_reassignments", 0, 0),
        (47, "offset_delete", 0, 0),
        (48, "describe_client_quotas", 0, 1),
        (49, "alter_client_quotas", 0, 1),
        (50, "describe_user_scram_credentials", 0, 0),
        (51, "alter_user_scram_credentials", 0, 0),
        (55, "describe_quorum", 0, 2),
        (57, "update_features", 0, 2),
        (60, "describe_cluster", 0, 2),
        (61, "describe_producers", 0, 0),
        (65, "describe_transactions", 0, 0),
        (66, "list_transactions", 0, 2),
        (68, "consumer_group_heartbeat", 0, 1),
        (69, "consumer_group_describe", 0, 1),
        (64, "unregister_broker", 0, 0),
        (74, "list_config_resources", 0, 1),
        (75, "describe_topic_partitions", 0, 0),
    )
}
IN_STEPS = frozenset((19, 20, 32, 33, 37, 44))
"""The APIs whose handlers take turns (`Exchange.in_steps`): create_topics, delete_topics, describe_configs,
alter_configs, create_partitions and incremental_alter_configs."""
MAY_TAKE_LONG = IN_STEPS | {2}
"""The APIs of which few large requests are handled at a time: those, and list_offsets, which may wait for threads and
for a store."""
