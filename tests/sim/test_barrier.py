"""The sink whose tasks send: its model holds within its bounds, and its real code in the world; each rule is needed.

(Rule 6 is in the model's hands only: in the world two attempts write the same rows, so one that passes for the other
is not seen. Rule 8, one writer for a partition, is a matter of the plan: tests/spark/test_producer_tasks.py.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from suiro.spark import barrier
from suiro.spark.barrier import BarrierCommitter, Report, Ticket
from suiro.spark.committer import read_marker
from tests.sim.barrier_model import BarrierModel, BarrierRules
from tests.sim.barrier_query import BarrierLife
from tests.sim.campaign import VERSIONS, _template, story_of
from tests.sim.exactly_once_model import explore
from tests.sim.mutants import Patch, broken
from tests.sim.network import Troubles
from tests.sim.scenario import Plan, Result

SOUND = [
    pytest.param(BarrierModel(attempts=2), id="a stage that fails"),
    pytest.param(BarrierModel(is_v2=True, epochs=6, attempts=2), id="a stage that fails, V2"),
    pytest.param(BarrierModel(pieces=2, attempts=1, troubles=1), id="two record batches, one trouble"),
]
LARGER = [
    pytest.param(BarrierModel(is_v2=True, epochs=6, drivers=2, attempts=2), id="two drivers, V2"),
    pytest.param(BarrierModel(drivers=2, attempts=2), id="two drivers"),
    pytest.param(BarrierModel(attempts=3), id="a stage that fails twice"),
    pytest.param(BarrierModel(attempts=2, troubles=1), id="a stage that fails, one trouble"),
    pytest.param(BarrierModel(drivers=2, attempts=2, verification=False), id="a broker before 3.6"),
    pytest.param(BarrierModel(batches=2, attempts=3), id="two micro-batches"),
    pytest.param(BarrierModel(is_v2=True, epochs=6, attempts=3, troubles=1), id="one trouble, V2"),
    pytest.param(BarrierModel(is_v2=True, epochs=6, batches=2, drivers=2, attempts=3), id="all of it, V2"),
    pytest.param(BarrierModel(tasks=3, attempts=2), id="three tasks"),
]
BROKEN = [
    pytest.param(
        BarrierModel(rules=BarrierRules(epoch_for_each_attempt=False)),
        "torn",
        id="one epoch for all attempts",
    ),
    pytest.param(BarrierModel(rules=BarrierRules(reports_of_one_epoch=False)), "torn", id="any report counts"),
    pytest.param(
        BarrierModel(rules=BarrierRules(fence_before_asking=False), drivers=2, is_v2=True, epochs=4),
        "duplicate",
        id="asked before fenced",
    ),
    pytest.param(
        BarrierModel(rules=BarrierRules(ask=False), troubles=1, is_v2=True, epochs=5),
        "duplicate",
        id="nobody asks for the marker",
    ),
]


@pytest.mark.parametrize("model", SOUND)
def test_nothing_goes_wrong_within_small_bounds(model: BarrierModel) -> None:
    found = explore(model)
    assert not found.wrong, str(found)
    assert found.states > 2_000


@pytest.mark.soak
@pytest.mark.parametrize("model", LARGER)
def test_nothing_goes_wrong_within_larger_bounds(model: BarrierModel) -> None:
    found = explore(model, most=3_000_000)
    print(f"\n{model}: {found}")
    assert not found.wrong, str(found)


@pytest.mark.parametrize(("model", "anomaly"), BROKEN)
def test_without_one_of_the_rules_there_is_a_way_to_lose_or_repeat(model: BarrierModel, anomaly: str) -> None:
    found = explore(model)
    assert found.wrong.startswith(anomaly), str(found)


def life(seed: int, plan: Plan | None = None) -> Result:
    """Even seeds are of transactions V1, odd ones of V2."""
    return BarrierLife(seed, _template(VERSIONS[seed % 2]), plan=plan).run()


def test_every_seed_ends_exactly_once() -> None:
    happened: set[str] = set()
    for seed in range(12):
        result = life(seed)
        assert result.violation is None, story_of(result)
        happened |= set(result.happened)
    assert {"stage repeated", "driver killed", "driver paused", "node killed"} <= happened


@pytest.mark.soak
def test_many_seeds_end_exactly_once() -> None:
    for seed in range(12, 3_000):
        result = life(seed)
        assert result.violation is None, story_of(result)


def any_report_counts(patch: Patch) -> None:
    """Rule 7."""

    def agreed(self: Any, reports: Sequence[Report], plan: Any) -> Ticket:
        failures = [report.failure for report in reports if report.failure is not None]
        if failures:
            raise failures[0]
        tickets = [report.ticket for report in reports if report.ticket is not None]
        return max(tickets, key=lambda ticket: (ticket.identity.epoch, ticket.says_send))

    patch(BarrierCommitter, "_agreed", agreed)


def asked_before_fenced(patch: Patch) -> None:
    """Rule 1."""
    opened = barrier.open_transaction

    def ask_first(cluster: Any, destination: Any, plan: Any, **rest: Any) -> Ticket:
        marker = read_marker(cluster, destination, stable=True)
        with broken(lambda inner: inner(barrier, "read_marker", lambda *_, **__: marker)):
            return opened(cluster, destination, plan, **rest)

    patch(barrier, "open_transaction", ask_first)


def storm() -> Plan:
    return Plan(
        budget=12,
        troubles=Troubles(most_latency_ms=200, stall=0.1, break_after=0.05, ghost=0.3),
        pause_driver=0.1,
        kill_driver=0.02,
        settings={"request.timeout.ms": 2_000, "default.api.timeout.ms": 5_000, "delivery.timeout.ms": 5_000},
    )


@pytest.mark.parametrize("mutant", [any_report_counts, asked_before_fenced])
def test_a_broken_rule_is_found(mutant: Callable[[Patch], None]) -> None:
    for seed in range(200):
        with broken(mutant):
            result = life(seed, storm())
        if result.violation is not None:
            print(seed, result.violation)
            return
    raise AssertionError(f"nobody notices {mutant.__name__}")
