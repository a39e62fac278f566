"""Bytes between processes and the node, as TCP carries them over a bad network.

A connection keeps its bytes in order. What goes wrong: it is slow, it stalls for a minute, it breaks with anything
still on the way, at once for both ends or unnoticed by one. A request that was on its way when its sender gave up and
asked again on another connection still arrives (a *ghost*): that is how requests come twice, late and in another
order. `Troubles` says how often.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.sim.world import Killed, Process, World

if TYPE_CHECKING:
    from tests.sim.node import SimulatedNode

HOST, PORT = "node", 9092


@dataclass(slots=True, kw_only=True)
class Troubles:
    """Probabilities for each message, except `most_latency_ms`."""

    most_latency_ms: int = 10
    slow: float = 0.0  # up to 2 s
    stall: float = 0.0  # 5 to 90 s, and everything behind it
    break_before: float = 0.0  # the connection breaks, the request is lost
    break_after: float = 0.0  # the request is served, its answer is lost
    silent: float = 0.5  # of the breaks: nobody tells the sender, it must time out
    ghost: float = 0.0  # a copy arrives up to 100 s later

    def heal(self) -> None:
        self.slow = self.stall = self.break_before = self.break_after = self.ghost = 0.0


class Network:
    def __init__(self, world: World, troubles: Troubles) -> None:
        self.world = world
        self.troubles = troubles
        self.node: SimulatedNode | None = None
        self._links = 0
        self._last_fd = 1_000_000
        self.on_request: Callable[[Link, bytes], None] = lambda link, request: None
        """It is sent, or a copy of it is under way too."""
        self.on_answer: Callable[[Link, bytes, bytes], None] = lambda link, request, answer: None
        self.in_service: bytes | None = None
        """The request that the node is busy with."""

    def new_fd(self) -> int:
        """No number of a real file's."""
        self._last_fd += 1
        return self._last_fd

    def connect(self, host: str, port: int, settings: Any, timeout_ms: int) -> ClientSocket:
        """In place of `suiro.client.connection._connect`."""
        from suiro.errors import BrokenConnectionError

        process = self.world.current
        assert process is not None
        process.wait(self.latency())
        if self.node is None or not self.node.is_up:
            raise BrokenConnectionError(f"cannot connect to {host}:{port}: Connection refused")
        return self.open(process).client

    def open(self, process: Process | None, name: str = "") -> Link:
        assert self.node is not None
        self._links += 1
        link = Link(self, process, name or (process.name if process else ""), self._links)
        self.node.accept(link.server)
        if process is not None:
            process.on_death.append(link.client.close)
        return link

    def latency(self) -> int:
        chance, troubles = self.world.random, self.troubles
        if self.world.chance(troubles.slow):
            return chance.randint(50, 2_000)
        return chance.randint(1, troubles.most_latency_ms)


class Link:
    """One connection."""

    def __init__(self, network: Network, process: Process | None, name: str, number: int) -> None:
        self.network, self.world = network, network.world
        self.process = process
        self.name, self.number = name, number
        self.client = ClientSocket(self)
        self.server = ServerSocket(self)
        self.broken = False  # nothing gets through any more
        self._asked: dict[int, bytes] = {}  # correlation id -> the request
        self._to_node_at = 0
        self._to_client_at = 0

    @property
    def is_ghost(self) -> bool:
        return self.process is None

    def to_node(self, frame: bytes) -> None:
        world, troubles = self.world, self.network.troubles
        self.note(frame)
        self.network.on_request(self, frame)
        world.tell("{} -> node: {}", self.name, Asked(frame))
        if world.chance(troubles.ghost):
            self.network.on_request(self, frame)
            late = world.random.choice((50, 2_000, 20_000, 100_000))
            world.after(world.random.randint(0, late), self._haunt, frame)
        if world.chance(troubles.break_before):
            world.tell("the connection of {} breaks, and takes {} with it", self.name, Asked(frame))
            self.fail()
            return
        stalled = world.random.randint(5_000, 90_000) if world.chance(troubles.stall) else 0
        if stalled:
            world.tell("the connection of {} stalls for {} ms", self.name, stalled)
        self._to_node_at = max(self._to_node_at, world.now + self.network.latency() + stalled)
        world.after(self._to_node_at - world.now, self._arrive, frame)

    def _arrive(self, frame: bytes) -> None:
        if not self.broken:
            self._deliver(frame)

    def _deliver(self, frame: bytes) -> None:
        self.network.in_service = frame
        self.server.put(frame)
        self.network.in_service = None

    def _haunt(self, frame: bytes) -> None:
        node = self.network.node
        if node is not None and node.is_up:
            ghost = self.network.open(None, f"a late copy of {self.name}'s request")
            ghost.note(frame)
            self.world.tell("{} arrives: {}", ghost.name, Asked(frame))
            ghost._deliver(frame)

    def note(self, frame: bytes) -> None:
        self._asked[int.from_bytes(frame[8:12], "big")] = frame

    def to_client(self, frame: bytes) -> None:
        world, troubles = self.world, self.network.troubles
        request = self._asked.pop(int.from_bytes(frame[4:8], "big"))
        self.network.in_service = None
        self.network.on_answer(self, request, frame)
        world.tell("node answers {}: {}", self.name, Answered(request, frame))
        if self.is_ghost:
            return
        if world.chance(troubles.break_after):
            world.tell("the connection of {} breaks, the answer is lost", self.name)
            self.fail()
            return
        self._to_client_at = max(self._to_client_at, world.now + self.network.latency())
        world.after(self._to_client_at - world.now, self._answer, frame)

    def _answer(self, frame: bytes) -> None:
        if not self.broken and not self.client.closed:
            self.client.put(frame)

    def fail(self) -> None:
        """Cut; each end hears of it, or the client does not."""
        self.broken = True
        self.world.after(self.network.latency(), self.server.hang_up)
        if not self.world.chance(self.network.troubles.silent):
            self.world.after(self.network.latency(), self.client.hang_up)

    def client_closed(self) -> None:
        """What was sent before still arrives, then the end of it."""
        at = max(self._to_node_at, self.world.now + self.network.latency())
        self.world.after(at - self.world.now, self.server.hang_up)

    def server_closed(self) -> None:
        at = max(self._to_client_at, self.world.now + self.network.latency())
        self.world.after(at - self.world.now, self.client.hang_up)


