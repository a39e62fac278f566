"""What a read_committed reader must never find, by name. No I/O: an `Observation` goes in, `Anomaly` come out.

| name | what was found |
|---|---|
| lost write | a micro-batch counts as written (marker, or Spark's own note) and nothing of it can be read |
| torn transaction | of a micro-batch or a transaction some records can be read and others not |
| duplicate | a record can be read twice |
| aborted read | a record can be read that stands before an abort marker, or in a transaction without end |
| order inversion | records of one key are not in the order of their source |
| offsets ahead of data | marker or source offsets say more than can be read |
| offsets behind data | they say less |
| unknown record | nobody wrote it |
| blocked readers | a transaction is open after everybody has ended |

Footers, where there are any, say where the data ends and are held against the same names: offsets ahead or behind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Place = tuple[str, int]
Fate = Literal["commit", "abort"]
Name = Literal[
    "lost write",
    "torn transaction",
    "duplicate",
    "aborted read",
    "order inversion",
    "offsets ahead of data",
    "offsets behind data",
    "unknown record",
    "blocked readers",
]


class Anomaly(NamedTuple):
    name: Name
    words: str


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
    return [
        *_records(seen),
        *_aborted(seen),
        *_order(seen),
        *_whole(seen, written),
        *_offsets(seen, written),
        *_footers(seen, written),
        *(
            Anomaly("blocked readers", f"{place}: last stable offset {stable}, end {end}")
            for place, (stable, end) in seen.stable.items()
            if stable != end
        ),
    ]


def _records(seen: Observation) -> Iterator[Anomaly]:
    planned = {(topic, key, value) for _, topic, key, value in seen.expected}
    found = Counter(
        (place[0], record.key, record.value) for place, records in seen.visible.items() for record in records
    )
    for what, times in found.items():
        if what not in planned:
            yield Anomaly("unknown record", str(what))
        elif times > 1:
            yield Anomaly("duplicate", f"{what} is there {times} times")


def _aborted(seen: Observation) -> Iterator[Anomaly]:
    """KIP-98, applied to the log's own bytes: whose marker is a commit may be read, and nothing else."""
    for place, records in seen.visible.items():
        committed = _committed_offsets(seen.raw.get(place, ()))
        for record in records:
            if record.offset not in committed:
                yield Anomaly(
                    "aborted read", f"{record.value} at {record.offset} of {place} was never committed"
                )


def _committed_offsets(raw: Sequence[Raw]) -> set[int]:
    return {item.offset for item, fate in _with_fates(raw) if fate == "commit"}


def _with_fates(raw: Sequence[Raw]) -> Iterator[tuple[Raw, Fate | None]]:
    """Each record of one partition with what the next marker of its producer says."""
    waiting: dict[int, list[Raw]] = defaultdict(list)
    for item in raw:
        if item.fate is None:
            waiting[item.producer[0]].append(item)
        else:
            yield from ((record, item.fate) for record in waiting.pop(item.producer[0], ()))
    yield from ((record, None) for records in waiting.values() for record in records)


def _order(seen: Observation) -> Iterator[Anomaly]:
    for place, records in seen.visible.items():
        last: dict[str, int] = {}
        for record in sorted(records):
            source = int(record.value.split(":")[2])
            if source < last.get(record.key, -1):
                yield Anomaly(
                    "order inversion", f"{record.key} in {place}: {source} after {last[record.key]}"
                )
            last[record.key] = source


def _written(seen: Observation) -> dict[int, tuple[int, int]]:
    """(records that can be read, records planned) of each micro-batch."""
    there = {(place[0], r.key, r.value) for place, records in seen.visible.items() for r in records}
    counts: dict[int, tuple[int, int]] = {}
    for batch_id, *what in seen.expected:
        found, planned = counts.get(batch_id, (0, 0))
        counts[batch_id] = found + (tuple(what) in there), planned + 1
    return counts


def _whole(seen: Observation, written: Mapping[int, tuple[int, int]]) -> Iterator[Anomaly]:
    for batch_id, (found, planned) in written.items():
        if 0 < found < planned:
            yield Anomaly("torn transaction", f"micro-batch {batch_id}: {found} of {planned} records")
        elif not found and batch_id <= max(seen.marker, seen.noted):
            yield Anomaly(
                "lost write", f"micro-batch {batch_id}: none; marker at {seen.marker}, noted {seen.noted}"
            )
    attempts = defaultdict(set)
    for records in seen.visible.values():
        for record in records:
            attempts[int(record.value.split(":")[0])].add(record.attempt)
    for batch_id, who in attempts.items():
        if len(who) > 1:
            yield Anomaly("torn transaction", f"micro-batch {batch_id} is made of {len(who)} attempts")
    fates = defaultdict(set)  # one epoch is one transaction
    for raw in seen.raw.values():
        for item, fate in _with_fates(raw):
            fates[item.producer].add(fate)
    for producer, decided in fates.items():
        if decided >= {"commit", "abort"}:
            yield Anomaly("torn transaction", f"producer {producer} was committed here and aborted there")


def _offsets(seen: Observation, written: Mapping[int, tuple[int, int]]) -> Iterator[Anomaly]:
    last = max((batch_id for batch_id, (found, _) in written.items() if found), default=-1)
    if seen.marker != last:
        name: Name = "offsets ahead of data" if seen.marker > last else "offsets behind data"
        yield Anomaly(name, f"the marker is at micro-batch {seen.marker}, data at {last}")
    wanted = seen.ends[last] if last >= 0 else {}
    for place in wanted.keys() | seen.committed.keys():
        at, due = seen.committed.get(place, 0), wanted.get(place, 0)
        if at != due:
            ahead = "offsets ahead of data" if at > due else "offsets behind data"
            yield Anomaly(ahead, f"{place} is committed at {at}, data at {due}")


def _footers(seen: Observation, written: Mapping[int, tuple[int, int]]) -> Iterator[Anomaly]:
    if seen.footers is None:
        return
    place, footers = seen.footers
    committed = _committed_offsets(seen.raw[place])
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
        if footer.offset not in committed:
            yield Anomaly("aborted read", f"the footer at {footer.offset} of {place} was never committed")
        for where, end in footer.ends.items():
            for record in seen.visible[where]:
                batch_id = int(record.value.split(":")[0])
                if (record.offset < end) != (batch_id <= footer.batch_id):
                    name: Name = "offsets ahead of data" if record.offset < end else "offsets behind data"
                    words = f"footer {footer.number} says {end} for {where}"
                    yield Anomaly(name, f"{words}; {record.value} is at {record.offset}")
