"""One client connection: frames in, responses out, on a plain non-blocking socket.

An asyncio transport copies every response; measured, that halves fetch throughput. So this class registers the
socket itself (`loop.add_reader/add_writer`), receives into a buffer that all connections share, and sends a
response as a list of pieces: `bytes`, or a region `(fd, position, length)` of a log file that goes from the page
cache to the socket with `os.sendfile`, untouched.

What is always true:
- Requests are handled one at a time in the order they came, and answered in that order, as Apache Kafka does. A
  client may send the next request before it has the answer; it stays in the buffer until its turn.
- While a request waits for its answer (a long poll, a group rebalance), or an answer for the peer to take it,
  nothing further is handled; and once `INPUT_LIMIT` bytes of requests wait, nothing further is read.
- Whatever the peer sends, only this connection can fall.
"""

from __future__ import annotations

import logging
import os
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from suiro.broker.security import ANONYMOUS, Session

logger = logging.getLogger(__name__)

Region: TypeAlias = tuple[int, int, int]
"""(file descriptor, position, length). The descriptor is a `log.FileHandle`, which stays open while it is held."""
Piece: TypeAlias = bytes | Region

INPUT_LIMIT = 1 << 20
"""Bytes of further requests that are kept while one is being answered. A single larger frame is read whole."""
SCRATCH_BYTES = 512 << 10
_SENDFILE_CHUNK = 1 << 30


class BadFrameError(Exception):
    """The peer sent something that is not a Kafka request. The message is for the log."""


class RequestSink(Protocol):
    """What the connection hands frames to: `dispatch.Dispatcher`."""

    def handle(self, connection: Connection, frame: memoryview) -> bool:
        """Take one request frame. False: its answer comes later through `Connection.answer`."""
        ...


