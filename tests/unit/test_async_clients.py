"""Clients for programs on asyncio: the loop goes on while they wait, and answers are those of the blocking ones."""

from __future__ import annotations

import asyncio
import inspect
import struct
from typing import Any

import pytest

from suiro.client import Client, NewTopic
from suiro.errors import SchemaNotFoundError, UsageError
from suiro.foundation.threads import THREADS, InThreads
from suiro.protocol.records import Record, encode_batch
from suiro.registry import AsyncRegistryClient, RegistryClient, Schema, registry_client
from suiro.streams import AsyncReadOnlyStore, Materialized, ReadOnlyStore, StreamsBuilder, serdes
from suiro.testing import node
from suiro.views import AsyncViews

SCHEMA = Schema.from_json({"schema": '"string"'})


@pytest.mark.parametrize(
    ("blocking", "on_asyncio"), [(RegistryClient, AsyncRegistryClient), (ReadOnlyStore, AsyncReadOnlyStore)]
)
def test_every_question_is_there_with_the_same_parameters(blocking: Any, on_asyncio: Any) -> None:
    for name, function in inspect.getmembers(blocking, inspect.isfunction):
        if not name.startswith("_"):
            other = getattr(on_asyncio, name)
            assert inspect.iscoroutinefunction(other), name
            assert inspect.signature(other) == inspect.signature(function) or name == "close", name


def test_a_registry_is_asked_while_the_loop_goes_on() -> None:
    async def test() -> None:
        registry = AsyncRegistryClient(registry_client("mock://async-clients"))
        ids = await asyncio.gather(*(registry.register(f"s{n % 2}", SCHEMA) for n in range(20)))
        assert len(set(ids)) == 1
        assert await registry.schema(ids[0]) == SCHEMA
        assert sorted(await registry.subjects()) == ["s0", "s1"]
        with pytest.raises(SchemaNotFoundError):
            await registry.latest("none")

    asyncio.run(test())


def test_a_node_and_a_store_in_an_async_test() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key=serdes.string, value=serdes.string).group_by_key()
    words.count(materialized=Materialized.as_("counts"))
    topology = builder.build()

    async def test() -> None:
        async with node() as log:
            with Client(log.bootstrap_servers) as client:
                client.create_topics([NewTopic("app-counts-changelog", 1)])
                row = Record(offset=0, timestamp=1, key=b"a", value=struct.pack(">q", 3))
                client.produce({("app-counts-changelog", 0): encode_batch([row])})
            store = ReadOnlyStore(topology, "counts", application_id="app", bootstrap_servers=log.bootstrap_servers)
            async with AsyncReadOnlyStore(store) as counts:
                await counts.catch_up()
                first, rows = await asyncio.gather(counts.get("a"), counts.all())
                assert (first.value, rows.value) == (3, [("a", 3)])
                assert dict(counts.offsets) == {0: 1}
            with pytest.raises(UsageError, match="closed"):
                store.wait_for({0: 9})
        host, _, port = log.bootstrap_servers.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))

    asyncio.run(test())


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_the_fixture_works_in_async_tests(node: Any) -> None:
    with Client(node.bootstrap_servers) as client:
        assert client.metadata() == {}


def test_who_no_longer_follows_a_views_changes_leaves_the_connection() -> None:
    """By a cancelled task, and by an iterator that is closed."""

    async def test() -> None:
        left = asyncio.Queue[str]()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nid: 1\ndata: {}\n\n")
            await reader.read()
            left.put_nowait("left")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, AsyncViews(f"http://127.0.0.1:{port}") as views:
            came = asyncio.Event()

            async def follow() -> None:
                async for _ in views.changes("any"):
                    came.set()

            following = asyncio.create_task(follow())
            await came.wait()
            following.cancel()
            await left.get()
            changes = views.changes("any")
            assert await anext(changes) == {}
            await changes.aclose()  # type: ignore[attr-defined]
            await left.get()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_few_threads_wait_and_who_is_cancelled_does_not() -> None:
    import threading

    released = threading.Event()
    lock, most = threading.Lock(), [0, 0]

    def work() -> None:
        with lock:
            most[0] += 1
            most[1] = max(most)
        released.wait(60)
        with lock:
            most[0] -= 1

    async def test() -> None:
        async with InThreads("test", released.set) as threads:
            calls = [asyncio.create_task(threads._call(work)) for _ in range(3 * THREADS)]
            while most[1] < THREADS:
                await asyncio.sleep(0.001)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
        assert most[1] == THREADS

    asyncio.run(asyncio.wait_for(test(), 60))
