"""Spark's Python processes come from one that has imported everything, and are as if Spark had started them."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_until

from suiro.spark import python_stub
from suiro.spark.python_server import launcher, python_for_spark
from suiro.spark.python_stub import NUMBER_BYTES, SERVER, without_spark_archives

TELLS = """
import json, os, sys
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "arguments": sys.argv[1:], "name": __name__, "folder": os.getcwd(),
    "path": sys.path, "setting": os.environ.get("SETTING"), "server": os.environ.get("SUIRO_PYTHON_SERVER"),
    "is_forked": "pyspark.worker" in sys.modules, "read": sys.stdin.read(),
}))
sys.stderr.write("to stderr")
sys.exit(7)
"""
WAITS = "import os, sys, time\nprint(os.getpid(), flush=True)\nwhile True: time.sleep(1)"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """That of a JVM which a session starts, once the server has imported all: on a busy machine a stub does not wait
    that long."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "tells.py").write_text(TELLS)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME"):
            patch.delenv(name, raising=False)
        with python_for_spark():
            inside = dict(os.environ)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable  # for who starts Spark without us
        assert SERVER not in os.environ
        inside["PYTHONHASHSEED"] = "0"
        wait_until(
            lambda: json.loads(started(inside, folder, "tells").communicate()[0])["is_forked"],
            what="a server that forks",
        )
        yield inside


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "tells.py").write_text(TELLS)
    (tmp_path / "waits.py").write_text(WAITS)
    return tmp_path


def started(environment: dict[str, str], folder: Path, module: str, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [environment["PYSPARK_PYTHON"], "-m", module, "one", "two words"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**environment, **more},
    )


def test_a_forked_process_is_as_if_it_had_been_started(environment: dict[str, str], modules: Path) -> None:
    process = started(environment, modules, "tells", SETTING="x=1\n2", PYTHONPATH=f"{modules}/a:{modules}/b")
    out, errors = process.communicate(b"words")
    told = json.loads(out)
    assert told["is_forked"]
    assert told["pid"] != process.pid
    assert (told["arguments"], told["name"]) == (["one", "two words"], "__main__")
    assert (told["folder"], told["setting"], told["server"]) == (str(modules), "x=1\n2", None)
    assert told["path"][:3] == [str(modules), f"{modules}/a", f"{modules}/b"]
    assert (told["read"], errors, process.returncode) == ("words", b"to stderr", 7)


@pytest.mark.parametrize(
    "more",
    [{"PYTHONHASHSEED": "5"}, {SERVER: "/nowhere"}, {"PYTHONOPTIMIZE": "1"}],
    ids=["another seed", "no server", "optimized"],
)
def test_what_cannot_be_forked_is_started(environment: dict[str, str], modules: Path, more: dict[str, str]) -> None:
    process = started(environment, modules, "tells", **more)
    out, errors = process.communicate(b"words")
    told = json.loads(out)
    assert not told["is_forked"]
    assert told["pid"] == process.pid
    assert (told["read"], errors, process.returncode) == ("words", b"to stderr", 7)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, 137)])
def test_who_waits_learns_of_its_end(environment: dict[str, str], modules: Path, number: int, code: int) -> None:
    process = started(environment, modules, "waits")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    if number == signal.SIGTERM:
        process.terminate()  # is sent on
    else:
        os.kill(pid, signal.SIGKILL)
    assert process.wait(30) == code
    assert not is_there(pid)
    assert process.stdout.read() == b""  # and nobody keeps its streams open


def test_a_signal_that_comes_before_the_answer_is_sent_on(tmp_path: Path, modules: Path) -> None:
    """The server forks first and answers then: whoever stops the stub in between stops the process."""
    worker = started({"PYSPARK_PYTHON": sys.executable}, modules, "waits")
    assert worker.stdout is not None
    worker.stdout.readline()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()
        server.settimeout(30)
        environment = {**os.environ, SERVER: str(tmp_path / "socket")}
        stub = subprocess.Popen(
            [sys.executable, "-I", "-S", python_stub.__file__, sys.executable, "-m", "waits"], env=environment
        )
        connection, _ = server.accept()
        with connection:
            connection.settimeout(30)
            connection.recv(1)  # it has asked
            stub.terminate()
            connection.sendall(worker.pid.to_bytes(NUMBER_BYTES, "big"))
            assert worker.wait(30) == -signal.SIGTERM
            connection.sendall((143).to_bytes(NUMBER_BYTES, "big"))
            assert stub.wait(30) == 143


def test_it_ends_with_its_stub(environment: dict[str, str], modules: Path) -> None:
    process = started(environment, modules, "waits")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    wait_until(lambda: not is_there(pid), what="the end of the process")


@pytest.mark.parametrize("error", ["BrokenPipeError", "ConnectionResetError", "EOFError"])
def test_who_writes_to_a_stopped_query_ends_without_a_word(
    environment: dict[str, str], modules: Path, error: str
) -> None:
    (modules / "writes.py").write_text(f"raise {error}()")
    process = started(environment, modules, "writes")
    assert (process.communicate(), process.returncode) == ((b"", b""), 1)


