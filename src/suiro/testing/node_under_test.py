"""A node in the test's own process, with faults on demand and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from suiro.clock import ShiftedClock
from suiro.errors import UsageError
from suiro.node import InProcessNode
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker import Fault


class NodeUnderTest(InProcessNode):
    """What `suiro.testing.node` gives. `bootstrap_servers` is its address, `faults` what shall go wrong in it."""

    _clock: ShiftedClock

    @classmethod
    def begin(cls, *, data: Path | str | None = None, settings: Mapping[str, str] | None = None) -> Self:
        """Start it, on a free port. Raises `ConfigError` if it cannot."""
        return cls.start(data=data, settings=settings, clock=ShiftedClock())

    @property
    def faults(self) -> FaultRules:
        """Rules for requests to come; they hold until used up, cleared, or the node ends."""
        return FaultRules(self)

    def advance(self, ms: int) -> None:
        """Skip so much time: what expires by then (records, offsets, sessions, transactions) has expired."""

        def skip() -> None:
            self._clock.advance(ms)
            self.broker.look_again()

        self.call(skip)


class FaultRules:
    """Says which of the requests to come go wrong. APIs are named in snake_case: `produce`, `offset_commit`.

    A rule holds for the next request that it matches, or for the next `times` (None: for all), of any client. With
    `topic`, and `partition`, it matches requests that name them, and touches nothing else of those requests.
    """

    def __init__(self, node: NodeUnderTest) -> None:
        self._node = node

    def error(
        self,
        api: str,
        error: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = 1,
    ) -> None:
        """Answer with one of Kafka's errors, such as `NOT_LEADER_OR_FOLLOWER`; nothing is done."""
        from suiro.broker import Error

        code = getattr(ErrorCode, error.lower(), None)
        if code is None:
            raise UsageError(f"{error!r} is not the name of an error of Kafka's protocol")
        self._add(api, Error(code), topic, partition, times)

    def leader_not_available(self, topic: str, *, times: int | None = 1) -> None:
        """Metadata names no leader of the topic, as just after its creation or while one is elected."""
        self.error("metadata", "LEADER_NOT_AVAILABLE", topic=topic, times=times)

    def delay(self, api: str, ms: int, *, topic: str | None = None, times: int | None = 1) -> None:
        """Handle the request so much later. The connection's further requests wait behind it."""
        from suiro.broker import Delay

        self._add(api, Delay(ms), topic, None, times)

    def drop(
        self, api: str, *, handled: bool = False, topic: str | None = None, times: int | None = 1
    ) -> None:
        """Close the connection instead of answering: before the request is handled or, with `handled`, after."""
        from suiro.broker import Drop

        self._add(api, Drop(handled), topic, None, times)

    def crash(self, api: str, *, handled: bool = False, topic: str | None = None) -> None:
        """Let the node die as by kill -9 before the request is handled or, with `handled`, before it is answered.

        `NodeUnderTest.restart` starts it again at the same address.
        """
        from suiro.broker import Crash

        self._add(api, Crash(handled), topic, None, 1)

    def clear(self) -> None:
        """No more faults."""

        def clear() -> None:
            self._node.broker.faults = None

        self._node.call(clear)

    def _add(
        self, api: str, fault: Fault, topic: str | None, partition: int | None, times: int | None
    ) -> None:
        from suiro.broker import Faults, Rule

        if times is not None and times < 1:
            raise UsageError(f"a fault that happens {times} times; give at least 1, or None for always")
        rule = Rule(api=api, fault=fault, topic=topic, partition=partition, left=times)
        node = self._node

        def add() -> None:
            if node.broker.faults is None:
                node.broker.faults = Faults(node.crash_here)
            node.broker.faults.add(rule)

        node.call(add)
