"""A changed topology takes the place of a running one: every record's results come from one of them, and the changelogs
say what the new one's stores hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.drawn_topologies import Drawn, drawn, is_varied
from support.spark_streams import Running, Sent, by_key, changelog, interpreted, last_by_key, send

from suiro.errors import ReplacedError
from suiro.streams import Materialized, Repartitioned, StreamsBuilder, serdes
from suiro.streams.topology.topology import Topology

pytestmark = pytest.mark.spark

TEXT = {"key": serdes.string, "value": serdes.string}
PARTITIONS = 2

Run = Callable[..., Running]


@pytest.fixture
def run(run: Run) -> Run:
    return lambda *of, **options: run(*of, partitions=PARTITIONS, emit="every", **options)


def counted(name: str, prefix: str, *, changed: bool) -> Topology:
    """Counts of words over a repartition, and every word. Changed, words that begin with "x" are not counted, and
    every word has a prefix."""
    builder = StreamsBuilder()
    words = builder.stream(f"{name}.in", **TEXT)
    counts = words.filter(lambda key, value: not (changed and value.startswith("x")))
    by_word = counts.select_key(lambda key, value: value).repartition(Repartitioned.as_("words"))
    by_word.group_by_key().count(materialized=Materialized.as_("counts")).to_stream().to(f"{name}.counts")
    words.map_values(lambda value: prefix + value).to(f"{name}.words")
    return builder.build()


def input_of(name: str, first: int, last: int) -> list[Sent]:
    return [Sent(f"{name}.in", f"k{n % 7}", f"{'xyz'[n % 3]}{n % 5}", 1_000 + n) for n in range(first, last)]


def test_the_new_topology_takes_over_at_the_offsets_of_the_old_one(
    run: Run, name: str, tmp_path: Path, suiro_node: Any
) -> None:
    server = suiro_node.bootstrap_servers
    old = run(counted(name, "", changed=False), name, directory=tmp_path / "old", before=input_of(name, 0, 100))
    old.finish()
    new = run(counted(name, "new ", changed=True), name, directory=tmp_path / "new", replace=True)
    send(old.client, old.topology, input_of(name, 100, 160), PARTITIONS)
    new.streams.process_all_available()
    assert new.streams.replacement is not None
    assert (new.streams.replacement.phase, new.streams.state) == ("switched", "RUNNING")
    assert new.streams.rows_at_nodes
    # What comes now is the new one's; the old one hears of it with its next micro-batch.
    found = new.send(input_of(name, 160, 200))
    with pytest.raises(ReplacedError, match=f"application '{name}' was replaced"):
        old.streams.await_termination(60)
    every = interpreted(counted(name, "", changed=False), input_of(name, 0, 200))
    words, counts = by_key(found[f"{name}.words"]), by_key(found[f"{name}.counts"])
    for rows in words.values():
        is_new = [value.startswith(b"new ") for value, _ in rows]
        assert is_new == sorted(is_new)
        assert is_new[-1]
        assert not is_new[0]
        rows[:] = [(value.removeprefix(b"new "), time) for value, time in rows]
    assert words == by_key(every[f"{name}.words"])
    for word, rows in by_key(every[f"{name}.counts"]).items():
        values, wanted = [value for value, _ in counts[word]], [value for value, _ in rows]
        if word.startswith(b"x"):
            assert 0 < len(values) < len(wanted)
            assert values == wanted[: len(values)]
        else:
            assert values == wanted
    last = last_by_key(row for row in every[f"{name}.counts"] if not row.key.startswith(b"x"))
    assert changelog(server, name, "counts", PARTITIONS) == {key: value for key, (value, _) in last.items()}
    # The old state directory is refused, and the new one goes on with or without the option.
    with pytest.raises(ReplacedError, match="start the application with the state directory of the other one"):
        run(counted(name, "", changed=False), name, directory=tmp_path / "old")
    new.close()
    again = run(counted(name, "new ", changed=True), name, directory=tmp_path / "new", replace=True)
    assert len(again.send(input_of(name, 200, 210))[f"{name}.words"]) == 210


def test_an_application_that_was_started_again_and_has_written_nothing_hears_of_it_as_well(
    run: Run, name: str, tmp_path: Path
) -> None:
    """Nobody has fenced it then."""
    first = run(counted(name, "", changed=False), name, directory=tmp_path / "old", before=input_of(name, 0, 10))
    first.finish()
    first.close()
    old = run(counted(name, "", changed=False), name, directory=tmp_path / "old")
    new = run(counted(name, "new ", changed=True), name, directory=tmp_path / "new", replace=True)
    new.streams.process_all_available()
    assert len(new.send(input_of(name, 10, 20))[f"{name}.words"]) == 20
    with pytest.raises(ReplacedError, match=f"application '{name}' was replaced"):
        old.streams.await_termination(60)


@pytest.mark.soak  # CI's time
@settings(max_examples=1, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(drawn(), min_size=10, max_size=10).filter(is_varied))
def test_drawn_topologies_are_replaced_by_themselves(
    spark: Any, suiro_node: Any, tmp_path_factory: Any, cases: list[Drawn]
) -> None:
    """Nobody can tell by the outputs, nor by the rows in the changelogs."""
    server = suiro_node.bootstrap_servers
    outputs: list[dict[str, Any]] = []
    changelogs: list[dict[str, Any]] = []
    for is_replaced in (False, True):
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

        start = partial(
            Running,
            spark,
            topology,
            application_id=app,
            bootstrap_servers=server,
            emit="every",
        )
        with start(directory=directory, before=halves[0]) as running:
            running.finish()
            if is_replaced:
                directory = tmp_path_factory.mktemp("another")
                with start(directory=directory, replace=True) as other:
                    other.finish()
        with start(directory=directory, before=halves[1]) as running:
            found = running.finish()
        outputs.append({topic.split(".", 1)[1]: by_key(rows) for topic, rows in found.items()})
        logged = sorted(spec.name for spec in topology.stores if spec.logged)
        changelogs.append({store.split(".", 1)[-1]: changelog(server, app, store, 1) for store in logged})
    for found in (outputs, changelogs):
        differing = [name for name in found[0] if found[0][name] != found[1][name]]
        assert found[0].keys() == found[1].keys()
        assert not differing, [(name, found[0][name], found[1][name]) for name in differing]
    assert any(changelogs[0].values())
