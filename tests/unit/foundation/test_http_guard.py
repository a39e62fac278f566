"""What a request passes before an application sees it, with users that guess and users that are known."""

from __future__ import annotations

import asyncio
import base64
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from suiro.foundation.http import Guard, HttpLimits, Origins, Users, hash_password
from suiro.foundation.http import users as module
from suiro.foundation.http.guard import LOGIN_THREADS, MAX_WAITING_LOGINS, is_let_in
from suiro.foundation.http.users import Verdict


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


async def echo(scope: Any, receive: Any, send: Any) -> None:
    request = Request(scope, receive)
    answer = JSONResponse({"user": scope.get("suiro.user"), "body": (await request.body()).decode()})
    await answer(scope, receive, send)


def client(guard: Guard) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=guard), base_url="http://127.0.0.1")


@pytest.fixture
def users(tmp_path: Path) -> Users:
    path = tmp_path / "users"
    path.write_text(f"ada:{hash_password('secret')}\nbob:plain\n")
    return Users(path)


def guard(users: Users | None = None) -> Guard:
    return Guard(
        echo,
        origins=Origins(loopback_only=users is None),
        users=users,
        max_body_bytes=10,
        limits=HttpLimits(held_body_bytes=10),
        realm="here",
    )


def test_a_request_arrives_with_its_user_and_its_body(users: Users) -> None:
    async def test() -> None:
        async with client(guard(users)) as http:
            for name, password in (("ada", "secret"), ("bob", "plain"), ("ada", "secret")):
                answer = await http.post("/", json=[1, 2, 3], headers=basic(name, password))
                assert answer.json() == {"user": name, "body": "[1,2,3]"}
            answer = await http.get("/", headers=basic("ada", "guess"))
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Basic realm="here"')
            assert (await http.get("/")).status_code == 401

    asyncio.run(test())


def test_what_is_refused_is_refused_before_anything_else_is_done(users: Users) -> None:
    async def test() -> None:
        async with client(guard()) as http:
            assert (await http.get("/", headers={"Host": "pages.example"})).status_code == 403
            large = await http.post("/", content=b"[" * 11, headers={"Content-Type": "application/json"})
            assert large.status_code == 413
            assert large.json() == {"error_code": 413, "message": "The request body has more than 10 bytes"}

            async def parts() -> Any:
                for _ in range(3):
                    yield b"[[[["

            chunked = await http.post("/", content=parts(), headers={"Content-Type": "application/json"})
            assert chunked.status_code == 413

    asyncio.run(test())


@pytest.mark.parametrize("name", ["ada", "bob", "nobody"])
def test_every_refusal_costs_one_scrypt(users: Users, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its time does not tell who exists, nor how a password is kept."""
    salts: list[int] = []
    scrypt = module._scrypt
    monkeypatch.setattr(module, "_scrypt", lambda given, salt: salts.append(len(salt)) or scrypt(given, salt))
    header = basic(name, "guess")["Authorization"]
    assert not users.verify(header).name
    assert salts == [16]
    assert not users.verify(header).name  # a client that keeps on trying costs nothing more
    assert salts == [16]


def test_guesses_push_out_guesses_only(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    assert users.verify(basic("ada", "secret")["Authorization"]).name
    calls: list[str] = []
    monkeypatch.setattr(module, "_scrypt", lambda given, salt: calls.append(given) or b"")
    for number in range(2 * module._CACHED + 1):
        assert not users.verify(basic("ada", f"guess {number}")["Authorization"]).name
    assert len(users._accepted) <= module._CACHED
    assert len(users._refused) <= module._CACHED
    calls.clear()
    assert users.verify(basic("ada", "secret")["Authorization"]).name
    assert calls == []


def test_guesses_keep_nobody_waiting_who_is_known(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who logs in for the first time waits for the guesses that are being checked, not for those that wait."""
    checked: list[str] = []
    released = threading.Event()
    scrypt = module._scrypt

    def slow(given: str, salt: bytes) -> bytes:
        assert released.wait(60)
        checked.append(given)
        return scrypt(given, salt)

    async def test() -> None:
        made = guard(users)
        async with client(made) as http:

            def ask(name: str, password: str) -> asyncio.Task[httpx.Response]:
                return asyncio.create_task(http.get("/", headers=basic(name, password)))

            assert (await ask("ada", "secret")).status_code == 200
            monkeypatch.setattr(module, "_scrypt", slow)
            guesses = [ask("ada", f"guess {number}") for number in range(LOGIN_THREADS + MAX_WAITING_LOGINS)]
            while len(made._waiting_logins) < MAX_WAITING_LOGINS:
                await asyncio.sleep(0)
            for name, password in (("ada", "secret"), ("bob", "plain")):
                assert (await ask(name, password)).status_code == 200
            newcomer = ask("eve", "right")
            oldest, _ = await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result().status_code for task in oldest} == {503}
            released.set()
            answers = await asyncio.gather(*guesses, newcomer)
            statuses = [answer.status_code for answer in answers]
            assert (statuses.count(503), statuses.count(401), statuses.count(200)) == (1, len(guesses) - 1, 1)
            assert checked.index("right") <= LOGIN_THREADS + 1
            assert (made._logins_checked, len(made._waiting_logins)) == (0, 0)

    path = users._path
    path.write_text(path.read_text() + f"eve:{hash_password('right')}\n")
    asyncio.run(asyncio.wait_for(test(), 60))


