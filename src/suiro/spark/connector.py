"""How the options of Spark's Kafka connector are treated, and the settings of Kafka's Java clients behind
`kafka.`: each is supported, taken without effect, or refused by name. One table; the reference is made from it.

A job moves over by changing its format name. So what has no meaning here but does no harm is taken; what would change
the outcome if it were passed over in silence is refused, and the refusal says what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from suiro.errors import ConfigError

_log = logging.getLogger(__name__)


class Fate(StrEnum):
    SUPPORTED = "supported"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`side`: "read", "write" or "both". `note`: for the reference, and the end of a refusal."""

    name: str
    side: str
    fate: Fate
    note: str


def _entries(side: str, fate: Fate, notes: Mapping[str, str]) -> list[Entry]:
    return [
        Entry(name=name, side=side, fate=fate, note=note) for names, note in notes.items() for name in names.split()
    ]


OPTIONS: tuple[Entry, ...] = (
    *_entries(
        "both",
        Fate.SUPPORTED,
        {"kafka.bootstrap.servers": "required", "kafka.*": "settings of the client, see below"},
    ),
    *_entries(
        "read",
        Fate.SUPPORTED,
        {
            "subscribe subscribePattern assign": "exactly one of the three; new partitions, and new topics that match, "
            "are read from their beginning",
            "startingOffsets endingOffsets": "`earliest`, `latest` or JSON; `ending...` for batches only",
            "startingTimestamp endingTimestamp": "milliseconds",
            "startingOffsetsByTimestamp endingOffsetsByTimestamp": "JSON, milliseconds for each partition",
            "startingOffsetsByTimestampStrategy": "`error`, the default, or `latest`: what to do where no record is as "
            "young as the time",
            "failOnDataLoss": "default `true`",
            "maxOffsetsPerTrigger": "shared out over the partitions by their lag",
            "minOffsetsPerTrigger maxTriggerDelay": "a micro-batch waits for so many offsets, but no longer than this "
            "(default 15m); `Trigger.AvailableNow` does not wait",
            "minPartitions maxRecordsPerPartition": "ranges are cut into more Spark tasks",
            "includeHeaders": "default `false`",
            "kafka.group.id": "a stream commits its progress there after each micro-batch, for tools that show lag; "
            "it joins no group. With suiro's sink the offsets are in the group `application.id` anyway",
            "kafka.isolation.level": "`read_committed` is the default, the connector's is `read_uncommitted`; a "
            "stream takes no other",
        },
    ),
    *_entries(
        "read",
        Fate.NO_EFFECT,
        {
            "kafkaConsumer.pollTimeoutMs": "a stream waits while the log is unavailable; "
            "`kafka.default.api.timeout.ms`, if given, limits the wait",
            "fetchOffset.numRetries fetchOffset.retryIntervalMs": "every request is repeated, with "
            "`kafka.retry.backoff.ms` in between",
            "groupIdPrefix": "no group is joined, so none needs a name",
        },
    ),
    *_entries("write", Fate.SUPPORTED, {"topic": "for every row; otherwise the column `topic`"}),
)

_OWN_SERDES = "keys and values are binary columns; cast them or use from_avro in the query"
_ONE_PRODUCER = "the sink names and numbers its transactions itself, by application.id"

_OAUTHBEARER = (
    "token.endpoint.url scope.claim.name sub.claim.name scope expected.audience expected.issuer "
    "clock.skew.seconds header.urlencode client.credentials.client.id "
    "client.credentials.client.secret jwks.endpoint.url jwks.endpoint.refresh.ms "
    "jwks.endpoint.retry.backoff.ms jwks.endpoint.retry.backoff.max.ms jwt.retriever.class "
    "jwt.validator.class assertion.algorithm assertion.file assertion.template.file "
    "assertion.private.key.file assertion.private.key.passphrase assertion.claim.aud "
    "assertion.claim.exp.seconds assertion.claim.iss assertion.claim.jti.include "
    "assertion.claim.nbf.seconds assertion.claim.sub"
)

