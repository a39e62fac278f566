"""Joins of two tables by a key that the left rows name (KIP-213), in three steps with repartitions between them.

    left change -> Subscribe -> [Subscription, by foreign key] -> Respond -> [Response, by left key] -> Resolve

`ForeignKeyRespondRule` keeps who subscribed, and answers each subscription at once and again whenever the right row
changes. An answer carries a hash of the left value that asked; `ForeignKeyResolveRule` drops it as stale unless the
left row is still that one, so answers may come in any order.

The store of subscriptions is of kind "key-value" with `serdes.bytes` for keys and values; a row's key is
`length of foreign key ‖ foreign key ‖ left key`. In a left join subscriptions without a foreign key travel too, so that
the first repartition keeps null keys. The second one takes `response_partition`.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from suiro.streams.nodes import ForeignKeyResolve, ForeignKeyRespond, ForeignKeySubscribe
from suiro.streams.operators.foreign_key_messages import (
    HASH_SIZE,
    Instruction,
    Response,
    Subscription,
    SubscriptionSerde,
    response_partition,
    response_serde,
    subscription_serde,
)
from suiro.streams.operators.functions import callable_of
from suiro.streams.operators.rows import row_of
from suiro.streams.records import Change, Record

if TYPE_CHECKING:
    from suiro.streams.serdes import Serde
    from suiro.streams.task import Context

__all__ = [
    "ForeignKeyResolveRule",
    "ForeignKeyRespondRule",
    "ForeignKeySubscribeRule",
    "response_partition",
    "response_serde",
    "subscription_serde",
]

_LENGTH = struct.Struct(">I")


class ForeignKeySubscribeRule:
    """Unsubscribes from the old foreign key if it changed, and subscribes to the new one.

    An inner join needs an answer where there may be a result to take back; it gets tombstones where there was none. A
    left join always needs one, also for rows that name no key and for deleted rows.
    """

    def __init__(self, operator: ForeignKeySubscribe, context: Context) -> None:
        self._foreign_key = callable_of(operator.foreign_key, "value")
        self._is_left = operator.join == "left"
        self._foreign = operator.foreign
        self._left_value = operator.left_value
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
        old = None if change.old is None else self._foreign_key(change.old)
        new = None if change.new is None else self._foreign_key(change.new)
        if self._is_left:
            if change.old is not None or change.new is not None:
                if old is not None and not self._same(old, new):
                    self._send(record, old, Instruction.UNSUBSCRIBE)
                self._send(record, new, Instruction.SUBSCRIBE_AND_ANSWER)
            return
        if change.new is not None and new is None:
            self._context.drop("null foreign key")
        if new is None:
            if old is not None:
                self._send(record, old, Instruction.UNSUBSCRIBE_AND_ANSWER)
        elif old is None or self._same(old, new):
            # If there is no right row, there was no result before either.
            self._send(record, new, Instruction.SUBSCRIBE_AND_ANSWER_IF_THERE)
        else:
            self._send(record, old, Instruction.UNSUBSCRIBE)
            self._send(record, new, Instruction.SUBSCRIBE_AND_ANSWER)

    def _same(self, old: Any, new: Any) -> bool:
        return new is not None and self._foreign.serialize("", old) == self._foreign.serialize("", new)

    def _send(self, record: Record, foreign_key: Any, instruction: Instruction) -> None:
        asks = _hash_of(self._left_value, record.value.new)
        subscription = Subscription(record.key, asks, instruction, self._context.partition)
        self._forward(Record(foreign_key, subscription, record.timestamp, record.headers))


class ForeignKeyRespondRule:
    """Answers are stamped with the later one of subscription and right row; with the right row's when that changes.
    Several subscribers are answered in the order of their keys' bytes."""

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
            self._right_changed(record)

    def _subscribed(self, record: Record) -> None:
        foreign_key, asked = record.key, record.value
        right: tuple[Any, int] | None = None
        if foreign_key is not None:
            self._keep(foreign_key, asked, record.timestamp)
            right = row_of(self._right, foreign_key)
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

    def _right_changed(self, record: Record) -> None:
        for _, data in self._subscriptions.prefix_scan(self._prefix(record.key)):
            asked = self._serde.deserialize("", data)
            self._answer(asked, record.value.new, record, record.timestamp)

    def _answer(self, asked: Subscription, right: Any, record: Record, timestamp: int) -> None:
        answer = Response(right, asked.hash, asked.partition)
        self._forward(Record(asked.left_key, answer, timestamp, record.headers))

    def _keep(self, foreign_key: Any, asked: Subscription, timestamp: int) -> None:
        row = self._prefix(foreign_key) + self._left_key.serialize("", asked.left_key)
        ends = asked.instruction in (Instruction.UNSUBSCRIBE, Instruction.UNSUBSCRIBE_AND_ANSWER)
        self._subscriptions.put(row, None if ends else self._serde.serialize("", asked), timestamp)

    def _prefix(self, foreign_key: Any) -> bytes:
        raw = self._foreign.serialize("", foreign_key)
        return _LENGTH.pack(len(raw)) + raw


class ForeignKeyResolveRule:
    """Joins an answer with the left row. Without a store it does not know the results that it replaces."""

    def __init__(self, operator: ForeignKeyResolve, context: Context) -> None:
        self._joiner = callable_of(operator.joiner, "left_right")
        self._is_left = operator.join == "left"
        self._left = context.store(operator.left_store)
        self._left_value = operator.left_value
        self._store = None if operator.store is None else context.store(operator.store)
        self._forward = context.forward

    def process(self, record: Record, port: int) -> None:
        key, answer = record.key, record.value
        row = row_of(self._left, key)
        left = None if row is None else row[0]
        if _hash_of(self._left_value, left) != answer.hash:
            return  # stale: the left row changed meanwhile, and asked again
        has_result = left is not None and (answer.right is not None or self._is_left)
        new = self._joiner(left, answer.right) if has_result else None
        old = None
        if self._store is not None:
            old = self._store.get(key)
            self._store.put(key, new, record.timestamp)
        self._forward(Record(key, Change(new, old), record.timestamp, record.headers))


def _hash_of(serde: Serde, value: Any) -> bytes | None:
    """Tells left values apart; None stands for a row that is not there."""
    return None if value is None else blake2b(serde.serialize("", value), digest_size=HASH_SIZE).digest()
