"""What a running application tells of itself, without Spark: how nodes run, rows of stores, what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from support.waiting import wait_until

from suiro.clock import ManualClock
from suiro.errors import BrokenConnectionError, TransientError, UsageError
from suiro.streams import Consumed, JoinWindows, Materialized, StreamsBuilder, serdes
from suiro.streams.explanation import explain
from suiro.streams.operators.context import TaskSettings
from suiro.streams.queries.store_reader import Answer, ReadOnlyStore, StoreTooLargeError
from suiro.streams.topology.topology import Topology
from suiro.streams_spark import ApplicationServer, status
from suiro.streams_spark.reports import Counts, RunCounts, TaskReport
from suiro.streams_spark.serving import ROWS_AT_ONCE, ROWS_WAITING
from suiro.streams_spark.status import STORE_BYTES_MAX, STORE_COPIES, TOO_LARGE_KEPT_S, ApplicationStatus

PATIENCE_S = 60


def topology(*stores: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", Consumed.with_(serdes.string, serdes.string))
    for name in stores or ("counts",):
        words.group_by_key().count(materialized=Materialized.as_(name))
    return builder.build()


class Copy:
    """A store's copy that waits for `gate`, and then fails or answers."""

    def __init__(
        self, *rows: tuple[Any, Any], gate: threading.Event | None = None, failure: Exception | None = None
    ) -> None:
        self._rows = rows
        self._gate = gate
        self._failure = failure
        self.is_asked = threading.Event()
        self.is_closed = False

    def select(self, pick: Callable[[Iterator[Any]], Any]) -> Answer[Any]:
        self.is_asked.set()
        if self._gate is not None:
            assert self._gate.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        return Answer(pick(iter(self._rows)), {0: len(self._rows)})

    def close(self) -> None:
        self.is_closed = True


class Query:
    """Of Spark, which has told nothing yet."""

    id, runId, name, lastProgress = "id", "run", "app", None
    recentProgress: tuple[()] = ()


class Streams:
    """What `KafkaStreams` is to its page."""

    application_id = "app"
    exception = None
    dead_letter_topics: tuple[str, ...] = ()
    dropped_records: Mapping[str, int] = MappingProxyType({})
    rows_at_nodes: Mapping[str, int] = MappingProxyType({})
    rows_of_micro_batches: Mapping[int, Mapping[str, int]] = MappingProxyType({})
    retries_of_micro_batches: Mapping[int, int] = MappingProxyType({})
    task_reports: tuple[TaskReport, ...] = ()
    cluster = ("127.0.0.1:1", {})
    query = Query()

    def __init__(
        self,
        topology: Topology,
        open_store: Callable[[str], Any] = lambda name: Copy(("k", 1)),
        *,
        emit: str = "micro-batch",
        was_started: bool = True,
    ) -> None:
        self.topology = topology
        self.task_settings = TaskSettings(coalesces=emit != "every")
        self.was_started = was_started
        self.state = "RUNNING" if was_started else "NOT_RUNNING"
        self.asked_bytes: set[int] = set()
        self._open_store = open_store

    def open_store(self, name: str, *, max_bytes: int) -> Any:
        self.asked_bytes.add(max_bytes)
        return self._open_store(name)


def status_of(*arguments: Any, **more: Any) -> ApplicationStatus:
    return ApplicationStatus(Streams(*arguments, **more))  # type: ignore[arg-type]


@contextmanager
def served(*arguments: Any, **more: Any) -> Iterator[httpx.Client]:
    server = ApplicationServer(Streams(*arguments, **more), "127.0.0.1", 0)  # type: ignore[arg-type]
    try:
        with httpx.Client(base_url=f"{server.url}/api/v1", timeout=PATIENCE_S) as http:
            yield http
    finally:
        server.stop()


