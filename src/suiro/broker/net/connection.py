"""One client connection: frames in, responses out, on a non-blocking socket.

An asyncio transport copies every response; measured, that halves fetch throughput. So this class registers the
socket itself (`loop.add_reader/add_writer`), receives into a buffer that all connections share, and sends a
response as a list of pieces: `bytes`, or a region `(fd, position, length)` of a log file that goes from the page
cache to the socket with `os.sendfile`, untouched; under TLS a bounded part at a time is read and encrypted.

What is always true:
- Requests are handled one at a time in the order they came, and answered in that order, as Apache Kafka does. A
  client may send the next request before it has the answer; it stays in the buffer until its turn.
- After some requests, or some time, in a row it is the turn of others (`turns`): a client that sends thousands at
  once, or a few that cost much, holds nobody up.
- While a request waits for its answer (a long poll, a group rebalance), or an answer for the peer to take it,
  nothing further is handled; and once `INPUT_LIMIT` bytes of requests wait, nothing further is read.
- What it holds for its peer, requests that wait and answers not taken, is counted in `held_memory`, which says
  when nothing further is read, or that this connection must go.
- Whatever the peer sends, only this connection can fall.
"""

from __future__ import annotations

import os
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from suiro.broker.net.held_memory import LoginMemory, RequestMemory, ResponseMemory
from suiro.broker.net.listeners import Listener
from suiro.broker.net.turns import Turn, Turns
from suiro.broker.security.session import ANONYMOUS, Session
from suiro.clock import Clock, stopwatch_ns

if TYPE_CHECKING:
    from suiro.broker.net.tls import TlsStream

Region: TypeAlias = tuple[int, int, int]
"""(file descriptor, position, length). The descriptor is a `log.FileHandle`, which stays open while it is held."""
Piece: TypeAlias = bytes | Region

INPUT_LIMIT = 1 << 20
"""Bytes of further requests that are kept while one is being answered. A larger single frame is read whole."""
SCRATCH_BYTES = 512 << 10
_LARGE_BYTES = 4096
"""From this size on a request that may take long waits while there are many."""
_SENDFILE_CHUNK = 1 << 30
_SMALLEST_BUFFER = 1024
"""Size of the buffer for the first bytes of a request. It doubles as more arrive."""


class BadFrameError(Exception):
    """The peer sent something that is not a Kafka request. The message is for the log."""


class RequestSink(Protocol):
    """Handles the frames of connections: `dispatch.Dispatcher`."""

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        """Take one request frame. False: its answer comes later through `Connection.answer`."""
        ...

    def may_take_long(self, frame: memoryview) -> bool:
        """Whether its request, if it is large, waits for others of its kind."""
        ...


