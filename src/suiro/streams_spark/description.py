"""Describes the topology that wrote the state of a checkpoint. Each start compares it before it writes anything.

`<checkpoint>/suiro-topology.json` lists the stores, the operators that use them, and where both run: operators without
state may come, go and change. A difference in what is listed would have a store read as something it is not, or begin
empty where rows are expected, and is an error that names it.

`upgrade_of` compares two topologies in the same way, without starting or stopping anything, and says of every store and
operator with state whether it goes on. Nothing is asked of a cluster: how many partitions the sources have is the same
for both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from suiro.foundation.files import replace_file
from suiro.spark import newest_in, read_planned
from suiro.streams.errors import CheckpointError, TopologyError
from suiro.streams.topology.nodes import Node, Suppress
from suiro.streams.topology.topology import Topology, stores_of
from suiro.streams_spark.plan import IN_SOURCE_TASKS, Plan, plan
from suiro.streams_spark.rebuild import read_versioned

FORMAT_VERSION = 1
FILE = "suiro-topology.json"
_FACTS = {
    *("kind", "key", "value", "window_size_ms", "sub-topology", "level", "partitions", "unlogged"),
    *("waits", "does", "stores", "windows"),
}
"""Of a store and of an operator. A release that notes more is not read: what is missing here would be a difference."""

_COPY = "-copy-"
"""Follows the name of what has a copy (`loops`), and gives it its name."""

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """`kind`: "store", "operator" or "topology". `what`: "moved" (to `at`), "gone", "new" or "changed"; `said`: in
    words."""

    kind: str
    name: str
    what: str
    said: str
    at: str = ""

    def __str__(self) -> str:
        colon = ":" if self.what == "changed" else ""
        return f"{self.kind} {self.name}{colon} {self.said}"

    @property
    def is_of_a_generated_name(self) -> bool:
        if self.what == "changed":
            return self.kind == "store" and _is_generated(self.name)
        return self.what == "moved" or _is_generated(self.name)


def check_description(plan: Plan, checkpoint: Path, *, is_planned: bool = True) -> None:
    """Writes the description. Raises `TopologyError` where the state is of another topology, and `CheckpointError`
    where the description cannot be read. `is_planned`: there has been a micro-batch, so there may be state; a start
    before that has left a description only."""
    path = checkpoint / FILE
    new = describe_state(plan)
    try:
        old = read_versioned(path, FORMAT_VERSION) if is_planned else None
    except FileNotFoundError:
        old = None
    if old is None:
        _write(path, new)
        return
    entries = (*old["stores"].values(), *old["operators"].values())
    if unknown := (old.keys() - new.keys()) | (set().union(*entries) - _FACTS):
        raise CheckpointError(
            f"{path} notes what this version of suiro does not know ({', '.join(sorted(unknown))}): use the version "
            "that wrote it, or a new application id"
        )
    differences = compare(old, new)
    is_begun = newest_in(str(checkpoint), "commits") >= 0
    if not is_begun:
        # Spark has no state of tasks yet, so it takes the query as it is now.
        differences = [one for one in differences if one.kind != "topology"]
    if differences:
        raise TopologyError(_message(plan, checkpoint, differences))
    moved = [number for number, level in old["buffers"].items() if new["buffers"].get(number) != level]
    if moved and is_begun and may_buffer(checkpoint):
        raise TopologyError(
            f"the last micro-batch of {plan.application_id!r} left records in the log. Others may wait for them in the "
            f"state of sub-topology {', '.join(moved)}, which is not there any more or has moved behind another one: "
            "they would be lost. Start the topology as it was until it has caught up (suiro run --until-done), then "
            f"change it; or move {checkpoint} away and rebuild (rebuild=True, suiro run --rebuild)"
        )
    if old != new:
        # It may tell more than before: a changelog that ends here.
        _write(path, new)


def describe_state(plan: Plan) -> dict[str, Any]:
    """Only what JSON holds; equal for equal topologies."""
    stores: dict[str, Entry] = {}
    operators: dict[str, Entry] = {}
    buffers: dict[str, int] = {}
    for sub in plan.topology.sub_topologies:
        place = plan.subs[sub.number]
        if place.level != IN_SOURCE_TASKS and not sub.stores:
            # Records may wait in its state, and no store says where that is.
            buffers[str(sub.number)] = place.level
        where = {"sub-topology": sub.number, "level": place.level, "partitions": place.tasks}
        for name in (*(spec.name for spec in sub.stores), *sub.global_tables):
            spec = plan.topology.store(name)
            stores[name if name not in sub.global_tables else f"{name} in {sub.number}"] = {
                "kind": spec.kind,
                "key": spec.key.name,
                "value": spec.value.name,
                "window_size_ms": spec.window_size_ms,
                **where,
                # A changelog that it gets later would have the rows that change from then on, and not the others.
                **({} if spec.logged or spec.kind == "global" else {"unlogged": True}),
            }
        for node in sub.nodes:
            if stores_of(node):
                operators[node.name] = _operator(node)
    named = [spec.name for spec in plan.topology.stores if spec.named_by_user]
    named += [node.name for node in plan.topology.nodes if node.named_by_user]
    found = {
        "version": FORMAT_VERSION,
        "application_id": plan.application_id,
        "levels": plan.levels,
        "stores": stores,
        "operators": operators,
        "buffers": buffers,
        "named": sorted(named),
    }
    as_it_comes_back: dict[str, Any] = json.loads(json.dumps(found))
    return as_it_comes_back


def _operator(node: Node) -> Entry:
    operator: Any = node.operator
    windows = getattr(operator, "windows", None)
    does = getattr(operator, "aggregation", operator)
    waits = {}
    if isinstance(operator, Suppress):
        waits["waits"] = "for windows to close" if operator.time_limit_ms is None else "for a time"
    return {
        "kind": type(operator).__name__,
        **waits,
        "does": getattr(does, "kind", getattr(does, "join", None)),
        "stores": list(stores_of(node)),
        "windows": None if windows is None else {"kind": type(windows).__name__, **_bounds(windows)},
    }


def _bounds(windows: Any) -> Entry:
    """Of the windows' shape: how long one waits for late records may change."""
    return {field.name: getattr(windows, field.name) for field in fields(windows) if field.name != "grace_ms"}


