"""The node's settings: Kafka's names, their types, ranges and defaults, in one table.

`NodeSettings` is the table. A field's name is the setting's with `_` for `.`; its metadata holds the rest.
Topic settings (`suiro.log` owns them) have a node-wide default under another name, as in Kafka: `segment.bytes`
and `log.segment.bytes`; `topic_settings` maps them.

An unknown name is an error; a name that Apache Kafka has and this node does not is an error that says so.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from suiro.errors import ConfigError

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OAUTH_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
LISTENER_PREFIX = "listener.name."


def _setting(
    default: Any,
    doc: str,
    *,
    low: int | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    topic: str | None = None,
    dynamic: bool = False,
    sensitive: bool = False,
    verbatim: bool = False,
    kind: str | None = None,
) -> Any:
    """`topic`: the topic setting it is the default of (those can always be altered). `dynamic`: may be altered
    while the node runs. `sensitive`: never shown. `kind`: Kafka's type, where it does not follow from the value.
    `verbatim`: not a list whose parts may have spaces around them."""
    return field(
        default=default,
        repr=not sensitive,
        metadata={
            "doc": doc,
            "low": low,
            "high": high,
            "choices": choices,
            "topic": topic,
            "dynamic": dynamic or topic is not None,
            "sensitive": sensitive,
            "verbatim": sensitive or verbatim,
            "kind": kind or _kind(default, high, sensitive=sensitive),
        },
    )


def _kind(default: Any, high: float | None, *, sensitive: bool) -> str:
    if isinstance(default, bool):
        return "BOOLEAN"
    if isinstance(default, int):
        return "LONG" if high is None or high > MAX_INT else "INT"
    if isinstance(default, float):
        return "DOUBLE"
    return "PASSWORD" if sensitive else "STRING"


def _without_effect(
    default: Any, why: str, *, low: int | None = None, kind: str | None = None, dynamic: bool = False
) -> Any:
    """A setting of Kafka's that files written for Kafka may have, and that changes nothing here, for a reason."""
    if isinstance(default, bool):
        return _setting(default, f"Accepted without effect: {why}.")
    return _setting(
        default, f"Accepted without effect: {why}.", low=low, high=MAX_INT, kind=kind, dynamic=dynamic
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Every setting of a node. Defaults are Apache Kafka's unless the description gives a reason."""

    node_id: int = _setting(1, "This node's id in answers to clients.", low=0, high=MAX_INT)
    auto_create_topics_enable: bool = _setting(True, "Create a topic when a client first asks for it.")
    num_partitions: int = _setting(1, "Partitions of a topic whose creator does not say.", low=1, high=10_000)
    delete_topic_enable: bool = _setting(True, "Allow DeleteTopics.")
    listeners: str = _setting(
        "",
        "Addresses to listen on: `NAME://HOST:PORT,...`; port 0 takes a free one. Empty: what `--listen` says. "
        "(Kafka PLAINTEXT://:9092.)",
        kind="LIST",
    )
    advertised_listeners: str = _setting(
        "",
        "The addresses that clients are told, by the same names. Empty: those of `listeners`.",
        kind="LIST",
    )
    listener_security_protocol_map: str = _setting(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "Which security protocol each listener's name stands for.",
    )
    metrics_listen: str = _setting(
        "", "`HOST:PORT` of `/metrics` in Prometheus' format; empty: none. (Not a Kafka setting.)"
    )
    socket_request_max_bytes: int = _setting(104_857_600, "Largest request frame.", low=1024, high=MAX_INT)
    socket_request_max_elements: int = _setting(
        50_000,
        "Most topics, partitions and other elements of arrays, all together, that one request may name; the connection "
        "of one with more is closed. (Not a Kafka setting.)",
        low=1000,
        high=MAX_INT,
        dynamic=True,
    )
    queued_max_requests: int = _setting(
        500,
        "Connections that may have further requests read while one of theirs is being answered.",
        low=1,
        high=MAX_INT,
    )
    queued_max_request_bytes: int = _setting(
        536_870_912,
        "Bytes of requests, over all connections, that were read or are being read and are not yet handled; "
        "nothing further is read until they are fewer. (Kafka -1: no limit.)",
        low=1024,
    )
    queued_max_response_bytes: int = _setting(
        268_435_456,
        "Bytes of answers in memory that slow clients have not taken yet, over all connections; when there are "
        "more, the slowest are closed. (Not a Kafka setting.)",
        low=1024,
    )
    queued_max_unauthenticated_bytes: int = _setting(
        33_554_432,
        "Bytes of requests in memory, over all connections that have not logged in; when there are more, the "
        "connection that holds the most is closed. (Not a Kafka setting.)",
        low=1024,
    )
    max_connections: int = _setting(
        10_000,
        "Open client connections; the next ones wait to be accepted. The limit on open files may allow fewer, "
        "which a warning says at the start. (Kafka has no limit.)",
        low=1,
        high=MAX_INT,
        dynamic=True,
    )
    max_unauthenticated_connections: int = _setting(
        1000,
        "Open connections of one listener that have not logged in, or not finished their TLS handshake. One more "
        "takes the place of the first that came from the address with the most, once that one is a second old. "
        "(Not a Kafka setting.)",
        low=1,
        high=MAX_INT,
        dynamic=True,
    )
    max_connections_per_ip: int = _setting(
        MAX_INT, "Open connections from one address; one more is closed.", low=0, high=MAX_INT, dynamic=True
    )
    max_connections_per_ip_overrides: str = _setting(
        "", "The same for single addresses: `HOST:COUNT,...`.", dynamic=True
    )
    max_connection_creation_rate: int = _setting(
        MAX_INT, "Connections accepted per second; the next ones wait.", low=0, high=MAX_INT, dynamic=True
    )
    connections_max_idle_ms: int = _setting(600_000, "Close a connection idle for so long.", low=1000)
    fetch_max_bytes: int = _setting(
        57_671_680, "Most bytes of records in one Fetch answer.", low=1024, high=MAX_INT
    )
    fetch_max_wait_ms: int = _setting(
        60_000, "Longest long poll, whatever the client asks. (Not a Kafka setting.)", low=0, high=MAX_INT
    )
    max_incremental_fetch_session_cache_slots: int = _setting(
        1000, "Clients whose fetches name only what changed (KIP-227).", low=0, high=MAX_INT
    )
    max_request_partition_size_limit: int = _setting(
        2000, "Most partitions in one answer to DescribeTopicPartitions.", low=1, high=MAX_INT
    )
    offsets_topic_num_partitions: int = _setting(
        4,
        "Partitions of __consumer_offsets. (Kafka 50: a single node gains nothing from them.)",
        low=1,
        high=1000,
    )
    offsets_retention_minutes: int = _setting(
        10_080, "Committed offsets of a group without members are kept for so long.", low=1, high=MAX_INT
    )
    offsets_retention_check_interval_ms: int = _setting(600_000, "How often that is checked.", low=1)
    offset_metadata_max_bytes: int = _setting(
        4096, "Longest metadata of a committed offset.", low=0, high=32_767
    )
    group_initial_rebalance_delay_ms: int = _setting(
        0,
        "How long a new group waits for more members. (Kafka 3000; its own sample files set 0.)",
        low=0,
        high=MAX_INT,
    )
    group_min_session_timeout_ms: int = _setting(
        6000, "Shortest session.timeout.ms of a member.", low=1, high=MAX_INT
    )
    group_max_session_timeout_ms: int = _setting(
        1_800_000, "Longest session.timeout.ms of a member.", low=1, high=MAX_INT
    )
    group_max_size: int = _setting(MAX_INT, "Members in one group.", low=1, high=MAX_INT)
    group_max_member_bytes: int = _setting(
        1_048_576,
        "What a member may bring to its group with its join: the metadata of its protocols, its subscription, its ids. "
        "(Not a Kafka setting.)",
        low=4096,
        high=MAX_INT,
        dynamic=True,
    )
    group_max_bytes: int = _setting(
        16_777_216,
        "The same for all members of one group together. (Not a Kafka setting.)",
        low=4096,
        high=MAX_INT,
        dynamic=True,
    )
    group_max_total_bytes: int = _setting(
        268_435_456,
        "The same for the members of all groups together. (Not a Kafka setting.)",
        low=4096,
        dynamic=True,
    )
    group_consumer_max_size: int = _setting(
        MAX_INT, "Members in one group of the new consumer protocol.", low=1, high=MAX_INT
    )
    group_consumer_assignors: str = _setting(
        "uniform,range",
        "Server-side assignors; the first is the default.",
        choices=("uniform,range", "range,uniform", "uniform", "range"),
        kind="LIST",
    )
    group_consumer_migration_policy: str = _setting(
        "bidirectional",
        "Whether a group with members may go from the classic protocol to the new one, and back.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_regex_refresh_interval_ms: int = _setting(
        600_000,
        "Topics of a subscription by regular expression are looked for at least so often.",
        low=10_000,
    )
    group_consumer_session_timeout_ms: int = _setting(
        45_000, "A member of a consumer group not heard of for so long leaves it.", low=1, high=MAX_INT
    )
    group_consumer_min_session_timeout_ms: int = _setting(
        45_000, "Least consumer.session.timeout.ms of a group.", low=1, high=MAX_INT
    )
    group_consumer_max_session_timeout_ms: int = _setting(
        60_000, "Greatest consumer.session.timeout.ms of a group.", low=1, high=MAX_INT
    )
    group_consumer_heartbeat_interval_ms: int = _setting(
        5000, "How often members of consumer groups are told to send a heartbeat.", low=1, high=MAX_INT
    )
    group_consumer_min_heartbeat_interval_ms: int = _setting(
        5000, "Least consumer.heartbeat.interval.ms of a group.", low=1, high=MAX_INT
    )
    group_consumer_max_heartbeat_interval_ms: int = _setting(
        15_000, "Greatest consumer.heartbeat.interval.ms of a group.", low=1, high=MAX_INT
    )
    group_consumer_assignment_interval_ms: int = _setting(
        1000, "Least time between two assignments of a consumer group.", low=0, high=MAX_INT, dynamic=True
    )
    group_consumer_min_assignment_interval_ms: int = _setting(
        0, "Least consumer.assignment.interval.ms of a group.", low=0, high=MAX_INT
    )
    group_consumer_max_assignment_interval_ms: int = _setting(
        15_000, "Greatest consumer.assignment.interval.ms of a group.", low=0, high=MAX_INT
    )
    transaction_state_log_num_partitions: int = _setting(
        4, "Partitions of __transaction_state. (Kafka 50.)", low=1, high=1000
    )
    transaction_max_timeout_ms: int = _setting(
        900_000, "Longest transaction.timeout.ms of a producer.", low=1, high=MAX_INT
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = _setting(
        1000, "How often timed-out transactions are looked for. (Kafka 10000.)", low=1, high=MAX_INT
    )
    transactional_id_expiration_ms: int = _setting(
        604_800_000, "A transactional id unused for so long is forgotten.", low=1, high=MAX_INT
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = _setting(
        3_600_000, "How often that is checked.", low=1, high=MAX_INT
    )
    transaction_partition_verification_enable: bool = _setting(
        True, "Refuse transactional writes of older clients to partitions they did not add.", dynamic=True
    )
    producer_id_expiration_ms: int = _setting(
        86_400_000,
        "A partition forgets a producer that has written nothing for so long, unless its transaction is open.",
        low=1,
        high=MAX_INT,
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = _setting(
        600_000, "How often that is checked.", low=1, high=MAX_INT
    )
    log_flush_offset_checkpoint_interval_ms: int = _setting(
        60_000,
        "How often logs are synced to disk, which bounds what a start after a crash scans.",
        low=100,
        high=MAX_INT,
    )
    log_retention_check_interval_ms: int = _setting(300_000, "How often retention is applied.", low=1)

    log_segment_bytes: int = _setting(
        1_073_741_824,
        "Size at which a segment is rolled.",
        low=1_048_576,
        high=MAX_INT,
        topic="segment.bytes",
    )
    log_roll_ms: int = _setting(604_800_000, "Age at which a segment is rolled.", low=1, topic="segment.ms")
    log_index_size_max_bytes: int = _setting(
        10_485_760,
        "Size of an index at which a segment is rolled.",
        low=4,
        high=MAX_INT,
        topic="segment.index.bytes",
    )
    log_index_interval_bytes: int = _setting(
        4096, "Bytes of log between two index entries.", low=0, high=MAX_INT, topic="index.interval.bytes"
    )
    log_retention_bytes: int = _setting(
        -1, "Keep at most so many bytes; -1: all.", low=-1, topic="retention.bytes"
    )
    log_retention_ms: int = _setting(
        604_800_000, "Keep for so long; -1: for ever.", low=-1, topic="retention.ms"
    )
    log_local_retention_bytes: int = _setting(
        -2,
        "Of a tiered topic, keep at most so many bytes on this disk; -2: as retention.bytes says.",
        low=-2,
        topic="local.retention.bytes",
    )
    log_local_retention_ms: int = _setting(
        -2,
        "Of a tiered topic, keep on this disk for so long; -2: as retention.ms says.",
        low=-2,
        topic="local.retention.ms",
    )
    message_max_bytes: int = _setting(
        1_048_588, "Largest record batch.", low=0, high=MAX_INT, topic="max.message.bytes"
    )
    log_message_timestamp_type: str = _setting(
        "CreateTime",
        "Whose time a record's timestamp is.",
        choices=("CreateTime", "LogAppendTime"),
        topic="message.timestamp.type",
    )
    log_cleanup_policy: str = _setting(
        "delete",
        "What happens to old records.",
        choices=("delete", "compact", "compact,delete", "delete,compact"),
        topic="cleanup.policy",
        kind="LIST",
    )
    log_cleaner_delete_retention_ms: int = _setting(
        86_400_000,
        "Tombstones of a compacted topic are kept for so long.",
        low=0,
        topic="delete.retention.ms",
    )
    log_cleaner_enable: bool = _setting(True, "Compact the topics whose cleanup.policy asks for it.")
    log_cleaner_threads: int = _without_effect(1, "one process cleans one log at a time", low=1, dynamic=True)
    log_cleaner_dedupe_buffer_size: int = _setting(
        134_217_728,
        "Memory for the keys of one cleaning: 24 bytes a key.",
        low=1_048_576,
        dynamic=True,
    )
    log_cleaner_io_buffer_size: int = _setting(
        524_288, "Bytes that the cleaner reads at a time.", low=1024, high=MAX_INT, dynamic=True, kind="INT"
    )
    log_cleaner_io_buffer_load_factor: float = _setting(
        0.9, "How full the memory for keys may get; fuller is slower.", low=0, high=1, dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = _setting(
        MAX_DOUBLE, "The cleaner reads and writes at most so much.", low=1, high=MAX_DOUBLE, dynamic=True
    )
    log_cleaner_backoff_ms: int = _setting(
        15_000, "How often the cleaner looks whether there is something to clean.", low=0, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = _setting(
        0.5,
        "A log is compacted when this share of its bytes is dirty.",
        low=0,
        high=1,
        topic="min.cleanable.dirty.ratio",
    )
    log_cleaner_max_compaction_lag_ms: int = _setting(
        MAX_LONG, "A record is compacted at the latest after so long.", low=1, topic="max.compaction.lag.ms"
    )
    log_cleaner_min_compaction_lag_ms: int = _setting(
        0, "A record is not compacted away sooner.", low=0, topic="min.compaction.lag.ms"
    )
    log_roll_jitter_ms: int = _setting(
        0, "A segment is rolled earlier by up to so much, drawn.", low=0, topic="segment.jitter.ms"
    )
    log_message_timestamp_before_max_ms: int = _setting(
        MAX_LONG,
        "A record may be older than now by so much.",
        low=0,
        topic="message.timestamp.before.max.ms",
    )
    log_message_timestamp_after_max_ms: int = _setting(
        3_600_000,
        "A record may be later than now by so much.",
        low=0,
        topic="message.timestamp.after.max.ms",
    )
    log_flush_interval_messages: int = _setting(
        MAX_LONG, "Sync a log to disk after so many records.", low=1, topic="flush.messages"
    )
    log_flush_interval_ms: int = _setting(
        MAX_LONG,
        "Sync a log to disk when its last sync is so long ago; looked at every log.flush.scheduler.interval.ms.",
        low=0,
        topic="flush.ms",
    )
    log_flush_scheduler_interval_ms: int = _setting(
        MAX_LONG, "How often logs are looked at that are due by log.flush.interval.ms.", low=1
    )
    log_segment_delete_delay_ms: int = _setting(
        60_000, "A deleted segment's files stay for so long.", low=0, topic="file.delete.delay.ms"
    )
    compression_type: str = _setting(
        "producer",
        "Batches are stored in this codec; those of producers that use another one are compressed again.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        topic="compression.type",
    )
    compression_gzip_level: int = _setting(
        -1,
        "How hard batches that are stored as gzip are compressed again.",
        low=-1,
        high=9,
        topic="compression.gzip.level",
    )
    compression_lz4_level: int = _setting(
        9,
        "The same for lz4; 9 is the fast way.",
        low=1,
        high=17,
        topic="compression.lz4.level",
    )
    compression_zstd_level: int = _setting(
        3,
        "The same for zstd.",
        low=-131_072,
        high=22,
        topic="compression.zstd.level",
    )
    min_insync_replicas: int = _setting(
        1,
        "Copies that acks=all asks for. A single node has one.",
        low=1,
        high=MAX_INT,
        topic="min.insync.replicas",
    )

    remote_log_storage_system_enable: bool = _setting(
        False, "Topics may have a remote tier; remote.log.storage.uri says where it is."
    )
    remote_log_storage_uri: str = _setting(
        "",
        "Where copied segments go: `file:///folder`, or "
        "`s3://bucket/prefix?endpoint_override=host:port&scheme=http&region=...`. "
        "(Not a Kafka setting: Kafka names a Java class.)",
    )
    remote_log_storage_access_key: str = _setting(
        "",
        "Access key of an S3 store; empty: as the environment has it. (Not a Kafka setting.)",
        sensitive=True,
    )
    remote_log_storage_secret_key: str = _setting(
        "", "The secret that belongs to the access key. (Not a Kafka setting.)", sensitive=True
    )
    remote_log_manager_task_interval_ms: int = _setting(
        30_000, "How often it is looked for segments to copy and to delete.", low=1
    )
    remote_log_manager_copier_thread_pool_size: int = _setting(
        4, "Threads that copy and delete segments. (Kafka 10.)", low=1, high=1000, dynamic=True
    )
    remote_log_reader_threads: int = _setting(
        10, "Threads that read remote segments.", low=1, high=1000, dynamic=True
    )
    remote_log_manager_task_retry_backoff_ms: int = _setting(
        500, "After a failure of the remote store, wait so long, and twice as long after the next.", low=1
    )
    remote_log_manager_task_retry_backoff_max_ms: int = _setting(
        30_000, "Longest of those waits.", low=1, high=MAX_INT
    )
    remote_log_manager_copy_max_bytes_per_second: int = _setting(
        MAX_LONG, "Most bytes copied to the remote store in a second.", low=1, dynamic=True
    )
    remote_log_manager_fetch_max_bytes_per_second: int = _setting(
        MAX_LONG, "Most bytes read from the remote store in a second.", low=1, dynamic=True
    )
    remote_log_index_file_cache_total_size_bytes: int = _setting(
        67_108_864,
        "Indexes of remote segments kept in memory. (Kafka 1073741824, on disk.)",
        low=1,
        dynamic=True,
    )
    remote_log_chunk_cache_total_size_bytes: int = _setting(
        268_435_456, "Records of remote segments kept on this disk. (Not a Kafka setting.)", low=1
    )
    remote_log_read_ahead_bytes: int = _setting(
        4_194_304, "Bytes asked of the remote store at once. (Not a Kafka setting.)", low=4096, high=MAX_INT
    )
    remote_fetch_max_wait_ms: int = _setting(
        500,
        "Longest wait of a Fetch for the remote store; then the answer has no records, and the client asks again.",
        low=1,
        high=MAX_INT,
        dynamic=True,
    )
    remote_list_offsets_request_timeout_ms: int = _setting(
        30_000, "Longest wait of a look-up by time for the remote store.", low=1, dynamic=True
    )

    default_replication_factor: int = _setting(
        1, "Copies of a topic whose creator does not say. A single node has one.", low=1, high=1, kind="INT"
    )
    offsets_topic_replication_factor: int = _setting(
        1, "Copies of __consumer_offsets. (Kafka 3; a single node has one.)", low=1, high=1, kind="SHORT"
    )
    offsets_topic_segment_bytes: int = _setting(
        104_857_600, "segment.bytes of __consumer_offsets when it is made.", low=1, high=MAX_INT
    )
    transaction_state_log_replication_factor: int = _setting(
        1, "Copies of __transaction_state. (Kafka 3; a single node has one.)", low=1, high=1, kind="SHORT"
    )
    transaction_state_log_min_isr: int = _setting(
        1, "min.insync.replicas of __transaction_state. (Kafka 2.)", low=1, high=1, kind="INT"
    )
    transaction_state_log_segment_bytes: int = _setting(
        104_857_600, "segment.bytes of __transaction_state when it is made.", low=1, high=MAX_INT
    )
    unclean_leader_election_enable: bool = _setting(
        False,
        "Accepted without effect: the one copy of a partition is its leader.",
        topic="unclean.leader.election.enable",
    )
    log_preallocate: bool = _setting(
        False, "Accepted without effect: segment files grow as they are written.", topic="preallocate"
    )
    background_threads: int = _without_effect(10, "one thread serves all", low=1, dynamic=True)
    num_io_threads: int = _without_effect(8, "one thread serves all", low=1, dynamic=True)
    num_network_threads: int = _without_effect(3, "one thread serves all", low=1, dynamic=True)
    num_recovery_threads_per_data_dir: int = _without_effect(
        2, "one thread recovers all logs", low=1, dynamic=True
    )
    num_replica_fetchers: int = _without_effect(1, "a single node has no replicas", dynamic=True)
    replica_lag_time_max_ms: int = _without_effect(30_000, "a single node has no replicas", kind="LONG")
    replica_fetch_max_bytes: int = _without_effect(1_048_576, "a single node has no replicas", low=0)
    replica_socket_timeout_ms: int = _without_effect(30_000, "a single node has no replicas")
    auto_leader_rebalance_enable: bool = _without_effect(True, "the one node leads every partition")
    leader_imbalance_check_interval_seconds: int = _without_effect(
        300, "the one node leads every partition", kind="LONG"
    )
    leader_imbalance_per_broker_percentage: int = _without_effect(10, "the one node leads every partition")
    controlled_shutdown_enable: bool = _without_effect(True, "there is nobody to hand partitions over to")
    broker_heartbeat_interval_ms: int = _without_effect(2000, "the node is its own controller", low=1)
    broker_session_timeout_ms: int = _without_effect(9000, "the node is its own controller", low=1)
    initial_broker_registration_timeout_ms: int = _without_effect(60_000, "the node is its own controller")
    request_timeout_ms: int = _without_effect(30_000, "the node sends requests to nobody", low=1)
    fetch_purgatory_purge_interval_requests: int = _without_effect(
        1000, "a request leaves when it is answered"
    )
    producer_purgatory_purge_interval_requests: int = _without_effect(
        1000, "a request leaves when it is answered"
    )

    authorizer_class_name: str = _setting(
        "",
        "Kafka's name of its authorizer turns access control on; empty: everybody may do everything.",
        choices=("", STANDARD_AUTHORIZER),
    )
    super_users: str = _setting("", "Who may do everything: `User:a;User:b`.", verbatim=True)
    allow_everyone_if_no_acl_found: bool = _setting(
        False, "With access control on: what no access control list names is open to everybody."
    )
    sasl_enabled_mechanisms: str = _setting(
        "PLAIN",
        "SASL mechanisms that clients may choose from. (Kafka GSSAPI, which a node does not have.)",
        kind="LIST",
        dynamic=True,
    )
    sasl_jaas_config: str = _setting(
        "",
        "Kafka's JAAS line of a mechanism, best given for one listener and mechanism.",
        sensitive=True,
        dynamic=True,
    )
    sasl_server_callback_handler_class: str = _setting(
        "",
        "Kafka's name of its validator of OAUTHBEARER tokens; a node takes it and needs none.",
        choices=("", OAUTH_VALIDATOR),
    )
    sasl_server_max_receive_size: int = _setting(
        524_288, "Largest request of a connection that has not logged in yet.", low=1, high=MAX_INT
    )
    connections_max_reauth_ms: int = _setting(
        0,
        "A login holds for so long, then the client must log in again; 0: for ever.",
        low=0,
    )
    connection_failed_authentication_delay_ms: int = _setting(
        100, "A login that failed is answered, and its connection closed, after so long.", low=0, high=MAX_INT
    )
    connection_authentication_timeout_ms: int = _setting(
        30_000,
        "A connection that has not logged in, or not finished its TLS handshake, is closed after so long. "
        "(Not a Kafka setting.)",
        low=100,
        high=MAX_INT,
        dynamic=True,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = _setting(
        "", "`file://` URL of the JSON Web Key Set whose keys sign the tokens.", verbatim=True
    )
    sasl_oauthbearer_expected_audience: str = _setting(
        "", "Audiences of which a token must name one.", kind="LIST"
    )
    sasl_oauthbearer_expected_issuer: str = _setting("", "Issuer that a token must name.")
    sasl_oauthbearer_scope_claim_name: str = _setting("scope", "The claim that holds a token's scope.")
    sasl_oauthbearer_sub_claim_name: str = _setting("sub", "The claim that holds the user's name.")
    sasl_oauthbearer_clock_skew_seconds: int = _setting(
        30, "How far a token issuer's clock may be from ours.", low=0, high=MAX_INT
    )
    ssl_keystore_type: str = _setting(
        "PEM", "Format of the node's key and certificates. (Kafka JKS.)", dynamic=True
    )
    ssl_keystore_location: str = _setting(
        "", "PEM file with the node's private key and its certificate chain.", dynamic=True
    )
    ssl_keystore_password: str = _setting(
        "", "Not for PEM, whose key has its own.", sensitive=True, dynamic=True
    )
    ssl_keystore_key: str = _setting("", "The private key itself, PEM, PKCS#8.", dynamic=True, sensitive=True)
    ssl_keystore_certificate_chain: str = _setting(
        "", "The certificate chain itself, PEM.", dynamic=True, verbatim=True
    )
    ssl_key_password: str = _setting(
        "", "Password of the private key, if it has one.", dynamic=True, sensitive=True
    )
    ssl_truststore_type: str = _setting(
        "PEM", "Format of the certificates trusted. (Kafka JKS.)", dynamic=True
    )
    ssl_truststore_location: str = _setting(
        "", "PEM file with the certificates that sign clients' certificates.", dynamic=True
    )
    ssl_truststore_password: str = _setting("", "Not for PEM.", sensitive=True, dynamic=True)
    ssl_truststore_certificates: str = _setting(
        "", "Those certificates themselves, PEM.", dynamic=True, verbatim=True
    )
    ssl_client_auth: str = _setting(
        "none",
        "Whether clients must show a certificate. With SASL_SSL only what is set for the listener itself counts.",
        choices=("none", "requested", "required"),
        dynamic=True,
    )
    ssl_enabled_protocols: str = _setting("TLSv1.2,TLSv1.3", "Versions of TLS.", kind="LIST", dynamic=True)
    ssl_principal_mapping_rules: str = _setting(
        "DEFAULT",
        "How the name in a client's certificate becomes a principal: `RULE:PATTERN/REPLACEMENT/[LU]`, DEFAULT.",
        verbatim=True,
    )
    quota_window_num: int = _setting(11, "Samples over which a client's rate is measured.", low=1, high=1000)
    quota_window_size_seconds: int = _setting(1, "Length of one of those samples.", low=1, high=MAX_INT)
    controller_quota_window_num: int = _setting(
        11, "Samples that a burst of topic changes may use up at once.", low=1, high=1000
    )
    controller_quota_window_size_seconds: int = _setting(
        1, "Length of one of those samples.", low=1, high=MAX_INT
    )

    listener_settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What is set for one listener only: `listener.name.NAME.` or `listener.name.NAME.MECHANISM.` in front of a
    setting's name, in small letters. Not a setting itself; `for_listener` applies it."""

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str], *, source: str = "--set") -> NodeSettings:
        """The defaults with `settings` (Kafka's names) on top. Raises `ConfigError`."""
        return cls().with_settings(settings, source=source)

    def with_settings(self, settings: Mapping[str, str], *, source: str) -> NodeSettings:
        values = dict(_expand_units(settings))
        of_listeners = dict(self.listener_settings)
        for name in [name for name in values if name.startswith(LISTENER_PREFIX)]:
            text = values.pop(name)
            parse(setting_of_listener(name, source), text, source=source)
            of_listeners[name.lower()] = text
        fields = {_field_of(n, source): parse(n, v, source=source) for n, v in values.items()}
        return replace(self, **fields, listener_settings=tuple(sorted(of_listeners.items())))

    def for_listener(self, listener: str, mechanism: str = "") -> NodeSettings:
        """The settings as they are for one listener, and there for one SASL mechanism."""
        values: dict[str, str] = {}
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for start in (prefix, f"{prefix}{mechanism.lower()}.") if mechanism else (prefix,):
            for name, text in self.listener_settings:
                if name.startswith(start) and name.removeprefix(start) in _fields():
                    values[name.removeprefix(start)] = text
        return self.with_settings(values, source=f"listener {listener}") if values else self

    def value(self, name: str) -> Any:
        """The value of a setting by its Kafka name."""
        return getattr(self, name.replace(".", "_"))


@cache
def _fields() -> dict[str, Any]:
    return {f.name.replace("_", "."): f for f in fields(NodeSettings) if "doc" in f.metadata}


@cache
def _topic_settings() -> dict[str, str]:
    return {f.metadata["topic"]: name for name, f in _fields().items() if f.metadata["topic"]}


def node_setting_names() -> tuple[str, ...]:
    return tuple(_fields())


def kind(name: str) -> str:
    """Kafka's type of a node setting: BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS or PASSWORD."""
    return str(_fields()[name].metadata["kind"])


def is_sensitive(name: str) -> bool:
    return bool(_fields()[name].metadata["sensitive"])


def is_dynamic(name: str) -> bool:
    """Whether a node setting, or one of a listener, may be altered while the node runs."""
    if name.startswith(LISTENER_PREFIX):
        name = setting_of_listener(name, "AlterConfigs")
        return bool(_fields()[name].metadata["dynamic"]) or name.startswith(_ALTERED_FOR_LISTENERS)
    return bool(_fields()[name].metadata["dynamic"])


def is_known_to_kafka(name: str) -> bool:
    """Whether this is a setting of Apache Kafka that a node does not have, or has under another unit's name."""
    return name in KAFKA_SETTINGS_WE_LACK or name.startswith(KAFKA_PREFIXES_WE_LACK) or name in _UNITS


def topic_settings() -> Mapping[str, str]:
    """Topic setting -> the node setting that holds its default."""
    return _topic_settings()


def describe(name: str) -> str:
    """A setting's description, by its node or topic name."""
    return str(_fields()[_topic_settings().get(name, name)].metadata["doc"])


def parse(name: str, text: str, *, source: str) -> Any:
    """The typed value of a setting (node name). Raises `ConfigError` naming it, its source and its range."""
    setting = _fields()[name]
    kind = type(setting.default)
    low, high, choices = (setting.metadata[k] for k in ("low", "high", "choices"))
    text = str(text).strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} = {text!r} ({source}): expected true or false")
        return text.lower() == "true"
    if kind in (int, float):
        number: int | float
        try:
            number = kind(text)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise ConfigError(f"{name} = {text!r} ({source}): expected {expected}") from None
        top = MAX_LONG if high is None else high
        if (low is not None and number < low) or number > top:
            raise ConfigError(f"{name} = {number} ({source}): must be between {low} and {top}")
        return number
    if not setting.metadata["verbatim"]:
        text = ",".join(part.strip() for part in text.split(","))
    if choices and text not in choices:
        raise ConfigError(f"{name} = {text!r} ({source}): must be one of {', '.join(choices)}")
    return text


def read_properties(path: Path) -> dict[str, str]:
    """A Java properties file as `server.properties` uses it: `name=value` lines, `#` comments; a line that ends with
    a backslash goes on in the next, and before any other character a backslash takes it as it is."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot read it: {error.strerror}") from error
    settings: dict[str, str] = {}
    for number, line in _whole_lines(text):
        name, found, value = line.partition("=")
        if not found:
            raise ConfigError(f"--config {path}, line {number}: expected NAME=VALUE, found {line!r}")
        settings[name.strip()] = _PROPERTY_ESCAPE.sub(_unescaped, value.strip())
    return settings


_PROPERTY_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    if len(text) > 1:
        return chr(int(text[1:], 16))
    return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(text, text)


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with the number of the first of those that were put together."""
    begun, so_far = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        line = line.strip()
        if not so_far and (not line or line[0] in "#!"):
            continue
        begun = begun or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            so_far += line[:-1]
            continue
        yield begun, so_far + line
        begun, so_far = 0, ""


def setting_of_listener(name: str, source: str) -> str:
    """The setting that `listener.name.NAME.[MECHANISM.]SETTING` gives to a listener. Raises `ConfigError`."""
    listener, _, rest = name.lower().removeprefix(LISTENER_PREFIX).partition(".")
    for setting in (rest, rest.partition(".")[2]):
        if listener and setting in _fields() and setting.startswith(_OF_LISTENERS):
            return setting
    raise ConfigError(
        f"{name} ({source}): expected {LISTENER_PREFIX}NAME.SETTING or {LISTENER_PREFIX}NAME.MECHANISM.SETTING "
        f"with a setting that begins with {', '.join(_OF_LISTENERS)}"
    )


def _field_of(name: str, source: str) -> str:
    if name in _fields():
        return name.replace(".", "_")
    if name in _topic_settings():
        raise ConfigError(
            f"{name} ({source}): this is a topic setting; its node-wide default is {_topic_settings()[name]}"
        )
    if is_known_to_kafka(name):
        raise ConfigError(
            f"{name} ({source}): this is a setting of Apache Kafka that a suiro node does not have; leave it out"
        )
    raise ConfigError(f"{name} ({source}): unknown setting{_like(name, _fields())}")


def _like(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


# What a listener may have for itself.
_OF_LISTENERS = (
    "connection.authentication.timeout.ms", "connections.max.reauth.ms", "max.connection.creation.rate",
    "max.connections", "max.unauthenticated.connections", "sasl.", "ssl.",
)  # fmt: skip

# Of those, what may be altered for one listener and not for all.
_ALTERED_FOR_LISTENERS = ("connections.max.reauth.ms", "sasl.oauthbearer.", "ssl.principal.mapping.rules")

# Kafka gives some times in several units; the finer one wins, and we keep milliseconds.
_UNITS = {
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.roll.hours": ("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", 3_600_000),
}


def _expand_units(settings: Mapping[str, str]) -> Mapping[str, str]:
    expanded = dict(settings)
    for coarse, (name, factor) in _UNITS.items():
        text = expanded.pop(coarse, None)
        if text is None or name in settings:
            continue
        try:
            expanded[name] = str(int(text) * factor) if int(text) >= 0 else "-1"
        except ValueError:
            raise ConfigError(f"{coarse} = {text!r}: expected a whole number") from None
    return expanded


KAFKA_PREFIXES_WE_LACK = (
    "authorizer.", "broker.quota.", "controller.", "group.consumer.assignor.", "group.coordinator.", "group.share.",
    "group.streams.", "inter.broker.", "listener.",  "metadata.log.", "metric",
    "password.encoder.", "principal.", "process.", "quota.", "remote.log.", "replica.", "sasl.", "security.",
    "share.", "socket.", "ssl.", "telemetry.", "transaction.state.log.", "offsets.topic.", "zookeeper.",
)  # fmt: skip
"""Whole families of Kafka's settings that a single node without security, quotas and tiers has no use for."""

KAFKA_SETTINGS_WE_LACK = frozenset(
    (
        "add.partitions.to.txn.retry.backoff.max.ms", "add.partitions.to.txn.retry.backoff.ms",
        "alter.config.policy.class.name", "alter.log.dirs.replication.quota.window.num",
        "alter.log.dirs.replication.quota.window.size.seconds", "auto.include.jmx.reporter",
        "broker.id", "broker.id.generation.enable", "broker.rack", "client.quota.callback.class",
        "config.providers",
        "cordoned.log.dirs", "create.topic.policy.class.name",
        "delegation.token.expiry.check.interval.ms", "delegation.token.expiry.time.ms",
        "delegation.token.max.lifetime.ms", "delegation.token.secret.key",
        "delete.records.purgatory.purge.interval.requests", "early.start.listeners",
        "follower.fetch.last.tiered.offset.enable", "kafka.metrics.polling.interval.secs",
        "kafka.metrics.reporters",
        "leader.imbalance.check.interval.seconds", "leader.imbalance.per.broker.percentage",
        "log.dir", "log.dir.failure.timeout.ms", "log.dirs", "log.initial.task.delay.ms",
        "log.message.downconversion.enable",
        "log.preallocate",
        "log.flush.start.offset.checkpoint.interval.ms",
        "metadata.max.idle.interval.ms", "metadata.max.retention.bytes", "metadata.max.retention.ms",
        "node.id.generation.enable",
        "num.replica.alter.log.dirs.threads", "offset.metadata.max.bytes.per.group",
        "offsets.commit.timeout.ms", "offsets.load.buffer.size",
        "producer.purgatory.purge.interval.requests", "replication.quota.window.num",
        "replication.quota.window.size.seconds", "request.timeout.ms", "server.max.startup.time.ms",
        "transaction.two.phase.commit.enable",
        "unclean.leader.election.interval.ms", "unstable.api.versions.enable",
    )
)  # fmt: skip
