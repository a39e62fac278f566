"""Functions that fail on one record: that one is left out, whatever else was done at the same time."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from functools import singledispatch
from typing import Any, NamedTuple

import pytest
from support.block_runs import Fed, run_both

from suiro.console.dead_letters import before_error
from suiro.streams import (
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    record_value,
    serdes,
)
from suiro.streams.errors import ProcessingError
from suiro.streams.extractors import field_timestamp
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Origin, Record
from suiro.streams.sources import dead_letter_headers
from suiro.testing import TopologyTestDriver


def _long(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _joined(policy: str) -> Interpreter:
    builder = StreamsBuilder()
    one = builder.stream("one", key=serdes.string, value=serdes.long)
    two = builder.stream("two", key=serdes.string, value=serdes.long)
    windows = JoinWindows.of_time_difference(10, grace=0)
    one.left_join(two, lambda left, right: 10 // left + (right or 0), windows).to("out", value=serdes.long)
    return Interpreter(builder.build(), settings=TaskSettings(on_processing_error=policy))


def test_an_unmatched_record_that_fails_takes_no_other_with_it() -> None:
    run = _joined("skip")
    run.pipe("one", 0, b"a", _long(0))
    run.pipe("one", 0, b"b", _long(5))
    run.pipe("one", 100, b"c", _long(2))
    run.pipe("two", 100, b"c", _long(1))
    assert [(item.record.key, item.record.value) for item in run.outputs] == [("b", 2), ("c", 6)]
    assert run.dropped_total == 1


def test_an_unmatched_record_that_fails_is_not_named_as_the_one_in_hand() -> None:
    run = _joined("fail")
    run.pipe("one", 0, b"a", _long(0))
    with pytest.raises(ProcessingError, match=r"a record of a punctuation or earlier, key 'a', timestamp 0"):
        run.pipe("one", 100, b"c", _long(2))


async def _none(*given: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda s: s.map(lambda key, value: None), "the mapper of map gave None; it must be a pair, (key, value)"),
        (lambda s: s.map(lambda key, value: "ab"), "the mapper of map gave 'ab'; it must be a pair, (key, value)"),
        (lambda s: s.map(lambda key, value: (1, 2, 3)), "the mapper of map gave (1, 2, 3); it must be a pair"),
        (lambda s: s.map_async(_none), "the mapper of map_async gave None; it must be a pair, (key, value)"),
        (lambda s: s.flat_map(lambda key, value: None), "the mapper of flat_map gave None; it must be a list of pairs"),
        (
            lambda s: s.flat_map(lambda key, value: ("key", value)),
            "the mapper of flat_map gave a list with 'key'; it must be a pair, (key, value)",
        ),
        (lambda s: s.flat_map_values(lambda value: 5), "the mapper of flat_map_values gave 5; it must be a list of"),
        (lambda s: s.flat_map_values_async(_none), "the mapper of flat_map_values_async gave None; it must be a list"),
        (
            lambda s: s.to_table().group_by(lambda key, value: "ab", key=serdes.string).count().to_stream(),
            "the mapper of group_by gave 'ab'; it must be a pair, (key, value)",
        ),
    ],
)
def test_a_mapper_that_gives_something_else_is_told_what_to_give(build: Any, said: str) -> None:
    """It was Python's error of unpacking; and a text of two characters was a key and a value."""
    builder = StreamsBuilder()
    build(builder.stream("in", key=serdes.string, value=serdes.long)).to("out")
    topology = builder.build()
    sub = topology.sub_topologies[0]
    fed = [Fed("KSTREAM-SOURCE-0000000000", Record("k", 7, 0))]
    for in_blocks in (False, True):
        with pytest.raises(ProcessingError, match=re.escape(f"UsageError: {said}")):
            run_both(topology, sub, [[fed]], TaskSettings(on_processing_error="fail"), only=in_blocks)


def test_mappers_give_lists_and_tuples_of_any_kind() -> None:
    class Pair(NamedTuple):
        key: str
        value: int

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.long)
    stream.map(lambda key, value: [key, value + 1]).map(Pair).flat_map(lambda *pair: (pair for _ in range(2))).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 7)
        found = driver.create_output_topic("out", key=serdes.string, value=serdes.long).read_records_to_list()
    assert [(each.key, each.value) for each in found] == [("k", 8), ("k", 8)]


