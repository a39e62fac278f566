"""A version's follower in the host: it knows the newest cut of the version's store, and notifies waiting readers.

A child process (`applying`) does the work. It is restarted whenever it ends, and continues at the store's cut. It ends
with the host, however the host ends, because its standard input closes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from suiro.foundation import process
from suiro.foundation.types import TopicPartition
from suiro.views.cpus import apart
from suiro.views.cuts import Cut
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.supervision import Child, ChildStatus, Supervisor
from suiro.views.store import open_store

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
LOG_NAME, CODE_NAME = "follower.log", "code.zip"


class FollowerProcess(Child):
    """`heard` gets each event but errors."""

    name, log = "the follower's process", LOG_NAME
    stop_s = 10.0

    def __init__(self, started: process.Process, heard: Callable[[Mapping[str, Any]], None]) -> None:
        self._heard = heard
        super().__init__(started, ChildStatus())

    def _hear(self, said: Mapping[str, Any]) -> None:
        if said["event"] == "error":
            state: Any = "starting" if said["is_transient"] else "failed"  # after a lasting one, the process ends
            self.status = ChildStatus(state=state, error=said["error"], is_transient=said["is_transient"])
            return
        if said["event"] == "at":
            self.status = ChildStatus(state="running")
        self._heard(said)


class Follower:
    """Thread-safe. `folder` has the version's `code.zip`, and gets the child's log. `location`: of the store. `gave_up`
    is that of its `Supervisor`: the store refuses a row, or the code does not load."""

    def __init__(
        self,
        spec: VersionSpec,
        folder: Path,
        location: str | Path,
        *,
        bootstrap_servers: str,
        client_settings: Mapping[str, str | int] | None = None,
        gave_up: Callable[[str], bool] = lambda error: True,
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
        self._gave_up = gave_up
        self._lock = threading.Lock()  # guards what follows
        self._cut: Cut | None = None
        self._joined: Mapping[str, Sequence[str]] | None = None
        self._reflected: dict[TopicPartition, int] = {}
        self._listeners: set[Callable[[], None]] = set()
        self._supervisor: Supervisor[FollowerProcess] | None = None

    def start(self) -> None:
        """Raises the store's error if its location cannot be used."""
        with open_store(self._spec, self._location) as store:
            self._cut = store.cut
            settled = next((cut for cut in store.newest_cuts() if cut.is_settled), None)
        for cut in (settled, self._cut):
            self._reflected |= {} if cut is None else cut.reflected()
        self._supervisor = Supervisor(
            f"the follower of {self._spec.view} v{self._spec.version}",
            self._start_child,
            progress=lambda: self.cut,
            gave_up=self._gave_up,
            backoff=process.Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S),
        )

    def stop(self) -> None:
        """Returns once the child is gone. Safe to call again."""
        if self._supervisor is not None:
            self._supervisor.stop()

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
    def error(self) -> str | None:
        """The reason why it makes no progress, None while it does."""
        return None if self._supervisor is None else self._supervisor.status()["error"]

    @property
    def pid(self) -> int | None:
        return None if self._supervisor is None else self._supervisor.status()["pid"]

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """A thread of the follower calls `heard` after each new cut; it must not wait. The result ends that."""
        with self._lock:
            self._listeners.add(heard)

        def end() -> None:
            with self._lock:
                self._listeners.discard(heard)

        return end

    def _start_child(self) -> FollowerProcess:
        command = apart([sys.executable, "-m", "suiro.views.pipeline.applying"])
        started = process.start_command(command, log=self._folder / LOG_NAME, given=self._given)
        return FollowerProcess(started, self._hear)

    def _hear(self, said: Mapping[str, Any]) -> None:
        with self._lock:
            if said["event"] == "begun":
                self._joined = said["joined"]
            if said["cut"] is not None:
                self._cut = Cut.from_json(said["cut"])
                self._reflected |= self._cut.reflected(self._joined)
            listeners = list(self._listeners)
        for heard in listeners:
            heard()
