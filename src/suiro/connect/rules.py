"""Rules in text, such as `mean_delay > 15 and carrier != 'XX'`, as column expressions of `suiro.streams`.

A rule has Python's syntax for comparisons, `and`, `or`, `not`, `in [...]`, arithmetic, and the methods of expressions
(`name.starts_with('A')`, `gate.is_null()`). A name is a field of the value, `a.b` a field of a field; `record_key()`
and `record_timestamp()` are functions. Nulls work as in expressions: a comparison with null is null, and only true is
true. No other syntax is accepted, so a rule can only compare.

The cost of a rule is checked when it is read, so records pay nothing for the check, and a rule fails at the start or
never. The cost is the number of steps (a part that is written once and computed twice counts twice, as in
`a < b < c`), the growth of a text compared with the record's own, and the amount of text that is made in all.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from suiro.connect.rule_costs import Cost, cost_of
from suiro.errors import UsageError
from suiro.foundation.settings import SettingError
from suiro.streams.expressions import expression as expressions

MAX_RULE_CHARS = 10_000

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


def rule_expression(key: str, text: str) -> expressions.Expression:
    """Returns the expression of a rule, which can be compiled. Raises `SettingError` for the setting `key`."""
    if len(text) > MAX_RULE_CHARS:
        raise SettingError(key, f"a rule has at most {MAX_RULE_CHARS} characters, this one has {len(text)}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        made: expressions.Expression = _expression(_Reader().read(tree.body))
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
        if isinstance(made, expressions.Expression):
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
    return made if isinstance(made, expressions.Expression) else expressions.lit(made)
