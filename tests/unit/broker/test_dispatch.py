"""What the dispatcher does with a handler that fails: the connection falls, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.broker.answers import Later
from suiro.broker.apis import API_VERSIONS_KEY
from suiro.broker.dispatch import Dispatcher
from suiro.broker.metrics.metrics import Metrics
from suiro.clock import ManualClock
from suiro.config import NodeSettings
from suiro.protocol.messages import ErrorCode, request_class, response_class, write_request


class Peer:
    """A connection that only notes whether it is still open."""

    peer = "127.0.0.1:1"
    on_abandoned = None
    last_active_ms = arrived_ns = 0
    is_open = True
    authenticated = True
    named_files = ()

    def send(self, pieces: list[Any]) -> None:
        raise AssertionError("nothing can be sent")

    def close(self) -> None:
        self.is_open = False


def unwritable(*_: Any) -> Any:
    answer = response_class(API_VERSIONS_KEY, 0)
    return answer(error_code=ErrorCode.none, api_keys=(timedelta(0),))


def broken(*_: Any) -> Any:
    raise RuntimeError("a handler's mistake")


@pytest.mark.parametrize("handler", [unwritable, broken])
def test_a_handler_that_fails_costs_its_connection_only(handler: Any) -> None:
    """A connection that stayed open would wait for ever for the answer, and hold back every later request."""
    peer = Peer()
    assert handled(peer, handler)
    assert not peer.is_open


def test_an_answer_that_comes_later_and_cannot_be_written_costs_its_connection_only() -> None:
    """Whoever gives it, a group that has all its members, answers others behind it."""
    later = Later()
    peer = Peer()
    assert not handled(peer, lambda *_: later)
    assert peer.is_open
    later.give(unwritable())
    assert not peer.is_open


def handled(peer: Peer, handler: Any) -> bool:
    """One request to this handler. Whether it is answered."""
    node = SimpleNamespace(
        clock=ManualClock(), quotas=None, faults=None, metrics=Metrics(), settings=NodeSettings()
    )
    dispatcher = Dispatcher(node)  # type: ignore[arg-type]
    dispatcher._handlers[API_VERSIONS_KEY] = handler
    request = request_class(API_VERSIONS_KEY, 0)()
    frame = memoryview(write_request(request, correlation_id=1, client_id="c"))
    return dispatcher.handle(peer, frame)  # type: ignore[arg-type]
