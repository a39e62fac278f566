"""Bootstrap, metadata, leaders, coordinators, and one connection to each broker.

Cached metadata can be out of date. A request that fails for this reason calls `forget_leaders` or `forget_coordinator`,
and the next attempt reads the metadata again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from suiro.client.connection import Connection
from suiro.client.error_codes import LEADERSHIP, error_for, raise_for
from suiro.client.retry import RETRIED, Attempts
from suiro.client.security import check
from suiro.client.settings import ClientSettings
from suiro.clock import Clock
from suiro.errors import BrokenConnectionError, ConfigError, KafkaError
from suiro.foundation.settings import host_and_port
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

T = TypeVar("T")

GROUP = 0
TRANSACTION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    partition: int
    leader: int  # the broker's id, -1 without a leader
    leader_epoch: int
    replicas: tuple[int, ...] = ()  # the brokers' ids, the preferred leader first
    in_sync: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    name: str
    topic_id: UUID | None  # None: the broker is older than topic ids
    internal: bool
    partitions: tuple[PartitionInfo, ...]  # in order, from 0


class Cluster:
    """The cluster as this client knows it."""

    def __init__(self, bootstrap_servers: str, *, settings: ClientSettings, clock: Clock) -> None:
        check(settings)
        self.settings = settings
        self.clock = clock
        self.is_abandoned = False
        self.files_missed = False
        """A node has named a file to a fetch that could not be opened here."""
        self._bootstrap = parse_bootstrap_servers(bootstrap_servers)
        self._connections: dict[tuple[str, int], Connection] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._controller = -1
        self._leaders: dict[TopicPartition, PartitionInfo] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def abandon(self) -> None:
        """Called from another thread: requests in flight fail immediately, and nothing is retried."""
        self.is_abandoned = True
        for connection in list(self._connections.values()):
            connection.interrupt()

    @property
    def takes_files(self) -> bool:
        """Whether a fetch asks for records by file: until a node's files cannot be opened from here."""
        return self.settings.fetch_from_files == "true" and not self.files_missed

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def attempts(self, what: str, timeout_ms: int | None = None, *, leader_wait_ms: int | None = None) -> Attempts:
        timeout_ms = self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return Attempts(
            what,
            timeout_ms=timeout_ms,
            settings=self.settings,
            clock=self.clock,
            is_abandoned=lambda: self.is_abandoned,
            leader_wait_ms=leader_wait_ms,
        )

    # Connections

    def any_broker(self, deadline_ms: int) -> Connection:
        """An open connection, else one to a broker we know of, else one to a bootstrap address.

        While no broker ever answered, this gives up after `socket.connection.setup.timeout.ms`: a wrong address
        should not cost the whole deadline of an operation.
        """
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        known = dict.fromkeys((*self._brokers.values(), *self._bootstrap))
        if self._brokers:
            return self._first_that_answers(known, deadline_ms)
        timeout_ms = self.settings.socket_connection_setup_timeout_ms
        left_ms = deadline_ms - self.clock.monotonic_ms()
        first_contact = self.attempts("reach any bootstrap server", min(timeout_ms, max(left_ms, 1)))
        return first_contact.run(lambda until_ms: self._first_that_answers(known, until_ms))

    def at_each_broker(self, what: str, once: Callable[[Connection, int], None]) -> None:
        """Calls `once(connection, deadline_ms)` for every broker, repeated where that may help."""
        attempts = self.attempts(what)

        def ask(node_id: int, deadline_ms: int) -> None:
            once(self.broker(node_id, deadline_ms), deadline_ms)

        for node_id in sorted(attempts.run(self.broker_ids)):
            attempts.run(partial(ask, node_id))

    def broker(self, node_id: int, deadline_ms: int) -> Connection:
        """Returns the connection to one broker."""
        address = self._brokers.get(node_id)
        if address is None:
            self.refresh((), deadline_ms)
            address = self._brokers.get(node_id)
        if address is None:
            raise error_for(ErrorCode.broker_not_available, f"connect to broker {node_id}")
        return self._connection(address, deadline_ms)

    def controller(self, deadline_ms: int) -> Connection:
        """Where requests that change topics go. (With KRaft any broker forwards them.)

        It is asked for each time: what is remembered may be a broker that is gone, or not the controller any more.
        """
        self.refresh((), deadline_ms)
        if self._controller not in self._brokers:
            return self.any_broker(deadline_ms)
        return self.broker(self._controller, deadline_ms)

    def _first_that_answers(self, addresses: Iterable[tuple[str, int]], deadline_ms: int) -> Connection:
        failures: list[BrokenConnectionError | ConfigError] = []
        for address in addresses:
            try:
                return self._connection(address, deadline_ms)
            except (BrokenConnectionError, ConfigError) as error:
                failures.append(error)
        broken = [failure for failure in failures if isinstance(failure, BrokenConnectionError)]
        raise broken[-1] if broken else failures[-1]

    def _connection(self, address: tuple[str, int], deadline_ms: int) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and not (connection.closed or self.is_abandoned) and connection.is_left():
            connection.close()
        if connection is None or connection.closed:
            host, port = address
            connection = Connection.open(host, port, settings=self.settings, clock=self.clock, deadline_ms=deadline_ms)
            self._connections[address] = connection
            if self.is_abandoned:  # while it was opened
                connection.interrupt()
        return connection

    # Metadata

    def refresh(self, topics: Sequence[str] | None, deadline_ms: int) -> dict[str, TopicInfo]:
        """Asks for metadata once and remembers it. None: all topics. A topic that does not exist is absent."""
        connection = self.any_broker(deadline_ms)
        names = None if topics is None else dict.fromkeys(topics)
        request = connection.request(
            "metadata",
            1,
            12,
            topics=None if names is None else [{"topic_id": None, "name": name} for name in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        response = connection.call(request, deadline_ms=deadline_ms)
        answers = ((topic.name, topic) for topic in response.topics)
        return self._remember(response, connection.matched("ask for metadata", names, answers))

    def broker_ids(self, deadline_ms: int) -> frozenset[int]:
        self.refresh((), deadline_ms)
        return frozenset(self._brokers)

    def _remember(self, response: Any, topics: Mapping[str, Any]) -> dict[str, TopicInfo]:
        if not response.brokers:
            raise error_for(ErrorCode.broker_not_available, "ask for metadata: the answer names no broker")
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._controller = response.controller_id
        found: dict[str, TopicInfo] = {}
        for name, topic in topics.items():
            if topic.error_code is ErrorCode.unknown_topic_or_partition:
                continue
            what = f"ask for the metadata of topic {name}"
            raise_for(topic.error_code, what)
            partitions = sorted(
                (
                    PartitionInfo(
                        partition=item.partition_index,
                        leader=item.leader_id,
                        leader_epoch=getattr(item, "leader_epoch", -1),
                        replicas=tuple(item.replica_nodes),
                        in_sync=tuple(item.isr_nodes),
                    )
                    for item in topic.partitions
                ),
                key=lambda item: item.partition,
            )
            if [item.partition for item in partitions] != list(range(len(partitions))):
                raise error_for(ErrorCode.leader_not_available, f"{what}: partitions are missing, or named twice")
            found[name] = TopicInfo(
                name=name,
                topic_id=getattr(topic, "topic_id", None),
                internal=topic.is_internal,
                partitions=tuple(partitions),
            )
            self._leaders.update(((name, info.partition), info) for info in partitions)
        return found

    # Leaders

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._leaders.pop(partition, None)

    def leaders(self, partitions: Iterable[TopicPartition], deadline_ms: int) -> dict[TopicPartition, int]:
        """The leader of each partition; asks for those unknown. A partition without one is a retriable error.

        Then `broker` has the address of each and asks for nothing, so a request may be under way meanwhile.
        """
        partitions = list(partitions)
        unknown = {topic for topic, partition in partitions if not self.knows_leader((topic, partition))}
        found = self.refresh(sorted(unknown), deadline_ms) if unknown else {}
        for topic, partition in partitions:
            if not self.knows_leader((topic, partition)):
                code = ErrorCode.leader_not_available
                if topic not in found or partition >= len(found[topic].partitions):
                    code = ErrorCode.unknown_topic_or_partition
                raise error_for(code, f"find the leader of {topic}-{partition} at {self.describe()}")
        return {(topic, partition): self._leader(topic, partition) for topic, partition in partitions}

    def knows_leader(self, partition: TopicPartition) -> bool:
        """Whether the partition's leader can be reached without asking for metadata."""
        return self._leader(*partition) in self._brokers

    def _leader(self, topic: str, partition: int) -> int:
        info = self._leaders.get((topic, partition))
        return -1 if info is None else info.leader

    def heed(self, error: KafkaError | BrokenConnectionError, partitions: Iterable[TopicPartition]) -> None:
        """Forgets what an error proves to be old."""
        if isinstance(error, BrokenConnectionError) or error.code_name in LEADERSHIP:
            self.forget_leaders(partitions)

    # Coordinators

    def at_coordinator(
        self,
        kind: int,
        key: str,
        what: str,
        once: Callable[[Connection, int], T],
        *,
        timeout_ms: int | None = None,
    ) -> T:
        """The result of `once(connection to the coordinator, deadline_ms)`, repeated where that may help."""
        attempts = self.attempts(what, timeout_ms)
        while True:
            try:
                return once(self._coordinator(kind, key, attempts.deadline_ms), attempts.deadline_ms)
            except RETRIED as error:
                if isinstance(error, BrokenConnectionError) or _is_elsewhere(error):
                    self._coordinators.pop((kind, key), None)
                attempts.failed(error)

    def _coordinator(self, kind: int, key: str, deadline_ms: int) -> Connection:
        node_id = self._coordinators.get((kind, key))
        if node_id is None:
            connection = self.any_broker(deadline_ms)
            request = connection.request("find_coordinator", 1, 3, key=key, key_type=kind)
            response = connection.call(request, deadline_ms=deadline_ms)
            role = "group" if kind == GROUP else "transactional id"
            raise_for(response.error_code, f"find the coordinator of {role} {key!r}")
            node_id = int(response.node_id)
            if node_id < 0:
                raise connection.failure(f"find the coordinator of {role} {key!r}", f"named broker {node_id}")
            self._coordinators[kind, key] = node_id
            self._brokers[node_id] = (response.host, response.port)
        return self.broker(node_id, deadline_ms)

    def describe(self) -> str:
        """For messages: where we are talking to."""
        return ",".join(f"{host}:{port}" for host, port in self._bootstrap)


def _is_elsewhere(error: KafkaError) -> bool:
    """Whether the error means that the coordinator is elsewhere, or that its broker is gone."""
    return "COORDINATOR" in error.code_name or error.code_name == "BROKER_NOT_AVAILABLE"


def parse_bootstrap_servers(bootstrap_servers: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port` (IPv6 in brackets). Raises `ConfigError`."""
    addresses = []
    for part in filter(None, (item.strip() for item in bootstrap_servers.split(","))):
        address = host_and_port(part)
        if address is None or not all(address) or "@" in part:
            # Without a password, which a URL may have, and which may have a comma.
            named = bootstrap_servers.rpartition("@")[2] if "@" in bootstrap_servers else part
            raise ConfigError(f"bootstrap.servers is a list of host:port, got {named!r}")
        addresses.append(address)
    if not addresses:
        raise ConfigError("bootstrap.servers is empty; give one host:port at least")
    return tuple(addresses)
