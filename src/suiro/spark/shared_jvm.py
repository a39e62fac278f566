"""One JVM with Spark for several Python programs: `python -m suiro.spark.shared_jvm FOLDER`.

Whoever starts it asks on standard input, one JSON object a line, and reads the answers on standard output. The first
line has the `settings` of Spark. A program that joins gets a port and a secret, for `session_on_shared_jvm`.

| asked | answered | |
|---|---|---|
| | `running` | once, before anything can be asked |
| `join`: `program`, `folder`, `niceness` | `joined`: `port`, `secret` | first ends what an earlier process left |
| `leave`: `program` | `left` | its queries are stopped, its workers killed, its connections closed |
| `forget`: `program`, `folder` | | it does not come back: its daemons are killed |
| `niceness`: `program`, `niceness` | | of its Python processes |
| | `failed`: `error`, `is_transient` | the last one; the process ends |

- `program` is the application id: a query has it as its name.
- A program has a gateway (py4j) of its own in the JVM. Calls from Spark back into Python, such as `foreachBatch`, reach
  the process that started the query, and nobody else.
- It has Python processes of its own, told apart by their environment (`python_stub.FOLDER`), and so its own modules.
- It ends when its standard input does, once the programs' queries are stopped, and the JVM with it. `FOLDER` has one
  such JVM at a time: its lock is held by the JVM itself, until it is gone.
"""

from __future__ import annotations

import fcntl
import json
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from suiro.clock import monotonic_s, sleep_s
from suiro.errors import SuiroError, TransientError
from suiro.foundation.files import is_of_the_disk
from suiro.foundation.process import end_of, event_writer, lines_of_stdin
from suiro.foundation.stopping import Stopping
from suiro.spark import python_server
from suiro.spark.session import java_started_early, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK = "lock"
TASK_SLOTS = 64
"""No program waits for another one's tasks. Each query has as many at once as `PARALLELISM` says."""
PARALLELISM = 2
STOP_QUERY_S = 30
LOOK_S = 1.0
LOCK_S = 60.0
END_S = 12.0
"""After standard input has closed: a program that has lost whoever started it stops its query within 10 s."""
SETTINGS: Mapping[str, str] = {
    "spark.default.parallelism": str(PARALLELISM),
    "spark.rpc.netty.dispatcher.numThreads": "4",  # else as many as there are task slots
    "spark.sql.streaming.stopTimeout": f"{STOP_QUERY_S}s",
    # Spark's own handling of it leaves some threads waiting for others that have died.
    "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
}


def main(folder: Path) -> int:
    say = event_writer()
    stopping = Stopping()
    asked: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked, stopping), daemon=True).start()
    settings = asked.get()["settings"]
    with (folder / LOCK).open("w") as lock:
        try:
            if not _locked(lock, stopping):
                return 0
            return _run({**SETTINGS, **settings}, lock, asked, stopping, say)
        except Exception as error:  # noqa: BLE001 - of Java and py4j, of many kinds; whoever started this gets it
            kind = "" if isinstance(error, SuiroError) else f"{type(error).__name__}: "
            is_transient = isinstance(error, TransientError) or is_of_the_disk(error)
            say("failed", error=f"{kind}{error}", is_transient=is_transient)
            return 1


def _run(
    settings: Mapping[str, str],
    lock: IO[str],
    asked: queue.SimpleQueue[dict[str, Any]],
    stopping: Stopping,
    say: Callable[..., None],
) -> int:
    master = f"local[{TASK_SLOTS}]"
    with java_started_early(master=master, settings=settings, topologies_only=True, pass_fds=(lock.fileno(),)):
        spark = spark_session("suiro", master=master, settings=settings, topologies_only=True)
        programs = _Programs(spark, say)
        threading.Thread(target=programs.answer, args=(asked,), daemon=True).start()
        say("running")
        while not stopping.wait(LOOK_S):
            error = programs.error or _error_of(spark)
            if error is not None:
                java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
                say("failed", error=error, is_transient=(java.poll() or 0) < 0)
                return 1
        deadline = monotonic_s() + END_S
        while programs.are_active() and monotonic_s() < deadline:
            sleep_s(0.1)
    return 0


