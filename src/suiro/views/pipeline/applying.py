"""The follower's work: from a version's topics into its store, cut by cut.

    python -m suiro.views.pipeline.applying    # what to follow: JSON, the first line of stdin; ends at stdin's end

It runs in a separate process, because it runs the user's code and is busy while a version is built, and look-ups
should notice neither. `follower` starts it and reads what it says, a JSON object a line.

The store goes from one cut to the next: rows of the output topic below the cut's `outputs`, and the cut, in one
transaction. That is exact for a cut whose rows are all still in the topic. The topic is compacted, so a row may be
gone once a later one of its key is old enough (`min.compaction.lag.ms`): cuts older than half of that are not applied
one by one but together with the first that is younger, whose state is exact again. And a deletion may be gone after
`delete.retention.ms`: a store that fell further behind than half of that is rebuilt from the topic's beginning.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from suiro.client import EARLIEST, Client
from suiro.clock import Clock, SystemClock
from suiro.errors import FatalError, SuiroError, TransientError, UnknownTopicError
from suiro.foundation.stopping import Stopping
from suiro.protocol import columnar
from suiro.views.cuts import Cut, CutLog
from suiro.views.definition import VersionSpec
from suiro.views.store import Store, open_store
from suiro.views.store.tables import Batch

BATCH_ROWS = 5_000
WAIT_MS = 250
RETRY_S = 0.5
NICE = 5  # look-ups come first
PRUNE_EVERY_MS = 5_000
LOOK_AT_SETTINGS_EVERY_MS = 60_000

logger = logging.getLogger(__name__)


class Codec(Protocol):
    """`suiro.views.definition.RowCodec`."""

    def decode(self, keys: list[bytes], values: list[bytes | None]) -> Batch: ...


class Stopped(Exception):
    """In the middle of a cut: nothing of it is written."""


class Applier:
    """`step` until it should stop. Not thread-safe; `stop` may be called by any thread."""

    def __init__(
        self,
        spec: VersionSpec,
        store: Store,
        codec: Codec,
        client: Client,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._spec = spec
        self._store = store
        self._codec = codec
        self._client = client
        self._clock = clock or SystemClock()
        self._log = CutLog(client, spec.cuts_topic, keeps=False)
        self._pending: deque[Cut] | None = (
            None  # None before the first look: then the store may be far behind
        )
        self._stopping = threading.Event()
        self._pruned_ms = 0
        self._settings: Mapping[str, str | None] = {}
        self._settings_ms: int | None = None

    @property
    def behind(self) -> int:
        """Cuts that are known and not in the store."""
        return len(self._pending or ())

    def stop(self) -> None:
        self._stopping.set()

    def step(self) -> Cut | None:
        """Applies the next cut, or waits a moment for one. Raises `TransientError`: then again; nothing was lost."""
        at = self._store.cut
        self._look(at)
        if not self._pending:
            self._prune()
            return None
        cut, anew = self._next(self._pending, at)
        start = {} if at is None or anew else at.outputs
        self._store.apply_batches(cut, self._batches(start, cut.outputs), anew=anew)
        while self._pending and self._pending[0].number <= cut.number:
            self._pending.popleft()
        self._prune()
        return cut

    def _look(self, at: Cut | None) -> None:
        try:
            found = self._log.poll(max_wait_ms=0 if self._pending else WAIT_MS)
        except UnknownTopicError:
            self._stopping.wait(RETRY_S)  # the version's first start is still to come
            return
        newer = [cut for cut in found if at is None or cut.number > at.number]
        self._pending = deque((*(self._pending or ()), *newer))

    def _next(self, pending: deque[Cut], at: Cut | None) -> tuple[Cut, bool]:
        """The cut to go to, and whether the store is rebuilt."""
        now_ms = self._clock.wall_ms()
        keeps_rows_ms = self._setting("min.compaction.lag.ms", 0)
        keeps_deletions_ms = self._setting("delete.retention.ms", 0)
        young = next((cut for cut in pending if cut.time_ms + keeps_rows_ms // 2 > now_ms), pending[-1])
        first = pending[0]
        anew = at is not None and first.time_ms + keeps_deletions_ms // 2 < now_ms
        return young, anew

    def _setting(self, name: str, default: int) -> int:
        now_ms = self._clock.monotonic_ms()
        if self._settings_ms is None or now_ms - self._settings_ms > LOOK_AT_SETTINGS_EVERY_MS:
            self._settings = self._client.describe_configs([self._spec.output_topic])[self._spec.output_topic]
            self._settings_ms = now_ms
        return int(self._settings.get(name) or default)

    def _batches(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Batch]:
        """The committed records of the output topic in between. Raises `OffsetOutOfRangeError`."""
        topic = self._spec.output_topic
        unknown = [partition for partition in end if partition not in start]
        starts = (
            self._client.list_offsets({(topic, partition): EARLIEST for partition in unknown})
            if unknown
            else {}
        )
        positions = {p: starts[topic, p].offset if p in unknown else start[p] for p in end}
        while wanted := {(topic, p): at for p, at in positions.items() if at < end[p]}:
            if self._stopping.is_set():
                raise Stopped
            fetched = self._client.fetch(wanted, read_committed=True, max_wait_ms=WAIT_MS)
            if not any(len(found.data) for found in fetched.values()):
                # Committed, and nothing is there any more: compaction left nothing up to here.
                over = [p for (_, p), found in fetched.items() if found.last_stable_offset >= end[p]]
                positions |= {p: end[p] for p in over}
                continue
            for (_, partition), found in fetched.items():
                decoded = columnar.decode(
                    found.data,
                    start_offset=positions[partition],
                    end_offset=end[partition],
                    aborted=found.aborted,
                    read_committed=True,
                )
                positions[partition] = max(positions[partition], decoded.next_offset)
                for first in range(0, decoded.batch.num_rows, BATCH_ROWS):
                    part = decoded.batch.slice(first, BATCH_ROWS)
                    yield self._codec.decode(part.column("key").to_pylist(), part.column("value").to_pylist())

    def _prune(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._pruned_ms >= PRUNE_EVERY_MS:
            self._store.prune(self._clock.wall_ms())
            self._pruned_ms = now_ms


# -- the process ------------------------------------------------------------------------------------------------------


def main() -> int:
    says = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the user's code prints goes to the log
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    given = json.loads(_first_line())
    _give_way()
    ending = Stopping()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: whoever started this one stops it

    def say(event: str, **more: object) -> None:
        try:
            says.write(json.dumps({"event": event, **more}) + "\n")
        except OSError:
            ending.set()  # nobody listens any more

    spec = VersionSpec.from_json(given["spec"])
    try:
        with (
            open_store(spec, given["location"]) as store,
            Client(given["bootstrap_servers"], settings=given["client_settings"]) as client,
        ):
            applier = Applier(spec, store, _codec(spec, Path(given["code_file"])), client)
            threading.Thread(target=_wait_for_the_end, args=(ending, applier), daemon=True).start()
            cut = store.cut
            say("begun", cut=None if cut is None else cut.to_json(), behind=0)
            _run(applier, ending, say)
    except Exception as error:
        logger.exception("the follower of %s v%d ends", spec.view, spec.version)
        told = str(error) if isinstance(error, SuiroError) else f"{type(error).__name__}: {error}"
        say("error", error=told, is_transient=isinstance(error, TransientError))
        return 1
    return 0


def _run(applier: Applier, ending: Stopping, say: Any) -> None:
    failed: str | None = None
    is_well = False
    while not ending.is_set():
        try:
            cut = applier.step()
        except Stopped:
            return
        except TransientError as error:
            is_well = False
            if str(error) != failed:
                logger.warning("%s", error)
                say("error", error=str(error), is_transient=True)
                failed = str(error)
            ending.wait(RETRY_S)
            continue
        if cut is not None or not is_well:
            is_well, failed = True, None
            say("at", cut=None if cut is None else cut.to_json(), behind=applier.behind)


def _codec(spec: VersionSpec, code_file: Path) -> Codec:
    from suiro.views.definition import RowCodec
    from suiro.views.pipeline.archive import Code

    definition = Code(code_file.read_bytes()).load(spec.entry)
    return RowCodec(spec.topology_of(definition), spec.key)


def _give_way() -> None:
    os.nice(NICE)
    # Where Linux groups processes by session, niceness counts within a session only, and this process is one alone.
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE))


def _first_line() -> bytes:
    """Byte by byte: nothing behind it is taken."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise FatalError("nothing on stdin says what to follow")
        line += byte
    return line


def _wait_for_the_end(ending: Stopping, applier: Applier) -> None:
    """Of stdin, which closes with whoever started this process, however that ends; or of a signal."""
    while not ending.is_set():
        if select.select([0], [], [], 0.1)[0] and not os.read(0, 4096):
            ending.set()
    applier.stop()


if __name__ == "__main__":
    sys.exit(main())
