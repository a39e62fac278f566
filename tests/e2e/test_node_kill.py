"""Kill -9 of a node at drawn moments under a mixed load: nothing acknowledged is lost, nothing aborted is seen.

Each round starts the node on what the last one left (some are killed while they start), looks from outside at all
there is, and loads it until a drawn number of answers. SUIRO_KILL_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask
from support.batches import values_of
from support.kill_ledger import Ledger, Place
from support.mixed_load import TOPICS, MixedLoad, TableWriter, TransactionalProducer
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import EARLIEST, LATEST, Client
from suiro.clock import SystemClock
from suiro.errors import TransientError
from suiro.log.checkpoints import read_checkpoint
from suiro.node import NodeProcess
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import decode_batch

SETTINGS = {
    "log.cleaner.backoff.ms": "5",
    "log.segment.delete.delay.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "transaction.max.timeout.ms": "900000",
}
INTERNAL = ("__consumer_offsets", "__transaction_state")
CLEANED_EVERY = 10
"""In one round of so many the kill comes after a cleaning was done, in the middle of the next ones."""
SMALL_AND_DIRTY = {"internal.segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}


class KilledNode:
    """One data directory, its node killed and started again and again, and all that anybody was told."""

    def __init__(self, data: Path, chance: random.Random) -> None:
        self._data = data
        self._chance = chance
        self.ledger = Ledger()
        self.load = MixedLoad(self.ledger, chance)
        self.rounds = 0

    def start(self) -> NodeProcess:
        """Killed before it is ready, now and then."""
        if self.rounds and self._chance.random() < 0.2:
            try:
                self._started(self._chance.uniform(0.05, 0.4)).kill()
            except TransientError:
                pass
        return self._started(60)

    def _started(self, timeout_s: float) -> NodeProcess:
        return NodeProcess.start(
            data=self._data / "data",
            log=self._data / "node.log",
            settings=SETTINGS,
            timeout_s=timeout_s,
        )

    def round(self) -> None:
        node = self.start()
        try:
            if self.rounds == 0:
                prepare(node.bootstrap_servers)
            self.load.begin(node.bootstrap_servers)
            self.check(node.bootstrap_servers)
            self.load.answers = 0
            if self.rounds % CLEANED_EVERY == 1:
                before = self._cleaned()
                self.load.run(node.bootstrap_servers, only=TableWriter)
                self._wait(node, lambda: self._cleaned() != before, "a cleaning")
            self.load.run(node.bootstrap_servers)
            enough = self.load.answers + self._chance.randrange(5, 120)
            self._wait(node, lambda: self.load.answers >= enough, f"{enough} answers")
            assert node.is_running, f"it died by itself:\n{self.log()}"
        finally:
            node.kill()
        self.load.join()
        self.rounds += 1

    def _wait(self, node: NodeProcess, condition: Callable[[], bool], what: str) -> None:
        wait_until(lambda: condition() or self.ledger.refused or not node.is_running, deadline_s=120, what=what)

    def _cleaned(self) -> int:
        """How far the table is cleaned."""
        rows = read_checkpoint(self._data / "data" / "cleaner-offset-checkpoint", columns=3)
        return next((int(offset) for topic, _, offset in rows if topic == "table"), 0)

    def check(self, bootstrap_servers: str) -> None:
        with Client(bootstrap_servers) as client, Wire(bootstrap_servers) as wire:
            values, offsets = seen_values(client, wire, self.load)
            wrong = self.ledger.check(seen_records(client), values, offsets)
        assert not wrong, "\n".join(["after round", str(self.rounds), *wrong, self.log()])

    def finish(self) -> None:
        """What the last kill left is looked at, too; and the load must have been one of all kinds."""
        node = self.start()
        try:
            self.load.begin(node.bootstrap_servers)
            self.check(node.bootstrap_servers)
        finally:
            code = node.stop()
        assert code == 0, self.log()
        states = Counter(one.state for one in self.ledger.transactions)
        assert states["committed"] > self.rounds, states
        assert states["aborted"] > self.rounds, states
        assert self._cleaned() > 0

    def log(self) -> str:
        return (self._data / "node.log").read_text(errors="replace")[-4000:]


def prepare(bootstrap_servers: str) -> None:
    """The topics; and the node's own are cut small, so that they are cleaned all the time as well."""
    with Wire(bootstrap_servers) as wire:
        wanted = [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": (),
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for name, (partitions, configs) in TOPICS.items()
        ]
        made = ask(wire, "create_topics", 7, topics=wanted, timeout=10_000)["topics"]
        assert {one["error_code"] for one in made} == {"none"}, made
        for kind in (0, 1):
            ask(wire, "find_coordinator", 4, key_type=kind, coordinator_keys=("any",))
        for topic in INTERNAL:
            configs = [{"name": name, "config_operation": 0, "value": value} for name, value in SMALL_AND_DIRTY.items()]
            resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
            (altered,) = ask(wire, "incremental_alter_configs", 1, resources=[resource])["responses"]
            assert altered["error_code"] == "none", altered


