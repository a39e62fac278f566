"""Connectors and views over the console's API: real servers of both over stand-ins, and servers that answer badly."""

from __future__ import annotations

import logging
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from starlette.responses import Response
from support.console_api import Api, console_api, users_file
from support.waiting import wait_until

from suiro.clock import ManualClock
from suiro.connect import serve_control
from suiro.connect.runtime import UnknownConnectorError
from suiro.console.web import Masks, Remote, remotes
from suiro.console.web.api.applications import related_to
from suiro.console.web.endpoint import Call
from suiro.errors import TransientError
from suiro.foundation.http import HttpServer, Role, Users, listen_on
from suiro.views.control.comparing import Comparing
from suiro.views.control.host import Host
from suiro.views.control.operations import application as views_application
from suiro.views.pipeline.archive import Code
from suiro.views.state import RefusedChangeError, UnknownViewError

BEYOND = 9007199254740993  # no double has it


class ToldHost:
    """A host of views that notes what it is told."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.comparing = self
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.gone: threading.Event | None = None

    def views(self) -> list[Any]:
        return [{"view": "delays", "revision": BEYOND}]

    @wraps(Comparing.compare)
    def compare(self, view: str, **named: Any) -> Any:
        self.gone = named.pop("gone")
        self.calls.append(("compare", (view,), named))
        self.begun.set()
        if view == "forever":
            wait_until(lambda gone=self.gone: gone.is_set() or self.may_end.is_set(), 60)  # type: ignore[misc]
        return {"share": 0.0125, "largest": BEYOND}

    def __getattr__(self, name: str) -> Any:
        @wraps(getattr(Host, name, None) or getattr(Comparing, name))
        def call(*arguments: Any, **named: Any) -> Any:
            named.pop("gone", None)
            self.calls.append((name, arguments, named))
            if self.error is not None:
                raise self.error
            return {"view": "delays", "revision": BEYOND}

        return call


class ToldRuntime:
    """A runtime of connectors that notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def status(self, name: str | None = None) -> list[dict[str, Any]]:
        return [{"name": "orders", "type": "sink", "state": "RUNNING", "lag": BEYOND}]

    def __getattr__(self, name: str) -> Any:
        def call(connector: str) -> None:
            if connector != "orders":
                raise UnknownConnectorError("there are orders")
            self.calls.append((name, connector))

        return call


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def to_the_end() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def served(ends: ExitStack, application: Any) -> str:
    server = HttpServer(application, listen_on("127.0.0.1", 0, name="stand-in"), name="stand-in")
    ends.callback(server.stop)
    return server.url


def answering(ends: ExitStack, content: bytes, status: int = 200, **headers: str) -> str:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        await Response(content, status_code=status, headers=headers)(scope, receive, send)

    return served(ends, answer)


_HOST, _RUNTIME = ToldHost(), ToldRuntime()


@pytest.fixture
def host() -> Iterator[ToldHost]:
    yield _HOST
    _HOST.may_end.set()
    _HOST.forget()


@pytest.fixture
def runtime() -> Iterator[ToldRuntime]:
    yield _RUNTIME
    _RUNTIME.calls.clear()


@pytest.fixture(scope="module")
def host_url(to_the_end: ExitStack) -> str:
    return served(to_the_end, views_application(_HOST))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def connect_url(to_the_end: ExitStack) -> str:
    server = serve_control(_RUNTIME, "127.0.0.1", 0, token="sesame")  # type: ignore[arg-type]
    to_the_end.callback(server.stop)
    return server.url


@pytest.fixture(scope="module")
def api(to_the_end: ExitStack, tmp_path_factory: pytest.TempPathFactory, host_url: str, connect_url: str) -> Api:
    remotes = {"views": (Remote(url=host_url),), "connect": (Remote(url=connect_url, token="sesame"),)}
    return to_the_end.enter_context(console_api(tmp_path_factory.mktemp("console"), **remotes))


@pytest.fixture
def console(ends: ExitStack, tmp_path: Path) -> Callable[..., Api]:
    return lambda **settings: ends.enter_context(console_api(tmp_path, **settings))


