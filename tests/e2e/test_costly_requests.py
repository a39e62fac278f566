"""Requests that cost much more than their bytes: each is bounded, and other clients are answered meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.admin import ask, filled
from support.batches import LEAST_RECORD, TIMESTAMP, batch_of, crafted_batch, owned_batch
from support.waiting import wait_until
from support.wire import Wire

from suiro.broker import Broker
from suiro.broker.coordination.fetch_sessions import SMALL_FETCH
from suiro.broker.handlers import configs as config_handlers
from suiro.broker.handlers import fetch as fetch_handler
from suiro.broker.handlers import produce as produce_handler
from suiro.broker.handlers import topics as topic_handlers
from suiro.broker.handlers.metadata import MAX_PARTITIONS_CREATED
from suiro.broker.net.turns import MOST_OF_A_CLIENT
from suiro.broker.settings import configs
from suiro.broker.storage.topics import TopicRegistry
from suiro.log import LogConfig, TimeLookup
from suiro.node import InProcessNode, NodeProcess
from suiro.protocol.messages import API_KEYS, request_class, write_request
from suiro.protocol.record_check import MOST_NAMED

GUARDED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="hush";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


DEADLINE_S = 60.0
GZIP, ZSTD = 1, 4


def create(wire: Wire, name: str, *, partitions: int = 1, **configs: str) -> None:
    entry = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    (made,) = ask(wire, "create_topics", 5, topics=[entry], timeout=30_000)["topics"]
    assert made["error_code"] == "none", made


def produce(wire: Wire, topic: str, *batches: bytes) -> list[dict[str, Any]]:
    """One batch to each of the first partitions."""
    data = [{"index": index, "records": batch} for index, batch in enumerate(batches)]
    topics = [{"name": topic, "partition_data": data}]
    (answer,) = ask(wire, "produce", 8, acks=-1, timeout=30_000, topic_data=topics)["responses"]
    found: list[dict[str, Any]] = answer["partition_responses"]
    return found


def list_offsets(wire: Wire, topic: str, timestamps: Sequence[int]) -> list[tuple[str, int]]:
    """(error, offset) of a time in each of the first partitions."""
    asked = [
        {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
        for index, timestamp in enumerate(timestamps)
    ]
    topics = [{"name": topic, "partitions": asked}]
    (answer,) = ask(wire, "list_offsets", 7, replica_id=-1, topics=topics)["topics"]
    return [(found["error_code"], found["offset"]) for found in answer["partitions"]]


def test_a_topic_of_many_partitions_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made, grown, deleted: each has nothing to do after its first partition until another client was answered."""
    answered = threading.Event()

    def slowly(whole: Any) -> Any:
        def steps(*arguments: Any, **more: Any) -> Any:
            made = whole(*arguments, **more)
            yield next(made)
            ends = time.monotonic() + DEADLINE_S
            while not answered.is_set() and time.monotonic() < ends:
                yield
            return (yield from made)

        return steps

    for name in ("_opening", "deleting"):
        monkeypatch.setattr(TopicRegistry, name, slowly(getattr(TopicRegistry, name)))
    topic = {"name": "big", "num_partitions": 50, "replication_factor": 1}
    grown = {"name": "big", "count": 60, "assignments": None}
    requests: list[tuple[str, int, dict[str, Any]]] = [
        ("create_topics", 7, {"topics": [topic], "timeout": 30_000}),
        ("create_partitions", 3, {"topics": [grown], "timeout": 30_000, "validate_only": False}),
        ("delete_topics", 5, {"topic_names": ["big"], "timeout": 30_000}),
    ]
    done: list[Any] = []

    def changing(by: Wire, name: str, version: int, body: dict[str, Any]) -> None:
        done.append(ask(by, name, version, **body))

    def codes(answers: list[Any]) -> list[str]:
        found = [next(iter(one.get("topics") or one.get("results") or one["responses"])) for one in answers]
        return sorted(one["error_code"] for one in found)

    answered.set()
    with (
        InProcessNode.start() as node,
        Wire(node.bootstrap_servers) as wire,
        Wire(node.bootstrap_servers) as second,
        Wire(node.bootstrap_servers) as other,
    ):
        create(other, "small")
        for name, version, body in requests:
            answered.clear()
            threads = [threading.Thread(target=changing, args=(by, name, version, body)) for by in (wire, second)]
            for thread in threads:
                thread.start()
            for _ in range(3):
                assert produce(other, "small", batch_of("a"))[0]["error_code"] == "none"
                ask(other, "metadata", 9, topics=None)
            assert "none" not in codes(done), name
            answered.set()
            for thread in threads:
                thread.join(DEADLINE_S)
            second_time = {
                "create_topics": "topic_already_exists",
                "create_partitions": "invalid_partitions",
                "delete_topics": "unknown_topic_or_partition",
            }
            assert codes(done) == sorted(["none", second_time[name]]), name
            done.clear()
        assert len(ask(other, "metadata", 9, topics=None)["topics"]) == 1


