"""After any shifts, and whatever came in meanwhile, a rollback gives every caller the answers of before, byte for byte,
at the offsets of before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from support.view_stores import Described, cut

from suiro.foundation.http import HttpServer, listen_on
from suiro.views.control import lifecycle
from suiro.views.cuts import Cut
from suiro.views.serving.reads import routes
from suiro.views.serving.served import ReadMetrics, Served
from suiro.views.state import ALL, View, version_for
from suiro.views.store import open_store

CALLERS = [f"caller {number}" for number in range(6)]
QUESTIONS = ("rows/UA/1", "rows?limit=10", "rows?where=n:gt:3", "rows?prefix=U")
KEYS = [("AA", 1), ("UA", 1), ("UA", 2)]

rows = st.dictionaries(st.sampled_from(KEYS), st.none() | st.integers(0, 9), min_size=1)
steps = st.tuples(st.sampled_from(["shift", "trip"]), st.integers(1, ALL), rows, rows)


class Follows:
    def __init__(self, served_cut: Cut) -> None:
        self.cut: Cut | None = served_cut

    def listen(self, heard: Any) -> Any:
        return lambda: None


class Routed:
    """The router of a host, with the routing as it stands."""

    def __init__(self, folder: Path, first: dict[int, dict[Any, int | None]]) -> None:
        view = View(name="flights")
        for number in (1, 2):
            view = lifecycle.deploy(view, key=Described().key, spec={}).view
            view = lifecycle.caught_up(view, number).view
        self.view = view
        self.served: dict[int, Served] = {}
        for number in (1, 2):
            spec = Described(version=number)
            store = open_store(spec, folder / str(number))
            follower = Follows(cut(0))
            self.served[number] = Served(spec=spec, store=store, follower=follower, metrics=ReadMetrics())
            self.take(number, 0, first[number])

    def take(self, version: int, number: int, found: dict[Any, int | None]) -> None:
        values = [None if n is None else json.dumps({"n": n}) for n in found.values()]
        self.served[version].store.apply(cut(number), list(found), values)

    def serving(self, view: str, caller: str) -> Served:
        number = version_for(self.view, caller)
        assert number is not None
        return self.served[number]

    def version(self, view: str, number: int) -> Served:
        return self.served[number]


class Examples:
    """What the server of all examples asks: the router of the one that runs."""

    now: Routed

    def serving(self, view: str, caller: str) -> Served:
        return self.now.serving(view, caller)

    def version(self, view: str, number: int) -> Served:
        return self.now.version(view, number)


@pytest.fixture(scope="module")
def asked() -> Iterator[tuple[httpx.Client, Examples]]:
    examples = Examples()
    server = HttpServer(
        Starlette(routes=routes(examples)), listen_on("127.0.0.1", 0, name="views-test"), name="views-test"
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as http:
        yield http, examples
    server.stop()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows, rows, st.lists(steps, min_size=1, max_size=4))
def test_the_answers_of_before_come_back(
    asked: tuple[httpx.Client, Examples], old: Any, new: Any, drawn: list[Any]
) -> None:
    http, examples = asked

    def answers() -> list[bytes]:
        found = []
        for caller in CALLERS:
            for question in QUESTIONS:
                path = f"/views/flights/{question}{'&' if '?' in question else '?'}as_of=in:0:10"
                answer = http.get(path, headers={"Suiro-Caller": caller})
                assert answer.status_code == 200, answer.text
                found.append(answer.content)
        return found

    with TemporaryDirectory() as folder:
        router = examples.now = Routed(Path(folder), {1: old, 2: new})
        before = answers()
        for number, (what, share, of_old, of_new) in enumerate(drawn, 1):
            router.view = lifecycle.shift(router.view, share, lag_ms=0).view
            router.take(1, number, of_old)
            router.take(2, number, of_new)
            on_new = sum(version_for(router.view, caller) == 2 for caller in CALLERS)
            assert sum(b'"version":2' in one for one in answers()) == on_new * len(QUESTIONS)
            if what == "trip":
                router.view = lifecycle.trip(router.view, "errors").view
        router.view = lifecycle.rollback(router.view).view
        assert answers() == before
        for served in router.served.values():
            served.store.close()
