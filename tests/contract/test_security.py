"""Logins, access control and quotas, on the node and on Apache Kafka: the same requests get the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kio.serial.errors import OutOfBoundValue
from support import kafka_archive
from support.admin import ask
from support.batches import batch_of
from support.comparison import differences
from support.comparison import plain as comparable
from support.every_request import World, fill
from support.waiting import wait_until
from support.wire import Wire

from suiro.broker.apis import APIS
from suiro.broker.security.acl import Operation
from suiro.client.security import _Scram
from suiro.protocol import messages

OPERATIONS = [operation.name for operation in Operation]
KINDS = ["UNKNOWN", "ANY", "topic", "group", "cluster", "transactional-id"]
ANY, LITERAL, PREFIXED, DENY, ALLOW = 1, 3, 4, 2, 3
DECIDED = 60
"""Users of the table of decisions: u0, u1..."""
STRANGERS: dict[str, list[str]] = {
    "stranger": [],
    "onlooker": [f"DESCRIBE {kind}:*" for kind in ("topic", "group", "transactional-id")],
    "reader": ["READ topic:*", "READ group:*"],
    "writer": ["WRITE topic:*", "WRITE transactional-id:*"],
    "clerk": ["DESCRIBE cluster", "DESCRIBE_CONFIGS cluster", "DESCRIBE_CONFIGS topic:*"],
}
"""Users who may do little, and what."""
USERS = ["admin", "alice", "bob", *STRANGERS, *(f"u{number}" for number in range(DECIDED))]
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret-admin" '
        + " ".join(f'user_{user}="secret-{user}"' for user in USERS)
        + ";"
    ),
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": SCRAM_MODULE,
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": SCRAM_MODULE,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "connection.failed.authentication.delay.ms": "20",
    "quota.window.num": "3",
}
ADD_SCRAM = ("--add-scram", "SCRAM-SHA-256=[name=carol,password=secret-carol]")
ADD_SCRAM += ("--add-scram", "SCRAM-SHA-512=[name=carol,password=secret-carol-512]")


@dataclass(frozen=True)
class Guarded:
    name: str
    bootstrap_servers: str

    @contextmanager
    def wire(self, user: str = "admin") -> Iterator[Wire]:
        with Wire(self.bootstrap_servers) as wire:
            assert ask(wire, "sasl_handshake", 1, mechanism="PLAIN")["error_code"] == "none"
            token = f"\0{user}\0secret-{user}".encode()
            assert ask(wire, "sasl_authenticate", 2, auth_bytes=token)["error_code"] == "none"
            yield wire

    def client(self, user: str, password: str | None = None, mechanism: str = "PLAIN") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or f"secret-{user}",
            "log_level": 0,
        }


@pytest.fixture(scope="module")
def guarded_node() -> Iterator[Guarded]:
    from suiro.node import NodeProcess

    settings = {**SETTINGS, "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    with NodeProcess.start(settings=settings, options=ADD_SCRAM) as node:
        yield Guarded("node", node.bootstrap_servers)


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings = {**SETTINGS, "sasl.mechanism.inter.broker.protocol": "PLAIN"}
    directory = tmp_path_factory.mktemp("guarded")
    with kafka_archive.killed(directory, settings=settings, format_options=ADD_SCRAM) as process:
        yield Guarded("kafka", process.bootstrap_servers)


@pytest.fixture(scope="module", params=["node", pytest.param("kafka", marks=pytest.mark.kafka)])
def guarded(request: pytest.FixtureRequest) -> Guarded:
    found: Guarded = request.getfixturevalue(f"guarded_{request.param}")
    return found


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[Wire]:
    with guarded.wire() as wire:
        yield wire


# Logins


def test_nothing_is_answered_before_the_login(guarded: Guarded) -> None:
    for api, version in (("metadata", 9), ("list_groups", 3), ("sasl_authenticate", 2)):
        with Wire(guarded.bootstrap_servers) as wire, pytest.raises((ConnectionError, OSError)):
            ask(wire, api, version)
    with Wire(guarded.bootstrap_servers) as wire:
        assert ask(wire, "api_versions", 3, client_software_name="a", client_software_version="1")["api_keys"]
        assert ask(wire, "sasl_handshake", 1, mechanism="PLAIN") == {
            "error_code": "none",
            "mechanisms": ask_mechanisms(guarded),
        }
        with pytest.raises((ConnectionError, OSError)):
            ask_and_leave(wire, "metadata", 9)


@pytest.mark.parametrize("moment", ["at-once", "mechanism-chosen", "login-failed"])
def test_no_api_is_served_before_the_login(guarded: Guarded, moment: str) -> None:
    """Each API's request ends the connection, and no byte of an answer comes."""
    if moment != "at-once" and guarded.name == "kafka":
        pytest.skip("Apache Kafka first says ILLEGAL_SASL_STATE in the request's own form, or takes its time")
    world = World(topic="any", topic_id=UUID(int=1))
    served = []
    for api in APIS.values():
        if api.name in ("api_versions", "sasl_handshake", "sasl_authenticate"):
            continue
        request = fill(messages.request_class(api.key, api.max_version), world)
        with Wire(guarded.bootstrap_servers) as wire:
            if moment != "at-once":
                ask(wire, "sasl_handshake", 1, mechanism="PLAIN")
            if moment == "login-failed":
                answer = ask(wire, "sasl_authenticate", 2, auth_bytes=b"\0admin\0guess")
                assert answer["error_code"] == "sasl_authentication_failed"
            with suppress(OSError):
                wire.send_bytes(messages.write_request(request, correlation_id=7, client_id="raw"))
                served.append((api.name, wire.receive_bytes()))
    assert served == []


