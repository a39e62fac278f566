"""Operators with `async def` functions: what they give, how many calls are under way, what becomes of failures."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.block_runs import Fed, Ran, run_both
from support.kafka_streams_topologies import Forwarding
from support.waiting import wait_until

from suiro.errors import TransientError
from suiro.streams import StreamsBuilder, TopologyError, explain, serdes
from suiro.streams.call_loop import Calls
from suiro.streams.errors import ProcessingError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record
from suiro.streams.topology.nodes import AsyncCall
from suiro.streams.topology.topology import Topology
from suiro.testing import TopologyTestDriver

DEADLINE_S = 30


def stream() -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    return builder, builder.stream("in", key=serdes.string, value=serdes.json)


def given(operator: str, function: Any, **options: Any) -> Topology:
    builder, records = stream()
    getattr(records, operator)(function, name="call", **options).to("out", value=serdes.json)
    return builder.build()


def ran(topology: Topology, records: list[tuple[str | None, Any]], policy: str = "fail") -> Ran:
    (sub,) = topology.sub_topologies
    fed = [Fed("KSTREAM-SOURCE-0000000000", Record(key, value, 0)) for key, value in records]
    (found,) = run_both(topology, sub, [[fed]], TaskSettings(on_processing_error=policy), only=True)
    return found


def values(found: Ran, topic: str = "out") -> list[bytes]:
    return [row[2] for row in found.left.get(topic, [])]


class Service:
    """Counts calls, and answers when enough of them are there at once."""

    def __init__(self, at_once: int = 1, fails: int = 0, error: Callable[[], Exception] = OSError) -> None:
        self.at_once, self.fails, self.error = at_once, fails, error
        self.under_way = self.most = self.cancelled = 0
        self.seen: list[Any] = []
        self._full = asyncio.Event()

    async def call(self, value: Any) -> Any:
        self.seen.append(value)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self.fails:
                self.fails -= 1
                raise self.error()
            if self.under_way >= self.at_once:
                self._full.set()
            await self._full.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        return value


# -- what they give ---------------------------------------------------------------------------------------


async def doubled(value: Any) -> Any:
    return value * 2


async def is_even(key: Any, value: Any) -> bool:
    return bool(value % 2 == 0)


async def turned(key: Any, value: Any) -> tuple[Any, Any]:
    return str(value), key


async def repeated(value: Any) -> list[Any]:
    return [value] * value


seen: list[Any] = []


async def noted(key: Any, value: Any) -> None:
    seen.append((key, value))


@pytest.mark.parametrize(
    ("operator", "function", "expected"),
    [
        ("map_values_async", doubled, [("a", 2), ("b", 4), ("a", 0)]),
        ("map_async", turned, [("1", "a"), ("2", "b"), ("0", "a")]),
        ("filter_async", is_even, [("b", 2), ("a", 0)]),
        ("filter_not_async", is_even, [("a", 1)]),
        ("flat_map_values_async", repeated, [("a", 1), ("b", 2), ("b", 2)]),
        ("peek_async", noted, [("a", 1), ("b", 2), ("a", 0)]),
    ],
)
def test_the_results_go_on_as_those_of_the_plain_operator(operator: str, function: Any, expected: list[Any]) -> None:
    seen.clear()
    with TopologyTestDriver(given(operator, function)) as driver:
        topic = driver.create_input_topic("in")
        for key, value in (("a", 1), ("b", 2), ("a", 0)):
            topic.pipe_input(key, value)
        assert driver.create_output_topic("out").read_key_values_to_list() == expected
    if operator == "peek_async":
        assert seen == expected


def test_the_driver_works_where_an_event_loop_runs_already() -> None:
    async def test() -> list[Any]:
        with TopologyTestDriver(given("map_values_async", doubled)) as driver:
            driver.create_input_topic("in").pipe_input("a", 4)
            return driver.create_output_topic("out").read_key_values_to_list()

    assert asyncio.run(test()) == [("a", 8)]


def test_a_topology_in_a_function_of_a_topology_does_not_wait_for_itself() -> None:
    async def nested(value: Any) -> Any:
        return values(ran(given("map_values_async", doubled), [("a", value)]))

    with pytest.raises(ProcessingError, match=r"would wait for itself.*asyncio.to_thread"):
        ran(given("map_values_async", nested), [("a", 1)])

    async def in_a_thread(value: Any) -> Any:
        return (await asyncio.to_thread(nested_in_thread, value))[0].decode()

    def nested_in_thread(value: Any) -> Any:
        return values(ran(given("map_values", lambda value: value), [("a", value)]))

    assert values(ran(given("map_values_async", in_a_thread), [("a", 1)])) == [b'"1"']


def test_a_client_may_be_kept_between_calls() -> None:
    """What belongs to one event loop: it is the same for all blocks, and tasks."""
    loops = []

    async def call(value: Any) -> Any:
        loops.append(asyncio.get_running_loop())
        return value

    for _ in range(2):
        ran(given("map_values_async", call), [("a", 1), ("b", 2)])
    assert len(loops) == 4
    assert len(set(map(id, loops))) == 1


# -- order and number -------------------------------------------------------------------------------------


def test_as_many_calls_are_under_way_as_allowed_and_results_keep_their_order() -> None:
    service = Service(at_once=5)
    topology = given("map_values_async", service.call, concurrency=5)
    found = ran(topology, [(f"k{n}", n) for n in range(50)])
    assert values(found) == [str(n).encode() for n in range(50)]
    assert service.most == 5


def test_results_are_in_the_order_of_the_records_whatever_is_done_first() -> None:
    done: list[int] = []
    released = asyncio.Event()

    async def last_first(value: int) -> int:
        if value == 3:
            released.set()
        else:
            await released.wait()
            for _ in range(10 - 3 * value):
                await asyncio.sleep(0)
        done.append(value)
        return value

    found = ran(given("map_values_async", last_first), [(f"k{n}", n) for n in range(4)])
    assert done == [3, 2, 1, 0]
    assert values(found) == [b"0", b"1", b"2", b"3"]


def test_calls_of_one_key_run_one_after_the_other() -> None:
    service = Service(at_once=2)
    records = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5)]
    found = ran(given("map_values_async", service.call), records)
    assert values(found) == [b"1", b"2", b"3", b"4", b"5"]
    assert service.most == 2
    assert [value for value in service.seen if value in (1, 2, 4)] == [1, 2, 4]
    assert [value for value in service.seen if value in (3, 5)] == [3, 5]


@pytest.mark.parametrize("records", [[("a", n) for n in range(5)], [(None, n) for n in range(5)]])
def test_calls_of_one_key_may_overlap_and_those_without_a_key_always_do(records: list[Any]) -> None:
    service = Service(at_once=5)
    order = "none" if records[0][0] else "key"
    ran(given("map_values_async", service.call, order=order), records)
    assert service.most == 5


def test_keys_that_cannot_be_hashed_have_an_order_too() -> None:
    service = Service()
    operator: Any = given("map_values_async", service.call).node("call").operator
    keys = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}]
    assert Calls().results("call", operator, keys, [1, 2, 3], ends_at_failure=False) == [1, 2, 3]
    assert service.most == 1


# -- failures ---------------------------------------------------------------------------------------------


def test_a_call_is_made_again_as_often_as_said() -> None:
    service = Service(fails=3)
    found = ran(given("map_values_async", service.call, retries=3, backoff=1), [("a", 7)])
    assert values(found) == [b"7"]
    assert service.seen == [7] * 4


def test_after_the_last_attempt_the_record_is_to_blame() -> None:
    service = Service(fails=3)

    async def call(value: Any) -> Any:
        return await service.call(value) if value == 7 else value

    topology = given("map_values_async", call, retries=2, backoff=1)
    with pytest.raises(ProcessingError, match=r"operator call failed on a record of from-0 offset 1.*OSError"):
        ran(topology, [("b", 1), ("a", 7), ("c", 2)])
    assert service.seen == [7] * 3


@pytest.mark.parametrize(
    ("error", "retry_on", "attempts"),
    [
        (OSError, None, 3),
        (TransientError, None, 3),
        (ValueError, None, 1),
        (KeyError, None, 1),
        (ValueError, (OSError, ValueError), 3),
        (KeyError, LookupError, 3),
        (OSError, (), 1),
    ],
)
def test_what_is_tried_again(error: Any, retry_on: Any, attempts: int) -> None:
    service = Service(fails=3, error=partial(error, "no"))
    topology = given("map_values_async", service.call, retries=2, backoff=0, retry_on=retry_on)
    found = ran(topology, [("a", 7)], "skip")
    assert len(service.seen) == attempts
    assert found.dropped == {"processing error": 1}


def test_each_attempt_has_its_time() -> None:
    service = Service(at_once=2)
    topology = given("map_values_async", service.call, timeout=5, retries=1, backoff=1)
    with pytest.raises(ProcessingError, match="TimeoutError: no answer within 5 ms"):
        ran(topology, [("a", 7)])
    assert service.cancelled == len(service.seen) == 2


@pytest.mark.parametrize("policy", ["skip", "dead-letter:letters"])
def test_a_record_that_fails_takes_no_other_with_it(policy: str) -> None:
    async def call(value: int) -> int:
        if value in (2, 3):
            raise ValueError(f"no {value}")
        return value

    found = ran(given("map_values_async", call), [("a", 1), ("a", 2), ("b", 3), ("a", 4)], policy)
    assert values(found) == [b"1", b"4"]
    assert found.dropped == {"processing error": 2}
    letters = found.left.get("letters", [])
    told = [(row[1], row[2], row[4][0]) for row in letters]
    assert told == ([("'a'", "2", "(0, 1)"), ("'b'", "3", "(0, 2)")] if policy != "skip" else [])


def test_the_first_record_that_fails_is_to_blame_and_calls_behind_it_are_cancelled() -> None:
    """Whichever failed first: the answer is that of one record after the other."""
    later = Service(at_once=100)
    failed = asyncio.Event()

    async def call(value: int) -> int:
        if value == 1:
            await failed.wait()
            raise ValueError("the first")
        if value == 2:
            failed.set()
            raise ValueError("the second")
        await later.call(value)
        return value

    with pytest.raises(ProcessingError, match=r"offset 0.*the first"):
        ran(given("map_values_async", call), [(f"k{n}", n) for n in (1, 2, 3, 4)])
    assert later.under_way == 0
    assert later.cancelled == len(later.seen)


def test_a_function_that_is_cancelled_from_inside_has_failed() -> None:
    async def call(value: int) -> int:
        raise asyncio.CancelledError

    with pytest.raises(ProcessingError, match="was cancelled by something that it awaited"):
        ran(given("map_values_async", call, retries=0), [("a", 1)])


def test_a_function_that_ends_the_process_does_not_end_the_loop() -> None:
    async def call(value: int) -> int:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        ran(given("map_values_async", call), [("a", 1)])
    assert values(ran(given("map_values_async", doubled), [("a", 1)])) == [b"2"]


def test_calls_that_nobody_waits_for_any_more_are_cancelled() -> None:
    service = Service(at_once=100)
    operator: Any = given("map_values_async", service.call).node("call").operator
    calls = Calls()

    def stop() -> None:
        wait_until(lambda: service.under_way == 3, DEADLINE_S, "the calls begin")
        calls.give_up()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(TransientError, match="were given up"):
        calls.results("call", operator, ["a", "b", "c"], [1, 2, 3], ends_at_failure=True)
    stopping.join()
    assert (service.under_way, service.cancelled) == (0, 3)


def test_a_function_that_blocks_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def sleeps_without_awaiting(value: int) -> int:
        began = time.perf_counter()
        while time.perf_counter() - began < 1:
            pass
        return value

    with caplog.at_level(logging.WARNING):
        ran(given("map_values_async", sleeps_without_awaiting), [("a", 1)])
    (told,) = [each.getMessage() for each in caplog.records]
    assert "sleeps_without_awaiting of call held the event loop for" in told
    assert f", at {__file__}:" in told


# -- what is refused --------------------------------------------------------------------------------------


class AsyncObject:
    async def __call__(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("function", [doubled, partial(doubled), AsyncObject()])
def test_an_async_function_for_a_plain_operator_is_refused(function: Any) -> None:
    _, records = stream()
    with pytest.raises(TopologyError, match=r"the mapper of map_values is an async function.*use map_values_async"):
        records.map_values(function)
    with pytest.raises(TopologyError, match=r"the predicate of filter is an async function.*use filter_async"):
        records.filter(function)
    with pytest.raises(TopologyError, match=r"the selector of group_by is an async function.*above"):
        records.group_by(function)
    with pytest.raises(TopologyError, match=r"the action of peek is an async function.*use peek_async"):
        records.peek(function)
    with pytest.raises(TopologyError, match="the reducer of reduce is an async function"):
        records.group_by_key().reduce(function)
    with pytest.raises(TopologyError, match=r"the topic of to.*is an async function"):
        records.to(function)


@pytest.mark.parametrize("function", [lambda value: doubled(value), len, 7, None])
def test_a_plain_function_for_an_async_operator_is_refused(function: Any) -> None:
    _, records = stream()
    with pytest.raises(TopologyError, match=r"not an async function.*async def.*use map_values for a plain"):
        records.map_values_async(function)


def test_an_async_processor_is_refused() -> None:
    class Waits:
        def init(self, context: Any) -> None: ...

        async def process(self, record: Record) -> None: ...

    _, records = stream()
    with pytest.raises(TopologyError, match=r"process of .*Waits is an async function"):
        records.process(Waits)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"concurrency": 0}, "concurrency of map_values_async is 0; give a number from 1 to 10000"),
        ({"concurrency": True}, "concurrency of map_values_async is True"),
        ({"retries": -1}, "retries of map_values_async is -1; give a number from 0 to 1000"),
        ({"timeout": 0}, "the timeout of map_values_async is 0"),
        ({"order": "offset"}, 'give "key" or "none"'),
        ({"retry_on": "OSError"}, "give an exception class"),
        ({"retry_on": BaseException}, "give an exception class"),
    ],
)
def test_settings_out_of_their_range_are_refused(options: dict[str, Any], said: str) -> None:
    _, records = stream()
    with pytest.raises(TopologyError, match=said):
        records.map_values_async(doubled, **options)


def test_explain_and_describe_name_the_operator() -> None:
    topology = given("map_values_async", doubled, concurrency=20)
    assert "call: values, up to 20 calls at a time, those of one key one after the other" in explain(topology)
    assert "Processor: call (stores: [])" in topology.describe()
    builder, records = stream()
    below = records.process_values(Forwarding).map_values_async(doubled)
    below.to("out")
    assert "one call at a time; put it above them, or repartition() between" in explain(builder.build())


def test_generated_names_say_what_the_operator_is() -> None:
    _, records = stream()
    found = records.map_values_async(doubled)
    assert found.node == "KSTREAM-MAPVALUES-ASYNC-0000000001"
    operator = found.graph.nodes[found.node].operator
    assert isinstance(operator, AsyncCall)
    assert operator.timeout_ms == 30_000
