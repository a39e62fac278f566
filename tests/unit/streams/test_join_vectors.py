"""The known cases of joins, step by step, on topologies put together by hand; also where the run forgets everything but
its maps after every record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suiro.streams.windows import JoinWindows
from tests.support.join_topologies import Plan, Run

_VECTORS = Path(__file__).parents[2] / "vectors" / "streams"
_GROUPS = [
    "stream-stream-join",
    "null-key",
    "stream-table-join",
    "stream-globaltable-join",
    "table-table-join",
    "foreign-key-join",
]
_YEAR = 365 * 86_400_000


def _cases() -> list[dict[str, Any]]:
    return [case for group in _GROUPS for case in json.loads((_VECTORS / f"{group}.json").read_text())["cases"]]


def _built(plan: Plan, node: dict[str, Any]) -> tuple[str, bool]:
    """The node's name, and whether it is a table."""
    match node["op"]:
        case "stream":
            return plan.stream(node["topic"]), False
        case "table":
            return plan.table(node["topic"], history=_YEAR if node.get("store") else None), True
        case "globalTable":
            return plan.global_table(node["topic"]), True
        case "map" | "select_key" | "flat_map" | "repartition" | "to_stream":
            return _built(plan, node["in"])  # they change nothing here
    (left, _), (right, _) = _built(plan, node["left"]), _built(plan, node["right"])
    joiner, join = _joiner(node["joiner"]), node["join"]
    match node["op"]:
        case "stream_stream_join":
            window = node["window"]
            windows = JoinWindows.of(before=window["before"], after=window["after"], grace=window["grace"])
            return plan.stream_stream(join, left, right, windows, joiner), False
        case "stream_table_join":
            versioned = node["right"].get("store") == "versioned"
            grace = node.get("grace")
            return plan.stream_table(join, left, right, versioned=versioned, grace=grace, joiner=joiner), False
        case "stream_globaltable_join":
            return plan.stream_global(join, left, right, _second_token, joiner), False
        case "table_table_join":
            versioned = node["left"].get("store") == "versioned"
            return plan.table_table(
                join, left, right, joiner=joiner, left_versioned=versioned, right_versioned=versioned
            ), True
        case "fk_join":
            return plan.foreign_key(join, left, right, _after_bar, joiner), True
    raise AssertionError(node["op"])


def _joiner(text: str) -> Any:
    if text == "sum":
        return lambda left, right: left + right
    if text.startswith("'('"):
        return lambda left, right: f"({_text(left)},{_text(right)})"
    mark = text.removeprefix("concat('").removesuffix("')")
    return lambda left, right: f"{_text(left)}{mark}{_text(right)}"


def _text(value: Any) -> str:
    return "null" if value is None else str(value)


def _second_token(key: Any, value: Any) -> Any:
    return value.split(",")[1] if "," in value else None


def _after_bar(value: str) -> Any:
    found = value.partition("|")[2]
    return None if found == "returnNull" else found


@pytest.mark.parametrize("forgets", [False, True], ids=["remembers", "forgets"])
@pytest.mark.parametrize("case", _cases(), ids=lambda case: case["id"])
def test_case(case: dict[str, Any], forgets: bool) -> None:
    plan = Plan()
    node, is_table = _built(plan, case["topology"])
    plan.to("out", node, table=is_table)
    run = Run(plan.topology(), forgets=forgets)
    since: list[tuple[Any, Any, int]] = []
    for step in case["steps"]:
        if "send" in step:
            since += run.send(step["send"], step["k"], step["v"], step["ts"])
            continue
        match step["mode"]:
            case "ordered":
                wanted = [(item["k"], item["v"]) for item in step["expect"]]
                assert [row[:2] for row in since] == wanted
                for row, item in zip(since, step["expect"], strict=True):
                    assert item.get("ts", row[2]) == row[2]
            case "last_by_key":
                assert {key: value for key, value, _ in since} == step["expect_map"]
            case "store":
                assert dict(run.store("join-rows").all()) == step["expect_map"]
                continue
            case "final_last":
                last = step["expect"][0]
                assert since[-1] == (last["k"], last["v"], last.get("ts", since[-1][2]))
            case other:
                raise AssertionError(other)
        since = []
