"""Status and changes of connectors over HTTP: users of each role, and what is in the file of connectors."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.certificates import Authority
from support.commands import suiro

from suiro.connect import read_configuration, serve_control
from suiro.errors import ConfigError
from suiro.foundation.http import Tls, Users

ROLES = ("viewer", "operator", "admin")


class Told:
    """A runtime that notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def status(self, name: str | None = None) -> list[dict[str, Any]]:
        return [{"name": "orders", "state": "RUNNING"}]

    def __getattr__(self, name: str) -> Any:
        return lambda connector: self.calls.append((name, connector))


@pytest.fixture
def runtime() -> Told:
    return Told()


@pytest.fixture
def users(tmp_path: Path) -> Users:
    (tmp_path / "users").write_text("".join(f"[{role}]\n{role}:secret\n" for role in ROLES))
    return Users(tmp_path / "users")


@pytest.fixture
def address(runtime: Told, users: Users) -> Iterator[str]:
    server = serve_control(runtime, "127.0.0.1", 0, users=users)  # type: ignore[arg-type]
    yield f"127.0.0.1:{server.port}"
    server.stop()


def test_all_users_look_and_operators_change(address: str, runtime: Told) -> None:
    assert httpx.get(f"http://{address}/connectors").status_code == 401
    assert httpx.put(f"http://viewer:wrong@{address}/connectors/orders/pause").status_code == 401
    for path in ("/connectors", "/connectors?expand=status", "/connectors/orders/status"):
        assert httpx.get(f"http://viewer:secret@{address}{path}").status_code == 200
    for method, action in (("PUT", "pause"), ("PUT", "resume"), ("POST", "restart")):
        path = f"/connectors/orders/{action}"
        refused = httpx.request(method, f"http://viewer:secret@{address}{path}")
        assert (refused.status_code, refused.json()["error_code"]) == (403, 403)
        assert "for the role operator" in refused.json()["message"]
        assert runtime.calls == []
        for role in ("operator", "admin"):
            assert httpx.request(method, f"http://{role}:secret@{address}{path}").status_code == 202
            assert runtime.calls.pop() == (action, "orders")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/connectors/a/pause", 405)])
def test_what_is_not_there_is_said_as_an_error(address: str, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, f"http://viewer:secret@{address}{path}")
    assert (answer.status_code, answer.json()["error_code"]) == (status, status)


def test_a_web_page_of_others_commands_nothing(address: str, runtime: Told) -> None:
    headers = {"Origin": "http://pages.example"}
    url = f"http://admin:secret@{address}/connectors/orders/pause"
    assert httpx.put(url, headers=headers).status_code == 403
    assert runtime.calls == []


def test_over_tls(runtime: Told, users: Users, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    signed = authority.sign("server", subject="/CN=localhost")
    server = serve_control(runtime, "127.0.0.1", 0, users=users, tls=Tls(signed, signed))  # type: ignore[arg-type]
    try:
        trusted = ssl.create_default_context(cafile=str(authority.certificate))
        url = f"https://viewer:secret@127.0.0.1:{server.port}/connectors"
        assert httpx.get(url, verify=trusted).json() == ["orders"]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen = '0.0.0.0:8083'", "auth_file"),
        ("token = 'x'\nauth_file = 'users'", "give one of them"),
        ("tls_key = 'key.pem'", "tls_key belong together"),
        ("auth_file = 7", "expected a path"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c.toml").write_text(f"[connect]\n{text}\n")
    with pytest.raises(ConfigError, match=said):
        read_configuration(tmp_path / "c.toml")


def test_files_are_found_beside_the_file_of_connectors(tmp_path: Path) -> None:
    text = "listen = '0.0.0.0:8083'\nauth_file = 'users'\ntls_certificate = 'c.pem'\ntls_key = '/etc/k.pem'"
    source = "[source.s]\nkind = 'files'\nfolder = 'x'\ntopic = 't'\n"
    (tmp_path / "c.toml").write_text(f"[connect]\n{text}\n{source}")
    found = read_configuration(tmp_path / "c.toml").settings
    assert (found.auth_file, found.tls_certificate) == (tmp_path / "users", tmp_path / "c.pem")
    assert found.tls_key == Path("/etc/k.pem")


def test_the_command_asks_with_its_login_and_shows_no_password(address: str, runtime: Told) -> None:
    done = suiro("connect", "pause", "orders", "--url", f"http://operator:secret@{address}")
    assert (done.code, runtime.calls) == (0, [("pause", "orders")])
    done = suiro("connect", "resume", "orders", "--url", f"http://operator:secret@{address}/")
    assert (done.code, runtime.calls[1:]) == (0, [("resume", "orders")])
    refused = suiro("connect", "pause", "orders", "--url", f"http://viewer:secret@{address}")
    assert (refused.code, "for the role operator" in refused.err) == (1, True)
    away = suiro("connect", "status", "--url", "http://operator:secret@127.0.0.1:1")
    assert (away.code, "no answer from http://127.0.0.1:1" in away.err) == (1, True)
    assert "secret" not in away.err
