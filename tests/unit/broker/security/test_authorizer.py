"""What the rules together allow, and that a change of the rules is seen at once and survives a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.broker.security import authorizer as module
from suiro.broker.security.acl import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from suiro.broker.security.authorizer import AclAuthorizer, AclStore, AllowAll, authorized_operations, super_users_of
from suiro.broker.security.session import Session, one_text_of
from suiro.broker.settings.cluster_state import ClusterState

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


def rule(text: str) -> Acl:
    """`alice READ topic` or `deny * ALL prefix:logs- @10.0.0.1`"""
    words = text.split()
    permission = Permission.DENY if words[0] == "deny" else Permission.ALLOW
    words = words[permission is Permission.DENY :]
    host = words.pop()[1:] if words[-1].startswith("@") else "*"
    user, operation, name = words
    kind = GROUP if name.startswith("group:") else TOPIC
    name = name.removeprefix("group:")
    pattern = PatternType.PREFIXED if name.startswith("prefix:") else PatternType.LITERAL
    return Acl(
        kind=kind,
        name=name.removeprefix("prefix:"),
        pattern=pattern,
        principal=f"User:{user}",
        host=host,
        operation=Operation[operation],
        permission=permission,
    )


@pytest.fixture
def store(tmp_path: Path) -> AclStore:
    return AclStore(ClusterState(tmp_path))


def authorizer(store: AclStore, *rules: str, allow_if_no_acl: bool = False) -> AclAuthorizer:
    store.add([rule(text) for text in rules])
    return AclAuthorizer(store, super_users=["User:root"], allow_if_no_acl=allow_if_no_acl)


def session(user: str = "alice", host: str = "10.0.0.7") -> Session:
    return Session(principal=f"User:{user}", host=host, listener="SASL_PLAINTEXT")


@pytest.mark.parametrize(
    ("rules", "operation", "name", "allowed"),
    [
        ([], READ, "t", False),
        (["alice READ t"], READ, "t", True),
        (["alice READ t"], WRITE, "t", False),
        (["alice READ t"], READ, "t2", False),
        (["bob READ t"], READ, "t", False),
        (["* READ t"], READ, "t", True),
        (["alice READ *"], READ, "t", True),
        (["alice ALL t"], Operation.ALTER_CONFIGS, "t", True),
        (["alice READ prefix:log"], READ, "logs", True),
        (["alice READ prefix:log"], READ, "log", True),
        (["alice READ prefix:log"], READ, "lo", False),
        (["alice READ prefix:*"], READ, "t", False),
        (["alice READ prefix:l", "deny alice READ prefix:log"], READ, "logs", False),
        (["alice READ prefix:l", "deny alice READ prefix:log"], READ, "lamp", True),
        (["alice READ t", "deny alice READ *"], READ, "t", False),
        (["alice READ t", "deny * READ t"], READ, "t", False),
        (["alice READ t", "deny bob READ t"], READ, "t", True),
        (["alice READ t", "deny alice WRITE t"], READ, "t", True),
        (["alice READ t", "deny alice ALL t"], READ, "t", False),
        (["alice READ t @10.0.0.7"], READ, "t", True),
        (["alice READ t @10.0.0.8"], READ, "t", False),
        (["alice READ t", "deny alice READ t @10.0.0.8"], READ, "t", True),
        (["alice READ t"], DESCRIBE, "t", True),
        (["alice WRITE t"], DESCRIBE, "t", True),
        (["alice DELETE t"], DESCRIBE, "t", True),
        (["alice ALTER t"], DESCRIBE, "t", True),
        (["alice CREATE t"], DESCRIBE, "t", False),
        (["alice ALTER_CONFIGS t"], DESCRIBE, "t", False),
        (["alice ALTER_CONFIGS t"], WRITE, "t", False),
        (["alice ALTER_CONFIGS t"], Operation.DESCRIBE_CONFIGS, "t", True),
        (["alice ALTER t"], Operation.DESCRIBE_CONFIGS, "t", False),
        (["alice DESCRIBE t", "deny alice READ t"], DESCRIBE, "t", True),
        (["alice READ t", "deny alice DESCRIBE t"], DESCRIBE, "t", False),
        (["alice READ t", "deny alice DESCRIBE t"], READ, "t", True),
        (["alice READ group:t"], READ, "t", False),
    ],
)
def test_decisions(store: AclStore, rules: list[str], operation: Operation, name: str, allowed: bool) -> None:
    assert (authorizer(store, *rules).denied_by(session(), operation, TOPIC, name) is None) is allowed


def test_a_rule_for_an_ipv6_address_holds_however_it_is_written(store: AclStore) -> None:
    """Java, and so Apache Kafka, writes all of its zeros."""
    asked = authorizer(store, "alice READ t", "deny alice READ t @2001:DB8:0:0:0:0:0:1")
    assert asked.denied_by(session(host="2001:db8::1"), READ, TOPIC, "t") is not None
    assert asked.denied_by(session(host="2001:db8::2"), READ, TOPIC, "t") is None


def test_an_address_has_one_text() -> None:
    texts = ("::ffff:10.0.0.1", "10.0.0.1", "0:0:0:0:0:0:0:1", "*")
    assert [one_text_of(text) for text in texts] == ["10.0.0.1", "10.0.0.1", "::1", "*"]


def test_a_super_user_may_do_what_is_denied(store: AclStore) -> None:
    asked = authorizer(store, "deny root ALL *")
    assert asked.denied_by(session("root"), Operation.DELETE, TOPIC, "t") is None
    assert asked.allows_any(session("root"), WRITE, TOPIC)
    assert list(super_users_of(" User:a; User:CN=b,O=c;;")) == ["User:a", "User:CN=b,O=c"]


def test_without_a_rule_for_the_resource_the_setting_decides(store: AclStore) -> None:
    asked = authorizer(store, "bob READ t", "bob READ prefix:logs", allow_if_no_acl=True)
    assert asked.denied_by(session(), READ, TOPIC, "other") is None
    assert asked.denied_by(session(), READ, TOPIC, "t") is not None
    assert asked.denied_by(session(), READ, TOPIC, "logs-1") is not None
    assert asked.denied_by(session(), READ, GROUP, "t") is None


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        (["alice WRITE t"], True),
        (["alice ALL t"], True),
        (["alice READ t"], False),
        (["alice WRITE *"], True),
        (["alice WRITE t", "deny alice WRITE t"], False),
        (["alice WRITE t", "alice WRITE u", "deny alice WRITE t"], True),
        (["alice WRITE t", "deny alice WRITE *"], False),
        (["alice WRITE *", "deny alice WRITE prefix:t"], True),
        (["alice WRITE topic", "deny alice WRITE prefix:to"], False),
        (["alice WRITE topic", "deny alice WRITE prefix:t"], False),
        (["alice WRITE topic", "deny alice WRITE prefix:topic"], False),
        (["alice WRITE prefix:topic", "deny alice WRITE prefix:to"], False),
        (["alice WRITE prefix:to", "deny alice WRITE prefix:topic"], True),
        (["alice WRITE prefix:t", "deny alice WRITE t"], True),
        (["alice WRITE t @10.0.0.8"], False),
        (["bob WRITE t", "alice WRITE group:g"], False),
    ],
)
def test_any_resource_of_a_type(store: AclStore, rules: list[str], allowed: bool) -> None:
    assert authorizer(store, *rules).allows_any(session(), WRITE, TOPIC) is allowed


def test_a_change_holds_at_once_and_after_a_restart(store: AclStore, tmp_path: Path) -> None:
    asked = authorizer(store)
    assert asked.denied_by(session(), READ, TOPIC, "t") is not None
    store.add([rule("alice READ t"), rule("bob READ prefix:t")])
    assert asked.denied_by(session(), READ, TOPIC, "t") is None
    store.add([rule("deny alice READ prefix:t")])
    assert asked.denied_by(session(), READ, TOPIC, "t") is not None
    store.remove([rule("deny alice READ prefix:t")])
    assert asked.denied_by(session(), READ, TOPIC, "t") is None

    again = AclStore(ClusterState(tmp_path))
    assert again.matching(AclFilter()) == [rule("alice READ t"), rule("bob READ prefix:t")]
    asked = AclAuthorizer(again, super_users=(), allow_if_no_acl=False)
    assert asked.denied_by(session("bob"), READ, TOPIC, "topic") is None
    again.remove(again.matching(AclFilter()))
    assert ClusterState(tmp_path).read("acls", None) == []


def test_the_rule_that_denies_is_told(store: AclStore) -> None:
    asked = authorizer(store, "deny alice READ t")
    assert asked.denied_by(session(), READ, TOPIC, "t") == (
        "MatchingAcl(acl=User:alice has DENY permission for operations READ on TOPIC:LITERAL:t from hosts *)"
    )
    assert asked.denied_by(session(), WRITE, TOPIC, "t") == "DefaultDeny"
    assert asked.denied_by(session("root"), WRITE, TOPIC, "t") is None


def test_decisions_about_long_names_and_many_are_not_kept(store: AclStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may bring thousands of names of any length."""
    monkeypatch.setattr(module, "_CACHED_DECISIONS", 3)
    asked = authorizer(store, "alice READ prefix:t")
    for name in ("t", "t" * 1_000_000):
        assert asked.denied_by(session(), READ, TOPIC, name) is None
    assert [key[-1] for key in asked._decisions] == ["t"]
    for number in range(4):
        assert asked.denied_by(session(), READ, TOPIC, f"t{number}") is None
    assert [key[-1] for key in asked._decisions] == ["t2", "t3"]


