"""The contract of a broker, asked of the node and of Apache Kafka."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from conftest import LogUnderTest
from support.tcp_proxy import TcpProxy
from support.wire import Wire

from suiro.client import Client, retry
from suiro.client import connection as connection_module

EVERY = 4
"""Of the questions to Apache Kafka about itself, which it answers as ever, CI asks each so many-th: it tells that the
tests are still true. Its answers to `suiro.client` are all asked for: that changes."""


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    number = 0
    for item in items:
        asked = getattr(item, "callspec", None)
        if (
            asked is not None
            and asked.params.get("log_under_test") == "kafka"
            and item.path.parent.name == "contract"
            and not item.path.name.startswith("test_client")
        ):
            if number % EVERY:
                item.add_marker(pytest.mark.soak)
            number += 1


@pytest.fixture
def wire(log_under_test: LogUnderTest) -> Iterator[Wire]:
    with Wire(log_under_test.bootstrap_servers) as made:
        yield made


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there is not waited for."""
    monkeypatch.setattr(retry, "UNKNOWN_TOPIC_GRACE_MS", 100)


@pytest.fixture
def proxy(log_under_test: LogUnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
    made = TcpProxy(log_under_test.bootstrap_servers)
    redirected = made.redirect(socket.create_connection)
    monkeypatch.setattr(connection_module.socket, "create_connection", redirected)
    yield made
    made.close()


@pytest.fixture
def far(proxy: TcpProxy, log_under_test: LogUnderTest) -> Iterator[Client]:
    """A client whose every byte passes the proxy."""
    with Client(log_under_test.bootstrap_servers, settings={"retry.backoff.ms": 5}) as made:
        yield made
