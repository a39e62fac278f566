"""A transactional producer of the V2 protocol (KIP-890) that sends what it is told."""

from __future__ import annotations

from typing import Any

from suiro.client import LATEST, Client
from suiro.foundation.types import TopicPartition
from suiro.protocol.fields import FieldReader
from suiro.protocol.messages import API_KEYS, ErrorCode, request_class, write_request
from support.admin import ask
from support.batches import owned_batch
from support.waiting import wait_until
from support.wire import Wire

CONCURRENT = "concurrent_transactions"


def wait_for_markers(bootstrap_servers: str, place: TopicPartition) -> None:
    """Kafka answers a commit before its marker is in the partition."""
    with Client(bootstrap_servers) as client:

        def ends(*, read_committed: bool) -> object:
            return client.list_offsets({place: LATEST}, read_committed=read_committed)

        wait_until(
            lambda: ends(read_committed=True) == ends(read_committed=False), what="the last transaction's marker"
        )


class Transactional:
    """`id` and `epoch` are the identity it goes on with; an end takes the next one from the answer."""

    def __init__(self, wire: Wire, transactional_id: str, topic: str, *, timeout_ms: int = 60_000) -> None:
        self.wire, self.transactional_id, self.topic = wire, transactional_id, topic
        self.id, self.epoch = wire.new_producer(transactional_id, timeout_ms=timeout_ms)

    def produce(
        self, sequence: int, *values: str, partition: int = 0, epoch: int | None = None, version: int = 12
    ) -> tuple[str, int]:
        """Waits while the markers of the transaction before are still being written."""
        batch = owned_batch(
            *(values or ("v",)),
            producer_id=self.id,
            epoch=self.epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
        )

        def once() -> tuple[str, int] | None:
            answer = self.wire.produce(
                self.topic,
                batch,
                partition=partition,
                transactional_id=self.transactional_id,
                version=version,
            )
            return None if answer[0] in (CONCURRENT, "not_enough_replicas") else answer

        return wait_until(once, what="an answer other than CONCURRENT_TRANSACTIONS") or ("", -1)

    def end(
        self,
        *,
        commit: bool,
        epoch: int | None = None,
        producer_id: int | None = None,
        version: int = 5,
        settled: bool = True,
    ) -> tuple[str, int, int]:
        """(error, producer id, epoch). With `settled`, asks until it is not CONCURRENT_TRANSACTIONS."""

        def once() -> tuple[str, int, int] | None:
            answer = ask(
                self.wire,
                "end_txn",
                version,
                transactional_id=self.transactional_id,
                producer_id=self.id if producer_id is None else producer_id,
                producer_epoch=self.epoch if epoch is None else epoch,
                committed=commit,
            )
            code = answer["error_code"]
            if settled and code == CONCURRENT:
                return None
            return code, answer.get("producer_id", -1), answer.get("producer_epoch", -1)

        return wait_until(once, what="an answer other than CONCURRENT_TRANSACTIONS") or ("", -1, -1)

    def finish(self, *, commit: bool = True) -> Transactional:
        """End what is open, go on with the next identity once the markers are written."""
        code, producer_id, epoch = self.end(commit=commit)
        assert code == "none"
        self.settled()
        self.id, self.epoch = producer_id, epoch
        return self

    def settled(self) -> dict[str, Any]:
        """The description, once every marker is written."""

        def once() -> dict[str, Any] | None:
            found = self.describe()
            return None if found["transaction_state"].startswith("Prepare") else found

        return wait_until(once, what="the end of the transaction") or {}

    def describe(self) -> dict[str, Any]:
        return describe(self.wire, self.transactional_id)

    def init(self, *, producer_id: int = -1, epoch: int = -1) -> tuple[str, int, int]:
        def once() -> tuple[str, int, int] | None:
            answer = self.wire.init_producer_id(self.transactional_id, producer_id=producer_id, epoch=epoch, version=5)
            return None if answer[0] == CONCURRENT else answer

        return wait_until(once, what="an answer other than CONCURRENT_TRANSACTIONS") or ("", -1, -1)

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        epoch: int | None = None,
        version: int = 5,
        member_id: str = "",
        generation: int = -1,
    ) -> str:
        def once() -> str | None:
            answer = ask(
                self.wire,
                "txn_offset_commit",
                version,
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.id,
                producer_epoch=self.epoch if epoch is None else epoch,
                member_id=member_id,
                generation_id=generation,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": partition,
                                "committed_offset": offset,
                                "committed_leader_epoch": -1,
                                "committed_metadata": "",
                            }
                        ],
                    }
                ],
            )
            code = str(answer["topics"][0]["partitions"][0]["error_code"])
            return None if code in (CONCURRENT, "not_coordinator", "coordinator_load_in_progress") else code

        return wait_until(once, what="an answer to the offset commit") or ""


def describe(wire: Wire, transactional_id: str) -> dict[str, Any]:
    """DescribeTransactions of one id. Read by hand: kio takes no start time of -1."""
    request = request_class(API_KEYS["describe_transactions"], 0)(transactional_ids=(transactional_id,))
    wire.send_bytes(write_request(request, correlation_id=0, client_id="wire"))
    reader = FieldReader(wire.receive_bytes())
    assert (reader.int32(), reader.tags(), reader.int32(), reader.compact_count()) == (0, {}, 0, 1)
    found: dict[str, Any] = {
        "error_code": ErrorCode(reader.int16()).name,
        "transactional_id": reader.compact_string(),
        "transaction_state": reader.compact_string(),
        "transaction_timeout": reader.int32(),
        "transaction_start_time": reader.int64(),
        "producer_id": reader.int64(),
        "producer_epoch": reader.int16(),
        "topics": [],
    }
    for _ in range(reader.compact_count()):
        topic = reader.compact_string()
        partitions = [reader.int32() for _ in range(reader.compact_count())]
        reader.tags()
        found["topics"].append({"topic": topic, "partitions": partitions})
    return found
