"""The checkpoint is gone: it is said before anything is written, and a rebuild writes nothing twice and leaves out
nothing, whatever waited in the old run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.drawn_topologies import Drawn, drawn, is_varied
from support.spark_streams import Got, Outputs, Running, Sent, by_key, changelog
from support.waiting import wait_until

from suiro.client import Client
from suiro.errors import FatalError
from suiro.spark import SinkOptions
from suiro.streams import (
    Materialized,
    Repartitioned,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    serdes,
)
from suiro.streams.errors import CheckpointError
from suiro.streams.topology.topology import Topology
from suiro.streams_spark import rebuild
from suiro.streams_spark.rebuild import boundary_of

pytestmark = pytest.mark.spark

TEXT = {"key": serdes.string, "value": serdes.string}
ONE_MICRO_BATCH = {"processingTime": "1 hour"}

Run = Callable[..., Running]


def everything(name: str) -> Topology:
    """A count, a repartition that is asked for, windows that wait until they close, and a join with a table."""
    builder = StreamsBuilder()
    words = builder.stream(f"{name}.in", **TEXT)
    words.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to(f"{name}.counts")
    by_word = words.select_key(lambda key, value: value).repartition(Repartitioned.as_("words"))
    windows = by_word.group_by_key().windowed_by(TimeWindows.of_size(20, grace=0)).count()
    windows.suppress(Suppressed.until_window_closes()).to_stream().to(f"{name}.closed")
    table = builder.table(f"{name}.table", **TEXT)
    by_word.join(table, lambda left, right: f"{left}/{right}").to(f"{name}.joined")
    words.filter(lambda key, value: value != "w1").to(f"{name}.plain")
    return builder.build()


def input_of(name: str) -> tuple[list[Sent], list[Sent]]:
    """Before and after the loss. Where records are read in pieces, the stream waits for the table."""
    words = [Sent(f"{name}.in", f"k{n % 7}", f"w{n % 5}", 1_000 + 3 * n) for n in range(200)]
    rows = [Sent(f"{name}.table", f"w{n % 5}", f"row {n}", 1_000 + 12 * n) for n in range(50)]
    return [*words[:150], *rows[:35]], [*words[150:], *rows[35:]]


def forgotten(directory: Path, name: str) -> None:
    shutil.rmtree(directory / name)


def after_one(running: Running) -> None:
    query = running.streams.query
    wait_until(lambda: query.lastProgress is not None, 60, "the first micro-batch")
    running.close()


def contents(server: str, topology: Topology, name: str, partitions: int) -> dict[str, Any]:
    topics = [*topology.sink_topics, f"{name}-words-repartition"]
    with Client(server) as client:
        found = Outputs(client, topics, partitions).read()
    return {topic.removeprefix(name): by_key(rows) for topic, rows in found.items()}


@pytest.mark.parametrize(
    ("limit", "emit"),
    [pytest.param(None, "micro-batch", marks=pytest.mark.soak), (60, "every")],  # CI's time
)
def test_a_rebuild_writes_what_an_uninterrupted_run_would(
    run: Run, name: str, tmp_path: Path, suiro_node: Any, limit: int | None, emit: str
) -> None:
    """`limit`: the old run ends after one micro-batch of it, in the middle of what was there; records wait."""
    partitions, answers = 2, []
    for is_interrupted in (False, True):
        app = f"{name}-{int(is_interrupted)}"
        topology = everything(app)
        first, rest = input_of(app)
        options = {"partitions": partitions, "emit": emit}
        one = {"max_offsets_per_trigger": limit, "trigger": ONE_MICRO_BATCH} if limit else {}
        running = run(topology, app, before=first, **options, **one)
        if limit:
            after_one(running)
        else:
            running.finish()
            running.close()
        if is_interrupted:
            before = contents(suiro_node.bootstrap_servers, topology, app, partitions)
            assert any(before.values())
            forgotten(tmp_path, app)
            with pytest.raises(CheckpointError, match=r"has run before.*\.in-0 at .*rebuild"):
                run(topology, app)
            assert not (tmp_path / app).exists()
            # Killed in its middle, lost again, killed again; then to its end.
            part = {"max_offsets_per_trigger": 40, "trigger": ONE_MICRO_BATCH}
            after_one(run(topology, app, rebuild=True, **options, **part))
            forgotten(tmp_path, app)
            after_one(run(topology, app, rebuild=True, **options, **part))
            middle = contents(suiro_node.bootstrap_servers, topology, app, partitions)
            assert middle == before
        # What is there before a start is in one micro-batch; while it runs, it would be cut anywhere.
        running = run(topology, app, **options)
        running.finish()
        running.close()
        running = run(topology, app, before=rest, **options)
        running.finish()
        answers.append(contents(suiro_node.bootstrap_servers, topology, app, partitions))
        running.close()
    assert answers[0] == answers[1]
    assert all(answers[0].values())
    with pytest.raises(CheckpointError, match="has the state of"):
        run(everything(f"{name}-0"), f"{name}-0", rebuild=True)


@pytest.mark.soak  # CI's time
@settings(max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(drawn(), min_size=10, max_size=10).filter(is_varied), st.sampled_from(["every", "micro-batch"]))
def test_drawn_topologies_are_rebuilt(
    spark: Any, suiro_node: Any, tmp_path_factory: Any, cases: list[Drawn], emit: str
) -> None:
    answers: list[dict[str, list[Got]]] = []
    for is_interrupted in (False, True):
        prefixes = {f"{uuid4().hex[:6]}.{number}.": case for number, case in enumerate(cases)}
        builder = StreamsBuilder()
        for prefix, case in prefixes.items():
            case.build(builder, prefix)
        topology = builder.build()
        sent = {prefix: case.sent(prefix) for prefix, case in prefixes.items()}
        halves = [
            [item for records in sent.values() for item in records[: len(records) // 2]],
            [item for records in sent.values() for item in records[len(records) // 2 :]],
        ]
        directory = tmp_path_factory.mktemp("drawn")
        app = f"drawn-{uuid4().hex[:6]}"
        options: dict[str, Any] = {
            "application_id": app,
            "bootstrap_servers": suiro_node.bootstrap_servers,
            "directory": directory,
            "emit": emit,
        }
        with Running(spark, topology, before=halves[0], **options) as running:
            running.finish()
        if is_interrupted:
            forgotten(directory, app)
            with Running(spark, topology, rebuild=True, **options) as running:
                running.finish()
        with Running(spark, topology, before=halves[1], **options) as running:
            found = running.finish()
        answers.append({topic.split(".", 1)[1]: rows for topic, rows in found.items()})
    differing = [topic for topic in answers[0] if by_key(answers[0][topic]) != by_key(answers[1][topic])]
    assert not differing, [(topic, cases[int(topic.split(".")[0])]) for topic in differing]


def plain(name: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(f"{name}.in", **TEXT).to(f"{name}.out")
    return builder.build()


def test_a_rebuild_writes_nothing_after_the_run_before_went_on(
    run: Run, name: str, tmp_path: Path, suiro_node: Any
) -> None:
    """The rebuild looked how far the application was, and was killed. Then somebody started the old driver again."""
    topology, out = plain(name), f"{name}.out"
    first = run(topology, name, before=[Sent(f"{name}.in", "k", "one", 1_000)])
    first.finish()
    first.close()
    sink = SinkOptions.parse({"kafka.bootstrap.servers": suiro_node.bootstrap_servers, "application.id": name})
    with Client(suiro_node.bootstrap_servers) as client:
        assert boundary_of(client, sink, (f"{name}.in",), tmp_path / "new" / name, rebuild=True) is not None
    old = run(topology, name)
    assert [item.value for item in old.send([Sent(f"{name}.in", "k", "two", 2_000)])[out]] == [b"one", b"two"]
    rebuilt = run(topology, name, directory=tmp_path / "new", rebuild=True)
    with pytest.raises(FatalError, match=r"another start of this application.*wrote micro-batch 1"):
        rebuilt.finish()
    # The old one was fenced meanwhile, and goes on.
    assert [item.value for item in old.send([Sent(f"{name}.in", "k", "three", 3_000)])[out]] == [b"three"]


def test_of_two_first_starts_with_two_directories_one_writes(
    run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either had written."""
    topology, out = plain(name), f"{name}.out"
    first = run(topology, name, before=[Sent(f"{name}.in", "k", "one", 1_000)])
    assert [item.value for item in first.finish()[out]] == [b"one"]
    monkeypatch.setattr(rebuild, "boundary_of", lambda *args, **kwargs: None)
    second = run(topology, name, directory=tmp_path / "two")
    with pytest.raises(FatalError, match="another start of this application"):
        second.finish()
    assert not first.finish()[out]


