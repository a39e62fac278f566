"""Evaluates expressions on Python values. An expression is compiled to one Python function, once.

With the rules of `rules.py` this is the reference: `on_arrow.py` must give the same for whole columns, and gives rows
to this module where it meets an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from suiro.errors import UsageError
from suiro.streams.expressions.expression import (
    _ROOTS,
    _SIGNS,
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
from suiro.streams.expressions.rules import (
    BINARY,
    CASTS,
    HIGHEST,
    LOWEST,
    PLAIN,
    UNARY,
    WITH_OPTIONS,
    WrongError,
    greater,
    less,
    membership,
    type_of,
)
from suiro.streams.records import Windowed

_PARAMETERS: dict[CallableKind, tuple[RootName, ...]] = {
    "key_value": ("key", "value"),
    "value": ("value",),
    "left_right": ("left", "right"),
    "key_value_aggregate": ("key", "value", "aggregate"),
    "record": ("key", "value", "timestamp"),
}


def callable_of(expression: Expression, kind: CallableKind) -> Callable[..., Any]:
    """A callable with the parameters of that kind."""
    if kind not in _PARAMETERS:
        raise UsageError(f"no callable is of kind {kind!r}; kinds are {', '.join(_PARAMETERS)}")
    return compile_expression(expression, _PARAMETERS[kind])


@lru_cache(256)
def compile_expression(expression: Expression, parameters: tuple[RootName, ...]) -> Callable[..., Any]:
    """A callable with these positional parameters. Raises UsageError where the expression needs others."""
    require_roots(expression, parameters)
    names: dict[str, Any] = dict(_HELPERS)
    made: Callable[..., Any] = names[_Function(names, parameters).write(expression)]
    return made


def require_roots(expression: Expression, parameters: tuple[RootName, ...]) -> None:
    """Raises UsageError where the expression needs others."""
    missing = [_ROOTS[name] for name in sorted(expression.roots().difference(parameters))]
    if missing:
        known = ", ".join(_ROOTS[name] for name in parameters)
        raise UsageError(f"{expression!r} needs {' and '.join(missing)}, but here it is given only {known}")


class _Function:
    """The source of one Python function of an expression, whose parameters are the roots.

    Each node becomes some statements and a name, or a literal, that stands for its value. What a node is, what it holds
    and the rules are in `names`, the function's globals: no text of a user's becomes source, other than as `repr` of a
    string.
    """

    def __init__(self, names: dict[str, Any], parameters: tuple[RootName, ...]) -> None:
        self._names = names
        self._parameters = parameters
        self._lines: list[str] = []
        self._variables = 0

    def write(self, node: Expression) -> str:
        """Adds the function to `names` and returns its name."""
        result = self._value(node, 1)
        name = f"f{len(self._names)}"
        head = f"def {name}({', '.join(self._parameters)}):"
        source = "\n".join([head, *self._lines, f" return {result}"])
        exec(compile(source, "<expression>", "exec"), self._names)
        return name

    def _add(self, level: int, line: str) -> None:
        self._lines.append(" " * level + line)

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _bound(self, value: Any) -> str:
        name = f"_{len(self._names)}"
        self._names[name] = value
        return name

    def _value(self, node: Expression, level: int) -> str:
        match node:
            case Constant():
                return self._bound(node.constant)
            case Root():
                return node.name
        if level > _LEVELS:  # Python takes a hundred
            apart = _Function(self._names, self._parameters).write(node)
            return f"{apart}({', '.join(self._parameters)})"
        match node:
            case Field():
                base, found = self._once(node.base, level), self._variable()
                field = f"_field({self._bound(node)}, {base}, {node.name!r})"
                self._add(level, f"{found} = {base}.get({node.name!r}) if type({base}) is dict else {field}")
                return found
            case When():
                return self._when(node, level)
            case Struct():
                values = [self._value(value, level) for value in node.values]
                pairs = zip(node.names, values, strict=True)
                found = self._variable()
                fields = ", ".join(f"{name!r}: {value}" for name, value in pairs)
                self._add(level, f"{found} = {{{fields}}}")
                return found
            case Call():
                return self._call(node, level)
        raise TypeError(f"not a node of an expression: {node!r}")

    def _once(self, node: Expression, level: int) -> str:
        """Returns a name for the value, which may then stand in several places."""
        value = self._value(node, level)
        if value.isidentifier():
            return value
        found = self._variable()
        self._add(level, f"{found} = {value}")
        return found

    def _set(self, level: int, found: str, node: Expression) -> None:
        self._add(level, f"{found} = {self._value(node, level)}")

    def _when(self, node: When, level: int) -> str:
        found = self._variable()
        self._add(level, f"{found} = _UNDECIDED")
        for condition, value in node.branches:
            self._add(level, f"if {found} is _UNDECIDED:")
            holds = self._once(condition, level + 1)
            self._add(level + 1, f"if {holds} is True:")
            self._set(level + 2, found, value)
            self._add(level + 1, f"elif {holds} is not False and {holds} is not None:")
            self._add(level + 2, f"raise _no_condition({self._bound(node)}, {holds})")
        self._add(level, f"if {found} is _UNDECIDED:")
        self._set(level + 1, found, node.default)
        return found

    def _call(self, node: Call, level: int) -> str:
        first = self._once(node.arguments[0], level)
        match node.function:
            case "is_null":
                return f"({first} is None)"
            case "is_not_null":
                return f"({first} is not None)"
        found = self._variable()
        match node.function:
            case "and" | "or":
                self._logic(node, found, first, level)
            case "coalesce":
                self._add(level, f"{found} = {first}")
                for argument in node.arguments[1:]:
                    self._add(level, f"if {found} is None:")
                    self._set(level + 1, found, argument)
            case "least" | "greatest":
                values = [first, *(self._value(argument, level) for argument in node.arguments[1:])]
                self._add(level, f"{found} = _extreme({self._bound(node)}, ({', '.join(values)},))")
            case "concat":
                self._concat(node, found, first, level)
            case "is_in":
                self._strict(node, found, membership(node.options[0]), first, level)
            case "cast":
                self._strict(node, found, CASTS[node.options[0]], first, level)
            case "round" | "substring" | "replace":
                rule = WITH_OPTIONS[node.function]
                self._strict(node, found, lambda value: rule(value, *node.options), first, level)
            case _ if node.function in UNARY:
                self._strict(node, found, UNARY[node.function], first, level)
            case _:
                self._strict_pair(node, found, first, level)
        return found

    def _strict(self, node: Call, found: str, rule: Callable[[Any], Any], value: str, level: int) -> None:
        self._add(level, f"if {value} is None:")
        self._add(level + 1, f"{found} = None")
        self._add(level, "else:")
        self._rule(node, found, rule, value, level + 1)

    def _rule(self, node: Call, found: str, rule: Callable[..., Any], values: str, level: int) -> None:
        self._add(level, "try:")
        self._add(level + 1, f"{found} = {self._bound(rule)}({values})")
        self._add(level, "except WrongError as error:")
        self._add(level + 1, f"raise _wrong({self._bound(node)}, error) from None")

    def _strict_pair(self, node: Call, found: str, left: str, level: int) -> None:
        self._add(level, f"if {left} is None:")
        self._add(level + 1, f"{found} = None")
        self._add(level, "else:")
        right = self._once(node.arguments[1], level + 1)
        self._add(level + 1, f"if {right} is None:")
        self._add(level + 2, f"{found} = None")
        usual = self._usual(node, found, left, right)
        if usual is not None:
            kinds, result = usual
            self._add(level + 1, f"elif {kinds}:")
            self._add(level + 2, result)
        self._add(level + 1, "else:")
        self._rule(node, found, BINARY[node.function], f"{left}, {right}", level + 2)

    def _usual(self, node: Call, found: str, left: str, right: str) -> tuple[str, str] | None:
        """Returns a condition on the operands under which the rule does what Python's own operator does, and that
        statement; None if there is none. The rule handles all other operands."""
        sign = _SIGNS.get(node.function)
        if sign is None or node.function == "divide":  # by 0 it gives null
            return None
        first, second = (type(one.constant) if isinstance(one, Constant) else None for one in node.arguments)
        result = f"{found} = {left} {sign} {right}"
        if node.function in _COMPARISONS:
            if second is None:
                return f"type({left}) is type({right}) and type({left}) in PLAIN", result
            return (f"type({left}) is {second.__name__}", result) if second in PLAIN else None
        if sign in "+-*" and float in (first, second):
            one = left if second is float else right
            return f"type({one}) is float or (type({one}) is int and LOWEST <= {one} <= HIGHEST)", result
        if sign not in "+-*" and not (second is int and cast(Constant, node.arguments[1]).constant):
            return None  # perhaps 0
        kinds = f"type({left}) is int and type({right}) is int"
        return f"{kinds} and LOWEST <= ({found} := {left} {sign} {right}) <= HIGHEST", "pass"

    def _logic(self, node: Call, found: str, left: str, level: int) -> None:
        """`decisive` is the value that settles the result alone: false for `and`, true for `or`."""
        decisive = node.function == "or"
        self._add(level, f"if {left} is {decisive}:")
        self._add(level + 1, f"{found} = {decisive}")
        self._add(level, "else:")
        right = self._once(node.arguments[1], level + 1)
        self._add(level + 1, f"if {left} is {not decisive} and ({right} is True or {right} is False):")
        self._add(level + 2, f"{found} = {right}")
        self._add(level + 1, "else:")
        self._add(level + 2, f"{found} = _logic({self._bound(node)}, {left}, {right}, {decisive})")

    def _concat(self, node: Call, found: str, first: str, level: int) -> None:
        name = self._bound(node)
        self._add(level, f"{found} = {first} if {first} is None else _string({name}, {first})")
        for argument in node.arguments[1:]:
            self._add(level, f"if {found} is not None:")
            value = self._once(argument, level + 1)
            self._add(level + 1, f"if type({value}) is str:")
            self._add(level + 2, f"{found} += {value}")
            self._add(level + 1, "else:")
            self._add(level + 2, f"{found} = None if {value} is None else {found} + _string({name}, {value})")


def _wrong(node: Call, error: WrongError) -> ExpressionError:
    return ExpressionError(repr(node), str(error))


def _field(node: Field, value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, Windowed):
        return getattr(value, name) if name in ("key", "start", "end") else None
    raise ExpressionError(repr(node), f"{type_of(value)} has no fields")


def _no_condition(node: When, holds: Any) -> ExpressionError:
    return ExpressionError(repr(node), f"a condition is true, false or null, not {type_of(holds)}")


def _logic(node: Call, first: bool | None, second: bool | None, decisive: bool) -> bool | None:
    for operand in (first, second):
        if operand is not True and operand is not False and operand is not None:
            raise ExpressionError(repr(node), f"it takes booleans, not {type_of(operand)}")
    if second is decisive:
        return decisive
    return None if first is None or second is None else not decisive


def _string(node: Call, value: Any) -> str:
    if not isinstance(value, str):
        raise ExpressionError(repr(node), f"it takes strings, not {type_of(value)}; cast it first")
    return "".join((value,))


def _extreme(node: Call, values: tuple[Any, ...]) -> Any:
    better = less if node.function == "least" else greater
    best = None
    try:
        for value in values:
            if value is None:
                continue
            if best is None or best != best:
                better(value, value if best is None else best)  # the types must agree, whatever the result
                if best is None or value == value:
                    best = value
            elif better(value, best):
                best = value
    except WrongError as error:
        raise _wrong(node, error) from None
    return best


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_UNDECIDED = object()
_LEVELS = 40
_HELPERS = {each.__name__: each for each in (WrongError, _extreme, _field, _logic, _no_condition, _string, _wrong)} | {
    "HIGHEST": HIGHEST,
    "LOWEST": LOWEST,
    "PLAIN": PLAIN,
    "_UNDECIDED": _UNDECIDED,
}
"""The first globals of each function."""
