"""Layers of settings: which wins, what is refused, what the next start finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.broker.cluster_state import ClusterState
from suiro.broker.dynamic_settings import SECTION, DynamicSettings
from suiro.config import NodeSettings
from suiro.errors import ConfigError


@pytest.fixture
def state(tmp_path: Path) -> ClusterState:
    return ClusterState(tmp_path)


def test_this_nodes_own_wins_over_the_clusters_default_and_that_over_the_start(state: ClusterState) -> None:
    settings = DynamicSettings(NodeSettings(log_retention_ms=1), state)
    assert settings.effective.log_retention_ms == 1
    assert settings.replace("default", {"log.retention.ms": "2"}).log_retention_ms == 2
    assert settings.replace("broker", {"log.retention.ms": "3"}).log_retention_ms == 3
    assert settings.replace("default", {}).log_retention_ms == 3
    assert settings.replace("broker", {}).log_retention_ms == 1


def test_the_next_start_finds_them(state: ClusterState, tmp_path: Path) -> None:
    DynamicSettings(NodeSettings(), state).replace("broker", {"message.max.bytes": "5000"})
    again = DynamicSettings(NodeSettings(), ClusterState(tmp_path))
    assert again.effective.message_max_bytes == 5000
    assert again.layer("broker") == {"message.max.bytes": "5000"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.partitions", "3", "Cannot update these configs dynamically: [num.partitions]"),
        ("message.max.bytes", "-7", "between 0 and"),
        ("message.max.bytes", "x", "a whole number"),
        ("log.dirs", "/x", "cannot be altered"),
        ("leader.replication.throttled.rate", "fast", "a whole number"),
    ],
)
def test_a_refused_change_changes_nothing(state: ClusterState, name: str, value: str, message: str) -> None:
    settings = DynamicSettings(NodeSettings(), state)
    with pytest.raises(ConfigError) as caught:
        settings.replace("broker", {"log.retention.ms": "5", name: value})
    assert message in str(caught.value)
    assert settings.effective == NodeSettings()
    assert settings.layer("broker") == {}


def test_names_that_nobody_knows_are_kept(state: ClusterState) -> None:
    settings = DynamicSettings(NodeSettings(), state)
    settings.replace("broker", {"my.plugin.secret": "x"})
    assert settings.layer("broker") == {"my.plugin.secret": "x"}


def test_a_stored_setting_that_no_longer_fits_does_not_keep_the_node_from_starting(
    state: ClusterState,
) -> None:
    state.write(
        SECTION, {"broker": {"num.partitions": "3", "log.retention.ms": "5", "message.max.bytes": "no"}}
    )
    settings = DynamicSettings(NodeSettings(), state)
    assert settings.effective == NodeSettings(log_retention_ms=5)
