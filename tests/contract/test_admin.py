"""Topics, settings, log directories, elections, reassignments, the quorum and features: the node beside Apache Kafka.

Raw requests, field by field; messages only where a tool shows them and the node says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from conftest import LogUnderTest
from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

NewTopicFixture = Callable[..., str]
TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_TOPIC, OF_BROKER, OF_DEFAULT, DEFAULT, OF_GROUP = 1, 2, 3, 5, 8


@pytest.fixture
def name() -> str:
    return f"admin-{uuid4().hex[:12]}"


# -- topics ---------------------------------------------------------------------------------------------------


def create(wire: Wire, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> dict[str, Any]:
    """The results by the topics' names."""
    answer = ask(wire, "create_topics", version, topics=list(topics), timeout=10_000, validate_only=validate_only)
    return {result["name"]: result for result in answer["topics"]}


def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


def assigned(name: str, *replicas: tuple[int, list[int]], **more: Any) -> dict[str, Any]:
    assignments = [{"partition_index": index, "broker_ids": ids} for index, ids in replicas]
    return {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments, **more}


def settings(**configs: str | None) -> list[dict[str, Any]]:
    return [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]


def test_a_topic_is_made_and_its_settings_echoed(wire: Wire, name: str) -> None:
    result = create(wire, topic(name, 3, -1, configs=settings(retention_ms="60000")))[name]
    assert (result["error_code"], result["error_message"]) == ("none", None)
    assert (result["num_partitions"], result["replication_factor"]) == (3, 1)
    assert isinstance(result["topic_id"], UUID)
    shown = {config["name"]: config for config in result["configs"]}
    assert len(shown) == 33
    assert (shown["retention.ms"]["value"], shown["retention.ms"]["config_source"]) == ("60000", OF_TOPIC)
    assert (shown["segment.bytes"]["value"], shown["segment.bytes"]["config_source"]) == (
        "1073741824",
        DEFAULT,
    )
    assert not any(config["read_only"] or config["is_sensitive"] for config in result["configs"])


@pytest.mark.parametrize("version", [2, 4, 5, 6, 7])
def test_every_version_makes_a_topic(wire: Wire, name: str, version: int) -> None:
    assert create(wire, topic(name), version=version)[name]["error_code"] == "none"


def test_nothing_is_made_where_only_validation_is_asked_for(wire: Wire, name: str) -> None:
    assert create(wire, topic(name), validate_only=True)[name]["error_code"] == "none"
    assert create(wire, topic(name))[name]["error_code"] == "none"
    refused = create(wire, topic(name), validate_only=True)[name]
    assert refused["error_code"] == "topic_already_exists"
    assert refused["error_message"] == f"Topic '{name}' already exists."
    assert (refused["topic_id"], refused["num_partitions"], refused["configs"]) == (None, -1, [])


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("t", 0), "invalid_partitions"),
        (topic("t", -2), "invalid_partitions"),
        (topic("t", 10_001), "policy_violation"),
        (topic("t", 1, 0), "invalid_replication_factor"),
        (topic("t", 1, -2), "invalid_replication_factor"),
        (topic("t", 1, 2), "invalid_replication_factor"),
        (topic("t", 0, 0), "invalid_replication_factor"),
        (topic(""), "invalid_topic_exception"),
        (topic("."), "invalid_topic_exception"),
        (topic(".."), "invalid_topic_exception"),
        (topic("a/b"), "invalid_topic_exception"),
        (topic("x" * 250), "invalid_topic_exception"),
        (topic("__cluster_metadata"), "invalid_request"),
        (assigned("t", (0, [2])), "invalid_replica_assignment"),
        (assigned("t", (1, [1])), "invalid_replica_assignment"),
        (assigned("t", (0, [1]), (2, [1])), "invalid_replica_assignment"),
        (assigned("t", (0, [1]), (0, [1])), "invalid_replica_assignment"),
        (assigned("t", (0, [1, 1])), "invalid_replica_assignment"),
        (assigned("t", (0, [])), "invalid_replica_assignment"),
        (assigned("t", (0, [1])) | {"num_partitions": 1}, "invalid_request"),
        (assigned("t", (0, [1])) | {"replication_factor": 1}, "invalid_request"),
        (topic("t", configs=settings(no_such="1")), "invalid_config"),
        (topic("t", configs=settings(retention_ms="soon")), "invalid_config"),
        (topic("t", configs=settings(retention_ms=None)), "invalid_config"),
        (
            topic("t", configs=settings(min_compaction_lag_ms="9", max_compaction_lag_ms="8")),
            "invalid_config",
        ),
        (topic("t", configs=settings(remote_storage_enable="true")), "invalid_config"),
    ],
)
def test_a_topic_that_cannot_be(wire: Wire, wanted: dict[str, Any], code: str) -> None:
    (result,) = create(wire, wanted).values()
    assert result["error_code"] == code
    assert result["error_message"]