def test_authorized_operations(store: AclStore) -> None:
    asked = authorizer(store, "alice READ t")
    bits = 1 << READ | 1 << DESCRIBE
    assert authorized_operations(asked, session(), TOPIC, "t") == bits
    assert authorized_operations(AllowAll(), session(), ResourceType.CLUSTER, CLUSTER_NAME) == 0b1_1111_1010_0000


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ["alice READ t", "bob WRITE prefix:t", "deny * ALL *", "alice READ group:t @h"]),
        (AclFilter(kind=TOPIC, name="t"), ["alice READ t", "bob WRITE prefix:t"]),
        (AclFilter(name="t"), ["alice READ t", "bob WRITE prefix:t", "alice READ group:t @h"]),
        (AclFilter(kind=TOPIC, name="to", pattern=PatternType.MATCH), ["bob WRITE prefix:t", "deny * ALL *"]),
        (AclFilter(name="t", pattern=PatternType.LITERAL), ["alice READ t", "alice READ group:t @h"]),
        (AclFilter(name="t", pattern=PatternType.PREFIXED), ["bob WRITE prefix:t"]),
        (AclFilter(pattern=PatternType.PREFIXED), ["bob WRITE prefix:t"]),
        (AclFilter(principal="User:alice", host="h"), ["alice READ group:t @h"]),
        (AclFilter(principal="User:*"), ["deny * ALL *"]),
        (AclFilter(operation=Operation.ALL), ["deny * ALL *"]),
        (AclFilter(permission=Permission.DENY), ["deny * ALL *"]),
        (AclFilter(name="x"), []),
    ],
)
def test_filters(store: AclStore, wanted: AclFilter, found: list[str]) -> None:
    rules = ["alice READ t", "bob WRITE prefix:t", "deny * ALL *", "alice READ group:t @h"]
    store.add(rule(text) for text in rules)
    assert store.matching(wanted) == [rule(text) for text in found]


def test_an_unknown_word_is_unknown() -> None:
    assert Operation(99) is Operation.UNKNOWN
    assert ResourceType(99) is ResourceType.UNKNOWN
    acl = rule("alice READ t")
    assert AclFilter().matches(acl)
    assert not AclFilter(operation=Operation(99)).matches(acl)
    assert not AclFilter(pattern=PatternType(99)).matches(acl)
    assert not AclFilter(permission=Permission(99)).matches(acl)
