"""Everything that runs in a soak, and who starts again whatever has died. `tick` is called several times a second.

All clients reach the log through one proxy, which the log names as its address, so that their network can be torn.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from suiro.client import Client, NewTopic
from suiro.demo.processes import Child
from suiro.errors import FatalError
from tests.e2e.test_exactly_once_kill import COMMIT_POINTS, FENCE_POINTS, TASK_POINTS, newest
from tests.matrix import brokers
from tests.soak.driver import APPLICATIONS, FENCED, STOPPED, SUPERSEDED
from tests.soak.records import COPIED, JOINED, KEY_COUNTS, OUTPUTS, PARTITIONS, SOURCE, TOPICS, WORD_COUNTS
from tests.soak.sampling import Lives, members, sample_of
from tests.soak.story import Story, Trouble
from tests.support.tcp_proxy import TcpProxy

# Small segments, so that they are rolled, and read again at a start, within minutes. The checker deletes what all have
# read. Of the counts of keys, compaction leaves a part: what the checker may not have read yet stays.
TOPIC_CONFIGS = {"retention.ms": "-1", "segment.bytes": str(1024 * 1024)}
COMPACTED = TOPIC_CONFIGS | {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "120000",
}
SAMPLE_S = 10.0
LEFT_BEHIND_S = 60.0
"""How long what a killed Python driver leaves behind (its JVM, its workers) may go on."""
ENDS_MAX = 8
"""Of one application's drivers, without a record between them."""
EXPLAINED_S = 240.0
"""After a rival or a long sleep a driver may find that it must not go on, and say so."""
POINT_SHARE = 0.6
"""Of all starts, how many end at a drawn point of a later micro-batch."""
POINT_WITHIN = 20
OPEN_POINTS = ["after_produce", "after_commit_offsets"]
"""Records are in an open transaction there: drawn more often, as no other kill meets these moments by chance."""

TICK_S = 0.1
CROWDED = 4
"""Processes that want a CPU, for each there is: with more, waiting is longer."""
_pause = threading.Event()


