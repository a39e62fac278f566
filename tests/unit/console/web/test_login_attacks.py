"""Providers that are slow or turn hostile in the middle of a login, and codes that somebody has seen."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.responses import JSONResponse, RedirectResponse, Response
from support.oidc_console import Served, log_in, me
from support.oidc_provider import OidcProvider

from suiro.clock import SystemClock
from suiro.console.web import oidc
from suiro.foundation.http import answers


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    running = OidcProvider()
    yield running
    running.stop()


@pytest.fixture
def served(provider: OidcProvider) -> Iterator[Served]:
    console = Served(provider.issuer)
    yield console
    console.stop()


def code_in(back: str) -> str:
    return parse_qs(urlsplit(back).query)["code"][0]


def test_a_code_that_somebody_has_seen_is_of_no_use_to_them(served: Served) -> None:
    """It is bound to the login that asked for it (PKCE), whether it was used already or not."""
    victim = served.browser()
    back = victim.get(victim.get("/login").headers["location"]).headers["location"]
    for is_used in (False, True):
        thief = served.browser()
        theirs = thief.get("/login").headers["location"]
        state = parse_qs(urlsplit(theirs).query)["state"][0]
        refused = thief.get("/login/callback", params={"state": state, "code": code_in(back)})
        assert (refused.status_code, me(thief)) == (400, 401), is_used
        assert "could not be verified" in refused.text
    assert victim.get(back).status_code == 400  # the provider takes each code once, whoever brought it
    log_in(victim)
    assert me(victim)["user"] == "ada"


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token"])
def test_answers_that_lead_elsewhere_are_not_followed(served: Served, provider: OidcProvider, path: str) -> None:
    """Nor is anything read from this machine's other services for whoever controls an answer."""
    asked = []

    def elsewhere() -> Response:
        asked.append(path)
        return RedirectResponse(f"{provider.issuer}/secret", status_code=307)

    provider.answers[path] = elsewhere
    browser = served.browser()
    assert log_in(browser).status_code in (400, 503)
    assert asked
    assert "/secret" not in provider.asked
    assert me(browser) == 401


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint"])
@pytest.mark.parametrize("address", ["http://login.example.com/x", "file:///etc/passwd", "javascript:alert(1)", ""])
def test_a_provider_that_names_unsafe_addresses(
    served: Served, provider: OidcProvider, endpoint: str, address: str
) -> None:
    document = {
        "issuer": provider.issuer,
        "authorization_endpoint": f"{provider.issuer}/authorize",
        "token_endpoint": f"{provider.issuer}/token",
        "jwks_uri": f"{provider.issuer}/keys",
    }
    provider.answers["/.well-known/openid-configuration"] = lambda: JSONResponse({**document, endpoint: address})
    answer = served.browser().get("/login")
    assert answer.status_code == 400
    assert "location" not in answer.headers


@contextmanager
def trickling(pieces: list[bytes]) -> Iterator[str]:
    """A server that sends a byte whenever it can, and never the whole; the first of `pieces` begins each answer."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            try:
                connection.recv(65_536)
                for piece in pieces:
                    connection.sendall(piece)
                while pieces and not stopping.wait(0.05):
                    connection.sendall(b" ")
                stopping.wait(10)
            except OSError:
                return

    def serve() -> None:
        while not stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stopping.set()
    listener.close()


@pytest.mark.parametrize(
    "pieces", [[], [b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"]], ids=["silent", "byte by byte"]
)
def test_a_provider_that_never_ends_its_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
) -> None:
    monkeypatch.setattr(oidc, "READ_TIMEOUT_S", 0.3)
    monkeypatch.setattr(answers, "TIMEOUTS_IN_ALL", 3)
    clock = SystemClock()
    with trickling(pieces) as issuer:
        console = Served(issuer)
        try:
            began_ms = clock.monotonic_ms()
            answer = console.browser().get("/login")
            assert answer.status_code == 503
            assert issuer in answer.text
            assert clock.monotonic_ms() - began_ms < 15_000
            # Whoever comes next is told at once, and everything else answers.
            assert console.browser().get("/login").status_code == 503
            assert console.browser().get("/").status_code == 200
        finally:
            console.stop()
