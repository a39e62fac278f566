"""A key's last update of a micro-batch leaves a table: what is one key, and in which order they leave."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from suiro.streams import StreamsBuilder, serdes
from suiro.streams.interpreter import Interpreter
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Windowed

HOUR = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([1, 1.0, True, "1", b"1"], id="one"),
        pytest.param([0, 0.0, -0.0, False], id="zero"),
        pytest.param([(1,), (True,), (1.0,)], id="tuples"),
        pytest.param([frozenset([1]), frozenset([True])], id="sets"),
        pytest.param([Windowed(1, 0, 5), Windowed(True, 0, 5)], id="windows"),
        pytest.param([Decimal("1"), Decimal("1.0")], id="decimals"),
        pytest.param([datetime(2020, 1, 1, 1, tzinfo=HOUR), datetime(2020, 1, 1, tzinfo=UTC)], id="zones"),
    ],
)
def test_keys_that_are_equal_only_to_python_are_not_one_key(keys: list[Any]) -> None:
    builder = StreamsBuilder()
    table = builder.table("table", key=serdes.tagged, value=serdes.string)
    table.to_stream().to("out", key=serdes.tagged, value=serdes.string)
    interpreter = Interpreter(builder.build(), settings=TaskSettings(coalesces=True))
    for value in (b"first", b"last"):
        for key in keys:
            interpreter.pipe("table", 1, serdes.tagged.serialize("", key), value)
    assert not interpreter.outputs
    interpreter.end_of_batch()
    assert [item.key for item in interpreter.outputs] == [serdes.tagged.serialize("", key) for key in keys]
    assert {item.value for item in interpreter.outputs} == {b"last"}