class Job:
    """One application and its drivers: one as a rule, two where a rival was started."""

    def __init__(self, stage: Stage, name: str, checkpoint: Path, outputs: tuple[str, ...]) -> None:
        self.name = name
        self.outputs = outputs
        self.drivers: list[Child] = []
        self.starts = 0
        self.started_at = 0.0
        self.disturbed_at = -EXPLAINED_S
        self._stage = stage
        self._checkpoint = checkpoint
        self._left: list[tuple[Child, float]] = []
        self._heard: dict[int, int] = {}
        self._planned: dict[Path, str] = {}
        self._ends = 0
        self._at_end = -1

    def start(self, *, with_fault: bool = True) -> Child:
        stage = self._stage
        self.starts += 1
        self.started_at = stage.story.now
        once = stage.directory / "faults" / f"{self.name}-{self.starts}"
        once.mkdir(parents=True)
        fault = self._drawn_fault() if with_fault else ""
        child = Child(
            f"driver {self.name}",
            "tests.soak.driver",
            self.name,
            stage.bootstrap,
            str(stage.directory),
            log_path=stage.directory / f"{self.name}.log",
            environment={"SUIRO_FAULT": fault, "SUIRO_FAULT_ONCE": str(once)},
        )
        if fault:
            self._planned[once] = fault
        self.drivers.append(child)
        stage.story.note("start", driver=self.name, pid=child.pid, fault=fault)
        return child

    def _drawn_fault(self) -> str:
        dice = self._stage.dice
        point = dice.choice([*FENCE_POINTS, *COMMIT_POINTS, *TASK_POINTS, *3 * OPEN_POINTS])
        action = dice.choice(["kill", "kill", "kill", "kill-session"])
        after, is_planned = dice.randrange(1, POINT_WITHIN), dice.random() < POINT_SHARE
        if not is_planned:
            return ""
        if point in FENCE_POINTS:  # the first micro-batch of a run only
            return f"{point}:{action}"
        return f"{point}@batch={newest(self._checkpoint) + after}:{action}"

    def supervise(self) -> None:
        stage, now = self._stage, self._stage.story.now
        for child in list(self.drivers):
            self._hear(child)
            if child.ended:
                self._hear(child)
                self.drivers.remove(child)
                self._left.append((child, now))
                total = sum(stage.seen[topic] for topic in self.outputs)
                self._ends = 1 if total > self._at_end else self._ends + 1
                self._at_end = total
                stage.story.note("ended", driver=self.name, pid=child.pid)
                if self._ends > ENDS_MAX:
                    raise Trouble(f"driver {self.name} ended {self._ends} times without a record; {child.tail()}")
        for once, fault in list(self._planned.items()):
            if any(once.iterdir()):
                del self._planned[once]
                stage.story.tell("fault reached", f"{self.name}: {fault}")
                stage.faults[f"{fault.rpartition(':')[2]} at a point"] += 1
        for child, since in list(self._left):
            if not child.members() or now - since > LEFT_BEHIND_S:
                child.kill()
                self._left.remove((child, since))
        if not self.drivers:
            self.start()

    def _hear(self, child: Child) -> None:
        stage = self._stage
        events = child.events[self._heard.get(child.pid, 0) :]
        self._heard[child.pid] = self._heard.get(child.pid, 0) + len(events)
        for event in events:
            if event.get("event") != "failed":
                continue
            kind, why = event["kind"], event["why"]
            stage.ends[kind] += 1
            stage.story.tell(f"driver {self.name} {kind}", why.splitlines()[0][:300], pid=child.pid, why=why)
            if kind in (FENCED, SUPERSEDED):
                self.disturbed_at = stage.story.now
            if kind == STOPPED and stage.story.now - self.disturbed_at > EXPLAINED_S:
                raise Trouble(f"driver {self.name} stopped, and nobody was beside it: {why}")

    def sample(self) -> None:
        lives, now = self._stage.lives, self._stage.story.now
        for child in self.drivers:
            found = members(child)
            lives.add(f"driver {self.name}, Python", child.pid, sample_of(found["driver"]), now)
            for pid in found["jvm"]:
                lives.add(f"driver {self.name}, JVM", pid, sample_of([pid]), now)
            lives.add(
                f"driver {self.name}, Python workers",
                child.pid,
                sample_of(found["daemon"] + found["worker"]),
                now,
            )

    def stop(self) -> None:
        """Cleanly; what does not stop is told and killed."""
        for child, _ in self._left:
            child.kill()
        for child in self.drivers:
            try:
                child.stop()
            except FatalError as error:
                self._stage.story.tell("unclean stop", str(error))
                self._stage.ends["unclean stop"] += 1
                child.kill()

    def kill(self) -> None:
        for child in [*self.drivers, *(child for child, _ in self._left)]:
            child.kill()


