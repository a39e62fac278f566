"""Settings of Apache Kafka that a node does not have, and settings that Kafka has in several units."""

from __future__ import annotations

# Kafka has some times in several units. The finest unit wins; a node keeps milliseconds.
UNITS = {
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.roll.hours": ("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", 3_600_000),
}

KAFKA_PREFIXES_WE_LACK = (
    "authorizer.", "broker.quota.", "controller.", "group.consumer.assignor.", "group.coordinator.", "group.share.",
    "group.streams.", "inter.broker.", "listener.",  "metadata.log.", "metric",
    "password.encoder.", "principal.", "process.", "quota.", "remote.log.", "replica.", "sasl.", "security.",
    "share.", "socket.", "ssl.", "telemetry.", "transaction.state.log.", "offsets.topic.", "zookeeper.",
)  # fmt: skip
"""Groups of Kafka's settings that have no meaning for a single node."""

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
        "log.dir", "log.dir.failure.timeout.ms", "log.dirs", "log.initial.task.delay.ms",
        "log.message.downconversion.enable",
        "log.flush.start.offset.checkpoint.interval.ms",
        "metadata.max.idle.interval.ms", "metadata.max.retention.bytes", "metadata.max.retention.ms",
        "node.id.generation.enable",
        "num.replica.alter.log.dirs.threads", "offset.metadata.max.bytes.per.group",
        "offsets.commit.timeout.ms", "offsets.load.buffer.size",
        "replication.quota.window.num",
        "replication.quota.window.size.seconds", "server.max.startup.time.ms",
        "transaction.two.phase.commit.enable",
        "unclean.leader.election.interval.ms", "unstable.api.versions.enable",
    )
)  # fmt: skip
