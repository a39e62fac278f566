"""The old value of a change is the row as it was, also where functions change aggregates in place."""

from __future__ import annotations

from suiro.streams.records import Change
from suiro.streams.topology.nodes import Aggregation, StreamAggregate, TableAggregate
from tests.support.stream_operators import Operators, store


def append(key: str, value: str, aggregate: list[str]) -> list[str]:
    aggregate.append(value)
    return aggregate


def take_out(key: str, value: str, aggregate: list[str]) -> list[str]:
    aggregate.remove(value)
    return aggregate


def test_of_a_stream_aggregate() -> None:
    lists = Aggregation(kind="aggregate", initializer=list, aggregators=(append,))
    run = Operators([StreamAggregate(aggregation=lists, store="store")], [store("key-value")])
    run.send("a", 1, "x")
    run.send("a", 2, "y")
    assert [record.value for record in run.out] == [Change(["x"]), Change(["x", "y"], ["x"])]


def test_of_a_table_aggregate() -> None:
    operator = TableAggregate(kind="aggregate", store="store", initializer=list, adder=append, subtractor=take_out)
    run = Operators([operator], [store("key-value")])
    run.send("a", 1, Change("x"))
    run.send("a", 2, Change("y", "x"))
    run.send("a", 3, Change(None, "y"))
    assert [record.value for record in run.out] == [Change(["x"]), Change(["y"], ["x"]), Change([], ["y"])]
