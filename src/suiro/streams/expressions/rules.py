"""The rules of functions in expressions, for Python values: the results, and the values that a function refuses.

The page docs/reference/expressions.md states them in words. Functions that give null for null are not called with None.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
SPACES = " \t\n\r\f\v"


class WrongError(Exception):
    """A rule refuses a value. The caller, which knows the expression, makes an ExpressionError of it."""


def _number(value: Any) -> int | float:
    if isinstance(value, bool):
        raise WrongError("it takes numbers, not a boolean; cast it first")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    try:
        return operator.index(value)
    except TypeError:
        raise WrongError(f"it takes numbers, not {type_of(value)}") from None


def _double(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        raise WrongError(f"{_digits(value)} is too large for a double") from None


def _whole(value: int) -> int:
    if LOWEST <= value <= HIGHEST:
        return value
    raise WrongError(f"the result {_digits(value)} does not fit into 64 bits")


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


def _signed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def rule(value: Any) -> Any:
        number = _number(value)
        return _whole(function(number)) if isinstance(number, int) else function(number)

    return rule


def _round(value: Any, digits: int) -> Any:
    number = _number(value)
    if isinstance(number, int) or not math.isfinite(number):
        return number
    scale = 10.0**digits
    scaled = number * scale
    return round(scaled, 0) / scale if math.isfinite(scaled) else number


def _towards(function: Callable[[float], int]) -> Callable[[Any], Any]:
    def rule(value: Any) -> Any:
        number = _number(value)
        if isinstance(number, int) or not math.isfinite(number):
            return number
        return math.copysign(float(function(number)), number)

    return rule


PLAIN = frozenset({int, float, str, bytes})


def _pair(left: Any, right: Any, *, ordered: bool) -> tuple[Any, Any]:
    """Returns both sides as they are compared. Numbers are compared with numbers, other values only with their own
    kind."""
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
    raise WrongError(f"it cannot {verb} {type_of(left)} and {type_of(right)}")


def _comparison(function: Callable[[Any, Any], Any], *, ordered: bool) -> Callable[[Any, Any], bool]:
    def rule(left: Any, right: Any) -> bool:
        kind = type(left)
        if not (kind is type(right) and kind in PLAIN):
            left, right = _pair(left, right, ordered=ordered)
        try:
            return bool(function(left, right))
        except TypeError:
            raise WrongError(f"it cannot order {type_of(left)} and {type_of(right)}") from None

    return rule


less = _comparison(operator.lt, ordered=True)
greater = _comparison(operator.gt, ordered=True)
_equal = _comparison(operator.eq, ordered=False)


def membership(constants: tuple[Any, ...]) -> Callable[[Any], bool | None]:
    present = [constant for constant in constants if constant is not None]
    absent = None if len(present) < len(constants) else False

    def rule(value: Any) -> bool | None:
        for constant in present:
            if _equal(value, constant):
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
    raise WrongError(f"it takes strings, not {type_of(value)}; cast it first")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, bytes) else len(_text(value))


def _not(value: Any) -> bool:
    if value is True or value is False:
        return not value
    raise WrongError(f"it takes booleans, not {type_of(value)}")


_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")


def cast_value(value: Any, type_name: str) -> Any:
    """Returns the value, which is not None, as that type; None if it has no such form."""
    if type_name not in CASTS:
        raise WrongError(f"no type is called {type_name}")
    return CASTS[type_name](value)


def _as_double(value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return _double(_number(value))
    text = value.strip(SPACES)
    number = float(text) if _DECIMAL.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


def _as_string(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    number = _number(value)
    try:
        return repr(number)
    except ValueError:
        raise WrongError(f"a whole number {_digits(number)} is too long for a string") from None


def _as_boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip(SPACES).lower())
    return _number(value) != 0


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


CASTS: dict[str, Callable[[Any], Any]] = {
    "long": lambda value: _cast_integer(value, LOWEST, HIGHEST),
    "int": lambda value: _cast_integer(value, -(1 << 31), (1 << 31) - 1),
    "double": _as_double,
    "string": _as_string,
    "boolean": _as_boolean,
}


def type_of(value: Any) -> str:
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


UNARY: dict[str, Callable[[Any], Any]] = {
    "negate": _signed(operator.neg),
    "abs": _signed(abs),
    "floor": _towards(math.floor),
    "ceil": _towards(math.ceil),
    "not": _not,
    "upper": lambda value: _text(value).upper(),
    "lower": lambda value: _text(value).lower(),
    "strip": lambda value: _text(value).strip(SPACES),
    "length": _length,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": _add,
    "subtract": _arithmetic(operator.sub),
    "multiply": _arithmetic(operator.mul),
    "divide": _divide,
    "floor_divide": _unless_zero(operator.floordiv),
    "modulo": _unless_zero(operator.mod),
    "equal": _equal,
    "not_equal": _comparison(operator.ne, ordered=False),
    "less": less,
    "less_equal": _comparison(operator.le, ordered=True),
    "greater": greater,
    "greater_equal": _comparison(operator.ge, ordered=True),
    "contains": lambda value, text: _text(text) in _text(value),
    "starts_with": lambda value, text: _text(value).startswith(_text(text)),
    "ends_with": lambda value, text: _text(value).endswith(_text(text)),
}
WITH_OPTIONS: dict[str, Callable[..., Any]] = {
    "round": _round,
    "substring": lambda value, start, length: _text(value)[start : None if length is None else start + length],
    "replace": lambda value, old, new: _text(value).replace(old, new),
}
