"""The rules of fetch sessions, without a socket: epochs, what is news, whose turn it is, who makes room for whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from support.logs import batch, open_log

from suiro.broker.coordination.fetch_sessions import (
    EVICTION_MS,
    NO_SESSION,
    FetchSession,
    FetchSessionError,
    FetchSessions,
    Wanted,
    next_epoch,
)
from suiro.broker.storage.topics import Partition
from suiro.protocol.messages import ErrorCode

OLD = EVICTION_MS + 1


@pytest.fixture
def partition(tmp_path: Path) -> Callable[[int], Partition]:
    made: dict[int, Partition] = {}

    def get(index: int) -> Partition:
        if index not in made:
            made[index] = Partition("topic", index, open_log(tmp_path / str(index)))
        return made[index]

    return get


def grow(partition: Partition) -> None:
    partition.log.append(batch())
    partition.grown()


def look(wanted: Wanted) -> Wanted:
    wanted.result = wanted.partition.log.read(wanted.offset, max_bytes=1 << 20, read_committed=False)
    return wanted


def asked(*partitions: Partition) -> list[Wanted]:
    return [
        Wanted(key=("topic", item.index), offset=0, max_bytes=1 << 20, name="topic", partition=item)
        for item in partitions
    ]


def begin(sessions: FetchSessions, *partitions: Partition, now_ms: int = 0, privileged: bool = False) -> int:
    return sessions.begin(
        [look(wanted) for wanted in asked(*partitions)],
        by_topic_id=False,
        privileged=privileged,
        read_committed=False,
        now_ms=now_ms,
    )


def resume(
    sessions: FetchSessions, session_id: int, epoch: int, *wanted: Wanted, now_ms: int = 0
) -> FetchSession | None:
    return sessions.resume(session_id, epoch, by_topic_id=False, wanted=wanted, forgotten=(), now_ms=now_ms)


def answer(session: FetchSession) -> list[int]:
    """One incremental answer: the indexes it names."""
    looked_at = [look(wanted) for wanted in session.in_order()]
    news = [wanted.key[1] for wanted in looked_at if wanted.is_news()]
    session.told(looked_at, read_committed=False)
    return news


def opened(sessions: FetchSessions, *partitions: Partition) -> FetchSession:
    session = sessions.get(begin(sessions, *partitions))
    assert session is not None
    return session


PartitionFixture = Callable[[int], Partition]


def test_epochs_wrap_round_to_one() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 2, 2**31 - 1, -1)] == [1, 2, 2**31 - 1, 1, -1]


def test_quiet_partitions_are_not_looked_at(partition: PartitionFixture) -> None:
    session = opened(FetchSessions(slots=1), *(partition(index) for index in range(100)))
    assert session.in_order() == []
    grow(partition(42))
    grow(partition(7))
    assert [wanted.key[1] for wanted in session.in_order()] == [7, 42]


def test_a_partition_rests_only_at_its_end(partition: PartitionFixture) -> None:
    session = opened(FetchSessions(slots=1), partition(0), partition(1))
    grow(partition(0))
    assert answer(session) == [0]
    assert answer(session) == [0]  # the reader's offset has not moved
    session.update([Wanted(key=("topic", 0), offset=1, max_bytes=1)], ())
    assert answer(session) == []
    assert session.in_order() == []


def test_growth_between_a_look_and_its_answer_is_not_lost(partition: PartitionFixture) -> None:
    """Another partition's records may come from afar meanwhile."""
    session = opened(FetchSessions(slots=1), partition(0))
    session.update([Wanted(key=("topic", 0), offset=0, max_bytes=1)], ())
    looked_at = [look(wanted) for wanted in session.in_order()]
    grow(partition(0))
    session.told(looked_at, read_committed=False)
    assert answer(session) == [0]


def test_growth_is_told_once_until_it_is_looked_at(partition: PartitionFixture) -> None:
    """A session whose client is gone must not cost every produce something until it is evicted."""
    opened(FetchSessions(slots=1), partition(0))
    assert len(partition(0).waiters) == 1
    grow(partition(0))
    assert partition(0).waiters == {}


def test_a_waiting_fetch_hears_of_every_growth(partition: PartitionFixture) -> None:
    session = opened(FetchSessions(slots=1), partition(0), partition(1))
    heard: list[int] = []

    def wake() -> None:
        heard.append(len(session.stirred))

    session.wait(wake)
    for index in (0, 0, 1):
        grow(partition(index))
    session.stop_waiting(wake)
    grow(partition(0))
    assert heard == [1, 1, 2]


def test_forgotten_partitions_are_let_go(partition: PartitionFixture) -> None:
    session = opened(FetchSessions(slots=1), partition(0), partition(1))
    session.update((), [("topic", 0), ("other", 9)])
    assert partition(0).waiters == {}
    grow(partition(0))
    assert answer(session) == []


@pytest.mark.parametrize("ending", [0, -1])
def test_a_full_request_ends_the_session(ending: int, partition: PartitionFixture) -> None:
    sessions = FetchSessions(slots=2)
    session_id = begin(sessions, partition(0))
    assert resume(sessions, session_id, ending) is None
    assert len(sessions) == 0
    assert partition(0).waiters == {}


