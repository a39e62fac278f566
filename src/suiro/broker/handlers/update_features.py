"""UpdateFeatures: finalizes the levels of features, all features of a request or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer, Response
from suiro.broker.exchange import Exchange
from suiro.broker.security.acl import Operation
from suiro.broker.settings.features import FeatureUpdate, InvalidUpdateError, UpdateType
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.update_features.v2.request import UpdateFeaturesRequest


def handle(exchange: Exchange, request: UpdateFeaturesRequest) -> Answer:
    if not exchange.may_on_cluster(Operation.ALTER):
        return _answer(exchange, ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
    updates = [
        FeatureUpdate(
            name=update.feature,
            level=update.max_version_level,
            # Version 0 has a flag that allows downgrades; Kafka ignores it too.
            update_type=update.upgrade_type if exchange.version >= 1 else UpdateType.UPGRADE,
        )
        for update in request.feature_updates
    ]
    try:
        exchange.broker.features.update(updates, validate_only=getattr(request, "validate_only", False))
    except InvalidUpdateError as error:
        message = f"The update failed for all features since the following feature had an error: {error}"
        return _answer(exchange, ErrorCode.invalid_update_version, message)
    except StorageError as error:
        return _answer(exchange, error.code, str(error))
    return _answer(exchange, ErrorCode.none, None, updates)


def _answer(
    exchange: Exchange, code: ErrorCode, message: str | None, updates: list[FeatureUpdate] | None = None
) -> Response:
    results = ()
    if exchange.version <= 1:
        results = tuple(
            exchange.make(
                "UpdatableFeatureResult",
                feature=update.name,
                error_code=ErrorCode.none,
                error_message="NONE",  # Kafka's word for no error, in this place
            )
            for update in updates or ()
        )
    return exchange.response(error_code=code, error_message=message, results=results)