def test_a_look_up_by_time_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()
    run = TimeLookup.run

    def slowly(self: TimeLookup) -> tuple[int, int] | None:
        begun.set()
        assert may_end.wait(DEADLINE_S)
        return run(self)

    monkeypatch.setattr(TimeLookup, "run", slowly)
    found: list[tuple[str, int]] = []
    with (
        InProcessNode.start() as node,
        Wire(node.bootstrap_servers) as wire,
        Wire(node.bootstrap_servers) as other,
    ):
        create(wire, "t")
        produce(wire, "t", batch_of("a", "b"))
        looking = threading.Thread(target=lambda: found.extend(list_offsets(wire, "t", [TIMESTAMP + 1])))
        looking.start()
        assert begun.wait(DEADLINE_S)
        assert ask(other, "metadata", 9, topics=[])["topics"] == []
        assert not found
        may_end.set()
        looking.join(DEADLINE_S)
        assert found == [("none", 1)]
        # An offset of the old topic would be one of the new topic's, too.
        begun.clear()
        may_end.clear()
        found.clear()
        looking = threading.Thread(target=lambda: found.extend(list_offsets(wire, "t", [TIMESTAMP + 1])))
        looking.start()
        assert begun.wait(DEADLINE_S)
        (gone,) = ask(other, "delete_topics", 5, topic_names=["t"], timeout=30_000)["responses"]
        assert gone["error_code"] == "none"
        create(other, "t")
        produce(other, "t", batch_of("c", "d", "e", timestamp=TIMESTAMP + 1000))
        may_end.set()
        looking.join(DEADLINE_S)
        assert found == [("unknown_topic_or_partition", -1)]


def test_a_batch_of_millions_of_records_is_looked_into() -> None:
    """Its header promises a time that none of them has."""
    count = 4_000_000
    bomb = crafted_batch(LEAST_RECORD * count, count=count, codec=ZSTD, latest=TIMESTAMP + 1000)
    assert len(bomb) < 10_000
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t")
        assert produce(wire, "t", bomb)[0]["error_code"] == "none"
        assert list_offsets(wire, "t", [TIMESTAMP + 500]) == [("none", -1)]
        assert list_offsets(wire, "t", [TIMESTAMP]) == [("none", 0)]


def test_a_garbled_batch_is_an_error_of_its_partition() -> None:
    garbled = crafted_batch(b"", count=3, codec=GZIP, packed=b"garbage")
    lying = crafted_batch(LEAST_RECORD, count=2000, latest=TIMESTAMP + 1000)
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t", partitions=3)
        written = produce(wire, "t", garbled, batch_of("a"), lying)
        assert [answer["error_code"] for answer in written] == ["none"] * 3
        for _ in range(2):  # the connection stays open
            found = list_offsets(wire, "t", [TIMESTAMP, TIMESTAMP, TIMESTAMP + 1])
            assert found == [("corrupt_message", -1), ("none", 0), ("corrupt_message", -1)]
        assert list_offsets(wire, "t", [-1] * 3) == [("none", 3), ("none", 1), ("none", 2000)]
        largest = -3
        assert list_offsets(wire, "t", [largest] * 3) == [
            ("corrupt_message", -1),
            ("none", 0),
            ("corrupt_message", -1),
        ]


KEYED = bytes([14, 0, 0, 0, 2, 97, 1, 0])
"""The key "a" and a null value."""


