"""Every block of README and docs: Python runs and prints what it says, commands exist, links lead somewhere.

A block is ```python (run by itself in an empty directory; an ```output block behind it is what it prints),
``` without a name (commands of a shell), or ```text (only to look at). Below `<!-- file: NAME -->` it is a file, which
lies beside the page's other files when it runs; where its name begins with test_, pytest runs it.
"""

from __future__ import annotations

import importlib.util
import io
import re
import signal
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from suiro import cli
from suiro.cli import command_groups, commands

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TIMEOUT_S = 240
BLOCK = re.compile(r"^(?:<!-- file: (\S+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    kind: str
    text: str
    output: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _blocks() -> list[Block]:
    found: list[Block] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        matches = list(BLOCK.finditer(text))
        for match, after in zip_longest(matches, matches[1:]):
            file, kind, body = match.groups()
            output = after.group(3) if after is not None and after.group(2) == "output" else None
            line = text[: match.start(2)].count("\n") + 1
            found.append(Block(page, line, kind, body, output, file))
    return found


BLOCKS = _blocks()
PYTHON = [block for block in BLOCKS if block.kind == "python"]
GROUPS = frozenset(name for name in commands.COMMANDS if "" not in command_groups.group_of(name).parsers())
"""Which have commands of their own."""
COMMANDS = [(block, line) for block in BLOCKS if block.kind == "" for line in block.text.splitlines() if line.strip()]


def test_every_block_is_of_a_known_kind() -> None:
    assert {block.kind for block in BLOCKS} <= {"python", "output", "", "text"}
    assert len(PYTHON) >= 4
    assert len(COMMANDS) >= 5


def _marks(block: Block) -> list[pytest.MarkDecorator]:
    """A job on a cluster is what `tests/e2e/test_spark_cluster.py` runs, and `make soak` runs both: CI's time."""
    return [pytest.mark.soak] if "MASTER" in block.text else []


@pytest.mark.parametrize("block", [pytest.param(block, marks=_marks(block), id=str(block)) for block in PYTHON])
def test_python_runs(block: Block, tmp_path: Path) -> None:
    for beside in PYTHON:
        if beside.page == block.page and beside.file:
            (tmp_path / beside.file).write_text(beside.text, encoding="utf-8")
    script = tmp_path / (block.file or "block.py")
    script.write_text(block.text, encoding="utf-8")
    is_test = script.name.startswith("test_")
    done = subprocess.run(
        [sys.executable, *(["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []), str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if block.output is not None:
        assert done.stdout == block.output


@cache
def _help(*command: str) -> str:
    """In this process: eighty starts of Python would take a minute."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    said = io.StringIO()
    try:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
            patch.setattr(sys, "argv", ["suiro", *command, "--help"])
            with pytest.raises(SystemExit) as ended:
                cli.main()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert not ended.value.code
    return said.getvalue()


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=lambda value: str(value)[:60])
def test_command_exists(block: Block, command: str) -> None:
    words = command.split("#")[0].rpartition(" | ")[2].split()
    match words:
        case ["uvx", "--from", what, *called] | ["pipx", "run", "--spec", what, *called]:
            assert what.startswith("'suiro[")
            test_command_exists(block, " ".join(called))
        case ["make", target, *_]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        case ["suiro", name, *rest]:
            options = _help(name, *rest[: name in GROUPS])
            for option in (word for word in rest if word.startswith("--")):
                assert option in options, f"{command}: no {option}"
        case ["pip", "install", *_]:
            pass
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module) is not None, command
        case _:
            pytest.fail(f"{block}: do not know how to check {command!r}")


def test_the_everyday_commands_run_as_their_guide_says(suiro_node: Any) -> None:
    """One after the other, as somebody who follows the page types them."""
    from suiro.registry import InProcessRegistry, RegistryConfig

    config = RegistryConfig(bootstrap_servers=suiro_node.bootstrap_servers, port=0)
    with InProcessRegistry(config) as registry:
        _run_the_guide(suiro_node.bootstrap_servers, registry.url)


def _run_the_guide(bootstrap_servers: str, registry: str) -> None:
    guide = ROOT / "docs" / "guides" / "commands.md"
    script = [line for block, line in COMMANDS if block.page == guide]
    assert len(script) > 10
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-x", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "SUIRO_BOOTSTRAP_SERVERS": bootstrap_servers,
            "SUIRO_REGISTRY": registry,
            "XDG_CONFIG_HOME": "/nonexistent",
        },
    )
    assert done.returncode == 0, done.stderr
    assert '"value": {"delay": 33}' in done.stdout


def test_a_row_of_a_table_has_a_cell_for_each_column() -> None:
    wrong = []
    for page in PAGES:
        columns = 0
        for line in BLOCK.sub("", page.read_text(encoding="utf-8")).splitlines():
            cells = line.replace(r"\|", "").count("|") - 1 if line.startswith("|") else 0
            columns = (columns or cells) if cells else 0
            if cells != columns:
                wrong.append(f"{page.relative_to(ROOT)}: {cells} of {columns}: {line[:60]}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page}: {target}"


def _generator() -> Any:
    path = ROOT / "docs" / "reference" / "generate.py"
    spec = importlib.util.spec_from_file_location("reference_generator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_code_says() -> None:
    """All pages but that of licences, which has a test of its own; Python's where signatures print as there."""
    made = {
        name: page
        for name, page in _generator().PAGES.items()
        if name != "licences.md" and (sys.version_info[:2] == (3, 11) or not name.startswith("python/"))
    }
    reference = ROOT / "docs" / "reference"
    stale = [name for name, page in made.items() if (reference / name).read_text(encoding="utf-8") != page()]
    assert stale == [], "run: make reference"


def test_an_example_in_the_reference_has_what_its_command_needs() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    wrong = []
    for name in commands.COMMANDS:
        for inner, parser in command_groups.group_of(name).parsers().items():
            title = f"suiro {name} {inner}".strip()
            (example,) = re.findall(rf"^## {title}\n\n```\w*\n({title}.*)\n```$", page, re.MULTILINE)
            needed = [action for action in parser._actions if action.required]
            options = {word for action in needed for word in action.option_strings[:1]}
            words = example.removeprefix(title).split()
            if not options <= set(words) or len(words) < len(needed) + len(options):
                wrong.append(example)
    assert wrong == []


def test_every_option_of_the_format_is_documented() -> None:
    from suiro.spark import options

    pages = [ROOT / "docs" / "reference" / name for name in ("spark.md", "spark-connector.md")]
    page = "".join(path.read_text(encoding="utf-8") for path in pages)
    names = [*options._SOURCE, *options._SINK, *(f"kafka.{name}" for name in options._SINK_KAFKA)]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_every_operator_is_documented() -> None:
    from suiro import streams

    page = (ROOT / "docs" / "reference" / "operators.md").read_text(encoding="utf-8")
    classes = [
        streams.StreamsBuilder,
        streams.KStream,
        streams.BranchedKStream,
        streams.KTable,
        streams.KGroupedStream,
    ]
    classes += [streams.WindowedKStream, streams.CogroupedKStream, streams.KGroupedTable]
    inside = {"build", "by_key", "with_serdes"}
    names = {
        name
        for of in classes
        for name in dir(of)
        if callable(getattr(of, name)) and not name.startswith("_") and name not in inside
    }
    assert len(names) > 40
    assert sorted(name for name in names if not re.search(rf"\b{name}\b", page)) == []


def test_modules_that_pages_name_are_there() -> None:
    for page in ("reference/formats.md", *(f"tour/{path.name}" for path in (ROOT / "docs" / "tour").glob("*.md"))):
        named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
        places = [(ROOT / "src" / "suiro" / name, ROOT / name) for name in named]
        assert [each for each, other in places if not (each.exists() or other.exists())] == [], page


def test_the_readme_says_what_its_ten_lines_print() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "It prints `['ADA', 'BARBARA', 'GRACE']`" in readme


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    for heading in ("Apache License", "1. Definitions.", "9. Accepting Warranty", "APPENDIX: How to apply"):
        assert heading in text


def test_every_difference_from_kafka_streams_is_held_by_a_test() -> None:
    text = (ROOT / "docs" / "explain" / "semantics.md").read_text()
    lines = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^## )", text, re.MULTILINE | re.DOTALL)
    assert len(lines) >= 13
    _require_tests(lines)


def test_every_outcome_in_operation_is_held_by_a_test() -> None:
    text = (ROOT / "docs" / "guides" / "operations.md").read_text()
    table = text[text.index("| what | outcome | what to do | held by |") :]
    rows = table[: table.index("\n\n")].splitlines()[2:]
    assert len(rows) >= 25
    assert all(len(row.strip("|").split(" | ")) == 4 for row in rows)
    _require_tests(rows)


def _require_tests(lines: list[str]) -> None:
    tests = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    for line in lines:
        named = re.findall(r"`(test_\w+)`", line)
        assert named, f"no test is named: {line}"
        assert set(named) <= tests, f"not there: {set(named) - tests}"