def ask_mechanisms(guarded: Guarded) -> list[str]:
    with Wire(guarded.bootstrap_servers) as wire:
        answer = ask(wire, "sasl_handshake", 0, mechanism="GSSAPI")
        assert answer["error_code"] == "unsupported_sasl_mechanism"
        assert sorted(answer["mechanisms"]) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        with pytest.raises((ConnectionError, OSError)):
            wire.receive_bytes()
        return list(answer["mechanisms"])


def ask_and_leave(wire: Wire, api: str, version: int) -> None:
    """An answer with an error (Kafka's in the middle of a login) and then the end are as good as the end."""
    ask(wire, api, version)
    wire.receive_bytes()


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0guess", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret-alice", "Authentication failed: Invalid username or password"),
        (
            b"bob\0alice\0secret-alice",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
    ids=["password", "name", "another-name", "no-password", "no-name", "nothing", "too-much"],
)
@pytest.mark.parametrize("version", [0, 2])
def test_plain_logins_that_fail(guarded: Guarded, token: bytes, message: str, version: int) -> None:
    with Wire(guarded.bootstrap_servers) as wire:
        ask(wire, "sasl_handshake", 1, mechanism="PLAIN")
        answer = ask(wire, "sasl_authenticate", version, auth_bytes=token)
        assert answer["error_code"] == "sasl_authentication_failed"
        assert (answer["error_message"], answer["auth_bytes"]) == (message, b"")
        with pytest.raises((ConnectionError, OSError)):
            wire.receive_bytes()


def test_a_login_is_for_once(guarded: Guarded) -> None:
    with guarded.wire("alice") as wire:
        assert ask(wire, "sasl_handshake", 1, mechanism="PLAIN") == {
            "error_code": "illegal_sasl_state",
            "mechanisms": [],
        }
        answer = ask(wire, "sasl_authenticate", 2, auth_bytes=b"\0bob\0secret-bob")
        assert answer["error_code"] == "illegal_sasl_state"
        assert answer["error_message"] == "SaslAuthenticate request received after successful authentication"
        assert ask(wire, "metadata", 9, topics=[])["topics"] == []


@pytest.mark.parametrize("version", [0, 1])
def test_scram_by_hand(guarded: Guarded, version: int) -> None:
    """With SaslHandshake 0 the messages come without a request around them."""

    def exchange(message: bytes) -> bytes:
        if version == 1:
            answer = ask(wire, "sasl_authenticate", 1, auth_bytes=message)
            assert answer["error_code"] == "none"
            assert answer["session_lifetime"] == 0
            return bytes(answer["auth_bytes"])
        wire.send_bytes(message)
        return wire.receive_bytes()

    with Wire(guarded.bootstrap_servers) as wire:
        ask(wire, "sasl_handshake", version, mechanism="SCRAM-SHA-256")
        scram = _Scram("carol", "secret-carol", hash_name="sha256")
        scram.check_final(exchange(scram.final(exchange(scram.first()))))
        assert ask(wire, "metadata", 9, topics=[])["topics"] == []


@pytest.mark.parametrize("user", ["carol", "nobody"])
def test_a_wrong_name_is_told_as_a_wrong_password(guarded: Guarded, user: str) -> None:
    with Wire(guarded.bootstrap_servers) as wire:
        ask(wire, "sasl_handshake", 1, mechanism="SCRAM-SHA-512")
        scram = _Scram(user, "guess", hash_name="sha512")
        answer = ask(wire, "sasl_authenticate", 2, auth_bytes=scram.first())
        if answer["error_code"] == "none":
            answer = ask(wire, "sasl_authenticate", 2, auth_bytes=scram.final(answer["auth_bytes"]))
        assert answer["error_code"] == "sasl_authentication_failed"
        assert answer["error_message"] == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
        )


@pytest.mark.parametrize(
    ("user", "password", "mechanism", "good"),
    [
        ("admin", "secret-admin", "PLAIN", True),
        ("carol", "secret-carol", "SCRAM-SHA-256", True),
        ("carol", "secret-carol-512", "SCRAM-SHA-512", True),
        ("carol", "secret-carol", "SCRAM-SHA-512", False),
        ("admin", "guess", "PLAIN", False),
        ("admin", "secret-admin", "SCRAM-SHA-256", False),
    ],
)
def test_librdkafka_logs_in(guarded: Guarded, user: str, password: str, mechanism: str, good: bool) -> None:
    failures: list[str] = []
    config = {
        **guarded.client(user, password, mechanism),
        "error_cb": lambda error: failures.append(error.name()),
    }
    client = AdminClient(config)
    if good:
        assert client.list_topics(timeout=10).brokers
        return
    wait_until(lambda: client.poll(0.05) or "_AUTHENTICATION" in failures, what="the login to fail")


# Access control


def binding(text: str, *, user: str, number: int = 0) -> dict[str, Any]:
    """`READ topic:t`, `deny READ topic:t`, `*` for the user or for any name, `t..` for a prefix, `@host`"""
    words = text.format(n=number).split()
    permission = DENY if words[0] == "deny" else ALLOW
    words = words[permission == DENY :]
    host = words.pop()[1:] if words[-1][0] == "@" else "*"
    if words[0] == "everybody":
        user = words.pop(0) and "*"
    operation, resource = words
    kind, _, name = resource.partition(":")
    return {
        "resource_type": KINDS.index(kind),
        "resource_name": name.removesuffix("..") or "kafka-cluster",
        "resource_pattern_type": PREFIXED if name.endswith("..") else LITERAL,
        "principal": f"User:{user}",
        "host": host,
        "operation": OPERATIONS.index(operation),
        "permission_type": permission,
    }


def create_topic(wire: Wire, name: str) -> str:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = ask(wire, "create_topics", 5, topics=[topic], timeout=5000, validate_only=True)["topics"][0]
    return str(answer["error_code"])


