"""What can be seen of a query from outside at one moment: an `Observation` goes in, `Anomaly` come out. No I/O.

The names are those of `suiro.demo.anomalies`, the rules those of `tests/support/exactly_once.py`.

Footers, where there are any, say where the data ends and are held against the same names: offsets ahead or behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from suiro.demo.anomalies import Anomaly, Keys, Name
from tests.support.exactly_once import (
    Fate,
    Place,
    Transactions,
    blocked,
    last_written,
    micro_batches,
    offsets,
)


class Record(NamedTuple):
    """`value`: micro-batch, source partition and source offset, with colons between; `attempt`: who wrote it."""

    offset: int
    key: str
    value: str
    attempt: str = ""


class Raw(NamedTuple):
    """A record, or a marker (`fate`), as it stands in the log."""

    offset: int
    producer: tuple[int, int]  # id, epoch
    fate: Fate | None = None


class Footer(NamedTuple):
    """The last record of a transaction, as a reader sees it. `ends`: what it says of some partitions."""

    offset: int
    batch_id: int
    number: int
    ends: Mapping[Place, int]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What was planned, and what can be seen from outside at one moment."""

    expected: Sequence[tuple[int, str, str, str]]
    """(micro-batch, topic, key, value), in the order of the source."""
    ends: Sequence[Mapping[Place, int]]
    """Of the source, by micro-batch."""
    visible: Mapping[Place, Sequence[Record]]
    """To a read_committed reader."""
    raw: Mapping[Place, Sequence[Raw]]
    marker: int
    """The last micro-batch that it says is written; -1."""
    committed: Mapping[Place, int]
    """Source offsets of the group."""
    noted: int
    """The last micro-batch that the checkpoint counts as finished; -1."""
    stable: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """(last stable offset, end) of each partition, where nobody may have a transaction open any more."""
    footers: tuple[Place, Sequence[Footer]] | None = None
    """Where they are, and those that a read_committed reader sees; None where the query writes none."""


def check(seen: Observation) -> list[Anomaly]:
    written = _written(seen)
    committed, torn = _decided(seen)
    last = last_written(written, seen.marker)
    return [
        *_records(seen),
        *_aborted(seen, committed),
        *_order(seen),
        *_attempts(seen),
        *torn,
        *micro_batches(written, marker=seen.marker, finished=seen.noted),
        *offsets(seen.committed, seen.ends[last] if last >= 0 else {}),
        *_footers(seen, written, committed),
        *(one for place, (stable, end) in seen.stable.items() for one in blocked(place, stable, end)),
    ]


def _records(seen: Observation) -> Iterator[Anomaly]:
    """Those that are missing are named by micro-batch."""
    keys = Keys((topic, key, value) for _, topic, key, value in seen.expected)
    for place, records in seen.visible.items():
        for record in records:
            keys.note((place[0], record.key, record.value))
    yield from (one for one in keys.anomalies("records") if one.name != "lost write")


def _decided(seen: Observation) -> tuple[set[tuple[Place, int]], list[Anomaly]]:
    """What a commit marker decides, by the log's own bytes."""
    committed: set[tuple[Place, int]] = set()
    torn: list[Anomaly | None] = []
    transactions = Transactions[int]()
    for place, raw in seen.raw.items():
        for item in raw:
            if item.fate is None:
                torn.append(transactions.data(place, item.producer, [item.offset]))
                continue
            decided, wrong = transactions.marker(place, item.producer[0], item.fate)
            torn.append(wrong)
            if item.fate == "commit":
                committed |= {(place, offset) for offset in decided}
    return committed, [one for one in torn if one is not None]


def _aborted(seen: Observation, committed: set[tuple[Place, int]]) -> Iterator[Anomaly]:
    for place, records in seen.visible.items():
        for record in records:
            if (place, record.offset) not in committed:
                yield Anomaly("aborted read", f"{record.value} at {record.offset} of {place} was never committed")


def _order(seen: Observation) -> Iterator[Anomaly]:
    for place, records in seen.visible.items():
        last: dict[str, int] = {}
        for record in sorted(records):
            source = int(record.value.split(":")[2])
            if source < last.get(record.key, -1):
                yield Anomaly("order inversion", f"{record.key} in {place}: {source} after {last[record.key]}")
            last[record.key] = source


def _written(seen: Observation) -> dict[int, tuple[int, int]]:
    """(records that can be read, records planned) of each micro-batch."""
    there = {(place[0], r.key, r.value) for place, records in seen.visible.items() for r in records}
    counts: dict[int, tuple[int, int]] = {}
    for batch_id, *what in seen.expected:
        found, planned = counts.get(batch_id, (0, 0))
        counts[batch_id] = found + (tuple(what) in there), planned + 1
    return counts


def _attempts(seen: Observation) -> Iterator[Anomaly]:
    attempts = defaultdict(set)
    for records in seen.visible.values():
        for record in records:
            attempts[int(record.value.split(":")[0])].add(record.attempt)
    for batch_id, who in attempts.items():
        if len(who) > 1:
            yield Anomaly("torn transaction", f"micro-batch {batch_id} is made of {len(who)} attempts")


def _footers(
    seen: Observation, written: Mapping[int, tuple[int, int]], committed: set[tuple[Place, int]]
) -> Iterator[Anomaly]:
    if seen.footers is None:
        return
    place, footers = seen.footers
    found = Counter(footer.batch_id for footer in footers)
    for batch_id, (records, _) in written.items():
        if bool(records) != bool(found[batch_id]):
            whose = f"{records} records and {found[batch_id]} footers"
            yield Anomaly("torn transaction", f"micro-batch {batch_id} has {whose}")
    for batch_id in found.keys() - written.keys():
        yield Anomaly("unknown record", f"a footer of micro-batch {batch_id}")
    for index, footer in enumerate(footers):
        if found[footer.batch_id] > 1:
            yield Anomaly("duplicate", f"a footer of micro-batch {footer.batch_id} at {footer.offset}")
        if footer.number != index:
            yield Anomaly("order inversion", f"footer {footer.number} where {index} is due")
        if (place, footer.offset) not in committed:
            yield Anomaly("aborted read", f"the footer at {footer.offset} of {place} was never committed")
        for where, end in footer.ends.items():
            for record in seen.visible[where]:
                batch_id = int(record.value.split(":")[0])
                if (record.offset < end) != (batch_id <= footer.batch_id):
                    name: Name = "offsets ahead of data" if record.offset < end else "offsets behind data"
                    words = f"footer {footer.number} says {end} for {where}"
                    yield Anomaly(name, f"{words}; {record.value} is at {record.offset}")
