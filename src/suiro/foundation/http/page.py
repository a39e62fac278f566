"""Serves `/metrics`, one page without arguments, without the cost of a web framework.

It implements a minimum of HTTP/1.1: GET and HEAD, one response, close. The text is rendered on a thread, because ten
thousand partitions make many lines. The number of connections is small; when it is reached, a new connection replaces
the one that has waited longest without a complete request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from suiro.foundation.http.listening import is_loopback, listen_on, url_of
from suiro.foundation.http.origins import Origins
from suiro.foundation.metrics import CONTENT_TYPE, render

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PATH = "/metrics"
HEAD_LIMIT_BYTES = 16 << 10
TIMEOUT_S = 10.0  # for the request and the response
CONNECTIONS = 16  # at once

logger = logging.getLogger(__name__)


class MetricsPage:
    """Serves on the event loop on which `listen` is called, until `stop`.

    For each request, `prepare` runs on the loop and `render` then turns its result into text on a thread.
    """

    def __init__(self, listener: socket.socket, *, prepare: Callable[[], Any], render: Callable[[Any], bytes]) -> None:
        self._listener = listener
        self._prepare = prepare
        self._render = render
        self._origins = Origins(
            loopback_only=is_loopback(str(listener.getsockname()[0])), instead="listen on an address that others reach"
        )
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, bool] = {}  # oldest first; True if the request has arrived
        self.url = url_of(listener) + PATH

    async def listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listener, limit=HEAD_LIMIT_BYTES)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS:
            silent = next((other for other, asked in self._open.items() if not asked), None)
            if silent is None:
                writer.transport.abort()
                return
            del self._open[silent]
            silent.transport.abort()
        self._open[writer] = False
        try:
            await asyncio.wait_for(self._answer(reader, writer), TIMEOUT_S)
        except TimeoutError:
            writer.transport.abort()  # closing would wait for the client to read the page
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone, or does not speak HTTP
        except Exception:
            logger.exception("cannot answer a request for %s", PATH)
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self._open[writer] = True
        method, _, rest = first.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status, kind, body = "200 OK", "text/plain", b""
        if refused := self._origins.refusal("GET", headers):
            status, body = "403 Forbidden", f"{refused[1]}\n".encode()
        elif method not in ("GET", "HEAD"):
            status, body = "405 Method Not Allowed", b"GET only\n"
        elif path != PATH:
            status, body = "404 Not Found", f"see {PATH}\n".encode()
        else:
            prepared = self._prepare()
            body = await asyncio.get_running_loop().run_in_executor(None, self._render, prepared)
            kind = CONTENT_TYPE
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()


def serve_metrics_page(families: Callable[[], Iterable[Metric]], host: str, port: int) -> str:
    """Serve metric families on a daemon thread, and return the URL. `families` is called at every scrape.

    Raises `ConfigError` if the address cannot be used.
    """
    listener = listen_on(host, port, name="the metrics page")
    page = MetricsPage(listener, prepare=lambda: None, render=lambda _: render(families()))

    async def serve() -> None:
        await page.listen()
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=(serve(),), name="metrics", daemon=True).start()
    return page.url