def seen_records(client: Client) -> dict[Place, list[tuple[int, str]]]:
    places = [(topic, n) for topic, (partitions, _) in TOPICS.items() for n in range(partitions) if topic != "table"]
    ends = client.list_offsets(dict.fromkeys(places, LATEST))
    stable = client.list_offsets(dict.fromkeys(places, LATEST), read_committed=True)
    assert ends == stable, "a transaction is open that nobody has"
    found: dict[Place, list[tuple[int, str]]] = {}
    for place in places:
        records, position = [], 0
        while position < ends[place].offset:
            fetched = client.fetch({place: position}, read_committed=True)[place]
            visible = set(values_of(fetched))
            for at, header in iter_headers(fetched.data):
                if not header.is_control:
                    values = [(one.offset, (one.value or b"").decode()) for one in decode_batch(fetched.data, at)]
                    records += [one for one in values if one[1] in visible]
                position = header.next_offset
        found[place] = records
    return found


def seen_values(client: Client, wire: Wire, load: MixedLoad) -> tuple[dict[str, Any], dict[str, int]]:
    """By the registers' names: the table, groups, topics and their settings; and the transactional offsets."""
    values: dict[str, Any] = {f"table {key}": value for key, value in seen_table(client).items()}
    listed = {one["name"] for one in ask(wire, "metadata", 12, topics=None)["topics"]}
    assert listed >= TOPICS.keys() | set(INTERNAL), listed
    for topic in listed - TOPICS.keys() - set(INTERNAL):
        records = client.list_offsets({(topic, 0): LATEST})[topic, 0].offset
        values[f"topic {topic}"] = records, client.describe_configs([topic])[topic]["retention.ms"]
    for group in ("simple", "member"):
        if f"group {group}" in load.ledger.registers:
            values[f"group {group}"] = wire.offset_fetch(group, "plain")[1]
    offsets = {}
    for actor in load.actors:
        if isinstance(actor, TransactionalProducer):
            code, offset = wire.offset_fetch(actor.name, "plain")
            assert code == "none", f"the offsets of {actor.name} are not stable: {code}"
            offsets[actor.name] = offset
    return values, offsets


def seen_table(client: Client) -> dict[str, str | None]:
    """The fold of the compacted topic."""
    place = ("table", 0)
    position = client.list_offsets({place: EARLIEST})[place].offset
    end = client.list_offsets({place: LATEST})[place].offset
    table: dict[str, str | None] = {}
    while position < end:
        fetched = client.fetch({place: position})[place]
        for at, header in iter_headers(fetched.data):
            for record in decode_batch(fetched.data, at):
                table[(record.key or b"").decode()] = None if record.value is None else record.value.decode()
            position = header.next_offset
    return table


def seed() -> int:
    return int(os.environ.get("SUIRO_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)


def killed(data: Path, chosen: int, rounds: int) -> None:
    print(f"SUIRO_KILL_SEED={chosen}", flush=True)
    data.mkdir()
    node = KilledNode(data, random.Random(chosen))
    for _ in range(rounds):
        node.round()
    node.finish()


def test_ten_kills(tmp_path: Path) -> None:
    killed(tmp_path / "node", seed(), rounds=CLEANED_EVERY)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_for_as_long_as_wanted(tmp_path: Path) -> None:
    """`SUIRO_SOAK_SECONDS` (600): data directories of 100 rounds each, one after another."""
    clock = SystemClock()
    ends = clock.monotonic_ms() + int(os.environ.get("SUIRO_SOAK_SECONDS", "600")) * 1000
    turn = 0
    while clock.monotonic_ms() < ends or turn == 0:
        killed(tmp_path / str(turn), seed() + turn, rounds=100)
        turn += 1
