"""Dead letters over the console's API, on a node: counted in bounds, shown as who asks may see them, sent back once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from support.console_api import Api, console_api
from support.dead_letters import Headers, committed, of_streams, put_aside, values
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.client.error_codes import error_for
from suiro.console import dead_letters, redrives
from suiro.console.dead_letters import Bound, Done, Letters, Selection, redrive_group
from suiro.console.records import LogRecord, read_records
from suiro.console.web import Masks
from suiro.console.web.api import dead_letters as endpoints
from suiro.protocol import records as protocol_records
from suiro.protocol.crc32c import crc32c
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import HEADER_SIZE, pack_header, read_header
from suiro.protocol.records import Record, encode_batch
from suiro.streams.sources import OF_AN_OPERATOR

NewTopicFixture = Callable[..., str]


@pytest.fixture(scope="module")
def client(suiro_node: Any) -> Iterator[Client]:
    with Client(suiro_node.bootstrap_servers) as made:
        yield made


@pytest.fixture
def new_topic(client: Client) -> NewTopicFixture:
    def make(partitions: int = 1, suffix: str = "") -> str:
        name = f"t-{uuid4().hex[:12]}{suffix}"
        client.create_topics([NewTopic(name, partitions, configs={"retention.ms": "-1"})])
        return name

    return make


@pytest.fixture(scope="module")
def api(suiro_node: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with console_api(tmp_path_factory.mktemp("console"), suiro_node.bootstrap_servers) as made:
        yield made


# -- looking -------------------------------------------------------------------------------------------------


def test_topics_groups_letters_and_what_they_were_made_of(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    source, dead = new_topic(2), new_topic(suffix=".DLQ")
    client.produce({(source, 1): encode_batch([Record(offset=0, timestamp=5, key=b"k", value=b"whole")])})
    put_aside(
        client,
        dead,
        (b"whole", of_streams(source, 1, 0, "line 17 is no number")),
        (b"b", of_streams(source, 1, 1, "line 8 is no number")),
        (b"c", ()),
    )
    assert {"name": dead, "records": 3} in api.get("/dead-letters")["topics"]
    assert source not in [one["name"] for one in api.get("/dead-letters")["topics"]]
    found = api.get(f"/dead-letters/{dead}")
    assert (found["read"], found["complete"]) == (3, True)
    assert found["groups"][0] == {
        "origin_topic": source, "exception": "ValueError", "reason": "line # is no number", "records": 2, "waiting": 2,
        "first": [0, 0], "last_timestamp": 1_001,
    }  # fmt: skip
    letters = api.get(f"/dead-letters/{dead}/records", reason="line # is no number", origin_topic=source)
    assert [one["record"]["value"]["text"] for one in letters["letters"]] == ["whole", "b"]
    first = letters["letters"][0]
    assert (first["reason"], first["done"], first["refusal"]) == ("line 17 is no number", False, None)
    assert first["origin"] == {"topic": source, "partition": 1, "offset": 0}
    assert letters["complete"]
    one = api.get(f"/dead-letters/{dead}/records", limit=1)
    assert (len(one["letters"]), one["complete"]) == (1, False)
    place = {"partition": 0, "offset": 0}
    assert api.get(f"/dead-letters/{dead}/origin", **place)["record"]["value"]["text"] == "whole"
    assert api.get(f"/dead-letters/{dead}/origin", partition=0, offset=1) == {"record": None}
    assert api.get(f"/dead-letters/{dead}/origin", partition=0, offset=2) == {"record": None}


def test_questions_that_are_wrong(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    dead = new_topic()
    put_aside(client, dead, (b"a", ()))
    assert "no-such" in api.get("/dead-letters/no-such", status=404)
    assert "no record at offset 7" in api.get(f"/dead-letters/{dead}/origin", partition=0, offset=7, status=404)
    assert "not 3" in api.get(f"/dead-letters/{dead}/origin", partition=3, offset=0, status=400)
    assert "partition=N and offset=N" in api.get(f"/dead-letters/{dead}/origin", partition=0, status=400)
    assert "limit='0x'" in api.get(f"/dead-letters/{dead}/records", limit="0x", status=400)
    assert "from 0 to 500" in api.get(f"/dead-letters/{dead}/records", limit="501", status=400)
    assert "no parameter 'resaon'" in api.get(f"/dead-letters/{dead}/records", resaon="x", status=400)


def test_a_summary_reads_the_newest_in_bounds(client: Client, new_topic: NewTopicFixture) -> None:
    dead = new_topic(3)
    put_aside(client, dead, *((b"old", of_streams("s", reason="old")) for _ in range(40)))
    put_aside(client, dead, *((b"new", of_streams("s", reason="new")) for _ in range(20)))
    put_aside(client, dead, *((b"short", of_streams("s", reason="short")) for _ in range(4)), partition=1)
    found = dead_letters.summarise(Letters(client, dead, bound=Bound(records=24, bytes=1 << 20)))
    assert {one.reason: one.records for one in found.groups} == {"new": 20, "short": 4}
    assert (found.read, found.complete) == (24, False)
    assert dead_letters.summarise(Letters(client, dead, bound=Bound(records=64, bytes=1 << 20))).complete
    by_bytes = dead_letters.summarise(Letters(client, dead, bound=Bound(records=64, bytes=2_000)))
    assert 0 < by_bytes.read < 64
    assert not by_bytes.complete


def test_a_batch_of_many_records_is_read_as_far_as_the_bounds_go(
    client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte may unpack to millions of records, each of which would be an object."""
    decoded = 0
    read_one = protocol_records._get_record

    def counted(*arguments: Any) -> Record:
        nonlocal decoded
        decoded += 1
        return read_one(*arguments)

    dead = new_topic()
    put_aside(client, dead, *((b"", ()) for _ in range(3_000)))
    monkeypatch.setattr(protocol_records, "_get_record", counted)
    monkeypatch.setattr(dead_letters, "_journaled", lambda *of, **more: {})  # it has lines of other tests
    found = dead_letters.summarise(Letters(client, dead, bound=Bound(records=3_000, bytes=10 * len(b"key-") + 10 * 32)))
    assert (found.read, found.complete, decoded) == (10, False, 11)


