"""What is below `packaging`, read: units of systemd, Kubernetes' manifests, and the commands of `suiro` in them."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
UNITS = sorted((PACKAGING / "systemd").glob("*.service"))
MANIFESTS = sorted(path for path in (PACKAGING / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
IN_IMAGE = "/opt/suiro/bin/suiro"


def check_call(words: Sequence[str]) -> None:
    """Parses `suiro WORDS` as the command itself does, and runs nothing. Raises `ValueError` for a wrong call."""
    from suiro.cli.command_groups import group_of

    command, *rest = words or [""]
    try:
        parsers = group_of(command).parsers()
        parser = parsers.get("") or parsers[rest.pop(0)]
    except (ImportError, AttributeError, KeyError, IndexError):
        raise ValueError(f"suiro {shlex.join(words)}: there is no such command") from None
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            parser.parse_intermixed_args(rest)
    except SystemExit:
        raise ValueError(f"suiro {shlex.join(words)}: {said.getvalue()}") from None


def unit_command(unit: Path) -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(encoding="utf-8"), re.MULTILINE)
    return shlex.split(line)


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]


def all_documents() -> list[dict[str, Any]]:
    return [document for path in MANIFESTS for document in documents(path)]


def workloads() -> Iterator[dict[str, Any]]:
    """What makes pods."""
    return (one for one in all_documents() if one["kind"] in ("Deployment", "StatefulSet"))


def container(name: str) -> dict[str, Any]:
    (found,) = (
        one
        for workload in workloads()
        for one in workload["spec"]["template"]["spec"]["containers"]
        if one["name"] == name
    )
    return dict(found)


def replaced(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """With each of `values` in place of its name, the longest names first."""
    result = list(words)
    for name in sorted(values, key=len, reverse=True):
        result = [word.replace(name, values[name]) for word in result]
    return result
