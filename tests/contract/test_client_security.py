"""Logging in to a real Apache Kafka, and talking to it through TLS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import kafka_archive
from support.batches import batch_of, read_all

from suiro.client import Client, NewTopic
from suiro.errors import ConfigError, DeadlineExceededError, RefusedError

pytestmark = pytest.mark.kafka

PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="admin-secret" user_admin="admin-secret" user_alice="alice-secret";'
)


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    }
    with kafka_archive.killed(tmp_path_factory.mktemp("guarded"), settings=settings) as process:
        yield process


def settings(password: str = "alice-secret", mechanism: str = "PLAIN") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def test_the_right_password(guarded_kafka: Any) -> None:
    with Client(guarded_kafka.bootstrap_servers, settings=settings()) as client:
        assert isinstance(client.metadata(), dict)


def test_the_wrong_password(guarded_kafka: Any) -> None:
    with (
        Client(guarded_kafka.bootstrap_servers, settings=settings("guessed")) as client,
        pytest.raises(RefusedError, match="'alice'") as refused,
    ):
        client.metadata()
    assert refused.value.code_name == "SASL_AUTHENTICATION_FAILED"


def test_a_mechanism_the_broker_does_not_take(guarded_kafka: Any) -> None:
    with (
        Client(guarded_kafka.bootstrap_servers, settings=settings(mechanism="SCRAM-SHA-256")) as client,
        pytest.raises(ConfigError, match="it takes PLAIN"),
    ):
        client.metadata()


@pytest.fixture(scope="module")
def tls_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """(Kafka behind TLS, its self-signed certificate)."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no `openssl` here to make a certificate with")
    directory = tmp_path_factory.mktemp("tls")
    key, certificate, store = (directory / name for name in ("key.pem", "certificate.pem", "store.pem"))
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    store.write_text(key.read_text() + certificate.read_text())
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    with kafka_archive.killed(directory / "kafka", settings=settings) as process:
        yield process, certificate


def test_records_through_tls(tls_kafka: tuple[Any, Path]) -> None:
    process, certificate = tls_kafka
    trusting = {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}
    with Client(process.bootstrap_servers, settings=trusting) as client:
        client.create_topics([NewTopic("t", 1, configs={"retention.ms": "-1"})])
        values = ["x" * 1000] * 300
        client.produce({("t", 0): batch_of(*values)})
        assert read_all(client, "t") == values


def test_a_certificate_nobody_vouches_for(tls_kafka: tuple[Any, Path]) -> None:
    process, _ = tls_kafka
    with (
        Client(process.bootstrap_servers, settings={"security.protocol": "SSL"}) as client,
        pytest.raises(ConfigError, match=r"not trusted.*ssl\.ca\.location"),
    ):
        client.metadata()


def test_a_plain_client_at_a_tls_port(tls_kafka: tuple[Any, Path]) -> None:
    process, _ = tls_kafka
    quick = {"socket.connection.setup.timeout.ms": "500"}
    with (
        Client(process.bootstrap_servers, settings=quick) as client,
        pytest.raises(DeadlineExceededError, match="could not reach any bootstrap server"),
    ):
        client.metadata()