@pytest.fixture
def dead_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


# -- what is wrong -------------------------------------------------------------------------------------------


def test_what_is_wrong_in_what_runs_on_the_cluster(console: Callable[..., Api], ends: ExitStack, dead_url: str) -> None:
    application = {
        "application_id": "billing",
        "state": "ERROR",
        "error": "a record cannot\n be read" + "!" * 1_000,
        "dead_letter_topics": ["aside"],
    }
    fine = {"application_id": "fine", "state": "RUNNING", "error": None, "dead_letter_topics": []}
    connectors = {
        "a": {"status": {"name": "a", "state": "RUNNING", "error": "the last one"}},
        "b": {"status": {"name": "b", "state": "RESTARTING", "error": "refused"}},
    }
    versions = [
        {"version": 1, "state": "retired", "error": "long ago"},
        {"version": 2, "state": "ready", "pipeline": {"state": "failed", "error": "KeyError: 'x'"}},
        {"version": 3, "state": "ready", "pipeline": {"state": "running", "error": None}},
    ]
    answers = [application, fine, connectors, [{"view": "delays/1", "versions": versions}]]
    urls = [answering(ends, msgspec.json.encode(one)) for one in answers]
    api = console(
        apps=(Remote(url=urls[0]), Remote(url=urls[1]), Remote(url=dead_url)),
        connect=(Remote(url=urls[2]),),
        views=(Remote(url=urls[3]),),
    )
    found = api.get("/problems")
    said = {one["text"][:60]: one["link"] for one in found["problems"] if one["link"]}
    assert found["left_out"] == 0
    assert said.pop("View delays/1, version 2: KeyError: 'x'") == "#/views/0/delays%2F1"
    assert said.pop("Connector b: refused") == "#/connectors"
    (away,) = [text for text in said if dead_url in text]
    assert (away[:28], said.pop(away)) == ("Application: no answer from ", "#/applications/2")
    ((text, link),) = said.items()
    assert (text[:47], link) == ("Application billing: a record cannot be read!!!", "#/applications/0")
    assert all(len(one["text"]) < 400 for one in found["problems"])


def test_errors_may_quote_records_so_with_masks_they_are_for_admins(
    console: Callable[..., Api], ends: ExitStack
) -> None:
    secret = "no number: 4111 1111"
    version = {"version": 2, "state": "ready", "error": secret, "pipeline": {"error": secret}, "big": BEYOND}
    connector = {"name": "a", "state": "FAILED", "error": secret}
    kafka = {"name": "b", "connector": {"state": "FAILED", "trace": secret}, "tasks": []}
    urls = [
        answering(ends, msgspec.json.encode(one))
        for one in (
            {"application_id": "billing", "state": "ERROR", "error": secret, "held": []},
            {"a": {"status": connector}, "b": {"status": kafka}},
            [{"view": "delays", "versions": [version], "guard_error": secret}],
        )
    ]
    api = console(
        masks=Masks.parse(["cards=number"]),
        apps=(Remote(url=urls[0]),),
        connect=(Remote(url=urls[1]),),
        views=(Remote(url=urls[2]),),
    )
    paths = ("/problems", "/apps", "/apps/0", "/connectors", "/views")
    for role, is_shown in (("viewer", False), ("operator", False), ("admin", True)):
        for path in paths:
            told = str(api.get(path, role=role))
            assert ("4111" in told) == is_shown, (role, path)
            assert is_shown or "only admins can read it" in told
        if role != "viewer":  # what a command answers is the status of the view
            assert ("4111" in str(api.post("/views/0/delays/rollback", role=role))) == is_shown
    assert str(BEYOND) in str(api.get("/views"))


