"""A load of every kind on a log that may die at any moment, in raw requests: each answer goes into a `Ledger`.

An actor does one thing after another over a connection of its own until that breaks. Before it goes on with the log
that came back, `begin` does what a client must do then: a producer sends again what had no answer, a transactional
id is initialised, a member joins anew.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from suiro.protocol.records import Record, encode_batch
from support.admin import ask
from support.group_wire import Member, commit
from support.kill_ledger import Ledger, Place, Transaction, Write
from support.waiting import wait_until
from support.wire import Wire

PASSING = {
    "concurrent_transactions",
    "coordinator_load_in_progress",
    "coordinator_not_available",
    "not_coordinator",
    "not_enough_replicas",
    "not_leader_or_follower",
    "unknown_topic_or_partition",
}
"""Errors that a client meets with patience, for a while."""
SMALL = {"internal.segment.bytes": "8000", "retention.ms": "-1"}
COMPACTED = SMALL | {
    "internal.segment.bytes": "2000",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
TOPICS = {"plain": (1, SMALL), "idempotent": (2, SMALL), "transactions": (2, SMALL), "table": (1, COMPACTED)}
"""Partitions and settings of the topics that are there all the time."""
TIMESTAMP = 1_700_000_000_000


class RefusedError(Exception):
    """An answer that nothing explains."""


@dataclass
class Actor:
    name: str
    ledger: Ledger
    chance: random.Random
    count: int = 0

    def begin(self, wire: Wire) -> None:
        """After a start of the log, before anybody looks."""

    def step(self, wire: Wire) -> None:
        raise NotImplementedError

    def value(self) -> str:
        self.count += 1
        return f"{self.name}-{self.count}"

    def insist(self, request: Callable[[], str], what: str) -> None:
        """Ask until the code is none; others than the passing ones are refusals."""

        def once() -> bool:
            code = request()
            if code not in PASSING | {"none"}:
                raise RefusedError(f"{self.name}: {what} was answered {code}")
            return code == "none"

        wait_until(once, what=f"{self.name}: {what}")


def encoded(
    records: Sequence[tuple[str, str | None]],
    identity: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    *,
    transactional: bool = False,
    compression: int = 0,
) -> bytes:
    return encode_batch(
        [
            Record(
                offset=place,
                timestamp=TIMESTAMP,
                key=key.encode(),
                value=None if value is None else value.encode(),
            )
            for place, (key, value) in enumerate(records)
        ],
        producer_id=identity[0],
        producer_epoch=identity[1],
        base_sequence=sequence,
        transactional=transactional,
        compression=compression,
    )


@dataclass
class PlainProducer(Actor):
    """Without an identity: what had no answer is not sent again, it may be there or not."""

    def step(self, wire: Wire) -> None:
        place = ("plain", 0)
        writes = [self.ledger.write(place, self.name, self.value()) for _ in range(self.chance.randint(1, 20))]
        batch = encoded([(one.value, one.value) for one in writes], compression=self.chance.randrange(5))
        code, base = wire.produce(*place[:1], batch, partition=place[1])
        if code != "none":
            raise RefusedError(f"{self.name}: a batch was answered {code}")
        _acknowledge(writes, base)


@dataclass
class IdempotentProducer(Actor):
    """Sends again what had no answer, under the same sequence: it is there once."""

    identity: tuple[int, int] = (-1, -1)
    sequences: dict[Place, int] = field(default_factory=dict)
    pending: tuple[Place, list[Write]] | None = None

    def begin(self, wire: Wire) -> None:
        if self.identity[0] < 0:
            self.identity = wire.new_producer()
        if self.pending is not None:
            self._send(wire)

    def step(self, wire: Wire) -> None:
        place = ("idempotent", self.chance.randrange(2))
        size = self.chance.randint(1, 10)
        self.pending = place, [self.ledger.write(place, self.name, self.value()) for _ in range(size)]
        self._send(wire)

    def _send(self, wire: Wire) -> None:
        assert self.pending is not None
        place, writes = self.pending
        sequence = self.sequences.get(place, 0)
        batch = encoded([(one.value, one.value) for one in writes], self.identity, sequence)
        code, base = wire.produce(place[0], batch, partition=place[1])
        if code not in ("none", "duplicate_sequence_number"):
            raise RefusedError(f"{self.name}: sequence {sequence} was answered {code}")
        _acknowledge(writes, base)
        self.sequences[place] = sequence + len(writes)
        self.pending = None


@dataclass
class TransactionalProducer(Actor):
    """Transactions of both versions, committed and aborted, with and without a group's offset."""

    version: int = 1
    identity: tuple[int, int] = (-1, -1)
    sequences: dict[Place, int] = field(default_factory=dict)
    number: int = 0

    def begin(self, wire: Wire) -> None:
        self._take(wire.new_producer(self.name))

    def _take(self, identity: tuple[int, int]) -> None:
        self.identity, self.sequences = identity, {}

    def step(self, wire: Wire) -> None:
        transaction = self.ledger.begin(self.name)
        self.number += 1
        for partition in self.chance.choice(((0,), (1,), (0, 1), (0, 1, 0))):
            self._write(wire, transaction, ("transactions", partition))
        if with_offset := self.chance.random() < 0.4:
            self._commit_offset(wire)
        if keeps := self.chance.random() < 0.7:
            transaction.state = "unknown"
            transaction.offset = self.number if with_offset else None
        self._end(wire, commit=keeps)
        transaction.state = "committed" if keeps else "aborted"

    def _write(self, wire: Wire, transaction: Transaction, place: Place) -> None:
        if self.version == 1:
            self.insist(
                lambda: wire.add_partitions(self.name, *self.identity, place[0], place[1])[0],
                "adding a partition",
            )
        size = self.chance.randint(1, 5)
        writes = [self.ledger.write(place, self.name, self.value(), transaction) for _ in range(size)]
        sequence = self.sequences.get(place, 0)
        batch = encoded([(w.value, w.value) for w in writes], self.identity, sequence, transactional=True)
        base = [-1]

        def produce() -> str:
            code, base[0] = wire.produce(
                place[0],
                batch,
                partition=place[1],
                transactional_id=self.name,
                version=11 if self.version == 1 else 12,
            )
            return code

        self.insist(produce, f"sequence {sequence} of epoch {self.identity[1]}")
        self.sequences[place] = sequence + size
        _acknowledge(writes, base[0])

    def _commit_offset(self, wire: Wire) -> None:
        if self.version == 1:
            self.insist(lambda: wire.add_offsets(self.name, *self.identity, self.name), "adding offsets")
        part = {
            "partition_index": 0,
            "committed_offset": self.number,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }

        def send() -> str:
            answer = ask(
                wire,
                "txn_offset_commit",
                4 if self.version == 1 else 5,
                transactional_id=self.name,
                group_id=self.name,
                producer_id=self.identity[0],
                producer_epoch=self.identity[1],
                generation_id=-1,
                topics=({"name": "plain", "partitions": (part,)},),
            )
            return str(answer["topics"][0]["partitions"][0]["error_code"])

        self.insist(send, "an offset in a transaction")

    def _end(self, wire: Wire, *, commit: bool) -> None:
        def send() -> str:
            answer = ask(
                wire,
                "end_txn",
                4 if self.version == 1 else 5,
                transactional_id=self.name,
                producer_id=self.identity[0],
                producer_epoch=self.identity[1],
                committed=commit,
            )
            if self.version == 2 and answer["error_code"] == "none":
                self._take((answer["producer_id"], answer["producer_epoch"]))
            return str(answer["error_code"])

        self.insist(send, "an end")