class Cookies:
    login_path = "/login"

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def known(self, cookie: str) -> Verdict | None:
        return Verdict(cookie) if cookie in self.names else None


@pytest.mark.parametrize(
    ("headers", "let_go", "still"),
    [
        (basic("ada", "secret"), "bob", True),
        (basic("ada", "secret"), "ada", False),
        ({"Cookie": "eve"}, "ada", True),
        ({"Cookie": "eve"}, "eve", False),
        (basic("ada", "secret") | {"Cookie": "eve"}, "eve", True),
    ],
)
def test_a_stream_asks_whether_its_user_is_still_let_in(
    users: Users, headers: dict[str, str], let_go: str, still: bool
) -> None:
    cookies = Cookies("eve")

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        before = await is_let_in(scope)
        cookies.names.discard(let_go)
        kept = [line for line in users._path.read_text().splitlines() if not line.startswith(let_go)]
        users._path.write_text("\n".join(kept))
        await JSONResponse([before, await is_let_in(scope)])(scope, receive, send)

    async def test() -> None:
        async with client(Guard(stream, origins=None, users=users, sessions=cookies, max_body_bytes=10)) as http:
            assert (await http.get("/", headers=headers)).json() == [True, still]

    asyncio.run(test())


def test_where_nobody_has_a_password_none_is_right() -> None:
    async def test() -> None:
        async with client(Guard(echo, origins=None, sessions=Cookies("eve"), max_body_bytes=10)) as http:
            assert (await http.get("/", headers={"Cookie": "eve"})).json()["user"] == "eve"
            for refused in ({}, {"Cookie": "ada"}, basic("eve", ""), basic("ada", "secret") | {"Cookie": "eve"}):
                assert (await http.get("/", headers=refused)).status_code == 401

    asyncio.run(test())


def test_the_turn_of_a_login_that_was_given_up_is_the_next_ones(users: Users) -> None:
    async def test() -> None:
        made = guard(users)
        made._logins_checked = LOGIN_THREADS
        first, second, third = (asyncio.create_task(made._turn_to_login()) for _ in range(3))
        await asyncio.sleep(0)
        third.cancel()  # while it waits
        await asyncio.wait([third])
        made._next_login()
        second.cancel()  # after it was let in
        await asyncio.wait([first, second])
        assert second.cancelled()
        assert first.exception() is None
        made._next_login()
        assert (made._logins_checked, len(made._waiting_logins)) == (LOGIN_THREADS - 1, 0)

    asyncio.run(asyncio.wait_for(test(), 60))


def test_one_user_does_not_take_all_connections(users: Users) -> None:
    """A thousand streams of changes of one reader, and nobody could roll a view back."""
    go_on = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/changes":
            await go_on.wait()
        await echo(scope, receive, send)

    async def test() -> None:
        made = Guard(waits, origins=None, users=users, max_body_bytes=10, limits=HttpLimits(max_connections=8))
        async with client(made) as http:
            reader, operator = basic("ada", "secret"), basic("bob", "plain")
            assert (await http.get("/", headers=reader)).status_code == 200
            streams = [asyncio.create_task(http.get("/changes", headers=reader)) for _ in range(8)]
            await asyncio.wait(streams, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            assert (await http.get("/", headers=operator)).status_code == 200
            assert "ada has too many requests" in (await http.get("/", headers=reader)).json()["message"]
            go_on.set()
            assert sorted(one.status_code for one in await asyncio.gather(*streams)) == [200] * 6 + [503] * 2
            assert (await http.get("/", headers=reader)).status_code == 200

    asyncio.run(test())
