"""Checks that functions of `map_batches` give the same results however records are cut into batches."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from suiro.errors import UsageError
from suiro.streams.batches import batch_results
from suiro.streams.calls import Failed
from suiro.streams.interpreter import Interpreter
from suiro.streams.records import Record
from suiro.streams.task import Processing
from suiro.streams.topology.nodes import MapBatches, Node
from suiro.streams.topology.topology import Topology

LARGEST = (2, 3, 7, 30, 1024)
"""The largest batch of a drawn cut is one of these, in turn."""

SHOWN = 200
"""The characters of a value in a message."""


class BatchesDifferError(UsageError):
    """A function of `map_batches` gives other results for a batch than for its records one by one."""


class BatchCuts:
    """The records of one driver that come to functions of batches, and the check of these functions."""

    def __init__(self, cuts: int | Sequence[Sequence[int]], seed: int) -> None:
        if not isinstance(cuts, int):
            if not all(sizes and all(isinstance(size, int) and size > 0 for size in sizes) for sizes in cuts):
                raise UsageError(f"cuts={cuts!r}: give a number of cuts to draw, or lists of sizes of batches")
        elif isinstance(cuts, bool) or cuts < 1:
            raise UsageError(f"cuts={cuts!r}: give at least 1")
        self._cuts, self._seed = cuts, seed
        self._came: dict[str, list[Record]] = {}

    def interpreter(self, topology: Topology, **options: Any) -> Interpreter:
        """Returns an interpreter that notes the records that come to functions of batches."""
        for node in topology.nodes:
            if isinstance(node.operator, MapBatches):
                self._came[node.name] = []
        noted = type("NotingInterpreter", (Interpreter,), {"around": staticmethod(self._around)})
        made: Interpreter = noted(topology, **options)
        return made

    def check(self, topology: Topology) -> None:
        """Raises `BatchesDifferError`, which names the first batch that differs, and its first such record."""
        for name, records in self._came.items():
            operator = topology.node(name).operator
            assert isinstance(operator, MapBatches)
            alone = [_results(operator, [record])[0] for record in records]
            for sizes in self._sizes(len(records)):
                first = 0
                while first < len(records):
                    end = min(len(records), first + next(sizes))
                    _compare(name, records, first, _results(operator, records[first:end]), alone)
                    first = end

    def _around(self, node: Node, processing: Processing) -> Processing:
        came = self._came.get(node.name)
        if came is None:
            return processing

        def process(record: Record, port: int) -> None:
            came.append(record)
            processing(record, port)

        return process

    def _sizes(self, records: int) -> Iterator[Iterator[int]]:
        if not isinstance(self._cuts, int):
            for sizes in self._cuts:
                yield cycle(sizes)
            return
        yield cycle([max(1, records)])
        draw = random.Random(self._seed)
        for number in range(self._cuts - 1):
            largest = LARGEST[number % len(LARGEST)]
            yield _drawn(draw, largest)


def _drawn(draw: random.Random, largest: int) -> Iterator[int]:
    while True:
        yield draw.randint(1, largest)


def _results(operator: MapBatches, records: Sequence[Record]) -> list[Any]:
    keys, values = [record.key for record in records], [record.value for record in records]
    return batch_results(operator, keys, values, [record.timestamp for record in records])


def _compare(name: str, records: Sequence[Record], first: int, found: Sequence[Any], alone: Sequence[Any]) -> None:
    for place, got in enumerate(found, start=first):
        if not _is_same(got, alone[place]):
            record, end = records[place], first + len(found) - 1
            raise BatchesDifferError(
                f"{name}: of the batch of records {first} to {end} (of {len(records)}, from 0) record {place}, key "
                f"{_shown(record.key)}, value {_shown(record.value)}, becomes {_told(got)}, and alone "
                f"{_told(alone[place])}. Where records are cut into batches must make no difference: work out each row "
                "from itself, keep nothing between calls, and round what a library sums in another order"
            )


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Failed) or isinstance(other, Failed):
        return type(one) is type(other) and repr(one.error) == repr(other.error)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _told(result: Any) -> str:
    return f"an error ({_shown(result.error)})" if isinstance(result, Failed) else _shown(result)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
