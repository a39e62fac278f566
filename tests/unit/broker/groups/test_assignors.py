"""The assignors: shares, stickiness, and Java's order."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from suiro.broker.coordination.groups.assignors import (
    AssigningGroup,
    AssigningMember,
    Assignment,
    assign_range,
    assign_uniform,
)
from suiro.broker.coordination.java_hashes import (
    copied_hash_order,
    hash_order,
    string_hash,
    uuid_hash,
    uuid_order,
)

TOPICS = [UUID(int=number) for number in range(1, 4)]


def group_of(wants: dict[str, set[int]], counts: list[int], before: Assignment | None = None) -> AssigningGroup:
    """Members by the numbers of the topics that they want."""
    target = before or {}
    return AssigningGroup(
        members={
            member_id: AssigningMember(
                instance_id=None,
                topics=frozenset(TOPICS[number] for number in numbers),
                target=target.get(member_id, {}),
            )
            for member_id, numbers in wants.items()
        },
        partitions=dict(zip(TOPICS, counts, strict=True)),
        assigned=frozenset(
            (topic, partition)
            for partitions in target.values()
            for topic, some in partitions.items()
            for partition in some
        ),
        same_topics=len({frozenset(numbers) for numbers in wants.values()}) <= 1,
    )


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
            after = assign(group_of(wants, counts, kept))
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
    before = assign_uniform(group_of(dict.fromkeys(names, all_topics), counts))
    sizes = [len(places(before, name)) for name in names]
    assert max(sizes) - min(sizes) <= 1
    again = assign_uniform(group_of(dict.fromkeys(names, all_topics), counts, before))
    assert again == before
    gone = min(names)
    rest = names - {gone}
    left = {name: before[name] for name in rest}
    after = assign_uniform(group_of(dict.fromkeys(rest, all_topics), counts, left))
    for name in rest:
        assert places(before, name) <= places(after, name), "nobody lost anything"


def test_range_gives_neighbours_static_members_first() -> None:
    member = AssigningMember(instance_id=None, topics=frozenset(TOPICS[:1]), target={})
    static = AssigningMember(instance_id="z", topics=frozenset(TOPICS[:1]), target={})
    group = AssigningGroup(
        members={"a": member, "b": member, "c": static},
        partitions={TOPICS[0]: 7},
        assigned=frozenset(),
        same_topics=True,
    )
    assert {m: sorted(p[TOPICS[0]]) for m, p in assign_range(group).items()} == {
        "c": [0, 1, 2],
        "a": [3, 4],
        "b": [5, 6],
    }


def test_java_walks_through_a_hash_map_in_this_order() -> None:
    """As printed by Java's HashMap and HashSet."""
    assert hash_order(["member-one", "m2", "third"], string_hash) == ["third", "m2", "member-one"]
    assert copied_hash_order([17, 0, 1], int) == [0, 17, 1]
    assert hash_order(range(12), int) == list(range(12))
    assert uuid_hash(UUID("00000001-0002-0003-0004-000500060007")) == 0x0001 ^ 0x00020003 ^ 0x00040005 ^ 0x00060007
    assert uuid_order(UUID(int=1 << 127)) < uuid_order(UUID(int=1))