def test_reasons_of_any_number_and_length_are_counted_in_bounded_memory(
    client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "GROUPS_MAX", 3)
    dead = new_topic()
    letters = [(b"x", of_streams("s", reason=letter * 5_000)) for letter in "abcdefg"]
    put_aside(client, dead, *letters)
    found = dead_letters.summarise(Letters(client, dead))
    assert len(found.groups) == 4
    assert {one.reason: one.records for one in found.groups}[dead_letters.OTHER_REASONS] == 4
    assert max(len(one.reason) for one in found.groups) == dead_letters.TEXT_CHARS
    cut = next(one for one in found.groups if one.reason.startswith("a"))
    chosen = Selection(reason=cut.reason, exception=cut.exception)
    assert redrives.plan_redrive(client, dead, chosen).refused == {"topic s does not exist": 1}


@pytest.mark.parametrize("name", [b"", b"..", b"a/b", b"\xff", b"x" * 40_000, b"a b", "größe".encode()])
def test_names_that_no_topic_has(api: Api, client: Client, new_topic: NewTopicFixture, name: bytes) -> None:
    """A name of 40,000 bytes cannot even be asked for."""
    dead, source = new_topic(), new_topic()
    bad: Headers = (
        ("__streams.errors.topic", name),
        ("__streams.errors.partition", b"0"),
        ("__streams.errors.offset", b"0"),
    )
    put_aside(client, dead, (b"bad", bad), (b"good", of_streams(source)))
    assert api.get(f"/dead-letters/{dead}/origin", partition=0, offset=0) == {"record": None}
    found = api.post(f"/dead-letters/{dead}/redrive", {"dry_run": False})
    assert found["refused"] == [{"reason": "its headers name no topic and partition that it comes from", "records": 1}]
    assert values(client, source) == [b"good"]


