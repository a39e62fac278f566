"""`AsyncReadOnlyStore`: the queries of a `ReadOnlyStore` for programs on asyncio."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from suiro.foundation.threads import InThreads
from suiro.streams.queries.store_reader import Answer, ReadOnlyStore

T = TypeVar("T")


class AsyncReadOnlyStore(InThreads):
    """`AsyncReadOnlyStore(ReadOnlyStore(...))`, or of `streams.store(name)`. Closing it also closes the store."""

    def __init__(self, store: ReadOnlyStore) -> None:
        super().__init__("store-questions", store.close)
        self._store = store

    async def get(self, key: Any) -> Answer[Any]:
        """As `ReadOnlyStore.get`. All methods are as those of `ReadOnlyStore`."""
        return await self._call(self._store.get, key)

    async def get_as_of(self, key: Any, timestamp: int) -> Answer[tuple[Any, int] | None]:
        return await self._call(self._store.get_as_of, key, timestamp)

    async def range(self, first: Any = None, last: Any = None) -> Answer[list[tuple[Any, Any]]]:
        return await self._call(self._store.range, first, last)

    async def prefix_scan(self, prefix: bytes) -> Answer[list[tuple[Any, Any]]]:
        return await self._call(self._store.prefix_scan, prefix)

    async def all(self) -> Answer[list[tuple[Any, Any]]]:
        return await self._call(self._store.all)

    async def select(self, pick: Callable[[Iterator[tuple[Any, Any]]], T]) -> Answer[T]:
        """`pick` is called in another thread."""
        return await self._call(self._store.select, pick)

    async def fetch(self, key: Any, *bounds: int) -> Answer[Any]:
        return await self._call(self._store.fetch, key, *bounds)

    async def fetch_all(self, first_ms: int, last_ms: int) -> Answer[list[Any]]:
        return await self._call(self._store.fetch_all, first_ms, last_ms)

    @property
    def offsets(self) -> Mapping[int, int]:
        return self._store.offsets

    async def wait_for(self, offsets: Mapping[int, int], *, timeout_ms: int | None = None) -> None:
        await self._call(self._store.wait_for, offsets, timeout_ms=timeout_ms)

    async def catch_up(self, *, timeout_ms: int | None = None) -> None:
        await self._call(self._store.catch_up, timeout_ms=timeout_ms)
