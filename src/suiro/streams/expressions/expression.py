"""Column expressions: a computation as data. `col("amount") > 0` is a tree and computes nothing.

A tree has two evaluators that agree on every value: Python values (`on_python.py`; `evaluate` and
`as_callable` here) and Arrow columns (`on_arrow.py`). The rules for null, overflow, division and
types are on one page, docs/reference/expressions.md.

Expressions are immutable and picklable. `==` builds an expression, so two of them are compared by `same_as`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal, NoReturn, TypeAlias

from suiro.errors import UsageError

Operand: TypeAlias = "Expression | bool | int | float | str | bytes | None"
RootName = Literal["key", "value", "timestamp", "left", "right", "aggregate"]
CallableKind = Literal["key_value", "value", "left_right", "key_value_aggregate", "record"]
CastType = Literal["long", "int", "double", "string", "boolean"]

_ROOTS = {
    "key": "record_key()",
    "value": "record_value()",
    "timestamp": "record_timestamp()",
    "left": "left()",
    "right": "right()",
    "aggregate": "aggregate()",
}
_SIGNS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "modulo": "%",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "and": "&",
    "or": "|",
}


class ExpressionError(UsageError):
    """An expression met a value that it cannot take: a wrong type, or a whole number beyond 64 bits."""

    def __init__(self, expression: str, reason: str) -> None:
        super().__init__(expression, reason)
        self.expression = expression
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.expression}: {self.reason}"


def _binary(function: str) -> Callable[[Expression, Operand], Expression]:
    """Makes the method of an operator whose left operand is an expression."""

    def method(self: Expression, other: Operand) -> Expression:
        return Call(function, (self, _node(other)))

    return method


def _reflected(function: str) -> Callable[[Expression, Operand], Expression]:
    """Makes the method of an operator of which only the right operand is an expression."""

    def method(self: Expression, other: Operand) -> Expression:
        return Call(function, (_node(other), self))

    return method


class Expression:
    """A node of a tree. Build one with `col` and the other functions of this module, then with operators."""

    __slots__ = ()

    def evaluate(
        self,
        *,
        key: Any = None,
        value: Any = None,
        timestamp: int | None = None,
        left: Any = None,
        right: Any = None,
        aggregate: Any = None,
    ) -> Any:
        """Its value for one record. Compiles the tree each time; for many records use `as_callable`.

        Raises ExpressionError.
        """
        from suiro.streams.expressions.on_python import compile_expression

        names: tuple[RootName, ...] = ("key", "value", "timestamp", "left", "right", "aggregate")
        return compile_expression(self, names)(key, value, timestamp, left, right, aggregate)

    def as_callable(self, kind: CallableKind) -> Callable[..., Any]:
        """A Python callable with the parameters that `kind` names; "record" is (key, value, timestamp).

        Raises UsageError if the expression needs something that such a callable does not get.
        """
        from suiro.streams.expressions.on_python import callable_of

        return callable_of(self, kind)

    def describe(self) -> str:
        """The expression as text: Python that builds it again."""
        return repr(self)

    def same_as(self, other: object) -> bool:
        """Whether both are the same tree; 1, 1.0 and True differ."""
        return isinstance(other, Expression) and repr(self) == repr(other)

    def children(self) -> tuple[Expression, ...]:
        """The nodes right below."""
        return ()

    def roots(self) -> frozenset[RootName]:
        """The parts of a record that it reads."""
        found: set[RootName] = set()
        pending: list[Expression] = [self]
        while pending:
            node = pending.pop()
            if isinstance(node, Root):
                found.add(node.name)
            pending.extend(node.children())
        return frozenset(found)

    def fields(self, root: RootName = "value") -> frozenset[str] | None:
        """The fields of a root that it reads; None means that it needs the whole."""
        found: set[str] = set()
        pending: list[Expression] = [self]
        while pending:
            node = pending.pop()
            if isinstance(node, Root) and node.name == root:
                return None
            if isinstance(node, Field) and isinstance(node.base, Root):
                if node.base.name == root:
                    found.add(node.name)
            else:
                pending.extend(node.children())
        return frozenset(found)

    # Fields

    def field(self, name: str) -> Expression:
        """A field of a struct; null where the struct is null or has no such field. Dots are part of the name."""
        if not isinstance(name, str):
            raise TypeError(f"a field's name is a str, not {name!r}")
        return Field(self, name)

    def __getitem__(self, name: str) -> Expression:
        return self.field(name)

    # Arithmetic

    __add__ = _binary("add")
    __radd__ = _reflected("add")
    __sub__ = _binary("subtract")
    __rsub__ = _reflected("subtract")
    __mul__ = _binary("multiply")
    __rmul__ = _reflected("multiply")
    __truediv__ = _binary("divide")
    __rtruediv__ = _reflected("divide")
    __floordiv__ = _binary("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __mod__ = _binary("modulo")
    __rmod__ = _reflected("modulo")

    def __neg__(self) -> Expression:
        return Call("negate", (self,))

    def __abs__(self) -> Expression:
        return self.abs()

    def __round__(self, digits: int = 0) -> Expression:
        return self.round(digits)

    def __floor__(self) -> Expression:
        return self.floor()

    def __ceil__(self) -> Expression:
        return self.ceil()

    def abs(self) -> Expression:
        """Without its sign."""
        return Call("abs", (self,))

    def round(self, digits: int = 0) -> Expression:
        """Rounded to 0 to 15 decimal digits, ties to the even neighbour. Keeps the type."""
        if isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= 15:
            raise UsageError(f"round() takes 0 to 15 digits, not {digits!r}")
        return Call("round", (self,), (digits,))

    def floor(self) -> Expression:
        """The next whole number below. Keeps the type; `.floor().cast("long")` gives a long."""
        return Call("floor", (self,))

    def ceil(self) -> Expression:
        """The next whole number above. Keeps the type."""
        return Call("ceil", (self,))

    # Comparison

    __eq__ = _binary("equal")  # type: ignore[assignment]
    __ne__ = _binary("not_equal")  # type: ignore[assignment]
    __lt__ = _binary("less")
    __le__ = _binary("less_equal")
    __gt__ = _binary("greater")
    __ge__ = _binary("greater_equal")
    __hash__ = object.__hash__

    def is_null(self) -> Expression:
        """True or false, never null. NaN is not null."""
        return Call("is_null", (self,))

    def is_not_null(self) -> Expression:
        """True or false, never null."""
        return Call("is_not_null", (self,))

    def is_in(self, values: Iterable[bool | int | float | str | bytes | None]) -> Expression:
        """Whether it is one of these constants, which are all numbers, all strings, all booleans or all bytes."""
        constants = tuple(values)
        kinds = {_kind(constant) for constant in constants if constant is not None}
        if len(kinds) > 1:
            raise UsageError(f"is_in() takes constants of one kind, not of {' and '.join(sorted(kinds))}")
        return Call("is_in", (self,), (constants,))

    def between(self, low: Operand, high: Operand) -> Expression:
        """From `low` to `high`, both included."""
        return (self >= low) & (self <= high)

    # Boolean

    __and__ = _binary("and")
    __rand__ = _reflected("and")
    __or__ = _binary("or")
    __ror__ = _reflected("or")

    def __invert__(self) -> Expression:
        return Call("not", (self,))

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the expression {self!r} has no truth value before there are records: write & for `and`, | for `or`, "
            "~ for `not` (with parentheses around comparisons), when(...) for `if`, between(a, b) for `a <= x <= b`"
        )

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"the expression {self!r} cannot be iterated")

    def __contains__(self, item: object) -> bool:
        raise TypeError("`in` cannot build an expression: use .contains(text) or .is_in([...])")

    # Strings

    def upper(self) -> Expression:
        """In capitals, as `str.upper`."""
        return Call("upper", (self,))

    def lower(self) -> Expression:
        """In small letters, as `str.lower`."""
        return Call("lower", (self,))

    def strip(self) -> Expression:
        """Without spaces, tabs and line breaks at both ends (ASCII ones)."""
        return Call("strip", (self,))

    def length(self) -> Expression:
        """Code points of a string, bytes of bytes."""
        return Call("length", (self,))

    def contains(self, text: Operand) -> Expression:
        """Whether `text` is in it."""
        return Call("contains", (self, _node(text)))

    def starts_with(self, text: Operand) -> Expression:
        """Whether it starts with `text`."""
        return Call("starts_with", (self, _node(text)))

    def ends_with(self, text: Operand) -> Expression:
        """Whether it ends with `text`."""
        return Call("ends_with", (self, _node(text)))

    def substring(self, start: int, length: int | None = None) -> Expression:
        """`length` code points from `start`, which counts from 0; fewer where the string ends."""
        for number in (start, 0 if length is None else length):
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 1 << 31:
                raise UsageError(f"substring() takes a start and a length of 0 or more, not {number!r}")
        return Call("substring", (self,), (start, length))

    def replace(self, old: str, new: str) -> Expression:
        """Every `old` replaced."""
        if not isinstance(old, str) or not isinstance(new, str) or not old:
            raise UsageError(f"replace() takes two str, the first not empty; not {old!r} and {new!r}")
        return Call("replace", (self,), (old, new))

    def concat(self, *others: Operand) -> Expression:
        """The strings joined; null where one of them is null."""
        return Call("concat", (self, *map(_node, others)))

    # Types

    def cast(self, type_name: CastType) -> Expression:
        """As another type; null where the value has no such form."""
        if type_name not in ("long", "int", "double", "string", "boolean"):
            raise UsageError(f'cast() takes "long", "int", "double", "string" or "boolean", not {type_name!r}')
        return Call("cast", (self,), (type_name,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expression):
    """The same for every record: None, bool, int, float, str or bytes."""

    constant: bool | int | float | str | bytes | None

    def __repr__(self) -> str:
        return f"lit({_text_of(self.constant)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Root(Expression):
    """A part of the record, or a parameter of a two- or three-argument callable."""

    name: RootName

    def __repr__(self) -> str:
        return _ROOTS[self.name]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Field(Expression):
    """A field of a struct."""

    base: Expression
    name: str

    def children(self) -> tuple[Expression, ...]:
        return (self.base,)

    def __repr__(self) -> str:
        if isinstance(self.base, Root) and "." not in self.name:
            if self.base.name == "value":
                return f"col({self.name!r})"
            if self.base.name in ("left", "right"):
                return f"{self.base.name}({self.name!r})"
        return f"{self.base!r}[{self.name!r}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expression):
    """A function of other expressions and of fixed `options`."""

    function: str
    arguments: tuple[Expression, ...]
    options: tuple[Any, ...] = ()

    def children(self) -> tuple[Expression, ...]:
        return self.arguments

    def __repr__(self) -> str:
        sign = _SIGNS.get(self.function)
        if sign is not None:
            first, second = self.arguments
            if isinstance(first, Constant) and not isinstance(second, Constant) and sign[0] not in "=!<>":
                if sign == "%" and isinstance(first.constant, str | bytes):  # plain it would be formatting
                    return f"({first!r} {sign} {second!r})"
                return f"({_text_of(first.constant)} {sign} {second!r})"
            if isinstance(second, Constant):
                return f"({first!r} {sign} {_text_of(second.constant)})"
            return f"({first!r} {sign} {second!r})"
        if self.function in ("coalesce", "least", "greatest"):
            return f"{self.function}({', '.join(map(repr, self.arguments))})"
        first, *others = self.arguments
        if self.function == "negate":
            return f"(-{first!r})"
        if self.function == "not":
            return f"(~{first!r})"
        options = [
            f"[{', '.join(map(_text_of, option))}]" if isinstance(option, tuple) else repr(option)
            for option in self.options
        ]
        return f"{first!r}.{self.function}({', '.join([*map(repr, others), *options])})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class When(Expression):
    """The value of the first branch whose condition is true; null without `otherwise`."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression = Constant(None)

    def when(self, condition: Operand, value: Operand) -> When:
        """A further branch."""
        return When((*self.branches, (_node(condition), _node(value))), self.default)

    def otherwise(self, value: Operand) -> Expression:
        """What it is where no condition is true."""
        return When(self.branches, _node(value))

    def children(self) -> tuple[Expression, ...]:
        return (*(node for branch in self.branches for node in branch), self.default)

    def __repr__(self) -> str:
        text = ".".join(f"when({condition!r}, {value!r})" for condition, value in self.branches)
        if isinstance(self.default, Constant) and self.default.constant is None:
            return text
        return f"{text}.otherwise({self.default!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Struct(Expression):
    """A dict made of named expressions."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        return self.values

    def __repr__(self) -> str:
        pairs = list(zip(self.names, self.values, strict=True))
        if all(name.isidentifier() for name in self.names):
            return f"struct({', '.join(f'{name}={value!r}' for name, value in pairs)})"
        inner = ", ".join(f"{name!r}: {value!r}" for name, value in pairs)
        return f"struct(**{{{inner}}})"


def col(name: str) -> Expression:
    """A field of the record's value. Dots lead into nested structs: col("a.b") is col("a")["b"]."""
    return _path(Root("value"), name)