def test_servers_that_answer_with_nonsense_break_no_list_of_problems(
    console: Callable[..., Api], ends: ExitStack
) -> None:
    api = console(
        apps=tuple(
            Remote(url=answering(ends, one))
            for one in (
                b"[]",
                b'{"dead_letter_topics": 7}',
                b'{"graph": null}',
                b'{"graph": {"nodes": [{"topics": 7}]}}',
                b'{"stores": 7}',
                b'{"application_id": "a", "stores": [{"topic": "a-t"}]}',
            )
        ),
        connect=(Remote(url=answering(ends, b'{"a": {"status": {"name": 7, "error": {}}}}')),),
        views=tuple(
            Remote(url=answering(ends, one))
            for one in (
                b'[7, {"view": 7, "versions": [7, {"pipeline": []}]}]',
                b'["\xff"]',
                b"[1e999]",
                b"[" * 600 + b"]" * 600,
            )
        ),
        masks=Masks.parse(["cards=number"]),
    )
    for role in ("viewer", "admin"):
        links = {one["link"] for one in api.get("/problems", role=role)["problems"]}
        assert links >= {"#/applications/0", "#/connectors", "#/views"}
        assert "no JSON" in api.get("/views/1/v", role=role, status=500)
    assert "cannot be read" in api.get("/views/2/v", status=500)
    call = Call(console=api.console, path={}, query={}, body=None, user=None, role=Role.ADMIN, gone=threading.Event())
    assert [one.link for one in related_to(call, "a-t")] == ["#/applications/5"]  # on the page of a topic


def test_a_server_with_a_million_values_is_an_entry_with_an_error(console: Callable[..., Api], ends: ExitStack) -> None:
    """Nobody else was answered while they were parsed, for seconds."""
    many = (Remote(url=answering(ends, b"[" + b"[]," * 500_000 + b"[]]")),)
    api = console(apps=many, connect=many, views=many, masks=Masks.parse(["cards=number"]))
    for path in ("/apps", "/connectors", "/views"):
        assert "answers with more than 300000 values" in str(api.get(path)), path
    assert "more than 300000 values" in api.get("/views/0/delays", status=500)
    assert len(api.get("/views/0/delays", role="admin")) == 500_001


