"""The classic group protocol as a state machine: time is a number, waiting requests are strings."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID

from suiro.broker.coordination.groups.group import LEAST_WAIT_MS, Group, GroupLimits, GroupState
from suiro.broker.coordination.groups.group_member import (
    Effect,
    JoinReply,
    JoinRequest,
    MemberIdentity,
    Persist,
    SyncReply,
    SyncRequest,
)
from suiro.broker.coordination.groups.records import (
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class World:
    """One group, its time, and what was answered to whom."""

    def __init__(self, **limits: int) -> None:
        self.group = Group(group_id="g", limits=GroupLimits(**limits))
        self.now = 0
        self.answers: dict[str, Any] = {}
        self.persisted = 0
        self._ids = count(1)

    def join(self, token: str, member_id: str = "", *, known: bool = False, **fields: Any) -> Any:
        request = JoinRequest(
            **{
                "member_id": member_id,
                "client_id": "c",
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": (("range", b"topics"),),
                "needs_known_member_id": known,
                **fields,
            }
        )
        self.take(self.group.join(request, token, now=self.now, new_member_id=lambda: f"m{next(self._ids)}"))
        return self.answers.get(token)

    def sync(self, token: str, member_id: str, generation: int, assignments: dict[str, bytes] | None = None) -> Any:
        request = SyncRequest(member_id=member_id, generation=generation, assignments=assignments or {})
        self.take(self.group.sync(request, token, now=self.now))
        return self.answers.get(token)

    def leave(self, member_id: str, instance_id: str | None = None) -> str:
        code, effects = self.group.leave(member_id=member_id, instance_id=instance_id, now=self.now)
        self.take(effects)
        return code.name

    def heartbeat(self, member_id: str, generation: int) -> str:
        return self.group.heartbeat(MemberIdentity(member_id, None, generation), now=self.now).name

    def pass_time(self, ms: int) -> None:
        """Tick at every deadline on the way, as the coordinator's timer does."""
        end = self.now + ms
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.take(self.group.tick(self.now))
        self.now = end

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist():
                    self.persisted += 1
                case JoinReply() | SyncReply():
                    assert isinstance(effect.token, str)
                    assert effect.token not in self.answers, "answered twice"
                    self.answers[effect.token] = effect

    def stable(self, members: int = 1, **fields: Any) -> None:
        """A stable group of m1, m2..."""
        for number in range(members):
            self.join(f"first{number}", **fields)
        for number in range(1, members):  # everybody joins the rebalance that the next one caused
            self.join(f"again{number}", f"m{number}", **fields)
        generation = self.group.generation
        for number in range(2, members + 1):
            self.sync(f"sync{number}", f"m{number}", generation)
        self.sync("sync1", "m1", generation, {f"m{n}": b"part%d" % n for n in range(1, members + 1)})
        assert self.group.state is GroupState.STABLE


def test_one_member_joins_syncs_and_leaves() -> None:
    world = World()
    joined = world.join("j")
    assert (joined.code.name, joined.generation, joined.leader, joined.member_id) == ("none", 1, "m1", "m1")
    assert (joined.protocol, joined.members) == ("range", (("m1", None, b"topics"),))
    synced = world.sync("s", "m1", 1, {"m1": b"everything"})
    assert (synced.code.name, synced.assignment, world.persisted) == ("none", b"everything", 1)
    assert world.heartbeat("m1", 1) == "none"
    assert world.leave("m1") == "none"
    assert (world.group.state, world.group.generation, world.persisted) == (GroupState.EMPTY, 2, 2)


def test_a_dynamic_member_gets_its_id_before_it_joins() -> None:
    world = World()
    first = world.join("j1", known=True)
    assert (first.code.name, first.member_id, world.group.members) == ("member_id_required", "m1", {})
    assert world.join("j2", "m1", known=True).code.name == "none"
    assert world.join("j3", "stranger").code.name == "unknown_member_id"


