"""The node as its handlers see it. `node.Broker` satisfies it; only `broker/__init__` imports that.

Everything is read-only here: a handler changes state by asking its owner (a topic, a coordinator, a store).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from suiro.broker.coordination.host import GroupHost, TransactionHost

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from suiro.broker.coordination.fetch_sessions import FetchSessions
    from suiro.broker.coordination.groups import GroupCoordinator
    from suiro.broker.coordination.transactions import TransactionCoordinator
    from suiro.broker.metrics.metrics import Metrics
    from suiro.broker.net.connection import Connection
    from suiro.broker.net.server import Server
    from suiro.broker.quotas.client_quotas import ClientQuotas
    from suiro.broker.security.authorizer import Authorizer
    from suiro.broker.security.logins import Logins
    from suiro.broker.security.scram_store import ScramStore
    from suiro.broker.settings.dynamic_settings import DynamicSettings, Layer
    from suiro.broker.storage.tier import RemoteTier
    from suiro.broker.storage.topics import Topic
    from suiro.broker.storage.workers import Workers
    from suiro.config import NodeSettings


class BrokerContext(GroupHost, TransactionHost, Protocol):
    """The owners of a node's state, those that the coordinators use among them, and what concerns several of them."""

    node_id: int
    cluster_id: str
    dynamic_settings: DynamicSettings

    @property
    def groups(self) -> GroupCoordinator: ...

    transactions: TransactionCoordinator
    fetch_sessions: FetchSessions
    tier: RemoteTier | None
    workers: Workers
    server: Server
    metrics: Metrics
    authorizer: Authorizer

    @property
    def scram(self) -> ScramStore: ...
    @property
    def logins(self) -> Logins: ...
    @property
    def quotas(self) -> ClientQuotas | None:
        """`client_quotas` while one is set, so that without any a request does not even ask."""
        ...

    @property
    def client_quotas(self) -> ClientQuotas: ...

    def advertised(self, connection: Connection) -> tuple[str, int]: ...
    def create_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Topic: ...
    def creating_topic(
        self, name: str, *, partitions: int, configs: Mapping[str, str]
    ) -> Generator[None, None, Topic]: ...
    def delete_topic(self, topic: Topic) -> None: ...
    def deleting_topic(self, topic: Topic) -> Generator[None, None, None]: ...
    def check_settings(self, settings: NodeSettings) -> None: ...
    def replace_settings(self, content: Mapping[str, str], *, layer: Layer) -> None: ...
    def groups_with_configs(self) -> tuple[str, ...]: ...
    def replace_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None: ...
