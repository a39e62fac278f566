"""An expression gives the same on Arrow columns as on Python values, for any expression and any column."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from support.share import examples

from suiro.errors import UsageError
from suiro.streams.expressions import expression as e
from suiro.streams.expressions.expression import Expression, ExpressionError, col, lit
from suiro.streams.expressions.on_arrow import evaluate, result_type
from suiro.streams.expressions.on_python import compile_expression

LONGS = st.integers(-3, 3) | st.sampled_from([(1 << 63) - 1, -(1 << 63), 1 << 53, (1 << 53) + 1, 1 << 31, -(1 << 31)])
DOUBLES = (
    st.sampled_from([0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 2.675, 1e300, -7.25, math.nan, math.inf, -math.inf, 9.3e18])
    | st.floats(-100, 100)
    | st.floats()
)
STRINGS = (
    st.sampled_from(["", "a", "ab", " 12 ", "-7", "1.5", "007.50", "true", " False", "aXa", "ß", "ŉ", "İi", "nan"])
    | st.sampled_from(["1e3", "9223372036854775808", "+5", "1_0", "\x1c7", "\u00a08", "aaa", "12\n", "\U0001f600"])
    | st.text(max_size=4)
)
BINARIES = st.binary(max_size=3)
BOOLEANS = st.booleans()
VALUES = {"long": LONGS, "double": DOUBLES, "string": STRINGS, "boolean": BOOLEANS, "bytes": BINARIES}
COLUMNS = {
    "long": [("i", pa.int64()), ("j", pa.int64()), ("s.i", pa.int64())],
    "double": [("d", pa.float64()), ("s.d", pa.float64())],
    "string": [("t", pa.string()), ("u", pa.large_string())],
    "boolean": [("b", pa.bool_()), ("c", pa.bool_())],
    "bytes": [("x", pa.binary())],
}
INNER = pa.struct([("i", pa.int64()), ("d", pa.float64())])
VALUE = pa.struct(
    [(name, kind) for columns in COLUMNS.values() for name, kind in columns if "." not in name]
    + [("s", INNER), ("n", pa.null())]
)


def rows() -> st.SearchStrategy[dict[str, Any] | None]:
    fields = {
        name: st.none() | VALUES[kind] for kind, columns in COLUMNS.items() for name, _ in columns if "." not in name
    }
    inner = st.none() | st.fixed_dictionaries({"i": st.none() | LONGS, "d": st.none() | DOUBLES})
    return st.fixed_dictionaries({**fields, "s": inner, "n": st.none()})


@st.composite
def trees(draw: st.DrawFn, kind: str, depth: int) -> Expression:
    """An expression that mostly is of this kind; sometimes of any, so that wrong types come up too."""
    if draw(st.integers(0, 40)) == 0:
        kind = draw(st.sampled_from(sorted(VALUES)))

    def sub(wanted: str = kind) -> Expression:
        return draw(trees(wanted, depth - 1))

    def leaf() -> Expression:
        choice = draw(st.integers(0, 9))
        if choice == 0:
            return col(draw(st.sampled_from(["n", "absent", "s.absent"])))
        if choice <= 3:
            return lit(draw(VALUES[kind] | st.none()))
        if kind == "long" and choice == 4:
            return e.record_timestamp()
        if kind == "string" and choice == 4:
            return e.record_key()
        return col(draw(st.sampled_from(COLUMNS[kind]))[0])

    if depth <= 0:
        return leaf()
    generic = ["when", "coalesce", "leaf", "case"]
    special = {
        "long": [
            "+",
            "-",
            "*",
            "//",
            "%",
            "neg",
            "abs",
            "round",
            "length",
            "cast",
            "hour",
            "extreme",
            "floor",
        ],
        "double": [
            "+",
            "-",
            "*",
            "/",
            "//",
            "%",
            "neg",
            "abs",
            "round",
            "floor",
            "ceil",
            "cast",
            "extreme",
            "mix",
        ],
        "string": ["upper", "lower", "strip", "substring", "replace", "concat", "+", "cast", "extreme"],
        "boolean": [
            "compare",
            "compare",
            "logic",
            "logic",
            "not",
            "null",
            "in",
            "in",
            "text",
            "cast",
            "between",
        ],
        "bytes": ["extreme"],
    }[kind]
    other = draw(st.sampled_from(sorted(VALUES)))
    match draw(st.sampled_from([*generic, *special, *special])):
        case "leaf":
            return leaf()
        case "when":
            start = e.when(sub("boolean"), sub())
            if draw(st.booleans()):
                start = start.when(sub("boolean"), sub())
            return start.otherwise(sub()) if draw(st.booleans()) else start
        case "coalesce":
            return e.coalesce(sub(), sub())
        case "case":
            return e.struct(a=sub(), b=sub(other))["a"]
        case "+":
            return sub() + sub()
        case "-":
            return sub() - sub()
        case "*":
            return sub() * sub()
        case "/":
            return sub(draw(st.sampled_from(["long", "double"]))) / sub()
        case "//":
            return sub() // sub()
        case "%":
            return sub() % sub()
        case "mix":
            return sub("long") + sub() if draw(st.booleans()) else sub() * sub("long")
        case "neg":
            return -sub()
        case "abs":
            return abs(sub())
        case "round":
            return sub().round(draw(st.integers(0, 3)))
        case "floor":
            return sub().floor()
        case "ceil":
            return sub().ceil()
        case "hour":
            return e.hour_of(sub())
        case "length":
            return sub(draw(st.sampled_from(["string", "bytes"]))).length()
        case "extreme":
            return (e.least if draw(st.booleans()) else e.greatest)(sub(), sub(), sub())
        case "cast":
            name = "int" if kind == "long" and draw(st.booleans()) else kind
            return sub(draw(st.sampled_from(["long", "double", "string", "boolean"]))).cast(name)  # type: ignore[arg-type]
        case "upper":
            return sub().upper()
        case "lower":
            return sub().lower()
        case "strip":
            return sub().strip()
        case "substring":
            return sub().substring(draw(st.integers(0, 3)), draw(st.none() | st.integers(0, 3)))
        case "replace":
            return sub().replace(draw(st.sampled_from(["a", "aa", "1"])), draw(st.sampled_from(["", "b", "aa"])))
        case "concat":
            return sub().concat(sub(), "-")
        case "compare":
            first, second = sub(other), sub(other)
            if other in ("long", "double") and draw(st.booleans()):
                second = sub("long" if other == "double" else "double")
            compare = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
            return {
                "==": first == second,
                "!=": first != second,
                "<": first < second,
                "<=": first <= second,
                ">": first > second,
                ">=": first >= second,
            }[compare]
        case "between":
            return sub(other).between(sub(other), sub(other))
        case "logic":
            return sub() & sub() if draw(st.booleans()) else sub() | sub()
        case "not":
            return ~sub()
        case "null":
            return sub(other).is_null() if draw(st.booleans()) else sub(other).is_not_null()
        case "in":
            among = VALUES[other] | (LONGS | DOUBLES if other in ("long", "double") else st.none())
            return sub(other).is_in(draw(st.lists(st.none() | among, max_size=4)))
        case "text":
            pattern = draw(st.sampled_from(["", "a", "ab", "1"]))
            function = draw(st.sampled_from(["contains", "starts_with", "ends_with"]))
            return getattr(sub("string"), function)(pattern)
    raise AssertionError(kind)


def shown(values: list[Any]) -> list[str]:
    return [repr(value) for value in values]


@given(data=st.data())
@settings(deadline=None, max_examples=examples(200))
def test_both_evaluators_agree(data: st.DataObject) -> None:
    tree = data.draw(st.sampled_from(sorted(VALUES)).flatmap(lambda kind: trees(kind, 3)))
    values = data.draw(st.lists(st.none() | rows(), min_size=1, max_size=5))
    keys = data.draw(st.lists(st.none() | STRINGS, min_size=len(values), max_size=len(values)))
    times = data.draw(st.lists(LONGS, min_size=len(values), max_size=len(values)))
    cut = data.draw(st.integers(0, len(values)))
    columns = {
        "key": pa.array(keys, pa.string())[cut:],
        "value": pa.array(values, VALUE)[cut:],
        "timestamp": pa.array(times, pa.int64())[cut:],
    }
    copy = pickle.loads(pickle.dumps(tree))
    assert copy.same_as(tree)
    assert eval(repr(tree), {**vars(e), "float": float}).same_as(tree)

    if result_type(tree, VALUE, key=pa.string()) is None:
        event("only in Python")
        with pytest.raises(UsageError):
            evaluate(tree, columns)
        return
    run = compile_expression(copy, ("key", "value", "timestamp"))
    try:
        wanted = [run(*row) for row in list(zip(keys, values, times, strict=True))[cut:]]
    except ExpressionError as error:
        event(f"error: {'64 bits' in error.reason}")
        with pytest.raises(ExpressionError, match="64 bits"):
            evaluate(tree, columns)
        return
    event("on both")
    found = evaluate(tree, columns)
    found.validate(full=True)
    assert found.type == result_type(tree, VALUE, key=pa.string())
    assert shown(found.to_pylist()) == shown(wanted)


@given(
    values=st.lists(st.none() | LONGS, max_size=5),
    narrow=st.lists(st.none() | st.integers(-128, 127), max_size=5),
)
@settings(deadline=None, max_examples=examples(100))
def test_a_value_need_not_be_a_struct(values: list[int | None], narrow: list[int | None]) -> None:
    tree = e.record_value() // 7 + 1
    try:
        wanted = [tree.evaluate(value=value) for value in values]
    except ExpressionError:
        wanted = []
    if wanted:
        assert evaluate(tree, {"value": pa.array(values, pa.int64())}).to_pylist() == wanted
    small = evaluate(tree, {"value": pa.array(narrow, pa.int8())})
    assert small.to_pylist() == [tree.evaluate(value=value) for value in narrow]


EDGES: dict[str, list[Any]] = {
    "long": [0, 1, -1, 2, -2, 7, -7, 1 << 31, -(1 << 31) - 1, (1 << 53) + 1, (1 << 63) - 1, -(1 << 63)],
    "double": [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -7.0,
        2.675,
        1e16,
        1e-7,
        1e300,
        -1e308,
        9007199254740992.0,
        math.nan,
        math.inf,
        -math.inf,
        9.2e18,
        -9.3e18,
        float(1 << 63),
        -float(1 << 63),
        2147483647.5,
        -2147483648.5,
    ],
    "string": [
        "",
        "a",
        "A",
        "ab",
        "aa",
        "aaa",
        " a ",
        "ß",
        "\u0130",
        "\U0001f600",
        "\uffff",
        "\x1c1",
        "\u00a01",
        "1",
        "007",
        "-0",
        "+5",
        " 5\n",
        "1.50",
        "-.5",
        "5.",
        "1e3",
        "1E400",
        "nan",
        "true",
        " FALSE",
        "1_0",
        "\u0665",
        "0x1",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "2147483648",
        "0.1234567890123456789",
    ],
    "boolean": [True, False],
    "bytes": [b"", b"a", b"\xff", b"ab"],
}
X, Y = col("x"), col("y")
UNARY = {
    "negate": -X,
    "abs": abs(X),
    "not": ~X,
    "floor": X.floor(),
    "ceil": X.ceil(),
    "upper": X.upper(),
    "lower": X.lower(),
    "strip": X.strip(),
    "length": X.length(),
    "is_null": X.is_null(),
    "in": X.is_in([1, -7.0, math.nan, 0.0, (1 << 53) + 1, None]),
    "in strings": X.is_in(["a", ""]),
    "in ints": X.is_in([1 << 53, 7]),
    **{f"round {digits}": X.round(digits) for digits in (0, 1, 2, 15)},
    **{f"cast {name}": X.cast(name) for name in ("long", "int", "double", "string", "boolean")},  # type: ignore[arg-type]
    **{f"contains {text}": X.contains(text) for text in ("", "a", "aa", "\U0001f600")},
    **{f"starts {text}": X.starts_with(text) for text in ("", "a", "\U0001f600")},
    **{f"ends {text}": X.ends_with(text) for text in ("", "a", "aa")},
    **{f"substring {start} {size}": X.substring(start, size) for start in (0, 1, 5) for size in (0, 1, 9, None)},
    **{f"replace {old}": X.replace(old, "aa") for old in ("a", "aa", "\U0001f600")},
}
BINARY = {
    "+": X + Y,
    "-": X - Y,
    "*": X * Y,
    "/": X / Y,
    "//": X // Y,
    "%": X % Y,
    "==": X == Y,
    "!=": X != Y,
    "<": X < Y,
    "<=": X <= Y,
    ">": X > Y,
    ">=": X >= Y,
    "&": X & Y,
    "|": X | Y,
    "least": e.least(X, Y),
    "greatest": e.greatest(X, Y),
    "greatest of 3": e.greatest(X, Y, X),
    "coalesce": e.coalesce(X, Y),
    "concat": X.concat(Y),
    "when": e.when(X == Y, X).otherwise(Y),
    "struct": e.struct(a=X, b=Y),
    "between": X.between(Y, Y),
}
TYPES = {
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "bytes": pa.binary(),
}


def check(tree: Expression, values: list[dict[str, Any] | None], kind: pa.DataType) -> None:
    if result_type(tree, kind) is None:
        return
    run = tree.as_callable("value")
    kept, wanted = [], []
    for value in values:
        try:
            wanted.append(run(value))
            kept.append(value)
        except ExpressionError as error:
            assert "64 bits" in error.reason  # noqa: PT017
            with pytest.raises(ExpressionError):
                evaluate(tree, {"value": pa.array([value], kind)})
    found = evaluate(tree, {"value": pa.array(kept, kind)})
    assert shown(list(zip(kept, found.to_pylist(), strict=True))) == shown(list(zip(kept, wanted, strict=True)))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_functions_of_one_value_agree_at_the_edges(name: str, kind: str) -> None:
    values = [None, {"x": None}, *({"x": value} for value in EDGES[kind])]
    for column in (
        values,
        *([value] for value in values),
    ):  # alone, since a kernel may look at the whole column
        check(UNARY[name], column, pa.struct([("x", TYPES[kind])]))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("first", sorted(TYPES))
def test_functions_of_two_values_agree_at_the_edges(name: str, first: str) -> None:
    for second in TYPES:
        kind = pa.struct([("x", TYPES[first]), ("y", TYPES[second])])
        pairs = [(x, y) for x in [None, *EDGES[first]] for y in [None, *EDGES[second]]]
        check(BINARY[name], [{"x": x, "y": y} for x, y in pairs], kind)