def record_key() -> Expression:
    """The record's key."""
    return Root("key")


def record_value() -> Expression:
    """The record's whole value."""
    return Root("value")


def record_timestamp() -> Expression:
    """The record's event time, ms since the epoch."""
    return Root("timestamp")


def left(name: str | None = None) -> Expression:
    """The first value of a joiner or reducer, or a field of it."""
    return Root("left") if name is None else _path(Root("left"), name)


def right(name: str | None = None) -> Expression:
    """The second value of a joiner or reducer, or a field of it."""
    return Root("right") if name is None else _path(Root("right"), name)


def aggregate() -> Expression:
    """The aggregate so far, in an aggregator; `record_key()`, `record_value()` and `col` are of the new record."""
    return Root("aggregate")


def lit(value: bool | int | float | str | bytes | None) -> Expression:
    """A constant. Operators take plain constants too; use `lit` where an expression is needed."""
    return _node(value)


def coalesce(*values: Operand) -> Expression:
    """The first that is not null."""
    return Call("coalesce", _some("coalesce", values))


def least(*values: Operand) -> Expression:
    """The smallest that is not null; NaN only where there is nothing else."""
    return Call("least", _some("least", values))


def greatest(*values: Operand) -> Expression:
    """The largest that is not null; NaN only where there is nothing else."""
    return Call("greatest", _some("greatest", values))