# -- how it stands -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("emit", "engine"), [("micro-batch", "columns"), ("every", "block")])
def test_how_records_go_through_nodes_is_what_explain_says(emit: str, engine: str) -> None:
    made = topology()
    nodes = status_of(made, emit=emit).application()["graph"]["nodes"]
    assert {one["engine"] for one in nodes} == {engine}
    assert ("on columns\n" in explain(made, emit=emit)) == (engine == "columns")
    for one in nodes:
        assert one["why"] in explain(made, emit=emit)
        assert bool(one["why"]) == (engine != "columns")


def test_a_node_has_all_of_its_stores() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(name, Consumed.with_(serdes.string, serdes.string)) for name in ("left", "right"))
    left.join(right, lambda one, other: one + other, JoinWindows.of(before="1 minute", after=0)).to("out")
    made = builder.build()
    nodes = status_of(made).application()["graph"]["nodes"]
    assert {store for one in nodes for store in one["stores"]} == {one.name for one in made.stores}
    assert len(made.stores) > 1
    for one in nodes:
        assert one["store"] == (one["stores"][0] if one["stores"] else None)


@pytest.mark.parametrize("was_started", [True, False])
def test_lag_is_unknown_until_spark_tells_it(was_started: bool) -> None:
    told = status_of(topology(), was_started=was_started).application()
    assert (told["lag"], told["batches"]) == (None, [])


# -- rows ----------------------------------------------------------------------------------------------------


def test_pages_of_rows_end() -> None:
    page = status_of(topology(), lambda name: Copy(*((f"k{n}", n) for n in range(7))))
    found, first, pages = [], 0, 0
    while first is not None:
        answer = page.rows("counts", first=first, limit=3)
        found += [row["key"] for row in answer["rows"]]
        first, pages = answer["next"], pages + 1
        assert pages < 9
    assert found == [f"k{n}" for n in range(7)]
    with pytest.raises(UsageError, match="limit=0: expected a number from 1 on"):
        page.rows("counts", limit=0)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        pytest.param(("\ud800", 1), ("\\ud800", "1"), id="half a pair as the key"),
        pytest.param(("k", {"a": "\udfff"}), ("k", '{"a": "\\udfff"}'), id="half a pair in the value"),
        pytest.param(("k", nested(200_000)), ("k", "(list, nested too deeply to be shown)"), id="nested"),
        pytest.param((b"\xff\x00", 2**70), ("ff00", str(2**70)), id="bytes and a long number"),
    ],
)
def test_rows_of_any_value_are_shown(row: tuple[Any, Any], shown: tuple[str, str]) -> None:
    with served(topology(), lambda name: Copy(row)) as http:
        answer = http.get("/application/stores/counts")
    assert answer.status_code == 200, answer.text
    assert [(one["key"], one["value"]) for one in answer.json()["rows"]] == [shown]


@pytest.mark.parametrize(
    ("method", "path", "code", "said"),
    [
        ("GET", "/application/stores/nothing", 404, "no store 'nothing'; it has counts"),
        ("GET", "/application/stores/counts?key=a", 400, "'key' is no parameter"),
        ("GET", "/application/stores/counts?limit=0", 400, "limit=0"),
        ("GET", "/application/stores/counts?first=-1", 400, "first='-1'"),
        ("GET", "/nothing", 404, "Not Found"),
        ("POST", "/application", 405, "Method Not Allowed"),
    ],
)
def test_every_refusal_is_json(method: str, path: str, code: int, said: str) -> None:
    with served(topology()) as http:
        answer = http.request(method, path)
    assert (answer.status_code, answer.json()["error_code"]) == (code, code)
    assert said in answer.json()["message"]


# -- copies --------------------------------------------------------------------------------------------------


def test_one_store_after_another_can_be_looked_at() -> None:
    names = [f"s{n}" for n in range(STORE_COPIES + 2)]
    opened: dict[str, Copy] = {}
    page = status_of(topology(*names), lambda name: opened.setdefault(name, Copy(("k", name))))
    for name in names:
        assert page.rows(name)["rows"][0]["value"] == name
    assert len([one for one in opened.values() if not one.is_closed]) == STORE_COPIES
    page.stop()
    assert all(one.is_closed for one in opened.values())


