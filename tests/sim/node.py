"""The node in the world: the real `Broker`, with its clock, its sockets and its timers given by the simulation.

Its files are real files (in memory where the system has such a place), because what is left of them after `kill -9`
is the point. It dies between two events, or in the middle of one: before, within or after a write of a batch. What
was written stays, as the operating system keeps it. A write may also fail, as on a full disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import suiro.broker.net.connection
import suiro.broker.net.server
import suiro.broker.node
import suiro.client.connection
import suiro.log.segment
from suiro.broker import Broker, BrokerConfig
from suiro.broker.settings.features import FeatureUpdate, UpdateType
from suiro.config import NodeSettings
from suiro.log.files import FileHandle
from suiro.spark.committer import MARKER_TOPIC
from tests.sim.network import HOST, PORT, Network, ServerSocket
from tests.sim.world import Timer, World

OUT, AUDIT, SOURCE = "out", "audit", "source"
TOPICS = {OUT: 2, AUDIT: 1, SOURCE: 2, MARKER_TOPIC: 1}
SETTINGS = NodeSettings(offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1)
_SELDOM_MS = 600_000


class NodeKilled(BaseException):
    """The node's process is gone, in the middle of what it did."""


class Loop:
    """What the broker uses of an event loop, on the world's clock."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._world = node.world
        self._readers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}

    def time(self) -> float:
        return self._world.now / 1000

    def call_later(self, seconds: float, action: Callable[..., Any], *arguments: Any) -> Timer:
        return self._world.after(round(seconds * 1000), self._node.run, self, action, arguments)

    def call_at(self, when: float, action: Callable[..., Any], *arguments: Any) -> Timer:
        return self.call_later(when - self.time(), action, *arguments)

    def call_soon(self, action: Callable[..., Any], *arguments: Any) -> Timer:
        return self.call_later(0, action, *arguments)

    def add_reader(self, fd: int, action: Callable[..., None], *arguments: Any) -> None:
        self._readers[fd] = action, arguments
        if self._node.has_data(fd):
            self.call_soon(self.readable, fd)

    def remove_reader(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def readable(self, fd: int) -> None:
        action, arguments = self._readers.get(fd, (None, ()))
        if action is not None:
            action(*arguments)

    def run_in_executor(self, executor: object, work: Callable[..., Any], *arguments: Any) -> Finished:
        return Finished(work(*arguments))

    def create_task(self, work: Coroutine[Any, Any, Any]) -> Finished:
        """Nothing that the broker awaits here takes time, so the task is over at once."""
        try:
            work.send(None)
        except StopIteration as stop:
            return Finished(stop.value)
        raise AssertionError("a task of the broker waits for something that the simulation does not have")

    def is_running(self) -> bool:
        return True


class Finished:
    """A future that is done, also to be awaited."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def __await__(self) -> Iterator[Any]:
        return self._result
        yield

    def done(self) -> bool:
        return True

    def cancel(self) -> None: ...


class ListeningSocket:
    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._fd = node.network.new_fd()

    def fileno(self) -> int:
        return self._fd

    def getsockname(self) -> tuple[str, int]:
        return HOST, PORT

    def accept(self) -> tuple[ServerSocket, tuple[str, int]]:
        if not self._node.backlog:
            raise BlockingIOError
        return self._node.backlog.pop(0), ("client", 1)

    def close(self) -> None: ...