def test_names_that_metrics_cannot_tell_apart(wire: Wire, name: str) -> None:
    assert create(wire, topic(f"{name}.a_b"))[f"{name}.a_b"]["error_code"] == "none"
    refused = create(wire, topic(f"{name}_a.b"))[f"{name}_a.b"]
    assert refused["error_code"] == "invalid_topic_exception"
    assert refused["error_message"] == f"Topic '{name}_a.b' collides with existing topic: {name}.a_b"


def test_a_topic_named_twice_is_refused_and_the_others_made(wire: Wire, name: str) -> None:
    found = create(wire, topic(f"{name}-a"), topic(f"{name}-b"), topic(f"{name}-a"))
    assert {key: result["error_code"] for key, result in found.items()} == {
        f"{name}-a": "invalid_request",
        f"{name}-b": "none",
    }


def test_topics_are_deleted_by_name_and_by_id(wire: Wire, name: str) -> None:
    ids = {key: result["topic_id"] for key, result in create(wire, *(topic(f"{name}-{n}") for n in "abc")).items()}
    asked = [
        {"name": f"{name}-a", "topic_id": None},
        {"name": None, "topic_id": ids[f"{name}-b"]},
        {"name": f"{name}-c", "topic_id": ids[f"{name}-c"]},
        {"name": "no-such", "topic_id": None},
        {"name": "", "topic_id": None},
        {"name": None, "topic_id": (unknown := uuid4())},
    ]
    answer = ask(wire, "delete_topics", 6, topics=asked, timeout=10_000)
    found = {(result["name"], result["topic_id"]): result["error_code"] for result in answer["responses"]}
    assert found == {
        (f"{name}-a", ids[f"{name}-a"]): "none",
        (f"{name}-b", ids[f"{name}-b"]): "none",
        (f"{name}-c", ids[f"{name}-c"]): "invalid_request",
        ("no-such", None): "unknown_topic_or_partition",
        ("", None): "unknown_topic_or_partition",
        (None, unknown): "unknown_topic_id",
    }


@pytest.mark.parametrize("version", [1, 3, 5])
def test_topics_are_deleted_by_older_versions(wire: Wire, name: str, version: int) -> None:
    create(wire, topic(name))
    answer = ask(wire, "delete_topics", version, topic_names=[name, "", "no-such"], timeout=10_000)
    assert {result["name"]: result["error_code"] for result in answer["responses"]} == {
        name: "none",
        "": "unknown_topic_or_partition",
        "no-such": "unknown_topic_or_partition",
    }
    assert create(wire, topic(name))[name]["error_code"] == "none"


def test_what_is_named_twice_is_not_deleted(wire: Wire, name: str) -> None:
    topic_id = create(wire, topic(name))[name]["topic_id"]
    for asked in ({"name": name, "topic_id": None}, {"name": None, "topic_id": topic_id}):
        answer = ask(wire, "delete_topics", 6, topics=[asked, asked], timeout=10_000)
        assert [result["error_code"] for result in answer["responses"]] == ["invalid_request"]
    answer = ask(wire, "delete_topics", 6, topics=[{"name": None, "topic_id": None}], timeout=10_000)
    assert [result["error_code"] for result in answer["responses"]] == ["invalid_request"]


def grow(wire: Wire, *wanted: dict[str, Any], validate_only: bool = False) -> list[tuple[str, str | None]]:
    answer = ask(wire, "create_partitions", 3, topics=list(wanted), timeout=10_000, validate_only=validate_only)
    return [(result["error_code"], result["error_message"]) for result in answer["results"]]


