"""The follower's work: from a version's topics into its store, cut by cut.

    python -m suiro.views.pipeline.applying    # the first line of stdin says what to follow, in JSON; ends with stdin

It runs in a separate process, because it runs the user's code and is busy while a version is built, and look-ups
should notice neither. `follower` starts it and reads its events, one JSON object a line.

The store goes from one cut to the next. One transaction writes the rows of the output topic below the cut's `outputs`,
and the cut. That is exact as long as the topic has all rows of the cut. The topic is compacted, so a row may disappear
once a later one of its key is older than `min.compaction.lag.ms`. Cuts older than half of that are therefore not
applied one by one, but together with the first younger one, whose state is exact again. A deletion may disappear after
`delete.retention.ms`. A store that is further behind than half of that is rebuilt from the beginning of the topic.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suiro.client import EARLIEST, Client
from suiro.clock import Clock, SystemClock
from suiro.errors import SuiroError, TransientError, UnknownTopicError
from suiro.foundation.files import is_of_the_disk
from suiro.foundation.process import event_writer, give_way, lines_of_stdin
from suiro.foundation.stopping import Stopping
from suiro.protocol import columnar
from suiro.streams import Topology
from suiro.streams.topology.nodes import GlobalTableSource, Repartition, Source
from suiro.views.cuts import Cut, CutLog
from suiro.views.definition import RowCodec, VersionSpec
from suiro.views.pipeline.archive import Code
from suiro.views.store import open_store
from suiro.views.store.tables import Batch, Store

BATCH_ROWS = 5_000
WAIT_MS = 250
RETRY_S = 0.5
NICE = 5  # look-ups come first
PRUNE_EVERY_MS = 5_000
LOOK_AT_SETTINGS_EVERY_MS = 60_000

logger = logging.getLogger(__name__)


class Stopped(Exception):
    """It was stopped within a cut, and nothing of that cut was written."""


class Applier:
    """Call `step` again and again. Not thread-safe."""

    def __init__(
        self,
        spec: VersionSpec,
        store: Store,
        codec: RowCodec,
        client: Client,
        *,
        stopping: Stopping | threading.Event,
        clock: Clock | None = None,
    ) -> None:
        self._spec = spec
        self._store = store
        self._codec = codec
        self._client = client
        self._clock = clock or SystemClock()
        self._log = CutLog(client, spec.cuts_topic)
        self._pending: deque[Cut] = deque()
        self._stopping = stopping
        self._pruned_ms = 0
        self._settings: Mapping[str, str | None] = {}
        self._settings_ms: int | None = None

    def step(self) -> Cut | None:
        """Applies the next cut and returns it, or waits a moment for one. After a `TransientError`, call it again."""
        at = self._store.cut
        self._look(at)
        if not self._pending:
            self._prune()
            return None
        cut, anew = self._next(at)
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
        self._pending.extend(cut for cut in found if at is None or cut.number > at.number)

    def _next(self, at: Cut | None) -> tuple[Cut, bool]:
        """Returns the cut to go to, and whether to rebuild the store."""
        pending = self._pending
        now_ms = self._clock.wall_ms()
        keeps_rows_ms = self._setting_ms("min.compaction.lag.ms")
        keeps_deletions_ms = self._setting_ms("delete.retention.ms")
        young = next((cut for cut in pending if cut.time_ms + keeps_rows_ms // 2 > now_ms), pending[-1])
        anew = at is not None and pending[0].time_ms + keeps_deletions_ms // 2 < now_ms
        return young, anew

    def _setting_ms(self, name: str) -> int:
        now_ms = self._clock.monotonic_ms()
        if self._settings_ms is None or now_ms - self._settings_ms > LOOK_AT_SETTINGS_EVERY_MS:
            self._settings = self._client.describe_configs([self._spec.output_topic])[self._spec.output_topic]
            self._settings_ms = now_ms
        return int(self._settings.get(name) or 0)

    def _batches(self, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[Batch]:
        """Yields the committed records of the output topic between the two. Raises `OffsetOutOfRangeError`."""
        topic = self._spec.output_topic
        positions = {p: start[p] for p in end if p in start}
        if unknown := {(topic, p): EARLIEST for p in end if p not in start}:
            positions |= {p: found.offset for (_, p), found in self._client.list_offsets(unknown).items()}
        while wanted := {(topic, p): at for p, at in positions.items() if at < end[p]}:
            if self._stopping.is_set():
                raise Stopped
            fetched = self._client.fetch(wanted, read_committed=True, max_wait_ms=WAIT_MS)
            if not any(len(found.data) for found in fetched.values()):
                # These partitions are committed up to their ends, so compaction has removed the rest.
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
        if now_ms - self._pruned_ms < PRUNE_EVERY_MS:
            return
        self._pruned_ms = now_ms
        try:
            self._store.prune(self._clock.wall_ms())
        except TransientError as error:  # the host must hear of the cut that was applied before
            logger.warning("what is older than the history is deleted later: %s", error)


# In the process of its own


def main() -> int:
    say = event_writer()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    told = lines_of_stdin()
    given = json.loads(next(told))
    give_way(NICE)
    stopping = Stopping()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the host stops this process
    threading.Thread(target=_stop_with_stdin, args=(told, stopping), daemon=True).start()
    spec = VersionSpec.from_json(given["spec"])
    try:
        with (
            open_store(spec, given["location"]) as store,
            Client(given["bootstrap_servers"], settings=given["client_settings"]) as client,
        ):
            definition = Code(Path(given["code_file"]).read_bytes()).load(spec.entry)
            topology = spec.topology_of(definition)
            cut = store.cut
            say("begun", cut=None if cut is None else cut.to_json(), joined=joined_topics(topology))
            applier = Applier(spec, store, RowCodec(topology, spec.key), client, stopping=stopping)
            _run(applier, stopping, say)
    except Exception as error:
        logger.exception("the follower of %s v%d ends", spec.view, spec.version)
        message = str(error) if isinstance(error, SuiroError) else f"{type(error).__name__}: {error}"
        is_transient = isinstance(error, TransientError) or is_of_the_disk(error)
        say("error", error=message, is_transient=is_transient)
        return 1
    return 0


def joined_topics(topology: Topology) -> dict[str, list[str]] | None:
    """Returns, for each input topic, those whose partition of the same number is processed by the same task. None if
    records change their partitions on the way, or read global tables."""
    if any(isinstance(node.operator, Repartition | GlobalTableSource) for node in topology.nodes):
        return None
    found: dict[str, list[str]] = {}
    for sub in topology.sub_topologies:
        sources = [node.operator for node in sub.inputs if isinstance(node.operator, Source)]
        topics = [topic for source in sources for topic in source.topics]
        for topic in topics:
            found.setdefault(topic, []).extend(topics)
    return found


def _run(applier: Applier, stopping: Stopping, say: Any) -> None:
    failed: str | None = None
    is_well = False
    while not stopping.is_set():
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
            stopping.wait(RETRY_S)
            continue
        if cut is not None or not is_well:
            is_well, failed = True, None
            say("at", cut=None if cut is None else cut.to_json())


def _stop_with_stdin(lines: Iterator[bytes], stopping: Stopping) -> None:
    """Stdin ends with the host, however that ends."""
    for _ in lines:
        pass
    stopping.set()


if __name__ == "__main__":
    sys.exit(main())
