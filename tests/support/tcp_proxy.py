"""A TCP proxy between a client and a broker that loses, cuts or holds the one response a test names, or is down."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal, NamedTuple

from suiro.protocol.messages import API_NAMES

Action = Literal["refuse", "lose", "cut", "hold"]


class _Fault(NamedTuple):
    api: str
    skip: int
    action: Action


class _Planned(NamedTuple):
    """What happens to a response."""

    action: Action | None
    api: str
    version: int


class TcpProxy:
    """Forwards everything, apart from the faults planned with `plan`.

    - refuse: the request never reaches the broker, the connection closes
    - lose: the broker does what it was asked, the answer never comes, the connection closes
    - cut: half of the answer comes, then the connection closes
    - hold: the answer comes once `release` is called, or never (`lose_held`); `held` is set when it is here

    While it is `down` every connection is cut and no new one is made. `rewrite` may change each response: it gets the
    API, the version and the frame without its length.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.happened: list[str] = []
        self.asked: Counter[tuple[str, int]] = Counter()
        """How often each API was asked, by its version."""
        self.held = threading.Event()
        self.refusals = 0
        self.rewrite: Callable[[str, int, bytes], bytes] | None = None
        self._down = self._held_is_lost = False
        self._faults: list[_Fault] = []
        self._connect = socket.create_connection  # as it is before a test redirects it
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def plan(self, api: str, action: Action, *, skip: int = 0) -> None:
        """The fault befalls one request of `api`, after `skip` of them went well."""
        with self._lock:
            self._faults.append(_Fault(api, skip, action))

    def release(self) -> None:
        self._released.set()

    def lose_held(self) -> None:
        """Instead of `release`: the answer never comes, the connection closes."""
        self._held_is_lost = True
        self._released.set()

    def down(self) -> None:
        with self._lock:
            self._down = True
            cut, self._sockets = self._sockets, []
        for each in cut:
            _close(each)

    def up(self) -> None:
        with self._lock:
            self._down = False

    def close(self) -> None:
        self._released.set()
        with self._lock:
            self._down = True
            _close(self._listener, *self._sockets)
        self._accepting.join()

    def redirect(self, connect: Callable[..., socket.socket]) -> Callable[..., socket.socket]:
        """A `socket.create_connection` that ends here where it would end at the broker."""

        def redirected(address: tuple[str, int], *args: float, **kwargs: float) -> socket.socket:
            return connect(self.address if address == self.target else address, *args, **kwargs)

        return redirected

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = self._reach_broker()
            with self._lock:
                if broker is None or self._down:
                    self.refusals += 1
                    _close(*filter(None, (client, broker)))
                    continue
                self._sockets += (client, broker)
            planned: deque[_Planned] = deque()
            threading.Thread(target=self._requests, args=(client, broker, planned), daemon=True).start()
            threading.Thread(target=self._responses, args=(client, broker, planned), daemon=True).start()

    def _reach_broker(self) -> socket.socket | None:
        try:
            return None if self._down else self._connect(self.target)
        except OSError:
            return None  # it is not there: neither are we

    def _requests(self, client: socket.socket, broker: socket.socket, planned: deque[_Planned]) -> None:
        while (frame := _read_frame(client)) is not None:
            api, version = struct.unpack_from(">hh", frame, 4)
            action = self._fault_for(API_NAMES[api], version)
            if action == "refuse":
                break
            planned.append(_Planned(action, API_NAMES[api], version))
            try:
                broker.sendall(frame)
            except OSError:
                break
        _close(client, broker)

    def _responses(self, client: socket.socket, broker: socket.socket, planned: deque[_Planned]) -> None:
        while (frame := _read_frame(broker)) is not None:
            action, api, version = planned.popleft()
            if self.rewrite is not None:
                frame = self.rewrite(api, version, frame[4:])
                frame = struct.pack(">i", len(frame)) + frame
            if action == "hold":
                self.held.set()
                self._released.wait()  # `close` releases, too
            if action == "lose" or (action == "hold" and self._held_is_lost):
                break
            try:
                client.sendall(frame[: len(frame) // 2] if action == "cut" else frame)
            except OSError:
                break
            if action == "cut":
                break
        _close(client, broker)

    def _fault_for(self, api: str, version: int) -> Action | None:
        with self._lock:
            self.asked[api, version] += 1
            for place, fault in enumerate(self._faults):
                if fault.api != api:
                    continue
                if fault.skip:
                    self._faults[place] = fault._replace(skip=fault.skip - 1)
                    return None
                del self._faults[place]
                self.happened.append(f"{fault.action} {api}")
                return fault.action
        return None


def _read_frame(source: socket.socket) -> bytes | None:
    """A whole frame with its length; None at the end."""
    head = _exactly(source, 4)
    if head is None:
        return None
    body = _exactly(source, struct.unpack(">i", head)[0])
    return None if body is None else head + body


def _exactly(source: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            part = source.recv(size - len(data))
        except OSError:
            return None
        if not part:
            return None
        data += part
    return bytes(data)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        each.close()
