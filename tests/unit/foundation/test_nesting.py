"""JSON that is nested deeply: one limit, for every format that reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from suiro.foundation.nesting import MAX_NESTING, TooDeepError, parse_json


def nested(levels: int, *, within: str = "[") -> str:
    opens, closes = ("[", "]") if within == "[" else ('{"a":', "}")
    return opens * levels + ("1" if within != "[" else "") + closes * levels


@pytest.mark.parametrize("within", ["[", "{"])
def test_the_limit_is_exact(within: str) -> None:
    value = parse_json(nested(MAX_NESTING, within=within))
    assert json.loads(json.dumps(value)) == value  # whoever gets it can write it again
    for levels in (MAX_NESTING + 1, 900, 3_000, 1_000_000):
        with pytest.raises(TooDeepError, match=f"deeper than {MAX_NESTING} levels"):
            parse_json(nested(levels, within=within).encode())


def test_the_deep_part_may_be_anywhere() -> None:
    wide: list[Any] = [[number, {"n": [number]}] for number in range(2_000)]
    assert parse_json(json.dumps(wide)) == wide
    text = json.dumps(wide)
    with pytest.raises(TooDeepError):
        parse_json(f"{text[:-1]}, {nested(MAX_NESTING)}]")
    brackets = "[{" * MAX_NESTING
    assert parse_json(json.dumps([brackets])) == [brackets]  # in a text they open nothing


def test_what_is_no_json() -> None:
    for data in (b"{oops", b"", b"\xff"):
        with pytest.raises(ValueError, match="is not JSON"):
            parse_json(data)
    assert parse_json("[NaN]")[0] != 0
    with pytest.raises(ValueError, match="NaN is no JSON number"):
        parse_json("[NaN]", allow_nan=False)


@pytest.mark.parametrize("text", [r'"\ud800"', r'{"\uDFFF": 1}', r'["\ud83d", "\ude00"]', r'"\ude00\ud83d"'])
def test_half_of_a_surrogate_pair_is_refused_where_texts_are_to_be_written(text: str) -> None:
    parse_json(text)
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        parse_json(text, allow_half_pairs=False)
    whole = r'{"\ud83d\ude00": "\\ud800 \u00e9"}'
    assert parse_json(whole, allow_half_pairs=False) == {"\U0001f600": "\\ud800 é"}
