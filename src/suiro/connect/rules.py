"""Rules in text, such as `mean_delay > 15 and carrier != 'XX'`, as column expressions of `suiro.streams`.

A rule has Python's syntax for comparisons, `and`, `or`, `not`, `in [...]`, arithmetic, and the methods of expressions
(`name.starts_with('A')`, `gate.is_null()`). A name is a field of the value, `a.b` a field of a field; `record_key()`
and `record_timestamp()` are functions. Nulls work as in expressions: a comparison with null is null, and only true is
true. No other syntax is accepted, so a rule can only compare.

The cost of a rule is checked when it is read, so records pay nothing for the check, and a rule fails at the start or
never. The cost is the number of steps (a part that is written once and computed twice counts twice, as in
`a < b < c`), the growth of a text compared with the record's own, and the amount of text that is made in all. It is an
upper bound: the length of a text is at most `factor` times the texts of the record, plus `chars`. A function that
returns no text returns a value of a few characters. A function of a text costs the length that it produces or searches.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.errors import UsageError
from suiro.foundation.settings import SettingError
from suiro.streams.expressions import expression as expressions
from suiro.streams.expressions.expression import Call, Constant, Expression, Field, Root

MAX_RULE_CHARS = 10_000
MAX_RULE_STEPS = 10_000
MAX_TEXT_GROWTH = 32  # of one text, as a multiple of the record's: limits the memory
# Of all texts that a rule makes or searches, as a multiple of the record's: limits the time.
MAX_TEXT_WORK = 2_000
MAX_CONSTANT_CHARS = 1_000_000  # of texts that are made of the rule's own constants

NUMBER_CHARS = 25  # of a 64-bit number, a double or a boolean that is cast to text
CASE_GROWTH = 3  # a letter has up to three in the other case

_JOINING = frozenset({"add", "concat"})
_CHOOSING = frozenset({"coalesce", "least", "greatest"})
_SEARCHING = frozenset({"contains", "starts_with", "ends_with"})
_COPYING = frozenset({"strip", "substring", "cast"})

Rule = Callable[[Any, Any, int], bool]

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS = ("record_key", "record_timestamp", "coalesce", "least", "greatest", "abs", "round")
_METHODS = (
    "abs", "round", "floor", "ceil", "between", "is_in", "is_null", "is_not_null", "upper", "lower", "strip", "length",
    "contains", "starts_with", "ends_with", "substring", "replace", "cast",
)  # fmt: skip


def rule(key: str, text: str) -> Rule:
    """Returns a function of value, key and timestamp (ms). Raises `SettingError` for the setting `key`."""
    compiled = rule_expression(key, text).as_callable("record")

    def holds(value: Any, record_key: Any, timestamp_ms: int) -> bool:
        return compiled(record_key, value, timestamp_ms) is True

    return holds


def rule_expression(key: str, text: str) -> Expression:
    """Returns the expression of a rule, which can be compiled. Raises `SettingError` for the setting `key`."""
    if len(text) > MAX_RULE_CHARS:
        raise SettingError(key, f"a rule has at most {MAX_RULE_CHARS} characters, this one has {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        made: Expression = _expression(_Reader().read(tree.body))
        made.as_callable("record")
    except SyntaxError as error:
        raise SettingError(key, f"{text!r} is not a rule: {error.msg}") from None
    except (ValueError, TypeError, AttributeError, UsageError) as error:
        raise SettingError(key, f"{text!r} is not a rule: {error}") from None
    except (RecursionError, MemoryError):
        raise SettingError(key, "the rule is nested too deep") from None
    return made


class _Reader:
    """Builds the expression of a rule and adds up its cost meanwhile. A tree beyond the limits is not described in the
    message, which would take as long as computing it."""

    def __init__(self) -> None:
        self._costs: dict[int, tuple[Any, Cost]] = {}  # by id; the node in it keeps the id from being reused

    def read(self, node: ast.expr) -> Any:
        made = self._built(node)
        if isinstance(made, Expression):
            self._cost(made).check()
        return made

    def _cost(self, node: Any) -> Cost:
        known = self._costs.get(id(node))
        if known is None:
            known = self._costs[id(node)] = (node, cost_of(node, [self._cost(of) for of in node.children()]))
        return known[1]

    def _built(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | int() | float() | bool() | None):
                return node.value
            case ast.Name():
                return expressions.col(node.id)
            case ast.Attribute():
                return _expression(self.read(node.value)).field(node.attr)
            case ast.List() | ast.Tuple():
                return [self.read(item) for item in node.elts]
            case ast.BoolOp():
                parts = [_expression(self.read(item)) for item in node.values]
                made = parts[0]
                for part in parts[1:]:
                    made = made & part if isinstance(node.op, ast.And) else made | part
                return made
            case ast.UnaryOp(op=ast.Not()):
                return ~_expression(self.read(node.operand))
            case ast.UnaryOp(op=ast.USub()):
                return -self.read(node.operand)
            case ast.BinOp() if type(node.op) in _ARITHMETIC:
                # Even for two constants: Python itself would compute `"x" * 10**10` here.
                return _ARITHMETIC[type(node.op)](_expression(self.read(node.left)), self.read(node.right))
            case ast.Compare():
                return self._compared(node)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
                return self._called(name, [self.read(item) for item in node.args])
            case ast.Call(func=ast.Attribute(value=of, attr=name), keywords=[]) if name in _METHODS:
                return getattr(_expression(self.read(of)), name)(*(self.read(item) for item in node.args))
        raise ValueError(f"{ast.unparse(node)!r} is not allowed in a rule")

    @staticmethod
    def _called(name: str, arguments: list[Any]) -> Any:
        if name in ("abs", "round"):
            return getattr(_expression(arguments[0]), name)(*arguments[1:])
        return getattr(expressions, name)(*arguments)

    def _compared(self, node: ast.Compare) -> Any:
        left = self.read(node.left)
        made: Any = None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.read(right_node)
            if type(op) in _COMPARE:
                part = _COMPARE[type(op)](_expression(left), right)
            elif isinstance(op, ast.In):
                part = _expression(left).is_in(right)
            elif isinstance(op, ast.NotIn):
                part = ~_expression(left).is_in(right)
            else:
                raise ValueError("compare with null by .is_null() or .is_not_null()")
            made = part if made is None else made & part
            left = right
        return made


def _expression(made: Any) -> Any:
    return made if isinstance(made, Expression) else expressions.lit(made)


@dataclass(frozen=True, slots=True)
class Cost:
    """The number of steps; `factor` and `chars` of the value; `work_factor` and `work_chars` of all texts made."""

    steps: int
    factor: int = 0
    chars: int = NUMBER_CHARS
    work_factor: int = 0
    work_chars: int = 0

    def check(self) -> None:
        if self.steps > MAX_RULE_STEPS:
            raise ValueError(f"it takes more than {MAX_RULE_STEPS} steps for a record; write fewer comparisons")
        if self.factor > MAX_TEXT_GROWTH:
            raise ValueError(
                f"a text in it may become more than {MAX_TEXT_GROWTH} times as long as the record's; "
                "use fewer or shorter replacements"
            )
        if self.work_factor > MAX_TEXT_WORK:
            raise ValueError(
                f"its texts may together become more than {MAX_TEXT_WORK} times as long as the record's; "
                "use fewer functions of texts"
            )
        if max(self.chars, self.work_chars) > MAX_CONSTANT_CHARS:
            raise ValueError(f"its constants may grow to more than {MAX_CONSTANT_CHARS} characters")


def cost_of(node: Expression, below: Sequence[Cost]) -> Cost:
    """Returns the cost of a node. `below`: the costs of its children; a child that occurs twice costs twice."""
    steps = 1 + sum(one.steps for one in below)
    work_factor = sum(one.work_factor for one in below)
    work_chars = sum(one.work_chars for one in below)
    match node:
        case Constant():
            return Cost(steps, 0, _length(node.constant))
        case Root() | Field():
            return Cost(steps, 1, NUMBER_CHARS, work_factor, work_chars)
        case Call():
            pass
        case _:
            raise ValueError(f"{type(node).__name__} is not allowed in a rule")
    steps += sum(len(option) for option in node.options if isinstance(option, tuple))
    factor, chars = sum(one.factor for one in below), sum(one.chars for one in below)
    if node.function in _CHOOSING:
        factor, chars = max(one.factor for one in below), max(one.chars for one in below)
    elif node.function == "replace":
        old, new = node.options
        times = max(1, -(-len(new) // len(old)))
        factor, chars = factor * times, chars * times
    elif node.function in ("upper", "lower"):
        factor, chars = factor * CASE_GROWTH, chars * CASE_GROWTH
    elif node.function in _SEARCHING:
        return Cost(steps, 0, NUMBER_CHARS, work_factor + factor, work_chars + chars)
    elif node.function not in _JOINING and node.function not in _COPYING:
        return Cost(steps, 0, NUMBER_CHARS, work_factor, work_chars)
    return Cost(steps, factor, max(chars, NUMBER_CHARS), work_factor + factor, work_chars + chars)


def _length(constant: Any) -> int:
    return len(constant) if isinstance(constant, str | bytes) else NUMBER_CHARS
