"""Joins two tables by a foreign key in the left rows (KIP-213), in three steps with repartitions between them.

    left change -> Subscribe -> [Subscription, by foreign key] -> Respond -> [Response, by left key] -> Resolve

`ForeignKeyRespondRule` keeps who subscribed, and answers each subscription at once and again whenever the right row
changes. Question and answer carry the left value that asks and its number among the changes of the left table's task;
`ForeignKeyResolveRule` drops an answer to a lower number than it has seen of the row, so answers may come in any order,
and no path leads back to the left table's task. (Kafka Streams sends a hash and looks at the left row again.)

The store of subscriptions is of kind "key-value" with `serdes.bytes` for keys and values; a row's key is
`length of foreign key ‖ foreign key ‖ left key`. In a left join subscriptions without a foreign key travel too, so that
the first repartition keeps null keys. The second one takes `response_partition`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from suiro.streams.operators.context import Context
from suiro.streams.operators.functions import callable_of
from suiro.streams.records import Change, Record
from suiro.streams.serdes import DeserializationError, Serde
from suiro.streams.topology.nodes import ForeignKeyResolve, ForeignKeyRespond, ForeignKeySubscribe

_LENGTH = struct.Struct(">I")
_NUMBER = struct.Struct(">q")
_ROW, _DELETED = b"\x00", b"\x01"  # what a row of the store of numbers begins with


class ForeignKeySubscribeRule:
    """Unsubscribes from the old foreign key if it changed, and subscribes to the new one.

    An inner join needs an answer where there may be a result to take back; it gets tombstones where there was none. A
    left join always needs one, also for rows that name no key and for deleted rows.

    A row whose function fails, and which is left out, is as good as deleted. Otherwise the subscription of the row
    before it would stay for ever, since nothing tells its key any more.
    """

    def __init__(self, operator: ForeignKeySubscribe, context: Context) -> None:
        self._foreign_key = callable_of(operator.foreign_key, "value")
        self._is_left = operator.join == "left"
        self._foreign = operator.foreign
        self._left_value = operator.left_value
        self._number = 0
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        change: Change = record.value
        if record.key is None:
            self._context.drop("null key")
            return
        if not change.is_latest:
            self._context.drop("not the latest version")
            return
        self._number = self._context.task.next_number(self._context.node.name)
        old, old_bytes = self._old_key(change.old)
        try:
            new = None if change.new is None else self._foreign_key(change.new)
            is_same = old is not None and new is not None and self._bytes_of(new) == old_bytes
        except Exception:
            # The table has the row, so what it was before is over; and it has no key to be joined by.
            self._ask(record.with_value(Change(None, change.old)), old, None, False)
            raise
        self._ask(record, old, new, is_same)

    def _old_key(self, value: Any) -> tuple[Any, bytes]:
        """The foreign key of the row that is replaced, and its bytes."""
        try:
            key = None if value is None else self._foreign_key(value)
            return key, b"" if key is None else self._bytes_of(key)
        except Exception as error:
            if self._context.task.policy_for(error) == "fail":
                raise
            return None, b""  # the row was left out when it came

    def _ask(self, record: Record, old: Any, new: Any, is_same: bool) -> None:
        change: Change = record.value
        if self._is_left:
            if change.old is not None or change.new is not None:
                if old is not None and not is_same:
                    self._send(record, old, Instruction.UNSUBSCRIBE)
                self._send(record, new, Instruction.SUBSCRIBE_AND_ANSWER)
            return
        if change.new is not None and new is None:
            self._context.drop("null foreign key")
        if new is None:
            if old is not None:
                self._send(record, old, Instruction.UNSUBSCRIBE_AND_ANSWER)
        elif old is None or is_same:
            # If there is no right row, there was no result before either.
            self._send(record, new, Instruction.SUBSCRIBE_AND_ANSWER_IF_THERE)
        else:
            self._send(record, old, Instruction.UNSUBSCRIBE)
            self._send(record, new, Instruction.SUBSCRIBE_AND_ANSWER)

    def _bytes_of(self, foreign_key: Any) -> bytes:
        return self._foreign.serialize("", foreign_key)

    def _send(self, record: Record, foreign_key: Any, instruction: Instruction) -> None:
        # To an inner join, a row that names no key any more is as good as deleted, and no more is kept of it.
        is_over = instruction is Instruction.UNSUBSCRIBE_AND_ANSWER
        new = None if is_over else record.value.new
        left = None if new is None else self._left_value.serialize("", new)
        subscription = Subscription(record.key, left, self._number, instruction, self._context.task.partition)
        self._forward(Record(foreign_key, subscription, record.timestamp, record.headers))


class ForeignKeyRespondRule:
    """An answer has the later timestamp of the subscription and the right row; when the right row changes, that of the
    right row. Several subscribers are answered in the order of their keys' bytes."""

    def __init__(self, operator: ForeignKeyRespond, context: Context) -> None:
        self._subscriptions = context.store(operator.subscription_store)
        self._right = context.store(operator.right_store)
        self._foreign = operator.foreign
        self._left_key = operator.left_key
        self._serde = SubscriptionSerde(operator.left_key)
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        if port == 0:
            self._subscribed(record)
        elif record.key is None:
            self._context.drop("null key")
        elif not record.value.is_latest:
            self._context.drop("not the latest version")
        else:
            for _, data in self._subscriptions.prefix_scan(self._prefix(record.key)):
                self._answer(self._serde.deserialize("", data), record.value.new, record, record.timestamp)

    def _subscribed(self, record: Record) -> None:
        foreign_key, asked = record.key, record.value
        right: tuple[Any, int] | None = None
        if foreign_key is not None:
            row = self._prefix(foreign_key) + self._left_key.serialize("", asked.left_key)
            ends = asked.instruction in (Instruction.UNSUBSCRIBE, Instruction.UNSUBSCRIBE_AND_ANSWER)
            self._subscriptions.put(row, None if ends else self._serde.serialize("", asked), record.timestamp)
            right = self._right.table_row(foreign_key)
        match asked.instruction:
            case Instruction.UNSUBSCRIBE:
                return
            case Instruction.UNSUBSCRIBE_AND_ANSWER:
                answer = None
            case Instruction.SUBSCRIBE_AND_ANSWER_IF_THERE if right is None:
                return
            case _:
                answer = None if right is None else right[0]
        timestamp = record.timestamp if right is None else max(record.timestamp, right[1])
        self._answer(asked, answer, record, timestamp)

    def _answer(self, asked: Subscription, right: Any, record: Record, timestamp: int) -> None:
        answer = Response(right, asked.left, asked.number, asked.partition)
        self._forward(Record(asked.left_key, answer, timestamp, record.headers))

    def _prefix(self, foreign_key: Any) -> bytes:
        raw = self._foreign.serialize("", foreign_key)
        return _LENGTH.pack(len(raw)) + raw


