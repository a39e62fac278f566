"""Raw requests in an exact version: what a broker answers to requests that a good client never sends."""

from __future__ import annotations

import socket
import struct
from datetime import timedelta
from typing import Any

from suiro.protocol.messages import API_KEYS, nested, read_response, request_class, write_request
from support.waiting import wait_until

TIMEOUT_S = 30.0


class Wire:
    """One plain connection that sends what it is told."""

    def __init__(self, bootstrap_servers: str, *, timeout_s: float = TIMEOUT_S, source: str = "") -> None:
        """`source`: the client's own address."""
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s, (source, 0))
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def call(self, request: Any) -> Any:
        self._correlation_id += 1
        self.send_bytes(write_request(request, correlation_id=self._correlation_id, client_id="wire"))
        correlation_id, response = read_response(self.receive_bytes(), request.__api_key__, request.__version__)
        assert correlation_id == self._correlation_id
        return response

    def send_bytes(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_bytes(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    # -- the requests of the exactly-once protocol; each returns the name of the error code ---------------------

    def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        producer_id: int = -1,
        epoch: int = -1,
        timeout_ms: int = 60_000,
        version: int = 4,
    ) -> tuple[str, int, int]:
        response = self.call(
            request_class(API_KEYS["init_producer_id"], version)(
                transactional_id=transactional_id,
                transaction_timeout=timedelta(milliseconds=timeout_ms),
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )
        return response.error_code.name, response.producer_id, response.producer_epoch

    def new_producer(self, transactional_id: str | None = None, *, timeout_ms: int = 60_000) -> tuple[int, int]:
        """(producer id, epoch); waits for a coordinator that is just starting or still completing."""

        def once() -> tuple[int, int] | None:
            if transactional_id is not None and self.find_coordinator(transactional_id) != "none":
                return None  # the first one to ask makes Kafka create __transaction_state
            code, producer_id, epoch = self.init_producer_id(transactional_id, timeout_ms=timeout_ms)
            return (producer_id, epoch) if code == "none" else None

        return wait_until(once, what=f"a producer id for {transactional_id}") or (-1, -1)

    def find_coordinator(self, transactional_id: str) -> str:
        message = request_class(API_KEYS["find_coordinator"], 3)
        return str(self.call(message(key=transactional_id, key_type=1)).error_code.name)

    def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, topic: str, *partitions: int
    ) -> list[str]:
        message = request_class(API_KEYS["add_partitions_to_txn"], 3)
        response = self.call(
            message(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=(
                    nested(message, "AddPartitionsToTxnTopic")(name=topic, partitions=tuple(partitions)),
                ),
            )
        )
        results = {
            item.partition_index: item.partition_error_code.name
            for found in response.results_by_topic_v3_and_below
            for item in found.results_by_partition
        }
        return [results[partition] for partition in partitions]

    def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, group: str) -> str:
        response = self.call(
            request_class(API_KEYS["add_offsets_to_txn"], 3)(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=group,
            )
        )
        return str(response.error_code.name)

    def txn_offset_commit(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        group: str,
        topic: str,
        offset: int,
        *,
        metadata: str = "",
        partition: int = 0,
    ) -> str:
        message = request_class(API_KEYS["txn_offset_commit"], 3)
        response = self.call(
            message(
                transactional_id=transactional_id,
                group_id=group,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=(
                    nested(message, "TxnOffsetCommitRequestTopic")(
                        name=topic,
                        partitions=(
                            nested(message, "TxnOffsetCommitRequestPartition")(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_metadata=metadata,
                            ),
                        ),
                    ),
                ),
            )
        )
        return str(response.topics[0].partitions[0].error_code.name)

    def end_txn(self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool) -> str:
        response = self.call(
            request_class(API_KEYS["end_txn"], 3)(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=commit,
            )
        )
        return str(response.error_code.name)

    def produce(
        self,
        topic: str,
        batch: bytes,
        *,
        partition: int = 0,
        transactional_id: str | None = None,
        version: int = 11,
    ) -> tuple[str, int]:
        """(error code's name, base offset)."""
        message = request_class(API_KEYS["produce"], version)
        data = nested(message, "PartitionProduceData")(index=partition, records=batch)
        response = self.call(
            message(
                transactional_id=transactional_id,
                acks=-1,
                timeout=timedelta(seconds=10),
                topic_data=(nested(message, "TopicProduceData")(name=topic, partition_data=(data,)),),
            )
        )
        answer = response.responses[0].partition_responses[0]
        return answer.error_code.name, answer.base_offset

    def offset_fetch(
        self, group: str, topic: str, *, partition: int = 0, require_stable: bool = True
    ) -> tuple[str, int]:
        """(error code's name, committed offset)."""
        message = request_class(API_KEYS["offset_fetch"], 7)
        response = self.call(
            message(
                group_id=group,
                topics=(nested(message, "OffsetFetchRequestTopic")(name=topic, partition_indexes=(partition,)),),
                require_stable=require_stable,
            )
        )
        item = response.topics[0].partitions[0]
        return item.error_code.name, item.committed_offset
