"""Sinks over HTTP against servers that fail on purpose: alerts by webhook, documents by the bulk API."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import LogUnderTest
from support.connecting import committed, reaches, running, send, state
from support.http_peer import CUT, LOSE, Answer, Asked, HttpPeer

from suiro.client import Client, NewTopic
from suiro.clock import ManualClock, SystemClock
from suiro.connect import About, SettingError, SinkBatch, SinkRecord
from suiro.connect.sinks.search import SearchSink
from suiro.connect.sinks.webhook import WebhookSink
from suiro.errors import TransientError
from suiro.foundation.nesting import MAX_NESTING


@pytest.fixture(scope="session")
def log_under_test(suiro_node: Any) -> LogUnderTest:
    return LogUnderTest("node", suiro_node.bootstrap_servers)


@pytest.fixture
def topic(client: Client, unique: str) -> str:
    client.create_topics([NewTopic(unique, 1)])
    return unique


@pytest.fixture
def peer() -> Iterator[HttpPeer]:
    with HttpPeer(lambda asked: Answer()) as made:
        yield made


# -- webhook --------------------------------------------------------------------------------------------------


def alert(topic: str, peer: HttpPeer, more: str = "") -> str:
    return f'[sink.{topic}]\nkind = "webhook"\nurl = "{peer.url}/alerts"\ntopics = ["{topic}"]\nretry_ms = 5\n{more}\n'


def offsets(peer: HttpPeer) -> list[int]:
    return [json.loads(asked.body)["offset"] for asked in peer.asked]


def test_a_rule_picks_and_the_request_tells_all(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer
) -> None:
    delays = [("UA", math.inf), ("AA", 3), ("UA", 16), (None, 99)]
    send(client, topic, [{"carrier": c, "delay": d} for c, d in delays], keys=[c for c, _ in delays])
    more = 'when = "delay > 15 and carrier in [\'UA\', \'AA\']"\nsecret = "s3cret"\nheaders = { X-Team = "ops" }'
    with running(tmp_path, bootstrap, alert(topic, peer, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 4, "four records")
    first, second = peer.asked
    assert json.loads(first.body) == {
        "connector": topic,
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "UA",
        "value": {"carrier": "UA", "delay": "Infinity"},  # JSON has no such number
    }
    assert second.headers["idempotency-key"] == f"{topic}-0-2"
    assert second.headers["x-team"] == "ops"
    signed = hmac.new(b"s3cret", second.body, hashlib.sha256).hexdigest()
    assert second.headers["x-hub-signature-256"] == f"sha256={signed}"


def test_what_is_temporary_is_repeated_under_the_same_key(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer
) -> None:
    send(client, topic, [1, 2])
    peer.faults += [CUT, LOSE, Answer(503), Answer(429, headers={"Retry-After": "0"})]
    with running(tmp_path, bootstrap, alert(topic, peer)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
    assert offsets(peer) == [0, 0, 0, 0, 0, 1]
    assert len({asked.headers["idempotency-key"] for asked in peer.asked}) == 2


def test_what_fails_for_good_is_a_dead_letter_and_the_rest_goes_out(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer
) -> None:
    send(client, topic, [1, 2, 3])
    peer.faults += [Answer(400, {"error": "no"}), Answer(500), CUT]
    more = f'attempts = 2\ndead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, alert(topic, peer, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert offsets(peer) == [0, 1, 1, 2]
    reasons = [row["headers"]["__connect.errors.exception.message"] for row in committed(client, f"dead-{topic}")]
    assert b"refuses it: 400 Bad Request" in reasons[0]
    assert b"did not take it in 2 attempts" in reasons[1]


@pytest.mark.parametrize("fault", [Answer(400), CUT, Answer(503, headers={"Retry-After": "3600"})])
def test_what_is_said_of_a_receiver_does_not_tell_its_secret(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer, fault: Answer | str
) -> None:
    """The path, or a password, of such an address is what lets somebody write there."""
    send(client, topic, [1])
    peer.faults.append(fault)
    secret = alert(topic, peer, "attempts = 1").replace("http://", "http://me:pa55@").replace("/alerts", "/T0K3N?k=QQQ")
    with running(tmp_path, bootstrap, secret) as runtime:
        told = str(reaches(runtime, topic, lambda at: at["error"], "an error"))
    assert peer.url in told
    assert not any(word in told for word in ("pa55", "T0K3N", "QQQ"))


def test_a_long_retry_after_stops_the_connector_for_a_while(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer
) -> None:
    send(client, topic, [1])
    peer.faults.append(Answer(429, headers={"Retry-After": "3600"}))
    with running(tmp_path, bootstrap, alert(topic, peer)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 1, "one record")
        assert state(runtime, topic)["restarts"] == 1
    assert offsets(peer) == [0, 0]


def test_a_key_is_quiet_for_a_while_and_bodies_have_templates(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer
) -> None:
    send(client, topic, [{"n": n} for n in range(6)], keys=["a", "b", "a", "a", "a", None])  # 1 ms apart
    more = 'quiet_ms = 3\nbody = { text = "number {n}" }'
    with running(tmp_path, bootstrap, alert(topic, peer, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 6, "six records")
    said = [json.loads(asked.body)["text"] for asked in peer.asked]
    assert said == ["number 0", "number 1", "number 3", "number 5"]


def test_a_record_that_the_rule_cannot_judge_is_put_aside(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer
) -> None:
    send(client, topic, [{"delay": "long"}, {"delay": 10**400}, {"delay": 20}])
    more = f'when = "delay > 15"\nbody = {{ text = "{{delay:.1f}}" }}\ndead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, alert(topic, peer, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert [json.loads(asked.body)["text"] for asked in peer.asked] == ["20.0"]
    assert len(committed(client, f"dead-{topic}")) == 2


def test_deeply_nested_values_are_dead_letters_of_every_kind_of_sink(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, peer: HttpPeer
) -> None:
    deep = b"[" * 3_000 + b"]" * 3_000
    just_too_deep = b'{"a":' * (MAX_NESTING + 1) + b"1" + b"}" * (MAX_NESTING + 1)
    deepest = b'{"a":' * MAX_NESTING + b"1" + b"}" * MAX_NESTING
    send(client, topic, [{"a": 1}, deep, just_too_deep, b"not json", deepest])
    shared = f'topics = ["{topic}"]\ndead_letter_topic = "dead-%s-{topic}"\nlinger_ms = 10\n'
    hook = f'[sink.hook-{topic}]\nkind = "webhook"\nurl = "{peer.url}/"\n{shared % "hook"}'
    lake = f'[sink.lake-{topic}]\nkind = "parquet"\nfolder = "lake"\n{shared % "lake"}columns = {{ a = "json" }}\n'
    with running(tmp_path, bootstrap, hook + lake) as runtime:
        for name in (f"hook-{topic}", f"lake-{topic}"):
            at = reaches(runtime, name, lambda at: at["records"] == 5, "five records")
            assert (at["rejected"], at["restarts"]) == (3, 0)
    assert offsets(peer) == [0, 4]
    for name in ("hook", "lake"):
        dead = committed(client, f"dead-{name}-{topic}")
        assert [row["value"] for row in dead] == [deep, just_too_deep, b"not json"]
        reasons = [row["headers"]["__connect.errors.exception.message"] for row in dead]
        assert all(f"deeper than {MAX_NESTING} levels".encode() in reason for reason in reasons[:2])


# -- search ---------------------------------------------------------------------------------------------------


class Index:
    """Documents with external versions, as the bulk API of OpenSearch treats them."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], Any] = {}
        self.versions: dict[tuple[str, str], int] = {}
        self.largest = 1 << 30
        self.busy: set[int] = set()  # which items, counted over all requests, meet a full queue once
        self.conflicts = 0
        self._items = 0

    def __call__(self, asked: Asked) -> Answer:
        if asked.path != "/_bulk":
            return Answer(404)
        if len(asked.body) > self.largest:
            return Answer(413)
        assert asked.body.endswith(b"\n")
        lines = iter(asked.body.splitlines())
        items = [self._do(json.loads(line), lines) for line in lines]
        return Answer(body={"errors": any("error" in next(iter(i.values())) for i in items), "items": items})

    def _do(self, action: dict[str, Any], lines: Iterator[bytes]) -> dict[str, Any]:
        ((name, about),) = action.items()
        document = json.loads(next(lines)) if name == "index" else None
        place = (about["_index"], about["_id"])
        self._items += 1
        if self._items in self.busy:
            return {name: {"status": 429, "error": {"type": "rejected_execution_exception"}}}
        if isinstance(document, dict) and not isinstance(document.get("n", 0), int):
            return {name: {"status": 400, "error": {"type": "mapper_parsing_exception"}}}
        if about.get("version_type") == "external":
            if about["version"] <= self.versions.get(place, -1):
                self.conflicts += 1
                return {name: {"status": 409, "error": {"type": "version_conflict_engine_exception"}}}
            self.versions[place] = about["version"]
        if document is None:
            return {name: {"status": 200 if self.documents.pop(place, None) else 404}}
        created = place not in self.documents
        self.documents[place] = document
        return {name: {"status": 201 if created else 200}}


