"""The console's API as its users have it: over HTTP, with a user of each role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from suiro.console.web import Console, ConsoleSettings
from suiro.console.web.application import ConsoleApplication
from suiro.foundation.http import HttpServer, Users, listen_on

TIMEOUT_S = 60
ROLES = ("viewer", "operator", "admin")


class Api:
    """Calls return the answer's JSON, or with `status` the message of that error."""

    def __init__(self, console: Console, http: httpx.Client) -> None:
        self.console = console
        self._http = http
        self.url = f"{str(http.base_url).rstrip('/')}/api/v1"

    def get(self, path: str, *, role: str = "viewer", status: int = 200, **query: Any) -> Any:
        return self._answer("GET", path, role, status, params=query)

    def post(self, path: str, body: Any = None, *, role: str = "admin", status: int = 200) -> Any:
        return self._answer("POST", path, role, status, json={} if body is None else body)

    def _answer(self, method: str, path: str, role: str, status: int, **more: Any) -> Any:
        answer = self._http.request(method, f"/api/v1{path}", auth=(role, "secret"), **more)
        assert answer.status_code == status, (answer.status_code, answer.text)
        if status == 200:
            return answer.json()
        assert answer.json()["error_code"] == status
        return answer.json()["message"]


def users_file(folder: Path) -> Path:
    path = folder / "users"
    path.write_text("".join(f"[{role}]\n{role}:secret\n" for role in ROLES))
    return path


@contextmanager
def console_api(folder: Path, bootstrap_servers: str = "127.0.0.1:1", **settings: Any) -> Iterator[Api]:
    """The model does not look at the cluster by itself: what is asked for is read from the brokers."""
    console = Console(ConsoleSettings(bootstrap_servers=bootstrap_servers, **settings))
    listener = listen_on("127.0.0.1", 0, name="test")
    application = ConsoleApplication(console, Users(users_file(folder)))
    server = HttpServer(application, listener, name="test")
    try:
        with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as http:
            yield Api(console, http)
    finally:
        console.stop()
        server.stop()
