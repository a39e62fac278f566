"""What the parts of one session of a capture work with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suiro.client import Client
from suiro.connect.postgres.delivery import Delivery
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.tables import Tables
from suiro.registry import RegistryClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """`directory`: for values and transactions that do not fit into memory."""

    options: CaptureOptions
    database: Database
    is_standby: bool
    tables: Tables
    delivery: Delivery
    client: Client
    registry: RegistryClient
    directory: Path