def create_partitions(wire: Wire, name: str) -> str:
    topic = {"name": name, "count": 5, "assignments": None}
    answer = ask(wire, "create_partitions", 3, topics=[topic], timeout=5000, validate_only=True)
    return str(answer["results"][0]["error_code"])


def delete_topic(wire: Wire, name: str) -> str:
    answer = ask(wire, "delete_topics", 5, topic_names=[name], timeout=5000)
    return str(answer["responses"][0]["error_code"])


def delete_records(wire: Wire, name: str) -> str:
    topic = {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
    answer = ask(wire, "delete_records", 2, topics=[topic], timeout=5000)
    return str(answer["topics"][0]["partitions"][0]["error_code"])


def describe_configs(wire: Wire, name: str) -> str:
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": []}
    answer = ask(wire, "describe_configs", 4, resources=[resource])
    return str(answer["results"][0]["error_code"])


def alter_configs(wire: Wire, name: str) -> str:
    config = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    resource = {"resource_type": 2, "resource_name": name, "configs": [config]}
    answer = ask(wire, "incremental_alter_configs", 1, resources=[resource], validate_only=True)
    return str(answer["responses"][0]["error_code"])


def metadata(wire: Wire, name: str) -> str:
    answer = ask(wire, "metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=False)
    return str(answer["topics"][0]["error_code"])


def auto_create(wire: Wire, name: str) -> str:
    answer = ask(wire, "metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=True)
    return str(answer["topics"][0]["error_code"])


def list_offsets(wire: Wire, name: str) -> str:
    partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    topic = {"name": name, "partitions": [partition]}
    answer = ask(wire, "list_offsets", 7, replica_id=-1, topics=[topic])
    return str(answer["topics"][0]["partitions"][0]["error_code"])


def produce(wire: Wire, name: str) -> str:
    return wire.produce(name, batch_of("x"))[0]


def fetch(wire: Wire, name: str) -> str:
    topic = {"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
    answer = ask(wire, "fetch", 11, replica_id=-1, max_bytes=1000, session_epoch=-1, topics=[topic])
    return str(answer["responses"][0]["partitions"][0]["error_code"])


def heartbeat(wire: Wire, name: str) -> str:
    return str(ask(wire, "heartbeat", 4, group_id=name, generation_id=1, member_id="m")["error_code"])


def describe_group(wire: Wire, name: str) -> str:
    return str(ask(wire, "describe_groups", 5, groups=[name])["groups"][0]["error_code"])


def delete_group(wire: Wire, name: str) -> str:
    return str(ask(wire, "delete_groups", 2, groups_names=[name])["results"][0]["error_code"])


def init_producer_id(wire: Wire, name: str) -> str:
    return wire.init_producer_id(name or None)[0]


def end_transaction(wire: Wire, name: str) -> str:
    return wire.end_txn(name, 1, 1, commit=True)


def describe_acls(wire: Wire, _: str) -> str:
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    return str(ask(wire, "describe_acls", 3, **every)["error_code"])


def describe_cluster_configs(wire: Wire, _: str) -> str:
    resource = {"resource_type": 4, "resource_name": "1", "configuration_keys": []}
    return str(ask(wire, "describe_configs", 4, resources=[resource])["results"][0]["error_code"])


def alter_quotas(wire: Wire, _: str) -> str:
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "x"}],
        "ops": [{"key": "request_percentage", "value": 1.0, "remove": False}],
    }
    return str(ask(wire, "alter_client_quotas", 1, entries=[entry], validate_only=True)["entries"][0]["error_code"])


def describe_scram(wire: Wire, _: str) -> str:
    return str(ask(wire, "describe_user_scram_credentials", 0, users=[])["error_code"])


NO_TOPIC = "unknown_topic_or_partition"
TOPIC, GROUP, CLUSTER = (f"{kind}_authorization_failed" for kind in ("topic", "group", "cluster"))
TXN = "transactional_id_authorization_failed"
DECISIONS: list[tuple[list[str], Callable[[Wire, str], str], str, str]] = [
    ([], metadata, "t", TOPIC),
    (["READ topic:t{n}"], fetch, "t{n}", NO_TOPIC),
    (["READ topic:t{n}"], metadata, "t{n}", NO_TOPIC),
    (["READ topic:t{n}"], list_offsets, "t{n}", NO_TOPIC),
    (["READ topic:t{n}"], produce, "t{n}", TOPIC),
    (["READ topic:t{n}"], fetch, "t{n}x", TOPIC),
    (["WRITE topic:t{n}"], produce, "t{n}", NO_TOPIC),
    (["WRITE topic:t{n}"], fetch, "t{n}", TOPIC),
    (["WRITE topic:t{n}"], init_producer_id, "", "none"),
    ([], init_producer_id, "", CLUSTER),
    (["IDEMPOTENT_WRITE cluster"], init_producer_id, "", "none"),
    (["WRITE topic:*", "deny WRITE topic:*"], init_producer_id, "", CLUSTER),
    (["WRITE topic:p..", "deny WRITE topic:pq.."], init_producer_id, "", "none"),
    (["DESCRIBE topic:t{n}"], metadata, "t{n}", NO_TOPIC),
    (["DESCRIBE topic:t{n}"], fetch, "t{n}", TOPIC),
    (["CREATE topic:t{n}"], create_topic, "t{n}", "none"),
    (["CREATE cluster"], create_topic, "t{n}", "none"),
    (["CREATE topic:t{n}"], create_topic, "t{n}x", TOPIC),
    (["DESCRIBE topic:t{n}"], auto_create, "t{n}", TOPIC),
    (["ALTER topic:t{n}"], create_partitions, "t{n}", NO_TOPIC),
    (["DESCRIBE topic:t{n}"], create_partitions, "t{n}", TOPIC),
    (["DELETE topic:t{n}"], delete_topic, "t{n}", NO_TOPIC),
    (["DESCRIBE topic:t{n}"], delete_topic, "t{n}", NO_TOPIC),
    (["DELETE topic:t{n}"], delete_records, "t{n}", NO_TOPIC),
    (["ALTER_CONFIGS topic:t{n}"], alter_configs, "t{n}", NO_TOPIC),
    (["ALTER_CONFIGS topic:t{n}"], describe_configs, "t{n}", NO_TOPIC),
    (["ALTER_CONFIGS topic:t{n}"], metadata, "t{n}", TOPIC),
    (["DESCRIBE_CONFIGS topic:t{n}"], alter_configs, "t{n}", TOPIC),
    (["ALL topic:*"], describe_configs, "t{n}", NO_TOPIC),
    (["READ topic:*"], fetch, "t{n}", NO_TOPIC),
    (["READ topic:p{n}.."], fetch, "p{n}q", NO_TOPIC),
    (["READ topic:p{n}.."], fetch, "p{n}", NO_TOPIC),
    (["READ topic:p{n}.."], fetch, "p", TOPIC),
    (["READ topic:*", "deny READ topic:p{n}.."], fetch, "p{n}q", TOPIC),
    (["READ topic:p{n}q", "deny READ topic:*"], fetch, "p{n}q", TOPIC),
    (["READ topic:t{n}", "deny WRITE topic:t{n}"], fetch, "t{n}", NO_TOPIC),
    (["READ topic:t{n}", "deny DESCRIBE topic:t{n}"], metadata, "t{n}", TOPIC),
    (["READ topic:t{n}", "deny READ topic:t{n} @10.9.8.7"], fetch, "t{n}", NO_TOPIC),
    (["READ topic:t{n} @10.9.8.7"], fetch, "t{n}", TOPIC),
    (["READ topic:t{n} @127.0.0.1"], fetch, "t{n}", NO_TOPIC),
    (["everybody READ topic:t{n}"], fetch, "t{n}", NO_TOPIC),
    (["READ topic:t{n}", "deny everybody READ topic:t{n}"], fetch, "t{n}", TOPIC),
    (["READ group:g{n}"], heartbeat, "g{n}", "unknown_member_id"),
    (["DESCRIBE group:g{n}"], heartbeat, "g{n}", GROUP),
    (["READ group:g{n}"], describe_group, "g{n}", "none"),
    (["READ topic:*"], describe_group, "g{n}", GROUP),
    (["DELETE group:g.."], delete_group, "g{n}", "group_id_not_found"),
    (["READ group:g{n}"], delete_group, "g{n}", GROUP),
    (["DESCRIBE transactional-id:x{n}"], init_producer_id, "x{n}", TXN),
    (["DESCRIBE transactional-id:x{n}"], end_transaction, "x{n}", TXN),
    ([], describe_acls, "", CLUSTER),
    (["DESCRIBE cluster"], describe_acls, "", "none"),
    (["ALTER cluster"], describe_acls, "", "none"),
    (["DESCRIBE_CONFIGS cluster"], describe_cluster_configs, "", "none"),
    (["DESCRIBE cluster"], describe_cluster_configs, "", CLUSTER),
    (["ALTER_CONFIGS cluster"], alter_quotas, "", "none"),
    (["ALTER cluster"], alter_quotas, "", CLUSTER),
    (["DESCRIBE cluster"], describe_scram, "", "none"),
    ([], describe_scram, "", CLUSTER),
]


@pytest.fixture(scope="module")
def decided(guarded: Guarded) -> Guarded:
    """With every rule of the table, and once they hold."""
    assert len(DECISIONS) < DECIDED
    creations = [
        binding(rule, user=f"u{number}", number=number)
        for number, (rules, *_) in enumerate(DECISIONS)
        for rule in rules
    ]
    creations.append(binding("READ topic:last", user=f"u{DECIDED - 1}"))
    with guarded.wire() as wire:
        results = ask(wire, "create_acls", 3, creations=creations)["results"]
        assert {result["error_code"] for result in results} == {"none"}
        # Kafka makes its coordinators' topics when they are first asked for.
        for name, kind in (("g", 0), ("x", 1)):
            ask(wire, "find_coordinator", 4, key_type=kind, coordinator_keys=[name])
        wait_until(lambda: heartbeat(wire, "g") == "unknown_member_id", what="the group coordinator")
        wait_until(lambda: init_producer_id(wire, "") == "none", what="producer ids")
    with guarded.wire(f"u{DECIDED - 1}") as wire:
        wait_until(lambda: fetch(wire, "last") == NO_TOPIC, what="the rules to hold")
    return guarded


@pytest.mark.parametrize("number", range(len(DECISIONS)), ids=lambda n: f"{n}-{DECISIONS[n][1].__name__}")
def test_decisions(decided: Guarded, number: int) -> None:
    rules, request, name, expected = DECISIONS[number]
    with decided.wire(f"u{number}") as wire:
        assert request(wire, name.format(n=number)) == expected, rules


def test_a_list_leaves_out_what_may_not_be_seen(guarded: Guarded, admin: Wire) -> None:
    for name in ("seen-1", "unseen-1"):
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        assert ask(admin, "create_topics", 5, topics=[topic], timeout=5000)["topics"][0]["error_code"] == "none"
    ask(admin, "create_acls", 3, creations=[binding("DESCRIBE topic:seen..", user="bob")])
    with guarded.wire("bob") as wire:

        def names() -> list[str]:
            return [topic["name"] for topic in ask(wire, "metadata", 9, topics=None)["topics"]]

        wait_until(lambda: names() == ["seen-1"], what="bob to see his topic only")
        answer = ask(wire, "metadata", 9, topics=[{"name": "seen-1"}], include_topic_authorized_operations=True)
        assert answer["topics"][0]["topic_authorized_operations"] == 1 << OPERATIONS.index("DESCRIBE")
        for name in ("unseen-1", "absent"):
            assert metadata(wire, name) == TOPIC
        assert (
            ask(wire, "describe_cluster", 1, include_cluster_authorized_operations=True)[
                "cluster_authorized_operations"
            ]
            == 0
        )


# Rules


def test_rules_are_made_told_and_deleted(guarded: Guarded) -> None:
    client = AdminClient(guarded.client("admin"))

    def rule(name: str, pattern: Any = ResourcePatternType.LITERAL, principal: str = "User:dave") -> AclBinding:
        return AclBinding(ResourceType.TOPIC, name, pattern, principal, "*", AclOperation.READ, AclPermissionType.ALLOW)

    def wanted(name: str | None, pattern: Any = ResourcePatternType.ANY) -> AclBindingFilter:
        return AclBindingFilter(
            ResourceType.TOPIC, name, pattern, "User:dave", None, AclOperation.ANY, AclPermissionType.ANY
        )

    def told(asked: AclBindingFilter) -> set[AclBinding]:
        return set(client.describe_acls(asked).result(10))

    rules = {rule("dave-a"), rule("dave-", ResourcePatternType.PREFIXED), rule("*")}
    for future in client.create_acls([*rules]).values():
        future.result(10)
    wait_until(lambda: told(wanted(None)) == rules, what="the rules to be told")
    assert told(wanted("dave-a")) == {rule("dave-a")}
    assert told(wanted("dave-a", ResourcePatternType.MATCH)) == rules
    assert told(wanted("other", ResourcePatternType.MATCH)) == {rule("*")}
    assert told(wanted(None, ResourcePatternType.PREFIXED)) == {rule("dave-", ResourcePatternType.PREFIXED)}
    (deleted,) = client.delete_acls([wanted("*", ResourcePatternType.LITERAL)]).values()
    assert set(deleted.result(10)) == {rule("*")}
    wait_until(lambda: told(wanted(None)) == rules - {rule("*")}, what="a rule to be gone")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({}, "none", ""),
        ({"host": "no host"}, "none", ""),
        ({"operation": 15}, "none", ""),
        (
            {"resource_type": 4, "resource_name": "other"},
            "invalid_request",
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_name": ""}, "invalid_request", "Invalid empty resource name"),
        ({"resource_type": 99}, "invalid_request", "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 99}, "invalid_request", "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "invalid_request", "Invalid operation UNKNOWN"),
        ({"permission_type": 99}, "invalid_request", "Invalid permissionType UNKNOWN"),
        (
            {"principal": "nobody"},
            "invalid_request",
            "Could not parse principal from `nobody` (no colon is present separating the principal type from the "
            "principal name)",
        ),
        ({"resource_type": 1}, "unknown_server_error", None),
        ({"resource_pattern_type": 2}, "unknown_server_error", None),
        ({"operation": 1}, "unknown_server_error", None),
        ({"permission_type": 1}, "unknown_server_error", None),
    ],
    ids=str,
)
def test_rules_that_make_no_sense(admin: Wire, changes: dict[str, Any], code: str, message: str | None) -> None:
    creation = {**binding("READ topic:sense", user="erin"), **changes}
    (result,) = ask(admin, "create_acls", 3, creations=[creation])["results"]
    assert (result["error_code"], result["error_message"]) == (code, message)


