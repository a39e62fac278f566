"""Kill -9 of the driver, of Python workers and of the log, over many small micro-batches: totals stay exact.

The oracle is a read_committed consumer that we did not write. SUIRO_KILL_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from suiro.client import Client, NewTopic
from suiro.clock import SystemClock
from tests.support.spark_cluster import kill_session
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FENCE_POINTS = ["before_fence", "after_fence"]  # passed in the first micro-batch of a run only
COMMIT_POINTS = [
    "after_add_partitions",
    "after_first_produce",
    "after_produce",
    "after_commit_offsets",
    "after_end",
    "after_bump",
    "before_return",
]
TASK_POINTS = ["task_start", "task_staged"]
PARTITIONS = 3
DRIVER_DEADLINE_S = 400


class KilledNode:
    """A node that comes back on its old port with its old data."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listen = "127.0.0.1:0"
        self._start()

    def _start(self) -> None:
        from suiro.node import NodeProcess

        self._process = NodeProcess.start(data=self._directory, listen=self._listen)
        self.bootstrap_servers = self._listen = self._process.bootstrap_servers

    def kill_and_restart(self) -> None:
        self._process.kill()
        self._start()

    def stop(self) -> None:
        self._process.stop()


class KilledKafka:
    def __init__(self, directory: Path) -> None:
        from suiro.kafka import KafkaProcess

        self._process = KafkaProcess.start(directory)
        self.bootstrap_servers = self._process.bootstrap_servers

    def kill_and_restart(self) -> None:
        self._process.kill()
        self._process.restart()

    def stop(self) -> None:
        self._process.stop()