def test_an_error_of_a_server_becomes_no_objects_but_its_message() -> None:
    content = b'{"message": "full", "more": [' + b"[]," * 100_000 + b"[]]}"
    tracemalloc.start()
    error = remotes._error("http://a", httpx.Response(503, content=content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (str(error), peak < len(content)) == ("http://a: full", True)


# -- connectors ----------------------------------------------------------------------------------------------


def test_connectors_are_listed_and_told_what_to_do(api: Api, runtime: ToldRuntime, connect_url: str) -> None:
    (found,) = api.get("/connectors")["hosts"]
    assert (found["host"], found["url"], found["error"]) == (0, connect_url, None)
    assert found["connectors"] == runtime.status()
    for action in ("pause", "resume", "restart"):
        path = f"/connectors/0/orders/{action}"
        assert "for the role operator" in api.post(path, role="viewer", status=403)
        assert runtime.calls == []
        assert api.post(path, role="operator") == {"name": "orders"}
        assert runtime.calls.pop() == (action, "orders")
    assert "there are orders" in api.post("/connectors/0/no/pause", status=404)
    assert "there is no process of connect 1" in api.post("/connectors/1/orders/pause", status=404)
    assert "host='x'" in api.post("/connectors/x/orders/pause", status=400)
    assert "unknown field" in api.post("/connectors/0/orders/pause", {"now": True}, status=400)
    assert runtime.calls == []


def test_a_wrong_token_is_the_consoles_fault(console: Callable[..., Api], connect_url: str) -> None:
    api = console(connect=(Remote(url=connect_url, token="wrong"),))
    (found,) = api.get("/connectors")["hosts"]
    assert "does not take the console's login" in found["error"]
    assert "does not take the console's login" in api.post("/connectors/0/orders/pause", status=500)


def test_kafka_connect_tells_it_otherwise(console: Callable[..., Api], ends: ExitStack) -> None:
    running = {"state": "RUNNING", "worker_id": "w"}
    failed = {"id": 0, "state": "FAILED", "trace": "java.lang.Error: no\n\tat x"}
    answer = {
        name: {"status": {"name": name, "type": "sink", "connector": running, "tasks": tasks}}
        for name, tasks in (("a", [failed]), ("b", [running]))
    }
    api = console(connect=(Remote(url=answering(ends, msgspec.json.encode(answer))),))
    found = api.get("/connectors")["hosts"][0]["connectors"]
    assert [(one["name"], one["state"], one["error"]) for one in found] == [
        ("a", "FAILED", "java.lang.Error: no"),
        ("b", "RUNNING", None),
    ]


# -- views ---------------------------------------------------------------------------------------------------


def test_views_are_looked_at(api: Api, host: ToldHost, host_url: str) -> None:
    (found,) = api.get("/views")["hosts"]
    assert (found["host"], found["url"], found["error"]) == (0, host_url, None)
    assert found["views"] == host.views()
    for path, called in (("", "status"), ("/history", "history"), ("/comparisons", "kept")):
        assert api.get(f"/views/0/delays{path}")["revision"] == BEYOND
        assert host.calls.pop()[:2] == (called, ("delays",))
    host.error = UnknownViewError("there is no view 'no'")
    assert "there is no view 'no'" in api.get("/views/0/no", status=404)
    assert "there is no host of views 7" in api.get("/views/7/delays", status=404)


@pytest.mark.parametrize(
    ("path", "body", "least", "told"),
    [
        (
            "shift",
            {"steps": [0.5, 100], "hold_ms": 7},
            "operator",
            {"who": "{}", "hold_ms": 7, "max_lag_ms": 10_000},
        ),
        ("rollback", {}, "operator", {"who": "{}"}),
        ("forward", {"max_lag_ms": 5}, "operator", {"who": "{}", "max_lag_ms": 5}),
        ("throttle", {"records_per_second": None}, "operator", {}),
        ("retire", {"version": 1, "yes": True}, "admin", {"who": "{}", "version": 1, "yes": True}),
    ],
)
def test_changes_arrive_with_who_asks(
    api: Api, host: ToldHost, path: str, body: dict[str, Any], least: str, told: dict[str, Any]
) -> None:
    roles = ("viewer", "operator", "admin")
    for role in roles[: roles.index(least)]:
        assert f"for the role {least}" in api.post(f"/views/0/delays/{path}", body, role=role, status=403)
    assert host.calls == []
    assert api.post(f"/views/0/delays/{path}", body, role=least)["revision"] == BEYOND
    name, _, named = host.calls.pop()
    named.pop("guards", None)
    expected = {key: least if value == "{}" else value for key, value in told.items()}
    assert (name, named) == (path, expected)


def test_a_version_is_deployed_by_an_admin(api: Api, host: ToldHost, caplog: pytest.LogCaptureFixture) -> None:
    body = {"entry": "delays.py:delays", "files": {"delays.py": "import helpers", "helpers.py": "SECRET = 1"}}
    assert "for the role admin" in api.post("/views/0", body, role="operator", status=403)
    assert host.calls == []
    with caplog.at_level(logging.INFO, logger="suiro.console.audit"):
        assert api.post("/views/0", body)["revision"] == BEYOND
    name, (code, entry), told = host.calls.pop()
    assert (name, entry, told["who"]) == ("deploy", "delays.py:delays", "admin")
    assert Code(code).files == {name: text.encode() for name, text in body["files"].items()}  # type: ignore[attr-defined]
    assert "delays.py:delays" in caplog.text
    assert "SECRET" not in caplog.text


@pytest.mark.parametrize(
    ("entry", "files", "said"),
    [
        ("delays.py:delays", {}, "APP.PY among the files"),
        ("delays", {"delays.py": ""}, "APP.PY among the files"),
        ("../delays.py:f", {"../delays.py": ""}, "is not a Python file"),
        ("delays.py:f", {"delays.py": "", "notes.txt": ""}, "is not a Python file"),
        ("delays.py:f", {"delays.py": "", "a/b.py": ""}, "is not a Python file"),
        ("json.py:f", {"json.py": ""}, "give the file another name"),
    ],
)
def test_files_that_are_no_version(api: Api, host: ToldHost, entry: str, files: dict[str, str], said: str) -> None:
    assert said in api.post("/views/0", {"entry": entry, "files": files}, status=400)
    assert host.calls == []


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("shift", {}, "steps"),
        ("shift", {"steps": 10}, "$.steps"),
        ("shift", {"steps": [10], "who": "mallory"}, "who"),
        ("shift", {"steps": [0]}, "percents"),  # the host says so
        ("shift", {"steps": [10], "guards": {"speed": 1}}, "guard 'speed'"),
        ("retire", {"version": "1", "yes": True}, "$.version"),
        ("retire", {"version": 1}, "yes"),
        ("throttle", {}, "records_per_second"),
        ("forward", {"max_lag_ms": -1}, "max_lag_ms"),
        ("compare", {"timeout_ms": 0}, "timeout_ms"),
        ("compare", {"timeout_ms": 3_600_001}, "at most 3600000"),
        ("explain", {"keys": ["UA"]}, "$.keys[0]"),
    ],
)
def test_changes_that_are_wrong(api: Api, host: ToldHost, path: str, body: Any, said: str) -> None:
    assert said in api.post(f"/views/0/delays/{path}", body, status=400)
    assert host.calls == []


