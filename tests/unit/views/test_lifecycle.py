"""What is refused, and that the message says what to do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from suiro.errors import UsageError
from suiro.views.control import lifecycle
from suiro.views.state import RefusedChangeError, RollbackConditions, RolloutPlan, UnknownViewError, View

KEY = ("carrier", "day")


def alone() -> View:
    return lifecycle.caught_up(lifecycle.deploy(View(name="delays"), key=KEY, spec={}).view, 1).view


def building() -> View:
    return lifecycle.deploy(alone(), key=KEY, spec={}).view


def ready() -> View:
    return lifecycle.caught_up(building(), 2).view


def at(percent: int) -> View:
    return lifecycle.shift(ready(), percent * 100, lag_ms=0).view


def test_two_deploys() -> None:
    with pytest.raises(RefusedChangeError, match="version 2 is being built, and a view has at most two"):
        lifecycle.deploy(building(), key=KEY, spec={})
    with pytest.raises(RefusedChangeError, match="suiro view retire delays 1"):
        lifecycle.deploy(at(100), key=KEY, spec={})


def test_every_command_that_a_refused_deploy_names_is_one_that_can_be_given() -> None:
    """Word by word: what it says, done, leads to where a deploy is taken."""
    for view, said in (
        (lifecycle.deploy(View(name="delays"), key=KEY, spec={}).view, ["retire 1"]),
        (building(), ["retire 2"]),
        (ready(), ["shift 100", "retire 2"]),
        (at(1), ["rollback", "retire 2"]),
        (at(100), ["retire 1"]),
        (lifecycle.rollback(at(1)).view, ["shift 100", "retire 2"]),
    ):
        with pytest.raises(RefusedChangeError) as refused:
            lifecycle.check_deploy(view, KEY)
        named = re.findall(r"suiro view (\w+) delays ?(\d*)", str(refused.value))
        assert [" ".join(filter(None, command)) for command in named] == said
        for command in said:
            match command.split():
                case ["shift", percent]:
                    lifecycle.shift(view, int(percent) * 100, lag_ms=0)
                case ["rollback"]:
                    view = lifecycle.rollback(view).view
                case ["retire", number]:
                    lifecycle.check_deploy(lifecycle.retire(view, int(number)).view, KEY)


def test_a_key_that_changes_its_shape() -> None:
    with pytest.raises(RefusedChangeError, match=r"\(carrier, day\) in version 1 and \(carrier\) in what"):
        lifecycle.deploy(alone(), key=("carrier",), spec={})


def test_a_version_that_fails_leaves_the_serving_one() -> None:
    before = alone()
    after = lifecycle.fail(building(), 2, "KeyError: 'dep_delay'").view
    assert after.routing == before.routing
    assert after.version(1) == before.version(1)
    assert after.version(2).error == "KeyError: 'dep_delay'"
    assert lifecycle.deploy(after, key=KEY, spec={}).view.routing.candidate == 3


def test_a_failed_version_can_be_freed() -> None:
    failed = lifecycle.fail(building(), 2, "broken").view
    retired = lifecycle.retire(failed, 2).view
    assert retired.routing == failed.routing
    assert lifecycle.freed(failed, 2).event is None, "its data may still be read"
    assert lifecycle.retire(retired, 2).event is None
    freed = lifecycle.freed(retired, 2).view
    assert freed.version(2).freed
    assert lifecycle.freed(freed, 2).event is None


def test_of_freed_versions_the_last_ones_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "KEPT_FREED", 2)
    view = alone()
    old = [replace(view.version(1), number=number, state="retired") for number in range(2, 6)]
    view = replace(view, versions=(*view.versions, *old))
    for number in range(2, 6):
        view = lifecycle.freed(view, number).view
    assert [version.number for version in view.versions] == [1, 4, 5]


@pytest.mark.parametrize("lag_ms", [None, 10_001])
def test_a_version_that_lags(lag_ms: int | None) -> None:
    with pytest.raises(RefusedChangeError, match="lags behind version 1"):
        lifecycle.shift(ready(), 100, lag_ms=lag_ms)
    with pytest.raises(RefusedChangeError, match="lags behind version 1"):
        lifecycle.forward(lifecycle.rollback(at(50)).view, lag_ms=lag_ms)


def test_a_version_that_is_still_built() -> None:
    with pytest.raises(RefusedChangeError, match="still being built"):
        lifecycle.shift(building(), 100, lag_ms=0)


def test_nothing_to_shift_to() -> None:
    with pytest.raises(RefusedChangeError, match="no second version"):
        lifecycle.shift(alone(), 100, lag_ms=0)
    with pytest.raises(RefusedChangeError, match="no rollback to go forward from"):
        lifecycle.forward(ready(), lag_ms=0)


def test_rollback_after_retire_says_that_it_cannot_be_undone() -> None:
    done = lifecycle.retire(at(100), 1).view
    assert done.routing.serving == 2
    with pytest.raises(RefusedChangeError, match="version 1 was retired, which cannot be undone"):
        lifecycle.rollback(done)


def test_retire_of_a_routed_version() -> None:
    with pytest.raises(RefusedChangeError, match=r"10 % of the callers .* are on version 2"):
        lifecycle.retire(at(10), 2)
    with pytest.raises(RefusedChangeError, match=r"90 % of the callers .* are on version 1"):
        lifecycle.retire(at(10), 1)
    with pytest.raises(RefusedChangeError, match="the only one"):
        lifecycle.retire(alone(), 1)
    assert lifecycle.retire(alone(), 1, last=True).view.routing.serving is None


@pytest.mark.parametrize("share", [0, -1, 10_001])
def test_shares_that_are_none(share: int) -> None:
    with pytest.raises(UsageError, match="more than 0 % and at most 100 %"):
        lifecycle.shift(ready(), share, lag_ms=0)


@pytest.mark.parametrize("steps", [(100, 100), (1_000, 100), (100, 20_000)])
def test_steps_that_do_not_rise(steps: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="steps rise"):
        lifecycle.shift(ready(), steps[0], lag_ms=0, guide=RolloutPlan(steps=steps, hold_ms=1))


def test_a_guide_goes_step_by_step_and_keeps_its_guards() -> None:
    guards = RollbackConditions(errors=0.01, p99_ms=50.0)
    view = lifecycle.shift(
        ready(), 100, lag_ms=0, guards=guards, guide=RolloutPlan(steps=(100, 1_000, 10_000), hold_ms=5_000)
    ).view
    shares = [view.routing.share]
    while view.routing.guide is not None:
        view = lifecycle.next_step(view, lag_ms=0).view
        shares.append(view.routing.share)
    assert shares == [100, 1_000, 10_000, 10_000]
    assert view.routing.guards == guards


def test_a_guard_that_trips_ends_the_guide() -> None:
    view = lifecycle.shift(ready(), 100, lag_ms=0, guide=RolloutPlan(steps=(100, 1_000), hold_ms=1)).view
    change = lifecycle.trip(view, "p99 of version 2 is 80 ms")
    assert change.event.detail["reason"] == "p99 of version 2 is 80 ms"
    assert (change.view.routing.share, change.view.routing.guide) == (0, None)
    assert lifecycle.next_step(change.view, lag_ms=0).event is None
    assert lifecycle.trip(change.view, "again").event is None


def test_a_version_that_is_not_there() -> None:
    with pytest.raises(UnknownViewError, match="has no version 7; it has had 1, 2"):
        lifecycle.retire(ready(), 7)
