"""All processes of the demo: the log and everything around it. Each is a command that a user would type.

Each part can be started, killed and stopped separately. A start returns at once; `wait_ready` of the child waits.

Alerts go to an HTTP server that remembers each `Idempotency-Key`, so that a repeated alert counts once. It loses some
answers on purpose: the alert is accepted, but the sender gets 503 and must send it again.
"""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from suiro.client import Client, NewTopic
from suiro.demo import names
from suiro.demo.processes import Child, Log
from suiro.errors import FatalError, UsageError

LOSES_EVERY = 10


class AlertReceiver:
    """Listens from its creation until `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[str, Mapping[str, Any]] = {}
        self.posts = 0
        """The number of requests, including repeated ones."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"
        threading.Thread(target=self._server.serve_forever, name="demo-receiver", daemon=True).start()

    @property
    def taken(self) -> dict[str, Mapping[str, Any]]:
        """The body of each key."""
        with self._lock:
            return dict(self._taken)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, key: str, said: Mapping[str, Any]) -> bool:
        """Accepts an alert. Returns False if the answer is lost."""
        with self._lock:
            self.posts += 1
            if key in self._taken:
                return True
            self._taken[key] = said
            return len(self._taken) % LOSES_EVERY != 0

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self.take

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                key = self.headers.get("Idempotency-Key")
                try:
                    said = json.loads(body)
                except ValueError:
                    said = None
                if key is None or not isinstance(said, dict):
                    self._answer(400)
                else:
                    self._answer(200 if take(key, said) else 503)

            def log_message(self, format: str, *arguments: Any) -> None:
                return

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

        return Handler


# A JVM that runs for a minute spends half of it in its second compiler. The first one is enough.
SHORT_LIFE = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

CONNECTORS = """\
[connect]
bootstrap_servers = "{bootstrap_servers}"
listen = "127.0.0.1:0"

[source.weather-{run}]
kind = "files"
folder = "{folder}"
pattern = "*.csv"
topic = "{weather}"
key = ["origin", "time_hour"]
null = ["", "NA"]
dead_letter_topic = "{rejected}"

[source.weather-{run}.types]
temp = "double"
wind_speed = "double"
precip = "double"
visib = "double"

[sink.alerts-{run}]
kind = "webhook"
url = "{url}"
topics = ["{alerts}"]
"""