def test_who_ask_for_the_same_share_one_reading(
    api: Api, client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = new_topic()
    put_aside(client, dead, (b"a", ()))
    begun, may_end, calls = threading.Event(), threading.Event(), []
    summarise = dead_letters.summarise

    def slow(letters: Letters) -> Any:
        calls.append(letters._topic)
        begun.set()
        assert may_end.wait(60)
        return summarise(letters)

    monkeypatch.setattr(endpoints.dead_letters, "summarise", slow)
    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(api.get, f"/dead-letters/{dead}") for _ in range(6)]
        assert begun.wait(60)
        places = endpoints._readings._places
        wait_until(lambda: places._value == 0, what="all six have a place")
        assert "try again" in api.get(f"/dead-letters/{dead}/history", status=503)
        assert api.get("/dead-letters")["topics"]  # others go on
        may_end.set()
        assert [one.result()["read"] for one in asked] == [1] * 6
    assert calls == [dead]


# -- what is hidden ------------------------------------------------------------------------------------------


def test_what_is_masked_where_it_comes_from_is_masked_here(
    suiro_node: Any, tmp_path: Path, client: Client, new_topic: NewTopicFixture
) -> None:
    source, dead = new_topic(), new_topic()
    quoting: Headers = (
        ("mine", b"1"),
        ("__streams.errors.stacktrace", b"card 4711 is no number"),
        *of_streams(source, 0, 0, "card 4711 is no number"),
    )
    quoted_again: Headers = (*quoting, *of_streams(dead, 0, 0, "card 4711 is no number again"))
    value = b'{"card": "4711", "total": 1.10}'
    client.produce({(source, 0): encode_batch([Record(offset=0, timestamp=5, key=b"k", value=value)])})
    put_aside(client, dead, (value, quoting))
    of_dead = new_topic()
    put_aside(client, of_dead, (value, quoted_again))
    masks = Masks.parse([f"{source}=card"])
    with console_api(tmp_path, suiro_node.bootstrap_servers, masks=masks) as api:
        for path in (f"/dead-letters/{of_dead}/records", f"/topics/{of_dead}/records?from=earliest"):
            assert "4711" not in str(api.get(path, role="operator")).replace(dead, "").replace(source, "")
        for path, query in (
            ("", {}),
            ("/records", {}),
            ("/origin", {"partition": 0, "offset": 0}),
        ):
            said = str(api.get(f"/dead-letters/{dead}{path}", role="operator", **query))
            assert "4711" not in said.replace(dead, "").replace(source, ""), path
        for path, query in (
            ("/records", {"from": "earliest"}),
            ("/record", {"partition": 0, "offset": 0}),
            ("/record", {"partition": 0, "offset": 0, "value": "hex"}),
        ):
            said = str(api.get(f"/topics/{dead}{path}", role="operator", **query))
            assert "4711" not in said.replace(dead, "").replace(source, ""), path
            assert value.hex() not in said
        with httpx.Client(base_url=api.url, auth=("operator", "secret")) as http:
            for kind in ("jsonl", "csv"):
                file = http.get(f"/topics/{dead}/export", params={"format": kind}).text
                assert "***" in file
                assert "4711" not in file.replace(dead, "").replace(source, "")
        place = {"partition": 0, "offset": 0}
        copied = api.post(f"/topics/{dead}/copy", {**place, "to": dead}, role="operator", status=400)
        assert "only an admin" in copied
        (letter,) = api.get(f"/dead-letters/{dead}/records")["letters"]
        assert letter["record"]["value"]["text"] == '{"card":"***","total":1.10}'
        assert {"name": "mine", "text": "1"} in letter["record"]["headers"]
        assert api.get(f"/dead-letters/{dead}/records", reason="4711")["letters"] == []
        guessed = api.post(f"/dead-letters/{dead}/redrive", {"dry_run": True, "reason": "4711"}, role="operator")
        assert guessed["records"] == 0
        assert "4711" in str(api.get(f"/dead-letters/{dead}/records", role="admin"))
        api.post(f"/dead-letters/{dead}/redrive", {"dry_run": False, "reason": "***"}, role="operator")
    again = committed(client, source)[-1]
    assert (again.value, again.headers) == (value, (("mine", b"1"),))


# -- the way back --------------------------------------------------------------------------------------------


