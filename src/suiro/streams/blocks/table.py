"""The rules of `operators.table` over blocks. The rules are documented there. Versioned tables have no block form."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.operators.keys import distinct
from suiro.streams.operators.table import leaves_out, made_by
from suiro.streams.records import Change
from suiro.streams.topology.nodes import TableFilter, TableMapValues, TableSource, ToStream


class TableSourceStep:
    def __init__(self, operator: TableSource, context: BlockContext) -> None:
        self._store: Any = None if operator.store is None else context.store(operator.store)
        self._needs_old = context.needs_old
        self._context = context

    def process(self, block: Block, port: int) -> None:
        store, needs_old = self._store, self._needs_old
        raws, failed = (block.keys, {}) if store is None else store.keys_of(block.keys)
        rows: list[int] = []
        changes: list[Change] = []
        null_keys = 0
        for row, (key, new, timestamp, raw) in enumerate(
            zip(block.keys, block.values, block.timestamps, raws, strict=True)
        ):
            if key is None:
                null_keys += 1
                continue
            old = None
            if store is not None:
                try:
                    if raw is None:
                        raise failed[row]
                    if needs_old and (found := store.row_at(raw)) is not None:
                        old = found[0]
                    store.put_at(raw, new, timestamp)
                except Exception as error:  # noqa: BLE001 - a user's function raises anything
                    self._context.failed(block, row, error)
                    continue
            rows.append(row)
            changes.append(Change(new, old))
        self._context.drop("null key", null_keys)
        self._context.forward(block.made(rows, values=changes))


class TableStep:
    def __init__(self, operator: TableFilter | TableMapValues, context: BlockContext) -> None:
        self._made = made_by(operator)
        self._leaves_out = leaves_out(operator)
        self._sends_old = operator.sends_old
        self._store: Any = None if operator.store is None else context.store(operator.store)
        self._is_named = self._store is not None and self._store.spec.named_by_user
        self._context = context

    def process(self, block: Block, port: int) -> None:
        made, store, sends_old = self._made, self._store, self._sends_old
        rows: list[int] = []
        changes: list[Change] = []
        for row, (key, change, timestamp) in enumerate(zip(block.keys, block.values, block.timestamps, strict=True)):
            try:
                new = None if change.new is None else made(key, change.new)
                old = None
                if sends_old:
                    if self._is_named:
                        old = store.get(key)
                    elif change.old is not None:
                        old = made(key, change.old)
                if self._leaves_out and new is None and old is None:
                    continue
                if store is not None:
                    store.put(key, new, timestamp)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            rows.append(row)
            changes.append(Change(new, old, True if self._is_named else change.is_latest))
        self._context.forward(block.made(rows, values=changes))


class ToStreamStep:
    def __init__(self, operator: ToStream, context: BlockContext) -> None:
        self._coalesces = context.task.settings.coalesces
        self._waiting: dict[Hashable, Any] = {}
        self._context = context

    def process(self, block: Block, port: int) -> None:
        if not self._coalesces:
            self._send(block)
            return
        waiting = self._waiting
        at_once: list[int] = []
        for row, key in enumerate(block.keys):
            place: Hashable = key
            if type(key) is not str:
                try:
                    place = distinct(key)
                except TypeError:  # a key that cannot be hashed, a dict say
                    at_once.append(row)
                    continue
            waiting.pop(place, None)  # so that the order is that of last updates
            waiting[place] = block.row(row)
        if at_once:
            self._send(block.made(at_once))

    def end_of_batch(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            self._send(Block.of_rows(waiting.values()))

    def _send(self, block: Block) -> None:
        self._context.forward(block.made(None, values=[change.new for change in block.values]))
