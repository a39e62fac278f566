"""A pooler of connections in front of a Postgres, in transaction mode, as PgBouncer is.

A client keeps a connection of the server for one transaction. For the next one it gets another, if there is one: with
the settings, prepared statements and temporary tables of whoever had it before.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

CONNECTIONS = 4
_STARTUP = 196_608
_WITHOUT_TLS = (80_877_103, 80_877_104)  # SSLRequest, GSSENCRequest


@contextmanager
def pooled(dsn: str) -> Iterator[str]:
    """A DSN that leads to the same database through a pooler."""
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    with contextlib.closing(_Pool(parts)) as pool, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, pool), daemon=True).start()
        yield psycopg.conninfo.make_conninfo(
            host="127.0.0.1", port=listener.getsockname()[1], user=str(parts["user"]), dbname=str(parts["dbname"]),
            sslmode="disable", gssencmode="disable",
        )  # fmt: skip
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


class _Pool:
    def __init__(self, parts: dict[str, Any]) -> None:
        self._parts = parts
        self._free: deque[_Server] = deque(_Server(parts) for _ in range(CONNECTIONS))
        self._changed = threading.Condition()
        self.greeting = self._free[0].greeting

    def take(self, last: _Server | None) -> _Server:
        with self._changed:
            assert self._changed.wait_for(lambda: self._free, 30)
            for _ in range(len(self._free)):
                if self._free[0] is not last:
                    break
                self._free.rotate(-1)
            return self._free.popleft()

    def give_back(self, server: _Server, *, is_idle: bool) -> None:
        if not is_idle:  # its client has gone in the middle of a transaction
            server.socket.close()
            server = _Server(self._parts)
        with self._changed:
            self._free.append(server)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            for server in self._free:
                server.socket.close()


class _Server:
    """A connection of the server, through its start."""

    def __init__(self, parts: dict[str, Any]) -> None:
        host, port = str(parts.get("host") or "localhost"), int(parts.get("port") or 5432)
        if host.startswith("/"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(f"{host}/.s.PGSQL.{port}")
        else:
            self.socket = socket.create_connection((host, port))
        names = b"".join(
            word.encode() + b"\0" for word in ("user", str(parts["user"]), "database", str(parts["dbname"]))
        )
        self.socket.sendall(struct.pack(">ii", len(names) + 9, _STARTUP) + names + b"\0")
        self.greeting = b""
        while not self.greeting.endswith(b"Z\0\0\0\5I"):
            kind, message = _message(self.socket)
            assert kind != b"E", message
            self.greeting += message


def _accept(listener: socket.socket, pool: _Pool) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, pool), daemon=True).start()


def _serve(client: socket.socket, pool: _Pool) -> None:
    """One client. What it sends until the server is ready again is for one connection of the server."""
    with client, contextlib.suppress(OSError, EOFError):
        while True:
            (size, code) = struct.unpack(">ii", _exactly(client, 8))
            _exactly(client, size - 8)
            if code not in _WITHOUT_TLS:
                break
            client.sendall(b"N")
        # An answer is several messages: each would wait for the client's system to acknowledge the one before it.
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(pool.greeting)
        last: _Server | None = None
        while True:
            kind, message = _message(client)
            if kind == b"X":
                return
            server = last = pool.take(last)
            is_idle = False
            try:
                is_idle = _one_transaction(client, server, message)
            finally:
                pool.give_back(server, is_idle=is_idle)


def _one_transaction(client: socket.socket, server: _Server, first: bytes) -> bool:
    """Whether it has ended: the client has gone otherwise."""
    ended, gone = threading.Event(), threading.Event()

    def answers() -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, message = _message(server.socket)
                if kind == b"Z" and message.endswith(b"I"):
                    ended.set()
                    client.sendall(message)
                    return
                client.sendall(message)
        gone.set()

    server.socket.sendall(first)
    answering = threading.Thread(target=answers, daemon=True)
    answering.start()
    client.settimeout(0.002)
    try:
        while not ended.is_set() and not gone.is_set():
            try:
                peeked = client.recv(1, socket.MSG_PEEK)
            except TimeoutError:
                continue
            if ended.is_set():
                break
            if not peeked:
                return False
            client.settimeout(None)
            kind, message = _message(client)
            if kind == b"X":
                return False
            server.socket.sendall(message)
            client.settimeout(0.002)
        answering.join()
        return ended.is_set()
    finally:
        client.settimeout(None)


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    return head[:1], head + _exactly(source, struct.unpack(">i", head[1:])[0] - 4)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
