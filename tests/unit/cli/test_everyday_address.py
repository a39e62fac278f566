"""Which cluster a command talks to where nothing names one."""

from __future__ import annotations

import sys
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from suiro.cli import everyday
from suiro.cli.command_groups import group_of
from suiro.cli.commands import COMMANDS
from suiro.cli.everyday import (
    DEFAULT_BOOTSTRAP,
    Connection,
    connected,
    connection_settings,
    profile_of,
    registry_url,
    settings_of,
)
from suiro.errors import ConfigError, DeadlineExceededError
from suiro.registry import registry_client


def test_the_default_is_the_address_of_a_node_without_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_wait_for_the_first_answer_is_said_on_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(everyday, "WORD_AFTER_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    settings = tmp_path / "client.properties"
    settings.write_text("socket.connection.setup.timeout.ms=500\n")
    with (
        pytest.raises(SystemExit),
        connected(Connection(bootstrap="127.0.0.1:1", command_config=settings)) as client,
    ):
        client.brokers()
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "waiting" in line] == (
        ["suiro: waiting for an answer of 127.0.0.1:1"] if is_terminal else []
    )
    assert "could not reach any bootstrap server" in said[-1]


def test_one_option_names_the_cluster_in_all_commands() -> None:
    found = {}
    for group in COMMANDS:
        for name, parser in group_of(group).parsers().items():
            options = parser.format_help()
            if "--bootstrap" in options:
                found[f"{group} {name}".strip()] = "--bootstrap-servers" in options
    assert {"registry", "capture postgres", "demo", "run", "view serve", "topic list"} <= found.keys()
    assert [name for name, is_there in found.items() if not is_there] == []


def test_services_read_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUIRO_BOOTSTRAP_SERVERS", "kafka-1:9092")
    monkeypatch.setenv("SUIRO_REGISTRY", "http://registry:8081")
    capture = ["--dsn", "postgresql:///shop", "--topic-prefix", "shop"]
    for group, name, words in (("registry", "", []), ("capture", "postgres", capture)):
        parsed = vars(group_of(group).parsers()[name].parse_args(words))
        assert parsed["bootstrap_servers"] == "kafka-1:9092"
        assert parsed.get("registry", "http://registry:8081") == "http://registry:8081"


class _Registry(BaseHTTPRequestHandler):
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers["Authorization"])
        body = b'{"schema": "\\"long\\""}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def test_a_profiles_registry_is_asked_as_its_user_and_no_other_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SUIRO_BOOTSTRAP_SERVERS", "SUIRO_PROFILE", "SUIRO_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Registry) as server:
        threading.Thread(target=server.serve_forever).start()
        own, other = (f"http://{host}:{server.server_port}" for host in ("127.0.0.1", "localhost"))
        (tmp_path / "suiro").mkdir()
        (tmp_path / "suiro" / "profiles.toml").write_text(
            f'[default]\nregistry = "{own}"\n"registry.user" = "ada"\n"registry.password" = "s"\n'
        )
        try:
            for given in (None, other):
                url = registry_url(given, profile_of(Connection()))
                assert url is not None
                assert registry_client(url).schema(1).text == '"long"'
        finally:
            server.shutdown()
    in_memory = registry_url("mock://of-a-test", profile_of(Connection()))
    assert in_memory is not None
    assert registry_client(in_memory).subjects() == []
    assert _Registry.asked == ["Basic " + b64encode(b"ada:s").decode(), None]
    assert registry_url(None, profile_of(Connection(bootstrap="elsewhere:9092"))) is None


def test_settings_of_a_profile_keep_their_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every name that ends with `.url` lost its end, and not only the registry's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOST_OF_KAFKA", "kafka-1")
    (tmp_path / "suiro").mkdir()
    (tmp_path / "suiro" / "profiles.toml").write_text(
        '[p]\nbootstrap.servers = "${env:HOST_OF_KAFKA}:9093"\nregistry.url = "http://r"\nendpoint.url = "http://e"\n'
        "check.crcs = true\n"
    )
    assert settings_of("p") == {
        "bootstrap.servers": "kafka-1:9093",
        "registry": "http://r",
        "endpoint.url": "http://e",
        "check.crcs": "true",
    }


def test_a_default_profile_that_is_no_table_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was the profile None."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "suiro").mkdir()
    (tmp_path / "suiro" / "profiles.toml").write_text("default = 5\n[p]\n")
    with pytest.raises(ConfigError, match=r"has no profile 'default'; it has p$"):
        settings_of(None)
