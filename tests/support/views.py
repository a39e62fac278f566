"""Views under test: a host as a process of its own, an app in two versions, a feed, and a reader that forgives nothing.

The app sums delays by carrier. Version 1 counts a flight without a delay as zero; version 2 leaves it out. So what a
row must be can be computed from any prefix of the inputs.
"""

from __future__ import annotations

import atexit
import json
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import uuid4

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch
from suiro.views import Views
from suiro.views.state import Routing, View, version_for
from support import forking
from support.forking import Forked

PARTITIONS = 2
CARRIERS = ("AA", "B6", "HA", "UA", "YV")
RETRY_S = 300
"""Of a read, while the host is away: a busy machine takes its time to start one."""
PAUSE_S = 0.02
"""Between a caller's look-ups, so that they do not take the machine from what they look at."""
WITHOUT_GAPS = "HA"
"""The carrier whose flights all have a delay: equal in both versions."""

_APP = """
from suiro.streams import serdes
from suiro.views import view


@view("{view}", key="carrier")
def delays(builder):
    flights = builder.stream("{topic}", key=serdes.string, value=serdes.json)
    return {kept}.group_by(lambda key, flight: flight["carrier"], key=serdes.string).aggregate(
        lambda: {{"flights": 0, "minutes": 0}},
        lambda carrier, flight, sums: {{
            "flights": sums["flights"] + 1,
            "minutes": sums["minutes"] + (flight["delay"] or 0),
        }},
        value=serdes.json,
    )
"""
KEPT = {1: "flights", 2: 'flights.filter(lambda key, flight: flight["delay"] is not None)'}


def write_app(folder: Path, version: int, *, view: str, topic: str) -> str:
    """What `suiro view deploy` takes."""
    path = folder / "delays_app.py"
    path.write_text(_APP.format(view=view, topic=topic, kept=KEPT[version]))
    return f"{path}:delays"


class Feed:
    """Flights in a topic, and what any prefix of them sums up to."""

    def __init__(self, bootstrap_servers: str, topic: str, *, seed: int = 1) -> None:
        self.topic = topic
        self._client = Client(bootstrap_servers)
        self._client.create_topics([NewTopic(topic, PARTITIONS, configs={"retention.ms": "-1"})])
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.flights: dict[int, list[dict[str, Any]]] = {partition: [] for partition in range(PARTITIONS)}

    def send(self, count: int) -> None:
        for partition in range(PARTITIONS):
            drawn = [self._flight() for _ in range(count // PARTITIONS)]
            records = [
                Record(
                    offset=at,
                    timestamp=1_372_636_800_000 + at,
                    key=b"f",
                    value=json.dumps(flight).encode(),
                )
                for at, flight in enumerate(drawn)
            ]
            with self._lock:
                self.flights[partition] += drawn
            self._client.produce({(self.topic, partition): encode_batch(records)})

    def _flight(self) -> dict[str, Any]:
        carrier = self._random.choice(CARRIERS)
        gap = carrier != WITHOUT_GAPS and self._random.random() < 0.1
        return {"carrier": carrier, "delay": None if gap else self._random.randint(-10, 90)}

    @property
    def ends(self) -> dict[int, int]:
        with self._lock:
            return {partition: len(flights) for partition, flights in self.flights.items()}

    def expected(self, version: int, carrier: str, offsets: Mapping[int, int]) -> dict[str, int] | None:
        """The row of this carrier from the records below these offsets."""
        with self._lock:
            found = [
                flight["delay"]
                for partition, flights in self.flights.items()
                for flight in flights[: offsets.get(partition, 0)]
                if flight["carrier"] == carrier
            ]
        kept = [delay for delay in found if version == 1 or delay is not None]
        return {"flights": len(kept), "minutes": sum(delay or 0 for delay in kept)} if kept else None

    def close(self) -> None:
        self._client.close()


@cache
def journal_key() -> Path:
    """Of all hosts of a test session: they share a node, and so a journal, each with a folder of its own."""
    with NamedTemporaryFile(prefix="journal-key-", delete=False) as file:
        atexit.register(Path(file.name).unlink)
        file.write(b"the key of all hosts of this test session")
    return Path(file.name)


class HostProcess:
    """`suiro view serve`, to be killed and started again on the same folder and port."""

    def __init__(self, bootstrap_servers: str, data: Path, *options: str) -> None:
        self._arguments = ("--bootstrap-servers", bootstrap_servers, "--data", str(data), *options)
        if "--journal-key" not in options:
            self._arguments += ("--journal-key", str(journal_key()))
        self.data = data
        self.log = data.parent / "host.log"
        self._listen = "127.0.0.1:0"
        self.url = ""
        self.start()

    def start(self, *, environment: Mapping[str, str] | None = None) -> None:
        with self.log.open("ab") as log:
            arguments = (*self._arguments, "--listen", self._listen)
            self.process = Forked("view", "serve", *arguments, stderr=log, env=environment)
        line = self.process.stdout.readline()
        assert line, self.log.read_text()[-4_000:]
        self.url = json.loads(line)["url"]
        self._listen = self.url.removeprefix("http://")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def cli(self, *arguments: str, ok: bool = True) -> Any:
        """`suiro view ... --json`; the answer, or what it said on stderr where it must fail."""
        done = forking.run("view", *arguments, "--url", self.url, "--json", timeout=900)
        assert (done.returncode == 0) == ok, f"{arguments}: {done.stdout}{done.stderr}\n{self.tail()}"
        return json.loads(done.stdout) if ok else done.stderr

    def tail(self) -> str:
        logs = [self.log, *sorted(self.data.glob("*/v*/*.log")), self.data / ".spark" / "spark.log"]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3_000:]}" for log in logs if log.exists())