@pytest.mark.parametrize(
    ("configs", "payload"),
    [({"cleanup_policy": "compact"}, KEYED), ({"compression_type": "gzip"}, LEAST_RECORD)],
    ids=["compacted", "recompressed"],
)
def test_a_look_into_a_batch_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, str], payload: bytes
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    look_into = produce_handler._look_into

    def slowly(batch: bytes, config: LogConfig, now_ms: int) -> Any:
        begun.set()
        assert may_end.wait(DEADLINE_S)
        return look_into(batch, config, now_ms)

    monkeypatch.setattr(produce_handler, "_look_into", slowly)
    count = 100_000
    bomb = crafted_batch(payload * count, count=count, codec=ZSTD)
    answers: list[dict[str, Any]] = []
    with (
        InProcessNode.start() as node,
        Wire(node.bootstrap_servers) as wire,
        Wire(node.bootstrap_servers) as other,
    ):
        create(wire, "t", **configs)
        writing = threading.Thread(target=lambda: answers.extend(produce(wire, "t", bomb)))
        writing.start()
        assert begun.wait(DEADLINE_S)
        assert ask(other, "metadata", 9, topics=[])["topics"] == []
        small = crafted_batch(payload, count=1)  # of another client, to the same partition
        assert produce(other, "t", small)[0]["base_offset"] == 0
        assert not answers
        may_end.set()
        writing.join(DEADLINE_S)
        assert answers[0]["error_code"] == "none"
        assert list_offsets(wire, "t", [-1]) == [("none", answers[0]["base_offset"] + count)]


def test_records_without_a_key_in_a_batch_of_many_are_counted() -> None:
    count = 100_000
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t", cleanup_policy="compact")
        (refused,) = produce(wire, "t", crafted_batch(LEAST_RECORD * count, count=count, codec=ZSTD))
        assert refused["error_code"] == "invalid_record"
        assert refused["error_message"].startswith("100000 records are refused: record 0: ")
        assert len(refused["record_errors"]) == MOST_NAMED
        (refused,) = produce(wire, "t", crafted_batch(b"", count=3, codec=GZIP, packed=b"garbage"))
        assert refused["error_code"] == "invalid_record"
        (refused,) = produce(wire, "t", crafted_batch(bytes(100 << 20), count=3, codec=GZIP))
        assert refused["error_code"] == "message_too_large"


def test_a_producer_that_waits_for_no_answer_may_be_gone() -> None:
    count = 100_000
    bomb = crafted_batch(KEYED * count, count=count, codec=ZSTD)
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t", cleanup_policy="compact")
        message = request_class(API_KEYS["produce"], 8)
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": bomb}]}]
        request = filled(message, {"acks": 0, "timeout": 30_000, "topic_data": topics})
        with Wire(node.bootstrap_servers) as gone:
            gone.send_bytes(write_request(request, correlation_id=1, client_id="gone"))
        wait_until(lambda: list_offsets(wire, "t", [-1]) == [("none", count)], what="the records")


