"""A cluster that says nothing: whoever asks for what it knows waits, and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.console_api import console_api
from support.waiting import wait_until

from suiro.console.web import Console, ConsoleSettings
from suiro.console.web.application import CALL_THREADS
from suiro.errors import TransientError, UsageError


def test_what_is_in_memory_is_answered_while_all_threads_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Console] = []
    over = threading.Event()

    @contextmanager
    def client(console: Console) -> Iterator[Any]:
        waiting.append(console)
        over.wait()
        raise TransientError("the cluster does not answer")
        yield

    monkeypatch.setattr(Console, "client", client)
    with console_api(tmp_path) as api:

        def ask() -> None:
            httpx.get(f"{api.url}/topics/t", auth=("viewer", "secret"), timeout=None)

        threads = [threading.Thread(target=ask) for _ in range(CALL_THREADS)]
        for one in threads:
            one.start()
        try:
            wait_until(lambda: len(waiting) == CALL_THREADS, what="a wait of all threads")
            assert api.get("/topics") == {"version": 0, "topics": []}
            assert api.get("/groups") == {"version": 0, "groups": []}
            assert api.get("/overview")["error"] == "the cluster has not answered yet"
            assert api.get("/me")["role"] == "viewer"
            assert api.get("/audit", role="operator") == {"events": []}
        finally:
            over.set()
            for one in threads:
                one.join()


@pytest.mark.parametrize(
    ("failure", "is_kept"), [(UsageError("that is no topic"), True), (OSError("it is gone"), False)]
)
def test_a_wrong_request_costs_no_connection(failure: Exception, is_kept: bool) -> None:
    console = Console(ConsoleSettings(bootstrap_servers="127.0.0.1:1"))
    try:
        with pytest.raises(type(failure)), console.client() as first:
            raise failure
        with console.client() as second:
            assert (second is first) == is_kept
    finally:
        console.stop()
