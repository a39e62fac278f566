"""A topic's settings in force: its own over the node's defaults. And how DescribeConfigs shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from suiro.config import NodeSettings, describe, node_setting_names, topic_settings
from suiro.log import TOPIC_SETTINGS, LogConfig

_TOPIC, _NODE, _DEFAULT = 1, 4, 5  # DescribeConfigs' config_source
_KINDS = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """One setting as DescribeConfigs shows it. `source`: 1 the topic's own, 4 the node's, 5 the default."""

    name: str
    value: str
    source: int
    kind: int
    doc: str


def log_config(configs: Mapping[str, str], settings: NodeSettings) -> LogConfig:
    """What a partition's log is opened with. Raises `ConfigError`, naming the setting."""
    defaults = {name: _text(settings.value(node_name)) for name, node_name in topic_settings().items()}
    return LogConfig.from_settings({**defaults, **configs})


def describe_topic_configs(configs: Mapping[str, str], settings: NodeSettings) -> list[DescribedConfig]:
    """Every topic setting with its value in force and where that comes from."""
    described = []
    for name, row in sorted(TOPIC_SETTINGS.items()):
        value, source, doc = row.default, _DEFAULT, ""
        node_name = topic_settings().get(name)
        if node_name is not None:
            node = _node(node_name, settings)
            value, source, doc = node.value, node.source, node.doc
        if name in configs:
            value, source = configs[name], _TOPIC
        if value or source == _TOPIC:
            kind = _KINDS[row.type]
            described.append(DescribedConfig(name=name, value=value, source=source, kind=kind, doc=doc))
    return described


def describe_node_configs(settings: NodeSettings) -> list[DescribedConfig]:
    """Every node setting with its value in force."""
    return [_node(name, settings) for name in sorted(node_setting_names())]


def _node(name: str, settings: NodeSettings) -> DescribedConfig:
    value = settings.value(name)
    kind = "BOOLEAN" if isinstance(value, bool) else "LONG" if isinstance(value, int) else "STRING"
    return DescribedConfig(
        name=name,
        value=_text(value),
        source=_DEFAULT if value == NodeSettings().value(name) else _NODE,
        kind=_KINDS[kind],
        doc=describe(name),
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
