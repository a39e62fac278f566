"""Which archive of Spark's classes Java is given. That it halves the start's cost is measured, not tested."""

from __future__ import annotations

from pathlib import Path

from suiro.spark.class_archive import SUFFIX, _place, archive_options
from suiro.spark.java import JavaHome


def _java(folder: Path, release: str = 'JAVA_VERSION="17.0.15"') -> JavaHome:
    folder.mkdir(exist_ok=True)
    (folder / "release").write_text(release)
    return JavaHome(path=folder, version=17, origin="test")


def _write(java: JavaHome, environment: dict[str, str], *, named: int, size: int) -> Path:
    folder, name = _place(java, environment)
    folder.mkdir(parents=True)
    path = folder / f"{name}-{named}{SUFFIX}"
    path.write_bytes(bytes(size))
    return path


def test_without_an_archive_java_is_told_nothing(tmp_path: Path) -> None:
    assert archive_options(_java(tmp_path / "java"), {"XDG_CACHE_HOME": str(tmp_path)}) == ""


def test_a_whole_archive_is_used_also_from_a_folder_with_a_space(tmp_path: Path) -> None:
    java, environment = _java(tmp_path / "java"), {"XDG_CACHE_HOME": str(tmp_path / "my cache")}
    path = _write(java, environment, named=1_000, size=1_000)
    assert archive_options(java, environment).startswith(f'"-XX:SharedArchiveFile={path}" ')


def test_half_an_archive_is_not_used_for_java_would_die_of_it(tmp_path: Path) -> None:
    java, environment = _java(tmp_path / "java"), {"XDG_CACHE_HOME": str(tmp_path)}
    _write(java, environment, named=1_000, size=500)
    assert archive_options(java, environment) == ""


def test_one_that_is_gone_is_passed_over(tmp_path: Path) -> None:
    """As of a process that makes a newer one."""
    java, environment = _java(tmp_path / "java"), {"XDG_CACHE_HOME": str(tmp_path)}
    path = _write(java, environment, named=1_000, size=1_000)
    path.unlink()
    path.symlink_to(tmp_path / "gone")
    assert archive_options(java, environment) == ""


def test_another_java_does_not_use_it(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    java = _java(tmp_path / "java")
    _write(java, environment, named=1_000, size=1_000)
    assert archive_options(java, environment)
    updated = _java(tmp_path / "java", 'JAVA_VERSION="17.0.16"')
    assert archive_options(updated, environment) == ""
    assert archive_options(_java(tmp_path / "other"), environment) == ""
