"""Commands over HTTP and from Python: what is asked arrives, what is wrong is named, and users are asked for."""

from __future__ import annotations

import base64
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import httpx
import pytest

from suiro.errors import ConfigError, SuiroError, TransientError, UsageError
from suiro.foundation.http import HttpServer, Users, listen_on
from suiro.views import Listen, Views
from suiro.views.control.comparing import Comparing
from suiro.views.control.host import Host
from suiro.views.control.operations import (
    COMPARING_THREADS,
    DECIDING_THREADS,
    LONG_THREADS,
    LOOKING_THREADS,
    application,
)
from suiro.views.pipeline.archive import Code
from suiro.views.state import (
    LARGEST_LAG_MS,
    ConcurrentChangeError,
    RefusedChangeError,
    RollbackConditions,
    UnknownViewError,
)

JSON = {"Content-Type": "application/json"}


class Told:
    """A host that only listens: each call is noted. `error` is raised instead of an answer. `answers`: by command."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.answers: dict[str, Any] = {}
        self.comparing = self

    def __getattr__(self, name: str) -> Any:
        @wraps(getattr(Host, name, None) or getattr(Comparing, name))
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, arguments, named))
            if self.error is not None:
                raise self.error
            answer = self.answers.get(name)
            return {"view": "delays", "deployed": 2} if answer is None else answer(*arguments, **named)

        return call


@pytest.fixture
def host() -> Told:
    return Told()


@pytest.fixture
def url(host: Told) -> Iterator[str]:
    server = HttpServer(application(host), listen_on("127.0.0.1", 0, name="test"), name="test")  # type: ignore[arg-type]
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


@pytest.fixture
def views(url: str) -> Iterator[Views]:
    with Views(url, who="ada", timeout_s=5) as made:
        yield made


def test_what_is_asked_arrives(host: Told, views: Views, tmp_path: Path) -> None:
    app = tmp_path / "delays.py"
    app.write_text("x = 1\n")
    assert views.deploy(f"{app}:delays", settings={"trigger": "1 second"}, throttle=100)["deployed"] == 2
    name, (code, entry), named = host.calls.pop()
    assert (name, entry, code[:2]) == ("deploy", "delays.py:delays", b"PK")
    assert named == {
        "who": "ada", "settings": {"trigger": "1 second"}, "schema_registry_url": None, "throttle": 100,
    }  # fmt: skip
    views.shift("delays", 0.5, 100, hold_ms=5_000, guards={"errors": 0.01, "p99_ms": 50})
    assert host.calls.pop() == (
        "shift", ("delays", [50, 10_000]),
        {
            "who": "ada", "hold_ms": 5_000, "guards": RollbackConditions(errors=0.01, p99_ms=50),
            "max_lag_ms": LARGEST_LAG_MS,
        },
    )  # fmt: skip
    views.retire("delays", 1, yes=True)
    assert host.calls.pop() == ("retire", ("delays",), {"who": "ada", "version": 1, "yes": True, "last": False})
    views.rollback("delays")
    views.forward("delays", max_lag_ms=7)
    assert [call[0] for call in host.calls] == ["rollback", "forward"]
    assert host.calls[1][2] == {"who": "ada", "max_lag_ms": 7}
    views.explain("delays", ["UA", 7])
    assert host.calls.pop()[2]["keys"] == [["UA", 7]]
    views.compare("delays", tolerances={"minutes": 0.5}, ignored=["note"], timeout_ms=1_500)
    named = host.calls.pop()[2]
    assert (named["tolerances"], named["timeout_ms"]) == ({"minutes": 0.5}, 1_500)
    views.throttle("delays", None)
    assert host.calls.pop() == ("throttle", ("delays",), {})
    views.throttle("delays", 7)
    assert host.calls.pop() == ("throttle", ("delays",), {"records_per_second": 7})
    views.move_consumers("delays", "billing", 2)
    assert host.calls.pop() == ("move_consumers", ("delays",), {"group": "billing", "version": 2})


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("shift", b"{", "not JSON"),
        ("shift", b"[]", "not a JSON object"),
        ("shift", b"{}", "'steps' is missing"),
        ("shift", b'{"steps": 10}', "'steps' is 10; expected list"),
        ("shift", b'{"steps": [0]}', "percents, more than 0"),
        ("shift", b'{"steps": [true]}', "percents"),
        ("shift", b'{"steps": [10], "guards": {"speed": 1}}', "guard 'speed'"),
        ("shift", b'{"steps": [10], "guards": {"errors": "x"}}', "guard 'errors'"),
        ("shift", b'{"steps": [10], "guards": {"errors": NaN}}', "guard 'errors': nan"),
        ("shift", b'{"steps": [10], "guards": {"difference": 20}}', "shares from 0 to 1"),
        ("shift", b'{"steps": [10], "guards": {"lag_ms": 1' + b"0" * 400 + b"}}", "guard 'lag_ms': 1000"),
        ("shift", b'{"steps": [10], "hold_ms": -1}', "'hold_ms' is -1; expected milliseconds from 0 to"),
        ("forward", b'{"max_lag_ms": -1}', "'max_lag_ms' is -1"),
        ("shift", b"[" * 100_000, "not JSON"),
        ("compare", b'{"ignored": [' + b"[]," * 150_001 + b"1]}", "more than 300000 values"),
        ("shift", b'{"steps": [10], "hold": 5}', "there is no field 'hold'"),
        ("retire", b'{"version": "1"}', "'version' is \"1\"; expected int"),
        ("retire", b'{"version": true}', "'version' is true"),
        ("compare", b'{"tolerances": [], "timeout_ms": 5}', "'tolerances' is []; expected dict"),
        ("compare", b'{"is_guard": true}', "there is no field 'is_guard'"),
        ("compare", b'{"timeout_ms": 0}', "'timeout_ms' is 0; expected milliseconds from 1"),
        ("explain", b'{"timeout_ms": 1' + b"0" * 400 + b"}", "expected milliseconds from 1"),
        ("", b'{"code": "%", "entry": "a.py:f"}', "not a zip in base64"),
    ],
)
def test_requests_that_are_wrong(url: str, host: Told, path: str, body: bytes, said: str) -> None:
    where = f"{url}/views/delays/{path}" if path else f"{url}/views"
    answer = httpx.post(where, content=body, headers=JSON)
    assert answer.status_code == 400
    assert said in answer.json()["message"]
    assert host.calls == []


def test_a_file_is_deployed_by_a_link_to_it(host: Told, views: Views, tmp_path: Path) -> None:
    """The archive had the name of the file, and the host looked for the name of the link: no module named so."""
    (tmp_path / "delays_2.py").write_text("x = 1\n")
    (tmp_path / "delays.py").symlink_to(tmp_path / "delays_2.py")
    views.deploy(f"{tmp_path / 'delays.py'}:delays")
    _, (code, entry), _ = host.calls.pop()
    assert (list(Code(code).files), entry) == (["delays_2.py"], "delays_2.py:delays")


def test_what_json_does_not_have(host: Told, views: Views) -> None:
    with pytest.raises(UsageError, match="NaN and infinity"):
        views.shift("delays", float("nan"))
    assert host.calls == []


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (UnknownViewError("no view"), 404, UnknownViewError),
        (RefusedChangeError("not now"), 409, RefusedChangeError),
        (ConcurrentChangeError("overtaken"), 409, RefusedChangeError),
        (UsageError("wrong"), 400, UsageError),
        (TransientError("later"), 503, TransientError),
        (OSError("No space left on device"), 503, TransientError),
        (PermissionError(13, "Permission denied"), 503, TransientError),
        (RuntimeError("oops"), 500, SuiroError),
    ],
)
def test_errors(url: str, views: Views, host: Told, error: Exception, status: int, kind: type[SuiroError]) -> None:
    host.error = error
    assert httpx.post(f"{url}/views/delays/rollback").status_code == status
    with pytest.raises(kind, match=re.escape(str(error)) if status != 500 else "the host failed: RuntimeError"):
        views.rollback("delays")


def test_values_that_utf_8_or_json_do_not_have_are_answered(views: Views, host: Told) -> None:
    """Rows have half of a surrogate pair, aggregates infinities. The answer was made, and could not be sent."""
    found = {"half": "\ud800", "text": "\u00e9", "large": [float("inf")]}
    host.answers["compare"] = lambda *_, **__: found
    assert views.compare("delays") == {"half": "\ud800", "text": "\u00e9", "large": [None]}


def test_what_nobody_waits_for_is_ended(host: Told, url: str) -> None:
    """Ctrl-C closes the connection; a comparison would go on for an hour."""
    begun, ended = threading.Event(), threading.Event()

    def compare(*arguments: Any, gone: threading.Event, **named: Any) -> None:
        begun.set()
        if gone.wait(60):
            ended.set()

    host.answers["compare"] = compare
    address = url.removeprefix("http://").split(":")
    request = f"POST /views/delays/compare HTTP/1.1\r\nHost: {address[0]}\r\nContent-Length: 0\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(COMPARING_THREADS):
            connection = stack.enter_context(socket.create_connection((address[0], int(address[1]))))
            connection.sendall(request.encode())
        assert begun.wait(30)
        body = {"code": "", "entry": "a.py:f"}
        assert httpx.post(f"{url}/views", json=body, timeout=30).status_code == 200  # a deploy does not wait for them
        assert not ended.is_set()
    assert ended.wait(30)


def test_a_rollback_does_not_wait_for_those_who_look(host: Told, url: str) -> None:
    """The store's database does not answer, so that no status and no shift does. Consoles ask again and again."""
    looks, go_on = threading.Semaphore(0), threading.Event()

    def views() -> list[Any]:
        looks.release()
        go_on.wait(60)
        return []

    host.views = views  # type: ignore[attr-defined]
    host.shift = lambda *_, **__: views()  # type: ignore[attr-defined]
    asked = [("GET", f"{url}/views", None), ("POST", f"{url}/views/delays/shift", {"steps": [1]})]
    looking = [
        threading.Thread(target=httpx.request, args=(method, at), kwargs={"json": body, "timeout": 60})
        for method, at, body in asked
        for _ in range(DECIDING_THREADS + LOOKING_THREADS)
    ]
    for thread in looking:
        thread.start()
    for _ in range(LOOKING_THREADS + min(DECIDING_THREADS, LONG_THREADS)):
        assert looks.acquire(timeout=30)
    try:
        assert httpx.post(f"{url}/views/delays/rollback", json={}, timeout=30).status_code == 200
    finally:
        go_on.set()
        for thread in looking:
            thread.join()