def _error_of(spark: SparkSession) -> str | None:
    """Why nobody can use it any more."""
    context = spark.sparkContext
    java = context._gateway.proc  # type: ignore[union-attr]
    try:
        if java.poll() is None and not context._jsc.sc().isStopped():
            return None
        ended = "has stopped Spark"
    except Exception as error:  # noqa: BLE001 - py4j raises many kinds when its JVM ends
        ended = f"does not answer ({type(error).__name__})"
    code = _code_of(java)
    if code is not None:
        ended = end_of(code) + (": its memory was not enough" if code == 3 else "")
    return f"Spark's JVM {ended}"


def _code_of(java: Any) -> int | None:
    """Its connections close a moment before it is gone."""
    deadline = monotonic_s() + 2.0
    while java.poll() is None and monotonic_s() < deadline:
        sleep_s(0.05)
    code: int | None = java.poll()
    return code


class _Programs:
    """Those that have joined. `error`: what makes the JVM useless for all of them."""

    def __init__(self, spark: SparkSession, say: Callable[..., None]) -> None:
        self._spark = spark
        self._say = say
        self._lock = threading.Lock()  # guards what follows
        self._joined: dict[str, tuple[Any, str]] = {}  # its gateway in the JVM, and its folder
        self._turns: dict[str, threading.Lock] = {}
        self.error: str | None = None

    def answer(self, asked: queue.SimpleQueue[dict[str, Any]]) -> None:
        """Each on a thread of its own: to stop a query takes a while."""
        while True:
            threading.Thread(target=self._answer, args=(asked.get(),), daemon=True).start()

    def are_active(self) -> bool:
        try:
            return bool(self._queries())
        except Exception:  # noqa: BLE001 - py4j raises many kinds when its JVM ends
            return False

    def _answer(self, said: Mapping[str, Any]) -> None:
        program = str(said["program"])
        with self._lock:
            turn = self._turns.setdefault(program, threading.Lock())
        try:
            with turn:
                match said["ask"]:
                    case "join":
                        self._leave(program)
                        self._join(program, said["folder"], said["niceness"])
                    case "leave":
                        self._leave(program)
                        self._say("left", program=program)
                    case "forget":
                        self._leave(program)
                        python_server.ask_server(python_server.END, said["folder"])
                    case "niceness":
                        with self._lock:
                            _, folder = self._joined.get(program, (None, ""))
                        if folder:
                            python_server.ask_server(python_server.NICENESS, folder, str(said["niceness"]))
        except Exception as error:  # noqa: BLE001 - of Java, of many kinds
            # A query that does not stop would go on beside the next process of its program.
            self.error = f"Spark's JVM did not {said['ask']} {program}: {type(error).__name__}: {error}"

    def _join(self, program: str, folder: str, niceness: int) -> None:
        context = self._spark.sparkContext
        server = context._jvm.org.apache.spark.api.python.Py4JServer(context._jsc.sc().conf())  # type: ignore[union-attr]
        server.start()
        with self._lock:
            self._joined[program] = (server, folder)
        python_server.ask_server(python_server.NICENESS, folder, str(niceness))
        self._say("joined", program=program, port=server.getListeningPort(), secret=server.secret())

    def _leave(self, program: str) -> None:
        with self._lock:
            server, folder = self._joined.pop(program, (None, ""))
        for query in self._queries():
            if query.name() == program:
                query.stop()
        if server is not None:
            python_server.ask_server(python_server.END_WORKERS, folder)
            server.shutdown()

    def _queries(self) -> list[Any]:
        active = self._spark._jsparkSession.sharedState().activeStreamingQueries()
        return [query for query in active.values() if query is not None]  # None: it has ended meanwhile


def _read(asked: queue.SimpleQueue[dict[str, Any]], stopping: Stopping) -> None:
    for line in lines_of_stdin():
        asked.put(json.loads(line))
    stopping.set()
    asked.put({"settings": {}})  # for a reader that still waits for the first line


def _locked(lock: IO[str], stopping: Stopping) -> bool:
    """Waits for the JVM of somebody who was killed. False where it is to end meanwhile."""
    deadline = monotonic_s() + LOCK_S
    while not stopping.wait(0.2):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if monotonic_s() > deadline:
                raise TransientError(
                    f"another JVM has held {lock.name} for {LOCK_S:g} s; if its host is gone, end it (fuser "
                    "shows its process)"
                ) from None
    return False


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
