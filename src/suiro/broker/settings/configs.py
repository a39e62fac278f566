"""Settings as clients see them: those of a topic or a group over those of the node, and where each comes from; and the
levels of loggers.

`log_config` gives the settings of a partition; the rest is for DescribeConfigs. The synonyms of a value are all the
places that give it one, the one in force first. Levels have the words of Kafka's (Log4j's), and last until the node
stops. Kafka's `root` is Python's root logger.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

from suiro.broker.refusals import RefusedError
from suiro.broker.settings.dynamic_settings import (
    REPLICATION_RATES,
    DynamicSettings,
    kafka_setting,
    setting_of_one_listener,
)
from suiro.broker.settings.kafka_settings import ALTERABLE
from suiro.config import (
    LISTENER_PREFIX,
    TOPIC_SETTINGS,
    NodeSettings,
    describe,
    is_dynamic,
    is_sensitive,
    kind,
    node_setting_names,
    topic_settings,
)
from suiro.errors import ConfigError
from suiro.log import LogConfig, parse_topic_setting
from suiro.numerals import whole_number
from suiro.protocol.messages import ErrorCode

_TYPES = "UNKNOWN BOOLEAN STRING INT SHORT LONG DOUBLE LIST CLASS PASSWORD"
TYPE_NUMBERS = {name: number for number, name in enumerate(_TYPES.split())}


class ResourceKind(IntEnum):
    """The kinds of resources that have settings, by their number on the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """The origin of a value, by its number on the wire."""

    TOPIC = 1
    BROKER = 2
    CLUSTER_DEFAULT = 3
    START = 4
    DEFAULT = 5
    LOGGER = 6
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConfig:
    """One setting as DescribeConfigs shows it. `kind` is Kafka's type; a sensitive one has no value. Its value and
    source are those of the first synonym, or `default` where there is none."""

    name: str
    kind: str
    doc: str
    synonyms: tuple[Synonym, ...] = ()
    default: tuple[str | None, Source] = (None, Source.DEFAULT)
    read_only: bool = False
    sensitive: bool = False

    @property
    def value(self) -> str | None:
        return self.synonyms[0].value if self.synonyms else self.default[0]

    @property
    def source(self) -> Source:
        return self.synonyms[0].source if self.synonyms else self.default[1]


def log_config(configs: Mapping[str, str], settings: NodeSettings) -> LogConfig:
    """The settings of a partition's log. Raises `ConfigError`, naming the setting."""
    defaults = {name: text_of(settings.value(node_name)) for name, node_name in topic_settings().items()}
    return LogConfig.from_settings({**defaults, **configs})


def describe_topic_configs(configs: Mapping[str, str], settings: DynamicSettings) -> list[DescribedConfig]:
    """Every topic setting with its value in force and where that comes from, by name."""
    return [
        _topic_config(name, configs, settings)
        for name in sorted(TOPIC_SETTINGS)
        if name in configs or not name.startswith("internal.")
    ]


def _topic_config(name: str, configs: Mapping[str, str], settings: DynamicSettings) -> DescribedConfig:
    row = TOPIC_SETTINGS[name]
    node_name = topic_settings().get(name)
    synonyms = [] if node_name is None else _synonyms(node_name, settings)
    if name in configs:
        own = text_of(parse_topic_setting(name, configs[name]))
        synonyms.insert(0, Synonym(name, own, Source.TOPIC))
    return DescribedConfig(
        name=name,
        kind=row.type,
        doc="" if node_name is None else describe(node_name),
        synonyms=tuple(synonyms),
        default=(row.default if node_name is None else text_of(settings.static.value(node_name)), Source.DEFAULT),
    )


def describe_facts(*, node_id: int, data: str, listeners: str, advertised_listeners: str) -> list[DescribedConfig]:
    """Facts that Kafka has settings for, and that a node gets in other ways or finds out when it starts."""
    facts = (
        ("advertised.listeners", advertised_listeners, "LIST", describe("advertised.listeners")),
        ("broker.id", str(node_id), "INT", "The same as node.id."),
        ("listeners", listeners, "LIST", describe("listeners")),
        ("log.dir", data, "STRING", "The data directory, which `--data` gives."),
        ("log.dirs", data, "LIST", "The data directory, which `--data` gives."),
        ("process.roles", "broker,controller", "LIST", "A node is both."),
    )
    return [
        DescribedConfig(
            name=name,
            kind=kind_name,
            doc=doc,
            synonyms=(Synonym(name, value, Source.START),),
            read_only=True,
        )
        for name, value, kind_name, doc in facts
    ]


