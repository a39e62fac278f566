"""Topologies on Spark: exact over restarts, whatever the cut of the log, and what goes wrong is said in our words."""

from __future__ import annotations

import os
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.share import IS_WHOLE, one_of
from support.spark_streams import Got, Outputs, Running, Sent, create_topics, encoded, last_by_key
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.clock import SystemClock
from suiro.errors import UnknownTopicError, UsageError
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.records import Record as LogRecord
from suiro.protocol.records import encode_batch
from suiro.streams import (
    KafkaStreams,
    Materialized,
    ProcessingError,
    Repartitioned,
    StreamsBuilder,
    TopologyError,
    record_value,
    serdes,
)
from suiro.streams.records import Record
from suiro.streams.topology.topology import Topology
from suiro.streams_spark.driver_task import DriverTask

pytestmark = pytest.mark.spark

Run = Callable[..., Running]
TEXT = {"key": serdes.string, "value": serdes.string}


def words(topic: str, count: int, keys: int = 7) -> list[Sent]:
    return [Sent(topic, f"k{n % keys}", f"w{n % 5}", 1_000 + n) for n in range(count)]


def counted(records: list[Got]) -> dict[str, int]:
    found = last_by_key(records)
    return {(key or b"").decode(): struct.unpack(">q", value or b"")[0] for key, (value, _) in found.items()}


def by_key(name: str) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream(f"{name}.in", **TEXT).group_by_key().count(materialized=Materialized.as_("counts"))
    counts.to_stream().to(f"{name}.out")
    return builder.build()