class ForeignKeyResolveRule:
    """Joins an answer with the left value that asked. Without a store it does not know the results that it replaces.

    It keeps for each left row the number that was answered last; for a deleted row until no more answers can be on
    their way.
    """

    def __init__(self, operator: ForeignKeyResolve, context: Context) -> None:
        self._joiner = callable_of(operator.joiner, "left_right")
        self._is_left = operator.join == "left"
        self._left_value = operator.left_value
        self._left_key = operator.left_key
        self._asked = context.store(operator.asked_store)
        self._store = None if operator.store is None else context.store(operator.store)
        self._context = context
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, answer = record.key, record.value
        if self._is_stale(key, answer):
            return
        left = None if answer.left is None else self._left_value.deserialize("", answer.left)
        has_result = left is not None and (answer.right is not None or self._is_left)
        new = self._joiner(left, answer.right) if has_result else None
        old = None
        if self._store is not None:
            old = self._store.get(key)
            self._store.put(key, new, record.timestamp)
        self._forward(Record(key, Change(new, old), record.timestamp, record.headers))

    def end_of_batch(self) -> None:
        if self._context.task.is_settled:
            for row, _ in list(self._asked.prefix_scan(_DELETED)):
                self._asked.put(row, None)
                self._asked.put(_ROW + row[1:], None)

    def _is_stale(self, key: Any, answer: Response) -> bool:
        raw = self._left_key.serialize("", key)
        last = self._asked.get(_ROW + raw)
        if last is not None and _NUMBER.unpack(last)[0] > answer.number:
            return True
        self._asked.put(_ROW + raw, _NUMBER.pack(answer.number))
        if answer.left is None:
            self._asked.put(_DELETED + raw, b"")
        elif self._asked.get(_DELETED + raw) is not None:
            self._asked.put(_DELETED + raw, None)
        return False


# The messages between the steps, and their format in the internal topics

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
