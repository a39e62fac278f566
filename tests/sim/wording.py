"""Requests and answers as they stand on the wire, read back for the story and for the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suiro.protocol.messages import API_KEYS, API_NAMES, ErrorCode, read_request, read_response
from suiro.protocol.record_batch import iter_headers

PRODUCE = API_KEYS["produce"]
INIT, ADD_PARTITIONS, ADD_OFFSETS = (
    API_KEYS[name] for name in ("init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn")
)
COMMIT_OFFSETS, END, FETCH_OFFSETS = (API_KEYS[name] for name in ("txn_offset_commit", "end_txn", "offset_fetch"))
TRANSACTIONAL = frozenset((PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, COMMIT_OFFSETS, END, FETCH_OFFSETS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One record batch of a Produce request."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    first_sequence: int
    count: int

    def __str__(self) -> str:
        last = self.first_sequence + self.count - 1
        return f"{self.topic}-{self.partition} sequences {self.first_sequence} to {last}"


def request_of(frame: bytes) -> tuple[int, Any]:
    """(API key, kio message) of a frame with its length."""
    api_key, version = int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")
    return api_key, read_request(memoryview(frame)[4:], api_key, version)[1]


def answer_of(request: bytes, frame: bytes) -> tuple[int, Any]:
    """(API key, kio message) of the answer to a request."""
    api_key, version = int.from_bytes(request[4:6], "big"), int.from_bytes(request[6:8], "big")
    return api_key, read_response(frame[4:], api_key, version)[1]


def batches_of(request: Any) -> list[Written]:
    """What a Produce request writes."""
    return [
        Written(
            topic=topic.name,
            partition=entry.index,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            first_sequence=header.base_sequence,
            count=header.count,
        )
        for topic in request.topic_data
        for entry in topic.partition_data
        for _, header in iter_headers(entry.records or b"")
    ]


def codes_of(api_key: int, answer: Any) -> dict[str, ErrorCode]:
    """The codes of an answer, by what they are for."""
    if api_key == PRODUCE:
        return {
            f"{topic.name}-{entry.index}": entry.error_code
            for topic in answer.responses
            for entry in topic.partition_responses
        }
    if api_key == ADD_PARTITIONS:
        return {
            f"{topic.name}-{entry.partition_index}": entry.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for entry in topic.results_by_partition
        }
    if api_key == COMMIT_OFFSETS:
        return {
            f"{topic.name}-{entry.partition_index}": entry.error_code
            for topic in answer.topics
            for entry in topic.partitions
        }
    codes = {"": getattr(answer, "error_code", ErrorCode.none)}
    if api_key == FETCH_OFFSETS:
        codes |= {
            f"{topic.name}-{entry.partition_index}": entry.error_code
            for topic in answer.topics
            for entry in topic.partitions
        }
    return codes


def request_in_words(frame: bytes) -> str:
    api_key, request = request_of(frame)
    name = _name(api_key)
    if api_key == PRODUCE:
        batches = batches_of(request)
        epochs = {batch.producer_epoch for batch in batches}
        return f"{name} epoch {_joined(epochs)}: {'; '.join(map(str, batches))}"
    if api_key == INIT:
        anyone = request.producer_id < 0
        return f"{name}{'' if anyone else f', expecting epoch {request.producer_epoch}'}"
    if api_key == ADD_PARTITIONS:
        topics = request.v3_and_below_topics
        places = ", ".join(f"{topic.name}-{index}" for topic in topics for index in topic.partitions)
        return f"{name} epoch {request.v3_and_below_producer_epoch}: {places}"
    if api_key == ADD_OFFSETS:
        return f"{name} epoch {request.producer_epoch}"
    if api_key == COMMIT_OFFSETS:
        offsets = ", ".join(
            f"{topic.name}-{entry.partition_index} = {entry.committed_offset}"
            for topic in request.topics
            for entry in topic.partitions
        )
        return f"{name} epoch {request.producer_epoch}: {offsets}"
    if api_key == END:
        return f"{name} epoch {request.producer_epoch}: {'commit' if request.committed else 'abort'}"
    return name


def answer_in_words(request: bytes, frame: bytes) -> str:
    api_key, answer = answer_of(request, frame)
    codes = codes_of(api_key, answer)
    told = {code.name.upper() for code in codes.values()}
    if len(told) == 1:
        words = told.pop()
    else:
        words = ", ".join(f"{place} {code.name.upper()}".strip() for place, code in codes.items())
    if api_key == INIT and answer.error_code is ErrorCode.none:
        words += f", epoch {answer.producer_epoch}"
    if api_key == FETCH_OFFSETS:
        found = (entry.committed_offset for topic in answer.topics for entry in topic.partitions)
        words += f", {_joined(found)}"
    return f"{words} ({_name(api_key)})"


def _name(api_key: int) -> str:
    return "".join(part.title() for part in API_NAMES[api_key].split("_"))


def _joined(values: Any) -> str:
    return ", ".join(str(value) for value in sorted(values))
