"""What `suiro run` makes of a file, and what it says of a wrong one."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import suiro

from suiro.cli.run import REPLACED, load_module, run, topology_of, until_stopped
from suiro.client import Client, NewTopic
from suiro.errors import ConfigError, ReplacedError
from suiro.foundation.settings import assignments
from suiro.node import InProcessNode


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("suiro.spark.early_java._is_first", lambda: False)  # most of these programs are wrong
    places = list(sys.path)
    yield
    sys.path[:] = places
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / f"{name}.py"
    path.write_text(text)
    return path


PASSES = 'builder.stream("a").to("b")'


@pytest.mark.parametrize(
    "text",
    [
        f"from suiro.streams import StreamsBuilder\nbuilder = StreamsBuilder()\n{PASSES}\ntopology = builder.build()",
        f"from suiro.streams import StreamsBuilder\nbuilder = topology = StreamsBuilder()\n{PASSES}",
        f"def build(builder):\n    {PASSES}",
        f"def build(builder):\n    {PASSES}\n    return builder.build()",
    ],
)
def test_four_ways_to_say_a_topology(tmp_path: Path, text: str) -> None:
    topology = topology_of(load_module(written(tmp_path, "streams_app_one", text)))
    assert (topology.source_topics, topology.sink_topics) == (("a",), ("b",))


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    written(tmp_path, "streams_app_beside", "topic = 'c'")
    text = "from streams_app_beside import topic\ndef build(builder):\n    builder.stream('a').to(topic)"
    assert topology_of(load_module(written(tmp_path, "streams_app_two", text))).sink_topics == ("c",)


def test_a_file_without_a_topology_is_said(tmp_path: Path) -> None:
    module = load_module(written(tmp_path, "streams_app_empty", ""))
    with pytest.raises(ConfigError, match="streams_app_empty has neither a topology"):
        topology_of(module)


def test_a_name_that_is_taken_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="loaded already"):
        load_module(written(tmp_path, "json", ""))


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stderr", "lines"), [(_Terminal(), 2), (io.StringIO(), 1)], ids=["terminal", "pipe"])
def test_on_a_terminal_the_start_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, lines: int
) -> None:
    """The first start on a machine takes many seconds."""
    path = written(tmp_path, "streams_app_of_nothing", "")
    monkeypatch.setattr(sys, "stderr", stderr)
    with pytest.raises(SystemExit):
        run.main([str(path)])
    said = stderr.getvalue().splitlines()
    assert (len(said), "neither a topology" in said[-1]) == (lines, True)


def test_settings() -> None:
    assert assignments(["kafka.client.id=a=b", "maxFetchBytes=9"], "--set") == {
        "kafka.client.id": "a=b",
        "maxFetchBytes": "9",
    }
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        assignments(["nothing"], "--set")


def test_errors_of_the_command_are_one_line_each(tmp_path: Path) -> None:
    path = written(tmp_path, "streams_app_wrong", f"def build(builder):\n    {PASSES}")
    for arguments, message in [
        (["--on-processing-error", "ignore"], "on_processing_error='ignore' is none of"),
        (["--set", "x"], "--set x: expected NAME=VALUE"),
    ]:
        sys.modules.pop("streams_app_wrong", None)
        result = suiro("run", str(path), *arguments)
        assert result.code == 1
        assert message in result.err
        assert len(result.err.strip().splitlines()) == 1


@pytest.mark.parametrize("more", [[], ["--explain"]], ids=["run", "explain"])
def test_another_emit_is_a_wrong_call(more: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, "streams_app_emit", f"def build(builder):\n    {PASSES}")
    result = suiro("run", str(path), "--emit", "sometimes", *more)
    assert (result.code, result.out) == (2, "")
    assert "invalid choice: 'sometimes'" in result.err


def test_topics_that_are_missing_are_named_all_at_once_with_what_to_do(node: InProcessNode, tmp_path: Path) -> None:
    path = written(tmp_path, "streams_app_no_topics", f"def build(builder):\n    {PASSES}")
    arguments = ["run", str(path), "--bootstrap-servers", node.bootstrap_servers]
    found = suiro(*arguments, "--state-dir", str(tmp_path / "state"))
    assert found.code == 1
    assert "the topology reads topic 'a' and writes topic 'b', which do not exist" in found.err
    assert "--create-topics" in found.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build(builder):\n    helper()\n\ndef helper():\n    1 / 0", "ZeroDivisionError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("def build(:", "SyntaxError"),
    ],
)
def test_what_the_file_itself_raises_is_shown_with_its_own_lines(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, "streams_app_failing", text)
    sys.modules.pop("streams_app_failing", None)
    found = suiro("run", str(path))
    assert found.code == 1
    assert said in found.err
    assert str(path) in found.err
    assert "suiro/cli" not in found.err
    assert found.err.endswith("could not be loaded\n")


def test_the_line_of_a_mistake_in_the_topology_is_named(tmp_path: Path) -> None:
    """A file may have many lambdas."""
    text = (
        'def build(builder):\n    stream = builder.stream("a")\n    stream.map_values(lambda key, value: value).to("b")'
    )
    found = suiro("run", str(written(tmp_path, "streams_app_mistaken", text)), "--explain")
    assert (found.code, found.out) == (1, "")
    assert "streams_app_mistaken.py, line 3: the mapper of map_values is called with (value)" in found.err


def test_a_lost_checkpoint_is_said_with_the_way_back(
    node: InProcessNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process goes on
    with Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic("a", 1), NewTopic("b", 1)])
        client.offset_commit("streams_app_lost", {("a", 0): (0, "")})
    path = written(tmp_path, "streams_app_lost", f"def build(builder):\n    {PASSES}")
    place = tmp_path / "state"
    arguments = ["run", str(path), "--bootstrap-servers", node.bootstrap_servers, "--state-dir", str(place)]
    found = suiro(*arguments)
    assert (found.code, place.exists()) == (1, False)
    assert "a-0 at 0" in found.output
    assert "suiro run --rebuild" in found.output
    del sys.modules["streams_app_lost"]
    (place / "streams_app_lost" / "offsets").mkdir(parents=True)
    (place / "streams_app_lost" / "offsets" / "0").touch()
    found = suiro(*arguments, "--rebuild")
    assert found.code == 1
    assert "a rebuild begins with none" in found.output


def test_explain_says_what_a_topology_is_and_runs_nothing(tmp_path: Path) -> None:
    text = """
