"""The log cleaner: finds the dirtiest compacted log, has it cleaned in a child process, puts the result in place.

One log at a time, as often as one is dirty enough, then again after `log.cleaner.backoff.ms` (Kafka's LogCleaner
with one thread). The child does all reading and writing of records (`suiro.log.cleaning`); here a log is touched
only on the event loop's thread, in short calls to `log.cleaning`: `begin`, `replace_segments` for each group, `end`.

- A log that cannot be read is marked and left alone until the next start; the node's log says so.
- A log whose cleaning failed comes after all others from then on, until it succeeds, so that it keeps none from being
  cleaned. Where several fail in a row it is not the logs (a full disk, say), and the round ends.
- `cleaner-offset-checkpoint` is written when a log is done. A death before that means some groups are cleaned
  twice, which changes nothing.
- The child starts with the first dirty log and goes when there was none for a while.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from suiro.broker.storage.topics import TopicRegistry
from suiro.clock import Clock
from suiro.config import NodeSettings
from suiro.foundation.files import sync_folder
from suiro.log import (
    Cleaned,
    CleanerSettings,
    CleaningFailed,
    CleaningJob,
    Dirtiness,
    GroupCleaned,
    LogError,
    PartitionLog,
    Uncleanable,
    dirtiness,
    receive_message,
    send_message,
)

logger = logging.getLogger(__name__)

_IDLE_CHECKS = 8  # so many without work, and the child's memory is given back
FAILURES_A_ROUND = 3


class CleanedTier(Protocol):
    """The remote tier, which follows the cleaner."""

    def holds_cleaning(self, log: PartitionLog) -> bool: ...


class CleanerHost(Protocol):
    """The services of the node that the cleaner uses."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    settings: NodeSettings
    topics: TopicRegistry

    @property
    def tier(self) -> CleanedTier | None: ...

    def write_cleaner_offsets(self) -> None: ...


def cleaner_settings(settings: NodeSettings) -> CleanerSettings:
    return CleanerSettings(
        dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
        io_buffer_bytes=settings.log_cleaner_io_buffer_size,
        load_factor=settings.log_cleaner_io_buffer_load_factor,
        max_bytes_per_second=settings.log_cleaner_io_max_bytes_per_second,
    )


