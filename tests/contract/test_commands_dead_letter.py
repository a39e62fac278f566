"""`suiro dead-letter`: back to where they came from, each once, whatever is killed on the way."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from conftest import LogUnderTest
from support.commands import Done, suiro
from support.dead_letters import Headers, committed, of_streams, put_aside, values
from support.waiting import wait_until

from suiro.client import LATEST, Client
from suiro.console import dead_letters
from suiro.console.dead_letters import JOURNAL_TOPIC, before_error
from suiro.console.dead_letters import Done as DoneOffsets
from suiro.errors import CorruptRecordError, RefusedError
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.records import Record, encode_batch
from suiro.streams.records import Origin
from suiro.streams.records import Record as StreamRecord
from suiro.streams.sources import OF_AN_OPERATOR, letter_of

NewTopicFixture = Callable[..., str]
Call = Callable[..., Done]


@pytest.fixture
def call(log_under_test: LogUnderTest) -> Call:
    return lambda *arguments, **more: suiro(
        "dead-letter", *arguments, "--bootstrap-servers", log_under_test.bootstrap_servers, **more
    )


def test_the_first_dead_letter_is_shown_whichever_partition_has_it(
    call: Call, client: Client, new_topic: NewTopicFixture
) -> None:
    """Of a topic whose first partition is empty it was said that the topic is."""
    dead = new_topic(3)
    assert f"{dead} is empty" in call("show", dead).err
    put_aside(client, dead, (b"a", ()), (b"b", ()), partition=1)
    assert f"dead letter: {dead}-1 offset 0" in call("show", dead).out
    assert f"{dead}-0 is empty" in call("show", dead, "--partition", "0").err
    assert call("show", dead, "--partition", "1", "--offset", "1", "--json").json["value"] == "b"


def test_reasons_are_counted_and_one_is_shown(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    source, dead = new_topic(2), new_topic()
    client.produce({(source, 1): encode_batch([Record(offset=0, timestamp=5, key=b"k", value=b"original")])})
    put_aside(
        client,
        dead,
        (b"original", (("mine", b"1"), *of_streams(source, 1, 0, "line 17 is no number"))),
        (b"b", of_streams(source, 1, 1, "line 8 is no number")),
        (b"c", of_streams(source, 1, 2, "\x1b[2Jother")),
        (b"d", ()),
    )
    found = call("list", dead, "--json").json
    assert [(one["origin_topic"], one["records"], one["waiting"], one["reason"]) for one in found][:1] == [
        (source, 2, 2, "line # is no number")
    ]
    assert {(one["origin_topic"], one["records"]) for one in found} == {(source, 2), (source, 1), (None, 1)}
    assert "\x1b" not in call("list", dead).out
    shown = call("show", dead).out
    assert f"from: {source}-1 offset 0" in shown
    assert "original record: original" in shown
    one = call("show", dead, "--offset", "0", "--json").json
    assert (one["origin_record"]["value"], one["exception"]) == ("original", "ValueError")
    assert "not in the log any more" in call("show", dead, "--offset", "1").out
    assert "cannot be sent back" in call("show", dead, "--offset", "3").out
    assert call("show", dead, "--offset", "99").code == 1


def test_back_to_topic_and_partition_without_the_errors_headers(
    call: Call, client: Client, new_topic: NewTopicFixture
) -> None:
    source, dead = new_topic(3), new_topic(2)
    put_aside(client, dead, (b"a", (("mine", b"1"), *of_streams(source, 2), ("none", None))))
    of_connect: Headers = (
        ("__connect.errors.topic", source.encode()),
        ("__connect.errors.partition", b"1"),
        ("__connect.errors.offset", b"7"),
        ("__connect.errors.exception.message", b"refused"),
    )
    earlier = of_streams("earlier", 7, reason="what made it a dead letter before")
    put_aside(client, dead, (b"b", of_connect), (b"c", (*of_connect, *earlier, *of_streams(source))), partition=1)
    planned = call("redrive", dead, "--dry-run")
    assert planned.rows == [[source, "0", "1"], [source, "1", "1"], [source, "2", "1"]]
    assert values(client, source) == []
    asked = call("redrive", dead)
    assert (asked.code, "give --yes" in asked.err) == (2, True)
    assert call("redrive", dead, "--yes", "--json").json["sent"] == 3
    found = {record.partition: record for record in committed(client, source)}
    assert (found[2].key, found[2].value, found[2].timestamp) == (b"key-a", b"a", 1_000)
    assert found[2].headers == (("mine", b"1"), ("none", None))
    assert (found[1].value, found[1].headers) == (b"b", ())
    assert (found[0].value, found[0].headers) == (b"c", (*of_connect, *earlier))
    again = call("redrive", dead, "--yes", "--json").json
    assert (again["planned"], again["sent"], again["done_before"]) == (0, 0, 3)
    assert {one["waiting"] for one in call("list", dead, "--json").json} == {0}
    (line,) = [
        json.loads(record.value or b"") for record in committed(client, JOURNAL_TOPIC) if record.key == dead.encode()
    ]
    assert (line["records"], line["from"]) == (3, {"0": [0], "1": [0, 1]})
    assert line["to"] == {f"{source}-{partition}": 1 for partition in range(3)}
    assert "@" in line["by"]


def test_for_the_dead_letter_of_an_operator_the_record_of_the_source_is_sent(
    call: Call, client: Client, new_topic: NewTopicFixture
) -> None:
    """What the operator got was sent, as JSON: the source cannot read it, or takes it for another record."""
    source, dead = new_topic(2), new_topic()
    original = Record(offset=0, timestamp=1, key=b"k", value=b"\0\0\0\7avro", headers=(("mine", b"1"),))
    place = partition_for_key(b"k", 2)
    client.produce({(source, place): encode_batch([original])})
    put_aside(
        client,
        dead,
        (b'{"half":1}', (("other", b"2"), *of_streams(source, place, 0), OF_AN_OPERATOR)),
        (b"7", (*of_streams(source, place, 90), OF_AN_OPERATOR)),
        (b'{"half":2}', (*of_streams(source, place, 0), OF_AN_OPERATOR)),
        (b"8", (*of_streams(source, place, -1), OF_AN_OPERATOR)),
        # Of a record that the topic had at this offset before it was made again.
        (b'{"half":3}', (*of_streams(source, place, 0)[:-1], ("__streams.errors.timestamp", b"9"), OF_AN_OPERATOR)),
    )
    assert call("redrive", dead, "--place", "0:0", "--yes", "--json").json["sent"] == 1
    sent = call("redrive", dead, "--by-key", "--yes", "--json")
    assert (sent.json["sent"], sent.json["stay"]) == (1, 3)
    assert "it failed behind a repartition" in sent.err
    assert "its original record is not in the log any more" in sent.err
    put_aside(client, dead, *[(b"9", (*of_streams(source, place, 0), OF_AN_OPERATOR))] * 3)
    assert call("redrive", dead, "--transaction-records", "1", "--yes", "--json").json["sent"] == 3
    _, again = committed(client, source)
    assert (again.partition, again.timestamp, again.key, again.value, again.headers) == (
        place,
        1,
        b"k",
        original.value,
        original.headers,
    )
    lines = [json.loads(line.value or b"") for line in committed(client, JOURNAL_TOPIC) if line.key == dead.encode()]
    # One line for thousands, for which one record is sent, would be too large for the journal.
    assert [line["from"] for line in lines[2:]] == [{"0": [5]}, {"0": [6]}, {"0": [7]}]


def test_of_two_errors_the_last_is_told(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    """Of a connector that read dead letters of a topology, the reason was that of the topology."""
    dead = new_topic()
    of_connect = (
        ("__connect.errors.topic", b"first"),
        ("__connect.errors.partition", b"1"),
        ("__connect.errors.connector.name", b"sink"),
        ("__connect.errors.exception.message", b"refused"),
    )
    earlier = (("__streams.errors.stacktrace", b"at line 1"), *of_streams("source"))
    put_aside(client, dead, (b"a", (*earlier, *of_connect)))
    shown = call("show", dead, "--json").json
    assert (shown["exception"], shown["reason"]) == ("sink", "refused")
    assert shown["origin"] == {"topic": "first", "partition": 1, "offset": None}
    assert before_error((*earlier, *of_streams("first"))) == earlier
    operators = letter_of("dead", StreamRecord("k", 1, 5), Origin("source", 0, 3, 1), ValueError("refused")).headers
    # The header of a dead letter's own source would say that the last error is an operator's, too.
    assert before_error((*operators, *of_streams("first"))) == operators


def _refused(*arguments: Any, **more: Any) -> None:
    raise RefusedError("create topic: Authorization failed.", "TOPIC_AUTHORIZATION_FAILED")


def _damaged(*arguments: Any, **more: Any) -> Any:
    return [(0, CorruptRecordError("t-0 is damaged"))]


def test_a_topic_that_this_user_may_not_read_hides_no_other(
    call: Call, client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All dead letters were an error; of a source that may be described, the record was said to be gone."""
    source, dead, other = new_topic(), new_topic(), new_topic()
    for topic in (dead, other):
        put_aside(client, topic, (b"a", of_streams(source)))
    monkeypatch.setattr(dead_letters, "records_at", _refused)
    shown = call("show", dead)
    assert (shown.code, "value: a" in shown.out) == (0, True)
    assert "the original record cannot be shown: create topic: Authorization failed" in shown.out
    monkeypatch.setattr(dead_letters, "records_at", _damaged)
    shown = call("show", dead)
    assert (shown.code, "the original record cannot be shown: t-0 is damaged" in shown.out) == (0, True)
    reading = dead_letters.read_records

    def read(client: Client, topic: str, **more: Any) -> Any:
        return _refused() if topic == other else reading(client, topic, **more)

    monkeypatch.setattr(dead_letters, "read_records", read)
    listed = call("list", other, dead, "--json")
    assert (listed.code, f"{other}: " in listed.err) == (1, True)
    assert [one["topic"] for one in json.loads(listed.out)] == [dead]
    assert call("list", other, "--json").out == ""


