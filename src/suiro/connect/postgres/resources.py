"""What the parts of one session of a capture work with."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from suiro.client import Client
from suiro.connect.postgres.delivery import Delivery
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.snapshot.topic_state import ValuesFile
from suiro.connect.postgres.status import CaptureStatus
from suiro.connect.postgres.tables import Tables
from suiro.registry import RegistryClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """`values`: last values of keys. The last four are those of the capture, in each of its sessions. `wakeup` is
    readable after a stop."""

    options: CaptureOptions
    database: Database
    is_standby: bool
    tables: Tables
    delivery: Delivery
    client: Client
    registry: RegistryClient
    values: ValuesFile
    status: CaptureStatus
    stopped: threading.Event
    wakeup: socket.socket
    on_event: Callable[[dict[str, Any]], None]
