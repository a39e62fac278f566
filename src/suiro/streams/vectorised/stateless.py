"""Chains of stateless operators, a chunk at a time: filter, map_values, select_key, branch, merge.

Functions must be expressions. A chunk that the columns cannot do (data without a common type, a sum beyond 64 bits,
bytes the serde cannot read, a negative timestamp) raises one of `FALLBACK`, and the rules run on it, record by record;
they say what is wrong, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suiro.errors import UsageError
from suiro.streams.expressions.expression import Expression
from suiro.streams.expressions.on_arrow import Columns, evaluate, result_type
from suiro.streams.extractors import FailOnInvalidTimestamp
from suiro.streams.serdes import BytesSerde, NaturalSerde, NotColumnarError, Serde
from suiro.streams.topology.nodes import (
    Branch,
    Filter,
    Function,
    MapValues,
    Merge,
    Node,
    Repartition,
    SelectKey,
    Sink,
    Source,
    ToStream,
)
from suiro.streams.topology.topology import Topology
from suiro.streams.vectorised.columns import Chunk, Column, headers_in, is_usable, type_of

FALLBACK = (UsageError, pa.ArrowException)
"""The errors that say that the rules must run on a chunk instead."""


class Reason(Exception):
    """The reason why something does not run on columns. Checks raise it, and `plan.columnar_form_of` returns it."""


@dataclass(frozen=True, slots=True)
class Types:
    """The types of a record's columns, as far as they are known before there is data; None is unknown."""

    key: pa.DataType | None
    value: pa.DataType | None

    @classmethod
    def of(cls, key: Serde | None, value: Serde | None) -> Types:
        return cls(type_of(key), type_of(value))


_ROOTS: dict[str, Set[str]] = {"key_value": {"key", "value"}, "value": {"value"}}