class SimulatedNode:
    """Starts, is killed, starts again in the same directory."""

    def __init__(self, world: World, network: Network, directory: Path) -> None:
        self.world, self.network, self.directory = world, network, directory
        network.node = self
        self.broker: Broker | None = None
        self.backlog: list[ServerSocket] = []
        self.starts = 0
        self.writes = 0
        self.before_write: Callable[[SimulatedNode], str] = lambda node: ""
        """Asked at each write: "" to let it be, or "before", "within", "after" to die there, or "full"."""
        self.on_killed: Callable[[], None] = lambda: None
        self._loop: Loop | None = None
        self._sockets: dict[int, ServerSocket] = {}
        self._listening: ListeningSocket | None = None

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    def start(self) -> None:
        assert self.broker is None
        self._loop = loop = Loop(self)
        config = BrokerConfig(data=self.directory, host=HOST, port=PORT, settings=SETTINGS)
        broker = Broker(config, loop=loop, clock=self.world)  # type: ignore[arg-type]
        self.starts += 1
        try:
            with _living_in(self):
                broker.start()
        except NodeKilled:
            self.world.tell("the node dies while it starts")
            broker.abandon()
            self.on_killed()
            return
        self.broker = broker
        self.world.tell("the node is up")

    def kill(self, why: str = "") -> None:
        broker, self.broker = self.broker, None
        if broker is None:
            return
        self.world.tell("the node is killed{}", why and f" {why}")
        self._loop = None
        broker.abandon()
        self._sockets.clear()
        self.backlog.clear()
        self.on_killed()

    def stop(self) -> None:
        broker, self.broker = self.broker, None
        assert broker is not None
        self._loop = None
        broker.stop()

    # The world's side

    def run(self, loop: Loop, action: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """A turn of the node, unless it is of one that died."""
        if loop is self._loop:
            try:
                with _living_in(self):
                    action(*arguments)
            except NodeKilled as killed:
                self.kill(str(killed))

    def readable(self, fd: int) -> None:
        if self._loop is not None:
            self.run(self._loop, self._loop.readable, (fd,))

    def has_data(self, fd: int) -> bool:
        found = self._sockets.get(fd)
        return found is not None and found.has_data

    def accept(self, sock: ServerSocket) -> None:
        self.backlog.append(sock)
        self._sockets[sock.fileno()] = sock
        assert self._listening is not None
        self.readable(self._listening.fileno())

    def listen(self) -> ListeningSocket:
        self._listening = ListeningSocket(self)
        return self._listening

    # The disk's side

    def write(self, handle: FileHandle, buffers: Sequence[bytes | memoryview], position: int, size: int) -> None:
        """A batch goes into a log file."""
        self.writes += 1
        fate = self.before_write(self)
        if fate == "before":
            raise NodeKilled("before a write")
        if fate == "full":
            self.world.tell("the node's disk refuses a write")
            raise OSError(28, "No space left on device")
        if fate == "within":
            torn = b"".join(buffers)[: self.world.random.randrange(1, size)]
            os.pwrite(handle, torn, position)
            raise NodeKilled(f"within a write, {len(torn)} of {size} bytes are in the file")
        _write_all(handle, buffers, position, size)
        if fate == "after":
            raise NodeKilled("after a write")


_write_all = suiro.log.segment.write_all
_inhabitants: list[SimulatedNode] = []


@contextmanager
def _living_in(node: SimulatedNode) -> Iterator[None]:
    _inhabitants.append(node)
    try:
        yield
    finally:
        _inhabitants.pop()


@contextmanager
def edges_of(network: Network) -> Iterator[None]:
    """The places where client, broker and log touch the operating system lead into the simulation meanwhile."""

    def write(handle: FileHandle, buffers: Sequence[bytes | memoryview], position: int, size: int) -> None:
        (_inhabitants[-1].write if _inhabitants else _write_all)(handle, buffers, position, size)

    def send_file(self: Any, fd: int, position: int, length: int) -> int:
        return int(self._sock.send(os.pread(fd, length, position)))

    def bind(host: str, port: int, *, advice: str) -> ListeningSocket:
        return _inhabitants[-1].listen()

    places: list[tuple[Any, str, Any]] = [
        (suiro.client.connection, "_connect", network.connect),
        (suiro.broker.net.server, "bind_socket", bind),
        (suiro.broker.net.connection.Connection, "_sendfile", send_file),
        (suiro.log.segment, "write_all", write),
        # Nothing is deleted here and no certificate changes: looking every second would be most of all events.
        (suiro.broker.node, "_DELETED_FILES_CHECK_MS", _SELDOM_MS),
        (suiro.broker.node, "_CERTIFICATE_CHECK_MS", _SELDOM_MS),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in places]
    for place, name, replacement in places:
        setattr(place, name, replacement)
    try:
        yield
    finally:
        for place, name, original in before:
            setattr(place, name, original)


def memory_directory() -> str | None:
    """Where files are in memory, if the system has such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Template:
    """A stopped node's directory with the topics in it, copied for every seed: making it anew takes longer.

    `transaction_version` is the cluster's level of that feature: 2, or 1 for the rules before KIP-890's second part.
    """

    def __init__(self, *, transaction_version: int) -> None:
        self.transaction_version = transaction_version
        self._home = tempfile.TemporaryDirectory(prefix="suiro-sim-", dir=memory_directory())
        self._first = Path(self._home.name) / "template"
        self._copies = 0
        world = World("template")
        network = Network(world, _calm())
        node = SimulatedNode(world, network, self._first)
        with edges_of(network):
            node.start()
            assert node.broker is not None
            level = FeatureUpdate(
                name="transaction.version", level=transaction_version, update_type=UpdateType.SAFE_DOWNGRADE
            )
            node.broker.features.update([level], validate_only=False)
            for name, partitions in TOPICS.items():
                node.broker.create_topic(name, partitions=partitions)
            node.broker.internal_topic("__consumer_offsets")
            node.broker.internal_topic("__transaction_state")
            node.stop()

    @contextmanager
    def copy(self) -> Iterator[Path]:
        self._copies += 1
        path = self._first.with_name(f"seed-{self._copies}")
        shutil.copytree(self._first, path)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _calm() -> Any:
    from tests.sim.network import Troubles

    return Troubles()
