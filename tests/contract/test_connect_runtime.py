"""Users' own connectors in the runtime, against a real log: positions, offsets, restarts, pauses, dead letters."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.commands import suiro
from support.connecting import committed, reaches, running, send, state, values
from support.waiting import wait_until

from suiro.client import LATEST, Client, NewTopic
from suiro.clock import ShiftedClock, SystemClock
from suiro.connect import (
    About,
    Configuration,
    Connector,
    Polled,
    Runtime,
    SinkBatch,
    SourceRecord,
    UnknownConnectorError,
    serve_control,
    sink_task,
)
from suiro.connect.configuration import ConnectSettings
from suiro.connect.task import TaskContext
from suiro.console.dead_letters import dead_letter_of
from suiro.console.records import LogRecord
from suiro.protocol import compression
from suiro.protocol.records import Record, encode_batch
from suiro.testing import node

HERE = "test_connect_runtime"


# What is not Kafka's to decide is tried on the node alone.
NODE_ONLY = pytest.mark.parametrize("log_under_test", ["node"], indirect=True)


class Counting:
    """Counts to `until`, three numbers at a time; fails where it is told to."""

    failures: dict[str, int] = {}  # noqa: RUF012 - tests set these and look at them
    gates: dict[str, threading.Event] = {}  # noqa: RUF012
    opened: dict[str, list[Any]] = {}  # noqa: RUF012

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._name = about.name
        self._until = settings["until"]
        self._next = 0

    def open(self, position: dict[str, Any] | None) -> None:
        self.opened.setdefault(self._name, []).append(position)
        self._next = 0 if position is None else position["next"]

    def poll(self) -> Polled | None:
        if self.failures.get(self._name, 0) > 0 and self._next >= 6:
            self.failures[self._name] -= 1
            raise OSError("the disk is on fire")
        gate = self.gates.get(self._name)
        if self._next >= self._until or (gate is not None and self._next >= 6 and not gate.is_set()):
            threading.Event().wait(0.01)
            return None
        first, self._next = self._next, min(self._next + 3, self._until)
        records = [SourceRecord(key=str(n % 5), value={"n": n}) for n in range(first, self._next)]
        return Polled(records=records, position={"next": self._next})

    def close(self) -> None:
        pass


class Rejecting:
    """Has one record that it rejects, and `good` others."""

    raw = random.Random(1).randbytes(5_000)

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._is_done = False
        self._good = [SourceRecord(value=n) for n in range(settings.get("good", 0))]

    def open(self, position: dict[str, Any] | None) -> None:
        self._is_done = position is not None

    def poll(self) -> Polled | None:
        if self._is_done:
            threading.Event().wait(0.01)
            return None
        self._is_done = True
        reason = ("__connect.errors.exception.message", b"x" * 1_000)
        rejected = SourceRecord(value=self.raw, headers=(("of", b"y" * 1_000), reason))
        return Polled(records=self._good, position={"next": 1}, rejected=[rejected])

    def close(self) -> None:
        pass


class Padded:
    """Gives all of its records at once."""

    values = tuple(f"{number:0150}" for number in range(20))

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._is_done = False

    def open(self, position: dict[str, Any] | None) -> None:
        self._is_done = position is not None

    def poll(self) -> Polled | None:
        if self._is_done:
            threading.Event().wait(0.01)
            return None
        self._is_done = True
        return Polled(records=[SourceRecord(value=one) for one in self.values], position={"next": 1})

    def close(self) -> None:
        pass


class Gathering:
    """Keeps what it is given, by connector; rejects what has the field `bad`."""

    taken: dict[str, list[Any]] = {}  # noqa: RUF012 - tests look at it
    broken: set[str] = set()  # noqa: RUF012

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._name = about.name

    def open(self) -> None:
        pass

    def put(self, batch: SinkBatch) -> None:
        if self._name in self.broken:
            raise RuntimeError("does not take anything")
        for record in batch.records:
            if isinstance(record.value, dict) and "bad" in record.value:
                batch.reject(record, "bad as it says")
            else:
                self.taken.setdefault(self._name, []).append((record.key, record.value))

    def close(self) -> None:
        pass


class Held(Gathering):
    """Its first `put` waits until it is let go."""

    entered: dict[str, threading.Event] = {}  # noqa: RUF012
    let_go: dict[str, threading.Event] = {}  # noqa: RUF012

    def put(self, batch: SinkBatch) -> None:
        self.entered[self._name].set()
        assert self.let_go[self._name].wait(60)
        super().put(batch)


class Ledger(Gathering):
    """Holds offsets, as a database would."""

    held: dict[str, dict[tuple[str, int], int]] = {}  # noqa: RUF012

    def offsets(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        return self.held.get(self._name, {})

    def put(self, batch: SinkBatch) -> None:
        super().put(batch)
        batch.settle()
        self.held.setdefault(self._name, {}).update(batch.next_offsets)


class Feeding(Gathering):
    """Writes to the first partition of a topic whenever it is given something, up to a hundred times."""

    client: Client

    def put(self, batch: SinkBatch) -> None:
        super().put(batch)
        if len(self.taken[self._name]) < 100 and "large" not in [value for _, value in self.taken[self._name]]:
            send(self.client, self._name, ["more"])


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `kind = "counting"` is the class of this very module, whose attributes the tests set."""
    import sys

    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])


