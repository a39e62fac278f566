"""What must hold after every event, and what a read_committed reader must find in the end.

The checker reads the logs' bytes itself and applies the rule of KIP-98 (a transaction's records count from its commit
marker on, and never after an abort marker), so it does not believe the node's own index of aborted transactions.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from suiro.broker import Broker
from suiro.broker.coordination.transactions.state import PREPARED, TransactionState
from suiro.demo.anomalies import Anomaly
from suiro.log import PartitionLog
from suiro.protocol.record_batch import BatchHeader, iter_headers
from suiro.protocol.records import Record, control_type, decode_batch
from suiro.spark.committer import MARKER_TOPIC
from suiro.spark.decide import Marker
from tests.sim.node import AUDIT, OUT, SOURCE, TOPICS, SimulatedNode
from tests.sim.query import APPLICATION, Place, Query
from tests.support.exactly_once import Numbers, Transactions, blocked, micro_batches, offsets

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
        self._transactions = Transactions[tuple[str, str]]()
        self.visible: dict[Place, list[str]] = {}
        """Values in the order in which readers see them."""
        self._numbers = {topic: Numbers(topic, first=1) for topic in (OUT, AUDIT)}  # running counts of the keys
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
        for header, records in _batches(log, position):
            if not header.is_control:
                texts = [((r.key or b"").decode(), (r.value or b"").decode()) for r in records]
                self._transactions.data(place, (header.producer_id, header.producer_epoch), texts)
            else:
                # (Other producers than the sink may use an epoch for several transactions.)
                fate = control_type(records[0])
                decided, _ = self._transactions.marker(place, header.producer_id, fate)
                for key, value in decided if fate == "commit" else ():
                    self._seen(place, key, value)
            self._read_up_to[place] = header.next_offset
        if not self._transactions.open_in(place):
            _raise_first(blocked(place, log.last_stable_offset, log.log_end_offset))

    def _seen(self, place: Place, key: str, value: str) -> None:
        self.visible.setdefault(place, []).append(value)
        if key.startswith("s"):
            self.strange.setdefault(value, Counter())[place] += 1
            return
        topic = place[0]
        batch_id, count, *source = value.split(":")
        where = f"{_name(place)}, micro-batch {batch_id}"
        if (topic, ":".join(source)) in self._sources:
            raise Violation("duplicate", f"{where}: {key} has {value} again")
        self._sources.add((topic, ":".join(source)))
        if (wrong := self._numbers[topic].take(key, int(count), where)) is not None:
            raise Violation(*wrong)
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
        written: dict[int, tuple[int, int]] = {}
        for batch_id in checkpoint.ends:
            if batch_id not in checkpoint.states:
                continue
            rows = self._query.execute(batch_id, checkpoint.states[batch_id])[0]
            places = {(row.topic, row.partition) for row in rows}
            written[batch_id] = sum(self._rows[batch_id, where] for where in places), len(rows)
        _raise_first(micro_batches(written, marker=last, finished=max(checkpoint.finished, default=-1)))
        if last >= 0:
            due = {(SOURCE, index): end for index, end in enumerate(checkpoint.ends[last])}
            found = {where: committed[where].value.offset if where in committed else -1 for where in due}
            _raise_first(offsets(found, due))
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
            total = self._numbers[topic].total
            if total != sum(self._query.length):
                raise Violation("lost write", f"{topic} has {total} of {sum(self._query.length)} rows")


def _raise_first(found: Iterable[Anomaly]) -> None:
    for anomaly in found:
        raise Violation(*anomaly)


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
