"""A view as a frozen value: its versions, the routing of its callers, its position. To and from JSON. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from suiro.errors import TransientError, UsageError

ALL = 10_000
"""Basis points: the share of all callers."""
LARGEST_LAG_MS = 10_000
"""No caller is moved to a version that has lacked something that the serving version has for longer than this, unless
the command names another time."""

State = Literal["building", "ready", "failed", "retired"]
Position = Literal["none", "first", "alone", "building", "ready", "shifting", "shifted", "rolled back"]

POSITIONS: Mapping[Position, str] = MappingProxyType(
    {
        "none": "no version exists, nothing is served",
        "first": "the first version is being built; nothing is served yet",
        "alone": "one version serves all callers",
        "building": "one version serves all callers, the candidate is being built",
        "ready": "the candidate has caught up; no caller was moved yet",
        "shifting": "some callers are on the candidate",
        "shifted": "all callers are on the candidate, the serving version is still updated",
        "rolled back": "all callers are back on the serving version, the candidate is still updated",
    }
)


class UnknownViewError(UsageError):
    """There is no view of this name, or no such version of it."""


class NotServedError(TransientError):
    """No version answers for the view yet: the first one is being built, or the host has just started."""


class RefusedChangeError(UsageError):
    """The command is not possible in the view's position. The message says which one is."""


class ConcurrentChangeError(TransientError):
    """Another change of the view came first, and nothing of this one was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """`spec`: the version's `VersionSpec` as JSON. These rules pass it on, and read only `key`."""

    number: int
    state: State
    key: tuple[str, ...]
    spec: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    freed: bool = False
    """The version is retired, and its topics, store and checkpoint are deleted."""

    @property
    def lives(self) -> bool:
        return self.state in ("building", "ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackConditions:
    """Limits for the candidate of a shift. None is no limit. `errors` and `difference` are shares from 0 to 1."""

    errors: float | None = None
    p99_ms: float | None = None
    difference: float | None = None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """The steps of a shift. The host takes them one after the other, and holds each for `hold_ms`. `at`: the current
    step. `largest_lag_ms`: of the candidate, at each step."""

    steps: tuple[int, ...]
    hold_ms: int
    at: int = 0
    largest_lag_ms: int = LARGEST_LAG_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Which version answers which callers. `share`: the callers on the candidate, in basis points."""

    serving: int | None = None
    candidate: int | None = None
    share: int = 0
    share_before_rollback: int | None = None
    guards: RollbackConditions = RollbackConditions()
    guide: RolloutPlan | None = None


NO_CONDITIONS = RollbackConditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that was decided about a view. `revision` counts its changes."""

    name: str
    revision: int = 0
    versions: tuple[Version, ...] = ()
    routing: Routing = Routing()

    def version(self, number: int) -> Version:
        """Raises `UnknownViewError`."""
        for version in self.versions:
            if version.number == number:
                return version
        known = ", ".join(str(version.number) for version in self.versions) or "none"
        raise UnknownViewError(f"view {self.name} has no version {number}; it has had {known}")

    @property
    def live(self) -> tuple[Version, ...]:
        return tuple(version for version in self.versions if version.lives)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> View:
        routing = dict(data["routing"])
        guide = routing.pop("guide")
        return cls(
            name=data["name"],
            revision=data["revision"],
            versions=tuple(Version(**{**one, "key": tuple(one["key"])}) for one in data["versions"]),
            routing=Routing(
                **{**routing, "guards": RollbackConditions(**routing["guards"])},
                guide=None if guide is None else RolloutPlan(**{**guide, "steps": tuple(guide["steps"])}),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of a view's history. `detail`: the figures of the command."""

    command: str
    before: Position
    after: Position
    version: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The result of a command. Without an `event`, the view is already as requested, and nothing is written."""

    view: View
    event: Event | None


def position_of(view: View) -> Position:
    routing = view.routing
    if routing.candidate is None:
        return "none" if routing.serving is None else "alone"
    if routing.serving is None:
        return "first"
    if view.version(routing.candidate).state == "building":
        return "building"
    if routing.share > 0:
        return "shifted" if routing.share == ALL else "shifting"
    return "ready" if routing.share_before_rollback is None else "rolled back"


def version_for(view: View, caller: str) -> int | None:
    """Returns the version that answers this caller, or None if the view serves nothing."""
    routing = view.routing
    if routing.serving is None or routing.candidate is None or routing.share == 0:
        return routing.serving
    return routing.candidate if _place(view.name, routing.candidate, caller) < routing.share else routing.serving


def _place(view: str, candidate: int, caller: str) -> int:
    """The place of a caller among `ALL`. It differs by candidate, so that other callers move first each time."""
    text = f"{view}\0{candidate}\0{caller}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") % ALL
