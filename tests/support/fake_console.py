"""A console without a cluster: the page, and canned answers in the shape of its API. For tests of the page alone.

What the page asked it to change is in `cluster.asked`. What the real API would refuse of that, and what is not in the
shape of its answers, is in `wrong`: the page is tested against the API that there is. In `tests`,
`python -m support.fake_console` serves it until it is stopped.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import suiro
from suiro.console.web.api import ENDPOINTS
from suiro.console.web.endpoint import Router
from suiro.foundation.http import HttpServer, listen_on
from support import fake_console_services as services
from support.fake_console_cluster import FakeCluster, now_ms

PAGE = Path(suiro.__file__).parent / "console" / "web" / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
OPTIONAL = re.compile(r"_hex$")
"""What the page shows where it is told."""
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}


class FakeConsole:
    """Serves once it is made, at `url`; `stop` breaks every connection. `port`: to come back where another one was."""

    def __init__(self, cluster: FakeCluster | None = None, *, port: int = 0) -> None:
        self.cluster = cluster or FakeCluster()
        self.wrong: list[str] = []
        self.leaderless: list[int] = []
        self._router = Router(ENDPOINTS)
        self._pages: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self._server = HttpServer(
            self._application(), listen_on("127.0.0.1", port, name="fake console"), name="fake-console"
        )
        self.url, self.port = self._server.url, self._server.port

    def stop(self) -> None:
        loop = self._server.loop
        for page in list(self._pages):  # the server would wait for them
            if loop is not None:
                loop.call_soon_threadsafe(page.put_nowait, None)
        self._server.stop()

    def send(self, delta: dict[str, Any]) -> None:
        """To every page that listens."""
        assert self._server.loop is not None
        for page in list(self._pages):
            self._server.loop.call_soon_threadsafe(page.put_nowait, delta)

    @property
    def listeners(self) -> int:
        return len(self._pages)

    def _application(self) -> Starlette:
        cluster = self.cluster
        topic = "/topics/{topic}"
        looks: dict[str, Callable[[Request], Any]] = {
            "/me": lambda request: {
                "user": "ada",
                "role": cluster.role,
                "read_only": False,
                "can_log_out": False,
                "version": "0.1.0",
                "has": {"registry": True, "connect": 2, "views": 1, "apps": 1},
                "bootstrap": "broker-1.internal:9092",
            },
            "/overview": lambda request: cluster.overview(),
            "/problems": lambda request: cluster.problems(),
            "/topics": lambda request: {"version": 1, "topics": cluster.topic_rows()},
            topic: lambda request: cluster.topic(request.path_params["topic"]),
            topic + "/records": self._records,
            topic + "/record": self._record,
            "/groups": lambda request: {"version": 1, "groups": cluster.group_rows()},
            "/groups/{group}": lambda request: cluster.group(request.path_params["group"]),
            "/schemas": lambda request: services.schemas(),
            "/schemas/{subject}": lambda request: services.schema(request.path_params["subject"]),
            "/schemas/{subject}/diff": lambda request: services.schema_diff(),
            "/dead-letters": lambda request: services.dead_letters(),
            "/dead-letters/{topic}": lambda request: services.dead_letter_groups(cluster),
            "/dead-letters/{topic}/records": lambda request: services.dead_letter_records(cluster),
            "/dead-letters/{topic}/origin": lambda request: {"record": cluster.record("flights", 7)},
            "/dead-letters/{topic}/history": lambda request: [
                {
                    "at": cluster.started - 900_000,
                    "who": "ada",
                    "records": 4,
                    "targets": ["flights-0"],
                    "group": "suiro.redrive.flights",
                    "error": None,
                }
            ],
            "/acls": lambda request: services.acls(),
            "/users": lambda request: {"users": [{"name": "billing", "mechanisms": {"SCRAM-SHA-256": 4096}}]},
            "/quotas": lambda request: {
                "quotas": [{"entity": {"user": "billing"}, "values": {"producer_byte_rate": 1048576.0}}]
            },
            "/audit": lambda request: {
                "events": [{"at": cluster.started, "user": "ada", "what": "POST /topics/orders/alter", "status": 200}]
            },
            "/connectors": lambda request: services.connectors(),
            "/views": lambda request: {
                "hosts": [{"host": 0, "url": "http://127.0.0.1:8085", "error": None, "views": [services.view()]}]
            },
            "/views/{host}/{view}": lambda request: services.view(),
            "/views/{host}/{view}/history": lambda request: services.view_history(),
            "/views/{host}/{view}/comparisons": lambda request: services.comparisons(),
            "/apps": lambda request: {"apps": [services.application()]},
            "/apps/{app}": lambda request: services.application(),
            "/apps/{app}/stores/{store}": lambda request: services.store_rows(),
        }
        routes = [
            Route("/api/v1/events", self._events),
            Route("/api/v1" + topic + "/scan", self._scan),
            Route("/api/v1" + topic + "/tail", self._tail),
            Route("/api/v1" + topic + "/export", lambda request: PlainTextResponse('{"offset":0}\n')),
            *(Route("/api/v1" + path, self._look(look)) for path, look in looks.items()),
            Route("/api/v1/{path:path}", self._change, methods=["POST"]),
            Route("/", _file),
            Route("/page/{name:path}", _file),
        ]
        return Starlette(routes=routes)

    # -- held to the real API --------------------------------------------------------------------------------------

    def _look(self, look: Callable[[Request], Any]) -> Any:
        async def answer(request: Request) -> Response:
            found = look(request)
            if found is None:
                return JSONResponse({"error_code": 404, "message": "there is nothing of that name"}, status_code=404)
            self._hold(request, None, found)
            return JSONResponse(found)

        return answer

    def _hold(self, request: Request, body: Any, answer: Any) -> None:
        """To the endpoint's parameters, its body, and the type of its answer."""
        raw_path = request.scope["raw_path"].decode().partition("?")[0].removeprefix("/api/v1")
        endpoint = self._router.find(raw_path)[0].get(request.method)
        what = f"{request.method} {raw_path}"
        if endpoint is None:
            self.wrong.append(f"{what}: there is no such endpoint")
            return
        unknown = set(request.query_params) - set(endpoint.query)
        if unknown:
            self.wrong.append(f"{what}: parameters {unknown}")
        try:
            if endpoint.body is not None:
                msgspec.convert(body, endpoint.body)
            if endpoint.answer is not None:
                held = msgspec.json.decode(json.dumps(answer), type=endpoint.answer)
                missing = _keys(json.loads(msgspec.json.encode(held))) ^ _keys(answer)
                missing = {key for key in missing if not OPTIONAL.search(key)}
                if missing:
                    self.wrong.append(f"{what}: {sorted(missing)} are in one of the two answers only")
        except msgspec.ValidationError as error:
            self.wrong.append(f"{what}: {error}")

    # -- records ---------------------------------------------------------------------------------------------------

    def _records(self, request: Request) -> Any:
        topic, query = request.path_params["topic"], request.query_params
        end, limit = self.cluster.end_of(topic), int(query.get("limit", "100"))
        backward = query.get("direction") == "backward"
        start = query.get("from", "latest" if backward else "earliest")
        if query.get("positions"):
            at = int(query["positions"].split(":")[1])
        elif start.lstrip("-").isdigit():
            at = max(end + int(start), 0) if start.startswith("-") else int(start)
        else:
            at = {"earliest": 0, "latest": end}.get(start, end // 2)
        first, until = (max(at - limit, 0), at) if backward else (at, min(at + limit, end))
        return {
            "records": [self.cluster.record(topic, offset) for offset in range(first, until)],
            "positions": {"0": {"before": first, "after": max(until, first)}},
            "ranges": {"0": [0, end]},
            "leaderless": self.leaderless,
        }

    def _record(self, request: Request) -> Any:
        record = self.cluster.record(request.path_params["topic"], int(request.query_params["offset"]))
        return record | {
            "key_hex": record["key"]["text"].encode().hex(),
            "value_hex": record["value"]["text"].encode().hex(),
        }

    def _scan(self, request: Request) -> Response:
        topic, end = request.path_params["topic"], self.cluster.end_of(request.path_params["topic"])

        async def events() -> AsyncIterator[str]:
            matched = 0
            for part in range(10):
                found = [
                    self.cluster.record(topic, offset) for offset in range(part * end // 10, (part + 1) * end // 10, 50)
                ]
                matched += len(found)
                yield _event("records", found)
                yield _event(
                    "progress",
                    {
                        "scanned": (part + 1) * end // 10,
                        "matched": matched,
                        "bytes": 1,
                        "share": (part + 1) / 10,
                    },
                )
            if request.query_params["filter"] == "never":
                await asyncio.Event().wait()
            unclear = {"unclear": 12, "first_unclear": f"{topic}-0 offset 7: 'late' is no number"}
            told = {"scanned": end, "matched": matched, "leaderless": self.leaderless}
            yield _event("end", {"reason": "leaderless" if self.leaderless else "end"} | told | unclear)

        return _stream(events())

    def _tail(self, request: Request) -> Response:
        topic = request.path_params["topic"]

        async def events() -> AsyncIterator[str]:
            offset = self.cluster.end_of(topic)
            for _ in range(100_000):
                records = [self.cluster.record(topic, offset + n) | {"timestamp": now_ms()} for n in range(20)]
                offset += 20
                unclear = {"unclear": 3, "first_unclear": f"{topic}-0 offset {offset}: 'late' is no number"}
                told = {"records": records, "dropped": 7, "leaderless": self.leaderless}
                yield _event("records", told | unclear)
                await asyncio.sleep(0.25)

        return _stream(events())

    # -- what changes ----------------------------------------------------------------------------------------------

    async def _change(self, request: Request) -> Response:
        path, body = request.path_params["path"], json.loads(await request.body())
        self.cluster.asked.append((path, body))
        if path.endswith("/copy") and body.get("to") == "nowhere":
            return JSONResponse({"error_code": 404, "message": "there is no topic 'nowhere'"}, status_code=404)
        answer = _outcome(path.rpartition("/")[2], body)
        self._hold(request, body, answer)
        return JSONResponse(answer)

    def _events(self, request: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
            self._pages.add(queue)
            try:
                yield ": keep-alive\n\n"
                while (delta := await queue.get()) is not None:
                    yield _event("delta", delta)
            finally:
                self._pages.discard(queue)

        return _stream(events())


def _outcome(action: str, body: Any) -> Any:
    match action:
        case "check":
            return {
                "compatible": False,
                "reasons": ["READER_FIELD_MISSING_DEFAULT_VALUE: /fields/2 note"],
            }
        case "redrive":
            return services.redrive(body)
        case "reset":
            return [{"topic": "orders", "partition": n, "committed": 300_000 + n, "offset": n} for n in range(3)]
        case "compare":
            return services.comparison()
        case "explain":
            return services.row_explanation(body) if "key" in body else services.explanation()
        case "records":
            return {"partition": 0, "offset": 5_000}
        case "acls":
            return {"acls": []}
        case "delete" if "principal" in body:
            return {"acls": [body]}
        case "register":
            return {"id": 99, "version": 3}
    return {}


def _keys(found: Any, path: str = "") -> set[str]:
    """Of all objects in it, by where they are; lists are one place."""
    if isinstance(found, dict):
        inside = (_keys(value, f"{path}.{name}") for name, value in found.items())
        return {f"{path}.{name}" for name in found}.union(*inside)
    if isinstance(found, list):
        return set[str]().union(*(_keys(each, f"{path}[]") for each in found))
    return set()


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _stream(events: AsyncIterator[str]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _file(request: Request) -> Response:
    path = (PAGE / request.path_params.get("name", "index.html")).resolve()
    if not path.is_relative_to(PAGE) or not path.is_file():
        return PlainTextResponse("there is no such file", status_code=404)
    return FileResponse(
        path,
        media_type=TYPES.get(path.suffix, "text/plain"),
        headers={
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
        },
    )


if __name__ == "__main__":
    import sys

    console = FakeConsole(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(console.url, flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    console.stop()
