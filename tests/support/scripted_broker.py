"""A broker that answers what a test tells it: for leader changes and other things one real node does not do."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from suiro.protocol.messages import (
    API_KEYS,
    API_NAMES,
    ErrorCode,
    nested,
    read_request,
    response_class,
    write_response,
)

# {api: highest version} that scripted brokers speak
VERSIONS = {
    "produce": 11,
    "fetch": 11,
    "list_offsets": 7,
    "metadata": 9,
    "find_coordinator": 3,
    "init_producer_id": 4,
    "api_versions": 3,
    "end_txn": 3,
}

Script = Callable[[Any], Any]
NO_TIME = timedelta()


class ScriptedBroker:
    """`script[api]` gets the kio request and returns the kio response, raw bytes, or None to close."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.script: dict[str, Script] = {}
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()[:2]
        self.bootstrap_servers = f"{self.host}:{self.port}"
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Closing alone wakes neither the thread that accepts nor those that read.
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(connected)
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        stream = connected.makefile("rb")
        try:
            while len(head := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", head)[0])
                answer = self._answer(frame)
                if answer is None:
                    break
                connected.sendall(struct.pack(">i", len(answer)) + answer)
        except (OSError, ValueError):
            pass
        finally:
            stream.close()
            connected.close()

    def _answer(self, frame: bytes) -> bytes | None:
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
        api = API_NAMES[api_key]
        if api != "api_versions":
            self.asked.append(api)
        _, request = read_request(frame, api_key, version)
        response = self.script.get(api, _api_versions if api == "api_versions" else _unscripted)(request)
        if response is None or isinstance(response, bytes):
            return response
        return write_response(response, correlation_id=correlation_id)


def _api_versions(request: Any) -> Any:
    message = response_class(API_KEYS["api_versions"], request.__version__)
    item = nested(message, "ApiVersion")
    return message(
        error_code=ErrorCode.none,
        api_keys=tuple(
            item(api_key=API_KEYS[api], min_version=0, max_version=highest) for api, highest in VERSIONS.items()
        ),
        throttle_time=NO_TIME,
    )


def _unscripted(request: Any) -> Any:
    raise ValueError(f"no script for {type(request).__name__}")


def metadata_script(brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]) -> Script:
    """Metadata by what `leaders` holds at the time of asking."""

    def answer(request: Any) -> Any:
        message = response_class(API_KEYS["metadata"], request.__version__)
        broker = nested(message, "MetadataResponseBroker")
        topic_class = nested(message, "MetadataResponseTopic")
        partition_class = nested(message, "MetadataResponsePartition")
        topics: dict[str, list[tuple[int, int]]] = {}
        asked = None if request.topics is None else {topic.name for topic in request.topics}
        for (topic, partition), leader in leaders.items():
            if asked is None or topic in asked:
                topics.setdefault(topic, []).append((partition, leader))
        return message(
            throttle_time=NO_TIME,
            brokers=tuple(broker(node_id=b.node_id, host=b.host, port=b.port) for b in brokers),
            controller_id=brokers[0].node_id,
            topics=tuple(
                topic_class(
                    error_code=ErrorCode.none if topic in topics else ErrorCode.unknown_topic_or_partition,
                    name=topic,
                    partitions=tuple(
                        partition_class(
                            error_code=ErrorCode.none,
                            partition_index=partition,
                            leader_id=leader,
                            replica_nodes=(leader,),
                            isr_nodes=(leader,),
                        )
                        for partition, leader in topics.get(topic, ())
                    ),
                )
                for topic in sorted(topics.keys() | (asked or ()))
            ),
        )

    return answer


def produce_answer(request: Any, code_of: Callable[[str, int, bytes], tuple[ErrorCode, int]]) -> Any:
    """Each batch is answered by `code_of(topic, partition, records)` -> (code, base offset)."""
    message = response_class(API_KEYS["produce"], request.__version__)
    topic_class = nested(message, "TopicProduceResponse")
    partition_class = nested(message, "PartitionProduceResponse")

    def one(topic: str, item: Any) -> Any:
        code, base_offset = code_of(topic, item.index, item.records)
        return partition_class(
            index=item.index,
            error_code=code,
            base_offset=base_offset,
            log_append_time=None,
            record_errors=(),
        )

    return message(
        responses=tuple(
            topic_class(
                name=topic.name,
                partition_responses=tuple(one(topic.name, item) for item in topic.partition_data),
            )
            for topic in request.topic_data
        ),
        throttle_time=NO_TIME,
    )


def coordinator_answer(request: Any, broker: ScriptedBroker) -> Any:
    return response_class(API_KEYS["find_coordinator"], request.__version__)(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        error_message=None,
        node_id=broker.node_id,
        host=broker.host,
        port=broker.port,
    )
