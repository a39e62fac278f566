"""The result of an explanation, as values for JSON. `rows` creates them, `text` formats them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from suiro.foundation.types import TopicPartition
from suiro.lineage import Place
from suiro.views.analysis.compare.values import Difference, plain
from suiro.views.analysis.explain.kinds import Effect, Trait
from suiro.views.analysis.explain.path import Stop
from suiro.views.analysis.explain.replay import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The effect of a record in one version. `columns`: (before, after), the changed ones first; empty if the row did
    not change. `at`: where in the topology the versions diverge. `dropped`: the counted reasons for dropping it."""

    changed: bool
    columns: Mapping[str, tuple[Any, Any]]
    at: Stop | None = None
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A record that the versions treat differently."""

    place: Place
    timestamp: int
    key: Any
    value: Any
    number: int
    """Its position among the records of the row, from 1 on."""
    old: Turn
    new: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Records with the same effects: how many, the effects in each version, common traits, and a few of them."""

    topic: str
    records: int
    old: tuple[Effect, ...]
    new: tuple[Effect, ...]
    traits: tuple[Trait, ...]
    others: int
    """The other records of the row in this topic. `Trait.others` is a part of them."""
    examples: tuple[Decided, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`named`: the records that both rows come from, in order. `is_proven`: these records alone make both rows.
    `matches_store`: whether the replayed rows equal those of the versions' stores; None without rows from a store."""

    key: Key
    key_names: tuple[str, ...]
    old_version: int
    new_version: int
    inputs: Mapping[TopicPartition, int]
    old_row: Mapping[str, Any] | None
    new_row: Mapping[str, Any] | None
    differences: tuple[Difference, ...]
    named: tuple[Place, ...]
    old_records: int
    new_records: int
    alike: int
    read: int
    parting: Decided | None
    kind_of_parting: int | None
    kinds: tuple[Kind, ...]
    kinds_left_out: int
    """The records of kinds beyond those that are kept."""
    is_proven: bool
    matches_store: bool | None
    records_read: int

    @property
    def is_equal(self) -> bool:
        return not self.differences

    @property
    def parting_kind(self) -> Kind | None:
        """The kind of the record at which the rows diverge."""
        return None if self.kind_of_parting is None else self.kinds[self.kind_of_parting]

    @property
    def is_explained(self) -> bool:
        """The record at which the rows diverge is known, and the named records make both rows."""
        return self.is_proven and self.matches_store is not False and (self.is_equal or self.parting is not None)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["inputs"] = [[topic, partition, end] for (topic, partition), end in sorted(self.inputs.items())]
        found["differences"] = [
            [each.column, each.kind, plain(each.old), plain(each.new), each.size] for each in self.differences
        ]
        found["records"] = len(self.named)
        return found
