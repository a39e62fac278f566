"""Which updates tables send: as Kafka Streams 4.3.1's own driver says, or as it should be where that has a defect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suiro.streams import (
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from suiro.streams.records import Windowed
from suiro.testing import TopologyTestDriver

TEXT: dict[str, Any] = {"key": serdes.string, "value": serdes.string}

Sent = tuple[str, str | None, str | None, int]


def updates(build: Callable[[StreamsBuilder], Any], *sent: Sent) -> list[tuple[Any, Any, int]]:
    """What comes out of the stream or table that `build` gives."""
    builder = StreamsBuilder()
    built = build(builder)
    (built.to_stream() if hasattr(built, "to_stream") else built).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for topic, key, value, timestamp in sent:
            driver.create_input_topic(topic).pipe_input(key, value, timestamp)
        found = driver.create_output_topic("out").read_records_to_list()
    return [(record.key, record.value, record.timestamp) for record in found]


def begins_with_a(key: Any, value: str) -> bool:
    return value.startswith("a")


def is_even(key: Any, value: int) -> bool:
    return value % 2 == 0


def both(left: Any, right: Any) -> str:
    return f"{left}|{right}"


def everything(key: Any, value: Any) -> tuple[str, Any]:
    return "all", value


def plus(left: int, right: int) -> int:
    return left + right


def minus(left: int, right: int) -> int:
    return left - right


def versions(name: str, history: int = 100) -> Materialized:
    return Materialized.versioned(name, history=history)


# -- filters, and who asks them for old rows ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
def test_an_older_version_does_not_rise_again(kind: str) -> None:
    """A row that a filter does not want is a version too, whoever asks the filter for old rows."""

    def build(b: StreamsBuilder) -> Any:
        right = b.table("r", materialized=versions("v"), **TEXT).filter(begins_with_a)
        return getattr(b.table("l", **TEXT), kind)(right, both)

    found = updates(build, ("r", "k", "b1", 20), ("r", "k", "a2", 10), ("l", "k", "x", 30))
    assert found[-1] == ("k", "x|None", 30)


def test_a_stream_meets_the_version_that_a_filter_took_out() -> None:
    def build(b: StreamsBuilder) -> Any:
        table = b.table("t", materialized=versions("v"), **TEXT).filter(begins_with_a)
        table.group_by(everything).count()  # asks for old rows
        return b.stream("s", **TEXT).left_join(table, both)

    sent = [("t", "k", "b1", 20), ("t", "k", "a2", 10), ("s", "k", "x", 15), ("s", "k", "y", 25)]
    assert updates(build, *sent) == [("k", "x|a2", 15), ("k", "y|None", 25)]


@pytest.mark.parametrize(
    ("kind", "side", "repeats"),
    [
        ("left_join", "right", True),
        ("left_join", "left", False),
        ("join", "right", True),
        ("join", "left", True),
        ("outer_join", "right", False),
        ("outer_join", "left", False),
    ],
)
def test_which_side_of_a_join_asks_for_old_rows(kind: str, side: str, repeats: bool) -> None:
    """A filter that is not asked passes on each deletion of what it had not let pass; the join repeats its result."""
    filtered, other = ("l", "r") if side == "left" else ("r", "l")

    def build(b: StreamsBuilder) -> Any:
        tables = {filtered: b.table(filtered, **TEXT).filter(begins_with_a), other: b.table(other, **TEXT)}
        return getattr(tables["l"], kind)(tables["r"], both)

    found = updates(build, (other, "k", "x", 0), (filtered, "k", "b1", 1), (filtered, "k", "b2", 2))
    assert len([timestamp for _, _, timestamp in found if timestamp > 0]) == (2 if repeats else 0)


def test_a_filter_below_a_join_makes_it_ask_both_sides() -> None:
    def build(b: StreamsBuilder) -> Any:
        joined = b.table("l", **TEXT).left_join(b.table("r", **TEXT).filter(begins_with_a), both)
        return joined.filter(lambda key, value: value.startswith("x"))

    assert updates(build, ("l", "k", "x", 0), ("r", "k", "b1", 1), ("r", "k", "b2", 2)) == [("k", "x|None", 0)]


@pytest.mark.parametrize("step", ["filter", "map_values"])
def test_a_named_step_knows_old_rows_from_its_own_store(step: str) -> None:
    def build(b: StreamsBuilder) -> Any:
        table, kept = b.table("t", **TEXT), Materialized.as_("kept")
        named = (
            table.filter(begins_with_a, materialized=kept)
            if step == "filter"
            else table.map_values(lambda value: value, value=serdes.string, materialized=kept)
        )
        return named.filter(lambda key, value: value.startswith("a") and len(value) > 3)

    assert updates(build, ("t", "k", "b1", 1), ("t", "k", "a2", 2), ("t", "k", "a3xx", 3)) == [("k", "a3xx", 3)]


def test_a_versioned_filter_judges_versions_by_its_own_store() -> None:
    """The table above has no versions: what is late there is still a version here, but never the latest."""

    def build(b: StreamsBuilder) -> Any:
        kept = b.table("t", **TEXT).filter(begins_with_a, materialized=versions("v", 10))
        return kept.group_by(everything).reduce(both, both)

    sent = [("t", "k", "a1", 100), ("t", "k", "a2", 95), ("t", "k", "a3", 50), ("t", "j", "a4", 100)]
    assert updates(build, *sent) == [("all", "a1", 100), ("all", "a1|a4", 100)]


def test_nobody_makes_results_that_nobody_asked_for() -> None:
    """The joiner is called for a result that is replaced only where somebody wants it."""
    calls = []

    def joiner(left: Any, right: Any) -> str:
        calls.append((left, right))
        return both(left, right)

    found = updates(
        lambda b: b.table("l", **TEXT).left_join(b.table("r", **TEXT), joiner),
        ("l", "k", "x", 0),
        ("r", "k", "y", 1),
        ("r", "k", "z", 2),
    )
    assert [value for _, value, _ in found] == ["x|None", "x|y", "x|z"]
    assert calls == [("x", None), ("x", "y"), ("x", "z")]


def test_a_table_joined_with_a_filter_of_itself() -> None:
    """Each side hears of the row in its turn. Kafka Streams gives a|a twice: it looks at the table above, for both."""

    def build(b: StreamsBuilder) -> Any:
        table = b.table("t", **TEXT)
        return table.filter(begins_with_a).outer_join(table.filter(begins_with_a), both)

    assert updates(build, ("t", "k", "a", 1)) == [("k", "a|None", 1), ("k", "a|a", 1)]


# -- null keys, no pairs, no aggregates ---------------------------------------------------------------------------


def test_a_left_join_with_a_global_table_keeps_null_keys_through_a_repartition() -> None:
    def build(b: StreamsBuilder) -> Any:
        table = b.global_table("g", **TEXT)
        return b.stream("s", **TEXT).repartition().left_join(table, lambda key, value: value, both)

    assert updates(build, ("g", "k1", "row", 0), ("s", None, "k1", 1)) == [(None, "k1|row", 1)]


def test_an_inner_join_with_a_global_table_does_not() -> None:
    def build(b: StreamsBuilder) -> Any:
        table = b.global_table("g", **TEXT)
        return b.stream("s", **TEXT).repartition().join(table, lambda key, value: value, both)

    assert updates(build, ("g", "k1", "row", 0), ("s", None, "k1", 1)) == []


def test_a_row_without_a_pair_is_in_no_group() -> None:
    def build(b: StreamsBuilder) -> Any:
        return (
            b.table("t", **TEXT).group_by(lambda key, value: everything(key, value) if value != "x" else None).count()
        )

    sent = [("t", "k", "x", 0), ("t", "k", "y", 1), ("t", "k", "x", 2)]
    assert updates(build, *sent) == [("all", 1, 1), ("all", 0, 2)]


def test_a_row_moves_between_groups_whose_keys_are_equal_in_python_only() -> None:
    def build(b: StreamsBuilder) -> Any:
        groups: dict[str, Any] = {"a": 1, "b": True, "c": {"of": 1}, "d": {"of": 1.0}}
        return b.table("t", **TEXT).group_by(lambda key, value: (groups[value], value)).count()

    found = updates(build, *(("t", "k", value, number) for number, value in enumerate("abcd")))
    assert [(repr(key), count) for key, count, _ in found] == [
        ("1", 1),
        ("1", 0),
        ("True", 1),
        ("True", 0),
        ("{'of': 1}", 1),
        ("{'of': 1}", 0),
        ("{'of': 1.0}", 1),
    ]


def test_nothing_is_taken_out_where_there_is_no_aggregate() -> None:
    """KAFKA-5315: an adder that gives None leaves no aggregate; a later subtractor is not given the initializer's."""

    def build(b: StreamsBuilder) -> Any:
        return (
            b.table("t", **TEXT)
            .group_by(everything)
            .aggregate(str, lambda key, value, found: None, lambda key, value, found: f"{found}-{value}")
        )

    assert updates(build, ("t", "k", "x", 0), ("t", "k", None, 1)) == [("all", None, 0), ("all", None, 1)]