def test_what_the_host_refuses(api: Api, host: ToldHost) -> None:
    host.error = RefusedChangeError("the guards say no")
    assert "the guards say no" in api.post("/views/0/delays/rollback", status=409)
    host.error = RuntimeError("oops")
    assert "answers 500" in api.post("/views/0/delays/rollback", status=500)


def test_comparisons_and_explanations(api: Api, host: ToldHost) -> None:
    body = {"old": 1, "tolerances": {"minutes": 0.5}}
    assert api.post("/views/0/delays/compare", body, role="viewer")["largest"] == BEYOND
    _, _, named = host.calls.pop()
    assert (named["who"], named["old"], named.get("new"), named["timeout_ms"]) == ("viewer", 1, None, 600_000)
    api.post("/views/0/delays/explain", {"keys": [["UA", BEYOND]], "timeout_ms": 500}, role="viewer")
    _, _, named = host.calls.pop()
    assert (named["keys"], named["timeout_ms"]) == ([["UA", BEYOND]], 500)


def test_values_that_masks_do_not_reach_are_for_admins(
    console: Callable[..., Api], host: ToldHost, host_url: str, dead_url: str
) -> None:
    masked = console(views=(Remote(url=host_url),), apps=(Remote(url=dead_url),), masks=Masks.parse(["orders=card"]))
    for path in ("/views/0/delays/compare", "/views/0/delays/explain"):
        assert "for admins" in masked.post(path, {}, role="operator", status=403)
    assert "for admins" in masked.get("/views/0/delays/comparisons", role="operator", status=403)
    assert "for admins" in masked.get("/apps/0/stores/counts", role="operator", status=403)
    row = {"key": "UA", "window": None}
    assert "for admins" in masked.post("/apps/0/stores/counts/explain", row, role="operator", status=403)
    assert "no answer from" in masked.post("/apps/0/stores/counts/explain", row, status=503)
    assert host.calls == []
    assert masked.get("/views/0/delays", role="viewer")["revision"] == BEYOND
    masked.post("/views/0/delays/compare", {}, role="admin")
    masked.get("/apps/0/stores/counts", role="admin", status=503)


def test_a_comparison_that_nobody_waits_for_is_ended(api: Api, host: ToldHost) -> None:
    impatient = httpx.Timeout(30, read=0.2)
    with httpx.Client(base_url=api.url, timeout=impatient, auth=("viewer", "secret")) as http:
        while not host.begun.is_set():  # it may have gone before the host was asked at all
            with pytest.raises(httpx.ReadTimeout):
                http.post("/views/0/forever/compare", json={})
    wait_until(host.gone.is_set, what="the host is told that nobody waits")
    wait_until(lambda: remotes._LONG._places._value == remotes.LONG_AT_ONCE, what="its place is free")


