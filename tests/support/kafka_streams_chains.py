"""Chains of operators that are drawn, built for suiro, and answered by Kafka Streams' own TopologyTestDriver as well.

A chain is a tree of lists: an operator, then its inputs and arguments. Chains of one topology may share streams and
tables, and each has an end of its own. `KafkaStreamsAnswers.java` beside this file builds the same for Kafka Streams,
with the same functions. Drawn is only what both do alike: what they do otherwise is in the docs
(docs/explain/semantics.md), has tests of its own, and is named at the place where it is not drawn.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from suiro.kafka import KafkaUnavailable, java_command
from suiro.streams import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    SourceRecord,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    serdes,
)
from suiro.streams.records import Record, Windowed
from suiro.testing import TopologyTestDriver

VERSION = "4.3.1"
MAVEN_TIMEOUT_S = 600
RETENTION_MS = 100_000
"""Of windowed stores: where Kafka Streams loses rows by its default retention, we do not."""

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>suiro</groupId><artifactId>kafka-streams-answers</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams-test-utils</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""

Sent = tuple[str, str | None, str | None, int]
Row = tuple[int, Any, Any, int, str]
"""The end that it comes out of, key, value, timestamp, which records' headers it has. A windowed key is (key, start,
end)."""


@dataclass(frozen=True)
class Drawn:
    """`has_headers`: results have the headers of the same records in both: not below what waits (difference 12), nor of
    sessions, which lose them in Kafka Streams. `optimization`: of Kafka Streams, which may change no result."""

    chains: list[Any]
    records: tuple[Sent, ...]
    has_headers: bool = True
    optimization: str = "none"

    def __repr__(self) -> str:
        return f"Drawn({json.dumps(self.chains)}, {self.records})"


# -- Kafka Streams ------------------------------------------------------------------------------------------------


class KafkaStreamsAnswers:
    """A context manager: a JVM that answers. Raises `KafkaUnavailable` where there is no Java or no Maven."""

    def __init__(self) -> None:
        source = Path(__file__).parent / "KafkaStreamsAnswers.java"
        command = [java_command(), "-XX:TieredStopAtLevel=1", "-Xmx512m", "-cp", f"{_jars()}/*", str(source)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, drawn: Drawn) -> list[Row] | str:
        """What comes out; a text says why nothing does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"chains": drawn.chains, "optimization": drawn.optimization, "records": drawn.records}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the JVM has ended: exit {self._process.poll()}"
        answer = json.loads(line)
        if "error" in answer:
            return str(answer["error"])
        found = [
            (
                end,
                tuple(key) if isinstance(key, list) else key,
                value,
                timestamp,
                headers if drawn.has_headers else "",
            )
            for end, key, value, timestamp, headers in answer["records"]
        ]
        return sorted(found, key=lambda row: row[0])

    def __enter__(self) -> KafkaStreamsAnswers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def _jars() -> Path:
    """Resolved by Maven on first use, cached after that."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suiro"
    folder = cache / f"kafka-streams-driver-{VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _resolve(folder)
    return folder


def _resolve(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(f"Kafka Streams' jars are not in {folder} and Maven's `mvn` is not on the PATH")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="resolving-") as work:
        pom, filled = Path(work) / "pom.xml", Path(work) / "jars"
        pom.write_text(POM)
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={filled}"],
            capture_output=True,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise KafkaUnavailable(f"Maven could not resolve Kafka Streams' jars: {done.stdout[-1000:]}")
        filled.rename(folder)


# -- suiro --------------------------------------------------------------------------------------------------------


def topology_of(drawn: Drawn) -> Topology:
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    shared: dict[int, Any] = {}
    for end, chain in enumerate(drawn.chains):
        built = _build(builder, chain, shared)
        (built.to_stream() if hasattr(built, "to_stream") else built).to(f"out{end}")
    return builder.build()


def answer_of_suiro(drawn: Drawn) -> list[Row]:
    with TopologyTestDriver(topology_of(drawn)) as driver:
        for number, (topic, key, value, timestamp) in enumerate(drawn.records):
            headers = (("n", str(number).encode()),)
            driver.create_input_topic(topic).pipe_input(key, value, timestamp, headers)
        found = [driver.create_output_topic(f"out{end}").read_records_to_list() for end in range(len(drawn.chains))]
    return [
        (end, _plain(record.key), record.value, record.timestamp, _told(record) if drawn.has_headers else "")
        for end, records in enumerate(found)
        for record in records
    ]


def _told(record: Record) -> str:
    return ",".join((value or b"").decode() for _, value in record.headers)


def _plain(key: Any) -> Any:
    return (key.key, key.start, key.end) if isinstance(key, Windowed) else key


def _build(b: StreamsBuilder, chain: list[Any], shared: dict[int, Any]) -> Any:
    """`shared`: streams and tables that several operators are made of, by number."""
    what, *rest = chain
    if what == "shared":
        number, above = rest
        if above is not None:
            shared[number] = _build(b, above, shared)
        return shared[number]

    def build(above: list[Any]) -> Any:
        return _build(b, above, shared)

    match what, rest:
        case "stream", [topics, extractor]:
            return b.stream(topics, timestamp=partial(event_time, extractor) if extractor else None)
        case "table", [topic, store, history]:
            return b.table(topic, materialized=_rows(store, history))
        case "to_table", [above, store, history]:
            return build(above).to_table(materialized=_rows(store, history))
        case "to_stream", [above]:
            return _of_any_value(build(above).to_stream())
        case "to_stream_by", [above, number]:
            return _of_any_value(build(above).to_stream(lambda key, value: selected(number, value)))
        case "without_windows", [above]:
            return _of_any_value(build(above).to_stream(lambda key, value: key.key))
        case "repartition", [above]:
            return build(above).repartition()
        case "filter" | "filter_not", [above, number]:
            return getattr(build(above), what)(lambda key, value: passes(number, key, value))
        case "map", [above, number]:
            return build(above).map(
                lambda key, value: (selected(number, value), mapped(number, value)),
                key=serdes.string,
                value=serdes.json,
            )
        case "map_values", [above, number]:
            return build(above).map_values(lambda value: mapped(number, value), value=serdes.json)
        case "select_key", [above, number]:
            return build(above).select_key(lambda key, value: selected(number, value), key=serdes.string)
        case "flat_map", [above, number]:
            return build(above).flat_map(
                lambda key, value: [] if value is None else [(selected(number, value), value), ("all", value)],
                key=serdes.string,
                value=serdes.json,
            )
        case "flat_map_nulls", [above]:
            return build(above).flat_map(
                lambda key, value: [(None, value), (key, None), (key, value)], key=serdes.string, value=serdes.json
            )
        case "headers", [above, kind]:
            return build(above).process_values(lambda: Marking(kind), value=serdes.json)
        case "ranges", [above, number]:
            stream, store = build(above), f"p{number}"
            b.add_state_store(store, key=serdes.string, value=serdes.json)
            return stream.process(lambda: Ranging(store), store, key=serdes.string, value=serdes.json)
        case "flat_map_values", [above, number]:
            return build(above).flat_map_values(lambda value: several(number, value), value=serdes.json)
        case "split", [above, number, way]:
            ways = build(above).split(name=f"split{number}-")
            ways = ways.branch(lambda key, value: passes(0, key, value), "0")
            return ways.branch(lambda key, value: passes(1, key, value), "1").default_branch("2")[str(way)]
        case "process", [above, number, kind]:
            stream, store = build(above), f"p{number}"
            b.add_state_store(store, key=serdes.string, value=serdes.json)
            return stream.process(lambda: Keeping(store, kind), store, key=serdes.string, value=serdes.json)
        case "merge", [left, right]:
            return build(left).merge(build(right))
        case "table_filter" | "table_filter_not", [above, number, store, history]:
            step = getattr(build(above), what.removeprefix("table_"))
            return step(lambda key, value: passes(number, key, value), materialized=_rows(store, history))
        case "table_map_values", [above, number, store, history]:
            return build(above).map_values(
                lambda value: mapped(number, value), value=serdes.json, materialized=_rows(store, history)
            )
        case "table_join", [kind, left, right, number, store]:
            sides = build(left), build(right)
            return getattr(sides[0], kind)(
                sides[1],
                lambda left, right: joined(number, left, right),
                value=serdes.json,
                materialized=_rows(store),
            )
        case "foreign_key", [kind, left, right, number, store]:
            sides = build(left), build(right)
            return getattr(sides[0], kind)(
                sides[1],
                lambda left, right: joined(0, left, right),
                foreign_key=lambda value: selected(number, value),
                value=serdes.json,
                materialized=_rows(store),
            )
        case "self_join", [kind, stream, before, after]:
            windows, both = JoinWindows.of(before=before, after=after, grace=1_000), build(stream)
            return getattr(both, kind)(both, lambda left, right: joined(0, left, right), windows)
        case "stream_table", [kind, stream, table, grace]:
            sides = build(stream), build(table)
            options = {} if grace is None else {"grace": grace}
            return getattr(sides[0], kind)(sides[1], lambda left, right: joined(0, left, right), **options)
        case "stream_stream", [left, right, before, after, grace, kind]:
            windows = JoinWindows.of(before=before, after=after, grace=grace)
            sides = build(left), build(right)
            return getattr(sides[0], kind)(sides[1], lambda left, right: joined(0, left, right), windows)
        case "global", [kind, stream, topic, number]:
            return getattr(build(stream), kind)(
                b.global_table(topic),
                lambda key, value: selected(number, value),
                lambda left, right: joined(0, left, right),
            )
        case "table_group", [above, number, kind, store]:
            grouped = build(above).group_by(
                lambda key, value: paired(number, value), key=serdes.string, value=serdes.json
            )
            if kind == "count":
                return grouped.count(materialized=_rows(store))
            if kind == "reduce":
                return grouped.reduce(_put("+"), _put("-"), materialized=_rows(store))
            return grouped.aggregate(str, _adder("+"), _adder("-"), value=serdes.json, materialized=_rows(store))
        case "group", [above, number, window, kind, store]:
            stream = build(above)
            group = (
                stream.group_by_key()
                if number is None
                else stream.group_by(lambda key, value: selected(number, value), key=serdes.string, value=serdes.json)
            )
            return _aggregated(group, window, kind, store)
        case "cogroup", [left, right, window, store]:
            together = build(left).group_by_key().cogroup(_adder("+"))
            together = together.cogroup(build(right).group_by_key(), _adder("*"))
            if window is None:
                return together.aggregate(str, value=serdes.json, materialized=_rows(store))
            merger = [_merged] if window[0] == "session" else []
            return together.windowed_by(_windows(window)).aggregate(str, *merger, value=serdes.json)
        case "suppress", [above, "close"]:
            return build(above).suppress(Suppressed.until_window_closes())
        case "suppress", [above, "time", limit, records]:
            return build(above).suppress(Suppressed.until_time_limit(limit, max_records=records))
    raise AssertionError(chain)


def _of_any_value(stream: Any) -> Any:
    """Counts, of which texts may be made."""
    return stream.map_values(lambda value: value, value=serdes.json)


def _aggregated(group: Any, window: list[Any] | None, kind: str, store: str | None) -> Any:
    options: dict[str, Any] = {"materialized": _rows(store)}
    if window is not None:
        group = group.windowed_by(_windows(window))
        if window[0] != "session" and store is not None:
            options["materialized"] = Materialized.as_(store, retention=RETENTION_MS)
        if window[4]:
            group = group.emit_strategy(EmitStrategy.on_window_close())
    if kind == "count":
        return group.count(**options)
    if kind == "reduce":
        return group.reduce(lambda left, right: None if text(right)[0] == "d" else _put("+")(left, right), **options)
    merger = [_merged] if window is not None and window[0] == "session" else []
    return group.aggregate(str, _adder("+"), *merger, value=serdes.json, **options)


def _merged(key: Any, left: Any, right: Any) -> str:
    return text(right) if left == "" else f"{text(left)}|{text(right)}"


def _windows(window: list[Any]) -> Any:
    kind, size, grace, *rest = window
    match kind:
        case "time":
            return TimeWindows.of_size(size, advance=rest[0]).grace(grace)
        case "sliding":
            return SlidingWindows.of_difference(size, grace=grace)
    return SessionWindows.of_gap(size).grace(grace)


def _rows(store: str | None, history: int | None = None) -> Materialized | None:
    if store is None:
        return None
    return Materialized.as_(store) if history is None else Materialized.versioned(store, history=history)


# -- functions of both --------------------------------------------------------------------------------------------


def text(value: Any) -> str:
    return "null" if value is None else str(value)


def event_time(number: int, record: SourceRecord, partition_time: int) -> int:
    """Leaves some records out, never goes back, or is earlier and may be negative."""
    if number == 2:
        return max(partition_time, record.timestamp)
    if number == 3:
        return record.timestamp - 4
    return -1 if text(record.value)[0] == "c" else record.timestamp


def passes(number: int, key: Any, value: Any) -> bool:
    if number == 3:
        return key is not None
    first = text(value)[0]
    return first == "a" if number == 0 else len(text(value)) % 2 == 0 if number == 1 else first != "c"


def mapped(number: int, value: Any) -> Any:
    if value is None:
        return None
    if number == 0:
        return text(value) + "'"
    if number == 1:
        return None if text(value)[0] == "c" else value
    return text(value)[0] + "1"


def several(number: int, value: Any) -> list[Any]:
    return [] if value is None or (number == 1 and text(value)[0] == "c") else [value, text(value) + "'"]


def selected(number: int, value: Any) -> str | None:
    if value is None or (number != 0 and text(value)[0] == "c"):
        return None
    return "all" if number == 2 else text(value)[0]


def paired(number: int, value: Any) -> tuple[Any, Any] | None:
    if number == 0:
        return "all", value
    if number == 1:
        return selected(1, value), value
    first = text(value)[0]
    return None if first == "c" else (first, None if first == "b" else value)


def joined(number: int, left: Any, right: Any) -> str | None:
    return None if number == 1 and text(left)[0] == "c" else f"{text(left)}|{text(right)}"


def _adder(sign: str) -> Any:
    return lambda key, value, found: (
        None if text(value)[0] == "d" else f"{'' if found is None else text(found)}{sign}{text(value)}"
    )


def _put(sign: str) -> Any:
    return lambda left, right: f"{text(left)}{sign}{text(right)}"


class Keeping:
    """Joins the values of each key, and tells them as time passes."""

    def __init__(self, store: str, kind: int) -> None:
        self._store, self._kind = store, kind

    def init(self, context: Any) -> None:
        self._context = context
        self._rows = context.get_state_store(self._store)
        for name, interval in {0: [("x", 7)], 1: [("x", 10), ("y", 3)]}.get(self._kind, []):
            context.schedule(interval, "stream-time", partial(self._tell, name))
        if self._kind == 2:
            self._once = context.schedule(5, "stream-time", self._tell_once)

    def _tell_once(self, now: int) -> None:
        self._once.cancel()
        self._tell("x", now)

    def _tell(self, name: str, now: int) -> None:
        for key, value in list(self._rows.all()):
            self._context.forward(Record(key, text(value) + name, now))

    def process(self, record: Record) -> None:
        key = text(record.key)
        before = self._rows.get(key)
        value = None if record.value is None else ("" if before is None else text(before)) + text(record.value)
        self._rows.put(key, value)
        self._context.forward(record.with_value(value))


class Ranging:
    """Tells what is in its store up to the key of each record, and behind it."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: Any) -> None:
        self._context = context
        self._rows = context.get_state_store(self._store)

    def process(self, record: Record) -> None:
        key, value, rows = record.key, record.value, self._rows
        if key is None:
            return
        if value is None:
            before = rows.delete(key)
        else:
            before = rows.put_if_absent(key, value) if text(value)[0] == "b" else rows.get(key)
        if text(value)[0] == "a":
            rows.put(key, value)
        found = (rows.range(None, key), rows.range(key, None, reverse=True), rows.prefix_scan(key.encode()), rows.all())
        told = ["/" + "".join(f"{key}={value}," for key, value in some) for some in found]
        self._context.forward(record.with_value(text(before) + "".join(told)))


