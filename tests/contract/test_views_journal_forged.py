"""The topic `_suiro_views` where others may write, too: what is not signed is refused, what is missing is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from conftest import LogUnderTest
from support.waiting import wait_until

from suiro.client import EARLIEST, Client, NewTopic
from suiro.errors import OffsetOutOfRangeError
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from suiro.views.control import journal as journal_module
from suiro.views.control import lifecycle
from suiro.views.control.journal import Journal
from suiro.views.control.journal_keys import Keys
from suiro.views.control.journal_records import SIGNATURE, JournalNotTrustedError
from suiro.views.state import Change, ConcurrentChangeError, View

OLD, NEW = b"the secret that these hosts began with", b"the secret that came in its place later"
KEYS = Keys.of(OLD)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suiro.views.control.journal.MEND_PAUSE_S", 0.1)


@pytest.fixture
def topic() -> str:
    return f"_views-{uuid4().hex[:8]}"


@pytest.fixture
def start(log_under_test: LogUnderTest, topic: str) -> Iterator[Callable[..., Journal]]:
    with ExitStack() as stack:

        def begin(keys: Keys = KEYS, **options: Any) -> Journal:
            journal = Journal(log_under_test.bootstrap_servers, topic=topic, keys=keys, **options)
            stack.callback(journal.stop)
            journal.start()
            return journal

        yield begin


@pytest.fixture
def decided(start: Callable[..., Journal]) -> Journal:
    """A view with two versions, half of whose callers are on the second, and the code of both."""
    journal = start()
    for number in (1, 2):
        journal.change("delays", deploy(number), who="ada", codes={f"code{number}": b"zip%d" % number})
        journal.change("delays", lambda view, n=number: lifecycle.caught_up(view, n), who="host")  # type: ignore[misc]
    journal.change("delays", lambda view: lifecycle.shift(view, 5_000, lag_ms=0), who="ada")
    return journal


def deploy(number: int) -> Callable[[View], Change]:
    return lambda view: lifecycle.deploy(view, key=("id",), spec={"entry": "a.py:f", "code": f"code{number}"})


def evil(view: View) -> bytes:
    """A third version, as its own host would have written it."""
    made = lifecycle.retire(lifecycle.rollback(view).view, 2).view
    return json.dumps(deploy(3)(made).view.to_json()).encode()


def records_of(client: Client, topic: str) -> list[Record]:
    """All of it, those of aborted transactions left out."""
    found: list[Record] = []
    place = (topic, 0)
    position = client.list_offsets({place: EARLIEST})[place].offset
    while True:
        part = client.fetch({place: position}, max_wait_ms=10)[place]
        rows = columnar.decode(
            part.data,
            start_offset=position,
            end_offset=part.last_stable_offset,
            aborted=part.aborted,
            headers=True,
        )
        for row in rows.batch.to_pylist():
            headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
            found.append(
                Record(
                    offset=row["offset"],
                    timestamp=row["timestamp"],
                    key=row["key"],
                    value=row["value"],
                    headers=headers,
                )
            )
        if rows.next_offset <= position:
            return found
        position = rows.next_offset


def write(client: Client, topic: str, *records: tuple[bytes, bytes | None] | Record) -> None:
    """As anybody would who may write to the topic."""
    made = [
        Record(offset=at, timestamp=1, key=one.key, value=one.value, headers=one.headers)
        if isinstance(one, Record)
        else Record(offset=at, timestamp=1, key=one[0], value=one[1])
        for at, one in enumerate(records)
    ]
    client.produce({(topic, 0): encode_batch(made)})


def refused(journal: Journal, count: int) -> None:
    wait_until(lambda: journal.status()["refused_records"] == count, what=f"{count} records to be refused")


def last_of(records: Sequence[Record]) -> dict[bytes | None, Record]:
    """What compaction would leave."""
    return {one.key: one for one in records}


def test_code_that_somebody_else_has_written_is_not_known(
    decided: Journal,
    start: Callable[..., Journal],
    client: Client,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    view = decided.view("delays")
    write(client, topic, (b"code/delays/code3", b"evil"), (b"view/delays", evil(view)))
    refused(decided, 2)
    for one in (decided, start()):
        assert one.view("delays") == view
        with pytest.raises(Exception, match="does not hold the code code3"):
            one.code("delays", "code3")
        assert one.status()["refused_records"] == 2
    assert f"2 records of topic {topic} were refused, the last at offset" in caplog.text
    assert "key 'view/delays': it is not signed" in caplog.text
    decided.change("delays", lifecycle.rollback, who="ada")
    assert decided.view("delays").routing.share == 0


def test_what_hosts_have_written_earlier_does_not_count_again(
    decided: Journal, start: Callable[..., Journal], client: Client, topic: str
) -> None:
    """Whoever may read and write copies the state of before the shift, signatures and all; then everything there is."""
    view = decided.view("delays")
    there = records_of(client, topic)
    before = [one for one in there if one.key == b"view/delays"][-2]
    assert json.loads(before.value or b"")["routing"]["share"] == 0
    write(client, topic, before, *there)
    refused(decided, 1 + len(there))
    for one in (decided, start()):
        assert one.view("delays") == view
        assert one.code("delays", "code1") == b"zip1"
    decided.change("delays", lifecycle.rollback, who="ada")
    assert start().view("delays").routing.share == 0


def test_others_take_nothing_away_nor_stop_a_host(
    decided: Journal, start: Callable[..., Journal], client: Client, topic: str
) -> None:
    host, view = {"id": "a"}, decided.view("delays")
    decided.take_over(host)
    wait_until(lambda: decided.host == host, what="the host to be known")
    signature = records_of(client, topic)[-1].headers
    write(
        client,
        topic,
        (b"view/delays", None),
        (b"head", None),
        (b"host", b'{"id": "b", "url": "http://evil"}'),
        (b"history/delays/1", b"[" * 100_000),
        Record(offset=0, timestamp=1, key=b"host", value=None, headers=signature),
        Record(offset=0, timestamp=1, key=b"host", value=None, headers=(*signature, (SIGNATURE, None))),
        Record(offset=0, timestamp=1, key=b"\xff\x00", value=b"", headers=((SIGNATURE, b"1 \xff \x00"),)),
    )
    refused(decided, 7)
    for one in (decided, start()):
        assert one.view("delays") == view
        assert one.host == host
        assert one.history("delays") == decided.history("delays")


def test_the_serving_host_writes_its_own_again_before_they_are_compacted_away(
    decided: Journal, start: Callable[..., Journal], client: Client, topic: str
) -> None:
    decided.take_over({"id": "a"})
    view = decided.view("delays")
    keys = [one.key or b"" for one in last_of(records_of(client, topic)).values()]
    write(client, topic, *((key, b"theirs") for key in [*keys, b"code/delays/code3"]))
    refused(decided, len(keys) + 1)

    def is_mended() -> bool:
        last = last_of(records_of(client, topic))
        return all(one.headers for one in last.values()) and last[b"code/delays/code3"].value is None

    wait_until(is_mended, what="all keys to have their own records again")
    assert last_of(records_of(client, topic))[b"code/delays/code1"].value == b"zip1"
    assert start().view("delays") == view == decided.view("delays")


def test_who_writes_at_the_same_moment_does_not_make_a_signature_void(
    decided: Journal,
    start: Callable[..., Journal],
    client: Client,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transaction lands on other offsets than it was signed for: it is aborted, and written again."""
    calls: list[int] = []
    sealed = journal_module.sealed

    def late(*arguments: Any, **named: Any) -> Any:
        calls.append(named["base_offset"])
        if len(calls) < 3:
            write(client, topic, (b"theirs", b"1"))
        return sealed(*arguments, **named)

    monkeypatch.setattr(journal_module, "sealed", late)
    decided.change("delays", lifecycle.rollback, who="ada")
    assert len(calls) == 3
    for one in (decided, start()):
        assert one.view("delays").routing.share == 0
        assert [event["command"] for event in one.history("delays")].count("rollback") == 1
        assert one.status()["error"] is None


