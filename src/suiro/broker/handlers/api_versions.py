"""ApiVersions: the APIs and versions of this node, and the features that its cluster has enabled."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.apis import API_VERSIONS_KEY, APIS
from suiro.broker.exchange import Exchange, build
from suiro.broker.settings.features import SUPPORTED
from suiro.protocol import messages
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.api_versions.v4.request import ApiVersionsRequest


_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_TOLD_FROM = {0: 0}
"""Produce is told from version 0 on although it is served from 3: librdkafka asks for it (KIP-896)."""


def handle(exchange: Exchange, request: ApiVersionsRequest) -> Answer:
    if exchange.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_LEGAL_SOFTWARE.fullmatch(name) for name in names):
            return exchange.response(error_code=ErrorCode.invalid_request, api_keys=())
    return exchange.response(
        error_code=ErrorCode.none,
        api_keys=tuple(
            exchange.make(
                "ApiVersion",
                api_key=api.key,
                min_version=_TOLD_FROM.get(api.key, api.min_version),
                max_version=api.max_version,
            )
            for api in APIS.values()
        ),
        **(_features(exchange) if exchange.version >= 3 else {}),
    )


def _features(exchange: Exchange) -> dict[str, Any]:
    return {
        "supported_features": tuple(
            exchange.make("SupportedFeatureKey", name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or exchange.version >= 4  # older clients fail at a lowest level of 0 (KAFKA-17011)
        ),
        "finalized_features_epoch": exchange.broker.features.epoch,
        "finalized_features": tuple(
            exchange.make("FinalizedFeatureKey", name=name, max_version_level=level, min_version_level=level)
            for name, level in exchange.broker.features.finalized.items()
            if level > 0
        ),
    }


def unsupported_version() -> Any:
    """The answer to a version that we do not know: version 0, and only what ApiVersions itself has (KIP-511)."""
    response_class = messages.response_class(API_VERSIONS_KEY, 0)
    entry = messages.nested(response_class, "ApiVersion")
    api = APIS[API_VERSIONS_KEY]
    return build(
        response_class,
        error_code=ErrorCode.unsupported_version,
        api_keys=(entry(api_key=api.key, min_version=api.min_version, max_version=api.max_version),),
    )
