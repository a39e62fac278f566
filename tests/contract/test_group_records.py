"""The records of groups against Apache Kafka's own code: Kafka reads ours, we read Kafka's."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask, plain
from support.group_wire import Member, commit, describe
from support.kafka_tools import KafkaTools
from support.waiting import wait_until
from support.wire import Wire

from suiro.broker.coordination.groups import consumer_records, records
from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.storage import system_log
from suiro.broker.storage.system_log import partition_for
from suiro.client import LATEST, Client, NewTopic
from suiro.clock import SystemClock
from suiro.log import LogConfig, PartitionLog
from suiro.log.checkpoints import read_partition_metadata

pytestmark = pytest.mark.kafka


def play(bootstrap_servers: str, group: str) -> Any:
    """A group of two members, one of them away, with a regular expression and an offset. How it is described."""
    topic = f"{group}-topic"
    with Client(bootstrap_servers) as client, Wire(bootstrap_servers) as wire:
        wait_until(lambda: ask(wire, "find_coordinator", 3, key=group)["error_code"] == "none", what="a coordinator")
        client.create_topics([NewTopic(topic, 3)])
        client.list_offsets({(topic, 0): LATEST})
        static = Member(wire, group, member_id="static", instance_id="here")
        other = Member(wire, group, member_id="other")
        static.join(topic, assignor="range", rack_id="rack")
        other.join(regex=f"{group}.*")
        wait_until(
            lambda: static.beat() and other.beat() and other.partitions and static.partitions,
            what="partitions for both",
        )
        wait_until(
            lambda: static.beat() and other.beat() and describe(wire, group).group_state == "Stable",
            what="a group at rest",
        )
        static.leave(epoch=-2)
        commit(wire, group, {(topic, 1): 7}, member_id="other", epoch=other.epoch)
        return plain(describe(wire, group))


def test_kafka_reads_our_records(tmp_path: Path, unique: str, tools: KafkaTools) -> None:
    from suiro.node import NodeProcess

    node = NodeProcess.start(data=tmp_path, listen="127.0.0.1:0", settings={"offsets.topic.num.partitions": "1"})
    try:
        told = play(node.bootstrap_servers, unique)
    finally:
        node.stop()
    printed = tools.dumped((tmp_path / "__consumer_offsets-0").glob("*.log"), "--offsets-decoder")
    found: dict[tuple[int, str], Any] = {}  # the last of each, by the type of its key and its name
    for line in printed.splitlines():
        if match := re.search(r"key: (\{.*\}) payload:\s*(.*)$", line):
            key = json.loads(match[1])
            name = key["data"].get("memberId") or key["data"].get("regularExpression") or ""
            found[int(key["type"]), name] = json.loads(match[2])["data"]
    assert found[3, ""]["epoch"] == told["group_epoch"]
    assert found[6, ""]["assignmentEpoch"] == told["assignment_epoch"]
    assert (found[5, "static"]["instanceId"], found[5, "static"]["rackId"]) == ("here", "rack")
    assert found[5, "static"]["serverAssignor"] == "range"
    assert found[5, "other"]["subscribedTopicRegex"] == f"{unique}.*"
    assert found[16, f"{unique}.*"]["topics"] == [f"{unique}-topic"]
    assert found[8, "static"]["memberEpoch"] == -2
    other = found[8, "other"]
    assert other["memberEpoch"] == told["group_epoch"]
    (assigned,) = other["assignedPartitions"]
    assert len(assigned["partitions"]) == len(assigned["assignmentEpochs"])
    (target,) = found[7, "other"]["topicPartitions"]
    assert target["partitions"] == assigned["partitions"]
    assert (found[1, ""]["offset"], found[1, ""]["topicId"]) == (7, assigned["topicId"])


def test_we_read_kafkas_records(kafka: Any, tmp_path: Path, unique: str) -> None:
    told = play(kafka.bootstrap_servers, unique)
    index = partition_for(unique, 4)
    folder = tmp_path / f"__consumer_offsets-{index}"
    shutil.copytree(kafka.data_directory / folder.name, folder)
    topic_id = read_partition_metadata(folder)
    assert topic_id is not None
    log = PartitionLog(
        folder,
        topic="__consumer_offsets",
        partition=index,
        topic_id=topic_id,
        config=LogConfig(),
        clock=SystemClock(),
        clean_shutdown=False,
    )
    group = ConsumerGroup(group_id=unique)
    offsets: dict[int, records.OffsetValue] = {}
    for _, batch in system_log.replay(log):
        for record in batch:
            if unique.encode() not in (record.key or b""):
                continue  # another test's, which may be no coordinator's record at all
            decoded = consumer_records.decode(record.key or b"", record.value)
            if decoded is not None and decoded[0] == unique:
                group.apply(decoded[1])
                if record.value is not None:  # and what we write is what Kafka wrote
                    assert consumer_records.decode(*consumer_records.encode(*decoded)) == decoded
            key = records.decode_key(record.key or b"")
            if isinstance(key, records.OffsetKey) and key.group == unique and record.value is not None:
                offsets[key.partition] = records.decode_offset_value(record.value)
                assert records.encode_offset_value(offsets[key.partition]) == record.value
    assert (group.group_epoch, group.assignment_epoch) == (told["group_epoch"], told["assignment_epoch"])
    members = {member["member_id"]: member for member in told["members"]}
    for member_id, member in group.members.items():
        assert member.member_epoch == members[member_id]["member_epoch"]
        assert member.instance_id == members[member_id]["instance_id"]
        assert (member.topic_regex or "") == members[member_id]["subscribed_topic_regex"]
        shown = {
            entry["topic_id"]: sorted(entry["partitions"])
            for entry in members[member_id]["assignment"]["topic_partitions"]
        }
        assert {topic: sorted(epochs) for topic, epochs in member.assigned.items()} == shown
    assert group.regexes[f"{unique}.*"].topics == {f"{unique}-topic"}
    assert offsets[1].offset == 7
    assert offsets[1].topic_id in group.members["other"].assigned
