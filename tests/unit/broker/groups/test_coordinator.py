"""Groups and offsets through a broker without sockets: what is written, what comes back, what expires."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import brokers

from suiro.broker import Broker
from suiro.broker.coordination.groups import group as group_module
from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import Heartbeat
from suiro.broker.coordination.groups.group import Group, GroupState
from suiro.broker.coordination.groups.group_member import JoinReply, JoinRequest, MemberIdentity, SyncReply, SyncRequest
from suiro.broker.coordination.groups.offsets import CommittedOffset, OffsetStore
from suiro.broker.coordination.groups.records import OffsetValue
from suiro.broker.coordination.groups.regexes import check_regex, matching_topics
from suiro.broker.coordination.transactions.state import V1
from suiro.broker.refusals import RefusedError
from suiro.broker.storage import system_log
from suiro.clock import ManualClock
from suiro.log import StorageError
from suiro.protocol.fields import FieldWriter
from suiro.protocol.messages import ErrorCode

PLACE = ("t", 0)
WEEK_MS = 7 * 24 * 3600 * 1000


started = partial(brokers.started, offsets_topic_num_partitions=1, group_consumer_assignment_interval_ms=0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def commit(broker: Broker, value: int, *, place: tuple[str, int] = PLACE, **fields: Any) -> None:
    producer = fields.pop("producer", None)
    offset = OffsetValue(offset=value, leader_epoch=0, metadata="", commit_ms=broker.clock.wall_ms(), **fields)
    broker.groups.offsets.commit("g", {place: offset}, producer=producer)


def committed(broker: Broker) -> dict[tuple[str, int], int]:
    return {place: entry.value.offset for place, entry in broker.groups.offsets.store.committed("g").items()}


def beat(broker: Broker, member_id: str, epoch: int, **fields: Any) -> Any:
    request = Heartbeat(member_id=member_id, member_epoch=epoch, **fields)
    return broker.groups.consumers.heartbeat("g", request, may_describe=lambda _: True)


def join(broker: Broker, member_id: str, *topics: str) -> Any:
    return beat(broker, member_id, 0, rebalance_timeout_ms=1000, topic_names=topics, owned={})


def resolved(broker: Broker, group: Any) -> None:
    """Run the loop until the topics of the group's regular expressions are known."""

    async def waiting() -> None:
        async with asyncio.timeout(30):
            while group.is_resolving or not group.regexes:
                await asyncio.sleep(0.001)

    broker.loop.run_until_complete(waiting())


def subscription(*topics: str) -> bytes:
    metadata = FieldWriter().int16(0).int32(len(topics))
    for topic in topics:
        metadata.string(topic)
    return metadata.octets(b"").done()


def join_classic(
    broker: Broker, *topics: str, others: Sequence[tuple[str, bytes]] = ()
) -> tuple[JoinReply, Callable[[], SyncReply]]:
    """One consumer of the classic protocol; the second result sends its SyncGroup. `others`: further protocols."""
    joined: list[JoinReply] = []
    request = JoinRequest(
        member_id="",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", subscription(*topics)), *others),
    )
    broker.groups.join("g", request, joined.append)

    def sync() -> SyncReply:
        synced: list[SyncReply] = []
        member_id, generation = joined[0].member_id, joined[0].generation
        request = SyncRequest(member_id=member_id, generation=generation, assignments={member_id: b"all"})
        broker.groups.sync("g", request, synced.append)
        return synced[0]

    return joined[0], sync


def test_offsets_of_a_deleted_topic_do_not_come_back_with_a_commit(tmp_path: Path, clock: ManualClock) -> None:
    with started(tmp_path, clock) as broker:
        topic = broker.create_topic("t")
        _, producer_id, epoch = broker.transactions.init_producer_id("id", timeout_ms=60_000, expected=None)
        offsets = broker.groups.partition_of("g")
        broker.transactions.add_partitions(
            "id",
            producer=(producer_id, epoch),
            partitions=frozenset(((offsets.topic, offsets.index),)),
            version=V1,
        )
        commit(broker, 1)
        commit(broker, 2, producer=(producer_id, epoch))
        broker.delete_topic(topic)
        assert broker.groups.offsets.store.undecided("g") == set()
        broker.transactions.end("id", producer=(producer_id, epoch), commit=True, version=V1)
        assert committed(broker) == {}
    with started(tmp_path, clock) as broker:
        assert committed(broker) == {}


