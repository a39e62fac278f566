"""A version's follower in the host: it knows the newest cut of the version's store, and notifies waiting readers.

A child process (`applying`) does the work. It is restarted whenever it ends, and continues at the store's cut. It ends
with the host, however the host ends, because its standard input closes.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suiro.errors import FatalError, SuiroError, TransientError
from suiro.foundation import process
from suiro.foundation.types import TopicPartition
from suiro.views.cpus import apart
from suiro.views.cuts import Cut
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.process import END_S
from suiro.views.store import open_store

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
STOP_TIMEOUT_S = 10.0
LOG_NAME, CODE_NAME = "follower.log", "code.zip"

logger = logging.getLogger(__name__)


class Follower:
    """Thread-safe. `folder` has the version's `code.zip`, and gets the child's log. `location`: of the store."""

    def __init__(
        self,
        spec: VersionSpec,
        folder: Path,
        location: str | Path,
        *,
        bootstrap_servers: str,
        client_settings: Mapping[str, str | int] | None = None,
    ) -> None:
        self._spec = spec
        self._folder = Path(folder)
        self._given = {
            "spec": spec.to_json(),
            "location": str(location),
            "code_file": str(self._folder / CODE_NAME),
            "bootstrap_servers": bootstrap_servers,
            "client_settings": dict(client_settings or {}),
        }
        self._location = location
        self._lock = threading.Lock()  # guards what follows
        self._cut: Cut | None = None
        self._joined: Mapping[str, Sequence[str]] | None = None
        self._reflected: dict[TopicPartition, int] = {}
        self._error: SuiroError | None = None
        self._failures = 0
        self._listeners: set[Callable[[], None]] = set()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Raises the store's error if its location cannot be used."""
        with open_store(self._spec, self._location) as store:
            self._cut = store.cut
            settled = next((cut for cut in store.newest_cuts() if cut.is_settled), None)
        for cut in (settled, self._cut):
            self._reflected |= {} if cut is None else cut.reflected()
        name = f"follower-{self._spec.view}.v{self._spec.version}"
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns once the child is gone. Safe to call again."""
        self._stopping.set()
        with self._lock:
            child = self._child
        if child is not None:
            child.terminate()
            process.wait_or_kill(child, STOP_TIMEOUT_S)
        if self._thread is not None:
            self._thread.join()

    @property
    def cut(self) -> Cut | None:
        """The newest cut that every reader of the store sees."""
        with self._lock:
            return self._cut

    def reflects(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether every reader of the store sees the results of the records at these offsets."""
        with self._lock:
            return all(self._reflected.get(place, 0) > offset for place, offset in offsets.items())

    @property
    def error(self) -> SuiroError | None:
        """The reason why it makes no progress, None while it does."""
        with self._lock:
            return self._error

    @property
    def failures(self) -> int:
        """How often in a row the child ended at the same cut with an error that a restart does not fix: a row that the
        store refuses, code that does not load."""
        with self._lock:
            return self._failures

    @property
    def pid(self) -> int | None:
        with self._lock:
            return None if self._child is None else self._child.pid

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """A thread of the follower calls `heard` after each new cut; it must not wait. The result ends that."""
        with self._lock:
            self._listeners.add(heard)

        def end() -> None:
            with self._lock:
                self._listeners.discard(heard)

        return end

    def _keep(self) -> None:
        backoff = process.Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while not self._stopping.is_set():
            before = self.cut
            try:
                self._run()
            except PermissionError as error:
                self._fail(FatalError(f"the follower cannot be started: {error}"))
            except (OSError, RuntimeError) as error:  # no process, or no thread, as many as there are
                self._fail(TransientError(f"the follower cannot be started: {error}"))
            if self._stopping.is_set():
                return
            with self._lock:
                if self._error is None:
                    self._error = TransientError("the follower's process ended without a word; it is started again")
            logger.warning("the follower of %s v%d ended: %s", self._spec.view, self._spec.version, self.error)
            with self._lock:
                is_lasting = isinstance(self._error, FatalError)
                self._failures = 0 if self._cut != before else self._failures + is_lasting
            if self.cut != before:
                backoff.reset()
            backoff.wait(self._stopping)

    def _run(self) -> None:
        command = apart([sys.executable, "-m", "suiro.views.pipeline.applying"])
        child = process.start_command(command, log=self._folder / LOG_NAME, given=self._given)
        with self._lock:
            self._child = child
        if self._stopping.is_set():
            child.terminate()
        hearing = threading.Thread(target=self._hear_all, args=(child,), daemon=True)
        try:
            hearing.start()
            child.wait()
            # What the user's code has forked has the pipe of the events, too, and would keep it open.
            process.kill_group(child)
            hearing.join(END_S)
        finally:
            if not hearing.is_alive():  # or the close would wait for it
                process.close_pipes(child)
            child.wait()
            with self._lock:
                self._child = None

    def _hear_all(self, child: process.Process) -> None:
        for event in process.events(child):
            self._hear(event)

    def _hear(self, said: Mapping[str, Any]) -> None:
        if said["event"] == "error":
            kind = TransientError if said["is_transient"] else FatalError
            self._fail(kind(said["error"]))
            return
        with self._lock:
            if said["event"] == "begun":
                self._joined = said["joined"]
            else:
                self._error = None
            if said["cut"] is not None:
                self._cut = Cut.from_json(said["cut"])
                self._reflected |= self._cut.reflected(self._joined)
            listeners = list(self._listeners)
        for heard in listeners:
            heard()

    def _fail(self, error: SuiroError) -> None:
        with self._lock:
            self._error = error
