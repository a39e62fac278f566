"""The base installation: what it can do works, and what it lacks is said in one line."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.absence import ONLY_IN_EXTRAS, base_installation

from suiro.cli.command_groups import group_of
from suiro.cli.commands import COMMANDS
from suiro.errors import MissingExtraError
from suiro.extras import EXTRAS, explained, require

TIMEOUT_S = 120
ROOT = Path(__file__).parents[3]

TOPOLOGY = """
import sys
from suiro.streams import StreamsBuilder, col, serdes
from suiro.testing import TopologyTestDriver

builder = StreamsBuilder()
orders = builder.stream("orders", key=serdes.string, value=serdes.json)


async def is_large(key, order):
    return order["amount"] > 10


large = orders.filter_async(is_large).filter(col("amount") > 10)
large.group_by_key().count().to_stream().to("counts", key=serdes.string, value=serdes.json)
with TopologyTestDriver(builder.build()) as driver:
    source = driver.create_input_topic("orders", key=serdes.string, value=serdes.json)
    counts = driver.create_output_topic("counts", key=serdes.string, value=serdes.json)
    for amount in (5, 20, 30):
        source.pipe_input("a", {"amount": amount})
    print(counts.read_key_values_to_list())
"""

OIDC = (
    *(
        "--listen",
        "127.0.0.1:0",
        "--bootstrap-servers",
        "127.0.0.1:1",
        "--oidc-issuer",
        "https://example.com",
    ),
    *("--oidc-client-id", "console", "--oidc-role", "*=viewer"),
)
DOORS = {
    "import suiro.spark; suiro.spark.register(None)": "PySpark: pip install 'suiro[spark]'",
    "from suiro.spark import spark_session": "PySpark: pip install 'suiro[spark]'",
    "from suiro.streams import KafkaStreams": "PySpark: pip install 'suiro[spark]'",
    "from suiro.streams import StreamsBuilder\n"
    "StreamsBuilder().stream('in').map_batches(len, reads='int64', schema='int64')": (
        "PySpark: pip install 'suiro[spark]'"
    ),
    "from suiro.views import serve": "PySpark: pip install 'suiro[spark]'",
    "from suiro.registry import InProcessRegistry": "fastavro: pip install 'suiro[registry]'",
    "from suiro.registry import registry_client; registry_client('mock://a')": (
        "fastavro: pip install 'suiro[registry]'"
    ),
    "from suiro.connect import Runtime": "PyArrow: pip install 'suiro[connect]'",
    "from suiro.connect import PostgresCapture": "psycopg: pip install 'suiro[capture]'",
    "from suiro.demo import run": "confluent_kafka: pip install 'suiro[demo]'",
}


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=base_installation(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "suiro", *arguments],
        env=base_installation(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_list_of_commands_is_what_they_say_themselves() -> None:
    said = {}
    for name in COMMANDS:
        if (parser := group_of(name).parsers().get("")) is not None:
            first = (parser.description or "").split("\n\n")[0].replace("\n", " ").split(". ")[0]
            said[name] = f"{first.rstrip('.')}."
    assert said == {name: COMMANDS[name] for name in said}
    assert {"node", "run", "demo"} <= said.keys()


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_every_command_says_what_it_is_or_what_it_needs(arguments: list[str]) -> None:
    done = command(*arguments)
    if done.returncode == 0:
        assert done.stdout
        assert not done.stderr
        return
    assert done.returncode == 1, done
    assert done.stderr.startswith("suiro: this needs ")
    assert done.stderr.count("\n") == 1
    assert arguments[0] in ("demo", "run", "prepare", "connect", "spark", "view")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["run", "app.py"], "spark"),
        (["prepare"], "spark"),
        (["spark", "adopt", "checkpoint"], "spark"),
        (["view", "serve"], "spark"),
        (["registry", "--bootstrap-servers", "127.0.0.1:1"], "registry"),
        (["capture", "postgres", "--dsn", "d"], "capture"),
        (["connect", "run", "connectors.toml"], "connect"),
        (["console", *OIDC], "console-oidc"),
        (["demo"], "demo"),
    ],
)
def test_what_is_missing_says_which_extra_has_it(arguments: list[str], extra: str) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("suiro: this needs ")
    assert done.stderr.endswith(f": pip install 'suiro[{extra}]'\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["view", "status", "delays"],
        ["view", "shift", "delays", "10", "--guard", "errors=0.01"],
        ["connect", "status"],
    ],
)
def test_a_command_that_asks_a_server_needs_no_extra(arguments: list[str]) -> None:
    done = command(*arguments, "--url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "http://127.0.0.1:1" in done.stderr


def test_views_are_read_without_extras() -> None:
    done = python("from suiro.views import AsyncViews, Views; Views(); AsyncViews(); print('made')")
    assert done.stdout == "made\n", done.stderr


@pytest.mark.parametrize("code", DOORS)
def test_so_does_a_library_door(code: str) -> None:
    done = python(code)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"suiro.errors.MissingExtraError: this needs {DOORS[code]}"


def test_a_topology_is_tested_without_spark() -> None:
    done = python(TOPOLOGY)
    assert done.stdout.strip() == "[('a', 1), ('a', 2)]", done.stderr


def test_an_import_that_failed_inside_is_explained() -> None:
    found = explained(ModuleNotFoundError("No module named 'psycopg2.extras'", name="psycopg2.extras"))
    assert str(found) == "this needs psycopg2: pip install 'suiro[capture]'"
    assert explained(ModuleNotFoundError("No module named 'mine'", name="mine")) is None


def test_what_is_missing_is_an_import_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "spark", ("suiro_has_no_such_module",))
    with pytest.raises(ImportError, match=r"suiro_has_no_such_module: pip install 'suiro\[spark\]'"):
        require("spark")
    assert issubclass(MissingExtraError, ImportError)


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = set(project["optional-dependencies"]) - {"all", "dev"}
    assert set(EXTRAS) == offered
    assert project["optional-dependencies"]["all"] == [f"suiro[{','.join(sorted(offered))}]"]
    assert {module for modules in EXTRAS.values() for module in modules} <= set(ONLY_IN_EXTRAS)