def test_who_asks_for_what_is_undecided_in_a_group_does_not_go_over_all_others() -> None:
    """An OffsetFetch asks so for each of its groups, of which it may name thousands."""

    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    store = OffsetStore()
    value = OffsetValue(offset=1, leader_epoch=0, metadata="", commit_ms=0)
    for number in range(100):
        entry = CommittedOffset(value=value, log_offset=number)
        store.hold(f"other-{number}", PLACE, entry, index=0, producer_id=number)
    store.hold("g", PLACE, entry, index=0, producer_id=1)
    store.hold("g", PLACE, entry, index=0, producer_id=2)
    assert store.undecided(Counted("g")) == {PLACE}
    assert Counted.compared < 10
    store.complete_transaction(0, 1, commit=True)
    assert store.undecided("g") == {PLACE}
    store.remove("g", [PLACE])
    store.complete_transaction(0, 2, commit=True)
    assert (store.undecided("g"), store.committed("g")) == (set(), {})
    assert store.undecided("other-3") == {PLACE}


def test_a_consumer_group_goes_on_after_a_start(tmp_path: Path, clock: ManualClock) -> None:
    with started(tmp_path, clock) as broker:
        broker.create_topic("t", partitions=2)
        first = join(broker, "a", "t")
        join(broker, "b", "t")
    with started(tmp_path, clock) as broker:
        group = broker.groups.groups["g"]
        assert isinstance(group, ConsumerGroup)
        kept = beat(broker, "a", first.member_epoch, owned=first.assignment).assignment
        beat(broker, "a", first.member_epoch, owned=kept)
        assert sum(len(some) for some in beat(broker, "b", 3).assignment.values()) == 1
        epoch = group.group_epoch
        clock.advance(45_000)
        broker.groups.consumers.tick(group)
        assert (group.members, group.group_epoch) == ({}, epoch + 2)
    with started(tmp_path, clock) as broker:
        broker.groups.offsets.expire()
        assert "g" not in broker.groups.groups
    with started(tmp_path, clock) as broker:
        assert "g" not in broker.groups.groups