def test_a_comparison_ends_with_the_console(tmp_path: Path, host: ToldHost, host_url: str) -> None:
    """Its thread held the process for up to an hour after SIGTERM."""
    with ThreadPoolExecutor(1) as threads, console_api(tmp_path, views=(Remote(url=host_url),)) as api:
        asked = threads.submit(api.post, "/views/0/forever/compare", {})
        assert host.begun.wait(30)
        api.console.stop()
    with pytest.raises(httpx.TransportError):
        asked.result()
    wait_until(host.gone.is_set, what="the host is told that nobody waits")


def test_whoever_goes_before_the_host_is_reached_is_noticed(
    api: Api, host: ToldHost, host_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()
    ask = remotes.ask

    def late(*arguments: Any, **more: Any) -> Any:
        gone.set()
        wait_until(lambda: remotes._LONG._places._value == remotes.LONG_AT_ONCE, what="nobody waits")
        return ask(*arguments, **more)

    monkeypatch.setattr(remotes, "ask", late)
    peer = remotes.Peer(Remote(url=host_url), api.console.clock)
    with pytest.raises(TransientError, match="has gone"):
        peer.long("/views/forever/compare", {}, gone, user=None, timeout_s=60)
    wait_until(lambda: not any(one.name == "console-long" for one in threading.enumerate()))
    assert host.gone is None or host.gone.wait(60)


def test_comparisons_hold_few_threads(api: Api, host: ToldHost) -> None:
    with ThreadPoolExecutor(remotes.LONG_AT_ONCE) as threads:
        for _ in range(remotes.LONG_AT_ONCE):
            threads.submit(api.post, "/views/0/forever/compare", {})
        wait_until(lambda: len(host.calls) == remotes.LONG_AT_ONCE, what="all of them are at work")
        assert "try again" in api.post("/views/0/delays/compare", {}, status=503)
        assert api.get("/views/0/delays")["revision"] == BEYOND
        host.may_end.set()


# -- logins --------------------------------------------------------------------------------------------------


def test_a_host_with_users_is_told_for_whom_the_console_asks(
    console: Callable[..., Api], ends: ExitStack, host: ToldHost, tmp_path: Path
) -> None:
    users = tmp_path / "host"
    users.mkdir()
    url = served(ends, views_application(host, Users(users_file(users))))  # type: ignore[arg-type]
    logins = [("operator", "secret"), ("viewer", "secret"), ("operator", "wrong")]
    api = console(views=tuple(Remote(url=url, user=user, password=word) for user, word in logins))
    api.post("/views/0/delays/rollback")
    assert host.calls.pop() == ("rollback", ("delays",), {"who": "operator for admin"})
    assert "for the role operator, and viewer is viewer" in api.post("/views/1/delays/rollback", status=403)
    assert "does not take the console's login" in api.post("/views/2/delays/rollback", status=500)
    assert host.calls == []
    found = api.get("/views")["hosts"]
    assert [one["error"] is None for one in found] == [True, True, False]
    assert "secret" not in str(found)


# -- servers that are away, slow, or something else ----------------------------------------------------------


def test_one_that_is_down_is_an_entry_with_an_error(console: Callable[..., Api], host_url: str, dead_url: str) -> None:
    api = console(views=(Remote(url=dead_url), Remote(url=host_url)), connect=(Remote(url=dead_url),))
    down, up = api.get("/views")["hosts"]
    assert (down["views"], "is it running?" in down["error"]) == ([], True)
    assert (up["error"], len(up["views"])) == (None, 1)
    assert "is it running?" in api.get("/connectors")["hosts"][0]["error"]
    assert "is it running?" in api.get("/views/0/delays", status=503)
    assert "look whether it was done" in api.post("/views/0/delays/rollback", status=503)


def test_one_that_does_not_answer_is_waited_for_once(
    console: Callable[..., Api], ends: ExitStack, host_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remotes, "LIST_TIMEOUT_S", 2.0)
    monkeypatch.setattr(remotes, "READ_TIMEOUT_S", 60.0)
    asked: list[str] = []
    may_answer = threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        import asyncio

        asked.append(scope["path"])
        while not may_answer.is_set():
            await asyncio.sleep(0.01)
        await Response(b'[{"view": "late"}]')(scope, receive, send)

    api = console(views=(Remote(url=served(ends, slow)), Remote(url=host_url)))
    with ThreadPoolExecutor(8) as threads:
        lists = [threads.submit(api.get, "/views") for _ in range(8)]
        for one in lists:
            late, up = one.result()["hosts"]
            assert "within 2 s" in late["error"]
            assert len(up["views"]) == 1
    monkeypatch.setattr(remotes, "LIST_TIMEOUT_S", 3_600.0)  # a list that waited for it again would not end
    for _ in range(20):
        assert "within 2 s" in api.get("/views")["hosts"][0]["error"]
    assert asked == ["/views"]
    for _ in range(remotes.AT_ONCE + remotes.WAITING):  # and questions to it hold few threads
        ends.callback(threading.Thread(target=_ignored, args=(api.get, "/views/0/delays"), daemon=True).start)
    may_answer.set()
    wait_until(lambda: api.get("/views")["hosts"][0]["error"] is None, what="it is there again")


def test_a_server_that_was_away_is_waited_for_again(dead_url: str) -> None:
    clock = ManualClock()
    peer = remotes.Peer(Remote(url=dead_url), clock)
    answer, failure = peer.asking("/views")
    assert failure is None
    with pytest.raises(TransientError, match="is it running"):
        answer.result(60)
    answer, failure = peer.asking("/views")
    assert failure is not None
    with pytest.raises(TransientError):
        answer.result(60)
    clock.advance(remotes.FAILURE_KEPT_MS)
    assert peer.asking("/views")[1] is None


def _ignored(call: Callable[..., Any], *arguments: Any) -> None:
    try:
        call(*arguments)
    except (AssertionError, httpx.HTTPError):
        return


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>", "no JSON"),
        (b'{"views": []}', "something else than what was asked for"),
        (b"[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        (b'"' + b"x" * 2_000 + b'"', "more than 1000 bytes"),
    ],
)
def test_servers_of_another_kind(
    console: Callable[..., Api],
    ends: ExitStack,
    host_url: str,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    said: str,
) -> None:
    monkeypatch.setattr(remotes, "ANSWER_BYTES_MAX", 1_000 if b"x" in content else remotes.ANSWER_BYTES_MAX)
    url = answering(ends, content)
    api = console(views=(Remote(url=url), Remote(url=host_url)), connect=(Remote(url=url),))
    wrong, right = api.get("/views")["hosts"]
    assert said in wrong["error"]
    assert right["error"] is None
    assert api.get("/connectors")["hosts"][0]["error"]
    if b"views" not in content:
        assert said in api.get("/views/0/delays", status=500)