_OPEN, _WRITER = os.pipe()
_LEFT, _other_writer = os.pipe()
os.close(_other_writer)


class ClientSocket:
    """What `suiro.client.connection.Connection` uses of a blocking socket."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.closed = False
        self._received = bytearray()
        self._over = False
        self._timeout_ms = 0

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if option == socket.SO_RCVTIMEO:
            seconds, micros = struct.unpack("ll", value)
            self._timeout_ms = seconds * 1000 + micros // 1000

    def fileno(self) -> int:
        """Is only asked whether the other side is gone: a pipe that it stands at tells."""
        return _LEFT if self._over else _OPEN

    def getsockname(self) -> tuple[str, int]:
        return "client", 1

    def getpeername(self) -> tuple[str, int]:
        """Of another machine: bytes that go by the network can be lost, a file of the node's cannot."""
        return "node", 9092

    def sendmsg(self, parts: list[memoryview]) -> int:
        process = self.link.process
        if process is not None and not process.alive:
            raise Killed
        if self._over or self.closed:
            raise ConnectionResetError("reset by the network")
        data = b"".join(parts)
        self.link.to_node(data)
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        world, process = self.link.world, self.link.process
        assert process is not None
        ends = world.now + self._timeout_ms
        while len(self._received) < size and not self._over:
            left = ends - world.now
            if left <= 0:
                raise BlockingIOError("no answer in time")
            process.wait(left, listening=True)
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def put(self, data: bytes) -> None:
        self._received += data
        self._wake()

    def hang_up(self) -> None:
        if not self._over:
            self._over = True
            self._wake()

    def _wake(self) -> None:
        if self.link.process is not None:
            self.link.process.wake()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.link.client_closed()


class ServerSocket:
    """What `suiro.broker.net.connection.Connection` uses of a socket that does not block."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._fd = link.network.new_fd()
        self._received = bytearray()
        self._over = False
        self._answer = bytearray()
        self.closed = False

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, on: bool) -> None: ...

    def setsockopt(self, level: int, option: int, value: Any) -> None: ...

    def getsockname(self) -> tuple[str, int]:
        return HOST, PORT

    @property
    def has_data(self) -> bool:
        return bool(self._received) or self._over

    def recv_into(self, into: memoryview) -> int:
        if not self._received:
            if self._over:
                return 0
            raise BlockingIOError
        size = min(len(into), len(self._received))
        into[:size] = self._received[:size]
        del self._received[:size]
        return size

    def send(self, data: bytes, flags: int = 0) -> int:
        """Whole frames go on their way."""
        self._answer += data
        while len(self._answer) >= 4:
            size = 4 + int.from_bytes(self._answer[:4], "big")
            if len(self._answer) < size:
                break
            frame = bytes(self._answer[:size])
            del self._answer[:size]
            self.link.to_client(frame)
        return len(data)

    def put(self, data: bytes) -> None:
        if not self.closed:
            self._received += data
            self._readable()

    def hang_up(self) -> None:
        if not self._over and not self.closed:
            self._over = True
            self._readable()

    def _readable(self) -> None:
        node = self.link.network.node
        assert node is not None
        node.readable(self._fd)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.link.server_closed()


class Asked:
    """A request frame, in words if anybody reads them."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame

    def __str__(self) -> str:
        from tests.sim.wording import request_in_words

        return request_in_words(self.frame)


class Answered:
    def __init__(self, request: bytes, frame: bytes) -> None:
        self.request, self.frame = request, frame

    def __str__(self) -> str:
        from tests.sim.wording import answer_in_words

        return answer_in_words(self.request, self.frame)
