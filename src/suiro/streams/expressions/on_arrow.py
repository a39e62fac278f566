"""Evaluates expressions on Arrow columns, a column at a time, with the same results as `on_python` for every input.

`result_type` says for given types whether an expression can run here. It can only where the types settle every
rule in advance, so nothing here fails for a wrong type. What is left to fail is a whole number beyond 64 bits:
then the rows go through the Python rules, which know which of them matter (a branch not taken does not).

Whole numbers of any width are computed as int64, floats as double; results have these types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suiro.errors import UsageError
from suiro.streams.expressions.expression import Call, Constant, Expression, Field, Root, Struct, When
from suiro.streams.expressions.on_python import compile_expression
from suiro.streams.expressions.rules import CASTS, SPACES

Columns: TypeAlias = Mapping[str, pa.Array]
"""The columns of some records by `RootName`, all of one length; a timestamp is int64, ms since the epoch."""


class _OutsideError(Exception):
    """These types are not settled in advance, or Arrow has no such function."""


class _OverflowError(Exception):
    """Some row has a whole number beyond 64 bits, perhaps in a branch that it does not take."""


@dataclass(frozen=True, slots=True)
class _Plan:
    kind: pa.DataType
    run: Callable[[Columns], pa.Array]


_Types: TypeAlias = "dict[str, pa.DataType]"

_NULL, _BOOLEAN, _LONG, _DOUBLE = pa.null(), pa.bool_(), pa.int64(), pa.float64()
_STRING, _BINARY = pa.string(), pa.binary()


def result_type(
    expression: Expression,
    value: pa.DataType | None = None,
    *,
    key: pa.DataType | None = None,
    left: pa.DataType | None = None,
    right: pa.DataType | None = None,
) -> pa.DataType | None:
    """The type that `evaluate` gives over columns of these types; None where it does not take the expression."""
    given = {"value": value, "key": key, "timestamp": _LONG, "left": left, "right": right}
    try:
        return _plan(expression, {name: kind for name, kind in given.items() if kind is not None}).kind
    except _OutsideError:
        return None


def evaluate(expression: Expression, columns: Columns) -> pa.Array:
    """The expression's value for every row.

    Raises ExpressionError where a row's whole numbers exceed 64 bits, and UsageError where `result_type` gives None.
    """
    try:
        plan = _plan(expression, {name: column.type for name, column in columns.items()})
    except _OutsideError as error:
        raise UsageError(f"{expression!r} cannot run on these columns: {error}; run it on Python values") from None
    try:
        return plan.run(columns)
    except _OverflowError:
        names: tuple[Any, ...] = tuple(columns)
        run = compile_expression(expression, names)
        rows = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        return pa.array([run(*row) for row in rows], plan.kind)


def _plan(node: Expression, types: _Types) -> _Plan:
    match node:
        case Constant():
            scalar = pa.scalar(node.constant)
            return _Plan(scalar.type, lambda columns: pa.repeat(scalar, max(map(len, columns.values()), default=0)))
        case Root():
            return _plan_root(node, types)
        case Field():
            return _plan_field(node, _plan(node.base, types))
        case When():
            return _plan_when(node, types)
        case Struct():
            return _plan_struct(node, types)
        case Call():
            return _plan_call(node, [_plan(argument, types) for argument in node.arguments])
    raise _OutsideError(f"{node!r} is not a node of an expression")


def _plan_root(node: Root, types: _Types) -> _Plan:
    name = node.name
    if name not in types:
        raise _OutsideError(f"there is no {name}")
    kind, turn = _normal(types[name])
    return _Plan(kind, lambda columns: turn(columns[name]))


def _normal(kind: pa.DataType) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]]:
    """Returns the type to compute with, and the conversion to it."""
    wanted = kind
    if pa.types.is_uint64(kind) or pa.types.is_dictionary(kind):
        raise _OutsideError(f"a column is of type {kind}")
    if pa.types.is_integer(kind):
        wanted = _LONG
    elif pa.types.is_floating(kind):
        wanted = _DOUBLE
    elif pa.types.is_large_string(kind):
        wanted = _STRING
    elif pa.types.is_large_binary(kind):
        wanted = _BINARY
    return wanted, (lambda column: column) if wanted == kind else (lambda column: column.cast(wanted))


def _plan_field(node: Field, base: _Plan) -> _Plan:
    if pa.types.is_null(base.kind):
        return base
    if not pa.types.is_struct(base.kind):
        raise _OutsideError(f"{base.kind} has no fields")
    names = [field.name for field in base.kind]
    count = names.count(node.name)
    if count > 1:
        raise _OutsideError(f"the field {node.name!r} is there twice")
    if count == 0:

        def absent(columns: Columns) -> pa.Array:
            return pa.nulls(len(base.run(columns)))

        return _Plan(_NULL, absent)
    index = names.index(node.name)
    kind, turn = _normal(base.kind.field(index).type)
    return _Plan(kind, lambda columns: turn(pc.struct_field(base.run(columns), [index])))


def _plan_when(node: When, types: _Types) -> _Plan:
    conditions = [_as(_plan(condition, types), _BOOLEAN) for condition, _ in node.branches]
    values = [_plan(value, types) for _, value in node.branches]
    kind, (*values, default) = _alike([*values, _plan(node.default, types)])

    def run(columns: Columns) -> pa.Array:
        result = default.run(columns)
        for condition, value in reversed(list(zip(conditions, values, strict=True))):
            holds = pc.fill_null(condition.run(columns), False)
            result = pc.if_else(holds, value.run(columns), result)
        return result

    return _Plan(kind, run)


def _plan_struct(node: Struct, types: _Types) -> _Plan:
    values = [_plan(value, types) for value in node.values]
    kind = pa.struct([pa.field(name, value.kind) for name, value in zip(node.names, values, strict=True)])
    if not values:
        raise _OutsideError("the struct is empty")
    return _Plan(
        kind,
        lambda columns: pa.StructArray.from_arrays([value.run(columns) for value in values], fields=list(kind)),
    )


def _as(plan: _Plan, kind: pa.DataType) -> _Plan:
    """Returns the plan with results of this type. A plan that is always null gets the type; any other type is
    outside."""
    if plan.kind == kind:
        return plan
    if pa.types.is_null(plan.kind):
        return _Plan(kind, lambda columns: plan.run(columns).cast(kind))
    raise _OutsideError(f"{plan.kind} stands where {kind} should")


_SIMPLE = frozenset({_BOOLEAN, _LONG, _DOUBLE, _STRING, _BINARY})


def _alike(plans: Sequence[_Plan]) -> tuple[pa.DataType, list[_Plan]]:
    """Returns the plans with results of one type. In Python a whole number beside a double stays what it is, so the two
    are not alike."""
    kinds = [plan.kind for plan in plans if not pa.types.is_null(plan.kind)]
    kind = kinds[0] if kinds else _NULL
    if kind not in _SIMPLE and kinds:
        raise _OutsideError(f"a choice of {kind}")
    return kind, [_as(plan, kind) for plan in plans]


def _plan_call(node: Call, arguments: list[_Plan]) -> _Plan:
    first = arguments[0]
    match node.function:
        case "is_null":
            return _Plan(_BOOLEAN, lambda columns: pc.is_null(first.run(columns)))
        case "is_not_null":
            return _Plan(_BOOLEAN, lambda columns: pc.is_valid(first.run(columns)))
        case "and" | "or":
            kernel = pc.and_kleene if node.function == "and" else pc.or_kleene
            return _call(_BOOLEAN, kernel, [_as(argument, _BOOLEAN) for argument in arguments])
        case "not":
            return _call(_BOOLEAN, pc.invert, [_as(first, _BOOLEAN)])
        case "coalesce":
            kind, alike = _alike(arguments)
            return _call(kind, pc.coalesce, alike)
        case "least" | "greatest":
            kind, alike = _alike(arguments)
            if kind == _BOOLEAN:
                raise _OutsideError("booleans have no order")
            return _call(kind, _extreme(pc.less if node.function == "least" else pc.greater), alike)
        case "concat":
            strings = [_as(argument, _STRING) for argument in arguments]
            return _call(_STRING, _concatenate, strings)
        case "is_in":
            return _plan_membership(first, node.options[0])
        case "cast":
            return _plan_cast(first, node.options[0])
    if node.function in _STRINGS:
        return _plan_string(node, first, arguments[1:])
    if node.function in _COMPARISONS:
        return _plan_comparison(_COMPARISONS[node.function], node, arguments)
    return _plan_arithmetic(node, arguments)


def _call(kind: pa.DataType, kernel: Callable[..., pa.Array], arguments: Sequence[_Plan]) -> _Plan:
    return _Plan(kind, lambda columns: kernel(*[argument.run(columns) for argument in arguments]))


def _nothing(arguments: Sequence[_Plan]) -> _Plan | None:
    """Returns, for functions that give null for null, a plan that is always null if one of the arguments is. The other
    arguments still run."""
    if not any(pa.types.is_null(argument.kind) for argument in arguments):
        return None
    return _call(_NULL, lambda *columns: pa.nulls(len(columns[0])), arguments)


# Arithmetic


def _plan_arithmetic(node: Call, arguments: list[_Plan]) -> _Plan:
    if node.function == "add" and all(argument.kind == _STRING for argument in arguments):
        return _call(_STRING, _concatenate, arguments)
    for argument in arguments:
        if argument.kind not in (_LONG, _DOUBLE, _NULL) and not (
            node.function == "add" and argument.kind == _STRING and _nothing(arguments)
        ):
            raise _OutsideError(f"{argument.kind} is no number")
    nothing = _nothing(arguments)
    if nothing is not None:
        return nothing
    if node.function == "divide":
        return _call(_DOUBLE, _divide, [_doubled(argument) for argument in arguments])
    whole = all(argument.kind == _LONG for argument in arguments)
    if not whole:
        arguments = [_doubled(argument) for argument in arguments]
    kind = _LONG if whole else _DOUBLE
    match node.function:
        case "add" | "subtract" | "multiply" | "negate" | "abs":
            return _call(kind, _checked(getattr(pc, f"{node.function}_checked")), arguments)
        case "floor_divide":
            return _call(kind, _numpy(np.floor_divide), arguments)
        case "modulo":
            return _call(kind, _numpy(np.remainder), arguments)
        case "floor" | "ceil" | "round" if whole:
            return arguments[0]
        case "floor" | "ceil":
            return _call(kind, getattr(pc, node.function), arguments)
        case "round":
            digits = node.options[0]
            return _call(kind, lambda column: _round(column, digits), arguments)
    raise _OutsideError(f"Arrow has no {node.function}")


def _doubled(plan: _Plan) -> _Plan:
    if plan.kind != _LONG:
        return plan
    return _Plan(_DOUBLE, lambda columns: plan.run(columns).cast(_DOUBLE, safe=False))


def _checked(kernel: Callable[..., pa.Array]) -> Callable[..., pa.Array]:
    def run(*columns: pa.Array) -> pa.Array:
        try:
            return kernel(*columns)
        except pa.ArrowInvalid:
            raise _OverflowError from None

    return run


def _divide(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
    return pc.divide(dividend, pc.if_else(pc.equal(divisor, 0.0), None, divisor))


def _numpy(function: Callable[[Any, Any], Any]) -> Callable[[pa.Array, pa.Array], pa.Array]:
    """Divides by NumPy, which floors as Python does; Arrow does not. The result is null if a side is null or the
    divisor is zero."""

    def run(dividend: pa.Array, divisor: pa.Array) -> pa.Array:
        kind = dividend.type
        valid = pc.and_(pc.is_valid(dividend), pc.fill_null(pc.not_equal(divisor, 0), False))
        mask = valid.to_numpy(zero_copy_only=False)
        tops = pc.fill_null(dividend, 0).to_numpy(zero_copy_only=False)
        bottoms = np.where(mask, pc.fill_null(divisor, 1).to_numpy(zero_copy_only=False), 1)
        if function is np.floor_divide and kind == _LONG:
            lowest = np.iinfo(np.int64).min
            if (mask & (tops == lowest) & (bottoms == -1)).any():
                raise _OverflowError
        with np.errstate(all="ignore"):
            results = function(tops, bottoms)
        return pa.array(results, kind, mask=~mask)

    return run


def _round(column: pa.Array, digits: int) -> pa.Array:
    given = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
    scale = 10.0**digits
    with np.errstate(all="ignore"):
        scaled = given * scale
        rounded = np.where(np.isfinite(scaled), np.rint(scaled) / scale, given)
    return pa.array(rounded, _DOUBLE, mask=pc.is_null(column).to_numpy(zero_copy_only=False))


def _extreme(better: Callable[[pa.Array, pa.Array], pa.Array]) -> Callable[..., pa.Array]:
    def run(*columns: pa.Array) -> pa.Array:
        best = columns[0]
        if pa.types.is_null(best.type):
            return best
        for column in columns[1:]:
            missing = pc.is_null(best, nan_is_null=True)
            useful = pc.or_(pc.is_null(best), pc.invert(pc.is_null(column, nan_is_null=True)))
            wins = pc.fill_null(better(column, best), False)
            best = pc.if_else(pc.and_(useful, pc.or_(missing, wins)), column, best)
        return best

    return run


# Comparison

_COMPARISONS = {
    "equal": pc.equal,
    "not_equal": pc.not_equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
}


def _plan_comparison(kernel: Callable[..., pa.Array], node: Call, arguments: list[_Plan]) -> _Plan:
    nothing = _nothing(arguments)
    if nothing is not None:
        return nothing
    kinds = {argument.kind for argument in arguments}
    if kinds == {_LONG, _DOUBLE}:
        arguments = [_doubled(argument) for argument in arguments]
    elif len(kinds) > 1 or not kinds <= _SIMPLE:
        raise _OutsideError(f"a comparison of {' and '.join(map(str, kinds))}")
    elif kinds == {_BOOLEAN} and node.function not in ("equal", "not_equal"):
        raise _OutsideError("booleans have no order")
    return _call(_BOOLEAN, kernel, arguments)


def _plan_membership(plan: _Plan, constants: tuple[Any, ...]) -> _Plan:
    if pa.types.is_null(plan.kind):
        return plan
    if plan.kind not in _SIMPLE:
        raise _OutsideError(f"is_in() of {plan.kind}")
    present = [constant for constant in constants if constant is not None]
    for constant in present:
        kind = pa.scalar(constant).type
        if plan.kind != kind and not {plan.kind, kind} <= {_LONG, _DOUBLE}:
            raise _OutsideError(f"is_in() of {plan.kind} among {kind}")
    otherwise = pa.scalar(None if len(present) < len(constants) else False, _BOOLEAN)

    # Whole numbers meet whole numbers exactly; where one side is a double, both are.
    exact = [constant for constant in present if plan.kind != _DOUBLE and not isinstance(constant, float)]
    doubles = np.array([float(c) for c in present if plan.kind == _DOUBLE or isinstance(c, float)])
    doubles = doubles[~np.isnan(doubles)]

    def run(column: pa.Array) -> pa.Array:
        found = pc.is_in(column, value_set=pa.array(exact, plan.kind))
        if len(doubles):
            numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.float64)
            found = pc.or_(found, pa.array(np.isin(numbers, doubles)))
        found = pc.if_else(found, True, otherwise)
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, _BOOLEAN))

    return _call(_BOOLEAN, run, [plan])


# Strings


def _concatenate(*columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*columns, "", null_handling="emit_null")


def _by_value(rule: Callable[[Any], Any], kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """A Python rule, called once for each distinct value."""

    def run(column: pa.Array) -> pa.Array:
        coded = column.dictionary_encode()
        results = pa.array([rule(value) for value in coded.dictionary.to_pylist()], kind)
        return results.take(coded.indices)

    return run


def _cased(kernel: Callable[[pa.Array], pa.Array], rule: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    """Uses the kernel for ASCII alone: for other texts Arrow and Python follow different versions of Unicode's
    tables."""
    slow = _by_value(rule, _STRING)

    def run(column: pa.Array) -> pa.Array:
        plain = pc.all(pc.string_is_ascii(column)).as_py()
        return slow(column) if plain is False else kernel(column)

    return run


_STRINGS: dict[str, tuple[pa.DataType, Callable[..., Callable[[pa.Array], pa.Array]]]] = {
    "upper": (_STRING, lambda: _cased(pc.ascii_upper, str.upper)),
    "lower": (_STRING, lambda: _cased(pc.ascii_lower, str.lower)),
    "strip": (_STRING, lambda: lambda column: pc.ascii_trim(column, SPACES)),
    "length": (_LONG, lambda: lambda column: pc.utf8_length(column).cast(_LONG)),
    "contains": (_BOOLEAN, lambda text: lambda column: pc.match_substring(column, text)),
    "starts_with": (_BOOLEAN, lambda text: lambda column: pc.starts_with(column, text)),
    "ends_with": (_BOOLEAN, lambda text: lambda column: pc.ends_with(column, text)),
    "substring": (_STRING, lambda start, length: lambda column: _substring(column, start, length)),
    "replace": (_STRING, lambda old, new: lambda column: pc.replace_substring(column, old, new)),
}
"""The type of a function's results, and its kernel for its text or options."""