def by_word(name: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream(f"{name}.in", **TEXT)
    words.group_by(lambda key, value: value, name="words").count(
        materialized=Materialized.as_("counts")
    ).to_stream().to(f"{name}.out")
    return builder.build()


def test_a_count_goes_on_after_a_restart(run: Run, name: str) -> None:
    """Also of records that the topology writes to a topic that it reads: each comes back twice."""
    builder = StreamsBuilder()
    source = builder.stream([f"{name}.in", f"{name}.again"], **TEXT)
    source.filter(lambda key, value: len(value) < 4).map_values(lambda value: f"{value}!").to(f"{name}.again")
    source.group_by_key().count().to_stream().to(f"{name}.out")
    topology = builder.build()
    sent = words(f"{name}.in", 100)
    first = run(topology, name, before=sent[:60])
    out = first.finish()[f"{name}.out"]
    first.close()
    second = run(topology, name, before=sent[60:])
    assert second.finish()[f"{name}.out"][: len(out)] == out
    out = Outputs(second.client, [f"{name}.out"]).read()[f"{name}.out"]
    assert counted(out) == {key: 3 * count for key, count in Counter(item.key for item in sent).items()}
    # One update for each key and micro-batch; nothing twice.
    assert len(out) == 3 * 14
    committed = second.client.offset_fetch(name)
    assert {place[0] for place in committed} == {f"{name}.in", f"{name}.again", "__txn_markers"}


def test_a_path_comes_back_to_its_own_sub_topology(run: Run, name: str) -> None:
    """A table is joined by two keys, and a table refers to itself, over a restart."""
    builder = StreamsBuilder(**TEXT)
    places = builder.table(f"{name}.places")
    once = builder.stream(f"{name}.in").select_key(lambda key, value: value[0]).join(places, lambda own, row: own + row)
    once.select_key(lambda key, value: value[1]).join(places, lambda own, row: own + row).to(f"{name}.out")
    capitals = places.left_join(places, lambda own, row: f"{own} {row}", foreign_key=lambda value: value[0])
    capitals.to_stream().to(f"{name}.capitals")
    topology = builder.build()
    rows = [Sent(f"{name}.places", key, value, at) for at, (key, value) in enumerate([("a", "b1"), ("b", "a1")], 1_000)]
    sent = [Sent(f"{name}.in", "k", "ab" if n % 2 else "ba", 1_010 + n) for n in range(20)]
    first = run(topology, name, before=[*rows, *sent[:10]])
    first.finish()
    first.close()
    second = run(topology, name, before=[Sent(f"{name}.places", "a", "b2", 1_020), *sent[10:]])
    second.finish()
    found = Outputs(second.client, [f"{name}.out", f"{name}.capitals"]).read()
    out = Counter((item.value or b"").decode() for item in found[f"{name}.out"])
    assert out == {"abb1a1": 5, "baa1b1": 5, "abb2a1": 5, "baa1b2": 5}
    assert {key: value for key, (value, _) in last_by_key(found[f"{name}.capitals"]).items()} == {
        b"a": b"b2 a1",
        b"b": b"a1 b2",
    }


def test_large_records_make_more_micro_batches_where_tasks_hold_them(run: Run, name: str) -> None:
    sent = [Sent(f"{name}.in", "k", "x" * 2_000, 1_000 + n) for n in range(300)]
    running = run(by_key(name), name, before=sent, settings={"maxBytesPerTrigger": "100000"})
    out = running.finish()[f"{name}.out"]
    counts = [struct.unpack(">q", record.value or b"")[0] for record in out]
    assert 6 <= len(counts) <= 8, "one update for each micro-batch"
    assert counts == sorted(counts)
    assert counts[-1] == 300


def test_the_changelog_is_kafka_streams(run: Run, name: str, suiro_node: Any) -> None:
    sent = words(f"{name}.in", 50)
    run(by_key(name), name, before=sent, partitions=3).finish()
    topic = f"{name}-counts-changelog"
    with Client(suiro_node.bootstrap_servers) as client:
        assert client.describe_configs([topic])[topic]["cleanup.policy"] == "compact"
        rows = Outputs(client, [topic], 3).read()[topic]
    latest = {item.key: item.timestamp for item in sent}
    assert counted(rows) == Counter(item.key for item in sent)
    assert {(row.key or b"").decode(): row.timestamp for row in rows} == latest
    assert all(row.partition == partition_for_key(row.key or b"", 3) for row in rows)


@pytest.mark.sampled
@pytest.mark.parametrize(("limit", "partitions"), one_of(2, [(None, 1), (None, 4), (37, 4), (37, 1)]))
def test_a_repartition_gives_one_content_for_every_cut(run: Run, name: str, limit: int | None, partitions: int) -> None:
    sent = words(f"{name}.in", 400 if IS_WHOLE else 220, keys=23)
    running = run(by_word(name), name, before=sent, partitions=partitions, max_offsets_per_trigger=limit)
    out = running.finish()[f"{name}.out"]
    assert counted(out) == Counter(item.value for item in sent)
    assert all(item.partition == partition_for_key(item.key or b"", partitions) for item in out)


def in_windows(name: str) -> Topology:
    from suiro.streams import TimeWindows

    builder = StreamsBuilder()
    words = builder.stream(f"{name}.in", **TEXT).group_by(lambda key, value: value, name="words")
    windows = words.windowed_by(TimeWindows.of_size(40, grace=10)).count(materialized=Materialized.as_("windows"))
    windows.to_stream().to(f"{name}.out")
    return builder.build()


def test_late_records_are_late_for_every_cut(run: Run, name: str) -> None:
    """Each input partition runs far ahead of the others and back: what is late depends on its own input partition's
    time alone."""
    partitions = 3
    sent = []
    for n in range(300):
        jump = 500 if n % 17 == 0 else 0
        sent.append(Sent("", f"k{n % 11}", f"w{n % 5}", 1_000 + 3 * n + jump))
    answers = []
    for limit in (None, 60):
        app = f"{name}-{limit}"
        records = [Sent(f"{app}.in", item.key, item.value, item.timestamp) for item in sent]
        running = run(in_windows(app), app, before=records, partitions=partitions, max_offsets_per_trigger=limit)
        answers.append(last_by_key(running.finish()[f"{app}.out"]))
        running.close()
    assert answers[1] == answers[0]
    accepted = sum(struct.unpack(">q", value or b"")[0] for value, _ in answers[0].values())
    assert 0 < accepted < len(sent)


def send_in_transactions(client: Client, topology: Topology, records: list[Sent], partitions: int) -> None:
    """Those that commit, and between them others that do not."""
    create_topics(client, topology, partitions)
    records = sorted(records, key=lambda item: item.timestamp)
    transaction = client.transaction("writer")
    for start in range(0, len(records), 10):
        for commits in (False, True):
            batches: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)
            for record in records[start : start + 10]:
                key, value = encoded(topology, record)
                batch = batches[record.topic, partition_for_key(key or b"", partitions)]
                value = value if commits else b"aborted"
                batch.append(LogRecord(offset=len(batch), timestamp=record.timestamp, key=key, value=value))
            transaction.init()
            transaction.add_partitions(list(batches))
            transaction.produce([(*place, encode_batch(batch), len(batch)) for place, batch in batches.items()])
            transaction.end(commit=commits)


