"""A node in the test's own process, with faults on demand and a clock that the test moves."""

from __future__ import annotations

from suiro.broker import Crash, Delay, Drop, Error, Fault, Faults, Rule
from suiro.clock import ShiftedClock
from suiro.errors import UsageError
from suiro.node import InProcessNode
from suiro.protocol.messages import ErrorCode


class NodeUnderTest(InProcessNode):
    """The node of `suiro.testing.node`. `bootstrap_servers`: its address. `faults`: faults to inject."""

    _clock: ShiftedClock

    @property
    def faults(self) -> FaultRules:
        """Rules for future requests. They hold until they are used up or cleared, or until the node ends."""
        return FaultRules(self)

    def advance(self, ms: int) -> None:
        """Skips time. Records, offsets, sessions and transactions that expire by then have expired."""

        def skip() -> None:
            self._clock.advance(ms)
            self.broker.look_again()

        self.call(skip)


class FaultRules:
    """Injects faults into future requests. APIs are named in snake_case: `produce`, `offset_commit`.

    A rule applies to the next request that it matches, or to the next `times` (None: to all), of any client. With
    `topic`, and `partition`, it matches requests that name them, and affects only these parts of them.
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
        """Answers with an error of Kafka, such as `NOT_LEADER_OR_FOLLOWER`, and does nothing else."""
        code = getattr(ErrorCode, error.lower(), None)
        if code is None:
            raise UsageError(f"{error!r} is not the name of an error of Kafka's protocol")
        self._add(api, Error(code), topic, partition, times)

    def leader_not_available(self, topic: str, *, times: int | None = 1) -> None:
        """Metadata names no leader of the topic, as just after its creation or during an election."""
        self.error("metadata", "LEADER_NOT_AVAILABLE", topic=topic, times=times)

    def delay(self, api: str, ms: int, *, topic: str | None = None, times: int | None = 1) -> None:
        """Handles the request after this time. Further requests of the connection wait."""
        self._add(api, Delay(ms), topic, None, times)

    def drop(self, api: str, *, handled: bool = False, topic: str | None = None, times: int | None = 1) -> None:
        """Closes the connection instead of answering, before the request is handled or, with `handled`, after."""
        self._add(api, Drop(handled), topic, None, times)

    def crash(self, api: str, *, handled: bool = False, topic: str | None = None) -> None:
        """Ends the node as kill -9 does, before the request is handled or, with `handled`, before it is answered.

        `NodeUnderTest.restart` starts it again at the same address.
        """
        self._add(api, Crash(handled), topic, None, 1)

    def clear(self) -> None:
        """Removes all rules."""

        def clear() -> None:
            self._node.broker.faults = None

        self._node.call(clear)

    def _add(self, api: str, fault: Fault, topic: str | None, partition: int | None, times: int | None) -> None:
        if times is not None and times < 1:
            raise UsageError(f"a fault that happens {times} times; give at least 1, or None for always")
        rule = Rule(api=api, fault=fault, topic=topic, partition=partition, left=times)
        node = self._node

        def add() -> None:
            if node.broker.faults is None:
                node.broker.faults = Faults(node.crash_here)
            node.broker.faults.add(rule)

        node.call(add)
