"""Rules in text pick what they say, and take nothing that could do anything else."""

from __future__ import annotations

from typing import Any

import pytest

from suiro.connect import SettingError
from suiro.connect.rules import MAX_TEXT_GROWTH, Cost, cost_of, rule
from suiro.streams.expressions.expression import Expression, ExpressionError, coalesce, col

VALUE = {"delay": 20, "carrier": "UA", "gate": None, "place": {"code": "EWR"}, "late": True}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("delay > 15", True),
        ("delay > 15 and carrier == 'AA'", False),
        ("delay > 15 or carrier == 'AA'", True),
        ("not delay > 15", False),
        ("15 < delay <= 20", True),
        ("15 < delay < 20", False),
        ("delay * 2 - 10 == 30", True),
        ("delay > -1", True),
        ("carrier in ['UA', 'AA']", True),
        ("carrier not in ['UA', 'AA']", False),
        ("place.code == 'EWR'", True),
        ("carrier.lower().starts_with('u')", True),
        ("gate.is_null()", True),
        ("gate == 'A1'", False),  # null is not true
        ("not gate == 'A1'", False),
        ("absent > 3", False),
        ("coalesce(absent, 7) > 3", True),
        ("abs(delay - 30) == 10", True),
        ("record_key() == 'k' and record_timestamp() == 5", True),
        ("late", True),
        ("delay", False),
        ("True", True),
        ("place.__class__.is_not_null()", False),  # a field like any other, and there is none
    ],
)
def test_a_rule(text: str, holds: bool) -> None:
    assert rule("when", text)(VALUE, "k", 5) is holds


@pytest.mark.parametrize(
    "text",
    [
        "", "delay >", "x = 3", "delay is None", "open('x')", "().__class__.__bases__[0]",
        "carrier.as_callable('record')", "[x for x in y]", "lambda: 1", "delay if late else 1", "f'{delay}'",
        "carrier.upper(x=1)", "delay ** 9", "b'x' == carrier", "delay <= [1, 2]", "delay == 99999999999999999999",
    ],
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(SettingError, match=r"when: .* is not a rule"):
        rule("when", text)


@pytest.mark.parametrize(("text", "value"), [("delay > 3", {"delay": "x"}), ("delay > 3", {"delay": True})])
def test_a_value_of_another_kind_is_said(text: str, value: Any) -> None:
    with pytest.raises(ExpressionError):
        rule("when", text)(value, None, 0)


def _nested(begin: str, times: int, end: str) -> str:
    return begin * times + "a" + end * times


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("a" + ".replace('a', 'aaaaaaaaaa')" * 9 + ".length() > 3", "times as long"),
        ("a" + ".replace('a', 'b').upper()" * 4 + " == 'B'", "times as long"),
        ("a" + ".strip()" * 70 + " == a" + ".strip()" * 70, None),
        (" or ".join(["(a + a + a + a).upper().lower() == 'x'"] * 50), "times as long"),
        (" or ".join(["a.upper().lower().contains('x')"] * 200), "together"),
        ("a == 'aaaaaaaaaa'" + ".replace('a', 'aaaaaaaaaa')" * 6, "constants"),
        (_nested("(0 < ", 60, " < 1)"), "steps"),  # each level computes the one below twice
        (_nested("", 60, ".between(0, 1)"), "steps"),
        ("a.replace(" + _nested("(0 < ", 60, " < 1)") + ", 'x') == 'x'", "steps"),
        ("a.round(" + _nested("", 60, ".between(0, 1)") + ") == 1", "steps"),
        (_nested("(0 < ", 11, f" in [{', '.join(['7'] * 100)}])"), "steps"),
    ],
)  # fmt: skip
def test_a_rule_that_would_cost_too_much_is_refused_when_it_is_read(text: str, limit: str | None) -> None:
    if limit is None:
        assert rule("filter", text)({"a": " x "}, None, 0) is True
        return
    with pytest.raises(SettingError, match=rf"(?s)filter: .* is not a rule: .*{limit}"):
        rule("filter", text)


def _cost(node: Expression) -> Cost:
    return cost_of(node, [_cost(child) for child in node.children()])


@pytest.mark.parametrize(
    "value",
    ["a", "\u0390" * 7, "\u0130\u0149\ufb03" * 3, "ab" * 50, "", 12345678901234567890, -1.5e-300, True],
)
@pytest.mark.parametrize(
    "made",
    [
        col("a").upper(),
        col("a").lower().upper(),
        col("a").replace("a", "abc").replace("ab", "x" * 7),
        col("a").upper().replace("\u0308", "\u0390").upper(),
        col("a") + col("a") + "some more",
        coalesce(col("b"), col("a"), "a constant longer than most"),
        col("a").substring(1, 5).strip(),
        (col("a") > 3).cast("string"),
        col("a").cast("string").replace("1", "22"),
        (col("a") * 2).cast("string"),
    ],
    ids=str,
)  # fmt: skip
def test_no_text_is_longer_than_its_cost_says(made: Expression, value: Any) -> None:
    cost = _cost(made)
    try:
        text = made.evaluate(value={"a": value})
    except ExpressionError:
        return
    of_record = len(value) if isinstance(value, str) else 0
    assert text is None or not isinstance(text, str) or len(text) <= cost.factor * of_record + cost.chars
    assert cost.factor <= MAX_TEXT_GROWTH


@pytest.mark.parametrize("text", ["a.cast('string') == 'x'", "a * a > 1", "a + 0.5 > 1"])
def test_a_number_of_very_many_digits_is_an_error_of_the_expression(text: str) -> None:
    with pytest.raises(ExpressionError, match="bits"):
        rule("when", text)({"a": 10**5_000}, None, 0)
