"""The rules of `operators.stateless` and `operators.called` over blocks. The rules are documented there.

A function is called once for each row. A row whose function fails is reported (`BlockContext.failed`), and later rows
go on. The calls of an async function overlap, or a block is a table; the results keep the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from suiro.streams.blocks.block import Block
from suiro.streams.blocks.context import BlockContext
from suiro.streams.calls import Failed
from suiro.streams.operators.called import kind_of, outcomes, results_of
from suiro.streams.operators.functions import callable_of, pair_of, pairs_of, values_of
from suiro.streams.topology.nodes import (
    AsyncCall,
    Branch,
    Filter,
    FlatMap,
    FlatMapValues,
    Map,
    MapBatches,
    MapValues,
    Peek,
    SelectKey,
)


class FilterStep:
    def __init__(self, operator: Filter, context: BlockContext) -> None:
        self._predicate = callable_of(operator.predicate, "key_value")
        self._wanted = not operator.negated
        self._context = context

    def process(self, block: Block, port: int) -> None:
        predicate, wanted = self._predicate, self._wanted
        rows: list[int] = []
        for row, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
            try:
                if bool(predicate(key, value)) is wanted:
                    rows.append(row)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
        self._context.forward(block.made(rows))


class _MapperStep:
    kind: ClassVar[Literal["key_value", "value"]] = "key_value"

    def __init__(self, operator: Map | MapValues | FlatMap | FlatMapValues | SelectKey, context: BlockContext) -> None:
        self._mapper = callable_of(operator.mapper, self.kind)
        self._context = context


class MapStep(_MapperStep):
    def process(self, block: Block, port: int) -> None:
        mapper = self._mapper
        rows: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for row, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
            try:
                made_key, made_value = pair_of(mapper(key, value))
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            rows.append(row)
            keys.append(made_key)
            values.append(made_value)
        self._context.forward(block.made(rows, keys=keys, values=values))


class MapValuesStep(_MapperStep):
    kind = "value"

    def process(self, block: Block, port: int) -> None:
        mapper = self._mapper
        rows: list[int] = []
        values: list[Any] = []
        for row, value in enumerate(block.values):
            try:
                values.append(mapper(value))
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
                continue
            rows.append(row)
        self._context.forward(block.made(rows, values=values))


class FlatMapStep(_MapperStep):
    def process(self, block: Block, port: int) -> None:
        mapper = self._mapper
        rows: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for row, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
            try:
                for made_key, made_value in pairs_of(mapper(key, value)):
                    rows.append(row)
                    keys.append(made_key)
                    values.append(made_value)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
        self._context.forward(block.made(rows, keys=keys, values=values, several=True))


class FlatMapValuesStep(_MapperStep):
    kind = "value"

    def process(self, block: Block, port: int) -> None:
        mapper = self._mapper
        rows: list[int] = []
        values: list[Any] = []
        for row, value in enumerate(block.values):
            try:
                for made in values_of(mapper(value)):
                    rows.append(row)
                    values.append(made)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
        self._context.forward(block.made(rows, values=values, several=True))


class SelectKeyStep(_MapperStep):
    def process(self, block: Block, port: int) -> None:
        rows, keys = called(self._context, block, map(self._mapper, block.keys, block.values))
        self._context.forward(block.made(rows, keys=keys))


class PeekStep:
    def __init__(self, operator: Peek, context: BlockContext) -> None:
        self._action = operator.action
        self._context = context

    def process(self, block: Block, port: int) -> None:
        rows, _ = called(self._context, block, map(self._action, block.keys, block.values))
        self._context.forward(block.made(rows))


class BranchStep:
    def __init__(self, operator: Branch, context: BlockContext) -> None:
        self._branches = [
            (None if predicate is None else callable_of(predicate, "key_value"), child)
            for predicate, child in operator.predicates
        ]
        self._context = context

    def process(self, block: Block, port: int) -> None:
        found: dict[str, list[int]] = {child: [] for _, child in self._branches}
        branches = [(predicate, child, found[child].append) for predicate, child in self._branches]
        for row, (key, value) in enumerate(zip(block.keys, block.values, strict=True)):
            try:
                for predicate, _, add in branches:
                    if predicate is None or predicate(key, value):
                        add(row)
                        break
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                self._context.failed(block, row, error)
        for child, rows in found.items():
            self._context.forward_to(child, block.made(rows))


class CalledStep:
    def __init__(self, operator: AsyncCall | MapBatches, context: BlockContext) -> None:
        self._results = results_of(operator, context)
        self._kind = kind_of(operator)
        self._context = context

    def process(self, block: Block, port: int) -> None:
        context, kind = self._context, self._kind
        ends_at_failure = context.task.settings.on_processing_error == "fail"
        results = self._results(block.keys, block.values, block.timestamps, ends_at_failure)
        rows: list[int] = []
        keys: list[Any] = []
        values: list[Any] = []
        for row, result in enumerate(results):
            try:
                if isinstance(result, Failed):
                    raise result.error
                for key, value in outcomes(kind, block.keys[row], block.values[row], result):
                    rows.append(row)
                    keys.append(key)
                    values.append(value)
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                context.failed(block, row, error)
        context.forward(block.made(rows, keys=keys, values=values, several=kind == "flat_map_values"))


def called(context: BlockContext, block: Block, calls: Iterator[Any]) -> tuple[list[int], list[Any]]:
    """Takes the result of a call for each row. Returns the rows whose call gave one, and the results."""
    rows: list[int] = []
    results: list[Any] = []
    for row in range(len(block)):
        try:
            results.append(next(calls))
        except Exception as error:  # noqa: BLE001 - a user's function raises anything
            context.failed(block, row, error)
            continue
        rows.append(row)
    return rows, results
