"""Reports the effect of a changed topology on the state of its application, without starting or stopping anything.

It compares as a start does (`description`), and says of every store and operator with state whether it goes on. Nothing
is asked of a cluster: how many partitions the sources have is the same for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from suiro.streams.topology.topology import Topology
from suiro.streams_spark.description import compare, describe_state
from suiro.streams_spark.plan import plan

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
            as_named = f'Materialized.as_("{one.name}")' if one.kind == "store" else f'name="{one.name}"'
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
