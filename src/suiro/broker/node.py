"""The broker: Kafka's semantics over the logs of one data directory.

Everything runs on one event loop's thread. One owner per state: topics and partitions in `TopicRegistry`, groups
and committed offsets in `GroupCoordinator`, transactions in `TransactionCoordinator`, sockets in `Server`.
Handlers ask them; nothing else changes them. What a node does without until somebody asks for it (groups, logins,
quotas) is imported and made then, so that the start is short.
"""

from __future__ import annotations

import asyncio
import logging
import os
from asyncio import AbstractEventLoop, Task, TimerHandle
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from suiro.broker.coordination.fetch_sessions import FetchSessions
from suiro.broker.coordination.transactions import TransactionCoordinator
from suiro.broker.dispatch import Dispatcher
from suiro.broker.metrics.metrics import Metrics
from suiro.broker.net.connection import Connection
from suiro.broker.net.listeners import Listener, read_listeners
from suiro.broker.net.server import NAMED_FOR_MS, Server
from suiro.broker.node_metrics import offer_gauges
from suiro.broker.security.authorizer import AclAuthorizer, AllowAll, Authorizer, make_authorizer
from suiro.broker.settings.cluster_state import GROUP_CONFIGS, QUOTAS, ClusterState
from suiro.broker.settings.configs import check_size_of_group_configs
from suiro.broker.settings.dynamic_settings import DynamicSettings, Layer
from suiro.broker.settings.features import Features
from suiro.broker.storage.cleaner import Cleaner
from suiro.broker.storage.topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Partition,
    Topic,
    TopicRegistry,
    at_once,
    internal_configs,
)
from suiro.broker.storage.workers import Workers, sync
from suiro.clock import Clock, SystemClock
from suiro.config import MAX_LONG, NodeSettings
from suiro.errors import ConfigError
from suiro.foundation.settings import host_and_port
from suiro.log import DataDirectory, LogError

if TYPE_CHECKING:
    from suiro.broker.coordination.groups import GroupCoordinator
    from suiro.broker.faults import Faults
    from suiro.broker.net.metrics_endpoint import MetricsEndpoint
    from suiro.broker.quotas.client_quotas import ClientQuotas
    from suiro.broker.security.logins import Logins
    from suiro.broker.security.scram_store import ScramStore, ScramUser
    from suiro.broker.storage.tier import RemoteTier
    from suiro.log.tier import RemoteStore
    from suiro.telemetry import MetricsPush

logger = logging.getLogger(__name__)

