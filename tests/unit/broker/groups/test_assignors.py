"""The assignors: complete, balanced, and sticky."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from suiro.broker.coordination.groups.targets import (
    AssigningMember,
    Assignment,
    assign_range,
    assign_uniform,
)
from suiro.clock import stopwatch_ns

TOPICS = [UUID(int=number) for number in range(1, 4)]


Group = tuple[dict[str, AssigningMember], dict[UUID, int]]


def group_of(wants: dict[str, set[int]], counts: list[int], before: Assignment | None = None) -> Group:
    """Members by the numbers of the topics that they want, and the partitions of the topics."""
    target = before or {}
    members = {
        member_id: AssigningMember(
            instance_id=None,
            topics=frozenset(TOPICS[number] for number in numbers),
            target=target.get(member_id, {}),
        )
        for member_id, numbers in wants.items()
    }
    return members, dict(zip(TOPICS, counts, strict=True))


def places(assignment: Assignment, member_id: str) -> set[tuple[UUID, int]]:
    partitions = assignment.get(member_id, {})
    return {(topic, partition) for topic, some in partitions.items() for partition in some}


members = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.sets(st.integers(0, 2)), min_size=1, max_size=5)
counts = st.lists(st.integers(1, 9), min_size=3, max_size=3)


@settings(max_examples=150, deadline=None)
@given(first=members, second=members, counts=counts)
def test_every_wanted_partition_has_one_owner_that_wants_it(
    first: dict[str, set[int]], second: dict[str, set[int]], counts: list[int]
) -> None:
    for assign in (assign_uniform, assign_range):
        before: Assignment = {}
        for wants in (first, second):
            # As the coordinator does it: who left, and topics that nobody wants, are out of the target before.
            kept = {member_id: before.get(member_id, {}) for member_id in wants}
            after = assign(*group_of(wants, counts, kept))
            owned = [place for member_id in wants for place in places(after, member_id)]
            wanted = {
                (TOPICS[number], partition)
                for numbers in wants.values()
                for number in numbers
                for partition in range(counts[number])
            }
            assert sorted(owned) == sorted(wanted)
            for member_id, numbers in wants.items():
                assert after.get(member_id, {}).keys() <= {TOPICS[number] for number in numbers}
            before = after


@settings(max_examples=100, deadline=None)
@given(names=st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=2, max_size=6), counts=counts)
def test_uniform_is_even_and_moves_only_what_it_must(names: set[str], counts: list[int]) -> None:
    all_topics = {0, 1, 2}
    before = assign_uniform(*group_of(dict.fromkeys(names, all_topics), counts))
    sizes = [len(places(before, name)) for name in names]
    assert max(sizes) - min(sizes) <= 1
    again = assign_uniform(*group_of(dict.fromkeys(names, all_topics), counts, before))
    assert again == before
    gone = min(names)
    rest = names - {gone}
    left = {name: before[name] for name in rest}
    after = assign_uniform(*group_of(dict.fromkeys(rest, all_topics), counts, left))
    for name in rest:
        assert places(before, name) <= places(after, name), "nobody lost anything"


@settings(max_examples=150, deadline=None)
@given(first=members, second=members, counts=counts)
def test_uniform_is_as_even_as_the_topics_of_the_members_allow(
    first: dict[str, set[int]], second: dict[str, set[int]], counts: list[int]
) -> None:
    """Of two members that want a topic, the one that has a partition of it has at most one partition more."""
    before: Assignment = {}
    for wants in (first, second):
        members, partitions = group_of(wants, counts, before)
        before = assign_uniform(members, partitions)
        loads = {member_id: len(places(before, member_id)) for member_id in wants}
        for topic_id in TOPICS:
            takers = [member_id for member_id, member in members.items() if topic_id in member.topics]
            for giver in takers:
                if before[giver].get(topic_id):
                    assert loads[giver] - min(loads[taker] for taker in takers) <= 1
        assert assign_uniform(*group_of(wants, counts, before)) == before


def test_uniform_moves_from_the_member_that_shares_its_topic() -> None:
    """A member of two topics leaves the one that another member wants, too, to it."""
    alone = assign_uniform(*group_of({"a": {0, 1}}, [4, 4, 1]))
    both = assign_uniform(*group_of({"a": {0, 1}, "b": {0}}, [4, 4, 1], alone))
    assert {member_id: len(places(both, member_id)) for member_id in both} == {"a": 4, "b": 4}
    assert both["a"] == {TOPICS[1]: frozenset(range(4))}


def test_many_members_and_partitions_take_a_short_time() -> None:
    """Work grows with the partitions that move, not with members by partitions."""
    wants = {f"m{number:04}": {number % 3, (number + 1) % 3} for number in range(1000)}
    began = stopwatch_ns()
    first = assign_uniform(*group_of(wants, [3000, 3000, 3000]))
    assert {len(places(first, member_id)) for member_id in wants} <= {8, 9, 10}
    assert stopwatch_ns() - began < 5_000_000_000


def test_members_that_want_the_same_topics_are_not_put_in_order_for_each_topic() -> None:
    compared = 0

    class MemberId(str):
        def __lt__(self, other: str) -> bool:
            nonlocal compared
            compared += 1
            return super().__lt__(other)

    topics = {UUID(int=number): 1 for number in range(1, 101)}
    member = AssigningMember(instance_id=None, topics=frozenset(topics), target={})
    assigned = assign_uniform({MemberId(f"m{number:02}"): member for number in range(100)}, topics)
    assert {len(partitions) for partitions in assigned.values()} == {1}
    assert compared < 3000, "the partitions are 100, and the members at each topic together 10,000"


def test_range_gives_neighbours_static_members_first() -> None:
    member = AssigningMember(instance_id=None, topics=frozenset(TOPICS[:1]), target={})
    static = AssigningMember(instance_id="z", topics=frozenset(TOPICS[:1]), target={})
    assigned = assign_range({"a": member, "b": member, "c": static}, {TOPICS[0]: 7})
    assert {m: sorted(p[TOPICS[0]]) for m, p in assigned.items()} == {"c": [0, 1, 2], "a": [3, 4], "b": [5, 6]}