def test_a_redrive_does_what_its_dry_run_says_and_is_written_down(
    api: Api, client: Client, new_topic: NewTopicFixture
) -> None:
    source, dead = new_topic(2), new_topic()
    put_aside(
        client,
        dead,
        (b"a", of_streams(source, 1, reason="one")),
        (b"b", of_streams(source, 0, reason="two")),
        (b"c", ()),
        (b"d", of_streams(source, 1, reason="one")),
    )
    path = f"/dead-letters/{dead}/redrive"
    chosen = {"origin_topic": source, "reason": "one", "exception": "ValueError"}
    planned = api.post(path, {"dry_run": True, **chosen}, role="operator")
    assert planned == {
        "records": 2, "done_before": 0, "targets": [{"topic": source, "partition": 1, "records": 2}], "refused": [],
        "redriven": None, "complete": True,
    }  # fmt: skip
    assert values(client, source) == []
    done = api.post(path, {"dry_run": False, **chosen}, role="operator")
    assert done == planned | {"redriven": 2}
    assert values(client, source) == [b"a", b"d"]
    rest = api.post(path, {"dry_run": False}, role="operator")
    assert (rest["redriven"], rest["refused"][0]["records"]) == (1, 1)
    assert sorted(value or b"" for value in values(client, source)) == [b"a", b"b", b"d"]
    assert [one["done"] for one in api.get(f"/dead-letters/{dead}/records")["letters"]] == [
        True, True, False, True,
    ]  # fmt: skip
    lines = api.get(f"/dead-letters/{dead}/history")
    assert [(one["who"], one["records"], one["targets"]) for one in lines] == [
        ("operator", 1, [f"{source}-0"]),
        ("operator", 2, [f"{source}-1"]),
    ]
    assert all(one["at"] > 0 and one["error"] is None for one in lines)
    events = api.get("/audit", role="operator")["events"]
    assert [one["status"] for one in events if path in one["what"]] == [200, 200, 200]


def test_chosen_places_are_read_and_no_more(
    api: Api, client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrives, "LOOK_BACK", 5)
    source, dead = new_topic(), new_topic(2)
    put_aside(client, dead, *((str(number).encode(), of_streams(source)) for number in range(200)), partition=1)
    read: list[int] = []
    reading = redrives.read_records

    def noted(*arguments: Any, **more: Any) -> Iterator[LogRecord]:
        for record in reading(*arguments, **more):
            read.append(record.offset)
            yield record

    monkeypatch.setattr(redrives, "read_records", noted)
    body = {"dry_run": False, "places": [[1, 150], [1, 20], [1, 151]]}
    found = api.post(f"/dead-letters/{dead}/redrive", body)
    assert (found["redriven"], found["done_before"]) == (3, 0)
    assert values(client, source) == [b"20", b"150", b"151"]
    assert set(read) <= {*range(15, 22), *range(145, 153)}
    again = api.post(f"/dead-letters/{dead}/redrive", body)
    assert (again["redriven"], again["done_before"]) == (0, 3)
    all_others = api.post(f"/dead-letters/{dead}/redrive", {"dry_run": False})
    assert all_others["redriven"] == 197
    assert len(set(values(client, source))) == len(values(client, source)) == 200


def test_places_with_ends_of_transactions_between_them_become_one_range(
    client: Client, new_topic: NewTopicFixture
) -> None:
    source, dead = new_topic(), new_topic()
    for number in range(4):
        producer = client.transaction(f"tx-{dead}-{number}")
        producer.init()
        producer.add_partitions([(dead, 0)])
        batch = encode_batch(
            [Record(offset=0, timestamp=1, key=None, value=b"%d" % number, headers=of_streams(source))]
        )
        from suiro.client import TransactionalBatch

        producer.produce([TransactionalBatch(dead, 0, batch, 1)])
        producer.end()
        producer.init()
    offsets = [one.offset for one in committed(client, dead)]
    assert offsets == [0, 2, 4, 6]
    for offset in (2, 6, 4, 0):
        done = redrives.redrive(client, dead, Selection(places=frozenset({(0, offset)})), by="t")
        assert done.records == 1
    found = dead_letters.done_of(client, dead, dead_letters.redrive_group(dead), require_stable=True)
    assert (found[0].position, found[0].ranges) == (7, [])


