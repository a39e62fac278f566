"""A worker process finds the kernels compiled."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

from suiro.protocol import compiling

COUNT_COMPILED = """
from suiro.protocol import kernels
compiled = [name for name, kernel in vars(kernels).items() if getattr(kernel, "signatures", None)]
print(len(compiled), sum(sum(getattr(kernels, name).stats.cache_misses.values()) for name in compiled))
"""


def test_a_second_process_compiles_nothing() -> None:
    importlib.import_module("suiro.protocol.columnar")
    done = subprocess.run([sys.executable, "-c", COUNT_COMPILED], capture_output=True, text=True, check=True)
    kernels, compiled = map(int, done.stdout.split())
    assert kernels == 8
    assert compiled == 0


CALL = """
from kernels.outer import outer
print(outer(1), sum(outer.stats.cache_misses.values()))
"""
ON_A_FULL_DISK = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
{CALL}"""


def test_in_a_folder_of_kernels_a_change_of_any_file_counts(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "outer.py").write_text(
        "from kernels.inner import inner\nfrom suiro.protocol.compiling import INT, compiled\n\n\n"
        "@compiled(INT)\ndef outer(number):\n    return inner(number)\n"
    )

    def called(summand: int, call: str = CALL) -> list[int]:
        (folder / "inner.py").write_text(
            "from suiro.protocol.compiling import inlined\n\n\n"
            f"@inlined\ndef inner(number):\n    return number + {summand}\n"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            # Python's own cache does not notice a change of the same size within the same second.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True, env=environment)
        return [int(word) for word in done.stdout.split()]

    assert called(10) == [11, 1]
    assert called(10) == [11, 0]
    assert called(20) == [21, 1]
    assert called(30, ON_A_FULL_DISK) == [31, 1], "a kernel that could not be kept could not be used"


def test_kernels_take_names_only_from_files_whose_change_counts() -> None:
    root = Path(compiling.__file__).parents[2]
    importing = f"from {compiling.__name__} import".encode()
    kernels = [path for path in root.rglob("*.py") if importing in path.read_bytes()]
    assert len(kernels) > 5
    for path in kernels:
        imports = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
        counted = {*compiling._SHARED, *(path.parent.glob("*.py") if path.parent.name == "kernels" else ())}
        for node in imports:
            if (node.module or "").startswith("suiro."):
                assert root.joinpath(*str(node.module).split(".")).with_suffix(".py") in counted, path
