"""The examples in the docstrings of the DSL run, each with a builder of its own, and every public method has one.

They know `builder`, `delays` (a stream of carriers and minutes), `planes` (a table of tail numbers and seats) and
`results(stream_or_table, TOPIC=[(key, value, timestamp), ...])`, which pipes the records topic by topic through the
test driver and gives (key, value, timestamp) of what comes out.
"""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import suiro.streams
from suiro.streams import KStream, KTable, StreamsBuilder, serdes
from suiro.streams.dsl.grouped import _Aggregates
from suiro.streams.dsl.kstream_calls import CallOperators
from suiro.streams.windows import _Windows
from suiro.testing import TopologyTestDriver

CLASSES = [
    *(getattr(suiro.streams, name) for name in suiro.streams.__all__ if name != "KafkaStreams"),
    CallOperators,
    _Aggregates,
    _Windows,
    TopologyTestDriver,
]
OF_THE_DSL = (
    *(
        "CallOperators",
        "BranchedKStream",
        "CogroupedKStream",
        "JoinWindows",
        "KGroupedStream",
        "KGroupedTable",
    ),
    *(
        "KStream",
        "KTable",
        "Materialized",
        "SessionWindows",
        "SlidingWindows",
        "StreamsBuilder",
        "Suppressed",
    ),
    *("TimeWindows", "WindowedCogroupedKStream", "WindowedKStream", "_Aggregates", "_Windows"),
)
NOT_FOR_USERS = {"by_key", "with_serdes", "is_closed", "starts_for"}
RECORD = tuple[Any, Any, int]


def examples() -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(recurse=True)
    for kind in CLASSES:
        if inspect.isclass(kind):
            yield from (found for found in finder.find(kind, kind.__name__) if found.examples)


def names() -> dict[str, Any]:
    builder, numbers = StreamsBuilder(), count()
    text, long = serdes.string, serdes.long

    def results(found: KStream | KTable, **topics: list[RECORD]) -> list[RECORD]:
        name = f"results-{next(numbers)}"
        (found.to_stream() if isinstance(found, KTable) else found).to(name)
        with TopologyTestDriver(builder.build()) as driver:
            for topic, records in topics.items():
                source = driver.create_input_topic(topic)
                for record in records:
                    source.pipe_input(*record)
            read = driver.create_output_topic(name).read_records_to_list()
        return [(one.key, one.value, one.timestamp) for one in read]

    return {
        **{name: getattr(suiro.streams, name) for name in suiro.streams.__all__ if name != "KafkaStreams"},
        "TopologyTestDriver": TopologyTestDriver,
        "builder": builder,
        "delays": builder.stream("delays", key=text, value=long),
        "planes": builder.table("planes", key=text, value=long),
        "results": results,
    }


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.name)
def test_the_example_of_a_docstring(example: doctest.DocTest) -> None:
    said: list[str] = []
    example.globs = names()
    doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert not said, "".join(said)


def test_every_public_method_of_the_dsl_has_an_example() -> None:
    have = {example.name for example in examples()}
    public = {
        f"{kind.__name__}.{name}"
        for kind in CLASSES
        if inspect.isclass(kind) and kind.__name__ in OF_THE_DSL
        for name, method in vars(kind).items()
        if (inspect.isfunction(method) or isinstance(method, classmethod))
        and not name.startswith("_")
        and name not in NOT_FOR_USERS
    }
    assert public - have == set()