# -- a change's old value is the row as it was --------------------------------------------------------------------


def test_the_old_value_of_a_new_row_is_none_not_the_initializers() -> None:
    """Kafka Streams gives 0, so it takes out of a group what was never put in (1, 1, 1)."""
    found = updates(
        lambda b: b.stream("t", **TEXT).group_by_key().count().group_by(everything).count(),
        ("t", "a", "x", 0),
        ("t", "b", "x", 1),
        ("t", "c", "x", 2),
    )
    assert found == [("all", 1, 0), ("all", 2, 1), ("all", 3, 2)]
    # There, 0 passes the filter, and its deletion goes on: ("a", None, 0) comes first.
    filtered = updates(
        lambda b: b.stream("t", **TEXT).group_by_key().count().filter(is_even),
        ("t", "a", "x", 0),
        ("t", "a", "x", 1),
    )
    assert filtered == [("a", 2, 1)]


def test_a_new_sliding_window_replaces_nothing() -> None:
    """Kafka Streams gives the aggregate it starts from as the old value: 3 in the end."""

    def build(b: StreamsBuilder) -> Any:
        windows = SlidingWindows.of_difference(10, grace=5)
        counts = b.stream("t", **TEXT).group_by_key().windowed_by(windows).count()
        return counts.group_by(everything).reduce(plus, minus)

    assert updates(build, ("t", "a", "x", 20), ("t", "a", "x", 25))[-1] == ("all", 4, 25)


