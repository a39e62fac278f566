"""`Views`: reads and manages views through a host, from Python. `AsyncViews`: reads them from asyncio programs.

    views = Views("http://127.0.0.1:8085", caller="booking-service")
    views.get("carrier_delays", "UA", "2013-07-04")

    async with AsyncViews("http://127.0.0.1:8085", caller="booking-service") as views:
        await views.get("carrier_delays", "UA", "2013-07-04")
        async for change in views.changes("carrier_delays"):
            ...

A read is retried while the host cannot be reached or answers "try again": a restart of the host costs a reader time,
not an error. A command is not retried: it may have been executed although the answer was lost. Look at the status
first. Commands are for people and scripts, so only `Views` has them. `requests` has the requests and answers.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

import httpx

from suiro.clock import monotonic_s, sleep_s
from suiro.errors import TransientError, UsageError
from suiro.foundation.http import segment
from suiro.foundation.process import process_user
from suiro.views.serving.requests import (
    COMMAND_TIMEOUT_S,
    COMPARE_TIMEOUT_MS,
    LONGEST_MS,
    LOOK_TIMEOUT_S,
    READ_TIMEOUT_S,
    START_ONE,
    Attempts,
    Following,
    host_of,
    params_of,
    reason_of,
    row_path,
    said,
)
from suiro.views.state import UnknownViewError


class Views:
    """`caller`: who reads. During a shift, the version that answers depends on it. Thread-safe. Close it at the end."""

    def __init__(
        self,
        url: str | None = None,
        *,
        caller: str | None = None,
        timeout_s: float = READ_TIMEOUT_S,
        who: str | None = None,
    ) -> None:
        self.url, login, headers = host_of(url, caller)
        self._timeout_s = timeout_s
        self._who = who or process_user()
        self._http = httpx.Client(base_url=self.url, auth=login, headers=headers, timeout=timeout_s)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def get(self, view: str, *key: Any, **options: Any) -> dict[str, Any]:
        """Returns the row under "row", None if there is none, with the version that answered and its input offsets.

        Options: `as_of` (a time, "cut:N" or "topic:partition:offset,..."), `min_offset` ("topic:partition:offset,...":
        waits until the view reflects it), `timeout_ms` of that wait, `version`.
        """
        return self._read(row_path(view, key), options)

    def rows(self, view: str, **options: Any) -> dict[str, Any]:
        """Returns a page of rows by key under "rows". Pass its "next" as `after` to get the next page. A page of large
        rows may have fewer than `limit`.

        Options: `from_`, `to`, `prefix`, `where` (a list of "column:operator:value"), `search`, `limit`, `after`, and
        those of `get`.
        """
        return self._read(f"/views/{segment(view)}/rows", options)

    def changes(self, view: str, *, after: str | int | None = None, **options: Any) -> Iterator[dict[str, Any]]:
        """Yields changes as they come: from now on, or after the cut `after`. Continues by itself when the connection
        breaks."""
        following = Following(view, options, after, self._timeout_s)
        while True:
            try:
                with self._http.stream(**following.request()) as answer:
                    if not answer.is_success:
                        answer.read()
                    following.begin(answer)
                    for line in answer.iter_lines():
                        if (event := following.event(line)) is not None:
                            yield event
            except (httpx.RequestError, TransientError):
                sleep_s(following.pause_s())

    def topic(self, view: str, **options: Any) -> dict[str, Any]:
        """Returns, under "topic", the output topic of the version that answers this caller, or of `version`. Ask again
        when the routing may have changed."""
        return self._read(f"/views/{segment(view)}/topic", options)

    def _read(self, path: str, options: Mapping[str, Any]) -> dict[str, Any]:
        attempts = Attempts(self.url, self._timeout_s)
        while True:
            answer: httpx.Response | httpx.RequestError
            try:
                answer = self._http.get(path, params=params_of(options))
            except httpx.RequestError as error:
                answer = error
            if isinstance(answer, httpx.Response) and attempts.is_last(answer):
                found: dict[str, Any] = said(answer)
                return found
            sleep_s(attempts.pause_s(answer))

    def views(self) -> list[dict[str, Any]]:
        """Returns the status of every view."""
        found: list[dict[str, Any]] = self._ask("GET", "/views")
        return found

    def status(self, view: str) -> dict[str, Any]:
        """Returns the position of a view, and its versions with their state, callers, lag, progress and errors."""
        found: dict[str, Any] = self._ask("GET", f"/views/{segment(view)}")
        return found

    def history(self, view: str) -> list[dict[str, Any]]:
        """Returns each change of the view, its time and its user."""
        found: list[dict[str, Any]] = self._ask("GET", f"/views/{segment(view)}/history")
        return found

    def comparisons(self, view: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self._ask("GET", f"/views/{segment(view)}/comparisons")
        return found

    def deploy(
        self,
        app: str,
        *,
        settings: Mapping[str, str] | None = None,
        registry: str | None = None,
        throttle: int | None = None,
    ) -> dict[str, Any]:
        """Sends the file and the modules beside it that it imports to the host. `app`: "path/app.py:function". Returns
        once the version is being built. "deployed" is the number of the version."""
        from suiro.views.pipeline.archive import archive_of, split_entry

        file, function = split_entry(app)
        path = Path(file).resolve()  # the archive has the name of the file itself, not of a link to it
        return self._do(
            "/views",
            code=base64.b64encode(archive_of(path)).decode(),
            entry=f"{path.name}:{function}",
            settings=dict(settings or {}),
            registry=registry,
            throttle=throttle,
        )

    def wait_until_built(
        self,
        view: str,
        version: int,
        *,
        timeout_s: float | None = None,
        seen: Callable[[dict[str, Any]], None] = lambda status: None,
    ) -> dict[str, Any]:
        """Returns the view's status once the version is ready. Raises `UsageError` if it failed, and `TransientError`
        after the timeout. `seen` is called with the status of the version again and again."""
        deadline = None if timeout_s is None else monotonic_s() + timeout_s
        while True:
            status = self.status(view)
            found = next((one for one in status["versions"] if one["version"] == version), None)
            if found is None:
                raise UnknownViewError(f"view {view} has no version {version}")
            seen(found)
            if found["state"] == "ready":
                return status
            if found["state"] != "building":
                raise UsageError(
                    f"version {version} of view {view} is {found['state']}: {found['error'] or 'it was retired'}"
                )
            if deadline is not None and monotonic_s() > deadline:
                raise TransientError(
                    f"version {version} of view {view} is not built after {timeout_s:g} s; it goes on: suiro view "
                    f"status {view}"
                )
            sleep_s(0.2)

    def compare(
        self,
        view: str,
        *,
        old: int | None = None,
        new: int | None = None,
        tolerances: Mapping[str, Any] | None = None,
        ignored: Sequence[str] = (),
        timeout_ms: int | None = None,
    ) -> dict[str, Any]:
        """Returns the "result", the "share" of rows that differ, and a "text" to read. The host keeps the result under
        its "id". The host ends the work after the timeout (None: an hour), or when this process ends."""
        return self._do(
            f"/views/{segment(view)}/compare",
            old=old,
            new=new,
            tolerances=dict(tolerances or {}),
            ignored=list(ignored),
            timeout_ms=timeout_ms,
        )

    def explain(
        self,
        view: str,
        *keys: Sequence[Any],
        old: int | None = None,
        new: int | None = None,
        full: bool = False,
        timeout_ms: int | None = None,
    ) -> dict[str, Any]:
        """Explains why these rows differ; without keys, examples of each pattern of the last comparison. The timeout is
        that of `compare`."""
        asked = [list(key) for key in keys]
        return self._do(
            f"/views/{segment(view)}/explain", keys=asked, old=old, new=new, full=full, timeout_ms=timeout_ms
        )

    def shift(
        self,
        view: str,
        *percents: float,
        hold_ms: int = 0,
        guards: Mapping[str, float] | None = None,
        max_lag_ms: int | None = None,
    ) -> dict[str, Any]:
        """Moves so many percent of the callers to the candidate. The host takes several steps one after the other."""
        return self._do(
            f"/views/{segment(view)}/shift",
            steps=list(percents),
            hold_ms=hold_ms,
            guards=dict(guards or {}),
            max_lag_ms=max_lag_ms,
        )

    def rollback(self, view: str) -> dict[str, Any]:
        """Moves all callers back to the serving version."""
        return self._do(f"/views/{segment(view)}/rollback")

    def forward(self, view: str, *, max_lag_ms: int | None = None) -> dict[str, Any]:
        """Restores the share that the candidate had before the rollback."""
        return self._do(f"/views/{segment(view)}/forward", max_lag_ms=max_lag_ms)

    def retire(self, view: str, version: int, *, yes: bool, last: bool = False) -> dict[str, Any]:
        """Deletes a version. Requires `yes=True`, because it cannot be undone."""
        return self._do(f"/views/{segment(view)}/retire", version=version, yes=yes, last=last)

    def throttle(self, view: str, records_per_second: int | None) -> dict[str, Any]:
        """Limits the records a second that the build of the candidate reads; None: no limit."""
        return self._do(f"/views/{segment(view)}/throttle", records_per_second=records_per_second)

    def move_consumers(self, view: str, group: str, version: int) -> dict[str, Any]:
        """Moves a stopped consumer group to the equivalent offsets of another version's topic."""
        return self._do(f"/views/{segment(view)}/consumers", group=group, version=version)

    def _do(self, path: str, **body: Any) -> dict[str, Any]:
        work_ms = body.get("timeout_ms", 0)
        timeout_s = COMMAND_TIMEOUT_S + min(COMPARE_TIMEOUT_MS if work_ms is None else work_ms, LONGEST_MS) / 1000
        found: dict[str, Any] = self._ask("POST", path, {**body, "who": self._who}, timeout_s=timeout_s)
        return found

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> Any:
        timeout = httpx.Timeout(timeout_s or LOOK_TIMEOUT_S, connect=self._timeout_s)
        try:
            answer = self._http.request(method, path, json=body, timeout=timeout)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise TransientError(f"no host of views answers at {self.url}: {reason_of(error)}. {START_ONE}") from None
        except httpx.RequestError as error:
            may_be_done = "" if method == "GET" else ": it may have been done; look: suiro view status"
            raise TransientError(f"the connection to {self.url} broke ({reason_of(error)}){may_be_done}") from None
        except ValueError as error:
            raise UsageError(
                f"what is asked for cannot be said in JSON ({error}): NaN and infinity are no numbers there"
            ) from None
        return said(answer)


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
        import asyncio  # not needed by `Views`

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
        import asyncio

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
