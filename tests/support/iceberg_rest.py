"""Iceberg's own REST catalog server as a process: the fixture that the Iceberg project tests its clients with.

Its tables are in a SQLite file, so it can be killed and started again. `lossy` puts a proxy in front of it that loses
answers.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from support.http_peer import CUT, LOSE, Answer, Asked, HttpPeer
from support.iceberg import rows_of
from support.waiting import wait_until

VERSION = "1.10.0"
ARTIFACT = f"org.apache.iceberg:iceberg-open-api:{VERSION}"
MAVEN_TIMEOUT_S = 400
_COMMIT = re.compile(r"/tables/[^/]+$")
_STARTED = re.compile(r"Started ServerConnector.*:(\d+)\}")


class IcebergUnavailable(Exception):
    """The server cannot be had on this machine."""


def _jar() -> Path:
    """Fetched by Maven on first use, cached after that."""
    if shutil.which("java") is None:
        raise IcebergUnavailable("a REST catalog needs Java 17, and there is no `java` on the PATH")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suiro"
    cache.mkdir(parents=True, exist_ok=True)
    jar = cache / f"iceberg-rest-{VERSION}.jar"
    with (cache / f"{jar.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.is_file():
            maven = shutil.which("mvn")
            if maven is None:
                raise IcebergUnavailable(f"Iceberg's server is not at {jar} and Maven's `mvn` is not on the PATH")
            with tempfile.TemporaryDirectory(dir=cache, prefix="resolving-") as work:
                command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}"]
                done = subprocess.run(
                    [*command, f"-DoutputDirectory={work}"],
                    capture_output=True,
                    text=True,
                    timeout=MAVEN_TIMEOUT_S,
                    check=False,
                )
                if done.returncode != 0:
                    raise IcebergUnavailable(f"Maven could not resolve {ARTIFACT}: {done.stdout[-1000:]}")
                next(Path(work).glob("*.jar")).rename(jar)
    return jar


class RestCatalog:
    def __init__(self, folder: Path) -> None:
        self._jar = _jar()
        self._folder = folder
        self._log = folder / "catalog.log"
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """On the same port as before, where it was killed."""
        self._log.unlink(missing_ok=True)
        # With a write-ahead log a test that reads again and again does not keep commits waiting.
        settings = {
            "CATALOG_WAREHOUSE": (self._folder / "warehouse").as_uri(),
            "CATALOG_URI": f"jdbc:sqlite:{self._folder}/catalog.db?journal_mode=WAL&busy_timeout=30000",
            "CATALOG_REST_PORT": str(self._port),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", str(self._jar)),
                    "org.apache.iceberg.rest.RESTCatalogServer",
                ],
                env=os.environ | settings,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: self._is_started(), 60, what="the REST catalog")

    def _is_started(self) -> bool:
        text = self._log.read_text()
        assert self._process is not None
        assert self._process.poll() is None, text
        found = _STARTED.search(text)
        if found is not None:
            self._port = int(found[1])
        return found is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def metadata_of(self, table: str) -> dict[str, Any]:
        """Empty where there is no such table yet."""
        namespace, _, name = table.rpartition(".")
        answer = httpx.get(f"{self.url}/v1/namespaces/{namespace}/tables/{name}")
        return dict(answer.json()["metadata"]) if answer.status_code == 200 else {}

    def read(self, table: str) -> list[dict[str, Any]]:
        return rows_of(self.metadata_of(table))

    def lossy(self, faults: deque[str | Answer]) -> HttpPeer:
        """A proxy. Each fault befalls one commit of a table. CUT: it does not arrive. LOSE or a gateway's answer: it
        is carried out."""

        def forward(asked: Asked) -> Answer | str:
            is_commit = asked.method == "POST" and _COMMIT.search(asked.path) is not None
            fault = faults.popleft() if is_commit and faults else None
            if fault == CUT:
                return LOSE
            answer = httpx.request(
                asked.method,
                self.url + asked.path,
                params=asked.query,
                headers={"content-type": asked.headers.get("content-type", "application/json")},
                content=asked.body,
            )
            if fault is not None:
                return fault
            return Answer(answer.status_code, answer.content, {"Content-Type": "application/json"})

        return HttpPeer(forward)
