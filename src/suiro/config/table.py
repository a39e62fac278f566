"""The table of the node's settings. A field's name is the setting's name with `_` instead of `.`."""

from __future__ import annotations

from dataclasses import dataclass, field

from suiro.config.declare import MAX_DOUBLE, MAX_INT, MAX_LONG, setting, topic_default, without_effect

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OAUTH_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsTable:
    """Every setting of a node. Defaults are Apache Kafka's unless the description gives a reason."""

    node_id: int = setting(1, "This node's id in answers to clients.", low=0)
    auto_create_topics_enable: bool = setting(True, "Create a topic when a client first asks for it.")
    num_partitions: int = setting(1, "Partitions of a topic that is created without a number.", high=10_000)
    delete_topic_enable: bool = setting(True, "Allow DeleteTopics.")
    listeners: str = setting(
        "",
        "Addresses to listen on: `NAME://HOST:PORT,...`; port 0 selects a free port. Empty: the "
        "address of `--listen`. (Kafka PLAINTEXT://:9092.)",
        kind="LIST",
    )
    advertised_listeners: str = setting(
        "", "The addresses that clients get, with the same names. Empty: those of `listeners`.", kind="LIST"
    )
    listener_security_protocol_map: str = setting(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener name.",
    )
    metrics_listen: str = setting("", "`HOST:PORT` of `/metrics` in Prometheus' format; empty: none.", of_kafka=False)
    metrics_otlp_endpoint: str = setting(
        "",
        "URL to which metrics are pushed by OTLP over HTTP; empty: OTEL_EXPORTER_OTLP_ENDPOINT.",
        of_kafka=False,
        sensitive=True,  # it may have a password
    )
    socket_request_max_bytes: int = setting(104_857_600, "Largest request frame.", low=1024)
    socket_request_max_elements: int = setting(
        50_000,
        "Maximum number of topics, partitions and other array elements in one request; a request "
        "with more closes its connection.",
        low=1000,
        dynamic=True,
        of_kafka=False,
    )
    queued_max_requests: int = setting(
        500, "Connections whose next request may be read while one of theirs is being answered."
    )
    queued_max_request_bytes: int = setting(
        536_870_912,
        "Bytes of all requests that were read, or are being read, and are not yet handled. At "
        "this limit, the node reads no further requests. (Kafka -1: no limit.)",
        low=1024,
        high=MAX_LONG,
    )
    queued_max_response_bytes: int = setting(
        268_435_456,
        "Bytes of all responses that slow clients have not read yet. Above it, the slowest connections are closed.",
        low=1024,
        of_kafka=False,
        high=MAX_LONG,
    )
    queued_max_unauthenticated_bytes: int = setting(
        33_554_432,
        "Bytes of requests of all connections that have not logged in. Above it, the connection "
        "with the most is closed.",
        low=1024,
        of_kafka=False,
        high=MAX_LONG,
    )
    max_connections: int = setting(
        10_000,
        "Open client connections; further ones wait to be accepted. If the limit on open files "
        "allows fewer, the node warns at its start. (Kafka has no limit.)",
        dynamic=True,
    )
    max_unauthenticated_connections: int = setting(
        1000,
        "Open connections of one listener that have not logged in or not finished their TLS "
        "handshake. Above it, the oldest connection of the address with the most is closed, once "
        "it is a second old.",
        dynamic=True,
        of_kafka=False,
    )
    max_connections_per_ip: int = setting(
        MAX_INT, "Open connections from one address; further ones are closed.", low=0, dynamic=True
    )
    max_connections_per_ip_overrides: str = setting(
        "", "The same for single addresses: `HOST:COUNT,...`.", dynamic=True
    )
    max_connection_creation_rate: int = setting(
        MAX_INT, "Connections accepted per second; further ones wait.", low=0, dynamic=True
    )
    connections_max_idle_ms: int = setting(600_000, "Close a connection after this idle time.", low=1000, high=MAX_LONG)
    fetch_max_bytes: int = setting(57_671_680, "Maximum bytes of records in one Fetch response.", low=1024)
    fetch_max_wait_ms: int = setting(
        60_000, "Maximum wait of a Fetch, whatever the client requests.", low=0, of_kafka=False
    )
    max_incremental_fetch_session_cache_slots: int = setting(1000, "Incremental fetch sessions (KIP-227).", low=0)
    max_request_partition_size_limit: int = setting(
        2000, "Maximum number of partitions in one response to DescribeTopicPartitions."
    )
    offsets_topic_num_partitions: int = setting(
        4, "Partitions of __consumer_offsets. (Kafka 50: a single node gains nothing from them.)", high=1000
    )
    offsets_retention_minutes: int = setting(10_080, "How long committed offsets of a group without members are kept.")
    offsets_retention_check_interval_ms: int = setting(600_000, "How often that is checked.", high=MAX_LONG)
    offset_metadata_max_bytes: int = setting(4096, "Longest metadata of a committed offset.", low=0, high=32_767)
    group_initial_rebalance_delay_ms: int = setting(
        0, "How long a new group waits for more members. (Kafka 3000; its own sample files set 0.)", low=0
    )
    group_min_session_timeout_ms: int = setting(6000, "Shortest session.timeout.ms of a member.")
    group_max_session_timeout_ms: int = setting(1_800_000, "Longest session.timeout.ms of a member.")
    group_max_size: int = setting(MAX_INT, "Members in one group.")
    group_max_member_bytes: int = setting(
        1_048_576,
        "Maximum size of what a member sends when it joins: the metadata of its protocols, its subscription, its ids.",
        low=4096,
        dynamic=True,
        of_kafka=False,
    )
    group_max_bytes: int = setting(
        16_777_216,
        "The same for all members of one group together, including their assignments.",
        low=4096,
        dynamic=True,
        of_kafka=False,
    )
    group_max_total_bytes: int = setting(
        268_435_456,
        "The same for the members of all groups together.",
        low=4096,
        dynamic=True,
        of_kafka=False,
        high=MAX_LONG,
    )
    group_consumer_max_size: int = setting(MAX_INT, "Members in one group of the new consumer protocol.")
    group_consumer_assignors: str = setting(
        "uniform,range",
        "Server-side assignors; the first is the default.",
        choices=("uniform,range", "range,uniform", "uniform", "range"),
        kind="LIST",
    )
    group_consumer_migration_policy: str = setting(
        "bidirectional",
        "Whether a group with members may go from the classic protocol to the new one, and back.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        600_000, "Maximum time until a subscription by regular expression finds new topics.", low=10_000, high=MAX_LONG
    )
    group_consumer_session_timeout_ms: int = setting(
        45_000, "A member of a consumer group that sends nothing for this time is removed."
    )
    group_consumer_min_session_timeout_ms: int = setting(45_000, "Least consumer.session.timeout.ms of a group.")
    group_consumer_max_session_timeout_ms: int = setting(60_000, "Greatest consumer.session.timeout.ms of a group.")
    group_consumer_heartbeat_interval_ms: int = setting(5000, "How often members of consumer groups send a heartbeat.")
    group_consumer_min_heartbeat_interval_ms: int = setting(5000, "Least consumer.heartbeat.interval.ms of a group.")
    group_consumer_max_heartbeat_interval_ms: int = setting(
        15_000, "Greatest consumer.heartbeat.interval.ms of a group."
    )
    group_consumer_assignment_interval_ms: int = setting(
        1000, "Least time between two assignments of a consumer group.", low=0, dynamic=True
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        0, "Least consumer.assignment.interval.ms of a group.", low=0
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        15_000, "Greatest consumer.assignment.interval.ms of a group.", low=0
    )
    transaction_state_log_num_partitions: int = setting(4, "Partitions of __transaction_state. (Kafka 50.)", high=1000)
    transaction_max_timeout_ms: int = setting(900_000, "Longest transaction.timeout.ms of a producer.")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        1000, "How often the node looks for timed-out transactions. (Kafka 10000.)"
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000, "A transactional id that is unused for this time is removed."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(3_600_000, "How often that is checked.")
    transaction_partition_verification_enable: bool = setting(
        True, "Refuse transactional writes of older clients to partitions they did not add.", dynamic=True
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        "A partition forgets a producer that has written nothing for this time, unless its transaction is open.",
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(600_000, "How often that is checked.")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000, "How often logs are synced to disk. This limits how much a start after a crash scans.", low=100
    )
    log_retention_check_interval_ms: int = setting(300_000, "How often retention is applied.", high=MAX_LONG)

    log_segment_bytes: int = topic_default("segment.bytes", "Size at which a segment is rolled.")
    log_roll_ms: int = topic_default("segment.ms", "Age at which a segment is rolled.")
    log_index_size_max_bytes: int = topic_default(
        "segment.index.bytes", "Size of an index at which a segment is rolled."
    )
    log_index_interval_bytes: int = topic_default("index.interval.bytes", "Bytes of log between two index entries.")
    log_retention_bytes: int = topic_default(
        "retention.bytes", "Keep at most this number of bytes; -1: no limit.", low=-1
    )
    log_retention_ms: int = topic_default("retention.ms", "Keep records for this time; -1: no limit.")
    log_local_retention_bytes: int = topic_default(
        "local.retention.bytes",
        "For a tiered topic: keep at most this number of bytes on this disk; -2: as retention.bytes.",
    )
    log_local_retention_ms: int = topic_default(
        "local.retention.ms", "For a tiered topic: keep records on this disk for this time; -2: as retention.ms."
    )
    message_max_bytes: int = topic_default("max.message.bytes", "Largest record batch.")
    log_message_timestamp_type: str = topic_default(
        "message.timestamp.type",
        "Whether the timestamp of a record is the producer's (CreateTime) or the node's (LogAppendTime).",
    )
    log_cleanup_policy: str = topic_default(
        "cleanup.policy",
        "What happens to old records: delete, compact, or both. Empty: they stay.",
        choices=("delete", "compact", "compact,delete", "delete,compact", ""),
        kind="LIST",
    )
    log_cleaner_delete_retention_ms: int = topic_default(
        "delete.retention.ms", "How long tombstones of a compacted topic are kept."
    )
    log_cleaner_enable: bool = setting(True, "Compact topics whose cleanup.policy contains compact.")
    log_cleaner_threads: int = without_effect(1, "one process cleans one log at a time", low=1, dynamic=True)
    log_cleaner_dedupe_buffer_size: int = setting(
        134_217_728, "Memory for the keys of one cleaning: 24 bytes a key.", low=1_048_576, dynamic=True, high=MAX_LONG
    )
    log_cleaner_io_buffer_size: int = setting(
        524_288, "Bytes that the cleaner reads at a time.", low=1024, dynamic=True, kind="INT"
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9, "Maximum fill level of the memory for keys; a fuller one is slower.", low=0, high=1, dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        MAX_DOUBLE, "Maximum bytes that the cleaner reads and writes per second.", high=MAX_DOUBLE, dynamic=True
    )
    log_cleaner_backoff_ms: int = setting(
        15_000, "How often the cleaner looks for logs to clean.", low=0, dynamic=True, high=MAX_LONG
    )
    log_cleaner_min_cleanable_ratio: float = topic_default(
        "min.cleanable.dirty.ratio", "A log is compacted when this share of its bytes is dirty."
    )
    log_cleaner_max_compaction_lag_ms: int = topic_default(
        "max.compaction.lag.ms", "Maximum time until a record is compacted."
    )
    log_cleaner_min_compaction_lag_ms: int = topic_default(
        "min.compaction.lag.ms", "Minimum time until a record is compacted."
    )
    log_roll_jitter_ms: int = topic_default(
        "segment.jitter.ms", "A segment is rolled earlier by a random time up to this."
    )
    log_message_timestamp_before_max_ms: int = topic_default(
        "message.timestamp.before.max.ms", "How much older than now a record's timestamp may be."
    )
    log_message_timestamp_after_max_ms: int = topic_default(
        "message.timestamp.after.max.ms", "How much later than now a record's timestamp may be."
    )
    log_flush_interval_messages: int = topic_default(
        "flush.messages", "Sync a log to disk after this number of records."
    )
    log_flush_interval_ms: int = topic_default(
        "flush.ms", "Sync a log to disk this time after its last sync; checked every log.flush.scheduler.interval.ms."
    )
    log_flush_scheduler_interval_ms: int = setting(
        MAX_LONG, "How often the node checks log.flush.interval.ms.", high=MAX_LONG
    )
    log_segment_delete_delay_ms: int = topic_default(
        "file.delete.delay.ms", "How long the files of a deleted segment stay."
    )
    compression_type: str = topic_default(
        "compression.type",
        "Codec in which batches are stored; batches with another codec are compressed again. "
        "producer: the codec of the producer.",
    )
    compression_gzip_level: int = topic_default(
        "compression.gzip.level", "Level at which batches are compressed again as gzip."
    )
    compression_lz4_level: int = topic_default("compression.lz4.level", "The same for lz4; 9 is the fast method.")
    compression_zstd_level: int = topic_default("compression.zstd.level", "The same for zstd.")
    min_insync_replicas: int = topic_default(
        "min.insync.replicas", "Replicas that acks=all requires. A single node has one."
    )

    remote_log_storage_system_enable: bool = setting(
        False, "Allow a remote tier for topics, at remote.log.storage.uri."
    )
    remote_log_storage_uri: str = setting(
        "",
        "Where copied segments go: `file:///folder`, or "
        "`s3://bucket/prefix?endpoint_override=host:port&scheme=http&region=...`. Kafka names a Java class.",
        of_kafka=False,
    )
    remote_log_storage_access_key: str = setting(
        "", "Access key of an S3 store; empty: that of the environment.", sensitive=True, of_kafka=False
    )
    remote_log_storage_secret_key: str = setting(
        "", "The secret that belongs to the access key.", sensitive=True, of_kafka=False
    )
    remote_log_manager_task_interval_ms: int = setting(
        30_000, "How often the node looks for segments to copy and to delete.", high=MAX_LONG
    )
    remote_log_manager_copier_thread_pool_size: int = setting(
        4, "Threads that copy and delete segments. (Kafka 10.)", high=1000, dynamic=True
    )
    remote_log_reader_threads: int = setting(10, "Threads that read remote segments.", high=1000, dynamic=True)
    remote_log_manager_task_retry_backoff_ms: int = setting(
        500, "Wait after a failure of the remote store; doubled after each further failure.", high=MAX_LONG
    )
    remote_log_manager_task_retry_backoff_max_ms: int = setting(30_000, "Maximum of this wait.")
    remote_log_manager_copy_max_bytes_per_second: int = setting(
        MAX_LONG, "Maximum bytes per second copied to the remote store.", dynamic=True, high=MAX_LONG
    )
    remote_log_manager_fetch_max_bytes_per_second: int = setting(
        MAX_LONG, "Maximum bytes per second read from the remote store.", dynamic=True, high=MAX_LONG
    )
    remote_log_index_file_cache_total_size_bytes: int = setting(
        67_108_864,
        "Indexes of remote segments kept in memory. (Kafka 1073741824, on disk.)",
        dynamic=True,
        high=MAX_LONG,
    )
    remote_log_chunk_cache_total_size_bytes: int = setting(
        268_435_456, "Records of remote segments kept on this disk.", of_kafka=False, high=MAX_LONG
    )
    remote_log_read_ahead_bytes: int = setting(
        4_194_304, "Bytes per request to the remote store.", low=4096, of_kafka=False
    )
    remote_fetch_max_wait_ms: int = setting(
        500,
        "Maximum wait of a Fetch for the remote store. After it, the response has no records, "
        "and the client repeats the request.",
        dynamic=True,
    )
    remote_list_offsets_request_timeout_ms: int = setting(
        30_000, "Maximum wait of a look-up by time for the remote store.", dynamic=True, high=MAX_LONG
    )

    default_replication_factor: int = setting(
        1, "Replicas of a topic that is created without a number. A single node has one.", high=1, kind="INT"
    )
    offsets_topic_replication_factor: int = setting(
        1, "Replicas of __consumer_offsets. (Kafka 3; a single node has one.)", high=1, kind="SHORT"
    )
    offsets_topic_segment_bytes: int = setting(104_857_600, "segment.bytes of __consumer_offsets at its creation.")
    transaction_state_log_replication_factor: int = setting(
        1, "Replicas of __transaction_state. (Kafka 3; a single node has one.)", high=1, kind="SHORT"
    )
    transaction_state_log_min_isr: int = setting(
        1, "min.insync.replicas of __transaction_state. (Kafka 2.)", high=1, kind="INT"
    )
    transaction_state_log_segment_bytes: int = setting(
        104_857_600, "segment.bytes of __transaction_state at its creation."
    )
    unclean_leader_election_enable: bool = topic_default(
        "unclean.leader.election.enable", "Accepted without effect: the one copy of a partition is its leader."
    )
    log_preallocate: bool = topic_default(
        "preallocate", "Accepted without effect: segment files grow as they are written."
    )
    background_threads: int = without_effect(10, "one thread serves all", low=1, dynamic=True)
    num_io_threads: int = without_effect(8, "one thread serves all", low=1, dynamic=True)
    num_network_threads: int = without_effect(3, "one thread serves all", low=1, dynamic=True)
    num_recovery_threads_per_data_dir: int = without_effect(2, "one thread recovers all logs", low=1, dynamic=True)
    num_replica_fetchers: int = without_effect(1, "a single node has no replicas", dynamic=True)
    replica_lag_time_max_ms: int = without_effect(30_000, "a single node has no replicas", kind="LONG")
    replica_fetch_max_bytes: int = without_effect(1_048_576, "a single node has no replicas", low=0)
    replica_socket_timeout_ms: int = without_effect(30_000, "a single node has no replicas")
    auto_leader_rebalance_enable: bool = without_effect(True, "the one node leads every partition")
    leader_imbalance_check_interval_seconds: int = without_effect(
        300, "the one node leads every partition", kind="LONG"
    )
    leader_imbalance_per_broker_percentage: int = without_effect(10, "the one node leads every partition")
    controlled_shutdown_enable: bool = without_effect(True, "no other broker can take over partitions")
    broker_heartbeat_interval_ms: int = without_effect(2000, "the node is its own controller", low=1)
    broker_session_timeout_ms: int = without_effect(9000, "the node is its own controller", low=1)
    initial_broker_registration_timeout_ms: int = without_effect(60_000, "the node is its own controller")
    request_timeout_ms: int = without_effect(30_000, "the node sends no requests", low=1)
    fetch_purgatory_purge_interval_requests: int = without_effect(1000, "a request leaves when it is answered")
    producer_purgatory_purge_interval_requests: int = without_effect(1000, "a request leaves when it is answered")

    authorizer_class_name: str = setting(
        "",
        "Kafka's StandardAuthorizer enables ACLs; empty: every client may do everything.",
        choices=("", STANDARD_AUTHORIZER),
    )
    super_users: str = setting("", "Principals that may do everything: `User:a;User:b`.", verbatim=True)
    allow_everyone_if_no_acl_found: bool = setting(
        False, "With ACLs: allow every client to use resources without any ACL."
    )
    sasl_enabled_mechanisms: str = setting(
        "PLAIN", "SASL mechanisms for clients. (Kafka GSSAPI, which a node does not have.)", kind="LIST", dynamic=True
    )
    sasl_jaas_config: str = setting(
        "",
        "Kafka's JAAS line of a mechanism; preferably set for one listener and mechanism.",
        sensitive=True,
        dynamic=True,
    )
    sasl_server_callback_handler_class: str = setting(
        "", "Kafka's validator of OAUTHBEARER tokens; accepted, but a node needs none.", choices=("", OAUTH_VALIDATOR)
    )
    sasl_server_max_receive_size: int = setting(524_288, "Largest request of a connection that has not logged in yet.")
    connections_max_reauth_ms: int = setting(
        0, "How long a login is valid; then the client must log in again. 0: no limit.", low=0, high=MAX_LONG
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, "Delay until a failed login is answered and its connection closed.", low=0
    )
    connection_authentication_timeout_ms: int = setting(
        30_000,
        "Time after which a connection without a login, or with an unfinished TLS handshake, is closed.",
        low=100,
        dynamic=True,
        of_kafka=False,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "", "`file://` URL of the JSON Web Key Set whose keys sign the tokens.", verbatim=True
    )
    sasl_oauthbearer_expected_audience: str = setting("", "Audiences; a token must have one of them.", kind="LIST")
    sasl_oauthbearer_expected_issuer: str = setting("", "Issuer that a token must have.")
    sasl_oauthbearer_scope_claim_name: str = setting("scope", "The claim that holds a token's scope.")
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "The claim that holds the user's name.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(30, "Tolerance for the clock of the token issuer.", low=0)
    ssl_keystore_type: str = setting("PEM", "Format of the node's key and certificates. (Kafka JKS.)", dynamic=True)
    ssl_keystore_location: str = setting(
        "", "PEM file with the node's private key and its certificate chain.", dynamic=True
    )
    ssl_keystore_password: str = setting(
        "", "Not used with PEM, whose key has its own (ssl.key.password).", sensitive=True, dynamic=True
    )
    ssl_keystore_key: str = setting("", "The private key itself, PEM, PKCS#8.", dynamic=True, sensitive=True)
    ssl_keystore_certificate_chain: str = setting("", "The certificate chain itself, PEM.", dynamic=True, verbatim=True)
    ssl_key_password: str = setting("", "Password of the private key, if it has one.", dynamic=True, sensitive=True)
    ssl_truststore_type: str = setting("PEM", "Format of the certificates trusted. (Kafka JKS.)", dynamic=True)
    ssl_truststore_location: str = setting(
        "", "PEM file with the certificates that sign clients' certificates.", dynamic=True
    )
    ssl_truststore_password: str = setting("", "Not for PEM.", sensitive=True, dynamic=True)
    ssl_truststore_certificates: str = setting("", "Those certificates themselves, PEM.", dynamic=True, verbatim=True)
    ssl_client_auth: str = setting(
        "none",
        "Whether clients must show a certificate. With SASL_SSL only what is set for the listener itself counts.",
        choices=("none", "requested", "required"),
        dynamic=True,
    )
    ssl_enabled_protocols: str = setting("TLSv1.2,TLSv1.3", "Versions of TLS.", kind="LIST", dynamic=True)
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT",
        "How the name in a client's certificate becomes a principal: `RULE:PATTERN/REPLACEMENT/[LU]`, DEFAULT.",
        verbatim=True,
    )
    quota_window_num: int = setting(11, "Samples over which a client's rate is measured.", high=1000)
    quota_window_size_seconds: int = setting(1, "Length of one of those samples.")
    controller_quota_window_num: int = setting(
        11, "Samples that a burst of topic changes may use up at once.", high=1000
    )
    controller_quota_window_size_seconds: int = setting(1, "Length of one of those samples.")

    listener_settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What is set for one listener only: `listener.name.NAME.` or `listener.name.NAME.MECHANISM.` in front of a
    setting's name, in small letters. Not a setting itself; `for_listener` applies it."""
