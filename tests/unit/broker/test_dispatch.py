"""What the dispatcher does with a handler that fails: the connection falls, and nothing else."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Generator
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.broker.apis import API_VERSIONS_KEY, APIS, IN_STEPS, Api
from suiro.broker.dispatch import Dispatcher, answering
from suiro.broker.exchange import Later, encode
from suiro.broker.metrics.metrics import Metrics
from suiro.broker.net.turns import TURN_NS, Turns
from suiro.broker.refusals import RefusedError
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

    def let_go_of_request(self) -> None: ...


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


class InTurns(Peer):
    """A connection whose requests rest, and which takes their answers."""

    session = None

    def __init__(self) -> None:
        self.now_ns = 1
        self.soon: deque[Callable[[], None]] = deque()
        loop: Any = SimpleNamespace(call_soon=self.soon.append)
        self.turns = Turns(loop, now_ns=lambda: self.now_ns)
        self.answers: list[Any] = []

    def answer(self, pieces: list[Any]) -> None:
        self.answers.append(pieces)

    def when_sent(self, callback: Callable[[], None]) -> None:
        callback()


def test_all_turns_of_a_request_count_against_the_quota_of_its_client() -> None:
    recorded: list[tuple[str, int]] = []

    def record(_: object, client_id: str, kind: str, amount: int) -> int:
        recorded.append((kind, amount))
        return 0

    def steps() -> Generator[None, None, Any]:
        for _ in range(5):
            peer.now_ns += TURN_NS
            yield
        return response_class(API_VERSIONS_KEY, 0)(error_code=ErrorCode.none, api_keys=())

    peer = InTurns()
    quotas = SimpleNamespace(record=record)
    assert not handled(peer, lambda exchange, _: exchange.in_steps(steps()), quotas=quotas)
    while peer.soon:
        peer.soon.popleft()()
    assert len(peer.answers) == 1
    ((kind, amount),) = recorded
    assert kind == "request"
    assert amount > 4 * TURN_NS


def handled(peer: Peer, handler: Any, *, quotas: Any = None) -> bool:
    """One request to this handler. Whether it is answered."""
    node = SimpleNamespace(clock=ManualClock(), quotas=quotas, faults=None, metrics=Metrics(), settings=NodeSettings())
    dispatcher = Dispatcher(node)  # type: ignore[arg-type]
    dispatcher._handlers[API_VERSIONS_KEY] = handler
    request = request_class(API_VERSIONS_KEY, 0)()
    frame = memoryview(write_request(request, correlation_id=1, client_id="c"))
    return dispatcher.handle(peer, frame)  # type: ignore[arg-type]


def test_the_apis_in_steps_are_those_whose_handlers_take_turns() -> None:
    def takes_turns(api: Api) -> bool:
        module = import_module(f"suiro.broker.handlers.{api.module}")
        return "exchange.in_steps(" in inspect.getsource(getattr(module, api.name))

    assert {api.key for api in APIS.values() if takes_turns(api)} == IN_STEPS


class Taker(Peer):
    """A connection that takes answers."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def when_sent(self, callback: Callable[[], None]) -> None:
        callback()

    def send(self, pieces: list[Any]) -> None:
        self.sent += pieces


def test_a_handler_that_refuses_a_request_answers_with_its_code() -> None:
    def refuse(*_: Any) -> Any:
        raise RefusedError(ErrorCode.invalid_request, "no")

    peer = Taker()
    assert handled(peer, answering(refuse))
    refused = response_class(API_VERSIONS_KEY, 0)(error_code=ErrorCode.invalid_request, api_keys=())
    assert peer.sent == encode(refused, 1)