class Connection:
    """See the module. `closed` runs once, however the connection ends."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        loop: AbstractEventLoop,
        scratch: memoryview,
        sink: RequestSink,
        max_request_bytes: int,
        now_ms: int,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._scratch = scratch
        self._sink = sink
        self._max_request_bytes = max_request_bytes
        self._on_close = on_close
        self._buffer: bytearray | None = None  # what was received and not yet handled, `_start.._end`
        self._start = 0
        self._end = 0
        self._output: deque[Piece] = deque()
        self._busy = False
        self._muted: TimerHandle | None = None
        self._reading = False
        self._writing = False
        self.is_open = True
        self.last_active_ms = now_ms
        self.on_abandoned: Callable[[], None] | None = None  # set while an answer is awaited
        self.client_software = ""
        self.authenticated = True
        self.sasl: object | None = None
        """What the SASL handlers remember between two requests of one authentication."""
        self.peer = _peer_name(sock)
        self.local_address: tuple[str, int] = sock.getsockname()[:2]
        self.session = Session(principal=ANONYMOUS, host=self.peer.rpartition(":")[0], listener="PLAINTEXT")
        self._resume_reading()

    # Input

    def _on_readable(self) -> None:
        try:
            self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # reset, or timed out: a peer that vanished
            self.close()
        except BadFrameError as error:
            logger.warning("closing connection from %s: %s", self.peer, error)
            self.close()

    def _receive(self) -> None:
        if self._buffer is None:
            size = self._sock.recv_into(self._scratch)
            if size == 0:
                self.close()
                return
            used = 0 if self._blocked() else self._consume(self._scratch[:size].toreadonly())
            if self.is_open and used < size:
                self._keep(self._scratch[used:size])
        else:
            self._make_room()
            size = self._sock.recv_into(memoryview(self._buffer)[self._end :])
            if size == 0:
                self.close()
                return
            self._end += size
            self._pump()
        if self.is_open and self._blocked() and self._end - self._start >= INPUT_LIMIT:
            self._pause_reading()

    def _blocked(self) -> bool:
        return self._busy or bool(self._output) or self._muted is not None

    def _consume(self, view: memoryview) -> int:
        """Handle whole frames from the front of `view` until one must wait. Returns the bytes used."""
        position, end = 0, len(view)
        while not self._blocked() and self.is_open and end - position >= 4:
            size = self._frame_size(view, position)
            if end - position - 4 < size:
                break
            position += 4 + size
            self._busy = True
            if self._sink.handle(self, view[position - size : position]):
                self._busy = False
        return position

    def _frame_size(self, view: memoryview, position: int) -> int:
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        if size < 8:
            raise BadFrameError(f"a frame of {size} bytes cannot be a Kafka request")
        if size > self._max_request_bytes:
            raise BadFrameError(
                f"a frame of {size} bytes is over socket.request.max.bytes = {self._max_request_bytes}"
            )
        return size

    def _make_room(self) -> None:
        assert self._buffer is not None
        if self._end == len(self._buffer):
            self._keep(memoryview(self._buffer)[self._start : self._end])

    def _keep(self, rest: memoryview) -> None:
        """Move what is not handled yet into a buffer of our own, with room for more.

        Room doubles up to the frame that is coming in, so that a peer that only claims a large frame does not
        get the memory for it.
        """
        held = len(rest)
        wanted = max(2 * held, 64 << 10)
        if held >= 4:
            frame = 4 + int.from_bytes(rest[:4], "big")
            if held < frame:
                wanted = min(wanted, max(frame, held + 4096))
        self._buffer = bytearray(wanted)
        self._buffer[:held] = rest
        self._start, self._end = 0, held

    def _pump(self) -> None:
        """Handle what the buffer holds, as far as it may be handled now."""
        if self._buffer is None:
            return
        used = self._consume(memoryview(self._buffer)[self._start : self._end].toreadonly())
        self._start += used
        if self._start >= self._end:
            self._buffer, self._start, self._end = None, 0, 0
        if not self._reading and not (self._blocked() and self._end - self._start >= INPUT_LIMIT):
            self._resume_reading()

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
        if not self.is_open:
            return
        self.send(pieces)
        if self._buffer is not None:
            self._loop.call_soon(self._continue)

    def mute(self, ms: int) -> None:
        """Handle nothing further for so long, once the answer that is being sent is out."""
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_later(ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self._continue()

    def _continue(self) -> None:
        if self._blocked() or not self.is_open:
            return
        try:
            self._pump()
        except BadFrameError as error:
            logger.warning("closing connection from %s: %s", self.peer, error)
            self.close()

    def _flush(self) -> None:
        output = self._output
        try:
            while output:
                piece = output[0]
                if isinstance(piece, bytes):
                    flags = socket.MSG_MORE if len(output) > 1 else 0
                    sent = self._sock.send(piece, flags)
                    if sent == len(piece):
                        output.popleft()
                    else:
                        output[0] = piece[sent:]
                else:
                    self._send_region(piece)
        except (BlockingIOError, InterruptedError):
            self._wait_for_peer()
            return
        except OSError:
            self.close()
            return
        if self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False

    def _send_region(self, region: Region) -> None:
        fd, position, length = region
        sent = os.sendfile(self._fd, fd, position, min(length, _SENDFILE_CHUNK)) if length else 0
        if sent < length:
            if sent == 0:
                raise OSError(f"log file ended {length} bytes early at position {position}")
            self._output[0] = (fd, position + sent, length - sent)
            return
        self._output.popleft()

    def _wait_for_peer(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        self._flush()
        self._continue()

    # Life

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _resume_reading(self) -> None:
        if not self._reading and self.is_open:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def close(self) -> None:
        """Close now; what has not been sent is dropped. Safe to call again."""
        if not self.is_open:
            return
        self.is_open = False
        self._pause_reading()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._muted is not None:
            self._muted.cancel()
            self._muted = None
        self._sock.close()
        self._output.clear()
        self._buffer, self._start, self._end = None, 0, 0
        abandoned, self.on_abandoned = self.on_abandoned, None
        if abandoned is not None:
            abandoned()
        self._on_close(self)


def _peer_name(sock: socket.socket) -> str:
    try:
        host, port = sock.getpeername()[:2]
    except OSError:
        return "a peer that is already gone"
    return f"{host}:{port}"
