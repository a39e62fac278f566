"""`Views` and `AsyncViews` ask the same and understand the same: one host, played to both."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from itertools import islice
from typing import Any

import httpx
import pytest
from support.waiting import wait_until

from suiro.errors import TransientError, UsageError
from suiro.views import AsyncViews, Views
from suiro.views.serving import requests
from suiro.views.state import UnknownViewError


class Host:
    """Gives what it was told to, one answer after the other, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            is_events = request.url.path.endswith("/changes") and answer.startswith("id:")
            kind = "text/event-stream" if is_events else "text/html"
            return httpx.Response(200, text=answer, headers={"content-type": kind})
        status, body = answer
        return httpx.Response(status, json=body)


def blocking(host: Host, name: str, *arguments: Any, wait_s: float = 60, **options: Any) -> Any:
    with Views("http://user:secret@host:1", caller="me", timeout_s=wait_s) as views:
        views._http = httpx.Client(
            base_url=views.url,
            headers=views._http.headers,
            auth=views._http.auth,
            transport=httpx.MockTransport(host),
        )
        found = getattr(views, name)(*arguments, **options)
        return [event for _, event in zip(range(3), found, strict=False)] if isinstance(found, Iterator) else found


def on_asyncio(host: Host, name: str, *arguments: Any, wait_s: float = 60, **options: Any) -> Any:
    async def ask() -> Any:
        async with AsyncViews("http://user:secret@host:1", caller="me", timeout_s=wait_s) as views:
            views._http = httpx.AsyncClient(
                base_url=views.url,
                headers=views._http.headers,
                auth=views._http.auth,
                transport=httpx.MockTransport(host),
            )
            if name != "changes":
                return await getattr(views, name)(*arguments, **options)
            found = []
            async with aclosing(views.changes(*arguments, **options)) as changes:  # type: ignore[type-var]
                async for event in changes:
                    found.append(event)
                    if len(found) == 3:
                        break
            return found

    return asyncio.run(ask())


Ask = Callable[..., Any]
both = pytest.mark.parametrize("ask", [blocking, on_asyncio])


@both
def test_a_row_is_asked_for_by_its_key_and_its_caller(ask: Ask) -> None:
    host = Host((200, {"row": 7}))
    assert ask(host, "get", "delays", "a/b", 3, as_of="cut:2", version=None) == {"row": 7}
    (asked,) = host.asked
    assert asked.url.raw_path == b"/views/delays/rows/a%2Fb/3?as_of=cut%3A2"
    assert asked.headers["suiro-caller"] == "me"
    assert asked.headers["authorization"].startswith("Basic ")


@both
def test_a_page_is_asked_for_by_what_python_can_say(ask: Ask) -> None:
    host = Host((200, {"rows": []}))
    ask(host, "rows", "delays", from_="a", where=["n:>:1", "n:<:9"])
    assert host.asked[0].url.query == b"from=a&where=n%3A%3E%3A1&where=n%3A%3C%3A9"


@both
def test_a_read_is_repeated_while_the_host_is_away(ask: Ask) -> None:
    host = Host(httpx.ConnectError("no"), (503, {"message": "soon"}), (200, {"topic": "t"}))
    assert ask(host, "topic", "delays") == {"topic": "t"}
    assert len(host.asked) == 3


@both
@pytest.mark.parametrize("answer", [httpx.ConnectError("no"), (503, {"message": "soon"})])
def test_a_read_ends_when_its_time_is_over(ask: Ask, answer: Any) -> None:
    with pytest.raises(TransientError, match=r"soon|no answer from http://host:1: no. Start one"):
        ask(Host(answer), "topic", "delays", wait_s=0)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), "Connection refused"),
        (httpx.ConnectTimeout(""), "ConnectTimeout"),
    ],
)
def test_a_command_that_reached_no_host_was_not_done(error: Exception, said: str) -> None:
    with pytest.raises(TransientError, match=rf"no host of views answers at http://host:1: {said}\. Start one"):
        blocking(Host(error), "rollback", "delays")


@both
def test_errors_are_of_their_kinds(ask: Ask) -> None:
    with pytest.raises(UnknownViewError, match="no view"):
        ask(Host((404, {"message": "no view"})), "status", "delays")
    for other in ("<html>", "[" * 100_000):
        with pytest.raises(UsageError, match="is that a host of views"):
            ask(Host(other), "topic", "delays")
    for status in (301, 404):
        with pytest.raises(UsageError, match=f"answered {status}: "):
            ask(Host((status, [])), "views")
    for name in ("topic", "status"):
        with pytest.raises(TransientError, match=r"no answer|broke"):
            ask(Host(httpx.DecodingError("no gzip")), name, "delays", wait_s=0)


