"""The steps of a drawn sequence of requests: one broker's side of it, and what each step answers there.

A step returns what is the same on every broker. Apache Kafka does some things after it has answered (a topic appears,
markers are written, groups hear of a new topic, the cleaner runs), so a step waits, on every side, until they are done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suiro.broker.storage.system_log import partition_for
from suiro.errors import ConfigError
from suiro.log.checkpoints import read_checkpoint
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import Record, control_type, decode_batch, encode_batch
from support.admin import ask
from support.group_wire import Member
from support.transactional import describe as describe_transaction
from support.waiting import wait_until
from support.wire import Wire

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
PASSING = (
    "concurrent_transactions",
    "coordinator_load_in_progress",
    "not_coordinator",
    "not_enough_replicas",
)
"""Errors that tell a client to ask again."""
COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "200", "min.cleanable.dirty.ratio": "1.0"}
GROUPS = ("g0", "g1")
OFFSETS_PARTITIONS = 4
"""Of Apache Kafka as `KafkaProcess` starts it."""
TIMESTAMP = 1_700_000_000_000
Keyed = tuple[tuple[str, bool], ...]
"""The records of a batch: a key, and whether it has a value."""


@dataclass
class Producer:
    identity: tuple[int, int] = (-1, -1)
    transactional: bool = False
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)
    """Where a transactional batch of it was refused, and none was taken since."""


@dataclass
class Side:
    """One broker, and what a client of it remembers. Names get a prefix, so that every sequence begins afresh."""

    wire: Wire
    prefix: str
    producers: dict[str, Producer] = field(default_factory=dict)
    owners: dict[int, str] = field(default_factory=dict)
    """Which producer each id belongs to: ids are the broker's own, whose they are is not."""
    members: dict[tuple[str, int], Member] = field(default_factory=dict)
    classic: dict[str, tuple[str, int]] = field(default_factory=dict)
    written: int = 0
    probes: int = 0

    def name(self, short: str) -> str:
        return f"{self.prefix}-{short}"

    def short(self, name: str) -> str:
        return name.removeprefix(f"{self.prefix}-")

    def producer(self, short: str) -> Producer:
        return self.producers.setdefault(short, Producer())

    def took(self, short: str, producer_id: int, epoch: int) -> None:
        """The producer goes on with this identity, its sequences at zero."""
        producer = self.producer(short)
        producer.identity, producer.sequences, producer.refused = (producer_id, epoch), {}, set()
        self.owners[producer_id] = short

    def ask(self, api: str, version: int, /, **fields: Any) -> Any:
        """The answer, once it is none that tells to ask again."""

        def once() -> Any:
            answer = ask(self.wire, api, version, **fields)
            return None if any(f"'{code}'" in repr(answer) for code in PASSING) else answer

        return wait_until(once, what=f"{api} to be answered for good")

    def partitions(self, topic: str) -> int | None:
        """As the metadata says; None: there is no such topic, or not yet."""
        wanted = ({"topic_id": None, "name": self.name(topic)},)
        (found,) = ask(self.wire, "metadata", 12, topics=wanted, allow_auto_topic_creation=False)["topics"]
        return len(found["partitions"]) if found["error_code"] == "none" else None

    def groups_know(self, topic: str, partitions: int | None) -> bool:
        """Every partition has a leader that serves, and groups hand them out: they hear of topics after the rest."""
        if self.partitions(topic) != partitions:
            return False
        if any(listed(self, topic, n, LATEST)["error_code"] != "none" for n in range(partitions or 0)):
            return False
        return all(self._shard_knows(_shard(self.name(group)), topic, partitions) for group in GROUPS)

    def _shard_knows(self, shard: int, topic: str, partitions: int | None) -> bool:
        """Each partition of __consumer_offsets has a coordinator, and each hears of a topic at its own time."""
        while True:  # a new group each time: a known one is given a new assignment once a second
            self.probes += 1
            name = self.name(f"probe-{self.probes}")
            if _shard(name) == shard:
                break
        probe = Member(self.wire, name)
        probe.join(self.name(topic))
        knows = probe.partitions == set(range(partitions or 0))
        probe.leave()
        return knows

    def at_rest(self, producer: str) -> dict[str, Any]:
        """What the coordinator tells of a transactional id, once no markers are on their way any more."""

        def once() -> dict[str, Any] | None:
            found = describe_transaction(self.wire, self.name(producer))
            moving = found["error_code"] in PASSING or "Prepare" in found["transaction_state"]
            return None if moving else found

        return wait_until(once, what="the transaction's markers") or {}


