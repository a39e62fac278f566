"""The services of the node that transactions use."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from suiro.broker.coordination.host import CoordinatorHost
from suiro.broker.settings.features import Features
from suiro.clock import Clock


class OffsetOwner(Protocol):
    """The group coordinator, which keeps the offsets of open transactions back."""

    def complete_transaction(self, index: int, producer_id: int, *, commit: bool) -> None: ...


class MarkerHost(Protocol):
    """The services that writing a marker uses."""

    @property
    def clock(self) -> Clock: ...
    @property
    def groups(self) -> OffsetOwner: ...


class TransactionHost(CoordinatorHost, MarkerHost, Protocol):
    """The services that the transaction coordinator uses."""

    @property
    def data(self) -> Path: ...
    @property
    def features(self) -> Features: ...
