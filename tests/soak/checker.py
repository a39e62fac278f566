"""Reads everything with read_committed while it is written, and says what is wrong.

    python -m tests.soak.checker BOOTSTRAP

The reader is a consumer that we did not write; transactions' markers are read from the log's own bytes beside it, and
committed offsets asked for. Every round a JSON line says how far it is, and one each anomaly. It deletes at once what
nobody may need again, as retention would.

Standard input: `{"written": {key: count}}`, when the producer has ended, has it say `drained` once all came out at the
other end; `{"stopped": true}`, when nobody writes any more, has it look whether anything was left open, and end.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from suiro.client import LATEST, Client
from suiro.demo.anomalies import Anomaly
from suiro.errors import SuiroError, TransientError
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import control_type, decode_batch
from tests.soak.driver import APPLICATIONS
from tests.soak.ledger import Application, Offsets
from tests.soak.records import (
    COPIED,
    JOINED,
    KEY_COUNTS,
    KEYS,
    OUTPUTS,
    PARTITIONS,
    SOURCE,
    TOPICS,
    WORD_COUNTS,
    count_of,
    number_of,
    value_of,
    word_of,
)
from tests.support.exactly_once import Numbers, Place, Transactions, blocked

ROUND_S = 1.0
CHUNK = 2000
ANOMALIES_MAX = 20
BLOCKED_S = 180  # a transaction open for longer than its timeout, and nobody ends it
ENDS_S = 60
SETTLES_S = 60  # what is decided may take a moment to be seen
CLIENT = {"request.timeout.ms": "5000", "default.api.timeout.ms": "5000", "client.id": "soak-checker"}
PLACES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]
WRITTEN_BY = {COPIED: "copy", WORD_COUNTS: "count", KEY_COUNTS: "count", JOINED: "join"}


class Checker:
    def __init__(self, bootstrap: str, *, settles_s: float = SETTLES_S) -> None:
        self._bootstrap = bootstrap
        self._settles_s = settles_s
        self._client: Client | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "soak-checker",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 1000,
                "fetch.error.backoff.ms": 100,
                "queued.max.messages.kbytes": 16384,
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in PLACES])
        self.numbers = {topic: Numbers(topic, first=int(topic in (WORD_COUNTS, KEY_COUNTS))) for topic in TOPICS}
        self._read = {place: Offsets() for place in PLACES}
        self._words: Counter[str] = Counter()  # of the source
        self._transactions = {name: Transactions[int]() for name in APPLICATIONS}
        self._committed: Counter[Place] = Counter()  # records of committed transactions
        self._raw = {place: 0 for place in PLACES if place[0] in OUTPUTS}
        self._applications = {
            "copy": self._application("copy", SOURCE, COPIED),
            "count": self._application("count", COPIED, KEY_COUNTS, later=[self.numbers[WORD_COUNTS]]),
            "join": self._application("join", COPIED, JOINED),
        }
        self._joined_counts = dict.fromkeys(KEYS, 0)
        self._calm_since = self._unblocked = time.monotonic()
        self._stable: dict[Place, int] = {}
        self._deleted: dict[Place, int] = {}
        self._unblocked_at = dict.fromkeys(self._raw, self._calm_since)

    def _application(self, name: str, source: str, output: str, later: Sequence[Numbers] = ()) -> Application:
        return Application(
            name=name,
            inputs={place: self._read[place] for place in PLACES if place[0] == source},
            outputs=[self.numbers[output]],
            later=later,
            settles_s=self._settles_s,
        )

    # A round

    def round(self) -> Iterator[Anomaly]:
        yield from self._consume()
        try:
            if self._client is None:
                self._client = Client(self._bootstrap, settings=CLIENT)
            yield from self._read_markers(self._client)
            yield from self._ask_for_offsets(self._client)
            self._delete_read(self._client)
        except TransientError:
            self._forget_client()
        except SuiroError as error:
            yield Anomaly("lost write", f"the log refuses what it had: {type(error).__name__}: {error}")
        now = time.monotonic()
        for one in self._applications.values():
            yield from one.settle(now, self._calm_since)
        for place, since in self._unblocked_at.items():
            if now - max(since, self._calm_since) > BLOCKED_S:
                yield Anomaly("blocked readers", f"{place}: the last stable offset stands at {self._stable[place]}")

    def _forget_client(self) -> None:
        self._calm_since = time.monotonic()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _consume(self) -> Iterator[Anomaly]:
        ends = time.monotonic() + ROUND_S
        while time.monotonic() < ends:
            for message in self._consumer.consume(CHUNK, timeout=0.2):
                if (found := self._take(message)) is not None:
                    yield found

    def _take(self, message: Message) -> Anomaly | None:
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                read = self._read[message.topic(), message.partition()]
                read.position = max(read.position, message.offset())
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                return Anomaly("lost write", f"the log is shorter than it was: {error}")
            return None
        topic, offset = message.topic(), message.offset()
        self._read[topic, message.partition()].add(offset)
        where = f"{topic}-{message.partition()} at {offset}"
        key, value = message.key().decode(), message.value()
        if topic in (WORD_COUNTS, KEY_COUNTS):
            return self.numbers[topic].take(key, struct.unpack(">q", value)[0], where)
        text = value.decode()
        number = number_of(text)
        if topic == JOINED:
            before, self._joined_counts[key] = self._joined_counts[key], count_of(text)
            if count_of(text) < before:
                return Anomaly("order inversion", f"{where}: {key} is joined with {text} after {before}")
            return self.numbers[topic].take(key, number, where)
        if text != value_of(key, number):
            return Anomaly("unknown record", f"{where}: {key} {text[:100]}")
        if topic == SOURCE:
            self._words[word_of(text)] += 1
        return self.numbers[topic].take(key, number, where)

    def _read_markers(self, client: Client) -> Iterator[Anomaly]:
        """Whole batches only, by their headers; of markers the one record too."""
        fetched = client.fetch(self._raw, read_committed=False, max_wait_ms=0)
        now = time.monotonic()
        for place, found in fetched.items():
            transactions = self._transactions[WRITTEN_BY[place[0]]]
            for start, header in iter_headers(found.data):
                if header.base_offset < self._raw[place]:
                    continue
                anomaly = None
                if header.is_control:
                    fate = control_type(decode_batch(found.data, start)[0])
                    counts, anomaly = transactions.marker(place, header.producer_id, fate)
                    self._committed[place] += sum(counts) if fate == "commit" else 0
                else:
                    producer = header.producer_id, header.producer_epoch
                    anomaly = transactions.data(place, producer, [header.next_offset - header.base_offset])
                if anomaly is not None:
                    yield anomaly
                self._raw[place] = header.next_offset
            if found.last_stable_offset >= found.high_watermark or found.last_stable_offset != self._stable.get(place):
                self._unblocked_at[place] = now
            self._stable[place] = found.last_stable_offset

    def _ask_for_offsets(self, client: Client) -> Iterator[Anomaly]:
        for name, group in APPLICATIONS.items():
            one = self._applications[name]
            visible = max(numbers.total for numbers in (*one.outputs, *one.later))
            found = client.offset_fetch(group, list(one.inputs), require_stable=True)
            committed = {place: 0 if known is None else known.offset for place, known in found.items()}
            yield from one.look(committed, visible, time.monotonic())

    def _delete_read(self, client: Client) -> None:
        """What everybody has read, except what an application reads again if it dies before Spark has noted its last
        micro-batch."""
        kept: dict[Place, int] = {}
        for one in self._applications.values():
            for place in one.inputs:
                read = min(self._read[place].position, self._raw.get(place, 1 << 62))
                kept[place] = min(kept.get(place, read), one.before.get(place, 0))
        for place, offset in kept.items():
            self._read[place].forget_below(offset)
        if wanted := {place: offset for place, offset in kept.items() if offset > self._deleted.get(place, 0)}:
            self._deleted |= client.admin.delete_records(wanted)

    # The end

    def left(self, written: Mapping[str, int]) -> list[str]:
        """What is not there yet."""
        all_of_it = sum(written.values())
        return [
            f"{self.numbers[topic].total} of {all_of_it} in {topic}"
            for topic in TOPICS
            if self.numbers[topic].total != all_of_it
        ]

    def totals(self, written: Mapping[str, int]) -> Iterator[Anomaly]:
        """By key and by word, when everything is there."""
        expected = {topic: dict(written) for topic in (SOURCE, COPIED, KEY_COUNTS)} | {WORD_COUNTS: dict(self._words)}
        for topic, wanted in expected.items():
            found = self.numbers[topic].counts()
            for key in sorted(wanted.keys() | found.keys()):
                if wanted.get(key, 0) != found.get(key, 0):
                    name = "lost write" if found.get(key, 0) < wanted.get(key, 0) else "duplicate"
                    yield Anomaly(name, f"{topic}: {found.get(key, 0)} of {key}, not {wanted.get(key, 0)}")  # type: ignore[arg-type]

    def ending(self) -> Iterator[Anomaly]:
        """When nobody writes any more: nothing is open, and what can be read is exactly what was committed."""
        deadline = time.monotonic() + ENDS_S
        wrong: list[Anomaly] = []
        while True:
            yield from self.round()
            wrong = list(self._still_wrong())
            if not wrong or time.monotonic() > deadline:
                yield from wrong
                return

    def _still_wrong(self) -> Iterator[Anomaly]:
        try:
            with Client(self._bootstrap, settings=CLIENT) as client:
                stable = client.list_offsets(dict.fromkeys(self._raw, LATEST), read_committed=True)
                ends = client.list_offsets(dict.fromkeys(self._raw, LATEST))
        except SuiroError as error:
            yield Anomaly("blocked readers", f"the log does not say where it ends: {error}")
            return
        for place in self._raw:
            yield from blocked(place, stable[place].offset, ends[place].offset)
            committed = self._committed[place]
            if self._raw[place] == ends[place].offset and committed != self._read[place].total:
                name = "aborted read" if committed < self._read[place].total else "lost write"
                yield Anomaly(name, f"{place}: {self._read[place].total} could be read, {committed} were committed")  # type: ignore[arg-type]
        for one in self._applications.values():
            last = one.looks[-1] if one.looks else None
            processed = sum(self._read[place].below(offset) for place, offset in one.committed.items())
            totals = [output.total for output in (*one.outputs, *one.later)]
            if last is not None or any(processed != total for total in totals):
                yield Anomaly("offsets behind data", f"{one.name}: {processed} committed, {totals} can be read")

    def progress(self) -> dict[str, Any]:
        return {
            "seen": {topic: numbers.total for topic, numbers in self.numbers.items()},
            "committed": {name: one.committed for name, one in self._transactions.items()},
            "aborted": {name: one.aborted for name, one in self._transactions.items()},
            "deleted": sum(self._deleted.values()),
            "offsets_checked": sum(one.checked for one in self._applications.values()),
        }


def main(bootstrap: str) -> int:
    told: SimpleQueue[str | None] = SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            told.put(line)
        told.put(None)

    threading.Thread(target=listen, daemon=True).start()
    checker = Checker(bootstrap)
    written: dict[str, int] | None = None
    anomalies = 0

    def tell(found: Iterator[Anomaly]) -> None:
        nonlocal anomalies
        for anomaly in found:
            anomalies += 1
            if anomalies <= ANOMALIES_MAX:
                say(anomaly=anomaly.name, words=anomaly.words)

    is_drained = False
    while True:
        tell(checker.round())
        say(**checker.progress())
        if written is not None and not is_drained and not checker.left(written):
            is_drained = True
            tell(checker.totals(written))
            say(drained=True)
        try:
            line = told.get_nowait()
        except Empty:
            continue
        if line is None:
            return 0
        order = json.loads(line)
        if "written" in order:
            written = order["written"]
        else:
            tell(checker.ending())
            if written is not None:
                tell(checker.totals(written))
                for what in checker.left(written):
                    say(anomaly="lost write", words=what)
            say(**checker.progress())
            say(ended=True, anomalies=anomalies)
            return 1 if anomalies else 0


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
