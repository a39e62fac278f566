"""What users of each role may do at the registry; all of its paths, so that none is forgotten."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.registry import MemoryStorage

from suiro.foundation.http import Role, Users
from suiro.registry.app import RegistryApp
from suiro.registry.endpoints import ROUTES, role_of

JSON = {"content-type": "application/vnd.schemaregistry.v1+json"}
ROLES = ("viewer", "operator", "admin")
SCHEMA = {"schema": '"string"'}


class Guarded:
    def __init__(self, folder: Path, users: str) -> None:
        (folder / "users").write_text(users)
        self.storage = MemoryStorage()
        self.app = RegistryApp(self.storage, Users(folder / "users"))  # type: ignore[arg-type]

    def __call__(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://registry") as client:
                content = None if body is None else json.dumps(body)
                return await client.request(method, f"/{path}", content=content, headers=JSON, auth=(user, "secret"))

        answer = asyncio.run(call())
        return answer.status_code, answer.json()


@pytest.fixture
def registry(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path, "".join(f"[{role}]\n{role}:secret\n" for role in ROLES))


@pytest.mark.parametrize(
    ("method", "path", "body", "least"),
    [
        ("GET", "subjects", None, "viewer"),
        ("POST", "subjects/s", SCHEMA, "viewer"),
        ("POST", "compatibility/subjects/s/versions", SCHEMA, "viewer"),
        ("POST", "compatibility/subjects/s/versions/latest", SCHEMA, "viewer"),
        ("POST", "subjects/s/versions", SCHEMA, "operator"),
        ("POST", "contexts/.c/subjects/s/versions", SCHEMA, "operator"),
        ("PUT", "config", {"compatibility": "FULL"}, "admin"),
        ("PUT", "config/s", {"compatibility": "FULL"}, "admin"),
        ("PUT", "mode/s", {"mode": "READONLY"}, "admin"),
        ("DELETE", "config/s", None, "admin"),
        ("DELETE", "subjects/s/versions/1", None, "admin"),
        ("DELETE", "subjects/s", None, "admin"),
    ],
)
def test_who_may_do_what(registry: Guarded, method: str, path: str, body: Any, least: str) -> None:
    assert registry("admin", "POST", "subjects/s/versions", SCHEMA)[0] == 200
    assert registry("admin", "PUT", "config/s", {"compatibility": "NONE"})[0] == 200
    before = list(registry.storage.log)
    for role in ROLES[: ROLES.index(least)]:
        status, answer = registry(role, method, path, body)
        message = f"User is denied: that is for the role {least}, and {role} is {role}"
        assert (status, answer) == (403, {"error_code": 40301, "message": message})
    assert registry.storage.log == before
    assert registry(least, method, path, body)[0] == 200


def test_each_path_has_its_role() -> None:
    """What is new and forgotten is for admins."""
    by_role: dict[Role, set[str]] = {role: set() for role in Role}
    for path, methods in ROUTES.items():
        for method, endpoint in methods.items():
            if method != "GET":
                by_role[role_of(method, endpoint)].add(f"{method} {path}")
    assert by_role[Role.VIEWER] == {
        "POST subjects/{subject}",
        "POST compatibility/subjects/{subject}/versions",
        "POST compatibility/subjects/{subject}/versions/{version}",
    }
    assert by_role[Role.OPERATOR] == {
        "POST subjects/{subject}/versions",
        "POST associations",
        "PUT associations",
    }
    assert {each.partition("/")[0].partition("{")[0] for each in by_role[Role.ADMIN]} == {
        "DELETE associations", "DELETE config", "DELETE mode", "DELETE subjects", "PUT config", "PUT mode",
    }  # fmt: skip


def test_users_without_sections_may_do_everything(tmp_path: Path) -> None:
    registry = Guarded(tmp_path, "ada:secret\n")
    assert registry("ada", "POST", "subjects/s/versions", SCHEMA)[0] == 200
    assert registry("ada", "DELETE", "subjects/s")[0] == 200
    assert registry("ada", "PUT", "mode", {"mode": "READONLY"})[0] == 200