@pytest.fixture
def index() -> Index:
    return Index()


@pytest.fixture
def engine(index: Index) -> Iterator[HttpPeer]:
    with HttpPeer(index) as made:
        yield made


def search(topic: str, engine: HttpPeer, more: str = "") -> str:
    return (
        f'[sink.{topic}]\nkind = "search"\nurl = "{engine.url}"\nindex = "i-{{topic}}"\ntopics = ["{topic}"]\n'
        f"retry_ms = 5\n{more}\n"
    )


def test_documents_follow_the_topic_whatever_fails(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer, index: Index
) -> None:
    draw = random.Random(3)
    expected: dict[tuple[str, str], Any] = {}
    for _ in range(6):
        keys: list[str | None] = [str(draw.randrange(12)) for _ in range(30)]
        documents = [None if draw.random() < 0.2 else {"n": draw.randrange(1_000)} for _ in keys]
        send(client, topic, documents, keys=keys)
        for key, document in zip(keys, documents, strict=True):
            expected[f"i-{topic}", str(key)] = document
    index.busy = {draw.randrange(1, 200) for _ in range(40)}
    index.largest = 1_500
    engine.faults += [LOSE, Answer(503), LOSE, CUT, Answer(200), LOSE]  # Answer(200): nonsense for a bulk API
    with running(tmp_path, bootstrap, search(topic, engine, "attempts = 20\nmax_records = 50")) as runtime:
        reaches(runtime, topic, lambda at: at["lag"] == 0, "no lag")
    assert index.documents == {place: document for place, document in expected.items() if document is not None}
    assert index.conflicts > 0  # of what was done before its answer was lost


