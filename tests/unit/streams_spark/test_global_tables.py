"""Global tables in worker processes: read and decoded once, whatever tasks ask; answers go by each task's own rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.protocol.columnar import HEADERS_TYPE
from suiro.streams import StreamsBuilder, serdes
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.topology.nodes import StoreSpec
from suiro.streams.topology.topology import Topology
from suiro.streams_spark import global_tables
from suiro.streams_spark.global_tables import GlobalTable
from suiro.streams_spark.outputs import Topics
from suiro.streams_spark.reports import Counts, unpack_reports
from suiro.streams_spark.run_task import run_task
from suiro.streams_spark.shuffle_message import STAGED, InputPartition, ShuffleMessage
from suiro.streams_spark.state_log import StateLog, read_columns
from tests.unit.streams_spark.test_column_task import PARTITIONS, Engine, Handle, Stage

calls: Counter[str] = Counter()


@dataclass(frozen=True)
class Listed:
    """A long in a list, which a user's function can change."""

    name: str = "listed"

    def serialize(self, topic: str, value: Any) -> bytes:
        calls["write"] += 1
        return serdes.long.serialize(topic, value[0])

    def deserialize(self, topic: str, data: bytes) -> Any:
        calls["read"] += 1
        return [serdes.long.deserialize(topic, data)]


def _spoils(one: int, row: list[int]) -> int:
    row.append(0)
    row[0] += 1
    return one * 100 + row[0]


def _joins(*topics: str) -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table("table", key=serdes.string, value=Listed())
    for topic in topics:
        stream = builder.stream(topic, key=serdes.string, value=serdes.long)
        joined = stream.join(table, lambda key, value: key, _spoils)
        joined.to(f"{topic}-out", key=serdes.string, value=serdes.long)
    return builder.build()


def _values(rows: list[tuple[Any, ...]]) -> list[int]:
    return [int.from_bytes(value) for _, _, value, *_ in rows]


def test_a_record_is_read_once_and_a_row_decoded_once_for_all_tasks() -> None:
    engine = Engine(_joins("stream", "other"), "once")
    calls.clear()
    table = [("a", 4, 0), ("b", 6, 0)]
    found = engine.batch(
        {
            ("table", 0): (table, False),
            **{place: ([("a", 1, 1)] * 5, False) for place in product(("stream", "other"), range(PARTITIONS))},
        },
        100,
    )
    assert _values(found) == [105] * 4 * 5
    # Two records of the topic, and one row that was looked up.
    assert calls == {"write": 2, "read": 3}
    found = engine.batch({("table", 0): ([("a", 8, 2)], False), ("stream", 1): ([("a", 1, 3)], False)}, 100)
    assert _values(found) == [109]
    assert calls == {"write": 3, "read": 5}


def test_a_task_answers_by_its_own_rows_when_another_is_ahead() -> None:
    engine = Engine(_joins("stream"), "ahead")
    engine.batch({("table", 0): ([("a", 1, 0)], False)}, 100)
    behind = replace(engine.handles[0, 0], segments=dict(engine.handles[0, 0].segments))
    engine.batch({("table", 0): ([("a", 2, 0)], False), ("stream", 0): ([("a", 1, 1)], False)}, 100)
    engine.handles[0, 0] = behind  # the micro-batch failed, and is repeated without the table's record
    assert _values(engine.batch({("stream", 0): ([("a", 1, 1)], False)}, 100)) == [102]
    assert _values(engine.batch({("stream", 1): ([("a", 1, 1)], False)}, 100)) == [103]


def test_the_state_is_in_the_form_it_always_had() -> None:
    """A row is its timestamp and the value, by the key; the partition's time is there, too."""
    engine = Engine(_joins("stream"), "form")
    engine.batch({("table", 1): ([("a", 4, 7), ("b", 5, 9), ("b", None, 8)], False)}, 100)
    for partition in range(PARTITIONS):
        found: dict[str, dict[bytes, bytes | None]] = defaultdict(dict)
        for data in engine.handles[0, partition].segments.values():
            for name, keys, rows in read_columns(data):
                found[name] |= dict(zip(keys.to_pylist(), rows.to_pylist(), strict=True))
        source = engine.plan.global_inputs["table"][0][1].name
        assert found == {
            "table-STATE-STORE-0000000000": {b"a": (7).to_bytes(8) + (4).to_bytes(8), b"b": None},
            "$notes": {b"partition\0" + f"{source}\0table\0".encode() + b"1": (9).to_bytes(8)},
        }
    later = Engine(engine.plan.topology, "form, of a process that knows nothing")
    later.handles = engine.handles
    assert _values(later.batch({("stream", 0): ([("a", 1, 9)], False)}, 100)) == [105]


