"""The services of the node that the coordinators use, each as a protocol of its own."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from suiro.broker.settings.features import Features
from suiro.broker.storage.topics import Topic, TopicRegistry
from suiro.broker.storage.workers import Workers
from suiro.clock import Clock
from suiro.config import NodeSettings


class CoordinatorHost(Protocol):
    """The services that every coordinator uses."""

    clock: Clock
    settings: NodeSettings
    topics: TopicRegistry

    def internal_topic(self, name: str) -> Topic:
        """The topic with a coordinator's records, created when it is first needed."""
        ...


class GroupHost(CoordinatorHost, Protocol):
    """The services that the group coordinator uses."""

    loop: AbstractEventLoop
    matchers: Workers

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """The group's own settings."""
        ...


class OffsetOwner(Protocol):
    """The group coordinator, which keeps the offsets of open transactions back."""

    def complete_transaction(self, index: int, producer_id: int, *, commit: bool) -> None: ...


class TransactionHost(CoordinatorHost, Protocol):
    """The services that the transaction coordinator, and writing a marker, use."""

    @property
    def groups(self) -> OffsetOwner: ...

    data: Path
    features: Features
