"""A version that is built beside another: wherever it stands and whatever limits it, it ends micro-batches where the
other has cuts, and never between two of them on both sides of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from suiro.spark import evenly_limited
from suiro.views.cuts import Cut
from suiro.views.pipeline.leader import Step, allowance_of, step_beside

Place = tuple[str, int]
Offsets = dict[Place, int]
A0, A1, B0, OWN = ("a", 0), ("a", 1), ("b", 0), ("own", 0)
PLACES = [A0, A1, B0]


def cut(number: int, inputs: Mapping[Place, int], behind: frozenset[Place] = frozenset()) -> Cut:
    return Cut(number=number, inputs=dict(inputs), outputs={0: number}, time_ms=number, behind=behind)


@st.composite
def histories(draw: st.DrawFn, places: Sequence[Place] = PLACES) -> list[Cut]:
    """A leader's cuts: each at or beyond the one before; some at the same place."""
    at, found = dict.fromkeys(places, 0), []
    for number in range(draw(st.integers(1, 8))):
        at = {place: offset + draw(st.integers(0, 12)) for place, offset in at.items()}
        found.append(cut(number, at, draw(st.frozensets(st.sampled_from(places), max_size=1))))
    return found


def ends_beyond(draw: st.DrawFn, begins: Offsets) -> Offsets:
    return {place: offset + draw(st.integers(0, 40)) for place, offset in begins.items()}


@st.composite
def situations(draw: st.DrawFn) -> tuple[Offsets, Offsets, int | None, list[Cut]]:
    begins = {place: draw(st.integers(0, 40)) for place in PLACES}
    limit = draw(st.none() | st.integers(1, 60))
    return begins, ends_beyond(draw, begins), limit, draw(histories())


def planned(
    begins: Offsets, ends: Offsets, limit: int | None, cuts: Sequence[Cut], *, is_free: bool = False
) -> tuple[Offsets, Step]:
    """As the planner does it."""
    step = step_beside(begins, ends, limit, cuts, is_free=is_free)
    allowed = allowance_of(step, begins, ends, limit, unlimited=())
    found = dict(allowed.ends)
    if allowed.max_offsets is not None:
        found |= evenly_limited(begins, found, allowed.max_offsets)
    return found, step


def covers(left: Mapping[Place, int], right: Mapping[Place, int]) -> bool:
    return all(left[place] >= right[place] for place in right)


@given(situations(), st.booleans())
def test_a_step_stays_within_what_there_is_and_within_the_limit(
    situation: tuple[Offsets, Offsets, int | None, list[Cut]], is_free: bool
) -> None:
    begins, ends, limit, cuts = situation
    end, _ = planned(begins, ends, limit, cuts, is_free=is_free)
    assert covers(end, begins)
    assert covers(ends, end)
    if limit is not None:
        assert sum(end[place] - begins[place] for place in end) <= max(limit, len(PLACES))


@given(situations())
@example((dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 3), 1, [cut(0, dict.fromkeys(PLACES, 1))]))
def test_a_step_ends_at_a_cut_or_before_the_next_one(
    situation: tuple[Offsets, Offsets, int | None, list[Cut]],
) -> None:
    begins, ends, limit, cuts = situation
    end, step = planned(begins, ends, limit, cuts)
    met = [item for item in cuts if covers(item.inputs, begins) and item.inputs != begins]
    for item in met:
        is_passed = any(end[place] > item.inputs[place] for place in PLACES)
        assert not is_passed or any(end == later.inputs for later in met), f"{end} is past {item.inputs} and at no cut"
    if step.cut is not None:
        assert end == step.cut.inputs
    elif any(end == item.inputs and end != begins for item in met):
        raise AssertionError(f"it came to {end}, a cut, without taking it for one: what waits may differ")


@given(situations())
def test_of_the_cuts_within_reach_and_limit_it_takes_the_newest(
    situation: tuple[Offsets, Offsets, int | None, list[Cut]],
) -> None:
    begins, ends, limit, cuts = situation
    _, step = planned(begins, ends, limit, cuts)
    within = [
        item
        for item in cuts
        if covers(item.inputs, begins)
        and covers(ends, item.inputs)
        and item.inputs != begins
        and (limit is None or sum(item.inputs.values()) - sum(begins.values()) <= limit)
    ]
    if within:
        assert step.cut is not None
        assert step.cut.number >= within[-1].number


@given(histories(), st.none() | st.integers(1, 30), st.data())
def test_from_anywhere_below_the_newest_cut_it_arrives_there_exactly(
    cuts: list[Cut], limit: int | None, data: st.DataObject
) -> None:
    newest = dict(cuts[-1].inputs)
    at = {place: data.draw(st.integers(0, offset)) for place, offset in newest.items()}
    ends = ends_beyond(data.draw, newest)
    for _ in range(sum(newest.values()) + 2):
        end, step = planned(at, ends, limit, cuts)
        if end == at:
            break
        at = end
    assert at == newest
    assert step.waits == (ends != newest)
    freed, _ = planned(at, ends, None, cuts, is_free=True)
    assert freed == ends


@given(situations())
def test_ahead_of_the_leader_it_waits_to_be_met_and_loses_no_ground(
    situation: tuple[Offsets, Offsets, int | None, list[Cut]],
) -> None:
    begins, ends, _, cuts = situation
    if any(covers(item.inputs, begins) for item in cuts):
        return
    end, step = planned(begins, ends, None, cuts)
    reached = {place: min(ends[place], max(begins[place], cuts[-1].inputs[place])) for place in PLACES}
    assert end == reached
    assert step.waits == (ends != reached)
    # The leader comes by: its next cut is where both meet.
    together = cut(99, {place: max(end[place], cuts[-1].inputs[place]) + 1 for place in PLACES})
    more = {place: offset + 5 for place, offset in together.inputs.items()}
    assert planned(end, more, None, [*cuts, together])[0] == together.inputs


@given(situations(), st.integers(0, 50), st.integers(0, 50))
@example(({A0: 0, A1: 0, B0: 0}, {A0: 9, A1: 9, B0: 9}, 5, [cut(0, {A0: 9, A1: 9, B0: 9})]), 0, 7)
def test_a_topic_of_its_own_is_read_to_its_end_whatever_the_leader_does(
    situation: tuple[Offsets, Offsets, int | None, list[Cut]], begin: int, more: int
) -> None:
    begins, ends, limit, cuts = situation
    alone, step = planned(begins, ends, limit, cuts)
    end, _ = planned(begins | {OWN: begin}, ends | {OWN: begin + more}, limit, cuts)
    if step.cut is not None:
        assert {place: end[place] for place in PLACES} == alone
    if limit is None:
        assert end[OWN] == begin + more
    assert begin <= end[OWN] <= begin + more
    assert not more or limit is None or step.cut is None or end[OWN] > begin


def test_what_is_behind_at_a_cut_is_what_was_behind_there() -> None:
    cuts = [cut(0, {A0: 5, B0: 5}, frozenset([B0]))]
    step = step_beside({A0: 0, B0: 0}, {A0: 9, B0: 9}, 100, cuts)
    allowed = allowance_of(step, {A0: 0, B0: 0}, {A0: 9, B0: 9}, 100, unlimited=())
    assert allowed.behind == {B0}
    assert allowed.ends == {A0: 5, B0: 5}