@pytest.mark.sampled
def test_a_table_is_joined_as_of_the_records_before(run: Run, name: str, suiro_node: Any) -> None:
    """The stream waits for the table where the table is behind: the order is that of timestamps, for every cut. A task
    may read nothing but aborted records, or markers of transactions."""
    partitions, count = 2, 60 if IS_WHOLE else 30

    def joined(app: str) -> Topology:
        builder = StreamsBuilder()
        table = builder.table(f"{app}.table", **TEXT)
        builder.stream(f"{app}.stream", **TEXT).join(table, lambda left, right: f"{left}/{right}").to(f"{app}.out")
        return builder.build()

    answers = []
    for limit, is_in_transactions in ((None, False), (7, False), (13, True)):
        app = f"{name}-{limit}"
        sent = [Sent(f"{app}.table", f"k{n % 3}", f"row {n}", 1_000 + 10 * n) for n in range(count)]
        sent += [Sent(f"{app}.stream", f"k{n % 3}", f"{n}", 1_005 + 10 * n) for n in range(count)]
        if is_in_transactions:
            with Client(suiro_node.bootstrap_servers) as client:
                send_in_transactions(client, joined(app), sent, partitions)
            sent = []
        running = run(joined(app), app, before=sent, partitions=partitions, max_offsets_per_trigger=limit)
        answers.append(sorted(str(item.value) for item in running.finish()[f"{app}.out"]))
        running.close()
    assert answers[0] == answers[1] == answers[2]
    assert answers[0] == sorted(str(f"{n}/row {n}".encode()) for n in range(count))


def test_a_global_table_is_there_before_the_first_record(run: Run, name: str) -> None:
    builder = StreamsBuilder()
    table = builder.global_table(f"{name}.table", **TEXT)
    stream = builder.stream(f"{name}.in", **TEXT)
    stream.join(table, lambda key, value: value, lambda left, right: f"{left}: {right}").to(f"{name}.out")
    sent = [Sent(f"{name}.table", f"w{n}", f"word {n}", 9_000) for n in range(5)]
    sent += words(f"{name}.in", 40)
    running = run(builder.build(), name, before=sent, partitions=3, max_offsets_per_trigger=10)
    out = running.finish()[f"{name}.out"]
    assert sorted((item.value or b"").decode() for item in out) == sorted(
        f"{item.value}: word {item.value[1:]}" for item in sent[5:]
    )


def test_the_users_error_comes_out_of_spark(run: Run, name: str) -> None:
    def careful(value: str) -> str:
        if value == "bad":
            raise ValueError("no bad words")
        return value

    builder = StreamsBuilder()
    builder.stream(f"{name}.in", **TEXT).map_values(careful, name="careful").group_by_key().count(
        name="c"
    ).to_stream().to(f"{name}.out")
    topology = builder.build()
    running = run(topology, name, before=[Sent(f"{name}.in", "k", "bad", 5)])
    with pytest.raises(ProcessingError, match=r"careful .*\.in-0 offset 0.*no bad words"):
        running.finish()
    assert running.streams.state == "ERROR"
    assert isinstance(running.streams.exception, ProcessingError)
    running.close()
    skipping = run(topology, name, before=[Sent(f"{name}.in", "k", "good", 6)], on_processing_error="skip")
    assert counted(skipping.finish()[f"{name}.out"]) == {"k": 1}


