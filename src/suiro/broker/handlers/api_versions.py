"""ApiVersions: what this node speaks. (A version we do not know never gets here: see `dispatch`, KIP-511.)"""

from __future__ import annotations

import re
from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange, api_versions_response
from suiro.protocol.messages import ErrorCode

_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    if exchange.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_LEGAL_SOFTWARE.fullmatch(name) for name in names):
            return api_versions_response(version=exchange.version, error_code=ErrorCode.invalid_request)
        exchange.connection.client_software = " ".join(names)
    return api_versions_response(version=exchange.version, error_code=ErrorCode.none)
