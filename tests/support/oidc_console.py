"""A console with logins by a provider, and browsers that log in to it."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

from suiro.clock import ShiftedClock
from suiro.console.web import Console, ConsoleSettings
from suiro.console.web.application import ConsoleApplication
from suiro.console.web.login import Login
from suiro.console.web.oidc import OidcSettings
from suiro.foundation.http import HttpServer, Role, Users, listen_on
from support.oidc_provider import CLIENT_ID, SECRET

PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""To read the certificates of authorities takes longer than most tests here."""
ROLES = (("kafka-admins", Role.ADMIN), ("ops", Role.OPERATOR), ("kafka", Role.VIEWER))


class Served:
    """A console with logins. `browser` is one that goes where it is sent."""

    def __init__(self, issuer: str, users: Users | None = None, **settings: Any) -> None:
        self.clock = ShiftedClock()
        settings = {"roles": ROLES, "client_secret": SECRET, **settings}
        oidc = OidcSettings(issuer=issuer, client_id=CLIENT_ID, **settings)
        self.console = Console(ConsoleSettings(bootstrap_servers="127.0.0.1:1", oidc=oidc), clock=self.clock)
        listener = listen_on("127.0.0.1", 0, name="test")
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.login = Login(oidc, url=url, clock=self.clock, noted=self.console.note)
        self.server = HttpServer(ConsoleApplication(self.console, users, self.login), listener, name="test")
        self.url = self.server.url
        self.browsers: list[httpx.Client] = []

    def browser(self) -> httpx.Client:
        self.browsers.append(httpx.Client(base_url=self.url, timeout=60, verify=PLAIN))
        return self.browsers[-1]

    def stop(self) -> None:
        for one in self.browsers:
            one.close()
        self.console.stop()
        self.server.stop()
        self.login.close()


def log_in(browser: httpx.Client, path: str = "/login") -> httpx.Response:
    """The answer of the console to whom the provider sends back."""
    answer = browser.get(path)
    while answer.is_redirect and not answer.headers["location"].startswith("/"):
        answer = browser.get(answer.headers["location"])
    return answer


def me(browser: httpx.Client) -> Any:
    answer = browser.get("/api/v1/me")
    return answer.json() if answer.status_code == 200 else answer.status_code
