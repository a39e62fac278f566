"""`/metrics` over HTTP, in Prometheus' text format, from the node's own loop.

A web framework would cost more than the rest of the node's start, for one page without arguments; so this speaks
just enough HTTP/1.1: GET and HEAD, one answer, close. The numbers are taken on the loop's thread and made into text
by `prometheus-client` in another, because ten thousand partitions make many lines.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from suiro.broker.listeners import WILDCARDS
from suiro.broker.metrics import QUANTILES, FamilySnapshot, HistogramView, Metrics
from suiro.broker.server import bind_socket

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)

PATH = "/metrics"
_REQUEST_LIMIT = 16 << 10
_TIMEOUT_S = 10.0
_CONNECTIONS = 16  # at once; scrapers are few


class MetricsEndpoint:
    """`start`, then `stop`. `address` is what it listens on, with the port that it got."""

    def __init__(self, metrics: Metrics, *, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self._metrics = metrics
        self._loop = loop
        self._starting: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._open = 0
        self.address = (host, port)

    def start(self) -> None:
        """Raises `ConfigError` where the address is taken."""
        import prometheus_client.exposition  # noqa: F401 (it is slow to load: now, not at the first scrape)

        sock = bind_socket(*self.address, advice="Choose another address with --metrics")
        bound = sock.getsockname()
        self.address = (str(bound[0]), int(bound[1]))
        self._starting = self._loop.create_task(self._listen(sock))

    async def _listen(self, sock: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=sock, limit=_REQUEST_LIMIT)

    @property
    def url(self) -> str:
        host, port = self.address
        host = "127.0.0.1" if host in WILDCARDS else host
        return f"http://[{host}]:{port}{PATH}" if ":" in host else f"http://{host}:{port}{PATH}"

    def stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _CONNECTIONS:
                await asyncio.wait_for(self._answer(reader, writer), _TIMEOUT_S)
        except TimeoutError:
            writer.transport.abort()  # closing would wait for who takes nothing to take the page
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who asked is gone, or does not speak HTTP
        except Exception:
            logger.exception("cannot answer a request for %s", PATH)
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, _, rest = head.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            status, kind, body = "405 Method Not Allowed", "text/plain", b"GET only\n"
        elif path != PATH:
            status, kind, body = "404 Not Found", "text/plain", f"see {PATH}\n".encode()
        else:
            snapshot = self._metrics.snapshot()
            body = await asyncio.get_running_loop().run_in_executor(None, render, snapshot)
            status, kind = "200 OK", "text/plain; version=0.0.4; charset=utf-8"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            writer.write(body)
        await writer.drain()


def render(snapshot: Iterable[FamilySnapshot]) -> bytes:
    """Prometheus' text of the numbers. Any thread may do it."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector, CollectorRegistry

    families = [_family(shown) for shown in snapshot]

    class Snapshot(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot())
    return generate_latest(registry)


def _family(shown: FamilySnapshot) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily

    name, doc, labels = shown.family.name, shown.family.doc, shown.family.labels
    made: Metric
    if shown.family.kind == "histogram":
        summary = made = SummaryMetricFamily(name, doc, labels=labels)
        for values, view in shown.samples:
            assert isinstance(view, HistogramView)
            summary.add_metric(values, count_value=view.count, sum_value=view.total)
            for quantile, value in zip(QUANTILES, view.quantiles, strict=True):
                named = dict(zip(labels, values, strict=True)) | {"quantile": f"{quantile:g}"}
                summary.add_sample(name, named, value)
        return made
    single = made = (CounterMetricFamily if shown.family.kind == "counter" else GaugeMetricFamily)(
        name, doc, labels=labels
    )
    for values, number in shown.samples:
        if not isinstance(number, HistogramView):
            single.add_metric(values, number)
    return made
