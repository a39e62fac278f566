"""Produce: record batches, pipelined, in order for each partition, each acknowledged.

Invariants:
- A request has one batch per partition (brokers accept no more). At most `max.in.flight.requests.per.connection`
  requests per broker are unanswered.
- Batches of one partition are appended in the given order. If one fails with a retriable error, no later batch of its
  partition is sent until all requests in flight are answered. Then all of them are sent again, in order and with the
  same sequences. The broker recognises duplicates, because it remembers the last five batches.
- Batches without a producer id cannot be recognised. Only one per partition is in flight, and a repeated batch can be
  written twice.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from suiro.client.cluster import Cluster
from suiro.client.connection import Buffer, Connection
from suiro.client.error_codes import error_for
from suiro.client.leaders import by_topic
from suiro.client.retry import RETRIED
from suiro.errors import AbortableError, BrokenConnectionError, RetriableKafkaError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.protocol.fields import array_length, string
from suiro.protocol.messages import API_KEYS, ErrorCode

VERSIONS = (7, 11)
JOINING_VERSIONS = (12, 12)
"""A broker takes these as joining the transaction (KIP-890). Version 13 has topic ids instead of names."""
FIRST_FLEXIBLE_VERSION = 9

_API_KEY = API_KEYS["produce"]
_HEADER = struct.Struct(">hhih")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_PRODUCER_ID = struct.Struct(">q")
_PRODUCER_ID_POSITION = 43
_RESPONSE_EXTRA_MS = 5_000  # a broker answers REQUEST_TIMED_OUT itself; we wait a little longer than it does

# The broker has the batch: it answers a repeated one with success, or with this code where it no longer knows
# the offsets.
_APPENDED = frozenset({ErrorCode.none, ErrorCode.duplicate_sequence_number})


@dataclass(slots=True, eq=False)
class Outgoing:
    """One batch in flight."""

    place: int  # in the order given
    target: TopicPartition
    data: Buffer
    idempotent: bool


@dataclass(slots=True, eq=False)
class _Request:
    batches: dict[TopicPartition, Outgoing]
    version: int


def produce(
    cluster: Cluster,
    batches: Iterable[tuple[str, int, Buffer]],
    *,
    transactional_id: str | None = None,
    joining: bool = False,
    acks: int = -1,
    timeout_ms: int | None = None,
) -> list[int]:
    """Returns the base offset of each batch, in the order given. It is -1 for a repeated batch whose offset the broker
    no longer knows.

    With `joining`, partitions become part of the transaction by being written to (transactions V2).
    `batches` is read as the pipeline has room (`buffer.memory`), so it may be a generator. The deadline
    (`delivery.timeout.ms`, or `timeout_ms`) starts anew with each acknowledgement; the time that `batches` takes to
    give the next one does not count.
    """
    if acks not in (-1, 1):
        raise UsageError(f"acks is -1 (all copies) or 1 (the leader's), not {acks}: an answer is waited for")
    pipeline = _Pipeline(
        cluster,
        batches,
        transactional_id=transactional_id,
        versions=JOINING_VERSIONS if joining else VERSIONS,
        acks=acks,
        timeout_ms=timeout_ms,
    )
    try:
        return pipeline.run()
    except BaseException:
        pipeline.drop_connections()
        raise


class _Pipeline:
    def __init__(
        self,
        cluster: Cluster,
        batches: Iterable[tuple[str, int, Buffer]],
        *,
        transactional_id: str | None,
        versions: tuple[int, int],
        acks: int,
        timeout_ms: int | None,
    ) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._source: Iterator[tuple[str, int, Buffer]] = iter(batches)
        self._exhausted = False
        self._transactional_id = transactional_id
        self._versions = versions
        self._acks = acks
        delivery_timeout_ms = timeout_ms or self._settings.delivery_timeout_ms
        self._request_timeout_ms = min(self._settings.request_timeout_ms, delivery_timeout_ms)
        self._attempts = cluster.attempts("produce", delivery_timeout_ms)
        self._offsets: list[int] = []
        self._held_bytes = 0
        self._waiting: dict[TopicPartition, deque[Outgoing]] = {}
        self._under_way: dict[TopicPartition, int] = {}
        self._failed: dict[TopicPartition, list[Outgoing]] = {}
        self._requests: dict[Connection, deque[_Request]] = {}
        self._failure: RetriableKafkaError | BrokenConnectionError | None = None

    def run(self) -> list[int]:
        while True:
            self._take()
            if not self._waiting and not self._requests and not self._failed:
                return self._offsets
            try:
                self._send_all()
            except RETRIED as error:
                self._cluster.heed(error, self._waiting)
                self._failure = error
            self._receive_one()
            if self._failure is not None and not self._requests:
                # Nothing is under way, so nothing can be overtaken: wait, then send the failed ones again.
                failure, self._failure = self._failure, None
                self._attempts.failed(failure)

    def drop_connections(self) -> None:
        """Responses still to come would be taken for those of later requests."""
        for connection in self._requests:
            connection.close()

    # Sending

    def _take(self) -> None:
        while not self._exhausted and self._held_bytes < self._settings.buffer_memory:
            item = self._attempts.without_counting(lambda: next(self._source, None))
            if item is None:
                self._exhausted = True
                return
            topic, partition, data = item
            (producer_id,) = _PRODUCER_ID.unpack_from(data, _PRODUCER_ID_POSITION)
            batch = Outgoing(len(self._offsets), (topic, partition), data, producer_id >= 0)
            self._offsets.append(-1)
            self._held_bytes += len(data)
            self._waiting.setdefault(batch.target, deque()).append(batch)

    def _send_all(self) -> None:
        """Fills every leader's pipeline."""
        while self._failure is None:
            ready = [target for target in self._waiting if self._may_send(target)]
            if self._requests:
                # Looking a leader up may need the very connection whose next answers are those of our requests.
                # It waits until nothing is under way, as happens at the latest when `buffer.memory` is full of it.
                ready = [target for target in ready if self._cluster.knows_leader(target)]
            if not ready:
                return
            by_leader: dict[int, list[TopicPartition]] = {}
            for target, leader in self._cluster.leaders(ready, self._attempts.deadline_ms).items():
                by_leader.setdefault(leader, []).append(target)
            sent = False
            for leader, targets in by_leader.items():
                connection = self._cluster.broker(leader, self._attempts.deadline_ms)
                if connection.in_flight < self._settings.max_in_flight_requests_per_connection:
                    self._send(connection, targets)
                    sent = True
            if not sent:
                return

    def _may_send(self, target: TopicPartition) -> bool:
        if target in self._failed:
            return False
        return self._waiting[target][0].idempotent or not self._under_way.get(target)

    def _send(self, connection: Connection, targets: list[TopicPartition]) -> None:
        request = _Request({}, connection.version("produce", *self._versions))
        size = 0
        for target in targets:
            batch = self._waiting[target][0]
            if request.batches and size + len(batch.data) > self._settings.max_request_size:
                break
            size += len(batch.data)
            request.batches[target] = batch
        for target in request.batches:
            self._pop_waiting(target)
            self._under_way[target] = self._under_way.get(target, 0) + 1
        # Noted before it is sent: should sending break, the batches are found among those under way.
        self._requests.setdefault(connection, deque()).append(request)
        parts = _encode(
            request,
            correlation_id=connection.take_correlation_id(),
            client_id=self._settings.client_id,
            transactional_id=self._transactional_id,
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
        )
        try:
            connection.send_frame(parts, deadline_ms=self._attempts.deadline_ms)
        except BrokenConnectionError as error:
            self._lost(connection, error)

    def _pop_waiting(self, target: TopicPartition) -> None:
        queue = self._waiting[target]
        queue.popleft()
        if not queue:
            del self._waiting[target]

    # Receiving

    def _receive_one(self) -> None:
        """Waits for the response that is due first on one connection; the others' wait in their sockets."""
        connection = next(iter(self._requests), None)
        if connection is None:
            return
        queue = self._requests[connection]
        deadline_ms = self._cluster.clock.monotonic_ms() + self._request_timeout_ms + _RESPONSE_EXTRA_MS
        try:
            response = connection.receive(deadline_ms=deadline_ms)
        except BrokenConnectionError as error:
            self._lost(connection, error)
            return
        request = queue.popleft()
        del self._requests[connection]
        if queue:
            self._requests[connection] = queue  # behind the other connections
        answers = (
            ((topic.name, item.index), item) for topic in response.responses for item in topic.partition_responses
        )
        answered = connection.matched("produce", request.batches, answers)
        for target, batch in request.batches.items():
            self._answered(batch, answered[target])
        for target in request.batches:
            self._settle(target)

    def _answered(self, batch: Outgoing, item: Any) -> None:
        self._under_way[batch.target] -= 1
        code = item.error_code
        if code in _APPENDED:
            self._offsets[batch.place] = item.base_offset
            self._held_bytes -= len(batch.data)
            self._attempts.progressed()
            return
        topic, partition = batch.target
        error = error_for(code, f"produce to {topic}-{partition}", detail=getattr(item, "error_message", None))
        if isinstance(error, RetriableKafkaError):
            self._cluster.heed(error, [batch.target])
            self._failure = error
        elif not (isinstance(error, AbortableError) and batch.target in self._failed):
            # (A batch behind a failed one is out of order only because of that one.)
            raise error
        self._failed.setdefault(batch.target, []).append(batch)

    def _lost(self, connection: Connection, error: BrokenConnectionError) -> None:
        """The connection broke: whether its requests were served is unknown, so all are repeated."""
        requests = self._requests.pop(connection)
        targets: dict[TopicPartition, None] = {}
        for request in requests:
            for target, batch in request.batches.items():
                self._under_way[target] -= 1
                self._failed.setdefault(target, []).append(batch)
                targets[target] = None
        self._failure = error
        self._cluster.heed(error, targets)
        for target in targets:
            self._settle(target)

    def _settle(self, target: TopicPartition) -> None:
        """Once nothing of a partition is under way, its failed batches go back to the front, in order."""
        if self._under_way.get(target):
            return
        self._under_way.pop(target, None)
        failed = self._failed.pop(target, None)
        if failed:
            failed.sort(key=lambda batch: batch.place)
            self._waiting.setdefault(target, deque()).extendleft(reversed(failed))


def _encode(
    request: _Request,
    *,
    correlation_id: int,
    client_id: str,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> list[Buffer]:
    """The frame in parts, the batches as they are: no copy of the data is made."""
    flexible = request.version >= FIRST_FLEXIBLE_VERSION
    name, count = partial(string, flexible=flexible), partial(array_length, flexible=flexible)
    tags = b"\0" if flexible else b""
    client = client_id.encode()
    topics = by_topic(request.batches)
    head = [_HEADER.pack(_API_KEY, request.version, correlation_id, len(client)), client, tags]
    head += [name(transactional_id), _SHORT.pack(acks), _INT.pack(timeout_ms), count(len(topics))]
    parts: list[Buffer] = [b"".join(head)]
    for topic, batches in topics.items():
        parts.append(name(topic) + count(len(batches)))
        for partition, batch in batches:
            parts += (_INT.pack(partition) + count(len(batch.data)), batch.data, tags)
        parts.append(tags)
    parts.append(tags)
    return [part for part in parts if len(part)]
