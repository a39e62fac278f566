"""The list of topics on disk: what a start finds, whatever a crash left."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from support.brokers import started
from support.full_disk import no_space

from suiro.broker.security.acl import AclFilter
from suiro.broker.security.authorizer import AclAuthorizer
from suiro.broker.storage.topic_list import JOURNAL_FILE, LIST_FILE, TopicEntry, TopicList
from suiro.clock import ManualClock
from suiro.errors import ConfigError

VECTORS = Path(__file__).parents[2] / "vectors" / "node"


def entry(name: str, *, partitions: int = 1, topic_id: UUID | None = None, **configs: str) -> TopicEntry:
    return TopicEntry(name=name, topic_id=topic_id or uuid4(), partitions=partitions, configs=configs)


def opened(directory: Path) -> TopicList:
    topics = TopicList(directory)
    topics.load()
    return topics


def names(topics: TopicList) -> list[str]:
    return sorted(found.name for found in topics.topics.values())


def test_what_was_put_is_found_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.fold()
    a, b = entry("a", partitions=3, x="1"), entry("b")
    first.put(a, b)
    first.put(entry("a", partitions=5, topic_id=a.topic_id))
    first.delete(b.topic_id)
    again = opened(tmp_path)
    assert again.topics == {a.topic_id: entry("a", partitions=5, topic_id=a.topic_id)}
    assert again.deleting == {b.topic_id: b}
    again.deleted(b.topic_id)
    assert opened(tmp_path).deleting == {}


def test_a_change_costs_a_line_not_the_list(tmp_path: Path) -> None:
    topics = opened(tmp_path)
    topics.fold()
    before = (tmp_path / LIST_FILE).read_bytes()
    with topics.together():
        for number in range(100):
            topics.put(entry(f"t{number}"))
    assert (tmp_path / LIST_FILE).read_bytes() == before
    assert len((tmp_path / JOURNAL_FILE).read_bytes().splitlines()) == 100
    topics.fold()
    assert (tmp_path / JOURNAL_FILE).read_bytes() == b""
    assert len(opened(tmp_path).topics) == 100


def test_a_line_of_a_later_release_is_not_passed_over(tmp_path: Path) -> None:
    opened(tmp_path).fold()
    (tmp_path / JOURNAL_FILE).write_text(json.dumps({"number": 1, "rename": entry("a").to_json()}) + "\n")
    with pytest.raises(ConfigError, match="line 1 is damaged"):
        opened(tmp_path)


def test_a_crash_while_a_line_is_written_loses_that_change_alone(tmp_path: Path) -> None:
    topics = opened(tmp_path)
    topics.fold()
    topics.put(entry("a"))
    topics.put(entry("b"))
    journal = tmp_path / JOURNAL_FILE
    whole = journal.read_bytes()
    start = whole.index(b"\n") + 1
    for cut in range(start, len(whole)):
        journal.write_bytes(whole[:cut])
        again = opened(tmp_path)
        assert names(again) == ["a"]
        again.put(entry("c"))
        assert names(opened(tmp_path)) == ["a", "c"]


def test_a_crash_between_the_new_list_and_the_empty_journal_repeats_nothing(tmp_path: Path) -> None:
    topics = opened(tmp_path)
    topics.fold()
    a = entry("a")
    topics.put(a)
    topics.delete(a.topic_id)
    topics.deleted(a.topic_id)
    topics.put(entry("a"))
    journal = (tmp_path / JOURNAL_FILE).read_bytes()
    topics.fold()
    (tmp_path / JOURNAL_FILE).write_bytes(journal)
    again = opened(tmp_path)
    assert again.topics == topics.topics
    assert again.deleting == {}


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    topics = opened(tmp_path)
    topics.fold()
    topics.put(entry("a"))
    (tmp_path / JOURNAL_FILE).write_bytes(b"rubbish\n" + (tmp_path / JOURNAL_FILE).read_bytes())
    with pytest.raises(ConfigError, match=r"topics\.journal, line 1"):
        opened(tmp_path)
    (tmp_path / LIST_FILE).write_text("{")
    with pytest.raises(ConfigError, match=r"topics\.json"):
        opened(tmp_path)


def test_a_list_of_an_earlier_version_has_no_journal(tmp_path: Path) -> None:
    found = {"name": "a", "id": str(uuid4()), "partitions": 2, "configs": {}}
    (tmp_path / LIST_FILE).write_text(json.dumps({"version": 1, "topics": [found], "deleting": []}))
    assert names(opened(tmp_path)) == ["a"]


def test_a_line_that_was_folded_into_the_list_is_taken_back_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = opened(tmp_path)
    topics.fold()
    topics.put(entry("kept"))
    a = entry("a")
    topics.put(a)
    monkeypatch.setattr("suiro.broker.storage.topic_list._LONG_JOURNAL", 2)

    with monkeypatch.context() as patch:
        patch.setattr("suiro.broker.storage.topic_list.os.write", no_space)
        patch.setattr("suiro.broker.storage.topic_list.replace_file", Path.write_bytes)
        with pytest.raises(OSError, match="No space"):
            topics.put(entry("b"))
    topics.take_back(a, before=None)
    assert names(opened(tmp_path)) == ["kept"]


def test_a_directory_of_an_earlier_build_is_read(tmp_path: Path) -> None:
    """The golden files are of one that was killed: a part of the topics is in the journal."""
    for file in VECTORS.iterdir():
        shutil.copy(file, tmp_path)
    kafkas = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with started(tmp_path, ManualClock(), authorizer_class_name=kafkas) as broker:
        found = {topic.name: (len(topic.partitions), topic.configs) for topic in broker.topics}
        assert found == {
            "airports": (2, {"cleanup.policy": "compact"}),
            "_schemas": (1, {"cleanup.policy": "compact"}),
            "flights": (3, {"retention.ms": "-1", "max.message.bytes": "2000000"}),
        }
        assert isinstance(broker.authorizer, AclAuthorizer)
        acls = broker.authorizer.acls.matching(AclFilter())
        assert {(acl.name, acl.host, acl.operation.name) for acl in acls} == {
            ("fl", "*", "READ"),
            ("app", "10.0.0.1", "ALL"),
        }
        assert {name: [*users] for name, users in broker.scram.users.items()} == {"app": ["SCRAM-SHA-512"]}
        assert [*broker.client_quotas.store.quotas.values()] == [{"producer_byte_rate": 10_000_000.0}]
        assert (broker.settings.log_retention_ms, broker.settings.log_cleaner_threads) == (1_209_600_000, 2)


@pytest.mark.parametrize("name", ["meta.properties", "cluster-state.json", LIST_FILE])
def test_a_file_of_a_later_release_is_refused_and_stays(tmp_path: Path, name: str) -> None:
    """Else what this release does not know would be gone when it writes the file anew."""
    clock = ManualClock()
    with started(tmp_path, clock) as broker:
        broker.cluster_state.write("features", {})
        broker.topics.create("a", partitions=1, configs={})
    later = re.sub(rb'("version": |version=)1', rb"\g<1>2", (tmp_path / name).read_bytes())
    (tmp_path / name).write_bytes(later)
    with (
        pytest.raises(ConfigError, match=f"{name} has version 2, .* reads 1: use the release"),
        started(tmp_path, clock),
    ):
        pass
    assert (tmp_path / name).read_bytes() == later