class Chain:
    """Everything between an input and `exits`, which take records away: sinks, repartitions, stateful operators."""

    def __init__(self, topology: Topology, start: Node, *, exits: Set[str], inside: Set[str]) -> None:
        """`inside`: the names of the sub-topology's nodes. The start does not run itself unless it is stateless."""
        self._topology = topology
        self.start = start
        self.exits = exits
        self._children: dict[str, list[Node]] = {}
        pending = [start]
        while pending:
            node = pending.pop()
            if node.name in self._children:
                continue
            self._children[node.name] = [child for child, _ in topology.children(node.name) if child.name in inside]
            if node.name not in exits:
                pending.extend(self._children[node.name])
        # Parents first, as a task needs them.
        self.nodes = [node for node in topology.nodes if node.name in self._children and node is not start]
        self._rejoins = any(len([n for n in node.parents if n in self._children]) > 1 for node in self.nodes)
        self.reached = {name for name in self._children if name in exits}

    def check(self, types: Types) -> None:
        """Raises `Reason` if the chain does not run on columns, as far as can be known before there is data."""
        self._check(self.start, types, {})

    def types_at(self, exit: str, types: Types) -> Types:
        """Returns the types that arrive at an exit; unknown types if several paths bring different ones. Raises
        `Reason` as `check` does."""
        found: dict[str, list[Types]] = {}
        self._check(self.start, types, found)
        arrived = found[exit]
        return arrived[0] if all(each == arrived[0] for each in arrived) else Types(None, None)

    def run(self, chunk: Chunk) -> dict[str, Chunk]:
        """Returns the records that arrive at each exit, in the order of the rules. Raises one of `FALLBACK`."""
        if self._rejoins:
            chunk = replace(chunk, places=np.arange(len(chunk)))
        pieces: dict[str, list[Chunk]] = {}
        if isinstance(self.start.operator, ToStream | Source):  # a Repartition and an aggregate pass nothing on
            self._visit(self.start, chunk, pieces)
        else:
            self._onward(self.start, chunk, pieces)
        return {name: _in_order(found) for name, found in pieces.items()}

    def fields(self, of_exit: Callable[[Node], frozenset[str] | None]) -> frozenset[str] | None:
        """Returns the fields that expressions and exits read of an incoming object; None: they may read all of it.
        `of_exit`: the fields that an exit reads of a value that arrives there."""
        found: set[str] = set()
        seen: set[str] = set()
        pending = [self.start]
        while pending:
            node = pending.pop()
            if node.name in seen:
                continue
            seen.add(node.name)
            if node.name in self.exits:
                read = [of_exit(node)]
            else:
                read = [function.fields() for function in _expressions(node)]
                if not isinstance(node.operator, MapValues):
                    pending.extend(self._children[node.name])
            for fields in read:
                if fields is None:
                    return None
                found |= fields
        return frozenset(found) or None

    def _visit(self, node: Node, chunk: Chunk, pieces: dict[str, list[Chunk]]) -> None:
        if len(chunk) == 0:
            return
        if node.name in self.exits:
            pieces.setdefault(node.name, []).append(chunk)
            return
        match node.operator:
            case Source() | Merge() | ToStream():
                pass
            case Filter(predicate=predicate, negated=negated):
                holds = _holds(predicate, chunk)
                chunk = chunk.filter(~holds if negated else holds)
            case MapValues(mapper=mapper):
                chunk = replace(chunk, value=_computed(mapper, chunk))
            case SelectKey(mapper=mapper):
                chunk = replace(chunk, key=_computed(mapper, chunk))
            case Branch(predicates=predicates):
                self._part(predicates, chunk, pieces)
                return
        self._onward(node, chunk, pieces)

    def _onward(self, node: Node, chunk: Chunk, pieces: dict[str, list[Chunk]]) -> None:
        for child in self._children[node.name]:
            self._visit(child, chunk, pieces)

    def _part(
        self,
        predicates: Sequence[tuple[Function | None, str]],
        chunk: Chunk,
        pieces: dict[str, list[Chunk]],
    ) -> None:
        for predicate, child in predicates:
            if len(chunk) == 0:
                return
            taken = np.ones(len(chunk), np.bool_) if predicate is None else _holds(predicate, chunk)
            if child in self._children:
                self._visit(self._topology.node(child), chunk.filter(taken), pieces)
            chunk = chunk.filter(~taken)

    def _check(self, node: Node, types: Types, arrived: dict[str, list[Types]]) -> None:
        before = arrived.setdefault(node.name, [])
        if types in before:
            return
        before.append(types)
        if node.name in self.exits:
            _check_exit(node)
            return
        match node.operator:
            case Filter(predicate=predicate):
                _result_type(node, predicate, types, "key_value")
            case MapValues(mapper=mapper):
                types = Types(types.key, _result_type(node, mapper, types, "value"))
            case SelectKey(mapper=mapper):
                types = Types(_result_type(node, mapper, types, "key_value"), types.value)
            case Branch(predicates=predicates):
                for each, _ in predicates:
                    if each is not None:
                        _result_type(node, each, types, "key_value")
            case Source() | Merge() | ToStream():
                pass
            case _ if node is not self.start:
                raise Reason(f"{node.name} ({type(node.operator).__name__}) has no form for columns")
        for child in self._children[node.name]:
            self._check(child, types, arrived)


def _expressions(node: Node) -> list[Expression]:
    """Returns the expressions of a node that has a form for columns."""
    operator = node.operator
    functions: list[Any] = []
    match operator:
        case Filter():
            functions = [operator.predicate]
        case MapValues() | SelectKey():
            functions = [operator.mapper]
        case Branch():
            functions = [predicate for predicate, _ in operator.predicates]
    return [function for function in functions if isinstance(function, Expression)]


def _check_exit(node: Node) -> None:
    operator = node.operator
    if isinstance(operator, Sink) and not isinstance(operator.topic, str):
        raise Reason(f"{node.name}: a callable chooses the topic of each record")
    if isinstance(operator, Sink | Repartition) and operator.partitioner is not None:
        raise Reason(f"{node.name}: a callable chooses the partition of each record")
    if isinstance(operator, Repartition) and operator.is_change:
        raise Reason(f"{node.name}: changes of a table travel")
    for serde in (getattr(operator, "key", None), getattr(operator, "value", None)):
        inner = getattr(serde, "inner", serde)
        if serde is not None and not isinstance(serde, NaturalSerde) and not is_usable(inner):
            raise Reason(f"{node.name}: serde {serde.name} writes values one by one")


def _result_type(node: Node, function: Function, types: Types, kind: str) -> pa.DataType | None:
    """Returns the type of a function's results; None if that is not known. Raises `Reason` if it cannot run here."""
    if not isinstance(function, Expression):
        raise Reason(f"{node.name}: its function is Python, not an expression")
    beyond = function.roots() - _ROOTS[kind]
    if beyond:
        raise Reason(f"{node.name}: the expression looks at {', '.join(sorted(beyond))}")
    if any(getattr(types, root) is None for root in function.roots()):
        return None
    found = result_type(function, types.value, key=types.key)
    if found is None:
        raise Reason(f"{node.name}: {function.describe()} has no form for columns of these types")
    return found


