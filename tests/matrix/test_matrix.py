"""The failure matrix: a sample of it on the node, all of it in `make soak`, and the page that says what was run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from suiro.spark import faults
from tests.matrix import barrier_cells, brokers, cells, results, spark_cells
from tests.matrix.campaign import Result, run_round

SAMPLE = {
    f"{cells.DRIVER} | after_commit_offsets",
    f"{cells.DRIVER} | EndTxn is answered",
    f"{cells.TWICE} | after_fence",
    f"{cells.WORKER} | after_end",
    f"{cells.NETWORK} | EndTxn answer is lost",
    f"{cells.ZOMBIE} | after_produce",
    f"{cells.RIVAL} | after_end",
    f"{cells.BROKER} | after_produce",
    f"{cells.BROKER} | EndTxn is answered",
    f"{cells.DRIVER} | after_trailing_record",
    f"{cells.NETWORK} | AddPartitionsToTxn is lost",
    "the checkpoint | is an older copy",
    f"{barrier_cells.SLEEPER} | after_add_partitions",
    f"{barrier_cells.TASK} | after_produce",
}


def run(broker: str, chosen: list[cells.Cell], directory: Path, *, spark: bool = False) -> list[Result]:
    running = brokers.start(broker, directory / "broker")
    try:
        done = run_round(running, chosen, directory / "cells", lambda result: None)
        if spark:
            done += spark_cells.run_spark(running, directory / "spark", lambda result: None)
    finally:
        running.stop()
    failures = [f"{one.cell.name}\n{one.failure}" for one in done if one.failure]
    assert not failures, "\n\n".join(failures)
    assert len(done) >= len(chosen)
    return done


def test_a_sample_on_the_node(tmp_path: Path) -> None:
    chosen = [cell for cell in cells.all_cells() if cell.name in SAMPLE]
    assert len(chosen) == len(SAMPLE), "a cell of the sample is not in the matrix"
    done = run("node", chosen, tmp_path)
    not_sent = [one.cell.when for one in done if not one.was_sent]
    assert not_sent == ["AddPartitionsToTxn is lost"], "the node speaks transactions V2"


def test_a_query_of_spark_that_read_nothing_is_no_good_run(
    suiro_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checker is told what was planned; that it was all there is, is looked at beside it."""

    def drive(broker: Any, directory: Path, source: str, outputs: Any, faults: list[str], kind: str) -> None:
        for fault in faults:
            (directory / "faults" / fault.replace("@batch=", "-").replace(":", "-")).touch()

    monkeypatch.setattr(spark_cells, "_drive", drive)
    one = spark_cells.schedule()[0].cell
    done = spark_cells.run_spark(suiro_node, tmp_path, lambda result: None, lambda cell: cell == one)
    assert [result.anomalies for result in done] == [["lost write"]]


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("broker", list(brokers.TITLES))
def test_all_of_it(broker: str, tmp_path: Path) -> None:
    run(broker, cells.all_cells(), tmp_path, spark=True)


def test_every_fault_point_has_its_cells() -> None:
    """A point that nobody dies at is a point that nobody has looked at."""
    source = Path(faults.__file__).parent
    in_code = {point for path in source.rglob("*.py") for point in re.findall(r'reach\(\s*"(\w+)"', path.read_text())}
    of_senders = set(barrier_cells.POINTS) - {*cells.PLANNING, *cells.NOTED}
    assert in_code == {*cells.WORKER_POINTS, *of_senders}
    assert all(f"`{point}`" in str(faults.__doc__) for point in in_code)
    names = {cell.name for cell in cells.all_cells()}
    everybody = (
        cells.DRIVER,
        cells.TWICE,
        cells.WORKER,
        cells.NETWORK,
        cells.BROKER,
        cells.ZOMBIE,
        cells.RIVAL,
    )
    missing = {f"{who} | {point}" for who in everybody for point in cells.WORKER_POINTS} - names
    assert not missing
    beside = (cells.DRIVER, cells.NETWORK, cells.BROKER, cells.ZOMBIE, cells.RIVAL)
    missing = {f"{barrier_cells.PREFIX}{who} | {point}" for who in beside for point in of_senders} - names
    assert not missing


def test_no_two_cells_have_one_name() -> None:
    names = [cell.name for cell in (*cells.all_cells(), *(one.cell for one in spark_cells.schedule()))]
    assert len(set(names)) == len(names)


def test_the_page_says_what_the_file_says() -> None:
    text = results.PAGE.read_text(encoding="utf-8")
    assert results.page(text, results.load()) == text, "run: python -m tests.matrix --page"


def test_every_row_of_the_failure_table_is_walked_into() -> None:
    known = [*cells.all_cells(), *(one.cell for one in spark_cells.schedule())]
    empty = [number for number, _, belongs in results.DESIGN if not any(map(belongs, known))]
    assert empty == [20], "only the loss of Kafka's own data is out of scope"


def test_the_file_counts_known_cells_only() -> None:
    known = {cell.name for cell in (*cells.all_cells(), *(one.cell for one in spark_cells.schedule()))}
    assert results.load().keys() <= known
