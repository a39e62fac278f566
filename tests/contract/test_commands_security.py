"""`suiro acl`, `suiro user`, `suiro quota` on a guarded node and a guarded Apache Kafka; and users with no rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import Done, suiro
from support.waiting import wait_until

SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="secret-admin" user_admin="secret-admin" user_nobody="secret-nobody";'
    ),
    **{
        f"listener.name.plaintext.scram-sha-{size}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for size in (256, 512)
    },
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}
Call = Callable[..., Done]


@pytest.fixture(scope="module")
def guarded_node() -> Iterator[str]:
    from suiro.node import NodeProcess

    settings = {**SETTINGS, "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    with NodeProcess.start(settings=settings) as node:
        yield node.bootstrap_servers


@pytest.fixture(scope="module")
def guarded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from suiro.kafka import KafkaProcess

    settings = {
        **SETTINGS,
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    with KafkaProcess.start(tmp_path_factory.mktemp("guarded"), settings=settings) as process:
        yield process.bootstrap_servers


@pytest.fixture(params=["node", pytest.param("kafka", marks=pytest.mark.kafka)])
def call(request: pytest.FixtureRequest, tmp_path: Path) -> Call:
    bootstrap: str = request.getfixturevalue(f"guarded_{request.param}")

    def as_user(
        *arguments: str, user: str = "admin", password: str = "", mechanism: str = "PLAIN", **more: str
    ) -> Done:
        path = tmp_path / f"{user}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.username={user}\n"
            f"sasl.password={password or f'secret-{user}'}\n"
        )
        return suiro(*arguments, "--bootstrap-servers", bootstrap, "--command-config", str(path), **more)

    return as_user


def test_rules_come_and_go(call: Call, unique: str) -> None:
    add = ("--topic", unique, "--group", unique, "--allow-principal", "User:ada", "--consumer")
    shown = call("acl", "add", *add, "--dry-run")
    assert len(shown.rows) == 3
    assert call("acl", "list", "--topic", unique).rows == []
    assert call("acl", "add", *add).rows == shown.rows
    wait_until(lambda: len(call("acl", "list", "--topic", unique).rows) == 2, what="the rules of the topic")
    assert [row[5] for row in call("acl", "list", "--topic", unique).rows] == ["describe", "read"]
    refused = call("acl", "remove", *add)
    assert (refused.code, "give --yes" in refused.err) == (2, True)
    assert len(call("acl", "remove", *add, "--yes").rows) == 3
    wait_until(lambda: call("acl", "list", "--topic", unique).rows == [], what="no rules")
    again = call("acl", "remove", *add, "--yes")
    assert (again.code, "no such ACL" in again.err) == (0, True)


def test_prefixed_and_denied(call: Call, unique: str) -> None:
    add = ("--topic", unique, "--deny-principal", "User:*", "--operation", "Write", "--host", "10.0.0.1")
    call("acl", "add", *add, "--resource-pattern-type", "prefixed")

    def rules() -> list[dict[str, str]]:
        found: list[dict[str, str]] = call("acl", "list", "--topic", f"{unique}-more", "--json").json
        return found

    (rule,) = wait_until(rules, what="the rule")
    assert rule == {
        "resource_type": "topic",
        "resource_name": unique,
        "pattern_type": "prefixed",
        "principal": "User:*",
        "host": "10.0.0.1",
        "operation": "write",
        "permission": "deny",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--allow-principal", "User:ada"), "name one"),
        (("--topic", "t"), "needs a principal"),
        (("--topic", "t", "--allow-principal", "ada"), "User:ada"),
        (("--topic", "t", "--allow-principal", "User:ada", "--operation", "fly"), "'fly'"),
        (("--topic", "t", "--allow-principal", "User:ada", "--consumer"), "group"),
        (("--group", "g", "--allow-principal", "User:ada", "--producer"), "topic"),
    ],
)
def test_a_rule_that_says_too_little(call: Call, arguments: tuple[str, ...], said: str) -> None:
    done = call("acl", "add", *arguments)
    assert done.code == 1
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_user_logs_in_by_the_password_that_was_given(call: Call, unique: str) -> None:
    added = call("user", "add", unique, "--mechanism", "SCRAM-SHA-256", stdin="pässword, with = signs\n")
    assert added.code == 0
    assert "pässword" not in added.out + added.err

    def logged_in(password: str) -> int:
        return call("topic", "list", user=unique, password=password, mechanism="SCRAM-SHA-256").code

    wait_until(lambda: logged_in("pässword, with = signs") == 0, what="the login")
    assert logged_in("other") == 1
    assert [unique, "SCRAM-SHA-256", "8192"] in call("user", "list").rows
    assert call("user", "remove", unique).code == 2
    assert call("user", "remove", unique, "--yes").code == 0
    wait_until(lambda: unique not in [row[0] for row in call("user", "list").rows], what="no user")
    gone = call("user", "remove", unique, "--yes")
    assert (gone.code, "there is no SCRAM user" in gone.err) == (1, True)


def test_a_user_needs_a_password(call: Call, unique: str) -> None:
    done = call("user", "add", unique, stdin="\n")
    assert (done.code, "the password is empty" in done.err) == (1, True)


def test_quotas_come_and_go(call: Call, unique: str) -> None:
    of = ("--user", unique, "--client-id-default")
    assert call("quota", "set", *of, "--producer-byte-rate", "1048576", "--dry-run").code == 0
    assert call("quota", "set", *of, "--producer-byte-rate", "1048576", "--request-percentage", "50.5").code == 0
    entity = f"client-id=(default) user={unique}"
    expected = [[entity, "producer_byte_rate", "1048576"], [entity, "request_percentage", "50.5"]]
    wait_until(
        lambda: sorted(row for row in call("quota", "list").rows if row[0] == entity) == expected,
        what="both quotas",
    )
    assert call("quota", "remove", *of, "--quota", "request_percentage", "--yes").code == 0
    wait_until(lambda: [row for row in call("quota", "list").rows if row[0] == entity] == expected[:1], what="one")
    assert call("quota", "remove", *of, "--yes").code == 0
    assert "no such quota" in wait_until(
        lambda: "no such" in (said := call("quota", "remove", *of, "--yes").out) and said, what="none"
    )
    for wrong in ((), ("--user", "a", "--user-default"), ("--user", "a", "--ip", "127.0.0.1")):
        assert call("quota", "set", *wrong, "--producer-byte-rate", "1").code == 2
    assert call("quota", "set", *of).code == 2


def test_who_may_do_nothing_is_told_so(call: Call, unique: str) -> None:
    assert call("topic", "create", unique).code == 0
    call("topic", "produce", unique, stdin="secret\n")
    assert call("topic", "list", user="nobody").rows == []
    for arguments in (
        ("topic", "create", f"{unique}-2"),
        ("topic", "describe", unique),
        ("topic", "alter", unique, "--config", "retention.ms=1"),
        ("topic", "delete", unique, "--yes"),
        ("topic", "delete-records", unique, "--yes"),
        ("topic", "records", unique),
        ("topic", "consume", unique, "--group", "g", "--timeout-ms", "10"),
        ("group", "describe", "g"),
        ("acl", "list"),
        ("acl", "add", "--topic", unique, "--allow-principal", "User:nobody"),
        ("user", "list"),
        ("user", "remove", "admin", "--yes"),
        ("quota", "list"),
        ("quota", "set", "--user", "nobody", "--producer-byte-rate", "1"),
    ):
        done = call(*arguments, user="nobody")
        assert (done.code, done.out) == (1, ""), arguments
        assert done.err.count("\n") == 1, arguments
    written = call("topic", "produce", unique, user="nobody", stdin="forged\n")
    assert written.code == 1
    assert [line.split("\t")[3] for line in call("topic", "records", unique).out.splitlines()] == ["secret"]


def test_a_wrong_password_is_one_line(call: Call) -> None:
    done = call("topic", "list", password="hunter2")
    assert (done.code, "hunter2" in done.err, "'admin'" in done.err) == (1, False, True)
    assert done.err.count("\n") == 1
