"""Who may ask what of HTTP services with users: each route beside each caller. A route without a rule here fails."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route
from support.registry import MemoryStorage

from suiro.connect import control
from suiro.console.web import ConsoleSettings, application
from suiro.console.web.api import ENDPOINTS
from suiro.console.web.console import Console
from suiro.foundation.http import Role, Users
from suiro.registry.app import RegistryApp
from suiro.registry.endpoints import ROUTES
from suiro.views.control import operations
from suiro.views.state import UnknownViewError

RULES = {
    "console": {
        Role.VIEWER: """
            GET /me, GET /overview, GET /events, GET /problems, GET /topics, GET /topics/{}, GET /topics/{}/records,
            GET /topics/{}/record, GET /topics/{}/scan, GET /topics/{}/tail, GET /topics/{}/export, GET /groups,
            GET /groups/{}, GET /schemas, GET /schemas/{}, GET /schemas/{}/diff, POST /schemas/{}/check,
            GET /dead-letters, GET /dead-letters/{}, GET /dead-letters/{}/records, GET /dead-letters/{}/origin,
            GET /dead-letters/{}/history, GET /acls, GET /users, GET /quotas, GET /connectors, GET /views,
            GET /views/{}/{}, GET /views/{}/{}/history, GET /views/{}/{}/comparisons, POST /views/{}/{}/compare,
            POST /views/{}/{}/explain, GET /apps, GET /apps/{}, GET /apps/{}/stores/{}, POST /apps/{}/stores/{}/explain
        """,
        Role.OPERATOR: """
            GET /audit, POST /topics, POST /topics/{}/alter, POST /topics/{}/records, POST /topics/{}/copy,
            POST /groups/{}/reset, POST /schemas/{}/register, POST /dead-letters/{}/redrive,
            POST /connectors/{}/{}/pause, POST /connectors/{}/{}/resume, POST /connectors/{}/{}/restart,
            POST /views/{}/{}/shift, POST /views/{}/{}/rollback, POST /views/{}/{}/forward, POST /views/{}/{}/throttle
        """,
        Role.ADMIN: """
            POST /topics/{}/delete-records, POST /topics/{}/delete, POST /groups/{}/delete, POST /acls,
            POST /acls/delete, POST /users, POST /users/delete, POST /quotas, POST /views/{}, POST /views/{}/{}/retire
        """,
    },
    "registry": {
        Role.VIEWER: """
            GET /, GET /subjects, POST /subjects/{}, GET /subjects/{}/versions, GET /subjects/{}/versions/{},
            GET /subjects/{}/versions/{}/schema, GET /subjects/{}/versions/{}/referencedby, GET /subjects/{}/metadata,
            GET /schemas, GET /schemas/types, GET /schemas/ids/{}, GET /schemas/ids/{}/schema,
            GET /schemas/ids/{}/subjects, GET /schemas/ids/{}/versions, GET /schemas/guids/{},
            GET /schemas/guids/{}/ids, POST /compatibility/subjects/{}/versions,
            POST /compatibility/subjects/{}/versions/{}, GET /config,
            GET /config/{}, GET /mode, GET /mode/{}, GET /contexts, GET /associations/resources/{}/{},
            GET /v1/metadata/version, GET /v1/metadata/id
        """,
        Role.OPERATOR: "POST /subjects/{}/versions, POST /associations, PUT /associations",
        Role.ADMIN: """
            DELETE /subjects/{}, DELETE /subjects/{}/versions/{}, PUT /config, DELETE /config, PUT /config/{},
            DELETE /config/{}, PUT /mode, DELETE /mode, PUT /mode/{}, DELETE /mode/{}, DELETE /associations/resources/{}
        """,
    },
    "connect": {
        Role.VIEWER: "GET /connectors, GET /connectors/{}/status, GET /metrics",
        Role.OPERATOR: "PUT /connectors/{}/pause, PUT /connectors/{}/resume, POST /connectors/{}/restart",
    },
    "views": {
        Role.VIEWER: """
            GET /views/{}/rows, GET /views/{}/rows/{}, GET /views/{}/changes, GET /views/{}/topic, GET /views,
            GET /journal, GET /views/{}, GET /views/{}/history, GET /views/{}/comparisons, GET /metrics,
            POST /views/{}/compare, POST /views/{}/explain
        """,
        Role.OPERATOR: """
            POST /views/{}/shift, POST /views/{}/rollback, POST /views/{}/forward, POST /views/{}/throttle,
            POST /views/{}/consumers
        """,
        Role.ADMIN: "POST /views, POST /views/{}/retire",
    },
}
USERS = "".join(f"[{role.name.lower()}]\n{role.name}:secret\n" for role in Role)
REFUSED = (401, 403)


class Anything:
    """A host of views and a runtime of connectors that do whatever is asked."""

    def __init__(self) -> None:
        self.comparing = self

    def serving(self, view: str, caller: str) -> Any:
        raise UnknownViewError(view)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: []


def _console(users: Users, monkeypatch: pytest.MonkeyPatch, *, read_only: bool = False) -> tuple[Any, list[str]]:
    answering = tuple(replace(one, handle=lambda call: {}, body=None) for one in ENDPOINTS)
    monkeypatch.setattr(application, "ENDPOINTS", answering)
    console = Console(ConsoleSettings(bootstrap_servers="127.0.0.1:1", read_only=read_only))
    made = application.ConsoleApplication(console, users)
    return made, [f"{one.method} {one.path}" for one in ENDPOINTS]


def _registry(users: Users, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    monkeypatch.setattr(RegistryApp, "_run", lambda *_: {})
    made = RegistryApp(MemoryStorage(), users)  # type: ignore[arg-type]
    return made, [f"{method} /{path}" for path, methods in ROUTES.items() for method in methods]


def _connect(users: Users, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    monkeypatch.setattr(control, "listen_on", lambda *_, **__: None)
    monkeypatch.setattr(control, "HttpServer", lambda guard, *_, **__: guard)
    made: Any = control.serve_control(Anything(), "127.0.0.1", 0, users=users)  # type: ignore[arg-type]
    return made, _routes(made)


def _views(users: Users, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    made: Any = operations.application(Anything(), users)  # type: ignore[arg-type]
    return made, _routes(made)


def _routes(guard: Any) -> list[str]:
    found = []
    for route in guard._application.routes:
        assert isinstance(route, Route)
        found += [f"{method} {route.path}" for method in route.methods or () if method != "HEAD"]
    return found


SERVICES: dict[str, Any] = {"console": _console, "registry": _registry, "connect": _connect, "views": _views}


def _rules(service: str) -> dict[str, Role]:
    """The least role of each route."""
    return {route: role for role, text in RULES[service].items() for route in re.split(r",\s+", text.strip())}


def _asked(app: Any, route: str, user: Role | None, headers: dict[str, str]) -> int:
    method, _, path = route.partition(" ")

    async def ask() -> int:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            auth = None if user is None else (user.name, "secret")
            content = None if method == "GET" else b"{}"
            answer = await http.request(
                method, path.replace("{}", "x"), auth=auth, content=content,
                headers={"content-type": "application/json", **headers},
            )  # fmt: skip
            return answer.status_code

    return asyncio.run(ask())


@pytest.fixture
def users(tmp_path: Path) -> Users:
    (tmp_path / "users").write_text(USERS)
    return Users(tmp_path / "users")


@pytest.mark.parametrize("service", SERVICES)
def test_each_route_is_for_its_role(service: str, users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    app, routes = SERVICES[service](users, monkeypatch)
    rules = _rules(service)
    assert sorted(re.sub(r"{[^}]*}", "{}", route) for route in routes) == sorted(rules)
    prefix = "/api/v1" if service == "console" else ""
    wrong = []
    for route, least in rules.items():
        asked = route.replace(" ", f" {prefix}")
        found = {role: _asked(app, asked, role, {}) for role in (None, *Role)}
        other = {"origin": "http://other.example", "sec-fetch-site": "cross-site"}
        reads = route.startswith("GET")
        of_page = {role: _asked(app, asked, role, other) for role in (None, *Role)}
        if found[None] != 401 or any((found[role] in REFUSED) != (role < least) for role in Role):
            wrong.append((route, least, found))
        if not reads and set(of_page.values()) != {403}:
            wrong.append((route, "a page of another origin", of_page))
    assert not wrong


def test_a_console_that_only_shows_changes_nothing(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = _console(users, monkeypatch, read_only=True)
    rules = _rules("console")
    found = {route: _asked(app, route.replace(" ", " /api/v1"), Role.ADMIN, {}) for route in rules}
    assert {route for route, status in found.items() if status == 403} == {
        route for route, least in rules.items() if least > Role.VIEWER
    }
    assert _asked(app, "GET /api/v1/me", None, {}) == 401


def test_pages_of_others_read_nothing_of_the_console(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = _console(users, monkeypatch)
    for route in _rules("console"):
        for site in ("cross-site", "same-site"):
            asked = route.replace(" ", " /api/v1")
            assert _asked(app, asked, Role.ADMIN, {"sec-fetch-site": site}) == 403, route
