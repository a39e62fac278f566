"""Declares one setting of the table: its default, description, range and type."""

from __future__ import annotations

from dataclasses import field
from typing import Any

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308


def setting(
    default: Any,
    doc: str,
    *,
    low: int | None = None,
    high: float | None = MAX_INT,
    choices: tuple[str, ...] = (),
    topic: str | None = None,
    dynamic: bool = False,
    sensitive: bool = False,
    verbatim: bool = False,
    of_kafka: bool = True,
    kind: str | None = None,
) -> Any:
    """Returns a dataclass field for one setting.

    high: a whole number that may be above `MAX_INT` is a LONG. topic: the topic setting whose default this is; such a
    setting can always be altered. dynamic: it can be altered while the node runs. sensitive: its value is never shown.
    kind: Kafka's type, unless the default implies it. verbatim: the value is not a list, so spaces around commas are
    kept. of_kafka: Kafka has the setting, too.
    """
    return field(
        default=default,
        repr=not sensitive,
        metadata={
            "doc": doc if of_kafka else f"{doc} (Not a Kafka setting.)",
            "low": low,
            "high": high,
            "choices": choices,
            "topic": topic,
            "dynamic": dynamic or topic is not None,
            "sensitive": sensitive,
            "verbatim": sensitive or verbatim,
            "of_kafka": of_kafka,
            "kind": kind or _kind(default, high, sensitive=sensitive),
        },
    )


def _kind(default: Any, high: float | None, *, sensitive: bool) -> str:
    if isinstance(default, bool):
        return "BOOLEAN"
    if isinstance(default, int):
        return "INT" if high is None or high <= MAX_INT else "LONG"
    if isinstance(default, float):
        return "DOUBLE"
    return "PASSWORD" if sensitive else "STRING"


def without_effect(
    default: Any, why: str, *, low: int | None = None, kind: str | None = None, dynamic: bool = False
) -> Any:
    """A setting of Kafka that is accepted, so that files written for Kafka can be used, but has no effect."""
    doc = f"Accepted without effect: {why}."
    return setting(default, doc, low=low, kind=kind, dynamic=dynamic)
