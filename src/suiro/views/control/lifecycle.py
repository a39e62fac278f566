"""The rules of a view's lifecycle: which command is allowed when, and its result. Pure.

A view is a frozen value, `View`: its versions and the routing of its callers. Every command is a function that takes
the current view and returns a `Change` (the new view, and the event for its history), or refuses with a message that
says what to do. Every command keeps these invariants:

- Callers are routed to a version that is ready, or to none. A hash decides the version of a caller; a larger share
  moves callers to the candidate, and none away from it.
- At most two versions are live (building or ready): `serving` and `candidate`. While both are live, both get input.
- A view is in one of eight positions (`position_of`), and commands make only the transitions that `TABLE` has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

from suiro.errors import UsageError
from suiro.views.state import (
    ALL,
    LARGEST_LAG_MS,
    NO_CONDITIONS,
    Change,
    Event,
    Position,
    RefusedChangeError,
    RollbackConditions,
    RolloutPlan,
    Routing,
    Version,
    View,
    position_of,
)

KEPT_FREED = 20
KEPT_OF_FREED = ("entry", "fingerprint", "inputs")
"""The number of deleted versions that a view keeps, and the fields of their specs."""

Command = Literal[
    "deploy", "caught up", "fail", "shift", "rollback", "forward", "trip", "retire serving", "retire candidate",
    "retire last", "retire", "freed",
]  # fmt: skip

TABLE: Mapping[Command, Mapping[Position, tuple[Position, ...]]] = MappingProxyType(
    {
        "deploy": {"none": ("first",), "alone": ("building",)},
        "caught up": {"first": ("alone",), "building": ("ready",)},
        "fail": {"first": ("none",), "building": ("alone",)},
        "shift": {
            "ready": ("shifting", "shifted"),
            "shifting": ("shifting", "shifted"),
            "shifted": ("shifting", "shifted"),
            "rolled back": ("shifting", "shifted"),
        },
        "rollback": {
            "shifting": ("rolled back",),
            "shifted": ("rolled back",),
            "rolled back": ("rolled back",),
            "ready": ("ready",),
        },
        "forward": {"rolled back": ("shifting", "shifted")},
        "trip": {"shifting": ("rolled back",), "shifted": ("rolled back",)},
        "retire serving": {"shifted": ("alone",)},
        "retire candidate": {
            "first": ("none",),
            "building": ("alone",),
            "ready": ("alone",),
            "rolled back": ("alone",),
        },
        "retire last": {"alone": ("none",)},
    }
)
"""For each command, the positions in which it is possible, and those it may lead to. All else is refused. Commands that
are not here do not change the position."""


def next_number(view: View) -> int:
    return max((version.number for version in view.versions), default=0) + 1


def check_deploy(view: View, key: Sequence[str]) -> None:
    """Raises the errors of `deploy`, so that the host can refuse a deploy before it does expensive checks."""
    position = position_of(view)
    if position not in TABLE["deploy"]:
        number, serving = view.routing.candidate, view.routing.serving
        retire = f"suiro view retire {view.name}"
        if position in ("first", "building"):
            stands, then = "is being built", f"Wait until it is, or give it up ({retire} {number})"
        else:
            stands = f"is ready beside version {serving}"
            then = {
                "shifted": f"Retire the old one ({retire} {serving})",
                "shifting": f"Finish its shift, or give it up (suiro view rollback {view.name}; {retire} {number})",
            }.get(position, f"Shift to it (suiro view shift {view.name} 100), or give it up ({retire} {number})")
        raise RefusedChangeError(
            f"view {view.name} is {position}: version {number} {stands}, and a view has at most two versions that "
            f"live. {then}, then deploy"
        )
    for version in view.live:
        if version.key != tuple(key):
            raise RefusedChangeError(
                f"the key of view {view.name} is ({', '.join(version.key)}) in version {version.number} and "
                f"({', '.join(key)}) in what is deployed. Look-ups of running readers would fail half way through a "
                "shift, and no row could be compared; keep the key, or deploy it as a view of another name"
            )


def deploy(view: View, *, key: Sequence[str], spec: Mapping[str, Any]) -> Change:
    """Adds a version, to be built next to the serving one or as the first."""
    check_deploy(view, key)
    number = next_number(view)
    version = Version(number=number, state="building", key=tuple(key), spec=spec)
    return _change(
        view,
        "deploy",
        versions=(*view.versions, version),
        routing=Routing(serving=view.routing.serving, candidate=number),
        version=number,
    )


def caught_up(view: View, number: int) -> Change:
    """Marks a built version as ready. It serves if the view serves nothing yet."""
    if view.version(number).state != "building":
        return Change(view=view, event=None)
    routing = view.routing
    if routing.serving is None:
        routing = Routing(serving=number)
    return _change(view, "caught up", versions=_with(view, number, state="ready"), routing=routing, version=number)


def fail(view: View, number: int, error: str) -> Change:
    """Marks a version that cannot be built as failed. The serving version does not change."""
    if view.version(number).state != "building":
        return Change(view=view, event=None)
    return _change(
        view,
        "fail",
        versions=_with(view, number, state="failed", error=error),
        routing=Routing(serving=view.routing.serving),
        version=number,
        detail={"error": error},
    )


def shift(
    view: View,
    share: int,
    *,
    lag_ms: int | None,
    guards: RollbackConditions = NO_CONDITIONS,
    guide: RolloutPlan | None = None,
    largest_lag_ms: int = LARGEST_LAG_MS,
) -> Change:
    """Moves `share` of the callers, in basis points, to the candidate. `lag_ms`: the candidate's lag, None if unknown.
    With a rollout plan, `share` is its first step."""
    if not 0 < share <= ALL:
        raise UsageError(
            f"a share is more than 0 % and at most 100 %, not {share / 100:g} %; back to 0 % is suiro view rollback"
        )
    if guide is not None and (list(guide.steps) != sorted(set(guide.steps)) or guide.steps[-1] > ALL):
        said = ", ".join(f"{step / 100:g}" for step in guide.steps)
        raise UsageError(f"steps rise from one to the next and end at 100 at most, not {said}")
    candidate = _candidate(view, "shift")
    _check_lag(view, candidate, lag_ms, largest_lag_ms)
    routing = replace(view.routing, share=share, share_before_rollback=None, guards=guards, guide=guide)
    detail: dict[str, Any] = {"from": view.routing.share, "to": share}
    if guide is not None:
        detail |= {"steps": list(guide.steps), "hold_ms": guide.hold_ms}
    return _change(view, "shift", routing=routing, version=candidate.number, detail=detail)


def next_step(view: View, *, lag_ms: int | None) -> Change:
    """Takes the next step of a rollout plan, or ends it after the last one. The rollback conditions remain."""
    guide = view.routing.guide
    if guide is None:
        return Change(view=view, event=None)
    if guide.at + 1 == len(guide.steps):
        return _change(view, "shift", routing=replace(view.routing, guide=None), detail={"done": list(guide.steps)})
    on = replace(guide, at=guide.at + 1)
    return shift(
        view,
        on.steps[on.at],
        lag_ms=lag_ms,
        guards=view.routing.guards,
        guide=on,
        largest_lag_ms=guide.largest_lag_ms,
    )


def rollback(view: View) -> Change:
    """Moves all callers back to the serving version, which is up to date, because it still gets the input."""
    position = position_of(view)
    if position in ("ready", "rolled back"):
        return Change(view=view, event=None)
    if position not in TABLE["rollback"]:
        retired = [version.number for version in view.versions if version.state == "retired"]
        raise RefusedChangeError(
            f"view {view.name} is {position}: no caller was moved to another version, so none can be moved back"
            + (f"; version {retired[-1]} was retired, which cannot be undone" if retired else "")
        )
    return _fall_back(view, "rollback", {"from": view.routing.share, "to": 0})


def trip(view: View, reason: str) -> Change:
    """As `rollback`, because of a broken rollback condition. Changes nothing if no caller is on the candidate."""
    if position_of(view) not in TABLE["trip"]:
        return Change(view=view, event=None)
    return _fall_back(view, "trip", {"from": view.routing.share, "to": 0, "reason": reason})


def _fall_back(view: View, command: Command, detail: Mapping[str, Any]) -> Change:
    routing = replace(view.routing, share=0, share_before_rollback=view.routing.share, guide=None)
    return _change(view, command, routing=routing, version=view.routing.serving, detail=detail)


def forward(view: View, *, lag_ms: int | None, largest_lag_ms: int = LARGEST_LAG_MS) -> Change:
    """Moves the share from before the rollback to the candidate again, with the same rollback conditions."""
    if view.routing.share_before_rollback is None:
        raise RefusedChangeError(
            f"view {view.name} is {position_of(view)}: there was no rollback to go forward from; "
            f"suiro view shift {view.name} PERCENT moves callers"
        )
    candidate = _candidate(view, "forward")
    _check_lag(view, candidate, lag_ms, largest_lag_ms)
    share = view.routing.share_before_rollback
    routing = replace(view.routing, share=share, share_before_rollback=None)
    return _change(view, "forward", routing=routing, version=candidate.number, detail={"from": 0, "to": share})


def retire(view: View, number: int, *, last: bool = False) -> Change:
    """Stops a version and deletes its data, which cannot be undone. `last`: allow that the view serves nothing then."""
    version = view.version(number)
    routing = view.routing
    if version.state == "retired":
        return Change(view=view, event=None)
    versions = _with(view, number, state="retired")
    if number not in (routing.serving, routing.candidate):  # it failed
        return _change(view, "retire", versions=versions, version=number)
    if number == routing.candidate:
        if routing.share:
            raise RefusedChangeError(
                f"{routing.share / 100:g} % of the callers of view {view.name} are on version {number}; "
                f"take them back first: suiro view rollback {view.name}"
            )
        return _change(
            view,
            "retire candidate",
            versions=versions,
            routing=Routing(serving=routing.serving),
            version=number,
        )
    if routing.candidate is None:
        if not last:
            raise RefusedChangeError(
                f"version {number} is the only one of view {view.name}, and all callers are on it. Deploy another "
                "first, or say --last where the view is not needed any more"
            )
        return _change(view, "retire last", versions=versions, routing=Routing(), version=number)
    if position_of(view) not in TABLE["retire serving"]:
        raise RefusedChangeError(
            f"{(ALL - routing.share) / 100:g} % of the callers of view {view.name} are on version {number}; move them "
            f"to version {routing.candidate} first: suiro view shift {view.name} 100"
        )
    return _change(
        view, "retire serving", versions=versions, routing=Routing(serving=routing.candidate), version=number
    )


def freed(view: View, number: int) -> Change:
    """Notes that the data of a retired version is deleted."""
    version = view.version(number)
    if version.state != "retired" or version.freed:
        return Change(view=view, event=None)
    spec = {name: version.spec[name] for name in KEPT_OF_FREED if name in version.spec}
    versions = _with(view, number, freed=True, spec=spec)
    forgotten = [one.number for one in versions if one.freed][:-KEPT_FREED]
    versions = tuple(one for one in versions if one.number not in forgotten)
    return _change(view, "freed", versions=versions, version=number)


def _candidate(view: View, command: Command) -> Version:
    """Returns the version to move callers to. Raises `RefusedChangeError` if none is ready."""
    position = position_of(view)
    if position in TABLE[command]:
        assert view.routing.candidate is not None
        return view.version(view.routing.candidate)
    if position in ("first", "building"):
        raise RefusedChangeError(
            f"version {view.routing.candidate} of view {view.name} is still being built; "
            f"suiro view status {view.name} says how long it will take"
        )
    raise RefusedChangeError(
        f"view {view.name} is {position}: it has no second version to move callers to; deploy one first "
        "(suiro view deploy APP.PY:FUNCTION)"
    )


def _check_lag(view: View, candidate: Version, lag_ms: int | None, largest_ms: int) -> None:
    if lag_ms is None or lag_ms > largest_ms:
        behind = "by how much cannot be told" if lag_ms is None else f"by {lag_ms / 1000:.1f} s"
        raise RefusedChangeError(
            f"version {candidate.number} of view {view.name} lags behind version {view.routing.serving}, {behind} "
            f"({largest_ms / 1000:g} s are allowed): its readers would go back in time. Wait until it has caught up; "
            f"suiro view status {view.name} shows the lag, and an error where its pipeline does not run"
        )


def _with(view: View, number: int, **values: Any) -> tuple[Version, ...]:
    return tuple(replace(version, **values) if version.number == number else version for version in view.versions)


def _change(
    view: View,
    command: Command,
    *,
    versions: tuple[Version, ...] | None = None,
    routing: Routing | None = None,
    version: int | None = None,
    detail: Mapping[str, Any] = MappingProxyType({}),
) -> Change:
    """A transition that `TABLE` does not have is a bug of these rules."""
    after = replace(
        view,
        revision=view.revision + 1,
        versions=view.versions if versions is None else versions,
        routing=view.routing if routing is None else routing,
    )
    from_, to = position_of(view), position_of(after)
    if to not in (TABLE[command].get(from_, ()) if command in TABLE else (from_,)):
        raise AssertionError(f"{command} of view {view.name} led from {from_} to {to}")
    event = Event(command=command, before=from_, after=to, version=version, detail=dict(detail))
    return Change(view=after, event=event)