FILTER = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type_filter": 99}, "Unknown patternFilter."),
        ({"pattern_type_filter": 99}, "Unknown patternFilter."),
        ({"operation": 99}, "Unknown entryFilter."),
        ({"permission_type": 99}, "Unknown entryFilter."),
    ],
    ids=str,
)
def test_filters_with_words_that_nobody_knows(admin: Wire, changes: dict[str, Any], message: str) -> None:
    answer = ask(admin, "describe_acls", 3, **{**FILTER, **changes})
    assert (answer["error_code"], answer["error_message"], answer["resources"]) == ("none", "", [])
    (result,) = ask(admin, "delete_acls", 3, filters=[{**FILTER, **changes}])["filter_results"]
    assert (result["error_code"], result["error_message"]) == ("invalid_request", message)


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("create_acls", {"creations": [{**binding("READ topic:t", user="x"), "operation": 0}]}),
        ("describe_acls", {**FILTER, "resource_type_filter": 0}),
        ("delete_acls", {"filters": [{**FILTER, "pattern_type_filter": 0}]}),
    ],
    ids=["create", "describe", "delete"],
)
def test_unknown_itself_ends_the_connection(guarded: Guarded, api: str, fields: dict[str, Any]) -> None:
    with guarded.wire() as wire, pytest.raises((ConnectionError, OSError)):
        ask(wire, api, 3, **fields)