def compare(old: Entry, new: Entry) -> list[Difference]:
    """Two descriptions: what has a store or an operator with state not go on where it was."""
    found: list[Difference] = []
    moved: dict[str, str] = {}
    for kind in ("stores", "operators"):
        one = kind.removesuffix("s")
        before, now = old[kind], new[kind]
        gone = [name for name in before if name not in now]
        fresh = [name for name in now if name not in before]
        for name, at in _moved(before, now, gone, fresh, moved):
            found.append(Difference(one, name, "moved", f"is {at} now", at=at))
            moved[name] = at
            gone.remove(name)
            fresh.remove(at)
        found += [Difference(one, name, "gone", "is gone") for name in gone]
        found += [Difference(one, name, "new", "is new") for name in fresh]
        for name in before:
            for what, was in before[name].items():
                if name in now and now[name].get(what, False) != was:
                    said = f"{what} was {_told(was)}, is {_told(now[name].get(what, False))}"
                    found.append(Difference(one, name, "changed", said))
    if old["levels"] != new["levels"]:
        # Spark keeps the state of each level, and refuses a query that has more or fewer.
        said = f"levels of tasks were {old['levels']}, are {new['levels']} (a repartition() came or went)"
        found.append(Difference("topology", "depth", "changed", said))
    return found


def _moved(
    before: Entry, now: Entry, gone: list[str], fresh: list[str], stores: dict[str, str]
) -> list[tuple[str, str]]:
    """Generated names that differ by their number alone: what they name is the same, at another place."""
    found = []
    left = sorted(filter(_is_generated, fresh), key=_number)
    for name in sorted(filter(_is_generated, gone), key=_number):
        entry = dict(before[name])
        if "stores" in entry:
            entry["stores"] = [stores.get(store, store) for store in entry["stores"]]
        for other in left:
            if _stem(other) == _stem(name) and all(now[other].get(key) == entry[key] for key in entry):
                found.append((name, other))
                left.remove(other)
                break
    return found


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in sorted(value.items()))
    return ", ".join(value) if isinstance(value, list) else str(value)


def _message(plan: Plan, checkpoint: Path, differences: list[Difference]) -> str:
    hint = (
        "Generated names have a number that moves when operators above come or go: give stores and operators names "
        '(materialized=Materialized.as_("..."), name="..."), and they stay. '
        if any(one.is_of_a_generated_name for one in differences)
        else ""
    )
    listed = "; ".join(map(str, differences))
    return (
        f"the state of {plan.application_id!r} in {checkpoint} was written by another topology: {listed}. {hint}Put "
        "back what changed; or take a new application id, which reads from the beginning and writes everything; or "
        "move this directory away and rebuild (rebuild=True, suiro run --rebuild): that reads the sources again for "
        "the state, and writes only the results of what is new"
    )


def may_buffer(checkpoint: Path) -> bool:
    """Whether tasks may buffer records: the last micro-batch left some in the log, or was replayed."""
    place = str(checkpoint)
    # Of one that is planned and not done, the state is that of the micro-batch before.
    numbers = {newest_in(place, "offsets"), newest_in(place, "commits")}
    plans = [plan for number in numbers if (plan := read_planned(place, number)) is not None]
    return any(item.behind or item.replayed for plan in plans for item in plan.positions)


