"""The reader's own door to the view: what it takes for an answer, what for an error, and when it asks again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from suiro.demo.reader import _Door
from suiro.errors import FatalError

ANSWER = {"version": 1, "cut": 3, "row": None, "offsets": {}}
Script = list[int]


@pytest.fixture
def script() -> Script:
    """The status of each answer to come; -1: the connection ends instead. Empty: 200."""
    return []


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def url(script: Script, asked: list[str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            status = script.pop(0) if script else 200
            if status == -1:
                self.close_connection = True
                return
            body = json.dumps(ANSWER if status == 200 else {"error": "why"}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_answer_is_that_of_the_caller(url: str, asked: list[str]) -> None:
    with closing(_Door(url)) as door:
        assert door.get("YV", "caller-7") == ANSWER
        assert door.get("HA", "caller-8") == ANSWER
    assert asked == [
        "/views/carrier_delays/rows/YV?caller=caller-7",
        "/views/carrier_delays/rows/HA?caller=caller-8",
    ]


def test_a_host_that_starts_again_costs_time_not_an_error(url: str, script: Script, asked: list[str]) -> None:
    script += [503, -1, 502]
    with closing(_Door(url)) as door:
        assert door.get("YV", "caller-7") == ANSWER
    assert len(asked) == 4


def test_any_other_status_is_an_error_and_says_why(url: str, script: Script) -> None:
    script += [404]
    with closing(_Door(url)) as door, pytest.raises(FatalError, match=r"status 404: .*why"):
        door.get("YV", "caller-7")
