"""A node that compacts while it is written to, killed at drawn moments: the table is what was acknowledged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from support.waiting import wait_until

from suiro.client import EARLIEST, LATEST, Client, NewTopic
from suiro.node import NodeProcess
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import Record, decode_batch, encode_batch

TOPIC = "table"
PLACE = (TOPIC, 0)
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.segment.delete.delay.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "200",
}
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
}
KEYS = 200
ROUNDS = 4


def test_no_key_is_lost_or_goes_back_when_the_cleaner_is_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    table: dict[bytes, bytes] = {}
    for round_number in range(ROUNDS):
        node = NodeProcess.start(data=tmp_path, listen="127.0.0.1:0", settings=SETTINGS)
        try:
            with Client(node.bootstrap_servers) as client:
                if round_number == 0:
                    client.create_topics([NewTopic(TOPIC, 1, configs=CONFIGS)])
                assert read_table(client) == table
                write_until_cleaned(client, tmp_path, table, chance)
        finally:
            node.kill()
    node = NodeProcess.start(data=tmp_path, listen="127.0.0.1:0", settings=SETTINGS)
    try:
        with Client(node.bootstrap_servers) as client:
            assert read_table(client) == table
            records = sum(1 for _ in read_records(client))
            end = client.list_offsets({PLACE: LATEST})[PLACE].offset
    finally:
        node.stop()
    assert records < end / 2


def write_until_cleaned(client: Client, data: Path, table: dict[bytes, bytes], chance: random.Random) -> None:
    """Overwrite keys; once a cleaning is done go on for a while, in the middle of the next ones."""
    before = mark(data)
    for _ in range(chance.randrange(40, 120)):
        write(client, table, {_key(chance): chance.randbytes(200) for _ in range(20)})
    wait_until(lambda: mark(data) != before, what="a cleaning")
    for _ in range(chance.randrange(30)):
        write(client, table, {_key(chance): chance.randbytes(1000)})


def write(client: Client, table: dict[bytes, bytes], batch: dict[bytes, bytes]) -> None:
    client.produce({PLACE: encoded(batch)})
    table.update(batch)


def _key(chance: random.Random) -> bytes:
    return b"key-%d" % chance.randrange(KEYS)


def mark(data: Path) -> str:
    """Changes with each log that is cleaned."""
    checkpoint = data / "cleaner-offset-checkpoint"
    return checkpoint.read_text() if checkpoint.exists() else ""


def encoded(batch: dict[bytes, bytes]) -> bytes:
    return encode_batch(
        [
            Record(offset=place, timestamp=1_700_000_000_000, key=key, value=value)
            for place, (key, value) in enumerate(batch.items())
        ],
        compression=4,
    )


def read_records(client: Client) -> Iterator[Record]:
    position = client.list_offsets({PLACE: EARLIEST})[PLACE].offset
    end = client.list_offsets({PLACE: LATEST})[PLACE].offset
    while position < end:
        fetched = client.fetch({PLACE: position})[PLACE]
        for place, header in iter_headers(fetched.data):
            yield from (record for record in decode_batch(fetched.data, place) if record.offset >= position)
            position = header.next_offset


def read_table(client: Client) -> dict[bytes, bytes]:
    return {record.key: record.value for record in read_records(client)}
