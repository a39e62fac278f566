"""Any sequence of commands leaves a view in a known position, and the rules of `suiro.views.control.lifecycle` hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.errors import UsageError
from suiro.views.control import lifecycle
from suiro.views.control.lifecycle import TABLE
from suiro.views.state import (
    ALL,
    LARGEST_LAG_MS,
    POSITIONS,
    Change,
    RolloutPlan,
    View,
    position_of,
    version_for,
)

CALLERS = [f"caller-{number}" for number in range(300)]
KEY = ("carrier", "day")

shares = st.sampled_from([1, 100, 1_000, 5_000, ALL]) | st.integers(1, ALL)
numbers = st.integers(1, 6)
lags = st.sampled_from([0, 0, 0, LARGEST_LAG_MS, LARGEST_LAG_MS + 1, None])
guides = st.lists(shares, min_size=1, max_size=4, unique=True).map(sorted)


def shift(view: View, share: int, lag_ms: int | None) -> Change:
    return lifecycle.shift(view, share, lag_ms=lag_ms)


def guided(view: View, steps: list[int], lag_ms: int | None) -> Change:
    return lifecycle.shift(view, steps[0], lag_ms=lag_ms, guide=RolloutPlan(steps=tuple(steps), hold_ms=1))


def deploy(view: View) -> Change:
    return lifecycle.deploy(view, key=KEY, spec={"n": lifecycle.next_number(view)})


def command(name: str, function: Callable[..., Change], *arguments: Any) -> tuple[str, Callable[[View], Change]]:
    return f"{name}{arguments}", lambda view: function(view, *arguments)


commands = st.one_of(
    st.just(command("deploy", deploy)),
    numbers.map(lambda n: command("caught_up", lifecycle.caught_up, n)),
    numbers.map(lambda n: command("fail", lambda view: lifecycle.fail(view, n, "broken"))),
    st.tuples(shares, lags).map(lambda given: command("shift", shift, *given)),
    st.tuples(guides, lags).map(lambda given: command("guided", guided, *given)),
    lags.map(lambda lag: command("next_step", lambda view: lifecycle.next_step(view, lag_ms=lag))),
    st.just(command("rollback", lifecycle.rollback)),
    st.just(command("trip", lambda view: lifecycle.trip(view, "p99"))),
    lags.map(lambda lag: command("forward", lambda view: lifecycle.forward(view, lag_ms=lag))),
    st.tuples(numbers, st.booleans()).map(
        lambda given: command("retire", lambda view: lifecycle.retire(view, given[0], last=given[1]))
    ),
    numbers.map(lambda n: command("freed", lifecycle.freed, n)),
)


def answered(view: View) -> dict[str, int | None]:
    return {caller: version_for(view, caller) for caller in CALLERS}


def check(view: View) -> None:
    routing = view.routing
    assert position_of(view) in POSITIONS
    assert len(view.live) <= 2
    assert {version.number for version in view.live} == {
        number for number in (routing.serving, routing.candidate) if number is not None
    }
    assert routing.serving is None or view.version(routing.serving).state == "ready"
    assert 0 <= routing.share <= ALL
    for number in set(answered(view).values()) - {None}:
        assert view.version(number).state == "ready"  # type: ignore[arg-type]
    assert View.from_json(json.loads(json.dumps(view.to_json()))) == view


@given(st.lists(commands, max_size=40))
def test_any_sequence_of_commands_leaves_a_defined_state(drawn: list[Any]) -> None:
    view = View(name="delays")
    for _name, run in drawn:
        try:
            change = run(view)
        except UsageError:
            continue  # refused: the view is as it was, because it is a value
        if change.event is None:
            assert change.view == view
            continue
        assert change.view.revision == view.revision + 1
        assert change.event.before == position_of(view)
        assert change.event.after == position_of(change.view)
        check(change.view)
        view = change.view


@given(st.lists(st.tuples(shares, st.booleans()), min_size=1, max_size=8))
def test_rollback_after_any_shifts_restores_routing(drawn: list[tuple[int, bool]]) -> None:
    before = view = two()
    for share, falls in drawn:
        view = shift(view, share, 0).view
        if falls:
            view = lifecycle.trip(view, "errors").view
    back = lifecycle.rollback(view).view
    assert answered(back) == answered(before) == dict.fromkeys(CALLERS, 1)
    assert back.versions == before.versions
    if view.routing.share:
        again = lifecycle.forward(back, lag_ms=0).view
        assert answered(again) == answered(view)


@given(shares, shares)
def test_a_larger_share_moves_callers_one_way_only(first: int, second: int) -> None:
    less, more = sorted((first, second))
    on_less = {caller for caller, n in answered(shift(two(), less, 0).view).items() if n == 2}
    on_more = {caller for caller, n in answered(shift(two(), more, 0).view).items() if n == 2}
    assert on_less <= on_more
    if more == ALL:
        assert on_more == set(CALLERS)


def two() -> View:
    """Version 1 serves, version 2 is ready beside it."""
    view = lifecycle.caught_up(deploy(View(name="delays")).view, 1).view
    return lifecycle.caught_up(deploy(view).view, 2).view


def test_every_line_of_the_table_can_be_walked() -> None:
    """What the table allows happens; `_change` refuses what it does not have."""
    walked: set[tuple[str, str, str]] = set()
    names = {"freed": None, "retire": None}
    todo, seen = [View(name="delays")], set()

    def key_of(view: View) -> Any:
        states = tuple(version.state for version in view.versions)
        return states, view.routing

    tries: list[Callable[[View], Change]] = [
        deploy,
        lambda view: shift(view, 100, 0),
        lambda view: shift(view, ALL, 0),
        lifecycle.rollback,
        lambda view: lifecycle.trip(view, "p99"),
        lambda view: lifecycle.forward(view, lag_ms=0),
    ]
    for number in (1, 2, 3):
        tries += [
            lambda view, n=number: lifecycle.caught_up(view, n),
            lambda view, n=number: lifecycle.fail(view, n, "broken"),
            lambda view, n=number: lifecycle.retire(view, n),
            lambda view, n=number: lifecycle.retire(view, n, last=True),
        ]
    while todo:
        view = todo.pop()
        if key_of(view) in seen or len(view.versions) > 3:
            continue
        seen.add(key_of(view))
        for one in tries:
            try:
                change = one(view)
            except UsageError:
                continue
            if change.event is not None:
                if change.event.command not in names:
                    walked.add((change.event.command, change.event.before, change.event.after))
                todo.append(change.view)
    table = {(name, before, after) for name, row in TABLE.items() for before, to in row.items() for after in to}
    assert walked == table - {("rollback", "ready", "ready"), ("rollback", "rolled back", "rolled back")}


def test_shares_are_met() -> None:
    view = shift(two(), 1_000, 0).view
    on = sum(version_for(view, f"caller {number}") == 2 for number in range(20_000))
    assert on == pytest.approx(2_000, rel=0.1)
