"""A version's code: whole, equal for equal code, and apart from that of other versions in the same process."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest

from suiro.errors import UsageError
from suiro.views import topology_of
from suiro.views.pipeline.archive import Code, archive_of, code_id

APP = """
from __future__ import annotations
from dataclasses import dataclass

import rules
from shapes.round import AREA
from shapes import flat
import shapes.round as again
from suiro.streams import serdes
from suiro.views import view

@dataclass
class Row:
    delay: int

@view("delays", key="carrier")
def delays(builder):
    from late import LATE
    assert Row(LATE).delay == 4 and AREA == again.AREA and flat.SIDES == 4
    return builder.stream(rules.TOPIC, value=serdes.json).group_by(rules.carrier, key=serdes.string).count()
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "__init__.py").write_text("")
    (tmp_path / "shapes" / "round.py").write_text("from .flat import SIDES\nAREA = SIDES - 1\n")
    (tmp_path / "shapes" / "flat.py").write_text("SIDES = 4\n")
    (tmp_path / "rules.py").write_text("TOPIC = 'one'\ndef carrier(key, value):\n    return value['carrier']\n")
    (tmp_path / "late.py").write_text("LATE = 4\n")
    (tmp_path / "unused.py").write_text("raise SystemExit\n")
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def source_topics(data: bytes) -> tuple[str, ...]:
    return topology_of(Code(data).load("app.py:delays"), "delays.v1").source_topics


def test_a_small_archive_of_much_is_refused() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            archive.writestr(f"m{number}.py", b"\n" * 16 * 1024 * 1024)
    assert len(data.getvalue()) < 1_000_000
    with pytest.raises(UsageError, match="at most 67,108,864 are taken"):
        Code(data.getvalue())


def test_it_holds_what_the_file_imports_and_nothing_else(app: Path) -> None:
    names = set(Code(archive_of(app)).files)
    assert names == {
        "app.py", "rules.py", "late.py", "shapes/__init__.py", "shapes/round.py", "shapes/flat.py",
    }  # fmt: skip


def test_equal_code_gives_equal_bytes(app: Path) -> None:
    first = archive_of(app)
    for path in app.parent.rglob("*.py"):
        path.touch()
    assert archive_of(app) == first
    (app.parent / "late.py").write_text("LATE = 5\n")
    assert code_id(archive_of(app)) != code_id(first)


def test_two_versions_in_one_process_keep_their_own_modules(app: Path) -> None:
    first = archive_of(app)
    (app.parent / "rules.py").write_text((app.parent / "rules.py").read_text().replace("'one'", "'two'"))
    second = archive_of(app)
    before = set(sys.modules)
    assert source_topics(first) == ("one",)
    assert source_topics(second) == ("two",)
    assert source_topics(first) == ("one",)
    assert not {"app", "rules", "late", "shapes"} & (set(sys.modules) - before)


def test_it_is_unpacked_for_a_process_of_its_own(app: Path, tmp_path: Path) -> None:
    Code(archive_of(app)).unpack(tmp_path / "there")
    assert (tmp_path / "there" / "shapes" / "round.py").read_bytes() == (
        app.parent / "shapes" / "round.py"
    ).read_bytes()


def test_an_error_names_the_file_and_line_of_the_users_code(app: Path) -> None:
    (app.parent / "rules.py").write_text("TOPIC = 'one'\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        Code(archive_of(app)).load("app.py:delays")
    last = caught.traceback[-1]
    assert (str(last.path).endswith("rules.py"), last.lineno) == (True, 1)


def test_what_cannot_be_taken_is_said(app: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file"):
        archive_of(app.parent / "missing.py")
    with pytest.raises(UsageError, match="another name"):
        archive_of(app.rename(app.with_name("json.py")))
    (app.parent / "rules.py").write_text("def (")
    broken = app.with_name("json.py").rename(app)
    with pytest.raises(UsageError, match=r"rules\.py cannot be taken"):
        archive_of(broken)
    with pytest.raises(UsageError, match="deploy it again"):
        Code(b"PK no")


def test_a_view_that_is_not_there_is_said(app: Path) -> None:
    code = Code(archive_of(app))
    with pytest.raises(UsageError, match="no view 'delay'; it has delays"):
        code.load("app.py:delay")
    with pytest.raises(UsageError, match=r"expected APP\.PY:FUNCTION"):
        code.load("app.py")
