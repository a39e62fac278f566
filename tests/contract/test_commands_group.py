"""`suiro group` on the node and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from conftest import LogUnderTest
from support.commands import Done, suiro
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.console.groups import MARKER_TOPIC
from suiro.protocol.records import Record, encode_batch
from suiro.spark import MARKER_TOPIC as SPARKS_MARKER_TOPIC

NewTopicFixture = Callable[..., str]
Call = Callable[..., Done]
DAY_MS = 86_400_000


@pytest.fixture
def call(log_under_test: LogUnderTest) -> Call:
    return lambda *arguments, **more: suiro(
        "group", *arguments, "--bootstrap-servers", log_under_test.bootstrap_servers, **more
    )


@pytest.fixture
def topic(client: Client, new_topic: NewTopicFixture) -> str:
    """Two partitions with ten records each, a day apart from 2013-01-01 on."""
    name = new_topic(2)
    for partition in range(2):
        records = [
            Record(offset=at, timestamp=1_356_998_400_000 + at * DAY_MS, key=None, value=b"x") for at in range(10)
        ]
        client.produce({(name, partition): encode_batch(records)})
    return name


@pytest.fixture
def consumer(log_under_test: LogUnderTest, topic: str, unique: str) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": log_under_test.bootstrap_servers,
            "group.id": unique,
            "client.id": "\x1b[31mred",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    made.subscribe([topic])
    wait_until(lambda: made.poll(0.2), what="a record")
    yield made
    made.close()


def test_a_group_with_its_lag(call: Call, client: Client, topic: str, unique: str) -> None:
    client.offset_commit(unique, {(topic, 0): (4, ""), (topic, 1): (10, "")})
    assert [unique, "Empty", "classic"] in [row[:3] for row in call("list").rows]
    (found,) = call("describe", unique, "--time", "--json").json
    assert [(row["partition"], row["committed"], row["end_offset"], row["lag"]) for row in found["partitions"]] == [
        (0, 4, 10, 6),
        (1, 10, 10, 0),
    ]
    waited = [row["lag_ms"] for row in found["partitions"]]
    assert waited[0] > 10 * 365 * DAY_MS
    assert waited[1] == 0
    text = call("describe", unique)
    assert "lag: 6" in text.out
    assert f"{topic}\t0\t4\t10\t6\t\t" in text.out


def test_a_group_whose_topic_is_gone(call: Call, client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    name, kept = new_topic(), new_topic()
    client.offset_commit(unique, {(name, 0): (0, ""), (kept, 0): (0, "")})
    client.delete_topics([name])
    (found,) = call("describe", unique, "--json").json
    rows = {row["topic"]: row for row in found["partitions"]}
    assert rows[kept]["lag"] == 0
    assert name not in rows or rows[name]["end_offset"] is None


def test_members_and_what_they_call_themselves(call: Call, consumer: Consumer, topic: str, unique: str) -> None:
    done = call("describe", unique, "--members")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert r"\x1b[31mred" in done.out
    assert f"{topic}-0,{topic}-1" in done.out
    (found,) = call("describe", unique, "--json").json
    assert (found["state"], len(found["members"])) == ("Stable", 1)


@pytest.mark.parametrize(
    ("to", "offsets"),
    [
        (("--to-earliest",), (0, 0)),
        (("--to-latest",), (10, 10)),
        (("--to-current",), (4, 8)),
        (("--to-offset", "7"), (7, 7)),
        (("--to-offset", "1000"), (10, 10)),
        (("--to-datetime", "2013-01-03T00:00Z"), (2, 2)),
        (("--to-datetime", "2040-01-01"), (10, 10)),
        (("--shift-by", "3"), (7, 10)),
        (("--shift-by", "-5"), (0, 3)),
    ],
)
def test_offsets_are_shown_and_then_set(
    call: Call, client: Client, topic: str, unique: str, to: tuple[str, ...], offsets: tuple[int, int]
) -> None:
    client.offset_commit(unique, {(topic, 0): (4, ""), (topic, 1): (8, "")})
    shown = call("reset", unique, "--all-topics", *to)
    assert shown.rows == [[topic, "0", "4", str(offsets[0])], [topic, "1", "8", str(offsets[1])]]
    assert "--execute" in shown.err
    before = client.offset_fetch(unique)
    assert [before[topic, one].offset for one in (0, 1)] == [4, 8]  # type: ignore[union-attr]
    assert call("reset", unique, "--all-topics", *to, "--execute").rows == shown.rows
    after = client.offset_fetch(unique)
    assert tuple(after[topic, one].offset for one in (0, 1)) == offsets  # type: ignore[union-attr]


def test_only_the_partitions_that_are_named(call: Call, client: Client, topic: str, unique: str) -> None:
    assert call("reset", unique, "--topic", f"{topic}:1", "--to-offset", "5", "--execute").rows == [
        [topic, "1", "", "5"]
    ]
    found = client.offset_fetch(unique)
    assert [place for place, one in found.items() if one is not None] == [(topic, 1)]
    absent = call("reset", unique, "--topic", f"{topic}:9", "--to-earliest")
    assert (absent.code, "partitions 0 to 1" in absent.err) == (1, True)
    assert call("delete", unique, "--topic", topic, "--yes").code == 0
    assert all(one is None for one in client.offset_fetch(unique, [(topic, 1)]).values())


def test_the_offsets_of_an_application_stay(call: Call, client: Client, topic: str, unique: str) -> None:
    assert MARKER_TOPIC == SPARKS_MARKER_TOPIC
    client.create_topics([NewTopic(MARKER_TOPIC, 1)], exist_ok=True)
    client.offset_commit(unique, {(topic, 0): (4, ""), (MARKER_TOPIC, 0): (1, "{}")})
    for arguments in (("--all-topics",), ("--topic", f"{topic}:0", "--execute")):
        refused = call("reset", unique, *arguments, "--to-earliest")
        assert (refused.code, "new application id" in refused.err) == (1, True)
    assert client.offset_fetch(unique)[topic, 0].offset == 4  # type: ignore[union-attr]


def test_a_group_with_members_keeps_its_offsets(call: Call, consumer: Consumer, topic: str, unique: str) -> None:
    consumer.commit(asynchronous=False)
    done = call("reset", unique, "--all-topics", "--to-latest", "--execute")
    assert (done.code, "stop them first" in done.err) == (1, True)
    done = call("delete", unique, "--yes")
    assert (done.code, "stop them first" in done.err) == (1, True)


def test_a_group_is_deleted_when_it_is_said_twice(call: Call, client: Client, topic: str, unique: str) -> None:
    client.offset_commit(unique, {(topic, 0): (4, "")})
    assert call("delete", unique).code == 2
    assert call("describe", unique).code == 0
    assert call("delete", unique, "--yes").code == 0
    gone = call("describe", unique)
    assert (gone.code, "there is no group" in gone.err) == (1, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--all-topics",),
        ("--all-topics", "--to-earliest", "--to-latest"),
        ("--to-earliest",),
        ("--to-earliest", "--all-topics", "--topic", "t"),
        ("--to-earliest", "--all-topics", "--execute", "--dry-run"),
        ("--to-datetime", "soon", "--all-topics"),
        ("--to-earliest", "--topic", "t:x"),
    ],
)
def test_a_reset_that_is_not_clear(call: Call, arguments: tuple[str, ...]) -> None:
    done = call("reset", "g", *arguments)
    assert done.code == 2
    assert done.err.count("\n") == 1