def test_what_the_index_refuses_is_put_aside(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer, index: Index
) -> None:
    send(client, topic, [{"n": "x"}, {"n": 1}, [1], {"n": 2}, {"n": 3}], keys=["a", "b", "c", None, "d" * 600])
    more = f'dead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, search(topic, engine, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 5, "five records")
    assert index.documents == {(f"i-{topic}", "b"): {"n": 1}}
    reasons = b" ".join(
        row["headers"]["__connect.errors.exception.message"] for row in committed(client, f"dead-{topic}")
    )
    for said in (b"mapper_parsing_exception", b"is list", b"has no key", b"512 bytes"):
        assert said in reasons


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (403, "cluster_block_exception", "no"),
        (403, "security_exception", "no"),
        (404, "index_not_found_exception", "no"),
        (400, "index_closed_exception", "no"),
        (400, "validation_exception", "no"),
        (
            400,
            "illegal_argument_exception",
            "no write index is defined for alias [i]. The write index may be ...",
        ),
        (
            400,
            "illegal_argument_exception",
            "only write ops with an op_type of create are allowed in data streams",
        ),
        (400, "routing_missing_exception", "routing is required for [i]/[a]"),
        (400, "illegal_argument_exception", "pipeline with id [p] does not exist"),
    ],
)
def test_an_index_that_takes_no_document_makes_no_dead_letters(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer, index: Index,
    status: int, error: str, reason: str,
) -> None:  # fmt: skip
    """It is closed for a while, say: the documents are to be in it afterwards."""
    item = {"index": {"status": status, "error": {"type": error, "reason": reason}}}
    engine.faults.append(Answer(body={"errors": True, "items": [item, item]}))
    send(client, topic, [{"n": 1}, {"n": 2}], keys=["a", "b"])
    more = f'dead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, search(topic, engine, more)) as runtime:
        at = reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
    assert at["rejected"] == 0
    assert len(index.documents) == 2
    assert committed(client, f"dead-{topic}") == []