def test_what_cannot_be_written_down_did_not_happen(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise StorageError("no space left")

    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        joined, sync = join_classic(broker, "t")
        assert joined.code is ErrorCode.none
        with monkeypatch.context() as patch:
            patch.setattr(system_log, "append", full)
            answer = sync()
            assert (answer.code, answer.assignment) == (ErrorCode.not_coordinator, b"")
            with pytest.raises(RefusedError) as caught:
                broker.groups.consumers.heartbeat(
                    "h",
                    Heartbeat(member_id="a", member_epoch=0, topic_names=("t",), owned={}),
                    may_describe=lambda _: True,
                )
            assert caught.value.code is ErrorCode.not_coordinator
            assert "h" not in broker.groups.groups
        group = broker.groups.groups["g"]
        assert isinstance(group, Group)
        assert group.state is GroupState.PREPARING_REBALANCE, "all start over"


def test_who_does_not_give_back_in_time_is_tried_again_later_where_it_cannot_be_written_down(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise StorageError("no space left")

    with started(tmp_path, clock) as broker:
        broker.create_topic("t", partitions=2)
        first = join(broker, "a", "t")
        join(broker, "b", "t")
        group = broker.groups.groups["g"]
        told = beat(broker, "a", first.member_epoch, rebalance_timeout_ms=1000, owned=first.assignment)
        assert told.assignment is not None, "it has a partition to give back"
        clock.advance(1001)
        with monkeypatch.context() as patch:
            patch.setattr(system_log, "append", full)
            broker.groups.look_again()
        assert list(group.members) == ["a", "b"]
        again = group.next_deadline()
        assert again is not None
        assert again > clock.monotonic_ms(), "not at once and for ever"
        clock.advance(again - clock.monotonic_ms())
        broker.groups.look_again()
        assert "a" not in group.members


def test_a_group_that_cannot_be_written_down_does_not_keep_the_offsets_of_others(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path, clock, offsets_topic_num_partitions=2) as broker:
        write, store = broker.groups.write, broker.groups.offsets.store

        def full(group_id: str, *args: Any, **fields: Any) -> int:
            if group_id == "full":
                raise RefusedError(ErrorCode.not_coordinator, "no space left")
            return write(group_id, *args, **fields)

        assert broker.groups.partition_of("full") is not broker.groups.partition_of("h")
        for topic in ("t", "old"):
            for group_id in ("full", "h"):
                offset = OffsetValue(offset=1, leader_epoch=0, metadata="", commit_ms=clock.wall_ms())
                broker.groups.offsets.commit(group_id, {(topic, 0): offset})
        monkeypatch.setattr(broker.groups, "write", full)
        broker.groups.offsets.forget_topic("t")
        expected = [("old", 0)]
        assert {group_id: list(found) for group_id, found in store} == {"full": expected, "h": expected}
        clock.advance(WEEK_MS + 1)
        broker.groups.offsets.expire()
        assert [group_id for group_id, _ in store] == ["full"]
        assert list(broker.groups.groups) == ["full"]


def test_offsets_of_many_groups_are_written_off_with_few_writes(tmp_path: Path, clock: ManualClock) -> None:
    """The node answers nobody meanwhile: 20,000 groups took it seconds."""
    with started(tmp_path, clock) as broker:
        offset = OffsetValue(offset=1, leader_epoch=0, metadata="", commit_ms=clock.wall_ms())
        for index in range(600):
            broker.groups.offsets.commit(f"g-{index}", {("t", 0): offset, ("old", 0): offset})
        (partition,) = broker.internal_topic("__consumer_offsets").partitions
        before = partition.log.log_end_offset
        broker.groups.offsets.forget_topic("t")
        clock.advance(WEEK_MS + 1)
        broker.groups.offsets.expire()
        assert not broker.groups.groups
        written = [header for header, _ in system_log.replay(partition.log) if header.base_offset >= before]
        assert len(written) <= 4
        assert partition.log.log_end_offset == before + 3 * 600
    with started(tmp_path, clock) as broker:
        assert not broker.groups.groups


def test_offsets_of_a_group_between_two_protocols_are_of_a_group_after_a_start(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Else nothing could expire or delete them any more."""
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        joined = join(broker, "m", "t")
        beat(broker, "m", -1)
        commit(broker, 5)
        assert joined.member_epoch > 0
        request = JoinRequest(
            member_id="",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            needs_known_member_id=True,
        )
        broker.groups.join("g", request, lambda _: None)
    with started(tmp_path, clock) as broker:
        assert committed(broker) == {PLACE: 5}
        assert broker.groups.delete("g") is ErrorCode.none
        assert committed(broker) == {}


def test_a_member_whose_id_no_record_can_hold(tmp_path: Path, clock: ManualClock) -> None:
    """A request may have the prefix, the records of the offsets log cannot have the id."""
    long = "n" * ((1 << 15) - 1)

    def joins(**names: str) -> JoinReply:
        replies: list[JoinReply] = []
        request = JoinRequest(
            member_id="",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            **names,
        )
        broker.groups.join("g", request, replies.append)
        broker.groups.look_again()
        return replies[0]

    with started(tmp_path, clock) as broker:
        # With one of these in it no generation of the group could be written down: nobody got an assignment.
        assert joins(instance_id=long).code is ErrorCode.invalid_request
        assert joins(client_id=long[:-36]).code is ErrorCode.invalid_request
        assert joins(client_id=long[:-37]).code is ErrorCode.none
        broker.groups.leave("g", member_id=next(iter(broker.groups.groups["g"].members)), instance_id=None)
        member = joins(instance_id="i", client_id=long)
        synced: list[SyncReply] = []
        request = SyncRequest(member_id=member.member_id, instance_id="i", generation=member.generation)
        broker.groups.sync("g", request, synced.append)
        assert [reply.code for reply in synced] == [ErrorCode.none]


def test_a_regular_expression_may_leave_a_quotation_open(tmp_path: Path, clock: ManualClock) -> None:
    with started(tmp_path, clock) as broker:
        for topic in ("a.b", "a.bc", "axb"):
            broker.create_topic(topic)
        joined = beat(broker, "m", 0, rebalance_timeout_ms=1000, topic_regex=r"\Qa.b", owned={})
        group = broker.groups.groups["g"]
        resolved(broker, group)
        beat(broker, "m", joined.member_epoch)
        assert [group.is_subscribed_to(topic) for topic in ("a.b", "a.bc", "axb")] == [True, False, False]


def test_an_expression_that_takes_long_to_compile_is_refused() -> None:
    """One that a group brings from before the limit finds its topics all the same."""
    short = "(.?){0,900}" * 8
    with pytest.raises(RefusedError) as caught:
        check_regex(short)
    assert caught.value.code is ErrorCode.invalid_regular_expression
    assert matching_topics(short, ["t"]) == {"t"}


def test_an_expression_that_takes_long_holds_nobody_up(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long one takes is its sender's choice: 220 characters can be minutes for some thousand topics."""
    may_end, held_up = threading.Event(), threading.Event()

    def match(regex: str, names: list[str]) -> frozenset[str]:
        if not may_end.wait(30):
            held_up.set()
        return frozenset(names)

    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        monkeypatch.setattr("suiro.broker.coordination.groups.consumer_edge.matching_topics", match)
        beat(broker, "a", 0, rebalance_timeout_ms=1000, topic_regex="t", owned={})
        broker.loop.run_until_complete(asyncio.sleep(0))
        broker.loop.run_until_complete(asyncio.sleep(0))
        beat(broker, "b", 0, rebalance_timeout_ms=1000, topic_names=("t",), owned={})
        may_end.set()
        resolved(broker, broker.groups.groups["g"])
        assert not held_up.is_set()


@pytest.mark.parametrize("turns", [0, 1])
def test_a_node_that_stops_leaves_expressions_that_are_being_matched(
    tmp_path: Path,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    turns: int,
) -> None:
    may_end = threading.Event()

    def match(regex: str, names: list[str]) -> frozenset[str]:
        may_end.wait(30)
        return frozenset(names)

    monkeypatch.setattr("suiro.broker.coordination.groups.consumer_edge.matching_topics", match)
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        beat(broker, "a", 0, rebalance_timeout_ms=1000, topic_regex="t", owned={})
        for _ in range(turns):
            broker.loop.run_until_complete(asyncio.sleep(0))
        loop = broker.loop
        broker.stop()
        assert asyncio.all_tasks(loop) == set()
    may_end.set()
    assert caplog.text == ""


def test_offsets_of_consumers_that_manage_themselves_expire_each_for_itself(tmp_path: Path, clock: ManualClock) -> None:
    with started(tmp_path, clock) as broker:
        for name in ("t", "u", "v"):
            broker.create_topic(name)
        commit(broker, 1)
        commit(broker, 2, place=("v", 0), expire_ms=clock.wall_ms() + 10)
        clock.advance(10)
        broker.groups.offsets.expire()
        assert committed(broker) == {PLACE: 1}
        clock.advance(WEEK_MS - 11)
        commit(broker, 3, place=("u", 0))
        broker.groups.offsets.expire()
        assert set(committed(broker)) == {PLACE, ("u", 0)}
        clock.advance(1)
        broker.groups.offsets.expire()
        assert committed(broker) == {("u", 0): 3}
        clock.advance(WEEK_MS)
        broker.groups.offsets.expire()
        assert "g" not in broker.groups.groups


def test_subscriptions_are_decoded_once_however_many_offsets_there_are(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large group's members times its partitions held the node up for seconds."""
    decoded: list[bytes] = []
    decode = group_module.topics_of

    def topics_of(subscription: bytes) -> frozenset[str]:
        decoded.append(subscription)
        return decode(subscription)

    with started(tmp_path, clock) as broker:
        broker.create_topic("t", partitions=20)
        _, sync = join_classic(broker, "t")
        sync()
        places = [("t", index) for index in range(20)]
        for place in places:
            commit(broker, 1, place=place)
        clock.advance(WEEK_MS)
        monkeypatch.setattr(group_module, "topics_of", topics_of)
        broker.groups.offsets.expire()
        assert len(committed(broker)) == 20
        broker.groups.offsets.delete("g", places)
        assert len(decoded) <= 4


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_topics_that_are_read_do_not_expire(tmp_path: Path, clock: ManualClock, protocol: str) -> None:
    with started(tmp_path, clock) as broker:
        for name in ("t", "u"):
            broker.create_topic(name)
        if protocol == "classic":
            _, sync = join_classic(broker, "t")
            assert sync().assignment == b"all"
        else:
            join(broker, "a", "t")
        commit(broker, 1)
        commit(broker, 1, place=("u", 0))
        clock.advance(WEEK_MS)
        broker.groups.offsets.expire()
        assert committed(broker) == {PLACE: 1}


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty(tmp_path: Path, clock: ManualClock) -> None:
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        joined, sync = join_classic(broker, "t")
        sync()
        commit(broker, 1)
        clock.advance(WEEK_MS)  # its session ends, which is seen now
        code = broker.groups.leave("g", member_id=joined.member_id, instance_id=None)
        assert code is ErrorCode.unknown_member_id
        broker.groups.offsets.expire()
        assert committed(broker) == {PLACE: 1}
    with started(tmp_path, clock) as broker:
        clock.advance(WEEK_MS - 1)
        broker.groups.offsets.expire()
        assert committed(broker) == {PLACE: 1}
        clock.advance(1)
        broker.groups.offsets.expire()
        assert "g" not in broker.groups.groups


@pytest.mark.parametrize("asked", ["delete", "heartbeat", "commit", "delete offsets", "list"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_session_is_over_when_its_time_is_whatever_the_timer_does(
    tmp_path: Path, clock: ManualClock, protocol: str, asked: str
) -> None:
    """The event loop does not run here: no timer ever fires. The request itself finds the member gone."""
    with started(tmp_path, clock) as broker:
        groups = broker.groups
        broker.create_topic("t")
        if protocol == "classic":
            joined, sync = join_classic(broker, "t")
            sync()
            member_id, generation, session_ms = joined.member_id, joined.generation, 10_000
        else:
            member_id, session_ms = "a", 45_000
            generation = join(broker, member_id, "t").member_epoch

        def is_over() -> bool:
            match asked:
                case "delete":
                    return groups.delete("g") is ErrorCode.none
                case "heartbeat" if protocol == "classic":
                    code = groups.heartbeat("g", MemberIdentity(member_id, None, generation))
                    return code is ErrorCode.unknown_member_id
                case "heartbeat":
                    try:
                        beat(broker, member_id, generation)
                    except RefusedError as refusal:
                        return refusal.code is ErrorCode.unknown_member_id
                    return False
                case "commit":
                    member = MemberIdentity(member_id, None, generation)
                    code = groups.offsets.check_commit("g", member, transactional=False, places=())
                    return code is ErrorCode.unknown_member_id
                case "delete offsets":
                    return groups.offsets.delete("g", [PLACE]) == {PLACE: ErrorCode.none}
            return not groups.all_current()["g"].members

        clock.advance(session_ms - 1)
        assert asked in ("heartbeat", "commit") or not is_over()
        clock.advance(1)
        assert is_over()


def join_with(broker: Broker, group_id: str, size: int) -> JoinReply | None:
    """What a consumer of the classic protocol with so much metadata hears at once."""
    replies: list[JoinReply] = []
    request = JoinRequest(
        member_id="",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", bytes(size)),),
    )
    broker.groups.join(group_id, request, replies.append)
    return replies[0] if replies else None


def test_members_that_bring_too_much_are_refused_until_others_are_gone(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"group_max_member_bytes": 100_000, "group_max_bytes": 150_000, "group_max_total_bytes": 250_000}
    with started(tmp_path, clock, **limits) as broker:
        memory = broker.groups.memory

        def refused(group_id: str, size: int) -> bool:
            clock.advance(1000)  # the log is told once a second
            reply = join_with(broker, group_id, size)
            return reply is not None and reply.code is ErrorCode.group_max_size_reached

        assert refused("g", 100_000)
        assert "group g takes no member: a member of" in caplog.text
        assert "group.max.member.bytes = 100000" in caplog.text
        assert "g" not in broker.groups.groups
        assert not refused("g", 90_000)
        assert refused("g", 90_000)
        assert "over group.max.bytes = 150000" in caplog.text
        assert not refused("h", 90_000)
        assert refused("i", 90_000)
        assert "over group.max.total.bytes = 250000" in caplog.text
        clock.advance(1000)
        topics = [f"{number}".zfill(200) for number in range(250)]
        with pytest.raises(RefusedError, match=r"group\.max\.total\.bytes") as told:
            broker.groups.consumers.heartbeat(
                "j",
                Heartbeat(member_id="m", member_epoch=0, topic_names=tuple(topics), owned={}),
                may_describe=lambda _: True,
            )
        assert told.value.code is ErrorCode.group_max_size_reached
        clock.advance(10_001)  # nobody says anything any more
        broker.groups.look_again()
        assert memory.used == 0
        assert not refused("i", 90_000)


def test_members_of_the_new_protocol_count_from_a_start_on(tmp_path: Path, clock: ManualClock) -> None:
    topics = [f"{number}".zfill(200) for number in range(100)]
    with started(tmp_path, clock) as broker:
        join(broker, "a", *topics)
        held = broker.groups.memory.used
        assert held > 100 * 200
        join(broker, "b", *topics)
        assert broker.groups.memory.used == 2 * held
        beat(broker, "b", -1)
        assert broker.groups.memory.used == held
    with started(tmp_path, clock, group_max_bytes=held + 1000) as broker:
        assert broker.groups.memory.used == held
        with pytest.raises(RefusedError) as told:
            join(broker, "b", *topics)
        assert told.value.code is ErrorCode.group_max_size_reached
        join(broker, "a", *topics)  # who is there may say everything again


def test_an_assignment_counts_as_what_its_members_hold(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """One member that leads its groups could fill the node's memory with them, a request's size at a time."""
    with started(tmp_path, clock, group_max_bytes=100_000, group_max_total_bytes=150_000) as broker:
        broker.create_topic("t")

        def synced(group_id: str, size: int, *, joins: bool = True) -> list[ErrorCode]:
            replies: list[JoinReply] = []
            request = JoinRequest(
                member_id="",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=(("range", b""),),
            )
            if joins:
                broker.groups.join(group_id, request, replies.append)
                members[group_id] = replies[0]
            member_id, generation = members[group_id].member_id, members[group_id].generation
            codes: list[ErrorCode] = []
            broker.groups.sync(
                group_id,
                SyncRequest(member_id=member_id, generation=generation, assignments={member_id: bytes(size)}),
                lambda reply: codes.append(reply.code),
            )
            return codes

        members: dict[str, JoinReply] = {}
        assert synced("g", 100_000) == [ErrorCode.unknown_server_error]
        assert "group g takes no assignment: members of" in caplog.text
        assert synced("g", 90_000, joins=False) == [ErrorCode.none]
        assert synced("g", 90_000, joins=False) == [ErrorCode.none]
        assert synced("h", 90_000) == [ErrorCode.unknown_server_error]
        assert synced("h", 50_000, joins=False) == [ErrorCode.none]
        clock.advance(10_001)
        broker.groups.look_again()
        assert broker.groups.memory.used == 0


def test_groups_that_nobody_could_join_are_not_kept(tmp_path: Path, clock: ManualClock) -> None:
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        codes: list[ErrorCode] = []
        for number in range(10):
            request = JoinRequest(
                member_id="",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=(),
            )
            broker.groups.join(f"g{number}", request, lambda reply: codes.append(reply.code))
        assert set(codes) == {ErrorCode.inconsistent_group_protocol}
        assert broker.groups.groups == {}
        commit(broker, 5)
        broker.groups.join("g", request, lambda reply: codes.append(reply.code))
        assert list(broker.groups.groups) == ["g"]  # it stands for offsets


def test_the_end_of_the_last_member_of_the_new_protocol_disturbs_nobody(tmp_path: Path, clock: ManualClock) -> None:
    """The group is classic then, in the middle of the request of another member, and both have their deadlines."""
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        joined: list[JoinReply] = []
        metadata = FieldWriter().int16(0).int32(1).string("t").octets(b"").done()
        request = JoinRequest(
            member_id="",
            session_timeout_ms=100_000,
            rebalance_timeout_ms=100_000,
            protocol_type="consumer",
            protocols=(("range", metadata),),
        )
        broker.groups.join("g", request, joined.append)
        synced: list[SyncReply] = []
        sync = SyncRequest(member_id=joined[0].member_id, generation=joined[0].generation)
        broker.groups.sync("g", sync, synced.append)
        assert synced[0].code is ErrorCode.none
        join(broker, "late", "t")
        clock.advance(45_001)
        assert join(broker, "next", "t").member_id == "next"
        group = broker.groups.groups["g"]
        assert isinstance(group, ConsumerGroup)
        assert "late" not in group.members


def test_a_classic_member_whose_other_protocol_is_damaged_is_refused(tmp_path: Path, clock: ManualClock) -> None:
    """It may be the group's when the group is classic again, in a timer that answers nobody."""
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        member = join(broker, "one", "t")
        refused, _ = join_classic(broker, "t", others=[("sticky", b"")])
        taken, _ = join_classic(broker, "t", others=[("sticky", subscription("t"))])
        assert refused.code is ErrorCode.inconsistent_group_protocol
        assert taken.code is ErrorCode.none
        assert beat(broker, "one", -1).member_epoch == -1
        group = broker.groups.groups["g"]
        assert isinstance(group, Group)
        assert member.member_id not in group.members