def test_an_id_that_is_never_used_is_forgotten() -> None:
    world = World()
    world.join("j1", known=True)
    world.pass_time(SESSION_MS)
    assert world.join("j2", "m1").code.name == "unknown_member_id"


def test_a_second_member_causes_a_rebalance_that_waits_for_the_first() -> None:
    world = World()
    world.stable()
    assert world.join("j2") is None
    assert world.group.state is GroupState.PREPARING_REBALANCE
    assert world.heartbeat("m1", 1) == "rebalance_in_progress"
    rejoined = world.join("j1", "m1")
    assert (rejoined.generation, rejoined.leader, len(rejoined.members)) == (2, "m1", 2)
    follower = world.answers["j2"]
    assert (follower.generation, follower.leader, follower.members) == (2, "m1", ())
    assert world.sync("s2", "m2", 2) is None
    world.sync("s1", "m1", 2, {"m1": b"a", "m2": b"b"})
    assert (world.answers["s1"].assignment, world.answers["s2"].assignment) == (b"a", b"b")
    assert world.sync("late", "m2", 1).code.name == "illegal_generation"


def test_who_does_not_join_again_within_the_rebalance_timeout_is_out() -> None:
    world = World()
    world.stable(2, session_timeout_ms=600_000)
    world.join("rejoin", "m1", session_timeout_ms=600_000, protocols=(("range", b"changed"),))
    world.pass_time(REBALANCE_MS)
    reply = world.answers["rejoin"]
    assert (reply.code.name, len(reply.members)) == ("none", 1)
    assert world.heartbeat("m2", reply.generation) == "unknown_member_id"


