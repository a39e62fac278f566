"""Every row of the decision table, and the marker's text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suiro.errors import FatalError
from suiro.spark.decide import (
    Fail,
    Marker,
    MissingCheckpoint,
    MissingMarker,
    Plan,
    Produce,
    Replaced,
    Restore,
    Suppress,
    decide,
)


def plan(batch_id: int, *, lineage: str = "query-a", start: str = "", end: str = "end") -> Plan:
    return Plan(batch_id=batch_id, lineage=lineage, run_id="run-1", start_digest=start, end_digest=end)


def marker(batch_id: int, *, lineage: str = "query-a", end: str = "end") -> Marker:
    return Marker(lineage=lineage, batch_id=batch_id, end_digest=end, start_digest="", run_id="run-0")


def test_no_marker_and_the_first_micro_batch_is_produced() -> None:
    for policy in MissingMarker:
        assert decide(None, plan(0), missing=policy) == Produce()


def test_no_marker_later_on_follows_the_policy() -> None:
    verdict = decide(None, plan(3))
    assert isinstance(verdict, Fail)
    assert "marker.missing" in verdict.reason
    assert decide(None, plan(3), missing=MissingMarker.PRODUCE) == Produce()
    assert decide(None, plan(3), missing=MissingMarker.SUPPRESS) == Restore()


def test_another_lineage_may_only_begin_at_its_first_micro_batch() -> None:
    begin = MissingCheckpoint.BEGIN
    assert decide(marker(7, lineage="query-b"), plan(0), missing_checkpoint=begin) == Produce()
    verdict = decide(marker(7, lineage="query-b"), plan(8), missing_checkpoint=begin)
    assert isinstance(verdict, Fail)
    assert "query-b" in verdict.reason
    assert "query-a" in verdict.reason


def test_of_a_topology_another_lineage_has_replaced_it() -> None:
    """Its start has refused the state directory of another one."""
    other = marker(7, lineage="query-b")
    assert decide(other, plan(8), begins_after="") == Replaced(other)


def test_and_there_only_if_somebody_said_so() -> None:
    verdict = decide(marker(7, lineage="query-b"), plan(0))
    assert isinstance(verdict, Fail)
    for words in ("micro-batch 7", "query-b", "checkpoint.missing", "startingOffsets", "sink.name"):
        assert words in verdict.reason


@pytest.mark.parametrize("policy", MissingCheckpoint)
def test_a_topology_begins_after_the_marker_that_its_start_saw(policy: MissingCheckpoint) -> None:
    other = marker(7, lineage="query-b")
    assert decide(other, plan(0), missing_checkpoint=policy, begins_after=other.to_metadata()) == Produce()
    assert decide(None, plan(0), missing_checkpoint=policy, begins_after="") == Produce()
    for seen in ("", marker(6, lineage="query-b").to_metadata()):
        verdict = decide(other, plan(0), missing_checkpoint=policy, begins_after=seen)
        assert isinstance(verdict, Fail)
        assert "wrote micro-batch 7 (query query-b) after this one had looked" in verdict.reason


@pytest.mark.parametrize("start", ["", "end"])
def test_the_next_micro_batch_is_produced(start: str) -> None:
    assert decide(marker(4), plan(5, start=start, end="later")) == Produce()


def test_the_next_micro_batch_that_begins_elsewhere_fails() -> None:
    verdict = decide(marker(4), plan(5, start="somewhere else", end="later"))
    assert isinstance(verdict, Fail)
    assert "other offsets" in verdict.reason


def test_the_committed_micro_batch_is_suppressed() -> None:
    assert decide(marker(4), plan(4)) == Suppress()
    assert decide(marker(0), plan(0)) == Suppress()


def test_the_committed_micro_batch_with_other_ends_fails() -> None:
    verdict = decide(marker(4), plan(4, end="other"))
    assert isinstance(verdict, Fail)
    assert "other offsets" in verdict.reason


@pytest.mark.parametrize("batch_id", [0, 1, 3, 6, 100])
def test_a_rolled_back_or_edited_checkpoint_fails(batch_id: int) -> None:
    verdict = decide(marker(4), plan(batch_id))
    assert isinstance(verdict, Fail)
    assert "rolled back" in verdict.reason
    assert "--rebuild" in verdict.reason  # of a topology


def test_where_another_run_wrote_the_marker_it_says_so() -> None:
    def said(run: str) -> str:
        verdict = decide(replace(marker(4), run_id=run), plan(2))
        assert isinstance(verdict, Fail)
        return verdict.reason

    assert "another driver" not in said(plan(2).run_id)
    assert "another driver of this query (run late) went on" in said("late")


def test_a_marker_survives_its_text() -> None:
    before = marker(41)
    assert before.offset == 42
    assert Marker.from_metadata(before.to_metadata()) == before


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"v":1,"q":"a"}', "something of another program"])
def test_foreign_metadata_is_refused(text: str) -> None:
    with pytest.raises(FatalError, match=r"application\.id"):
        Marker.from_metadata(text)


def test_a_newer_marker_is_refused() -> None:
    with pytest.raises(FatalError, match="upgrade"):
        Marker.from_metadata('{"v":2}')
