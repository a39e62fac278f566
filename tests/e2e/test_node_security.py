"""A guarded node as its clients and its operator see it: tokens, logins that expire, restarts, logs, wrong settings."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec
from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

from suiro.client.security import _Scram
from suiro.errors import ConfigError
from suiro.node import InProcessNode, NodeProcess

PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="hush-admin" user_alice="hush-alice";'
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "listener.name.plaintext.plain.sasl.jaas.config": PLAIN,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "10",
}


def log_in(wire: Wire, user: str = "admin", mechanism: str = "PLAIN") -> dict[str, Any]:
    assert ask(wire, "sasl_handshake", 1, mechanism=mechanism)["error_code"] == "none"
    return ask(wire, "sasl_authenticate", 2, auth_bytes=f"\0{user}\0hush-{user}".encode())


def is_closed(wire: Wire) -> bool:
    try:
        return wire.receive_bytes() == b""
    except OSError:
        return True


# Logins that expire


@pytest.fixture(scope="module")
def short_logins() -> Iterator[InProcessNode]:
    settings = {**SETTINGS, "listener.name.plaintext.plain.connections.max.reauth.ms": "300"}
    settings["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
    with InProcessNode.start(settings=settings) as node:
        yield node


def test_an_expired_login_is_the_end(short_logins: InProcessNode) -> None:
    with Wire(short_logins.bootstrap_servers) as wire:
        assert log_in(wire)["session_lifetime"] == 300
        assert ask(wire, "metadata", 9, topics=[])["topics"] == []

        def refused() -> bool:
            try:
                ask(wire, "metadata", 9, topics=[])
            except OSError:
                return True
            return False

        wait_until(refused, what="the login to expire")


def test_a_login_is_renewed_again_and_again(short_logins: InProcessNode) -> None:
    with Wire(short_logins.bootstrap_servers) as wire:
        log_in(wire)
        assert log_in(wire)["session_lifetime"] == 300
        assert ask(wire, "metadata", 9, topics=[])["topics"] == []
        # Sooner than after a second the second renewal is refused, as Kafka does.
        assert ask(wire, "sasl_handshake", 1, mechanism="PLAIN")["error_code"] == "illegal_sasl_state"
        wait_until(
            lambda: ask(wire, "sasl_handshake", 1, mechanism="PLAIN")["error_code"] == "none",
            what="a renewal",
        )
        token = b"\0admin\0hush-admin"
        assert ask(wire, "sasl_authenticate", 2, auth_bytes=token)["error_code"] == "none"
        assert ask(wire, "metadata", 9, topics=[])["topics"] == []


def test_a_renewed_login_is_the_same_users(short_logins: InProcessNode) -> None:
    with Wire(short_logins.bootstrap_servers) as wire:
        log_in(wire)
        answer = log_in(wire, "alice")
        assert answer["error_code"] == "sasl_authentication_failed"
        assert answer["error_message"] == (
            "Cannot change principals during re-authentication from User.admin: User.alice"
        )
        assert is_closed(wire)
    with Wire(short_logins.bootstrap_servers) as wire:
        log_in(wire)
        with pytest.raises(OSError):
            log_in(wire, mechanism="SCRAM-SHA-256")


# Tokens


def test_tokens(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    jwks = tmp_path / "jwks.json"
    algorithm = jwt.get_algorithm_by_name("ES256")
    jwks.write_text(json.dumps({"keys": [{**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": "k"}]}))
    settings = {
        **SETTINGS,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": "suiro",
    }

    def token(**claims: Any) -> str:
        now = int(time.time())
        content = {"sub": "admin", "aud": "suiro", "iat": now, "exp": now + 60, **claims}
        return jwt.encode(content, key, algorithm="ES256", headers={"kid": "k"})

    def client(text: str, failures: list[str]) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": node.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (text, time.time() + 60),
                "error_cb": lambda error: failures.append(error.name()),
                "log_level": 0,
            }
        )

    with InProcessNode.start(settings=settings) as node:
        assert client(token(), []).list_topics(timeout=10).brokers
        failures: list[str] = []
        wrong = client(token(aud="other"), failures)
        wait_until(lambda: wrong.poll(0.05) or "_AUTHENTICATION" in failures, what="the login to fail")
        with Wire(node.bootstrap_servers) as wire:
            ask(wire, "sasl_handshake", 1, mechanism="OAUTHBEARER")
            first = f"n,,\1auth=Bearer {token()}\1\1".encode()
            answer = ask(wire, "sasl_authenticate", 2, auth_bytes=first)
            assert 50_000 < answer["session_lifetime"] <= 60_000


# The operator's side


@contextmanager
def guarded(data: Path, log: Path, *users: str) -> Iterator[NodeProcess]:
    settings = {**SETTINGS, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    options = [part for user in users for part in ("--add-scram", user)]
    with NodeProcess.start(data=data, settings=settings, log=log, options=options) as node:
        yield node


def scram_works(node: NodeProcess, password: str) -> bool:
    with Wire(node.bootstrap_servers) as wire:
        ask(wire, "sasl_handshake", 1, mechanism="SCRAM-SHA-256")
        scram = _Scram("carol", password, hash_name="sha256")
        first = ask(wire, "sasl_authenticate", 2, auth_bytes=scram.first())["auth_bytes"]
        final = ask(wire, "sasl_authenticate", 2, auth_bytes=scram.final(first))
        return bool(final["error_code"] == "none")


def test_what_was_set_is_there_after_a_kill_and_no_secret_is_in_the_log_or_told_by_ps(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "node.log"
    carol = "SCRAM-SHA-256=[name=carol,password=hush-carol]"
    rule = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 8,
        "permission_type": 3,
    }
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "alice"}],
        "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}],
    }
    with guarded(data, log, carol) as node:
        assert b"hush-admin" not in Path(f"/proc/{node.pid}/cmdline").read_bytes()
        assert scram_works(node, "hush-carol")
        with Wire(node.bootstrap_servers) as wire:
            log_in(wire)
            ask(wire, "create_acls", 3, creations=[rule])
            ask(wire, "alter_client_quotas", 1, entries=[quota])
            salted = {"salt": b"salt", "salted_password": b"x" * 32, "iterations": 4096, "mechanism": 1}
            ask(wire, "alter_user_scram_credentials", 0, upsertions=[{"name": "carol", **salted}])
            config = ask(
                wire,
                "describe_configs",
                4,
                resources=[{"resource_type": 4, "resource_name": "1", "configuration_keys": None}],
            )
            assert "hush" not in repr(config)
        with Wire(node.bootstrap_servers) as wire:
            log_in(wire, "alice")
            topics = ask(wire, "metadata", 9, topics=[{"name": "u"}], allow_auto_topic_creation=True)["topics"]
            assert topics[0]["error_code"] == "topic_authorization_failed"
        assert (data / "cluster-state.json").stat().st_mode & 0o777 == 0o600
        node.kill()
    with guarded(data, log, carol) as node:
        assert not scram_works(node, "hush-carol"), "the password that was changed stays changed"
        with Wire(node.bootstrap_servers) as wire:
            log_in(wire, "alice")
            topics = ask(wire, "metadata", 9, topics=[{"name": "t"}], allow_auto_topic_creation=False)["topics"]
            assert topics[0]["error_code"] == "unknown_topic_or_partition"
        with Wire(node.bootstrap_servers) as wire:
            log_in(wire)
            entries = ask(wire, "describe_client_quotas", 1, components=[])["entries"]
            assert entries[0]["values"] == [{"key": "producer_byte_rate", "value": 5.0}]
    text = log.read_text()
    assert "hush" not in text
    assert (
        "suiro.audit: Principal = User:alice is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = "
        "TOPIC:LITERAL:u based on rule DefaultDeny"
    ) in text
    assert "suiro.audit: Failed authentication with 127.0.0.1:" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "a node has PLAIN, SCRAM-SHA-256"),
        ({"listener.name.plaintext.plain.sasl.jaas.config": "x required;"}, "user_NAME"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "jwks"),
    ],
)
def test_a_node_that_nobody_could_log_in_to_does_not_start(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        InProcessNode.start(settings={**SETTINGS, **changes})


def test_connections_of_one_address_come_only_so_fast() -> None:
    with InProcessNode.start() as node:
        with Wire(node.bootstrap_servers) as wire:
            entry = {
                "entity": [{"entity_type": "ip", "entity_name": "127.0.0.1"}],
                "ops": [{"key": "connection_creation_rate", "value": 1.0, "remove": False}],
            }
            ask(wire, "alter_client_quotas", 1, entries=[entry])

            def refused() -> bool:
                with Wire(node.bootstrap_servers) as another:
                    try:
                        ask(another, "api_versions", 0)
                    except OSError:
                        return True
                    return False

            assert sum(refused() for _ in range(12)) == 2
            entry["ops"] = [{"key": "connection_creation_rate", "value": 0.0, "remove": True}]
            ask(wire, "alter_client_quotas", 1, entries=[entry])
        assert not refused()