class Marking:
    """Adds a header, or removes all."""

    def __init__(self, kind: int) -> None:
        self._kind = kind

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        headers = () if self._kind == 1 else record.headers
        self._context.forward(record.with_headers((*headers, ("n", b"more")) if self._kind == 0 else headers))


# -- drawing ------------------------------------------------------------------------------------------------------

KEYS = ["k", "k", "k", "l", None]
MORE_KEYS = ["k", "k", "kk", "", "\u00e9", "\uffee", "\U0001f600", None]
VALUES = ["a1", "a22", "b1", "b22", "c1", "d1", None, None]
JOINS = ("join", "left_join", "outer_join")


class _Pen:
    """Draws one chain. Topics, stores and shared tables are numbered as they come."""

    def __init__(self, random: Random) -> None:
        self.one_of = lambda *values: random.choice(values)
        self.topics: list[str] = []
        self._stores = 0
        self._numbers = 0
        self.all_times_differ = False  # of all records, where equal times give another answer
        self.is_in_order = False  # all records come in the order of their times
        self.has_versions = False
        self.has_headers = True
        self.all_times_are_even = False
        self._gives_one = False  # for a record, at the most
        self._made: dict[str, list[int]] = {"stream": [], "table": []}  # numbers of those that may be read again

    def again(self, kind: str, made: Callable[[], list[Any]]) -> list[Any]:
        """One that was made before, or a new one that may be read again."""
        numbers = self._made[kind]
        if numbers and not self._gives_one and self.one_of(True, False, False):
            return ["shared", self.one_of(*numbers), None]
        found = made()
        if found[0] == "shared" or self._gives_one or self.one_of(True, False):
            return found
        numbers.append(self.number())
        return ["shared", numbers[-1], found]

    def topic(self) -> str:
        self.topics.append(f"t{len(self.topics)}")
        return self.topics[-1]

    def store(self, *, named: bool = False) -> str | None:
        if not named and self.one_of(True, False):
            return None
        self._stores += 1
        return f"s{self._stores}"

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def rows(self, *, named: bool = False) -> list[Any]:
        """Store and history."""
        store = self.store(named=named)
        history = None if store is None else self.one_of(None, None, 1_000, 20)
        if history is not None:
            self.all_times_differ = self.has_versions = True  # see difference 11
        return [store, history]

    def end(self) -> list[Any]:
        """Something to send on: a stream, or a table."""
        depth = self.one_of(2, 2, 3)
        match self.one_of("table", "table", "table", "stream", "stream", "windows", "windows", "last"):
            case "table":
                return self.table(depth)
            case "stream":
                return self.stream(depth)
            case "windows":
                return self.windows()
        return self.last(depth)

    def stream(self, depth: int) -> list[Any]:
        return self.again("stream", lambda: self._stream(depth))

    def _stream(self, depth: int) -> list[Any]:
        if depth == 0:
            topics = [self.topic() for _ in range(self.one_of(1, 1, 1, 2))]
            return ["stream", topics, self.one_of(0, 0, 0, 1, 2, 3)]
        steps: list[str] = ["repartition", "filter", "filter_not", "map_values", "select_key", "map"]
        steps += ["merge", "global", "split", "headers"]
        steps += ["table", "table", "table", "grace", "to_stream", "to_stream"]
        if not self._gives_one:
            steps += ["flat_map", "several", "stream", "stream", "process", "process", "windows"]
            steps += ["twice", "twice", "self_join", "flat_map_nulls", "ranges"]
        match self.one_of(*steps):
            case "repartition":
                return ["repartition", self.stream(depth - 1)]
            case "filter" | "filter_not" | "map_values" | "select_key" | "map" | "flat_map" as what:
                return [what, self.stream(depth - 1), self.one_of(0, 1, 2)]
            case "twice":
                return self.twice(depth)
            case "headers" | "ranges" as what:
                return [what, self.stream(depth - 1), self.one_of(0, 1, 2) if what == "headers" else self.number()]
            case "flat_map_nulls":
                return ["flat_map_nulls", self.stream(depth - 1)]
            case "self_join":
                return [
                    "self_join",
                    "join",
                    self.stream(depth - 1),
                    self.one_of(0, 2, 10),
                    self.one_of(2, 10),
                ]
            case "several":
                return ["flat_map_values", self.stream(depth - 1), self.one_of(0, 1)]
            case "split":
                return ["split", self.stream(depth - 1), self.number(), self.one_of(0, 1, 2)]
            case "process":
                return ["process", self.stream(depth - 1), self.number(), self.one_of(0, 1, 2, 3)]
            case "to_stream":
                table = self.table(depth - 1)
                return self.one_of(["to_stream", table], ["to_stream_by", table, self.one_of(0, 1, 2)])
            case "windows":
                table = self.windows()
                if table[0] == "stream_table":
                    return ["select_key", table, self.one_of(0, 1, 2)]
                return ["to_stream" if table[0] == "table_group" else "without_windows", table]
            case "merge":
                left, right = self.stream(depth - 1), self.stream(0)
                # Not the stream itself, whose records Kafka Streams has once then (difference 18).
                return ["merge", left, right if right[0] != "shared" else ["map_values", right, 0]]
            case "global":
                kind = self.one_of("join", "left_join")
                return ["global", kind, self.stream(depth - 1), self.topic(), self.one_of(0, 1, 2)]
            case "stream":
                return self.streams(depth)
            case "grace":
                # A record without a key ends the application in Kafka Streams (difference 5).
                self.all_times_differ = self.has_versions = True
                self.has_headers = False  # difference 12
                keyed = ["filter", self.stream(depth - 1), 3]
                table = ["table", self.topic(), self.store(named=True), 20]
                return ["stream_table", self.one_of("join", "left_join"), keyed, table, self.one_of(0, 4, 20)]
        kind = self.one_of("join", "left_join")
        return ["stream_table", kind, self.stream(self.one_of(0, depth - 1)), self.table(depth - 1), None]

    def twice(self, depth: int) -> list[Any]:
        """A stream of which two things are made, that meet again."""
        number = self.number()
        one, other = ["shared", number, self.stream(depth - 1)], ["shared", number, None]
        match self.one_of("merge", "table", "count", "tables"):
            case "merge":
                # Not the stream itself, whose records Kafka Streams has once then (difference 18).
                return [
                    "merge",
                    one,
                    self.one_of(["filter", other, self.one_of(0, 1, 2)], ["map_values", other, 0]),
                ]
            case "tables":
                joins = [
                    ["stream_table", self.one_of("join", "left_join"), side, self.table(0), None]
                    for side in (one, other)
                ]
                return ["merge", *joins]
            case "table":
                table = ["to_table", other, *self.rows()]
            case _:
                table = ["group", other, None, None, "reduce", self.store()]
        return ["stream_table", self.one_of("join", "left_join"), one, table, None]

    def streams(self, depth: int) -> list[Any]:
        """Unmatched records leave as in Kafka Streams where all come in order and both sides wait alike (difference
        3)."""
        kind, grace = self.one_of("join", "join", "left_join", "outer_join"), self.one_of(0, 5, 1_000)
        bounds = [self.one_of(0, 2, 10), self.one_of(2, 10)]
        if kind != "join":
            self.is_in_order, self.has_headers = True, False
            bounds = [bounds[1], bounds[1]]
        return [
            "stream_stream",
            self.stream(depth - 1),
            self.stream(self.one_of(0, 0, 1)),
            *bounds,
            grace,
            kind,
        ]

    def table(self, depth: int) -> list[Any]:
        return self.again("table", lambda: self._table(depth))

    def _table(self, depth: int) -> list[Any]:
        if depth == 0:
            return ["table", self.topic(), *self.rows()]
        steps = ("step", "step", "step", "table_join", "table_join", "table_join", "shared", "foreign_key")
        more = ("table_group", "table_group", "to_table", "to_table", "group", "cogroup")
        match self.one_of(*steps, *more):
            case "step":
                return self.step(self.table(depth - 1))
            case "table_join":
                return self.join(self.table(depth - 1), self.table(self.one_of(0, depth - 1)))
            case "shared":
                number = self.number()
                left, right = ["shared", number, self.table(depth - 1)], ["shared", number, None]
                # Named: the rows of others are those of the table above, at once, in Kafka Streams (difference 15).
                left = self.step(left, named=True)
                return self.join(left, self.one_of(right, self.step(right, named=True)))
            case "foreign_key":
                # Of two answers to one record's changes, Kafka Streams drops the first one (difference 13).
                before, self._gives_one = self._gives_one, True
                kind = self.one_of("join", "left_join")
                left, right = self.table(depth - 1), self.table(self.one_of(0, depth - 1))
                self._gives_one = before
                return ["foreign_key", kind, left, right, self.one_of(0, 1), self.store()]
            case "table_group":
                above, kind = self.table(depth - 1), self.one_of("count", "reduce", "aggregate")
                return ["table_group", above, self.one_of(0, 1, 2), kind, self.store()]
            case "to_table":
                return ["to_table", self.stream(depth - 1), *self.rows()]
            case "cogroup":
                return ["cogroup", self.stream(depth - 1), self.stream(0), None, self.store()]
        # Not counts: the old value of a new row is the initializer's in Kafka Streams (difference 14).
        kind = self.one_of("reduce", "aggregate")
        return ["group", self.stream(depth - 1), self.one_of(None, 0, 1), None, kind, self.store()]

    def step(self, above: list[Any], *, named: bool = False) -> list[Any]:
        what = self.one_of("table_filter", "table_filter", "table_filter_not", "table_map_values")
        return [what, above, self.one_of(0, 1, 2), *self.rows(named=named)]

    def join(self, left: list[Any], right: list[Any]) -> list[Any]:
        return ["table_join", self.one_of(*JOINS), left, right, self.one_of(0, 1), self.store()]

    def last(self, depth: int) -> list[Any]:
        """What nothing may be made of that asks for old rows (difference 14)."""
        if self.one_of(True, False) and not self.has_versions:
            table = self.table(depth)
            if not self.has_versions:  # Kafka Streams refuses to suppress versions
                return ["suppress", table, "time", self.one_of(0, 3, 10), self.one_of(None, 1, 2)]
            return table
        return ["group", self.stream(depth - 1), self.one_of(None, 0, 1), None, "count", self.store()]

    def windows(self) -> list[Any]:
        above, number = self.stream(self.one_of(0, 1)), self.one_of(None, 0, 1)
        kind = self.one_of("count", "reduce", "aggregate")
        match self.one_of("time", "time", "sliding", "session", "cogroup"):
            case "time":
                return self._time_windows(above, number, kind)
            case "sliding":
                if self.one_of(True, False, False):
                    return self.suppressed("sliding", above, number, kind)
                window = [
                    "sliding",
                    self.one_of(1, 3, 10),
                    self.one_of(0, 5, 30),
                    None,
                    self.one_of(True, False),
                ]
            case "session":
                if self.one_of(True, False, False):
                    return self.suppressed("session", above, number, kind)
                window = [
                    "session",
                    self.one_of(1, 3, 10),
                    self.one_of(0, 5, 30),
                    None,
                    self.one_of(True, False),
                ]
                table = ["group", above, number, window, kind, self.store()]
                self.has_headers = False
                if kind == "count" or window[4] or not _gives_one_for_one(above):
                    return table
                self.all_times_differ = True  # a session updated at its own time, see difference 14
                grouped = ["table_group", table, self.one_of(0, 1, 2), self.one_of("count", "reduce"), None]
                return self.one_of(table, grouped, ["table_filter", table, self.one_of(0, 1, 2), None, None])
            case _:
                # A co-group has one time for all its streams (difference 8): nothing is late here.
                window = [self.one_of("time", "sliding", "session"), 10, 10_000, 10]
                self.has_headers &= window[0] != "session"
                return ["cogroup", above, self.stream(0), window, None]
        return ["group", above, number, window, kind, self.store()]

    def suppressed(self, what: str, above: list[Any], number: int | None, kind: str) -> list[Any]:
        """Windows whose ends are inclusive close one millisecond later here (difference 2). No end is at that time."""
        self.all_times_are_even = True
        self.has_headers &= what != "session"
        # Sliding windows end at times of records, and a difference and a millisecond later.
        grace = self.one_of(1, 5, 31) if what == "sliding" else self.one_of(0, 4, 30)
        window = [what, self.one_of(3, 9), grace, None, False]
        return ["suppress", ["group", above, number, window, kind, self.store()], "close"]

    def _time_windows(self, above: list[Any], number: int | None, kind: str) -> list[Any]:
        size = self.one_of(1, 7, 10, 10)
        advance = self.one_of(max(1, size // 2 - 1), size)
        window = ["time", size, self.one_of(0, 5, 30), advance, self.one_of(True, False, False)]
        table = ["group", above, number, window, kind, self.store()]
        if window[4]:
            return table
        if self.one_of(True, False):
            return ["suppress", table, "close"]
        if kind == "count":
            return table
        match self.one_of("nothing", "filter", "map", "group", "join", "join", "stream"):
            case "filter":
                found = ["table_filter", table, self.one_of(0, 1, 2), None, None]
                return self.one_of(found, ["suppress", found, "close"])
            case "map":
                found = ["table_map_values", table, self.one_of(0, 1, 2), None, None]
                return self.one_of(found, ["suppress", found, "close"])
            case "stream":
                shared = self.number()
                stream = ["to_stream", ["shared", shared, table]]
                other = ["shared", shared, None]
                if self.one_of(True, False):
                    other = ["group", self.stream(0), None, [*window[:4], False], "reduce", None]
                return ["stream_table", self.one_of("join", "left_join"), stream, other, None]
            case "group":
                grouped = self.one_of("count", "reduce", "aggregate")
                return ["table_group", table, self.one_of(0, 1, 2), grouped, self.store()]
            case "join":
                other = ["group", self.stream(0), None, [*window[:4], False], "reduce", None]
                join = ["table_join", self.one_of(*JOINS), table, other, 0, None]
                return self.one_of(join, ["suppress", join, "close"])
        return table


def drawn(seed: int) -> Drawn:
    random = Random(seed)
    pen = _Pen(random)
    chains = [pen.end() for _ in range(random.choice([1, 1, 2, 3]))]
    has_one_topic = len(pen.topics) == 1
    chains = [_with_punctuators_that_agree(chain, has_one_topic=has_one_topic) for chain in chains]
    keys = random.choice([KEYS, KEYS, MORE_KEYS])
    now, records = 0, []
    for _ in range(random.randint(3, 16)):
        now += random.choice([1, 1, 2, 5, 30])
        timestamp = max(0, now - random.choice([0, 0, 0, 1, 3, 12]))
        if pen.is_in_order:
            timestamp = now
        if pen.all_times_are_even:
            timestamp = 100 + 2 * timestamp
        if not pen.all_times_differ or all(timestamp != sent[3] for sent in records):
            sent = random.choice(pen.topics), random.choice(keys), random.choice(VALUES), timestamp
            records.append(sent)
    # Only optimized, Kafka Streams takes a co-group of streams that share a repartition (here, the groups need names),
    # and makes an inner join of a left join of a stream with itself.
    changed = any(f'"{what}"' in json.dumps(chains) for what in ("cogroup", "stream_stream"))
    optimization = "none" if changed else random.choice(["none", "all"])
    return Drawn(chains, tuple(records), pen.has_headers, optimization)


def _with_punctuators_that_agree(chain: list[Any], *, has_one_topic: bool) -> list[Any]:
    """Kafka Streams' driver has one stream time for all sub-topologies."""
    found = [
        _with_punctuators_that_agree(each, has_one_topic=has_one_topic) if isinstance(each, list) else each
        for each in chain
    ]
    if found[0] == "process" and not (has_one_topic and _is_of_one_task(found[1])):
        found[3] = 3
    return found


def _gives_one_for_one(chain: list[Any]) -> bool:
    """Whether no record gives two with one time, for sure."""
    known = ("stream", "filter", "filter_not", "map", "map_values", "select_key", "split", "repartition")
    return chain[0] in known and all(_gives_one_for_one(each) for each in chain if isinstance(each, list))


def _is_of_one_task(chain: list[Any]) -> bool:
    """Whether it has no repartition, for sure."""
    known = ("stream", "table", "filter", "map_values", "flat_map_values", "split", "to_stream", "process")
    known += ("table_filter", "table_filter_not", "table_map_values")
    return chain[0] in known and all(_is_of_one_task(each) for each in chain if isinstance(each, list))


def smallest(found: Drawn, differs: Callable[[Drawn], bool]) -> Drawn:
    """With no record that does not matter."""
    for place in reversed(range(len(found.records))):
        less = replace(found, records=found.records[:place] + found.records[place + 1 :])
        if differs(less):
            found = less
    return found