def describe_node_configs(settings: DynamicSettings) -> list[DescribedConfig]:
    """Every setting of this node with its value in force."""
    described = [_node_config(name, settings) for name in sorted(node_setting_names())]
    described += [_coarse_config(name) for name in _COARSE]
    return described + [
        _stored_config(name, (*_stored(name, settings), *_behind(name, settings)))
        for name in sorted({*settings.layer("broker"), *settings.layer("default")} - set(node_setting_names()))
    ]


def describe_cluster_defaults(settings: DynamicSettings) -> list[DescribedConfig]:
    """The settings that were altered for the cluster as a whole."""
    described = []
    for name in sorted(settings.layer("default")):
        ours = tuple(s for s in _stored(name, settings) if s.source == Source.CLUSTER_DEFAULT)
        described.append(_stored_config(name, ours))
    return described


def _node_config(name: str, settings: DynamicSettings) -> DescribedConfig:
    return DescribedConfig(
        name=name,
        kind=kind(name),
        doc=describe(name),
        synonyms=tuple(_synonyms(name, settings)),
        read_only=not is_dynamic(name),
        sensitive=is_sensitive(name),
    )


def _synonyms(name: str, settings: DynamicSettings) -> list[Synonym]:
    """The places that give a node setting a value, the one in force first."""
    found = list(_stored(name, settings))
    value, default = settings.static.value(name), NodeSettings().value(name)
    if name in _FINE:
        # In Kafka the setting in the finer unit is empty until it is set, and the coarser one is its synonym.
        if value != default:
            found.append(Synonym(name, text_of(value), Source.START))
        coarse = _FINE[name]
        if found and coarse:
            found.append(Synonym(coarse, str(default // _HOUR_MS), Source.DEFAULT))
        return found
    if value != default:
        found.append(_synonym(name, value, Source.START))
    if default != "" or kind(name) == "LIST":
        found.append(_synonym(name, default, Source.DEFAULT))
    return found


def _stored(name: str, settings: DynamicSettings) -> Iterator[Synonym]:
    own, default = settings.layer("broker"), settings.layer("default")
    for layer, source in ((own, Source.BROKER), (default, Source.CLUSTER_DEFAULT)):
        if name in layer:
            yield Synonym(name, None if _hidden(name) else layer[name].strip(), source)


def _synonym(name: str, value: object, source: Source) -> Synonym:
    return Synonym(name, None if is_sensitive(name) else text_of(value), source)


def _stored_config(name: str, synonyms: tuple[Synonym, ...]) -> DescribedConfig:
    known, kafkas = name in node_setting_names(), kafka_setting(name)
    ours = name if known else setting_of_one_listener(name)
    if ours is not None:
        kind_name, doc = kind(ours), describe(ours)
    elif kafkas is not None:
        kind_name, doc = kafkas.kind, kafkas.doc
    else:
        kind_name, doc = "LONG" if name in REPLICATION_RATES else "UNKNOWN", ""
    return DescribedConfig(
        name=name,
        kind=kind_name,
        doc=doc,
        synonyms=synonyms,
        read_only=not (is_dynamic(name) if known else name in REPLICATION_RATES or name in ALTERABLE),
        sensitive=_hidden(name),
    )


def _behind(name: str, settings: DynamicSettings) -> list[Synonym]:
    """The values without the stored setting: those of all listeners, or Kafka's default."""
    of_all = setting_of_one_listener(name)
    if of_all is not None:
        return _synonyms(of_all, settings)
    known = ALTERABLE.get(name)
    if known is None or known.default is None:
        return []
    return [Synonym(name, known.default, Source.DEFAULT)]


def _hidden(name: str) -> bool:
    """Whether the value is not shown. An unknown setting may be a password."""
    if name.startswith(LISTENER_PREFIX):
        if kafka_setting(name) is not None:
            return False
        ours = [known for known in node_setting_names() if name.endswith(f".{known}")]
        return not ours or any(is_sensitive(known) for known in ours)
    if name in node_setting_names():
        return is_sensitive(name)
    return name not in REPLICATION_RATES and name not in ALTERABLE


_HOUR_MS = 3_600_000
_FINE: dict[str, str | None] = {
    "log.flush.interval.ms": None,
    "log.retention.ms": "log.retention.hours",
    "log.roll.jitter.ms": "log.roll.jitter.hours",
    "log.roll.ms": "log.roll.hours",
}
_COARSE = tuple(coarse for coarse in _FINE.values() if coarse)


def _coarse_config(name: str) -> DescribedConfig:
    """A time in hours, which Kafka shows beside the one in milliseconds."""
    value = str(NodeSettings().value(name.replace("hours", "ms")) // _HOUR_MS)
    return DescribedConfig(
        name=name,
        kind="INT",
        doc=describe(name.replace("hours", "ms")),
        synonyms=(Synonym(name, value, Source.DEFAULT),),
        read_only=True,
    )


GROUP_SETTINGS = {
    "consumer.session.timeout.ms": "A member not heard of for so long leaves its group.",
    "consumer.heartbeat.interval.ms": "How often members are told to send a heartbeat.",
    "consumer.assignment.interval.ms": "Least time between two assignments of a group.",
}
"""Settings of one group, all whole milliseconds; `group.` in front gives the node's default of each."""
GROUP_CHARACTERS_MAX = 1 << 20
"""Of the ids and values of all groups with settings. A change writes all of them, and the groups need not exist."""


def describe_group_configs(configs: Mapping[str, str], settings: DynamicSettings) -> list[DescribedConfig]:
    """Every setting of a group with its value in force and where that comes from, by name."""
    described = []
    for name, doc in sorted(GROUP_SETTINGS.items()):
        synonyms = _synonyms(f"group.{name}", settings)
        if name in configs:
            synonyms.insert(0, Synonym(name, configs[name].strip(), Source.GROUP))
        described.append(DescribedConfig(name=name, kind="INT", doc=doc, synonyms=tuple(synonyms)))
    return described


def check_group_configs(configs: Mapping[str, str], settings: NodeSettings) -> None:
    """Raises `ConfigError` naming the setting and its bounds, which the node's settings give."""
    values = {name: settings.value(f"group.{name}") for name in GROUP_SETTINGS}
    for name, text in configs.items():
        if name not in GROUP_SETTINGS:
            raise ConfigError(f"Unknown group config name: {name}")
        try:
            values[name] = value = whole_number(text)
        except ValueError:
            raise ConfigError(f"Invalid value {text} for configuration {name}: Not a number of type INT") from None
        scope, _, setting = name.partition(".")
        low, high = (f"group.{scope}.{bound}.{setting}" for bound in ("min", "max"))
        if value < settings.value(low):
            raise ConfigError(f"{name} must be greater than or equal to {low}")
        if value > settings.value(high):
            raise ConfigError(f"{name} must be less than or equal to {high}")
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        raise ConfigError("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")


def check_size_of_group_configs(
    groups: Mapping[str, Mapping[str, str]], before: Mapping[str, Mapping[str, str]]
) -> None:
    """Raises `RefusedError` if the settings of all groups grow beyond their limit."""

    def size(of: Mapping[str, Mapping[str, str]]) -> int:
        return sum(len(name) + sum(map(len, own.values())) for name, own in of.items())

    if size(groups) > max(size(before), GROUP_CHARACTERS_MAX):
        raise RefusedError(
            ErrorCode.policy_violation,
            f"The settings of all groups have more than {GROUP_CHARACTERS_MAX} characters then; remove some",
        )


def text_of(value: object) -> str:
    """A setting's value as Kafka writes it."""
    match value:
        case bool():
            return str(value).lower()
        case float():
            return str(value).replace("e+", "E")
        case tuple():
            return ",".join(str(item) for item in value)
    return str(value)


LevelChange = Literal["set", "delete"]

ROOT_LOGGER = "root"
_LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def describe_levels() -> list[DescribedConfig]:
    """Every logger with the level it works by."""
    return [
        DescribedConfig(
            name=name, kind="UNKNOWN", doc="", default=(_word(_logger(name).getEffectiveLevel()), Source.LOGGER)
        )
        for name in sorted(_names())
    ]


def check_level(name: str, change: LevelChange, level: str | None) -> None:
    """Raises `ConfigError` where there is no such logger or level."""
    if name not in _names():
        raise ConfigError(f"Logger {name} does not exist!")
    if change == "set" and level not in _LEVELS:
        raise ConfigError(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}"
        )


def set_level(name: str, change: LevelChange, level: str | None) -> None:
    """Set a checked level; `delete` gives the logger back to the one above it."""
    _logger(name).setLevel(_LEVELS[level] if change == "set" and level else logging.NOTSET)


def _names() -> frozenset[str]:
    known = logging.Logger.manager.loggerDict.items()
    return frozenset((ROOT_LOGGER, *(name for name, found in known if isinstance(found, logging.Logger))))


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT_LOGGER else logging.getLogger(name)


def _word(level: int) -> str:
    """Kafka's name of a level; one in between counts as the next lower."""
    return max((number, word) for word, number in _LEVELS.items() if number <= max(level, 5))[1]