def test_chosen_ones_and_later_the_rest(
    call: Call, client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, dead = new_topic(), new_topic(), new_topic()
    letters = [
        (str(number).encode(), of_streams(one if number % 2 else other, reason=f"reason {number // 5}"))
        for number in range(10)
    ]
    put_aside(client, dead, *letters)
    assert call("redrive", dead, "--place", "0:3", "--place", "0:4", "--yes", "--json").json["sent"] == 2
    assert (values(client, one), values(client, other)) == ([b"3"], [b"4"])
    # Brokers ask for the right to create a topic even if it exists, as the journal does now.
    monkeypatch.setattr(Client, "create_topics", _refused)
    assert call("redrive", dead, "--from-topic", one, "--reason", "reason 1", "--yes", "--json").json["sent"] == 3
    assert values(client, one) == [b"3", b"5", b"7", b"9"]
    assert call("redrive", dead, "--place", "0:3", "--yes", "--json").json["done_before"] == 1
    put_aside(client, dead, (b"10", of_streams(one)))
    client.admin.delete_group(f"suiro-redrive-{dead}")  # as a broker forgets its offsets some days after the last one
    assert call("redrive", dead, "--yes", "--json").json["sent"] == 6
    assert Counter(values(client, one)) == Counter(str(number).encode() for number in (1, 3, 5, 7, 9, 10))
    assert Counter(values(client, other)) == Counter(str(number).encode() for number in (0, 2, 4, 6, 8))


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (lambda dead: (), "name no topic"),
        (lambda dead: of_streams("__consumer_offsets"), "belongs to Kafka"),
        (lambda dead: of_streams("__transaction_state"), "belongs to Kafka"),
        (lambda dead: of_streams(dead), "itself"),
        (lambda dead: of_streams("absent-topic"), "does not exist"),
        (
            lambda dead: (("__streams.errors.topic", b"t"), ("__streams.errors.partition", b"-1")),
            "name no topic",
        ),
        (
            lambda dead: (("__streams.errors.topic", b"t"), ("__streams.errors.partition", b"9" * 40)),
            "name no topic",
        ),
        (
            lambda dead: (("__streams.errors.topic", None), ("__streams.errors.partition", None)),
            "name no topic",
        ),
    ],
    ids=["none", "offsets", "transactions", "itself", "absent", "negative", "huge", "null"],
)
def test_what_cannot_go_back_stays_and_is_told_of(
    call: Call, client: Client, new_topic: NewTopicFixture, headers: Callable[[str], Headers], said: str
) -> None:
    source, dead = new_topic(), new_topic()
    put_aside(client, dead, (b"good", of_streams(source)), (b"bad", headers(dead)), (b"too", of_streams(source)))
    done = call("redrive", dead, "--yes", "--json")
    assert (done.json["sent"], done.json["stay"]) == (2, 1)
    assert said in done.err
    assert values(client, source) == [b"good", b"too"]
    again = call("redrive", dead, "--yes", "--json").json
    assert (again["planned"], again["stay"]) == (0, 1)