from suiro.streams import record_value, serdes

def build(builder):
    words = builder.stream("a", key=serdes.string, value=serdes.string)
    words.map_values(record_value().upper()).to("b")
    words.map_values(str.lower, value=serdes.string).to("c")
"""
    result = suiro("run", str(written(tmp_path, "explained_app", text)), "--explain")
    assert result.code == 0, result.output
    assert "Sub-topology: 0" in result.output
    assert "over blocks of values" in result.output


class EndlessStreams:
    """The part of `KafkaStreams` that `suiro run` uses, with work that does not end until it is closed."""

    application_id = "endless"
    checkpoint = Path("nowhere")
    exception = None
    replacement = None

    def __init__(self, failure: Exception | None = None, *, is_told: bool = True, number: int = signal.SIGTERM) -> None:
        self.asked = 0
        self._state = "CREATED"
        self._failure = failure
        self._is_told = is_told
        self._number = number
        self._closed = threading.Event()

    @property
    def state(self) -> str:
        self.asked += 1
        return self._state

    def start(self) -> None:
        self._state = "RUNNING"
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as PySpark does

    def await_termination(self) -> None:
        if self._failure is None and self._is_told:
            os.kill(os.getpid(), self._number)
        self._closed.wait(60)

    def process_all_available(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._closed.wait(60)

    def close(self) -> None:
        self._state = "NOT_RUNNING"
        self._closed.set()


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_until_done_is_stopped_by_a_signal_and_says_that_not_all_is_processed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    streams = EndlessStreams()
    assert until_stopped(streams, until_done=True) == 1
    assert streams.state == "NOT_RUNNING"
    assert "stopped before all was processed" in capsys.readouterr().err


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_an_application_cleanly(number: int) -> None:
    streams = EndlessStreams(number=number)
    assert until_stopped(streams, until_done=False) == 0
    assert streams.state == "NOT_RUNNING"


@pytest.mark.usefixtures("handlers")
def test_a_signal_while_spark_starts_stops_it_cleanly() -> None:
    """After PySpark had its context, Ctrl-C raised KeyboardInterrupt in the rest of the start, and the exit was 130."""

    class Starting(EndlessStreams):
        def start(self) -> None:
            super().start()
            os.kill(os.getpid(), signal.SIGINT)

    streams = Starting(is_told=False)
    assert until_stopped(streams, until_done=False) == 0
    assert streams.state == "NOT_RUNNING"


@pytest.mark.usefixtures("handlers")
def test_until_done_says_why_it_cannot_wait(capsys: pytest.CaptureFixture[str]) -> None:
    assert until_stopped(EndlessStreams(ConfigError("no such topic")), until_done=True) == 1
    assert "no such topic" in capsys.readouterr().err


@pytest.mark.usefixtures("handlers")
def test_java_is_not_asked_how_the_query_is_while_it_runs() -> None:
    """Each question is a call into Java, of an application that may have nothing else to do."""

    class Ending(EndlessStreams):
        def await_termination(self) -> None:
            """It ended by itself."""

    for streams in (EndlessStreams(), Ending(is_told=False)):
        assert until_stopped(streams, until_done=False) == 0
        assert streams.asked == 0


@pytest.mark.usefixtures("handlers")
def test_an_application_that_was_replaced_ends_with_a_status_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Replaced(EndlessStreams):
        application_id, exception = "app", ReplacedError("app was replaced", "PRODUCER_FENCED")

        def await_termination(self) -> None:
            """It ended by itself."""

    assert until_stopped(Replaced(is_told=False), until_done=False) == REPLACED == 3
    assert "app was replaced" in capsys.readouterr().err
