"""The node's settings in layers: what it was started with, the cluster's default over that, this node's own on top.

AlterConfigs changes the two upper layers while the node runs; they are kept in the cluster's state. One node is a
cluster, so the layers differ in little, but tools write to one and read the other. A change is checked as a whole,
written, and then applied. The layers hold the texts as they were given. Settings of Kafka that the node does not have
(`kafka_settings`) are kept too, and the log says that they have no effect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Literal

from suiro.broker.settings.cluster_state import ClusterState
from suiro.broker.settings.kafka_settings import ALTERABLE, OF_A_LISTENER_ONLY, KafkaSetting, is_of_one_broker
from suiro.config import (
    LISTENER_PREFIX,
    MAX_LONG,
    NodeSettings,
    describe,
    is_dynamic,
    is_known_to_kafka,
    node_setting_names,
    parse,
    setting_of_listener,
)
from suiro.errors import ConfigError

logger = logging.getLogger(__name__)

Layer = Literal["default", "broker"]

SECTION = "broker-configs"
_SOURCES: dict[Layer, str] = {"default": "the cluster's default", "broker": "this node's own setting"}

# Kafka sets this for a new cluster too: eligible leader replicas (KIP-966) need it.
_KAFKAS_OWN = {"min.insync.replicas": "1"}

_KEEPING = {
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "log.cleanup.policy": "",
    "log.cleaner.delete.retention.ms": str(MAX_LONG),
}
"""The values with which no record is deleted."""

# Kafka has these in no file: a reassignment with a throttle sets them and removes them again.
REPLICATION_RATES = frozenset(
    (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)


class DynamicSettings:
    """`layer` reads, `checked` tries and `replace` changes a layer; `effective` are the settings in force."""

    def __init__(self, static: NodeSettings, state: ClusterState) -> None:
        self.static = static
        self._state = state
        stored = state.read(SECTION, {})
        self._layers: dict[Layer, dict[str, str]] = {"default": {}, "broker": {}}
        self._layers["default"] = self._fitting("default", stored.get("default", _KAFKAS_OWN))
        self._layers["broker"] = self._fitting("broker", stored.get("broker", {}))

    def layer(self, layer: Layer) -> Mapping[str, str]:
        return self._layers[layer]

    @property
    def effective(self) -> NodeSettings:
        return self._over_static(self._layers)

    def checked(self, layer: Layer, content: Mapping[str, str]) -> NodeSettings:
        """The effective settings if the layer had this content. Raises `ConfigError`."""
        _refuse("Cannot update these configs dynamically", (n for n in content if _is_fixed(n)))
        _refuse(
            "These security configs can be dynamically updated only per-listener using the listener prefix",
            OF_A_LISTENER_ONLY & content.keys(),
        )
        if layer == "default":
            _refuse(
                "Cannot update these configs at default cluster level, broker id must be specified",
                (name for name in content if is_of_one_broker(name)),
            )
        for name, text in content.items():
            _check(name, text, source=_SOURCES[layer])
        return self._over_static({**self._layers, layer: dict(content)})

    def replace(self, layer: Layer, content: Mapping[str, str]) -> NodeSettings:
        """Give a layer this content, now and after the next start. Raises `ConfigError`, `StorageError`."""
        settings = self.checked(layer, content)
        layers = {**self._layers, layer: dict(content)}
        self._state.write(SECTION, layers)
        for name in content.keys() - {n for n, text in self._layers[layer].items() if text == content.get(n)}:
            why = why_without_effect(name)
            if why:
                logger.warning("%s (%s) is kept. %s", name, _SOURCES[layer], why)
        self._layers = layers
        return settings

    def _over_static(self, layers: Mapping[Layer, Mapping[str, str]]) -> NodeSettings:
        settings = self.static
        for layer in ("default", "broker"):
            content = layers[layer].items()
            ours = {name: text for name, text in content if _is_ours(name)}
            settings = settings.with_settings(ours, source=_SOURCES[layer])
        return settings

    def _fitting(self, layer: Layer, stored: Mapping[str, str]) -> dict[str, str]:
        """Leave out stored settings that are not valid: one of another version must not prevent the start, nor delete
        records that it kept."""
        content = {}
        for name, text in stored.items():
            try:
                self.checked(layer, {name: text})
                content[name] = text
            except ConfigError as error:
                logger.warning("a stored setting is left out: %s", error)
                if name in _KEEPING:
                    content[name] = _KEEPING[name]
                    logger.warning("%s is %r until it is given again: no record is deleted for it", name, content[name])
        return content


def _known() -> frozenset[str]:
    return frozenset(node_setting_names())


def _is_ours(name: str) -> bool:
    """Whether it changes what the node works by."""
    return name in _known() or setting_of_one_listener(name) is not None


def setting_of_one_listener(name: str) -> str | None:
    """The node's setting that this gives to a listener, if it is one that listeners have for themselves."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    try:
        return setting_of_listener(name, "")
    except ConfigError:
        return None


def kafka_setting(name: str) -> KafkaSetting | None:
    """The setting of Kafka's that the node does not have, also with a listener's and a mechanism's name in front."""
    if not name.startswith(LISTENER_PREFIX):
        return ALTERABLE.get(name)
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return ALTERABLE.get(rest) or ALTERABLE.get(rest.partition(".")[2])


def why_without_effect(name: str) -> str:
    """The reason why a setting that is kept has no effect; empty if it has one, or is unknown."""
    known = kafka_setting(name)
    if known is not None:
        return known.doc
    if _is_ours(name):
        meaning = describe(name) if name in _known() else ""
        return meaning if meaning.startswith("Accepted without effect") else ""
    return "A listener has no setting of this name" if name.startswith(LISTENER_PREFIX) else ""


def _is_fixed(name: str) -> bool:
    if _is_ours(name):
        return not is_dynamic(name)
    return is_known_to_kafka(name) and not name.startswith(LISTENER_PREFIX) and not _is_kept(name)


def _is_kept(name: str) -> bool:
    return name in REPLICATION_RATES or kafka_setting(name) is not None


def _refuse(message: str, names: Iterable[str]) -> None:
    found = ", ".join(sorted(names))
    if found:
        raise ConfigError(f"{message}: [{found}]")


def _check(name: str, text: str, *, source: str) -> None:
    known = kafka_setting(name)
    if name in _known():
        parse(name, text, source=source)
    elif name in REPLICATION_RATES:
        KafkaSetting("LONG", None, "", low=0).check(name, text, source=source)
    elif known is not None:
        known.check(name, text, source=source)
    # An unknown name is kept, as in Kafka, where it may be a plugin's.
