"""A version that runs in the host: its pipeline and its follower, each a child process, and its store, open to read.

Its folder has what it needs to continue: its code, the pipeline's checkpoint, logs, and the store if that is a file.
All of it can be made again. `free` deletes the data of a version, here and in Kafka. After a kill, it can be repeated.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suiro.client import Client
from suiro.errors import ConfigError
from suiro.foundation import process
from suiro.foundation.files import replace_file
from suiro.spark import can_share_jvm
from suiro.views.cuts import Cut
from suiro.views.definition import VersionSpec
from suiro.views.pipeline import LOG, SPEC
from suiro.views.pipeline.follower import CODE_NAME, LOG_NAME, Follower
from suiro.views.pipeline.inputs import own_topics
from suiro.views.pipeline.process import PipelineProcess, PipelineStatus
from suiro.views.pipeline.shared_jvm import SharedJvm
from suiro.views.pipeline.supervision import Supervisor
from suiro.views.serving.served import ReadMetrics, Served
from suiro.views.settings import RunSettings
from suiro.views.store import open_store
from suiro.views.store.rows import (
    StoreBrokenError,
    StoreFullError,
    StoreOfAnotherError,
    StoreUnavailableError,
)
from suiro.views.store.tables import Store

logger = logging.getLogger(__name__)

NICE = 10


class LocationTakenError(ConfigError):
    """The version's location has data of another version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEnvironment:
    """What all versions of a host use: its folder, its Kafka, a database for those that are served from one. `jvm`: the
    shared one; None if each version has its own."""

    data: Path
    bootstrap_servers: str
    client_settings: Mapping[str, str]
    postgres: str | None
    jvm: SharedJvm | None = None

    def folder(self, spec: VersionSpec) -> Path:
        return self.data / spec.view / f"v{spec.version}"

    def location(self, spec: VersionSpec) -> str:
        """Returns the location of its store. Raises `ConfigError` without a DSN, because Postgres has a default one."""
        if spec.serve == "sqlite":
            return str(self.folder(spec))
        if self.postgres is None:
            raise ConfigError(
                f"version {spec.version} of view {spec.view} is served from Postgres, and this host was started "
                "without --postgres DSN; restart it with the one that it had"
            )
        return self.postgres

    def jvm_of(self, spec: VersionSpec) -> SharedJvm | None:
        """Returns None if the version has a JVM of its own."""
        shares = self.jvm is not None and can_share_jvm() and RunSettings.parse(spec.settings).shares_jvm
        return self.jvm if shares else None

    def side(self, spec: VersionSpec) -> dict[str, Any]:
        """Returns what another process needs to open the version's store and code."""
        return {
            "spec": spec.to_json(),
            "location": self.location(spec),
            "code_file": str(self.folder(spec) / CODE_NAME),
        }

    def require_own(self, spec: VersionSpec) -> None:
        """Raises `LocationTakenError` if the version's folder belongs to the same version of another log: its
        checkpoint has offsets of that log."""
        try:
            there = json.loads((self.folder(spec) / SPEC).read_text())
        except (OSError, ValueError):
            return
        if there.get("journal_id", "") != spec.journal_id:
            raise LocationTakenError(
                f"folder {self.folder(spec)} has a version {spec.version} of view {spec.view!r} from another log: "
                f"there topic _suiro_views has the id {there.get('journal_id') or 'unknown'}, here "
                f"{spec.journal_id or 'unknown'}. Give each log's host a folder of its own (--data); or, where that "
                "log is gone, remove the folder and deploy again"
            )


class RunningVersion:
    """Runs from its creation until `stop`. `is_beside()`: whether it is being built beside a serving version, which has
    priority."""

    def __init__(
        self,
        spec: VersionSpec,
        environment: HostEnvironment,
        code: bytes,
        *,
        gave_up: Callable[[str], bool],
        is_beside: Callable[[], bool],
    ) -> None:
        self.spec = spec
        self.folder = environment.folder(spec)
        environment.require_own(spec)
        self.folder.mkdir(parents=True, exist_ok=True)
        code_file = self.folder / CODE_NAME
        if not code_file.exists() or code_file.read_bytes() != code:
            replace_file(code_file, code)
        location = environment.location(spec)
        self.jvm = environment.jvm_of(spec)
        self.follower = Follower(
            spec,
            self.folder,
            location,
            bootstrap_servers=environment.bootstrap_servers,
            client_settings=environment.client_settings,
            gave_up=lambda error: gave_up(f"its rows cannot be served: {error}"),
        )
        with contextlib.ExitStack() as stack:
            self.store: Store = stack.enter_context(open_store(spec, location))
            self.follower.start()
            stack.callback(self.follower.stop)
            if self.jvm is not None:
                self.jvm.enter()
                stack.callback(self.jvm.exit, spec.application_id, self.folder)
            self.pipeline = Supervisor(
                f"{spec.view}.v{spec.version}",
                lambda: PipelineProcess.start(
                    spec,
                    code=code,
                    folder=self.folder,
                    bootstrap_servers=environment.bootstrap_servers,
                    client_settings=environment.client_settings,
                    nice=NICE if is_beside() else 0,
                    jvm=self.jvm,
                ),
                progress=lambda: None if self.cut is None else self.cut.number,
                gave_up=gave_up,
            )
            stack.callback(self.pipeline.stop)
            self._open = stack.pop_all()
        self.served = Served(spec=spec, store=self.store, follower=self.follower, metrics=ReadMetrics())

    @property
    def cut(self) -> Cut | None:
        """The cut that its readers see."""
        return self.follower.cut

    @property
    def pipeline_status(self) -> PipelineStatus | None:
        """The status that the pipeline reports; None while no pipeline runs."""
        child = self.pipeline.child
        return child.status if child is not None and child.is_alive else None

    def limit_logs(self) -> None:
        """Limits the logs: output of the user's code for each record would fill the disk."""
        for name in (LOG, LOG_NAME):
            process.limit_log(self.folder / name)
        if self.jvm is not None:
            self.jvm.limit_log()

    def stop(self) -> None:
        """Returns once its processes have ended."""
        self._open.close()


def free(spec: VersionSpec, environment: HostEnvironment) -> None:
    """Deletes topics, store and folder of a version that does not run any more, except those of another version. May be
    repeated."""
    with Client(environment.bootstrap_servers, settings=environment.client_settings) as client:
        client.delete_topics(own_topics(client, spec), missing_ok=True)
    try:
        environment.require_own(spec)
        with contextlib.closing(open_store(spec, environment.location(spec))) as store:
            store.drop()
    except (LocationTakenError, StoreOfAnotherError) as error:
        logger.warning("version %d of view %s leaves what is not its own: %s", spec.version, spec.view, error)
        return
    except (StoreBrokenError, StoreUnavailableError, StoreFullError):
        if spec.serve != "sqlite":
            raise
        # The file is in the folder. It may be damaged, and on a full disk SQLite opens none.
    folder = environment.folder(spec)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)  # raises why
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # if the view has no version any more
