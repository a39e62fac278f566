"""Access rules, users and quotas over the console's API. What is wrong with a change is found before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.console_api import Api, console_api
from support.waiting import wait_until

RULES = {
    "resources": [{"type": "topic", "name": "orders"}],
    "principals": ["User:ada"],
    "operations": ["read"],
    "permission": "allow",
}
RULE = {
    "resource_type": "topic",
    "resource_name": "orders",
    "pattern_type": "literal",
    "principal": "User:ada",
    "host": "*",
    "operation": "read",
    "permission": "allow",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    from suiro.node import NodeProcess

    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with NodeProcess.start(settings=settings) as node:
        yield node.bootstrap_servers


@pytest.fixture(scope="module")
def one_api(guarded: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with console_api(tmp_path_factory.mktemp("console"), guarded) as made:
        yield made


@pytest.fixture
def api(one_api: Api) -> Iterator[Api]:
    yield one_api
    for one in one_api.get("/acls")["acls"]:
        one_api.post("/acls/delete", one)
    for one in one_api.get("/users")["users"]:
        one_api.post("/users/delete", {"name": one["name"], "confirm": one["name"]})


# -- access rules --------------------------------------------------------------------------------------------


def test_rules_come_and_go_one_by_one(api: Api) -> None:
    assert api.get("/acls") == {"acls": [], "off": None}
    body = RULES | {"operations": ["read", "describe"], "hosts": ["*", "10.0.0.7"]}
    made = api.post("/acls", body)["acls"]
    assert len(made) == 4
    wait_until(lambda: len(api.get("/acls")["acls"]) == 4, what="the rules")
    assert RULE in api.get("/acls")["acls"]
    assert api.post("/acls/delete", RULE)["acls"] == [RULE]
    wait_until(lambda: len(api.get("/acls")["acls"]) == 3, what="one rule less")
    assert RULE not in api.get("/acls")["acls"]
    assert "no such rule" in api.post("/acls/delete", RULE, status=404)


def test_where_the_brokers_ask_nobody(suiro_node: Any, tmp_path: Path) -> None:
    with console_api(tmp_path, suiro_node.bootstrap_servers) as open_to_all:
        found = open_to_all.get("/acls")
        assert (found["acls"], "authorizer" in found["off"]) == ([], True)
        assert "authorizer" in open_to_all.post("/acls", RULES, status=409)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resources": []}, "name one"),
        ({"resources": [{"type": "topic"}]}, "$.resources[0]"),
        ({"resources": [{"type": "any", "name": "x"}]}, "'any' is not a valid resource type"),
        ({"resources": [{"type": "topic", "name": ""}]}, "empty"),
        ({"resources": [{"type": "topic", "name": "x", "pattern": "match"}]}, "not a valid pattern type"),
        ({"resources": [{"type": "cluster", "name": "mine"}]}, "kafka-cluster"),
        ({"principals": []}, "principal"),
        ({"principals": ["ada"]}, "TYPE:NAME"),
        ({"operations": []}, '"operations" is empty'),
        ({"operations": ["read", "any"]}, "'any' is not a valid operation"),
        ({"operations": ["reed"]}, "'reed' is not a valid operation"),
        ({"permission": "any"}, "'any' is not a valid permission"),
        ({"hosts": [""]}, "host"),
        ({"principals": [f"User:{n}" for n in range(1_001)]}, "1000 is the most"),
        ({"producer": True}, "producer"),
    ],
)
def test_rules_that_are_wrong(api: Api, change: dict[str, Any], said: str) -> None:
    """The first of several is not made either."""
    assert said in api.post("/acls", RULES | change, status=400)
    assert api.get("/acls")["acls"] == []


@pytest.mark.parametrize(
    "wide",
    [
        {"resource_type": "any"},
        {"pattern_type": "any"},
        {"pattern_type": "match"},
        {"operation": "any"},
        {"permission": "any"},
        {"principal": ""},
        {"host": ""},
        {"resource_name": ""},
    ],
)
def test_a_rule_to_remove_matches_no_others(api: Api, wide: dict[str, str]) -> None:
    api.post("/acls", RULES)
    wait_until(lambda: api.get("/acls")["acls"] == [RULE], what="the rule")
    api.post("/acls/delete", RULE | wide, status=400)
    assert api.get("/acls")["acls"] == [RULE]


# -- users ---------------------------------------------------------------------------------------------------


def test_users_come_and_go(api: Api) -> None:
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        api.post("/users", {"name": "ada", "mechanism": mechanism, "password": "very secret"})
    both = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    wait_until(lambda: api.get("/users")["users"] == [{"name": "ada", "mechanisms": both}], what="the user")
    assert "confirm" in api.post("/users/delete", {"name": "ada", "confirm": "Ada"}, status=400)
    api.post("/users/delete", {"name": "ada", "mechanism": "SCRAM-SHA-256", "confirm": "ada"})
    wait_until(lambda: "SCRAM-SHA-256" not in str(api.get("/users")), what="one of two")
    api.post("/users/delete", {"name": "ada", "confirm": "ada"})
    wait_until(lambda: api.get("/users")["users"] == [], what="none")
    assert "'ada'" in api.post("/users/delete", {"name": "ada", "confirm": "ada"}, status=404)
    noted = str(api.get("/audit", role="operator"))
    assert "POST /api/v1/users" in noted
    assert "very secret" not in noted


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "name and a password"),
        ({"password": ""}, "name and a password"),
        ({"mechanism": "PLAIN"}, "'PLAIN' is no mechanism"),
        ({"iterations": 1}, "4096 to"),
        ({"iterations": 1 << 30}, "4096 to"),
        ({"password": "x" * 1_001}, "1000 characters"),
        ({"pasword": "x"}, "pasword"),
    ],
)
def test_users_that_are_wrong(api: Api, change: dict[str, Any], said: str) -> None:
    body = {"name": "ada", "mechanism": "SCRAM-SHA-256", "password": "secret"}
    message = api.post("/users", body | change, status=400)
    assert said in message
    assert api.get("/users")["users"] == []


# -- quotas --------------------------------------------------------------------------------------------------


def test_quotas_are_set_and_taken_away(api: Api) -> None:
    both = {"user": "ada", "client-id": None}
    api.post("/quotas", {"entity": both, "set": {"producer_byte_rate": 1048576, "request_percentage": 0.5}})
    row = {"entity": both, "values": {"producer_byte_rate": 1048576.0, "request_percentage": 0.5}}
    wait_until(lambda: api.get("/quotas")["quotas"] == [row], what="the quotas")
    change = {"entity": both, "set": {"producer_byte_rate": 7}, "remove": ["request_percentage"]}
    api.post("/quotas", change)
    row = {"entity": both, "values": {"producer_byte_rate": 7.0}}
    wait_until(lambda: api.get("/quotas")["quotas"] == [row], what="other quotas")
    api.post("/quotas", {"entity": both, "remove": ["producer_byte_rate"]})
    wait_until(lambda: api.get("/quotas")["quotas"] == [], what="none")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"entity": {}}, "whose quotas"),
        ({"entity": {"team": "x"}}, "'team' has no quotas"),
        ({"entity": {"user": ""}}, "null is the default"),
        ({"entity": {"ip": "10.0.0.7", "user": "ada"}}, "ip alone"),
        ({"set": {}}, "nothing is to be changed"),
        ({"set": {"producer_byte_rate": -1}}, "from 0 on"),
        ({"set": {"producer_byte_rate": "7"}}, "$.set"),
        ({"remove": ["producer_byte_rate"]}, "set and removed"),
    ],
)
def test_quotas_that_are_wrong(api: Api, change: dict[str, Any], said: str) -> None:
    body = {"entity": {"user": "ada"}, "set": {"producer_byte_rate": 7}}
    assert said in api.post("/quotas", body | change, status=400)
    assert api.get("/quotas")["quotas"] == []


@pytest.mark.parametrize("path", ["/acls", "/acls/delete", "/users", "/users/delete", "/quotas"])
@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_rights_are_for_admins(api: Api, path: str, role: str) -> None:
    assert "for the role admin" in api.post(path, RULE, role=role, status=403)
