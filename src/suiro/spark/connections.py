"""Clients kept open between the tasks and micro-batches of one process: connecting costs more than most requests.

Spark reuses its Python workers, so a worker finds here the client that its last task left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from suiro.client import Client
from suiro.clock import Clock
from suiro.errors import UnknownTopicError
from suiro.spark.options import SinkOptions
from suiro.spark.waiting import RetryingClient, Waiting

IDLE_CLIENTS_MAX = 4  # per cluster and process
PARTITION_COUNT_MAX_AGE_MS = 5_000

_Key = tuple[int, str, tuple[tuple[str, str], ...]]

_lock = Lock()
_idle: dict[_Key, list[Client]] = {}
_counts: dict[tuple[_Key, str], tuple[int, int]] = {}


@contextmanager
def lease(bootstrap_servers: str, settings: Mapping[str, str]) -> Iterator[Client]:
    """A client that nobody else uses meanwhile. Closed after an error, kept for the next one otherwise."""
    key = _key(bootstrap_servers, settings)
    with _lock:
        waiting = _idle.get(key)
        client = waiting.pop() if waiting else None
    if client is not None and client.is_abandoned:
        # The stop of a query reached it after its task had given it back.
        client.close()
        client = None
    if client is None:
        client = Client(bootstrap_servers, settings=settings)
    try:
        yield client
    except BaseException:
        client.close()
        raise
    with _lock:
        waiting = _idle.setdefault(key, [])
        # One that was abandoned as the query was stopped is of no use to the next one.
        if len(waiting) < IDLE_CLIENTS_MAX and not client.is_abandoned:
            waiting.append(client)
            return
    client.close()


def partition_counter(options: SinkOptions, *, waiting: Waiting, clock: Clock) -> Callable[[str], int]:
    """How many partitions a topic has where this sink writes, asked at most every few seconds. Raises
    `UnknownTopicError`."""
    where = options.bootstrap_servers, options.client_settings

    def count(topic: str) -> int:
        key = (_key(*where), topic)
        known, now_ms = _counts.get(key), clock.monotonic_ms()
        if known is not None and now_ms - known[1] < PARTITION_COUNT_MAX_AGE_MS:
            return known[0]
        with lease(*where) as client:
            info = RetryingClient(client, waiting).metadata([topic]).get(topic)
        if info is None:
            raise UnknownTopicError(
                f"topic {topic!r} does not exist; create it before writing to it", "UNKNOWN_TOPIC_OR_PARTITION"
            )
        _counts[key] = (len(info.partitions), now_ms)
        return len(info.partitions)

    return count


def _key(bootstrap_servers: str, settings: Mapping[str, str]) -> _Key:
    # The process id: a forked worker must not write into its parent's sockets.
    return (os.getpid(), bootstrap_servers, tuple(sorted(settings.items())))
