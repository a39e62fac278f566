"""What waits in the driver's own process ends when its query is stopped."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from pyspark import SparkContext

from suiro.client import Client
from suiro.errors import DeadlineExceededError
from suiro.spark import stopping
from suiro.spark.connections import lease
from suiro.spark.stopping import given_up_when_stopped


@pytest.fixture
def silent() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Event:
    """In the driver; the query runs until this is set."""
    asked = Event()
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())
    monkeypatch.setattr(stopping, "is_active", lambda query_id: query_id != "stopped" or not asked.is_set())
    return asked


def test_a_client_that_is_abandoned_waits_for_nothing(silent: str) -> None:
    client = Client(silent, settings={"socket.connection.setup.timeout.ms": 200})
    host, port = silent.split(":")
    client._cluster._brokers = {1: (host, int(port))}  # it has been there, so it is waited for
    with ThreadPoolExecutor() as threads:
        asking = threads.submit(client.metadata, ["t"], timeout_ms=600_000)
        with pytest.raises(TimeoutError):
            asking.result(1)
        client.abandon()
        with pytest.raises(DeadlineExceededError, match="told not to"):
            asking.result(60)
    assert client.is_abandoned


def test_a_client_that_was_abandoned_is_not_kept_for_the_next_task(silent: str) -> None:
    """A task may have ended before it noticed, or before the watch came to it."""
    with lease(silent, {}) as client:
        client.abandon()
    with lease(silent, {}) as other:
        assert not other.is_abandoned
    other.abandon()
    with lease(silent, {}) as third:
        assert not third.is_abandoned


def test_only_what_waits_for_a_stopped_query_is_given_up(stopped: Event) -> None:
    gone, other = Event(), Event()
    with given_up_when_stopped("other", other.set), given_up_when_stopped("stopped", gone.set):
        assert not gone.wait(2 * stopping.CHECK_S)
        stopped.set()
        assert gone.wait(60)
    assert not other.is_set()


def test_what_has_ended_by_then_is_left_alone(stopped: Event) -> None:
    ended, waiting = Event(), Event()
    with given_up_when_stopped("stopped", ended.set):
        pass
    stopped.set()
    with given_up_when_stopped("stopped", waiting.set):
        assert waiting.wait(60)
    assert not ended.is_set()


def test_a_worker_process_is_ended_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(stopping, "is_active", lambda query_id: pytest.fail("asked"))
    with given_up_when_stopped("query", lambda: None):
        pass
