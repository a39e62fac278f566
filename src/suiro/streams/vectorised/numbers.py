"""Recognizes aggregations of numbers: count, and sum, minimum, maximum, first and last as expressions.

`reduce(left() + right())`, `aggregate(lambda: 0, aggregate() + col("amount"))`, `least`, `greatest`, `left()`,
`right()`; over long or double stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from suiro.streams.expressions.expression import Call, Expression, Root, record_value
from suiro.streams.expressions.on_arrow import result_type
from suiro.streams.serdes import DoubleSerde, LongSerde
from suiro.streams.topology.nodes import Aggregation, StoreSpec
from suiro.streams.vectorised import kernels
from suiro.streams.vectorised.stateless import Reason, Types

_OPS = {"add": kernels.SUM, "least": kernels.MIN, "greatest": kernels.MAX}
_NAMES = ("count", "sum", "min", "max", "first", "last")  # of the numbers of `kernels`


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """An aggregation of numbers. `operand`: the number of each record; None for count. `initial`: None if there is
    none.

    `reduces`: the first number is the first aggregate.
    """

    op: int
    operand: Expression | None = None
    initial: int | float | None = None
    reduces: bool = False
    is_double: bool = False

    @property
    def name(self) -> str:
        return _NAMES[self.op]

    @property
    def combines(self) -> bool:
        """True if parts may be combined first. Doubles would round differently."""
        return not self.is_double

    @property
    def needs_order(self) -> bool:
        """True if the result depends on the order of a key's records."""
        return self.is_double or self.op in (kernels.FIRST, kernels.LAST)


def recognised(aggregation: Aggregation, store: StoreSpec, types: Types) -> Numbers:
    """Returns the aggregation of numbers. Raises `Reason` if it is none. `types`: those of the records that come in."""
    if not isinstance(store.value, LongSerde | DoubleSerde):
        raise Reason(f"its store {store.name} holds {store.value.name}, not long or double")
    is_double = isinstance(store.value, DoubleSerde)
    if aggregation.kind == "count":
        if is_double:
            raise Reason(f"its store {store.name} holds double")
        return Numbers(op=kernels.COUNT, initial=0)
    if len(aggregation.aggregators) != 1:
        raise Reason("it is a co-group of several inputs")
    function = aggregation.aggregators[0]
    if not isinstance(function, Expression):
        raise Reason("its function is Python, not an expression")
    if aggregation.kind == "reduce":
        found = _reduced(function, is_double)
    else:
        assert aggregation.initializer is not None
        found = _aggregated(function, aggregation.initializer(), is_double)
    if found.operand is None:
        return found
    if all(getattr(types, root, None) is not None for root in found.operand.roots()):
        kind = result_type(found.operand, types.value, key=types.key)
        if kind is None or not (pa.types.is_integer(kind) or (is_double and pa.types.is_floating(kind))):
            raise Reason(f"{found.operand.describe()} is {kind or 'of no type known before'}, no number")
    if is_double and found.op in (kernels.MIN, kernels.MAX):
        raise Reason("it is a minimum or maximum of doubles")
    return found


def _reduced(function: Expression, is_double: bool) -> Numbers:
    match function:
        case Root(name="left"):
            op = kernels.FIRST
        case Root(name="right"):
            op = kernels.LAST
        case Call(function="add" | "least" | "greatest" as name, arguments=(Root(name=one), Root(name=two))) if {
            one,
            two,
        } == {"left", "right"}:
            op = _OPS[name]
        case _:
            raise Reason(f"{function.describe()} is none of the reducers that are known")
    return Numbers(op=op, operand=record_value(), reduces=True, is_double=is_double)


def _aggregated(function: Expression, initial: Any, is_double: bool) -> Numbers:
    match function:
        case Call(function="add" | "least" | "greatest" as name, arguments=(one, two)):
            op = _OPS[name]
            if isinstance(one, Root) and one.name == "aggregate":
                operand = two
            elif isinstance(two, Root) and two.name == "aggregate":
                operand = one
            else:
                raise Reason(f"{function.describe()} is none of the aggregators that are known")
        case _:
            op, operand = kernels.LAST, function
    beyond = operand.roots() - {"key", "value"}
    if beyond:
        raise Reason(f"{function.describe()} is none of the aggregators that are known")
    if initial is None and op == kernels.SUM:
        raise Reason("its initializer gives None, which nothing can be added to")
    wanted = (int, float) if is_double else (int,)
    if initial is not None and type(initial) not in wanted:
        raise Reason(f"its initializer gives a {type(initial).__name__}")
    if type(initial) is int and abs(initial) > (1 << 53):
        raise Reason("its initializer gives a number beyond 2**53")
    return Numbers(op=op, operand=operand, initial=initial, is_double=is_double)