def test_a_tables_update_that_fails_is_a_dead_letter() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", key=serdes.string, value=serdes.long).group_by_key()
    table = counts.windowed_by(TimeWindows.of_size(10, grace=0)).count()
    table.map_values(lambda value: value // 0).to_stream().to("out")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error="dead-letter:dead"))
    run.pipe("in", 1, b"k", _long(7))
    (found,) = run.outputs
    assert (found.key, found.value, found.record.value) == (b"k", _long(1), 1)
    assert dict(found.record.headers)["__streams.errors.exception"] == b"ZeroDivisionError"
    # The headers of a later error, of a source, are not taken together with these.
    headers = found.record.headers
    assert before_error((*headers, *dead_letter_headers(ValueError(), Origin("dead", 0, 0, 1)))) == headers


def test_a_dead_letter_of_a_record_that_waited_names_no_record() -> None:
    """It named the one that let it go: a redrive sent that one a second time."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.long)
    table = stream.group_by_key().windowed_by(TimeWindows.of_size(10, grace=0)).count()
    final = table.suppress(Suppressed.until_window_closes()).to_stream()
    final.map_values(lambda value: value // 0).to("out")
    stream.map_values(lambda value: 1 // value).to("out")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error="dead-letter:dead"))
    for timestamp in (1, 10):
        run.pipe("in", timestamp, b"k", _long(0))
    found = [(dict(one.record.headers)["__streams.errors.offset"], one.value) for one in run.outputs]
    assert sorted(found) == [(b"-1", _long(1)), (b"0", _long(0)), (b"1", _long(0))]


def test_a_dead_letter_stays_as_it_was_when_it_was_sent() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.json)
    stream.map_values(lambda value: value["absent"]).to("out")
    stream.peek(lambda key, value: value.update(n=2)).to("changed")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error="dead-letter:dead"))
    run.pipe("in", 1, b"k", b'{"n":1}')
    assert [(item.topic, item.record.value) for item in run.outputs] == [
        ("dead", {"n": 1}),
        ("changed", {"n": 2}),
    ]


@pytest.mark.parametrize("policy", ["skip", "dead-letter:dead"])
@pytest.mark.parametrize("fails", ["the aggregator", "the serde"])
def test_a_record_that_fails_leaves_the_sessions_that_it_would_have_merged(policy: str, fails: str) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=serdes.string, value=serdes.long).group_by_key()
    table = grouped.windowed_by(SessionWindows.of_gap(10, grace=100)).aggregate(
        int,
        lambda key, value, total: total + (value if fails == "the serde" else 10 // value * value),
        lambda key, one, other: one + other,
        materialized=Materialized.as_("sessions", value=serdes.int),
    )
    table.to_stream().to("out")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error=policy))
    bad = 0 if fails == "the aggregator" else 1 << 40
    for value, timestamp in ((5, 100), (2, 115), (bad, 108), (bad, 100), (5, 108)):
        run.pipe("in", timestamp, b"k", _long(value))
    found = [
        (item.record.key.start, item.record.key.end, item.record.value) for item in run.outputs if item.topic == "out"
    ]
    first, second = (5, 2) if fails == "the serde" else (10, 10)
    assert found == [
        (100, 100, first),
        (115, 115, second),
        (100, 100, None),
        (115, 115, None),
        (100, 115, 2 * first + second),
    ]
    assert run.dropped_total == 2


@singledispatch
def _in_a_library(value: Any) -> int:
    return int(1 // (value - value))


def _with_a_long_story(value: int) -> int:
    raise ValueError("1 error for Order\n  amount\n    is no number")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_in_a_library, r"ZeroDivisionError: .* \(test_failing_functions.py, line \d+\)\. Fix"),
        (
            _with_a_long_story,
            r"1 error for Order amount is no number \(test_failing_functions.py, line \d+\)\. Fix",
        ),
        (record_value() + "x", r"takes numbers, not a string\. Fix"),
        (json.loads, r"TypeError: [^(]*\. Fix"),
    ],
)
def test_the_line_of_the_users_own_file_is_told(function: Any, said: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).map_values(function).to("out")
    run = Interpreter(builder.build())
    with pytest.raises(ProcessingError, match=said):
        run.pipe("in", 1, b"k", _long(7))


def test_the_line_of_a_timestamp_extractor_is_told() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.string, value=serdes.long, timestamp=lambda record, time: 1 // 0)
    stream.to("out")
    run = Interpreter(builder.build())
    with pytest.raises(ProcessingError, match=r"extractor .* ZeroDivisionError: .*_functions.py, line \d+\)$"):
        run.pipe("in", 1, b"k", _long(7))


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError


class Own:
    def __repr__(self) -> str:
        return "an object of the user's \udc80"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"at": datetime.date(2026, 1, 2), "paid": Decimal("1.50")}, b'{"at": "2026-01-02", "paid": "1.50"}'),
        ({"name": "half \ud83d"}, b'{"name": "half \\ud83d"}'),
        ("half \ud83d", b'"half \\ud83d"'),
        (Decimal("1.50"), b'"1.50"'),
        ({("a", 1): 2}, b"{('a', 1): 2}"),
        (1 << 70, b"1180591620717411303424"),
        (Own(), b'"an object of the user\'s \\udc80"'),
    ],
)
def test_a_value_that_no_serde_writes_is_a_dead_letter_all_the_same(value: Any, wanted: bytes) -> None:
    """Records can hold what JSON cannot be written of; and that may be the very reason for which they failed."""
    builder = StreamsBuilder()
    made = builder.stream("in", key=serdes.string, value=serdes.long).map_values(lambda number: value)
    made.peek(lambda key, made: 1 // 0).to("out")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error="dead-letter:dead"))
    run.pipe("in", 1, b"k", _long(7))
    (found,) = run.outputs
    assert (found.topic, found.key, found.value) == ("dead", b"k", wanted)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (ValueError("no half \ud83d"), b"no half \\ud83d"),
        (ValueError("long" * 10_000), b"long" * 1_024),
        (Unspeakable(), b"Unspeakable"),
    ],
)
@pytest.mark.parametrize("policy", ["fail", "dead-letter:dead"])
def test_any_message_of_an_error_can_be_told(error: Exception, wanted: bytes, policy: str) -> None:
    def fails(value: int) -> int:
        raise error

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).map_values(fails).to("out")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error=policy))
    if policy == "fail":
        with pytest.raises(ProcessingError) as raised:
            run.pipe("in", 1, b"k", _long(7))
        assert wanted.decode() in str(raised.value)
        return
    run.pipe("in", 1, b"k", _long(7))
    (found,) = run.outputs
    assert dict(found.record.headers)["__streams.errors.message"] == wanted


@pytest.mark.parametrize("timestamp", [-1, 1 << 63, 1.5, None, True])
def test_a_processor_that_forwards_no_time_fails_on_its_record(timestamp: Any) -> None:
    class Stamping:
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Record) -> None:
            self.context.forward(record.with_timestamp(timestamp if record.value else record.timestamp))

    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).process(Stamping).to("out")
    run = Interpreter(builder.build(), settings=TaskSettings(on_processing_error="skip"))
    run.pipe("in", 5, b"a", _long(1))
    run.pipe("in", 6, b"b", _long(0))
    assert [(item.key, item.record.timestamp) for item in run.outputs] == [(b"b", 6)]
    assert run.dropped_total == 1


@pytest.mark.parametrize("write", ["put", "put_if_absent", "put_at", "delete"])
def test_a_processor_reads_a_global_table_and_cannot_write_it(write: str) -> None:
    """On Spark it would be one task's copy of a row that others have, until the row's next update."""

    class Writing:
        def init(self, context: Any) -> None:
            self.context, self.rows = context, context.get_state_store("rows")

        def process(self, record: Any) -> None:
            self.context.forward(record.with_value(self.rows.get(record.key)))
            getattr(self.rows, write)(record.key, *([] if write == "delete" else ["mine"]))

    builder = StreamsBuilder(key=serdes.string, value=serdes.string)
    builder.global_table("g", materialized=Materialized.as_("rows"))
    builder.stream("in").process(Writing, "rows").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("g").pipe_input("k", "row")
        with pytest.raises(ProcessingError, match="store 'rows' is a global table"):
            driver.create_input_topic("in").pipe_input("k", "a")
        assert driver.create_output_topic("out").read_key_values_to_list() == [("k", "row")]
        assert driver.get_key_value_store("rows").get("k") == "row"


def test_an_extractor_that_gives_a_time_beyond_64_bits_is_told_with_the_record() -> None:
    builder = StreamsBuilder()
    source = builder.stream("in", key=serdes.string, value=serdes.json, timestamp=field_timestamp("at"))
    source.to("out")
    run = Interpreter(builder.build())
    with pytest.raises(ProcessingError, match=r"in-0 offset 0, key 'k', which does not fit into 64 bits"):
        run.pipe("in", 5, b"k", b'{"at": 9223372036854775808}')


def test_a_record_whose_offset_is_not_known_has_none_in_the_error() -> None:
    """The one that let it go has another offset."""
    builder = StreamsBuilder(key=serdes.string, value=serdes.long)
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10)).count()
    closed = counts.suppress(Suppressed.until_window_closes())
    closed.to_stream().map_values(lambda count: 1 // (count - 1), name="careless").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", 1, 0)
        with pytest.raises(ProcessingError, match=r"careless failed on a record that came by in-0, key .*'a'"):
            driver.create_input_topic("in").pipe_input("b", 1, 10)


def test_a_processor_that_fails_to_close_keeps_no_other_from_it() -> None:
    closed: list[str] = []

    def named(name: str, error: str = "") -> type:
        class Closing:
            def process(self, record: Any) -> None: ...

            def close(self) -> None:
                closed.append(name)
                if error:
                    raise ValueError(error)

        return Closing

    builder = StreamsBuilder()
    one = builder.stream("one")
    one.process(named("first", "of the first"))
    one.process(named("second"))
    builder.stream("two").process(named("third"))
    with pytest.raises(ValueError, match="of the first"):
        Interpreter(builder.build()).close()
    assert sorted(closed) == ["first", "second", "third"]
