"""Every setting of every connector stands in the guide."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from suiro.connect.configuration import SINKS, SOURCES, ConnectSettings
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.sink_task import SinkSettings
from suiro.connect.source_task import SourceSettings
from suiro.connect.sources.postgres import OF_THE_FILE

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "connect.md").read_text(encoding="utf-8")


def _names(cls: type) -> set[str]:
    return {item.name for item in fields(cls)}  # type: ignore[arg-type]


@pytest.mark.parametrize(("side", "kind"), [("source", k) for k in SOURCES] + [("sink", k) for k in SINKS])
def test_a_connectors_settings_are_documented(side: str, kind: str) -> None:
    place = (SOURCES if side == "source" else SINKS)[kind]
    module = importlib.import_module(place.partition(":")[0])
    names = {
        name
        for kept_as, item in vars(module).items()
        if kept_as.endswith("Settings") and is_dataclass(item) and item.__module__ == module.__name__
        for name in _names(item)
    }
    if (side, kind) == ("source", "postgres"):
        names = _names(CaptureOptions) - set(OF_THE_FILE)
    assert names
    sections = [
        part for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:] if f"`{kind}`" in part.splitlines()[0]
    ]
    section = next(part for part in sections if part.lower().startswith(side))
    assert sorted(name for name in names if f"`{name}`" not in section) == []


def test_what_all_share_is_documented() -> None:
    names = _names(SourceSettings) | _names(SinkSettings) | _names(ConnectSettings) - {"client"}
    assert sorted(name for name in names if f"`{name}`" not in PAGE) == []
    for kind in [*SOURCES, *SINKS]:
        assert f"`{kind}`" in PAGE
