"""Sends one request for many partitions: split by leader, sent to all leaders in parallel, and repeated where it
failed.

Results are kept while failed partitions are repeated, so the result is complete or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, TypeVar

from suiro.client.cluster import Cluster
from suiro.client.connection import Connection
from suiro.client.retry import RETRIED
from suiro.errors import BrokenConnectionError, KafkaError, RetriableKafkaError
from suiro.foundation.types import TopicPartition

V = TypeVar("V")
R = TypeVar("R")
Answered: TypeAlias = Iterable[tuple[TopicPartition, R | KafkaError]]
"""What a response has about each partition."""


def ask_leaders(
    cluster: Cluster,
    what: str,
    wanted: Mapping[TopicPartition, V],
    *,
    send: Callable[[Connection, Mapping[TopicPartition, V], int], None],
    receive: Callable[[Connection, Mapping[TopicPartition, V], int], Answered[R]],
    timeout_ms: int | None = None,
    leader_wait_ms: int | None = None,
) -> dict[TopicPartition, R]:
    """`send` and `receive` get (connection, the wanted partitions it leads, deadline)."""
    attempts = cluster.attempts(what, timeout_ms, leader_wait_ms=leader_wait_ms)
    pending, results = dict(wanted), dict[TopicPartition, R]()
    while pending:
        failure = _ask_once(
            cluster, what, pending, results, send=send, receive=receive, deadline_ms=attempts.deadline_ms
        )
        if failure is not None:
            attempts.failed(failure)
    return results


def _ask_once(
    cluster: Cluster,
    what: str,
    pending: dict[TopicPartition, V],
    results: dict[TopicPartition, R],
    *,
    send: Callable[[Connection, Mapping[TopicPartition, V], int], None],
    receive: Callable[[Connection, Mapping[TopicPartition, V], int], Answered[R]],
    deadline_ms: int,
) -> RetriableKafkaError | BrokenConnectionError | None:
    """Moves what was answered from `pending` to `results`; returns one failure worth a further attempt."""
    failure: RetriableKafkaError | BrokenConnectionError | None = None
    asked: list[tuple[Connection, dict[TopicPartition, V]]] = []
    fatal: KafkaError | None = None
    try:
        try:
            for node_id, items in _grouped(cluster, pending, deadline_ms).items():
                connection = cluster.broker(node_id, deadline_ms)
                send(connection, items, deadline_ms)
                asked.append((connection, items))
        except RETRIED as error:
            cluster.heed(error, pending)
            failure = error
        for connection, items in asked:
            try:
                answers = connection.matched(what, items, receive(connection, items, deadline_ms))
            except BrokenConnectionError as error:
                cluster.heed(error, items)
                failure = error
                continue
            for partition, answer in answers.items():
                if not isinstance(answer, KafkaError):
                    results[partition] = answer
                    pending.pop(partition, None)
                elif isinstance(answer, RetriableKafkaError):
                    cluster.heed(answer, [partition])
                    failure = answer
                else:
                    fatal = answer
    except BaseException:
        for connection, _ in asked:
            if connection.in_flight:  # its response would be taken for that of the next request
                connection.close()
        raise
    if fatal is not None:
        raise fatal
    return failure


def by_topic(partitions: Mapping[TopicPartition, V]) -> dict[str, list[tuple[int, V]]]:
    """{topic: [(partition, value)]}, the shape of most requests."""
    topics: dict[str, list[tuple[int, V]]] = {}
    for (topic, partition), value in partitions.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def _grouped(
    cluster: Cluster, pending: Mapping[TopicPartition, V], deadline_ms: int
) -> dict[int, dict[TopicPartition, V]]:
    groups: dict[int, dict[TopicPartition, V]] = {}
    for partition, leader in cluster.leaders(pending, deadline_ms).items():
        groups.setdefault(leader, {})[partition] = pending[partition]
    return groups
