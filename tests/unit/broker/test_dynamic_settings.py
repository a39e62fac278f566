"""Layers of settings: which wins, what is refused, what the next start finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.broker.settings.cluster_state import ClusterState
from suiro.broker.settings.dynamic_settings import SECTION, DynamicSettings
from suiro.config import MAX_LONG, NodeSettings
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
        ("log.dirs", "/x", "Cannot update these configs dynamically: [log.dirs]"),
        (
            "ssl.keystore.location",
            "/x",
            "only per-listener using the listener prefix: [ssl.keystore.location]",
        ),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "it leaves the choice of cipher suites to OpenSSL"),
        ("listener.name.out.ssl.cipher.suites", "X", "it leaves the choice of cipher suites to OpenSSL"),
        ("principal.builder.class", "com.example.Builder", "it loads no Java classes"),
        ("sasl.kerberos.ticket.renew.jitter", "much", "not a number of type DOUBLE"),
        ("sasl.login.refresh.buffer.seconds", "40000", "between -32768 and 32767"),
        ("group.coordinator.cached.buffer.max.bytes", "1", "between 524288 and"),
        ("leader.replication.throttled.rate", "fast", "not a number of type LONG"),
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
    stored = {"num.partitions": "3", "log.retention.ms": "5", "message.max.bytes": "no", "log.retention.bytes": "1_000"}
    state.write(SECTION, {"broker": stored})
    settings = DynamicSettings(NodeSettings(log_retention_bytes=10), state)
    assert settings.effective == NodeSettings(log_retention_ms=5), "and no record is deleted for an unreadable limit"
    state.write(SECTION, {"broker": {"log.cleanup.policy": "compact+delete", "log.cleaner.delete.retention.ms": "1w"}})
    kept = NodeSettings(log_cleanup_policy="", log_cleaner_delete_retention_ms=MAX_LONG)
    assert DynamicSettings(NodeSettings(), state).effective == kept


def test_a_stored_setting_that_no_longer_fits_takes_no_other_with_it(state: ClusterState) -> None:
    """One of this node's own took all of the cluster's defaults with it, because each was checked under it."""
    defaults = {"log.retention.ms": "5", "message.max.bytes": "7000"}
    state.write(SECTION, {"default": defaults, "broker": {"log.retention.bytes": "1_000"}})
    settings = DynamicSettings(NodeSettings(), state)
    assert settings.layer("default") == defaults
    assert settings.layer("broker") == {"log.retention.bytes": "-1"}


def test_what_kafka_has_for_one_broker_is_no_clusters_default(state: ClusterState) -> None:
    settings = DynamicSettings(NodeSettings(), state)
    names = ["listener.name.out.ssl.client.auth", "sasl.kerberos.service.name", "ssl.client.auth"]
    with pytest.raises(ConfigError, match="at default cluster level, broker id must be specified") as caught:
        settings.checked("default", {**dict.fromkeys(names, "none"), "log.retention.ms": "5"})
    assert f"[{', '.join(names)}]" in str(caught.value)
    assert settings.checked("broker", dict.fromkeys(names, "none"))
    assert settings.checked("default", {"listener.name.out.max.connections": "5"})


def test_what_has_no_effect_is_kept_and_told_once(
    state: ClusterState, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = {
        "sasl.kerberos.service.name": "kafka",
        "num.io.threads": "9",
        "listener.name.out.num.io.threads": "3",
        "log.retention.ms": "5",
    }
    settings = DynamicSettings(NodeSettings(), state)
    settings.checked("broker", kept)
    assert not caplog.records, "nothing is kept yet"
    settings.replace("broker", kept)
    settings.replace("broker", {**kept, "log.retention.ms": "6"})
    told = sorted(record.getMessage() for record in caplog.records)
    assert told == [
        "listener.name.out.num.io.threads (this node's own setting) is kept. A listener has no setting of this name",
        "num.io.threads (this node's own setting) is kept. Accepted without effect: one thread serves all.",
        "sasl.kerberos.service.name (this node's own setting) is kept. Accepted without effect: Kerberos is not "
        "offered.",
    ]
    again = DynamicSettings(NodeSettings(), ClusterState(tmp_path))
    assert again.layer("broker") == {**kept, "log.retention.ms": "6"}
    assert again.effective == NodeSettings(log_retention_ms=6, num_io_threads=9)