def test_who_may_not_change_rules(guarded: Guarded) -> None:
    with guarded.wire("alice") as wire:
        (result,) = ask(wire, "create_acls", 3, creations=[binding("READ topic:t", user="x")])["results"]
        assert result["error_code"] == CLUSTER
        every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        (result,) = ask(wire, "delete_acls", 3, filters=[every])["filter_results"]
        assert result["error_code"] == CLUSTER
        deletion = {"name": "carol", "mechanism": 1}
        (result,) = ask(wire, "alter_user_scram_credentials", 0, deletions=[deletion])["results"]
        assert (result["user"], result["error_code"]) == ("carol", CLUSTER)
        assert alter_quotas(wire, "") == CLUSTER


# Passwords


def test_passwords_change_while_the_broker_runs(guarded: Guarded) -> None:
    client = AdminClient(guarded.client("admin"))

    def works(password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
        with Wire(guarded.bootstrap_servers) as wire:
            ask(wire, "sasl_handshake", 1, mechanism=mechanism)
            scram = _Scram("frank", password, hash_name="sha512")
            answer = ask(wire, "sasl_authenticate", 2, auth_bytes=scram.first())
            if answer["error_code"] == "none":
                answer = ask(wire, "sasl_authenticate", 2, auth_bytes=scram.final(answer["auth_bytes"]))
            return bool(answer["error_code"] == "none")

    def alter(*changes: Any) -> None:
        for future in client.alter_user_scram_credentials(list(changes)).values():
            future.result(10)

    assert not works("one")
    sha512 = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    alter(UserScramCredentialUpsertion("frank", sha512, b"one"))
    wait_until(lambda: works("one"), what="the first password")
    alter(UserScramCredentialUpsertion("frank", sha512, b"two"))
    wait_until(lambda: works("two"), what="the second password")
    assert not works("one")
    described = client.describe_user_scram_credentials(["frank", "nobody"])
    infos = described["frank"].result(10).scram_credential_infos
    assert [(info.mechanism, info.iterations) for info in infos] == [(ScramMechanism.SCRAM_SHA_512, 8192)]
    with pytest.raises(KafkaException, match=r"RESOURCE_NOT_FOUND|not exist"):
        described["nobody"].result(10)
    alter(UserScramCredentialDeletion("frank", ScramMechanism.SCRAM_SHA_512))
    wait_until(lambda: not works("two"), what="the user to be gone")


def upsertion(name: str, **changes: Any) -> dict[str, Any]:
    secret = {"salt": b"salt", "salted_password": b"x" * 32}
    return {"name": name, "mechanism": 1, "iterations": 4096, **secret, **changes}


@pytest.mark.parametrize(
    ("deletions", "upsertions", "expected"),
    [
        ([], [upsertion("")], {"": ("unacceptable_credential", "Username must not be empty")}),
        ([], [upsertion("g", iterations=4095)], {"g": ("unacceptable_credential", "Too few iterations")}),
        ([], [upsertion("g", iterations=16385)], {"g": ("unacceptable_credential", "Too many iterations")}),
        ([], [upsertion("g", mechanism=3)], {"g": ("unsupported_sasl_mechanism", "Unknown SCRAM mechanism")}),
        (
            [],
            [upsertion("g"), upsertion("g", mechanism=2)],
            {"g": ("duplicate_resource", "A user credential cannot be altered twice in the same request")},
        ),
        (
            [{"name": "carol", "mechanism": 1}],
            [upsertion("carol")],
            {
                "carol": (
                    "duplicate_resource",
                    "A user credential cannot be altered twice in the same request",
                )
            },
        ),
        (
            [{"name": "g", "mechanism": 1}, {"name": "g", "mechanism": 1}],
            [upsertion("g")],
            {"g": ("resource_not_found", "Attempt to delete a user credential that does not exist")},
        ),
        (
            [{"name": "carol", "mechanism": 0}],
            [],
            {"carol": ("unsupported_sasl_mechanism", "Unknown SCRAM mechanism")},
        ),
    ],
)
def test_credentials_that_are_refused(
    admin: Wire, deletions: list[Any], upsertions: list[Any], expected: dict[str, tuple[str, str]]
) -> None:
    answer = ask(admin, "alter_user_scram_credentials", 0, deletions=deletions, upsertions=upsertions)
    results = {item["user"]: (item["error_code"], item["error_message"]) for item in answer["results"]}
    assert results == expected


def test_descriptions_of_credentials(admin: Wire) -> None:
    users = [{"name": "carol"}, {"name": "h"}, {"name": "h"}, {"name": "i"}]
    answer = ask(admin, "describe_user_scram_credentials", 0, users=users)
    assert (answer["error_code"], answer["error_message"]) == ("none", "")
    results = {item["user"]: (item["error_code"], item["error_message"]) for item in answer["results"]}
    assert results == {
        "carol": ("none", ""),
        "h": (
            "duplicate_resource",
            "Cannot describe SCRAM credentials for the same user twice in a single request: h",
        ),
        "i": ("resource_not_found", "Attempt to describe a user credential that does not exist: i"),
    }
    (carol,) = (item for item in answer["results"] if item["user"] == "carol")
    assert sorted((info["mechanism"], info["iterations"]) for info in carol["credential_infos"]) == [
        (1, 4096),
        (2, 4096),
    ]


# Quotas


def alter(wire: Wire, entity: dict[str, str | None], *, only: bool = False, **values: Any) -> tuple[str, str | None]:
    entry = {
        "entity": [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()],
    }
    (result,) = ask(wire, "alter_client_quotas", 1, entries=[entry], validate_only=only)["entries"]
    return result["error_code"], result["error_message"]


def quotas(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    fields = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = ask(wire, "describe_client_quotas", 1, components=fields, strict=strict)
    if answer["entries"] is None:
        return answer["error_code"], answer["error_message"]
    return sorted(
        (
            sorted((part["entity_type"], part["entity_name"] or "") for part in entry["entity"]),
            sorted((value["key"], value["value"]) for value in entry["values"]),
        )
        for entry in answer["entries"]
    )


def test_quotas_are_set_and_told(admin: Wire) -> None:
    assert alter(admin, {"user": "q1"}, producer_byte_rate=1000.0, request_percentage=12.5) == ("none", None)
    assert alter(admin, {"user": "q1", "client_id": None}, consumer_byte_rate=5.0) == ("none", None)
    assert alter(admin, {"user": "q2"}, only=True, consumer_byte_rate=5.0) == ("none", None)
    of_user = ([("user", "q1")], [("producer_byte_rate", 1000.0), ("request_percentage", 12.5)])
    of_pair = ([("client-id", ""), ("user", "q1")], [("consumer_byte_rate", 5.0)])
    wait_until(lambda: quotas(admin, ("user", 0, "q1")) == [of_pair, of_user], what="the quotas to be told")
    assert quotas(admin, ("user", 0, "q1"), strict=True) == [of_user]
    assert quotas(admin, ("user", 0, "q1"), ("client-id", 1, None)) == [of_pair]
    assert quotas(admin, ("client-id", 2, None)) == [of_pair]
    assert quotas(admin, ("user", 0, "q2")) == []
    assert alter(admin, {"user": "q1"}, producer_byte_rate=None, request_percentage=None) == ("none", None)
    assert alter(admin, {"user": "q1", "client_id": None}, consumer_byte_rate=None) == ("none", None)
    wait_until(lambda: quotas(admin, ("user", 0, "q1")) == [], what="the quotas to be gone")


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        (
            {"user": "a", "ip": "127.0.0.1"},
            {"producer_byte_rate": 1.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            {"ip": "300.1.1.1.1"},
            {"connection_creation_rate": 1.0},
            "300.1.1.1.1 is not a valid IP or resolvable host.",
        ),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        (
            {"ip": "127.0.0.1"},
            {"connection_creation_rate": 1.5},
            "connection_creation_rate cannot be a fractional value.",
        ),
        (
            {"ip": "127.0.0.1"},
            {"connection_creation_rate": 1e12},
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"request_percentage": 0.0}, "Quota request_percentage must be greater than 0"),
        ({"user": "a"}, {"SCRAM-SHA-256": 1.0}, "Invalid configuration key SCRAM-SHA-256"),
        ({"user": "a"}, {"nothing": None}, None),
    ],
    ids=str,
)
def test_quotas_that_are_refused(
    admin: Wire, entity: dict[str, Any], values: dict[str, Any], message: str | None
) -> None:
    code = "none" if message is None else "invalid_request"
    assert alter(admin, entity, only=True, **values) == (code, message)


