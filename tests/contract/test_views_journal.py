"""The topic `_suiro_views`: a change is there whole or not at all, and of two at once one wins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
from conftest import LogUnderTest
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.errors import ConfigError, DeadlineExceededError, OffsetOutOfRangeError, UsageError
from suiro.views.control import lifecycle
from suiro.views.control.journal import Journal, JournalGoneError
from suiro.views.control.journal_keys import Keys
from suiro.views.control.journal_records import event_records
from suiro.views.state import Change, ConcurrentChangeError, RefusedChangeError, UnknownViewError, View

KEYS = Keys.of(b"the secret of all hosts in these tests")


@pytest.fixture
def topic() -> str:
    return f"_views-{uuid4().hex[:8]}"


@pytest.fixture
def start(log_under_test: LogUnderTest, topic: str) -> Iterator[Callable[..., Journal]]:
    with ExitStack() as stack:

        def begin(**options: Any) -> Journal:
            journal = Journal(log_under_test.bootstrap_servers, topic=topic, **{"keys": KEYS, **options})
            stack.callback(journal.stop)
            journal.start()
            return journal

        yield begin


def deploy(view: View) -> Change:
    return lifecycle.deploy(view, key=("id",), spec={"entry": "app.py:delays"})


def ready(number: int) -> Callable[[View], Change]:
    return lambda view: lifecycle.caught_up(view, number)


def two(journal: Journal) -> None:
    for number in (1, 2):
        journal.change("delays", deploy, who="ada")
        journal.change("delays", ready(number), who="host")


def test_a_change_is_read_by_every_other(start: Callable[..., Journal]) -> None:
    told = threading.Event()
    first, second = start(), start(changed=told.set)
    told.clear()
    view = first.change("delays", deploy, who="ada", codes={"abc": b"zip"})
    assert view.version(1).spec == {"entry": "app.py:delays"}
    assert first.view("delays") == view
    assert told.wait(10)
    wait_until(lambda: second.views() == {"delays": view}, what="the other to read it")
    assert second.code("delays", "abc") == b"zip"
    third = start()
    assert third.view("delays") == view
    (event,) = third.history("delays")
    assert (event["who"], event["command"], event["before"], event["after"]) == (
        "ada",
        "deploy",
        "none",
        "first",
    )


def test_two_deploys_at_once(start: Callable[..., Journal]) -> None:
    """Through one host or two: one wins, the other is told so, and nothing of it is written."""
    journals = [start(), start()]
    two(journals[0])
    journals[0].change("delays", lambda view: lifecycle.retire(view, 2), who="ada")
    begin = threading.Barrier(2)
    errors: list[Exception] = []

    def one(journal: Journal) -> None:
        begin.wait()
        try:
            journal.change("delays", deploy, who="ada")
        except (ConcurrentChangeError, RefusedChangeError) as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(journal,)) for journal in journals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 1
    view = start().view("delays")
    assert [version.state for version in view.versions] == ["ready", "retired", "building"]


def test_who_was_overtaken_after_deciding_is_told(start: Callable[..., Journal]) -> None:
    first, second = start(), start()
    two(first)

    def decide(view: View) -> Change:
        if view.routing.share == 0:  # between the decision and its writing
            second.change("delays", lambda now: lifecycle.shift(now, 5_000, lag_ms=0), who="bob")
        return lifecycle.shift(view, 100, lag_ms=0)

    with pytest.raises(ConcurrentChangeError, match="at the same moment, and nothing of this change"):
        first.change("delays", decide, who="ada")
    assert first.view("delays").routing.share == 5_000
    assert [event["who"] for event in first.history("delays")][-1] == "bob"


def test_a_change_of_an_expected_revision(start: Callable[..., Journal]) -> None:
    journal = start()
    two(journal)
    with pytest.raises(ConcurrentChangeError, match="at the same moment"):
        journal.change("delays", lifecycle.rollback, who="ada", expected_revision=3)


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer(start: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch, arrived: bool) -> None:
    journal = start()
    two(journal)
    write, calls = Journal._write, []

    def lose(self: Journal, *arguments: Any) -> bool:
        calls.append(arguments)
        if len(calls) > 1:
            return write(self, *arguments)
        if arrived:
            write(self, *arguments)
        return False

    monkeypatch.setattr(Journal, "_write", lose)
    view = journal.change("delays", lambda now: lifecycle.shift(now, 100, lag_ms=0), who="ada")
    assert view.routing.share == 100
    assert len(calls) == (1 if arrived else 2)
    assert [event["command"] for event in journal.history("delays")].count("shift") == 1


def test_what_a_dead_host_left_open_does_not_count(start: Callable[..., Journal], client: Client, topic: str) -> None:
    """Killed between the records and the commit: the next change of the view ends the transaction as aborted."""
    journal = start()
    two(journal)
    other = start()
    producer = other._taken_over(10_000)
    change = lifecycle.shift(other.view("delays"), 100, lag_ms=0)
    assert change.event is not None
    records = event_records(change.view, change.event, event_id="x", who="bob", time_ms=1)
    producer.end = lambda **_: (_ for _ in ()).throw(DeadlineExceededError("killed"))  # type: ignore[method-assign]
    assert not other._write(producer, records, other.keys)
    journal.change("delays", lambda view: lifecycle.shift(view, 10_000, lag_ms=0), who="ada")
    for one in (journal, start()):
        assert one.view("delays").routing.share == 10_000
        assert "bob" not in {event["who"] for event in one.history("delays")}


def test_comparisons_are_kept_and_the_oldest_forgotten(
    start: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suiro.views.control.journal.KEPT_COMPARISONS", 2)
    journal = start()
    for number in range(3):
        journal.keep_comparison("delays", f"c{number}", {"equal": number})
    assert start().comparisons("delays") == {"c1": {"equal": 1}, "c2": {"equal": 2}}


def test_a_comparison_of_rows_with_half_of_a_surrogate_pair_is_kept(start: Callable[..., Journal]) -> None:
    found = {"examples": ["\ud800", "\u00e9"]}
    start().keep_comparison("delays", "c", found)
    assert start().comparisons("delays") == {"c": found}


def test_of_a_history_the_last_events_are_kept(start: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suiro.views.control.journal_records.KEPT_EVENTS", 3)
    journal = start()
    two(journal)
    for share in (100, 200):
        journal.change("delays", lambda view, to=share: lifecycle.shift(view, to, lag_ms=0), who="ada")  # type: ignore[misc]
    for one in (journal, start()):
        assert [event["revision"] for event in one.history("delays")] == [4, 5, 6]


def test_code_goes_with_the_last_version_that_runs_it(start: Callable[..., Journal]) -> None:
    journal = start()
    for name in ("delays", "others"):
        for _ in range(2):  # of two versions of the same code
            spec = {"entry": "app.py:f", "code": "abc"}
            deployed = lambda view: lifecycle.deploy(view, key=("id",), spec=spec)  # noqa: B023, E731
            view = journal.change(name, deployed, who="ada", codes={"abc": b"zip"})
            journal.change(name, ready(view.versions[-1].number), who="host")
    for number in (2, 1):
        assert journal.code("delays", "abc") == b"zip"
        journal.change("delays", lambda view, n=number: lifecycle.retire(view, n, last=True), who="ada")  # type: ignore[misc]
        assert journal.code("delays", "abc") == b"zip"  # until it is freed: a host may be started meanwhile
        journal.change("delays", lambda view, n=number: lifecycle.freed(view, n), who="host")  # type: ignore[misc]
    for one in (journal, start()):
        with pytest.raises(UsageError, match="does not hold the code abc of view delays"):
            one.code("delays", "abc")
        assert one.code("others", "abc") == b"zip"


def test_while_the_topic_is_read_anew_readers_know_what_was_known(
    start: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = start()
    two(journal)
    read, again, go_on = journal._table._read, threading.Event(), threading.Event()
    failed: list[int] = []

    def fail_once(client: Client) -> None:
        if not failed:
            failed.append(1)
            raise OffsetOutOfRangeError("delays", 0, 7, log_start_offset=0, log_end_offset=3)
        if not journal._table.is_current:
            again.set()
            assert go_on.wait(60)
        read(client)

    monkeypatch.setattr(journal._table, "_read", fail_once)
    assert again.wait(60)
    assert [version.number for version in journal.view("delays").versions] == [1, 2]
    go_on.set()
    view = journal.change("delays", lambda now: lifecycle.shift(now, 100, lag_ms=0), who="ada")
    assert (view.revision, journal.view("delays")) == (5, view)


def test_where_the_topic_was_deleted_reads_go_on_and_changes_are_refused(
    start: Callable[..., Journal], client: Client, topic: str
) -> None:
    journal = start()
    two(journal)
    client.delete_topics([topic])
    wait_until(lambda: topic not in client.metadata([topic]), what="the topic to be gone")

    def refused(what: str) -> None:
        with pytest.raises(JournalGoneError, match=rf"topic {topic} {what} while this host runs"):
            journal.change("delays", lambda now: lifecycle.shift(now, 100, lag_ms=0), who="ada")
        assert journal.view("delays").revision == 4

    refused("was deleted")
    client.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": "compact"})])
    wait_until(lambda: topic in client.metadata([topic]), what="the topic to be there")
    refused("was deleted and made anew")


def test_the_later_host_takes_over(start: Callable[..., Journal]) -> None:
    first = start()
    first.take_over({"id": "a"})
    start().take_over({"id": "b"})
    wait_until(lambda: (first.host or {}).get("id") == "b", what="the first host to see it")


def test_a_view_that_is_not_there(start: Callable[..., Journal]) -> None:
    with pytest.raises(UnknownViewError, match="no view 'delays'; there are: none yet"):
        start().view("delays")


def test_code_that_is_too_large(start: Callable[..., Journal]) -> None:
    with pytest.raises(UsageError, match="in a zip, and at most"):
        start().change("delays", deploy, who="ada", codes={"abc": bytes(9 << 20)})


@pytest.mark.parametrize(
    ("partitions", "policy", "said"),
    [(2, "compact", "has 2 partitions"), (1, "delete", "cleanup.policy=delete")],
)
def test_a_topic_that_is_not_fit(
    log_under_test: LogUnderTest, client: Client, topic: str, partitions: int, policy: str, said: str
) -> None:
    client.create_topics([NewTopic(topic, partitions, configs={"cleanup.policy": policy})])
    journal = Journal(log_under_test.bootstrap_servers, topic=topic, keys=KEYS)
    with pytest.raises(ConfigError, match=said):
        journal.start()
    journal.stop()