_IDLE_CHECK_MS = 30_000
_LATE_CHECK_MS = 1_000
_CERTIFICATE_CHECK_MS = 2_000
_METRICS_WINDOW_MS = 150_000
_DELETED_FILES_CHECK_MS = 1000
_OTLP_VARIABLES = frozenset({"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"})
_WORKERS = 2
"""Threads that look into clients' records. Their work runs without the GIL, or is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The configuration of a broker. `host` and `port` (0: a free one) are for settings that name no listeners."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 9092
    settings: NodeSettings = field(default_factory=NodeSettings)
    scram_users: tuple[ScramUser, ...] = ()
    """Users that a node begins with; one that is there already stays as it is."""


class _Periodic(NamedTuple):
    """How often an action runs, and its next run."""

    interval_ms: int | Callable[[], int]
    """Called before each wait if it may be altered."""
    wait_ms: int
    timer: TimerHandle


class Broker:
    """`start`, serve from the loop, `stop`. Not restartable: make a new one."""

    def __init__(self, config: BrokerConfig, *, loop: AbstractEventLoop, clock: Clock | None = None) -> None:
        self.config = config
        self.data = config.data
        self.settings = config.settings
        self.loop = loop
        self.clock = clock or SystemClock()
        self.node_id = config.settings.node_id
        self.port = config.port
        self._periodic: dict[Callable[[], None], _Periodic] = {}
        self.faults: Faults | None = None
        self._settings_listeners: list[Callable[[NodeSettings], None]] = []
        self._directory: DataDirectory | None = None
        self.tier: RemoteTier | None = None
        # Set before the start to have another store than the settings'.
        self.remote_store: RemoteStore | None = None
        self.authorizer: Authorizer = AllowAll()
        self.quotas: ClientQuotas | None = None
        self._groups: GroupCoordinator | None = None
        self.metrics = Metrics()
        self.fetch_sessions = FetchSessions(
            slots=self.settings.max_incremental_fetch_session_cache_slots, metrics=self.metrics
        )
        self.metrics_endpoint: MetricsEndpoint | None = None
        self.metrics_push: MetricsPush | None = None
        self.cleaner = Cleaner(self)
        self._syncing: Task[None] | None = None
        self.workers = Workers(loop, name="suiro-records", count=_WORKERS)
        """Threads that decompress clients' records."""
        self.matchers = Workers(loop, name="suiro-patterns", count=1)
        """A thread for clients' regular expressions, which may take long. Records do not wait for them."""
        self.server = Server(
            loop=loop,
            sink=Dispatcher(self),
            clock=self.clock,
            metrics=self.metrics,
            settings=lambda: self.settings,
        )
        self.on_settings(self.server.settings_changed)
        self.on_settings(self._reschedule)

    def start(self) -> None:
        """Lock the data directory, recover its logs, replay groups and transactions, then listen.

        Raises `ConfigError` where the directory or the address is taken.
        """
        self._directory = directory = DataDirectory.open(self.config.data, node_id=self.node_id)
        try:
            self._load_state()
            self._load_topics(directory)
            self._listen()
            offer_gauges(self, self.cleaner)
            self._start_metrics()
        except BaseException:
            self._close_network()
            directory.abandon()
            self._directory = None
            raise
        self._begin_periodic_work()

    def _load_state(self) -> None:
        self.cluster_state = ClusterState(self.config.data)
        self.dynamic_settings = DynamicSettings(self.config.settings, self.cluster_state)
        self.features = Features(self.cluster_state)
        self.settings = self.dynamic_settings.effective
        self.authorizer = make_authorizer(self.settings, self.cluster_state)
        if isinstance(self.authorizer, AclAuthorizer):
            self.authorizer.acls.on_change(self.fetch_sessions.stir_all)
        if self.config.scram_users:
            self.scram.add_missing(self.config.scram_users)
        if self.cluster_state.read(QUOTAS, None):
            self._quotas_changed()

    def _load_topics(self, directory: DataDirectory) -> None:
        """Recover the logs, then replay the coordinators' topics."""
        self.cluster_id = directory.cluster_id
        self.topics = TopicRegistry(directory, settings=self.settings, clock=self.clock)
        self.topics.load()
        self._open_tier()
        if not directory.clean_shutdown:
            directory.lead_anew()
        self.transactions = TransactionCoordinator(self)
        if self.topics.topic(OFFSETS_TOPIC) is not None:
            self.groups.load()
        self.transactions.load()
        if self._groups is not None:
            self._groups.compact()

    def _listen(self) -> None:
        listeners = read_listeners(self.settings, otherwise=(self.config.host, self.config.port))
        for listener in listeners:
            if listener.protocol.sasl:
                # A wrong setting is an error of the start, not of the first login.
                self.logins.of(listener.name)
        self.server.listen(listeners)
        self.port = self.server.listeners[0].port

    def _begin_periodic_work(self) -> None:
        every = self.every
        every(self.settings.log_retention_check_interval_ms, self._apply_retention)
        every(self.settings.log_flush_offset_checkpoint_interval_ms, self._sync)
        if self.settings.log_flush_scheduler_interval_ms < MAX_LONG:
            every(self.settings.log_flush_scheduler_interval_ms, self._sync_due)
        every(_DELETED_FILES_CHECK_MS, self._remove_deleted_files)
        every(lambda: self.settings.log_cleaner_backoff_ms, self.cleaner.check)
        every(_IDLE_CHECK_MS, self.server.close_idle)
        every(_LATE_CHECK_MS, self.server.close_late)
        every(NAMED_FOR_MS, self.server.let_go_of_named_files)
        every(_CERTIFICATE_CHECK_MS, self.server.refresh_certificates)
        every(_METRICS_WINDOW_MS, self.metrics.rotate)
        every(
            self.settings.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transactions.expire_ids,
        )
        every(self.settings.producer_id_expiration_check_interval_ms, self._expire_producers)
        every(
            self.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.transactions.retry_and_time_out,
        )
        every(self.settings.offsets_retention_check_interval_ms, self._expire_offsets)

    @property
    def groups(self) -> GroupCoordinator:
        if self._groups is None:
            from suiro.broker.coordination.groups import GroupCoordinator

            self._groups = GroupCoordinator(self)
        return self._groups

    @cached_property
    def scram(self) -> ScramStore:
        from suiro.broker.security.scram_store import ScramStore

        return ScramStore(self.cluster_state)

    @cached_property
    def logins(self) -> Logins:
        from suiro.broker.security.logins import Logins

        logins = Logins(self.settings, self.scram, clock=self.clock)
        self.on_settings(logins.settings_changed)
        return logins

    @cached_property
    def client_quotas(self) -> ClientQuotas:
        from suiro.broker.quotas.client_quotas import ClientQuotas
        from suiro.broker.quotas.store import QuotaStore

        store = QuotaStore(self.cluster_state)
        store.on_change(self._quotas_changed)
        return ClientQuotas(store, lambda: self.settings, clock=self.clock)

    def abandon(self) -> None:
        """Close everything as if the process were killed: nothing more is written, and no client is told."""
        self._end_own_work()
        self._close_data(DataDirectory.abandon)
        self._close_network()

    def look_again(self) -> None:
        """Run the periodic actions now: the clock was moved (by a test)."""
        for action in tuple(self._periodic):
            action()
        if self._groups is not None:
            self._groups.look_again()

    def stop(self) -> None:
        """Close every connection and log; the next start needs no recovery."""
        self._end_own_work()
        self._close_network()
        self._close_data(DataDirectory.close)

    def _close_network(self) -> None:
        self.server.close()
        if self.metrics_endpoint is not None:
            self.metrics_endpoint.stop()
        if self.metrics_push is not None:
            self.metrics_push.stop(once_more=False)

    def _close_data(self, end: Callable[[DataDirectory], None]) -> None:
        if self.tier is not None:
            self.tier.close()
        if self._directory is not None:
            if self._groups is not None:
                self._groups.close()
            self.topics.close()
            end(self._directory)
            self._directory = None

    def _end_own_work(self) -> None:
        for work in self._periodic.values():
            work.timer.cancel()
        self._periodic.clear()
        self.cleaner.stop()
        self._end_syncing()
        self.workers.close()
        self.matchers.close()

    def _end_syncing(self) -> None:
        """Stop waiting for a sync that runs in its thread: closing a log syncs it."""
        syncing = self._syncing
        if syncing is None or syncing.done():
            return
        syncing.cancel()
        if not self.loop.is_running():
            self.loop.run_until_complete(asyncio.wait([syncing]))

    def _start_metrics(self) -> None:
        address, otlp = self.settings.metrics_listen, self.settings.metrics_otlp_endpoint
        if otlp or _OTLP_VARIABLES & os.environ.keys():
            from suiro.broker.net.metrics_endpoint import pushed

            self.metrics_push = pushed(self.metrics, self.loop, otlp)
        if not address:
            return
        from suiro.broker.net.metrics_endpoint import MetricsEndpoint

        found = host_and_port(address, port_suffices=True)
        if found is None:
            raise ConfigError(f"metrics.listen = {address}: expected HOST:PORT, such as 127.0.0.1:9404")
        self.metrics_endpoint = MetricsEndpoint(self.metrics, loop=self.loop, host=found[0] or "0.0.0.0", port=found[1])

    @property
    def metrics_url(self) -> str | None:
        """The URL of `/metrics`, if it is served."""
        return None if self.metrics_endpoint is None else self.metrics_endpoint.url

    @property
    def open_listeners(self) -> list[Listener]:
        """Listeners that other machines can reach, without a login or access control."""
        from suiro.broker.net.tls import asks_who
        from suiro.foundation.http import is_loopback

        if self.settings.authorizer_class_name and not self.settings.allow_everyone_if_no_acl_found:
            return []
        return [one for one in self.server.listeners if not is_loopback(one.host) and not asks_who(one, self.settings)]

    @property
    def bootstrap_servers(self) -> str:
        """The address of the first listener."""
        return self.server.listeners[0].bootstrap_servers

    def advertised(self, connection: Connection) -> tuple[str, int]:
        """The address for a client: that of its listener."""
        return connection.listener.address_for(connection.local_address)

    def _quotas_changed(self) -> None:
        """Requests and new connections ask for quotas only while one is set."""
        quotas = self.client_quotas
        self.quotas = quotas if quotas.active else None
        self.server.connection_quota = quotas.record_connection if quotas.active else None

    def on_settings(self, callback: Callable[[NodeSettings], None]) -> None:
        """Register a function that is called with the new settings after each change."""
        self._settings_listeners.append(callback)

    def replace_settings(self, content: Mapping[str, str], *, layer: Layer) -> None:
        """Give a layer of settings a new content. Raises `ConfigError`, and then nothing has changed."""
        self.settings = settings = self.dynamic_settings.replace(layer, content)
        self.topics.settings_changed(settings)
        for callback in self._settings_listeners:
            callback(settings)

    def check_settings(self, settings: NodeSettings) -> None:
        """Raises `ConfigError` where a listener could not work by these settings."""
        self.server.check_settings(settings)
        self.logins.check(settings)

    def group_configs(self, group_id: str) -> Mapping[str, str]:
        """The settings given to one group by AlterConfigs, such as `consumer.session.timeout.ms`."""
        found: Mapping[str, str] = self.cluster_state.read(GROUP_CONFIGS, {}).get(group_id, {})
        return found

    def groups_with_configs(self) -> tuple[str, ...]:
        return tuple(self.cluster_state.read(GROUP_CONFIGS, {}))

    def replace_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Give a group these settings, which the caller has checked, instead of those it has. Raises `RefusedError` if
        those of all groups are too many."""
        stored = self.cluster_state.read(GROUP_CONFIGS, {})
        groups = {name: own for name, own in {**stored, group_id: dict(configs)}.items() if own}
        check_size_of_group_configs(groups, stored)
        self.cluster_state.write(GROUP_CONFIGS, groups)

    def create_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """All of `creating_topic` at once: for a few partitions, by default the node's number."""
        partitions = partitions or self.settings.num_partitions
        return at_once(self.creating_topic(name, partitions=partitions, configs=configs or {}))

    def internal_topic(self, name: str) -> Topic:
        """The topic of the coordinators, made when first needed."""
        topic = self.topics.topic(name)
        if topic is None:
            settings = self.settings
            partitions = {
                OFFSETS_TOPIC: settings.offsets_topic_num_partitions,
                TRANSACTIONS_TOPIC: settings.transaction_state_log_num_partitions,
            }[name]
            configs = internal_configs(name, settings)
            topic = self.topics.create(name, partitions=partitions, configs=configs)
        return topic

    def creating_topic(self, name: str, *, partitions: int, configs: Mapping[str, str]) -> Generator[None, None, Topic]:
        """Create a topic with a checked name, in steps. An internal one gets its own settings, whoever asks for it."""
        if name in INTERNAL_TOPICS:
            return self.internal_topic(name)
        return (yield from self.topics.creating(name, partitions=partitions, configs=configs))

    def delete_topic(self, topic: Topic) -> None:
        """All of `deleting_topic` at once: for a few partitions."""
        at_once(self.deleting_topic(topic))

    def deleting_topic(self, topic: Topic) -> Generator[None, None, None]:
        yield from self.topics.deleting(topic)
        self.metrics.forget_topic(topic.name)
        if self._groups is not None:
            self._groups.offsets.forget_topic(topic.name)
        if self.tier is not None:
            self.tier.work()

    def _open_tier(self) -> None:
        if not self.settings.remote_log_storage_system_enable:
            tiered = [part.topic for part in self.topics.partitions() if part.log.config.remote_storage_enable]
            if tiered:
                raise ConfigError(
                    f"topic {tiered[0]} has a remote tier, and this node is started without: set "
                    "remote.log.storage.system.enable=true and remote.log.storage.uri; they can be left out when "
                    "no topic has remote.storage.enable=true any more"
                )
            return
        from suiro.broker.storage.tier import RemoteTier
        from suiro.log.tier import open_store

        store = self.remote_store or open_store(
            self.settings.remote_log_storage_uri,
            access_key=self.settings.remote_log_storage_access_key,
            secret_key=self.settings.remote_log_storage_secret_key,
        )
        self.tier = RemoteTier(self, store)
        self.tier.load()
        self.every(self.settings.remote_log_manager_task_interval_ms, self.tier.work)

    def every(self, interval_ms: int | Callable[[], int], action: Callable[[], None]) -> None:
        """Run an action periodically; a failure is logged, and the action runs again."""
        wait_ms = _wait_ms(interval_ms)

        def run() -> None:
            try:
                action()
            except OSError as error:
                # A full disk, for example. Where in the code it was noticed is no news.
                logger.error("%s failed, and runs again in %d ms: %s", action.__qualname__, wait_ms, error)
            except Exception:
                logger.exception("%s failed; it runs again in %d ms", action.__qualname__, wait_ms)
            self.every(interval_ms, action)

        self._periodic[action] = _Periodic(interval_ms, wait_ms, self.loop.call_later(wait_ms / 1000, run))

    def _reschedule(self, _: NodeSettings) -> None:
        """Apply a shorter interval at once, not after the longer one is over."""
        for action, (interval_ms, wait_ms, timer) in tuple(self._periodic.items()):
            if _wait_ms(interval_ms) != wait_ms:
                timer.cancel()
                self.every(interval_ms, action)

    def _expire_producers(self) -> None:
        oldest = self.clock.wall_ms() - self.settings.producer_id_expiration_ms
        for partition in self.topics.partitions():
            partition.log.expire_producers(oldest)

    def _expire_offsets(self) -> None:
        if self._groups is not None:
            self._groups.offsets.expire()

    def _apply_retention(self) -> None:
        now = self.clock.wall_ms()
        for partition in self.topics.partitions():
            try:
                if partition.log.retention.apply(now):
                    partition.grown()  # Fetch sessions tell their clients the new start.
            except (LogError, OSError) as error:  # The others are not to fill the disk because of this one.
                logger.warning("retention of %s-%d: %s", partition.topic, partition.index, error)

    def _sync(self) -> None:
        """Sync the logs that grew, in another thread, so that a start after a crash has little to scan."""
        self._sync_these([p for p in self.topics.partitions() if p.log.recovery_point < p.log.log_end_offset])
        if self._directory is not None:
            self._directory.checkpoint()

    def _sync_due(self) -> None:
        now = self.clock.monotonic_ms()
        self._sync_these([p for p in self.topics.partitions() if p.log.is_flush_due(now)])

    def _sync_these(self, partitions: list[Partition]) -> None:
        if partitions and (self._syncing is None or self._syncing.done()):
            self._syncing = self.loop.create_task(self._sync_all(partitions))

    async def _sync_all(self, partitions: list[Partition]) -> None:
        """One after another: each takes some descriptors while it lasts, and there may be thousands."""
        for partition in partitions:
            log = partition.log
            try:
                await sync(log, partial(self.loop.run_in_executor, None))
            except (LogError, OSError) as error:
                if log.is_open and log.offline is None:
                    logger.warning("cannot sync %s-%d now: %s", partition.topic, partition.index, error)

    def _remove_deleted_files(self) -> None:
        directory = self._directory
        removal = None if directory is None else directory.deleted_files.due(self.clock.monotonic_ms())
        if removal is not None:
            self.loop.run_in_executor(None, removal)

    def write_cleaner_offsets(self) -> None:
        """After the cleaner has finished a log."""
        if self._directory is not None:
            self._directory.write_cleaner_offsets()


def _wait_ms(interval_ms: int | Callable[[], int]) -> int:
    return max(1, interval_ms() if callable(interval_ms) else interval_ms)