@pytest.mark.parametrize(
    ("components", "message"),
    [
        ([("", 0, "x")], "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 0, "b")],
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("user", 0, None)], "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], "Unknown match type 3"),
    ],
    ids=str,
)
def test_filters_of_quotas_that_are_refused(
    admin: Wire, components: list[tuple[str, int, str | None]], message: str
) -> None:
    assert quotas(admin, *components) == ("invalid_request", message)
    assert quotas(admin, ("group", 0, "a")) == ("unsupported_version", "Unsupported entity type group")


def test_who_is_too_fast_is_held_back(guarded: Guarded, admin: Wire) -> None:
    topic = {"name": "fast", "num_partitions": 1, "replication_factor": 1}
    ask(admin, "create_topics", 5, topics=[topic], timeout=5000)
    alter(admin, {"user": "alice"}, producer_byte_rate=10_000.0)
    ask(admin, "create_acls", 3, creations=[binding("ALL topic:fast", user="alice")])
    throttled: list[float] = []
    producer = Producer(
        {
            **guarded.client("alice"),
            "linger.ms": 0,
            "throttle_cb": lambda e: throttled.append(e.throttle_time),
        }
    )

    def seen() -> bool:
        producer.produce("fast", b"x" * 20_000)
        producer.flush(0.2)
        return bool(throttled)

    wait_until(seen, what="a throttle")
    assert 0 < max(throttled) < 60
    alter(admin, {"user": "alice"}, producer_byte_rate=None)
    producer.purge()