def test_no_host() -> None:
    with (
        Views("http://127.0.0.1:1", timeout_s=0.2) as views,
        pytest.raises(TransientError, match=r"no host of views answers at .* Start one: suiro view serve"),
    ):
        views.rollback("delays")
    with (
        Views("http://127.0.0.1:1", timeout_s=0.2) as views,
        pytest.raises(TransientError, match="no answer from"),
    ):
        views.get("delays", "UA")


def test_a_deploy_of_what_is_no_file(views: Views, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected APP\.PY:FUNCTION"):
        views.deploy("delays.py")
    with pytest.raises(UsageError, match="there is no such file"):
        views.deploy(f"{tmp_path}/delays.py:delays")


def test_a_read_is_asked_again_until_the_host_is_there(host: Told, url: str) -> None:
    """503 is what a host says that is starting."""

    class Starting:
        asked = 0

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            Starting.asked += 1
            status, body = (503, b'{"message": "starting"}') if Starting.asked < 4 else (200, b'{"row": null}')
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": body})

    server = HttpServer(Starting(), listen_on("127.0.0.1", 0, name="starting"), name="starting")
    with Views(f"http://127.0.0.1:{server.port}", timeout_s=5) as views:
        assert views.get("delays", "UA") == {"row": None}
    assert Starting.asked == 4
    server.stop()


def test_users(host: Told, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("ada:secret\n")
    made = application(host, Users(tmp_path / "users"))  # type: ignore[arg-type]
    server = HttpServer(made, listen_on("127.0.0.1", 0, name="users"), name="users")
    address = f"127.0.0.1:{server.port}"
    for url in (f"http://{address}", f"http://ada:wrong@{address}"):
        answer = httpx.post(f"{url}/views/delays/rollback", json={})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic")
    assert host.calls == []
    with Views(f"http://ada:secret@{address}", who="somebody else") as views:
        views.rollback("delays")
    assert host.calls == [("rollback", ("delays",), {"who": "ada"})]
    server.stop()


def test_no_message_has_the_password() -> None:
    with Views("http://ada:secret@127.0.0.1:1", timeout_s=0.1) as views:
        assert views.url == "http://127.0.0.1:1"
        for call in (lambda: views.rollback("delays"), lambda: views.get("delays", "UA")):
            with pytest.raises(TransientError) as raised:
                call()
            assert "secret" not in str(raised.value)


@pytest.fixture
def guarded(host: Told, tmp_path: Path) -> Iterator[str]:
    """An address for NAME:PASSWORD@, with a user of each role."""
    text = "[viewer]\nviewer:secret\n[operator]\noperator:secret\n[admin]\nadmin:secret\n"
    (tmp_path / "users").write_text(text)
    made = application(host, Users(tmp_path / "users"))  # type: ignore[arg-type]
    server = HttpServer(made, listen_on("127.0.0.1", 0, name="users"), name="users")
    yield f"127.0.0.1:{server.port}"
    server.stop()


ZIP = base64.b64encode(b"PK").decode()


@pytest.mark.parametrize(
    ("path", "body", "least"),
    [
        ("/delays/compare", {}, "viewer"),
        ("/delays/explain", {}, "viewer"),
        ("/delays/shift", {"steps": [10]}, "operator"),
        ("/delays/rollback", {}, "operator"),
        ("/delays/forward", {}, "operator"),
        ("/delays/throttle", {"records_per_second": 7}, "operator"),
        ("/delays/consumers", {"group": "g", "version": 1}, "operator"),
        ("/delays/retire", {"version": 1, "yes": True}, "admin"),
        ("", {"code": ZIP, "entry": "a.py:f"}, "admin"),
    ],
)
def test_who_may_do_what(guarded: str, host: Told, path: str, body: dict[str, Any], least: str) -> None:
    roles = ["viewer", "operator", "admin"]
    for at, role in enumerate(roles):
        answer = httpx.post(f"http://{role}:secret@{guarded}/views{path}", json=body)
        if at < roles.index(least):
            assert answer.status_code == 403
            message = f"that is for the role {least}, and {role} is {role}"
            assert answer.json() == {"error_code": 403, "message": message}
            assert host.calls == []
        else:
            assert answer.status_code == 200, answer.text
    assert len(host.calls) == len(roles) - roles.index(least)


def test_everybody_may_look(guarded: str, host: Told) -> None:
    for path in ("/views", "/views/delays", "/views/delays/history", "/views/delays/comparisons", "/journal"):
        assert httpx.get(f"http://viewer:secret@{guarded}{path}").status_code == 200


@pytest.mark.parametrize(
    ("asked_for", "noted"),
    [
        ("ada", "operator for ada"),
        ("%C3%A9va%20%3C%0A%E2%80%AE", "operator for éva <??"),
        ("x" * 10_000, f"operator for {'x' * 200}"),
        ("%ff", "operator for \ufffd"),
        ("", "operator"),
    ],
)
def test_a_program_says_whom_it_asks_for(guarded: str, host: Told, asked_for: str, noted: str) -> None:
    url = f"http://operator:secret@{guarded}/views/delays/rollback"
    httpx.post(url, json={"who": "somebody"}, headers={"Suiro-For": asked_for})
    assert host.calls == [("rollback", ("delays",), {"who": noted})]


def test_without_users_nobody_asks_for_another(url: str, host: Told) -> None:
    httpx.post(f"{url}/views/delays/rollback", json={"who": "ada"}, headers={"Suiro-For": "bob"})
    assert host.calls == [("rollback", ("delays",), {"who": "ada"})]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Type": "text/plain"}, b"{}", 415),  # what a page can send unasked
        ({"Content-Type": "multipart/form-data; boundary=x"}, b"{}", 415),
        ({}, b"{}", 415),
        (JSON | {"Origin": "https://example.org"}, b"{}", 403),
        (JSON | {"Origin": "null"}, b"{}", 403),
        ({"Origin": "https://example.org"}, b"", 403),
        (JSON | {"Host": "example.org:8085"}, b"{}", 403),  # a name that was made to point here
        (JSON | {"Host": "localhost:8085"}, b"{}", 200),
        (JSON | {"Host": "[::1]:8085"}, b"{}", 200),
        (JSON | {"Content-Type": "application/json; charset=utf-8"}, b"{}", 200),
        ({}, b"", 200),
    ],
)
def test_a_web_page_commands_nothing(url: str, host: Told, headers: dict[str, str], body: bytes, status: int) -> None:
    answer = httpx.post(f"{url}/views/delays/rollback", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert len(host.calls) == (status == 200)


def test_a_web_page_reads_nothing_under_a_name_of_its_own(url: str, host: Told) -> None:
    assert httpx.get(f"{url}/views", headers={"Host": "example.org"}).status_code == 403
    assert httpx.get(f"{url}/views").status_code == 200


def test_beyond_the_loopback_address_users_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="runs code on this machine"):
        Listen(host="0.0.0.0")
    with pytest.raises(ConfigError, match="TLS needs both"):
        Listen(tls_certificate=tmp_path / "c.pem")
    for host in ("127.0.0.1", "::1", "localhost"):
        Listen(host=host)
    Listen(host="0.0.0.0", users=tmp_path / "users")


def test_a_zip_is_sent_whole(url: str, host: Told) -> None:
    code = bytes(range(256)) * 100
    body = {"code": base64.b64encode(code).decode(), "entry": "a.py:f"}
    assert httpx.post(f"{url}/views", json=body).status_code == 200
    assert host.calls[0][1] == (code, "a.py:f")