@pytest.mark.parametrize("status", [301, 418, 500, 502, 503])
def test_answers_that_are_none(console: Callable[..., Api], ends: ExitStack, status: int) -> None:
    url = answering(ends, b"<html>", status, Location="http://127.0.0.1:1/")
    api = console(views=(Remote(url=url),))
    expected = 503 if status in (502, 503) else 500
    assert url in api.get("/views/0/delays", status=expected)
    assert api.get("/views")["hosts"][0]["error"]


def test_names_are_one_segment_of_a_path(console: Callable[..., Api], ends: ExitStack) -> None:
    paths: list[str] = []

    async def note(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["raw_path"].decode() + "?" + scope["query_string"].decode())
        await Response(b"{}")(scope, receive, send)

    url = served(ends, note)
    api = console(views=(Remote(url=url + "/below"),), connect=(Remote(url=url),))
    api.get("/views/0/..%2F..%2Fjournal")
    api.post("/connectors/0/a%2Fb%3Fc%23d/pause")
    assert paths == ["/below/views/..%2F..%2Fjournal?", "/connectors/a%2Fb%3Fc%23d/pause?"]
    paths.clear()
    api.get("/views/0/%2e%2e/history")
    api.post("/connectors/0/%2E/pause")
    assert paths == ["/below/views/%2E%2E/history?", "/connectors/%2E/pause?"]
