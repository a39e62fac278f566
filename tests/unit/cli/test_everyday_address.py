"""Which cluster a command talks to where nothing names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.cli.everyday import DEFAULT_BOOTSTRAP, Connection, connected, connection_settings
from suiro.errors import DeadlineExceededError


def test_the_default_is_the_address_of_a_node_without_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SUIRO_BOOTSTRAP_SERVERS", "SUIRO_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert connection_settings(Connection())[0] == DEFAULT_BOOTSTRAP == "127.0.0.1:9092"


def test_an_error_at_the_default_address_names_the_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SUIRO_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for given, is_named in ((None, True), ("127.0.0.1:9092", False)):
        with pytest.raises(SystemExit), connected(Connection(bootstrap=given)):
            raise DeadlineExceededError("could not list topics within 1 ms")
        assert ("--bootstrap-servers" in capsys.readouterr().err) == is_named
