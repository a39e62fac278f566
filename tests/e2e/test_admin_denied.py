"""Who may not administer learns nothing: each request of administration, denied, as Apache Kafka denies it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask
from support.wire import Wire

from suiro.node import InProcessNode

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
ALL_TOPICS, ALL_GROUPS, CLUSTER = (2, "*"), (3, "*"), (4, "kafka-cluster")
ALL, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 2, 5, 6, 7, 8, 10, 11
DENY, ALLOW = 2, 3
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    node = InProcessNode.start(data=Path(tmp_path_factory.mktemp("denied")), settings=SETTINGS)
    try:
        with Wire(node.bootstrap_servers) as made:
            prepare(made)
            yield made
    finally:
        node.stop()


def prepare(wire: Wire) -> None:
    """A topic that there is, and then nobody may do anything any more (but add to the lists of the denied)."""
    made = ask(wire, "create_topics", 7, topics=[new("there")], timeout=10_000, validate_only=False)
    assert made["topics"][0]["error_code"] == "none"
    # On Apache Kafka the broker itself is User:ANONYMOUS here and must be able to reach its controller.
    rules = [(*CLUSTER, ALL, ALLOW), (*ALL_TOPICS, ALL, DENY), (*ALL_GROUPS, ALL, DENY)]
    operations = (CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, ALTER)
    rules += [(*CLUSTER, operation, DENY) for operation in operations]
    creations = [
        {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": 3,
            "principal": "User:ANONYMOUS",
            "host": "*",
            "operation": operation,
            "permission_type": permission,
        }
        for kind, name, operation, permission in rules
    ]
    answer = ask(wire, "create_acls", 3, creations=creations)
    assert {result["error_code"] for result in answer["results"]} == {"none"}


def new(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


def test_topics(wire: Wire) -> None:
    made = ask(wire, "create_topics", 7, topics=[new("there"), new("new")], timeout=1000, validate_only=True)
    assert [(t["error_code"], t["topic_id"]) for t in made["topics"]] == [("topic_authorization_failed", None)] * 2
    names = [{"name": name, "topic_id": None} for name in ("there", "not-there")]
    gone = ask(wire, "delete_topics", 6, topics=names, timeout=1000)
    assert [(t["error_code"], t["topic_id"]) for t in gone["responses"]] == [("topic_authorization_failed", None)] * 2
    grown = ask(
        wire,
        "create_partitions",
        3,
        topics=[{"name": name, "count": 3} for name in ("there", "not-there")],
        timeout=1000,
        validate_only=False,
    )
    assert [t["error_code"] for t in grown["results"]] == ["topic_authorization_failed"] * 2


RESOURCES = [(TOPIC, "there"), (TOPIC, "not-there"), (BROKER, "1"), (BROKER, ""), (GROUP, "g"), (LOGGER, "1")]
CODES = [
    "topic_authorization_failed",
    "topic_authorization_failed",
    "cluster_authorization_failed",
    "cluster_authorization_failed",
    "group_authorization_failed",
    "cluster_authorization_failed",
]


def test_settings(wire: Wire) -> None:
    asked = [{"resource_type": kind, "resource_name": name} for kind, name in RESOURCES]
    answer = ask(
        wire,
        "describe_configs",
        4,
        resources=[resource | {"configuration_keys": None} for resource in asked],
        include_synonyms=False,
        include_documentation=False,
    )
    found = {(r["resource_type"], r["resource_name"]): (r["error_code"], r["configs"]) for r in answer["results"]}
    assert found == {resource: (code, []) for resource, code in zip(RESOURCES, CODES, strict=True)}
    setting = {
        TOPIC: "flush.ms",
        BROKER: "log.cleaner.backoff.ms",
        GROUP: "consumer.session.timeout.ms",
        LOGGER: "root",
    }
    value = {GROUP: "50000", LOGGER: "INFO"}

    def with_one(resource: dict[str, Any], **more: Any) -> dict[str, Any]:
        kind = resource["resource_type"]
        return resource | {"configs": [{"name": setting[kind], "value": value.get(kind, "20000"), **more}]}

    altered = ask(
        wire,
        "incremental_alter_configs",
        1,
        resources=[with_one(resource, config_operation=0) for resource in asked],
        validate_only=True,
    )
    found = {(r["resource_type"], r["resource_name"]): r["error_code"] for r in altered["responses"]}
    assert found == dict(zip(RESOURCES, CODES, strict=True))
    replaced = ask(
        wire,
        "alter_configs",
        2,
        resources=[with_one(resource) for resource in asked[:-1]],
        validate_only=True,
    )
    found = {(r["resource_type"], r["resource_name"]): r["error_code"] for r in replaced["responses"]}
    assert found == dict(zip(RESOURCES[:-1], CODES, strict=False))
    listed = ask(wire, "list_config_resources", 1, resource_types=[])
    assert (listed["error_code"], listed["config_resources"]) == ("cluster_authorization_failed", [])


def test_the_cluster(wire: Wire) -> None:
    denied = "cluster_authorization_failed"
    dirs = ask(wire, "describe_log_dirs", 4, topics=None)
    assert (dirs["error_code"], dirs["results"]) == (denied, [])
    moved = ask(
        wire,
        "alter_replica_log_dirs",
        2,
        dirs=[{"path": "/nowhere", "topics": [{"name": "there", "partitions": [0]}]}],
    )
    assert moved["results"][0]["partitions"][0]["error_code"] == denied
    places = [{"topic": "there", "partitions": [0]}]
    elected = ask(wire, "elect_leaders", 2, topic_partitions=places, timeout=1000, election_type=0)
    assert elected["error_code"] == denied
    wanted = [{"name": "there", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
    reassigned = ask(
        wire,
        "alter_partition_reassignments",
        1,
        timeout=1000,
        topics=wanted,
        allow_replication_factor_change=True,
    )
    assert reassigned["error_code"] == denied
    assert ask(wire, "list_partition_reassignments", 0, timeout=1000, topics=None)["error_code"] == denied
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    assert ask(wire, "describe_quorum", 2, topics=quorum)["error_code"] == denied
    assert ask(wire, "unregister_broker", 0, broker_id=2)["error_code"] == denied
    updated = ask(wire, "update_features", 2, timeout=1000, feature_updates=[], validate_only=True)
    assert updated["error_code"] == denied
