"""The model holds within its bounds, and every rule is there for a reason."""

from __future__ import annotations

import pytest

from tests.sim.exactly_once_model import Explored, Model, Rules, explore

SOUND = [
    pytest.param(Model(drivers=2, batches=2, troubles=0), id="two drivers, no lost message"),
    pytest.param(Model(is_v2=True, epochs=6, drivers=2, batches=2, troubles=0), id="two drivers, V2"),
    pytest.param(Model(is_v2=True, epochs=5, drivers=1, batches=2, troubles=2), id="two troubles, V2"),
    pytest.param(Model(drivers=1, batches=2, partitions=2, troubles=1), id="two partitions, one trouble"),
]
LARGER = [
    pytest.param(Model(drivers=2, batches=1, troubles=1), id="two drivers, one micro-batch, one trouble"),
    pytest.param(Model(drivers=2, batches=2, troubles=1), id="two drivers, one trouble"),
    pytest.param(Model(drivers=1, batches=2, troubles=3), id="three troubles"),
    pytest.param(Model(drivers=2, batches=1, partitions=2, troubles=1), id="two drivers, two partitions"),
    pytest.param(Model(drivers=3, batches=2, troubles=0), id="three drivers"),
    pytest.param(Model(is_v2=True, epochs=5, drivers=2, batches=2, troubles=1), id="two drivers, one trouble, V2"),
    pytest.param(
        Model(is_v2=True, epochs=5, drivers=1, batches=3, troubles=2),
        id="three micro-batches, two troubles, V2",
    ),
    pytest.param(Model(is_v2=True, epochs=5, drivers=2, batches=1, partitions=2, troubles=1), id="two partitions, V2"),
    pytest.param(Model(is_v2=True, epochs=5, drivers=3, batches=2, troubles=0), id="three drivers, V2"),
    pytest.param(Model(drivers=2, batches=2, troubles=0, rules=Rules(verification=False)), id="a broker before 3.6"),
]
BROKEN = [
    pytest.param(
        Model(is_v2=True, epochs=5, troubles=0, rules=Rules(fence_before_asking=False)),
        "duplicate",
        id="the marker is read before fencing, V2",
    ),
    pytest.param(
        Model(is_v2=True, epochs=5, batches=1, troubles=0, rules=Rules(marker_in_transaction=False)),
        "duplicate",
        id="no marker, V2",
    ),
    pytest.param(
        Model(troubles=0, rules=Rules(fence_before_asking=False)),
        "duplicate",
        id="the marker is read before fencing",
    ),
    pytest.param(Model(batches=1, troubles=0, rules=Rules(marker_in_transaction=False)), "duplicate", id="no marker"),
    pytest.param(
        Model(drivers=1, rules=Rules(one_epoch_per_transaction=False)),
        "torn transaction",
        id="one epoch for all transactions",
    ),
    pytest.param(
        Model(drivers=1, rules=Rules(abort_by_fencing=False, verification=False)),
        "hanging transaction",
        id="EndTxn aborts, at a broker before 3.6",
    ),
]


@pytest.mark.parametrize("model", SOUND)
def test_nothing_goes_wrong_within_small_bounds(model: Model) -> None:
    _holds(explore(model))


@pytest.mark.soak
@pytest.mark.parametrize("model", LARGER)
def test_nothing_goes_wrong_within_larger_bounds(model: Model) -> None:
    found = explore(model, most=5_000_000)
    print(f"\n{model}: {found}")
    assert not found.wrong, str(found)


@pytest.mark.parametrize(("model", "anomaly"), BROKEN)
def test_without_one_of_the_rules_there_is_a_way_to_lose_or_repeat(model: Model, anomaly: str) -> None:
    found = explore(model)
    assert found.wrong.startswith(anomaly), str(found)
    assert len(found.story) > 5


def _holds(found: Explored) -> None:
    assert not found.wrong, str(found)
    assert found.whole
    assert found.states > 10_000