def source(name: str, topic: str, until: int, more: str = "") -> str:
    return f'[source.{name}]\nkind = "{HERE}:Counting"\ntopic = "{topic}"\nuntil = {until}\n{more}\n'


def sink(name: str, topic: str, kind: str = "Gathering", more: str = "") -> str:
    return f'[sink.{name}]\nkind = "{HERE}:{kind}"\ntopics = ["{topic}"]\n{more}\n'


def test_a_source_goes_on_where_it_was_and_failures_repeat_nothing(
    tmp_path: Path, bootstrap: str, client: Client, unique: str
) -> None:
    Counting.failures[unique] = 3
    with running(tmp_path, bootstrap, source(unique, unique, 10, "partitions = 2")) as runtime:
        wait_until(lambda: len(values(client, unique)) >= 10)
        assert state(runtime, unique)["restarts"] == 3
    with running(tmp_path, bootstrap, source(unique, unique, 14)):
        wait_until(lambda: len(values(client, unique)) >= 14)
    rows = committed(client, unique)
    assert sorted(value["n"] for value in values(client, unique)) == list(range(14))
    assert {row["partition"] for row in rows} == {0, 1}
    by_key = {key: {row["partition"] for row in rows if row["key"] == key} for key in {row["key"] for row in rows}}
    assert all(len(partitions) == 1 for partitions in by_key.values())


def test_a_second_process_fences_the_first(tmp_path: Path, bootstrap: str, client: Client, unique: str) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    gate = Counting.gates[unique] = threading.Event()
    text = source(unique, unique, 30)
    with running(tmp_path, bootstrap, text) as first:
        reaches(first, unique, lambda at: at["records"] == 6, "six records")
        with running(folder, bootstrap, text) as second:
            wait_until(lambda: Counting.opened[unique] == [None, {"next": 6}], what="the second to be open")
            gate.set()  # both go on from six
            told = reaches(first, unique, lambda at: at["state"] == "FAILED", "the first to be fenced")
            assert "FencedError" in told["error"]
            reaches(second, unique, lambda at: at["records"] == 24, "the second to do the rest")
    assert [value["n"] for value in values(client, unique)] == list(range(30))


def test_a_machine_that_slept_is_no_other_process(tmp_path: Path, unique: str) -> None:
    """The coordinator aborts a transaction that was open for too long, and fences its producer: a restart mends it."""
    clock = ShiftedClock()
    slept = threading.Event()
    with node() as log, Client(log.bootstrap_servers) as client:

        def reach(point: str) -> None:
            if point == "before commit" and not slept.is_set():
                slept.set()
                log.advance(120_000)
                clock.advance(120_000)
                wait_until(lambda: _undecided(client, unique) == 0, what="the abort")

        text = source(unique, unique, 6)
        with running(tmp_path, log.bootstrap_servers, text, clock=clock, reach=reach) as runtime:
            told = reaches(runtime, unique, lambda at: at["records"] == 6, "six records")
        assert told["restarts"] == 1
        assert [value["n"] for value in values(client, unique)] == list(range(6))


def _undecided(client: Client, topic: str) -> int:
    target = {(topic, 0): LATEST}
    ends = (client.list_offsets(target, read_committed=committed)[topic, 0].offset for committed in (False, True))
    return next(ends) - next(ends)


@pytest.mark.parametrize("kind", ["Gathering", "Ledger"])
def test_a_sink_takes_committed_records_once(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str, kind: str
) -> None:
    topic = new_topic(2)
    send(client, topic, [1, 2], keys=["a", None], commit=True)
    send(client, topic, [3], commit=False)
    send(client, topic, [4], partition=1, commit=True)
    with running(tmp_path, bootstrap, sink(unique, topic, kind)) as runtime:
        reaches(runtime, unique, lambda at: at["lag"] == 0 and at["records"] == 3, "all taken")
    send(client, topic, [5], commit=True)
    with running(tmp_path, bootstrap, sink(unique, topic, kind)) as runtime:
        told = reaches(runtime, unique, lambda at: at["lag"] == 0 and at["records"] == 1, "the rest taken")
    assert told["offsets"][f"{topic}-0"] == 7  # two records, a marker, one aborted, a marker, one, a marker
    assert sorted(Gathering.taken[unique], key=lambda item: item[1]) == [
        ("a", 1), (None, 2), (None, 4), (None, 5),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["Gathering", "Ledger"])