def test_a_sliding_window_that_is_made_twice_is_counted_once() -> None:
    """[4, 14] begins behind the first record and ends at the second; both send it, and Kafka Streams counts 3."""

    def counts(b: StreamsBuilder) -> Any:
        return b.stream("t", **TEXT).group_by_key().windowed_by(SlidingWindows.of_difference(10, grace=5)).count()

    sent = [("t", "a", "x", 3), ("t", "a", "x", 14)]
    assert updates(counts, *sent) == [
        (Windowed("a", 0, 10), 1, 3),
        (Windowed("a", 4, 14), 1, 14),
        (Windowed("a", 4, 14), 1, 14),
    ]
    assert updates(lambda b: counts(b).group_by(everything).count(), *sent)[-1] == ("all", 2, 14)


def test_a_session_updated_at_its_own_time_replaces_itself() -> None:
    """Kafka Streams gives None as its old value, and counts it twice (2); a filter does not delete it again."""

    def counts(b: StreamsBuilder) -> Any:
        return b.stream("t", **TEXT).group_by_key().windowed_by(SessionWindows.of_gap(5)).count()

    sent = [("t", "a", value, 0) for value in "xyz"]
    assert updates(lambda b: counts(b).group_by(everything).count(), *sent)[-1] == ("all", 1, 0)
    window = Windowed("a", 0, 0)
    assert updates(lambda b: counts(b).filter(is_even), *sent) == [(window, 2, 0), (window, None, 0)]


def test_what_suppress_held_back_was_never_there_to_be_replaced() -> None:
    """Kafka Streams gives the last update that it swallowed as the old value: 4 in the end."""

    def build(b: StreamsBuilder) -> Any:
        counts = b.stream("t", **TEXT).group_by_key().windowed_by(TimeWindows.of_size(10)).count()
        final = counts.suppress(Suppressed.until_window_closes())
        return final.group_by(everything).reduce(plus, minus)

    sent = [("t", key, "x", timestamp) for key in "ab" for timestamp in range(3)]
    assert updates(build, *sent, ("t", "c", "x", 20)) == [("all", 3, 2), ("all", 6, 2)]


# -- time -----------------------------------------------------------------------------------------------------------


def test_a_late_version_does_not_take_the_place_of_a_newer_one_that_waits() -> None:
    def build(b: StreamsBuilder) -> Any:
        return b.table("t", materialized=versions("v"), **TEXT).suppress(Suppressed.until_time_limit(50))

    sent = [("t", "k", "new", 20), ("t", "k", "old", 10), ("t", "z", "x", 90)]
    assert updates(build, *sent) == [("k", "new", 20)]