@both
def test_changes_go_on_where_the_connection_broke(ask: Ask) -> None:
    host = Host(
        'id: 4\ndata: {"n": 1}\n\nid: 5\ndata: {"n":\ndata: 2}\n\nid: 6\ndata: {"n"',
        httpx.ReadError("broken"),
        (503, {"message": "soon"}),
        httpx.DecodingError("no gzip"),
        'id: 6\ndata: {"n": 3}\n\n',
    )
    assert ask(host, "changes", "delays", after=3) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert [asked.headers["last-event-id"] for asked in host.asked] == ["3", "5", "5", "5", "5"]


@both
def test_changes_of_a_view_that_is_not_there_are_an_error(ask: Ask) -> None:
    with pytest.raises(UnknownViewError, match="no view"):
        ask(Host((404, {"message": "no view"})), "changes", "delays")


@both
def test_changes_of_another_service_are_an_error(ask: Ask) -> None:
    """A redirect, or a page, was a stream that has ended: it was asked for again and again, without a pause."""
    with pytest.raises(UsageError, match="answered 301: "):
        ask(Host((301, [])), "changes", "delays")
    with pytest.raises(UsageError, match="something else than changes: is that a host of views"):
        ask(Host("<html>"), "changes", "delays")


def silent_host() -> tuple[socket.socket, list[socket.socket]]:
    """Takes connections, says one event on each, and then nothing: as one whose machine has lost its power."""
    listening = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                taken.append(connection)
                number = len(taken)
                with suppress(OSError):  # it was given up by now
                    connection.recv(65_536)
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
                        b'id: 1.%d\ndata: {"n": %d}\n\n' % (number, number)
                    )

    threading.Thread(target=answer, daemon=True).start()
    return listening, taken


@pytest.mark.parametrize("kind", [Views, AsyncViews])
def test_changes_go_on_where_the_host_fell_silent(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SILENT_S", 0.1)
    listening, taken = silent_host()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    heard: list[int] = []

    async def follow() -> None:
        async with AsyncViews(url) as views, aclosing(views.changes("delays")) as changes:  # type: ignore[type-var]
            async for event in changes:
                heard.append(event["n"])
                if len(heard) == 2:
                    return

    def listen() -> None:
        if kind is AsyncViews:
            asyncio.run(follow())
            return
        with Views(url) as views:
            heard.extend(event["n"] for event in islice(views.changes("delays"), 2))

    threading.Thread(target=listen, daemon=True).start()
    try:
        wait_until(lambda: len(heard) == 2, 20)
    finally:
        listening.close()
        for connection in taken:
            connection.close()
    # One event a connection; of a busy machine, a connection may be over before its own.
    assert heard[0] < heard[1]


@pytest.mark.parametrize(
    ("name", "more", "done"), [("status", {}, ""), ("rollback", {}, "may"), ("compare", {"timeout_ms": 1}, "may")]
)
def test_a_silent_host_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, name: str, more: dict[str, int], done: str
) -> None:
    for limit in ("LOOK_TIMEOUT_S", "COMMAND_TIMEOUT_S"):
        monkeypatch.setattr(f"suiro.views.serving.client.{limit}", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        Views(f"http://127.0.0.1:{listening.getsockname()[1]}") as views,
        pytest.raises(TransientError, match=r"broke \(timed out\)") as raised,
    ):
        getattr(views, name)("delays", **more)
    assert ("may have been done" in str(raised.value)) == bool(done)


def test_waiting_for_a_version_that_was_never_deployed_is_told() -> None:
    with pytest.raises(UnknownViewError, match="no version 3"):
        blocking(Host((200, {"versions": [{"version": 2, "state": "ready"}]})), "wait_until_built", "delays", 3)


@pytest.mark.parametrize(
    "url", ["http://a..b", "http://a\x00b", "http://", "localhost:8085", "127.0.0.1:8085", "ftp://a"]
)
def test_what_is_no_url_is_named(url: str) -> None:
    """Without its scheme, a read was tried for 30 s, and of a command it was said that it may have been done."""
    for client in (Views, AsyncViews):
        with pytest.raises(UsageError, match="is no URL of a host of views"):
            client(url)


def test_the_blocking_client_does_not_load_asyncio() -> None:
    """The commands would start later."""
    code = "import sys, suiro.views.serving.client; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