def _shard(group: str) -> int:
    return partition_for(group, OFFSETS_PARTITIONS)


def listed(side: Side, topic: str, index: int, timestamp: int, isolation: int = 0) -> Any:
    part = {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
    topics = ({"name": side.name(topic), "partitions": (part,)},)
    answer = ask(side.wire, "list_offsets", 8, replica_id=-1, isolation_level=isolation, topics=topics)
    return answer["topics"][0]["partitions"][0]


# -- topics and their settings -------------------------------------------------------------------------------------


def create_topic(side: Side, topic: str, partitions: int, configs: dict[str, str]) -> Any:
    wanted = {
        "name": side.name(topic),
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": (),
        "configs": [{"name": name, "value": value} for name, value in configs.items()],
    }
    (made,) = side.ask("create_topics", 7, topics=(wanted,), timeout=10_000)["topics"]
    if made["error_code"] == "none":
        wait_until(lambda: side.groups_know(topic, partitions), what="the new topic")
    return made["error_code"], made["num_partitions"]


def delete_topic(side: Side, topic: str) -> Any:
    wanted = ({"name": side.name(topic), "topic_id": None},)
    (gone,) = side.ask("delete_topics", 6, topics=wanted, timeout=10_000)["responses"]
    wait_until(lambda: side.groups_know(topic, None), what="the topic to go")
    for producer in side.producers.values():
        producer.sequences = {at: n for at, n in producer.sequences.items() if at[0] != topic}
    return gone["error_code"]


def create_partitions(side: Side, topic: str, count: int) -> Any:
    wanted = ({"name": side.name(topic), "count": count, "assignments": None},)
    (grown,) = side.ask("create_partitions", 3, topics=wanted, timeout=10_000)["results"]
    if grown["error_code"] == "none":
        wait_until(lambda: side.groups_know(topic, count), what="the new partitions")
    return grown["error_code"]


def alter_config(side: Side, topic: str, operation: int, name: str, value: str) -> Any:
    config = {"name": name, "config_operation": operation, "value": value}
    wanted = ({"resource_type": 2, "resource_name": side.name(topic), "configs": (config,)},)
    (altered,) = side.ask("incremental_alter_configs", 1, resources=wanted, validate_only=False)["responses"]
    return altered["error_code"]


def describe_configs(side: Side, topic: str) -> Any:
    wanted = ({"resource_type": 2, "resource_name": side.name(topic), "configuration_keys": None},)
    (found,) = side.ask("describe_configs", 4, resources=wanted, include_synonyms=True)["results"]
    return found["error_code"], sorted(
        (one["name"], one["value"], [(other["value"], other["source"]) for other in one["synonyms"]])
        for one in found["configs"]
        if one["config_source"] == 1
    )


# -- producers and transactions ------------------------------------------------------------------------------------


def init_producer(side: Side, producer: str, transactional: bool) -> Any:
    name = side.name(producer) if transactional else None
    answer = side.ask("init_producer_id", 5, transactional_id=name, transaction_timeout=60_000, producer_id=-1)
    side.took(producer, answer["producer_id"], answer["producer_epoch"])
    side.producer(producer).transactional = transactional
    return answer["error_code"], answer["producer_epoch"]


def produce(
    side: Side, producer: str, topic: str, index: int, keys: Keyed, skip: int, otherwise: bool, version: int
) -> Any:
    """A batch of the producer; `skip` sequence numbers too far on, `otherwise`: transactional if it is not, or not."""
    known = side.producer(producer)
    producer_id, epoch = known.identity
    transactional = producer_id >= 0 and known.transactional != otherwise
    sequence = known.sequences.get((topic, index), 0) + skip
    if transactional and (topic, index) not in known.sequences:
        # Kafka remembers what it refused here before the first batch: what then holds depends on the versions used.
        sequence = 0
    if not transactional and (topic, index) in known.refused:
        return "not sent: Kafka counts this producer's sequences from the transactional batch that it refused"
    side.written += 1
    batch = encode_batch(
        [
            Record(
                offset=place,
                timestamp=TIMESTAMP + side.written,
                key=key.encode(),
                value=b"%d" % side.written if valued else None,
            )
            for place, (key, valued) in enumerate(keys)
        ],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence if producer_id >= 0 else -1,
        transactional=transactional,
    )

    def once() -> tuple[str, int] | None:
        name = side.name(producer) if transactional else None
        answer = side.wire.produce(side.name(topic), batch, partition=index, transactional_id=name, version=version)
        return None if answer[0] in PASSING else answer

    answer = wait_until(once, what="produce to be answered for good")
    assert answer is not None
    if answer[0] == "none":
        known.sequences[topic, index] = sequence + len(keys)
        known.refused.discard((topic, index))
    elif transactional:
        known.refused.add((topic, index))
    return answer


def add_partition(side: Side, producer: str, topic: str, index: int) -> Any:
    producer_id, epoch = side.producer(producer).identity
    answer = side.ask(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=side.name(producer),
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=({"name": side.name(topic), "partitions": (index,)},),
    )
    return answer["results_by_topic_v3_and_below"][0]["results_by_partition"]


def add_offsets(side: Side, producer: str, group: str) -> Any:
    producer_id, epoch = side.producer(producer).identity
    return side.ask(
        "add_offsets_to_txn",
        3,
        transactional_id=side.name(producer),
        producer_id=producer_id,
        producer_epoch=epoch,
        group_id=side.name(group),
    )["error_code"]


def commit_in_transaction(side: Side, producer: str, group: str, topic: str, offset: int, version: int) -> Any:
    producer_id, epoch = side.producer(producer).identity
    part = {"committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    answer = side.ask(
        "txn_offset_commit",
        version,
        transactional_id=side.name(producer),
        group_id=side.name(group),
        producer_id=producer_id,
        producer_epoch=epoch,
        generation_id=-1,
        topics=({"name": side.name(topic), "partitions": (part,)},),
    )
    return answer["topics"][0]["partitions"]


def end_transaction(side: Side, producer: str, commit: bool, version: int) -> Any:
    producer_id, epoch = side.producer(producer).identity
    answer = side.ask(
        "end_txn",
        version,
        transactional_id=side.name(producer),
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=commit,
    )
    if answer["error_code"] == "none":
        if version >= 5:
            side.took(producer, answer["producer_id"], answer["producer_epoch"])
        side.at_rest(producer)
    return answer["error_code"], answer.get("producer_epoch")


def transaction_state(side: Side, producer: str) -> Any:
    found = side.at_rest(producer)
    topics = sorted(
        (
            name,
            [] if name.startswith("__") else sorted(partitions),
        )  # brokers have __consumer_offsets of any size
        for name, partitions in ((side.short(topic["topic"]), topic["partitions"]) for topic in found["topics"])
    )
    return found["error_code"], found["transaction_state"], found["producer_epoch"], topics


def active_producers(side: Side, topic: str, index: int) -> Any:
    topics = ({"name": side.name(topic), "partition_indexes": (index,)},)
    (found,) = side.ask("describe_producers", 0, topics=topics)["topics"][0]["partitions"]
    return found["error_code"], sorted(
        (
            side.owners.get(one["producer_id"], "?"),
            one["producer_epoch"],
            one["last_sequence"],
            one["current_txn_start_offset"],
        )
        for one in found["active_producers"]
    )


# -- what is in a partition ----------------------------------------------------------------------------------------


def offsets(side: Side, topic: str, index: int, timestamp: int, isolation: int) -> Any:
    found = listed(side, topic, index, timestamp, isolation)
    return found["error_code"], found["offset"], found["timestamp"]


def delete_records(side: Side, topic: str, index: int, offset: int) -> Any:
    topics = ({"name": side.name(topic), "partitions": ({"partition_index": index, "offset": offset},)},)
    return side.ask("delete_records", 2, topics=topics, timeout=10_000)["topics"][0]["partitions"]


def fetch(side: Side, topic: str, index: int, offset: int | None, isolation: int) -> Any:
    """All there is from an offset on (None: the first there is): batches, records, aborted transactions."""
    position = listed(side, topic, index, EARLIEST)["offset"] if offset is None else offset
    aborted: set[tuple[str, int]] = set()
    batches: list[Any] = []
    while True:
        found = _fetched(side, topic, index, position, isolation)
        aborted |= {
            (side.owners.get(one["producer_id"], "?"), one["first_offset"])
            for one in found["aborted_transactions"] or ()
        }
        if not found["records"]:
            names = ("error_code", "high_watermark", "last_stable_offset", "log_start_offset")
            return *(found[name] for name in names), sorted(aborted), batches
        batches += _batches(side, found["records"])
        position = batches[-1][1] + 1


def _fetched(side: Side, topic: str, index: int, offset: int, isolation: int) -> Any:
    part = {
        "partition": index,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    answer = side.ask(
        "fetch",
        12,
        replica_id=-1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=-1,
        topics=({"topic": side.name(topic), "partitions": (part,)},),
    )
    return answer["responses"][0]["partitions"][0]


def _batches(side: Side, data: bytes) -> Iterator[Any]:
    for position, header in iter_headers(data):
        yield (
            header.base_offset,
            header.last_offset,
            header.attributes,
            side.owners.get(header.producer_id, "?"),
            header.producer_epoch,
            header.base_sequence,
            [
                (record.offset, control_type(record) if header.is_control else (record.key, record.value))
                for record in decode_batch(data, position)
            ],
        )


def compact(side: Side, topic: str, index: int) -> Any:
    """The cleaner gets to this partition, as far as it may go, and has no reason to come back."""
    if (count := side.partitions(topic)) is None or index >= count:
        return "no such partition"
    policy = describe_configs(side, topic)[1]
    if not any(name == "cleanup.policy" and "compact" in value for name, value, _ in policy):
        return "not compacted"
    ratio = "min.cleanable.dirty.ratio"
    assert alter_config(side, topic, 0, ratio, "0") == "none"
    wait_until(lambda: _cleaned_to(side, topic, index), what="the cleaner")
    assert alter_config(side, topic, 0, ratio, "1.0") == "none"
    return "cleaned"


def _cleaned_to(side: Side, topic: str, index: int) -> bool:
    """As far as the active segment, or the one with the first open transaction."""
    (where,) = {found["log_dir"] for found in side.ask("describe_log_dirs", 4, topics=None)["results"]}
    files = Path(where, f"{side.name(topic)}-{index}").glob("*.log")
    stable = listed(side, topic, index, LATEST, 1)["offset"]
    ends = max(base for base in (int(path.stem) for path in files) if base <= stable)
    earliest = listed(side, topic, index, EARLIEST)["offset"]
    try:
        rows = read_checkpoint(Path(where, "cleaner-offset-checkpoint"), columns=3)
    except ConfigError:  # half of one
        rows = []
    done = next((int(row[2]) for row in rows if row[:2] == [side.name(topic), str(index)]), earliest)
    return done >= ends