class Cleaner:
    """Call `check` now and then; it works by itself. All methods are called on the event loop's thread."""

    def __init__(self, host: CleanerHost) -> None:
        self._host = host
        self._uncleanable: set[PartitionLog] = set()
        self._failures: dict[PartitionLog, int] = {}  # in a row
        self._child: CleaningProcess | None = None
        self._idle_checks = 0
        self._task: asyncio.Task[None] | None = None
        self.max_dirty_percent = 0

    def stop(self) -> None:
        """Stop cleaning; the next start removes the unfinished files."""
        if self._task is not None:
            self._task.cancel()
        self._end_child()

    @property
    def uncleanable_partitions(self) -> int:
        return len(self._uncleanable)

    def check(self) -> None:
        """Clean every log that is dirty enough, unless a round is running already."""
        if self._task is None or self._task.done():
            self._task = self._host.loop.create_task(self._clean_all())

    async def _clean_all(self) -> None:
        try:
            cleaned = False
            failed: set[PartitionLog] = set()
            while self._host.settings.log_cleaner_enable and len(failed) < FAILURES_A_ROUND:
                if (found := self._dirtiest(failed)) is None:
                    break
                cleaned = True
                log = found[0]
                if await self._clean(*found):
                    self._failures.pop(log, None)
                else:
                    self._failures[log] = self._failures.get(log, 0) + 1
                    failed.add(log)
            self._idle_checks = 0 if cleaned else self._idle_checks + 1
            if self._idle_checks >= _IDLE_CHECKS:
                self._end_child()
        except Exception:
            logger.exception("the log cleaner failed; it tries again later")
            self._end_child()

    def _dirtiest(self, passed_over: set[PartitionLog]) -> tuple[PartitionLog, Dirtiness] | None:
        """The dirtiest log that is due, of those that failed least often."""
        now_ms = self._host.clock.wall_ms()
        logs = [partition.log for partition in self._host.topics.partitions() if partition.log.config.compacted]
        self._uncleanable.intersection_update(logs)
        self._failures = {log: self._failures[log] for log in logs if log in self._failures}
        worst: tuple[PartitionLog, Dirtiness] | None = None
        self.max_dirty_percent = 0
        for log in logs:
            if log in self._uncleanable or log.offline is not None or len(log.kept_segments) < 2:
                continue
            if self._host.tier is not None and self._host.tier.holds_cleaning(log):
                continue
            found = dirtiness(log.cleaning.facts(), log.config, checkpoint=log.cleaned_offset, now_ms=now_ms)
            self.max_dirty_percent = max(self.max_dirty_percent, int(100 * found.ratio))
            if log in passed_over or not found.is_due(log.config):
                continue
            rank = -self._failures.get(log, 0), found.ratio
            if worst is None or rank > (-self._failures.get(worst[0], 0), worst[1].ratio):
                worst = log, found
        return worst

    async def _clean(self, log: PartitionLog, found: Dirtiness) -> bool:
        """Clean one log; False where it failed and is to be tried again."""
        try:
            job = log.cleaning.begin(found, cleaner_settings(self._host.settings))
        except LogError as error:
            logger.warning("cannot clean %s now: %s", log.directory.name, error)
            return False
        began = self._host.clock.monotonic_ms()
        try:
            return await self._carry_out(log, job, began)
        except Exception as error:
            # The child may be in the middle of the job, and its later answers would be taken for those to the next one.
            self._end_child()
            if not log.is_open:
                return True  # The topic was deleted under the cleaner.
            is_expected = isinstance(error, OSError | EOFError | LogError)
            logger.warning(
                "cleaning %s failed, it is tried again later: %r",
                log.directory.name,
                error,
                exc_info=None if is_expected else error,
            )
            return False
        finally:
            log.cleaning.end()

    async def _carry_out(self, log: PartitionLog, job: CleaningJob, began_ms: int) -> bool:
        run = self._host.loop.run_in_executor
        if self._child is None:
            self._child = CleaningProcess()
        child = self._child
        await run(child.executor, child.send, job)
        while True:
            match await run(child.executor, child.receive):
                case GroupCleaned(bases=bases):
                    log.cleaning.replace_segments(bases)
                case Cleaned() as done:
                    await run(child.executor, sync_folder, log.directory)
                    log.cleaned_offset = done.end_offset
                    self._host.write_cleaner_offsets()
                    logger.info(
                        "cleaned %s from offset %d to %d in %d ms: %d bytes read, %d written, %d keys in the map",
                        log.directory.name,
                        job.first_dirty_offset,
                        done.end_offset,
                        self._host.clock.monotonic_ms() - began_ms,
                        done.bytes_read,
                        done.bytes_written,
                        done.keys,
                    )
                    return True
                case Uncleanable(why=why):
                    self._uncleanable.add(log)
                    logger.error(
                        "%s cannot be compacted and is left as it is until the next start: %s",
                        log.directory.name,
                        why,
                    )
                    return True
                case CleaningFailed(why=why):
                    raise OSError(why)

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


class CleaningProcess:
    """The process that cleans, and the one thread of the cleaner that talks to it. Also for the remote tier."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1, thread_name_prefix="cleaner")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "suiro.log.cleaning_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def send(self, job: CleaningJob) -> None:
        send_message(self._input, job)

    def receive(self) -> Any:
        return receive_message(self._output)

    def end(self) -> None:
        self._process.kill()
        self.executor.submit(self._reap)  # behind a `receive` that is still waiting, which the kill ends
        self.executor.shutdown(wait=False)

    def _reap(self) -> None:
        self._process.wait()
        self._output.close()
        try:
            self._input.close()
        except BrokenPipeError:
            pass
