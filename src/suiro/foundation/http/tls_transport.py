"""The transport of a TLS connection, which knows how much its client has not taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

PART_BYTES = 64 * 1024


class TlsTransport(asyncio.Transport):
    """Gives TLS a part of a response at a time. The event loop's own transport takes all of it at once, and does not
    count what then waits for the socket."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._waiting: deque[memoryview] = deque()
        self._closes = False
        transport.set_write_buffer_limits(high=PART_BYTES)

    def pass_on(self) -> bool:
        """Pass on what there is room for. Returns whether there is room for more. The protocol calls it when it may
        write again."""
        has_room = True
        # TLS may call this again from within `write`.
        while has_room and self._waiting:
            data = self._waiting.popleft()
            if len(data) > PART_BYTES:
                self._waiting.appendleft(data[PART_BYTES:])
            self._transport.write(data[:PART_BYTES])
            has_room = self._transport.get_write_buffer_size() < PART_BYTES
        if self._closes and not self._waiting:
            self._transport.close()
        return has_room

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if data and not self._transport.is_closing():
            self._waiting.append(memoryview(data))
            if self._transport.get_write_buffer_size() < PART_BYTES:
                self.pass_on()

    def close(self) -> None:
        self._closes = True
        if self._waiting and not self._transport.is_closing():
            self._transport.pause_reading()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._waiting.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._closes or self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._waiting)) + self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._closes:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