def test_a_copy_is_not_closed_under_a_request() -> None:
    gate = threading.Event()
    names = [f"s{n}" for n in range(STORE_COPIES + 1)]
    opened: dict[str, Copy] = {}
    page = status_of(topology(*names), lambda name: opened.setdefault(name, Copy(("k", 1), gate=gate)))
    asking = [threading.Thread(target=page.rows, args=(name,)) for name in names[:-1]]
    for thread in asking:
        thread.start()
    wait_until(lambda: len(opened) == STORE_COPIES, PATIENCE_S, "all copies to be open")
    for one in list(opened.values()):
        assert one.is_asked.wait(PATIENCE_S)
    with pytest.raises(TransientError, match="try again"):
        page.rows(names[-1])
    assert not any(one.is_closed for one in opened.values())
    gate.set()
    for thread in asking:
        thread.join()
    assert page.rows(names[-1])["rows"]


def test_a_copy_that_failed_is_opened_again() -> None:
    copies = [Copy(failure=UsageError("the copy of a store stopped")), Copy(("k", 1))]
    left = iter(copies)
    page = status_of(topology(), lambda name: next(left))
    with pytest.raises(UsageError, match="stopped"):
        page.rows("counts")
    assert copies[0].is_closed
    assert page.rows("counts")["rows"]


def test_a_copy_that_is_late_goes_on() -> None:
    late = Copy(failure=BrokenConnectionError("no broker"))
    page = status_of(topology(), lambda name: late)
    for _ in range(2):
        with pytest.raises(TransientError):
            page.rows("counts")
    assert not late.is_closed


def test_how_it_stands_is_told_while_a_copy_is_opened() -> None:
    gate, begun = threading.Event(), threading.Event()

    def slow(name: str) -> Copy:
        begun.set()
        assert gate.wait(PATIENCE_S)
        return Copy(("k", 1))

    page = status_of(topology(), slow)
    asking = threading.Thread(target=page.rows, args=("counts",))
    telling = threading.Thread(target=page.application)
    asking.start()
    assert begun.wait(PATIENCE_S)
    telling.start()
    telling.join(PATIENCE_S)
    was_told = not telling.is_alive()
    gate.set()
    asking.join()
    telling.join()
    assert was_told


def test_how_it_stands_is_told_while_many_wait_for_rows() -> None:
    gate = threading.Event()
    copy = Copy(("k", 1), gate=gate)
    codes: list[int] = []
    with served(topology(), lambda name: copy) as http:
        asking = [
            threading.Thread(target=lambda: codes.append(http.get("/application/stores/counts").status_code))
            for _ in range(ROWS_AT_ONCE + ROWS_WAITING + 3)
        ]
        for thread in asking:
            thread.start()
        wait_until(lambda: codes.count(503) == 3, PATIENCE_S, "those beyond the limit to be refused")
        assert http.get("/application").status_code == 200
        gate.set()
        for thread in asking:
            thread.join()
    assert codes.count(200) == ROWS_AT_ONCE + ROWS_WAITING


def test_a_store_that_is_too_large_is_not_read_at_each_request() -> None:
    opened: list[str] = []
    clock = ManualClock()

    def too_large(name: str) -> Copy:
        opened.append(name)
        return Copy(failure=StoreTooLargeError("the rows of store 'counts' take more than 64 bytes"))

    streams = Streams(topology(), too_large)
    page = ApplicationStatus(streams, clock=clock)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(StoreTooLargeError, match="more than 64 bytes"):
            page.rows("counts")
    assert opened == ["counts"]
    assert streams.asked_bytes == {STORE_BYTES_MAX}
    clock.advance(int(TOO_LARGE_KEPT_S * 1_000))
    with pytest.raises(StoreTooLargeError):
        page.rows("counts")
    assert len(opened) == 2