@dataclass
class Committer(Actor):
    """A consumer that commits one offset after another: as a member of its group (KIP-848), or as nobody's."""

    is_member: bool = False
    member: Member | None = None

    def begin(self, wire: Wire) -> None:
        if self.is_member:
            if self.member is None:
                self.member = Member(wire, self.name, member_id=self.name)
            self.member.wire = wire
            self.insist(lambda: str(self.member and self.member.join("plain").error_code.name), "joining")

    def step(self, wire: Wire) -> None:
        who: dict[str, Any] = {}
        if self.member is not None:
            self.member.wire = wire
            if self.chance.random() < 0.1:
                self.insist(lambda: str(self.member and self.member.beat().error_code.name), "a heartbeat")
            who = {"member_id": self.member.member_id, "epoch": self.member.epoch}
        self.count += 1
        register = self.ledger.register(f"group {self.name}", -1)
        register.sent(self.count)
        self.insist(lambda: commit(wire, self.name, {("plain", 0): self.count}, **who)[0], "a commit")
        register.acknowledged()


@dataclass
class TableWriter(Actor):
    """Overwrites and deletes the keys of a compacted topic."""

    def step(self, wire: Wire) -> None:
        keys = [f"key-{n}" for n in self.chance.sample(range(30), self.chance.randint(1, 15))]
        batch = [(key, None if self.chance.random() < 0.2 else self.value() * 10) for key in keys]
        registers = [self.ledger.register(f"table {key}") for key in keys]
        for register, (_, value) in zip(registers, batch, strict=True):
            register.sent(value)
        code, _ = wire.produce("table", encoded(batch, compression=self.chance.randrange(5)))
        if code != "none":
            raise RefusedError(f"{self.name}: a batch was answered {code}")
        for register in registers:
            register.acknowledged()


