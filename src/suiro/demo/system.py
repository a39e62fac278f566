"""All processes of the demo: the log, everything around it, and the readers.

Every part can be started, killed and stopped separately. `stop` ends all running parts, in the order of the data flow.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suiro.demo.connectors import write_connectors
from suiro.demo.names import PARTITIONS, PREFIX, SCHEMAS, TABLES
from suiro.demo.processes import Child, Log
from suiro.demo.receiver import AlertReceiver
from suiro.errors import FatalError

__all__ = ["System"]

# A pipeline that lives for a minute spends half of it in the JVM's second compiler; the first one is enough for it.
SHORT_LIFE = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class System:
    """`directory` holds the data and the log file of each part."""

    def __init__(self, directory: Path, *, kafka: bool, bootstrap: str | None) -> None:
        self.directory = directory
        self.state_dir = directory / "state"
        self._run = uuid.uuid4().hex[:8]
        self.weather_files = directory / "weather"
        self.answers = directory / "answers.json"  # what the reader was answered, once it has ended
        self.dsn = self.registry_url = self.views_url = ""  # once they are ready
        self.registry: Child | None = None
        self.database: Child | None = None
        self.capture: Child | None = None
        self.connect: Child | None = None
        self.driver: Child | None = None
        self.stand_by: Child | None = None  # a driver whose Spark runs, and nothing else yet
        self.driver_starts = 0
        self.batch_size = 1  # records in a micro-batch of the driver
        self.views: Child | None = None
        self.reader: Child | None = None
        self.console: Child | None = None
        self._console_address, self._application_address = _free_address(), _free_address()
        self.console_url = f"http://{self._console_address}"
        self.receiver = AlertReceiver()
        self.log = Log(directory, kafka=kafka, bootstrap=bootstrap)
        self.bootstrap_servers = self.log.bootstrap_servers

    # -- starting: each returns at once; `wait_ready` of the child says when it answers ------------------------------

    def start_registry(self) -> None:
        self.registry = self._command(
            "the registry", "registry", "--bootstrap", self.bootstrap_servers, "--topic", SCHEMAS,
            "--listen", "127.0.0.1:0",
        )  # fmt: skip

    def wait_registry(self) -> None:
        assert self.registry is not None
        self.registry_url = self.registry.wait_ready()["registry"]

    def start_database(self) -> None:
        self.database = Child(
            "Postgres",
            "suiro.demo.database",
            str(self.directory / "postgres"),
            log_path=self.directory / "postgres.log",
        )

    def wait_database(self) -> None:
        assert self.database is not None
        self.dsn = self.database.wait_ready()["dsn"]

    def start_capture(self) -> Child:
        """Also after a kill: it goes on where it was."""
        self.capture = self._command(
            "the capture", "capture", "postgres", "--dsn", self.dsn, "--bootstrap", self.bootstrap_servers,
            "--registry", self.registry_url, "--topic-prefix", PREFIX, "--tables", ",".join(TABLES),
            "--slot", f"suiro_{self._run}", "--partitions", str(PARTITIONS),
        )  # fmt: skip
        return self.capture

    def start_connect(self) -> Child:
        path = self.directory / "connectors.toml"
        write_connectors(
            path,
            run=self._run,
            bootstrap_servers=self.bootstrap_servers,
            folder=self.weather_files.name,
            url=self.receiver.url,
        )
        self.connect = self._command("the connectors", "connect", "run", str(path))
        return self.connect

    def start_driver(self) -> Child:
        """Spark starts, or has started as the stand-by; the pipeline once the child is told `start`."""
        self.driver, self.stand_by = self.stand_by or self._new_driver(), None
        self.driver_starts += 1
        return self.driver

    def start_stand_by(self) -> None:
        """The next `start_driver` takes it, and need not wait for Spark."""
        self.stand_by = self._new_driver()

    def _new_driver(self) -> Child:
        return Child(
            "the Spark driver", "suiro.demo.driver", "--bootstrap-servers", self.bootstrap_servers,
            "--registry", self.registry_url, "--state-dir", str(self.state_dir),
            "--max-offsets-per-trigger", str(self.batch_size), "--console", self._application_address,
            log_path=self.directory / "driver.log",
            environment=SHORT_LIFE,
        )  # fmt: skip

    def start_views(self) -> Child:
        self.views = self._command(
            "the host of views", "view", "serve", "--bootstrap-servers", self.bootstrap_servers,
            "--registry", self.registry_url, "--data", str(self.directory / "views"), "--listen", "127.0.0.1:0",
            environment=SHORT_LIFE,
        )  # fmt: skip
        return self.views

    def wait_views(self) -> None:
        assert self.views is not None
        self.views_url = self.views.wait_ready()["url"]

    def start_console(self) -> None:
        """Whoever calls before it serves is refused for a second."""
        self.console = self._command(
            "the console", "console", "--bootstrap-servers", self.bootstrap_servers, "--registry", self.registry_url,
            "--views", self.views_url, "--app", f"http://{self._application_address}",
            "--listen", self._console_address,
        )  # fmt: skip

    def start_reader(self) -> Child:
        self.reader = Child(
            "the reader", "suiro.demo.reader", self.views_url, str(self.answers),
            log_path=self.directory / "reader.log",
        )  # fmt: skip
        return self.reader

    # -- and ending --------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `FatalError` if a part ended that should not have; the driver is looked after by the story."""
        for child in (
            self.registry, self.database, self.capture, self.connect, self.views, self.reader, self.console
        ):  # fmt: skip
            if child is not None and child.ended:
                raise FatalError(f"{child.what} ended; {child.tail()}")

    def stop_reader(self) -> None:
        """What it was answered is in `answers` then."""
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.stop()

    def stop_flow(self) -> None:
        """What moves data ends, cleanly; the log, the registry and the database stay, for those who look."""
        names = ("driver", "stand_by", "capture", "connect", "views")
        children: list[Child | None] = [getattr(self, name) for name in names]
        for name in names:
            setattr(self, name, None)
        with ThreadPoolExecutor(len(names)) as workers:
            list(workers.map(Child.stop, filter(None, children)))

    def stop(self) -> None:
        for child in (self.console, self.reader, self.driver, self.stand_by, self.capture, self.connect):
            if child is not None:
                child.kill()
        self.receiver.stop()
        try:
            if self.views is not None:
                self.views.stop()  # with its pipelines, which are sessions of their own
            if self.registry is not None:
                self.registry.kill()
            if self.database is not None:
                self.database.stop()  # Postgres is no member of its session: only a clean stop ends it
        finally:
            self.log.stop()

    def _command(
        self, what: str, command: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Child:
        return Child(
            what, "suiro.demo.child", command, *arguments, log_path=self.directory / f"{command}.log",
            environment=environment or {},
        )  # fmt: skip


def _free_address() -> str:
    """It stays the same when what listens there is killed and started again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"
