"""One blocking connection to one broker.

A broker answers the requests of a connection in order, so responses are matched by position, and the correlation id is
only checked. After any failure the connection is closed, because a partial frame cannot be resumed.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from suiro import __version__
from suiro.client.error_codes import raise_for
from suiro.client.security import authenticate, tls_context
from suiro.client.settings import ClientSettings
from suiro.clock import Clock
from suiro.errors import (
    BrokenConnectionError,
    BrokerFailureError,
    ConfigError,
    HostNotFoundError,
    SuiroError,
    UnsupportedVersionError,
    UsageError,
)
from suiro.foundation.types import TopicPartition
from suiro.protocol.fields import MAX_STRING_BYTES
from suiro.protocol.frame_check import check_counts, layout
from suiro.protocol.messages import (
    API_KEYS,
    API_NAMES,
    ErrorCode,
    read_response,
    request_class,
    write_request,
)

K = TypeVar("K")
V = TypeVar("V")
Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # API key, version, correlation id
_CORRELATION = struct.Struct(">i")
_UNSUPPORTED = ErrorCode.unsupported_version.to_bytes(2, "big")
_LEFT = select.POLLHUP | getattr(select, "POLLRDHUP", 0)


class Connection:
    """Made by `open`. Not thread-safe."""

    def __init__(self, connected: socket.socket, *, host: str, port: int, settings: ClientSettings, clock: Clock):
        self.address = f"{host}:{port}"
        self.closed = False
        self._socket = connected
        self._settings = settings
        self._clock = clock
        self._versions: dict[int, tuple[int, int]] = {}
        self._features: dict[str, int] = {}
        self._in_flight: deque[tuple[int, int, int]] = deque()  # API key, version, correlation id
        self._next_correlation_id = 0
        self._answers = 0
        self._has_flags = not isinstance(connected, ssl.SSLSocket)

    @classmethod
    def open(cls, host: str, port: int, *, settings: ClientSettings, clock: Clock, deadline_ms: int) -> Connection:
        """Connects, secures, authenticates, and learns which versions the broker speaks.

        Raises `HostNotFoundError` where the name does not resolve, else `BrokenConnectionError`.
        """
        setup_deadline_ms = min(deadline_ms, clock.monotonic_ms() + settings.socket_connection_setup_timeout_ms)
        connected = _connect(host, port, settings, setup_deadline_ms - clock.monotonic_ms())
        connection = cls(connected, host=host, port=port, settings=settings, clock=clock)
        try:
            connection._negotiate(setup_deadline_ms)
            authenticate(connection, settings, setup_deadline_ms)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_local(self) -> bool:
        """Whether the other end has this machine's address, too."""
        try:
            return bool(self._socket.getpeername()[0] == self._socket.getsockname()[0])
        except OSError:
            return False

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return len(self._in_flight)

    def is_left(self) -> bool:
        """Whether the broker has closed the connection, as it does with idle ones. A request that found this out would
        count as one whose answer is lost."""
        if self._in_flight:
            return False
        poll = select.poll()
        poll.register(self._socket, _LEFT)
        return bool(poll.poll(0))

    def version(self, api: str, lowest: int, highest: int) -> int:
        """The highest version both sides speak. Raises `UnsupportedVersionError`."""
        theirs = self._versions.get(API_KEYS[api])
        if theirs is None:
            raise UnsupportedVersionError(f"{self.address} does not serve {api}")
        chosen = min(highest, theirs[1])
        if chosen < max(lowest, theirs[0]):
            raise UnsupportedVersionError(
                f"{self.address} serves {api} in versions {theirs[0]} to {theirs[1]}, "
                f"this client needs one of {lowest} to {highest}"
            )
        return chosen

    def request(self, api: str, lowest: int, highest: int, /, **fields: Any) -> Any:
        """Returns a request of `version`, made by `build`. Raises `UnsupportedVersionError`."""
        return build(request_class(API_KEYS[api], self.version(api, lowest, highest)), **fields)

    def feature(self, name: str) -> int:
        """The level that the cluster has finalized of a feature; 0 where it does not have it."""
        return self._features.get(name, 0)

    def call(self, request: Any, *, deadline_ms: int) -> Any:
        """Sends a kio request and returns its kio response."""
        try:
            self.send(request, deadline_ms=deadline_ms)
            return self.receive(deadline_ms=deadline_ms)
        except BaseException:
            self.close()  # also when interrupted: its response would be taken for that of the next request
            raise

    def send(self, request: Any, *, deadline_ms: int) -> None:
        """Sends a kio request; `receive` gets its response, after those of all requests sent before."""
        correlation_id = self.take_correlation_id()
        try:
            body = write_request(request, correlation_id=correlation_id, client_id=self._settings.client_id)
            # A broker closes the connection for a string that is too long, and the client would ask again and again.
            check_counts(body, request.__class__)
        except (struct.error, ValueError, OverflowError) as error:
            what = f"{API_NAMES[request.__api_key__]} version {request.__version__}"
            raise UsageError(f"{what} cannot carry what was asked for: {error}") from error
        self.send_frame([body], deadline_ms=deadline_ms)

    def matched(self, what: str, asked: Iterable[K] | None, answers: Iterable[tuple[K, V]]) -> dict[K, V]:
        """Returns the answers of a response by what each is about; `asked`: what it was asked for, None: all.

        Raises `BrokerFailureError` if the response leaves one out, or has another one, or one twice.
        """
        left, found = None if asked is None else dict.fromkeys(asked), dict[K, V]()
        for key, answer in answers:
            if key in found:
                raise self.failure(what, f"answered about {_named(key)} twice")
            if key is None or (left is not None and key not in left):
                raise self.failure(what, f"answered about {_named(key)}, which was not asked for")
            found[key] = answer
        for key in left or ():
            if key not in found:
                raise self.failure(what, f"left {_named(key)} out of its answer")
        return found

    def failure(self, what: str, did: str) -> BrokerFailureError:
        """The error for an answer that can be read, and that no broker gives."""
        return BrokerFailureError(f"{what}: {self.address} {did}", "UNKNOWN_SERVER_ERROR")

    def receive(self, *, deadline_ms: int) -> Any:
        """Returns the next kio response."""
        api_key, version, _ = self._next_request()
        frame = self.receive_frame(deadline_ms=deadline_ms)
        try:
            return read_response(frame, api_key, version)[1]
        except Exception as error:
            self.close()
            what = f"{API_NAMES[api_key]} version {version}"
            raise BrokenConnectionError(
                f"{self.address} answered {what} with bytes that cannot be read: {error!r}"
            ) from error

    def take_correlation_id(self) -> int:
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        return self._next_correlation_id

    def send_frame(self, parts: Sequence[Buffer], *, deadline_ms: int) -> None:
        """Sends one request frame, given without its length in parts, of which the first has the header."""
        size = sum(len(part) for part in parts)
        views = [memoryview(part) for part in (_LENGTH.pack(size), *parts)]
        if size <= 65_536 or not self._has_flags:
            views = [memoryview(b"".join(views))]
        until_ms = self._until(deadline_ms)
        try:
            while views:
                self._set_timeout(socket.SO_SNDTIMEO, until_ms)
                sent = self._socket.sendmsg(views) if self._has_flags else self._socket.send(views[0])
                # A signal or a full socket may cut it short.
                while views and sent >= len(views[0]):
                    sent -= len(views.pop(0))
                if sent:
                    views[0] = views[0][sent:]
        except OSError as error:
            raise self._broken("sending a request", error) from error
        except BaseException:
            self.close()  # interrupted, perhaps in the middle of a frame
            raise
        self._in_flight.append(_REQUEST.unpack_from(parts[0]))

    def receive_frame(self, *, deadline_ms: int) -> bytes:
        """Returns the next response frame without its length."""
        api_key, _, expected = self._next_request()
        until_ms = self._until(deadline_ms)
        try:
            self._set_timeout(socket.SO_RCVTIMEO, until_ms)
            (size,) = _LENGTH.unpack(self._receive_exactly(4, until_ms))
            if not 4 <= size <= self._settings.receive_message_max_bytes:
                raise OSError(f"a response of {size} bytes is announced: is this a Kafka port?")
            frame = self._receive_exactly(size, until_ms)
            self._in_flight.popleft()
            (correlation_id,) = _CORRELATION.unpack_from(frame)
            if correlation_id != expected:
                raise OSError(f"response {correlation_id} came where {expected} was expected")
        except OSError as error:
            raise self._broken(f"waiting for the response to {API_NAMES[api_key]}", error) from error
        self._answers += 1
        return frame

    def _next_request(self) -> tuple[int, int, int]:
        """The API key, version and correlation id of the request whose response comes next."""
        if self._in_flight:
            return self._in_flight[0]
        # Brokers at one address share a connection, which may break while another one is asked.
        if self.closed:
            raise BrokenConnectionError(f"the connection to {self.address} broke before the response")
        raise AssertionError("no request is waiting for a response")

    def interrupt(self) -> None:
        """Called from another thread: a waiting call fails immediately with a broken connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        self._in_flight.clear()
        self._socket.close()

    def _negotiate(self, deadline_ms: int) -> None:
        """ApiVersions 3; an older broker answers it in version 0 with UNSUPPORTED_VERSION (KIP-511)."""
        api_key = API_KEYS["api_versions"]
        request = request_class(api_key, 3)(client_software_name="suiro", client_software_version=__version__)
        self.send(request, deadline_ms=deadline_ms)
        frame = self.receive_frame(deadline_ms=deadline_ms)
        if frame[4:6] == _UNSUPPORTED:
            response = self.call(request_class(api_key, 0)(), deadline_ms=deadline_ms)
        else:
            try:
                response = read_response(frame, api_key, 3)[1]
            except Exception as error:
                raise BrokenConnectionError(
                    f"{self.address} did not answer ApiVersions as Kafka does; is this a Kafka port, and is "
                    f"security.protocol ({self._settings.security_protocol}) that port's?"
                ) from error
        raise_for(response.error_code, f"ask {self.address} for its API versions")
        self._versions = {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}
        finalized = getattr(response, "finalized_features", ())
        self._features = {item.name: item.max_version_level for item in finalized}

    def _until(self, deadline_ms: int) -> int:
        """When a frame must be sent or received as a whole."""
        return min(deadline_ms, self._clock.monotonic_ms() + self._settings.request_timeout_ms)

    def _set_timeout(self, option: int, until_ms: int) -> None:
        """Passes the remaining time to the kernel, so that one call can wait for a whole large response.

        After a call that gave only a part, it is passed again: the next call would begin the time anew.
        """
        left_ms = until_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError("no time is left")
        if not self._has_flags:
            self._socket.settimeout(left_ms / 1000)
            return
        self._socket.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", left_ms // 1000, left_ms % 1000 * 1000))

    def _receive_exactly(self, size: int, until_ms: int) -> bytes:
        """Receives into one `bytes` object, without an intermediate copy, unless the call is cut short."""
        if not self._has_flags:
            return self._receive_through_tls(size, until_ms)
        parts: list[bytes] = []
        while True:
            part = self._socket.recv(size, socket.MSG_WAITALL)
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
            if not size:
                return b"".join(parts)
            self._set_timeout(socket.SO_RCVTIMEO, until_ms)

    def _receive_through_tls(self, size: int, until_ms: int) -> bytes:
        buffer = bytearray(size)
        view, filled = memoryview(buffer), 0
        while True:
            count = self._socket.recv_into(view[filled:])
            if count == 0:
                raise ConnectionError("the broker closed the connection")
            filled += count
            if filled == size:
                return bytes(buffer)
            self._set_timeout(socket.SO_RCVTIMEO, until_ms)

    def _broken(self, doing: str, error: OSError) -> BrokenConnectionError:
        self.close()
        if isinstance(error, BlockingIOError | TimeoutError):
            reason = "no answer in time"
        else:
            reason = str(error) or type(error).__name__
            if self._answers <= 1:  # that to ApiVersions, which needs no login
                reason += f"; is security.protocol ({self._settings.security_protocol}) that port's?"
        return BrokenConnectionError(f"connection to {self.address} broke while {doing}: {reason}")


class Change:
    """A request that changes something, and may have to be sent again."""

    def __init__(self) -> None:
        self.may_be_done = False
        """The answer to an earlier attempt was lost, so the change may be done already."""

    def call(self, connection: Connection, request: Any, *, deadline_ms: int) -> Any:
        try:
            return connection.call(request, deadline_ms=deadline_ms)
        except BrokenConnectionError:
            self.may_be_done = True
            raise


def build(message_class: Any, **fields: Any) -> Any:
    """Returns a kio message of those fields that its version has. An array may be a list, with its structures as
    dictionaries."""
    known = {field.name: field.nested for field in layout(message_class)}
    return message_class(**{name: _value(known[name], value) for name, value in fields.items() if name in known})


def each_partition(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """Yields what a response has about each partition."""
    for topic in topics:
        for item in topic.partitions:
            yield (topic.name, item.partition_index), item


def _named(key: object) -> str:
    return f"{key[0]}-{key[1]}" if isinstance(key, tuple) else repr(key)


def _value(structure: Any, value: Any) -> Any:
    # A character has four bytes at most, so that most texts need no closer look.
    if isinstance(value, str) and len(value) > MAX_STRING_BYTES // 4:
        size = len(value.encode(errors="surrogatepass"))  # what cannot be encoded is refused when it is sent
        if size > MAX_STRING_BYTES:
            raise UsageError(
                f"{value[:40]!r}... has {size} bytes, and a text in a request has at most {MAX_STRING_BYTES}"
            )
    if not isinstance(value, list):
        return value
    return tuple(value) if structure is None else tuple(build(structure, **item) for item in value)


def _connect(host: str, port: int, settings: ClientSettings, timeout_ms: int) -> socket.socket:
    try:
        connected = socket.create_connection((host, port), timeout=max(timeout_ms, 1) / 1000)
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise BrokenConnectionError(f"looking up the host name {host!r} failed: {error.strerror}") from error
        raise HostNotFoundError(
            f"the host name {host!r} does not resolve ({error.strerror}); check bootstrap.servers, or the "
            "broker's advertised.listeners"
        ) from error
    except UnicodeError as error:
        raise ConfigError(
            f"no host has the name {host!r} ({error}); check bootstrap.servers, or the broker's advertised.listeners"
        ) from error
    except OSError as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise BrokenConnectionError(f"cannot connect to {host}:{port}: {reason}; is a broker running there?") from error
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.send_buffer_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        if settings.receive_buffer_bytes > 0:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        context = tls_context(settings)
        if context is None:
            connected.settimeout(None)  # deadlines are the kernel's: see _set_timeout
            return connected
        return context.wrap_socket(connected, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        connected.close()
        raise ConfigError(
            f"the certificate of {host}:{port} is not trusted ({error.verify_message}); give its authority as "
            "ssl.ca.location"
        ) from error
    except OSError as error:
        connected.close()
        hint = f"is security.protocol ({settings.security_protocol}) that port's?"
        raise BrokenConnectionError(f"TLS with {host}:{port} failed: {error}; {hint}") from error
    except SuiroError:
        connected.close()
        raise