def test_a_document_too_large_for_any_request_is_put_aside(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer, index: Index
) -> None:
    index.largest = 1_000
    documents = [{"n": 1}, {"n": 2, "x": "x" * 2_000}, {"n": 3}]
    send(client, topic, documents, keys=["a", "b", "c"])
    more = f'dead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, search(topic, engine, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert index.documents == {(f"i-{topic}", "a"): {"n": 1}, (f"i-{topic}", "c"): {"n": 3}}
    (letter,) = committed(client, f"dead-{topic}")
    assert letter["key"] == b"b"
    assert b"413" in letter["headers"]["__connect.errors.exception.message"]


def test_a_document_is_sent_again_where_a_node_of_the_index_failed(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer, index: Index
) -> None:
    failed = {"status": 500, "error": {"type": "node_disconnected_exception"}}
    engine.faults.append(Answer(body={"errors": True, "items": [{"index": {"status": 201}}, {"index": failed}]}))
    send(client, topic, [{"n": 1}, {"n": 2}], keys=["a", "b"])
    more = f'dead_letter_topic = "dead-{topic}"'
    with running(tmp_path, bootstrap, search(topic, engine, more)) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 2, "two records")
    assert index.documents == {(f"i-{topic}", "b"): {"n": 2}}
    assert committed(client, f"dead-{topic}") == []


@pytest.mark.parametrize(
    "item",
    [{}, 7, {"index": 7}, {"index": {}}, {"index": {"status": None}}, {"index": {"status": math.inf}}],
    ids=str,
)
def test_an_answer_that_is_no_bulk_apis_makes_no_dead_letters(tmp_path: Path, item: Any) -> None:
    """Whether the index has the document is unknown. An item without a status was taken for a refusal."""
    rejected: list[int] = []
    with HttpPeer(lambda asked: Answer(body={"items": [item]})) as peer:
        sink = SearchSink({"url": peer.url}, About(name="s", folder=tmp_path, clock=ManualClock()))
        sink.open()
        with pytest.raises(TransientError, match="does not answer as a bulk API does"):
            sink.put(batch_of(["a"], lambda record, reason: rejected.append(record.offset)))
        sink.close()
    assert rejected == []


def test_a_document_at_which_the_index_fails_for_long_is_put_aside(tmp_path: Path) -> None:
    """While it takes others. One at which it fails as it fails at all others waits."""
    clock = ManualClock()
    rejected: list[int] = []
    answers = {"a": 201, "b": 500, "c": 201}

    def answer(asked: Asked) -> Answer:
        ids = [json.loads(line)["index"]["_id"] for line in asked.body.splitlines()[::2]]
        error = {"type": "null_pointer_exception"}
        items = [{"index": {"status": answers[id_], "error": error}} for id_ in ids]
        return Answer(body={"errors": True, "items": items})

    with HttpPeer(answer) as peer:
        sink = SearchSink(
            {"url": peer.url, "attempts": 2, "retry_ms": 0}, About(name="s", folder=tmp_path, clock=clock)
        )

        def put() -> None:
            """As after a restart."""
            sink.open()
            try:
                sink.put(batch_of(["a", "b", "c"], lambda record, reason: rejected.append(record.offset)))
            finally:
                sink.close()

        answers |= {"a": 500, "c": 500}
        for _ in range(2):
            with pytest.raises(TransientError, match="3 records in 2 attempts"):
                put()
            clock.advance(3_600_000)
        answers |= {"a": 201, "b": 503, "c": 201}  # of a shard that is away
        with pytest.raises(TransientError, match="1 records in 2 attempts"):
            put()
        answers["b"] = 500
        with pytest.raises(TransientError, match="1 records in 2 attempts"):
            put()
        clock.advance(599_000)
        with pytest.raises(TransientError, match="1 records in 2 attempts"):
            put()
        assert rejected == []
        clock.advance(1_000)
        put()
        assert rejected == [1]


