"""Where servers listen, and what is said of it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from suiro.errors import ConfigError
from suiro.foundation.http import Tls, is_loopback, listen_on, url_of, warn_if_open_to_all


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("LocalHost", True), ("0.0.0.0", False),
        ("::", False), ("10.0.0.1", False), ("localhost.example", False), ("", False),
    ],
)  # fmt: skip
def test_which_addresses_are_of_this_machine_alone(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


@pytest.mark.parametrize(("host", "warned"), [("0.0.0.0", True), ("127.0.0.1", False)])
def test_a_server_without_users_that_others_reach_says_so(
    host: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with listen_on(host, 0, name="the registry") as listener, caplog.at_level(logging.WARNING):
        warn_if_open_to_all(listener, what="the registry", advice="Name users")
        assert url_of(listener).startswith("http://127.0.0.1:")
    assert ("listens on all addresses of this machine WITHOUT USERS" in caplog.text) == warned


def test_what_cannot_listen_is_named(tmp_path: Path) -> None:
    with listen_on("127.0.0.1", 0, name="one") as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"the other cannot listen on 127.0.0.1:{port}"):
            listen_on("127.0.0.1", port, name="the other")
    with pytest.raises(ConfigError, match="TLS needs both --certificate and --key"):
        Tls.of(tmp_path / "c", None, options="--certificate and --key")
    with pytest.raises(ConfigError, match=r"TLS: .*No such file"):
        Tls(tmp_path / "c", tmp_path / "k").context()
