"""What the steps of a foreign-key join tell each other, and how it is written into the internal topics between them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from suiro.streams.serdes import DeserializationError, Serde, SerializationError

__all__ = [
    "Instruction",
    "Response",
    "ResponseSerde",
    "Subscription",
    "SubscriptionSerde",
    "response_partition",
    "response_serde",
    "subscription_serde",
]

HASH_SIZE = 16
_HEAD = struct.Struct(">BiB")  # instruction, partition, whether a hash follows
_RESPONSE_HEAD = struct.Struct(">iBB")  # partition, whether a hash follows, whether a value follows


class Instruction(IntEnum):
    """What a subscription asks for."""

    UNSUBSCRIBE = 0
    UNSUBSCRIBE_AND_ANSWER = 1
    SUBSCRIBE_AND_ANSWER = 2
    SUBSCRIBE_AND_ANSWER_IF_THERE = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """Goes to the foreign key. `hash` is that of the left value that asks, None for a deleted row; `partition` is where
    the left row is."""

    left_key: Any
    hash: bytes | None
    instruction: Instruction
    partition: int


@dataclass(frozen=True, slots=True)
class Response:
    """Goes to the left key. `right` is None where there is no right row."""

    right: Any
    hash: bytes | None
    partition: int


def subscription_serde(left_key: Serde, foreign: Serde) -> Serde:
    """For the values of the repartition by foreign key, whose keys `foreign` writes."""
    return SubscriptionSerde(left_key)


def response_serde(right_value: Serde, foreign: Serde) -> Serde:
    """For the values of the repartition back to the left key."""
    return ResponseSerde(right_value)


def response_partition(topic: str, key: Any, value: Response, partitions: int) -> int:
    """The partitioner of the repartition back: to where the left row is, however that was partitioned."""
    return value.partition % partitions


@dataclass(frozen=True, slots=True)
class SubscriptionSerde:
    left_key: Serde

    @property
    def name(self) -> str:
        return f"subscription({self.left_key.name})"

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, Subscription):
            raise SerializationError(self.name, topic, type(value).__name__, "it takes Subscription")
        head = _HEAD.pack(value.instruction, value.partition, value.hash is not None)
        return head + (value.hash or b"") + self.left_key.serialize(topic, value.left_key)

    def deserialize(self, topic: str, data: bytes) -> Subscription:
        try:
            number, partition, has_hash = _HEAD.unpack_from(data)
            instruction = Instruction(number)
        except (struct.error, ValueError) as error:
            raise DeserializationError(self.name, topic, str(error)) from None
        start = _HEAD.size + (HASH_SIZE if has_hash else 0)
        found = data[_HEAD.size : start] if has_hash else None
        return Subscription(self.left_key.deserialize(topic, data[start:]), found, instruction, partition)


@dataclass(frozen=True, slots=True)
class ResponseSerde:
    right_value: Serde

    @property
    def name(self) -> str:
        return f"response({self.right_value.name})"

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, Response):
            raise SerializationError(self.name, topic, type(value).__name__, "it takes Response")
        head = _RESPONSE_HEAD.pack(value.partition, value.hash is not None, value.right is not None)
        right = b"" if value.right is None else self.right_value.serialize(topic, value.right)
        return head + (value.hash or b"") + right

    def deserialize(self, topic: str, data: bytes) -> Response:
        try:
            partition, has_hash, has_right = _RESPONSE_HEAD.unpack_from(data)
        except struct.error as error:
            raise DeserializationError(self.name, topic, str(error)) from None
        start = _RESPONSE_HEAD.size + (HASH_SIZE if has_hash else 0)
        found = data[_RESPONSE_HEAD.size : start] if has_hash else None
        right = self.right_value.deserialize(topic, data[start:]) if has_right else None
        return Response(right, found, partition)
