"""The tour leads to what is there: each module that it names exists, and no package or room is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_documents import ROOT

SOURCE = ROOT / "src" / "suiro"
PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "tour").glob("*.md"))]
PACKAGES = sorted(str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)


def named(text: str) -> set[str]:
    """Modules (`log/segment.py`) and folders of them (`log/tier/`)."""
    first = {path.name for path in SOURCE.iterdir()}
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", text)
    return {path for path in paths if path.split("/")[0] in first}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    wrong = {path for path in named(page.read_text(encoding="utf-8")) if not (SOURCE / path).exists()}
    assert wrong == set()


def test_every_package_and_room_has_a_place_in_the_tour() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = {package for package in PACKAGES if package not in text}
    assert missing == set()
