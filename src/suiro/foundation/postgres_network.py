"""The time limits of every connection to a Postgres, so that none waits for ever when the network or the server goes
silent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

NETWORK: dict[str, int] = {
    "connect_timeout": 30,  # for each host; also of a server that accepts and says nothing
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # what was sent and not acknowledged stops keepalives, and is repeated for 15 minutes
}


def network_parameters(given: Mapping[str, object]) -> dict[str, Any]:
    """Returns parameters for libpq, without those that the user gives (`given`: the parts of a DSN) or the environment
    has."""
    in_environment = {"connect_timeout"} if "PGCONNECT_TIMEOUT" in os.environ else set()
    return {name: value for name, value in NETWORK.items() if name not in in_environment | given.keys()}
