"""Expressions: what they say of themselves, and the rules of docs/reference/expressions.md one by one."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from suiro.errors import UsageError
from suiro.streams.expressions import expression as e
from suiro.streams.expressions.expression import Expression, ExpressionError, col, lit, struct, when
from suiro.streams.expressions.on_arrow import evaluate, result_type
from suiro.streams.records import Windowed

HIGHEST = (1 << 63) - 1
X = col("x")

RULES: list[tuple[Expression, Any, Any]] = [
    # Null
    (X + 1, None, None),
    (X == None, 1, None),  # noqa: E711
    (X.is_null(), None, True),
    (X.is_not_null(), None, False),
    (X.is_null(), math.nan, False),
    ((X == 1) & lit(False), None, False),
    ((X == 1) | lit(True), None, True),
    ((X == 1) & lit(True), None, None),
    ((X == 1) | lit(False), None, None),
    (~(X == 1), None, None),
    (when(X == 1, "a"), None, None),
    (when(X == 1, "a").when(X == 2, "b").otherwise("c"), 2, "b"),
    (when(X == 1, "a").when(X == 2, "b").otherwise("c"), None, "c"),
    (e.coalesce(X, 7), None, 7),
    (e.least(X, 7, None), None, 7),
    (e.greatest(X, 7), 9, 9),
    (e.least(X, None), None, None),
    (e.least(X, 1.0), math.nan, 1.0),
    (X.is_in([1, None]), 1, True),
    (X.is_in([1, None]), 2, None),
    (X.is_in([1, None]), None, None),
    (X.is_in([1]), 2, False),
    (X.is_in([]), 2, False),
    (X.is_in([1.0, 2.5]), 1, True),
    (X.is_in([1, 2]), 1.0, True),
    (X.concat("b", None), "a", None),
    (struct(a=X, b=1), None, {"a": None, "b": 1}),
    # Numbers
    (X / 2, 3, 1.5),
    (X / 0, 3, None),
    (X // 0, 3, None),
    (X % 0.0, 3, None),
    (X // 2, -7, -4),
    (X % 2, -7, 1),
    (X // 2, -7.0, -4.0),
    (X + 0.5, 1, 1.5),
    (1 - X, 3, -2),
    (X == 9007199254740992.0, 9007199254740993, True),
    (round(X), 2.5, 2.0),
    (round(X, 1), 0.25, 0.2),
    (round(X, 2), 7, 7),
    (math.floor(X), -1.5, -2.0),  # type: ignore[arg-type]
    (math.ceil(X), -1.5, -1.0),  # type: ignore[arg-type]
    (abs(X), -3, 3),
    (X == X, math.nan, False),
    (X != X, math.nan, True),
    (X.between(1, 3), 3, True),
    # Strings
    (X.upper(), "ß", "SS"),
    (X.strip(), "\t a\u00a0\n", "a\u00a0"),
    (X.length(), "\U0001f600é", 2),
    (X.length(), b"abc", 3),
    (X.substring(1, 2), "abcd", "bc"),
    (X.substring(3), "ab", ""),
    (X.replace("aa", "b"), "aaa", "ba"),
    (X.contains(""), "a", True),
    (X.starts_with("a") & X.ends_with("c"), "abc", True),
    (X < "\U0001f600", "\uffff", True),
    (X + "b", "a", "ab"),
    # Types
    (X.cast("long"), -1.9, -1),
    (X.cast("long"), math.nan, None),
    (X.cast("long"), 9.3e18, None),
    (X.cast("long"), " +5 ", 5),
    (X.cast("long"), "5.0", None),
    (X.cast("int"), 1 << 31, None),
    (X.cast("int"), True, 1),
    (X.cast("double"), "1e3", 1000.0),
    (X.cast("double"), "nan", None),
    (X.cast("double"), "1e999", None),
    (X.cast("string"), 1.0, "1.0"),
    (X.cast("string"), False, "false"),
    (X.cast("boolean"), " True", True),
    (X.cast("boolean"), "yes", None),
    (X.cast("boolean"), 0, False),
    # Time
    (e.hour_of(X), 86_400_000 + 3 * 3_600_000 + 1, 3),
    (e.day_of(X), -1, -1),
]


@pytest.mark.parametrize(("tree", "x", "wanted"), RULES, ids=lambda value: repr(value))
def test_the_rule_holds_on_values_and_on_columns(tree: Expression, x: Any, wanted: Any) -> None:
    assert repr(tree.evaluate(value={"x": x})) == repr(wanted)
    column = pa.array([{"x": x}])
    if result_type(tree, column.type) is not None:
        assert repr(evaluate(tree, {"value": column}).to_pylist()) == repr([wanted])


WRONG: list[tuple[Expression, Any]] = [
    (X + 1, "a"),
    (X + 1, True),
    (X + "a", 1),
    (X == 1, "a"),
    (X == 1, True),
    (X < True, True),
    (X < 1, {"a": 1}),
    (X & True, 1),
    (~X, 1),
    (X.upper(), 1),
    (X.concat("a"), 1),
    (X.contains("a"), b"a"),
    (X.is_in([1]), "a"),
    (e.least(X, 1), "a"),
    (X["a"], 1),
    (when(X, 1), 1),
    (X.cast("string"), b"a"),
    (X.cast("double"), {"a": 1}),
    (X / 0, "a"),
    (X % 0, "a"),
]


@pytest.mark.parametrize(("tree", "x"), WRONG, ids=lambda value: repr(value))
def test_a_wrong_type_is_an_error_that_names_the_expression(tree: Expression, x: Any) -> None:
    with pytest.raises(ExpressionError) as caught:
        tree.evaluate(value={"x": x})
    assert "col('x')" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert result_type(tree, pa.array([{"x": x}]).type) is None


@pytest.mark.parametrize(
    ("tree", "x"),
    [
        (X + 1, HIGHEST),
        (X - 2, -HIGHEST),
        (X * X, 1 << 32),
        (-X, -HIGHEST - 1),
        (abs(X), -HIGHEST - 1),
        (X // -1, -HIGHEST - 1),
    ],
    ids=repr,
)
def test_overflow_is_an_error_unless_the_row_does_not_need_it(tree: Expression, x: int) -> None:
    with pytest.raises(ExpressionError, match="64 bits"):
        tree.evaluate(value={"x": x})
    column = pa.array([{"x": 1}, {"x": x}])
    with pytest.raises(ExpressionError, match="64 bits"):
        evaluate(tree, {"value": column})
    guarded = when(X == 1, tree).otherwise(0)
    assert guarded.evaluate(value={"x": x}) == 0
    assert evaluate(guarded, {"value": column}).to_pylist() == [tree.evaluate(value={"x": 1}), 0]


@pytest.mark.parametrize("use", [bool, iter, lambda tree: "a" in tree, lambda tree: tree and 1, lambda tree: not tree])
def test_python_words_cannot_build_expressions(use: Any) -> None:
    with pytest.raises(TypeError):
        use(X > 0)
    with pytest.raises(TypeError, match="write & for `and`"):
        bool(0 < X < 5)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (col("a.b"), "col('a')['b']"),
        (col("a")["b.c"], "col('a')['b.c']"),
        ((X > 0) & ~col("s").is_null(), "((col('x') > 0) & (~col('s').is_null()))"),
        (1 + X, "(1 + col('x'))"),
        (lit("a") % X, "(lit('a') % col('x'))"),
        (2 % X, "(2 % col('x'))"),
        (lit(1) < X, "(lit(1) < col('x'))"),
        (X.is_in([1, None]), "col('x').is_in([1, None])"),
        (X * math.inf, "(col('x') * float(\"inf\"))"),
        (when(X > 0, "a").otherwise(X), "when((col('x') > 0), lit('a')).otherwise(col('x'))"),
        (struct(a=X), "struct(a=col('x'))"),
        (struct(**{"a b": X}), "struct(**{'a b': col('x')})"),
        (e.left("a") + e.right() - e.aggregate(), "((left('a') + right()) - aggregate())"),
        (e.record_key().cast("long"), "record_key().cast('long')"),
    ],
    ids=repr,
)
def test_it_says_what_it_is(tree: Expression, text: str) -> None:
    assert tree.describe() == repr(tree) == text
    for columnar in (pickle.loads(pickle.dumps(tree)), copy.deepcopy(tree), eval(text, vars(e).copy())):
        assert columnar.same_as(tree)
    assert not tree.same_as(X)
    assert hash(tree) == hash(tree)


def test_same_as_tells_types_apart() -> None:
    assert (X + 1).same_as(X + 1)
    assert not (X + 1).same_as(X + 1.0)
    assert not lit(1).same_as(lit(True))
    assert not lit(1).same_as(1)


def test_callables_have_the_parameters_of_their_kind() -> None:
    value = {"x": 2}
    assert X.as_callable("value")(value) == 2
    assert X.as_callable("key_value")("k", value) == 2
    assert e.record_key().as_callable("key_value")("k", value) == "k"
    assert e.concat(e.record_key(), col("y")).as_callable("key_value")("k", {"y": "z"}) == "kz"
    assert lit(5).as_callable("key_value")("k", value) == 5
    assert (e.left() + e.right("x")).as_callable("left_right")(1, value) == 3
    assert (e.aggregate() + X).as_callable("key_value_aggregate")("k", value, 40) == 42
    assert e.aggregate().as_callable("key_value_aggregate")("k", value, 40) == 40
    assert e.record_timestamp().as_callable("record")("k", value, 9) == 9
    key = e.record_key()["start"].as_callable("key_value")
    assert key(Windowed("k", 5, 6), None) == 5


@pytest.mark.parametrize(
    ("tree", "kind"),
    [(e.record_key(), "value"), (X, "left_right"), (e.record_timestamp(), "key_value"), (X, "nonsense")],
    ids=repr,
)
def test_a_callable_that_lacks_a_parameter_is_refused(tree: Expression, kind: Any) -> None:
    with pytest.raises(UsageError):
        tree.as_callable(kind)


def test_it_knows_what_it_reads() -> None:
    tree = when(X > 0, col("a.b")).otherwise(e.record_key())
    assert tree.roots() == {"key", "value"}
    assert tree.fields() == {"x", "a"}
    assert tree.fields("key") is None
    assert (e.record_value()["x"] + e.left("y")).fields("left") == {"y"}


@pytest.mark.parametrize(
    "build",
    [
        lambda: col(""),
        lambda: col("a..b"),
        lambda: lit(1 << 63),
        lambda: lit({"a": 1}),  # type: ignore[arg-type]
        lambda: X - [1],  # type: ignore[operator]
        lambda: X.is_in([1, "a"]),
        lambda: X.cast("date"),  # type: ignore[arg-type]
        lambda: X.substring(-1),
        lambda: X.replace("", "a"),
        lambda: X.round(-1),
        lambda: e.coalesce(),
    ],
)
def test_a_wrong_call_is_refused_when_it_is_made(build: Any) -> None:
    with pytest.raises(UsageError):
        build()


def test_columns_of_other_roots() -> None:
    left, right = pa.array([1, None, 3], pa.int32()), pa.array([{"x": 1}, {"x": 2}, None])
    tree = e.left() + e.right("x")
    assert evaluate(tree, {"left": left, "right": right}).to_pylist() == [2, None, None]
    assert result_type(tree, left=left.type, right=right.type) == pa.int64()
    assert result_type(tree, left=left.type) is None
    with pytest.raises(UsageError, match="right"):
        evaluate(tree, {"left": left})


@pytest.mark.parametrize(
    "tree",
    [
        (X > 0) & (col("s").upper() == "A"),
        struct(x=X // 3, d=col("d") * 2 + X, s=col("s").substring(0, 1).concat("-", e.record_key())),
        when(X.is_in([1, 2]), col("s")).otherwise("other"),
        e.hour_of(e.record_timestamp()),
        e.coalesce(col("d"), 0.0),
        col("missing").is_null(),
        col("s").cast("long") % 7,
        e.record_value(),
    ],
    ids=repr,
)
def test_common_expressions_run_on_columns(tree: Expression) -> None:
    values = [{"x": 1, "d": 0.5, "s": "a"}, {"x": None, "d": None, "s": "12"}, None]
    column, key = pa.array(values), pa.array(["k", None, "l"])
    times = pa.array([0, 3_600_000, 7_200_000])
    assert result_type(tree, column.type, key=key.type) is not None
    found = evaluate(tree, {"value": column, "key": key, "timestamp": times}).to_pylist()
    run = tree.as_callable("record")
    assert found == [run(*row) for row in zip(key.to_pylist(), values, times.to_pylist(), strict=True)]


def test_an_empty_column_stays_empty() -> None:
    column = pa.array([], pa.struct([("x", pa.int64())]))
    found = evaluate(X // 2 + 1, {"value": column})
    assert (len(found), found.type) == (0, pa.int64())


DEPTH = 120
DEEP: dict[str, tuple[Callable[[Expression], Expression], Any]] = {
    "conditions": (lambda inner: (X == 1) & (inner == inner), True),
    "sums, to the left": (lambda inner: inner + 1, DEPTH + 1),
    "sums, to the right": (lambda inner: lit(1) + inner, DEPTH + 1),
    "branches": (lambda inner: when(X == 2, 5).otherwise(inner), 1),
    "the first that is there": (lambda inner: e.coalesce(col("absent"), inner), 1),
    "texts": (lambda inner: e.concat("a", inner.cast("string")), "a" * DEPTH + "1"),
}


@pytest.mark.parametrize(("wrap", "expected"), DEEP.values(), ids=DEEP)
def test_an_expression_may_be_deeper_than_python_nests(wrap: Callable[[Expression], Expression], expected: Any) -> None:
    deep: Expression = X
    for _ in range(DEPTH if wrap is not DEEP["conditions"][0] else 12):  # each has its part twice
        deep = wrap(deep)
    assert deep.evaluate(value={"x": 1}) == expected


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a\nb", "\\", "{0}", "'] + __import__('os').abort() + ['", "\ud800"])
def test_names_are_no_code(name: str) -> None:
    assert struct(**{name: lit(7)}).evaluate(value={}) == {name: 7}
    assert e.Field(e.record_value(), name).evaluate(value={name: 7}) == 7
    assert (lit(name) == lit(name)).evaluate(value=None) is True