def test_what_nobody_agreed_on_stays(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    agreed, other, dead = new_topic(), new_topic(), new_topic()
    put_aside(client, dead, (b"a", of_streams(agreed)), (b"b", of_streams(other)))
    found = api.post(f"/dead-letters/{dead}/redrive", {"dry_run": False, "only_to": [agreed]})
    assert found["redriven"] == 1
    assert found["refused"] == [{"reason": f"topic {other} was not agreed on", "records": 1}]
    assert (values(client, agreed), values(client, other)) == ([b"a"], [])


def test_redrives_that_are_refused_do_nothing(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    source, dead = new_topic(), new_topic()
    put_aside(client, dead, (b"a", of_streams(source)))
    path = f"/dead-letters/{dead}/redrive"
    assert "operator" in api.post(path, {"dry_run": False}, role="viewer", status=403)
    for body, said in (
        ({}, "dry_run"),
        ({"dry_run": "no"}, "dry_run"),
        ({"dry_run": False, "place": [[0, 0]]}, "place"),
        ({"dry_run": False, "places": []}, "nothing is chosen"),
        ({"dry_run": False, "places": [[0, 0, 0]]}, "places"),
        ({"dry_run": False, "places": [[0, -1]]}, "[0, -1]"),
        ({"dry_run": False, "places": [[9, 0]]}, "not 9"),
        ({"dry_run": False, "places": [[0, n] for n in range(10_001)]}, "10000 is the most"),
    ):
        assert said in api.post(path, body, status=400), body
    assert "no-such" in api.post("/dead-letters/no-such/redrive", {"dry_run": False}, status=404)
    assert values(client, source) == []
    assert api.get(f"/dead-letters/{dead}/history") == []


def test_of_two_at_once_the_later_fences_the_earlier(
    api: Api, client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dead = new_topic(), new_topic()
    put_aside(client, dead, *((str(number).encode(), of_streams(source)) for number in range(20)))
    begun, may_go_on = threading.Event(), threading.Event()
    take = redrives._Redrive.take

    def slow(self: Any, *arguments: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert may_go_on.wait(60)
        take(self, *arguments)

    monkeypatch.setattr(redrives._Redrive, "take", slow)
    path = f"/dead-letters/{dead}/redrive"
    with ThreadPoolExecutor(1) as threads:
        earlier = threads.submit(api.post, path, {"dry_run": False}, status=409)
        assert begun.wait(60)
        assert api.post(path, {"dry_run": False})["redriven"] == 20
        may_go_on.set()
        assert "another redrive" in earlier.result()
    assert len(values(client, source)) == 20


def test_a_redrive_goes_on_though_its_caller_has_gone(
    api: Api, client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dead = new_topic(), new_topic()
    put_aside(client, dead, *((str(number).encode(), of_streams(source)) for number in range(1_200)))
    begun, may_go_on = threading.Event(), threading.Event()
    commit = redrives._Redrive.commit

    def slow(self: Any) -> None:
        begun.set()
        assert may_go_on.wait(60)
        commit(self)

    monkeypatch.setattr(redrives._Redrive, "commit", slow)
    impatient = httpx.Timeout(30, read=0.5)
    with (
        httpx.Client(base_url=api.url, timeout=impatient, auth=("operator", "secret")) as http,
        pytest.raises(httpx.ReadTimeout),
    ):
        http.post(f"/dead-letters/{dead}/redrive", json={"dry_run": False})
    assert begun.wait(60)
    may_go_on.set()
    wait_until(lambda: len(values(client, source)) == 1_200, what="all of them are back")
    wait_until(lambda: endpoints._redrives._places._value == 2, what="it has ended")
    assert sum(one["records"] for one in api.get(f"/dead-letters/{dead}/history")) == 1_200


def test_lines_of_the_journal_that_no_redrive_wrote(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    dead = new_topic()
    journal = NewTopic(dead_letters.JOURNAL_TOPIC, 1, configs={"retention.ms": "-1"})
    client.create_topics([journal], exist_ok=True)
    wrong = [
        b"",
        b"[]",
        b"{",
        b'{"by": 1}',
        b"[" * 100_000,
        b'{"by":"x","records":true,"to":{},"group":"g"}',
        b'{"by":"x","records":-1,"to":{},"group":"g"}',
        b'{"by":"x","records":99999999999999999999,"to":{},"group":"g"}',
        b'{"by":"x","records":1%s,"to":{},"group":"g"}' % (b"0" * 400),
        rb'{"by":"\ud800","records":1,"to":{},"group":"g"}',
        None,
    ]
    group, topic_id = redrive_group(dead), client.metadata([dead])[dead].topic_id
    for done in (
        '1e999, "suiro:"',
        '-5, "suiro:"',
        f'{1 << 62}, "suiro:"',
        f'0, "suiro:{"1-1," * 2_000}9-9"',
    ):
        line = f'{{"group": "{group}", "topic_id": "{topic_id}", "done": {{"0": [{done}]}}}}'
        wrong.append(line.encode())
    records = [Record(offset=at, timestamp=7, key=dead.encode(), value=value) for at, value in enumerate(wrong)]
    client.produce({(dead_letters.JOURNAL_TOPIC, 0): encode_batch(records)})
    lines = api.get(f"/dead-letters/{dead}/history")
    assert len(lines) == len(wrong)
    assert all("is no line of a redrive" in one["error"] for one in lines)
    assert dead_letters.done_of(client, dead, group, require_stable=False) == {0: Done(0)}


def test_who_waits_for_the_answer_gets_the_newest_part_of_the_journal(
    api: Api, client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never cleaned, and others may write to it. A redrive reads all of it."""
    source, dead = new_topic(), new_topic()
    put_aside(client, dead, (b"a", of_streams(source)))
    api.post(f"/dead-letters/{dead}/redrive", {"dry_run": False})
    client.admin.delete_group(redrive_group(dead))
    waiting = []
    for size in (dead_letters.JOURNAL_BYTES, 0):
        monkeypatch.setattr(dead_letters, "JOURNAL_BYTES", size)
        waiting += [one["waiting"] for one in api.get(f"/dead-letters/{dead}")["groups"]]
    assert waiting == [0, 1]
    assert api.post(f"/dead-letters/{dead}/redrive", {"dry_run": False})["redriven"] == 0


def test_a_name_that_nobody_may_look_at_holds_up_no_other(
    client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who may write dead letters names the topics."""
    source, dead = new_topic(), new_topic()
    put_aside(client, dead, (b"made up", of_streams("forbidden")), (b"mine", of_streams(source)))
    metadata = client.metadata

    def asked(topics: Any = None, **more: Any) -> Any:
        if topics is not None and "forbidden" in topics:
            raise error_for(ErrorCode.topic_authorization_failed, "ask for the metadata of topic forbidden")
        return metadata(topics, **more)

    monkeypatch.setattr(client, "metadata", asked)
    plan = redrives.plan_redrive(client, dead, Selection())
    assert (plan.records, sum(plan.refused.values())) == (1, 1)
    done = redrives.redrive(client, dead, Selection(), by="me")
    assert done.records == 1
    assert "no permission for the topic" in next(iter(done.refused))
    assert values(client, source) == [b"mine"]


def test_source_records_are_read_together_and_a_damaged_one_stays_alone(
    client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each took a request. A damaged one ended the plan, and the redrive of all others."""
    source, dead = new_topic(), new_topic()
    sizes = (400, 1, 599)
    for size in sizes:
        batch = encode_batch([Record(offset=at, timestamp=1, key=None, value=b"%d" % at) for at in range(size)])
        if size == 1:  # its producer has written nonsense, with the checksum of it
            payload = b"\x7e" + batch[HEADER_SIZE + 1 :]
            batch = pack_header(read_header(batch), crc_tail=crc32c(payload)) + payload
        client.produce({(source, 0): batch})
    letters = [(b"%d" % at, (*of_streams(source, 0, at), OF_AN_OPERATOR)) for at in range(sum(sizes))]
    put_aside(client, dead, *letters[::-1], *letters[:7])
    fetches = []
    fetch = client.fetch

    def counted(offsets: Any, **more: Any) -> Any:
        fetches.extend(place for place in offsets if place[0] == source)
        return fetch(offsets, **more)

    monkeypatch.setattr(client, "fetch", counted)
    monkeypatch.setattr(redrives, "LETTERS_TOGETHER", 300)
    plan = redrives.plan_redrive(client, dead, Selection())
    assert plan.targets == {(source, 0): 1_006}
    ((why, stay),) = plan.refused.items()
    assert (stay, "its original record" in why, "damaged" in why) == (1, True, True)
    assert len(fetches) < 40
    done = redrives.redrive(client, dead, Selection(), by="me", transaction_records=10_000)
    assert (done.records, done.refused) == (1_006, plan.refused)
    sent = list(read_records(client, source, start={0: sum(sizes)}))
    expected = [at if at < 400 else at - 401 for at in range(1_000) if at != 400]
    assert sorted(int(one.value or b"") for one in sent) == sorted(expected)


def test_few_source_records_are_held(
    client: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dead = new_topic(), new_topic()
    client.produce(
        {(source, 0): encode_batch([Record(offset=at, timestamp=1, key=None, value=b"x" * 900) for at in range(50)])}
    )
    put_aside(client, dead, *[(b"7", (*of_streams(source, 0, at * 7 % 50), OF_AN_OPERATOR)) for at in range(50)])
    monkeypatch.setattr(redrives, "ORIGINALS_BYTES", 2_500)
    held = []
    read = redrives._Targets._read

    def looked_at(self: Any, *wanted: Any) -> None:
        read(self, *wanted)
        held.append(len([one for one in self._originals.values() if isinstance(one, LogRecord)]))

    monkeypatch.setattr(redrives._Targets, "_read", looked_at)
    assert redrives.plan_redrive(client, dead, Selection()).records == 50
    assert max(held) <= 3


def test_the_letters_of_each_group_are_its_own(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    """Also of one without origin, exception and reason."""
    source, dead = new_topic(), new_topic()
    put_aside(
        client,
        dead,
        (b"1", of_streams(source, 0, 1, "")),
        (b"2", of_streams(source, 0, 2, "bad")),
        (b"3", ()),
        (b"4", (("__streams.errors.message", b"bad"),)),
    )
    found = {}
    for group in api.get(f"/dead-letters/{dead}")["groups"]:
        named = (group["origin_topic"] or "", group["exception"], group["reason"])
        chosen = dict(zip(("origin_topic", "exception", "group_reason"), named, strict=True))
        letters = api.get(f"/dead-letters/{dead}/records", **chosen)["letters"]
        found[named] = [one["record"]["value"]["text"] for one in letters]
    assert found == {
        (source, "ValueError", ""): ["1"],
        (source, "ValueError", "bad"): ["2"],
        ("", "", ""): ["3"],
        ("", "", "bad"): ["4"],
    }


@pytest.mark.parametrize(("reason", "sent"), [("bad", [b"1"]), ("", [b"3"])])
def test_a_group_goes_back_and_not_those_that_have_its_reason_in_theirs(
    api: Api, client: Client, new_topic: NewTopicFixture, reason: str, sent: list[bytes]
) -> None:
    source, dead = new_topic(), new_topic()
    letters = [(str(at).encode(), of_streams(source, 0, at, said)) for at, said in enumerate(("bad 7 times", "bad"))]
    put_aside(client, dead, *letters, (b"3", of_streams(source, 0, 9, "")))
    group = next(one for one in api.get(f"/dead-letters/{dead}")["groups"] if one["reason"] == reason)
    chosen = {"exception": group["exception"], "group_reason": group["reason"]}
    if reason:
        (letter,) = api.get(f"/dead-letters/{dead}/records", **chosen)["letters"]
        assert letter["reason"] == reason
    done = api.post(f"/dead-letters/{dead}/redrive", {"dry_run": False, **chosen}, role="operator")
    assert done["redriven"] == group["waiting"] == 1
    assert values(client, source) == sent