@pytest.fixture(params=["node", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = (KilledNode if request.param == "node" else KilledKafka)(tmp_path / "log")
    yield made
    made.stop()


class Driver:
    """The job's process, started again after every kill -9."""

    def __init__(self, directory: Path, arguments: list[str]) -> None:
        self._directory = directory
        self._arguments = arguments
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, faults: str) -> subprocess.Popen[bytes]:
        self.starts += 1
        once = self._directory / "faults"
        once.mkdir(exist_ok=True)
        with (self._directory / "driver.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.exactly_once_driver", *self._arguments],
                env=os.environ | {"SUIRO_FAULT": faults, "SUIRO_FAULT_ONCE": str(once)},
                cwd=Path(__file__).parents[2],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self._process

    def kill_all(self) -> None:
        """The driver, its JVM and every Python worker at once (workers have process groups of their own)."""
        assert self._process is not None
        kill_session(self._process.pid)
        self._process.wait()

    def output(self) -> str:
        return (self._directory / "driver.log").read_text(errors="replace")[-6000:]


def fill(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(count):
        producer.produce(topic, key=str(number), value=str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def read_all(bootstrap: str, topics: list[str]) -> Counter[str]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    places = [TopicPartition(topic, p, 0) for topic in topics for p in range(PARTITIONS)]
    consumer.assign(places)
    found: Counter[str] = Counter()
    at_end: set[tuple[str, int]] = set()

    def drained() -> bool:
        for message in consumer.consume(1000, timeout=0.2):
            if message.error():
                at_end.add((message.topic(), message.partition()))
            else:
                found[f"{message.topic()}:{message.key().decode()}"] += 1
        return len(at_end) == len(places)

    wait_until(drained, 60, "the end of every partition")
    consumer.close()
    return found


def copied_exactly(found: Counter[str], count: int) -> bool:
    """Each record of the source once, in the one topic it belongs to (partition n of the source holds n, n+P, ...)."""
    expected = {f"{'even' if (n // PARTITIONS) % 2 == 0 else 'odd'}:{n}" for n in range(count)}
    return set(found) == expected and set(found.values()) == {1}


def differences(found: Counter[str], count: int) -> str:
    keys = {name.split(":")[1] for name in found}
    lost = [n for n in range(count) if str(n) not in keys]
    twice = [name for name, times in found.items() if times > 1]
    return f"lost {len(lost)}: {lost[:10]}, twice {len(twice)}: {twice[:10]}, of {count}"


def soak(log: Any, tmp_path: Path, *, count: int, limit: int, schedule: str, kills: int, dice: random.Random) -> None:
    """Runs the job to its end under `schedule` and, at drawn moments, `kills` further kills of driver or log."""
    with Client(log.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, PARTITIONS) for topic in ("source", "even", "odd")])
    fill(log.bootstrap_servers, "source", count)
    checkpoint = tmp_path / "checkpoint"
    driver = Driver(tmp_path, [log.bootstrap_servers, str(checkpoint), "source", "even", "odd", str(limit)])
    clock = SystemClock()
    deadline = clock.monotonic_ms() + DRIVER_DEADLINE_S * 1000 * (1 + kills // 4)
    total = -(-count // limit)
    moments = sorted(dice.randrange(1, max(2, total)) for _ in range(kills))
    process = driver.start(schedule)
    try:
        while True:
            if moments and newest(checkpoint) >= moments[0]:
                moments.pop(0)
                dice.choice([driver.kill_all, log.kill_and_restart])()
            code = process.poll()
            if code == 0:
                break
            if code is not None:
                assert code == -signal.SIGKILL, driver.output()
                process = driver.start(schedule)
            assert clock.monotonic_ms() < deadline, driver.output()
            wait_until(
                partial(something_happened, process, checkpoint, moments),
                DRIVER_DEADLINE_S,
                f"a micro-batch or the end\n{driver.output()}",
            )
    finally:
        kill_session(process.pid)
    found = read_all(log.bootstrap_servers, ["even", "odd"])
    assert copied_exactly(found, count), f"{differences(found, count)}\n{driver.output()}"
    happened = len(list((tmp_path / "faults").iterdir()))
    assert happened == len(schedule.split(",")) if schedule else not happened, "a fault of the schedule never happened"


def something_happened(process: subprocess.Popen[bytes], checkpoint: Path, moments: list[int]) -> bool:
    return process.poll() is not None or bool(moments and newest(checkpoint) >= moments[0])


def newest(checkpoint: Path) -> int:
    try:
        return max(
            (int(entry.name) for entry in (checkpoint / "offsets").iterdir() if entry.name.isdigit()),
            default=-1,
        )
    except FileNotFoundError:
        return -1


def seed() -> int:
    return int(os.environ.get("SUIRO_KILL_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)


@pytest.mark.soak  # CI's time; the demo kills driver and log in every CI run
def test_a_worker_killed_at_every_step_and_the_driver_at_one(log: Any, tmp_path: Path) -> None:
    """Every row of the failure table that begins with a crash, one after another in one run."""
    chosen = seed()
    print(f"SUIRO_KILL_SEED={chosen}")
    dice = random.Random(chosen)
    points = COMMIT_POINTS + TASK_POINTS
    faults = [f"{point}@batch=0:kill" for point in FENCE_POINTS]
    faults += [f"{point}@batch={batch}:kill" for batch, point in enumerate(points, start=1)]
    faults.append(f"{dice.choice(COMMIT_POINTS)}@batch={len(points) + 1}:kill-session")
    batches = len(points) + 4
    soak(log, tmp_path, count=batches * 30, limit=30, schedule=",".join(faults), kills=0, dice=dice)


@pytest.mark.soak  # CI's time; the test before it dies at every step
def test_driver_and_log_killed_at_drawn_moments(log: Any, tmp_path: Path) -> None:
    chosen = seed()
    print(f"SUIRO_KILL_SEED={chosen}")
    soak(log, tmp_path, count=900, limit=60, schedule="", kills=3, dice=random.Random(chosen))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_for_as_long_as_wanted(log: Any, tmp_path: Path) -> None:
    """`SUIRO_SOAK_SECONDS` (600): rounds of drawn faults at every step and drawn kills of driver and log."""
    clock = SystemClock()
    ends = clock.monotonic_ms() + int(os.environ.get("SUIRO_SOAK_SECONDS", "600")) * 1000
    rounds = 0
    while clock.monotonic_ms() < ends or rounds == 0:
        chosen = seed() + rounds
        print(f"round {rounds}: SUIRO_KILL_SEED={chosen}", flush=True)
        dice = random.Random(chosen)
        faults = [
            f"{dice.choice(COMMIT_POINTS + TASK_POINTS)}@batch={batch}:{dice.choice(['kill', 'kill', 'kill-session'])}"
            for batch in sorted(dice.sample(range(1, 40), 12))
        ]
        directory = tmp_path / str(rounds)
        directory.mkdir()
        if rounds:
            with Client(log.bootstrap_servers) as client:
                client.delete_topics(["source", "even", "odd"])
        soak(log, directory, count=2400, limit=60, schedule=",".join(faults), kills=4, dice=dice)
        rounds += 1