def test_a_document_is_put_aside_though_batches_of_other_partitions_are_taken(tmp_path: Path) -> None:
    """They come before its own after each restart, where their partition is a busy one."""
    clock = ManualClock()
    rejected: list[str] = []

    def answer(asked: Asked) -> Answer:
        ids = [json.loads(line)["index"]["_id"] for line in asked.body.splitlines()[::2]]
        items = [{"index": {"status": 500 if id_ == "bad" else 201}} for id_ in ids]
        return Answer(body={"errors": True, "items": items})

    with HttpPeer(answer) as peer:
        sink = SearchSink(
            {"url": peer.url, "attempts": 1, "retry_ms": 0}, About(name="s", folder=tmp_path, clock=clock)
        )
        sink.open()
        for _ in range(4):
            sink.put(batch_of(["c"], lambda record, reason: rejected.append(record.place), partition=1))
            try:
                sink.put(batch_of(["a", "bad"], lambda record, reason: rejected.append(record.place)))
            except TransientError:
                clock.advance(300_000)
        sink.close()
    assert rejected[:1] == ["t-0@1"]


def batch_of(keys: list[str], reject: Callable[[SinkRecord, str], None], *, partition: int = 0) -> SinkBatch:
    records = [
        SinkRecord(
            topic="t", partition=partition, offset=at, timestamp_ms=0, key=key, value={}, headers=(),
            raw_key=key.encode(), raw_value=b"{}",
        )
        for at, key in enumerate(keys)
    ]  # fmt: skip
    return SinkBatch(
        records=records,
        first_offsets={("t", partition): 0},
        next_offsets={("t", partition): len(keys)},
        reject=reject,
        settle=lambda: None,
    )


def test_documents_by_offset(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer, index: Index
) -> None:
    send(client, topic, [{"n": 1}, None, {"n": 2}])
    engine.faults.append(LOSE)
    with running(tmp_path, bootstrap, search(topic, engine, 'id = "offset"')) as runtime:
        reaches(runtime, topic, lambda at: at["records"] == 3, "three records")
    assert index.documents == {
        (f"i-{topic}", f"{topic}-0-0"): {"n": 1},
        (f"i-{topic}", f"{topic}-0-2"): {"n": 2},
    }


def test_a_refused_request_is_said(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer
) -> None:
    send(client, topic, [{"n": 1}], keys=["a"])
    engine.faults.append(Answer(401, {"error": "who are you"}))
    with running(tmp_path, bootstrap, search(topic, engine)) as runtime:
        told = reaches(runtime, topic, lambda at: at["error"], "an error")
    assert "401 Unauthorized" in told["error"]


@pytest.mark.parametrize("fault", [Answer(401), CUT, Answer(200)])
def test_what_is_said_of_an_index_does_not_tell_its_password(
    tmp_path: Path, bootstrap: str, client: Client, topic: str, engine: HttpPeer, fault: Answer | str
) -> None:
    send(client, topic, [{"n": 1}], keys=["a"])
    engine.faults.append(fault)
    secret = search(topic, engine, "attempts = 1").replace("http://", "http://me:pa55@")
    with running(tmp_path, bootstrap, secret) as runtime:
        told = str(reaches(runtime, topic, lambda at: at["error"], "an error"))
    assert engine.url in told
    assert "pa55" not in told


@pytest.mark.parametrize(
    ("made", "settings", "said"),
    [
        (WebhookSink, {"url": "ftp://x"}, "url: must begin with http"),
        (SearchSink, {"url": "http://[::1"}, "url: must begin with http"),
        (WebhookSink, {"url": "http://x", "when": "import os"}, "when: 'import os' is not a rule"),
        (WebhookSink, {"url": "http://x", "when": "a.__class__()"}, "is not allowed in a rule"),
        (WebhookSink, {"url": "http://x", "when": "open('x')"}, "is not allowed in a rule"),
        (WebhookSink, {"url": "http://x", "method": "GET"}, "method: expected one of POST"),
        (WebhookSink, {"url": "http://x", "attempts": 0}, "attempts: must be at least 1"),
        (
            WebhookSink,
            {"url": "http://x", "headers": {"Authorization": "Bearer s3cret\n"}},
            "headers.Authorization: has a character that no header can have",
        ),
        (SearchSink, {"url": "http://x", "headers": {"X": "\u00fc"}}, "headers.X: has a character"),
        (SearchSink, {"url": "http://x", "headers": {"X:": "a"}}, "headers: 'X:' cannot be the name"),
        (SearchSink, {"url": "http://x", "id": "uuid"}, "id: expected one of key, offset"),
        (SearchSink, {"url": "http://x", "username": "x"}, "password: username and password go together"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, made: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as raised:
        made(settings, About(name="x", folder=tmp_path, clock=SystemClock()))
    assert said in str(raised.value)