def _substring(column: pa.Array, start: int, length: int | None) -> pa.Array:
    return pc.utf8_slice_codeunits(column, start, None if length is None else start + length)


def _plan_string(node: Call, first: _Plan, others: list[_Plan]) -> _Plan:
    kind, kernel = _STRINGS[node.function]
    nothing = _nothing([first, *others])
    if nothing is not None:
        return nothing
    if node.function == "length" and first.kind == _BINARY:
        return _call(kind, lambda column: pc.binary_length(column).cast(_LONG), [first])
    if first.kind != _STRING:
        raise _OutsideError(f"{first.kind} is no string")
    if not others:
        return _call(kind, kernel(*node.options), [first])
    pattern = node.arguments[1]
    if not isinstance(pattern, Constant) or not isinstance(pattern.constant, str):
        raise _OutsideError("the text to look for is not a constant")
    return _call(kind, kernel(pattern.constant), [first])


# Types

_TARGETS = {"long": _LONG, "int": _LONG, "double": _DOUBLE, "string": _STRING, "boolean": _BOOLEAN}
_TEXTS = {"long": r"^-?[0-9]{1,18}$", "double": r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$"}
"""Texts that Arrow reads as Python does."""


def _plan_cast(plan: _Plan, type_name: str) -> _Plan:
    source, target = plan.kind, _TARGETS[type_name]
    if pa.types.is_null(source):
        return plan
    if source not in (_BOOLEAN, _LONG, _DOUBLE, _STRING):
        raise _OutsideError(f"a cast of {source}")
    if source == target and type_name != "int":
        return plan
    slow = _by_value(CASTS[type_name], target)
    if source == _STRING and type_name in _TEXTS:
        return _call(target, lambda column: _read_text(column, _TEXTS[type_name], target, slow), [plan])
    return _call(target, _CASTS.get((source, type_name), slow), [plan])


def _within_int(column: pa.Array) -> pa.Array:
    inside = pc.and_(pc.greater_equal(column, -(1 << 31)), pc.less(column, 1 << 31))
    return pc.if_else(inside, column, None)


def _truncate(column: pa.Array, bits: int) -> pa.Array:
    whole = pc.trunc(column)
    bound = float(1 << (bits - 1))
    inside = pc.and_(pc.greater_equal(whole, -bound), pc.less(whole, bound))
    return pc.if_else(inside, whole, None).cast(_LONG, safe=False)


def _write_doubles(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else repr(value) for value in column.to_pylist()], _STRING)


