"""Which versions share the JVM of their host."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.errors import ConfigError
from suiro.views.control.host import HostConfig
from suiro.views.settings import RunSettings


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ({}, True),
        ({"trigger": "1 second", "startingOffsets": "latest"}, True),
        ({"spark.sql.shuffle.partitions": "4"}, True),
        ({"jvm": "shared"}, True),
        ({"jvm": "own"}, False),
        ({"spark.master": "local[4]"}, False),
        ({"spark.driver.memory": "3g"}, False),
    ],
)
def test_a_version_shares_unless_it_sets_what_is_of_a_jvm(given: dict[str, str], shares: bool) -> None:
    settings = RunSettings.parse(given)
    assert settings.shares_jvm is shares
    assert "jvm" not in settings.reading


@pytest.mark.parametrize("size", ["", "2", "2 g", "0g", "-1g", "2gb", "1e3g"])
def test_a_size_that_java_does_not_know(size: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--java-memory"):
        HostConfig(bootstrap_servers="none", data=tmp_path, java_memory=size)
