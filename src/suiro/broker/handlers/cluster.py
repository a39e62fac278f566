"""The cluster of one node: ApiVersions, DescribeCluster, DescribeQuorum, UpdateFeatures and UnregisterBroker.

There is no log of metadata behind the quorum, so its end and high watermark are the count of what administrators
changed in features: it never goes back, and nobody lags.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

from suiro.broker.apis import API_VERSIONS_KEY, APIS
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Answer, Exchange, build
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation
from suiro.broker.settings.features import SUPPORTED, FeatureUpdate, InvalidUpdateError, UpdateType
from suiro.broker.storage.topics import METADATA_TOPIC
from suiro.config import read_properties
from suiro.log import StorageError
from suiro.log.checkpoints import id_from_text
from suiro.protocol import messages
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
    from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
    from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest
    from kio.schema.update_features.v2.request import UpdateFeaturesRequest

_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_TOLD_FROM = {0: 0}
"""Produce is told from version 0 on although it is served from 3: librdkafka asks for it (KIP-896)."""
_BROKERS, _CONTROLLERS = 1, 2  # the types of endpoint that a client may mean
_CONTROLLER = "CONTROLLER"


def api_versions(exchange: Exchange, request: ApiVersionsRequest) -> Answer:
    """ApiVersions: the APIs and versions of this node, and the features that its cluster has enabled."""
    if exchange.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_LEGAL_SOFTWARE.fullmatch(name) for name in names):
            raise RefusedError(ErrorCode.invalid_request)
    return exchange.response(
        api_keys=[
            {
                "api_key": api.key,
                "min_version": _TOLD_FROM.get(api.key, api.min_version),
                "max_version": api.max_version,
            }
            for api in APIS.values()
        ],
        supported_features=[
            {"name": name, "min_version": low, "max_version": high}
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or exchange.version >= 4  # older clients fail at a lowest level of 0 (KAFKA-17011)
        ],
        finalized_features_epoch=exchange.broker.features.epoch,
        finalized_features=[
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in exchange.broker.features.finalized.items()
            if level > 0
        ],
    )


def unsupported_version() -> Any:
    """The answer to a version that we do not know: version 0, and only what ApiVersions itself has (KIP-511)."""
    api = APIS[API_VERSIONS_KEY]
    known = {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
    fields = {"error_code": ErrorCode.unsupported_version, "api_keys": [known]}
    return build(messages.response_class(API_VERSIONS_KEY, 0), fields)


def describe_cluster(exchange: Exchange, request: DescribeClusterRequest) -> Answer:
    """DescribeCluster: one node, and it is its own controller."""
    broker = exchange.broker
    wanted = getattr(request, "endpoint_type", _BROKERS)
    if wanted == _CONTROLLERS:
        raise RefusedError(
            ErrorCode.mismatched_endpoint_type,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if wanted != _BROKERS:
        raise RefusedError(ErrorCode.unsupported_endpoint_type, f"Unsupported endpoint type {wanted}")
    host, port = broker.advertised(exchange.connection)
    return exchange.response(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[{"broker_id": broker.node_id, "host": host, "port": port}],
        cluster_authorized_operations=exchange.cluster_operations(asked=request.include_cluster_authorized_operations),
    )


def describe_quorum(exchange: Exchange, request: DescribeQuorumRequest) -> Answer:
    """DescribeQuorum: the node is a quorum of one, its own leader and only voter."""
    exchange.check_on_cluster(Operation.DESCRIBE)
    wanted = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions]) for topic in request.topics
    ]
    broker = exchange.broker
    found: dict[str, Any] = {
        "error_code": ErrorCode.unknown_topic_or_partition,
        "error_message": "This server does not host this topic-partition.",
    }
    nodes = []
    if wanted == [(METADATA_TOPIC, [0])]:
        now, end = broker.clock.wall_ms(), broker.features.epoch
        me = {
            "replica_id": broker.node_id,
            "replica_directory_id": _directory_id(broker),
            "log_end_offset": end,
            "last_fetch_timestamp": now,
            "last_caught_up_timestamp": now,
        }
        found = {
            "error_message": "",
            "leader_id": broker.node_id,
            "leader_epoch": 1,
            "high_watermark": end,
            "current_voters": [me],
        }
        host, port = broker.advertised(exchange.connection)
        nodes = [{"node_id": broker.node_id, "listeners": [{"name": _CONTROLLER, "host": host, "port": port}]}]
    return exchange.response(
        error_message="",
        topics=[
            {"topic_name": name, "partitions": [{"partition_index": index, **found} for index in partitions]}
            for name, partitions in wanted
        ],
        nodes=nodes,
    )


def _directory_id(broker: BrokerContext) -> UUID | None:
    """The data directory's own id, as in Kafka; None if a Kafka before 3.7 made the directory, without an id."""
    found = read_properties(broker.data / "meta.properties").get("directory.id")
    return id_from_text(found) if found else None


def update_features(exchange: Exchange, request: UpdateFeaturesRequest) -> Answer:
    """UpdateFeatures: finalizes the levels of features, all features of a request or none."""
    exchange.check_on_cluster(Operation.ALTER)
    # Version 0 has a flag that allows downgrades; Kafka ignores it too.
    updates = [
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            update.upgrade_type if exchange.version >= 1 else UpdateType.UPGRADE,
        )
        for update in request.feature_updates
    ]
    try:
        exchange.broker.features.update(updates, validate_only=getattr(request, "validate_only", False))
    except InvalidUpdateError as error:
        message = f"The update failed for all features since the following feature had an error: {error}"
        raise RefusedError(ErrorCode.invalid_update_version, message) from None
    except StorageError as error:
        raise RefusedError(error.code, str(error)) from None
    # "NONE" is Kafka's word for no error, in this place.
    done = [{"feature": update.name, "error_message": "NONE"} for update in updates]
    return exchange.response(results=done if exchange.version <= 1 else [])


def unregister_broker(exchange: Exchange, request: UnregisterBrokerRequest) -> Answer:
    """UnregisterBroker: is refused, because the node is the only broker (Apache Kafka removes its only broker until its
    next start)."""
    exchange.check_on_cluster(Operation.ALTER)
    if request.broker_id == exchange.broker.node_id:
        raise RefusedError(ErrorCode.invalid_request, f"Node {request.broker_id} is this cluster's only one.")
    raise RefusedError(ErrorCode.broker_id_not_registered, f"Broker ID {request.broker_id} is not currently registered")