def _stem(name: str) -> str:
    own, *copy = name.partition(_COPY)
    return "".join((own.rstrip("0123456789"), *copy))


def _number(name: str) -> int:
    own = name.partition(_COPY)[0]
    return int(own[len(_stem(own)) :] or 0)


def _is_generated(name: str) -> bool:
    return "STATE-STORE-" in name or name.startswith(("KSTREAM-", "KTABLE-", "COGROUPKSTREAM-"))


def _write(path: Path, description: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(description, indent=1, sort_keys=True) + "\n")


_PARTITIONS = 1


class Fate(StrEnum):
    KEPT = "kept"
    """Goes on with the state that is there."""
    TO_BE_NAMED = "to be named"
    """The same, under another generated name: goes on once it has a name in the code."""
    REBUILT = "rebuilt"
    """There is no state for it, or of another kind: only a rebuild makes it."""
    DROPPED = "dropped"
    """Is in the old topology only. A start on the old state refuses it, a rebuild leaves it out."""
    FROM_ITS_BEGINNING = "from its beginning"
    """A topic that is read now and was not: the next start reads all of it."""
    FROM_NOW_ON = "from now on"
    """A topic that is written now and was not: gets the results of records that are yet to be processed."""
    LEFT = "left"
    """A topic that is no longer read or written. It stays as it is."""


@dataclass(frozen=True, slots=True)
class Item:
    """`kind`: "store", "operator", "topology", "source" or "sink". `said`: why, and what to do; may be empty."""

    kind: str
    name: str
    fate: Fate
    said: str = ""


@dataclass(frozen=True, slots=True)
class Upgrade:
    items: tuple[Item, ...]

    @property
    def carries_over(self) -> bool:
        """The new topology starts on the old state as it is."""
        return not any(one.fate in (Fate.TO_BE_NAMED, Fate.REBUILT, Fate.DROPPED) for one in self.items)

    @property
    def names_suffice(self) -> bool:
        """It does once what is `TO_BE_NAMED` has a name."""
        return not any(one.fate in (Fate.REBUILT, Fate.DROPPED) for one in self.items)


def upgrade_of(old: Topology, new: Topology) -> Upgrade:
    """Raises `TopologyError` for a topology that cannot be run."""
    before, now = _described(old), _described(new)
    differences = compare(before, now)
    differs = {(one.kind, one.at or one.name) for one in differences}
    items = [
        Item(kind, name, Fate.KEPT)
        for kind in ("store", "operator")
        for name in now[f"{kind}s"]
        if (kind, name) not in differs
    ]
    for one in differences:
        if one.what == "moved":
            own = one.name.partition(_COPY)[0]
            as_named = f'Materialized.as_("{own}")' if one.kind == "store" else f'name="{own}"'
            said = f"is {one.name} in the old topology; keep that name with {as_named}"
            items.append(Item(one.kind, one.at, Fate.TO_BE_NAMED, said))
        elif one.what == "gone":
            items.append(Item(one.kind, one.name, Fate.DROPPED, _alike(one.name, before, now, one.kind)))
        else:
            said = one.said if one.what == "changed" else _alike(one.name, now, before, one.kind)
            items.append(Item(one.kind, one.name, Fate.REBUILT, said))
    for kind, was, read in (
        ("source", old.source_topics, new.source_topics),
        ("sink", old.sink_topics, new.sink_topics),
    ):
        fresh = Fate.FROM_ITS_BEGINNING if kind == "source" else Fate.FROM_NOW_ON
        items += [Item(kind, topic, fresh) for topic in read if topic not in was]
        items += [Item(kind, topic, Fate.LEFT) for topic in was if topic not in read]
    return Upgrade(tuple(items))


def _described(topology: Topology) -> dict[str, Any]:
    return describe_state(plan(topology, "upgrade", dict.fromkeys(topology.source_topics, _PARTITIONS)))


def _alike(name: str, own: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]], kind: str) -> str:
    """Names of the other topology that could be meant: of the same kind and shape, wherever they are."""
    places = ("sub-topology", "level", "stores")
    entry = own[f"{kind}s"][name]
    shape = {what: value for what, value in entry.items() if what not in places}
    found = [
        candidate
        for candidate, values in other[f"{kind}s"].items()
        if candidate not in own[f"{kind}s"] and all(values.get(what) == shape[what] for what in shape)
    ]
    if not found:
        return ""
    return f"could be {' or '.join(found)} under another name: give both the same name if so"
