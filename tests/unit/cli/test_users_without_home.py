"""A user whom the machine knows by the number only, as in containers, and a home that takes no files."""

from __future__ import annotations

import pwd

import pytest
from support.commands import suiro, suiro_process

from suiro.cli.everyday import settings_of


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user of a container who has a number only."""

    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "SUIRO_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("without_home")
def test_a_user_without_a_home_has_no_profiles() -> None:
    assert settings_of(None) == {}


@pytest.mark.usefixtures("without_home")
def test_a_user_without_a_home_is_told_so() -> None:
    from suiro.errors import ConfigError
    from suiro.kafka.process import kafka_classpath
    from suiro.spark.java import cache_directory
    from suiro.streams_spark.kafka_streams import default_state_dir

    for look in (default_state_dir, lambda: cache_directory({}), kafka_classpath):
        with pytest.raises(ConfigError, match="no home folder; set HOME"):
            look()
    done = suiro("--install-completion", "bash")
    assert done.code == 2
    assert "set HOME" in done.err


def test_a_folder_that_takes_no_completion() -> None:
    done = suiro_process("--install-completion", "bash", env={"HOME": "/proc/nobody"})
    assert done.code == 1
    assert done.err.startswith("suiro: [Errno 2] ")
