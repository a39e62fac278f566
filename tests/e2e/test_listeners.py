"""Listeners of a running node: addresses, TLS, logins, limits, and the metrics that tell of them."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.admin import ask
from support.batches import batch_of
from support.certificates import Authority
from support.waiting import wait_until
from support.wire import TIMEOUT_S, Wire

from suiro.broker.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from suiro.broker.security.authorizer import AclAuthorizer
from suiro.client import Client, NewTopic
from suiro.errors import ConfigError, SuiroError
from suiro.node import InProcessNode
from suiro.protocol.messages import API_KEYS, nested, request_class, write_request
from suiro.protocol.records import decode_batch

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="a" user_alice="wonder";'
)
SUBJECT = "/C=DE/O=Suiro, Inc./OU=Tests/CN=App One"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server_pem(authority: Authority) -> Path:
    return authority.sign("server", subject="/CN=localhost")


@contextmanager
def node(**settings: str) -> Iterator[InProcessNode]:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    with InProcessNode.start(settings=named) as running:
        yield running


def with_tls(server_pem: Path, **more: str) -> dict[str, str]:
    return {"listeners": "SSL://127.0.0.1:0", "ssl__keystore__location": str(server_pem)} | more


class OverTls(Wire):
    """The same wire through TLS."""

    def __init__(self, bootstrap_servers: str, context: ssl.SSLContext) -> None:
        super().__init__(bootstrap_servers)
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")

    @property
    def server_certificate(self) -> bytes | None:
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.getpeercert(binary_form=True)


def trusting(authority: Authority, certificate: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


def cluster(wire: Wire) -> Any:
    message = request_class(API_KEYS["describe_cluster"], 1)
    return wire.call(message(include_cluster_authorized_operations=False, endpoint_type=1))


def addresses(running: InProcessNode) -> dict[str, str]:
    return {one.name: one.bootstrap_servers for one in running.broker.server.listeners}


def number_of_connections(running: InProcessNode) -> int:
    return len(running.broker.server.connections)


# Addresses


def test_a_client_is_told_the_address_of_the_listener_it_came_in_by() -> None:
    with node(
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://0.0.0.0:0,FAR://127.0.0.1:0",
        listener__security__protocol__map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,FAR:PLAINTEXT",
        advertised__listeners="FAR://broker.example.com:19092",
    ) as running:
        at = addresses(running)
        assert running.bootstrap_servers == at["INSIDE"]
        for name, address in at.items():
            with Wire(address) as wire:
                (broker,) = cluster(wire).brokers
            told = "broker.example.com:19092" if name == "FAR" else address
            assert f"{broker.host}:{broker.port}" == told


def test_a_client_by_ipv4_has_its_address_at_a_listener_for_both_families() -> None:
    """A socket for IPv6 names it `::ffff:127.0.0.1`: no rule and no limit for 127.0.0.1 was for it."""
    with node(
        listeners="PLAINTEXT://[::]:0",
        authorizer__class__name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super__users="User:admin",
        allow__everyone__if__no__acl__found="true",
        max__connections__per__ip__overrides="127.0.0.1:1",
    ) as running:
        authorizer = running.broker.authorizer
        assert isinstance(authorizer, AclAuthorizer)
        allowed = Acl(
            kind=ResourceType.TOPIC,
            name="t",
            pattern=PatternType.LITERAL,
            principal="User:*",
            host="*",
            operation=Operation.ALL,
            permission=Permission.ALLOW,
        )
        denied = replace(allowed, host="127.0.0.1", permission=Permission.DENY)
        running.call(lambda: authorizer.acls.add([allowed, denied]))
        with Wire(running.bootstrap_servers) as wire:
            (broker,) = cluster(wire).brokers
            assert broker.host == "127.0.0.1"
            (found,) = ask(wire, "metadata", 12, topics=[{"topic_id": None, "name": "t"}])["topics"]
            assert found["error_code"] == "topic_authorization_failed"
            with Wire(running.bootstrap_servers) as one_too_many, pytest.raises(ConnectionError):
                cluster(one_too_many)


def test_a_restart_keeps_the_addresses() -> None:
    with node(listeners="PLAINTEXT://127.0.0.1:0") as running:
        before = addresses(running)
        running.restart()
        assert addresses(running) == before


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}"),
            node(listeners=f"PLAINTEXT://127.0.0.1:{port}"),
        ):
            pass


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [
        ("OPEN", "SSL"),
        ("OPEN", "SASL_PLAINTEXT"),
        ("LOGIN", "PLAINTEXT"),
        ("TLS", "PLAINTEXT"),
        ("TLS", "SASL_PLAINTEXT"),
    ],
)
def test_a_client_with_another_protocol_is_told_where_to_look(listener: str, protocol: str, server_pem: Path) -> None:
    settings = {"security.protocol": protocol, "socket.connection.setup.timeout.ms": "500"}
    if protocol.startswith("SASL"):
        settings |= {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "wonder"}
    with node(
        listeners="OPEN://127.0.0.1:0,LOGIN://127.0.0.1:0,TLS://127.0.0.1:0",
        listener__security__protocol__map="OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL",
        sasl__enabled__mechanisms="PLAIN",
        listener__name__login__plain__sasl__jaas__config=PLAIN_JAAS,
        ssl__keystore__location=str(server_pem),
    ) as running:
        address = addresses(running)[listener]
        with Client(address, settings=settings) as client, pytest.raises(SuiroError) as told:
            client.brokers(timeout_ms=500)
    assert address in str(told.value)
    assert str(told.value).endswith(f"is security.protocol ({protocol}) that port's?")


# TLS


def test_records_through_tls(authority: Authority, server_pem: Path) -> None:
    """Frames larger than any TLS record, both ways; answers come from file regions."""
    values = [f"{number:06}" + "x" * 100_000 for number in range(30)]
    with node(**with_tls(server_pem)) as running:
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
        with Client(running.bootstrap_servers, settings=settings) as client:
            client.create_topics([NewTopic("t", 1, configs={"max.message.bytes": "10000000"})])
            client.produce({("t", 0): batch_of(*values)})
        with OverTls(running.bootstrap_servers, trusting(authority)) as wire:
            fetched = fetch_bytes(wire, running, "t", wanted=3_000_000)
            assert [record.value for record in decode_batch(fetched)] == [value.encode() for value in values]
            assert cluster(wire).controller_id == 1


def fetch_bytes(wire: Wire, running: InProcessNode, topic: str, *, wanted: int) -> bytes:
    message = request_class(API_KEYS["fetch"], 12)
    partition = nested(message, "FetchPartition")(
        partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=50_000_000,
    )  # fmt: skip
    response = wire.call(
        message(
            max_wait=timedelta(0), min_bytes=1, max_bytes=50_000_000, isolation_level=0, session_id=0,
            session_epoch=-1, forgotten_topics_data=(), rack_id="",
            topics=(nested(message, "FetchTopic")(topic=topic, partitions=(partition,)),),
        )
    )  # fmt: skip
    records = response.responses[0].partitions[0].records
    assert len(records) >= wanted
    return bytes(records)


@pytest.mark.parametrize("rest", ["DEFAULT", r"RULE:^CN=(.*?),OU=Tests,.*$/$1/L,DEFAULT"])
def test_a_clients_certificate_says_who_it_is(authority: Authority, server_pem: Path, rest: str) -> None:
    app = authority.sign("app", subject=SUBJECT)
    more = {
        "ssl__truststore__location": str(authority.certificate),
        "ssl__client__auth": "required",
        "ssl__principal__mapping__rules": rest,
    }
    expected = r"User:CN=App One,OU=Tests,O=Suiro\, Inc.,C=DE" if rest == "DEFAULT" else "User:app one"
    with (
        node(**with_tls(server_pem, **more)) as running,
        OverTls(running.bootstrap_servers, trusting(authority, app)) as wire,
    ):
        cluster(wire)
        (connection,) = running.broker.server.connections
        assert connection.session.principal == expected


def test_who_shows_no_certificate_stays_outside(
    authority: Authority, server_pem: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = {"ssl__truststore__location": str(authority.certificate), "ssl__client__auth": "required"}
    stranger = Authority(Path(str(authority.certificate.parent)) / "other", name="nobody")
    with node(**with_tls(server_pem, **more)) as running:
        for certificate in (None, stranger.sign("stranger", subject="/CN=x")):
            caplog.clear()
            with (
                pytest.raises((OSError, ConnectionError)),
                OverTls(running.bootstrap_servers, trusting(authority, certificate)) as wire,
            ):
                cluster(wire)
            wait_until(lambda: number_of_connections(running) == 0)
            lines = [record.getMessage() for record in caplog.records if record.name.startswith("suiro")]
            assert len(lines) == 1
            assert "the TLS handshake failed" in lines[0]


def test_garbage_at_a_tls_port_closes_that_connection_only(authority: Authority, server_pem: Path) -> None:
    with node(**with_tls(server_pem)) as running:
        with (
            Wire(running.bootstrap_servers) as plain,
            pytest.raises((ConnectionError, struct.error, OSError)),
        ):
            cluster(plain)
        with OverTls(running.bootstrap_servers, trusting(authority)) as wire:
            assert cluster(wire).controller_id == 1


def test_certificates_are_taken_up_when_their_files_change(tmp_path: Path, caplog: Any) -> None:
    authority = Authority(tmp_path / "authority")
    store = tmp_path / "store.pem"
    store.write_text(authority.sign("first", subject="/CN=first").read_text())
    with node(**with_tls(store)) as running:
        context = trusting(authority)
        with OverTls(running.bootstrap_servers, context) as kept:
            first = kept.server_certificate
            store.write_text("no certificate")
            server = running.broker.server
            running._loop.call_soon_threadsafe(server.refresh_certificates)
            wait_until(lambda: "keeps its certificate" in caplog.text)
            store.write_text(authority.sign("second", subject="/CN=second").read_text())
            running._loop.call_soon_threadsafe(server.refresh_certificates)

            def changed() -> bool:
                with OverTls(running.bootstrap_servers, context) as wire:
                    return cluster(wire).controller_id == 1 and wire.server_certificate != first

            wait_until(changed)
            assert cluster(kept).controller_id == 1


def test_a_certificate_is_altered_by_an_admin_client(authority: Authority, server_pem: Path) -> None:
    """One that cannot be used is refused: the node could not start with it."""
    other = authority.sign("other", subject="/CN=other")
    listener = {"listeners": "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0"}
    listener["listener__security__protocol__map"] = "PLAINTEXT:PLAINTEXT,OUT:SSL"
    name = "listener.name.out.ssl.keystore.location"
    with (
        node(**listener, ssl__keystore__location=str(server_pem)) as running,
        Wire(running.bootstrap_servers) as wire,
    ):

        def alter(name: str, value: str) -> tuple[str, str | None]:
            configs = [{"name": name, "config_operation": 0, "value": value}]
            resource = {"resource_type": 4, "resource_name": "1", "configs": configs}
            (answer,) = ask(wire, "incremental_alter_configs", 1, resources=[resource])["responses"]
            return answer["error_code"], answer["error_message"]

        def shown() -> bytes | None:
            with OverTls(addresses(running)["OUT"], trusting(authority)) as over_tls:
                return over_tls.server_certificate

        first = shown()
        code, message = alter(name, "/not/there.pem")
        assert code == "invalid_request"
        assert message == ("listener OUT: ssl.keystore.location = /not/there.pem: No such file or directory")
        assert shown() == first
        assert alter(name, str(other)) == ("none", None)
        assert shown() != first
        code, message = alter("listener.name.out.ssl.client.auth", "required")
        assert (code, "ssl.truststore.location" in str(message)) == ("invalid_request", True)
        code, message = alter("listener.name.out.ssl.principal.mapping.rules", "RULE:")
        assert (code, "ssl.principal.mapping.rules" in str(message)) == ("invalid_request", True)
        assert alter("listener.name.out.sasl.server.max.receive.size", "9")[1] == (
            "Cannot update these configs dynamically: [listener.name.out.sasl.server.max.receive.size]"
        )
        running.restart()
        assert shown() != first


# Logins


def login(wire: Wire, user: str, password: str) -> Any:
    wire.call(request_class(API_KEYS["sasl_handshake"], 1)(mechanism="PLAIN"))
    message = request_class(API_KEYS["sasl_authenticate"], 2)
    return wire.call(message(auth_bytes=f"\0{user}\0{password}".encode()))


@pytest.fixture
def guarded() -> Iterator[InProcessNode]:
    with node(
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        listener__name__sasl_plaintext__plain__sasl__jaas__config=PLAIN_JAAS,
        connection__failed__authentication__delay__ms="50",
        connections__max__reauth__ms="800",
    ) as running:
        yield running


def test_nothing_is_served_before_a_login(guarded: InProcessNode) -> None:
    with Wire(guarded.bootstrap_servers) as wire:
        assert wire.call(request_class(18, 0)()).error_code.name == "none"
        with pytest.raises(ConnectionError):
            cluster(wire)
    with Wire(guarded.bootstrap_servers) as wire:
        assert login(wire, "alice", "wonder").error_code.name == "none"
        assert cluster(wire).controller_id == 1
    with Wire(guarded.bootstrap_servers) as wire:
        assert login(wire, "alice", "guess").error_code.name == "sasl_authentication_failed"
        with pytest.raises(ConnectionError):
            cluster(wire)


@pytest.mark.parametrize("password", ["wonder", "guess"])
def test_a_login_of_before_kafka_1_sends_its_messages_bare(guarded: InProcessNode, password: str) -> None:
    with Wire(guarded.bootstrap_servers) as wire:
        wire.call(request_class(API_KEYS["sasl_handshake"], 0)(mechanism="PLAIN"))
        wire.send_bytes(f"\0alice\0{password}".encode())
        if password == "wonder":
            assert wire.receive_bytes() == b""
            assert cluster(wire).controller_id == 1
        else:
            with pytest.raises(ConnectionError):
                wire.receive_bytes()


def test_a_login_ends_unless_it_is_renewed(guarded: InProcessNode) -> None:
    with Wire(guarded.bootstrap_servers) as wire:
        login(wire, "alice", "wonder")
        (connection,) = guarded.broker.server.connections
        wait_until(lambda: not connection.authenticated)
        assert login(wire, "alice", "wonder").error_code.name == "none"
        assert cluster(wire).controller_id == 1
        wait_until(lambda: not connection.authenticated)
        with pytest.raises(ConnectionError):
            cluster(wire)
    assert guarded.broker.server.killed_when_expired == 1


def test_users_and_mechanisms_are_altered_while_the_node_runs() -> None:
    """They hold for logins from then on; what nobody could log in with is refused."""
    jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    bob = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="builder";'
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", jaas.replace(".", "__"): PLAIN_JAAS}
    with node(**settings) as guarded, Wire(guarded.bootstrap_servers) as wire:
        assert login(wire, "alice", "wonder").error_code.name == "none"

        def alter(name: str, value: str) -> tuple[str, str]:
            configs = [{"name": name, "config_operation": 0, "value": value}]
            resource = {"resource_type": 4, "resource_name": "1", "configs": configs}
            (answer,) = ask(wire, "incremental_alter_configs", 1, resources=[resource])["responses"]
            return answer["error_code"], str(answer["error_message"])

        code, message = alter(jaas, "org.example.Module required;")
        assert (code, "plain.sasl.jaas.config" in message) == ("invalid_request", True)
        code, message = alter("sasl.enabled.mechanisms", "GSSAPI")
        assert (code, "a node has PLAIN" in message) == ("invalid_request", True)
        assert alter("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512")[0] == "none"
        assert alter(jaas, bob)[0] == "none"
        for user, password, code in (
            ("bob", "builder", "none"),
            ("alice", "wonder", "sasl_authentication_failed"),
        ):
            with Wire(guarded.bootstrap_servers) as other:
                chosen = other.call(request_class(API_KEYS["sasl_handshake"], 1)(mechanism="SCRAM-SHA-1"))
                assert chosen.mechanisms == ("PLAIN", "SCRAM-SHA-512")
            with Wire(guarded.bootstrap_servers) as other:
                assert login(other, user, password).error_code.name == code


def test_a_large_frame_before_a_login_is_refused(guarded: InProcessNode) -> None:
    with Wire(guarded.bootstrap_servers) as wire:
        wire._socket.sendall(struct.pack(">i", 1_000_000))
        with pytest.raises(ConnectionError):
            wire.receive_bytes()


# Limits


def is_served(sock: socket.socket) -> bool:
    """Whether ApiVersions is answered on it within a moment."""
    frame = struct.pack(">hhih", 18, 0, 7, -1)
    sock.sendall(struct.pack(">i", len(frame)) + frame)
    sock.settimeout(0.3)
    try:
        return len(sock.recv(4)) == 4
    except TimeoutError:
        return False
    finally:
        sock.settimeout(TIMEOUT_S)


def connect(running: InProcessNode) -> socket.socket:
    host, _, port = running.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_S)


@pytest.mark.parametrize("name", ["max__connections", "listener__name__plaintext__max__connections"])
def test_over_max_connections_a_client_waits_until_one_has_gone(name: str) -> None:
    with node(listeners="PLAINTEXT://127.0.0.1:0", **{name: "2"}) as running:
        first, second, third = (connect(running) for _ in range(3))
        with second, third:
            assert is_served(first)
            assert is_served(second)
            assert not is_served(third)
            first.close()
            third.settimeout(TIMEOUT_S)
            assert len(third.recv(4)) == 4


def test_over_max_connections_per_ip_a_client_is_closed() -> None:
    with (
        node(max__connections__per__ip="1", max__connections__per__ip__overrides="127.0.0.1:2,10.0.0.1:7") as running,
        connect(running) as first,
        connect(running) as second,
        connect(running) as third,
    ):
        assert is_served(first)
        assert is_served(second)
        assert third.recv(1) == b""


def test_connections_come_at_the_rate_that_is_set() -> None:
    with node(max__connection__creation__rate="2") as running:
        clients = [connect(running) for _ in range(3)]
        try:
            assert is_served(clients[0])
            assert is_served(clients[1])
            assert not is_served(clients[2])
            assert len(clients[2].recv(4)) == 4  # half a second later
        finally:
            for client in clients:
                client.close()


def test_requests_that_come_in_slowly_share_a_limited_memory() -> None:
    """Eight frames of 100 kB claim more than the node holds; the others wait their turn and none is lost."""
    with node(queued__max__request__bytes="250000", socket__request__max__bytes="200000") as running:
        frame = struct.pack(">hhih", 18, 0, 7, -1) + bytes(100_000)
        frame = struct.pack(">i", len(frame)) + frame
        clients = [connect(running) for _ in range(8)]
        memory = running.broker.server._context.requests
        try:
            for client in clients:
                client.sendall(frame[:50_000])
            wait_until(lambda: memory.exhausted)
            assert memory.used < 500_000
            for client in reversed(clients):
                client.sendall(frame[50_000:])
            for client in clients:
                assert len(client.recv(4)) == 4
            wait_until(lambda: memory.used == 0)
        finally:
            for client in clients:
                client.close()


def test_who_takes_no_answers_is_closed_when_they_fill_the_memory(caplog: Any) -> None:
    with node(queued__max__response__bytes="1000000") as running:
        with Client(running.bootstrap_servers) as client:
            client.create_topics([NewTopic(f"t-{uuid4()}", 100)])
        metadata = struct.pack(">hhihi", 3, 1, 7, -1, -1)
        asked = (struct.pack(">i", len(metadata)) + metadata) * 2000
        host, _, port = running.bootstrap_servers.rpartition(":")
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((host, int(port)))
            slow.settimeout(TIMEOUT_S)
            running.broker.server._context.responses.max_bytes = 0  # any part of an answer may be left
            with pytest.raises(OSError):  # noqa: PT012
                while True:
                    slow.sendall(asked)
        wait_until(lambda: number_of_connections(running) == 0)
        assert "too slowly" in caplog.text
        assert running.broker.server._context.responses.used == 0


# Metrics


def scrape(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (one.rpartition(" ") for one in lines if one[0] != "#")}


def test_the_metrics_tell_what_happened(caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    with node(metrics__listen="127.0.0.1:0") as running:
        url = running.broker.metrics_url
        assert url is not None
        with Client(running.bootstrap_servers) as client:
            client.create_topics([NewTopic("t", 2)])
            client.produce({("t", 1): batch_of("a", "b", "c")})
            found = scrape(url)
        assert found['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 1
        assert found['kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}'] > 0
        assert found['kafka_network_requestmetrics_errors_total{error="NONE",request="CreateTopics"}'] == 1
        assert found['kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}'] >= 1
        assert found['kafka_log_log_logendoffset{partition="1",topic="t"}'] == 3
        assert found['kafka_server_brokertopicmetrics_messagesin_total{topic="t"}'] == 3
        assert found['kafka_server_brokertopicmetrics_bytesin_total{topic=""}'] > 0
        assert found["kafka_server_replicamanager_partitioncount"] >= 2
        assert found["kafka_network_requestchannel_requestqueuesize"] == 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("metrics", "other"), timeout=TIMEOUT_S)


def test_what_happens_to_a_topic_is_counted() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    def counted(topic: str) -> dict[str, float]:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            page = answer.read().decode()
        stem = "kafka_server_brokertopicmetrics_"
        return {
            sample.name.removeprefix(stem).removesuffix("_total"): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name.startswith(stem)
            and sample.labels["topic"] == topic
            and not sample.name.startswith(f"{stem}remote")
        }

    with node(metrics__listen="127.0.0.1:0") as running:
        url = running.broker.metrics_url
        assert url is not None
        batch, large = batch_of("a", "b"), batch_of("x" * 500)
        with Wire(running.bootstrap_servers) as wire:
            topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
            topic["configs"] = [{"name": "max.message.bytes", "value": "300"}]
            ask(wire, "create_topics", 5, topics=[topic], timeout=5000)
            assert wire.produce("t", batch)[0] == "none"
            assert wire.produce("t", large)[0] == "message_too_large"
            assert wire.produce("t", batch[:-1] + b"!")[0] == "corrupt_message"
            assert len(wire.call(long_fetch("t")).responses[0].partitions[0].records) == len(batch)
            expected = {
                "messagesin": 2, "bytesin": len(batch), "bytesout": len(batch), "bytesrejected": len(large),
                "totalproducerequests": 3, "totalfetchrequests": 1,
                "failedproducerequests": 0, "failedfetchrequests": 0,
            }  # fmt: skip
            assert counted("t") == expected
            ask(wire, "delete_topics", 5, topic_names=["t"], timeout=5000)
            assert counted("t") == {}
            assert counted("") == expected


def test_each_stage_of_a_request_is_seen() -> None:
    """A fetch waits in purgatory, requests behind it in the queue, answers for a peer that takes none."""
    queue = "kafka_network_requestchannel_requestqueuesize"
    memory = "kafka_network_socketserver_memorypoolused"
    purgatory = 'kafka_server_delayedoperationpurgatory_purgatorysize{delayedoperation="Fetch"}'
    answers, answer_bytes = "kafka_network_requestchannel_responsequeuesize", "suiro_network_responsebytes"
    with node(metrics__listen="127.0.0.1:0") as running:
        url = running.broker.metrics_url
        assert url is not None
        with Client(running.bootstrap_servers) as client, Wire(running.bootstrap_servers) as waiting:
            client.create_topics([NewTopic("t", 1), NewTopic("wide", 100)])
            waiting.send_bytes(write_request(long_fetch("t"), correlation_id=1, client_id="w"))
            versions = write_request(request_class(18, 0)(), correlation_id=2, client_id="w")
            for _ in range(3):
                waiting.send_bytes(versions)
            found = wait_until(lambda: (now := scrape(url))[queue] == 3 and now)
            assert (found[purgatory], found[answers]) == (1, 0)
            assert found[memory] >= 3 * len(versions)
            client.produce({("t", 0): batch_of("a")})
            for _ in range(4):
                waiting.receive_bytes()
            found = scrape(url)
            assert (found[queue], found[memory], found[purgatory]) == (0, 0, 0)
        with connect(running) as slow:
            metadata = struct.pack(">hhihi", 3, 1, 7, -1, -1)
            slow.sendall((struct.pack(">i", len(metadata)) + metadata) * 5000)
            found = wait_until(lambda: (now := scrape(url))[answers] and now)
            assert found[answer_bytes] > 0
        wait_until(lambda: scrape(url)[answer_bytes] == 0)


def long_fetch(topic: str) -> Any:
    message = request_class(API_KEYS["fetch"], 12)
    partition = nested(message, "FetchPartition")(
        partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=1000,
    )  # fmt: skip
    return message(
        max_wait=timedelta(seconds=30), min_bytes=1, max_bytes=1000, isolation_level=0, session_id=0,
        session_epoch=-1, forgotten_topics_data=(), rack_id="",
        topics=(nested(message, "FetchTopic")(topic=topic, partitions=(partition,)),),
    )  # fmt: skip


def test_a_wrong_keystore_is_told_with_the_way_out(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))
    for more, message in (
        ({}, r"set ssl\.keystore\.location"),
        ({"ssl__keystore__location": str(store)}, r"no PEM file\. Convert it: `keytool"),
        ({"ssl__keystore__location": str(store), "ssl__keystore__type": "JKS"}, "reads PEM only"),
    ):
        with pytest.raises(ConfigError, match=message), node(listeners="SSL://127.0.0.1:0", **more):
            pass
