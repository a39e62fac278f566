"""A broker with a remote tier in this thread, a store that fails when told to, and records to fill both with."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from suiro.broker import Broker, BrokerConfig
from suiro.broker.storage.topics import Partition, Topic
from suiro.clock import ManualClock
from suiro.config import NodeSettings
from suiro.log.tier import DirectoryStore, RemoteStore, RemoteStoreError
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import Record, control_type, decode_batch, encode_batch
from support.brokers import abandon

T = TypeVar("T")

TOPIC = "flights"
NOW_MS = 1_000_000_000_000
SEGMENT_BYTES = 400
DEADLINE_S = 30.0
TIERED = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "index.interval.bytes": "0",
    "retention.ms": "-1",
    "local.retention.ms": "0",
}


class Held:
    """Calls of one kind, which wait in the store's threads until they may go on."""

    def __init__(self, operation: str, of: Callable[[str], bool]) -> None:
        self.operation, self.of = operation, of
        self.names: list[str] = []
        """Objects that were asked for so far."""
        self._may_go = threading.Event()

    def wait(self, name: str) -> None:
        self.names.append(name)
        self._may_go.wait(DEADLINE_S)

    def release(self) -> None:
        self._may_go.set()


class ScriptedStore:
    """A store that does what it is told before it does its work: fail, wait, or stop for good.

    `before(operation, name)` is called in the store's thread; what it raises is what the store raises. `operations`
    are all calls so far.
    """

    def __init__(self, store: RemoteStore) -> None:
        self.store = store
        self.before: Callable[[str, str], None] = lambda operation, name: None
        self.operations: list[tuple[str, str]] = []
        self.held: list[Held] = []

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self._step("put", name)
        self.store.put(name, self._sent(name, chunks))

    def _sent(self, name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self._step("sent", name)

    def get(self, name: str, position: int, length: int) -> bytes:
        self._step("get", name)
        return self.store.get(name, position, length)

    def size(self, name: str) -> int | None:
        self._step("size", name)
        return self.store.size(name)

    def delete(self, name: str) -> None:
        self._step("delete", name)
        self.store.delete(name)

    def fail(self, *operations: str) -> None:
        def before(operation: str, name: str) -> None:
            if operation in operations:
                raise RemoteStoreError(f"the store refuses to {operation} {name}")

        self.before = before

    def work_again(self) -> None:
        self.before = lambda operation, name: None

    def hold(self, operation: str, of: Callable[[str], bool] = lambda name: True) -> Held:
        """From now on, calls of this kind for such objects wait. They go on when the node stops, at the latest."""
        self.held.append(Held(operation, of))
        return self.held[-1]

    def stop_at(self, number: int) -> threading.Event:
        """Never answer the call with this number, counted from now on, nor any later one. Set once it came."""
        reached, begin = threading.Event(), len(self.operations)

        def before(operation: str, name: str) -> None:
            if len(self.operations) > begin + number:
                reached.set()
                threading.Event().wait()

        self.before = before
        return reached

    def _step(self, operation: str, name: str) -> None:
        self.operations.append((operation, name))
        self.before(operation, name)
        for held in self.held:
            if held.operation == operation and held.of(name):
                held.wait(name)


class TieredNode:
    """A broker on a loop that runs only while a test waits for something."""

    def __init__(self, directory: Path, *, clock: ManualClock | None = None, **settings: str) -> None:
        self.data = directory / "node"
        self.objects = directory / "store"
        self.store = ScriptedStore(DirectoryStore(self.objects))
        self.clock = clock or ManualClock(wall_ms=NOW_MS)
        self.settings = {
            "remote.log.storage.system.enable": "true",
            "remote.log.manager.task.interval.ms": "5",
            "remote.log.manager.task.retry.backoff.ms": "1",
            "remote.log.manager.task.retry.backoff.max.ms": "5",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.start()

    def start(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.broker = Broker(
            BrokerConfig(data=self.data, port=0, settings=NodeSettings.from_mapping(self.settings)),
            loop=self.loop,
            clock=self.clock,
        )
        self.broker.remote_store = self.store
        self.broker.start()

    def stop(self) -> None:
        for held in self.store.held:
            held.release()
        self.broker.stop()
        self.loop.close()

    def kill(self) -> None:
        """What kill -9 leaves: nothing more is written. A thread in the middle of a call stays there."""
        tier = self.tier
        for tiered in tier._tiered.values():
            if tiered.task is not None:
                tiered.task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        abandon(self.broker)
        self.loop.close()
        self.store = ScriptedStore(self.store.store)

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def tier(self) -> Any:
        assert self.broker.tier is not None
        return self.broker.tier

    @property
    def topic(self) -> Topic:
        found = self.broker.topics.topic(TOPIC)
        assert found is not None
        return found

    @property
    def partition(self) -> Partition:
        found = self.broker.topics.partition(TOPIC, 0)
        assert found is not None
        return found

    @property
    def log(self) -> Any:
        return self.partition.log

    @property
    def copied(self) -> int:
        return int(self.tier.highest_offset(self.partition))

    @property
    def gets(self) -> int:
        """How often the store was asked for a part of an object."""
        return sum(1 for operation, _ in self.store.operations if operation == "get")

    def stored(self, ending: str = "") -> list[str]:
        """Names of the objects in the store."""
        found = (path.relative_to(self.objects).as_posix() for path in self.objects.rglob("*") if path.is_file())
        return sorted(name for name in found if name.endswith(ending))

    def create(self, **configs: str) -> None:
        own = {name.replace("_", "."): value for name, value in configs.items()}
        self.broker.create_topic(TOPIC, partitions=1, configs={**TIERED, **own})

    def alter(self, **configs: str) -> None:
        own = {name.replace("_", "."): value for name, value in configs.items()}
        self.broker.topics.alter_configs(self.topic, {**self.topic.configs, **own})

    def fill(self, count: int = 20, **configs: str) -> None:
        """The topic with so many records. Its closed segments are here and in the store."""
        self.create(**configs)
        self.produce(count)
        self.until_copied()

    def only_in_store(self, count: int = 20, **configs: str) -> None:
        """The same, but closed segments are only in the store."""
        self.fill(count, **configs)
        assert self.log.retention.apply() > 0

    def produce(self, count: int, *, first: int | None = None, timestamp: int | None = None) -> None:
        """`count` batches of one record, `value-<offset>`, each a millisecond after the last, ten seconds ago."""
        for _ in range(count):
            offset = self.log.log_end_offset
            at = self.clock.wall_ms() - 10_000 + offset if timestamp is None else timestamp
            record = Record(
                offset=0, timestamp=at, key=b"key-%d" % (offset % 5), value=b"value-%d" % offset + b"." * 40
            )
            self.log.append(encode_batch([record]))

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Run the loop until the condition holds; what it gave."""

        async def waiting() -> T:
            ends = time.monotonic() + DEADLINE_S
            while not (found := condition()):
                if time.monotonic() > ends:
                    raise AssertionError(f"{what} did not come true within {DEADLINE_S} s")
                await asyncio.sleep(0.002)
            return found

        return self.loop.run_until_complete(waiting())

    def result(self, awaited: Awaitable[T]) -> T:
        """Run the loop until it is there."""
        return self.loop.run_until_complete(asyncio.wait_for(awaited, DEADLINE_S))

    def until_copied(self) -> None:
        """All closed segments are in the store, and no work is left."""
        end = self.log.segments[-1].base_offset
        self.until(lambda: self.copied == end - 1, f"a copy up to {end}")
        self.until_idle()

    def until_idle(self) -> None:
        self.tier.work()
        self.until(
            lambda: all(tiered.task is None and not tiered.remote.garbage for tiered in self.tier._tiered.values()),
            "the end of the tier's work",
        )

    def read(self, offset: int, *, max_bytes: int = 1 << 20, read_committed: bool = False) -> Any:
        """Local or remote, as a fetch does."""
        from suiro.log import InRemoteTierError

        try:
            return self.log.read(offset, max_bytes=max_bytes, read_committed=read_committed)
        except InRemoteTierError:
            read = self.tier.read(self.partition, offset, max_bytes=max_bytes, read_committed=read_committed)
            return self.result(read)

    def read_all(self, *, max_bytes: int = 1 << 20) -> list[str]:
        """Every record as `offset:value`, markers as `offset:commit`, reading on as a consumer does."""
        offset, found = self.log.log_start_offset, []
        while offset < self.log.log_end_offset:
            result = self.read(offset, max_bytes=max_bytes)
            data = b"".join(os.pread(fd, length, position) for fd, position, length in result.regions)
            before = offset
            for position, header in iter_headers(data):
                for record in decode_batch(data, position):
                    text = control_type(record) if header.is_control else (record.value or b"").decode()
                    if record.offset >= offset:
                        found.append(f"{record.offset}:{(text or '').rstrip('.')}")
                offset = header.next_offset
            assert offset > before, f"nothing at offset {offset}"
        return found


def base_of(name: str) -> int:
    """The first offset of the segment of which an object in the store is a part."""
    return int(name.rpartition("/")[2][:20])


def expected(first: int, end: int) -> list[str]:
    return [f"{offset}:value-{offset}" for offset in range(first, end)]