class Stage:
    def __init__(
        self, broker: str, directory: Path, story: Story, dice: random.Random, rate: int, stall_s: float
    ) -> None:
        self.directory = directory
        self.story = story
        self.dice = dice
        self._stall_s = stall_s
        self.proxy = TcpProxy("127.0.0.1:0")
        self.bootstrap = "{}:{}".format(*self.proxy.address)
        self.broker = brokers.start(
            broker, directory / "log", settings={"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}
        )
        host, _, port = self.broker.bootstrap_servers.rpartition(":")
        self.proxy.target = (host, int(port))
        with Client(self.bootstrap) as client:
            configs = dict.fromkeys(TOPICS, TOPIC_CONFIGS) | {KEY_COUNTS: COMPACTED}
            client.create_topics([NewTopic(topic, PARTITIONS, configs=configs[topic]) for topic in TOPICS])
        self.faults: Counter[str] = Counter()
        """What was done, by kind."""
        self.ends: Counter[str] = Counter()
        """How drivers failed by themselves, by kind."""
        self.seen = dict.fromkeys(TOPICS, 0)
        self.seen_at = dict.fromkeys(TOPICS, story.now)
        self.longest_stall_s = 0.0
        """Of an output, from its first record on, whatever was being done to whom."""
        self.counts: dict[str, Any] = {}
        """The checker's last words."""
        self.lives = Lives()
        self._sampled_at = 0.0
        self._heard = 0
        self._said: dict[str, Any] = {}
        self.checker = self._child("checker", self.bootstrap)
        self.producer = self._child("producer", self.bootstrap, str(rate))
        self.jobs = [
            Job(self, "copy", directory / "copy", (COPIED,)),
            Job(self, "count", directory / APPLICATIONS["count"], (WORD_COUNTS, KEY_COUNTS)),
            Job(self, "join", directory / APPLICATIONS["join"], (JOINED,)),
        ]
        for job in self.jobs:
            job.start()

    def _child(self, name: str, *arguments: str) -> Child:
        return Child(name, f"tests.soak.{name}", *arguments, log_path=self.directory / f"{name}.log")

    def tick(self) -> None:
        """Raises `Trouble`."""
        self._hear_checker()
        for event in self.producer.events[-1:]:
            if "refused" in event:
                raise Trouble(f"the producer was refused: {event['refused']}")
        for child in (self.producer, self.checker):
            if child.ended:
                raise Trouble(f"the {child.what} ended; {child.tail()}")
        for job in self.jobs:
            job.supervise()
        if self.story.now - self._sampled_at >= SAMPLE_S:
            self._sampled_at = self.story.now
            self._sample()

    def _hear_checker(self) -> None:
        events = self.checker.events[self._heard :]
        self._heard += len(events)
        wrong = []
        for event in events:
            if "anomaly" in event:
                wrong.append(f"{event['anomaly']}: {event['words']}")
            elif "seen" in event:
                self.counts = event
                for topic, total in event["seen"].items():
                    if total > self.seen[topic]:
                        self.seen[topic], self.seen_at[topic] = total, self.story.now
            self._said |= event
        if self._said.get("drained") is None and all(self.seen.values()):
            since = min(self.seen_at[topic] for topic in OUTPUTS)
            self.longest_stall_s = max(self.longest_stall_s, self.story.now - since)
        if wrong:
            raise Trouble("\n".join(wrong))

    def check_progress(self, calm_since: float) -> None:
        """Raises `Trouble` where an output has had nothing new for too long though all were alive and left in peace.
        On a machine that has much else to do, everything takes longer."""
        behind = [topic for topic in OUTPUTS if self.seen[topic] < self.seen[SOURCE]]
        if not behind:
            return
        patience = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / CROWDED)
        since = max(
            calm_since,
            *(job.started_at for job in self.jobs),
            min(self.seen_at[topic] for topic in behind),
        )
        if self.story.now - since > self._stall_s * patience:
            raise Trouble(
                f"no progress: all have been alive for {self.story.now - since:.0f} s, and nothing comes: {self.seen}"
            )

    def _sample(self) -> None:
        now = self.story.now
        for who, pid in (
            ("log", self.broker.pid),
            ("checker", self.checker.pid),
            ("producer", self.producer.pid),
        ):
            self.lives.add(who, pid, sample_of([pid]), now)
        for job in self.jobs:
            job.sample()
        self.story.note("seen", **self.counts)

    @property
    def records_in(self) -> int:
        return self.seen[SOURCE]

    @property
    def records_out(self) -> int:
        return sum(self.seen[topic] for topic in OUTPUTS)

    # The end

    def drain(self) -> None:
        """The producer ends, and all that it wrote has to come out at the other end. Raises `Trouble`."""
        self.producer.stop()
        written = self.producer.events[-1]["final"]
        self.story.tell("drain", f"{sum(written.values()):,} records were written")
        self.checker.tell(json.dumps({"written": written}))
        while "drained" not in self._said:
            self._hear_checker()
            for job in self.jobs:
                job.supervise()
            if self.checker.ended:
                raise Trouble(f"the checker ended; {self.checker.tail()}")
            self.check_progress(0.0)
            _pause.wait(TICK_S)

    def finish(self, deadline_s: float) -> None:
        """The drivers stop; the checker looks whether they left anything. Raises `Trouble`."""
        for job in self.jobs:
            job.stop()
        self.checker.tell(json.dumps({"stopped": True}))
        ends = self.story.now + deadline_s
        while "ended" not in self._said:
            self._hear_checker()
            if self.checker.ended and "ended" not in self._said:
                self._hear_checker()
                if "ended" not in self._said:
                    raise Trouble(f"the checker ended; {self.checker.tail()}")
            if self.story.now > ends:
                raise Trouble(f"the checker did not come to its end; {self.checker.tail()}")
            _pause.wait(TICK_S)

    def close(self) -> None:
        for job in self.jobs:
            job.kill()
        for child in (self.producer, self.checker):
            child.kill()
        self.broker.stop()
        self.proxy.close()
