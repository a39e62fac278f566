"""Announces that a service is ready: a JSON line on stdout, and a message to systemd if systemd started it.

systemd names a socket in NOTIFY_SOCKET and waits there for `READY=1` (units of Type=notify). A service that cannot
reach it goes on: systemd then stops it after the unit's TimeoutStartSec. Light to import.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping

NOTIFY_SOCKET = "NOTIFY_SOCKET"
SEND_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


def say_ready(said: Mapping[str, object]) -> None:
    """Print the event "ready" with these values, and notify systemd. Call it when clients may connect."""
    try:
        print(json.dumps({"event": "ready", **said}), flush=True)
    except OSError as error:
        logger.warning("the standard output does not take the line that says it is ready: %s", error)
    address = os.environ.get(NOTIFY_SOCKET)
    if not address:
        return
    # A name that begins with @ is one of Linux's abstract names, which begin with a zero byte.
    name = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.settimeout(SEND_TIMEOUT_S)
            told.sendto(b"READY=1", name)
    except OSError as error:
        logger.warning("systemd cannot be told at %s that the service is ready: %s", address, error)
