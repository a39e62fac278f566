"""Takes the place of a running application without a stop: follows it without output, then switches at its committed
offsets.

Who may write is what the marker in Kafka says. It changes in one transaction (`switch`), after a fence; everything
else, also what is in the state directory, only follows from it. See docs/decisions/0019.

`<checkpoint>/suiro-replace.json` says that the state here was made while another process wrote the results. Until there
is a boundary beside it (`rebuild`), it follows.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suiro.clock import SystemClock
from suiro.errors import AbortableError, FatalError, FencedError
from suiro.foundation.files import replace_file
from suiro.foundation.types import TopicPartition
from suiro.spark import (
    Destination,
    Marker,
    Positions,
    RetryingClient,
    SinkOptions,
    Waiting,
    newest_in,
    offsets_with_marker,
    query_id_of,
    reach,
    read_marker,
    read_planned,
    replaced,
)
from suiro.streams.errors import CheckpointError
from suiro.streams_spark.rebuild import Boundary, begins_anew, check_log, committed_boundary, read_versioned

FILE = "suiro-replace.json"
FORMAT_VERSION = 1
CAUGHT_UP_S = 10.0
"""It switches when it has processed all that the other one committed so long ago."""
SAMPLES_MAX = 4_096
RUN = "switch"
"""The run in the marker that `switch` writes: no driver's."""

LOOK_S = 0.5
PAUSES_S = (0.02, 0.3)
"""Between attempts to take over; drawn, so that they do not keep step with the other one's transactions."""

_log = logging.getLogger(__name__)


def begin_to_follow(client: Any, sink: SinkOptions, topics: tuple[str, ...], checkpoint: Path) -> None:
    """Notes in an empty state directory that it is to follow. Raises `CheckpointError` if it has other state, and if
    there is nothing to follow."""
    if (checkpoint / FILE).exists():
        read_versioned(checkpoint / FILE, FORMAT_VERSION)
        return
    if not begins_anew(checkpoint):
        raise CheckpointError(
            f"{checkpoint} has the state of {sink.application_id!r} already. What replaces a running application "
            "begins with none: name another, empty state directory (--state-dir, state_dir=)"
        )
    boundary = committed_boundary(client, sink, topics, is_stable=False)
    if boundary is None:
        raise CheckpointError(
            f"there is nothing to replace: application {sink.application_id!r} has committed no offsets on "
            f"{sink.bootstrap_servers}. Start it without --replace (in Python: replace=True)"
        )
    check_log(client, boundary, sink)
    mark(checkpoint)


def mark(checkpoint: Path) -> None:
    """Notes that this state directory is to follow."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    replace_file(checkpoint / FILE, json.dumps({"version": FORMAT_VERSION}) + "\n")


def follows(client: Any, sink: SinkOptions, topics: tuple[str, ...], checkpoint: Path) -> bool:
    """Whether this state directory still follows. Ends a switch that was interrupted after its transaction."""
    if not (checkpoint / FILE).exists() or Boundary.load(checkpoint) is not None:
        return False
    read_versioned(checkpoint / FILE, FORMAT_VERSION)
    # Not the stable one: this would wait for a transaction that nobody ends, and the switch itself looks again.
    marker = read_marker(client, Destination.of(sink), stable=False)
    if marker is None or marker.lineage != query_id_of(str(checkpoint)):
        return True
    _save_boundary(client, sink, topics, checkpoint)
    return False


def require_not_replaced(client: Any, sink: SinkOptions, checkpoint: Path) -> None:
    """Raises `ReplacedError` if this state directory has written results and another one was the last to do so. It asks
    before it fences anybody, so it does not disturb the one that writes now."""
    lineage = query_id_of(str(checkpoint))
    if lineage is None or newest_in(str(checkpoint), "commits") < 0:
        return
    destination = Destination.of(sink)
    marker = read_marker(client, destination, stable=False)
    if marker is not None and marker.lineage != lineage:
        raise replaced(destination.application_id, marker)


def switch(
    client: Any,
    sink: SinkOptions,
    topics: tuple[str, ...],
    checkpoint: Path,
    *,
    reach: Callable[[str, int], None] = lambda point, batch_id: None,
) -> bool:
    """Tries once to take over, and then saves the boundary; no query of this checkpoint may run. Returns False if the
    other one fenced in between: nothing has changed then. Raises the cluster's errors; it may be called again then."""
    marker = _own_marker(checkpoint)
    destination = Destination.of(sink)
    reach("before_switch", marker.batch_id)
    transactions = client.transaction(destination.transactional_id, timeout_ms=destination.transaction_timeout_ms)
    transactions.init()
    reach("after_switch_fence", marker.batch_id)
    # No other request in between, for the other one fences as soon as it notices. If the answer to an earlier attempt
    # was lost, the marker is there already, and this writes it again.
    try:
        transactions.add_offsets(destination.group)
        transactions.commit_offsets(destination.group, offsets_with_marker(marker, {}, {}))
        transactions.end(commit=True)
    except (FencedError, AbortableError) as error:
        # In transactions V2 the first half of a fence aborts what is open, and leaves its epoch to be taken next.
        _log.info("the running process of %r fenced: %s", sink.application_id, error)
        return False
    reach("after_switch", marker.batch_id)
    _save_boundary(client, sink, topics, checkpoint)
    reach("after_switch_boundary", marker.batch_id)
    return True


