"""The memory of the machine, and of a container."""

from __future__ import annotations

from pathlib import Path

from suiro.foundation.memory import memory_bytes


def test_a_container_has_no_more_than_its_limit(tmp_path: Path) -> None:
    whole = memory_bytes([])
    assert whole > 1 << 28
    limit, none, garbage = tmp_path / "limit", tmp_path / "none", tmp_path / "garbage"
    limit.write_text("1048576\n")
    none.write_text("max\n")
    garbage.write_text("")
    assert memory_bytes([tmp_path / "missing", none, garbage]) == whole
    assert memory_bytes([none, limit]) == 1 << 20
    limit.write_text("9223372036854771712\n")
    assert memory_bytes([limit]) == whole
