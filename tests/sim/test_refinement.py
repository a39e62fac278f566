"""The real sink on the real node leaves the model under no fault; a sink that breaks a rule does."""

from __future__ import annotations

import pytest

from tests.sim.campaign import story_of
from tests.sim.mutants import SINK, Mutant, broken
from tests.sim.node import Template
from tests.sim.refinement import Departure, follow


@pytest.fixture(scope="module")
def template() -> Template:
    return Template(transaction_version=1)


@pytest.fixture(scope="module", params=[1, 2])
def either(request: pytest.FixtureRequest) -> Template:
    return Template(transaction_version=request.param)


def test_the_real_sink_does_what_the_model_does(either: Template) -> None:
    seen = 0
    for seed in range(8):
        result, follower = follow(seed, either)
        assert result.violation is None, story_of(result)
        seen += follower.seen
    assert seen > 200, "the model has hardly seen anything"


@pytest.mark.soak
def test_the_real_sink_does_what_the_model_does_for_many_seeds(either: Template) -> None:
    for seed in range(8, 1_000):
        result, _ = follow(seed, either)
        assert result.violation is None, story_of(result)


@pytest.mark.parametrize("mutant", SINK)
def test_a_sink_that_breaks_a_rule_leaves_the_model(template: Template, mutant: Mutant) -> None:
    for seed in range(40):
        with broken(mutant):
            result, _ = follow(seed, template)
        if result.violation is not None:
            assert isinstance(result.violation, Departure), story_of(result)
            return
    raise AssertionError(f"the model accepts {mutant.__name__}")
