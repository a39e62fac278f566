"""Parses the values of settings, and checks their names and ranges."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from suiro.config.kafka_names import UNITS
from suiro.config.lookup import is_known_to_kafka, setting_fields, topic_settings
from suiro.errors import ConfigError
from suiro.numerals import number, whole_number


def parse(name: str, text: str, *, source: str) -> Any:
    """The typed value of a setting (node name). Raises `ConfigError` naming it, its source and its range."""
    setting = setting_fields()[name]
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


def field_of(name: str, source: str) -> str:
    if name in setting_fields():
        return name.replace(".", "_")
    if name in topic_settings():
        raise ConfigError(
            f"{name} ({source}): this is a topic setting; its node-wide default is {topic_settings()[name]}"
        )
    if is_known_to_kafka(name):
        raise ConfigError(
            f"{name} ({source}): this is a setting of Apache Kafka that a suiro node does not have; leave it out"
        )
    raise ConfigError(f"{name} ({source}): unknown setting{_suggestion(name, setting_fields())}")


def _suggestion(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def expand_units(settings: Mapping[str, str]) -> Mapping[str, str]:
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
