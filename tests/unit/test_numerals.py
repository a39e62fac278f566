"""Numbers in text: one rule at every door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from suiro.broker.settings.configs import check_group_configs
from suiro.broker.settings.kafka_settings import KafkaSetting
from suiro.client import ClientSettings
from suiro.config import NodeSettings, parse
from suiro.errors import ConfigError
from suiro.foundation.settings import read_settings
from suiro.log import parse_topic_setting
from suiro.numerals import natural, number, whole_number
from suiro.spark.options import _number as of_spark
from suiro.views.settings import _number as of_views

NOT_WHOLE = ("1_000", "٣", "²", "1e3", "0x10", "1.0", "nan", "inf", "True", "", "-", "1 0", "9" * 5_000)
DOORS: dict[str, Callable[[str], Any]] = {
    "node": lambda text: parse("fetch.max.bytes", text, source="here"),
    "unit": lambda text: NodeSettings.from_mapping({"log.retention.hours": text}),
    "topic": lambda text: parse_topic_setting("retention.ms", text),
    "group": lambda text: check_group_configs({"consumer.session.timeout.ms": text}, NodeSettings()),
    "Kafka's": lambda text: KafkaSetting(kind="LONG", default=None, why="").check("x", text, source="here"),
    "client": lambda text: ClientSettings.from_mapping({"request.timeout.ms": text}),
    "Spark": lambda text: of_spark("x", text, low=0),
    "views": lambda text: of_views("x", text),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_whole_number_is_the_same_everywhere(door: str) -> None:
    for text in ("45000", " 45000 ", "+45000", "0045000"):
        DOORS[door](text)
    for text in NOT_WHOLE:
        with pytest.raises(ConfigError):
            DOORS[door](text)


def test_numbers() -> None:
    assert [whole_number(text) for text in ("7", " -7", "+7 ", "007")] == [7, -7, 7, 7]
    assert [number(text) for text in ("7", "-.5", "5.", " 1e3 ", "2.5E-1")] == [7, -0.5, 5, 1000, 0.25]
    # The last one takes a node hours if a digit has two places in the pattern.
    for text in ("1_0.0", "٣", "nan", "inf", "-Infinity", "1e999", "", ".", "e3", "0x1p3", "1" * 1_000_000 + "x"):
        with pytest.raises(ValueError):
            number(text)


def test_numbers_of_digits_alone() -> None:
    assert [natural(text, 120) for text in ("0", "120", "00120", "0" * 5_000)] == [0, 120, 120, 0]
    for text in ("121", "1200", "+1", "-1", " 1", "1_0", "٣", "²", "", "9" * 5_000):
        assert natural(text, 120) is None


@pytest.mark.parametrize("text", ["nan", "NaN", "0.5_0", "٣"])
def test_a_ratio_is_a_number(text: str) -> None:
    """NaN was in every range, and a topic with it was never compacted."""
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        parse_topic_setting("min.cleanable.dirty.ratio", text)


@dataclass
class Settings:
    share: float


def test_a_number_of_a_file_is_finite() -> None:
    assert read_settings(Settings, {"share": 1}) == Settings(1.0)
    for value in (float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="share: expected a number, got"):
            read_settings(Settings, {"share": value})
