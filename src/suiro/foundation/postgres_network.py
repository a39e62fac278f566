"""Limits of every connection to Postgres, so that none waits forever when the network or the server goes silent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

NETWORK: dict[str, int] = {
    "connect_timeout": 30,  # for each host; also for a server that accepts and then sends nothing
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # data without an acknowledgement stops keepalives and is repeated for 15 minutes
}


def network_parameters(given: Mapping[str, object]) -> dict[str, Any]:
    """Returns parameters of libpq, except those that the user gives: in the DSN (`given`: its parts), or by
    PGCONNECT_TIMEOUT."""
    in_environment = {"connect_timeout"} if "PGCONNECT_TIMEOUT" in os.environ else set()
    return {name: value for name, value in NETWORK.items() if name not in in_environment | given.keys()}
