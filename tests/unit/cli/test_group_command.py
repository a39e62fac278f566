"""Options of `suiro group`."""

from __future__ import annotations

import pytest

from suiro.cli.group import parse_topics


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a:0,1", "b"], {"a": [0, 1], "b": None}),
        (["a:0", "b:2", "a:1"], {"a": [0, 1], "b": [2]}),
        (["a:0", "a"], {"a": None}),
        (["a", "a:0"], {"a": None}),
    ],
)
def test_a_topic_that_is_named_again(texts: list[str], expected: dict[str, list[int] | None]) -> None:
    assert parse_topics(texts) == expected
