"""Whether an installed suiro works at all: its version, a node that answers, a topic, a record there and back.

Only the command is used, as somebody types it, so that the same can be asked of an environment, an image and a service.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND_TIMEOUT_S = 120.0
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


class SmokeError(Exception):
    """What the installed suiro did not do."""


def smoke(command: str | Path | Sequence[str], *, version: str, folder: Path) -> None:
    """`command` is its `suiro`; the node's log goes to `folder`. Raises `SmokeError`."""
    words = [str(command)] if isinstance(command, str | Path) else list(command)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SUIRO_"))}
    said = _said([*words, "--version"], folder, env).strip()
    if said != version:
        raise SmokeError(f"suiro --version says {said!r}, not {version}")
    errors = folder / "node.log"
    with errors.open("wb") as stream:
        node = subprocess.Popen(
            [*words, "node", "--listen", "127.0.0.1:0", "--data", str(folder / "data")],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=stream,
        )
    try:
        at = _bootstrap(node, errors)
        round_trip(words, at, folder, env)
        node.send_signal(signal.SIGTERM)
        code = node.wait(STOP_TIMEOUT_S)
        if code != 0:
            raise SmokeError(f"the node ended with {code} when it was told to stop:\n{errors.read_text()}")
    finally:
        node.kill()
        node.wait()
        assert node.stdout is not None
        node.stdout.close()


def round_trip(words: Sequence[str], at: str, folder: Path, env: Mapping[str, str]) -> None:
    """A topic and a record, at the node there. Raises `SmokeError`."""
    where = ["--bootstrap-servers", at]
    _said([*words, "topic", "create", "smoke", "--partitions", "1", *where], folder, env)
    _said([*words, "topic", "produce", "smoke", "--key", "one", *where], folder, env, given="record\n")
    read = [*words, "topic", "records", "smoke", "--from", "earliest", "--json", *where]
    records = [json.loads(line) for line in _said(read, folder, env).splitlines()]
    if [(one["key"], one["value"]) for one in records] != [("one", "record")]:
        raise SmokeError(f"one record was written, and {records} were read")


def _bootstrap(node: subprocess.Popen[bytes], errors: Path) -> str:
    """Of the line that it prints once it answers."""
    assert node.stdout is not None
    ready, _, _ = select.select([node.stdout], [], [], START_TIMEOUT_S)
    line = node.stdout.readline() if ready else b""
    if not line:
        raise SmokeError(f"the node does not answer:\n{errors.read_text()}")
    return str(json.loads(line)["bootstrap"])


def _said(words: Sequence[str], folder: Path, env: Mapping[str, str], *, given: str = "") -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise SmokeError(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
