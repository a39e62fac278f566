"""The receiver of alerts: an HTTP server that remembers each `Idempotency-Key`, so that a repeated alert counts once.

It loses some answers on purpose: the alert is accepted, but the sender gets 503 and must send it again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOSES_EVERY = 10


class AlertReceiver:
    """Listens from its creation until `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, Mapping[str, Any]] = {}
        self.posts = 0
        """The number of requests, including repeated ones."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"
        threading.Thread(target=self._server.serve_forever, name="demo-receiver", daemon=True).start()

    @property
    def taken(self) -> dict[str, Mapping[str, Any]]:
        """The body of each key."""
        with self._lock:
            return dict(self._taken)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, key: str, said: Mapping[str, Any]) -> bool:
        """Accepts an alert. Returns False if the answer is lost."""
        with self._lock:
            self.posts += 1
            if key in self._taken:
                return True
            self._taken[key] = said
            return len(self._taken) % LOSES_EVERY != 0

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self.take

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                key = self.headers.get("Idempotency-Key")
                try:
                    said = json.loads(body)
                except ValueError:
                    said = None
                if key is None or not isinstance(said, dict):
                    self._answer(400)
                else:
                    self._answer(200 if take(key, said) else 503)

            def log_message(self, format: str, *arguments: Any) -> None:
                return

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        return Handler
