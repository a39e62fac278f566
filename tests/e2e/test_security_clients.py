"""The same guarded broker, the node and Apache Kafka, for clients of four families: TLS, SCRAM, access rules, quotas.

The user `app` logs in by SCRAM-SHA-512 over TLS, may write and read topics whose names begin with `app-`, and nothing
else. Kafka's own tools make that user and its rules, while the broker runs. The run on Apache Kafka is a soak test: it
tells a change of a client from a fault of ours.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Authority
from support.franz_client import franz
from support.kafka_tools import KafkaTools
from support.waiting import wait_until

from suiro.kafka import KafkaProcess
from suiro.node import InProcessNode, NodeProcess

COUNT = 100
PASSWORD = "its password"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} username="admin" password="change-me" user_admin="change-me";'
    ),
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": "20",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "group.initial.rebalance.delay.ms": "0",
}
OF_KAFKA = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


@dataclass(frozen=True, kw_only=True)
class Guarded:
    bootstrap_servers: str
    trusted: Path
    prefix: str = "app-"

    def java(self, module: str, user: str, password: str) -> str:
        """What Kafka's tools take as --command-config."""
        mechanism = "PLAIN" if module is PLAIN_MODULE else "SCRAM-SHA-512"
        return "".join(
            f"{name}={value}\n"
            for name, value in {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f'{module} username="{user}" password="{password}";',
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.trusted),
            }.items()
        )

    def librdkafka(self, password: str = PASSWORD, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trusted),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": password,
            "log_level": 0,
        } | more

    def python(self, password: str = PASSWORD) -> dict[str, Any]:
        """For aiokafka and kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self.trusted)),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "app",
            "sasl_plain_password": password,
        }


@pytest.fixture(
    scope="module",
    params=["node", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.soak])],
)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    work = tmp_path_factory.mktemp(f"guarded-{request.param}")
    authority = Authority(work / "authority")
    store = {
        "ssl.keystore.location": str(authority.sign("server", subject="/CN=localhost")),
        "ssl.truststore.location": str(authority.certificate),
    }
    if request.param == "node":
        running: Any = NodeProcess.start(settings=SETTINGS | store)
    else:
        running = KafkaProcess.start(work / "kafka", settings=SETTINGS | OF_KAFKA | store, heap="512m")
    with running:
        yield Guarded(bootstrap_servers=running.bootstrap_servers, trusted=authority.certificate)


@pytest.fixture(scope="module")
def admin(broker: Guarded, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """A tool of Kafka's as the administrator."""
    config = tmp_path_factory.mktemp("admin") / "admin.properties"
    config.write_text(broker.java(PLAIN_MODULE, "admin", "change-me"))

    def run(tool: str, *arguments: str) -> str:
        return tools(tool, "--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config), *arguments)

    return run


@pytest.fixture(scope="module")
def guarded(broker: Guarded, admin: Callable[..., str]) -> Guarded:
    """With the topics, the user and its rules."""
    for topic in ("app-java", "app-librdkafka", "app-aiokafka", "app-kafka-python", "app-go", "payroll"):
        admin("kafka-topics", "--create", "--topic", topic, "--partitions", "1")
    password = f"SCRAM-SHA-512=[iterations=4096,password={PASSWORD}]"
    said = admin("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "app", "--add-config", password)
    assert "Completed updating config for user app" in said
    rules = ("--add", "--allow-principal", "User:app", "--resource-pattern-type", "prefixed")
    admin("kafka-acls", *rules, "--topic", "app-", "--operation", "Read", "--operation", "Write")
    admin("kafka-acls", *rules, "--group", "app-", "--operation", "Read")
    said = admin("kafka-acls", "--list", "--principal", "User:app")
    assert "ResourcePattern(resourceType=GROUP, name=app-, patternType=PREFIXED)" in said
    return broker


def test_java(guarded: Guarded, tools: KafkaTools, tmp_path: Path) -> None:
    def run(tool: str, password: str, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        config = tmp_path / "app.properties"
        config.write_text(guarded.java(SCRAM_MODULE, "app", password))
        at = ("--bootstrap-server", guarded.bootstrap_servers, "--command-config", str(config))
        return tools.run(tool, *at, *arguments, stdin=stdin)

    values = "".join(f"{number}\n" for number in range(COUNT))
    code, said = run("kafka-console-producer", PASSWORD, "--topic", "app-java", stdin=values.encode())
    assert (code, "ERROR" in said) == (0, False), said
    _, said = run(
        "kafka-console-consumer", PASSWORD, "--topic", "app-java", "--from-beginning", "--group", "app-java",
        "--max-messages", str(COUNT), "--timeout-ms", "30000",
    )  # fmt: skip
    assert [line for line in said.splitlines() if line.isdigit()] == values.split()
    code, said = run("kafka-topics", PASSWORD, "--list")
    assert sorted(line for line in said.splitlines() if line) == [
        f"app-{name}" for name in ("aiokafka", "go", "java", "kafka-python", "librdkafka")
    ]
    code, said = run("kafka-get-offsets", PASSWORD, "--topic", "payroll")
    assert code != 0
    code, said = run("kafka-topics", "guess", "--list")
    assert code != 0
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in said


def test_java_logs_in_again_on_the_same_connection(tools: KafkaTools, tmp_path: Path) -> None:
    """KIP-368: the producer goes on over the end of its login, and no record is lost."""
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "connections.max.reauth.ms": "1500",
    }
    user = f'SCRAM-SHA-512=[name=app,password="{PASSWORD}"]'
    config = tmp_path / "app.properties"
    login = f'sasl.jaas.config={SCRAM_MODULE} username="app" password="{PASSWORD}";\n'
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n{login}")
    with InProcessNode.start(settings=settings, add_scram=[user]) as node:
        said = tools(
            "kafka-producer-perf-test", "--bootstrap-server", node.bootstrap_servers, "--command-config",
            str(config), "--topic", "t", "--num-records", "4000", "--record-size", "10", "--throughput", "1000",
        )  # fmt: skip
        assert "4000 records sent" in said
        listed = node.call(lambda: node.broker.topics.partition("t", 0))
        assert listed is not None
        assert listed.log.log_end_offset == 4000
        logins = {
            family.name.partition("metrics_")[2]: sum(value for _, value in samples)
            for family, samples in node.call(node.broker.metrics.snapshot)
            if "authentication" in family.name
        }
    assert logins["successful_reauthentication_total"] >= 1
    assert logins["failed_reauthentication_total"] == logins["failed_authentication_total"] == 0
    assert node.broker.server.killed_when_expired == 0


def test_quotas_through_kafkas_tool(guarded: Guarded, admin: Callable[..., str]) -> None:
    """A producer hears for how long it is held back."""
    from confluent_kafka import Producer

    of_user = ("--alter", "--entity-type", "users", "--entity-name", "app")
    admin("kafka-configs", *of_user, "--add-config", "producer_byte_rate=20000")
    said = admin("kafka-configs", "--describe", "--entity-type", "users", "--entity-name", "app")
    assert "producer_byte_rate=20000" in said
    throttled: list[float] = []
    producer = Producer(
        guarded.librdkafka(throttle_cb=lambda event: throttled.append(event.throttle_time)) | {"linger.ms": 0}
    )

    def seen() -> bool:
        producer.produce("app-librdkafka", b"x" * 50_000)
        producer.flush(0.1)
        return bool(throttled)

    wait_until(seen, what="a throttle")
    admin("kafka-configs", *of_user, "--delete-config", "producer_byte_rate")
    producer.purge()


def test_librdkafka(guarded: Guarded) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer(guarded.librdkafka() | {"enable.idempotence": True})
    errors: list[Any] = []
    producer.produce("payroll", "x", on_delivery=lambda error, message: errors.append(error.name()))
    for number in range(COUNT):
        producer.produce("app-librdkafka", str(number))
    assert producer.flush(30) == 0
    assert errors == ["TOPIC_AUTHORIZATION_FAILED"]
    group = {"group.id": "app-librdkafka", "auto.offset.reset": "earliest"}
    consumer = Consumer(guarded.librdkafka() | group)
    consumer.subscribe(["app-librdkafka"])
    found: list[str] = []

    def enough() -> bool:
        batch = consumer.consume(100, timeout=0.1)
        assert [message.error() for message in batch if message.error()] == []
        found.extend(m.value().decode() for m in batch if len(m.value()) < 10)  # not those of the quotas' test
        return len(found) >= COUNT

    wait_until(enough, deadline_s=60)
    consumer.close()
    assert found == [str(number) for number in range(COUNT)]
    failures: list[str] = []
    stranger = Producer(guarded.librdkafka("guess") | {"error_cb": lambda e: failures.append(e.name())})
    wait_until(lambda: stranger.poll(0.05) or "_AUTHENTICATION" in failures, what="the login to fail")
    distrusting = guarded.librdkafka() | {"error_cb": lambda e: failures.append(e.name())}
    del distrusting["ssl.ca.location"]
    other = Producer(distrusting)
    wait_until(lambda: other.poll(0.05) or "_SSL" in failures, what="the certificate to be refused")


def test_aiokafka(guarded: Guarded) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, TopicAuthorizationFailedError

    topic = "app-aiokafka"

    async def run() -> None:
        producer = AIOKafkaProducer(**guarded.python())
        consumer = AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **guarded.python())
        await producer.start()
        await consumer.start()
        try:
            for number in range(COUNT):
                await producer.send(topic, str(number).encode())
            await producer.flush()
            found: list[str] = []
            async with asyncio.timeout(60):
                while len(found) < COUNT:
                    for batch in (await consumer.getmany(timeout_ms=100)).values():
                        found += [record.value.decode() for record in batch]
            assert found == [str(number) for number in range(COUNT)]
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("payroll", b"x")
        finally:
            await producer.stop()
            await consumer.stop()
        stranger = AIOKafkaProducer(**guarded.python("guess"))
        with pytest.raises((AuthenticationFailedError, KafkaConnectionError)):
            await stranger.start()
        await stranger.stop()

    asyncio.run(run())


def test_kafka_python(guarded: Guarded) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError

    topic = "app-kafka-python"
    producer = KafkaProducer(**guarded.python())
    for number in range(COUNT):
        producer.send(topic, str(number).encode())
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **guarded.python()
    )
    found = [next(consumer).value.decode() for _ in range(COUNT)]
    consumer.close()
    assert found == [str(number) for number in range(COUNT)]
    with pytest.raises(KafkaError):
        KafkaProducer(**guarded.python("guess"), bootstrap_timeout_ms=1000)


def test_go(guarded: Guarded) -> None:
    done = subprocess.run(
        [str(franz()), guarded.bootstrap_servers, guarded.prefix, "security", str(guarded.trusted), PASSWORD],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
