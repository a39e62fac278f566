"""The host of views: reads the journal, keeps the versions running, executes commands, and routes reads.

- All of its state is in the log (`journal`), or can be rebuilt from it. A host that is killed at any point continues
  after a restart. A reconciler for each view completes interrupted work.
- A folder has one host, by a file lock. A log has one host, by the journal: a later host takes over, and the earlier
  one ends.
- User code and long tasks run in other processes (`isolated`, pipelines, followers).
- The journal's state routes each read. A change of routing applies to all readers once its transaction has been read
  back.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suiro.client import Client
from suiro.clock import SystemClock
from suiro.errors import ConfigError, UsageError
from suiro.views.control import lifecycle
from suiro.views.control.comparing import Comparing
from suiro.views.control.isolated import Limit, run_isolated
from suiro.views.control.journal import Journal
from suiro.views.control.journal_keys import KEY_FILE, Keys
from suiro.views.control.journal_records import SEEN_FILE
from suiro.views.control.reconciler import Reconciler
from suiro.views.control.running import HostEnvironment
from suiro.views.definition import VersionSpec
from suiro.views.pipeline.archive import code_id
from suiro.views.pipeline.inputs import check_names
from suiro.views.pipeline.pace import ask_throttle, check_throttle
from suiro.views.pipeline.shared_jvm import SharedJvm
from suiro.views.serving.served import Served
from suiro.views.state import (
    LARGEST_LAG_MS,
    NO_CONDITIONS,
    POSITIONS,
    Change,
    ConcurrentChangeError,
    NotServedError,
    RollbackConditions,
    RolloutPlan,
    UnknownViewError,
    View,
    position_of,
    version_for,
)

CHECK_TIMEOUT_S = 120.0
OPEN_MS = 5_000
"""The longest wait for views that are opened, before the host answers."""
JAVA_MEMORY = "2g"
CHECKS, LOCK = ".checks", ".lock"  # beside the folders of views, whose names begin with a letter
"""The folder of code that is being checked; the lock file."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    bootstrap_servers: str
    data: Path
    client_settings: Mapping[str, str] = field(default_factory=dict)
    schema_registry_url: str | None = None
    postgres: str | None = None
    replication_factor: int = -1
    journal_key: Path | None = None
    """The file of the key that signs decisions; None: a file in the folder."""
    java_memory: str = JAVA_MEMORY
    """The memory of the shared JVM, in Java's form: 2g, 800m."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[1-9][0-9]{0,5}[mg]", self.java_memory):
            raise ConfigError(f"--java-memory {self.java_memory}: give a number and m or g, such as 2g or 800m")

    @property
    def keys(self) -> Keys:
        """Raises `ConfigError`."""
        own = self.data / KEY_FILE
        return Keys.kept(own) if self.journal_key is None else Keys.read(self.journal_key)


class Host:
    """`start` returns once all decisions are read, and the versions are opened or `OPEN_MS` are over. Thread-safe.
    `ended` is set when another host has taken over; `why_ended` names it."""

    def __init__(self, config: HostConfig, *, url: str) -> None:
        self.config = config
        self.ended = threading.Event()
        self.why_ended: str | None = None
        self._url = url
        self._id = uuid.uuid4().hex
        self._clock = SystemClock()
        self._lock_file = locked(config.data)
        self._environment = HostEnvironment(
            data=config.data,
            bootstrap_servers=config.bootstrap_servers,
            client_settings=config.client_settings,
            postgres=config.postgres,
            jvm=SharedJvm(config.data, settings={"spark.driver.memory": config.java_memory}),
        )
        self._journal = Journal(
            config.bootstrap_servers,
            keys=config.keys,
            seen=config.data / SEEN_FILE,
            client_settings=config.client_settings,
            replication_factor=config.replication_factor,
            changed=self._on_change,
            clock=self._clock,
        )
        self._reconcilers: dict[str, Reconciler] = {}  # guarded by `_reconcilers_lock`
        self._reconcilers_lock = threading.Lock()
        self._stopping = threading.Event()
        self._is_ours = False
        self._opens_late = False  # a deploy failed, but its decision may still be read
        self.comparing = Comparing(
            self._journal, self._environment, served=self.version, clock=self._clock, stopping=self._stopping
        )

    def start(self) -> None:
        self._warn_unless_guarded()
        self._journal.start()
        self._journal.take_over({"id": self._id, "url": self._url, "pid": os.getpid(), "on": socket.gethostname()})
        self._is_ours = True
        # Another host may have taken over meanwhile, and its record may have been read before `_is_ours` was set.
        self._on_change()
        shutil.rmtree(self.config.data / CHECKS, ignore_errors=True)  # of a host that was killed
        if not self.ended.is_set():
            self._open_reconcilers()

    def _warn_unless_guarded(self) -> None:
        with Client(self.config.bootstrap_servers, settings=self.config.client_settings) as client:
            if client.has_authorizer():
                return
        logger.warning(
            "the Kafka at %s asks nobody for rights: whoever reaches it can read the code of all versions in topic %s, "
            "delete that topic, and write into the inputs and outputs of views (their code does not run, because this "
            "host has not signed it). Set ACLs on the brokers, or keep that network closed",
            self.config.bootstrap_servers, self._journal.topic,
        )  # fmt: skip

    def stop(self) -> None:
        """May be called again. Versions continue at the next start."""
        self._stopping.set()
        with self._reconcilers_lock:
            reconcilers, self._reconcilers = list(self._reconcilers.values()), {}
        ending = [threading.Thread(target=reconciler.stop) for reconciler in reconcilers]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()
        self._journal.stop()
        self._lock_file.close()

    def _on_change(self) -> None:
        """Runs on the journal's thread, so it must not wait."""
        host = self._journal.host
        if self._is_ours and host is not None and host["id"] != self._id and not self.ended.is_set():
            self.why_ended = f"another host took these views over: {host['url']}, process {host['pid']} on {host['on']}"
            self.ended.set()
        for reconciler in list(self._reconcilers.values()):
            reconciler.wake()
        if self._opens_late and not self.ended.is_set():
            threading.Thread(target=self._open_reconcilers, name="views-open", daemon=True).start()

    def _open_reconcilers(self) -> None:
        opening = []
        for name in self._journal.views():
            with self._reconcilers_lock:
                if name in self._reconcilers or self._stopping.is_set():
                    continue
                reconciler = self._reconcilers[name] = Reconciler(
                    name,
                    self._journal,
                    self._environment,
                    clock=self._clock,
                    compare=self.comparing.difference,
                )
            reconciler.start()
            opening.append(reconciler)
        # The first readers should get an answer. But a view whose database does not answer must not keep the others
        # from answering.
        ends_ms = self._clock.monotonic_ms() + OPEN_MS
        for reconciler in opening:
            reconciler.has_tried.wait(max(0, ends_ms - self._clock.monotonic_ms()) / 1000)

    def _reconciler(self, view: str) -> Reconciler:
        self._journal.view(view)  # raises an error that names the known views
        found = self._reconcilers.get(view)
        if found is None:
            raise NotServedError(f"view {view} is being opened; try again in a moment")
        return found

    # The router of `reads`

    def serving(self, view: str, caller: str) -> Served:
        """Returns the version that answers this caller."""
        while True:
            state = self._journal.view(view)
            number = version_for(state, caller)
            if number is None:
                position = position_of(state)
                raise NotServedError(
                    f"view {view} serves nothing: {POSITIONS[position]}; suiro view status {view} says more"
                )
            try:
                return self.version(view, number)
            except UnknownViewError:
                if self._journal.view(view) is state:
                    raise
                # The version was retired meanwhile, and another one answers this caller now.

    def version(self, view: str, number: int) -> Served:
        reconciler = self._reconciler(view)
        running = reconciler.running(number)
        if running is not None:
            return running.served
        version = self._journal.view(view).version(number)
        if version.lives:
            error = reconciler.error(number)
            why = "is being opened; try again in a moment" if error is None else f"cannot be opened: {error}"
            raise NotServedError(f"version {number} of view {view} {why}")
        raise UnknownViewError(f"version {number} of view {view} is {version.state}, and has no rows any more")

    def deploy(
        self,
        code: bytes,
        entry: str,
        *,
        who: str,
        settings: Mapping[str, str] | None = None,
        schema_registry_url: str | None = None,
        throttle: int | None = None,
    ) -> dict[str, Any]:
        """Checks in a separate process that the code loads, that its topology can work, and that its inputs still have
        their beginning. Only then writes anything."""
        check_throttle(throttle)
        sha256 = code_id(code)
        checked = self._checked(
            code,
            {
                "code": sha256,
                "entry": entry,
                "settings": dict(settings or {}),
                "registry": schema_registry_url or self.config.schema_registry_url,
                "versions": {name: _next(view) for name, view in self._journal.views().items()},
                "journal_id": str(self._journal.topic_id or ""),
                "bootstrap_servers": self.config.bootstrap_servers,
                "client_settings": dict(self.config.client_settings),
            },
        )
        spec = VersionSpec.from_json(checked)
        if spec.serve == "postgres" and self.config.postgres is None:
            raise UsageError(
                f'view {spec.view} says serve="postgres", and this host was started without --postgres DSN; restart it '
                'with one, or say serve="sqlite"'
            )

        def check(view: View) -> None:
            lifecycle.check_deploy(view, spec.key)
            now = _next(view)
            leader = now["leader"]
            if now["next"] != spec.version or spec.leader_cuts_topic != (leader and leader["cuts_topic"]):
                raise ConcurrentChangeError(
                    f"somebody else changed view {spec.view} while this version was checked; nothing was deployed. "
                    f"Look how it stands (suiro view status {spec.view}), then deploy again"
                )

        def decide(view: View) -> Change:
            check(view)
            return lifecycle.deploy(view, key=spec.key, spec=checked)

        check(self._journal.views().get(spec.view) or View(name=spec.view))
        self._environment.require_own(spec)
        with Client(self.config.bootstrap_servers, settings=self.config.client_settings) as client:
            check_names(client, spec)
        try:
            self._journal.change(spec.view, decide, who=who, codes={sha256: code})
            # After the decision, because a refused deploy of the same version number must not change this file. A host
            # that is killed here builds the version without a limit until `throttle` is called.
            ask_throttle(self._environment.folder(spec), throttle)
        except BaseException:
            self._opens_late = True
            raise
        finally:  # it may have been decided all the same
            self._open_reconcilers()
        return self.status(spec.view, reads_lag=False) | {"deployed": spec.version}

    def _checked(self, code: bytes, given: Mapping[str, Any]) -> Any:
        """Runs the check of a version's code, and returns the version's spec."""
        limit = Limit("the check of the code", stopping=self._stopping, seconds=CHECK_TIMEOUT_S, clock=self._clock)
        code_file = self.config.data / CHECKS / f"{uuid.uuid4().hex}.zip"
        code_file.parent.mkdir(parents=True, exist_ok=True)
        try:
            code_file.write_bytes(code)
            return run_isolated("check", {**given, "code_file": str(code_file)}, limit=limit)
        finally:
            code_file.unlink(missing_ok=True)

    def throttle(self, view: str, *, records_per_second: int | None = None) -> dict[str, Any]:
        """Limits the version that is being built, from its next micro-batch on. 0 pauses it, None is no limit."""
        state = self._journal.view(view)
        building = [version for version in state.versions if version.state == "building"]
        if not building:
            raise UsageError(f"no version of view {view} is being built, so there is nothing to limit")
        ask_throttle(self._environment.folder(VersionSpec.from_json(building[-1].spec)), records_per_second)
        return self.status(view, reads_lag=False)

    def shift(
        self,
        view: str,
        steps: Sequence[int],
        *,
        who: str,
        hold_ms: int = 0,
        guards: RollbackConditions = NO_CONDITIONS,
        max_lag_ms: int = LARGEST_LAG_MS,
    ) -> dict[str, Any]:
        """`steps`: in basis points. The host takes several steps one after the other. It rolls back if a condition of
        `guards` is broken."""
        if not steps:
            raise UsageError("a shift has at least one step; give a percentage, or several")
        plan = None
        if len(steps) > 1 or hold_ms:
            plan = RolloutPlan(steps=tuple(steps), hold_ms=hold_ms, largest_lag_ms=max_lag_ms)

        lag_ms = self._lag_of_candidate(view)

        def decide(now: View) -> Change:
            return lifecycle.shift(
                now, steps[0], lag_ms=lag_ms(now), guards=guards, guide=plan, largest_lag_ms=max_lag_ms
            )

        return self._changed(view, decide, who)

    def rollback(self, view: str, *, who: str) -> dict[str, Any]:
        return self._changed(view, lifecycle.rollback, who)

    def forward(self, view: str, *, who: str, max_lag_ms: int = LARGEST_LAG_MS) -> dict[str, Any]:
        lag_ms = self._lag_of_candidate(view)
        return self._changed(
            view,
            lambda now: lifecycle.forward(now, lag_ms=lag_ms(now), largest_lag_ms=max_lag_ms),
            who,
        )

    def retire(self, view: str, *, who: str, version: int, yes: bool = False, last: bool = False) -> dict[str, Any]:
        if not yes:
            raise UsageError(
                f"retiring version {version} of view {view} deletes its topics and its store, and nothing brings them "
                'back; say so: --yes, or "yes": true'
            )
        return self._changed(view, lambda now: lifecycle.retire(now, version, last=last), who)

    def move_consumers(self, view: str, *, group: str, version: int) -> dict[str, Any]:
        """Moves a consumer group from the other version's output topic to the matching offsets of this version's."""
        from suiro.views.control.consumers import move_group

        state = self._journal.view(view)
        target = state.version(version)
        others = [one for one in state.live if one.number != version]
        if not target.lives or not others:
            raise UsageError(
                f"consumers are moved between two versions that live; of view {view} there are: "
                + (", ".join(str(one.number) for one in state.live) or "none")
            )
        if target.state == "building":
            raise UsageError(
                f"version {version} of view {view} is still being built; group {group!r} would go back in time with "
                f"it, and be told again what it has had. Wait until it is ready: suiro view status {view}"
            )
        with Client(self.config.bootstrap_servers, settings=self.config.client_settings) as client:
            moved = move_group(client, group, VersionSpec.from_json(others[0].spec), VersionSpec.from_json(target.spec))
        return {"view": view, "group": group, "from": others[0].number, "to": version, "moved": moved}

    def _changed(self, view: str, decide: Any, who: str) -> dict[str, Any]:
        self._journal.view(view)
        self._journal.change(view, decide, who=who)
        self._reconciler(view).wake()
        return self.status(view, reads_lag=False)

    def _lag_of_candidate(self, name: str) -> Callable[[View], int | None]:
        """Reads the lag now, because no decision of any view may wait for a database. The result returns None if the
        view has another candidate by then."""
        number = self._journal.view(name).routing.candidate
        lag_ms = None if number is None else self._reconciler(name).lag_ms(number)
        return lambda now: lag_ms if now.routing.candidate == number else None

    def views(self) -> list[dict[str, Any]]:
        return [self.status(name) for name in sorted(self._journal.views())]

    def status(self, view: str, *, reads_lag: bool = True) -> dict[str, Any]:
        """`reads_lag`: False for the answer of a decision, which must not wait for a database."""
        return self._reconciler(view).status(reads_lag=reads_lag)

    def pipelines(self) -> list[tuple[str, int, bool]]:
        """View, version, and whether its pipeline runs. Also of versions that cannot be opened."""
        found = []
        for name, view in sorted(self._journal.views().items()):
            reconciler = self._reconcilers.get(name)
            for version in view.live:
                one = None if reconciler is None else reconciler.running(version.number)
                runs = one is not None and one.pipeline.status()["state"] in ("running", "ready")
                found.append((name, version.number, runs))
        return found

    def journal(self) -> dict[str, Any]:
        """Whether the host trusts the records of the journal, and how many it has refused."""
        return self._journal.status()

    def history(self, view: str) -> list[dict[str, Any]]:
        self._journal.view(view)
        return self._journal.history(view)


def _next(view: View) -> dict[str, Any]:
    serving = view.routing.serving
    return {
        "next": lifecycle.next_number(view),
        "leader": None if serving is None else dict(view.version(serving).spec),
    }


def locked(data: Path) -> Any:
    """Takes the lock of the folder, which ends with the process, however that ends. Raises `ConfigError`."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        file = (data / LOCK).open("a")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"another host of views runs on {data}; stop it, or give another folder with --data"
        ) from None
    except OSError as error:
        raise ConfigError(f"--data {data}: {error.strerror or error}") from error
    return file