class Owner(Protocol):
    """The acceptor of the connection: `server.Server`."""

    def closed(self, connection: Connection) -> None:
        """The connection has ended. Called once."""
        ...

    def secured(self, connection: Connection, certificate: bytes | None) -> None:
        """The TLS handshake is done; the client showed this certificate."""
        ...

    def handshake_failed(self, connection: Connection, error: OSError) -> None: ...

    def was_refused(self, connection: Connection, why: str) -> None:
        """It is closed because of what it sent."""
        ...

    def was_too_slow(self, connection: Connection) -> None:
        """It is closed because answers that wait for their peers take too much memory."""
        ...

    def held_too_much(self, connection: Connection) -> None:
        """It is closed because requests that have not begun take too much memory."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionContext:
    """The objects that all connections of a node share. Each receives into `scratch` first."""

    loop: AbstractEventLoop
    clock: Clock
    scratch: memoryview
    sink: RequestSink
    owner: Owner
    requests: RequestMemory
    logins: LoginMemory
    responses: ResponseMemory
    turns: Turns
    max_request_bytes: int
    max_login_bytes: int
    """Largest request before the client has logged in."""


class Connection:
    """See the module."""

    def __init__(  # noqa: PLR0915 - one for each attribute
        self,
        sock: socket.socket,
        listener: Listener,
        context: ConnectionContext,
        *,
        peer: tuple[str, int],
        local_address: tuple[str, int],
        tls: TlsStream | None = None,
        now_ms: int,
    ) -> None:
        """`tls`: the stream that has taken the socket over; `sock` is then empty."""
        self._sock = sock
        self._tls = tls
        self._fd = sock.fileno() if tls is None else tls.fileno()
        self._loop = context.loop
        self._scratch = context.scratch
        self._sink = context.sink
        self._owner = context.owner
        is_known = tls is None and not listener.protocol.sasl
        self._requests = context.requests if is_known else context.logins
        self._responses = context.responses
        self.turns = context.turns
        self._context = context
        self._recv_into = sock.recv_into if tls is None else tls.recv_into
        self._send_bytes = sock.send if tls is None else tls.send
        self._send_file = self._sendfile if tls is None else tls.send_file
        self._buffer: bytearray | None = None  # what was received and not yet handled, `_start.._end`
        self._start = 0
        self._end = 0
        self._held = 0  # bytes counted in `_requests`
        self._in_hand = 0  # of the request that waits for its answer
        self._unfinished_of: str | None = None  # the client, if that request is a large one
        self._output: deque[Piece | memoryview] = deque()
        self._on_sent: Callable[[], None] | None = None
        self._busy = False
        self.rests = False
        """Whether it has requests to handle, once others have had their turn."""
        self._is_put_off = False  # it rests until other large requests are done
        self._muted: TimerHandle | None = None
        self._reading = False
        self._writing = False
        self.is_open = True
        self.arrived_ns = 0
        """When bytes were last read, by `stopwatch_ns`."""
        self.last_active_ms = now_ms
        """When a request came, or a part of one or of an answer went over a slow line."""
        self.on_abandoned: Callable[[], None] | None = None  # set while an answer is awaited
        self.named_files: tuple[int, ...] = ()
        """Log files that the last answer named (`protocol.file_regions`): held until the client has opened them."""
        self.named_ms = 0
        self.listener = listener
        self.peer = f"{peer[0]}:{peer[1]}"
        self.host = peer[0]
        self.local_address = local_address
        self.session = Session(principal=ANONYMOUS, host=peer[0], listener=listener.name)
        self.authenticated = not listener.protocol.sasl
        """Whether requests are answered; not so before a login, during another one and after it has expired."""
        self.sasl: object | None = None
        """The state of the SASL handlers between two requests of one authentication."""
        if tls is None:
            self.read_again()
        else:
            self._read_handshake(tls)

    # TLS

    def _read_handshake(self, tls: TlsStream) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_handshake, tls)

    def _on_handshake(self, tls: TlsStream) -> None:
        try:
            tls.handshake()
        except BlockingIOError:
            # The socket is watched for one direction only: ready for the other one, it would call again and again.
            if tls.wants_write:
                self._pause_reading()
                if not self._writing:
                    self._writing = True
                    self._loop.add_writer(self._fd, self._on_handshake, tls)
                return
            self._stop_writing()
            self._read_handshake(tls)
            return
        except OSError as error:
            self._owner.handshake_failed(self, error)
            self.close()
            return
        self._stop_writing()
        self._pause_reading()
        self._owner.secured(self, tls.peer_certificate())
        self.read_again()

    # Input

    def _on_readable(self) -> None:
        try:
            if self._may_read():
                self._receive()
                while self._tls is not None and self._tls.pending and self._reading and self._may_read():
                    self._receive()
        except (BlockingIOError, InterruptedError):
            if self._tls is not None and self._tls.wants_write:
                self._wait_for_peer()
        except OSError:  # reset, or timed out: a peer that vanished
            self.close()
        except BadFrameError as error:
            self._close_bad(error)

    def _may_read(self) -> bool:
        """False, and reading is off, when the node holds too much for this connection or for all."""
        requests = self._requests
        if requests.used >= requests.max_bytes and not self._held:
            self._pause_reading()
            requests.wait(self, stopwatch_ns())
            return False
        if self._is_full():
            self._pause_reading()
            return False
        return True

    def _is_full(self) -> bool:
        """Whether nothing further may be read before the request in hand is answered."""
        return self._blocked() and (self._end - self._start >= INPUT_LIMIT or not self._requests.may_read_ahead)

    def _receive(self) -> None:
        if self._buffer is None:
            size = self._recv_into(self._scratch)
            if size == 0:
                self.close()
                return
            self.arrived_ns = stopwatch_ns()
            used = 0 if self._blocked() else self._consume(self._scratch[:size].toreadonly())
            if self.is_open and used < size:
                self._keep(self._scratch[used:size])
        else:
            if self._end == len(self._buffer):
                self._keep(memoryview(self._buffer)[self._start : self._end])
                if not self.is_open:  # it held the most of what all logins may hold
                    return
            size = self._recv_into(memoryview(self._buffer)[self._end :])
            if size == 0:
                self.close()
                return
            self.arrived_ns = stopwatch_ns()
            self.last_active_ms = self._context.clock.monotonic_ms()
            self._end += size
            self._pump()

    def _blocked(self) -> bool:
        return self._busy or self.rests or bool(self._output) or self._muted is not None

    def _consume(self, view: memoryview) -> int:
        """Handle whole frames from the front of `view` until one must wait. Returns the bytes used."""
        position, end = 0, len(view)
        turn: Turn | None = None
        while not self._blocked() and self.is_open and end - position >= 4:
            size = self._frame_size(view, position)
            if end - position - 4 < size:
                break
            if turn is None:
                turn = self.turns.begin()
            frame = view[position + 4 : position + 4 + size]
            is_costly = size >= _LARGE_BYTES and self.authenticated and self._sink.may_take_long(frame)
            self._is_put_off = is_costly and self.turns.is_full(self._client)
            if self._is_put_off or turn.is_over():
                self.rests = True
                (self.turns.put_off if self._is_put_off else self.turns.rest)(self)
                break
            position += 4 + size
            self._busy = True
            if self._sink.handle(self, frame):
                self._busy = False
            elif is_costly and self.is_open:
                self._unfinished_of = self._client
                self.turns.begin_large(self._client)
        return position

    @property
    def _client(self) -> str:
        session = self.session
        return session.host if session.principal == ANONYMOUS else session.principal

    def _frame_size(self, view: memoryview, position: int) -> int:
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        if self.authenticated:
            if 8 <= size <= self._context.max_request_bytes:
                return size
            limit, setting = self._context.max_request_bytes, "socket.request.max.bytes"
        else:  # a login may send bare tokens, of any size
            if 0 <= size <= self._context.max_login_bytes:
                return size
            limit, setting = self._context.max_login_bytes, "sasl.server.max.receive.size"
        if size < 8:
            raise BadFrameError(f"a frame of {size} bytes cannot be a Kafka request")
        raise BadFrameError(f"a frame of {size} bytes is over {setting} = {limit}")

    def _keep(self, rest: memoryview) -> None:
        """Move what is not handled yet into a buffer of our own, with room for more.

        Room doubles up to the frame that is coming in, so that a peer that only claims a large frame does not
        get the memory for it.
        """
        held = len(rest)
        wanted = max(2 * held, _SMALLEST_BUFFER)
        if held >= 4:
            frame = 4 + int.from_bytes(rest[:4], "big")
            if held < frame:
                wanted = min(wanted, max(frame, held + 4096))
        self._buffer = bytearray(wanted)
        self._buffer[:held] = rest
        self._start, self._end = 0, held
        self._count_held()

    def _count_held(self) -> None:
        """Count what waits here; of a request that is coming in what has come, for it may have claimed anything."""
        held = self._in_hand + (0 if self._buffer is None else len(self._buffer))
        if held != self._held:
            self._held = held
            self._requests.hold(self, held)

    def _pump(self) -> None:
        """Handle what the buffer holds, as far as it may be handled now."""
        if self._buffer is None:
            return
        used = self._consume(memoryview(self._buffer)[self._start : self._end].toreadonly())
        self._start += used
        if self._start >= self._end:
            self._buffer, self._start, self._end = None, 0, 0
        if not self.is_open:
            return
        self._count_held()
        if not self._reading and not self._is_full():
            self.read_again()

    # Output

    def send(self, pieces: list[Piece]) -> None:
        """Send one response's pieces, now or when the peer takes them."""
        if not self.is_open:
            return
        waiting = bool(self._output)
        self._output.extend(pieces)
        if not waiting:
            self._flush()

    def answer(self, pieces: list[Piece]) -> None:
        """Send the response that the current request has been waiting for, then take the next request.

        The next request is taken in a turn of its own: this call comes from the middle of another request's
        handler (a produce that ends a long poll), which must not find the world changed under it.
        """
        self._busy = False
        self.on_abandoned = None
        self.let_go_of_request()
        if not self.is_open:
            return
        self.send(pieces)
        if self._buffer is not None or not self._reading:
            self._loop.call_soon(self._continue)

    def hold_request(self, size: int) -> None:
        """The current request keeps so many bytes until `let_go_of_request`."""
        self._in_hand = size
        self._count_held()

    def let_go_of_request(self) -> None:
        """The current request is answered, or given up: it keeps nothing any more."""
        if self._in_hand:
            self._in_hand = 0
            self._count_held()
        if self._unfinished_of is not None:
            self.turns.end_large(self._unfinished_of)
            self._unfinished_of = None

    def name_files(self, files: tuple[int, ...], now_ms: int) -> None:
        """The next answer names these, and does not need those of the last one any more."""
        self._responses.named += len(files) - len(self.named_files)
        self.named_files, self.named_ms = files, now_ms

    @property
    def may_name_files(self) -> bool:
        """Whether descriptors are left for files that answers name."""
        return self._responses.may_name_files

    def when_sent(self, callback: Callable[[], None]) -> None:
        """Run this once the peer's socket has all of the answer; now, if that is so."""
        if self._output:
            self._on_sent = callback
        else:
            callback()

    def mute(self, ms: int) -> None:
        """Handle nothing further for so long, once the answer that is being sent is out."""
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(ms / 1000, self._unmute)

    def go_on(self) -> None:
        """It is this connection's turn again."""
        self.rests = False
        self._continue()

    def _unmute(self) -> None:
        self._muted = None
        self._continue()

    def _continue(self) -> None:
        if self._blocked() or not self.is_open:
            return
        try:
            if self._buffer is not None:
                self._pump()
            elif not self._reading:
                self.read_again()
        except BadFrameError as error:
            self._close_bad(error)

    def _flush(self) -> None:
        output = self._output
        try:
            while output:
                piece = output[0]
                if isinstance(piece, tuple):
                    self._send_region(piece)
                    continue
                sent = self._send_bytes(piece, socket.MSG_MORE if len(output) > 1 else 0)
                if sent == len(piece):
                    output.popleft()
                else:
                    output[0] = memoryview(piece)[sent:]
        except (BlockingIOError, InterruptedError):
            self._wait_for_peer()
            return
        except OSError:
            self.close()
            return
        if self._writing:
            self._stop_writing()
            self._responses.release(self)
            if self._on_sent is not None:
                callback, self._on_sent = self._on_sent, None
                callback()

    def _send_region(self, region: Region) -> None:
        fd, position, length = region
        sent = self._send_file(fd, position, length) if length else 0
        if sent < length:
            if sent == 0:
                raise OSError(f"log file ended {length} bytes early at position {position}")
            self._output[0] = (fd, position + sent, length - sent)
            return
        self._output.popleft()

    def _sendfile(self, fd: int, position: int, length: int) -> int:
        return os.sendfile(self._fd, fd, position, min(length, _SENDFILE_CHUNK))

    def _wait_for_peer(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        if self._output:
            files = sum(isinstance(piece, tuple) for piece in self._output)
            size = sum(len(piece) for piece in self._output if not isinstance(piece, tuple))
            self._responses.hold(self, size, files)

    def _on_writable(self) -> None:
        self.last_active_ms = self._context.clock.monotonic_ms()
        self._flush()
        self._continue()

    def close_slow(self) -> None:
        """Answers that wait for their peers take too much memory, and this peer has been the slowest."""
        self._owner.was_too_slow(self)
        self.close()

    def has_not_begun(self) -> bool:
        """Whether what is held is a request that is not whole yet, or is put off."""
        return self._held > 0 and (self._is_put_off or not self._blocked())

    def close_holder(self) -> None:
        """Requests that have not begun take too much memory, and this one must go."""
        self._owner.held_too_much(self)
        self.close()

    # Life

    def admit(self) -> None:
        """The client is known from now on: what it sends counts with what other clients send."""
        self._requests.forget(self)
        self._requests = self._context.requests
        if self._held:
            self._requests.hold(self, self._held)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def read_again(self) -> None:
        """Read what the peer sends, unless that is so already."""
        if not self._reading and self.is_open:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)
            if self._tls is not None and self._tls.pending:
                self._loop.call_soon(self._read_pending)

    def _read_pending(self) -> None:
        """Read the bytes that TLS has decrypted already: the socket does not report them."""
        if self._reading:
            self._on_readable()

    def _close_bad(self, error: BadFrameError) -> None:
        self._owner.was_refused(self, str(error))
        self.close()

    def waiting_requests(self) -> int:
        """Whole requests that were read and are not handled yet."""
        if self._buffer is None:
            return 0
        count, position = 0, self._start
        while position + 4 <= self._end:
            position += 4 + int.from_bytes(self._buffer[position : position + 4], "big")
            count += position <= self._end
        return count

    def close(self) -> None:
        """Close now; what has not been sent is dropped. Safe to call again."""
        if not self.is_open:
            return
        self.is_open = False
        self._pause_reading()
        self._stop_writing()
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._requests.forget(self)
        self._responses.release(self)
        self.turns.forget(self)
        (self._sock if self._tls is None else self._tls).close()
        self._output.clear()
        self.name_files((), self.named_ms)
        self._buffer, self._start, self._end, self._held = None, 0, 0, 0
        self._count_held()
        self._on_sent = None
        abandoned, self.on_abandoned = self.on_abandoned, None
        if abandoned is not None:
            abandoned()
        self._owner.closed(self)
