"""Evaluates expressions on Python values. Each node is compiled to a closure once, so a record costs a few calls.

These are the rules; `arrow_expressions.py` must give the same for whole columns, and gives rows to this module
where it meets an error. The page docs/reference/expressions.md says them in words.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from suiro.errors import UsageError
from suiro.streams.expressions.expression import (
    _ROOTS,
    Call,
    CallableKind,
    Constant,
    Expression,
    ExpressionError,
    Field,
    Root,
    RootName,
    Struct,
    When,
)
from suiro.streams.records import Windowed

__all__ = ["SPACES", "Evaluator", "callable_of", "cast_value", "compile_expression"]

Evaluator = Callable[[Any], Any]
"""From a row to a value. A row is the one root that the expression reads, or a tuple of several."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
SPACES = " \t\n\r\f\v"

_PARAMETERS: dict[CallableKind, tuple[RootName, ...]] = {
    "key_value": ("key", "value"),
    "value": ("value",),
    "left_right": ("left", "right"),
    "key_value_aggregate": ("key", "value", "aggregate"),
    "record": ("key", "value", "timestamp"),
}


class _WrongError(Exception):
    """Raised by a rule, which does not know its expression; becomes an ExpressionError, which does."""


def callable_of(expression: Expression, kind: CallableKind) -> Callable[..., Any]:
    """A callable with the parameters of that kind."""
    if kind not in _PARAMETERS:
        raise UsageError(f"no callable is of kind {kind!r}; kinds are {', '.join(_PARAMETERS)}")
    return compile_expression(expression, _PARAMETERS[kind])


def compile_expression(expression: Expression, parameters: tuple[RootName, ...]) -> Callable[..., Any]:
    """A callable with these positional parameters. Raises UsageError where the expression needs others."""
    used = expression.roots()
    missing = [_ROOTS[name] for name in sorted(used.difference(parameters))]
    if missing:
        known = ", ".join(_ROOTS[name] for name in parameters)
        raise UsageError(f"{expression!r} needs {' and '.join(missing)}, but here it is given only {known}")
    if len(parameters) == 1:
        return _compile(expression, {parameters[0]: None})
    if len(used) <= 1:
        position = parameters.index(next(iter(used))) if used else 0
        run = _compile(expression, {parameters[position]: None})
        return _picking(run, position, len(parameters))
    run = _compile(expression, {name: index for index, name in enumerate(parameters)})
    return lambda *row: run(row)


def _picking(run: Evaluator, position: int, count: int) -> Callable[..., Any]:
    match count, position:
        case 2, 0:
            return lambda first, second: run(first)
        case 2, 1:
            return lambda first, second: run(second)
        case 3, 0:
            return lambda first, second, third: run(first)
        case 3, 1:
            return lambda first, second, third: run(second)
        case 3, 2:
            return lambda first, second, third: run(third)
    return lambda *row: run(row[position])


def _compile(node: Expression, places: Mapping[RootName, int | None]) -> Evaluator:
    """`places` says where a root is in the row; None: it is the row."""
    match node:
        case Constant():
            constant = node.constant
            return lambda row: constant
        case Root():
            place = places[node.name]
            return (lambda row: row) if place is None else operator.itemgetter(place)
        case Field():
            return _compile_field(node, places)
        case When():
            return _compile_when(node, places)
        case Struct():
            pairs = [
                (name, _compile(value, places)) for name, value in zip(node.names, node.values, strict=True)
            ]
            return lambda row: {name: run(row) for name, run in pairs}
        case Call():
            return _compile_call(node, [_compile(argument, places) for argument in node.arguments])
    raise TypeError(f"not a node of an expression: {node!r}")


def _compile_field(node: Field, places: Mapping[RootName, int | None]) -> Evaluator:
    name = node.name
    if isinstance(node.base, Root) and places[node.base.name] is None:

        def of_row(row: Any) -> Any:
            return row.get(name) if type(row) is dict else _field(node, row, name)

        return of_row
    base = _compile(node.base, places)

    def of_base(row: Any) -> Any:
        value = base(row)
        return value.get(name) if type(value) is dict else _field(node, value, name)

    return of_base


