"""A REST API and receivers that answer with more, later or otherwise than they should."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.http_peer import Answer, HttpPeer

from suiro.clock import ManualClock, SystemClock
from suiro.connect import About
from suiro.connect.sources.rest import RestSource
from suiro.errors import UsageError
from suiro.foundation.http.answers import (
    SUMMARY_BYTES,
    TIMEOUTS_IN_ALL,
    AnswerTooLargeError,
    ask,
    retry_after_ms,
)

GZIP = {"Content-Encoding": "gzip"}


def source(folder: Path, peer: HttpPeer, clock: ManualClock, **settings: Any) -> RestSource:
    about = About(name="api", folder=folder, clock=clock)
    made = RestSource({"url": f"{peer.url}/things", "interval_ms": 1_000, **settings}, about)
    made.open(None)
    return made


def test_a_packed_answer_is_unpacked_as_far_as_it_may(tmp_path: Path) -> None:
    things = [{"id": n} for n in range(1_000)]
    answers = [gzip.compress(json.dumps(things).encode()), gzip.compress(b"[" + b" " * (100 << 20) + b"]")]
    with HttpPeer(lambda asked: Answer(200, answers[0], GZIP)) as peer:
        rest = source(tmp_path, peer, ManualClock(), max_answer_bytes=1 << 20)
        polled = rest.poll()
        assert polled is not None
        assert [record.value for record in polled.records] == things
        assert peer.asked[0].headers["accept-encoding"] == "gzip"
        rest.close()

        answers.pop(0)
        rest = source(tmp_path, peer, ManualClock(), max_answer_bytes=1 << 20)
        tracemalloc.start()
        try:
            with pytest.raises(AnswerTooLargeError, match=f"more than {1 << 20} bytes"):
                rest.poll()
            assert tracemalloc.get_traced_memory()[1] < 10 << 20
        finally:
            tracemalloc.stop()
        rest.close()


def test_what_is_said_of_an_answer_that_is_too_large_does_not_tell_secrets(tmp_path: Path) -> None:
    with HttpPeer(lambda asked: Answer(200, b" " * 1_000)) as peer:
        url = peer.url.replace("http://", "http://me:pa55@") + "/things?token=T0K3N"
        secret = {"url": url, "parameters": {"api_key": "S3CR3T"}}
        rest = source(tmp_path, peer, ManualClock(), max_answer_bytes=100, **secret)
        with pytest.raises(AnswerTooLargeError) as raised:
            rest.poll()
        rest.close()
    assert str(raised.value) == f"{peer.url} sent more than 100 bytes"


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"no gzip", "gzip", "not valid gzip"),
        (gzip.compress(b"[1, 2, 3]", mtime=0)[:-10], "gzip", "ends early"),
        (b"[]", "zstd", "Content-Encoding 'zstd'; only gzip"),
    ],
)
def test_what_cannot_be_unpacked_is_said(tmp_path: Path, body: bytes, kind: str, said: str) -> None:
    with HttpPeer(lambda asked: Answer(200, body, {"Content-Encoding": kind})) as peer:
        rest = source(tmp_path, peer, ManualClock())
        with pytest.raises(UsageError, match=said):
            rest.poll()
        rest.close()


def test_a_long_retry_after_is_waited_for_as_long_as_the_longest_wait(tmp_path: Path) -> None:
    answers = [
        Answer(429, headers={"Retry-After": "999999999"}),
        Answer(503, headers={"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}),
        Answer(429, headers={"Retry-After": "\xb2"}),
        Answer(200, [1]),
    ]
    clock = ManualClock()
    with HttpPeer(lambda asked: answers.pop(0)) as peer:
        rest = source(tmp_path, peer, clock, longest_wait_ms=5_000)
        for asked in (1, 2):
            assert rest.poll() is None
            assert len(peer.asked) == asked
            clock.advance(4_999)
            assert rest.poll() is None
            assert len(peer.asked) == asked
            clock.advance(1)
        assert rest.poll() is None
        clock.advance(5_000)
        polled = rest.poll()
        assert polled is not None
        assert [record.value for record in polled.records] == [1]
        rest.close()


@pytest.mark.parametrize("text", ["0", "Fri, 31 Dec 1999 23:59:59 GMT"], ids=["at once", "a clock behind"])
def test_a_retry_after_of_no_time_is_no_endless_loop(tmp_path: Path, text: str) -> None:
    clock = ManualClock()
    with HttpPeer(lambda asked: Answer(503, headers={"Retry-After": text})) as peer:
        rest = source(tmp_path, peer, clock, interval_ms=60_000)
        for asked in (1, 2, 3):
            for _ in range(2):
                assert rest.poll() is None
            assert len(peer.asked) == asked
            clock.advance(1_000)
        rest.close()


@pytest.mark.parametrize(
    "text", ["", "²", "١٢", "-1", "soon", "9" * 5_000, "Fri, 99 Dec 2013 25:61:61 GMT", "Fri, 31 Dec"]
)
def test_a_retry_after_that_says_nothing(text: str) -> None:
    response = httpx.Response(429, headers=[(b"Retry-After", text.encode())])
    assert retry_after_ms(response, 0) is None


def test_an_answer_to_a_sink_is_read_as_far_as_it_is_shown() -> None:
    with HttpPeer(lambda asked: Answer(400, b"x" * (64 << 20))) as peer, httpx.Client() as http:
        response = ask(http, "POST", peer.url, clock=SystemClock(), max_bytes=None, content=b"{}")
        assert response.status_code == 400
        assert SUMMARY_BYTES <= len(response.content) < 2 * SUMMARY_BYTES


def test_an_answer_that_comes_for_ever_is_given_up() -> None:
    """Each part is in time; all of them together are not."""
    clock = ManualClock()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1 << 16)
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                while True:
                    peer.sendall(b"x" * 65_536)
                    clock.advance(1_000)
            except OSError:
                pass

    threading.Thread(target=drip, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with httpx.Client(timeout=10) as http, pytest.raises(httpx.ReadTimeout, match="did not end"):
        ask(http, "GET", url, clock=clock, max_bytes=1 << 40)
    assert clock.monotonic_ms() > 10_000 * TIMEOUTS_IN_ALL
    listener.close()