def test_latest_is_the_moment_of_the_first_start(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str, kind: str
) -> None:
    topic = new_topic(2)
    send(client, topic, [1])
    send(client, topic, [2], partition=1)
    text = sink(unique, topic, kind, 'start = "latest"')
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
        send(client, topic, [3])
        reaches(runtime, unique, lambda at: at["records"] == 1, "one record")
    send(client, topic, [4], partition=1)  # of which nothing was taken before
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 1, "one more")
    assert Gathering.taken[unique] == [(None, 3), (None, 4)]
    if kind == "Gathering":
        # As a broker forgets offsets while the sink is stopped.
        client.admin.delete_group(f"suiro-connect-{unique}")
        send(client, topic, [5])
        with running(tmp_path, bootstrap, text) as runtime:
            reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
        assert (None, 5) in Gathering.taken[unique]
        other = new_topic(1)
        send(client, other, [6])
        with running(tmp_path, bootstrap, sink(unique, other, kind, 'start = "latest"')) as runtime:
            reaches(runtime, unique, lambda at: at["lag"] == 0 and f"{other}-0" in at["offsets"], "no lag")
        assert (None, 6) not in Gathering.taken[unique], "of another topic, it is new"


def test_a_sink_that_has_stored_nothing_is_a_new_one(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic = new_topic(1)
    send(client, topic, [1])
    Gathering.broken.add(unique)
    with running(tmp_path, bootstrap, sink(unique, topic, "Gathering")) as runtime:
        reaches(runtime, unique, lambda at: at["restarts"], "a failure")
    Gathering.broken.discard(unique)
    with running(tmp_path, bootstrap, sink(unique, topic, "Gathering", 'start = "latest"')) as runtime:
        reaches(runtime, unique, lambda at: at["offsets"] == {f"{topic}-0": 1}, "the end")
    assert unique not in Gathering.taken


def test_a_batch_larger_than_a_fetch_is_not_held_up_by_other_partitions(
    tmp_path: Path, bootstrap: str, client: Client, unique: str
) -> None:
    topic = unique
    client.create_topics([NewTopic(topic, 2, configs={"max.message.bytes": str(16 << 20)})])
    send(client, topic, ["first"])
    send(client, topic, ["large", "x" * (5 << 20)], partition=1)
    Feeding.client = client
    with running(tmp_path, bootstrap, sink(unique, topic, "Feeding")) as runtime:
        reaches(runtime, unique, lambda at: at["lag"] == 0, "all taken")
    taken = [value for _, value in Gathering.taken[unique]]
    assert "large" in taken
    assert taken.count("more") < 99


def test_the_offsets_of_a_quiet_topic_are_not_forgotten(tmp_path: Path, unique: str) -> None:
    """Brokers forget those of a group without members after a week, though the sink runs all the time."""
    day_ms = 24 * 3600 * 1000
    clock = ShiftedClock()
    with node() as log, Client(log.bootstrap_servers) as client:
        client.create_topics([NewTopic(unique, 2)])
        send(client, unique, [1])
        client.offset_commit("another", {(unique, 0): (0, "")})
        text, group = sink(unique, unique), f"suiro-connect-{unique}"
        with running(tmp_path, log.bootstrap_servers, text, clock=clock) as runtime:
            reaches(runtime, unique, lambda at: at["records"] == 1, "the record taken")
            log.advance(4 * day_ms)
            clock.advance(4 * day_ms)
            places = [(unique, 0), (unique, 1)]
            wait_until(lambda: all(client.offset_fetch(group, places).values()), what="all to be committed again")
            log.advance(4 * day_ms)
            assert not client.offset_fetch("another", None)  # as old as the first ones of the sink
        send(client, unique, [2], partition=1)
        with running(tmp_path, log.bootstrap_servers, text, clock=clock) as runtime:
            reaches(runtime, unique, lambda at: at["records"] == 1 and at["lag"] == 0, "the rest taken")
    assert Gathering.taken[unique] == [(None, 1), (None, 2)]


def test_a_stop_when_offsets_are_due_again_commits_nothing_that_was_not_put(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic, clock = new_topic(), ShiftedClock()
    entered, let_go = Held.entered, Held.let_go
    entered[unique], let_go[unique] = threading.Event(), threading.Event()
    send(client, topic, [1, 2, 3])
    text = sink(unique, topic, "Held", "max_records = 1")
    with running(tmp_path, bootstrap, text, clock=clock) as runtime:
        assert entered[unique].wait(60)
        clock.advance(2 * sink_task.COMMIT_AGAIN_MS)
        runtime.pause(unique)
        let_go[unique].set()
        reaches(runtime, unique, lambda at: at["state"] == "PAUSED", "paused")
        found = client.offset_fetch(f"suiro-connect-{unique}", [(topic, 0)])[topic, 0]
        assert found is not None
        assert found.offset == len(Held.taken[unique]) == 1
        runtime.resume(unique)
        reaches(runtime, unique, lambda at: at["lag"] == 0 and at["records"] >= 2, "the rest taken")
    assert Held.taken[unique] == [(None, 1), (None, 2), (None, 3)]


@NODE_ONLY
@pytest.mark.parametrize("kind", ["Gathering", "Ledger"])
def test_partitions_that_are_added_are_read_from_their_start(
    tmp_path: Path,
    bootstrap: str,
    client: Client,
    new_topic: Callable[..., str],
    unique: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    monkeypatch.setattr(sink_task, "LOOK_FOR_PARTITIONS_MS", 20)
    topic = new_topic()
    with running(tmp_path, bootstrap, sink(unique, topic, kind, 'start = "latest"')) as runtime:
        reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
        runtime.pause(unique)
        reaches(runtime, unique, lambda at: at["state"] == "PAUSED", "paused")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
        send(client, topic, [1], partition=1)
        runtime.resume(unique)
        reaches(runtime, unique, lambda at: at["records"] == 1, "the record of the new partition")
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
        send(client, topic, [2], partition=2)
        reaches(runtime, unique, lambda at: at["records"] == 2, "that of one added while it runs")
        assert state(runtime, unique)["restarts"] == 0
    assert Gathering.taken[unique] == [(None, 1), (None, 2)]


@NODE_ONLY
def test_a_sink_waits_for_a_topic_that_is_created_later(
    tmp_path: Path, bootstrap: str, client: Client, unique: str
) -> None:
    with running(tmp_path, bootstrap, sink(unique, unique)) as runtime:
        told = reaches(runtime, unique, lambda at: at["error"], "what it waits for")
        assert f"topic '{unique}' does not exist" in told["error"]
        assert (told["state"], told["restarts"]) == ("RUNNING", 0)
        runtime.pause(unique)
        reaches(runtime, unique, lambda at: at["state"] == "PAUSED" and at["error"] is None, "the pause")
        runtime.resume(unique)
        client.create_topics([NewTopic(unique, 1)])
        send(client, unique, [1])
        told = reaches(runtime, unique, lambda at: at["records"] == 1, "the record")
        assert (told["error"], told["restarts"]) == (None, 0)


def test_a_failing_connector_leaves_the_others_alone_and_recovers(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic = new_topic()
    good, bad = f"good-{unique}", f"bad-{unique}"
    Gathering.broken.add(bad)
    send(client, topic, [1])
    with running(tmp_path, bootstrap, sink(good, topic) + sink(bad, topic)) as runtime:
        reaches(runtime, bad, lambda at: at["restarts"] >= 3, "three restarts")
        assert "does not take anything" in state(runtime, bad)["error"]
        send(client, topic, [2])
        reaches(runtime, good, lambda at: at["records"] == 2, "the good one's two records")
        assert state(runtime, good)["restarts"] == 0
        Gathering.broken.discard(bad)
        runtime.restart(bad)
        reaches(runtime, bad, lambda at: at["records"] == 2, "the bad one's two records")
        reaches(runtime, bad, lambda at: at["error"] is None, "the end of its error")
    assert Gathering.taken[bad] == [(None, 1), (None, 2)]


def test_an_error_ends_when_there_is_nothing_to_commit(
    tmp_path: Path, bootstrap: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suiro.connect.runtime.IS_WELL_MS", 500)
    Counting.failures[unique] = 1
    with running(tmp_path, bootstrap, source(unique, unique, 6)) as runtime:
        reaches(runtime, unique, lambda at: at["restarts"] == 1, "the failure")
        reaches(runtime, unique, lambda at: at["error"] is None and at["state"] == "RUNNING", "the end of its error")


def test_a_restart_does_not_wait_for_a_clock_that_was_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    behind_ms = 0
    wall_ms = SystemClock.wall_ms
    monkeypatch.setattr(SystemClock, "wall_ms", lambda self: wall_ms(self) - behind_ms)
    restarted = threading.Event()

    class Failing:
        runs = 0

        def run(self, context: TaskContext) -> None:
            self.runs += 1
            if self.runs == 1:
                raise OSError("the disk is on fire")
            restarted.set()
            context.stopping.wait()

    connector = Connector(name="c", side="source", kind="x:Failing", task=Failing(), paused=False)
    configuration = Configuration(folder=tmp_path, settings=ConnectSettings(), connectors=(connector,))
    runtime = Runtime(configuration, first_backoff_ms=1_000)
    runtime.start()
    try:
        reaches(runtime, "c", lambda at: at["restarts"] == 1, "the failure")
        behind_ms = 24 * 3_600_000
        assert restarted.wait(30)
    finally:
        assert runtime.stop()


@pytest.mark.parametrize("kind", ["Gathering", "Ledger"])
def test_what_cannot_be_taken_becomes_a_dead_letter(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str, kind: str
) -> None:
    topic, dead = new_topic(), f"dead-{unique}"
    send(client, topic, [b"{not json", {"bad": 1}, {"good": 1}], keys=["a", "b", "c"])
    more = f'dead_letter_topic = "{dead}"'
    with running(tmp_path, bootstrap, sink(unique, topic, kind, more)) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 3, "all taken")
        assert state(runtime, unique)["rejected"] == 2
    wait_until(lambda: len(committed(client, dead)) == 2)
    first, second = committed(client, dead)
    assert (first["key"], first["value"]) == (b"a", b"{not json")
    assert first["headers"]["__connect.errors.offset"] == b"0"
    assert b"cannot be decoded" in first["headers"]["__connect.errors.exception.message"]
    assert second["headers"]["__connect.errors.exception.message"] == b"bad as it says"
    assert second["headers"]["__connect.errors.topic"] == topic.encode()
    assert Gathering.taken[unique] == [("c", {"good": 1})]


@pytest.mark.parametrize("kind", ["Gathering", "Ledger"])
def test_a_record_as_large_as_can_be_becomes_a_dead_letter(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str, kind: str
) -> None:
    """One that was compressed, and one that with the headers of a dead letter is larger than any topic takes."""
    topic, dead = new_topic(), f"dead-{unique}"
    packed = b"{" + b"x" * 3_000_000
    record = Record(offset=0, timestamp=1, key=b"a", value=packed)
    client.produce({(topic, 0): encode_batch([record], compression=compression.ZSTD)})
    largest = random.Random(1).randbytes(1_048_400)
    send(client, topic, [largest], keys=["b"])
    send(client, topic, [{"good": 1}], keys=["c"])
    more = f'dead_letter_topic = "{dead}"'
    with running(tmp_path, bootstrap, sink(unique, topic, kind, more)) as runtime:
        wait_until(lambda: ("c", {"good": 1}) in Gathering.taken.get(unique, []), what="the last record")
        reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
    letters = {letter["key"]: letter for letter in committed(client, dead)}
    assert letters[b"a"]["value"] == packed
    assert largest.startswith(letters[b"b"]["value"])
    assert len(letters[b"b"]["value"]) > 100_000
    assert letters[b"b"]["headers"]["__connect.errors.offset"] == b"1"
    assert "__connect.errors.cut" not in letters[b"a"]["headers"]
    headers = tuple(letters[b"b"]["headers"].items())
    record = LogRecord(topic=dead, partition=0, offset=0, timestamp=0, key=b"b", value=b"", headers=headers)
    assert "is cut" in (dead_letter_of(record).refusal or "")


@NODE_ONLY
def test_a_topic_of_short_dead_letters_gets_their_beginning(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic, dead = new_topic(), f"dead-{unique}"
    client.create_topics([NewTopic(dead, 1, configs={"max.message.bytes": "900"})])
    raw = b"{" + random.Random(1).randbytes(5_000)
    send(client, topic, [raw])
    with running(tmp_path, bootstrap, sink(unique, topic, more=f'dead_letter_topic = "{dead}"')) as runtime:
        reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
    (letter,) = committed(client, dead)
    assert len(letter["value"]) > 50
    assert raw.startswith(letter["value"])
    assert letter["headers"]["__connect.errors.topic"] == topic.encode()
    assert letter["headers"]["__connect.errors.cut"] == b"true"


@NODE_ONLY
def test_a_topic_of_short_dead_letters_gets_the_beginning_of_what_a_source_rejects(
    tmp_path: Path, bootstrap: str, client: Client, unique: str
) -> None:
    dead = f"dead-{unique}"
    client.create_topics([NewTopic(dead, 1, configs={"max.message.bytes": "900"})])
    text = f'[source.{unique}]\nkind = "{HERE}:Rejecting"\ntopic = "{unique}"\ndead_letter_topic = "{dead}"\n'
    with running(tmp_path, bootstrap, text) as runtime:
        told = reaches(runtime, unique, lambda at: at["commits"] == 1, "the commit")
    assert told["rejected"] == 1
    (letter,) = committed(client, dead)
    assert len(letter["value"]) > 50
    assert Rejecting.raw.startswith(letter["value"])
    assert letter["headers"]["__connect.errors.connector.name"] == unique.encode()
    assert letter["headers"]["__connect.errors.exception.message"].startswith(b"xxx")
    assert letter["headers"]["__connect.errors.cut"] == b"true"
    assert "of" not in letter["headers"]


@pytest.mark.parametrize("dead", ["no/topic", "small"])
@NODE_ONLY
def test_a_source_whose_dead_letters_cannot_be_written_leaves_no_records_undecided(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, dead: str
) -> None:
    """Readers of committed records would wait for them until the restart."""
    client.create_topics([NewTopic(unique, 1)])
    if dead == "small":
        dead = f"dead-{unique}"
        client.create_topics([NewTopic(dead, 1, configs={"max.message.bytes": "100"})])
    text = f'[source.{unique}]\nkind = "{HERE}:Rejecting"\ntopic = "{unique}"\ngood = 3\n'
    with running(tmp_path, bootstrap, f'{text}dead_letter_topic = "{dead}"\n') as runtime:
        reaches(runtime, unique, lambda at: at["restarts"] >= 1, "the error")
        assert client.list_offsets({(unique, 0): LATEST})[unique, 0].offset == 0


@NODE_ONLY
def test_a_topic_that_takes_no_dead_letter_is_named(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic, dead = new_topic(), f"dead-{unique}"
    client.create_topics([NewTopic(dead, 1, configs={"max.message.bytes": "100"})])
    send(client, topic, [b"{"])
    with running(tmp_path, bootstrap, sink(unique, topic, more=f'dead_letter_topic = "{dead}"')) as runtime:
        reaches(runtime, unique, lambda at: "Raise its max.message.bytes" in (at["error"] or ""), "the error")


@NODE_ONLY
def test_a_topic_that_takes_larger_dead_letters_by_now_gets_whole_ones(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic, dead = new_topic(), f"dead-{unique}"
    client.create_topics([NewTopic(dead, 1, configs={"max.message.bytes": "2000"})])
    clock = ShiftedClock()
    raw = random.Random(1).randbytes(5_000)
    text = sink(unique, topic, more=f'dead_letter_topic = "{dead}"')
    send(client, topic, [raw])
    with running(tmp_path, bootstrap, text, clock=clock) as runtime:
        reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
        client.admin.alter_configs("topic", {dead: {"max.message.bytes": "10000"}})
        clock.advance(2 * 3_600_000)
        send(client, topic, [raw])
        reaches(runtime, unique, lambda at: at["records"] == 2 and at["lag"] == 0, "no lag")
    first, second = committed(client, dead)
    assert "__connect.errors.cut" in first["headers"]
    assert (second["value"], "__connect.errors.cut" in second["headers"]) == (raw, False)


@NODE_ONLY
def test_without_a_dead_letter_topic_the_record_is_named(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str
) -> None:
    topic = new_topic()
    send(client, topic, [1, b"{"])
    with running(tmp_path, bootstrap, sink(unique, topic)) as runtime:
        told = reaches(runtime, unique, lambda at: at["error"], "an error")
    assert f"{topic}-0@1 cannot be taken: value cannot be decoded" in told["error"]
    assert "dead_letter_topic" in told["error"]


@NODE_ONLY
def test_a_record_that_is_too_large_is_put_aside(tmp_path: Path, bootstrap: str, client: Client, unique: str) -> None:
    more = f'max_record_bytes = 9\ndead_letter_topic = "dead-{unique}"'  # {"n":10} and its key have nine
    with running(tmp_path, bootstrap, source(unique, unique, 101, more)) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 102 - 1, "all records")
    assert [value["n"] for value in values(client, unique)] == list(range(100))
    (dead,) = committed(client, f"dead-{unique}")
    assert b"has 10 bytes" in dead["headers"]["__connect.errors.exception.message"]
    assert dead["value"] == b"{'n'"


@NODE_ONLY
def test_a_topic_that_takes_small_batches_gets_small_batches(
    tmp_path: Path, bootstrap: str, client: Client, unique: str
) -> None:
    """Its records fit one by one. All of a poll together are larger than what the topic takes."""
    client.create_topics([NewTopic(unique, 1, configs={"max.message.bytes": "400"})])
    text = f'[source.{unique}]\nkind = "{HERE}:Padded"\ntopic = "{unique}"\n'
    with running(tmp_path, bootstrap, text) as runtime:
        told = reaches(runtime, unique, lambda at: at["error"], "an error")
    assert "max.message.bytes is 400" in told["error"]
    assert "Set max_record_bytes" in told["error"]
    with running(tmp_path, bootstrap, f"{text}max_record_bytes = 200\n") as runtime:
        reaches(runtime, unique, lambda at: at["commits"] == 1, "the commit")
    assert tuple(values(client, unique)) == Padded.values


@NODE_ONLY
def test_paused_is_paused_until_resumed(tmp_path: Path, bootstrap: str, client: Client, unique: str) -> None:
    text = source(unique, unique, 3, "paused = true")
    with running(tmp_path, bootstrap, text) as runtime:
        assert state(runtime, unique)["state"] == "PAUSED"
        runtime.resume(unique)
        reaches(runtime, unique, lambda at: at["records"] == 3, "three records")
        runtime.pause(unique)
        reaches(runtime, unique, lambda at: at["state"] == "PAUSED", "paused")
        with pytest.raises(UnknownConnectorError, match=f"there are {unique}"):
            runtime.pause("other")


@NODE_ONLY
def test_status_and_pause_over_http(tmp_path: Path, bootstrap: str, unique: str) -> None:
    with running(tmp_path, bootstrap, source(unique, unique, 3)) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 3, "three records")
        server = serve_control(runtime, "127.0.0.1", 0, token="secret")
        try:
            _ask_everything(f"http://127.0.0.1:{server.port}", unique, runtime)
        finally:
            server.stop()


def test_without_a_token_no_web_page_commands_or_reads(tmp_path: Path, bootstrap: str, unique: str) -> None:
    with running(tmp_path, bootstrap, source(unique, unique, 3)) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 3, "three records")
        server = serve_control(runtime, "127.0.0.1", 0)
        try:
            for page in (
                {"Host": "pages.example"},  # a name that was made to point here
                {"Origin": "http://pages.example"},
                {"Sec-Fetch-Site": "cross-site"},
            ):
                with httpx.Client(base_url=server.url, headers=page) as http:
                    assert http.put(f"/connectors/{unique}/pause").status_code == 403
                    assert http.post(f"/connectors/{unique}/restart").status_code == 403
            read = httpx.get(f"{server.url}/connectors?expand=status", headers={"Host": "pages.example"})
            assert read.status_code == 403
            assert (state(runtime, unique)["state"], state(runtime, unique)["restarts"]) == ("RUNNING", 0)
            assert httpx.put(f"{server.url}/connectors/{unique}/pause").status_code == 202
        finally:
            server.stop()


def _ask_everything(url: str, name: str, runtime: Runtime) -> None:
    assert httpx.get(f"{url}/connectors").status_code == 401
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer secret"}) as http:
        assert http.get("/connectors").json() == [name]
        assert http.get(f"/connectors/{name}/status").json()["state"] == "RUNNING"
        assert http.get("/connectors/nobody/status").status_code == 404
        assert http.put(f"/connectors/{name}/pause").status_code == 202
        reaches(runtime, name, lambda at: at["state"] == "PAUSED", "paused")
        expanded = http.get("/connectors", params={"expand": "status"}).json()
        assert expanded[name]["status"]["state"] == "PAUSED"
        assert http.put(f"/connectors/{name}/resume").status_code == 202
        reaches(runtime, name, lambda at: at["state"] == "RUNNING", "running")
        assert http.post(f"/connectors/{name}/restart").status_code == 202
        metrics = http.get("/metrics").text
        assert f'suiro_connect_records_total{{connector="{name}"}} 3' in metrics
    _command(0, "pause", name, url)
    reaches(runtime, name, lambda at: at["state"] == "PAUSED", "paused")
    table = _command(0, "status", None, url).splitlines()
    assert table[0].split("\t") == ["name", "type", "kind", "state", "records", "rejected", "lag", "restarts"]
    assert table[1].split("\t") == [name, "source", f"{HERE}:Counting", "PAUSED", "3", "0", "", "0"]
    _command(0, "resume", name, url)
    reaches(runtime, name, lambda at: at["state"] == "RUNNING", "running")
    _command(0, "restart", name, url)
    assert "there is no connector 'nobody'" in _command(1, "pause", "nobody", url)


def _command(code: int, word: str, name: str | None, url: str) -> str:
    words = ["connect", word, *([name] if name else []), "--url", url, "--token", "secret"]
    done = suiro(*words)
    assert done.code == code, done.output
    return done.output


@pytest.mark.parametrize("kind", ["Gathering", "Ledger"])
@NODE_ONLY
def test_retention_that_was_faster_is_said_and_passed_if_that_is_asked_for(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str, kind: str
) -> None:
    topic = new_topic()
    send(client, topic, [0, 1])
    with running(tmp_path, bootstrap, sink(unique, topic, kind)) as runtime:
        reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
    send(client, topic, [2, 3, 4])
    client.admin.delete_records({(topic, 0): 4})
    with running(tmp_path, bootstrap, sink(unique, topic, kind)) as runtime:
        told = reaches(runtime, unique, lambda at: at["state"] == "FAILED", "failed")
        assert 'on_data_loss = "continue"' in told["error"]
    with running(tmp_path, bootstrap, sink(unique, topic, kind, 'on_data_loss = "continue"')) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 1, "the record that is left")
        reaches(runtime, unique, lambda at: at["lag"] == 0, "no lag")
    assert [value for _, value in Gathering.taken[unique]] == [0, 1, 4]


@pytest.mark.parametrize("more", ["", 'on_data_loss = "continue"'])
@NODE_ONLY
def test_a_topic_that_ends_before_what_was_read_is_said(
    tmp_path: Path, bootstrap: str, new_topic: Callable[..., str], unique: str, more: str
) -> None:
    topic = new_topic()
    Ledger.held[unique] = {(topic, 0): 5}
    with running(tmp_path, bootstrap, sink(unique, topic, "Ledger", more)) as runtime:
        told = reaches(runtime, unique, lambda at: at["state"] == "FAILED", "failed")
    assert "give the connector another name" in told["error"]
    assert "on_data_loss" not in told["error"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("kind", ["Gathering", "Ledger"])
@pytest.mark.parametrize("is_down", [False, True])
@NODE_ONLY
def test_a_topic_that_is_created_again_under_a_sink(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str, kind: str, start: str,
    is_down: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It has more records at once than the sink had read, so no offset is out of range. Brokers forget the offsets that
    they have of it. A sink with offsets of its own has those of other records."""
    monkeypatch.setattr(sink_task, "LOOK_FOR_PARTITIONS_MS", 20)
    topic = new_topic()
    section = sink(unique, topic, kind, f'start = "{start}"')
    with ExitStack() as stack:
        runtime = stack.enter_context(running(tmp_path, bootstrap, section))
        reaches(runtime, unique, lambda at: at["offsets"] == {f"{topic}-0": 0}, "a start")
        send(client, topic, ["old 0", "old 1"])
        reaches(runtime, unique, lambda at: at["records"] == 2, "two records")
        runtime.pause(unique)
        reaches(runtime, unique, lambda at: at["state"] == "PAUSED", "paused")
        if is_down:
            stack.close()
        client.delete_topics([topic])
        client.create_topics([NewTopic(topic, 1)])
        send(client, topic, ["new 0", "new 1", "new 2"])
        if is_down:
            runtime = stack.enter_context(running(tmp_path, bootstrap, section))
        runtime.resume(unique)
        if kind == "Ledger":
            told = reaches(runtime, unique, lambda at: at["state"] == "FAILED", "failed")
            assert f"topic {topic} was deleted and created again" in told["error"]
            if is_down:
                # The process may end before anybody has read the error.
                stack.close()
                runtime = stack.enter_context(running(tmp_path, bootstrap, section))
                reaches(runtime, unique, lambda at: at["state"] == "FAILED", "failed again")
            runtime.restart(unique)
        wait_until(lambda: (None, "new 2") in Gathering.taken[unique], what="the last record")
        reaches(runtime, unique, lambda at: at["offsets"] == {f"{topic}-0": 3}, "the offset behind it")
        if is_down:
            stack.close()
            runtime = stack.enter_context(running(tmp_path, bootstrap, section))
            reaches(runtime, unique, lambda at: at["offsets"] == {f"{topic}-0": 3}, "a start without an error")
    taken = [value for _, value in Gathering.taken[unique]]
    assert taken == ["old 0", "old 1", *(["new 2"] if kind == "Ledger" else ["new 0", "new 1", "new 2"])]


@NODE_ONLY
def test_retention_of_aborted_records_is_no_loss(
    tmp_path: Path, bootstrap: str, client: Client, new_topic: Callable[..., str], unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A sink with offsets of its own stores those behind them without a batch, some time after it has read them."""
    monkeypatch.setattr(sink_task, "COMMIT_AGAIN_MS", 20)
    topic = new_topic()
    send(client, topic, [0, 1])
    with running(tmp_path, bootstrap, sink(unique, topic, "Ledger")) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 2, "two records")
        send(client, topic, ["aborted"], commit=False)
        wait_until(lambda: Ledger.held[unique] == {(topic, 0): 4}, what="the offset behind the marker")
    client.admin.delete_records({(topic, 0): -1})
    send(client, topic, [2])
    with running(tmp_path, bootstrap, sink(unique, topic, "Ledger")) as runtime:
        reaches(runtime, unique, lambda at: at["records"] == 1, "the next record")
    assert [value for _, value in Gathering.taken[unique]] == [0, 1, 2]