def test_a_transaction_of_several_batches(
    decided: Journal, start: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_BATCH_BYTES", 1)
    decided.change("delays", lifecycle.rollback, who="ada")
    assert start().view("delays") == decided.view("delays")
    assert start().view("delays").routing.share == 0


def test_the_journal_of_a_release_without_signatures_is_taken_when_somebody_says_so(
    decided: Journal, start: Callable[..., Journal], client: Client, log_under_test: LogUnderTest, topic: str
) -> None:
    there = [(one.key or b"", one.value) for one in records_of(client, topic) if one.key != b"head"]
    earlier = f"{topic}-earlier"
    client.create_topics([NewTopic(earlier, 1, configs={"cleanup.policy": "compact"})])
    write(client, earlier, *there)
    with pytest.raises(
        JournalNotTrustedError, match=rf"topic {earlier} has {len(there)} records, none of them"
    ) as told:
        _started(log_under_test, earlier)
    assert f"{len(there)} that are not signed" in str(told.value)
    assert "suiro view adopt --unsigned" in str(told.value)
    adopting = _made(log_under_test, earlier, trust="all")
    adopting.start()
    assert adopting.views() == decided.views()
    adopting.adopt()
    adopting.stop()
    after = _started(log_under_test, earlier)
    assert after.views() == decided.views()
    assert after.history("delays") == decided.history("delays")
    assert after.code("delays", "code1") == b"zip1"
    after.change("delays", lifecycle.rollback, who="ada")
    after.stop()
    with pytest.raises(JournalNotTrustedError):
        _started(log_under_test, earlier, keys=Keys.of(NEW))


def _made(log: LogUnderTest, topic: str, **options: Any) -> Journal:
    return Journal(log.bootstrap_servers, topic=topic, **{"keys": KEYS, **options})


def _started(log: LogUnderTest, topic: str, **options: Any) -> Journal:
    made = _made(log, topic, **options)
    try:
        made.start()
    except BaseException:
        made.stop()
        raise
    return made


def test_a_key_that_is_lost(decided: Journal, start: Callable[..., Journal]) -> None:
    with pytest.raises(JournalNotTrustedError) as told:
        start(Keys.of(NEW, where="/views/.journal-key"))
    assert f"a key of this host ({Keys.of(NEW).id} in /views/.journal-key)" in str(told.value)
    assert f"are signed with key {KEYS.id}, which this host does not have" in str(told.value)
    start(Keys.of(NEW), trust="all").adopt()
    assert start(Keys.of(NEW)).views() == decided.views()


def test_a_key_is_changed_by_a_new_first_line(decided: Journal, start: Callable[..., Journal]) -> None:
    """Also where the earlier host still runs: it knows the older key only, and is told with that one."""
    decided.take_over({"id": "a"})
    rotating = start(Keys.of(NEW, OLD))
    rotating.take_over({"id": "b"})
    wait_until(lambda: decided.host == {"id": "b"}, what="the earlier host to see it")
    with pytest.raises(ConcurrentChangeError, match="another host has taken these views over"):
        decided.change("delays", lifecycle.rollback, who="ada")
    after = start(Keys.of(NEW))
    assert after.views() == decided.views()
    assert after.code("delays", "code2") == b"zip2"
    after.change("delays", lifecycle.rollback, who="ada")
    with pytest.raises(JournalNotTrustedError, match=f"signed with key {Keys.of(NEW).id}") as told:
        start()  # with the older key, which knows a state that was whole
    assert "another host has gone on with another key" in str(told.value)
    assert start(Keys.of(NEW)).view("delays").routing.share == 0


@pytest.fixture
def lose_code(log_under_test: LogUnderTest, client: Client, topic: str) -> Callable[[], None]:
    """Deletes the beginning of the topic, up to the code of the first version."""
    admin = AdminClient({"bootstrap.servers": log_under_test.bootstrap_servers})

    def set_policy(policy: str) -> None:
        entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()

    def lose() -> None:
        first = next(one for one in records_of(client, topic) if one.key == b"code/delays/code1")
        set_policy("delete")  # of a compacted topic nobody may delete records
        for gone in admin.delete_records([TopicPartition(topic, 0, first.offset + 1)]).values():
            gone.result()
        set_policy("compact")

    return lose


def test_records_that_are_gone_are_missed(
    decided: Journal, start: Callable[..., Journal], lose_code: Callable[[], None]
) -> None:
    lose_code()
    with pytest.raises(JournalNotTrustedError, match="lacks records") as told:
        start()
    assert "suiro view adopt" in str(told.value)
    assert "--unsigned" not in str(told.value)
    left = start(trust="signed")
    assert left.views() == decided.views()
    left.adopt()
    after = start()
    assert after.code("delays", "code2") == b"zip2"
    with pytest.raises(Exception, match="does not hold the code code1"):
        after.code("delays", "code1")


def test_a_host_that_runs_reads_on_and_changes_nothing_until_what_is_gone_is_settled(
    decided: Journal,
    start: Callable[..., Journal],
    lose_code: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has to read the topic anew, in many small pieces, and finds that records are missing."""
    monkeypatch.setattr(decided._table, "_partition_fetch_bytes", 1)
    monkeypatch.setattr("suiro.topic_table.table.REJECTED_PAUSE_S", 0.1)
    lose_code()
    read, failed = decided._table._read, list[int]()

    def fail_once(client: Client) -> None:
        if not failed:
            failed.append(1)
            raise OffsetOutOfRangeError("delays", 0, 7, log_start_offset=0, log_end_offset=3)
        read(client)

    monkeypatch.setattr(decided._table, "_read", fail_once)
    wait_until(lambda: decided.status()["error"] is not None, what="the host to miss it")
    with pytest.raises(JournalNotTrustedError, match="lacks records"):
        decided.change("delays", lifecycle.rollback, who="ada")
    assert decided.view("delays").routing.share == 5_000
    assert decided.code("delays", "code1") == b"zip1"
    start(trust="signed").adopt()
    wait_until(lambda: decided.status()["error"] is None, what="the host to believe it again")
    decided.change("delays", lifecycle.rollback, who="ada")
    assert start().view("delays").routing.share == 0


def test_a_topic_that_was_set_back_is_missed(
    start: Callable[..., Journal], client: Client, topic: str, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    journal = start(seen=seen)
    journal.change("delays", deploy(1), who="ada")
    told = json.loads(seen.read_text())
    assert told["head"] == records_of(client, topic)[-1].offset
    start(seen=seen)
    seen.write_text(json.dumps({**told, "head": told["head"] + 10}))
    with pytest.raises(JournalNotTrustedError, match=f"was set back: its last decision is at offset {told['head']}"):
        start(seen=seen)
    start(seen=seen, trust="signed").adopt()
    start(seen=seen)
    seen.write_text("{torn")
    start(seen=seen)


def test_who_wrote_first_to_a_new_topic_is_not_believed(
    start: Callable[..., Journal], client: Client, topic: str
) -> None:
    client.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": "compact"})])
    write(client, topic, (b"view/delays", json.dumps(deploy(1)(View(name="delays")).view.to_json()).encode()))
    with pytest.raises(JournalNotTrustedError, match="1 that are not signed"):
        start()
    start(trust="signed").adopt()
    assert start().views() == {}
