"""The types in the page's JSDoc, checked by TypeScript's compiler where this machine has it: no part of the build."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import suiro

PAGE = Path(suiro.__file__).parent / "console" / "web" / "page"
PACKAGE = "typescript@5.9.3"
OPTIONS = ["--noEmit", "--allowJs", "--strict", "--target", "es2022", "--lib", "esnext,dom,dom.iterable"]
OPTIONS += ["--module", "esnext", "--moduleResolution", "bundler"]


def compiler() -> list[str]:
    """The command; nothing is downloaded. Skips the test where there is none."""
    found = shutil.which("tsc")
    if found is not None:
        return [found]
    if shutil.which("npx") is None:
        pytest.skip("there is neither tsc nor Node here: the page's types are not checked")
    command = ["npx", "--offline", "--yes", "--package", PACKAGE, "tsc"]
    if subprocess.run([*command, "--version"], capture_output=True).returncode != 0:
        pytest.skip(f"the page's types are not checked; `npm cache add {PACKAGE}` brings the compiler")
    return command


def test_the_types_that_the_page_names_are_right(tmp_path: Path) -> None:
    command = compiler()
    shutil.copytree(PAGE / "vendor", tmp_path / "vendor")
    for file in PAGE.glob("*.js"):  # the libraries in vendor are not checked
        (tmp_path / file.name).write_text(f"// @ts-check\n{file.read_text()}")
    mistake = "// @ts-check\nimport { route } from './router.js';\nroute.value = 7;\n"
    (tmp_path / "mistake.js").write_text(mistake)  # proves that mistakes are found
    files = ["main.js", "mistake.js"]
    ended = subprocess.run([*command, *OPTIONS, *files], cwd=tmp_path, capture_output=True, text=True)
    first, *more = ended.stdout.splitlines()
    assert (first[:31], more) == ("mistake.js(3,1): error TS2322: ", []), ended
