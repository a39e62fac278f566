"""Looks settings up by their Kafka names: type, description, whether they are sensitive or can be altered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from suiro.config.kafka_names import KAFKA_PREFIXES_WE_LACK, KAFKA_SETTINGS_WE_LACK, UNITS
from suiro.config.table import SettingsTable
from suiro.errors import ConfigError

LISTENER_PREFIX = "listener.name."

# Settings that can be given for one listener.
_OF_LISTENERS = (
    "connection.authentication.timeout.ms", "connections.max.reauth.ms", "max.connection.creation.rate",
    "max.connections", "max.unauthenticated.connections", "sasl.", "ssl.",
)  # fmt: skip

# Of those, the settings that can be altered for one listener but not for all.
_ALTERED_FOR_LISTENERS = ("connections.max.reauth.ms", "sasl.oauthbearer.", "ssl.principal.mapping.rules")


@cache
def setting_fields() -> dict[str, Any]:
    return {f.name.replace("_", "."): f for f in fields(SettingsTable) if "doc" in f.metadata}


def node_setting_names() -> tuple[str, ...]:
    return tuple(setting_fields())


def kind(name: str) -> str:
    """Kafka's type of a node setting: BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS or PASSWORD."""
    return str(setting_fields()[name].metadata["kind"])


def is_sensitive(name: str) -> bool:
    return bool(setting_fields()[name].metadata["sensitive"])


def is_dynamic(name: str) -> bool:
    """Whether a node setting, or one of a listener, may be altered while the node runs."""
    if name.startswith(LISTENER_PREFIX):
        name = setting_of_listener(name, "AlterConfigs")
        return bool(setting_fields()[name].metadata["dynamic"]) or name.startswith(_ALTERED_FOR_LISTENERS)
    return bool(setting_fields()[name].metadata["dynamic"])


def is_known_to_kafka(name: str) -> bool:
    """Whether this is a setting of Apache Kafka that a node does not have, or has under another unit's name."""
    return name in KAFKA_SETTINGS_WE_LACK or name.startswith(KAFKA_PREFIXES_WE_LACK) or name in UNITS


@cache
def topic_settings() -> Mapping[str, str]:
    """Maps each topic setting to the node setting that holds its default."""
    return {f.metadata["topic"]: name for name, f in setting_fields().items() if f.metadata["topic"]}


def describe(name: str) -> str:
    """A setting's description, by its node or topic name."""
    return str(setting_fields()[topic_settings().get(name, name)].metadata["doc"])


def is_of_kafka(name: str) -> bool:
    """Whether Apache Kafka may have this setting: not if it is one of the node, or of a listener, that Kafka lacks."""
    if name.startswith(LISTENER_PREFIX):
        try:
            name = setting_of_listener(name, "")
        except ConfigError:
            return True
    return name not in setting_fields() or bool(setting_fields()[name].metadata["of_kafka"])


def setting_of_listener(name: str, source: str) -> str:
    """The setting that `listener.name.NAME.[MECHANISM.]SETTING` gives to a listener. Raises `ConfigError`."""
    listener, _, rest = name.lower().removeprefix(LISTENER_PREFIX).partition(".")
    for setting in (rest, rest.partition(".")[2]):
        if listener and setting in setting_fields() and setting.startswith(_OF_LISTENERS):
            return setting
    raise ConfigError(
        f"{name} ({source}): expected {LISTENER_PREFIX}NAME.SETTING or {LISTENER_PREFIX}NAME.MECHANISM.SETTING "
        f"with a setting that begins with {', '.join(_OF_LISTENERS)}"
    )
