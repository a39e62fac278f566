"""What the state in a checkpoint was written by, compared at every start before anything is written.

`<checkpoint>/suiro-topology.json` lists the stores, the operators that use them, and where both run: operators without
state may come, go and change. A difference in what is listed would have a store read as something it is not, or begin
empty where rows are expected, and is an error that names it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from suiro.streams.errors import TopologyError
from suiro.streams.nodes import Node
from suiro.streams.spark.plan import Plan
from suiro.streams.topology import stores_of

__all__ = ["FORMAT_VERSION", "check_description", "describe_state"]

FORMAT_VERSION = 1
FILE = "suiro-topology.json"

Entry = dict[str, Any]


def check_description(plan: Plan, checkpoint: Path) -> None:
    """Writes the description at the first start. Raises `TopologyError` where there is another."""
    path = checkpoint / FILE
    new = describe_state(plan)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        _write(path, new)
        return
    old = json.loads(text)
    if old.get("version") != FORMAT_VERSION:
        raise TopologyError(
            f"{path} has format {old.get('version')}, this version of suiro reads {FORMAT_VERSION}: use the version "
            "that wrote it, or a new application id"
        )
    differences = _differences(old, new)
    if differences:
        raise TopologyError(_message(plan, checkpoint, differences))


def describe_state(plan: Plan) -> dict[str, Any]:
    """Only what JSON holds; equal for equal topologies."""
    stores: dict[str, Entry] = {}
    operators: dict[str, Entry] = {}
    for sub in plan.topology.sub_topologies:
        place = plan.subs[sub.number]
        where = {"sub-topology": sub.number, "level": place.level, "partitions": place.buckets}
        for name in (*(spec.name for spec in sub.stores), *sub.global_tables):
            spec = plan.topology.store(name)
            stores[name if name not in sub.global_tables else f"{name} in {sub.number}"] = {
                "kind": spec.kind,
                "key": spec.key.name,
                "value": spec.value.name,
                "window_size_ms": spec.window_size_ms,
                **where,
            }
        for node in sub.nodes:
            if stores_of(node):
                operators[node.name] = _operator(node)
    named = [spec.name for spec in plan.topology.stores if spec.named_by_user]
    named += [node.name for node in plan.topology.nodes if node.named_by_user]
    found = {
        "version": FORMAT_VERSION,
        "application_id": plan.application_id,
        "stores": stores,
        "operators": operators,
        "named": sorted(named),
    }
    as_it_comes_back: dict[str, Any] = json.loads(json.dumps(found))
    return as_it_comes_back


def _operator(node: Node) -> Entry:
    windows = getattr(node.operator, "windows", None)
    return {
        "kind": type(node.operator).__name__,
        "stores": list(stores_of(node)),
        "windows": None if windows is None else {"kind": type(windows).__name__, **_bounds(windows)},
    }


def _bounds(windows: Any) -> Entry:
    """Of the windows' shape: how long one waits for late records may change."""
    return {
        field.name: getattr(windows, field.name)
        for field in dataclasses.fields(windows)
        if field.name != "grace_ms"
    }


def _differences(old: Entry, new: Entry) -> list[str]:
    found = []
    for kind in ("stores", "operators"):
        one = kind.removesuffix("s")
        before, now = old[kind], new[kind]
        found += [f"{one} {name} is gone" for name in before if name not in now]
        found += [f"{one} {name} is new" for name in now if name not in before]
        for name in before:
            for what, was in before[name].items():
                if name in now and now[name].get(what) != was:
                    found.append(f"{one} {name}: {what} was {was}, is {now[name].get(what)}")
    return found


def _message(plan: Plan, checkpoint: Path, differences: list[str]) -> str:
    generated = any(_is_generated(line.split()[1].rstrip(":")) for line in differences)
    hint = (
        "Generated names move when the topology changes above them: give stores and operators names "
        "(Materialized, Grouped, Joined, Named), and those stay. "
        if generated
        else ""
    )
    listed = "; ".join(differences)
    return (
        f"the state of {plan.application_id!r} in {checkpoint} was written by another topology: {listed}. "
        f"{hint}Put back what changed, or start with a new application id, which reads from the beginning"
    )


def _is_generated(name: str) -> bool:
    return "STATE-STORE-" in name or name.startswith(("KSTREAM-", "KTABLE-", "COGROUPKSTREAM-"))


def _write(path: Path, description: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(description, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    fresh.replace(path)
