"""Which cut of another version a group goes on at: one whose inputs it has all seen, and the newest such."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from suiro.views import Cut
from suiro.views.control.consumers import matching_cuts

A, B, OWN = ("a", 0), ("b", 0), ("own", 0)


def cut(number: int, a: int, outputs: dict[int, int], b: int = 0) -> Cut:
    return Cut(number=number, inputs={A: a, B: b}, outputs=outputs, time_ms=number)


def test_the_newest_that_is_consumed_in_every_partition_and_that_both_have() -> None:
    old = [cut(n, 10 * n, {0: 5 * n, 1: 7 * n}) for n in range(5)]
    new = [cut(0, 10, {0: 2}), cut(1, 30, {0: 4})]
    assert matching_cuts({0: 20, 1: 28}, old, new) == (old[3], new[1])
    assert matching_cuts({0: 20, 1: 20}, old, new) == (old[1], new[0])
    assert matching_cuts({0: 99}, old, new) == (old[0], None), "a partition without an offset is at its beginning"
    assert matching_cuts({0: 99, 1: 99}, old, []) == (old[4], None)
    assert matching_cuts({0: 0, 1: 0}, old[1:], new) == (None, None)


def test_without_a_cut_that_both_have_it_goes_on_before_the_consumed_one() -> None:
    old = [cut(0, 10, {0: 1}, b=4), cut(1, 20, {0: 2}, b=8)]
    new = [cut(0, 5, {0: 1}, b=2), cut(1, 15, {0: 2}, b=6), cut(2, 18, {0: 3}, b=9)]
    assert matching_cuts({0: 2}, old, new) == (old[1], new[1])
    assert matching_cuts({0: 1}, old, new) == (old[0], new[0])


def test_several_cuts_at_the_same_inputs_leave_nothing_out() -> None:
    old = [cut(0, 10, {0: 1}), cut(1, 10, {0: 2}), cut(2, 20, {0: 3})]
    new = [cut(0, 10, {0: 5}), cut(1, 10, {0: 6})]
    assert matching_cuts({0: 2}, old, new) == (old[1], new[0])


def test_where_records_waited_in_the_old_cut_the_one_before_counts() -> None:
    old = [cut(0, 10, {0: 1}), dataclasses.replace(cut(1, 20, {0: 2}), behind=frozenset([A]))]
    new = [cut(0, 10, {0: 1}), cut(1, 20, {0: 2})]
    assert matching_cuts({0: 2}, old, new) == (old[0], new[0])


def test_a_topic_that_one_version_alone_reads_does_not_count() -> None:
    old = [cut(0, 10, {0: 1}, b=4)]
    new = [Cut(number=0, inputs={A: 10, B: 4, OWN: 77}, outputs={0: 9}, time_ms=0)]
    assert matching_cuts({0: 1}, old, new) == (old[0], new[0])
    assert matching_cuts({0: 9}, new, old) == (new[0], old[0])


@given(st.data())
def test_it_has_seen_all_that_the_other_version_made_its_output_of(data: st.DataObject) -> None:
    def version() -> list[Cut]:
        a = b = out = 0
        found = []
        for number in range(data.draw(st.integers(0, 6))):
            a, b = a + data.draw(st.integers(0, 3)), b + data.draw(st.integers(0, 2))
            out += data.draw(st.integers(0, 3))
            found.append(cut(number, a, {0: out}, b=b))
        return found

    old, new = version(), version()
    position = data.draw(st.integers(0, 12))
    old_cut, new_cut = matching_cuts({0: position}, old, new)
    consumed = [item for item in old if item.outputs[0] <= position]
    if old_cut is None:
        assert not consumed
        return
    assert old_cut in consumed
    if new_cut is not None:
        assert all(new_cut.inputs[place] <= old_cut.inputs[place] for place in (A, B))
    else:
        newest = consumed[-1].inputs
        assert not any(all(item.inputs[place] <= newest[place] for place in (A, B)) for item in new)
