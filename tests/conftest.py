"""Fixtures of the whole suite: a real Apache Kafka, the node, and tests that run against either."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import hypothesis
import pytest
from support import kafka_archive
from support.share import examples

from suiro.client import LATEST, Client, NewTopic
from suiro.kafka import KafkaUnavailable

# How long an example takes is the machine's doing, not the code's: no property is held to a time.
hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")

# Java's second compiler takes a fifth of the processor time of a short session, and the tests start Java many times.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
kafka_archive.use()

SETTINGS = {
    "log.cleaner.backoff.ms": "50",  # a test that waits for the cleaner does not wait for long
    # Tests write old timestamps; a retention check in the middle of one would take its records away.
    "log.retention.check.interval.ms": str(24 * 3_600_000),
    # Each is seconds by default, for which a test would wait.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
"""Of both brokers."""


def pytest_collection_finish() -> None:
    """Ten thousand tests are a gigabyte of objects, which no collection of garbage needs to look through again."""
    gc.collect()
    gc.freeze()


@contextmanager
def _skipped_without_kafka() -> Iterator[None]:
    try:
        yield
    except KafkaUnavailable as error:
        pytest.skip(f"no Apache Kafka here: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    with _skipped_without_kafka():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    with _skipped_without_kafka():
        return (yield)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their parameter and position. Some hold the time at which they were made, and then two workers
    collect tests of different names: nothing runs."""
    return argname if isinstance(val, bytes) else None


@dataclass(frozen=True)
class LogUnderTest:
    """A running log, whichever it is."""

    name: str  # "node" or "kafka"
    bootstrap_servers: str


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Apache Kafka for the whole session (`suiro.kafka.KafkaProcess`)."""
    with kafka_archive.broker(tmp_path_factory.mktemp("kafka"), SETTINGS) as process:
        yield process


@pytest.fixture(scope="session")
def tools() -> Iterator[Any]:
    """Kafka's command-line tools (`support.kafka_tools.KafkaTools`)."""
    from support.kafka_tools import KafkaTools

    with KafkaTools() as running:
        yield running


@pytest.fixture(scope="session")
def suiro_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The node as a process of its own, for the whole session (`suiro.node.NodeProcess`)."""
    from suiro.node import NodeProcess

    data = tmp_path_factory.mktemp("node")
    process = NodeProcess.start(data=data, listen="127.0.0.1:0", settings=SETTINGS)
    try:
        yield process
    finally:
        process.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Postgres for the whole session (`support.postgres.Postgres`). A test has names or a database of its own,
    and leaves the server's settings as they were."""
    from support.postgres import Postgres

    server = Postgres(tmp_path_factory.mktemp("postgres") / "data")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark for all tests of this process: starting one takes seconds, and a process has but one. Who stops it
    takes it from the tests that come later."""
    import suiro.spark

    session = suiro.spark.spark_session("suiro tests", master="local[2]", topologies_only=True)
    yield session
    session.stop()


@pytest.fixture(scope="session", params=["node", pytest.param("kafka", marks=pytest.mark.kafka)])
def log_under_test(request: pytest.FixtureRequest) -> LogUnderTest:
    """Each test that asks for it runs once on the node and once on Apache Kafka."""
    running = request.getfixturevalue({"node": "suiro_node", "kafka": "kafka"}[request.param])
    return LogUnderTest(request.param, running.bootstrap_servers)


@pytest.fixture
def bootstrap(log_under_test: LogUnderTest) -> str:
    return log_under_test.bootstrap_servers


@pytest.fixture
def client(log_under_test: LogUnderTest) -> Iterator[Client]:
    with Client(log_under_test.bootstrap_servers) as made:
        yield made


@pytest.fixture
def new_topic(client: Client) -> Callable[..., str]:
    """Makes a topic that no other test knows; returns its name."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{uuid4().hex[:12]}"
        # Apache Kafka checks once, 30 s after its start, whatever the interval is.
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        client.create_topics([NewTopic(name, partitions, configs=settings)])
        # The metadata may name a leader that does not serve yet; this is repeated until it does.
        client.list_offsets({(name, partition): LATEST for partition in range(partitions)})
        return name

    return make


@pytest.fixture
def unique() -> str:
    """A name for a group or a transactional id that no other test uses."""
    return f"id-{uuid4().hex[:12]}"


NODE_ONLY = {
    "test_adoption.py",
    "test_client_lies.py",
    "test_clients.py",
    "test_commands_dead_letter.py",
    "test_commands_group.py",
    "test_commands_records.py",
    "test_commands_schema.py",
    "test_commands_security.py",
    "test_commands_topic.py",
    "test_connect_avro.py",
    "test_connect_http_sinks.py",
    "test_connect_http_sources.py",
    "test_connect_lake.py",
    "test_connect_positions.py",
    "test_connect_postgres_sink.py",
    "test_connect_runtime.py",
    "test_console.py",
    "test_exactly_once_kill.py",
    "test_kafka_tools.py",
    "test_registry.py",
    "test_registry_storage.py",
    "test_spark_sink.py",
    "test_spark_source.py",
    "test_view_cuts.py",
    "test_view_inputs.py",
    "test_views_journal.py",
    "test_views_journal_forged.py",
}
"""What these do on Apache Kafka, they do in `make soak` only: CI has 25 minutes, and its contract tests hold the node
to Apache Kafka, request by request. What commands ask of a cluster is `Client.admin`, which CI does on both."""
ON_BOTH = {
    "test_several_topics_and_the_source_offsets_in_one_transaction",
    "test_columns",
    "test_leafing_shows_each_record_once_in_both_directions",
    "test_how_a_record_stands_in_its_transaction",
}
"""Of these files, what CI does on both."""


def pytest_report_header() -> str:
    """A failure under load is a bug as well, but it must be said that there was load."""
    return f"load: {_load()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"load at the end: {_load()}")


def _load() -> str:
    averages = " ".join(f"{average:.2f}" for average in os.getloadavg())
    return f"{averages} (averages of 1, 5, 15 minutes) on {os.cpu_count()} CPUs"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_left_out = item.path.name in NODE_ONLY and item.name.partition("[")[0] not in ON_BOTH
        if is_left_out and item.get_closest_marker("kafka") is not None:
            item.add_marker(pytest.mark.soak)
