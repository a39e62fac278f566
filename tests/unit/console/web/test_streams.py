"""Streams of the console: they end with the rights of their reader, and nobody takes all of them."""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import httpx
import pytest
from support.console_api import Api, console_api

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
