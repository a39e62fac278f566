"""Streams of the console: they end with the rights of their reader, and nobody takes all of them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import httpx
import pytest
from support.console_api import Api, console_api
from support.waiting import wait_until

from suiro.console.web import application
from suiro.console.web.api import overview
from suiro.foundation.http import hash_password

PARTS = 400
"""What a stream sends within 20 s, where each part takes 50 ms."""
VIEWER, ADMIN = ("viewer", "secret"), ("admin", "secret")


def opened(stack: ExitStack, api: Api, auth: tuple[str, str]) -> httpx.Response:
    http = stack.enter_context(httpx.Client(timeout=30))
    return stack.enter_context(http.stream("GET", f"{api.url}/events", auth=auth))


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("left", ["[admin]\nadmin:{0}\n", "[admin]\nadmin:{0}\nviewer:{0}\n"])
def test_a_stream_ends_where_its_reader_has_another_role_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, hashed: bool
) -> None:
    """Who was taken out of the file of users went on reading."""
    monkeypatch.setattr(overview, "KEEP_ALIVE_S", 0.05)
    with console_api(tmp_path) as api, ExitStack() as stack:
        streams = {auth: opened(stack, api, auth) for auth in (VIEWER, ADMIN)}
        parts = {auth: stream.iter_raw() for auth, stream in streams.items()}
        for one in parts.values():
            assert b"hello" in next(one)
        password = hash_password("secret") if hashed else "secret"
        users = tmp_path / "new"
        users.write_text(left.format(password))
        os.replace(users, tmp_path / "users")
        assert len(list(islice(parts[VIEWER], PARTS))) < PARTS, "it goes on"
        assert next(parts[ADMIN]) == b": keep-alive\n\n"


def test_a_head_request_is_answered_without_a_stream(tmp_path: Path) -> None:
    """It held its connection, for which it was over, and a place among the streams."""
    with console_api(tmp_path) as api, httpx.Client(timeout=10, auth=VIEWER) as http:
        head = http.head(f"{api.url}/events")
        assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert http.get(f"{api.url}/me").json()["role"] == "viewer"


def test_one_user_does_not_take_all_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page needs one: without, nobody else saw anything."""
    monkeypatch.setattr(application, "MAX_STREAMS", 4)
    monkeypatch.setattr(application, "MAX_STREAMS_OF_USER", 3)
    monkeypatch.setattr(overview, "KEEP_ALIVE_S", 0.05)
    with console_api(tmp_path) as api:
        with ExitStack() as stack:
            streams = [opened(stack, api, VIEWER) for _ in range(4)]
            assert opened(stack, api, ADMIN).status_code == 200
            assert [stream.status_code for stream in streams] == [200, 200, 200, 503]
            assert "3 of your streams are open" in streams[-1].read().decode()

        def is_free() -> bool:
            with ExitStack() as stack:
                return [opened(stack, api, VIEWER).status_code for _ in range(3)] == [200] * 3

        wait_until(is_free, what="streams whose readers have gone give their places back")
