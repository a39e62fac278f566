"""The node's settings in layers: what it was started with, the cluster's default over that, this node's own on top.

The two upper layers are changed while the node runs (AlterConfigs) and kept in the cluster's state. One node is a
cluster, so the layers differ in name only, but tools write to one and read the other. A change is checked whole,
written down, and then in force; the layers themselves hold texts, as they were given.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from suiro.broker.cluster_state import ClusterState
from suiro.config import (
    LISTENER_PREFIX,
    NodeSettings,
    is_dynamic,
    is_known_to_kafka,
    node_setting_names,
    parse,
)
from suiro.errors import ConfigError

logger = logging.getLogger(__name__)

Layer = Literal["default", "broker"]

SECTION = "broker-configs"
_SOURCES: dict[Layer, str] = {"default": "the cluster's default", "broker": "this node's own setting"}

# Kafka, too, gives a new cluster this, as eligible leader replicas (KIP-966) need it.
_KAFKAS_OWN = {"min.insync.replicas": "1"}

# Kafka has them in no file: a reassignment with a throttle sets them and takes them away again.
REPLICATION_RATES = frozenset(
    (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)


class DynamicSettings:
    """`layer` to look, `checked` to try, `replace` to change; `effective` is what the node works by."""

    def __init__(self, static: NodeSettings, state: ClusterState) -> None:
        self.static = static
        self._state = state
        stored = state.read(SECTION, {})
        self._layers: dict[Layer, dict[str, str]] = {
            "default": dict(stored.get("default", _KAFKAS_OWN)),
            "broker": dict(stored.get("broker", {})),
        }
        self._drop_what_no_longer_fits()

    def layer(self, layer: Layer) -> Mapping[str, str]:
        return self._layers[layer]

    @property
    def effective(self) -> NodeSettings:
        return self._over_static(self._layers)

    def checked(self, layer: Layer, content: Mapping[str, str]) -> NodeSettings:
        """What the node would work by if the layer had this content. Raises `ConfigError`."""
        fixed = sorted(name for name in content if _is_ours(name) and not is_dynamic(name))
        if fixed:
            raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
        for name, text in content.items():
            _check(name, text, source=_SOURCES[layer])
        return self._over_static({**self._layers, layer: dict(content)})

    def replace(self, layer: Layer, content: Mapping[str, str]) -> NodeSettings:
        """The layer has this content from now on, and after the next start. Raises `ConfigError`, `StorageError`."""
        settings = self.checked(layer, content)
        layers = {**self._layers, layer: dict(content)}
        self._state.write(SECTION, layers)
        self._layers = layers
        return settings

    def _over_static(self, layers: Mapping[Layer, Mapping[str, str]]) -> NodeSettings:
        settings = self.static
        for layer in ("default", "broker"):
            content = layers[layer].items()
            ours = {name: text for name, text in content if _is_ours(name)}
            settings = settings.with_settings(ours, source=_SOURCES[layer])
        return settings

    def _drop_what_no_longer_fits(self) -> None:
        """A setting that another version wrote must not keep this one from starting."""
        for layer, content in self._layers.items():
            for name, text in list(content.items()):
                try:
                    self.checked(layer, {name: text})
                except ConfigError as error:
                    logger.warning("a stored setting is left out: %s", error)
                    del content[name]


def _known() -> frozenset[str]:
    return frozenset(node_setting_names())


def _is_ours(name: str) -> bool:
    return name in _known() or name.startswith(LISTENER_PREFIX)


def _check(name: str, text: str, *, source: str) -> None:
    if name in _known():
        parse(name, text, source=source)
    elif name in REPLICATION_RATES:
        if not text.strip().isdigit():
            raise ConfigError(f"{name} = {text!r} ({source}): expected a whole number")
    elif is_known_to_kafka(name) and not name.startswith(LISTENER_PREFIX):
        raise ConfigError(
            f"{name} ({source}): this is a setting of Apache Kafka that cannot be altered on a suiro node"
        )
    # A name that nobody knows is kept, as Kafka keeps it: there it may be a plugin's.
