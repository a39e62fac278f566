"""Calls of users' `async` functions: one event loop, in a thread of this process, for all tasks and operators in it.

The loop begins with the first call and lasts as long as the process, so that clients (`httpx.AsyncClient`) may be kept
between calls. What is always true:

- Of one operator of one task, at most `concurrency` calls are under way; there are no more asyncio tasks than that.
- Results are in the order of the records, whatever was done first.
- `Calls.results` returns or raises when none of its calls is under way any more. Where nobody waits for them any more,
  they are cancelled. A worker process of Spark's is ended by Spark, and its calls with it.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import random
import threading
import types
from collections import deque
from collections.abc import Coroutine, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from suiro.clock import stopwatch_ns
from suiro.errors import TransientError, UsageError
from suiro.streams.calls import NOT_RETRIED, Failed
from suiro.streams.serdes import natural
from suiro.streams.topology.nodes import AsyncCall

BACKOFF_MAX_MS = 30_000
"""The longest wait before another attempt, however often it was made."""

BLOCKED_MS = 200
"""A function that runs for this long without awaiting is reported."""

LOOK_S = 0.5
"""How often the thread that waits for calls checks whether they are still wanted, and whether one of them blocks the
loop."""

CANCEL_S = 10.0
"""How long to wait for cancelled calls. Calls that go on after that are reported."""

END_S = 2.0

_log = logging.getLogger(__name__)


class Calls:
    """`calls.Caller`, of one task."""

    def __init__(self) -> None:
        self._is_given_up = False

    def give_up(self) -> None:
        """Cancels the calls that are running, and lets no others begin. May be called from any thread."""
        self._is_given_up = True

    def results(
        self,
        name: str,
        operator: AsyncCall,
        keys: Sequence[Any],
        values: Sequence[Any],
        *,
        ends_at_failure: bool,
    ) -> list[Any]:
        thread = _thread()
        if threading.current_thread() is thread.thread:
            raise UsageError(
                f"{name} would call from within an async function that a topology calls, and so would wait for itself; "
                "run this topology in another thread, with asyncio.to_thread"
            )
        batch = _Batch(thread, name, operator, keys, values, ends_at_failure)
        asyncio.run_coroutine_threadsafe(batch.run(), thread.loop)
        try:
            while not batch.is_over.wait(LOOK_S):
                thread.look_for_a_block()
                self._check(batch)
            self._check(batch)
        except BaseException:  # as by Ctrl-C
            batch.cancel()
            if not batch.is_over.wait(CANCEL_S):
                _log.warning("calls of %s go on, although they were cancelled", batch.title)
            raise
        return batch.outcome()

    def _check(self, batch: _Batch) -> None:
        if self._is_given_up:
            raise TransientError(f"calls of {batch.title} were given up, for the query is stopped")


class _Batch:
    """The calls of one operator for some records. There is a worker for each call that may run at a time."""

    def __init__(
        self,
        thread: _LoopThread,
        name: str,
        operator: AsyncCall,
        keys: Sequence[Any],
        values: Sequence[Any],
        ends_at_failure: bool,
    ) -> None:
        self.title = f"{_called(operator.function)} of {name}"
        self.is_over = threading.Event()
        self._thread = thread
        self._operator = operator
        self._takes_value = operator.kind in ("map_values", "flat_map_values")
        self._keys, self._values = keys, values
        self._ends_at_failure = ends_at_failure
        self._results: list[Any] = [None] * len(values)
        self._end = len(values)  # rows behind it are not wanted
        self._rows = iter(range(len(values)))
        self._busy: dict[Any, deque[int]] = {}  # by key of a call that is under way: the rows that wait for it
        self._free: deque[int] = deque()  # rows whose turn has come
        self._workers: dict[asyncio.Task[None], int] = {}  # and the row of each
        self._broken: BaseException | None = None

    # In the thread that waits

    def cancel(self) -> None:
        with suppress(RuntimeError):  # the process ends, and its loop has
            self._thread.loop.call_soon_threadsafe(self._stop_behind, -1)

    def outcome(self) -> list[Any]:
        if self._broken is not None:
            raise self._broken
        return self._results[: self._end]

    # In the loop

    async def run(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            for _ in range(min(self._operator.concurrency, len(self._values))):
                self._workers[loop.create_task(self._work(), name=self.title)] = -1
            if self._workers:
                await asyncio.wait(list(self._workers))
        except BaseException as error:
            self._broken = error
            raise
        finally:
            self.is_over.set()

    def _stop_behind(self, row: int) -> None:
        self._end = min(self._end, row + 1)
        for worker, at in self._workers.items():
            if at > row:
                worker.cancel()

    async def _work(self) -> None:
        """Makes one call after the other, until there is none that may begin. A worker that ends a call whose key other
        rows wait for makes the next of these calls itself."""
        worker = asyncio.current_task()
        assert worker is not None
        try:
            while (row := self._next()) is not None:
                self._workers[worker] = row
                key = self._key(row)
                self._results[row] = found = await self._result(worker, row)
                if key is not None:
                    waiting = self._busy[key]
                    if waiting:
                        self._free.append(waiting.popleft())
                    else:
                        del self._busy[key]
                if isinstance(found, Failed) and self._ends_at_failure:
                    self._stop_behind(row)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # noqa: BLE001 - such as SystemExit, which would end the loop
            self._broken = error
            self._stop_behind(-1)
        finally:
            self._workers[worker] = -1

    def _next(self) -> int | None:
        if self._free:
            row = self._free.popleft()
            return row if row < self._end else None
        for row in self._rows:
            if row >= self._end:
                return None
            key = self._key(row)
            if key is None:
                return row
            if key not in self._busy:
                self._busy[key] = deque()
                return row
            self._busy[key].append(row)
        return None

    async def _result(self, worker: asyncio.Task[None], row: int) -> Any:
        """Returns the result of the first attempt that does not fail, or `Failed`."""
        operator = self._operator
        attempt = 0
        while True:
            try:
                return await self._attempt(row)
            except asyncio.CancelledError as error:
                if worker.cancelling():
                    raise
                failure: Exception = RuntimeError(f"{self.title} was cancelled by something that it awaited")
                failure.__cause__ = error
            except Exception as error:  # noqa: BLE001 - a user's function raises anything
                failure = error
            if attempt == operator.retries or not _is_retried(failure, operator.retry_on):
                return Failed(failure)
            pause_ms = min(operator.backoff_ms * 2 ** min(attempt, 30), BACKOFF_MAX_MS)
            await asyncio.sleep(pause_ms * random.uniform(0.5, 1) / 1000)
            attempt += 1

    async def _attempt(self, row: int) -> Any:
        function = self._operator.function
        value = self._values[row]
        coroutine = function(value) if self._takes_value else function(self._keys[row], value)
        timed = self._thread.timed(coroutine, self.title)
        limit_ms = self._operator.timeout_ms
        if limit_ms is None:
            return await timed
        limit = asyncio.timeout(limit_ms / 1000)
        try:
            async with limit:
                return await timed
        except TimeoutError as error:
            if not limit.expired():
                raise  # the function's own
            raise TimeoutError(f"no answer within {limit_ms} ms") from error

    def _key(self, row: int) -> Any:
        """Returns the key by which calls wait for each other; None if the call waits for none. A record without a key
        belongs to no sequence."""
        key = self._keys[row]
        return None if key is None or not self._operator.by_key else _comparable(key)


def _comparable(key: Any) -> Any:
    """Returns a hashable object that is equal for equal keys, of any type."""
    by_identity: Any = object.__hash__
    if type(key).__hash__ is not by_identity:
        try:
            hash(key)
        except TypeError:
            pass
        else:
            return key
    try:
        return natural.serialize("", key)
    except Exception:  # noqa: BLE001 - a key that has no natural serde; all such keys are one
        return _Batch  # no telling: all such keys are taken for one


def _is_retried(error: Exception, retry_on: tuple[type[Exception], ...] | None) -> bool:
    return not isinstance(error, NOT_RETRIED) if retry_on is None else isinstance(error, retry_on)


def _called(function: object) -> str:
    inner = getattr(function, "func", function)  # of a functools.partial
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


# The event loop


@dataclass(slots=True)
class _Step:
    """A step of the loop: a function, from one `await` to the next."""

    title: str
    began_ns: int
    coroutine: Coroutine[Any, Any, Any]


class _LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._step: _Step | None = None
        self._told: set[str] = set()
        self._is_ending = False
        self.thread = threading.Thread(target=self._run, name="suiro-calls", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_ending:
            try:
                self.loop.run_forever()
            except BaseException:  # noqa: BLE001 - asyncio lets SystemExit of a task through; the others must go on
                _log.exception("an asyncio task that a function began ended the event loop, which goes on")
        self._end_tasks()
        self.loop.close()

    def _end_tasks(self) -> None:
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        with suppress(BaseException):
            self.loop.run_until_complete(asyncio.wait_for(asyncio.gather(*left, return_exceptions=True), END_S))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())

    def end(self) -> None:
        self._is_ending = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(2 * END_S)

    @types.coroutine
    def timed(self, coroutine: Coroutine[Any, Any, Any], title: str) -> Generator[Any, Any, Any]:
        """Runs the coroutine, and reports steps that take too long."""
        sent: Any = None
        thrown: BaseException | None = None
        try:
            while True:
                step = self._step = _Step(title, stopwatch_ns(), coroutine)
                try:
                    awaited = coroutine.send(sent) if thrown is None else coroutine.throw(thrown)
                except StopIteration as ended:
                    return ended.value
                finally:
                    self._step = None
                    took_ms = (stopwatch_ns() - step.began_ns) // 1_000_000
                    if took_ms >= BLOCKED_MS:
                        self._report_block(title, took_ms, "")
                sent = thrown = None
                try:
                    sent = yield awaited
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - it is thrown into the coroutine
                    thrown = error
        finally:
            coroutine.close()

    def look_for_a_block(self) -> None:
        """Reports a step that takes too long while it runs, since a function may block the loop for ever. Called from
        another thread."""
        step = self._step
        if step is None:
            return
        took_ms = (stopwatch_ns() - step.began_ns) // 1_000_000
        # Not `sys._current_frames`: it may wait for ever where many threads start and end.
        frame = step.coroutine.cr_frame if isinstance(step.coroutine, types.CoroutineType) else None
        if took_ms >= BLOCKED_MS and frame is not None and self._step is step:
            self._report_block(step.title, took_ms, f", at {frame.f_code.co_filename}:{frame.f_lineno}")

    def _report_block(self, title: str, took_ms: int, where: str) -> None:
        if title not in self._told:
            self._told.add(title)
            _log.warning(
                "%s held the event loop for %s ms%s: no other call of this process goes on meanwhile. It must await "
                "what it waits for; what blocks can be called with asyncio.to_thread",
                title,
                took_ms,
                where,
            )


_lock = threading.Lock()
_running: _LoopThread | None = None


def _thread() -> _LoopThread:
    global _running
    with _lock:
        if _running is None:
            _running = _LoopThread()
            atexit.register(_running.end)
        return _running


def _forget() -> None:
    """Forgets the loop in a process that was forked, where its thread does not exist."""
    global _lock, _running
    if _running is not None:
        atexit.unregister(_running.end)
    _lock, _running = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
