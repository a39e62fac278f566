"""Addresses and settings of a cluster's brokers; and what `suiro kafka up` says where it cannot start."""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import suiro

from suiro.config import read_properties
from suiro.errors import ConfigError
from suiro.kafka import process, write_settings
from suiro.kafka.properties import (
    Addresses,
    Listener,
    broker_properties,
    client_listeners,
    properties_text,
)

CLIENT = Listener(name="CLIENTS", host="127.0.0.1", port=9092)
ADDRESSES = Addresses(clients=(CLIENT,), advertised=(), brokers_port=1111, controller_port=2222)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def properties(**given: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return broker_properties(
        2, named, data="/data", addresses=ADDRESSES, controllers={1: 2220, 2: 2222}, password="secret"
    )


def test_a_brokers_addresses() -> None:
    found = properties(listener_security_protocol_map="CLIENTS:SASL_SSL", node_id="7", x="y")
    assert found["listeners"] == "CLIENTS://127.0.0.1:9092,BROKERS://127.0.0.1:1111,CONTROLLER://127.0.0.1:2222"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:2220,2@127.0.0.1:2222"
    assert found["listener.security.protocol.map"] == ("CLIENTS:SASL_SSL,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT")
    assert (found["node.id"], found["x"]) == ("2", "y")
    assert client_listeners(found["listeners"]) == (CLIENT,)


def test_where_access_is_checked_the_brokers_log_in() -> None:
    found = properties(
        listener_security_protocol_map="CLIENTS:SSL",
        authorizer_class_name=AUTHORIZER,
        super_users="User:admin",
    )
    assert found["listener.security.protocol.map"].endswith("BROKERS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT")
    assert found["super.users"] == "User:admin;User:kafka-brokers"
    for name in ("brokers", "controller"):
        assert 'password="secret"' in found[f"listener.name.{name}.plain.sasl.jaas.config"]


def test_a_listener_without_a_protocol() -> None:
    with pytest.raises(ConfigError, match=r"listener CLIENTS has no protocol.*CLIENTS:PLAINTEXT"):
        properties()


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "PLAINTEXT://here", "PLAINTEXT://h:99999"])
def test_a_listener_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"expected (NAME://)?HOST:PORT"):
        client_listeners(text)


def test_the_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    settings = {"a": "back\\slash", "b": "two\nlines", "c": "x=y # z", "d": ""}
    path = tmp_path / "server.properties"
    path.write_text(properties_text(settings))
    assert read_properties(path) == settings


# What the command says. None of these starts a Kafka.


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`suiro kafka up` on a folder, on a machine that seems to have Java and Kafka."""
    monkeypatch.setattr("suiro.kafka.cluster.java_command", lambda: "/nowhere/java")
    monkeypatch.setattr("suiro.kafka.cluster.kafka_classpath", lambda: "/nowhere")

    def run(*options: str) -> str:
        done = suiro("kafka", "up", "--data", str(tmp_path / "k"), *options)
        assert done.code == 1
        return done.err.strip()

    return run


def test_a_port_that_is_taken(up: Callable[..., str]) -> None:
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        address = f"127.0.0.1:{rival.getsockname()[1]}"
        said = up("--listen", address)
    assert said == (
        f"suiro kafka up: broker 1 cannot listen on {address}: Address already in use; give another address with "
        "--listen"
    )


def test_a_folder_that_is_in_use(up: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    with (tmp_path / "k" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another `suiro kafka up` runs on" in up()


def test_a_number_of_brokers_that_is_no_quorum(up: Callable[..., str]) -> None:
    assert up("--brokers", "2").endswith("a cluster has 1 or 3 brokers, not 2")


def test_another_number_than_the_folder_has(up: Callable[..., str], tmp_path: Path) -> None:
    data = tmp_path / "k" / "broker-1" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("cluster.id=abc\nnode.id=1\nversion=1\n")
    (data.parent / "server.properties").write_text("node.id=1\n")
    assert "has 1 brokers, not 3; leave --brokers out" in up("--brokers", "3")


def test_an_address_that_leads_nowhere(up: Callable[..., str]) -> None:
    assert "name one of this machine's, or set advertised.listeners" in up("--listen", "0.0.0.0:9092")


def test_a_wrong_setting(up: Callable[..., str]) -> None:
    assert up("--set", "no-value").endswith("--set no-value: expected NAME=VALUE")


def test_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = suiro("kafka", "up", "--data", str(tmp_path / "k"))
    assert done.code == 1
    assert "needs Java 17 or later in JAVA_HOME or on the PATH" in done.err


def test_without_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(process.KafkaUnavailable, match="Maven's `mvn` is not on the PATH"):
        process.kafka_classpath()


def test_a_properties_file_says_the_same_in_latin_1(tmp_path: Path) -> None:
    """Kafka reads it so, and a password of other letters is another password."""
    given = {"sasl.jaas.config": 'm required password="p\u00e4\u00df\U0001f511\\";'}
    path = tmp_path / "server.properties"
    path.write_text(properties_text(given), encoding="utf-8")
    assert path.read_bytes().isascii()
    assert read_properties(path) == given


def test_the_settings_of_a_cluster_are_never_half_written(tmp_path: Path) -> None:
    (tmp_path / "k").mkdir()
    write_settings(tmp_path / "k", [1], home=tmp_path / "k", listen=None, settings={"super.users": "User:a"})
    path = tmp_path / "k" / "broker-1" / "server.properties"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with path.open() as before:
        write_settings(tmp_path / "k", [1], home=tmp_path / "k", listen=None, settings={"super.users": "User:b"})
        assert "User:a" in before.read()
    assert "User:b" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