def test_a_topic_gets_more_partitions(wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic(2)

    def wanted(count: int, *replicas: list[int], given: bool = False) -> dict[str, Any]:
        assignments = [{"broker_ids": ids} for ids in replicas] if replicas or given else None
        return {"name": name, "count": count, "assignments": assignments}

    assert grow(wire, wanted(3), validate_only=True) == [("none", None)]
    assert grow(wire, wanted(3)) == [("none", None)]
    assert grow(wire, wanted(4, [1])) == [("none", None)]
    assert grow(wire, wanted(4)) == [("invalid_partitions", "Topic already has 4 partition(s).")]
    for fewer in (1, 0, -1):
        words = f"The topic {name} currently has 4 partition(s); {fewer} would not be an increase."
        assert grow(wire, wanted(fewer)) == [("invalid_partitions", words)]
    for replicas in ([2], [], [1, 1]):
        assert grow(wire, wanted(5, replicas))[0][0] == "invalid_replica_assignment"
    assert grow(wire, wanted(6, [1]))[0][0] == "invalid_replica_assignment"
    assert grow(wire, wanted(5, given=True))[0][0] == "invalid_replica_assignment"
    assert grow(wire, wanted(5), wanted(6)) == [("invalid_request", "Duplicate topic name.")]
    assert grow(wire, {"name": "no-such", "count": 3}) == [("unknown_topic_or_partition", None)]
    assert grow(wire, wanted(5)) == [("none", None)]


# -- settings -------------------------------------------------------------------------------------------------


def change(
    wire: Wire, kind: int, resource: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[str, str | None]:
    configs = [{"name": name, "config_operation": op, "value": value} for name, op, value in changes]
    answer = ask(
        wire,
        "incremental_alter_configs",
        1,
        resources=[{"resource_type": kind, "resource_name": resource, "configs": configs}],
        validate_only=validate_only,
    )
    (result,) = answer["responses"]
    return result["error_code"], result["error_message"]


def replace(
    wire: Wire, kind: int, resource: str, configs: dict[str, str | None], *, validate_only: bool = False
) -> str:
    entries = [{"name": name, "value": value} for name, value in configs.items()]
    answer = ask(
        wire,
        "alter_configs",
        2,
        resources=[{"resource_type": kind, "resource_name": resource, "configs": entries}],
        validate_only=validate_only,
    )
    return str(answer["responses"][0]["error_code"])


def described(wire: Wire, kind: int, resource: str, *names: str, version: int = 4) -> dict[str, Any]:
    def look() -> Any:
        answer = ask(
            wire,
            "describe_configs",
            version,
            resources=[{"resource_type": kind, "resource_name": resource, "configuration_keys": list(names) or None}],
            include_synonyms=True,
            **({"include_documentation": False} if version >= 3 else {}),
        )
        (result,) = answer["results"]
        # Apache Kafka answers CreateTopics before its broker knows of the topic.
        return None if result["error_code"] == "unknown_topic_or_partition" else result

    result = wait_until(look, what=f"{resource} to be known")
    assert result["error_code"] == "none", result["error_message"]
    return {config["name"]: config for config in result["configs"]}


def own(wire: Wire, kind: int, resource: str, source: int = OF_TOPIC) -> dict[str, str]:
    """What the resource itself has been given; a change takes a moment to be seen on Kafka."""
    shown = described(wire, kind, resource)
    return {name: config["value"] for name, config in shown.items() if config["config_source"] == source}


def until_own(wire: Wire, kind: int, resource: str, expected: dict[str, str], source: int = OF_TOPIC) -> None:
    wait_until(
        lambda: own(wire, kind, resource, source) == expected,
        what=f"{expected}, not {own(wire, kind, resource)}",
    )


def test_a_topic_is_described_with_synonyms(wire: Wire, name: str) -> None:
    create(wire, topic(name, configs=settings(max_message_bytes=" 5000 ")))
    shown = described(wire, TOPIC, name)
    assert len(shown) == 33
    assert {key: value for key, value in shown["max.message.bytes"].items() if key != "documentation"} == {
        "name": "max.message.bytes",
        "value": "5000",
        "read_only": False,
        "config_source": OF_TOPIC,
        "is_sensitive": False,
        "synonyms": [
            {"name": "max.message.bytes", "value": "5000", "source": OF_TOPIC},
            {"name": "message.max.bytes", "value": "1048588", "source": DEFAULT},
        ],
        "config_type": 3,
    }
    assert shown["retention.ms"]["value"] == "604800000"
    assert shown["retention.ms"]["synonyms"] == []
    assert (shown["cleanup.policy"]["config_type"], shown["flush.ms"]["config_type"]) == (7, 5)
    assert list(described(wire, TOPIC, name, "flush.ms", "no.such")) == ["flush.ms"]


def test_types_and_defaults_of_topic_settings(wire: Wire, name: str) -> None:
    """The whole table, as Apache Kafka 4.3.1 has it."""
    create(wire, topic(name))
    shown = described(wire, TOPIC, name)
    rows = {key: (config["config_type"], config["value"]) for key, config in shown.items()}
    longest = str(2**63 - 1)
    assert rows == {
        "cleanup.policy": (7, "delete"),
        "compression.gzip.level": (3, "-1"),
        "compression.lz4.level": (3, "9"),
        "compression.type": (2, "producer"),
        "compression.zstd.level": (3, "3"),
        "delete.retention.ms": (5, "86400000"),
        "file.delete.delay.ms": (5, "60000"),
        "flush.messages": (5, longest),
        "flush.ms": (5, longest),
        "follower.replication.throttled.replicas": (7, ""),
        "index.interval.bytes": (3, "4096"),
        "leader.replication.throttled.replicas": (7, ""),
        "local.retention.bytes": (5, "-2"),
        "local.retention.ms": (5, "-2"),
        "max.compaction.lag.ms": (5, longest),
        "max.message.bytes": (3, "1048588"),
        "message.timestamp.after.max.ms": (5, "3600000"),
        "message.timestamp.before.max.ms": (5, longest),
        "message.timestamp.type": (2, "CreateTime"),
        "min.cleanable.dirty.ratio": (6, "0.5"),
        "min.compaction.lag.ms": (5, "0"),
        "min.insync.replicas": (3, "1"),
        "preallocate": (1, "false"),
        "remote.log.copy.disable": (1, "false"),
        "remote.log.delete.on.disable": (1, "false"),
        "remote.storage.enable": (1, "false"),
        "retention.bytes": (5, "-1"),
        "retention.ms": (5, "604800000"),
        "segment.bytes": (3, "1073741824"),
        "segment.index.bytes": (3, "10485760"),
        "segment.jitter.ms": (5, "0"),
        "segment.ms": (5, "604800000"),
        "unclean.leader.election.enable": (1, "false"),
    }


def test_settings_of_a_topic_change_one_by_one(wire: Wire, name: str) -> None:
    create(wire, topic(name))
    assert change(wire, TOPIC, name, ("retention.ms", SET, "5"), ("flush.ms", SET, "7")) == ("none", None)
    until_own(wire, TOPIC, name, {"retention.ms": "5", "flush.ms": "7"})
    assert change(wire, TOPIC, name, ("retention.ms", DELETE, None)) == ("none", None)
    assert change(wire, TOPIC, name, ("cleanup.policy", APPEND, "compact")) == ("none", None)
    until_own(wire, TOPIC, name, {"flush.ms": "7", "cleanup.policy": "delete,compact"})
    assert change(wire, TOPIC, name, ("cleanup.policy", SUBTRACT, "delete")) == ("none", None)
    assert change(wire, TOPIC, name, ("flush.ms", SET, "8"), validate_only=True) == ("none", None)
    until_own(wire, TOPIC, name, {"flush.ms": "7", "cleanup.policy": "compact"})


def test_settings_of_a_topic_are_replaced_as_a_whole(wire: Wire, name: str) -> None:
    create(wire, topic(name, configs=settings(retention_ms="5")))
    assert replace(wire, TOPIC, name, {"flush.ms": "7"}, validate_only=True) == "none"
    assert replace(wire, TOPIC, name, {"no.such": "7"}) == "invalid_config"
    assert replace(wire, TOPIC, name, {"flush.ms": None}) == "invalid_request"
    until_own(wire, TOPIC, name, {"retention.ms": "5"})
    assert replace(wire, TOPIC, name, {"flush.ms": "7"}) == "none"
    until_own(wire, TOPIC, name, {"flush.ms": "7"})
    assert replace(wire, TOPIC, name, {}) == "none"
    until_own(wire, TOPIC, name, {})
    assert replace(wire, TOPIC, "no-such", {"flush.ms": "7"}) == "unknown_topic_or_partition"
    assert replace(wire, LOGGER, "1", {"root": "INFO"}) == "invalid_request"


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            [("retention.ms", SET, "x")],
            "invalid_config",
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            [("retention.ms", SET, "-5")],
            "invalid_config",
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (
            [("max.message.bytes", SET, "99999999999")],
            "invalid_config",
            "Invalid value 99999999999 for configuration max.message.bytes: Not a number of type INT",
        ),
        (
            [("cleanup.policy", APPEND, "shrink")],
            "invalid_config",
            "Invalid value shrink for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            [("preallocate", SET, "maybe")],
            "invalid_config",
            "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
        ),
        ([("no.such", SET, "1")], "invalid_config", "Unknown topic config name: no.such"),
        (
            [("retention.ms", APPEND, "1")],
            "invalid_config",
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")],
            "invalid_config",
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
        ([("retention.ms", SET, None)], "invalid_request", "Null value not supported for : retention.ms"),
        (
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            "invalid_request",
            "Error due to duplicate config keys",
        ),
    ],
)
def test_refused_settings_of_a_topic_change_nothing(
    wire: Wire, name: str, changes: list[tuple[str, int, str | None]], code: str, message: str
) -> None:
    create(wire, topic(name))
    assert change(wire, TOPIC, name, ("flush.ms", SET, "7"), *changes) == (code, message)
    assert own(wire, TOPIC, name) == {}


def test_resources_that_cannot_be_altered(wire: Wire) -> None:
    any_change = ("retention.ms", SET, "5")
    assert change(wire, TOPIC, "no-such", any_change) == (
        "unknown_topic_or_partition",
        "The topic 'no-such' does not exist.",
    )
    assert change(wire, TOPIC, "a/b", any_change)[0] == "invalid_topic_exception"
    for kind, resource in ((TOPIC, ""), (GROUP, ""), (BROKER, "7"), (BROKER, "x"), (LOGGER, ""), (99, "x")):
        assert change(wire, kind, resource, any_change)[0] == "invalid_request", (kind, resource)
    twice = {"resource_type": TOPIC, "resource_name": "no-such", "configs": []}
    answer = ask(wire, "incremental_alter_configs", 1, resources=[twice, twice], validate_only=False)
    assert [result["error_message"] for result in answer["responses"]] == [
        "Each resource must appear at most once."
    ] * 2


def test_resources_that_cannot_be_described(wire: Wire) -> None:
    for kind, resource, code in (
        (TOPIC, "no-such", "unknown_topic_or_partition"),
        (TOPIC, "a/b", "invalid_topic_exception"),
        (TOPIC, "", "invalid_topic_exception"),
        (BROKER, "7", "invalid_request"),
        (BROKER, "x", "invalid_request"),
        (LOGGER, "", "invalid_request"),
        (LOGGER, "7", "invalid_request"),
        (GROUP, "", "invalid_request"),
        (99, "x", "invalid_request"),
    ):
        answer = ask(
            wire,
            "describe_configs",
            4,
            resources=[{"resource_type": kind, "resource_name": resource, "configuration_keys": None}],
            include_synonyms=False,
            include_documentation=False,
        )
        assert [(r["error_code"], r["configs"]) for r in answer["results"]] == [(code, [])], (kind, resource)


def test_settings_of_the_node_and_of_the_cluster(wire: Wire, name: str) -> None:
    """The node's own wins over the cluster's, and both over the default; topics without their own follow."""
    create(wire, topic(name))
    setting = "log.cleaner.delete.retention.ms"
    from_the_beginning = {"min.insync.replicas": "1"}
    assert own(wire, BROKER, "", OF_DEFAULT) == from_the_beginning
    try:
        assert change(wire, BROKER, "", (setting, SET, "2000")) == ("none", None)
        until_own(wire, BROKER, "1", {setting: "2000"} | from_the_beginning, OF_DEFAULT)
        assert change(wire, BROKER, "1", (setting, SET, "3000")) == ("none", None)
        until_own(wire, BROKER, "1", {setting: "3000"}, OF_BROKER)
        shown = described(wire, BROKER, "1", setting)[setting]
        assert not shown["read_only"]
        assert [(s["name"], s["value"], s["source"]) for s in shown["synonyms"]] == [
            (setting, "3000", OF_BROKER),
            (setting, "2000", OF_DEFAULT),
            (setting, "86400000", DEFAULT),
        ]
        of_topic = described(wire, TOPIC, name, "delete.retention.ms")["delete.retention.ms"]
        assert (of_topic["value"], of_topic["config_source"]) == ("3000", OF_BROKER)
    finally:
        change(wire, BROKER, "1", (setting, DELETE, None))
        change(wire, BROKER, "", (setting, DELETE, None))
    until_own(wire, BROKER, "1", {}, OF_BROKER)


def test_a_cluster_has_one_count_of_replicas_in_sync(wire: Wire) -> None:
    setting = "min.insync.replicas"
    assert change(wire, BROKER, "1", (setting, SET, "2")) == (
        "invalid_config",
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    removed = (
        "invalid_config",
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    assert change(wire, BROKER, "", (setting, DELETE, None)) == removed
    assert replace(wire, BROKER, "", {}) == "invalid_config"
    assert change(wire, BROKER, "", (setting, SET, "1")) == ("none", None)
    assert own(wire, BROKER, "", OF_DEFAULT) == {setting: "1"}


@pytest.mark.parametrize("resource", ["1", ""])
def test_settings_of_the_node_that_stay(wire: Wire, resource: str) -> None:
    for setting, value in (
        ("num.partitions", "3"),
        ("node.id", "7"),
        ("log.dirs", "/x"),
        ("message.max.bytes", "-7"),
        ("message.max.bytes", "many"),
        ("log.roll.ms", "0"),
        ("log.segment.bytes", "5"),
    ):
        code, message = change(wire, BROKER, resource, (setting, SET, value))
        assert code == "invalid_request", (setting, message)
        assert message
    assert "num.partitions" in str(change(wire, BROKER, resource, ("num.partitions", SET, "3"))[1])
    assert change(wire, BROKER, resource, ("log.retention.ms", APPEND, "5"))[0] == "invalid_config"
    assert change(wire, BROKER, resource, ("log.retention.ms", SET, "5"), validate_only=True)[0] == "none"
    assert described(wire, BROKER, "1", "num.partitions")["num.partitions"]["read_only"]
    assert "log.retention.ms" not in own(wire, BROKER, "1", OF_BROKER)


def test_what_the_node_was_started_with(wire: Wire, log_under_test: LogUnderTest) -> None:
    shown = described(wire, BROKER, "1")
    address = f"PLAINTEXT://{log_under_test.bootstrap_servers}"
    assert address in shown["listeners"]["value"].split(",")
    assert address in shown["advertised.listeners"]["value"].split(",")
    assert (shown["broker.id"]["value"], shown["node.id"]["value"]) == ("1", "1")
    assert shown["log.dirs"]["value"].startswith("/")
    assert {shown[name]["read_only"] for name in ("broker.id", "log.dirs", "num.partitions")} == {True}
    assert (shown["log.retention.ms"]["value"], shown["log.retention.hours"]["value"]) == (None, "168")
    assert {shown[name]["config_type"] for name in ("listeners", "log.dirs", "log.cleanup.policy")} == {7}
    assert all(config["value"] is None for config in shown.values() if config["is_sensitive"])


def test_what_nobody_knows_is_kept_and_not_shown(wire: Wire) -> None:
    assert change(wire, BROKER, "1", ("my.plugin.key", SET, "secret")) == ("none", None)
    try:
        wait_until(lambda: "my.plugin.key" in described(wire, BROKER, "1"), what="the setting")
        shown = described(wire, BROKER, "1")["my.plugin.key"]
        assert (shown["value"], shown["is_sensitive"], shown["config_source"]) == (None, True, OF_BROKER)
        assert shown["synonyms"] == [{"name": "my.plugin.key", "value": None, "source": OF_BROKER}]
    finally:
        change(wire, BROKER, "1", ("my.plugin.key", DELETE, None))


def test_settings_of_a_group(wire: Wire, unique: str) -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert change(wire, GROUP, unique, (session, SET, "50000")) == ("none", None)
    until_own(wire, GROUP, unique, {session: "50000"}, OF_GROUP)
    shown = described(wire, GROUP, unique)
    assert [(s["name"], s["value"], s["source"]) for s in shown[session]["synonyms"]] == [
        (session, "50000", OF_GROUP),
        (f"group.{session}", "45000", DEFAULT),
    ]
    assert (shown[heartbeat]["value"], shown[heartbeat]["config_source"]) == ("5000", DEFAULT)
    for setting, value in (
        (session, "5"),
        (session, "x"),
        (session, "99999999"),
        (heartbeat, "60000"),
        ("no", "1"),
    ):
        assert change(wire, GROUP, unique, (setting, SET, value))[0] == "invalid_config", (setting, value)
    assert (GROUP, unique) in resources(wire, GROUP)
    assert replace(wire, GROUP, unique, {}) == "none"
    until_own(wire, GROUP, unique, {}, OF_GROUP)


def resources(wire: Wire, *kinds: int) -> set[tuple[int, str]]:
    answer = ask(wire, "list_config_resources", 1, resource_types=list(kinds))
    assert answer["error_code"] == "none"
    return {(found["resource_type"], found["resource_name"]) for found in answer["config_resources"]}


def test_what_has_settings(wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    assert (TOPIC, name) in resources(wire, TOPIC)
    assert resources(wire, BROKER, LOGGER) == {(BROKER, "1"), (LOGGER, "1")}
    assert {(TOPIC, name), (BROKER, "1"), (LOGGER, "1")} <= resources(wire)
    assert ask(wire, "list_config_resources", 0)["error_code"] == "none"
    assert ask(wire, "list_config_resources", 1, resource_types=[99])["error_code"] == "unsupported_version"


def test_levels_of_loggers(wire: Wire) -> None:
    before = described(wire, LOGGER, "1")["root"]["value"]
    try:
        assert change(wire, LOGGER, "1", ("root", SET, "FATAL"), validate_only=True) == ("none", None)
        assert described(wire, LOGGER, "1")["root"]["value"] == before
        assert change(wire, LOGGER, "1", ("root", SET, "ERROR")) == ("none", None)
    finally:
        change(wire, LOGGER, "1", ("root", SET, before))
    assert change(wire, LOGGER, "1", ("root", DELETE, None))[0] == "invalid_request"
    assert change(wire, LOGGER, "1", ("root", APPEND, "INFO"))[0] == "invalid_request"
    assert change(wire, LOGGER, "1", ("root", SET, "debug"))[0] == "invalid_config"
    assert change(wire, LOGGER, "1", ("no.such.logger", SET, "INFO"))[0] == "invalid_config"


# -- where partitions are -------------------------------------------------------------------------------------


def test_log_directories(wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic(2)
    wire.produce(name, batch())
    answer = ask(wire, "describe_log_dirs", 4, topics=[{"topic": name, "partitions": [0, 1, 99]}])
    assert answer["error_code"] == "none"
    (directory,) = answer["results"]
    assert directory["total_bytes"] > directory["usable_bytes"] > 0
    ((found_name, partitions),) = [(found["name"], found["partitions"]) for found in directory["topics"]]
    sizes = {p["partition_index"]: p["partition_size"] for p in partitions}
    assert (found_name, sizes) == (name, {0: len(batch()), 1: 0})
    assert {(p["offset_lag"], p["is_future_key"]) for p in partitions} == {(0, False)}
    everything = ask(wire, "describe_log_dirs", 1, topics=None)["results"][0]
    assert name in {found["name"] for found in everything["topics"]}
    assert ask(wire, "describe_log_dirs", 4, topics=[])["results"][0]["topics"] == []

    def move(path: str, topic_name: str, partition: int) -> str:
        topics = [{"name": topic_name, "partitions": [partition]}]
        moved = ask(wire, "alter_replica_log_dirs", 2, dirs=[{"path": path, "topics": topics}])
        return str(moved["results"][0]["partitions"][0]["error_code"])

    assert move(directory["log_dir"], name, 0) == "none"
    assert move(directory["log_dir"], name, 99) == "unknown_topic_or_partition"
    assert move(directory["log_dir"], "no-such", 0) == "unknown_topic_or_partition"
    assert move("/nowhere", name, 0) == "log_dir_not_found"


def batch() -> bytes:
    from support.batches import batch_of

    return batch_of("a", "b")


def test_elections(wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    asked = [{"topic": name, "partitions": [0, 99]}, {"topic": "no-such", "partitions": [0]}]

    def elect(version: int, **fields: Any) -> tuple[str, dict[tuple[str, int], str]]:
        answer = ask(wire, "elect_leaders", version, timeout=10_000, **fields)
        found = {
            (result["topic"], partition["partition_id"]): partition["error_code"]
            for result in answer["replica_election_results"]
            for partition in result["partition_result"]
        }
        return answer.get("error_code", "none"), found

    not_needed = {
        (name, 0): "election_not_needed",
        (name, 99): "unknown_topic_or_partition",
        ("no-such", 0): "unknown_topic_or_partition",
    }
    assert elect(0, topic_partitions=asked) == ("none", not_needed)
    for kind in (0, 1):
        assert elect(2, topic_partitions=asked, election_type=kind) == ("none", not_needed)
        assert elect(2, topic_partitions=None, election_type=kind) == ("none", {})
    assert elect(2, topic_partitions=asked, election_type=5) == (
        "invalid_request",
        dict.fromkeys(not_needed, "invalid_request"),
    )


def test_reassignments(wire: Wire, new_topic: NewTopicFixture) -> None:
    name = new_topic()

    def move(index: int, replicas: list[int] | None, topic_name: str = name) -> str:
        topics = [{"name": topic_name, "partitions": [{"partition_index": index, "replicas": replicas}]}]
        answer = ask(
            wire,
            "alter_partition_reassignments",
            1,
            timeout=10_000,
            allow_replication_factor_change=True,
            topics=topics,
        )
        assert (answer["error_code"], answer["allow_replication_factor_change"]) == ("none", True)
        return str(answer["responses"][0]["partitions"][0]["error_code"])

    assert move(0, [1]) == "none"
    assert move(0, None) == "no_reassignment_in_progress"
    for replicas in ([2], [1, 2], [1, 1], [], [-1]):
        assert move(0, replicas) == "invalid_replica_assignment"
    assert move(99, [1]) == "unknown_topic_or_partition"
    assert move(0, [1], "no-such") == "unknown_topic_or_partition"
    for topics in (None, [{"name": name, "partition_indexes": [0]}]):
        listed = ask(wire, "list_partition_reassignments", 0, timeout=10_000, topics=topics)
        assert (listed["error_code"], listed["topics"]) == ("none", [])


# -- the cluster ----------------------------------------------------------------------------------------------


def test_a_quorum_of_one(wire: Wire) -> None:
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    for version in (0, 1, 2):
        answer = ask(wire, "describe_quorum", version, topics=asked)
        assert answer["error_code"] == "none"
        quorum = answer["topics"][0]["partitions"][0]
        assert (quorum["error_code"], quorum["leader_id"], quorum["observers"]) == ("none", 1, [])
        assert quorum["leader_epoch"] > 0
        (voter,) = quorum["current_voters"]
        assert (voter["replica_id"], voter["log_end_offset"]) == (1, quorum["high_watermark"])
    (node,) = answer["nodes"]
    assert (node["node_id"], [listener["name"] for listener in node["listeners"]]) == (1, ["CONTROLLER"])
    asked[0]["topic_name"] = "other"
    answer = ask(wire, "describe_quorum", 2, topics=asked)
    assert answer["topics"][0]["partitions"][0]["error_code"] == "unknown_topic_or_partition"
    assert ask(wire, "unregister_broker", 0, broker_id=2)["error_code"] == "broker_id_not_registered"


@pytest.mark.parametrize(
    ("updates", "code"),
    [
        ([("transaction.version", 2, 1)], "none"),
        ([("transaction.version", 1, 2)], "none"),
        ([("transaction.version", 1, 1)], "invalid_update_version"),
        ([("transaction.version", 3, 1)], "invalid_update_version"),
        ([("transaction.version", -1, 2)], "invalid_update_version"),
        ([("transaction.version", 2, 0)], "invalid_update_version"),
        ([("transaction.version", 2, 7)], "invalid_update_version"),
        ([("metadata.version", 30, 1)], "none"),
        ([("metadata.version", 100, 1)], "invalid_update_version"),
        ([("metadata.version", 7, 2)], "invalid_update_version"),
        ([("metadata.version", 7, 3)], "invalid_update_version"),
        ([("metadata.version", 0, 2)], "invalid_update_version"),
        ([("group.version", 0, 2)], "none"),
        ([("kraft.version", 0, 2)], "invalid_update_version"),
        ([("no.such", 1, 1)], "invalid_update_version"),
        ([("no.such", 0, 2)], "invalid_update_version"),
        ([("transaction.version", 1, 2), ("no.such", 1, 1)], "invalid_update_version"),
        ([], "none"),
    ],
)
def test_levels_of_features(wire: Wire, updates: list[tuple[str, int, int]], code: str) -> None:
    for version in (1, 2):
        answer = ask(
            wire,
            "update_features",
            version,
            timeout=10_000,
            validate_only=True,
            feature_updates=[
                {"feature": name, "max_version_level": level, "upgrade_type": how} for name, level, how in updates
            ],
        )
        assert answer["error_code"] == code, answer["error_message"]
        assert bool(answer["error_message"]) == (code != "none")
