"""Administration while the disk takes nothing more: each request is answered with KAFKA_STORAGE_ERROR, and nothing of
it is done."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask
from support.wire import Wire

from suiro.broker.settings import cluster_state
from suiro.broker.storage.topic_list import TopicList
from suiro.log import DataDirectory
from suiro.node import InProcessNode

GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RULE = {
    "resource_type": 2,
    "resource_name": "a",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
EVERY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
CREDENTIAL = {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}


def no_room(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def topic(name: str, partitions: int = 2) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


def create(wire: Wire, *names: str) -> list[str]:
    answer = ask(wire, "create_topics", 7, topics=[topic(name) for name in names], timeout=5000)
    return [one["error_code"] for one in answer["topics"]]


def names(wire: Wire) -> dict[str, int]:
    found = ask(wire, "metadata", 12, topics=None)["topics"]
    return {one["name"]: len(one["partitions"]) for one in found}


def administer(wire: Wire) -> dict[str, list[str]]:
    """The codes of the answers to one request of each kind that is written down."""

    def codes(api: str, version: int, results: str, **fields: Any) -> list[str]:
        return [one["error_code"] for one in ask(wire, api, version, **fields)[results]]

    def alter(kind: int, name: str, setting: str, value: str) -> list[str]:
        configs = [{"name": setting, "config_operation": 0, "value": value}]
        resources = [{"resource_type": kind, "resource_name": name, "configs": configs}]
        return codes("incremental_alter_configs", 1, "responses", resources=resources)

    quota = {"key": "producer_byte_rate", "value": 1e6, "remove": False}
    return {
        "create topics": create(wire, "new", "newer"),
        "create partitions": codes(
            "create_partitions", 3, "results", topics=[{"name": "there", "count": 5}], timeout=5000
        ),
        "topic settings": alter(2, "there", "retention.ms", "1000"),
        "node settings": alter(4, "1", "max.connections", "77"),
        "group settings": alter(32, "g", "consumer.session.timeout.ms", "46000"),
        "credentials": codes("alter_user_scram_credentials", 0, "results", upsertions=[CREDENTIAL]),
        "quotas": codes(
            "alter_client_quotas",
            1,
            "entries",
            entries=[{"entity": [{"entity_type": "user", "entity_name": "a"}], "ops": [quota]}],
        ),
        "rules": codes("create_acls", 3, "results", creations=[RULE]),
        "no rules": codes("delete_acls", 3, "filter_results", filters=[EVERY]),
        "delete topics": codes("delete_topics", 6, "responses", topics=[{"name": "there"}], timeout=5000),
    }


def test_every_change_is_refused_and_later_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with InProcessNode.start(data=tmp_path, settings=GUARDED) as running:
        with Wire(running.bootstrap_servers) as wire:
            assert create(wire, "there") == ["none"]
            assert ask(wire, "create_acls", 3, creations=[RULE | {"resource_name": "b"}])
            with monkeypatch.context() as full:
                full.setattr(cluster_state, "replace_file", no_room)
                full.setattr(TopicList, "_write", no_room)
                refused = administer(wire)
                found = ask(wire, "find_coordinator", 4, key_type=0, coordinator_keys=["g"])["coordinators"]
            assert {code for codes in refused.values() for code in codes} == {"kafka_storage_error"}, refused
            assert [one["error_code"] for one in found] == ["coordinator_not_available"]
            assert names(wire) == {"there": 2}
            taken = administer(wire)
            assert {code for codes in taken.values() for code in codes} == {"none"}, taken
        running.restart()
        with Wire(running.bootstrap_servers) as wire:
            assert {"new", "newer"} <= names(wire).keys()
            assert "there" not in names(wire)


@pytest.mark.parametrize("asked", ["create_topics", "metadata"])
def test_a_topic_of_which_only_a_part_fits_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    opened = DataDirectory.open_partition

    def full(self: DataDirectory, name: str, partition: int, **more: Any) -> Any:
        return no_room() if partition else opened(self, name, partition, **more)

    with InProcessNode.start(data=tmp_path, settings={"num.partitions": "2"}) as running:
        with Wire(running.bootstrap_servers) as wire:
            with monkeypatch.context() as patch:
                patch.setattr(DataDirectory, "open_partition", full)
                if asked == "create_topics":
                    assert create(wire, "a", "b") == ["kafka_storage_error"] * 2
                else:
                    wanted = {"topics": [{"name": "a"}], "allow_auto_topic_creation": True}
                    (found,) = ask(wire, "metadata", 12, **wanted)["topics"]
                    assert found["error_code"] == "unknown_topic_or_partition"
            assert names(wire) == {}
            assert create(wire, "c") == ["none"]
        running.restart()
        with Wire(running.bootstrap_servers) as wire:
            assert names(wire) == {"c": 2}
            assert not list(tmp_path.glob("[ab]-*"))


def test_topics_that_are_not_surely_on_the_disk_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their list is synced once a request, after all of them are made."""

    @contextmanager
    def unsynced(self: TopicList) -> Any:
        yield
        no_room()

    with InProcessNode.start(data=tmp_path) as running, Wire(running.bootstrap_servers) as wire:
        with monkeypatch.context() as patch:
            patch.setattr(TopicList, "together", unsynced)
            assert create(wire, "a", "b") == ["kafka_storage_error"] * 2
        assert names(wire) == {}
