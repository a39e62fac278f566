"""The events of Nexmark: people who open accounts, auctions, bids. Drawn from a seed, the same on every machine.

Of 50 events one is a person, three are auctions and 46 are bids, 10 events in a millisecond of event time. Half of the
bids go to the newest auctions, half to one of the last 100; a quarter of the people who bid or sell are the same few.
An event names only what is at least a millisecond older. Behind them comes one bid a partition, a day later, which
closes every window. The shape follows the published description of the benchmark; the values are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.client import Client, NewTopic
from suiro.protocol.columnar import encode, partitions_of

TOPICS = ("person", "auction", "bid")
SIDE = "side"
KEPT = {"retention.ms": "-1"}  # the events are of 2023
SIDE_ROWS = 10_000
PARTITIONS = 4
START_MS = 1_700_000_000_000
DAY_MS = 86_400_000
EVENTS_PER_MS = 10
IN_FLIGHT = 100  # auctions that take bids at one time
AUCTION_MS = IN_FLIGHT * 50 // 3 // EVENTS_PER_MS  # the time in which so many are opened
FIRST_CATEGORY, CATEGORIES = 10, 5
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
LETTERS = "".join("abcdefghijklmnopqrstuvwxyz"[number * 7 % 26] for number in range(26)) * 8
BATCH_BYTES = 128 * 1024
CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class Event:
    topic: str
    key: str
    value: dict[str, Any]
    timestamp: int


def events(count: int, *, seed: int = 2008) -> Iterator[Event]:
    """`count` events in the order of their time, then the bids that close the windows."""
    random = np.random.default_rng(seed)
    people: list[int] = []
    auctions: list[int] = []
    times: dict[str, list[int]] = {"person": [], "auction": []}
    draws = iter(())  # of numbers in [0, 1): taken in blocks, because one at a time is slow

    def draw() -> float:
        nonlocal draws
        for number in draws:
            return number
        draws = iter(random.random(1 << 16).tolist())
        return next(draws)

    def below(limit: int) -> int:
        return int(draw() * limit)

    def older(kind: str, found: list[int], now: int) -> int:
        """How many of them are older than this moment."""
        end = len(found)
        while end and times[kind][end - 1] >= now:
            end -= 1
        return end

    def text(length: int) -> str:
        start = below(26)
        return LETTERS[start : start + length]

    def someone(now: int) -> int:
        known = older("person", people, now)
        if not known:
            return 0
        return people[known // 100 * 100 - 1 if draw() < 0.25 and known >= 100 else below(known)]

    for number in range(count):
        now = START_MS + number // EVENTS_PER_MS
        kind = number % 50
        if kind == 0:
            made = 1000 + len(people)
            name = f"{FIRST_NAMES[below(len(FIRST_NAMES))]} {LAST_NAMES[below(len(LAST_NAMES))]}"
            value = {
                "id": made,
                "name": name,
                "emailAddress": f"{text(7)}@{text(5)}.com",
                "creditCard": f"{below(10_000):04} {below(10_000):04} {below(10_000):04} {below(10_000):04}",
                "city": CITIES[below(len(CITIES))],
                "state": STATES[below(len(STATES))],
                "dateTime": now,
                "extra": text(60),
            }
            people.append(made)
            times["person"].append(now)
            yield Event("person", str(made), value, now)
        elif kind <= 3:
            made = 1000 + len(auctions)
            first = 1 + int(10 ** (draw() * 6) * 100)
            value = {
                "id": made,
                "itemName": text(20),
                "description": text(100),
                "initialBid": first,
                "reserve": first + int(10 ** (draw() * 6) * 100),
                "dateTime": now,
                "expires": now + 1 + below(2 * AUCTION_MS),
                "seller": someone(now),
                "category": FIRST_CATEGORY + below(CATEGORIES),
                "extra": text(150),
            }
            auctions.append(made)
            times["auction"].append(now)
            yield Event("auction", str(made), value, now)
        else:
            known = older("auction", auctions, now)
            if not known:
                continue
            newest = auctions[max(known - 1 - known % 20, 0)]
            auction = newest if draw() < 0.5 else auctions[known - 1 - below(min(known, IN_FLIGHT))]
            yield _bid(auction, someone(now), 1 + int(10 ** (draw() * 6) * 100), now, draw(), text(30))
    last = START_MS + count // EVENTS_PER_MS + DAY_MS
    for partition, auction in _one_key_a_partition().items():
        yield _bid(auction, 0, 1, last, 0.5, f"closes the windows of partition {partition}")


def _bid(auction: int, bidder: int, price: int, now: int, chance: float, extra: str) -> Event:
    if chance < 0.5:
        channel = CHANNELS[int(chance * 2 * len(CHANNELS))]
        url = f"https://www.nexmark.com/{channel.lower()}/item/{auction % 100}/item.htm?query=1"
    else:
        number = int((chance - 0.5) * 20_000)
        channel = f"channel-{number}"
        url = f"https://www.nexmark.com/other/shop/{auction % 100}/item.htm?query=1&channel_id={number}"
    value = {
        "auction": auction,
        "bidder": bidder,
        "price": price,
        "channel": channel,
        "url": url,
        "dateTime": now,
        "extra": extra,
    }
    return Event("bid", str(auction), value, now)


def _one_key_a_partition() -> dict[int, int]:
    """Auctions that nobody opened, one in each partition of the topic of bids."""
    numbers = list(range(1, 200))
    places = partitions_of(pa.array([str(number) for number in numbers]), PARTITIONS)
    return {int(place): number for number, place in reversed(list(zip(numbers, places.tolist(), strict=True)))}


def side_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """What q13 joins with: a bounded table of 10,000 rows."""
    for number in range(SIDE_ROWS):
        yield str(number), {"key": number, "value": f"side-{number * 7919 % SIDE_ROWS}"}


def fill(client: Client, made: list[Event]) -> None:
    """The four topics, of 4 partitions each, records of a partition in the order of their time."""
    client.create_topics([NewTopic(name, PARTITIONS, configs=KEPT) for name in (*TOPICS, SIDE)])
    client.produce_many(_batches(SIDE, [(key, value, START_MS - DAY_MS) for key, value in side_rows()]))
    for topic in TOPICS:
        rows = [(event.key, event.value, event.timestamp) for event in made if event.topic == topic]
        for first in range(0, len(rows), CHUNK):
            client.produce_many(_batches(topic, rows[first : first + CHUNK]))


def _batches(topic: str, rows: list[tuple[str, dict[str, Any], int]]) -> Iterator[tuple[str, int, bytes]]:
    keys = pa.array([row[0] for row in rows])
    batches = encode(
        keys=keys,
        values=pa.array([json.dumps(row[1], separators=(",", ":")).encode() for row in rows]),
        timestamps=np.array([row[2] for row in rows], dtype=np.int64),
        partitions=partitions_of(keys, PARTITIONS),
        num_partitions=PARTITIONS,
        max_batch_bytes=BATCH_BYTES,
    )
    batches.sort(key=lambda batch: batch.max_timestamp)
    for batch in batches:
        yield topic, batch.partition, batch.data