class System:
    """`directory` has the data and the log file of each part."""

    def __init__(self, directory: Path, *, kafka: bool, bootstrap: str | None) -> None:
        self.directory = directory
        self.state_dir = directory / "state"
        self.weather_files = directory / "weather"
        self.answers = directory / "answers.json"  # written by the reader at its end
        self._run = uuid.uuid4().hex[:8]  # makes slots and connectors unique in a cluster
        self.dsn = self.registry_url = self.views_url = ""  # set when they are ready
        self.driver_starts = 0
        self.batch_size = 1  # records in a micro-batch of the driver
        self.running: dict[str, Child] = {}
        self._console_address, self._application_address = _free_address(), _free_address()
        self.console_url = f"http://{self._console_address}"
        self.receiver = AlertReceiver()
        self.log = Log(directory, kafka=kafka, bootstrap=bootstrap)
        self.bootstrap_servers = self.log.bootstrap_servers

    @property
    def driver(self) -> Child:
        return self.running["driver"]

    @property
    def capture(self) -> Child:
        return self.running["capture"]

    @property
    def reader(self) -> Child | None:
        return self.running.get("reader")

    def start_database(self) -> None:
        self._start("database", "suiro.demo.database", str(self.directory / "postgres"))

    def start_registry(self) -> None:
        self._command(
            "registry", "--bootstrap-servers", self.bootstrap_servers, "--topic", names.SCHEMAS,
            "--listen", "127.0.0.1:0",
        )  # fmt: skip

    def start_capture(self) -> Child:
        """Starts the capture. After a kill, it continues where it was."""
        return self._command(
            "capture", "postgres", "--dsn", self.dsn, "--bootstrap-servers", self.bootstrap_servers,
            "--registry", self.registry_url, "--topic-prefix", names.PREFIX, "--tables", ",".join(names.TABLES),
            "--slot", f"suiro_{self._run}", "--partitions", str(names.PARTITIONS),
        )  # fmt: skip

    def start_connect(self) -> None:
        path = self.directory / "connectors.toml"
        path.write_text(
            CONNECTORS.format(
                run=self._run,
                bootstrap_servers=self.bootstrap_servers,
                folder=self.weather_files.name,
                weather=names.WEATHER,
                rejected=names.WEATHER_REJECTED,
                url=self.receiver.url,
                alerts=names.ALERTS,
            )
        )
        self._command("connect", "run", str(path))

    def start_stand_by(self) -> None:
        """Starts Spark. The next `start_driver` uses it, and does not wait for Spark."""
        self._start("stand-by", "suiro.demo.driver", environment=SHORT_LIFE)

    def start_driver(self) -> Child:
        """Starts the pipeline on the driver that stands by, or on a new one."""
        if "stand-by" not in self.running:
            self.start_stand_by()
        driver = self.running["driver"] = self.running.pop("stand-by")
        self.driver_starts += 1
        settings = {
            "bootstrap_servers": self.bootstrap_servers,
            "registry": self.registry_url,
            "state_dir": str(self.state_dir),
            "max_offsets_per_trigger": self.batch_size,
            "console": self._application_address,
        }
        driver.tell(json.dumps(settings))
        return driver

    def start_views(self) -> None:
        self._command(
            "view", "serve", "--bootstrap-servers", self.bootstrap_servers, "--registry", self.registry_url,
            "--data", str(self.directory / "views"), "--listen", "127.0.0.1:0", environment=SHORT_LIFE,
        )  # fmt: skip

    def start_console(self) -> None:
        """Starts the console, which refuses connections in its first second."""
        self._command(
            "console", "--bootstrap-servers", self.bootstrap_servers, "--registry", self.registry_url,
            "--views", self.views_url, "--app", f"http://{self._application_address}",
            "--listen", self._console_address,
        )  # fmt: skip

    def start_reader(self) -> None:
        self._start("reader", "suiro.demo.reader", self.views_url, str(self.answers))

    def check(self) -> None:
        """Raises `FatalError` if a part has ended. Drivers may end: the acts kill and restart them."""
        for name, child in self.running.items():
            if child.ended and name not in ("driver", "stand-by"):
                raise FatalError(f"the {name} ended; {child.tail()}")

    def stop_reader(self) -> None:
        """Stops the reader, which writes `answers`."""
        self.running.pop("reader").stop()

    def stop_flow(self) -> None:
        """Stops all parts that move data, cleanly. The log, the registry and the database keep running."""
        moving = ("driver", "stand-by", "capture", "connect", "view")
        children = [self.running.pop(name) for name in moving if name in self.running]
        with ThreadPoolExecutor(len(moving)) as workers:
            list(workers.map(Child.stop, children))

    def stop(self) -> None:
        views, database = self.running.pop("view", None), self.running.pop("database", None)
        registry = self.running.pop("registry", None)
        for child in self.running.values():
            child.kill()
        self.receiver.stop()
        try:
            if views is not None:
                views.stop()  # its pipelines have their own sessions
            if registry is not None:
                registry.kill()
            if database is not None:
                database.stop()  # Postgres is in another session: only a clean stop ends it
        finally:
            self.log.stop()

    def _command(self, command: str, *arguments: str, environment: dict[str, str] | None = None) -> Child:
        """Starts `suiro COMMAND ARGUMENTS`."""
        arguments = (command, *arguments, "--while-stdin-is-open")
        return self._start(command, "suiro", *arguments, environment=environment)

    def _start(self, name: str, module: str, *arguments: str, environment: dict[str, str] | None = None) -> Child:
        log_path = self.directory / f"{name if module == 'suiro' else module.rpartition('.')[2]}.log"
        child = Child(f"the {name}", module, *arguments, log_path=log_path, environment=environment)
        self.running[name] = child
        return child


def create_topics(client: Client, bootstrap_servers: str) -> None:
    """Raises `UsageError` if one of the demo's topics exists: the demo counts from offset 0."""
    existing = client.metadata()
    for name in (*names.CAPTURED, names.SCHEMAS, names.VIEWS, *names.TOPICS):
        if name in existing:
            raise UsageError(
                f"topic {name} exists already on {bootstrap_servers}; the demo counts from offset 0 and has views of "
                "its own, so delete the topics of an earlier demo, or give it another cluster"
            )
    client.create_topics([NewTopic(name, names.PARTITIONS, configs=configs) for name, configs in names.TOPICS.items()])


def _free_address() -> str:
    """Returns an address that stays the same when its process is killed and restarted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"