def test_a_changed_topology_begins_with_a_rebuild(run: Run, name: str, tmp_path: Path) -> None:
    def counted(window: int) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream(f"{name}.in", **TEXT).group_by_key()
        windows = words.windowed_by(TimeWindows.of_size(window, grace=0)).count()
        windows.to_stream().to(f"{name}.out")
        return builder.build()

    sent = [Sent(f"{name}.in", "k", "w", 1_000 + n) for n in range(100)]
    first = run(counted(10), name, before=sent)
    before = first.finish()[f"{name}.out"]
    first.close()
    forgotten(tmp_path, name)
    second = run(counted(200), name, rebuild=True)
    assert second.finish()[f"{name}.out"] == before
    (after,) = second.send([Sent(f"{name}.in", "k", "w", 1_150)])[f"{name}.out"]
    assert after.value == (101).to_bytes(8)


def test_changelogs_have_the_rows_of_the_rebuilt_state_and_no_others(
    run: Run, name: str, tmp_path: Path, suiro_node: Any
) -> None:
    """While it is rebuilt they have those of the run before. What the new topology leaves out is deleted, and a copy of
    the store sees both at once, whether there is a new record or not."""
    server = suiro_node.bootstrap_servers

    def counted(left_out: str) -> Topology:
        builder = StreamsBuilder()
        words = builder.stream(f"{name}.in", **TEXT).filter(lambda key, value: key != left_out)
        words.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to(f"{name}.out")
        return builder.build()

    sent = [Sent(f"{name}.in", f"k{n % 3}", "w", 1_000 + n) for n in range(90)]
    first = run(counted("k0"), name, before=sent)
    first.finish()
    first.close()
    before = changelog(server, name, "counts", 1)
    assert before == {b"k1": (30).to_bytes(8), b"k2": (30).to_bytes(8)}
    forgotten(tmp_path, name)
    part = {"max_offsets_per_trigger": 40, "trigger": ONE_MICRO_BATCH}
    after_one(run(counted("k1"), name, rebuild=True, **part))
    assert changelog(server, name, "counts", 1) == before
    second = run(counted("k1"), name)
    second.finish()
    assert changelog(server, name, "counts", 1) == {b"k0": (30).to_bytes(8), b"k2": (30).to_bytes(8)}
    second.send([Sent(f"{name}.in", "k2", "w", 2_000)])
    assert changelog(server, name, "counts", 1) == {b"k0": (30).to_bytes(8), b"k2": (31).to_bytes(8)}


def test_what_was_processed_out_of_order_is_not_written_again(run: Run, name: str, tmp_path: Path) -> None:
    """Stream records went through before the table had its earlier rows. Read again, they would wait for those."""
    builder = StreamsBuilder()
    table = builder.table(f"{name}.table", **TEXT)
    stream = builder.stream(f"{name}.in", **TEXT)
    stream.left_join(table, lambda left, right: f"{left}/{right}").to(f"{name}.out")
    topology, out = builder.build(), f"{name}.out"
    words = [Sent(f"{name}.in", "k", f"{n}", 1_000 + n) for n in range(30)]
    first = run(topology, name, before=words)
    written = first.finish()[out]
    assert len(written) == 30
    first.close()
    rows = [Sent(f"{name}.table", "k", f"row {n}", 500 + n) for n in range(50)]
    after_one(run(topology, name, before=rows, max_offsets_per_trigger=20, trigger=ONE_MICRO_BATCH))
    forgotten(tmp_path, name)
    second = run(topology, name, rebuild=True)
    assert second.finish()[out] == written
    assert [item.value for item in second.send([Sent(f"{name}.in", "k", "new", 2_000)])[out]] == [b"new/row 49"]
