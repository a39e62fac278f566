"""The shape of the source tree: sizes of files and functions, no circles of imports, a docstring for each module.

What may exceed a limit is listed with its reason. An entry that is no longer needed fails, so the lists only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import suiro

ROOT = Path(suiro.__file__).parent
MAX_LINES = 600
MAX_FUNCTION_LINES = 80

KERNEL = "a compiled loop; numba does not inline across its parts for free"

LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS = {
    "connect/postgres/encoding/kernels/offsets.py:parse": KERNEL,
    "connect/postgres/encoding/kernels/rows.py:encode_rows": KERNEL,
    "protocol/kernels.py:read_records": KERNEL,
    "protocol/kernels.py:write_batches": KERNEL,
}
CIRCLES = {
    frozenset(
        f"suiro.streams.dsl.{name}" for name in ("grouped", "joins", "kstream", "kstream_calls", "ktable")
    ): "a stream has operators that return tables, and tables have some that return streams",
    frozenset({"suiro.streams.expressions.expression", "suiro.streams.expressions.on_python"}): (
        "an expression can be called: a method compiles it"
    ),
    frozenset({"suiro.streams.topology.describe", "suiro.streams.topology.topology"}): (
        "`Topology.describe` is a method, as in Kafka Streams"
    ),
}


@cache
def trees() -> dict[str, tuple[Path, ast.Module]]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("suiro", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path, ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(module: str) -> Iterator[str]:
    """Also inside of functions and for type checkers only: a circle is one whenever it is gone through."""
    modules = trees()
    for node in ast.walk(modules[module][1]):
        if isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                yield inner if inner in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)


def circles() -> list[frozenset[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    graph = {module: {one for one in imported(module) if one in trees()} for module in trees()}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            start = stack.index(module)
            if len(stack) - start > 1:
                found.append(frozenset(stack[start:]))
            del stack[start:]

    for module in graph:
        if module not in index:
            visit(module)
    return found


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES
    }
    assert long == set(LONG_FILES)


def test_functions_are_short() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{node.name}"
        for path, tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    }
    assert long == set(LONG_FUNCTIONS)


def test_no_module_imports_what_imports_it() -> None:
    assert set(circles()) == set(CIRCLES)


def test_packages_say_what_they_are() -> None:
    assert [module for module, (_, tree) in trees().items() if not ast.get_docstring(tree)] == []
