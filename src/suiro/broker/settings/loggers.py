"""The node's loggers and their levels, in the words of Kafka's (Log4j's): asked for and set through BROKER_LOGGER.

Changes last until the node stops. Kafka's `root` is Python's root logger.
"""

from __future__ import annotations

import logging
from typing import Literal

from suiro.broker.settings.configs import DescribedConfig, Source
from suiro.errors import ConfigError

Change = Literal["set", "delete"]

ROOT = "root"
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
            name=name,
            value=_word(_logger(name).getEffectiveLevel()),
            source=Source.LOGGER,
            kind="UNKNOWN",
            doc="",
        )
        for name in sorted(_names())
    ]


def check_change(name: str, change: Change, level: str | None) -> None:
    """Raises `ConfigError` where there is no such logger or level."""
    if name not in _names():
        raise ConfigError(f"Logger {name} does not exist!")
    if change == "set" and level not in _LEVELS:
        raise ConfigError(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}"
        )


def apply_change(name: str, change: Change, level: str | None) -> None:
    """Set a checked level; `delete` gives the logger back to the one above it."""
    _logger(name).setLevel(_LEVELS[level] if change == "set" and level else logging.NOTSET)


def _names() -> frozenset[str]:
    known = logging.Logger.manager.loggerDict.items()
    return frozenset((ROOT, *(name for name, found in known if isinstance(found, logging.Logger))))


def _logger(name: str) -> logging.Logger:
    return logging.getLogger() if name == ROOT else logging.getLogger(name)


def _word(level: int) -> str:
    """Kafka's name of a level; one in between counts as the next lower."""
    return max((number, word) for word, number in _LEVELS.items() if number <= max(level, 5))[1]
