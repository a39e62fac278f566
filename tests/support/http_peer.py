"""A small HTTP server that answers as a test says, and fails on purpose."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

CUT = "cut"  # take the request, do nothing, and break the connection
LOSE = "lose"  # do what was asked, and break the connection before the answer


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int = 200
    body: Any = None  # JSON unless bytes
    headers: dict[str, str] = field(default_factory=dict)


class HttpPeer:
    """`answer` makes the answers, or says LOSE; `faults` come first, each for one request: CUT, LOSE or an Answer."""

    def __init__(self, answer: Callable[[Asked], Answer | str]) -> None:
        self.asked: list[Asked] = []
        self.faults: deque[str | Answer] = deque()
        self._answer = answer
        self._lock = threading.Lock()
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body would wait for the client's system to acknowledge the head

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                url = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                peer._take(self, Asked(self.command, url.path, dict(parse_qsl(url.query)), headers, body))

            do_GET = do_PUT = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self) -> HttpPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        with self._lock:
            self.asked.append(asked)
            fault = self.faults.popleft() if self.faults else None
            if fault == CUT:
                _reset(handler)
                return
            answer = fault if isinstance(fault, Answer) else self._answer(asked)
        if fault == LOSE or isinstance(answer, str):
            _reset(handler)
            return
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        if answer.status == 304:
            body = b""
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def _reset(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