def test_workers_that_plan_end_without_a_word(environment: dict[str, str], tmp_path: Path) -> None:
    """Spark starts them with PySpark's own daemon, and gives up on one that does not answer in time."""
    process = started(
        environment, tmp_path, "pyspark.daemon", PYTHON_WORKER_FACTORY_SECRET="secret", SPARK_REUSE_WORKER="1"
    )
    assert process.stdout is not None
    (port,) = struct.unpack(">i", process.stdout.read(4))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        (worker,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        os.kill(worker, signal.SIGSTOP)
        connection.sendall(struct.pack(">i", 6) + b"secret")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.kill(worker, signal.SIGCONT)
    wait_until(lambda: not is_there(worker), what="the end of the worker")
    assert process.communicate(timeout=60)[1] == b""


@pytest.mark.parametrize("has_server", [True, False])
def test_who_comes_when_spark_has_gone_ends_without_a_word(
    has_server: bool, environment: dict[str, str], tmp_path: Path
) -> None:
    """A query that is stopped while it starts: the socket is gone that its process is to connect to."""
    environment = environment | {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "gone")}
    if not has_server:
        environment[SERVER] = str(tmp_path / "nobody")
    process = started(environment, tmp_path, "pyspark.sql.streaming.python_streaming_source_runner")
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (1, b"", b"")


def test_two_processes_draw_different_numbers(environment: dict[str, str], modules: Path) -> None:
    (modules / "draws.py").write_text("import random, numpy\nprint(random.random(), numpy.random.rand())")
    told = [started(environment, modules, "draws").communicate()[0].split() for _ in range(2)]
    assert told[0][0] != told[1][0]
    assert told[0][1] != told[1][1]


def test_a_process_with_a_fork_of_its_own_ends_all_the_same() -> None:
    """The fork has the other end of what the server reads."""
    script = (
        "import os, sys, time\n"
        "from suiro.spark.python_server import python_for_spark\n"
        "with python_for_spark(): pass\n"
        "pid = os.fork()\n"
        "if not pid: time.sleep(600); os._exit(0)\n"
        "print(pid, flush=True)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    try:
        assert process.wait(60) == 0
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_server_that_cannot_fork_for_a_moment_goes_on(environment: dict[str, str], modules: Path) -> None:
    """It ended, and with it what told the programs of one JVM apart: nothing was forked any more."""
    script = (
        "import os, socket, sys\n"
        "from suiro.spark.python_server import serve\n"
        "fork = os.fork\n"
        "def fails():\n"
        "    os.fork = fork\n"
        "    raise BlockingIOError('no process is left')\n"
        "os.fork = fails\n"
        "run = serve(socket.socket(fileno=int(sys.argv[1])))\n"
        "if run is not None: run()\n"
    )
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(modules / "socket"))
        listening.listen()
        server = subprocess.Popen(
            [sys.executable, "-c", script, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env=environment,
        )
    try:
        own: list[bool] = []
        for _ in range(2):
            process = started(environment, modules, "tells", **{SERVER: str(modules / "socket")})
            own.append(json.loads(process.communicate()[0])["pid"] == process.pid)
        assert own == [True, False]
    finally:
        server.kill()
        server.wait()


def test_it_ends_with_spark(environment: dict[str, str], modules: Path) -> None:
    spark = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import subprocess; subprocess.run([{environment['PYSPARK_PYTHON']!r}, '-m', 'waits'])",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=modules,
        env=environment,
    )
    assert spark.stdout is not None
    pid = int(spark.stdout.readline())
    spark.kill()
    spark.wait()
    wait_until(lambda: not is_there(pid), what="the end of the process")


def test_the_server_ends_with_its_process(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from suiro.spark.python_server import python_for_spark\n"
        "with python_for_spark(): print(os.environ['SUIRO_PYTHON_SERVER'], flush=True)\n"
        "input()\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    address = Path(process.stdout.readline().decode().strip())
    assert address.exists()
    process.kill()
    process.wait()
    wait_until(lambda: not address.parent.exists(), what="the end of the server")


def test_another_spark_keeps_its_own_python(tmp_path: Path) -> None:
    assert launcher({"SPARK_HOME": str(tmp_path)}) is None
    assert launcher({"XDG_CACHE_HOME": "/proc/nowhere"}) is None
    found = launcher({"XDG_CACHE_HOME": str(tmp_path)})
    assert found is not None
    assert subprocess.check_output([found, "-c", "print(1)"]) == b"1\n"


def test_sparks_archives_are_left_out() -> None:
    lib = "/spark/python/lib"
    path = f"{lib}/pyspark.zip:{lib}/py4j-0.10.9.9-src.zip:/spark/jars/spark.jar:/mine/a.zip:/mine"
    assert without_spark_archives(path, "/spark") == "/spark/jars/spark.jar:/mine/a.zip:/mine"
    assert without_spark_archives("", "") == ""


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