def test_records_of_a_producer_that_is_gone_count_in_the_nodes_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who sent some without waiting for an answer, closed the connection and began anew, could fill the memory."""
    may_end = threading.Event()
    look_into = produce_handler._look_into

    def slowly(batch: bytes, config: LogConfig, now_ms: int) -> Any:
        assert may_end.wait(DEADLINE_S)
        return look_into(batch, config, now_ms)

    monkeypatch.setattr(produce_handler, "_look_into", slowly)
    bomb = crafted_batch(KEYED * 100_000, count=100_000, codec=ZSTD)
    garbled = crafted_batch(b"", count=3, codec=GZIP, packed=b"garbage")
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        server = node.broker.server
        create(wire, "t", cleanup_policy="compact")
        for records in (bomb, garbled):
            topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
            fields = {"acks": 0, "timeout": 30_000, "topic_data": topics}
            request = filled(request_class(API_KEYS["produce"], 8), fields)
            with Wire(node.bootstrap_servers) as gone:
                gone.send_bytes(write_request(request, correlation_id=1, client_id="gone"))
                wait_until(lambda: len(server.connections) == 2, what="the producer")
            wait_until(lambda: len(server.connections) == 1, what="the end of the producer")
        memory = server._context.requests
        wait_until(lambda: memory.used == len(bomb) + len(garbled), what="the records in memory")
        may_end.set()
        wait_until(lambda: memory.used == 0, what="the end of the records")
        assert list_offsets(wire, "t", [-1]) == [("none", 100_000)]


def test_a_request_for_many_topics_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()
    shares = topic_handlers._shares

    def slowly(broker: Broker, wanted: Sequence[Any]) -> Iterator[list[Any]]:
        """Has nothing to do after the first share until another client was answered."""
        first, *rest = shares(broker, wanted)
        yield first
        ends = time.monotonic() + DEADLINE_S
        while rest and not answered.is_set() and time.monotonic() < ends:
            yield []
        yield from rest

    monkeypatch.setattr(topic_handlers, "_shares", slowly)
    results: list[tuple[str, str]] = []
    names = [f"t{number}" for number in range(3 * topic_handlers.PARTITIONS_A_STEP)]

    def creating(wire: Wire) -> None:
        entries = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
        made = ask(wire, "create_topics", 7, topics=entries, timeout=30_000)["topics"]
        results.extend((topic["name"], topic["error_code"]) for topic in made)

    with (
        InProcessNode.start() as node,
        Wire(node.bootstrap_servers) as wire,
        Wire(node.bootstrap_servers) as other,
    ):
        thread = threading.Thread(target=creating, args=[wire])
        thread.start()
        wait_until(
            lambda: len(ask(other, "metadata", 9, topics=None)["topics"]) == len(names) // 3,
            what="the first topics",
        )
        entry = {
            "name": names[-1],
            "num_partitions": 2,
            "replication_factor": 1,
        }  # faster than the first client
        (made,) = ask(other, "create_topics", 7, topics=[entry], timeout=30_000)["topics"]
        assert made["error_code"] == "none"
        assert not results
        answered.set()
        thread.join(DEADLINE_S)
    expected = dict.fromkeys(names, "none") | {names[-1]: "topic_already_exists"}
    assert dict(results) == expected


def test_a_request_creates_some_topics_and_the_next_ones_the_others() -> None:
    names = [f"t{number}" for number in range(3 * MAX_PARTITIONS_CREATED)]
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:

        def created() -> int:
            """How many names a request finds; the others are to be asked for again."""
            found = ask(wire, "metadata", 9, topics=[{"name": name} for name in names])["topics"]
            codes = {topic["name"]: topic["error_code"] for topic in found}
            assert set(codes) == set(names)
            assert set(codes.values()) <= {"none", "unknown_topic_or_partition"}
            return list(codes.values()).count("none")

        assert [created() for _ in range(3)] == [MAX_PARTITIONS_CREATED * n for n in (1, 2, 3)]


def test_a_request_with_too_many_elements_ends_its_connection_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = {"socket.request.max.elements": "1000"}
    with (
        NodeProcess.start(data=tmp_path / "data", settings=settings, log=log) as node,
        Wire(node.bootstrap_servers) as other,
    ):
        for count, is_answered in ((1000, True), (1001, False)):
            topics = [{"name": f"t{number}"} for number in range(count)]
            with Wire(node.bootstrap_servers) as wire:
                try:
                    ask(wire, "metadata", 9, topics=topics, allow_auto_topic_creation=False)
                except ConnectionError:
                    assert not is_answered
                else:
                    assert is_answered
        assert ask(other, "metadata", 9, topics=[])["topics"] == []
        wait_until(
            lambda: "more than socket.request.max.elements = 1000" in log.read_text(),
            what="the line in the log",
        )


def test_denials_of_a_request_are_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        NodeProcess.start(data=tmp_path / "data", settings=GUARDED, log=log) as node,
        Wire(node.bootstrap_servers) as wire,
    ):
        assert ask(wire, "sasl_handshake", 1, mechanism="PLAIN")["error_code"] == "none"
        assert ask(wire, "sasl_authenticate", 2, auth_bytes=b"\0eve\0hush")["error_code"] == "none"
        topics = [{"name": f"t{number}"} for number in range(20_000)]
        found = ask(wire, "metadata", 9, topics=topics)["topics"]
        assert {topic["error_code"] for topic in found} == {"topic_authorization_failed"}
        wait_until(lambda: "Denied" in log.read_text(), what="the line in the log")
    denied = [line for line in log.read_text().splitlines() if "Denied" in line]
    assert len(denied) == 1
    assert "TOPIC:LITERAL:t0, t1, t2 and 19997 more" in denied[0]


def test_settings_of_many_resources_let_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is written to disk and synced. One request may name thousands."""
    answered = threading.Event()
    answer_each = config_handlers._answer_each

    def slowly(*arguments: Any) -> Generator[None, None, Any]:
        """Has nothing to do after the first resource until another client was answered."""
        made = answer_each(*arguments)
        yield next(made)
        ends = time.monotonic() + DEADLINE_S
        while not answered.is_set() and time.monotonic() < ends:
            yield
        return (yield from made)

    monkeypatch.setattr(config_handlers, "_answer_each", slowly)
    setting = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "46000"}
    resources = [{"resource_type": 32, "resource_name": f"g{n}", "configs": [setting]} for n in range(3)]
    codes: list[str] = []

    def alter(wire: Wire) -> None:
        answer = ask(wire, "incremental_alter_configs", 1, resources=resources)
        codes.extend(one["error_code"] for one in answer["responses"])

    with (
        InProcessNode.start() as node,
        Wire(node.bootstrap_servers) as wire,
        Wire(node.bootstrap_servers) as other,
    ):

        def altered() -> set[str]:
            found = ask(other, "list_config_resources", 1, resource_types=(32,))["config_resources"]
            return {one["resource_name"] for one in found}

        thread = threading.Thread(target=alter, args=[wire])
        thread.start()
        wait_until(lambda: altered() == {"g0"}, what="the first group's setting")
        assert not codes
        answered.set()
        thread.join(DEADLINE_S)
        assert codes == ["none"] * 3
        assert altered() == {"g0", "g1", "g2"}
        # All are in memory, and written at each change, and a group may be any name.
        codes.clear()
        setting["value"] = " " * 30_000 + "47000"
        monkeypatch.setattr(configs, "GROUP_CHARACTERS_MAX", 3 * len("g047000") + len("g3"))
        resources[0]["resource_name"] = "g3"
        alter(wire)
        assert codes == ["policy_violation", "none", "none"]
        setting["config_operation"] = 1
        resources[0]["resource_name"] = "g0"
        alter(wire)
        assert codes[3:] == ["none"] * 3
        assert not altered()


