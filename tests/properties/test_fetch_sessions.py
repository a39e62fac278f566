"""Whatever happens to a session's partitions, a client that keeps what incremental answers told it knows what a full
fetch would tell, and gets the records that a full fetch would give.

Topics come and go, partitions are added, forgotten, written to and cut at their start, offsets move or stay, answers
are short of room, and now and then the session is gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from support.admin import ask
from support.batches import batch_of
from support.share import examples
from support.wire import Wire

PARTITIONS = 2
UNLIMITED = 1 << 24
TOPICS = st.integers(0, 2)
INDEXES = st.integers(0, PARTITIONS)  # one of them does not exist
Key = tuple[Any, int]


@dataclass(frozen=True)
class Told:
    failed: bool
    high_watermark: int
    log_start: int
    size: int


class FetchSession(RuleBasedStateMachine):
    """`wanted` is what the client asks for, `known` what it keeps of the answers."""

    bootstrap_servers = ""

    def __init__(self) -> None:
        super().__init__()
        self.wire, self.elsewhere = Wire(self.bootstrap_servers), Wire(self.bootstrap_servers)
        stem = f"drawn-{uuid4().hex[:8]}"
        self.names = [f"{stem}-{number}" for number in range(3)]
        self.ids: list[Any] = [uuid4() for _ in self.names]  # made up, until a topic is there
        self.alive: set[int] = set()
        self.wanted: dict[Key, int] = {}
        self.known: dict[Key, Told] = {}
        self.changed: set[Key] = set()
        self.dropped: set[Key] = set()
        self.session, self.epoch = 0, 0

    @initialize(by_id=st.booleans())
    def begin(self, by_id: bool) -> None:
        self.version = 18 if by_id else 12
        for topic in (0, 1):
            self.create(topic)
            for index in range(PARTITIONS):
                self.want(topic, index, 0)

    def teardown(self) -> None:
        for topic in list(self.alive):
            self.delete(topic)
        for wire in (self.wire, self.elsewhere):
            wire.__exit__()

    # What happens to the topics

    @rule(topic=TOPICS)
    def create(self, topic: int) -> None:
        if topic in self.alive:
            return
        entry = {"name": self.names[topic], "num_partitions": PARTITIONS, "replication_factor": 1}
        answer = ask(self.elsewhere, "create_topics", 7, topics=[entry], timeout=5000)
        self.ids[topic] = answer["topics"][0]["topic_id"]
        self.alive.add(topic)

    @rule(topic=TOPICS)
    def delete(self, topic: int) -> None:
        if topic in self.alive:
            ask(self.elsewhere, "delete_topics", 4, topic_names=[self.names[topic]], timeout=5000)
            self.alive.discard(topic)

    @rule(topic=TOPICS, index=st.integers(0, PARTITIONS - 1), count=st.integers(1, 3))
    def produce(self, topic: int, index: int, count: int) -> None:
        if topic in self.alive:
            self.elsewhere.produce(self.names[topic], batch_of(*"abc"[:count]), partition=index)

    @rule(topic=TOPICS, index=st.integers(0, PARTITIONS - 1), offset=st.integers(-1, 3))
    def cut(self, topic: int, index: int, offset: int) -> None:
        entry = {"name": self.names[topic], "partitions": [{"partition_index": index, "offset": offset}]}
        ask(self.elsewhere, "delete_records", 2, topics=[entry], timeout=5000)

    # What the client wants

    @rule(topic=TOPICS, index=INDEXES, offset=st.integers(0, 3))
    def want(self, topic: int, index: int, offset: int) -> None:
        key = (self.ids[topic] if self.version >= 13 else self.names[topic], index)
        if key not in self.dropped:
            self.wanted[key] = offset
            self.changed.add(key)

    @rule(place=st.integers(0, 5))
    def forget(self, place: int) -> None:
        if self.wanted:
            key = list(self.wanted)[place % len(self.wanted)]
            del self.wanted[key]
            self.changed.discard(key)
            if self.known.pop(key, None) is not None:
                self.dropped.add(key)

    @rule()
    def lose_the_session(self) -> None:
        self._fetch(self.elsewhere, {}, self.session, -1, UNLIMITED)

    @rule(
        moves=st.booleans(),
        produced=st.lists(st.tuples(st.integers(0, 1), st.integers(0, PARTITIONS - 1)), max_size=3),
    )
    def fetch(self, moves: bool, produced: list[tuple[int, int]]) -> None:
        for topic, index in produced:
            self.produce(topic, index, 1)
        answer = self._next(UNLIMITED)
        truth = self._full()
        assert self._same(truth)
        assert {key: told.size for key, told in answer.items() if told.size} == {
            key: told.size for key, told in truth.items() if told.size
        }
        if moves:
            for key, told in answer.items():
                if told.size:
                    self.wanted[key] = told.high_watermark
                    self.changed.add(key)

    @rule()
    def fetch_with_room_for_one(self) -> None:
        """Everybody with records has their turn before anybody has a second one."""
        self._next(UNLIMITED)
        with_records = {key for key, told in self._full().items() if told.size}
        turns = []
        for _ in with_records:
            turns += [key for key, told in self._next(1).items() if told.size]
            assert self._same(self._full())
        assert sorted(turns, key=str) == sorted(with_records, key=str)

    def _same(self, truth: dict[Key, Told]) -> bool:
        def state(told: Told) -> tuple[bool, int, int]:
            return told.failed, told.high_watermark, told.log_start

        return {key: state(told) for key, told in self.known.items()} == {
            key: state(told) for key, told in truth.items()
        }

    def _next(self, max_bytes: int) -> dict[Key, Told]:
        """The session's next request; a full one where the session is gone, or there is none yet."""
        if self.session:
            parts = {key: self.wanted[key] for key in self.changed}
            error, session, answer = self._fetch(self.wire, parts, self.session, self.epoch, max_bytes, self.dropped)
            self.changed, self.dropped = set(), set()
            if error == "none":
                assert session == (self.session if self.wanted else 0)
                self.session, self.epoch = session, self.epoch + 1
                self.known |= answer
                return answer
            assert error == "fetch_session_id_not_found"
        self.changed, self.dropped = set(), set()
        _, self.session, self.known = self._fetch(self.wire, self.wanted, 0, 0, max_bytes)
        self.epoch = 1
        if not self.wanted:
            self.session = 0
        assert (self.session > 0) == bool(self.wanted)
        return self.known.copy()

    def _full(self) -> dict[Key, Told]:
        """What a request without a session is told of the same partitions."""
        return self._fetch(self.elsewhere, self.wanted, 0, -1, UNLIMITED)[2]

    def _fetch(
        self,
        wire: Wire,
        parts: dict[Key, int],
        session: int,
        epoch: int,
        max_bytes: int,
        forgotten: set[Key] | frozenset[Key] = frozenset(),
    ) -> tuple[str, int, dict[Key, Told]]:
        name = "topic_id" if self.version >= 13 else "topic"
        unset = {"log_start_offset": -1, "current_leader_epoch": -1, "last_fetched_epoch": -1}
        limit = {"partition_max_bytes": UNLIMITED}
        answer = ask(
            wire,
            "fetch",
            self.version,
            **({} if self.version >= 15 else {"replica_id": -1}),
            max_bytes=max_bytes,
            session_id=session,
            session_epoch=epoch,
            topics=[
                {name: topic, "partitions": [{"partition": index, "fetch_offset": offset, **unset, **limit}]}
                for (topic, index), offset in parts.items()
            ],
            forgotten_topics_data=[{name: topic, "partitions": [index]} for topic, index in forgotten],
        )
        told = {
            (topic[name], part["partition_index"]): Told(
                part["error_code"] != "none",
                part["high_watermark"],
                part["log_start_offset"],
                len(part["records"] or b""),
            )
            for topic in answer["responses"]
            for part in topic["partitions"]
        }
        return answer["error_code"], answer["session_id"], told


def test_incremental_answers_add_up_to_full_ones(suiro_node: Any) -> None:
    class OnTheNode(FetchSession):
        bootstrap_servers = suiro_node.bootstrap_servers

    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        OnTheNode, settings=settings(max_examples=examples(60), stateful_step_count=50, deadline=None)
    )