def test_each_unmatched_record_leaves_by_its_own_window() -> None:
    """Kafka Streams looks with the window's width of the side that a record came by, and looked a moment ago: it
    never looks at A here, and gives A|B alone."""

    def build(b: StreamsBuilder) -> Any:
        return b.stream("l", **TEXT).left_join(b.stream("r", **TEXT), both, JoinWindows.of(before=50, after=0))

    sent = [("l", "k", "A", 100), ("r", "z", "b", 101), ("r", "z", "c", 120), ("r", "k", "B", 80)]
    assert updates(build, *sent) == [("k", "A|None", 100), ("k", "A|B", 100)]


def test_a_stream_of_a_co_group_that_lags_needs_grace() -> None:
    """The time of one stream closes the windows of all. Kafka Streams keeps a time for each stream."""

    def build(grace: int) -> Callable[[StreamsBuilder], Any]:
        def together(b: StreamsBuilder) -> Any:
            fast, slow = b.stream("fast", **TEXT).group_by_key(), b.stream("slow", **TEXT).group_by_key()
            add = lambda key, value, found: found + value  # noqa: E731
            windows = TimeWindows.of_size(10).grace(grace)
            return fast.cogroup(add).cogroup(slow, add).windowed_by(windows).aggregate(str, value=serdes.string)

        return together

    sent = [("fast", "k", "f", 5), ("fast", "k", "g", 30), ("slow", "k", "s", 6)]
    first, second = (Windowed("k", 0, 10), "f", 5), (Windowed("k", 30, 40), "g", 30)
    assert updates(build(0), *sent) == [first, second]
    assert updates(build(25), *sent) == [first, second, (Windowed("k", 0, 10), "fs", 6)]


def test_a_longer_retention_opens_no_closed_session() -> None:
    """Kafka Streams extends the sessions that its store still has."""

    def build(retention: int) -> Callable[[StreamsBuilder], Any]:
        kept = Materialized.as_("kept", retention=retention)
        windows = SessionWindows.of_gap(10)
        return lambda b: b.stream("in", **TEXT).group_by_key().windowed_by(windows).count(materialized=kept)

    sent = [("in", "k", "a", 0), ("in", "other", "b", 15), ("in", "k", "c", 8)]
    found = updates(build(10), *sent)
    assert found[-1] == (Windowed("k", 8, 8), 1, 8)
    assert updates(build(1_000), *sent) == found


def test_a_record_of_a_topic_that_the_topology_writes_waits_for_the_one_in_hand() -> None:
    """However often records come back."""
    builder = StreamsBuilder()
    numbers = builder.stream(["again", "in"], key=serdes.string, value=serdes.long)
    lower = numbers.filter(lambda key, value: value > 0).map_values(lambda value: value - 1)
    lower.to("again", value=serdes.long)
    numbers.to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("k", 5_000, 0)
        found = driver.create_output_topic("out").read_key_values_to_list()
    assert found == [("k", number) for number in range(5_000, -1, -1)]


def test_of_several_repartitions_the_earliest_record_comes_first() -> None:
    class Twice:
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            self.context.forward(record.with_value("first"))
            self.context.forward(record.with_value("second").with_timestamp(record.timestamp - 9))

    def build(b: StreamsBuilder) -> Any:
        twice = b.stream("in", **TEXT).process(Twice, **TEXT)
        table = twice.repartition(name="rows").to_table()
        return twice.repartition(name="records").join(table, both)

    assert updates(build, ("in", "k", "a", 10)) == [("k", "first|second", 10), ("k", "second|second", 1)]


def test_an_output_stays_as_it_was_when_it_was_sent() -> None:
    """Functions behind it, and a processor, may change the value in place."""

    class Counting:
        def init(self, context: Any) -> None:
            self.context, self.seen = context, {"in": ["nothing"]}

        def process(self, record: Any) -> None:
            self.seen["in"].append(record.value)
            self.context.forward(record.with_value(self.seen))

    def build(b: StreamsBuilder) -> Any:
        return b.stream("in", **TEXT).process(Counting)

    assert updates(build, ("in", "k", "a", 1), ("in", "k", "b", 2)) == [
        ("k", {"in": ["nothing", "a"]}, 1),
        ("k", {"in": ["nothing", "a", "b"]}, 2),
    ]


def test_a_stream_merged_with_itself_has_each_record_twice() -> None:
    def merged(builder: StreamsBuilder) -> Any:
        stream = builder.stream("in", **TEXT)
        return stream.merge(stream)

    assert updates(merged, ("in", "k", "a", 1)) == [("k", "a", 1), ("k", "a", 1)]
