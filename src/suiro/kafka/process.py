"""One Apache Kafka as a child process: a KRaft node that is broker and controller.

Tests, benchmarks and comparisons run it next to the node; `cluster` combines several. Maven resolves the jars once,
into `~/.cache/suiro/kafka-<version>`. If Maven or Java is missing, `KafkaUnavailable` names what to install.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from suiro.clock import SystemClock, sleep_s
from suiro.errors import TransientError, UsageError
from suiro.foundation import process
from suiro.foundation.files import home_folder, replace_file
from suiro.kafka.properties import properties_text

KAFKA_VERSION = "4.3.1"
MINIMUM_JAVA = 17
MAVEN_TIMEOUT_S = 600
FORMAT_TIMEOUT_S = 60
ATTEMPTS = 3
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
READY_POLL_S = 0.05
ANSWER_TIMEOUT_S = 2.0
LOG_TAIL_LINES = 20

# What bin/kafka-run-class.sh of the distribution gives to every broker.
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
LOGGING_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)

# One node can hold one replica; its own topics stay small so that a test starts and stops quickly.
SINGLE_NODE_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    # How long the controller holds a killed broker's place against its successor (9 s by default).
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>suiro</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class KafkaUnavailable(UsageError):
    """Apache Kafka cannot be started here: Maven or Java 17+ is missing, or the jars did not resolve."""


class KafkaProcess:
    """One running Apache Kafka. Made by `start`; it keeps its ports and its data over `restart`."""

    def __init__(self, directory: Path, *, java: str, classpath: str, heap: str, address: tuple[str, int]) -> None:
        self.directory = directory
        host, port = self._address = address
        self.bootstrap_servers = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._command = [
            *_dies_with_parent(),
            java,
            f"-Xms{heap}",
            f"-Xmx{heap}",
            *JVM_OPTIONS,
            *LOGGING_OPTIONS,
            "-cp",
            classpath,
            "kafka.Kafka",
            str(self.properties_path),
        ]
        self._java, self._classpath = java, classpath
        self._process: subprocess.Popen[bytes] | None = None
        self._logged = 0  # before it was started
        atexit.register(self.kill)

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        settings: Mapping[str, str] | None = None,
        heap: str = "1g",
        format_options: Sequence[str] = (),
        version: str = KAFKA_VERSION,
    ) -> KafkaProcess:
        """Formats `directory` (created if absent) and returns when the broker responds.

        `settings` are broker settings in Kafka's own names; `format_options` go to StorageTool, e.g.
        `--add-scram`; `version` is Apache Kafka's, 3.9 or later. Raises `KafkaUnavailable`, or `TransientError`
        with the end of the server's log if Kafka gave up or did not answer in `START_TIMEOUT_S`.
        """
        java, classpath = java_command(), kafka_classpath(version)
        directory = Path(directory).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        is_fresh = not (directory / "data").exists()
        for attempts_left in reversed(range(ATTEMPTS)):
            ports = free_ports(2)
            kafka = cls(directory, java=java, classpath=classpath, heap=heap, address=("127.0.0.1", ports[0]))
            kafka._write_properties(ports, settings or {})
            kafka.format(random_id(), ["--standalone", *format_options])
            try:
                kafka.launch()
            except TransientError:
                # The ports were free before Kafka was formatted; seconds later somebody else may have one of them.
                if not (attempts_left and is_fresh and kafka.lost_a_port):
                    raise
                kafka.log_path.unlink()
                shutil.rmtree(kafka.data_directory)  # the quorum's address is written in it
            else:
                return kafka
        raise AssertionError("the last attempt returns or raises")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise UsageError(f"Kafka in {self.directory} is not running; call restart() first")
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of a server that has ended by itself, or was killed from outside."""
        return None if self._process is None else self._process.poll()

    @property
    def data_directory(self) -> Path:
        """Where the partitions' folders are."""
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    def ask_to_stop(self) -> None:
        """Sends SIGTERM and does not wait."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Stops cleanly (SIGTERM), or with SIGKILL after `STOP_TIMEOUT_S`."""
        if self._process is None:
            return
        process.stop(self._process, STOP_TIMEOUT_S)
        self._process = None
        atexit.unregister(self.kill)

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        if self._process is None:
            return
        process.kill(self._process)
        self._process = None
        atexit.unregister(self.kill)

    def restart(self) -> None:
        """Starts again on the same ports and data; stops cleanly first if it still runs."""
        self.stop()
        atexit.register(self.kill)
        self.launch()

    def __enter__(self) -> KafkaProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def properties_path(self) -> Path:
        return self.directory / "server.properties"

    def _write_properties(self, ports: Sequence[int], settings: Mapping[str, str]) -> None:
        broker, controller = ports
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_directory),
            **SINGLE_NODE_SETTINGS,
            **settings,
        }
        # Settings may have passwords.
        replace_file(self.properties_path, properties_text(properties), sync=False, mode=0o600)

    def format(self, cluster_id: str, options: Sequence[str] = ()) -> None:
        """Have Kafka's StorageTool prepare the data folder, unless it is. Raises `UsageError` with what it said."""
        command = [self._java, "-XX:TieredStopAtLevel=1", *LOGGING_OPTIONS, "-cp", self._classpath]
        command += ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        # One argument: an id may begin with a dash.
        command += [f"--cluster-id={cluster_id}", "-c", str(self.properties_path), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise UsageError(f"Kafka did not format {self.data_directory}: {said}")

    def launch(self) -> None:
        """Start it, and return once it answers."""
        self.spawn()
        self.wait_for_answer()

    def spawn(self) -> None:
        """Start it, and do not wait: the members of a quorum wait for each other."""
        with self.log_path.open("ab") as log:
            self._logged = log.tell()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def wait_for_answer(self) -> None:
        """Return once it answers. Raises `TransientError` with the end of its log, and then it is gone."""
        assert self._process is not None
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + START_TIMEOUT_S * 1000
        while not _answers(self._address):
            if self._process.poll() is not None:
                code = self._process.returncode
                self._process = None
                raise TransientError(f"Kafka ended with exit code {code} at its start; {self._log_tail()}")
            if clock.monotonic_ms() > deadline_ms:
                self.kill()
                raise TransientError(f"Kafka did not answer within {START_TIMEOUT_S} s; {self._log_tail()}")
            sleep_s(READY_POLL_S)

    @property
    def lost_a_port(self) -> bool:
        """Whether somebody else took one of its ports before it did."""
        with self.log_path.open("rb") as log:
            log.seek(self._logged)
            return b"Address already in use" in log.read()

    def _log_tail(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()
        said = [line for line in lines if not line.startswith("\tat ")]  # where in Kafka's code helps nobody
        return f"the end of {self.log_path}:\n" + "\n".join(said[-LOG_TAIL_LINES:])


def random_id() -> str:
    """A new id of a cluster, as Kafka writes them."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def java_command() -> str:
    """The path of a `java` of version 17 or later: JAVA_HOME's, else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(on_path)
    for java in candidates:
        if (_java_version(java) or 0) >= MINIMUM_JAVA:
            return java
    raise KafkaUnavailable(
        f"Apache Kafka needs Java {MINIMUM_JAVA} or later in JAVA_HOME or on the PATH; looked at: "
        f"{', '.join(candidates) or 'nothing (neither is set)'}"
    )


def kafka_classpath(version: str = KAFKA_VERSION) -> str:
    """Kafka's jars and its tools' as a Java class path; resolved by Maven on first use, cached after that."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "suiro"
    jars = cache / f"kafka-{version}"
    if not jars.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"kafka-{version}.lock"):
            if not jars.is_dir():
                _resolve_jars(jars, version)
    return str(jars / "*")


def kafka_tool(main_class: str, arguments: Sequence[str], *, heap: str = "512m") -> list[str]:
    """The command line of one of Kafka's tools, e.g. `org.apache.kafka.tools.DumpLogSegments`."""
    return [java_command(), f"-Xmx{heap}", *LOGGING_OPTIONS, "-cp", kafka_classpath(), main_class, *arguments]


def _resolve_jars(target: Path, version: str) -> None:
    """Fills a folder next to `target`, then renames it: `target` is either absent or complete."""
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(f"Apache Kafka's jars are not in {target} and Maven's `mvn` is not on the PATH")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="resolving-") as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(POM.format(version=version))
        filled = Path(work) / "jars"
        command = [maven, "-q", "-B", "-f", str(pom)]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={filled}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise KafkaUnavailable(f"Maven did not resolve Kafka's jars within {MAVEN_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise KafkaUnavailable(f"Maven could not resolve Kafka's jars: {done.stdout.strip()[-2000:]}")
        filled.rename(target)


def _java_version(java: str) -> int | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def free_ports(count: int) -> list[int]:
    """Returns ports of the loopback interface that are free at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _dies_with_parent() -> list[str]:
    """Where util-linux has it: the kernel kills the JVM if we die without stopping it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _answers(address: tuple[str, int]) -> bool:
    """Whether a broker there answers ApiVersions (version 0: no header fields beyond the client id)."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection(address, timeout=ANSWER_TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10, socket.MSG_WAITALL)
    except OSError:
        return False
    # A listener with TLS answers with an alert (record type 21): it is up, which is all we ask.
    return answer[:1] == b"\x15" or (len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (1, 0))
