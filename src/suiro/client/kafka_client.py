"""`Client`: all requests of this package behind one object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from suiro.client.cluster import Cluster, TopicInfo
from suiro.client.connection import Buffer
from suiro.client.fetch import FetchRequests
from suiro.client.produce import produce
from suiro.client.settings import ClientSettings
from suiro.client.topics import TopicRequests
from suiro.client.transaction import ProducerIdentity, TransactionalProducer, new_producer
from suiro.clock import Clock, SystemClock
from suiro.foundation.types import TopicPartition

if TYPE_CHECKING:
    from suiro.client.admin import Admin


class Client(TopicRequests, FetchRequests):
    """A connection to a Kafka cluster, opened on first use. Not thread-safe; one per thread is cheap.

    `settings` have the names of Kafka's clients (`client.id`, `request.timeout.ms`...); an unknown one is a
    `ConfigError`. Every operation retries transient errors until `default.api.timeout.ms`, or the `timeout_ms` given
    with the call, has passed; then it raises `DeadlineExceededError`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        settings: Mapping[str, str | int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = Cluster(
            bootstrap_servers,
            settings=ClientSettings.from_mapping(settings or {}),
            clock=clock or SystemClock(),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def abandon(self) -> None:
        """Called from another thread: requests in flight fail immediately, and nothing is retried. The client cannot be
        used after that."""
        self._cluster.abandon()

    @property
    def is_abandoned(self) -> bool:
        return self._cluster.is_abandoned

    def close(self) -> None:
        self._cluster.close()

    @property
    def admin(self) -> Admin:
        """Returns `Admin`: groups, settings, ACLs, users, quotas."""
        from suiro.client.admin import Admin  # pipelines need none of it

        return Admin(self._cluster)

    # Topics

    def metadata(self, topics: Sequence[str] | None = None, *, timeout_ms: int | None = None) -> dict[str, TopicInfo]:
        """Returns the named topics, or all. A topic that does not exist is absent, and is not created."""
        attempts = self._cluster.attempts("fetch metadata", timeout_ms)
        return attempts.run(lambda deadline_ms: self._cluster.refresh(topics, deadline_ms))

    def brokers(self, *, timeout_ms: int | None = None) -> frozenset[int]:
        """Returns the ids of the live brokers."""
        attempts = self._cluster.attempts("fetch metadata", timeout_ms)
        return attempts.run(self._cluster.broker_ids)

    # Records

    def produce(
        self,
        batches: Mapping[TopicPartition, Buffer],
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, int]:
        """Appends one batch to each partition; returns the base offsets."""
        items = [(topic, partition, data) for (topic, partition), data in batches.items()]
        offsets = produce(self._cluster, items, acks=acks, timeout_ms=timeout_ms)
        return dict(zip(batches, offsets, strict=True))

    def produce_many(
        self,
        batches: Iterable[tuple[str, int, Buffer]],
        *,
        acks: int = -1,
        timeout_ms: int | None = None,
    ) -> list[int]:
        """Appends (topic, partition, batch) in order, pipelined; returns the base offset of each.

        A generator is read when the pipeline has room. `timeout_ms` is the maximum time without progress.
        """
        return produce(self._cluster, batches, acks=acks, timeout_ms=timeout_ms)

    def new_producer(self, *, timeout_ms: int | None = None) -> ProducerIdentity:
        """Returns a new producer id. Brokers write a batch that has it, and the next sequence of its partition, once,
        however often it is sent."""
        return new_producer(self._cluster, timeout_ms=timeout_ms)

    def transaction(self, transactional_id: str, *, timeout_ms: int = 60_000) -> TransactionalProducer:
        """`timeout_ms`: the time after which the coordinator aborts an open transaction."""
        return TransactionalProducer(self._cluster, transactional_id, timeout_ms=timeout_ms)
