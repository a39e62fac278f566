"""The answers of handlers: the response, one that comes `Later`, or `NOTHING`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

from suiro.broker.net.connection import Piece
from suiro.protocol.fields import array_length
from suiro.protocol.messages import ResponsePayload


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response body encoded by its handler, in pieces; `flexible` tells which response header it gets.

    The first piece is bytes; `throttle_at` is the position of throttle_time_ms in it, which `encode` fills in; None:
    the version has none. `named` are the files that the response names to the client.
    """

    pieces: list[Piece]
    flexible: bool
    throttle_at: int | None = 0
    named: tuple[int, ...] = ()

    @classmethod
    def of_results(cls, results: Collection[bytes], *, flexible: bool) -> RawResponse:
        """A response that is its throttle time and an array, of which the elements are laid out already."""
        body = b"".join((bytes(4), array_length(len(results), flexible=flexible), *results))
        return cls([body + b"\0" if flexible else body], flexible)


Response: TypeAlias = ResponsePayload | RawResponse


class _Nothing(Enum):
    NOTHING = 0


Nothing: TypeAlias = Literal[_Nothing.NOTHING]
NOTHING: Final = _Nothing.NOTHING
"""The request gets no response (Produce with acks=0)."""


class Later:
    """The response comes when there is one: `give` it, once. `abandoned` runs if the connection closes before."""

    __slots__ = ("_deliver", "abandoned", "given")

    def __init__(self, abandoned: Callable[[], object] | None = None) -> None:
        self.abandoned = abandoned
        self.given: Response | Nothing | None = None
        """A response that was given while the handler was still running."""
        self._deliver: Callable[[Response | Nothing], None] | None = None

    def give(self, response: Response | Nothing) -> None:
        if self._deliver is None:
            self.given = response
        else:
            self._deliver(response)

    def deliver_to(self, deliver: Callable[[Response | Nothing], None]) -> None:
        self._deliver = deliver
        if self.given is not None:
            deliver(self.given)

    def follow(self, answer: Answer) -> None:
        """Give what another handler answers, now or later."""
        if isinstance(answer, Later):
            self.abandoned = answer.abandoned
            answer.deliver_to(self.give)
        else:
            self.give(answer)

    def abandon(self) -> None:
        if self.abandoned is not None:
            self.abandoned()


Answer: TypeAlias = Response | Later | Nothing
