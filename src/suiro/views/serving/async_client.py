"""`AsyncViews`: reads views from asyncio programs. `requests` has the requests and answers.

    async with AsyncViews("http://127.0.0.1:8085", caller="booking-service") as views:
        await views.get("carrier_delays", "UA", "2013-07-04")
        async for change in views.changes("carrier_delays"):
            ...

Reads are retried as by `Views`. Commands are for people and scripts; `Views` has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Self

import httpx

from suiro.errors import TransientError
from suiro.foundation.http import segment
from suiro.views.serving.requests import (
    READ_TIMEOUT_S,
    Attempts,
    Following,
    host_of,
    params_of,
    row_path,
    said,
)


class AsyncViews:
    """`caller` is as for `Views`. Use it in one event loop, and close it there."""

    def __init__(self, url: str | None = None, *, caller: str | None = None, timeout_s: float = READ_TIMEOUT_S) -> None:
        self.url, login, headers = host_of(url, caller)
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(base_url=self.url, auth=login, headers=headers, timeout=timeout_s)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def get(self, view: str, *key: Any, **options: Any) -> dict[str, Any]:
        """As `Views.get`."""
        answer: dict[str, Any] = await self._read(row_path(view, key), options)
        return answer

    async def rows(self, view: str, **options: Any) -> dict[str, Any]:
        """As `Views.rows`."""
        answer: dict[str, Any] = await self._read(f"/views/{segment(view)}/rows", options)
        return answer

    async def changes(
        self, view: str, *, after: str | int | None = None, **options: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """As `Views.changes`. If you leave the loop early, close the iterator (`contextlib.aclosing`), which closes the
        connection. A task that is cancelled does so by itself."""
        following = Following(view, options, after, self._timeout_s)
        while True:
            try:
                async with self._http.stream(**following.request()) as answer:
                    if not answer.is_success:
                        await answer.aread()
                    following.begin(answer)
                    async with aclosing(answer.aiter_lines()) as lines:  # type: ignore[type-var]
                        async for line in lines:
                            if (event := following.event(line)) is not None:
                                yield event
            except (httpx.RequestError, TransientError):
                await asyncio.sleep(following.pause_s())

    async def topic(self, view: str, **options: Any) -> dict[str, Any]:
        """As `Views.topic`."""
        answer: dict[str, Any] = await self._read(f"/views/{segment(view)}/topic", options)
        return answer

    async def views(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self._read("/views", {})
        return found

    async def status(self, view: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._read(f"/views/{segment(view)}", {})
        return found

    async def _read(self, path: str, options: Mapping[str, Any]) -> Any:
        attempts = Attempts(self.url, self._timeout_s)
        while True:
            answer: httpx.Response | httpx.RequestError
            try:
                answer = await self._http.get(path, params=params_of(options))
            except httpx.RequestError as error:
                answer = error
            if isinstance(answer, httpx.Response) and attempts.is_last(answer):
                return said(answer)
            await asyncio.sleep(attempts.pause_s(answer))