def test_a_member_without_heartbeats_is_out_after_its_session() -> None:
    world = World()
    world.stable(2)
    for _ in range(4):
        world.pass_time(SESSION_MS // 4)
        world.heartbeat("m1", world.group.generation)
    world.pass_time(1)
    assert set(world.group.members) == {"m1"}
    assert world.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_never_syncs_is_out() -> None:
    world = World()
    world.stable(2)
    world.join("a", "m1", protocols=(("range", b"changed"),))
    world.join("b", "m2")
    generation = world.group.generation
    assert world.sync("waits", "m2", generation) is None
    world.pass_time(SESSION_MS)
    assert world.answers["waits"].code.name == "rebalance_in_progress"
    assert set(world.group.members) == {"m2"}
    assert world.group.leader == "m2"


def test_the_protocol_all_have_and_most_prefer_wins() -> None:
    world = World()
    world.join("j1", protocols=(("a", b""), ("b", b""), ("c", b"")))
    world.join("j2", protocols=(("b", b""), ("c", b"")))
    world.join("j3", protocols=(("c", b""), ("b", b"")))
    world.join("again", "m1", protocols=(("a", b""), ("b", b""), ("c", b"")))
    assert world.answers["j2"].protocol == "b"
    assert world.join("odd", protocols=(("a", b""),)).code.name == "inconsistent_group_protocol"
    assert world.join("other", protocol_type="connect").code.name == "inconsistent_group_protocol"


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = World()
    world.stable(2, instance_id=None)
    world = World()
    world.join("j", instance_id="i1")
    world.sync("s", "m1", 1, {"m1": b"all"})
    back = world.join("back", instance_id="i1", may_skip_assignment=True)
    assert (back.code.name, back.member_id, back.generation, back.skip_assignment) == ("none", "m2", 1, True)
    assert world.group.state is GroupState.STABLE
    assert world.sync("s2", "m2", 1).assignment == b"all"
    assert world.join("old", "m1", instance_id="i1").code.name == "fenced_instance_id"
    assert world.leave("m1", "i1") == "fenced_instance_id"
    assert world.leave("", "i1") == "none"


def test_static_members_that_are_away_keep_nobody_busy() -> None:
    """A rebalance timeout of 0 was over again at once, for as long as the session lasted."""
    world = World()
    away = world.join("a", instance_id="a", rebalance_timeout_ms=0, session_timeout_ms=100_000)
    world.sync("a-synced", away.member_id, away.generation)
    world.join("b", instance_id="b", rebalance_timeout_ms=5000)
    world.pass_time(5000)
    other = world.answers["b"]
    world.sync("b-synced", other.member_id, other.generation)
    assert world.leave(other.member_id) == "none"
    begun, ticks = world.now, 0
    while (deadline := world.group.next_deadline()) is not None and deadline < begun + 50_000:
        world.now = max(world.now, deadline)
        world.take(world.group.tick(world.now))
        ticks += 1
        assert ticks <= 50_000 / LEAST_WAIT_MS


def test_an_initial_delay_gathers_members() -> None:
    world = World(initial_rebalance_delay_ms=3000)
    assert world.join("j1") is None
    world.pass_time(2000)
    assert world.join("j2") is None
    world.pass_time(1000)  # somebody came: another round
    assert world.answers == {}
    world.pass_time(3000)
    assert {reply.generation for reply in world.answers.values()} == {1}
    assert len(world.answers["j1"].members) == 2


def test_limits_are_kept() -> None:
    world = World(max_size=1)
    world.join("j1")
    assert world.join("j2").code.name == "group_max_size_reached"


def test_commits_are_for_members_of_the_generation() -> None:
    world = World()

    def commit(member_id: str, generation: int, *, transactional: bool = False) -> str:
        member = MemberIdentity(member_id, None, generation)
        return world.group.check_commit(member, transactional=transactional, now=world.now).name

    assert commit("", -1) == "none"
    world.join("j")
    assert commit("m1", 1) == "rebalance_in_progress"
    world.sync("s", "m1", 1)
    assert commit("m1", 1) == "none"
    assert commit("m1", 0) == "illegal_generation"
    assert commit("m9", 1) == "unknown_member_id"
    assert commit("", -1) == "unknown_member_id"
    assert commit("", -1, transactional=True) == "none"


def test_a_lost_join_answer_can_be_asked_for_again() -> None:
    world = World()
    first = world.join("j")
    again = world.join("again", "m1")
    assert (again.generation, again.members) == (first.generation, first.members)


def test_group_records_come_back() -> None:
    world = World()
    world.stable(2)
    world.group.changed_ms = 5
    restored = decode_group("g", encode_group_value(world.group), limits=GroupLimits(), now=0)
    assert decode_key(encode_group_key("g")) == "g"
    assert (restored.protocol_type, restored.protocol, restored.leader) == ("consumer", "range", "m1")
    assert (restored.generation, restored.changed_ms) == (world.group.generation, 5)
    assert restored.state is GroupState.STABLE
    assert {m.member_id: m.assignment for m in restored.members.values()} == {"m1": b"part1", "m2": b"part2"}


def test_offset_records_are_kafkas() -> None:
    key, value = (
        encode_offset_key("g", "t", 3),
        OffsetValue(offset=9, leader_epoch=0, metadata="x", commit_ms=5),
    )
    assert key.hex() == "000100016700017400000003"
    encoded = encode_offset_value(value)
    assert encoded.hex() == "000400000000000000090000000002780000000000000005" + "00"
    older = bytes.fromhex("00030000000000000009000000000001780000000000000005")
    assert decode_offset_value(older) == value
    topic_id = UUID(int=7)
    of_topic = replace(value, topic_id=topic_id)
    assert encode_offset_value(of_topic) == encoded[:-1] + b"\x01\x00\x10" + topic_id.bytes
    assert decode_offset_value(encode_offset_value(of_topic)) == of_topic
    expiring = replace(value, expire_ms=99, leader_epoch=-1)
    assert encode_offset_value(expiring).hex() == "00010000000000000009000178" + "0000000000000005" + "00" * 7 + "63"
    assert decode_offset_value(encode_offset_value(expiring)) == expiring
    assert decode_key(key) == OffsetKey(group="g", topic="t", partition=3)
    assert decode_offset_value(encoded) == value
    assert decode_key(b"\x00\x05rest") is None
