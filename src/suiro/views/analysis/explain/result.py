"""The result of an explanation, as values that JSON preserves. `rows` creates them, `text` formats them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from suiro.foundation.types import TopicPartition
from suiro.lineage import Place
from suiro.views.analysis.compare.values import Difference, plain
from suiro.views.analysis.explain.kinds import Effect
from suiro.views.analysis.explain.path import Stop
from suiro.views.analysis.explain.replay import Key
from suiro.views.analysis.explain.traits import Trait


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one version did with a record. `columns`: (before, after), those that changed first; none where the row
    stayed as it was. `at`: where in the topology the versions part. `dropped`: what left it out, if that is counted."""

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
    """Among the records of the row, from 1 on."""
    old: Turn
    new: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Records that were treated in one way: how many, what each side did, what they have in common, a few of them."""

    topic: str
    records: int
    old: tuple[Effect, ...]
    new: tuple[Effect, ...]
    traits: tuple[Trait, ...]
    others: int
    """Records of the row and topic that are not of this kind; what `Trait.others` is a part of."""
    examples: tuple[Decided, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`named`: the records that both rows come from, in order. `is_proven`: they alone make both rows. `matches_store`:
    what was made once more is what the versions' stores have; None if that was not asked for."""

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
    """Records of kinds beyond those that are kept."""
    is_proven: bool
    matches_store: bool | None
    records_read: int

    @property
    def is_equal(self) -> bool:
        return not self.differences

    @property
    def parting_kind(self) -> Kind | None:
        """The kind of the record at which they part."""
        return None if self.kind_of_parting is None else self.kinds[self.kind_of_parting]

    @property
    def is_explained(self) -> bool:
        """It is said which record parts the rows, and the records that are named make both of them."""
        return (
            self.is_proven and self.matches_store is not False and (self.is_equal or self.parting is not None)
        )

    def to_json(self, *, full: bool = True) -> dict[str, Any]:
        """Without `full`, only how many records there are, not which."""
        found = asdict(self)
        found["inputs"] = [[topic, partition, end] for (topic, partition), end in sorted(self.inputs.items())]
        found["differences"] = [
            [each.column, each.kind, plain(each.old), plain(each.new), each.size] for each in self.differences
        ]
        found["records"] = len(self.named)
        if not full:
            found["named"] = None
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Explanation:
        found = {name: value for name, value in data.items() if name != "records"}
        return cls(
            **{
                **found,
                "key": tuple(data["key"]),
                "key_names": tuple(data["key_names"]),
                "inputs": {(topic, partition): end for topic, partition, end in data["inputs"]},
                "differences": tuple(Difference(*each) for each in data["differences"]),
                "named": tuple(
                    (topic, partition, offset) for topic, partition, offset in data["named"] or ()
                ),
                "parting": None if data["parting"] is None else _decided_from_json(data["parting"]),
                "kinds": tuple(_kind_from_json(each) for each in data["kinds"]),
            }
        )


def _decided_from_json(data: Mapping[str, Any]) -> Decided:
    return Decided(
        **{
            **data,
            "place": tuple(data["place"]),
            "old": _turn_from_json(data["old"]),
            "new": _turn_from_json(data["new"]),
        }
    )


def _turn_from_json(data: Mapping[str, Any]) -> Turn:
    return Turn(
        changed=data["changed"],
        columns={name: (before, after) for name, (before, after) in data["columns"].items()},
        at=None if data["at"] is None else _stop_from_json(data["at"]),
        dropped=tuple(data["dropped"]),
    )


def _stop_from_json(data: Mapping[str, Any]) -> Stop:
    gives = data["gives"]
    return Stop(**{**data, "gives": None if gives is None else (gives[0], gives[1])})


def _kind_from_json(data: Mapping[str, Any]) -> Kind:
    return Kind(
        **{
            **data,
            "old": tuple(Effect(**each) for each in data["old"]),
            "new": tuple(Effect(**each) for each in data["new"]),
            "traits": tuple(Trait(**each) for each in data["traits"]),
            "examples": tuple(_decided_from_json(each) for each in data["examples"]),
        }
    )
