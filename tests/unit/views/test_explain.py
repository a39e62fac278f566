"""Rows in which two versions of a view differ, explained: which records, where versions part, and in what words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from support.view_logs import MemoryLog, rows_of

from suiro.lineage import InputRecord, TracingInterpreter
from suiro.streams import JoinWindows, StreamsBuilder, TimeWindows, serdes
from suiro.streams.errors import ProcessingError
from suiro.views.analysis.compare.values import Comparator, columns_of
from suiro.views.analysis.explain import differences
from suiro.views.analysis.explain.kinds import Effect, traits_of
from suiro.views.analysis.explain.path import shown
from suiro.views.analysis.explain.replay import Side
from suiro.views.analysis.explain.result import Explanation, effects_text, text_of
from suiro.views.analysis.explain.rows import explain
from suiro.views.definition import RowCodec, topology_of, view

Build = Callable[[Any], Any]
MINUTE = 60_000


def flight(
    offset: int, carrier: str, delay: int | None, time: int | None = None, topic: str = "flights"
) -> InputRecord:
    value = {"carrier": carrier, "dep_delay": delay, "dest": "LAX"}
    when = offset * MINUTE if time is None else time
    return InputRecord(topic, 0, offset, when, str(offset).encode(), json.dumps(value).encode())


def version(number: int, build: Build, key: str | tuple[str, ...] = "carrier", **rows: Any) -> Side:
    view("delays", key=key)(build)
    topology = topology_of(build.definition, f"delays.v{number}")  # type: ignore[attr-defined]
    names = (key,) if isinstance(key, str) else key
    return Side(version=number, topology=topology, codec=RowCodec(topology, names), **rows)


def explained(
    records: Sequence[InputRecord], old: Side, new: Side, key: tuple[Any, ...], **comparator: Any
) -> Explanation:
    log = MemoryLog(records)
    (found,) = explain([key], old, new, log, Comparator.of(comparator, ()))
    for side, row in ((old, found.old_row), (new, found.new_row)):
        text = rows_of(side, log).get(found.key)
        assert row == (None if text is None else columns_of(text))
    assert json.loads(json.dumps(found.to_json()))["records"] == len(found.named)
    return found


# -- versions of one view ------------------------------------------------------------------------------------------


def flights(builder: StreamsBuilder) -> Any:
    return builder.stream("flights", key=serdes.string, value=serdes.json)


def counted(stream: Any) -> Any:
    return stream.group_by(lambda key, value: value["carrier"]).aggregate(
        lambda: {"count": 0, "sum": 0},
        lambda key, value, row: {"count": row["count"] + 1, "sum": row["sum"] + (value["dep_delay"] or 0)},
    )


def with_mean(row: dict[str, int]) -> dict[str, Any]:
    return {"flights": row["count"], "mean_delay": row["sum"] / row["count"]}


def zero_for_cancelled(builder: StreamsBuilder) -> Any:
    return counted(flights(builder)).map_values(with_mean)


def without_cancelled(builder: StreamsBuilder) -> Any:
    return counted(flights(builder).filter(lambda key, value: value["dep_delay"] is not None)).map_values(with_mean)


def cancelled_in_the_aggregator(builder: StreamsBuilder) -> Any:
    def add(key: str, value: dict[str, Any], row: dict[str, int]) -> dict[str, int]:
        if value["dep_delay"] is None:
            return row
        return {"count": row["count"] + 1, "sum": row["sum"] + value["dep_delay"]}

    grouped = flights(builder).group_by(lambda key, value: value["carrier"])
    return grouped.aggregate(lambda: {"count": 0, "sum": 0}, add).map_values(with_mean)


def in_seconds(builder: StreamsBuilder) -> Any:
    return counted(flights(builder).map_values(lambda value: value | {"dep_delay": (value["dep_delay"] or 0) * 60}))


SOME = [flight(n, "AA" if n % 2 else "UA", None if n % 10 == 7 else n) for n in range(60)]


def test_the_first_record_that_is_treated_otherwise_and_how_many_are_like_it() -> None:
    found = explained(SOME, version(1, zero_for_cancelled), version(2, without_cancelled), ("AA",))
    assert found.is_explained
    assert (found.old_records, found.new_records, found.alike) == (30, 24, 24)
    assert found.named == tuple(("flights", 0, n) for n in range(1, 60, 2))
    parting = found.parting
    assert (parting.place, parting.number) == (("flights", 0, 7), 4)
    assert parting.old.columns["flights"] == (3, 4)
    assert parting.old.columns["sum"] == (9, 9)
    assert not parting.new.changed
    assert "FILTER" in parting.new.at.node
    assert "test_explain.py:" in (parting.new.at.function or "")
    (kind,) = found.kinds
    assert kind.records == 6
    assert [trait.text for trait in kind.traits] == ["dep_delay null"]
    assert [trait.others for trait in kind.traits] == [0]
    text = text_of(found)
    assert "flights-0@7 (dep_delay null)" in text
    assert "6 records of flights: v1 count +1, flights +1, sum +0; v2 unchanged" in text
    assert "all of them have dep_delay null, none of the other 24 has" in text


def test_a_function_that_leaves_the_row_as_it_was_counts_as_unchanged() -> None:
    found = explained(SOME, version(1, zero_for_cancelled), version(2, cancelled_in_the_aggregator), ("AA",))
    assert found.is_explained
    assert (found.old_records, found.new_records) == (30, 30)
    (kind,) = found.kinds
    assert (kind.records, kind.new) == (6, ())
    assert found.parting.place == ("flights", 0, 7)
    assert "add, test_explain.py:" in (found.parting.new.at.function or "")


def test_where_every_record_is_treated_otherwise_there_is_one_kind_of_all() -> None:
    def in_minutes(builder: StreamsBuilder) -> Any:
        return counted(flights(builder))

    found = explained(SOME, version(1, in_minutes), version(2, in_seconds), ("UA",))
    (kind,) = found.kinds
    assert kind.records == 29  # the first has a delay of 0
    assert found.parting.place == ("flights", 0, 2)
    assert [(each.column, each.least, each.most) for each in kind.new if each.column == "sum"] == [("sum", 120, 3480)]


def test_of_a_table_the_last_record_is_enough() -> None:
    def table(builder: StreamsBuilder) -> Any:
        return builder.table("carriers", key=serdes.string, value=serdes.json)

    def upper(builder: StreamsBuilder) -> Any:
        return table(builder).map_values(lambda value: value | {"name": value["name"].upper()})

    records = [
        InputRecord("carriers", 0, n, n, b"AA", json.dumps({"name": name}).encode())
        for n, name in enumerate(["American", "AMERICAN", "Amer."])
    ]
    found = explained(records, version(1, table), version(2, upper), ("AA",))
    assert found.is_explained
    assert found.named == (("carriers", 0, 2),)


def test_a_record_that_is_late_in_one_version_brings_the_one_that_made_it_late() -> None:
    def per_minute(grace: int) -> Build:
        def build(builder: StreamsBuilder) -> Any:
            grouped = flights(builder).group_by(lambda key, value: value["carrier"])
            return grouped.windowed_by(TimeWindows.of_size(MINUTE, grace=grace)).count()

        return build

    records = [
        flight(0, "AA", 1, 1_000),
        flight(1, "UA", 1, 3 * MINUTE),
        flight(2, "AA", 1, 2_000),
    ]
    old, new = version(1, per_minute(0)), version(2, per_minute(10 * MINUTE))
    found = explained(records, old, new, ("AA", 0, MINUTE))
    assert found.is_explained
    assert (found.old_row, found.new_row) == ({"value": 1}, {"value": 2})
    assert found.named == tuple(("flights", 0, n) for n in range(3))
    assert found.parting.place == ("flights", 0, 2)
    assert found.parting.old.dropped == ("late",)
    assert "left out, for late" in text_of(found)


def test_a_row_that_only_one_version_has() -> None:
    def joined(how: str) -> Build:
        def build(builder: StreamsBuilder) -> Any:
            names = builder.table("carriers", key=serdes.string, value=serdes.json)
            by_carrier = flights(builder).select_key(lambda key, value: value["carrier"], key=serdes.string)
            return getattr(by_carrier, how)(names, lambda one, name: {"of": name}).to_table()

        return build

    records = [
        InputRecord("carriers", 0, 0, 0, b"AA", b'{"name":"American"}'),
        flight(0, "AA", 1),
        flight(1, "XX", 2),
    ]
    old, new = version(1, joined("join")), version(2, joined("left_join"))
    found = explained(records, old, new, ("XX",))
    assert found.is_explained
    assert (found.old_row, found.new_row) == (None, {"of": None})
    assert found.named == (("flights", 0, 1),)
    assert "only v2 has this row, v1 does not" in text_of(found)
    same = explained(records, old, new, ("AA",))
    assert set(same.named) == {("carriers", 0, 0), ("flights", 0, 0)}
    assert same.is_equal
    assert "v1 and v2 have the same row" in text_of(same)


def test_a_join_of_streams_names_both_sides() -> None:
    def matched(width: int) -> Build:
        def build(builder: StreamsBuilder) -> Any:
            out, back = (builder.stream(topic, key=serdes.string, value=serdes.json) for topic in ("out", "back"))
            return out.join(
                back, lambda left, right: [left, right], JoinWindows.of(before=width, after=width)
            ).to_table()

        return build

    records = [
        InputRecord("out", 0, 0, 100, b"a", b"1"),
        InputRecord("back", 0, 0, 150, b"a", b"2"),
        InputRecord("back", 0, 1, 400, b"a", b"3"),
    ]
    found = explained(records, version(1, matched(100), "k"), version(2, matched(1000), "k"), ("a",))
    assert found.is_explained
    assert set(found.named) == {("out", 0, 0), ("back", 0, 0), ("back", 0, 1)}
    assert found.parting.place == ("back", 0, 1)


def test_within_a_tolerance_rows_are_equal() -> None:
    found = explained(
        SOME,
        version(1, zero_for_cancelled),
        version(2, without_cancelled),
        ("AA",),
        mean_delay="50%",
        flights=10,
    )
    assert found.is_equal
    assert found.parting is None


def test_what_is_made_again_is_checked_against_what_is_served() -> None:
    rows = [
        version(1, zero_for_cancelled, rows={("AA",): '{"flights":31,"mean_delay":1.0}'}),
        version(2, without_cancelled),
    ]
    found = explained(SOME, rows[0], rows[1], ("AA",))
    assert found.matches_store is False
    assert not found.is_explained
    assert "NOT the stored rows" in text_of(found)


def test_a_key_that_is_a_number() -> None:
    def by_delay(builder: StreamsBuilder) -> Any:
        return flights(builder).group_by(lambda key, value: value["dep_delay"] or 0, key=serdes.json).count()

    found = explained(SOME, version(1, by_delay, "delay"), version(2, by_delay, "delay"), (8,))
    assert found.old_row == {"value": 1}


def test_a_row_nobody_has() -> None:
    found = explained(SOME, version(1, zero_for_cancelled), version(2, without_cancelled), ("ZZ",))
    assert found.named == ()
    assert "neither v1 nor v2 has this row" in text_of(found)


def test_many_records_make_a_short_text() -> None:
    records = [flight(n, "AA", None if n % 40 == 3 else n % 90) for n in range(4_000)]
    found = explained(records, version(1, zero_for_cancelled), version(2, without_cancelled), ("AA",))
    assert found.is_explained
    assert len(text_of(found).splitlines()) < 30
    assert len(text_of(found, full=True).splitlines()) > 4_000


def test_growth_beyond_all_floats_is_shown() -> None:
    """An aggregate may be infinite, by a serde other than JSON. Its explanation was made, and could not be written."""
    effect = Effect(column="n", what="grows", least=1.0, most=math.inf)
    assert effects_text([effect]) == "n +1 to +inf"


def test_records_of_other_keys_are_left_out_before_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    piped: list[Any] = []
    pipe = TracingInterpreter.pipe

    def counting(self: Any, topic: str, *rest: Any, **more: Any) -> None:
        piped.append(topic)
        pipe(self, topic, *rest, **more)

    monkeypatch.setattr(TracingInterpreter, "pipe", counting)
    sides = version(1, zero_for_cancelled), version(2, without_cancelled)
    (found,) = explain([("UA",)], *sides, MemoryLog(SOME), Comparator())
    assert found.is_explained
    assert found.records_read == 60
    # Each version's own records in the replay, and those that were looked at for their ways.
    assert len(piped) == 30 + 30 + 30 + 30


def test_a_function_that_fails_in_the_sieve_is_left_to_the_rules() -> None:
    def failing(builder: StreamsBuilder) -> Any:
        return counted(flights(builder).filter(lambda key, value: value["no such field"] > 0))

    with pytest.raises(ProcessingError, match="no such field"):
        explain([("UA",)], version(1, failing), version(2, zero_for_cancelled), MemoryLog(SOME), Comparator())


def test_values_are_shown_as_text_writes_them() -> None:
    value = {
        "at": datetime(2013, 1, 11, 14, 35, tzinfo=UTC),
        "day": date(2013, 1, 11),
        "price": Decimal("1.50"),
        "raw": b"\xff",
    }
    assert shown(value) == {
        "at": "2013-01-11 14:35:00+00:00",
        "day": "2013-01-11",
        "price": "1.50",
        "raw": "\\xff",
    }


def test_a_bound_is_told_in_full() -> None:
    """Rounded to six digits, it was another bound: one that not all of these records keep."""
    (trait,) = traits_of([{"at": 1_372_896_000_123}, {"at": 1_372_896_000_500}], [{"at": 1_372_896_000_122}])
    assert trait.text == "at >= 1372896000123"
    (trait,) = traits_of([{"delay": 1.5}, {"delay": -3.0}], [{"delay": 2}])
    assert trait.text == "delay <= 1.5"
    (trait,) = traits_of([{"n": 10**400}, {"n": 10**401}], [{"n": 7}])
    assert trait.text == f"n >= {10**400}"


def test_a_part_of_a_key_may_be_a_list() -> None:
    def routes(is_whole: bool) -> Side:
        def build(builder: StreamsBuilder) -> Any:
            kept = flights(builder).filter(lambda key, value: is_whole or value["dep_delay"] is not None)
            return kept.group_by(lambda key, value: [value["carrier"], [value["dest"]]], key=serdes.json).count()

        return version(1 if is_whole else 2, build, ("carrier", "route"))

    (found,) = explain([("AA", ["LAX"])], routes(True), routes(False), MemoryLog(SOME), Comparator())
    assert found.is_explained
    assert (found.old_records, found.new_records) == (30, 24)
    assert json.loads(json.dumps(found.to_json()))["key"] == ["AA", ["LAX"]]


def test_keys_that_python_takes_for_each_other_are_explained_each() -> None:
    def build(builder: StreamsBuilder) -> Any:
        return flights(builder).group_by(lambda key, value: value["dep_delay"], key=serdes.json).count()

    records = [flight(0, "AA", 1), flight(1, "AA", True), flight(2, "AA", True)]
    sides = version(1, build, "delay"), version(2, build, "delay")
    found = explain([(1,), (True,)], *sides, MemoryLog(records), Comparator())
    assert [one.old_row for one in found] == [{"value": 1}, {"value": 2}]


def test_a_key_of_no_window_is_a_row_that_is_not_there() -> None:
    def build(builder: StreamsBuilder) -> Any:
        grouped = flights(builder).group_by(lambda key, value: value["carrier"], key=serdes.string)
        return grouped.windowed_by(TimeWindows.of_size(60_000)).count()

    sides = (version(number, build) for number in (1, 2))
    (found,) = explain([("AA", [0], [1])], *sides, MemoryLog(SOME), Comparator())
    assert found.old_row is None


@pytest.mark.parametrize(
    ("patterns", "rows"),
    [([("ab", 15)], [8, 7]), ([("aab", 10), ("a", 2)], [8, 4]), ([("abc", 4)], [2, 1, 1])],
)
def test_the_rows_of_the_causes_add_up(
    monkeypatch: pytest.MonkeyPatch, patterns: list[tuple[str, int]], rows: list[int]
) -> None:
    """Two causes with half of 15 rows each had 8 of 15."""
    keys = [(number, cause) for number, (causes, _) in enumerate(patterns) for cause in causes]
    found = [SimpleNamespace(key=key, is_explained=True, is_equal=False) for key in keys]
    monkeypatch.setattr(differences, "explain", lambda *given: found)
    monkeypatch.setattr(differences, "_cause", lambda each: each.key[1])
    monkeypatch.setattr(differences, "_where", lambda each: "flights-0@1")
    none = SimpleNamespace(rows=0, examples=[])
    comparison: Any = SimpleNamespace(
        tolerances={},
        ignored=(),
        key=("number", "cause"),
        unequal=sum(count for _, count in patterns),
        example_keys=lambda: keys,
        patterns=[
            SimpleNamespace(rows=count, examples=[SimpleNamespace(key=(number, cause)) for cause in causes])
            for number, (causes, count) in enumerate(patterns)
        ],
        only_old=none,
        only_new=none,
    )
    side: Any = None
    made = differences.explain_differences(comparison, side, side, side)
    assert sum(cause.rows for cause in made.causes) == made.explained == made.differing
    assert sorted((cause.rows for cause in made.causes), reverse=True) == rows