@dataclass
class Seen:
    version: int
    cut: int
    offsets: dict[int, int]
    row: Any


@dataclass
class Reader:
    """Callers who read all the time, each one look-up after another. `check` holds all answers against the feed."""

    url: str
    view: str
    feed: Feed
    callers: Sequence[str] = field(default_factory=lambda: [f"caller-{number}" for number in range(4)])

    def __post_init__(self) -> None:
        self.seen: dict[str, list[Seen]] = defaultdict(list)
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read, args=(caller,)) for caller in self.callers]

    def __enter__(self) -> Reader:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _read(self, caller: str) -> None:
        drawn = random.Random(caller)
        with Views(self.url, caller=caller, timeout_s=RETRY_S) as views:
            while not self._stop.wait(PAUSE_S):
                carrier = drawn.choice(CARRIERS)
                try:
                    answer = views.get(self.view, carrier)
                except Exception as error:
                    self.errors.append(f"{caller}: {type(error).__name__}: {error}")
                    time.sleep(0.05)
                    continue
                row = answer["row"]
                self.seen[caller].append(
                    Seen(
                        version=answer["version"],
                        cut=answer["cut"],
                        offsets={
                            int(partition): offset
                            for partition, offset in answer["offsets"].get(self.feed.topic, {}).items()
                        },
                        row=(carrier, None if row is None else row["value"]),
                    )
                )

    @property
    def reads(self) -> int:
        return sum(len(seen) for seen in list(self.seen.values()))

    def check(self, history: Sequence[Mapping[str, Any]]) -> None:
        """`history` of the view. No error; every answer what its version makes of the offsets that it names; a caller's
        versions in the order of the routings there were, and none again that was left; within a version never an older
        cut."""
        assert not self.errors, self.errors[:5]
        routings = routings_of(history)
        for caller, seen in self.seen.items():
            assert seen
            for one in seen:
                carrier, value = one.row
                assert value == self.feed.expected(one.version, carrier, one.offsets), (caller, one)
            runs = [(version, list(run)) for version, run in groupby(seen, key=lambda one: one.version)]
            for _, run in runs:
                cuts = [one.cut for one in run]
                assert cuts == sorted(cuts), f"{caller} went back in time"
            walked = [version for version, _ in runs]
            possible = [version_for(View(name=self.view, routing=routing), caller) for routing in routings]
            assert _is_within(walked, possible), f"{caller} saw versions {walked}, the routing was {possible}"


def routings_of(history: Sequence[Mapping[str, Any]]) -> list[Routing]:
    """How callers were routed, one after another, as the events tell it."""
    now = Routing()
    found = [now]
    for event in history:
        match event["command"]:
            case "deploy":
                now = replace(now, candidate=event["version"])
            case "caught up" if now.serving is None:
                now = Routing(serving=event["version"])
            case "fail" | "retire candidate":
                now = Routing(serving=now.serving)
            case "shift" | "forward" | "rollback" | "trip" if "to" in event["detail"]:
                now = replace(now, share=event["detail"]["to"])
            case "retire serving":
                now = Routing(serving=now.candidate)
            case "retire last":
                now = Routing()
        found.append(now)
    return found


def _is_within(walked: Sequence[int], possible: Sequence[int | None]) -> bool:
    """In the same order, some perhaps left out."""
    rest = iter(possible)
    return all(version in rest for version in walked)


@contextmanager
def fed(bootstrap_servers: str) -> Iterator[Feed]:
    made = Feed(bootstrap_servers, f"flights-{uuid4().hex[:8]}")
    yield made
    made.close()


@contextmanager
def hosted(bootstrap_servers: str, data: Path, *options: str) -> Iterator[HostProcess]:
    made = HostProcess(bootstrap_servers, data, *options)
    yield made
    if made.process.poll() is None:
        made.stop()
    print(made.tail(), file=sys.stderr)  # pytest shows it where the test failed


def rows_of(views: Views, view: str, feed: Feed, version: int) -> dict[str, Any]:
    """All rows of a version, once it reflects all that was fed."""
    places = ",".join(f"{feed.topic}:{partition}:{end - 1}" for partition, end in feed.ends.items())
    answer = views.rows(view, version=version, min_offset=places, timeout_ms=60_000)
    assert answer["version"] == version
    return {row["key"]["carrier"]: row["value"] for row in answer["rows"]}


def expected(feed: Feed, version: int) -> dict[str, Any]:
    return {carrier: feed.expected(version, carrier, feed.ends) for carrier in CARRIERS}