def _read_text(column: pa.Array, pattern: str, target: pa.DataType, slow: Callable[[pa.Array], pa.Array]) -> pa.Array:
    simple = pc.all(pc.match_substring_regex(column, pattern)).as_py()
    return slow(column) if simple is False else column.cast(target)


_CASTS: dict[tuple[pa.DataType, str], Callable[[pa.Array], pa.Array]] = {
    (_BOOLEAN, "int"): lambda column: column.cast(_LONG),
    (_BOOLEAN, "long"): lambda column: column.cast(_LONG),
    (_BOOLEAN, "double"): lambda column: column.cast(_LONG).cast(_DOUBLE),
    (_BOOLEAN, "string"): lambda column: column.cast(_STRING),
    (_LONG, "int"): _within_int,
    (_LONG, "double"): lambda column: column.cast(_DOUBLE, safe=False),
    (_LONG, "boolean"): lambda column: pc.not_equal(column, 0),
    (_LONG, "string"): lambda column: column.cast(_STRING),
    (_DOUBLE, "int"): lambda column: _truncate(column, 32),
    (_DOUBLE, "long"): lambda column: _truncate(column, 64),
    (_DOUBLE, "boolean"): lambda column: pc.not_equal(column, 0),
    (_DOUBLE, "string"): _write_doubles,
}
"""By the column's type and the name of the wanted one. What is not here goes by the Python rule, value by value."""