def columns_of(function: Expression, chunk: Chunk) -> Columns:
    """Returns the columns that the function reads."""
    read: dict[str, pa.Array] = {root: getattr(chunk, root).read for root in function.roots() if root != "timestamp"}
    return {**read, "timestamp": pa.array(chunk.timestamps)}


def _holds(predicate: Any, chunk: Chunk) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found = evaluate(predicate, columns_of(predicate, chunk))
    if pa.types.is_null(found.type):
        return np.zeros(len(chunk), np.bool_)
    if not pa.types.is_boolean(found.type):
        raise NotColumnarError("filter", "", f"{predicate!r} gives {found.type}, no truth value")
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False))


def _computed(mapper: Any, chunk: Chunk) -> Column:
    return Column(values=evaluate(mapper, columns_of(mapper, chunk)))


def _in_order(pieces: list[Chunk]) -> Chunk:
    """Merges pieces that came by several paths, as if every record had gone all its ways before the next one."""
    if len(pieces) == 1:
        return pieces[0]
    places = np.concatenate([piece.places for piece in pieces if piece.places is not None])
    return joined(pieces, np.argsort(places, kind="stable"))


def joined(pieces: list[Chunk], order: np.ndarray[Any, np.dtype[np.int64]] | None) -> Chunk:
    """Returns one chunk of all rows, in this order. Raises one of `FALLBACK` if their values have different types."""

    headers = None
    if any(piece.headers is not None for piece in pieces):
        kind = next(piece.headers.type for piece in pieces if piece.headers is not None)
        headers = pa.concat_arrays(
            [pa.nulls(len(piece), kind) if piece.headers is None else piece.headers for piece in pieces]
        )
    whole = Chunk(
        key=Column.joined([piece.key for piece in pieces]),
        value=Column.joined([piece.value for piece in pieces]),
        timestamps=np.concatenate([piece.timestamps for piece in pieces]),
        headers=headers,
        places=None
        if any(piece.places is None for piece in pieces)
        else np.concatenate([piece.places for piece in pieces if piece.places is not None]),
    )
    return whole if order is None else whole.take(order)


# Inputs


def check_input(node: Node) -> None:
    """Raises `Reason` if the input cannot be read as columns."""
    operator = node.operator
    assert isinstance(operator, Source | Repartition)
    if isinstance(operator, Source):
        extractor = operator.timestamp
        if extractor is not None and not isinstance(extractor, FailOnInvalidTimestamp):
            raise Reason(f"{node.name}: a timestamp extractor looks at each record")
    elif operator.is_change:
        raise Reason(f"{node.name}: changes of a table travel")
    for serde in (operator.key, operator.value):
        if not is_usable(serde):
            raise Reason(f"{node.name}: serde {serde.name} reads values one by one")


def types_of_input(node: Node) -> Types:
    operator = node.operator
    assert isinstance(operator, Source | Repartition)
    return Types.of(operator.key, operator.value)


def read_chunk(node: Node, columns: pa.RecordBatch, topic: str, *, fields: frozenset[str] | None = None) -> Chunk:
    """`columns`: key and value as bytes, timestamp, perhaps headers. `fields`: all that expressions read of values that
    are objects; None: perhaps all of them. Raises one of `FALLBACK`."""
    operator = node.operator
    assert isinstance(operator, Source | Repartition)
    timestamps = columns.column("timestamp").to_numpy()
    if isinstance(operator, Source) and len(timestamps) and int(timestamps.min()) < 0:
        raise NotColumnarError("timestamp", topic, "a timestamp is negative")
    return Chunk(
        key=_column(columns.column("key"), operator.key, topic),
        value=_column(columns.column("value"), operator.value, topic, fields),
        timestamps=timestamps,
        headers=headers_in(columns),
    )


def _column(raw: Any, serde: Serde, topic: str, fields: frozenset[str] | None = None) -> Column:
    found = Column(raw=raw, serde=serde, topic=topic, fields=fields)
    if not isinstance(serde, BytesSerde):
        found.read  # noqa: B018 — reads them all, so that bytes which are not sound are found here
    return found
