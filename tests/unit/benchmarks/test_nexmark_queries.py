"""The queries of the Nexmark benchmark give what SQL gives over the same events, as functions and as expressions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from suiro.streams import StreamsBuilder
from suiro.testing import TopologyTestDriver

pytest.importorskip("duckdb")
EVENTS = 2_000


@pytest.fixture(scope="module")
def nexmark() -> Iterator[dict[str, ModuleType]]:
    """The benchmark's modules, which are no package."""
    folder = str(Path(__file__).parents[3] / "benchmarks")
    names = ("nexmark_events", "nexmark_queries", "nexmark_answers", "nexmark_pyspark")
    sys.path.insert(0, folder)
    try:
        yield {name.removeprefix("nexmark_"): __import__(name) for name in names}
    finally:
        sys.path.remove(folder)
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def events(nexmark: dict[str, ModuleType]) -> list[Any]:
    return list(nexmark["events"].events(EVENTS))


@pytest.fixture(scope="module")
def answers(nexmark: dict[str, ModuleType], events: list[Any]) -> Any:
    return nexmark["answers"].Answers(events)


NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
BY_EXPRESSIONS = (0, 1, 2, 3, 8, 11, 13, 14, 18, 20)


@pytest.mark.parametrize(
    ("form", "query"),
    [("functions", f"q{number}") for number in NUMBERS] + [("expressions", f"q{number}") for number in BY_EXPRESSIONS],
)
def test_a_query_gives_what_sql_gives(
    nexmark: dict[str, ModuleType], events: list[Any], answers: Any, form: str, query: str
) -> None:
    builder = StreamsBuilder()
    nexmark["queries"].build(builder, query, form, "out")
    topology = builder.build()
    with TopologyTestDriver(topology) as driver:
        inputs = {name: driver.create_input_topic(name) for name in topology.source_topics}
        if "side" in inputs:
            for key, row in nexmark["events"].side_rows():
                inputs["side"].pipe_input(key, row, 0)
        for event in events:
            if event.topic in inputs:
                inputs[event.topic].pipe_input(event.key, event.value, event.timestamp)
        written = [
            (record.key.encode(), None if record.value is None else json.dumps(record.value).encode())
            for record in driver.create_output_topic("out").read_records_to_list()
        ]
    found = nexmark["answers"].final_rows(query, written, json.loads)
    assert found == answers.of(query)
    assert found


@pytest.mark.parametrize("query", ["q0", "q1", "q2", "q3"])
def test_the_udfs_of_pyspark_give_what_sql_gives(
    nexmark: dict[str, ModuleType], events: list[Any], answers: Any, query: str
) -> None:
    udfs = nexmark["pyspark"]
    assert query in udfs.QUERIES
    values: dict[str, list[bytes]] = {topic: [] for topic in ("bid", "auction", "person")}
    for event in events:
        values[event.topic].append(json.dumps(event.value).encode())
    if query == "q3":  # Spark joins what its UDFs leave
        people = {found[0]: found[1:] for found in map(udfs.near, values["person"]) if found is not None}
        auctions = [found for found in map(udfs.sold, values["auction"]) if found is not None]
        written = [
            (str(auction).encode(), udfs.met(*people[seller], auction).encode())
            for auction, seller in auctions
            if seller in people
        ]
    else:
        changed = map(getattr(udfs, query), values["bid"])
        written = [(b"", value.encode()) for value in changed if value is not None]
    assert nexmark["answers"].final_rows(query, written, json.loads) == answers.of(query)
    assert written


def test_every_query_is_tested(nexmark: dict[str, ModuleType]) -> None:
    forms = nexmark["queries"].FORMS
    assert set(forms["functions"]) == {f"q{number}" for number in NUMBERS}
    assert set(forms["expressions"]) == {f"q{number}" for number in BY_EXPRESSIONS}


def test_the_same_events_on_every_machine(nexmark: dict[str, ModuleType], events: list[Any]) -> None:
    again = list(nexmark["events"].events(EVENTS))
    assert again == events
    assert all(events[place].timestamp <= events[place + 1].timestamp for place in range(len(events) - 1))