def test_a_partition_that_is_not_there_any_more(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    source, dead = new_topic(2), new_topic()
    put_aside(client, dead, (b"a", of_streams(source, 5)))
    assert "--by-key" in call("redrive", dead, "--yes").err
    assert call("redrive", dead, "--by-key", "--yes", "--json").json["sent"] == 1
    assert [record.partition for record in committed(client, source)] == [partition_for_key(b"key-a", 2)]


def test_a_topic_that_was_made_anew_and_a_group_of_somebody_else(
    call: Call, client: Client, new_topic: NewTopicFixture
) -> None:
    dead = new_topic()
    put_aside(client, dead, (b"a", of_streams("t")))
    client.offset_commit(f"suiro-redrive-{dead}", {(dead, 0): (7, "suiro:")})
    anew = call("redrive", dead, "--yes")
    assert (anew.code, "was recreated" in anew.err) == (1, True)
    client.offset_commit(f"suiro-redrive-{dead}", {(dead, 0): (1, "by hand")})
    other = call("redrive", dead, "--yes")
    assert (other.code, "no redrive wrote that" in other.err) == (1, True)


def test_large_records_and_many(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    source, dead = new_topic(), new_topic()
    for number in range(6):
        put_aside(client, dead, (str(number).encode() * 450_000, of_streams(source)))
    assert call("redrive", dead, "--yes", "--json").json["sent"] == 6
    assert [(value or b"")[:1] for value in values(client, source)] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_each_once_though_it_is_killed_on_the_way(
    log_under_test: LogUnderTest, call: Call, client: Client, new_topic: NewTopicFixture
) -> None:
    """kill -9 whenever some more copies are in the log, committed or not; then on to the end."""
    source, dead = new_topic(3), new_topic(2)
    for partition in range(2):
        for first in range(0, 2_000, 100):
            letters = [
                (f"{partition}.{number}".encode(), of_streams(source, number % 3, number))
                for number in range(first, first + 100)
            ]
            put_aside(client, dead, *letters, partition=partition)
    command = [sys.executable, "-m", "suiro", "dead-letter", "redrive", dead, "--yes"]
    command += ["--transaction-records", "7", "--bootstrap-servers", log_under_test.bootstrap_servers]
    drawn = random.Random(4)
    places = [(source, partition) for partition in range(3)]

    def copies() -> int:
        return sum(one.offset for one in client.list_offsets(dict.fromkeys(places, LATEST)).values())

    killed = 0
    for _ in range(4):
        wanted = copies() + drawn.randrange(1, 150)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(
            lambda wanted=wanted, process=process: copies() >= wanted or process.poll() is not None,  # type: ignore[misc]
            120,
            "more copies",
            poll_s=0.001,
        )
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed >= 2
    done = call("redrive", dead, "--yes", "--json").json
    assert done["sent"] == done["planned"] > 0
    expected = Counter(f"{partition}.{number}".encode() for partition in range(2) for number in range(2_000))
    assert Counter(values(client, source)) == expected
    found: dict[Any, list[int]] = {}
    for record in committed(client, source):
        letter, number = (record.value or b"").split(b".")
        found.setdefault((record.partition, letter), []).append(int(number))
    assert all(numbers == sorted(numbers) for numbers in found.values())  # in their order
    lines = [json.loads(one.value or b"") for one in committed(client, JOURNAL_TOPIC) if one.key == dead.encode()]
    assert sum(line["records"] for line in lines) == 4_000


def test_what_is_done_is_written_and_read() -> None:
    drawn = random.Random(1)
    for _ in range(200):
        done, model = DoneOffsets(drawn.randrange(5)), set[int]()
        model.update(range(done.position))
        for _ in range(drawn.randrange(12)):
            first = drawn.randrange(60)
            end = first + drawn.randrange(1, 6)
            done.add(first, end)
            model.update(range(first, end))
            again = DoneOffsets.parse(done.position, done.metadata())
            assert (again.position, again.ranges) == (done.position, done.ranges)
            assert {offset for offset in range(80) if again.has(offset)} == model
    for text in ("7", "suiro:1", "suiro:1-2,", "suiro:a-b", "suiro:-1-2"):
        with pytest.raises(ValueError, match=text):
            DoneOffsets.parse(0, text)