def test_whoever_waits_for_a_copy_is_told_that_it_is_closed() -> None:
    class Away(ReadOnlyStore):
        def _follow(self) -> None:
            self._stopping.wait(PATIENCE_S)

    copy = Away(topology(), "counts", application_id="app", bootstrap_servers="127.0.0.1:1")
    told: list[str] = []

    def ask() -> None:
        try:
            copy.all()
        except UsageError as error:
            told.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    copy.close()
    asking.join(PATIENCE_S)
    assert told == ["the copy of store 'counts' was closed before it could answer"]


def test_the_limits_are_those_that_are_told() -> None:
    many = [(f"k{n:05}", n) for n in range(status.ROWS_MAX + 1)]
    answer = status_of(topology(), lambda name: Copy(*many)).rows("counts", limit=10**6)
    assert (len(answer["rows"]), answer["next"]) == (status.ROWS_MAX, status.ROWS_MAX)


# -- what tasks tell -----------------------------------------------------------------------------------------------


def report(partition: int, condition: str = "running", **more: Any) -> TaskReport:
    given = {"stores": {"counts": (partition + 1, 100)}, "buffered": {}, **more}
    return TaskReport(sub_topology=1, partition=partition, condition=condition, **given)


def test_sizes_of_stores_are_those_of_all_tasks_that_have_run() -> None:
    streams = Streams(topology("counts", "sums"))
    streams.task_reports = (report(0), report(1))
    stores = ApplicationStatus(streams).application()["stores"]  # type: ignore[arg-type]
    sizes = [(one["name"], one["rows"], one["bytes"], one["tasks"]) for one in stores]
    assert sizes == [("counts", 3, 200, 2), ("sums", None, None, 0)]


def test_a_global_table_is_counted_once() -> None:
    builder = StreamsBuilder()
    table = builder.global_table(
        "table", Consumed.with_(serdes.string, serdes.string), materialized=Materialized.as_("names")
    )
    words = builder.stream("in", Consumed.with_(serdes.string, serdes.string))
    words.join(table, lambda key, value: key, lambda one, other: other).to("out")
    streams = Streams(builder.build())
    streams.task_reports = tuple(report(n, stores={"names": (7, 70)}) for n in range(3))
    (store,) = ApplicationStatus(streams).application()["stores"]  # type: ignore[arg-type]
    assert (store["rows"], store["bytes"], store["tasks"]) == (7, 70, 3)


def test_records_buffered_back_say_why() -> None:
    streams = Streams(topology())
    streams.task_reports = (report(0), report(1, "idling", buffered={"in": 5}))
    (buffered,) = ApplicationStatus(streams).application()["held"]  # type: ignore[arg-type]
    assert (buffered["sub_topology"], buffered["partition"], buffered["node"], buffered["records"]) == (
        1,
        1,
        "in",
        5,
    )
    assert (buffered["condition"], "more records in the log" in buffered["why"]) == ("idling", True)


def test_a_micro_batch_that_was_tried_again_says_so() -> None:
    class Told(Query):
        recentProgress = tuple(
            {"batchId": n, "timestamp": "2013-07-01T00:00:00.000Z", "durationMs": {"triggerExecution": 5}}
            for n in (6, 7)
        )

    streams = Streams(topology())
    source = streams.topology.sub_topologies[0].inputs[0].name
    counts = RunCounts()
    for batch, retries in ((6, 0), (7, 2)):
        counts.add(batch, [Counts("rows", {source: 3})], retries=retries)
    streams.query = Told()
    streams.rows_of_micro_batches = {number: rows for number, rows, _ in counts.last}
    streams.retries_of_micro_batches = {number: retries for number, _, retries in counts.last}
    batches = ApplicationStatus(streams).application()["batches"]  # type: ignore[arg-type]
    assert [(one["batch"], one["rows"], one["retries"]) for one in batches] == [(6, 3, 0), (7, 3, 2)]
