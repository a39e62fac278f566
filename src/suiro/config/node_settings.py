"""`NodeSettings`: the table of settings with the ways to read values into it, and what is known of a setting by its
name: type, description, whether it is sensitive or can be altered.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from suiro.config.kafka_names import KAFKA_PREFIXES_WE_LACK, KAFKA_SETTINGS_WE_LACK, UNITS
from suiro.config.table import SettingsTable
from suiro.errors import ConfigError
from suiro.numerals import number, whole_number

LISTENER_PREFIX = "listener.name."

# Settings that can be given for one listener.
_OF_LISTENERS = (
    "connection.authentication.timeout.ms", "connections.max.reauth.ms", "max.connection.creation.rate",
    "max.connections", "max.unauthenticated.connections", "sasl.", "ssl.",
)  # fmt: skip

# Of those, the settings that can be altered for one listener but not for all.
_ALTERED_FOR_LISTENERS = ("connections.max.reauth.ms", "sasl.oauthbearer.", "ssl.principal.mapping.rules")


@cache
def _fields() -> dict[str, Any]:
    return {f.name.replace("_", "."): f for f in fields(SettingsTable) if "doc" in f.metadata}


def node_setting_names() -> tuple[str, ...]:
    return tuple(_fields())


def kind(name: str) -> str:
    """Kafka's type of a node setting: BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS or PASSWORD."""
    return str(_fields()[name].metadata["kind"])


def is_sensitive(name: str) -> bool:
    return bool(_fields()[name].metadata["sensitive"])


def is_dynamic(name: str) -> bool:
    """Whether a node setting, or one of a listener, may be altered while the node runs."""
    if name.startswith(LISTENER_PREFIX):
        name = setting_of_listener(name, "AlterConfigs")
        return bool(_fields()[name].metadata["dynamic"]) or name.startswith(_ALTERED_FOR_LISTENERS)
    return bool(_fields()[name].metadata["dynamic"])


def is_known_to_kafka(name: str) -> bool:
    """Whether this is a setting of Apache Kafka that a node does not have, or has under another unit's name."""
    return name in KAFKA_SETTINGS_WE_LACK or name.startswith(KAFKA_PREFIXES_WE_LACK) or name in UNITS


@cache
def topic_settings() -> Mapping[str, str]:
    """Maps each topic setting to the node setting that holds its default."""
    return {f.metadata["topic"]: name for name, f in _fields().items() if f.metadata["topic"]}


def describe(name: str) -> str:
    """A setting's description, by its node or topic name."""
    return str(_fields()[topic_settings().get(name, name)].metadata["doc"])


def is_of_kafka(name: str) -> bool:
    """Whether Apache Kafka may have this setting: not if it is one of the node, or of a listener, that Kafka lacks."""
    if name.startswith(LISTENER_PREFIX):
        try:
            name = setting_of_listener(name, "")
        except ConfigError:
            return True
    return name not in _fields() or bool(_fields()[name].metadata["of_kafka"])


def setting_of_listener(name: str, source: str) -> str:
    """The setting that `listener.name.NAME.[MECHANISM.]SETTING` gives to a listener. Raises `ConfigError`."""
    listener, _, rest = name.lower().removeprefix(LISTENER_PREFIX).partition(".")
    for setting in (rest, rest.partition(".")[2]):
        if listener and setting in _fields() and setting.startswith(_OF_LISTENERS):
            return setting
    raise ConfigError(
        f"{name} ({source}): expected {LISTENER_PREFIX}NAME.SETTING or {LISTENER_PREFIX}NAME.MECHANISM.SETTING "
        f"with a setting that begins with {', '.join(_OF_LISTENERS)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(SettingsTable):
    """Every setting of a node. Defaults are Apache Kafka's unless the description gives a reason."""

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str], *, source: str = "--set") -> NodeSettings:
        """Returns the defaults with `settings` (by their Kafka names) applied. Raises `ConfigError`."""
        return cls().with_settings(settings, source=source)

    def with_settings(self, settings: Mapping[str, str], *, source: str) -> NodeSettings:
        values = dict(_expand_units(settings))
        of_listeners = dict(self.listener_settings)
        for name in [name for name in values if name.startswith(LISTENER_PREFIX)]:
            text = values.pop(name)
            parse(setting_of_listener(name, source), text, source=source)
            of_listeners[name.lower()] = text
        fields = {_field_of(n, source): parse(n, v, source=source) for n, v in values.items()}
        return replace(self, **fields, listener_settings=tuple(sorted(of_listeners.items())))

    def for_listener(self, listener: str, mechanism: str = "") -> NodeSettings:
        """Returns the settings of one listener, or of one SASL mechanism of it."""
        values: dict[str, str] = {}
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for start in (prefix, f"{prefix}{mechanism.lower()}.") if mechanism else (prefix,):
            for name, text in self.listener_settings:
                if name.startswith(start) and name.removeprefix(start) in _fields():
                    values[name.removeprefix(start)] = text
        return self.with_settings(values, source=f"listener {listener}") if values else self

    def value(self, name: str) -> Any:
        """The value of a setting by its Kafka name."""
        return getattr(self, name.replace(".", "_"))


def parse(name: str, text: str, *, source: str) -> Any:
    """The typed value of a setting (node name). Raises `ConfigError` naming it, its source and its range."""
    setting = _fields()[name]
    kind = type(setting.default)
    low, high, choices = (setting.metadata[k] for k in ("low", "high", "choices"))
    text = str(text).strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} = {text!r} ({source}): expected true or false")
        return text.lower() == "true"
    if kind in (int, float):
        value: int | float
        try:
            value = whole_number(text) if kind is int else number(text)
        except ValueError:
            expected = "a whole number" if kind is int else "a number"
            raise ConfigError(f"{name} = {text!r} ({source}): expected {expected}") from None
        if not (low is None or value >= low) or value > high:
            raise ConfigError(f"{name} = {value} ({source}): must be between {low} and {high}")
        return value
    if not setting.metadata["verbatim"]:
        text = ",".join(part.strip() for part in text.split(","))
    if choices and text not in choices:
        raise ConfigError(f"{name} = {text!r} ({source}): must be one of {', '.join(choices)}")
    return text


def _field_of(name: str, source: str) -> str:
    if name in _fields():
        return name.replace(".", "_")
    if name in topic_settings():
        raise ConfigError(
            f"{name} ({source}): this is a topic setting; its node-wide default is {topic_settings()[name]}"
        )
    if is_known_to_kafka(name):
        raise ConfigError(
            f"{name} ({source}): this is a setting of Apache Kafka that a suiro node does not have; leave it out"
        )
    near = difflib.get_close_matches(name, _fields(), n=1)
    raise ConfigError(f"{name} ({source}): unknown setting" + (f"; did you mean {near[0]}?" if near else ""))


def _expand_units(settings: Mapping[str, str]) -> Mapping[str, str]:
    expanded = dict(settings)
    for coarse, (name, factor) in UNITS.items():
        text = expanded.pop(coarse, None)
        if text is None or name in settings:
            continue
        try:
            count = whole_number(text)
            expanded[name] = str(count * factor) if count >= 0 else "-1"
        except ValueError:
            raise ConfigError(f"{coarse} = {text!r}: expected a whole number") from None
    return expanded
