"""What must hold after every event, and what a read_committed reader must find in the end.

The checker reads the logs' bytes itself and applies the rule of KIP-98 (a transaction's records count from its commit
marker on, and never after an abort marker), so it does not believe the node's own index of aborted transactions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from suiro.broker import Broker
from suiro.broker.coordination.transactions.state import PREPARED, TransactionState
from suiro.log import PartitionLog
from suiro.protocol.record_batch import BatchHeader, iter_headers
from suiro.protocol.records import Record, control_type, decode_batch
from suiro.spark.committer import MARKER_TOPIC
from suiro.spark.decide import Marker
from tests.sim.node import AUDIT, OUT, SOURCE, TOPICS, SimulatedNode
from tests.sim.query import APPLICATION, Place, Query

READ_BYTES = 4 << 20
ONGOING_OR_DECIDED = PREPARED | {TransactionState.ONGOING}


class Violation(AssertionError):
    """Something that must never be. `anomaly` is its name, for counting."""

    def __init__(self, anomaly: str, words: str) -> None:
        super().__init__(f"{anomaly}: {words}")
        self.anomaly = anomaly


class Checker:
    def __init__(self, node: SimulatedNode, query: Query) -> None:
        self._node, self._query = node, query
        self._looked_at = (-1, -1, -1)
        self._read_up_to: dict[Place, int] = {}
        self._open: dict[Place, dict[int, list[tuple[str, str]]]] = {}
        self.visible: dict[Place, list[str]] = {}
        """Values in the order in which readers see them."""
        self._counts: Counter[tuple[str, str]] = Counter()  # (topic, key) -> its highest running count
        self._sources: set[tuple[str, str]] = set()
        self._rows: Counter[tuple[int, Place]] = Counter()  # visible rows of each micro-batch in each place
        self._epochs: dict[str, tuple[int, int]] = {}
        self.strange: dict[str, dict[Place, int]] = {}  # transactions of other producers: visible records

    def look(self) -> None:
        """After an event. Cheap where nothing was written. Raises `Violation`."""
        broker = self._node.broker
        if broker is None:
            return
        now = (self._node.writes, self._node.starts, len(self._query.checkpoint.finished))
        if now == self._looked_at:
            return
        self._looked_at = now
        for topic in (OUT, AUDIT):
            for partition in range(TOPICS[topic]):
                self._read(broker, (topic, partition))
        self._check_coordinator(broker)
        if not any(transaction.state in PREPARED for transaction in broker.transactions):
            self._check_whole(broker)

    # What can be read

    def _read(self, broker: Broker, place: Place) -> None:
        partition = broker.topics.partition(*place)
        assert partition is not None
        log, position = partition.log, self._read_up_to.get(place, 0)
        if log.log_end_offset < position:
            raise Violation("lost write", f"{_name(place)} was {position} long, now {log.log_end_offset}")
        open_here = self._open.setdefault(place, {})
        for header, records in _batches(log, position):
            producer = header.producer_id
            if not header.is_control:
                texts = [((r.key or b"").decode(), (r.value or b"").decode()) for r in records]
                open_here.setdefault(producer, []).extend(texts)
            elif control_type(records[0]) == "commit":
                for key, value in open_here.pop(producer, ()):
                    self._seen(place, key, value)
            else:
                open_here.pop(producer, None)
            self._read_up_to[place] = header.next_offset
        stable = log.last_stable_offset
        if not open_here and stable != log.log_end_offset:
            raise Violation("blocked readers", f"nothing is open in {_name(place)}, its LSO is {stable}")

    def _seen(self, place: Place, key: str, value: str) -> None:
        self.visible.setdefault(place, []).append(value)
        if key.startswith("s"):
            self.strange.setdefault(value, Counter())[place] += 1
            return
        topic = place[0]
        batch_id, count, *source = value.split(":")
        last = self._counts[topic, key]
        what = f"{key} in {_name(place)}: count {count} of micro-batch {batch_id} after count {last}"
        if (topic, ":".join(source)) in self._sources:
            raise Violation("duplicate", what)
        if int(count) > last + 1:
            raise Violation("lost write", what)
        if int(count) <= last:
            raise Violation("order inversion", what)
        self._sources.add((topic, ":".join(source)))
        self._counts[topic, key] = int(count)
        self._rows[int(batch_id), place] += 1

    # What the node knows

    def _check_coordinator(self, broker: Broker) -> None:
        for transaction in broker.transactions:
            identity = (transaction.producer_id, transaction.producer_epoch)
            before = self._epochs.get(transaction.transactional_id, (-1, -1))
            if identity < before:
                name = transaction.transactional_id
                raise Violation("epoch went back", f"{name}: {before} was given, now {identity}")
            self._epochs[transaction.transactional_id] = identity
        known = {t.producer_id: t for t in broker.transactions if t.state in ONGOING_OR_DECIDED}
        for partition in broker.topics.partitions():
            place = (partition.topic, partition.index)
            for producer in partition.log.producer_states():
                if producer.transaction_first_offset < 0:
                    continue
                transaction = known.get(producer.producer_id)
                decided = transaction is not None and transaction.state in PREPARED
                if transaction is None or not (decided or place in transaction.partitions):
                    raise Violation(
                        "hanging transaction",
                        f"producer {producer.producer_id} has one open in {_name(place)} since offset "
                        f"{producer.transaction_first_offset}, of which the coordinator knows nothing",
                    )

    def _check_whole(self, broker: Broker) -> None:
        """No decision is half carried out: records, marker, offsets and checkpoint must agree."""
        committed = broker.groups.offsets.store.committed(APPLICATION)
        place = (MARKER_TOPIC, 0)
        marker = None
        if place in committed:
            marker = Marker.from_metadata(committed[place].value.metadata)
        last = -1 if marker is None else marker.batch_id
        checkpoint = self._query.checkpoint
        for batch_id in checkpoint.ends:
            if batch_id not in checkpoint.states:
                continue
            wanted = Counter(
                (row.topic, row.partition)
                for row in self._query.execute(batch_id, checkpoint.states[batch_id])[0]
            )
            for where, count in wanted.items():
                seen = self._rows[batch_id, where]
                if seen != (count if batch_id <= last else 0):
                    anomaly = "torn transaction" if seen else "lost write"
                    raise Violation(
                        anomaly,
                        f"micro-batch {batch_id}: {seen} of {count} rows in {_name(where)}, marker at {last}",
                    )
        for batch_id, driver in checkpoint.finished.items():
            if batch_id > last:
                raise Violation(
                    "lost write", f"{driver} noted micro-batch {batch_id} as finished, marker at {last}"
                )
        for index, end in enumerate(checkpoint.ends[last] if last >= 0 else ()):
            found = committed.get((SOURCE, index))
            if found is None or found.value.offset != end:
                raise Violation(
                    "offsets and data disagree",
                    f"source-{index} is committed at {found and found.value.offset}, the marker says {end}",
                )
        if broker.groups.offsets.store.undecided(APPLICATION) and not any(
            transaction.state in ONGOING_OR_DECIDED for transaction in broker.transactions
        ):
            raise Violation("hanging transaction", "offsets wait for a decision that nobody will make")

    # In the end

    def check_end(self, read: dict[Place, list[str]]) -> None:
        """`read`: what a read_committed reader got over the wire."""
        for place in ((topic, index) for topic in (OUT, AUDIT) for index in range(TOPICS[topic])):
            mine, theirs = self.visible.get(place, []), read[place]
            if mine != theirs:
                extra = list((Counter(theirs) - Counter(mine)).elements())
                anomaly = "aborted read" if extra else "lost write"
                raise Violation(anomaly, f"{_name(place)} has {mine}, a reader was given {theirs}")
        for topic in (OUT, AUDIT):
            total = sum(count for (where, _), count in self._counts.items() if where == topic)
            if total != sum(self._query.length):
                raise Violation("lost write", f"{topic} has {total} of {sum(self._query.length)} rows")


def _batches(log: PartitionLog, offset: int) -> Iterator[tuple[BatchHeader, tuple[Record, ...]]]:
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes=READ_BYTES, read_committed=False, min_one_batch=True)
        data = b"".join(os.pread(fd, length, position) for fd, position, length in result.regions)
        before = offset
        for position, header in iter_headers(data):
            yield header, decode_batch(data, position)
            offset = header.next_offset
        assert offset > before, f"{log.directory} cannot be read at {offset}"


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
