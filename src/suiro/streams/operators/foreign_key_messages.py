"""The messages between the steps of a foreign-key join, and their format in the internal topics."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from suiro.streams.serdes import DeserializationError, Serde

_HEAD = struct.Struct(">BiqiI")
"""Instruction, partition, number, length of the left value or -1, length of the left key."""
_RESPONSE_HEAD = struct.Struct(">iqiB")
"""Partition, number, length of the left value or -1, whether a right value follows."""


class Instruction(IntEnum):
    """The request of a subscription."""

    UNSUBSCRIBE = 0
    UNSUBSCRIBE_AND_ANSWER = 1
    SUBSCRIBE_AND_ANSWER = 2
    SUBSCRIBE_AND_ANSWER_IF_THERE = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """Goes to the foreign key. `left` is the value that asks as bytes, None for a deleted row; `number` grows with each
    change of the row; `partition` is where the left row is."""

    left_key: Any
    left: bytes | None
    number: int
    instruction: Instruction
    partition: int


@dataclass(frozen=True, slots=True)
class Response:
    """Goes to the left key, with what asked. `right` is None where there is no right row."""

    right: Any
    left: bytes | None
    number: int
    partition: int


def response_partition(topic: str, key: Any, value: Response, partitions: int) -> int:
    """The partitioner of the repartition back: an answer goes to the partition of the left row."""
    return value.partition % partitions


@dataclass(frozen=True, slots=True)
class SubscriptionSerde:
    """For the values of the repartition by foreign key."""

    left_key: Serde

    @property
    def name(self) -> str:
        return f"subscription({self.left_key.name})"

    def serialize(self, topic: str, value: Any) -> bytes:
        key = self.left_key.serialize(topic, value.left_key)
        length = -1 if value.left is None else len(value.left)
        head = _HEAD.pack(value.instruction, value.partition, value.number, length, len(key))
        return head + key + (value.left or b"")

    def deserialize(self, topic: str, data: bytes) -> Subscription:
        try:
            number_of, partition, number, length, key_length = _HEAD.unpack_from(data)
            instruction = Instruction(number_of)
        except (struct.error, ValueError) as error:
            raise DeserializationError(self.name, topic, str(error)) from None
        behind = _HEAD.size + key_length
        key = self.left_key.deserialize(topic, data[_HEAD.size : behind])
        left = None if length < 0 else data[behind : behind + length]
        return Subscription(key, left, number, instruction, partition)


@dataclass(frozen=True, slots=True)
class ResponseSerde:
    """For the values of the repartition back to the left key."""

    right_value: Serde

    @property
    def name(self) -> str:
        return f"response({self.right_value.name})"

    def serialize(self, topic: str, value: Any) -> bytes:
        length = -1 if value.left is None else len(value.left)
        head = _RESPONSE_HEAD.pack(value.partition, value.number, length, value.right is not None)
        right = b"" if value.right is None else self.right_value.serialize(topic, value.right)
        return head + (value.left or b"") + right

    def deserialize(self, topic: str, data: bytes) -> Response:
        try:
            partition, number, length, has_right = _RESPONSE_HEAD.unpack_from(data)
        except struct.error as error:
            raise DeserializationError(self.name, topic, str(error)) from None
        behind = _RESPONSE_HEAD.size + max(0, length)
        left = None if length < 0 else data[_RESPONSE_HEAD.size : behind]
        right = self.right_value.deserialize(topic, data[behind:]) if has_right else None
        return Response(right, left, number, partition)