SETTINGS: tuple[Entry, ...] = (
    *_entries(
        "both",
        Fate.SUPPORTED,
        {
            "default.api.timeout.ms": "as in Kafka; for the source of a stream, it also limits the wait for an "
            "unavailable log, which has no limit by default",
            "client.id request.timeout.ms retry.backoff.ms retry.backoff.max.ms "
            "socket.connection.setup.timeout.ms send.buffer.bytes receive.buffer.bytes": "as in Kafka",
            "fetch.from.files": "suiro's own; `true`, the default: a node on the task's machine names its log's files, "
            "and they are mapped",
            "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
            "sasl.jaas.config": "user name and password are taken out of it",
            "sasl.username sasl.password": "as librdkafka has them, instead of `sasl.jaas.config`",
            "ssl.endpoint.identification.algorithm": "`https` or empty",
            "ssl.truststore.location ssl.keystore.location": "PEM files, together with the type `PEM`",
            "ssl.truststore.type ssl.keystore.type": "`PEM`",
            "ssl.key.password": "of the key in the PEM file",
            "ssl.ca.location ssl.certificate.location ssl.key.location": "as librdkafka has them",
        },
    ),
    *_entries(
        "write",
        Fate.SUPPORTED,
        {
            "acks": "`all`, anything else is refused",
            "enable.idempotence": "`true`, anything else is refused",
            "compression.type": "`none`, the default, `gzip`, `snappy`, `lz4`, `zstd`",
            "batch.size": "most bytes of one record batch, default 900,000",
            "transaction.timeout.ms": "how long a transaction may stay open",
            "delivery.timeout.ms": "as in Kafka; for the sink of a stream, it also limits the wait for an unavailable "
            "log, which has no limit by default",
            "max.request.size buffer.memory max.in.flight.requests.per.connection": "as in Kafka",
        },
    ),
    *_entries(
        "both",
        Fate.NO_EFFECT,
        {
            "connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms "
            "socket.connection.setup.timeout.max.ms client.dns.lookup metadata.max.age.ms "
            "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms": "the client looks again by itself",
            "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms "
            "enable.metrics.push auto.include.jmx.reporter": "metrics are Spark's",
            "ssl.protocol ssl.enabled.protocols ssl.cipher.suites ssl.provider ssl.secure.random.implementation "
            "ssl.keymanager.algorithm ssl.trustmanager.algorithm security.providers": "Python's TLS chooses",
            "sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds "
            "sasl.login.refresh.buffer.seconds sasl.login.connect.timeout.ms sasl.login.read.timeout.ms "
            "sasl.login.retry.backoff.ms sasl.login.retry.backoff.max.ms": "nothing to refresh or fetch with PLAIN and "
            "SCRAM",
        },
    ),
    *_entries(
        "read",
        Fate.NO_EFFECT,
        {
            "fetch.min.bytes fetch.max.wait.ms fetch.max.bytes max.partition.fetch.bytes max.poll.records "
            "max.poll.interval.ms": "a task knows its range and fetches it; `maxFetchBytes` is one fetch's size",
            "session.timeout.ms heartbeat.interval.ms group.instance.id partition.assignment.strategy "
            "group.protocol group.remote.assignor auto.commit.interval.ms exclude.internal.topics "
            "allow.auto.create.topics": "no group is joined, no topic created",
            "check.crcs": "checksums are always checked",
            "client.rack": "the leader is read",
        },
    ),
    *_entries(
        "write",
        Fate.NO_EFFECT,
        {
            "linger.ms retries max.block.ms partitioner.ignore.keys partitioner.adaptive.partitioning.enable "
            "partitioner.availability.timeout.ms metadata.max.idle.ms": "a micro-batch's records are all there when it "
            "is sent",
            "compression.gzip.level compression.lz4.level compression.zstd.level": "the codec's own default level",
            "transaction.two.phase.commit.enable": "not needed for exactly once",
        },
    ),
    *_entries(
        "read",
        Fate.REFUSED,
        {
            "auto.offset.reset": "say startingOffsets, as with Spark's connector",
            "enable.auto.commit": "progress is committed with the micro-batch, as with Spark's connector",
            "key.deserializer value.deserializer": _OWN_SERDES,
        },
    ),
    *_entries(
        "write",
        Fate.REFUSED,
        {
            "transactional.id": _ONE_PRODUCER,
            "key.serializer value.serializer": _OWN_SERDES,
            "partitioner.class": "give the query a column partition",
        },
    ),
    *_entries(
        "both",
        Fate.REFUSED,
        {
            "interceptor.classes": "no Java runs here; do it in the query, as with Spark's connector",
            "sasl.kerberos.service.name sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.window.factor "
            "sasl.kerberos.ticket.renew.jitter sasl.kerberos.min.time.before.relogin": "no Kerberos: use SCRAM, or "
            "TLS with a client certificate",
            "sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class": "no Java runs "
            "here: use PLAIN or SCRAM, or TLS with a client certificate",
            " ".join(
                f"sasl.oauthbearer.{name}" for name in _OAUTHBEARER.split()
            ): "the client has no OAUTHBEARER: use SCRAM, or TLS with a client certificate",
            "config.providers": "no Java runs here: give the value itself, read by the program that makes the query",
            "ssl.engine.factory.class": "no Java runs here: give PEM files",
            "ssl.truststore.certificates ssl.keystore.certificate.chain ssl.keystore.key": "write the PEM text to a "
            "file that driver and tasks can read, and give ssl.truststore.location or ssl.keystore.location",
            "ssl.truststore.password ssl.keystore.password": "a PEM file has no password; that of its key is "
            "ssl.key.password. Convert Java's stores with `keytool -importkeystore -deststoretype pkcs12` and "
            "`openssl pkcs12`",
        },
    ),
)

_BY_NAME = {entry.name: entry for entry in SETTINGS}
_PEM_CURE = (
    "only PEM is read: turn the store into a PEM file (`keytool -importkeystore -deststoretype pkcs12`, then "
    "`openssl pkcs12`) and give ssl.{store}.type=PEM"
)


def client_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """The settings for `suiro.client`, from settings without `kafka.`. Raises `ConfigError` for a refused one.

    A name that is not in the table is passed on. The client refuses it and names the nearest that it knows.
    """
    kept: dict[str, str] = {}
    for name, value in kafka.items():
        entry = _BY_NAME.get(name)
        fate = Fate.SUPPORTED if entry is None else entry.fate
        if fate is Fate.REFUSED:
            assert entry is not None
            raise ConfigError(f"option kafka.{name} cannot be carried over: {entry.note}")
        if fate is Fate.NO_EFFECT:
            _log.info("option kafka.%s has no effect in format suiro", name)
        else:
            kept[name] = value
    return _with_pem_files(kept)


def _with_pem_files(settings: dict[str, str]) -> dict[str, str]:
    """Java's names for stores to librdkafka's for files. One PEM file holds certificate and key."""
    for store, files in (
        ("truststore", ("ssl.ca.location",)),
        ("keystore", ("ssl.certificate.location", "ssl.key.location")),
    ):
        location = settings.pop(f"ssl.{store}.location", None)
        kind = settings.pop(f"ssl.{store}.type", "JKS")
        if location is None:
            continue
        if kind.upper() != "PEM":
            raise ConfigError(
                f"option kafka.ssl.{store}.location: {location!r} is a store of type {kind}; "
                + _PEM_CURE.format(store=store)
            )
        for file in files:
            settings.setdefault(file, location)
    return settings
