"""Reads over HTTP: what is asked for, of one cut, with who answered; waiting for a write; changes as they come."""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from support.view_stores import Described, cut
from support.waiting import wait_until

from suiro.errors import TransientError
from suiro.foundation.http import Guard, HttpServer, Users, listen_on
from suiro.views import Views
from suiro.views.cuts import Cut
from suiro.views.serving.reads import routes
from suiro.views.serving.served import ReadMetrics, Served
from suiro.views.state import UnknownViewError
from suiro.views.store import open_store
from suiro.views.store.tables import Store

UA, DL = ("UA", 1), ("DL", 1)


class Followed:
    """A follower whose store a test fills."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.listeners: set[Callable[[], None]] = set()

    @property
    def cut(self) -> Cut | None:
        return self.store.cut

    def reflects(self, offsets: dict[tuple[str, int], int]) -> bool:
        reflected = {} if self.cut is None else self.cut.reflected()
        return all(reflected.get(place, 0) > offset for place, offset in offsets.items())

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        self.listeners.add(heard)
        return lambda: self.listeners.discard(heard)

    def apply(self, number: int, rows: dict[tuple[Any, ...], Any]) -> None:
        values = [None if value is None else json.dumps(value) for value in rows.values()]
        self.store.apply(cut(number), list(rows), values)
        for heard in list(self.listeners):
            heard()


class TwoVersions:
    """Callers whose name begins with "new" belong to version 2."""

    def __init__(self, folder: Path) -> None:
        self.new = "new"
        self.served: dict[int, Served] = {}
        self.followed: dict[int, Followed] = {}
        for number in (1, 2):
            spec = Described(view="flights", version=number, search=("note",))
            store = open_store(spec, folder / str(number))
            follower = self.followed[number] = Followed(store)
            self.served[number] = Served(spec=spec, store=store, follower=follower, metrics=ReadMetrics())

    def serving(self, view: str, caller: str) -> Served:
        return self.version(view, 2 if caller.startswith(self.new) else 1)

    def version(self, view: str, number: int) -> Served:
        if view not in ("flights", "rows") or number not in self.served:
            raise UnknownViewError(f"no version {number} of a view {view!r}")
        return self.served[number]


@pytest.fixture
def router(tmp_path: Path) -> Iterator[TwoVersions]:
    made = TwoVersions(tmp_path)
    yield made
    for served in made.served.values():
        served.store.close()


@pytest.fixture
def http(router: TwoVersions) -> Iterator[httpx.Client]:
    server = HttpServer(
        Starlette(routes=routes(router)), listen_on("127.0.0.1", 0, name="views-test"), name="views-test"
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        yield client
    server.stop()


@pytest.fixture
def filled(router: TwoVersions) -> TwoVersions:
    for number in (1, 2):
        router.followed[number].apply(0, {UA: {"n": number, "note": "Snow"}, DL: {"n": 0, "note": "rain"}})
        router.followed[number].apply(1, {UA: {"n": 10 * number, "note": "sun"}})
    return router


def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert body["error_code"] == status
    return str(body["message"])


def test_a_row_comes_with_who_answered_and_what_it_reflects(http: httpx.Client, filled: TwoVersions) -> None:
    assert ok(http.get("/views/flights/rows/UA/1")) == {
        "view": "flights", "version": 1, "cut": 1, "time": "1970-01-01T00:00:01.000+00:00",
        "offsets": {"in": {"0": 20}}, "row": {"key": {"carrier": "UA", "day": 1}, "value": {"n": 10, "note": "sun"}},
    }  # fmt: skip
    assert ok(http.get("/views/flights/rows/XX/1"))["row"] is None
    for of_two in (
        {"headers": {"Suiro-Caller": "new1"}},
        {"params": {"caller": "newer"}},
        {"params": {"version": 2}},
    ):
        found = ok(http.get("/views/flights/rows/UA/1", **of_two))  # type: ignore[arg-type]
        assert (found["version"], found["row"]["value"]["n"]) == (2, 20)
    assert filled.served[1].metrics.snapshot().reads == 2
    assert filled.served[2].metrics.snapshot().reads == 3


def test_answers_at_equal_cuts_are_equal_byte_for_byte(http: httpx.Client, filled: TwoVersions) -> None:
    before = http.get("/views/flights/rows", params={"as_of": "cut:1"}).content
    filled.followed[1].apply(2, {UA: {"n": 5}})
    assert http.get("/views/flights/rows", params={"as_of": "cut:1"}).content == before


def test_states_of_before_by_cut_time_and_offsets(http: httpx.Client, filled: TwoVersions) -> None:
    for as_of in (
        "cut:0",
        "1970-01-01T00:00:00.5Z",
        "1970-01-01T01:00:00.5+01:00",
        "500",
        "in:0:19",
        "in:0:10,other:1:5",
    ):
        found = ok(http.get(f"/views/flights/rows/UA/1?as_of={as_of}"))
        assert (found["cut"], found["row"]["value"]["n"]) == (0, 1), as_of
    assert "keeps cuts 0 to 1" in refused(http.get("/views/flights/rows/UA/1?as_of=cut:7"), 410)
    assert "expected a time" in refused(http.get("/views/flights/rows/UA/1?as_of=yesterday"), 400)


def test_pages_ranges_conditions_and_words(http: httpx.Client, router: TwoVersions) -> None:
    rows = {
        (carrier, day): {"n": day, "note": f"{carrier} gate"} for carrier in ("DL", "U/A", "UA") for day in range(1, 6)
    }
    router.followed[1].apply(0, rows)

    def keys(query: str) -> list[str]:
        found = ok(http.get(f"/views/flights/rows?{query}"))["rows"]
        return ["/".join(str(part) for part in row["key"].values()) for row in found]

    assert keys("from=U%252FA/4&to=UA/2") == ["U/A/4", "U/A/5", "UA/1", "UA/2"]
    assert keys("prefix=UA") == [f"UA/{day}" for day in range(1, 6)]
    assert len(keys("prefix=U")) == 10
    assert keys("where=n:gt:4&where=carrier:prefix:U") == ["U/A/5", "UA/5"]
    assert keys("search=dl&where=day:le:2") == ["DL/1", "DL/2"]
    assert ok(http.get("/views/flights/rows/U%2FA/3"))["row"]["value"]["n"] == 3
    page = ok(http.get("/views/flights/rows?limit=7"))
    found = page["rows"]
    router.followed[1].apply(1, dict.fromkeys(rows))
    while page["next"] is not None:
        # A page goes on in its version and at its cut, whoever asks.
        page = ok(http.get("/views/flights/rows", params={"limit": 7, "after": page["next"], "caller": "new"}))
        found += page["rows"]
        assert (page["version"], page["cut"]) == (1, 0)
    assert [row["value"] for row in found] == list(rows.values())
    assert ok(http.get("/views/flights/rows"))["rows"] == []


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("nothing/rows/UA/1", 404, "no version 1"), ("flights/rows/UA/1?version=7", 404, "no version 7"),
        ("flights/rows/UA", 400, "carrier/day; 1 parts"), ("flights/rows/UA/x", 400, "'day' is of type integer"),
        ("flights/rows%2FUA", 400, "/views/VIEW/rows/KEY"), ("flights%2Frows/UA/1", 400, "/views/VIEW/rows/KEY"),
        ("flights/rows?form=UA", 400, "unknown parameter 'form'"), ("flights/rows?limit=0", 400, "between 1 and"),
        ("flights/rows?limit=x", 400, "whole number"), ("flights/rows?where=n", 400, "column:operator:value"),
        ("flights/rows?after=x", 400, "`next` of a page"), ("flights/rows?search=", 400, "no word"),
        ("flights/rows?limit=1&limit=2", 400, "2 times"), ("flights/rows?min_offset=in", 400, "topic:partition"),
        ("flights/rows?min_offset=out:0:1", 400, "does not read 'out'"), ("flights/rows?prefix=a/b/c", 400, "3 parts"),
        ("flights/rows/UA/1?as_of=out:0:1", 400, "does not read 'out'; it reads in"),
        ("flights/changes?after=x", 400, "no event's id"),
        (f"flights/rows?after=1.{'9' * 30}.AA", 400, "`next` of a page"),
        ("flights/rows?after=-1.1.AA", 400, "`next` of a page"),
        (f"flights/rows?as_of=in:0:{'9' * 5_000}", 400, "expected a time"),
        (f"flights/rows?min_offset=in:0:{'9' * 5_000}", 400, "topic:partition"),
        (f"flights/rows?where=n:gt:{'[' * 30_000}", 200, ""), (f"flights/rows?where=n:gt:1{'0' * 400}", 200, ""),
        ('flights/rows?where=note:eq:"%5Cud800"', 200, ""), ("flights/rows?where=n%5C:eq:1", 400, "no column's name"),
        ("flights/rows?where=n%00:eq:1", 400, "no column's name"), (f"flights/rows/UA/1{'0' * 400}", 200, ""),
        ("flights/rows?timeout_ms=99999999&min_offset=in:0:1", 400, "most"),
    ],
)  # fmt: skip
def test_wrong_requests_are_told_what_is_wrong(
    http: httpx.Client, filled: TwoVersions, path: str, status: int, words: str
) -> None:
    answer = http.get(f"/views/{path}")
    assert words in refused(answer, status) if status != 200 else ok(answer)
    assert filled.served[1].metrics.snapshot().errors == 0  # these are the reader's own


def test_a_view_named_as_a_part_of_the_path(http: httpx.Client, filled: TwoVersions) -> None:
    assert ok(http.get("/views/rows/rows/UA/1"))["row"]["value"] == {"n": 10, "note": "sun"}


@pytest.mark.parametrize("carrier", [".", "..", "", "a/b", "a%2Fb", "?#", "\u00e9 \U0001f6eb", "x" * 5_000])
def test_any_text_is_a_key(http: httpx.Client, router: TwoVersions, carrier: str) -> None:
    router.followed[1].apply(0, {(carrier, 1): {"n": 1}})
    with Views(str(http.base_url)) as views:
        assert views.get("flights", carrier, 1)["row"] == {
            "key": {"carrier": carrier, "day": 1},
            "value": {"n": 1},
        }


def test_half_of_a_surrogate_pair_in_a_key_is_answered_as_its_escape(http: httpx.Client, router: TwoVersions) -> None:
    """UTF-8 does not have it: one such key spoiled every page that it was on, and ended every stream of changes."""
    half = ("\ud800 \u00e9", 1)
    router.followed[1].apply(0, {})
    with Events(http) as events:
        events.next()
        router.followed[1].apply(1, {half: {"n": 1}, UA: {"n": 2}})
        assert [change["key"]["carrier"] for change in events.next()[1]["changes"]] == ["UA", half[0]]
    answer = http.get("/views/flights/rows")
    assert [row["key"]["carrier"] for row in ok(answer)["rows"]] == ["UA", half[0]]
    assert "\\ud800 \u00e9" in answer.text


def test_a_young_or_broken_version_says_try_again(http: httpx.Client, router: TwoVersions) -> None:
    assert "no rows to show yet" in refused(http.get("/views/flights/rows/UA/1"), 503)
    assert "no rows to show yet" in refused(http.get("/views/flights/changes"), 503)
    assert router.served[1].metrics.snapshot().errors == 1

    def serving(view: str, caller: str) -> Served:
        raise TransientError("is being moved")

    router.serving = serving  # type: ignore[method-assign]
    assert "is being moved" in refused(http.get("/views/flights/rows"), 503)


def test_a_reader_waits_for_its_own_write(http: httpx.Client, filled: TwoVersions) -> None:
    url = "/views/flights/rows/UA/1?min_offset=in:0:20"  # cut 1 reflects what lies below 20
    assert "does not reflect in:0:20 after 30 ms; it is at cut 1" in refused(http.get(f"{url}&timeout_ms=30"), 504)
    assert filled.served[1].metrics.snapshot().errors == 0  # a guard would be tripped by who asks for the future
    assert ok(http.get("/views/flights/rows/UA/1?min_offset=in:0:19"))["cut"] == 1
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(ok(http.get(f"{url}&timeout_ms=30000"))))
    waiting.start()
    filled.followed[1].apply(2, {UA: {"n": 2}})
    waiting.join(30)
    assert answers[0]["cut"] == 2
    assert answers[0]["row"]["value"] == {"n": 2}
    assert not filled.followed[1].listeners


def test_a_reader_waits_for_a_write_that_was_read_and_waits_for_another_partition(
    http: httpx.Client, filled: TwoVersions
) -> None:
    """A limit ended the micro-batch, and earlier records of that partition may follow."""
    filled.served[1].store.apply(cut(2, behind=[("other", 0)]), [], [])
    url = "/views/flights/rows/UA/1?min_offset=in:0:20"  # cut 2 was made from what lies below 30
    assert "is at cut 2" in refused(http.get(f"{url}&timeout_ms=30"), 504)
    filled.followed[1].apply(3, {UA: {"n": 3}})
    assert ok(http.get(url))["row"]["value"] == {"n": 3}


class Events:
    """Of one subscription; `next` waits for an event."""

    def __init__(self, http: httpx.Client, query: str = "", **headers: str) -> None:
        self._stream = http.stream("GET", f"/views/flights/changes{query}", headers=headers)
        self._lines = self._stream.__enter__().iter_lines()

    def next(self) -> tuple[str | None, Any]:
        name = None
        for line in self._lines:
            if line.startswith("id: "):
                name = line[4:]
            if line.startswith("data: "):
                return name, json.loads(line[6:])
        raise AssertionError("the stream ended")

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(None, None, None)


def test_changes_are_pushed_cut_by_cut(http: httpx.Client, filled: TwoVersions) -> None:
    with Events(http) as events:
        name, begins = events.next()
        assert (name, begins["cut"], begins["reset"], begins["changes"]) == ("1.1", 1, True, [])
        filled.followed[1].apply(2, {UA: {"n": 2}, DL: None, ("XX", 1): None})
        name, event = events.next()
        assert (name, event["version"], event["cut"], event["part"]) == ("1.2", 1, 2, "last")
        assert event["offsets"] == {"in": {"0": 30}}
        assert event["changes"] == [
            {"key": {"carrier": "DL", "day": 1}, "value": None},
            {"key": {"carrier": "UA", "day": 1}, "value": {"n": 2}},
        ]
    with Events(http, **{"Last-Event-ID": "1.0"}) as events:
        assert [events.next()[0], events.next()[0]] == ["1.1", "1.2"]
    with Events(http, "?after=1") as events:
        assert events.next()[0] == "1.2"


def test_a_head_request_of_changes_holds_no_connection(http: httpx.Client, filled: TwoVersions) -> None:
    assert http.head("/views/flights/changes").status_code == 200
    assert ok(http.get("/views/flights/rows"))["rows"]  # over the same connection


def test_changes_end_with_the_access_of_their_reader(filled: TwoVersions, tmp_path: Path) -> None:
    """A user who was removed from the file went on to get all rows, for as long as the connection lasted."""
    file = tmp_path / "users"
    file.write_text("ada:secret\nbob:secret\n")
    guard = Guard(Starlette(routes=routes(filled)), origins=None, users=Users(file), max_body_bytes=0)
    server = HttpServer(guard, listen_on("127.0.0.1", 0, name="views-test"), name="views-test")
    url = f"http://127.0.0.1:{server.port}"
    with (
        httpx.Client(base_url=url, auth=("ada", "secret"), timeout=30) as ada,
        httpx.Client(base_url=url, auth=("bob", "secret"), timeout=30) as bob,
        Events(ada) as hers,
        Events(bob) as his,
    ):
        assert (hers.next()[0], his.next()[0]) == ("1.1", "1.1")
        file.write_text("bob:secret\n")
        filled.followed[1].apply(2, {UA: {"n": 2}})
        assert his.next()[0] == "1.2"
        with pytest.raises(AssertionError, match="the stream ended"):
            hers.next()
    server.stop()


def test_a_large_cut_comes_in_parts_and_counts_as_one(http: httpx.Client, filled: TwoVersions) -> None:
    rows = {(f"k{number:05}", 1): {"n": number} for number in range(2_500)}
    filled.followed[1].apply(2, rows)
    with Events(http, "?after=1.1") as events:
        told = [events.next() for _ in range(3)]
    assert [name for name, _ in told] == [None, None, "1.2"]
    assert [event["part"] for _, event in told] == ["more", "more", "last"]
    changes = [(change["key"]["carrier"], 1) for _, event in told for change in event["changes"]]
    assert changes == list(rows)


def test_who_is_moved_or_was_away_too_long_begins_anew(http: httpx.Client, filled: TwoVersions) -> None:
    with Events(http, **{"Suiro-Caller": "old friend"}) as events:
        assert events.next()[1]["version"] == 1
        filled.new = "old"
        name, event = events.next()
        assert (name, event["version"], event["reset"]) == ("2.1", 2, True)
        filled.followed[2].apply(2, {UA: {"n": 22}})
        assert events.next()[0] == "2.2"
    with Events(http, **{"Last-Event-ID": "2.1"}) as events:  # of a version that is not the caller's any more
        name, event = events.next()
        assert (name, event["version"], event["reset"]) == ("1.1", 1, True)
    filled.served[1].store.prune(10**12)
    with Events(http, "?after=1.0") as events:
        assert events.next()[1]["reset"] is True


def test_a_subscription_to_one_version_ends_with_it(
    http: httpx.Client, filled: TwoVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suiro.views.serving.subscriptions.LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr("suiro.views.serving.subscriptions.KEEP_ALIVE_LOOKS", 2)
    with http.stream("GET", "/views/flights/changes?version=1", headers={"Suiro-Caller": "new"}) as stream:
        lines = stream.iter_lines()
        assert any('"reset":true' in line for line in lines)
        for _ in range(2):  # though its caller belongs to version 2
            assert ": nothing new" in next(line for line in lines if line)
        retired = filled.served.pop(1)
        assert any("no version 1" in line for line in islice(lines, 200))
        assert not any(lines)
    retired.store.close()


def test_durations_are_counted_within_a_twentieth() -> None:
    metrics = ReadMetrics()
    before = metrics.snapshot()
    assert (before.reads, before.p99_ms) == (0, None)
    for ms in range(1, 1_001):
        metrics.answered(float(ms))
    metrics.failed()
    found = metrics.snapshot() - before
    assert (found.reads, found.errors) == (1_001, 1)
    assert found.p99_ms == pytest.approx(990, rel=0.06)
    later = metrics.snapshot()
    metrics.answered(0.0)
    metrics.answered(10**9)
    assert dataclasses.replace(metrics.snapshot() - later, errors=5).reads == 7


def test_200_idle_subscribers_keep_nobody_from_a_look_up(
    http: httpx.Client, filled: TwoVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing comes they cost the store no look; when something does, and the store hangs, look-ups go on."""
    monkeypatch.setattr("suiro.views.serving.subscriptions.LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr("suiro.views.serving.subscriptions.KEEP_ALIVE_LOOKS", 1)
    store, go_on = filled.served[1].store, threading.Event()
    go_on.set()
    looks: list[int] = []
    changes = store.changes

    def counted(after: int, *arguments: Any) -> Any:
        looks.append(after)
        assert go_on.wait(60)
        return changes(after, *arguments)

    monkeypatch.setattr(store, "changes", counted)
    with ExitStack() as stack:
        streams = []
        for _ in range(200):
            connection = stack.enter_context(
                socket.create_connection((http.base_url.host, http.base_url.port), timeout=60)
            )
            connection.sendall(b"GET /views/flights/changes HTTP/1.1\r\nHost: localhost\r\n\r\n")
            streams.append(stack.enter_context(connection.makefile("rb")))
        for stream in streams:
            for text in (b'"reset":true', b": nothing new", b": nothing new"):
                assert any(text in line for line in stream)
        assert looks == [1] * 200
        go_on.clear()
        filled.followed[1].apply(2, {UA: {"n": 3}})
        wait_until(lambda: 2 not in looks and len(looks) > 200, what="subscribers to look")
        assert ok(http.get("/views/flights/rows/UA/1"))["cut"] == 2
        assert ok(http.get("/views/flights/rows/UA/1?as_of=cut:1"))["cut"] == 1
        assert ok(http.get("/views/flights/rows?limit=1"))["cut"] == 2
        go_on.set()
        for stream in streams:
            assert any(b'"cut":2' in line for line in stream)


def test_the_name_of_a_view_is_the_alias_of_its_versions_topics(http: httpx.Client, filled: TwoVersions) -> None:
    assert ok(http.get("/views/flights/topic")) == {"view": "flights", "version": 1, "topic": "flights.v1"}
    assert ok(http.get("/views/flights/topic", headers={"Suiro-Caller": "new1"}))["topic"] == "flights.v2"
    assert ok(http.get("/views/flights/topic?version=2"))["topic"] == "flights.v2"
    with Views(str(http.base_url), caller="new1") as views:
        assert views.topic("flights") == {"view": "flights", "version": 2, "topic": "flights.v2"}
    assert "no version" in refused(http.get("/views/nosuch/topic"), 404)
    assert "unknown parameter" in refused(http.get("/views/flights/topic?as_of=cut:1"), 400)


def test_pages_of_a_version_that_was_retired_begin_again(
    router: TwoVersions, http: httpx.Client, filled: TwoVersions
) -> None:
    page = ok(http.get("/views/flights/rows?limit=1", headers={"Suiro-Caller": "new1"}))
    router.served.pop(2).store.close()
    said = refused(http.get("/views/flights/rows", params={"after": page["next"]}), 404)
    assert "no version 2" in said
    assert "begin again at the first page" in said


@pytest.mark.parametrize(
    ("method", "path"),
    [("cut_at", "/views/flights/rows/UA/1?%61s_of=cut:1"), ("rows", "/views/flights/rows?%77here=n:gt:0")],
)
def test_a_long_look_is_known_however_it_is_spelled(
    http: httpx.Client, filled: TwoVersions, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    """On the thread that answers all readers, one who looks through cuts would hold up everybody else."""
    store, threads = filled.served[1].store, list[str]()
    asked = getattr(store, method)

    def noted(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.current_thread().name)
        return asked(*arguments, **named)

    monkeypatch.setattr(store, method, noted)
    ok(http.get(path))
    assert [name.partition("_")[0] for name in threads] == ["views-scan"]


def test_subscribers_that_come_at_once_are_not_more_than_there_may_be(
    http: httpx.Client, filled: TwoVersions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback gets an answer, too, also where the process may open few files."""
    monkeypatch.setattr("suiro.descriptors.for_connections", lambda: 8)
    store = filled.served[1].store
    newest, goes_on, statuses = store.newest, threading.Event(), list[int]()

    def late() -> Cut:
        assert goes_on.wait(30)
        return newest()

    monkeypatch.setattr(store, "newest", late)

    def subscribe() -> None:
        with http.stream("GET", "/views/flights/changes") as answer:
            statuses.append(answer.status_code)

    threads = [threading.Thread(target=subscribe, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(statuses) == 2, 20, "two of eight were refused")
    finally:
        goes_on.set()
    for thread in threads:
        thread.join(20)
    assert sorted(statuses) == [200] * 6 + [503] * 2
    statuses.clear()
    wait_until(lambda: subscribe() or statuses.pop() == 200, 20, "those who left have left room")
