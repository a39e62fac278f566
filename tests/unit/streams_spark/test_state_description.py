"""What a checkpoint says of its topology, and which changes are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suiro.spark import Positions
from suiro.streams import Materialized, StreamsBuilder, Suppressed, TimeWindows, TopologyError, serdes
from suiro.streams.errors import CheckpointError, ProcessingError
from suiro.streams_spark.description import FILE, check_description
from suiro.streams_spark.plan import Plan, plan
from suiro.streams_spark.runner import cause_of

TEXT = {"key": serdes.string, "value": serdes.string}


def planned(make: Callable[[StreamsBuilder], Any], partitions: int = 2) -> Plan:
    builder = StreamsBuilder()
    make(builder)
    return plan(builder.build(), "app", {"a": partitions})


def named(builder: StreamsBuilder) -> None:
    grouped = builder.stream("a", **TEXT).group_by_key()
    grouped.count(materialized=Materialized.as_("counts"), name="counting").to_stream().to("b")


def windowed(builder: StreamsBuilder, size: int = 10, grace: int = 0) -> None:
    grouped = builder.stream("a", **TEXT).group_by_key()
    windows = grouped.windowed_by(TimeWindows.of_size(size, grace=grace))
    windows.count(materialized=Materialized.as_("w"), name="windows").to_stream().to("b")


def unnamed(builder: StreamsBuilder, filters: int = 0) -> None:
    stream = builder.stream("a", **TEXT)
    for _ in range(filters):
        stream = stream.filter(lambda key, value: True)
    stream.group_by_key().count().to_stream().to("b")


def test_the_same_topology_and_one_with_more_stateless_operators_go_on(tmp_path: Path) -> None:
    check_description(planned(named), tmp_path)
    check_description(planned(named), tmp_path)

    def more(builder: StreamsBuilder) -> None:
        stream = builder.stream("a", **TEXT).filter(lambda key, value: True)
        stream.group_by_key().count(materialized=Materialized.as_("counts"), name="counting").to_stream().to("b")

    check_description(planned(more), tmp_path)


def test_more_grace_goes_on_and_another_size_does_not(tmp_path: Path) -> None:
    check_description(planned(windowed), tmp_path)
    check_description(planned(lambda b: windowed(b, grace=5)), tmp_path)
    with pytest.raises(TopologyError, match="store w: window_size_ms was 10, is 20"):
        check_description(planned(lambda b: windowed(b, size=20)), tmp_path)


def test_generated_names_that_moved_are_explained(tmp_path: Path) -> None:
    check_description(planned(unnamed), tmp_path)
    with pytest.raises(TopologyError, match=r"STORE-0000000001 is .*2 now.*Generated names have a number"):
        check_description(planned(lambda b: unnamed(b, filters=1)), tmp_path)


def test_rows_of_a_table_below_which_a_step_is_named_are_not_kept_any_more(tmp_path: Path) -> None:
    """A named filter knows old rows by itself. Where the table above was kept for it, the checkpoint is refused."""

    def grouped(builder: StreamsBuilder, kept: Materialized | None = None) -> None:
        kept_filter = builder.table("a", materialized=kept, **TEXT).filter(
            lambda key, value: True, materialized=Materialized.as_("f")
        )
        groups = kept_filter.group_by(lambda key, value: (value, value), **TEXT, name="g")
        groups.count(materialized=Materialized.as_("c"), name="counting").to_stream().to("b")

    check_description(planned(lambda b: grouped(b, Materialized.as_("a-STATE-STORE-0000000000"))), tmp_path)
    with pytest.raises(TopologyError, match=r"store a-STATE-STORE-0000000000 is gone.*rebuild=True"):
        check_description(planned(grouped), tmp_path)


def test_more_partitions_are_told(tmp_path: Path) -> None:
    check_description(planned(named), tmp_path)
    with pytest.raises(TopologyError, match="store counts: partitions was 2, is 4"):
        check_description(planned(named, partitions=4), tmp_path)


def test_a_newer_format_and_damage_are_told(tmp_path: Path) -> None:
    check_description(planned(named), tmp_path)
    path = tmp_path / FILE
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text) | {"version": 99}))
    with pytest.raises(CheckpointError, match="format 99"):
        check_description(planned(named), tmp_path)
    for known in ('"does"', '"levels"'):
        path.write_text(text.replace(known, f'"later": 1, {known}'))
        with pytest.raises(CheckpointError, match=r"notes what .* not know \(later\): use the version that wrote it"):
            check_description(planned(named), tmp_path)
        assert '"later"' in path.read_text()
    path.write_text(text[:-3])
    with pytest.raises(CheckpointError, match=f"{FILE} is damaged .*rebuild"):
        check_description(planned(named), tmp_path)


def test_the_users_error_is_made_again_from_sparks_text() -> None:
    text = (
        "[STREAM_FAILED] Query app terminated with exception: Job aborted\n"
        "Traceback (most recent call last):\n  File x\nValueError: no\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "suiro.streams.errors.ProcessingError: operator careful failed: ValueError: no\n\n\tat org.apache.spark\n"
    )
    failure = RuntimeError(text)
    found = cause_of(failure)
    assert isinstance(found, ProcessingError)
    assert str(found) == "operator careful failed: ValueError: no"
    assert found.__cause__ is failure
    other = RuntimeError("something else")
    assert cause_of(other) is other


def test_a_changelog_that_a_store_gets_later_would_lack_rows(tmp_path: Path) -> None:
    def counted(builder: StreamsBuilder, *, logged: bool) -> None:
        grouped = builder.stream("a", **TEXT).group_by_key()
        grouped.count(materialized=Materialized.as_("counts", logged=logged), name="counting")

    logged, unlogged = (planned(lambda b, logged=logged: counted(b, logged=logged)) for logged in (True, False))
    check_description(logged, tmp_path)
    check_description(unlogged, tmp_path)
    with pytest.raises(TopologyError, match="store counts: unlogged was True, is False"):
        check_description(logged, tmp_path)


def test_what_waits_for_its_time_does_not_go_on_as_what_waits_for_its_window(tmp_path: Path) -> None:
    """Early updates would leave as final results, and others follow."""

    def suppressed(builder: StreamsBuilder, suppressed: Suppressed) -> None:
        windows = builder.stream("a", **TEXT).group_by_key().windowed_by(TimeWindows.of_size(10))
        counts = windows.count(materialized=Materialized.as_("w"), name="windows")
        counts.suppress(suppressed, name="held").to_stream().to("b")

    check_description(planned(lambda b: suppressed(b, Suppressed.until_time_limit(5))), tmp_path)
    with pytest.raises(TopologyError, match="operator held: waits was for a time, is for windows to close"):
        check_description(planned(lambda b: suppressed(b, Suppressed.until_window_closes())), tmp_path)


def test_a_repartition_more_or_fewer_is_told_before_spark_refuses_the_query(tmp_path: Path) -> None:
    def deeper(builder: StreamsBuilder) -> None:
        named(builder)
        counts = builder.stream("a", **TEXT).group_by_key().count(name="more").to_stream()
        counts.repartition(name="spread").to("c")

    def as_deep(builder: StreamsBuilder) -> None:
        named(builder)
        builder.stream("a", **TEXT).group_by_key().count(name="more").to_stream().to("c")

    for one, other in ((deeper, as_deep), (as_deep, deeper)):
        place = tmp_path / one.__name__
        check_description(planned(one), place)
        check_description(planned(other), place)  # no micro-batch is done: there is nothing to refuse
        check_description(planned(one), place)
        (place / "commits").mkdir()
        (place / "commits" / "0").touch()
        with pytest.raises(TopologyError, match=r"topology depth: levels of tasks were [12], are [12]"):
            check_description(planned(other), place)


def test_records_that_wait_where_no_store_is_are_not_left_behind(tmp_path: Path) -> None:
    """A merge with an extractor has a task, in whose state records wait for those of the other topic."""

    def merged(builder: StreamsBuilder) -> None:
        stream = builder.stream("b", timestamp=lambda record, time: record.timestamp, **TEXT)
        stream.merge(builder.stream("c", **TEXT)).to("merged")

    def beside_another(builder: StreamsBuilder) -> None:
        builder.stream("a", **TEXT).to("copy")
        merged(builder)

    def made(build: Callable[[StreamsBuilder], None]) -> Plan:
        builder = StreamsBuilder()
        build(builder)
        return plan(builder.build(), "app", dict.fromkeys("abc", 1))

    def ends(number: int, *, behind: bool) -> None:
        positions = Positions(
            offsets={("b", 0): 20}, topic_ids={"b": "1"}, behind=frozenset({("b", 0)} if behind else ())
        )
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(positions.to_json())}")

    def done(number: int) -> None:
        (tmp_path / "commits").mkdir(exist_ok=True)
        (tmp_path / "commits" / str(number)).touch()

    check_description(made(beside_another), tmp_path)
    ends(0, behind=True)
    check_description(made(merged), tmp_path)
    check_description(made(beside_another), tmp_path)
    done(0)
    refused = pytest.raises(TopologyError, match=r"records in the log.* sub-topology 1, which is not there any more")
    with refused:
        check_description(made(merged), tmp_path)
    check_description(made(beside_another), tmp_path)
    ends(1, behind=False)  # it has not run yet
    with refused:
        check_description(made(merged), tmp_path)
    done(1)
    check_description(made(merged), tmp_path)
