"""Foreign-key joins: what is asked, answered and dropped as stale, and what goes between the steps."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from suiro.errors import RegistryUnavailableError
from suiro.streams import StreamsBuilder, serdes
from suiro.streams.errors import ProcessingError
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.operators.foreign_key_join import (
    Instruction,
    Response,
    ResponseSerde,
    Subscription,
    SubscriptionSerde,
    response_partition,
)
from suiro.streams.records import Origin, Record
from suiro.streams.serdes import DeserializationError
from suiro.streams.stores import OrderedMap
from suiro.streams.task import TIMES, Task
from suiro.streams.topology.nodes import JoinType, Node, TableFilter
from suiro.testing import TopologyTestDriver
from tests.support.join_topologies import Plan, Run


def _owner(value: Any) -> Any:
    return value.get("of")


def _joined(left: Any, right: Any) -> str:
    return f"{left['n']}+{right}"


def _plan(join: JoinType) -> Plan:
    plan = Plan()
    left, right = plan.table("L"), plan.table("R")
    plan.to(
        "out",
        plan.foreign_key(join, left, right, _owner, _joined),
        table=True,
    )
    return plan


def _run(join: JoinType) -> Run:
    return Run(_plan(join).topology())


def test_a_result_has_the_later_timestamp_of_both_rows() -> None:
    run = _run("inner")
    run.send("R", "x", "X", 5)
    assert run.send("L", 1, {"of": "x", "n": 1}, 3) == [(1, "1+X", 5)]
    assert run.send("L", 1, {"of": "x", "n": 2}, 9) == [(1, "2+X", 9)]
    assert run.send("R", "x", "XX", 7) == [(1, "2+XX", 7)]


def test_several_subscribers_are_answered_in_the_order_of_their_keys() -> None:
    run = _run("inner")
    for key in ("b", "c", "a"):
        run.send("L", key, {"of": 1, "n": key}, 0)
    run.send("L", "other", {"of": 12, "n": 0}, 0)  # its bytes begin with those of 1
    assert run.send("R", 1, "X", 1) == [("a", "a+X", 1), ("b", "b+X", 1), ("c", "c+X", 1)]


def test_an_inner_join_takes_back_also_what_it_never_gave() -> None:
    run = _run("inner")
    assert run.send("L", 1, {"of": "x", "n": 1}, 0) == []
    assert run.send("L", 1, {"of": "x", "n": 2}, 1) == []
    assert run.send("L", 1, {"of": "y", "n": 3}, 2) == [(1, None, 2)]
    assert run.send("R", "y", None, 3) == [(1, None, 3)]
    assert run.send("L", 1, None, 4) == [(1, None, 4)]
    assert run.send("L", 1, None, 5) == []
    assert run.send("R", "y", "Y", 6) == []


def test_a_left_join_always_has_a_row() -> None:
    run = _run("left")
    assert run.send("L", 1, {"of": "x", "n": 1}, 0) == [(1, "1+None", 0)]
    assert run.send("R", "x", None, 1) == [(1, "1+None", 1)]
    assert run.send("R", "x", "X", 2) == [(1, "1+X", 2)]
    assert run.send("L", 1, {"n": 2}, 3) == [(1, "2+None", 3)]
    assert run.send("R", "x", "XX", 4) == []
    assert run.send("L", 1, None, 5) == [(1, None, 5)]
    assert run.send("L", 1, None, 6) == []


def test_an_inner_join_drops_rows_that_name_no_key() -> None:
    run = _run("inner")
    run.send("R", "x", "X", 0)
    assert run.send("L", 1, {"n": 1}, 1) == []
    assert run.dropped == 1
    run.send("L", 1, {"of": "x", "n": 2}, 2)
    assert run.send("L", 1, {"n": 3}, 3) == [(1, None, 3)]
    assert run.send("R", "x", "XX", 4) == []
    assert run.send("L", None, {"of": "x"}, 5) == []
    assert run.send("R", None, "?", 6) == []


def test_the_store_has_the_results() -> None:
    run = _run("inner")
    run.send("R", "x", "X", 0)
    run.send("L", 1, {"of": "x", "n": 1}, 1)
    run.send("L", 2, {"of": "x", "n": 2}, 1)
    run.send("L", 2, None, 2)
    assert dict(run.store("join-rows").all()) == {1: "1+X"}
    assert len(run.maps()["subscriptions"]) == 1


@pytest.mark.parametrize("join", ["join", "left_join"])
def test_a_row_that_fails_leaves_nothing_of_the_row_before_it(join: str) -> None:
    """Nor does it take the next one along."""
    builder = StreamsBuilder()
    orders = builder.table("orders", key=serdes.string, value=serdes.json)
    names = builder.table("names", key=serdes.string, value=serdes.string)
    joined = getattr(orders, join)(
        names, lambda order, name: f"{order['n']} {name}", foreign_key=lambda order: order["of"]
    )
    joined.to_stream().to("out")
    with TopologyTestDriver(builder.build(), on_processing_error="skip") as driver:

        def sent(topic: str, key: str, value: Any) -> list[Any]:
            driver.create_input_topic(topic).pipe_input(key, value)
            return driver.create_output_topic("out").read_key_values_to_list()

        sent("names", "x", "X")
        sent("names", "y", "Y")
        assert sent("orders", "k", {"n": 1, "of": "x"}) == [("k", "1 X")]
        assert sent("orders", "k", {"n": 2}) == [("k", None)]
        assert sent("names", "x", "XX") == []
        assert sent("orders", "k", {"n": 3, "of": "y"}) == [("k", "3 Y")]
        assert sent("orders", "k", {"n": 4}) == [("k", None)]
        assert sent("orders", "k", None) == ([] if join == "join" else [("k", None)])
        assert sent("names", "y", "YY") == []
        assert driver.dropped_records_total == 2


class OnceAway:
    """A serde whose registry is away for one request, once it `fails`."""

    name = "once away"
    fails = False

    def serialize(self, topic: str, value: str) -> bytes:
        if self.fails:
            self.fails = False
            raise RegistryUnavailableError("the registry does not answer", 0, 0)
        return value.encode()

    def deserialize(self, topic: str, data: bytes) -> str:
        return data.decode()


def test_a_registry_that_is_away_leaves_no_subscription_behind() -> None:
    """Nothing is wrong with the row before, so it is not as if it had been left out."""
    builder = StreamsBuilder()
    serde = OnceAway()
    orders = builder.table("orders", key=serdes.string, value=serdes.json)
    names = builder.table("names", key=serde, value=serdes.string)
    joined = orders.join(names, lambda order, name: [order["n"], name], foreign_key=lambda order: order["of"])
    joined.to_stream().to("out")
    with TopologyTestDriver(builder.build(), on_processing_error="skip") as driver:
        sent = driver.create_input_topic("orders").pipe_input
        sent("k", {"n": 1, "of": "x"})
        serde.fails = True
        with pytest.raises(ProcessingError, match="the registry does not answer"):
            sent("k", {"n": 2, "of": "y"})


def test_updates_of_versioned_tables_that_are_not_the_latest_are_left_out() -> None:
    plan = Plan()
    left, right = plan.table("L", history=100), plan.table("R", history=100)
    plan.to("out", plan.foreign_key("left", left, right, _owner, _joined), table=True)
    run = Run(plan.topology())
    run.send("R", "x", "X", 10)
    assert run.send("L", 1, {"of": "x", "n": 1}, 10) == [(1, "1+X", 10)]
    assert run.send("R", "x", "older", 5) == []
    assert run.send("L", 1, {"of": "y", "n": 2}, 5) == []
    assert run.send("R", "x", "XX", 11) == [(1, "1+XX", 11)]
    assert run.dropped == 2


def test_a_filter_with_a_store_of_its_own_ends_the_versions() -> None:
    plan = Plan()
    table = plan.table("L", history=100)
    left = plan.add(
        "kept",
        TableFilter(predicate=lambda key, value: True, store=plan.store("kept-rows", named_by_user=True)),
        table,
    )
    plan.to("out", plan.foreign_key("left", left, plan.table("R"), _owner, _joined), table=True)
    run = Run(plan.topology())
    run.send("R", "x", "X", 0)
    run.send("L", 1, {"of": "y", "n": 1}, 10)
    assert run.send("L", 1, {"of": "x", "n": 2}, 5) == [(1, "2+X", 5)]


class _Outputs:
    def __init__(self) -> None:
        self.found: list[tuple[str, Record]] = []

    def emit(self, node: Node, record: Record) -> None:
        self.found.append((node.name, record))

    def dead_letter(self, topic: str, record: Record, origin: Origin | None, error: Exception) -> None:
        raise AssertionError


def test_answers_to_what_a_row_was_are_dropped() -> None:
    """The left row changes its foreign key twice before the answers come, in the wrong order."""
    topology = _plan("left").topology()
    tasks, outputs = [], []
    for input_ in ("L", "R", "response"):
        sub = next(sub for sub in topology.sub_topologies if input_ in {node.name for node in sub.inputs})
        maps = {name: OrderedMap() for name in (*(spec.name for spec in sub.stores), TIMES)}
        outputs.append(_Outputs())
        tasks.append(Task(topology, sub, partition=3, maps=maps, outputs=outputs[-1], settings=TaskSettings()))
    tasks[1].process("R", Record("x", "X", 0), None)
    for time, key in enumerate(["x", "y", "x"]):
        tasks[0].process("L", Record(1, {"of": key, "n": time}, time), None)
    asked = [record for name, record in outputs[0].found if name == "registration"]
    assert [(record.key, record.value.instruction) for record in asked] == [
        ("x", Instruction.SUBSCRIBE_AND_ANSWER),
        ("x", Instruction.UNSUBSCRIBE),
        ("y", Instruction.SUBSCRIBE_AND_ANSWER),
        ("y", Instruction.UNSUBSCRIBE),
        ("x", Instruction.SUBSCRIBE_AND_ANSWER),
    ]
    for record in asked:
        tasks[1].process("registration", record, None)
    answers = [record for name, record in outputs[1].found if name == "response"]
    assert [response_partition("", None, record.value, 8) for record in answers] == [3, 3, 3]
    for record in reversed(answers):
        tasks[2].process("response", record, None)
    results = [record for name, record in outputs[2].found if name == "out-sink"]
    assert results == [Record(1, "2+X", 2)]
    # A deleted row is remembered until no answer can be on its way.
    tasks[0].process("L", Record(1, None, 9), None)
    tasks[1].process("registration", outputs[0].found[-1][1], None)
    deleted = outputs[1].found[-1][1]
    asked = maps["asked"]
    for settled, rows in ((False, 2), (True, 0)):
        tasks[2].process("response", deleted, None)
        tasks[2].is_settled = settled
        tasks[2].end_of_batch()
        assert len(asked) == rows


@pytest.mark.parametrize("join", ["join", "left_join"])
@pytest.mark.parametrize("last", [[None], ["nobody", None], ["x", "nobody", None], ["nobody", "x", None]])
def test_nothing_is_kept_of_rows_that_are_gone(join: str, last: list[str | None]) -> None:
    """However their end came about: rows come and go for years."""
    builder = StreamsBuilder(key=serdes.long, value=serdes.string)
    table = builder.table("right", key=serdes.string)
    joined = getattr(builder.table("left"), join)(
        table, lambda one, other: one, foreign_key=lambda value: None if value == "nobody" else value
    )
    joined.to_stream().to("out")
    run = Interpreter(builder.build())
    run.pipe("right", 0, b"x", b"X")
    for key in range(5):
        for value in ["x", *last]:
            run.pipe("left", 1, key.to_bytes(8), None if value is None else value.encode())
    assert {item.key: item.value for item in run.outputs} == {key.to_bytes(8): None for key in range(5)}
    for task in run._tasks:
        task.is_settled = True
    run.end_of_batch()
    kept = {name: len(rows) for (_, name), rows in run.maps.items() if not name.startswith("$")}
    assert sum(kept.values()) == 1, kept


@pytest.mark.parametrize("left", [None, b"", b"left value"])
@pytest.mark.parametrize("instruction", list(Instruction))
def test_a_subscription_comes_back_as_it_was(left: bytes | None, instruction: Instruction) -> None:
    serde = SubscriptionSerde(serdes.string)
    message = Subscription("key", left, 1 << 40, instruction, 7)
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert pickle.loads(pickle.dumps(message)) == message
    assert serde.deserialize("t", serde.serialize("t", message)) == message
    assert serde.name == "subscription(string)"


@pytest.mark.parametrize("left", [None, b"", b"left value"])
@pytest.mark.parametrize("right", [None, "", "right"])
def test_a_response_comes_back_as_it_was(left: bytes | None, right: str | None) -> None:
    serde = ResponseSerde(serdes.string)
    message = Response(right, left, 1 << 40, 0)
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert serde.deserialize("t", serde.serialize("t", message)) == message


def test_other_bytes_are_refused() -> None:
    for serde in (SubscriptionSerde(serdes.string), ResponseSerde(serdes.string)):
        with pytest.raises(DeserializationError):
            serde.deserialize("t", b"\x09")
