"""The connection over a real socket: frames in any pieces, answers in order, limits, a slow peer."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from suiro.broker.net.connection import INPUT_LIMIT, SCRATCH_BYTES, Connection, ConnectionContext, Piece
from suiro.broker.net.held_memory import LoginMemory, RequestMemory, ResponseMemory
from suiro.broker.net.listeners import Listener, SecurityProtocol
from suiro.broker.net.turns import Turns
from suiro.clock import ManualClock
from suiro.log import FileHandle

PLAIN = Listener(name="PLAINTEXT", protocol=SecurityProtocol.PLAINTEXT, host="127.0.0.1", port=0)
MAX_BYTES = 4 << 20
DEADLINE_S = 20.0


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Peer:
    """The other end, and the sink that the connection hands its frames to."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        for sock in (ours, theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            sock.setblocking(False)
        self.socket = ours
        self.frames: list[bytes] = []
        self.answer: Callable[[bytes], list[Piece] | None] = lambda payload: [frame(payload)]
        self.closes = 0
        self.slow = 0
        self.refused: list[str] = []
        self.requests = RequestMemory(self.loop, max_bytes=64 << 20, max_holders=100)
        self.responses = ResponseMemory(max_bytes=64 << 20, are_too_many=lambda files: files >= 100)
        self.context = context = ConnectionContext(
            loop=self.loop,
            clock=ManualClock(),
            scratch=memoryview(bytearray(SCRATCH_BYTES)),
            sink=self,
            owner=self,
            requests=self.requests,
            logins=LoginMemory(max_bytes=1 << 20),
            responses=self.responses,
            turns=Turns(self.loop),
            max_request_bytes=MAX_BYTES,
            max_login_bytes=1024,
        )
        self.connection = Connection(
            theirs, PLAIN, context, peer=("127.0.0.1", 1), local_address=("127.0.0.1", 2), now_ms=0
        )

    def closed(self, connection: Connection) -> None:
        self.closes += 1

    def secured(self, connection: Connection, certificate: bytes | None) -> None: ...

    def handshake_failed(self, connection: Connection, error: OSError) -> None: ...

    def was_refused(self, connection: Connection, why: str) -> None:
        self.refused.append(why)

    def was_too_slow(self, connection: Connection) -> None:
        self.slow += 1

    def held_too_much(self, connection: Connection) -> None: ...

    def handle(self, connection: Connection, received: memoryview) -> bool:
        payload = bytes(received)
        self.frames.append(payload)
        pieces = self.answer(payload)
        if pieces is None:
            return False
        connection.send(pieces)
        return True

    def may_take_long(self, frame: memoryview) -> bool:
        return False

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Turn the loop until the condition holds; it is looked at in every turn."""
        ends = self.loop.time() + DEADLINE_S

        def look() -> None:
            if condition() or self.loop.time() > ends:
                self.loop.stop()
            else:
                self.loop.call_later(0.0005, look)

        self.loop.call_soon(look)
        self.loop.run_forever()
        assert condition()

    def send(self, data: bytes) -> None:
        """Send all of it, turning the loop while the socket is full."""
        view = memoryview(data)

        def sent() -> bool:
            nonlocal view
            try:
                view = view[self.socket.send(view) :]
            except BlockingIOError:
                pass
            except ConnectionError:
                view = view[len(view) :]
            return not view

        self.run_until(sent)

    def receive(self, size: int) -> bytes:
        data = bytearray()

        def received() -> bool:
            try:
                data.extend(self.socket.recv(min(1 << 16, size - len(data))))
            except BlockingIOError:
                pass
            return len(data) == size

        self.run_until(received)
        return bytes(data)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.connection.close()
    made.socket.close()
    made.loop.close()


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_frames_arrive_in_any_pieces(peer: Peer, step: int) -> None:
    payloads = [b"%08d" % number * (number + 1) for number in range(6)]
    data = b"".join(map(frame, payloads))
    for start in range(0, len(data), step):
        peer.send(data[start : start + step])
    assert peer.receive(len(data)) == data
    assert peer.frames == payloads


def test_a_frame_larger_than_any_buffer(peer: Peer) -> None:
    payload = os.urandom(MAX_BYTES)
    peer.send(frame(payload) + frame(b"the next"))
    peer.run_until(lambda: peer.frames[:1] == [payload])
    assert peer.receive(MAX_BYTES + 4) == frame(payload)
    assert peer.receive(12) == frame(b"the next")


@pytest.mark.parametrize("size", [-1, 0, 7, MAX_BYTES + 1])
def test_a_size_out_of_range_closes(peer: Peer, size: int) -> None:
    peer.send(struct.pack(">i", size) + b"12345678")
    peer.run_until(lambda: peer.closes == 1)
    assert (peer.frames, len(peer.refused)) == ([], 1)


def test_nothing_is_handled_while_an_answer_is_awaited(peer: Peer) -> None:
    peer.answer = lambda payload: None if payload == b"deferred" else [frame(payload)]
    peer.send(frame(b"deferred") + frame(b"second..") + frame(b"deferred"))
    peer.run_until(lambda: len(peer.frames) == 1)
    peer.send(frame(b"third...") * 3)
    assert peer.frames == [b"deferred"]
    peer.connection.answer([frame(b"answered")])
    assert peer.receive(24) == frame(b"answered") + frame(b"second..")
    assert peer.frames == [b"deferred", b"second..", b"deferred"]
    peer.connection.answer([frame(b"answered")])
    assert peer.receive(48) == frame(b"answered") + frame(b"third...") * 3


def test_many_requests_at_once_hold_nobody_up(peer: Peer) -> None:
    others_turns: list[int] = []

    def answer(payload: bytes) -> list[Piece]:
        if len(peer.frames) == 1:
            peer.loop.call_soon(lambda: others_turns.append(len(peer.frames)))
        return [frame(payload)]

    peer.answer = answer
    payloads = [b"%08d" % number for number in range(1000)]
    data = b"".join(map(frame, payloads))
    assert peer.socket.send(data) == len(data)
    assert peer.receive(len(data)) == data
    assert peer.frames == payloads
    assert others_turns[0] < len(payloads)
    assert peer.requests.used == 0


def test_a_muted_connection_gets_its_answer_first_and_rests_then(peer: Peer) -> None:
    times: list[float] = []

    def answer(payload: bytes) -> list[Piece]:
        times.append(peer.loop.time())
        if payload == b"too much":
            peer.connection.mute(120)
        return [frame(payload)]

    peer.answer = answer
    peer.send(frame(b"too much") + frame(b"the next"))
    assert peer.receive(12) == frame(b"too much")
    assert len(peer.frames) == 1
    assert peer.receive(12) == frame(b"the next")
    assert times[1] - times[0] >= 0.11


def test_input_stops_at_its_limit(peer: Peer) -> None:
    peer.answer = lambda _: None
    peer.send(frame(b"deferred"))
    peer.run_until(lambda: len(peer.frames) == 1)
    taken = 0

    def full() -> bool:
        nonlocal taken
        try:
            taken += peer.socket.send(frame(b"12345678") * 4096)
        except BlockingIOError:
            return taken >= INPUT_LIMIT
        return False

    peer.run_until(full)
    assert taken < INPUT_LIMIT * 4
    peer.answer = lambda _: []
    peer.connection.answer([])
    peer.run_until(lambda: len(peer.frames) >= taken // 12)


def test_a_closed_peer_is_noticed_while_an_answer_is_awaited(peer: Peer) -> None:
    abandoned: list[bool] = []
    peer.answer = lambda _: None
    peer.send(frame(b"deferred"))
    peer.run_until(lambda: len(peer.frames) == 1)
    peer.connection.on_abandoned = lambda: abandoned.append(True)
    peer.socket.shutdown(socket.SHUT_RDWR)
    peer.run_until(lambda: peer.closes == 1)
    assert abandoned == [True]
    peer.connection.answer([frame(b"too late")])


def test_files_that_answers_named_count_with_those_that_are_sent(peer: Peer) -> None:
    connection, responses = peer.connection, peer.responses
    connection.name_files((1, 2, 3), 0)
    assert (responses.named, connection.may_name_files) == (3, True)
    connection.name_files(tuple(range(100)), 0)
    assert (responses.named, connection.may_name_files) == (100, False)
    connection.close()
    assert responses.named == 0


def test_file_regions_go_out_whole_to_a_slow_peer(peer: Peer, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "log").write_bytes(content)
    handle = FileHandle(os.open(tmp_path / "log", os.O_RDONLY))
    pieces: list[Piece] = [b"head", (handle, 5, len(content) - 5), b"tail", (handle, 0, 5)]
    peer.answer = lambda payload: pieces if payload == b"records." else [frame(payload)]
    peer.send(frame(b"records.") + frame(b"the next"))
    del handle
    (tmp_path / "log").unlink()
    size = sum(len(piece) if isinstance(piece, bytes) else piece[2] for piece in pieces)
    peer.run_until(lambda: len(peer.frames) >= 1)
    assert peer.frames == [b"records."]  # the next waits until this answer is taken
    pieces.clear()  # only the connection holds the file now
    assert peer.receive(size) == b"head" + content[5:] + b"tail" + content[:5]
    assert peer.receive(12) == frame(b"the next")


class Handshake:
    """TLS that wants to send until a call, and then waits for the client."""

    def __init__(self, sock: socket.socket, *, sends_until: int) -> None:
        self.socket = sock
        self.wants_write = True
        self.calls = 0
        self._sends_until = sends_until

    def fileno(self) -> int:
        return self.socket.fileno()

    def handshake(self) -> None:
        self.calls += 1
        self.wants_write = self.calls < self._sends_until
        raise BlockingIOError

    def recv_into(self, buffer: memoryview) -> int:
        raise AssertionError("the handshake is not over")

    send = send_file = recv_into

    def close(self) -> None:
        self.socket.close()


def handshaking(peer: Peer, tls: Any) -> Connection:
    address = ("127.0.0.1", 3)
    return Connection(socket.socket(), PLAIN, peer.context, peer=address, local_address=address, tls=tls, now_ms=0)


def test_a_handshake_that_waits_for_its_client_leaves_the_loop_alone(peer: Peer) -> None:
    client, node = socket.socketpair()
    tls: Any = Handshake(node, sends_until=2)
    connection = handshaking(peer, tls)
    with client:
        connection._on_handshake(tls)
        peer.run_until(lambda: tls.calls >= 2)
        turns = iter(range(100))
        peer.run_until(lambda: next(turns) > 20)
        assert tls.calls == 2
        client.send(b"its next message")
        peer.run_until(lambda: tls.calls >= 3)
        connection.close()


def test_a_handshake_that_cannot_send_does_not_read_its_client(peer: Peer) -> None:
    """A client that takes nothing, and has sent more than it was asked for, would keep the loop busy."""
    client, node = socket.socketpair()
    node.setblocking(False)
    full = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            full += node.send(bytes(1 << 16))
    tls: Any = Handshake(node, sends_until=2)
    connection = handshaking(peer, tls)
    with client:
        client.send(b"more")
        peer.run_until(lambda: tls.calls >= 1)
        turns = iter(range(100))
        peer.run_until(lambda: next(turns) > 20)
        assert tls.calls == 1
        while full:
            full -= len(client.recv(full))
        peer.run_until(lambda: tls.calls >= 3)
        connection.close()