def test_who_reads_too_fast_is_held_back(guarded: Guarded, admin: Wire) -> None:
    """Every record comes all the same; the client hears why it waits."""
    topic = {"name": "fast-read", "num_partitions": 1, "replication_factor": 1}
    ask(admin, "create_topics", 5, topics=[topic], timeout=5000)
    rules = [binding("READ topic:fast-read", user="alice"), binding("READ group:fast-read", user="alice")]
    ask(admin, "create_acls", 3, creations=rules)
    batch = batch_of("x" * 5_000)  # key and value: 10 kB
    wait_until(lambda: admin.produce("fast-read", batch)[0] == "none", what="the topic")
    for _ in range(3):
        assert admin.produce("fast-read", batch)[0] == "none"
    alter(admin, {"user": "alice"}, consumer_byte_rate=10_000.0)  # 20 kB in the two seconds that count
    throttled: list[float] = []
    consumer = Consumer(
        {
            **guarded.client("alice"),
            "group.id": "fast-read",
            "fetch.message.max.bytes": 10_000,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    found: list[int] = []

    def all_there() -> bool:
        if len(found) in (0, 4):  # until the quota holds
            found.clear()
            consumer.assign([TopicPartition("fast-read", 0, 0)])
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.offset())
        return len(found) == 4 and bool(throttled)

    wait_until(all_there, what="all records, and a throttle")
    alter(admin, {"user": "alice"}, consumer_byte_rate=None)
    consumer.close()
    assert found == [0, 1, 2, 3]


def test_a_fetch_that_is_held_back_keeps_its_session(guarded: Guarded, admin: Wire) -> None:
    """Its answer is empty and names the session, or the client would begin a new one after every throttle."""
    topic = {"name": "slow-session", "num_partitions": 1, "replication_factor": 1}
    ask(admin, "create_topics", 5, topics=[topic], timeout=5000)
    ask(admin, "create_acls", 3, creations=[binding("READ topic:slow-session", user="alice")])
    batch = batch_of("x" * 5_000)  # key and value: 10 kB
    wait_until(lambda: admin.produce("slow-session", batch)[0] == "none", what="the topic")
    alter(admin, {"user": "alice"}, consumer_byte_rate=10_000.0)  # 20 kB in the two seconds that count
    wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1}
    wanted |= {"log_start_offset": -1, "partition_max_bytes": 1 << 20}
    with guarded.wire("alice") as wire:

        def fetch(session: int, epoch: int) -> tuple[Any, bool]:
            answer = ask(
                wire,
                "fetch",
                12,
                replica_id=-1,
                max_wait=0,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=0,
                session_id=session,
                session_epoch=epoch,
                rack_id="",
                topics=[{"topic": "slow-session", "partitions": [wanted]}],
                forgotten_topics_data=[],
            )
            return answer, bool(answer["responses"])

        session = wait_until(lambda: fetch(0, 0)[0]["session_id"], what="a session")
        told: list[bool] = []

        def held_back_and_on() -> bool:
            answer, has_records = fetch(session, len(told) + 1)
            assert (answer["error_code"], answer["session_id"]) == ("none", session)
            told.append(has_records)
            return False in told and told[-1]

        wait_until(held_back_and_on, what="an empty answer, and records again")
    alter(admin, {"user": "alice"}, consumer_byte_rate=None)