@pytest.mark.parametrize("version", [1, 3, 4])
def test_settings_of_many_groups_are_told_in_turns(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Tens of thousands of names are a small request, and any name is a group's."""
    describe = config_handlers._describe
    turned: list[bool] = []
    seen: list[bool] = []

    def noted(broker: Broker, *named: Any) -> Any:
        if not seen:
            broker.loop.call_soon(turned.append, True)
        seen.append(bool(turned))
        return describe(broker, *named)

    monkeypatch.setattr(config_handlers, "_describe", noted)
    names = [f"g{number}" for number in range(200)]
    asked = [{"resource_type": 32, "resource_name": name, "configuration_keys": None} for name in names]
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        results = ask(wire, "describe_configs", version, resources=asked)["results"]
    assert [one["resource_name"] for one in results] == names
    assert {len(one["configs"]) for one in results} == {3}
    assert (seen[0], seen[-1]) == (False, True)


def test_of_large_requests_only_some_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory a request takes thirty times its bytes, and each that has begun stays there until it is answered. Those
    of one client do not hold back another one."""
    may_end = threading.Event()
    describe_all = config_handlers._describe_all
    begun: list[int] = []

    def slowly(*arguments: Any) -> Generator[None, None, Any]:
        begun.append(1)
        ends = time.monotonic() + DEADLINE_S
        while not may_end.is_set() and time.monotonic() < ends:
            yield
        return (yield from describe_all(*arguments))

    monkeypatch.setattr(config_handlers, "_describe_all", slowly)
    one = {"resource_type": 32, "configuration_keys": None}
    asked = [{**one, "resource_name": f"g{number:08}"} for number in range(500)]
    answers: list[int] = []

    def describe(wire: Wire) -> None:
        answers.append(len(ask(wire, "describe_configs", 4, resources=asked)["results"]))

    run = TimeLookup.run

    def slow_run(self: TimeLookup) -> tuple[int, int] | None:
        assert may_end.wait(DEADLINE_S)
        return run(self)

    monkeypatch.setattr(TimeLookup, "run", slow_run)
    look_up = [{"partition_index": number, "timestamp": TIMESTAMP} for number in range(500)]

    def look_up_all(wire: Wire) -> None:
        topics = [{"name": "t", "partitions": look_up}]
        answers.append(len(ask(wire, "list_offsets", 5, replica_id=-1, topics=topics)["topics"][0]["partitions"]))

    with InProcessNode.start() as node, ExitStack() as stack:
        other = stack.enter_context(Wire(node.bootstrap_servers, source="127.0.0.2"))
        create(other, "t")
        produce(other, "t", batch_of("a"))
        memory, turns = node.broker.server._context.requests, node.broker.server._context.turns
        for work in (describe, look_up_all):
            may_end.clear()
            answers.clear()
            wires = [stack.enter_context(Wire(node.bootstrap_servers)) for _ in range(MOST_OF_A_CLIENT + 4)]
            threads = [threading.Thread(target=work, args=[wire]) for wire in (*wires, other)]
            for thread in threads[:-1]:
                thread.start()
            wait_until(lambda: memory.holders == 4, what="those that wait")
            threads[-1].start()
            wait_until(lambda: turns.unfinished["127.0.0.2"] == 1, what="the other client's request")
            assert turns.unfinished["127.0.0.1"] == MOST_OF_A_CLIENT
            may_end.set()
            for thread in threads:
                thread.join(DEADLINE_S)
            assert not memory.used
            assert not turns.unfinished
            assert answers == [len(asked)] * len(threads)
    assert len(begun) == len(threads)


def test_what_is_named_again_and_again_is_described_once() -> None:
    """Some thousand names of one large group are a small request, and their answer was more than the node's memory."""
    times = 3
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    requests: list[tuple[str, int, str, dict[str, Any]]] = [
        ("describe_groups", 5, "groups", {"groups": ["g"] * times}),
        ("consumer_group_describe", 1, "groups", {"group_ids": ["g"] * times}),
        (
            "describe_producers",
            0,
            "topics",
            {"topics": [{"name": "t", "partition_indexes": [0] * times}] * times},
        ),
        ("describe_configs", 4, "results", {"resources": [resource] * times}),
        ("offset_fetch", 9, "groups", {"groups": [{"group_id": "g", "topics": None}] * times}),
    ]
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t")
        for name, version, results, body in requests:
            (found,) = ask(wire, name, version, **body)[results]
            assert len(found.get("partitions", [0])) == 1, name
        asked = request_class(API_KEYS["describe_transactions"], 0)
        answers = []
        for count in (1, times):
            request = asked(transactional_ids=("none",) * count)
            wire.send_bytes(write_request(request, correlation_id=0, client_id="wire"))
            answers.append(wire.receive_bytes())
        assert answers[0] == answers[1]


def test_what_is_stored_is_told_once() -> None:
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t")
        offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m" * 4000}
        topics = [{"name": "t", "partitions": [offset]}]
        done = ask(wire, "offset_commit", 7, group_id="g", generation_id_or_member_epoch=-1, topics=topics)
        assert done["topics"][0]["partitions"][0]["error_code"] == "none"
        asked = [{"name": "t", "partition_indexes": [0] * 3}] * 3
        one = ask(wire, "offset_fetch", 7, group_id="g", topics=asked)
        several = ask(wire, "offset_fetch", 8, groups=[{"group_id": "g", "topics": asked}] * 3)
        for groups in ([one], several["groups"]):
            told = [part for group in groups for topic in group["topics"] for part in topic["partitions"]]
            assert [(part["committed_offset"], len(part["metadata"])) for part in told] == [(1, 4000)]
        named = [{"topic": "t", "partitions": [0] * 3}] * 3
        (directory,) = ask(wire, "describe_log_dirs", 4, topics=named)["results"]
        assert [len(topic["partitions"]) for topic in directory["topics"]] == [1]


def test_an_answer_of_an_old_version_holds_the_message_about_a_long_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its strings have at most 32,767 bytes. One that was longer closed the connection, with a traceback."""
    name, entry = "x" * 32_767, {"name": "retention.ms", "value": "1"}
    key = {"entity": [{"entity_type": name, "entity_name": "c"}], "ops": []}
    list_name = "follower.replication.throttled.replicas"
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t")
        broker = {"resource_type": 4, "resource_name": name}
        for version in (0, 2):
            altered = [{**broker, "configs": [entry]}]
            (one,) = ask(wire, "alter_configs", version, resources=altered, validate_only=False)["responses"]
            assert one["error_code"] == "invalid_request"
            assert one["error_message"].startswith("Node id must be an integer, but it is: xxx")
            assert one["error_message"].endswith("x...")
        (one,) = ask(wire, "describe_configs", 1, resources=[{**broker, "configuration_keys": None}])["results"]
        assert one["error_code"] == "invalid_request"
        (one,) = ask(wire, "alter_client_quotas", 0, entries=[key], validate_only=False)["entries"]
        assert one["error_code"] == "invalid_request"

        def change(first: int, *, operation: int = 2, count: int = 2000) -> str:
            parts = ",".join(f"{number}:{number}" for number in range(first, first + count))
            change = {"name": list_name, "config_operation": operation, "value": parts}
            asked = [{"resource_type": 2, "resource_name": "t", "configs": [change]}]
            answer = ask(wire, "incremental_alter_configs", 0, resources=asked, validate_only=False)
            return str(answer["responses"][0]["error_code"])

        assert [change(10_000), change(20_000)] == ["none", "invalid_config"]
        topic = {"resource_type": 2, "resource_name": "t", "configuration_keys": [list_name]}
        (one,) = ask(wire, "describe_configs", 1, resources=[topic])["results"]
        assert len(one["configs"][0]["value"]) == 2000 * 12 - 1
        # A list that an earlier build has stored may be longer. It becomes shorter.
        monkeypatch.setattr(config_handlers, "MAX_STRING_BYTES", 100)
        assert change(10_000, operation=3, count=1) == "none"


@pytest.mark.parametrize("version", [1, 4])
def test_a_setting_that_no_answer_can_hold_is_an_error(version: int) -> None:
    """It closed the connection, with a traceback, or no client of Kafka's could read the answer."""
    long, short = "super.users", "num.partitions"
    settings = {long: ";".join(f"User:{number}" for number in range(5000))}
    with InProcessNode.start(settings=settings) as node, Wire(node.bootstrap_servers) as wire:

        def describe(names: list[str] | None) -> dict[str, Any]:
            broker = {"resource_type": 4, "resource_name": "1", "configuration_keys": names}
            (found,) = ask(wire, "describe_configs", version, resources=[broker])["results"]
            return dict(found)

        refused = describe(None)
        assert (refused["error_code"], refused["configs"]) == ("invalid_config", [])
        assert refused["error_message"].startswith(f"{long} has more than 32767 bytes")
        assert [one["name"] for one in describe([short])["configs"]] == [short]


def test_of_large_fetches_only_some_wait() -> None:
    """Each partition that one names is a few hundred bytes for as long as it waits."""
    with InProcessNode.start() as node, ExitStack() as stack:
        first, second, small = (stack.enter_context(Wire(node.bootstrap_servers)) for _ in range(3))
        create(first, "t")
        sessions = node.broker.fetch_sessions
        sessions._most_partitions = 3 * SMALL_FETCH

        def frame(count: int) -> bytes:
            place = {
                "fetch_offset": 0,
                "partition_max_bytes": 1,
                "log_start_offset": -1,
                "current_leader_epoch": -1,
            }
            topics = [{"topic": "t", "partitions": [{**place, "partition": number} for number in range(count)]}]
            fields = {
                "replica_id": -1,
                "max_wait": 60_000,
                "min_bytes": 1,
                "max_bytes": 1,
                "session_epoch": -1,
            }
            request = filled(request_class(API_KEYS["fetch"], 11), {**fields, "topics": topics})
            return write_request(request, correlation_id=0, client_id="wire")

        first.send_bytes(frame(2 * SMALL_FETCH))
        wait_until(lambda: sessions.waiting_partitions == 2 * SMALL_FETCH, what="the first fetch")
        second.send_bytes(frame(2 * SMALL_FETCH))
        assert len(second.receive_bytes()) > 2 * SMALL_FETCH * 4
        small.send_bytes(frame(SMALL_FETCH))
        wait_until(lambda: sessions.waiting_partitions == 3 * SMALL_FETCH, what="the small one")
        produce(second, "t", batch_of("a"))
        assert len(first.receive_bytes()) > 2 * SMALL_FETCH * 4
        small.receive_bytes()
        assert sessions.waiting_partitions == 0


@pytest.mark.parametrize("then", [{"session_epoch": 2}, {"session_epoch": 0}], ids=["goes on", "ends"])
def test_a_fetch_does_not_wait_in_a_session_that_goes_on_without_it(then: dict[str, int]) -> None:
    """Its partitions would stay, beside those that the next session has: of thousands of connections."""
    fields: dict[str, Any] = {"replica_id": -1, "min_bytes": 1, "max_bytes": 1, "max_wait": 60_000}
    place = {"fetch_offset": 0, "partition_max_bytes": 1, "log_start_offset": -1, "current_leader_epoch": -1}
    with InProcessNode.start() as node, ExitStack() as stack:
        first, second = (stack.enter_context(Wire(node.bootstrap_servers)) for _ in range(2))
        create(first, "t")
        topics = [{"topic": "t", "partitions": [{**place, "partition": 0}]}]
        begun = ask(first, "fetch", 11, **{**fields, "max_wait": 0}, session_epoch=0, topics=topics)
        fields["session_id"] = begun["session_id"]
        (session,) = node.broker.fetch_sessions._sessions.values()
        request = filled(request_class(API_KEYS["fetch"], 11), {**fields, "session_epoch": 1})
        first.send_bytes(write_request(request, correlation_id=0, client_id="wire"))
        wait_until(lambda: len(session.waiting) == 1, what="the first fetch")
        ask(second, "fetch", 11, **{**fields, **then, "max_wait": 0}, topics=topics)
        first.receive_bytes()
        assert not session.waiting


def test_an_answer_has_records_of_some_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their files stay open until the client has taken it: of thousands, nobody else could open one."""
    monkeypatch.setattr(fetch_handler, "_MOST_REGIONS", 2)
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:
        create(wire, "t", partitions=5)
        produce(wire, "t", *[batch_of("a")] * 5)
        place = {"partition_max_bytes": 1 << 20, "log_start_offset": -1, "current_leader_epoch": -1}
        asked = [{**place, "partition": number, "fetch_offset": 0} for number in range(5)]
        # It does not wait for more bytes than it may have.
        fields: dict[str, Any] = {"replica_id": -1, "max_wait": 60_000, "max_bytes": 1 << 20}
        seen: list[int] = []
        session, epoch, topics = 0, 0, [{"topic": "t", "partitions": asked}]
        for count in (2, 2, 1):
            fields["min_bytes"] = (count + count // 2) * len(batch_of("a"))
            answer = ask(wire, "fetch", 11, **fields, session_id=session, session_epoch=epoch, topics=topics)
            parts = answer["responses"][0]["partitions"]
            found = [part["partition_index"] for part in parts if part["records"]]
            assert len(found) == count
            seen += found
            session, epoch = answer["session_id"], epoch + 1
            read = [{**place, "partition": number, "fetch_offset": 1} for number in found]
            topics = [{"topic": "t", "partitions": read}]
        assert sorted(seen) == list(range(5))


LONG = "x" * 30_000
TRANSACTIONAL = owned_batch("a", producer_id=1, epoch=0, sequence=0, transactional=True)


def _produced(topic: str, *, first: bytes | None = None) -> dict[str, Any]:
    entries = [{"index": 0, "records": first}, *({"index": n, "records": None} for n in range(1, 200))]
    topics = [{"name": topic, "partition_data": entries}]
    return {"acks": -1, "timeout": 30_000, "transactional_id": LONG, "topic_data": topics}


@pytest.mark.parametrize(
    ("name", "version", "body", "settings"),
    [
        ("produce", 11, _produced(LONG), GUARDED),
        ("produce", 11, _produced("t", first=TRANSACTIONAL), GUARDED),
        (
            "describe_producers",
            0,
            {"topics": [{"name": LONG, "partition_indexes": list(range(200))}]},
            GUARDED,
        ),
        ("elect_leaders", 2, {"topic_partitions": [{"topic": LONG, "partitions": list(range(200))}]}, {}),
        (
            "alter_partition_reassignments",
            0,
            {"topics": [{"name": LONG, "partitions": [{"partition_index": n} for n in range(200)]}]},
            {},
        ),
    ],
    ids=["produce", "produce in a transaction", "producers", "elections", "reassignments"],
)
def test_an_answer_does_not_repeat_a_long_name_for_each_partition(
    name: str, version: int, body: dict[str, Any], settings: dict[str, str]
) -> None:
    """Such a name and fifty thousand partitions were an answer of more than a gigabyte, also for a stranger."""
    with InProcessNode.start(settings=settings) as node, Wire(node.bootstrap_servers) as wire:
        if settings:
            ask(wire, "sasl_handshake", 1, mechanism="PLAIN")
            assert ask(wire, "sasl_authenticate", 2, auth_bytes=b"\0eve\0hush")["error_code"] == "none"
        request = filled(request_class(API_KEYS[name], version), body)
        wire.send_bytes(write_request(request, correlation_id=0, client_id="wire"))
        assert len(wire.receive_bytes()) < 5 * len(LONG)
