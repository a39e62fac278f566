"""What is kept and sent, as bytes: this code reads the golden ones and writes the very same.

A golden file changes with a new version of its format only, and the old one stays to be read or refused. Names are
those of docs/reference/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from suiro.errors import SuiroError
from suiro.protocol.columnar import HEADERS_TYPE
from suiro.spark import OffsetRange, Positions
from suiro.spark.decide import Marker
from suiro.spark.reports import pack_commit, unpack_commit
from suiro.spark.staging import StagedRecords, StagingWriter
from suiro.streams import JoinWindows, StreamsBuilder, Suppressed, TimeWindows, serdes
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.foreign_key_join import (
    Instruction,
    Response,
    ResponseSerde,
    Subscription,
    SubscriptionSerde,
)
from suiro.streams.records import Change
from suiro.streams.stores import OrderedMap, buffer, open_store
from suiro.streams.times import keep_number, number_at
from suiro.streams.topology.nodes import StoreSpec
from suiro.streams_spark import description, rebuild, replacement
from suiro.streams_spark.buffered_records import pack_buffered, unpack_buffered
from suiro.streams_spark.changes import read_changes, write_changes
from suiro.streams_spark.description import check_description
from suiro.streams_spark.input_reader import range_columns
from suiro.streams_spark.notes import INPUT_TIME
from suiro.streams_spark.plan import plan
from suiro.streams_spark.rebuild import Boundary, BufferedFrom
from suiro.streams_spark.replacement import mark
from suiro.streams_spark.reports import Counts, TaskReport, pack_report, unpack_reports
from suiro.streams_spark.shuffle_message import InputPartition, ShuffleMessage
from suiro.streams_spark.state_log import Directory, Segment, read_columns, write_segments
from suiro.views.cuts import Cut
from tests.unit.streams_spark.test_messages import REPORTS

GOLDEN = Path(__file__).parents[2] / "vectors" / "formats"
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "formats.md"


def records(place: str) -> pa.RecordBatch:
    headers = [[{"key": "h", "value": b"x"}, {"key": "", "value": None}], []]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k", None], pa.binary()),
            "value": pa.array([None, b"\x00v"], pa.binary()),
            place: pa.array([7, 8], pa.int64()),
            "timestamp": pa.array([1_000, -1], pa.int64()),
            "headers": pa.array(headers, HEADERS_TYPE),
        }
    )


RAW = ShuffleMessage(
    kind="raw",
    input_partition=InputPartition("topic", 2),
    input="KSTREAM-SOURCE-0000000000",
    sequence=3,
    behind=True,
    clock=5,
    columns=records("offset"),
)
RANGE = replace(RAW, kind="range", columns=range_columns(OffsetRange(topic="topic", partition=2, start=7, end=9)))
TICK = ShuffleMessage(
    kind="tick", input_partition=InputPartition("/4", 0), input="cut", time=9, replayed=True, paused=-1
)
BUFFERED = records("offset").append_column("extracted", pa.array([11, None], pa.int64()))
DIRECTORY = Directory((Segment(5, 100), Segment((1 << 62) + 1, 7)), 1)
MAPS = {"store": {b"a": b"1", b"b": None}, "$notes": {b"told\0": b""}}
CHANGES = [Change(1, 2), Change(3), Change(None, 4)]
BOUNDARY = Boundary(offsets={("a", 0): 4, ("b", 1): 0}, waiting={("a", 0): -1})
POSITIONS = Positions(
    offsets={("a", 0): 4},
    topic_ids={"a": "00ff"},
    started_at={("a", 0): 1},
    behind=frozenset({("a", 0)}),
    clock=6,
    replayed=True,
)
FOLLOWING = replace(POSITIONS, started_at=None, behind=frozenset(), clock=None, follows={("a", 0): -1})
TASK = TaskReport(sub_topology=1, partition=2, stores={"s": (3, 40)}, buffered={"in": 5}, condition="idling")
MARKER = Marker(lineage="q", batch_id=3, end_digest="e", start_digest="s", run_id="r")
SUBSCRIPTIONS = SubscriptionSerde(serdes.string)
SUBSCRIPTION = Subscription("left", b"v", 5, Instruction.SUBSCRIBE_AND_ANSWER, 2)
RESPONSES = ResponseSerde(serdes.string)
RESPONSE = Response("right", None, 5, 2)


def report_of(data: bytes) -> Any:
    (found,) = unpack_reports([data])
    return found


def segments_of(data: bytes) -> dict[str, dict[bytes, bytes | None]]:
    found: dict[str, dict[bytes, bytes | None]] = {}
    for name, keys, values in read_columns(data):
        found.setdefault(name, {}).update(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    return found


def staged() -> bytes:
    with StagingWriter(None, "0-0") as writer:
        writer.add("a", 1, b"batch", 2)
        writer.add("b", 0, b"other", 3)
        found = writer.finish().inline
    assert found is not None
    return found


def staged_of(data: bytes) -> Any:
    return list(StagedRecords(topics=("a", "b"), inline=data).batches())


def note_of() -> bytes:
    notes = OrderedMap()
    keep_number(notes, INPUT_TIME + b"cut", 1_234)
    (found,) = notes.range()
    return b"".join(found)


def noted_of(data: bytes) -> int:
    notes = OrderedMap([(data[:-8], data[-8:])])
    return number_at(notes, INPUT_TIME + b"cut")


Kind = Literal["key-value", "window", "session", "versioned"]


def store_of(kind: Kind, rows: OrderedMap) -> Any:
    spec = StoreSpec(name="s", kind=kind, key=serdes.string, value=serdes.string, retention_ms=1_000, window_size_ms=10)
    return open_store(spec, rows)


def stored(kind: Kind) -> bytes:
    rows = OrderedMap()
    store = store_of(kind, rows)
    if kind == "window" or kind == "session":
        store.put("k", "v", 20, 25)
    else:
        store.put("k", "v", 25)
    return json.dumps([[key.hex(), row.hex()] for key, row in rows.range()]).encode()


def stored_of(kind: Kind) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        rows = OrderedMap([(bytes.fromhex(key), bytes.fromhex(row)) for key, row in json.loads(data)])
        store = store_of(kind, rows)
        if kind == "window":
            return store.fetch("k", 20)
        if kind == "session":
            return store.fetch_session("k", 20, 25)
        found = store.get("k")
        return getattr(found, "value", found)

    return read


def suppressing() -> StreamsBuilder:
    builder = StreamsBuilder(key=serdes.string, value=serdes.string)
    counted = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10, grace=0)).count()
    counted.suppress(Suppressed.until_window_closes()).to_stream().to("out")
    return builder


def joining() -> StreamsBuilder:
    builder = StreamsBuilder(key=serdes.string, value=serdes.string)
    other = builder.stream("other")
    windows = JoinWindows.of_time_difference(10, grace=0)
    builder.stream("in").outer_join(other, lambda left, right: f"{left}-{right}", windows).to("out")
    return builder


def state_of(build: Callable[[], StreamsBuilder]) -> bytes:
    """All maps of a task in which one record waits, the times of its operators (`$times`) among them."""
    run = Interpreter(build().build())
    run.pipe("in", 14, b"k", b"v", (("h", b"x"), ("n", None)))
    run.end_of_batch()
    assert not run.outputs
    rows = {name: [[key.hex(), row.hex()] for key, row in rows.range()] for (_, name), rows in run.maps.items()}
    return json.dumps(rows, indent=1).encode()


def released_from(build: Callable[[], StreamsBuilder]) -> Callable[[bytes], Any]:
    """What waits in these maps goes out at a later record, with its time and headers. By the times in them a record of
    3 is late: no window takes it, and it does not wait to be joined."""

    def read(data: bytes) -> Any:
        maps = {
            (0, name): OrderedMap([(bytes.fromhex(key), bytes.fromhex(row)) for key, row in rows])
            for name, rows in json.loads(data).items()
        }
        run = Interpreter(build().build(), maps=maps)
        found = []
        for time in (3, 30):
            run.pipe("in", time, b"l", b"late")
            run.end_of_batch()
            found.append(
                [(item.key, item.value, item.record.timestamp, len(item.record.headers)) for item in run.outputs]
            )
            run.outputs.clear()
        return found

    return read


CUT = Cut(
    number=3,
    inputs={("a", 0): 4, ("b", 1): 0},
    outputs={0: 7, 1: 9},
    time_ms=1_234,
    behind=frozenset({("a", 0)}),
)


FORMATS: dict[str, tuple[Callable[[], bytes], Callable[[bytes], Any], Any]] = {
    "shuffle-message-raw": (RAW.pack, ShuffleMessage.unpack, RAW),
    "shuffle-message-carried": (
        lambda: replace(RAW, kind="carried", columns=records("time")).pack(),
        ShuffleMessage.unpack,
        replace(RAW, kind="carried", columns=records("time")),
    ),
    "shuffle-message-range": (RANGE.pack, ShuffleMessage.unpack, RANGE),
    "shuffle-message-tick": (TICK.pack, ShuffleMessage.unpack, TICK),
    "report-commit": (lambda: pack_commit(REPORTS["file"]), unpack_commit, REPORTS["file"]),  # type: ignore[arg-type]
    "report-held": (
        lambda: pack_report(BufferedFrom("t", 1, 2, -1)),
        report_of,
        BufferedFrom("t", 1, 2, -1),
    ),
    "report-dropped": (
        lambda: pack_report(Counts("dropped", {"late": 2})),
        report_of,
        Counts("dropped", {"late": 2}),
    ),
    "report-rows": (lambda: pack_report(Counts("rows", {"source": 3})), report_of, Counts("rows", {"source": 3})),
    "report-task": (lambda: pack_report(TASK), report_of, TASK),
    "held-records": (lambda: pack_buffered(BUFFERED), unpack_buffered, BUFFERED),
    "note": (note_of, noted_of, 1_234),
    "state-directory": (DIRECTORY.pack, Directory.unpack, DIRECTORY),
    "state-segment": (lambda: next(write_segments(MAPS))[0], segments_of, MAPS),
    "change": (
        lambda: write_changes(serdes.long, CHANGES[1:2], "t")[0][0] or b"",
        lambda data: read_changes(serdes.long, [data], "t")[0],
        CHANGES[1],
    ),
    "change-both": (
        lambda: write_changes(serdes.long, CHANGES[:1], "t")[0][0] or b"",
        lambda data: read_changes(serdes.long, [data], "t")[0],
        CHANGES[0],
    ),
    "foreign-key-subscription": (
        lambda: SUBSCRIPTIONS.serialize("t", SUBSCRIPTION),
        lambda data: SUBSCRIPTIONS.deserialize("t", data),
        SUBSCRIPTION,
    ),
    "foreign-key-response": (
        lambda: RESPONSES.serialize("t", RESPONSE),
        lambda data: RESPONSES.deserialize("t", data),
        RESPONSE,
    ),
    "buffered-record": (
        lambda: buffer.pack(b"value", (("h", b"x"), ("n", None))),
        buffer.unpack,
        (b"value", (("h", b"x"), ("n", None))),
    ),
    "staging-frames": (staged, staged_of, [("a", 1, b"batch", 2), ("b", 0, b"other", 3)]),
    "source-offsets": (
        lambda: json.dumps(POSITIONS.to_json()).encode(),
        lambda data: Positions.from_json(json.loads(data)),
        POSITIONS,
    ),
    "source-offsets-follows": (
        lambda: json.dumps(FOLLOWING.to_json()).encode(),
        lambda data: Positions.from_json(json.loads(data)),
        FOLLOWING,
    ),
    "marker": (
        lambda: MARKER.to_metadata().encode(),
        lambda data: Marker.from_metadata(data.decode()),
        MARKER,
    ),
    "state-suppress": (
        lambda: state_of(suppressing),
        released_from(suppressing),
        [[], [(b"k" + (10).to_bytes(8), (1).to_bytes(8), 14, 2)]],
    ),
    "state-outer-join": (
        lambda: state_of(joining),
        released_from(joining),
        [[(b"l", b"late-None", 3, 0)], [(b"k", b"v-None", 14, 2)]],
    ),
    "cut": (CUT.to_bytes, lambda data: Cut.from_json(json.loads(data)), CUT),
    "store-key-value": (lambda: stored("key-value"), stored_of("key-value"), "v"),
    "store-window": (lambda: stored("window"), stored_of("window"), "v"),
    "store-session": (lambda: stored("session"), stored_of("session"), "v"),
    "store-versioned": (lambda: stored("versioned"), stored_of("versioned"), "v"),
}


EARLIER = {
    "state-suppress-without-delays": "state-suppress",
    "state-outer-join-without-delays": "state-outer-join",
}
"""What releases before wrote, and what takes its place now."""


@pytest.mark.parametrize("name", sorted(EARLIER))
def test_this_code_reads_what_an_earlier_release_wrote(name: str) -> None:
    _, read, wanted = FORMATS[EARLIER[name]]
    assert read((GOLDEN / f"{name}.bin").read_bytes()) == wanted


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_this_code_reads_the_golden_bytes_and_writes_the_same(name: str) -> None:
    write, read, wanted = FORMATS[name]
    golden = (GOLDEN / f"{name}.bin").read_bytes()
    assert read(golden) == wanted
    assert write() == golden


LATER: dict[str, tuple[bytes, bytes]] = {
    "state-directory": (b"\x00\x01", b"\x00\x02"),
    "marker": (b'"v":1', b'"v":2'),
    "cut": (b'"v":1', b'"v":2'),
    "source-offsets": (b'"@ids"', b'"@later"'),
}
"""A part of the golden bytes, and what a later release may write there."""


@pytest.mark.parametrize("name", sorted(LATER))
def test_what_a_later_release_wrote_is_refused(name: str) -> None:
    _, read, _ = FORMATS[name]
    golden = (GOLDEN / f"{name}.bin").read_bytes()
    with pytest.raises(SuiroError, match=r"use the (one|release|version) that wrote|upgrade it"):
        read(golden.replace(*LATER[name], 1))


@pytest.mark.parametrize("name", [rebuild.FILE, replacement.FILE, description.FILE])
def test_a_file_of_a_later_release_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text((GOLDEN / name).read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(SuiroError, match=f"{name} has format 2, .* reads 1: use the version that wrote it"):
        rebuild.read_versioned(tmp_path / name, 1)


def test_the_boundary_of_a_rebuild(tmp_path: Path) -> None:
    golden = (GOLDEN / rebuild.FILE).read_bytes()
    BOUNDARY.save(tmp_path)
    assert (tmp_path / rebuild.FILE).read_bytes() == golden
    assert Boundary.load(GOLDEN) == BOUNDARY


def test_the_mark_of_a_replacement(tmp_path: Path) -> None:
    mark(tmp_path)
    assert (tmp_path / replacement.FILE).read_bytes() == (GOLDEN / replacement.FILE).read_bytes()


def test_the_description_of_a_checkpoint(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long).group_by_key().count().to_stream().to("out")
    found = plan(builder.build(), "app", {"in": 2})
    check_description(found, tmp_path)
    assert (tmp_path / description.FILE).read_bytes() == (GOLDEN / description.FILE).read_bytes()
    check_description(found, GOLDEN)


def test_every_golden_file_is_in_the_table_of_formats() -> None:
    page = PAGE.read_text(encoding="utf-8")
    files = sorted(path.name for path in GOLDEN.iterdir())
    tested = {f"{name}.bin" for name in (*FORMATS, *EARLIER)} | {
        rebuild.FILE,
        description.FILE,
        replacement.FILE,
    }
    assert set(files) == tested
    assert [name for name in files if f"`{name}`" not in page] == []