def _own_marker(checkpoint: Path) -> Marker:
    """The marker that says that the micro-batches up to here are done. They wrote nothing."""
    place = str(checkpoint)
    lineage, done = query_id_of(place), newest_in(place, "commits")
    planned = read_planned(place, done) if done >= 0 else None
    if lineage is None or planned is None:
        raise FatalError(f"{checkpoint} has no micro-batch that is done, so it cannot take over")
    return Marker(lineage=lineage, batch_id=done, end_digest=planned.digest, start_digest="", run_id=RUN)


def _save_boundary(client: Any, sink: SinkOptions, topics: tuple[str, ...], checkpoint: Path) -> None:
    boundary = committed_boundary(client, sink, topics, is_stable=True)
    if boundary is None:
        raise FatalError(
            f"the committed offsets of {sink.application_id!r} are gone; they were there when it was followed"
        )
    boundary.save(checkpoint)


class Following:
    """How far behind the running application the one that follows is. Pure.

    `lag_records`: offsets that the other one has committed and that are not processed here. `lag_ms`: how long ago the
    oldest of them may have been committed; None before the first micro-batch.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, Mapping[TopicPartition, int]]] = deque(maxlen=SAMPLES_MAX)
        """When it was seen, and what the other one had committed."""
        self.lag_records: int | None = None
        self.lag_ms: int | None = None

    def see(self, now_ms: int, committed: Mapping[TopicPartition, int], done: Positions | None) -> None:
        """`done`: where the last micro-batch that is done ended."""
        self._samples.append((now_ms, dict(committed)))
        if done is None:
            return
        self.lag_records = sum(max(0, at - done.offsets.get(place, 0)) for place, at in committed.items())
        reached = None
        while self._samples and _has(done, self._samples[0][1]):
            reached = self._samples.popleft()
        if reached is not None:
            # It stays: at the next look it may still be the newest that is reached.
            self._samples.appendleft(reached)
            self.lag_ms = now_ms - reached[0]
        else:
            self.lag_ms = None if self.lag_ms is None else now_ms - self._samples[0][0]

    @property
    def has_caught_up(self) -> bool:
        return self.lag_ms is not None and self.lag_ms <= CAUGHT_UP_S * 1_000


def _has(done: Positions, committed: Mapping[TopicPartition, int]) -> bool:
    return all(done.offsets.get(place, 0) >= at for place, at in committed.items())


# The thread that watches, and switches


@dataclass(frozen=True, slots=True)
class Replacement:
    """The progress of a replacement. `lag_records`: offsets that the running application has committed and that are not
    processed here; None before the first micro-batch."""

    phase: Literal["following", "switching", "switched"]
    lag_records: int | None = None


class Follower:
    """`connect` gives a client. `stop_query` ends the query that follows, `go_on` starts the one that writes."""

    def __init__(
        self,
        *,
        connect: Callable[[], Any],
        sink: SinkOptions,
        topics: tuple[str, ...],
        checkpoint: Path,
        is_active: Callable[[], bool],
        stop_query: Callable[[], None],
        go_on: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._sink = sink
        self._topics = topics
        self._checkpoint = checkpoint
        self._is_active = is_active
        self._stop_query = stop_query
        self._go_on = go_on
        self._clock = SystemClock()
        self._stopping = threading.Event()
        self.status = Replacement("following")
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended. Safe to call again."""
        self._stopping.set()
        self.wait()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it has switched or given up. Returns False if it has done neither."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_at_it(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            with self._connect() as client:
                if not (self._catch_up(client) and self._take_over(client)):
                    return
            self._go_on()
            self.status = Replacement("switched", 0)
        except Exception as error:  # noqa: BLE001 - whoever waits for the application gets it
            _log.debug("%s could not take over: %s", self._sink.application_id, error)
            self.failure = error

    def _catch_up(self, client: Any) -> bool:
        """Returns False if the query ended before."""
        patient = RetryingClient(client, self._waiting())
        following = Following()
        while not self._stopping.wait(LOOK_S):
            if not self._is_active():
                return False
            found = committed_boundary(patient, self._sink, self._topics, is_stable=False)
            if found is None:
                continue  # the query says so
            following.see(self._clock.monotonic_ms(), found.offsets, self._done())
            self.status = Replacement("following", following.lag_records)
            if following.has_caught_up:
                _log.info("%s has caught up with the running process", self._sink.application_id)
                return True
        return False

    def _take_over(self, client: Any) -> bool:
        self.status = Replacement("switching", self.status.lag_records)
        self._stop_query()
        waiting = self._waiting()
        while not self._stopping.is_set():
            if waiting.run(
                "take over from the running process",
                lambda: switch(client, self._sink, self._topics, self._checkpoint, reach=reach),
            ):
                return True
            self._stopping.wait(random.uniform(*PAUSES_S))
        return False

    def _done(self) -> Positions | None:
        """The end of the last micro-batch that is done, as Spark wrote it down."""
        number = newest_in(str(self._checkpoint), "commits")
        planned = None if number < 0 else read_planned(str(self._checkpoint), number)
        return None if planned is None else planned.positions[0]

    def _waiting(self) -> Waiting:
        return Waiting(clock=self._clock, is_wanted=lambda: not self._stopping.is_set())