def concat(*values: Operand) -> Expression:
    """The strings joined; null where one of them is null."""
    return Call("concat", _some("concat", values))


def when(condition: Operand, value: Operand) -> When:
    """`when(a, x).when(b, y).otherwise(z)`: x where a is true, y where b is, else z, or null without z."""
    return When(((_node(condition), _node(value)),))


def struct(**values: Operand) -> Expression:
    """A dict with these fields."""
    return Struct(tuple(values), tuple(map(_node, values.values())))


def hour_of(timestamp: Operand) -> Expression:
    """The hour of the day in UTC, 0 to 23, of a time in ms since the epoch."""
    return _node(timestamp) // 3_600_000 % 24


def day_of(timestamp: Operand) -> Expression:
    """Days since 1970-01-01 in UTC of a time in ms since the epoch."""
    return _node(timestamp) // 86_400_000


def _node(value: object) -> Expression:
    if isinstance(value, Expression):
        return value
    _kind(value)
    return Constant(value)  # type: ignore[arg-type]


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            if -(1 << 63) <= value < 1 << 63:
                return "number"
            raise UsageError(f"the constant {value} does not fit into 64 bits; expressions count in int64")
        case float():
            return "number"
        case str():
            return "string"
        case bytes():
            return "bytes"
    raise UsageError(
        f"an expression takes None, bool, int, float, str, bytes or an expression, not {type(value).__name__}; "
        "use struct(...) for a dict, or a Python callable instead of the expression"
    )


def _path(root: Expression, name: str) -> Expression:
    if not isinstance(name, str) or not all(name.split(".")):
        raise UsageError(f'a field is named by text such as "a" or "a.b", not {name!r}')
    for part in name.split("."):
        root = root.field(part)
    return root


def _some(function: str, values: tuple[Operand, ...]) -> tuple[Expression, ...]:
    if not values:
        raise UsageError(f"{function}() needs at least one value")
    return tuple(map(_node, values))


def _text_of(constant: Any) -> str:
    if isinstance(constant, float) and (isnan(constant) or constant in (float("inf"), float("-inf"))):
        return f'float("{constant}")'
    return repr(constant)