def test_a_session_that_ends_or_goes_on_wakes_a_fetch_that_waits(partition: PartitionFixture) -> None:
    sessions = FetchSessions(slots=2)
    session = opened(sessions, partition(0))
    heard: list[bool] = []
    wake = lambda: heard.append(session.is_open)  # noqa: E731
    session.wait(wake)
    resume(sessions, session.id, session.epoch)
    resume(sessions, session.id, -1)
    assert heard == [True, False]
    session.stop_waiting(wake)
    assert partition(0).waiters == {}


def test_requests_that_do_not_fit(partition: PartitionFixture) -> None:
    sessions = FetchSessions(slots=2)
    session_id = begin(sessions, partition(0))

    def refusal(session_id: int, epoch: int, *, by_topic_id: bool = False) -> ErrorCode:
        with pytest.raises(FetchSessionError) as caught:
            sessions.resume(session_id, epoch, by_topic_id=by_topic_id, wanted=(), forgotten=(), now_ms=0)
        return caught.value.code

    assert refusal(session_id + 1, 1) is ErrorCode.fetch_session_id_not_found
    assert refusal(session_id, 2) is ErrorCode.invalid_fetch_session_epoch
    assert refusal(session_id, 1, by_topic_id=True) is ErrorCode.fetch_session_topic_id_error
    other = Wanted(key=(UUID(int=1), 0), offset=0, max_bytes=0)
    resumed = resume(sessions, session_id, 1, other)
    assert (resumed.epoch, len(resumed.partitions)) == (2, 2)


# -- places ---------------------------------------------------------------------------------------------------


def test_no_session_without_a_place(partition: PartitionFixture) -> None:
    assert begin(FetchSessions(slots=0), partition(0)) == NO_SESSION
    sessions = FetchSessions(slots=1)
    first = begin(sessions, partition(0))
    assert begin(sessions, *(partition(index) for index in range(9)), now_ms=OLD - 1) == NO_SESSION
    assert sessions.get(first) is not None


def test_sessions_hold_so_many_partitions_together(partition: PartitionFixture) -> None:
    """They stay when their clients are gone, and anybody may name partitions that are not there."""
    sessions = FetchSessions(slots=10, partitions=3)
    first = begin(sessions, partition(0), partition(1))
    assert begin(sessions, partition(0), partition(1)) == NO_SESSION
    second = begin(sessions, partition(2))
    assert NO_SESSION not in (first, second)
    assert resume(sessions, first, 1, *asked(partition(0))) is not None
    with pytest.raises(FetchSessionError) as caught:
        resume(sessions, first, 2, *asked(partition(3)))
    assert caught.value.code is ErrorCode.fetch_session_id_not_found
    assert sessions.partition_count == 1
    assert begin(sessions, *map(partition, range(4)), now_ms=OLD) == NO_SESSION
    assert begin(sessions, *map(partition, range(3)), now_ms=OLD) != NO_SESSION
    assert sessions.get(second) is None


def test_names_that_no_topic_can_have_are_not_kept(partition: PartitionFixture) -> None:
    sessions = FetchSessions(slots=2)
    long = Wanted(key=("t" * 250, 0), offset=0, max_bytes=1, name="t" * 250, refused=True)
    more = {"by_topic_id": False, "privileged": False, "read_committed": False, "now_ms": 0}
    assert sessions.begin([long], **more) == NO_SESSION
    session = begin(sessions, partition(0))
    with pytest.raises(FetchSessionError):
        resume(sessions, session, 1, long)
    assert len(sessions) == 0


def test_the_longest_unused_makes_room(partition: PartitionFixture) -> None:
    sessions = FetchSessions(slots=2)
    first, second = begin(sessions, partition(0)), begin(sessions, partition(1))
    resume(sessions, first, 1, now_ms=OLD - 1)
    third = begin(sessions, partition(2), now_ms=OLD)
    assert [sessions.get(item) is not None for item in (first, second, third)] == [True, False, True]
    assert (sessions.evictions, sessions.partition_count) == (1, 2)


def test_a_larger_session_displaces_a_smaller_one_that_has_lived(partition: PartitionFixture) -> None:
    sessions = FetchSessions(slots=2)
    small, large = begin(sessions, partition(0)), begin(sessions, *map(partition, range(5)))
    for session_id in (small, large):
        resume(sessions, session_id, 1, now_ms=OLD)
    assert begin(sessions, now_ms=OLD + 1) == NO_SESSION  # smaller than both
    third = begin(sessions, *map(partition, range(3)), now_ms=OLD + 1)
    assert [sessions.get(item) is not None for item in (small, large, third)] == [False, True, True]


def test_consumers_make_room_for_replicas_and_not_the_other_way(partition: PartitionFixture) -> None:
    sessions = FetchSessions(slots=1)
    consumer = begin(sessions, *map(partition, range(3)))
    replica = begin(sessions, partition(0), privileged=True, now_ms=1)
    assert [sessions.get(item) is not None for item in (consumer, replica)] == [False, True]
    resume(sessions, replica, 1, now_ms=OLD + 2)
    assert begin(sessions, *map(partition, range(3)), now_ms=OLD + 3) == NO_SESSION
