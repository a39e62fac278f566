"""The list of what a node measures: names, labels and meanings. `docs/reference/metrics.md` is made from it.

Where Apache Kafka has a metric, this is its name as the JMX exporter's sample rules give it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

_MICROSECONDS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric. A histogram's recorded integers are divided by `scale` to be in the name's unit. `field` is that of
    `TopicCounts` with the numbers."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    scale: float = 1.0
    field: str | None = None


def _counter(doc: str, *labels: str) -> partial[Family]:
    return partial(Family, kind="counter", labels=labels, doc=doc)


def _gauge(doc: str, *labels: str) -> partial[Family]:
    return partial(Family, kind="gauge", labels=labels, doc=doc)


def _of_request(doc: str, *, scale: float = _MICROSECONDS) -> partial[Family]:
    return partial(Family, kind="histogram", labels=("request",), doc=doc, scale=scale)


def _of_topic(field: str, doc: str) -> partial[Family]:
    return partial(Family, kind="counter", labels=("topic",), doc=doc, field=field)


_REQUEST = "kafka_network_requestmetrics_"
_TOPIC = "kafka_server_brokertopicmetrics_"
_SOCKET = "kafka_server_socket_server_metrics_"
_FETCH_SESSIONS = "kafka_server_fetchsessioncache_"
_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"

_ROWS: dict[str, partial[Family]] = {
    # requests, stage by stage
    _REQUEST + "requests_total": _counter("Requests handled.", "request", "version"),
    _REQUEST + "errors_total": _counter(
        "Answers by their own error code (codes of topics and partitions inside an answer are not counted).",
        "request",
        "error",
    ),
    _REQUEST + "requestbytes": _of_request("Size of requests in bytes.", scale=1.0),
    _REQUEST + "requestqueuetimems": _of_request(
        "From the last bytes of a request being read until its handler begins."
    ),
    _REQUEST + "localtimems": _of_request("In the handler."),
    _REQUEST + "remotetimems": _of_request("In purgatory: from the handler's end until there is an answer."),
    _REQUEST + "throttletimems": _of_request("For how long the client is held back by quotas."),
    _REQUEST + "responsequeuetimems": _of_request("From there being an answer until its first bytes go out."),
    _REQUEST + "responsesendtimems": _of_request("Until the peer's socket has taken the whole answer."),
    _REQUEST + "totaltimems": _of_request("All stages together."),
    "kafka_network_requestchannel_requestqueuesize": _gauge("Whole requests that were read and not yet handled."),
    "kafka_network_requestchannel_responsequeuesize": _gauge("Answers that their peers have not taken yet."),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": _gauge(
        "Share of the time since the last look in which no handler ran, 0..1."
    ),
    "kafka_server_delayedoperationpurgatory_purgatorysize": _gauge(
        "Requests that wait for their answer.", "delayedoperation"
    ),
    "kafka_server_delayedoperationpurgatory_numdelayedoperations": _gauge(
        "The same: a suiro node keeps none that are done.", "delayedoperation"
    ),
    # memory and connections
    "kafka_network_socketserver_memorypoolavailable": _gauge("Bytes of queued.max.request.bytes that are free."),
    "kafka_network_socketserver_memorypoolused": _gauge(
        "Bytes of requests that were read, or are being read, and not yet handled."
    ),
    "kafka_network_socketserver_expiredconnectionskilledcount": _gauge(
        "Connections closed because their login was over (connections.max.reauth.ms)."
    ),
    "suiro_network_responsebytes": _gauge(
        "Bytes of answers in memory that slow peers have not taken yet (queued.max.response.bytes)."
    ),
    "suiro_network_slowconnectionsclosed_total": _counter("Connections closed because of queued.max.response.bytes."),
    "suiro_network_stalledconnectionsclosed_total": _counter(
        "Connections closed because queued.max.request.bytes was used up and their requests had not begun."
    ),
    "suiro_network_unauthenticatedconnections": _gauge(
        "Open connections that have not logged in (max.unauthenticated.connections).", "listener"
    ),
    _SOCKET + "connection_count": _gauge("Open connections.", "listener"),
    _SOCKET + "connection_creation_total": _counter("Connections accepted.", "listener"),
    _SOCKET + "connection_close_total": _counter("Connections closed.", "listener"),
    _SOCKET + "connection_refused_total": _counter(
        "Connections closed at once because of a limit. (Not one of Kafka's.)", "listener"
    ),
    _SOCKET + "successful_authentication_total": _counter("Logins, by SASL or TLS.", "listener"),
    _SOCKET + "failed_authentication_total": _counter("Failed logins and failed TLS handshakes.", "listener"),
    _SOCKET + "successful_reauthentication_total": _counter(
        "Logins again on a connection that was logged in.", "listener"
    ),
    _SOCKET + "failed_reauthentication_total": _counter("The same, failed.", "listener"),
    # topics
    _TOPIC + "messagesin_total": _of_topic("messages_in", "Records appended."),
    _TOPIC + "bytesin_total": _of_topic("bytes_in", "Bytes of record batches appended."),
    _TOPIC + "bytesout_total": _of_topic("bytes_out", "Bytes of record batches fetched."),
    _TOPIC + "bytesrejected_total": _of_topic("bytes_rejected", "Bytes of record batches refused for their size."),
    _TOPIC + "totalproducerequests_total": _of_topic(
        "produce_requests", "Produce requests that name the topic, per partition."
    ),
    _TOPIC + "totalfetchrequests_total": _of_topic(
        "fetch_requests", "Fetch requests that name the topic, per partition."
    ),
    _TOPIC + "failedproducerequests_total": _of_topic(
        "failed_produce_requests",
        "The same, refused for another reason than size, a broken batch, or a disk that fails.",
    ),
    _TOPIC + "failedfetchrequests_total": _of_topic(
        "failed_fetch_requests",
        "The same, failed for another reason than an offset that is not there, or a disk that fails.",
    ),
    # the remote tier
    _TOPIC + "remotecopyrequests_total": _of_topic("remote_copy_requests", "Segments that were begun to be copied."),
    _TOPIC + "remotecopybytes_total": _of_topic("remote_copy_bytes", "Bytes of segments copied to the remote store."),
    _TOPIC + "remotecopyerrors_total": _of_topic("remote_copy_errors", "Copies that failed; they are tried again."),
    _TOPIC + "remotefetchrequests_total": _of_topic(
        "remote_fetch_requests", "Fetches that need records of the remote store, per partition."
    ),
    _TOPIC + "remotefetchbytes_total": _of_topic("remote_fetch_bytes", "Bytes of record batches read there for them."),
    _TOPIC + "remotefetcherrors_total": _of_topic("remote_fetch_errors", "The same, failed."),
    _TOPIC + "remotecopylagbytes": _gauge("Bytes of closed segments that are not copied yet.", "topic"),
    _TOPIC + "remotecopylagsegments": _gauge("Their number.", "topic"),
    _TOPIC + "remotelogsizebytes": _gauge("Bytes of segments in the remote store.", "topic"),
    # groups, producers, cleaner
    "kafka_server_group_coordinator_metrics_group_count": _gauge(
        "Groups, classic ones and those of KIP-848.", "protocol"
    ),
    "kafka_coordinator_group_groupmetadatamanager_numoffsets": _gauge("Committed offsets."),
    "kafka_consumergroup_lag": _gauge(
        "Offsets between what a group has committed and the end of the partition, of 10,000 partitions at most, and of "
        "groups whose ids have at most 300 characters. (Not one of Kafka's: the name is that of the usual exporters.)",
        "consumergroup",
        "topic",
        "partition",
    ),
    _REPLICAS + "produceridcount": _gauge("Producers that partitions remember."),
    "kafka_log_logcleanermanager_uncleanable_partitions_count": _gauge(
        "Compacted partitions that cannot be read, and are left alone until the next start."
    ),
    # fetch sessions
    _FETCH_SESSIONS + "numincrementalfetchsessions": _gauge("Clients whose fetches name only what changed."),
    _FETCH_SESSIONS + "numincrementalfetchpartitionscached": _gauge("Partitions of their sessions."),
    _FETCH_SESSIONS + "incrementalfetchsessionevictions_total": _counter("Sessions that made room for others."),
    # partitions
    "kafka_log_log_size": _gauge("Bytes of a partition's segments on disk.", "topic", "partition"),
    "kafka_log_log_numlogsegments": _gauge("Segments of a partition.", "topic", "partition"),
    "kafka_log_log_logstartoffset": _gauge("First offset of a partition.", "topic", "partition"),
    "kafka_log_log_logendoffset": _gauge("Offset that the partition's next record gets.", "topic", "partition"),
    _REPLICAS + "partitioncount": _gauge("Partitions."),
    _REPLICAS + "leadercount": _gauge("Partitions that this node leads: all."),
    _REPLICAS + "underreplicatedpartitions": _gauge("Always 0: a partition has one replica."),
    _REPLICAS + "offlinereplicacount": _gauge("Partitions whose disk failed."),
    _CONTROLLER + "activecontrollercount": _gauge("Always 1: the node."),
    _CONTROLLER + "globaltopiccount": _gauge("Topics."),
    _CONTROLLER + "globalpartitioncount": _gauge("Partitions."),
    _CONTROLLER + "offlinepartitionscount": _gauge("The same."),
    "kafka_server_kafkaserver_brokerstate": _gauge("3: running."),
}

FAMILIES = {name: row(name=name) for name, row in _ROWS.items()}
"""Every family by its name. Names that begin with `suiro_` are our own; the rest are Kafka's."""

OF_TOPICS = {name: family.field for name, family in FAMILIES.items() if family.field is not None}
"""Families whose numbers are fields of `TopicCounts`; the empty topic is the sum over all."""
