"""Settings, addresses, and what they refuse."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from suiro.client import Client, ClientSettings
from suiro.client.cluster import parse_bootstrap_servers
from suiro.client.security import _credentials, check, tls_context
from suiro.errors import ConfigError

PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def test_names_are_those_of_kafkas_clients() -> None:
    settings = ClientSettings.from_mapping({"client.id": "me", "request.timeout.ms": "5"})
    assert (settings.client_id, settings.request_timeout_ms) == ("me", 5)
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"request.timout.ms": "1"}, "'request.timout.ms'; did you mean 'request.timeout.ms'"),
        ({"zzz": "1"}, "'zzz'; known are"),
        ({"request.timeout.ms": "soon"}, "request.timeout.ms must be a whole number, got 'soon'"),
        ({"request.timeout.ms": True}, "request.timeout.ms must be a whole number, got True"),
        ({"request.timeout.ms": 1.5}, "request.timeout.ms must be a whole number, got 1.5"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms must be at least 1"),
        ({"max.in.flight.requests.per.connection": "6"}, "at most 5"),
        ({"ssl.endpoint.identification.algorithm": "htps"}, "is https, or none"),
        ({"security.protocol": "TELEPATHY"}, "security.protocol is one of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "'GSSAPI' is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.username"),
        ({**PLAIN, "sasl.jaas.config": 'username="a" password="b"'}, "after the login module comes one of"),
        ({**PLAIN, "sasl.jaas.config": "a required; b required;"}, "it has 2 login modules"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Client("localhost:9092", settings=settings)
    assert message in str(error.value)


def test_a_user_from_a_jaas_configuration() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\"c";'
    check(
        ClientSettings.from_mapping(
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        )
    )


@pytest.mark.parametrize(
    ("written", "password"),
    [
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r'"a\\\"b"', r"a\"b"),
        (r'"a\-b"', "a-b"),
        ("a-b", "a-b"),
        ("'a b'", "a b"),
        (r'"\101"', "A"),
        ('"username=\\"c\\""', 'username="c"'),
    ],
)
def test_a_password_with_escapes_is_what_java_reads(written: str, password: str) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password={written};'
    settings = ClientSettings.from_mapping({"sasl.jaas.config": jaas})
    assert _credentials(settings) == ("a", password)


def test_bootstrap_servers() -> None:
    assert parse_bootstrap_servers("a:1, [::1]:2,") == (("a", 1), ("::1", 2))


@pytest.mark.parametrize(
    "servers", ["", "host", "host:", ":9092", "host:port", "host:0", "host:70000", "a:s3@b:1", "a:s,s3@b:1"]
)
def test_bootstrap_servers_that_are_none(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers") as raised:
        parse_bootstrap_servers(servers)
    assert "s3" not in str(raised.value)


@pytest.mark.parametrize(("said", "is_checked"), [("https", True), ("HTTPS", True), ("none", False), ("", False)])
def test_host_names_are_checked_as_java_spells_it_too(said: str, is_checked: bool) -> None:
    settings = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": said}
    context = tls_context(ClientSettings.from_mapping(settings))
    assert context.check_hostname == is_checked


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "ssl.ca.location /nowhere/ca.pem: "),
        ({"ssl.certificate.location": "/nowhere/me.pem"}, "ssl.certificate.location /nowhere/me.pem with "),
    ],
)
def test_a_file_of_tls_that_is_not_there_is_named(missing: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tls_context(ClientSettings.from_mapping({"security.protocol": "SSL", **missing}))
    assert str(refused.value).startswith(named)


@pytest.mark.parametrize("host", ["a..b", "a" * 300 + ".example"], ids=["empty label", "long label"])
def test_a_name_that_no_host_can_have_is_named(host: str) -> None:
    with (
        Client(f"{host}:9092") as client,
        pytest.raises(ConfigError, match=f"no host has the name '{host}'"),
    ):
        client.brokers(timeout_ms=1_000)