def test_records_that_fail_go_to_the_dead_letter_topic(run: Run, name: str, suiro_node: Any) -> None:
    letters = f"{name}.letters"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(letters, 1)])
    builder = StreamsBuilder()
    stream = builder.stream(f"{name}.in", key=serdes.string, value=serdes.json)
    stream.filter(lambda key, value: value["x"] > 1).to(f"{name}.out", value=serdes.json)
    policy = f"dead-letter:{letters}"
    sent = [
        Sent(f"{name}.in", "a", {"x": 1}, 1),
        Sent(f"{name}.in", "b", {"x": 2}, 2),
        Sent(f"{name}.in", "c", 5, 3),
    ]
    running = run(builder.build(), name, before=sent, on_processing_error=policy, on_deserialization_error=policy)
    assert [item.key for item in running.finish()[f"{name}.out"]] == [b"b"]
    assert [item.key for item in Outputs(running.client, [letters]).read()[letters]] == [b"c"]


def test_small_micro_batches_without_state_are_the_drivers_own_and_say_the_same(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By columns, and record by record in a function of the user; with a restart, and an error, midway."""

    def marked(value: str) -> str:
        if value == "bad":
            raise ValueError("no bad words")
        return f"{value}!"

    def build(application: str) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream(f"{application}.in", **TEXT)
        stream.map_values(record_value().upper()).to(f"{application}.out")
        stream.map_values(marked, name="marked").to(f"{application}.marked")
        return builder.build()

    done: list[int] = []
    reports = DriverTask.reports

    def counted_reports(self: DriverTask, identity: Any) -> Any:
        found = reports(self, identity)
        if found is not None:
            done.append(identity.batch_id)
        return found

    monkeypatch.setattr(DriverTask, "reports", counted_reports)

    def outcome(application: str) -> dict[str, list[tuple[Any, ...]]]:
        sent = words(f"{application}.in", 60)
        topics = [f"{application}.out", f"{application}.marked"]
        options = {"max_offsets_per_trigger": 10}
        first = run(build(application), application, before=sent[:35], **options)
        first.finish()
        first.close()
        bad = [Sent(f"{application}.in", "k0", "bad", 2_000)]
        failing = run(build(application), application, before=sent[35:] + bad, **options)
        with pytest.raises(ProcessingError, match=r"marked .*\.in-\d offset \d+.*no bad words"):
            failing.finish()
        failing.close()
        last = run(build(application), application, on_processing_error="skip", **options)
        last.finish()
        return {
            topic.removeprefix(application): sorted(
                (item.partition, item.key, item.value, item.timestamp) for item in records
            )
            for topic, records in Outputs(last.client, topics).read().items()
        }

    here = outcome(name)
    assert len(done) > 3
    assert 0 not in done  # where the first one begins is only known to Spark
    del done[:]
    monkeypatch.setattr(DriverTask, "where_it_serves", lambda *args, **options: None)
    assert outcome(f"{name}-spark") == here
    assert done == []
    assert len(here[".out"]) == 61
    assert len(here[".marked"]) == 60


def test_another_topology_does_not_touch_the_state(run: Run, name: str) -> None:
    first = run(by_key(name), name, before=words(f"{name}.in", 10))
    first.finish()
    first.close()
    builder = StreamsBuilder()
    stream = builder.stream(f"{name}.in", **TEXT)
    stream.group_by_key().reduce(lambda left, right: right, materialized=Materialized.as_("counts")).to_stream().to(
        f"{name}.out"
    )
    with pytest.raises(TopologyError, match="store counts: value was long, is string"):
        run(builder.build(), name)
    again = run(by_key(name), name)
    assert sum(counted(again.finish()[f"{name}.out"]).values()) == 10


def test_what_is_missing_is_said_before_anything_runs(spark: Any, suiro_node: Any, name: str, tmp_path: Path) -> None:
    topology = by_key(name)

    def made(**policies: str) -> KafkaStreams:
        return KafkaStreams(
            topology,
            application_id=name,
            bootstrap_servers=suiro_node.bootstrap_servers,
            spark=spark,
            state_dir=tmp_path,
            **policies,
        )

    with pytest.raises(UnknownTopicError, match=rf"reads topic '{name}\.in'"):
        made().start()
    with pytest.raises(UsageError, match="not started"):
        made().process_all_available()
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic) for topic in (*topology.source_topics, *topology.sink_topics)])
    # The first record that fails may come in a year.
    for policy in ("on_processing_error", "on_deserialization_error"):
        with pytest.raises(UnknownTopicError, match=rf"writes topic '{name}\.dead'"):
            made(**{policy: f"dead-letter:{name}.dead"}).start()
    assert not (tmp_path / name).exists()


def greeter() -> Any:
    # In a function, so that it travels to workers by value.
    class Greeter:
        """Says every 100 ms by the wall clock how many records of a key it has seen, once it has seen some."""

        def init(self, context: Any) -> None:
            self._context = context
            self._store = context.get_state_store("seen")
            context.schedule(100, "wall-clock-time", self._say)

        def process(self, record: Any) -> None:
            self._store.put(record.key, (self._store.get(record.key) or 0) + 1)

        def _say(self, now_ms: int) -> None:
            for key, count in list(self._store.all()):
                self._context.forward(Record(key, count, now_ms))
                self._store.delete(key)

    return Greeter


def test_a_processor_is_told_the_wall_clock(run: Run, name: str) -> None:
    """No punctuator asks for it; and records come to the second processor from another task."""

    class Stamping:
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Any) -> None:
            now = self.context.current_system_time_ms()
            self.context.forward(record.with_value(f"{record.value} {now}"))

    builder = StreamsBuilder()
    stamped = builder.stream(f"{name}.in", **TEXT).process(Stamping)
    carried = stamped.repartition(Repartitioned.with_(key=serdes.string, value=serdes.string))
    carried.process(Stamping).to(f"{name}.out", **TEXT)
    began = SystemClock().wall_ms()
    running = run(builder.build(), name, before=words(f"{name}.in", 2))
    found = running.finish()[f"{name}.out"]
    assert len(found) == 2
    for item in found:
        times = [int(time) for time in (item.value or b"").split()[1:]]
        assert len(times) == 2
        assert times[0] == times[1] >= began


def test_the_wall_clock_comes_by_without_records(run: Run, name: str) -> None:
    builder = StreamsBuilder()
    builder.add_state_store("seen", key=serdes.string, value=serdes.long)
    stream = builder.stream(f"{name}.in", **TEXT)
    stream.process(greeter(), "seen", name="greeter").to(f"{name}.out", key=serdes.string, value=serdes.long)
    running = run(builder.build(), name, before=words(f"{name}.in", 14), partitions=2)
    out: list[Got] = []

    def said() -> bool:
        running.streams.process_all_available()
        out.extend(running.outputs.read()[f"{name}.out"])
        return sum(struct.unpack(">q", item.value or b"")[0] for item in out) == 14

    wait_until(said, 60)
    assert {item.key for item in out} == {b"k%d" % n for n in range(7)}
    assert all(item.timestamp > 1_600_000_000_000 for item in out)


def test_a_worker_has_no_connection_between_tasks(spark: Any) -> None:
    """The daemon has it then, and hands it to the worker that ran the next task before (`worker_pool`)."""

    def sockets_of(pid: int | str) -> int:
        found = 0
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # it was just closed
                found += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
        return found

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "sockets": [sockets_of("self")]})

    (row,) = spark.range(1, numPartitions=1).mapInArrow(told, "pid long, sockets long").collect()
    # The task reads and writes by copies of its connection.
    wait_until(lambda: sockets_of(row.pid) == row.sockets - 3, what="an idle worker")