@dataclass
class Administrator(Actor):
    """Makes, fills, alters and deletes topics: what is known of each is (records, retention), or None."""

    def step(self, wire: Wire) -> None:
        self.count += 1
        topic = f"made-{self.chance.randrange(3)}"
        register = self.ledger.register(f"topic {topic}")
        if register.value is None:
            retention = f"{10**9 + self.count}"
            register.sent((0, retention))
            self._create(wire, topic, retention)
        else:
            records, retention = register.value
            match self.chance.randrange(3):
                case 0:
                    register.sent(None)
                    wanted = ({"name": topic, "topic_id": None},)
                    self._ask(wire, "delete_topics", 6, "responses", topics=wanted, timeout=10_000)
                case 1:
                    retention = f"{10**9 + self.count}"
                    register.sent((records, retention))
                    config = {"name": "retention.ms", "config_operation": 0, "value": retention}
                    wanted = ({"resource_type": 2, "resource_name": topic, "configs": (config,)},)
                    self._ask(wire, "incremental_alter_configs", 1, "responses", resources=wanted)
                case _:
                    register.sent((records + 1, retention))
                    batch = encoded([("k", self.value())])
                    self.insist(lambda: wire.produce(topic, batch)[0], "a record")
        register.acknowledged()

    def _create(self, wire: Wire, topic: str, retention: str) -> None:
        wanted = {
            "name": topic,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": (),
            "configs": ({"name": "retention.ms", "value": retention},),
        }
        self._ask(wire, "create_topics", 7, "topics", topics=(wanted,), timeout=10_000)

    def _ask(self, wire: Wire, api: str, version: int, results: str, **fields: Any) -> None:
        (result,) = ask(wire, api, version, **fields)[results]
        if result["error_code"] != "none":
            raise RefusedError(f"{self.name}: {api} was answered {result['error_code']}")


def _acknowledge(writes: Sequence[Write], base: int) -> None:
    for place, write in enumerate(writes):
        write.state = "acknowledged"
        write.offset = base + place if base >= 0 else -1


@dataclass
class MixedLoad:
    """All actors at once, from the moment a log is up until it is gone."""

    ledger: Ledger
    chance: random.Random
    actors: list[Actor] = field(default_factory=list)
    answers: int = 0
    _threads: dict[str, threading.Thread] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def of(name: str) -> tuple[str, Ledger, random.Random]:
            return name, self.ledger, random.Random(self.chance.random())

        self.actors += [
            PlainProducer(*of("plain-1")),
            PlainProducer(*of("plain-2")),
            IdempotentProducer(*of("idempotent-1")),
            TransactionalProducer(*of("v1"), version=1),
            TransactionalProducer(*of("v2"), version=2),
            Committer(*of("simple")),
            Committer(*of("member"), is_member=True),
            TableWriter(*of("table")),
            Administrator(*of("admin")),
        ]

    def begin(self, bootstrap_servers: str) -> None:
        with Wire(bootstrap_servers) as wire:
            for actor in self.actors:
                try:
                    actor.begin(wire)
                except RefusedError as refusal:
                    self.ledger.refused.append(str(refusal))

    def run(self, bootstrap_servers: str, *, only: type[Actor] = Actor) -> None:
        """Starts the actors, or those of one kind, that are not at work yet; they end when their connections do."""
        for actor in self.actors:
            if isinstance(actor, only) and actor.name not in self._threads:
                thread = threading.Thread(target=self._run, args=(actor, bootstrap_servers), daemon=True)
                self._threads[actor.name] = thread
                thread.start()

    def join(self) -> None:
        """Waits for their ends."""
        for name, thread in self._threads.items():
            thread.join(60)
            assert not thread.is_alive(), f"{name} goes on without a log"
        self._threads.clear()

    def _run(self, actor: Actor, bootstrap_servers: str) -> None:
        try:
            with Wire(bootstrap_servers) as wire:
                while True:
                    actor.step(wire)
                    self.answers += 1
        except OSError:
            return  # the log is gone
        except (RefusedError, AssertionError) as refusal:
            self.ledger.refused.append(str(refusal))
