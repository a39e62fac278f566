"""The checker reads a real log that was written by hand: what is right passes, each anomaly is found by its name."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from suiro.client import Client, NewTopic
from suiro.demo.anomalies import Anomaly
from suiro.protocol.records import Record, encode_batch
from suiro.testing import node
from tests.soak import checker
from tests.soak.checker import Checker
from tests.soak.driver import APPLICATIONS
from tests.soak.records import (
    COPIED,
    JOINED,
    KEY_COUNTS,
    PARTITIONS,
    SOURCE,
    TOPICS,
    WORD_COUNTS,
    joined,
    number_of,
    value_of,
    word_of,
)
from tests.support.exactly_once import Place
from tests.support.waiting import wait_until

KEYS = ("k0", "k1", "k2")  # key n is in partition n
EACH = 5

Pairs = Sequence[tuple[str, bytes]]
SOURCE_RECORDS = [(key, value_of(key, number).encode()) for number in range(EACH) for key in KEYS]


class ByHand:
    """The pipeline's part, done right unless told otherwise."""

    def __init__(self, client: Client, bootstrap_servers: str) -> None:
        self.client = client
        self.bootstrap_servers = bootstrap_servers
        client.create_topics([NewTopic(topic, PARTITIONS) for topic in (*TOPICS, "__txn_markers")])
        for partition, key in enumerate(KEYS):
            client.produce({(SOURCE, partition): batch([one for one in SOURCE_RECORDS if one[0] == key])})

    def copy(self, records: Pairs = SOURCE_RECORDS, *, committed: int = EACH, commit: bool = True) -> None:
        found: dict[Place, list[tuple[str, bytes]]] = {(COPIED, partition): [] for partition in range(PARTITIONS)}
        for key, value in records:
            found[COPIED, int(key[1:])].append((key, value))
        self._transact("copy", found, {(SOURCE, partition): committed for partition in range(PARTITIONS)}, commit)

    def count(self, *, committed: int = EACH) -> None:
        words: Counter[str] = Counter()
        keys: Counter[str] = Counter()
        found: dict[Place, list[tuple[str, bytes]]] = {(WORD_COUNTS, 0): [], (KEY_COUNTS, 1): []}
        for key, value in SOURCE_RECORDS:
            word = word_of(value.decode())
            words[word] += 1
            keys[key] += 1
            found[WORD_COUNTS, 0].append((word, struct.pack(">q", words[word])))
            found[KEY_COUNTS, 1].append((key, struct.pack(">q", keys[key])))
        self._transact("count", found, {(COPIED, partition): committed for partition in range(PARTITIONS)}, True)

    def join(self, *, counts: int = EACH, committed: int = EACH) -> None:
        """`counts`: the last record of a key is joined with this one."""
        found: dict[Place, list[tuple[str, bytes]]] = {(JOINED, 2): []}
        for key, value in SOURCE_RECORDS:
            number = number_of(value.decode())
            count = counts if number == EACH - 1 else number + 1
            found[JOINED, 2].append((key, joined(value.decode(), count).encode()))
        self._transact("join", found, {(COPIED, partition): committed for partition in range(PARTITIONS)}, True)

    def _transact(
        self, name: str, found: dict[Place, list[tuple[str, bytes]]], offsets: dict[Place, int], commit: bool
    ) -> None:
        transaction = self.client.transaction(f"{APPLICATIONS[name]}/sink")
        transaction.init()
        transaction.add_partitions(list(found))
        transaction.add_offsets(APPLICATIONS[name])
        transaction.produce([(*place, batch(records), len(records)) for place, records in found.items() if records])
        transaction.commit_offsets(APPLICATIONS[name], {place: (offset, "") for place, offset in offsets.items()})
        transaction.end(commit=commit)


def batch(records: Pairs) -> bytes:
    return encode_batch(
        [
            Record(offset=at, timestamp=1_700_000_000_000, key=key.encode(), value=value)
            for at, (key, value) in enumerate(records)
        ]
    )


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[ByHand]:
    monkeypatch.setattr(checker, "ROUND_S", 0.2)
    monkeypatch.setattr(checker, "ENDS_S", 1.0)
    with node() as log, Client(log.bootstrap_servers) as client:
        yield ByHand(client, log.bootstrap_servers)


def found_by(by_hand: ByHand) -> set[str]:
    """Until everything was read, or something is wrong; and then when nobody writes any more."""
    written = dict.fromkeys(KEYS, EACH)
    made = Checker(by_hand.bootstrap_servers, settles_s=0.5)
    found: list[Anomaly] = []

    def read() -> bool:
        found.extend(made.round())
        return bool(found) or not made.left(written)

    wait_until(read, 60, "everything, or an anomaly")
    if not found:
        found += [*made.totals(written), *made.ending()]
    aborted = made.progress()["aborted"]["copy"]
    return {one.name for one in found} | ({f"{aborted} aborted"} if aborted else set())


def test_what_is_right_is_not_found_wrong(by_hand: ByHand) -> None:
    by_hand.copy(SOURCE_RECORDS[:6], commit=False)  # a driver died
    by_hand.copy()
    by_hand.count(committed=2 + 1 + EACH + 1)  # past what was aborted, and both markers
    by_hand.join(committed=2 + 1 + EACH + 1)
    assert found_by(by_hand) == {"1 aborted"}


def test_a_table_that_goes_back(by_hand: ByHand) -> None:
    by_hand.join(counts=EACH - 2)
    assert found_by(by_hand) == {"order inversion"}


def test_a_record_that_is_there_twice(by_hand: ByHand) -> None:
    by_hand.copy([*SOURCE_RECORDS, SOURCE_RECORDS[-1]])
    assert "duplicate" in found_by(by_hand)


def test_a_record_that_is_lost(by_hand: ByHand) -> None:
    by_hand.copy([one for one in SOURCE_RECORDS if one != SOURCE_RECORDS[4]])
    assert "lost write" in found_by(by_hand)


def test_records_of_a_key_out_of_order(by_hand: ByHand) -> None:
    by_hand.copy([*SOURCE_RECORDS[3:6], *SOURCE_RECORDS[:3], *SOURCE_RECORDS[6:]])
    assert "order inversion" in found_by(by_hand)


def test_a_record_that_nobody_wrote(by_hand: ByHand) -> None:
    by_hand.copy([("k0", b"0:w1:nothing"), *SOURCE_RECORDS])
    assert "unknown record" in found_by(by_hand)


def test_offsets_that_were_committed_without_their_last_records(by_hand: ByHand) -> None:
    by_hand.copy(SOURCE_RECORDS[:-3])
    assert found_by(by_hand) == {"offsets ahead of data"}


def test_records_that_were_written_without_their_offsets(by_hand: ByHand) -> None:
    by_hand.copy(committed=EACH - 1)
    assert found_by(by_hand) == {"offsets behind data"}


def test_a_transaction_that_nobody_ends(by_hand: ByHand) -> None:
    by_hand.copy()
    by_hand.count(committed=EACH + 1)
    by_hand.join(committed=EACH + 1)
    transaction = by_hand.client.transaction("another")
    transaction.init()
    transaction.add_partitions([(COPIED, 0)])
    transaction.produce([(COPIED, 0, batch(SOURCE_RECORDS[:1]), 1)])
    assert "blocked readers" in found_by(by_hand)