def test_who_asks_too_much_is_held_back(guarded: Guarded, admin: Wire) -> None:
    """The time that handlers spend for a client is rationed too."""
    alter(admin, {"user": "bob"}, request_percentage=0.001)
    with guarded.wire("bob") as wire:
        wait_until(lambda: ask(wire, "metadata", 9, topics=None)["throttle_time"], what="a throttle")
    alter(admin, {"user": "bob"}, request_percentage=None)


def test_topics_are_changed_only_so_fast(guarded: Guarded, admin: Wire) -> None:
    """KIP-599: what goes over the quota is refused where the client knows that; the first such may go over it."""
    alter(admin, {"user": "bob"}, controller_mutation_rate=50.0)
    ask(admin, "create_acls", 3, creations=[binding("ALL topic:rate..", user="bob")])
    topics = [
        {"name": f"rate-{number}", "num_partitions": partitions, "replication_factor": 1}
        for number, partitions in enumerate((545, 10, 1))
    ]
    with guarded.wire("bob") as wire:

        def create() -> Any:
            answer = ask(wire, "create_topics", 7, topics=topics, timeout=5000, validate_only=True)
            return answer if answer["throttle_time"] else None

        answer = wait_until(create, what="the quota to hold")
    codes = sorted(topic["error_code"] for topic in answer["topics"])
    assert codes == ["none", "none", "throttling_quota_exceeded"]
    assert 0 < answer["throttle_time"] <= 101
    alter(admin, {"user": "bob"}, controller_mutation_rate=None)


# Strangers


def strangers_requests(world: World) -> Iterator[tuple[str, Any]]:
    """A request of every API in every version that speaks of what is there."""
    for api in APIS.values():
        least, _ = messages.known_versions(api.key)
        if api.name in ("api_versions", "describe_quorum"):
            continue  # the node has fewer APIs, and no log of metadata
        for version in range(max(api.min_version, least), api.max_version + 1):
            here = world if api.name != "join_group" else replace(world, group=f"joined-{version}")
            yield f"{api.name} {version}", fill(messages.request_class(api.key, version), here)


def strangers_answers(guarded: Guarded, user: str) -> dict[str, Any]:
    with guarded.wire() as admin:
        creations = [binding(rule, user=user) for rule in STRANGERS[user]]
        ask(admin, "create_acls", 3, creations=creations)
        every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        wait_until(
            lambda: (
                sum(
                    len(resource["acls"])
                    for resource in ask(admin, "describe_acls", 3, principal_filter=f"User:{user}", **every)[
                        "resources"
                    ]
                )
                == len(creations)
            ),
            what="the rules to hold",
        )
        # Kafka makes its coordinators' topics when they are first asked for.
        for kind in (0, 1):
            ask(admin, "find_coordinator", 4, key_type=kind, coordinator_keys=["wire-check"])
        for group in ("wire-check", *(f"joined-{version}" for version in range(10))):
            wait_until(lambda group=group: heartbeat(admin, group) == "unknown_member_id", what="coordinators")
        wait_until(lambda: init_producer_id(admin, "wire-check") == "none", what="the other one")
        topic = {"name": "hidden", "num_partitions": 1, "replication_factor": 1}
        ask(admin, "create_topics", 5, topics=[topic], timeout=5000)
        described = wait_until(
            lambda: [t for t in ask(admin, "metadata", 12, topics=None)["topics"] if t["name"] == "hidden"],
            what="the topic",
        )
    world = World(topic="hidden", topic_id=described[0]["topic_id"])
    answers: dict[str, Any] = {}
    for name, request in strangers_requests(world):
        with guarded.wire(user) as wire:
            try:
                answers[name] = comparable(wire.call(request))
            except (OSError, OutOfBoundValue) as error:  # the end; or a time of -1, which kio cannot read
                answers[name] = type(error).__name__
    return answers


@pytest.mark.kafka
@pytest.mark.parametrize("user", STRANGERS)
def test_a_stranger_hears_the_same(guarded_node: Guarded, guarded_kafka: Guarded, user: str) -> None:
    """Whoever may do nothing: every API in every version refuses as Apache Kafka does, and reveals no more."""
    ours, theirs = strangers_answers(guarded_node, user), strangers_answers(guarded_kafka, user)
    found = {name: differences(ours[name], theirs[name]) for name in ours}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_who_asks_by_an_id_is_not_told_the_name(guarded: Guarded, admin: Wire) -> None:
    """Of a topic that they may not see. Every API in every version; an answer repeats what the request has said."""
    name = f"secret-{uuid4().hex}"
    ask(
        admin,
        "create_topics",
        5,
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}],
        timeout=5000,
    )
    found = wait_until(lambda: ask(admin, "metadata", 12, topics=[{"name": name}])["topics"][0], what="the topic")
    told = []
    for title, request in strangers_requests(World(topic=name, topic_id=found["topic_id"])):
        frame = messages.write_request(request, correlation_id=1, client_id="wire")
        with guarded.wire("stranger") as wire, suppress(OSError):
            wire.send_bytes(frame)
            if name.encode() not in frame and name.encode() in wire.receive_bytes():
                told.append(title)
    ask(admin, "delete_topics", 5, topic_names=[name], timeout=5000)  # other tests compare what both brokers have
    assert told == []