@pytest.mark.parametrize("backwards", [False, True])
def test_what_is_left_out_is_told_once_whichever_task_reads_first(backwards: bool) -> None:
    builder = StreamsBuilder()
    table = builder.global_table("table", key=serdes.string, value=serdes.long)
    for topic in ("stream", "other"):
        stream = builder.stream(topic, key=serdes.string, value=serdes.long)
        stream.join(table, lambda key, value: key, lambda one, other: one + other).to(f"{topic}-out")
    engine = Engine(builder.build(), f"told {backwards}")
    program = replace(engine.program, on_deserialization_error="dead-letter:dead")
    columns = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k", None, b"n"]),
            "value": pa.array([b"no long", bytes(8), bytes(8)]),
            "offset": pa.array([0, 1, 2], pa.int64()),
            "timestamp": pa.array([1, 1, 1], pa.int64()),
            "headers": pa.array([[], [], []], HEADERS_TYPE),
        }
    )
    stage, told = Stage(), Counter[str]()
    places = [
        (sub.number, partition, node.name)
        for sub, node in engine.plan.global_inputs["table"]
        for partition in range(sub.tasks)
    ]
    assert len(places) == 2 * PARTITIONS
    for number, partition, input_ in reversed(places) if backwards else places:
        message = ShuffleMessage(
            kind="raw", input_partition=InputPartition("table", 0), input=input_, columns=columns
        ).pack()
        log = StateLog(Handle(), engine.cache, (number, partition))
        rows = run_task(program, number, partition, [message], log, Topics(stage))  # type: ignore[arg-type]
        for sub, _, data in rows:
            report = unpack_reports([data])[0] if sub == STAGED else None
            if isinstance(report, Counts) and report.kind == "dropped":
                told.update(report.counts)
    assert [(topic, key, value) for topic, key, value, *_ in stage.rows] == [("dead", b"k", b"no long")]
    assert told == {"deserialization error": 1, "null key": 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=3),
    max_leaves=5,
).filter(lambda value: value is not None)
table_keys = st.sampled_from([{"k": 1}, {"k": True}, {"k": 1.0}, {"k": "1"}, {1: "k"}, {True: "k"}, "k", 1, True])


@given(
    doing=st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from(["put", "get", "get"]), table_keys, json_values),
        max_size=40,
    ),
    bytes_max=st.sampled_from([0, 40, 10_000]),
    keys_max=st.sampled_from([1, 100]),
)
@settings(max_examples=examples(150), deadline=None)
def test_tables_of_two_tasks_answer_as_stores_of_their_own(doing: list[Any], bytes_max: int, keys_max: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(global_tables, "DECODED_BYTES_MAX", bytes_max)
        patch.setattr(global_tables, "KEYS_MAX", keys_max)
        _answer_as_stores_of_their_own(doing, bytes_max, keys_max)


def _answer_as_stores_of_their_own(doing: list[Any], bytes_max: int, keys_max: int) -> None:
    spec = StoreSpec(name="t", kind="global", key=serdes.tagged, value=serdes.tagged)
    table = GlobalTable(spec)
    maps = [OrderedMap() for _ in range(2)]
    plain = [open_store(spec, OrderedMap()) for _ in maps]
    for number, (task, what, key, value) in enumerate(doing):
        shared = table.store(maps[task])
        if what == "put":
            shared.put(key, value, number)
            plain[task].put(key, value, number)
            continue
        found, wanted = shared.get_with_timestamp(key), plain[task].get_with_timestamp(key)
        assert repr(found) == repr(wanted)
        if found is not None and isinstance(found[0], list):
            found[0].append("spoilt")
        elif found is not None and isinstance(found[0], dict):
            found[0]["spoilt"] = 1
        assert table._decoded_bytes == sum(len(k) + len(row[0]) for k, row in table._decoded.items())
        assert table._decoded_bytes <= bytes_max
        assert len(table._keys) <= keys_max


def test_records_that_were_read_are_kept_up_to_a_limit_and_made_anew_when_others_stand_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topology = _joins("stream")
    spec = next(spec for spec in topology.stores if spec.kind == "global")
    node = topology.node("KSTREAM-SOURCE-0000000001")
    engine = Engine(topology, "limit")

    def columns(value: int) -> pa.RecordBatch:
        engine.offset = 0
        return engine._columns([("a", value, 3)])

    monkeypatch.setattr(global_tables, "READ_BYTES_MAX", columns(1).nbytes * 2)
    table = GlobalTable(spec)
    for partition in range(5):
        rows = table.read(InputPartition("table", partition), columns(partition), -1, node, "fail")
        assert rows.rows == [(b"a", (3).to_bytes(8) + partition.to_bytes(8))]
        assert rows.time == 3
    assert len(table._read) == 2
    calls.clear()
    assert table.read(InputPartition("table", 4), columns(4), -1, node, "fail").rows[0][1] == (3).to_bytes(8) + (
        4
    ).to_bytes(8)
    assert calls == {}
    assert table.read(InputPartition("table", 4), columns(5), -1, node, "fail").rows[0][1] == (3).to_bytes(8) + (
        5
    ).to_bytes(8)
    assert table._read_bytes == sum(kept.nbytes for kept, _ in table._read.values())
