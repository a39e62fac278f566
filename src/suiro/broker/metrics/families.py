"""The list of what a node measures: names, labels and meanings. `docs/reference/metrics.md` is made from it.

Where Apache Kafka has a metric, this is its name as the JMX exporter's sample rules give it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

_MICROSECONDS = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric. `scale` is what a histogram's recorded integers are divided by to be in the name's unit."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    doc: str
    scale: float = 1.0


def _table(*rows: tuple[str, Kind, str, str] | tuple[str, Kind, str, str, float]) -> dict[str, Family]:
    return {
        row[0]: Family(
            name=row[0],
            kind=row[1],
            labels=tuple(row[2].split()),
            doc=row[3],
            scale=row[4] if len(row) == 5 else 1.0,
        )
        for row in rows
    }


_REQUEST = "kafka_network_requestmetrics_"
_TOPIC = "kafka_server_brokertopicmetrics_"
_SOCKET = "kafka_server_socket_server_metrics_"
_FETCH_SESSIONS = "kafka_server_fetchsessioncache_"
_OF_CONNECTION = "listener"

FAMILIES: dict[str, Family] = _table(
    # requests, stage by stage
    (_REQUEST + "requests_total", "counter", "request version", "Requests handled."),
    (
        _REQUEST + "errors_total",
        "counter",
        "request error",
        "Answers by their own error code (codes of topics and partitions inside an answer are not counted).",
    ),
    (_REQUEST + "requestbytes", "histogram", "request", "Size of requests in bytes."),
    (
        _REQUEST + "requestqueuetimems",
        "histogram",
        "request",
        "From the last bytes of a request being read until its handler begins.",
        _MICROSECONDS,
    ),
    (_REQUEST + "localtimems", "histogram", "request", "In the handler.", _MICROSECONDS),
    (
        _REQUEST + "remotetimems",
        "histogram",
        "request",
        "In purgatory: from the handler's end until there is an answer.",
        _MICROSECONDS,
    ),
    (
        _REQUEST + "throttletimems",
        "histogram",
        "request",
        "For how long the client is held back by quotas.",
        _MICROSECONDS,
    ),
    (
        _REQUEST + "responsequeuetimems",
        "histogram",
        "request",
        "From there being an answer until its first bytes go out.",
        _MICROSECONDS,
    ),
    (
        _REQUEST + "responsesendtimems",
        "histogram",
        "request",
        "Until the peer's socket has taken the whole answer.",
        _MICROSECONDS,
    ),
    (_REQUEST + "totaltimems", "histogram", "request", "All stages together.", _MICROSECONDS),
    (
        "kafka_network_requestchannel_requestqueuesize",
        "gauge",
        "",
        "Whole requests that were read and not yet handled.",
    ),
    (
        "kafka_network_requestchannel_responsequeuesize",
        "gauge",
        "",
        "Answers that their peers have not taken yet.",
    ),
    (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "gauge",
        "",
        "Share of the time since the last look in which no handler ran, 0..1.",
    ),
    (
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "gauge",
        "delayedoperation",
        "Requests that wait for their answer.",
    ),
    (
        "kafka_server_delayedoperationpurgatory_numdelayedoperations",
        "gauge",
        "delayedoperation",
        "The same: a suiro node keeps none that are done.",
    ),
    # memory and connections
    (
        "kafka_network_socketserver_memorypoolavailable",
        "gauge",
        "",
        "Bytes of queued.max.request.bytes that are free.",
    ),
    (
        "kafka_network_socketserver_memorypoolused",
        "gauge",
        "",
        "Bytes of requests that were read, or are being read, and not yet handled.",
    ),
    (
        "kafka_network_socketserver_expiredconnectionskilledcount",
        "gauge",
        "",
        "Connections closed because their login was over (connections.max.reauth.ms).",
    ),
    (
        "suiro_network_responsebytes",
        "gauge",
        "",
        "Bytes of answers in memory that slow peers have not taken yet (queued.max.response.bytes).",
    ),
    (
        "suiro_network_slowconnectionsclosed_total",
        "counter",
        "",
        "Connections closed because of queued.max.response.bytes.",
    ),
    (
        "suiro_network_stalledconnectionsclosed_total",
        "counter",
        "",
        "Connections closed because queued.max.request.bytes was used up and their requests were not whole.",
    ),
    (
        "suiro_network_unauthenticatedconnections",
        "gauge",
        _OF_CONNECTION,
        "Open connections that have not logged in (max.unauthenticated.connections).",
    ),
    (_SOCKET + "connection_count", "gauge", _OF_CONNECTION, "Open connections."),
    (_SOCKET + "connection_creation_total", "counter", _OF_CONNECTION, "Connections accepted."),
    (_SOCKET + "connection_close_total", "counter", _OF_CONNECTION, "Connections closed."),
    (
        _SOCKET + "connection_refused_total",
        "counter",
        _OF_CONNECTION,
        "Connections closed at once because of a limit. (Not one of Kafka's.)",
    ),
    (_SOCKET + "successful_authentication_total", "counter", _OF_CONNECTION, "Logins, by SASL or TLS."),
    (
        _SOCKET + "failed_authentication_total",
        "counter",
        _OF_CONNECTION,
        "Failed logins and failed TLS handshakes.",
    ),
    (
        _SOCKET + "successful_reauthentication_total",
        "counter",
        _OF_CONNECTION,
        "Logins again on a connection that was logged in.",
    ),
    (_SOCKET + "failed_reauthentication_total", "counter", _OF_CONNECTION, "The same, failed."),
    # topics
    (_TOPIC + "messagesin_total", "counter", "topic", "Records appended."),
    (_TOPIC + "bytesin_total", "counter", "topic", "Bytes of record batches appended."),
    (_TOPIC + "bytesout_total", "counter", "topic", "Bytes of record batches fetched."),
    (_TOPIC + "bytesrejected_total", "counter", "topic", "Bytes of record batches refused for their size."),
    (
        _TOPIC + "totalproducerequests_total",
        "counter",
        "topic",
        "Produce requests that name the topic, per partition.",
    ),
    (
        _TOPIC + "totalfetchrequests_total",
        "counter",
        "topic",
        "Fetch requests that name the topic, per partition.",
    ),
    (
        _TOPIC + "failedproducerequests_total",
        "counter",
        "topic",
        "The same, refused for another reason than size, a broken batch, or a disk that fails.",
    ),
    (
        _TOPIC + "failedfetchrequests_total",
        "counter",
        "topic",
        "The same, failed for another reason than an offset that is not there, or a disk that fails.",
    ),
    # the remote tier
    (_TOPIC + "remotecopyrequests_total", "counter", "topic", "Segments that were begun to be copied."),
    (_TOPIC + "remotecopybytes_total", "counter", "topic", "Bytes of segments copied to the remote store."),
    (_TOPIC + "remotecopyerrors_total", "counter", "topic", "Copies that failed; they are tried again."),
    (
        _TOPIC + "remotefetchrequests_total",
        "counter",
        "topic",
        "Fetches that need records of the remote store, per partition.",
    ),
    (_TOPIC + "remotefetchbytes_total", "counter", "topic", "Bytes of record batches read there for them."),
    (_TOPIC + "remotefetcherrors_total", "counter", "topic", "The same, failed."),
    (_TOPIC + "remotecopylagbytes", "gauge", "topic", "Bytes of closed segments that are not copied yet."),
    (_TOPIC + "remotecopylagsegments", "gauge", "topic", "Their number."),
    (_TOPIC + "remotelogsizebytes", "gauge", "topic", "Bytes of segments in the remote store."),
    # groups, producers, cleaner
    (
        "kafka_server_group_coordinator_metrics_group_count",
        "gauge",
        "protocol",
        "Groups, classic ones and those of KIP-848.",
    ),
    ("kafka_coordinator_group_groupmetadatamanager_numoffsets", "gauge", "", "Committed offsets."),
    ("kafka_server_replicamanager_produceridcount", "gauge", "", "Producers that partitions remember."),
    (
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "gauge",
        "",
        "Compacted partitions that cannot be read, and are left alone until the next start.",
    ),
    # fetch sessions
    (
        _FETCH_SESSIONS + "numincrementalfetchsessions",
        "gauge",
        "",
        "Clients whose fetches name only what changed.",
    ),
    (_FETCH_SESSIONS + "numincrementalfetchpartitionscached", "gauge", "", "Partitions of their sessions."),
    (
        _FETCH_SESSIONS + "incrementalfetchsessionevictions_total",
        "counter",
        "",
        "Sessions that made room for others.",
    ),
    # partitions
    ("kafka_log_log_size", "gauge", "topic partition", "Bytes of a partition's segments on disk."),
    ("kafka_log_log_numlogsegments", "gauge", "topic partition", "Segments of a partition."),
    ("kafka_log_log_logstartoffset", "gauge", "topic partition", "First offset of a partition."),
    (
        "kafka_log_log_logendoffset",
        "gauge",
        "topic partition",
        "Offset that the partition's next record gets.",
    ),
    ("kafka_server_replicamanager_partitioncount", "gauge", "", "Partitions."),
    ("kafka_server_replicamanager_leadercount", "gauge", "", "Partitions that this node leads: all."),
    (
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        "",
        "Always 0: a partition has one replica.",
    ),
    ("kafka_server_replicamanager_offlinereplicacount", "gauge", "", "Partitions whose disk failed."),
    ("kafka_controller_kafkacontroller_activecontrollercount", "gauge", "", "Always 1: the node."),
    ("kafka_controller_kafkacontroller_globaltopiccount", "gauge", "", "Topics."),
    ("kafka_controller_kafkacontroller_globalpartitioncount", "gauge", "", "Partitions."),
    ("kafka_controller_kafkacontroller_offlinepartitionscount", "gauge", "", "The same."),
    ("kafka_server_kafkaserver_brokerstate", "gauge", "", "3: running."),
)
"""Every family by its name. Names that begin with `suiro_` are our own; the rest are Kafka's."""

OF_TOPICS = {
    _TOPIC + "messagesin_total": "messages_in",
    _TOPIC + "bytesin_total": "bytes_in",
    _TOPIC + "bytesout_total": "bytes_out",
    _TOPIC + "bytesrejected_total": "bytes_rejected",
    _TOPIC + "totalproducerequests_total": "produce_requests",
    _TOPIC + "totalfetchrequests_total": "fetch_requests",
    _TOPIC + "failedproducerequests_total": "failed_produce_requests",
    _TOPIC + "failedfetchrequests_total": "failed_fetch_requests",
    _TOPIC + "remotecopyrequests_total": "remote_copy_requests",
    _TOPIC + "remotecopybytes_total": "remote_copy_bytes",
    _TOPIC + "remotecopyerrors_total": "remote_copy_errors",
    _TOPIC + "remotefetchrequests_total": "remote_fetch_requests",
    _TOPIC + "remotefetchbytes_total": "remote_fetch_bytes",
    _TOPIC + "remotefetcherrors_total": "remote_fetch_errors",
}
"""Families whose numbers are fields of `TopicCounts`; the empty topic is the sum over all."""