def _field(node: Field, value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, Windowed):
        return getattr(value, name) if name in ("key", "start", "end") else None
    raise ExpressionError(repr(node), f"{_type(value)} has no fields")


def _compile_when(node: When, places: Mapping[RootName, int | None]) -> Evaluator:
    branches = [(_compile(condition, places), _compile(value, places)) for condition, value in node.branches]
    default = _compile(node.default, places)

    def run(row: Any) -> Any:
        for condition, value in branches:
            holds = condition(row)
            if holds is True:
                return value(row)
            if holds is not False and holds is not None:
                raise ExpressionError(repr(node), f"a condition is true, false or null, not {_type(holds)}")
        return default(row)

    return run


def _compile_call(node: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    match node.function:
        case "and" | "or":
            return _compile_logic(node, *arguments, decisive=node.function == "or")
        case "is_null":
            return lambda row: arguments[0](row) is None
        case "is_not_null":
            return lambda row: arguments[0](row) is not None
        case "coalesce":

            def first(row: Any) -> Any:
                for argument in arguments:
                    if (value := argument(row)) is not None:
                        return value
                return None

            return first
        case "least" | "greatest":
            return _compile_extreme(node, arguments)
        case "concat":
            return _compile_concat(node, arguments)
        case "is_in":
            return _strict(node, _membership(node.options[0]), arguments[0])
        case "cast":
            return _strict(node, lambda value: cast_value(value, node.options[0]), arguments[0])
        case "round":
            return _strict(node, lambda value: _round(value, node.options[0]), arguments[0])
        case "substring":
            start, length = node.options
            stop = None if length is None else start + length
            return _strict(node, lambda value: _text(value)[start:stop], arguments[0])
        case "replace":
            return _strict(node, lambda value: _text(value).replace(*node.options), arguments[0])
    if node.function in _UNARY:
        return _strict(node, _UNARY[node.function], arguments[0])
    return _strict_pair(node, _BINARY[node.function], *arguments)


def _strict(node: Call, rule: Callable[[Any], Any], argument: Evaluator) -> Evaluator:
    def run(row: Any) -> Any:
        value = argument(row)
        if value is None:
            return None
        try:
            return rule(value)
        except _WrongError as error:
            raise ExpressionError(repr(node), str(error)) from None

    return run


def _strict_pair(node: Call, rule: Callable[[Any, Any], Any], left: Evaluator, right: Evaluator) -> Evaluator:
    def run(row: Any) -> Any:
        first = left(row)
        if first is None:
            return None
        second = right(row)
        if second is None:
            return None
        try:
            return rule(first, second)
        except _WrongError as error:
            raise ExpressionError(repr(node), str(error)) from None

    return run


def _compile_logic(node: Call, left: Evaluator, right: Evaluator, *, decisive: bool) -> Evaluator:
    """`decisive` is the value that settles the result alone: false for `and`, true for `or`."""

    def run(row: Any) -> Any:
        first = left(row)
        if first is decisive:
            return decisive
        second = right(row)
        for operand in (first, second):
            if operand is not True and operand is not False and operand is not None:
                raise ExpressionError(repr(node), f"it takes booleans, not {_type(operand)}")
        if second is decisive:
            return decisive
        return None if first is None or second is None else not decisive

    return run


def _compile_extreme(node: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    better = _less if node.function == "least" else _greater

    def run(row: Any) -> Any:
        best = None
        try:
            for argument in arguments:
                value = argument(row)
                if value is None:
                    continue
                if best is None or best != best:
                    if best is not None:
                        better(value, best)  # the types must agree, whatever the result
                        if value == value:
                            best = value
                    else:
                        better(value, value)
                        best = value
                elif better(value, best):
                    best = value
        except _WrongError as error:
            raise ExpressionError(repr(node), str(error)) from None
        return best

    return run


def _compile_concat(node: Call, arguments: Sequence[Evaluator]) -> Evaluator:
    def run(row: Any) -> Any:
        parts = []
        for argument in arguments:
            value = argument(row)
            if value is None:
                return None
            if not isinstance(value, str):
                raise ExpressionError(repr(node), f"it takes strings, not {_type(value)}; cast it first")
            parts.append(value)
        return "".join(parts)

    return run


# Rules of functions that give null for null. They see no None.


def _number(value: Any) -> int | float:
    if isinstance(value, bool):
        raise _WrongError("it takes numbers, not a boolean; cast it first")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    try:
        return operator.index(value)
    except TypeError:
        raise _WrongError(f"it takes numbers, not {_type(value)}") from None


def _double(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _WrongError(f"{_digits(value)} is too large for a double") from None


def _whole(value: int) -> int:
    if LOWEST <= value <= HIGHEST:
        return value
    raise _WrongError(f"the result {_digits(value)} does not fit into 64 bits")


def _digits(value: int | float) -> str:
    """The number as text for a message: Python writes no whole number of more than 4,300 digits."""
    try:
        return repr(value)
    except ValueError:
        return f"of {int(value).bit_length()} bits"


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def rule(left: Any, right: Any) -> Any:
        if not (type(left) is int and type(right) is int):
            left, right = _number(left), _number(right)
            if isinstance(left, float) or isinstance(right, float):
                return function(_double(left), _double(right))
        result = function(left, right)
        if LOWEST <= result <= HIGHEST:
            return result
        return _whole(result)

    return rule


_add_numbers = _arithmetic(operator.add)


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    return _add_numbers(left, right)


def _divide(left: Any, right: Any) -> float | None:
    divisor = _double(_number(right))
    dividend = _double(_number(left))
    return None if divisor == 0 else dividend / divisor


def _unless_zero(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    rule = _arithmetic(function)

    def guarded(left: Any, right: Any) -> Any:
        if _number(right) == 0:
            _number(left)
            return None
        return rule(left, right)

    return guarded


def _negate(value: Any) -> Any:
    number = _number(value)
    return _whole(-number) if isinstance(number, int) else -number


def _absolute(value: Any) -> Any:
    number = _number(value)
    return _whole(abs(number)) if isinstance(number, int) else abs(number)


def _round(value: Any, digits: int) -> Any:
    number = _number(value)
    if isinstance(number, int) or not math.isfinite(number):
        return number
    scale = 10.0**digits
    scaled = number * scale
    return round(scaled, 0) / scale if math.isfinite(scaled) else number


def _floor(value: Any) -> Any:
    number = _number(value)
    if isinstance(number, int) or not math.isfinite(number):
        return number
    return math.copysign(float(math.floor(number)), number)


def _ceil(value: Any) -> Any:
    number = _number(value)
    if isinstance(number, int) or not math.isfinite(number):
        return number
    return math.copysign(float(math.ceil(number)), number)


_PLAIN = frozenset({int, float, str, bytes})


def _pair(left: Any, right: Any, *, ordered: bool) -> tuple[Any, Any]:
    """Both sides as they are compared: numbers alike, other values only with their own kind."""
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool) and isinstance(right, bool) and not ordered:
            return left, right
    elif isinstance(left, int | float) and isinstance(right, int | float):
        if isinstance(left, int) and isinstance(right, int):
            return left, right
        return _double(left), _double(right)
    elif (isinstance(left, str) and isinstance(right, str)) or type(left) is type(right):
        return left, right
    else:
        try:
            return operator.index(left), operator.index(right)  # NumPy's ints
        except TypeError:
            pass
    verb = "order" if ordered else "compare"
    raise _WrongError(f"it cannot {verb} {_type(left)} and {_type(right)}")


def _comparison(function: Callable[[Any, Any], Any], *, ordered: bool) -> Callable[[Any, Any], bool]:
    def rule(left: Any, right: Any) -> bool:
        kind = type(left)
        if not (kind is type(right) and kind in _PLAIN):
            left, right = _pair(left, right, ordered=ordered)
        try:
            return bool(function(left, right))
        except TypeError:
            raise _WrongError(f"it cannot order {_type(left)} and {_type(right)}") from None

    return rule


_less = _comparison(operator.lt, ordered=True)
_greater = _comparison(operator.gt, ordered=True)
_equal = _comparison(operator.eq, ordered=False)


def _membership(constants: tuple[Any, ...]) -> Callable[[Any], bool | None]:
    present = [constant for constant in constants if constant is not None]
    absent = None if len(present) < len(constants) else False

    def rule(value: Any) -> bool | None:
        found = False
        for constant in present:
            found = _equal(value, constant)
            if found:
                return True
        return absent

    if not present or not all(type(constant) is str for constant in present):
        return rule
    strings = frozenset(present)

    def rule_of_strings(value: Any) -> bool | None:
        return (True if value in strings else absent) if type(value) is str else rule(value)

    return rule_of_strings


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise _WrongError(f"it takes strings, not {_type(value)}; cast it first")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else len(_text(value))


def _not(value: Any) -> bool:
    if value is True or value is False:
        return not value
    raise _WrongError(f"it takes booleans, not {_type(value)}")


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")


def cast_value(value: Any, type_name: str) -> Any:
    """The value as that type; None where it has no such form. The value is not None."""
    match type_name:
        case "long":
            return _cast_integer(value, LOWEST, HIGHEST)
        case "int":
            return _cast_integer(value, -(1 << 31), (1 << 31) - 1)
        case "double":
            if isinstance(value, bool):
                return float(value)
            if not isinstance(value, str):
                return _double(_number(value))
            text = value.strip(SPACES)
            number = float(text) if _DECIMAL.fullmatch(text) else math.inf
            return number if math.isfinite(number) else None
        case "string":
            if isinstance(value, str):
                return value
            if isinstance(value, bool):
                return "true" if value else "false"
            number = _number(value)
            try:
                return repr(number)
            except ValueError:
                raise _WrongError(f"a whole number {_digits(number)} is too long for a string") from None
        case "boolean":
            if isinstance(value, bool):
                return value
            if isinstance(value, str):
                return {"true": True, "false": False}.get(value.strip(SPACES).lower())
            return _number(value) != 0
    raise _WrongError(f"no type is called {type_name}")


def _cast_integer(value: Any, lowest: int, highest: int) -> int | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        text = value.strip(SPACES)
        number = int(text) if _INTEGER.fullmatch(text) else None
    else:
        given = _number(value)
        number = int(given) if isinstance(given, int) or math.isfinite(given) else None
    return number if number is not None and lowest <= number <= highest else None


def _type(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int():
            return "a whole number"
        case float():
            return "a double"
        case str():
            return "a string"
        case bytes():
            return "bytes"
        case dict():
            return "a struct"
        case list():
            return "a list"
    return f"a {type(value).__name__}"


_UNARY: dict[str, Callable[[Any], Any]] = {
    "negate": _negate,
    "abs": _absolute,
    "floor": _floor,
    "ceil": _ceil,
    "not": _not,
    "upper": lambda value: _text(value).upper(),
    "lower": lambda value: _text(value).lower(),
    "strip": lambda value: _text(value).strip(SPACES),
    "length": _length,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": _add,
    "subtract": _arithmetic(operator.sub),
    "multiply": _arithmetic(operator.mul),
    "divide": _divide,
    "floor_divide": _unless_zero(operator.floordiv),
    "modulo": _unless_zero(operator.mod),
    "equal": _equal,
    "not_equal": _comparison(operator.ne, ordered=False),
    "less": _less,
    "less_equal": _comparison(operator.le, ordered=True),
    "greater": _greater,
    "greater_equal": _comparison(operator.ge, ordered=True),
    "contains": lambda value, text: _text(text) in _text(value),
    "starts_with": lambda value, text: _text(value).startswith(_text(text)),
    "ends_with": lambda value, text: _text(value).endswith(_text(text)),
}
