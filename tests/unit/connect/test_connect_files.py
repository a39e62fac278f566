"""Files in a folder: what is read, what waits, which file is which, what is put aside."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suiro.clock import ManualClock
from suiro.connect import About, SettingError
from suiro.connect.positions import part_record
from suiro.connect.sources import file_formats, file_identity, files
from suiro.connect.sources.file_formats import Typed
from suiro.connect.sources.file_identity import FileState, fingerprints
from suiro.connect.sources.files import FilesSource
from suiro.connect.values import encoder, json_text
from suiro.errors import TransientError, UsageError
from suiro.foundation.nesting import MAX_NESTING

TOO_DEEP = f"is nested deeper than {MAX_NESTING} levels"


class Folder:
    """A source over a folder, restarted at will from what it had committed."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.clock = ManualClock()
        self._settings = {"folder": "in", "interval_ms": 1, **settings}
        (path / "in").mkdir()
        self._parts: dict[str, Any] = {}
        self.restart()

    def restart(self) -> None:
        self._source = FilesSource(self._settings, About(name="files", folder=self.path, clock=self.clock))
        self._source.open_parts(json.loads(json.dumps(self._parts)))
        self._source.open(None)

    def write(self, name: str, data: str | bytes, *, more: bool = False) -> Path:
        path = self.path / "in" / name
        with path.open("ab" if more else "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
        return path

    def poll(self) -> tuple[list[Any], list[tuple[bytes, str, str]]]:
        """Values, and (bytes, line, reason) of what was put aside; until nothing more comes."""
        values: list[Any] = []
        rejected: list[tuple[bytes, str, str]] = []
        while (polled := self._source.poll()) is not None:
            for part, value in polled.parts.items():
                if value is None:
                    self._parts.pop(part, None)
                else:
                    self._parts[part] = value
            values += [record.value for record in polled.records]
            for record in polled.rejected:
                headers = dict(record.headers)
                line, reason = headers["__connect.errors.line"], headers["__connect.errors.exception.message"]
                rejected.append((record.value, (line or b"").decode(), (reason or b"").decode()))
        return values, rejected

    def values(self) -> list[Any]:
        values, rejected = self.poll()
        assert rejected == []
        return values

    def settle(self) -> None:
        self._source.poll()
        self.clock.advance(5_000)

    @property
    def parts(self) -> dict[str, Any]:
        return self._parts

    @property
    def lag(self) -> int:
        return self._source.lag()


@pytest.fixture
def lines(tmp_path: Path) -> Folder:
    return Folder(tmp_path, format_of_files="lines")


@pytest.mark.parametrize(
    ("format_of_files", "values"), [("jsonl", [b'{"a":1}', b"[2]"]), ("lines", [b'{"a":1}', b"[2]"])]
)
def test_a_byte_order_mark_is_no_part_of_the_first_line(
    tmp_path: Path, format_of_files: str, values: list[bytes]
) -> None:
    """Programs on Windows write one. The first line was rejected as no JSON."""
    folder = Folder(tmp_path, format_of_files=format_of_files)
    folder.write("a", b'\xef\xbb\xbf{"a":1}\n')
    assert folder.values() == values[:1]
    folder.write("a", b"[2]\n", more=True)
    assert folder.values() == values[1:]
    assert folder.lag == 0


# -- which file is which --------------------------------------------------------------------------------------


def test_only_whole_lines_are_taken_until_the_file_has_settled(lines: Folder) -> None:
    lines.write("a", "one\ntw")
    assert lines.values() == [b"one"]
    assert lines.lag == 2
    lines.write("a", "o\nthree", more=True)
    assert lines.values() == [b"two"]
    lines.settle()
    assert lines.values() == [b"three"]
    assert lines.lag == 0


def test_a_line_that_is_being_written_when_a_settled_file_is_read_is_not_cut(tmp_path: Path) -> None:
    """Its writer came back after the folder was looked at, and before the file was read."""
    lines = Folder(tmp_path, format_of_files="lines", interval_ms=60_000)
    lines.write("a", "one\ntw")
    first = lines._source.poll()
    assert first is not None
    assert [record.value for record in first.records] == [b"one"]
    lines.clock.advance(5_000)
    lines.write("a", "o\nthr", more=True)
    second = lines._source.poll()
    assert second is not None
    assert [record.value for record in second.records] == [b"two"]
    lines.write("a", "ee\n", more=True)
    lines.clock.advance(60_000)
    assert lines.values() == [b"three"]


def test_what_is_known_of_files_that_are_gone_is_forgotten(lines: Folder) -> None:
    for number in range(20):
        path = lines.write(f"{number}", "one\n")
        assert lines.values() == [b"one"]
        path.rename(lines.path / f"{number}")  # its inode stays taken
    lines.values()
    assert lines._source._unchanged_since_ms == {}


@pytest.mark.parametrize("restart", [False, True])
def test_a_rotated_file_goes_on_under_its_new_name(lines: Folder, restart: bool) -> None:
    path = lines.write("app.log", "one\n")
    assert lines.values() == [b"one"]
    path.rename(path.with_name("app.log.1"))
    lines.write("app.log.1", "two\n", more=True)
    lines.write("app.log", "three\n")
    if restart:
        lines.restart()
    assert sorted(lines.values()) == [b"three", b"two"]
    assert {part["path"] for part in lines.parts.values()} == {"app.log", "app.log.1"}


@pytest.mark.parametrize("how", ["removed", "renamed beyond the pattern", "truncated"])
def test_a_file_that_goes_before_it_was_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    folder = Folder(tmp_path, format_of_files="lines", pattern="*.log")
    path = folder.write("app.log", "first\nnot yet a li")
    read, kept = folder.write("read.log", "all\n"), folder.write("kept.log", "some\nhal")
    assert sorted(folder.values()) == [b"all", b"first", b"some"]
    if how == "truncated":
        path.write_bytes(b"new\n")
    elif how == "removed":
        path.unlink()
    else:
        path.rename(tmp_path / "in" / "app.log.1")
    read.unlink()
    kept.rename(kept.with_name("kept.1.log"))
    folder.values()
    folder.values()
    why = "has other content now" if how == "truncated" else "is gone from the folder, or has a name beyond the pattern"
    assert [each.getMessage() for each in caplog.records] == [
        f"source files: app.log {why}, and 12 bytes of it were not read"
    ]


@pytest.mark.parametrize("forget_after_ms", [0, 1_000])
def test_a_file_that_is_rotated_during_a_look_at_the_folder_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget_after_ms: int
) -> None:
    """After its inode was seen under the name, and before its content is compared."""
    lines = Folder(tmp_path, format_of_files="lines", forget_after_ms=forget_after_ms)
    path = lines.write("app.log", "one\n")
    assert lines.values() == [b"one"]
    lines.write("app.log", "two\n", more=True)
    fits = files.fits

    def rotating(*look: Any, **how: Any) -> bool:
        if not path.with_name("app.log.1").exists():
            path.rename(path.with_name("app.log.1"))
            lines.write("app.log", "three\n")
        return fits(*look, **how)

    monkeypatch.setattr(files, "fits", rotating)
    assert sorted(lines.values() + lines.values()) == [b"three", b"two"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("after", ["other\n", "first\n", "another one, longer than it was\n"])
def test_a_file_written_anew_is_read_from_the_start(lines: Folder, after: str, restart: bool) -> None:
    path = lines.write("a", "first\nsecond\n")
    assert lines.values() == [b"first", b"second"]
    lines.write("a", after)  # the same inode
    os.utime(path, ns=(1, 1))
    if restart:
        lines.restart()
    assert lines.values() == [after.strip().encode()]


def test_a_file_replaced_by_a_longer_copy_goes_on(lines: Folder) -> None:
    path = lines.write("a", "one\n")
    assert lines.values() == [b"one"]
    copy = lines.write("copy", "one\ntwo\n")
    copy.rename(path)
    assert lines.values() == [b"two"]
    assert len(lines.parts) == 1


@pytest.mark.parametrize("anew", ["renamed", "in place"])
def test_a_file_that_is_replaced_while_it_is_read_is_not_read_on_at_the_old_place(tmp_path: Path, anew: str) -> None:
    """Between two looks at the folder, by one that is longer than what was read of it."""
    folder = Folder(tmp_path, format_of_files="lines", interval_ms=100, max_records=2)
    path = folder.write("a", "old 1\nold 2\nold 3\n")
    first = folder._source.poll()
    assert first is not None
    assert [record.value for record in first.records] == [b"old 1", b"old 2"]
    folder._parts.update(first.parts)
    lines = [f"a new line {number}" for number in range(4)]
    text = "".join(f"{line}\n" for line in lines)
    if anew == "renamed":
        other = tmp_path / "other"
        other.write_text(text)
        other.rename(path)
    else:
        folder.write("a", text)
    found = folder.values() + folder.values()  # the second time it looks at the folder again
    assert found == [line.encode() for line in lines]


@pytest.mark.parametrize("anew", ["renamed", "in place"])
def test_a_whole_file_that_is_replaced_while_it_is_read_is_read_too(tmp_path: Path, anew: str) -> None:
    """Between two looks at the folder, by one of the same size."""
    folder = Folder(tmp_path, format_of_files="xml", record="r", interval_ms=100, max_records=2)
    path = folder.write("a", "<d><r>1</r><r>2</r><r>3</r></d>")
    folder.settle()
    first = folder._source.poll()
    assert first is not None
    assert [record.value["#text"] for record in first.records] == ["1", "2"]
    folder._parts.update(first.parts)
    text = "<d><r>4</r><r>5</r><r>6</r></d>"
    if anew == "renamed":
        other = tmp_path / "other"
        other.write_text(text)
        other.rename(path)
    else:
        folder.write("a", text)
        os.utime(path, ns=(1, 1))
    folder.poll()
    folder.settle()
    assert [value["#text"] for value in folder.values()] == ["4", "5", "6"]


def exported(price: int) -> str:
    """Larger than what is looked at of a file of lines, and of the same size for every price of one digit."""
    rows = "".join(f"<r>{number:06}</r>" for number in range(200))
    return f"<d>{rows}<r>price {price}</r>{rows}</d>"


@pytest.mark.parametrize("anew", ["renamed", "in place"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_whole_file_that_differs_only_in_its_middle_is_read_again(tmp_path: Path, anew: str, restart: bool) -> None:
    folder = Folder(tmp_path, format_of_files="xml", record="r")
    path = folder.write("a", exported(1))
    folder.settle()
    assert "price 1" in [value["#text"] for value in folder.values()]
    if anew == "renamed":
        other = tmp_path / "other"
        other.write_text(exported(2))
        other.rename(path)
    else:
        folder.write("a", exported(2))
        os.utime(path, ns=(1, 1))
    if restart:
        folder.restart()
    folder.settle()
    assert "price 2" in [value["#text"] for value in folder.values()]


@pytest.mark.parametrize("restart", [False, True])
def test_a_whole_file_that_was_copied_or_touched_is_not_read_again(tmp_path: Path, restart: bool) -> None:
    folder = Folder(tmp_path, format_of_files="xml", record="r")
    path = folder.write("a", exported(1))
    folder.settle()
    assert len(folder.values()) == 401
    for change in ("touched", "copied"):
        if change == "touched":
            os.utime(path, ns=(1, 1))
        else:
            other = tmp_path / "other"
            other.write_text(exported(1))
            other.rename(path)
        if restart:
            folder.restart()
        folder.settle()
        assert folder.values() == []


def test_a_parquet_file_that_is_still_copied_is_not_hashed_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be large, and other files of the folder would wait for it."""
    hashed = 0
    hash_ = file_identity._hash

    def counted(file: BinaryIO, start: int, end: int) -> str:
        nonlocal hashed
        hashed += end - start
        return hash_(file, start, end)

    monkeypatch.setattr(file_identity, "_hash", counted)
    whole = tmp_path / "whole"
    pq.write_table(pa.table({"n": range(100_000)}), whole, compression="none")
    data = whole.read_bytes()
    folder = Folder(tmp_path, format_of_files="parquet")
    path = folder.write("a", "")
    for size in range(0, len(data), len(data) // 10):
        path.write_bytes(data[:size])
        assert folder.values() == []
    assert hashed < len(data)
    path.write_bytes(data)
    assert len(folder.values()) == 100_000


def test_what_an_earlier_release_has_read_of_a_whole_file_is_not_read_again(tmp_path: Path) -> None:
    """It kept hashes of the beginning and the end only."""
    folder = Folder(tmp_path, format_of_files="xml", record="r")
    folder.write("a", exported(1))
    folder.settle()
    assert len(folder.values()) == 401
    with (tmp_path / "in" / "a").open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        ((key, part),) = folder.parts.items()
        before = fingerprints(file, FileState.from_json(part), size).to_json()
    folder.parts[key] = {name: value for name, value in before.items() if name != "changed_ns"}
    folder.restart()
    folder.settle()
    assert folder.values() == []
    folder.write("a", exported(2))
    os.utime(tmp_path / "in" / "a", ns=(1, 1))
    folder.settle()
    assert len(folder.values()) == 401
    folder.parts[key]["noted_later"] = 1
    with pytest.raises(UsageError, match=r"does not know \(noted_later\): use the release"):
        folder.restart()


def test_large_whole_files_are_looked_at_one_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restore of a folder, say. What was looked at is committed, and a connector that is stopped ends."""
    monkeypatch.setattr(files, "SCAN_BYTES", 1)
    folder = Folder(tmp_path, format_of_files="xml", record="r")
    for name in "abc":
        folder.write(name, exported(1))
    folder.settle()
    assert len(folder.values()) == 3 * 401
    for name in "abc":
        os.utime(tmp_path / "in" / name, ns=(1, 1))
    folder.write("d", exported(1))
    looks = [folder._source.poll() for _ in range(4)]
    assert [None if look is None else len(look.parts) for look in looks] == [1, 1, 1, None]
    folder.settle()
    assert len(folder.values()) == 401


def test_a_file_that_is_looked_at_later_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restore of a folder, whose files are others then, while they were not read to their ends."""
    monkeypatch.setattr(files, "SCAN_BYTES", 1)
    folder = Folder(tmp_path, format_of_files="xml", record="r", max_records=500)
    written = [folder.write(name, exported(1)) for name in "ab"]
    folder.settle()
    assert folder._source.poll() is not None
    copies = [Path(shutil.copy2(path, tmp_path)) for path in written]  # both, as an inode that is free is used again
    for copy, path in zip(copies, written, strict=True):
        copy.replace(path)
    for _ in range(4):
        folder.clock.advance(5_000)
        folder._source.poll()
    assert folder.lag == 0
    assert not caplog.records


def test_a_restart_repeats_nothing_and_knows_files_that_were_gone_for_a_while(lines: Folder) -> None:
    path = lines.write("a", "one\n")
    assert lines.values() == [b"one"]
    away = path.rename(lines.path / "away")
    assert lines.values() == []
    lines.restart()
    away.rename(path)
    assert lines.values() == []


def test_a_file_gone_for_long_is_forgotten(tmp_path: Path) -> None:
    folder = Folder(tmp_path, format_of_files="lines", forget_after_ms=1_000)
    folder.write("a", "one\n")
    folder.values()
    (tmp_path / "in" / "a").unlink()
    folder.values()
    folder.clock.advance(1_000)
    folder.values()
    assert folder.parts == {}


def test_a_folder_that_is_gone_is_no_empty_folder(lines: Folder) -> None:
    lines.write("a", "one\n")
    lines.values()
    (lines.path / "in").rename(lines.path / "elsewhere")
    with pytest.raises(TransientError, match="no longer exists"):
        lines.poll()
    with pytest.raises(TransientError, match="there is no folder"):
        lines.restart()


def test_patterns_and_folders_in_folders(tmp_path: Path) -> None:
    folder = Folder(tmp_path, format_of_files="lines", pattern="*.log", recursive=True)
    (tmp_path / "in" / "deep").mkdir()
    folder.write("deep/a.log", "one\n")
    folder.write("b.txt", "two\n")
    assert folder.values() == [b"one"]


def test_a_name_that_is_no_text_stops_nothing(tmp_path: Path) -> None:
    """Linux takes any bytes for a name; what is known of the file is written as JSON."""
    folder = Folder(tmp_path, format_of_files="lines", place_headers=True)
    path = tmp_path / "in" / os.fsdecode(b"caf\xe9.log")
    path.write_text("one\n")
    polled = folder._source.poll()
    assert polled is not None
    assert [record.value for record in polled.records] == [b"one"]
    assert dict(polled.records[0].headers)["file"] == b"caf\\xe9.log"
    ((part, state),) = polled.parts.items()
    part_record("files", part, state)
    folder.restart()


# -- lines ----------------------------------------------------------------------------------------------------


def test_a_line_beyond_the_limit_is_put_aside(tmp_path: Path) -> None:
    folder = Folder(tmp_path, format_of_files="lines", max_line_bytes=2_000_000)
    folder.write("a", b"before\n" + b"x" * 5_000_000)
    values, rejected = folder.poll()
    assert values == [b"before"]
    assert [(line, reason) for _, line, reason in rejected] == [("2", "is longer than max_line_bytes (2000000)")]
    folder.restart()
    folder.write("a", b"xx\nafter\n", more=True)
    assert folder.values() == [b"after"]


def test_json_lines_keep_their_bytes_and_bad_ones_are_put_aside(tmp_path: Path) -> None:
    folder = Folder(tmp_path, format_of_files="jsonl", key="id")
    folder.write("a", b'{"id": 1, "x": 1.10}\n{oops\n\n{"id": NaN}\n[1]\n{"no": 1}\n{"id":2}\r\n')
    values, rejected = folder.poll()
    assert values == [b'{"id": 1, "x": 1.10}', b'{"id":2}']
    assert [(raw, line) for raw, line, _ in rejected] == [
        (b"{oops", "2"), (b'{"id": NaN}', "4"), (b"[1]", "5"), (b'{"no": 1}', "6"),
    ]  # fmt: skip
    assert "is not JSON" in rejected[0][2]
    assert "has no key: 'id'" in rejected[3][2]


def test_deeply_nested_json_and_xml_are_put_aside_and_reading_goes_on(tmp_path: Path) -> None:
    (tmp_path / "json").mkdir()
    folder = Folder(tmp_path / "json", format_of_files="jsonl")
    deepest = "[" * MAX_NESTING + "]" * MAX_NESTING
    deeper = f"[{deepest}]"
    endless = "[" * 100_000
    folder.write("a", f'{{"id": 1}}\n{deepest}\n{deeper}\n{endless}\n{{"id": 2}}\n')
    values, rejected = folder.poll()
    assert values == [b'{"id": 1}', deepest.encode(), b'{"id": 2}']
    assert [(raw, line, reason) for raw, line, reason in rejected] == [
        (deeper.encode(), "3", TOO_DEEP), (endless.encode(), "4", TOO_DEEP),
    ]  # fmt: skip

    (tmp_path / "xml").mkdir()
    folder = Folder(tmp_path / "xml", format_of_files="xml", record="r")
    levels = 20_000
    nested = "<a>" * levels + "v" + "</a>" * levels
    deepest = "<a>" * (MAX_NESTING - 1) + "v" + "</a>" * (MAX_NESTING - 1)
    folder.write("a", f"<d><r><x>1</x></r><r><b/>{nested}<c>2</c></r><r>{deepest}</r><r><x>3</x></r></d>")
    folder.settle()
    values, rejected = folder.poll()
    first, second, last = values
    assert (first, last) == ({"x": "1"}, {"x": "3"})
    assert json.dumps(second).count("{") == MAX_NESTING - 1
    ((raw, _, reason),) = rejected
    assert reason == TOO_DEEP
    assert raw.startswith(b'{"b": "", "a": ')
    assert raw.endswith(b'"c": "2"}')


def test_csv_rows_with_quotes_types_and_nulls(tmp_path: Path) -> None:
    folder = Folder(tmp_path, key=["b", "a"], types={"b": "long", "c": "double"}, null=["NA"], max_records=2)
    folder.write("a.csv", '\ufeffa,b,c\r\nx,1,2.5\r\n"two\r\nlines, ""quoted""",2,NA\r\nNA,3,1\r\n')
    assert folder.values() == [
        {"a": "x", "b": 1, "c": 2.5},
        {"a": 'two\r\nlines, "quoted"', "b": 2, "c": None},
        {"a": None, "b": 3, "c": 1.0},
    ]


def test_a_field_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    folder = Folder(tmp_path, max_line_bytes=400_000)
    folder.write("a.csv", "a,b\n1," + "x" * 300_000 + "\n2,3\n")
    assert folder.values() == [{"a": "1", "b": "x" * 300_000}, {"a": "2", "b": "3"}]


def test_an_element_with_others_in_it_is_no_boolean() -> None:
    with pytest.raises(ValueError, match=r"field 'a' is .*, not true or false"):
        Typed({"a": "boolean"}, ())({"a": {"b": "1"}})


def test_malformed_csv_is_put_aside_with_its_line_and_reading_goes_on(tmp_path: Path) -> None:
    folder = Folder(tmp_path, types={"b": "long"})
    folder.write("a.csv", b'a,b\nx,1\nx\nx,y\n"x"y,1\n\xff,1\nx,2\n')
    values, rejected = folder.poll()
    assert values == [{"a": "x", "b": 1}, {"a": "x", "b": 2}]
    assert [line for _, line, _ in rejected] == ["3", "4", "5", "6"]
    reasons = " | ".join(reason for _, _, reason in rejected)
    for said in ("has 1 fields, not 2", "field 'b' is 'y', not a whole number", "is not CSV", "is not utf-8"):
        assert said in reasons


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("long", "1_000"),
        ("long", "\u0661"),
        ("long", str(1 << 63)),
        ("double", "1_0.5"),
        ("double", "nan"),
        ("double", "inf"),
    ],
)
def test_texts_that_only_python_takes_for_numbers_are_put_aside(tmp_path: Path, kind: str, text: str) -> None:
    folder = Folder(tmp_path, types={"b": kind})
    folder.write("a.csv", f"a,b\nx,1\nx,{text}\n".encode())
    values, rejected = folder.poll()
    assert values == [{"a": "x", "b": 1}]
    assert [line for _, line, _ in rejected] == ["3"]


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}], ids=str)
def test_what_json_does_not_have_is_not_written_in_json(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encoder("format", "json", None, subject="")(value)


def test_a_quote_that_is_never_closed_costs_one_line(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a.csv", 'a,b\n1,2\n3,"4\n5,6\n')
    assert folder.values() == [{"a": "1", "b": "2"}]  # the row may go on
    folder.settle()
    values, rejected = folder.poll()
    assert values == [{"a": "5", "b": "6"}]
    assert [(raw, line) for raw, line, _ in rejected] == [(b'3,"4', "3")]


def test_a_quote_that_is_never_closed_before_a_line_beyond_the_limit_costs_both(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a.csv", 'a,b\n1,2\n3,"4\n' + "x" * 1_200_000 + "\n5,6\n")
    values, rejected = folder.poll()
    assert values == [{"a": "1", "b": "2"}, {"a": "5", "b": "6"}]
    assert [(raw[:4], line) for raw, line, _ in rejected] == [(b'3,"4', "3"), (b"xxxx", "4")]
    assert folder.lag == 0


def test_a_header_that_names_a_column_twice_ends_the_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a.csv", "a,a\n1,2\n")
    values, rejected = folder.poll()
    assert values == []
    assert [line for _, line, _ in rejected] == ["1"]
    assert folder.values() == []


@pytest.mark.parametrize("header", [b"pr\xe9nom,age\n", b'"name"d,age\n'], ids=["bytes", "quotes"])
def test_a_header_that_cannot_be_read_ends_the_file(tmp_path: Path, header: bytes) -> None:
    """No other line is taken for it: all rows would have the names of its values."""
    folder = Folder(tmp_path)
    folder.write("a.csv", header + b"ann,3\nbob,4\n")
    values, rejected = folder.poll()
    assert values == []
    assert [(raw, line) for raw, line, _ in rejected] == [(header.rstrip(), "1")]
    folder.write("a.csv", b"cid,5\n", more=True)
    assert folder.poll() == ([], [])


def test_a_header_beyond_all_bounds_ends_the_file(tmp_path: Path) -> None:
    """What is known of a file is one record, which must not be larger than topics take."""
    folder = Folder(tmp_path)
    names = ",".join(f"c{number}" for number in range(140_000))
    folder.write("a.csv", f"{names}\n1,2\n")
    values, rejected = folder.poll()
    assert values == []
    assert [(line, reason) for _, line, reason in rejected] == [("1", "a header of more than 100000 characters")]
    ((part, state),) = folder.parts.items()
    assert len(part_record("files", part, state)[1] or b"") < 1_000_000


def test_a_growing_csv_remembers_its_header_over_a_restart(tmp_path: Path) -> None:
    folder = Folder(tmp_path, delimiter=";")
    folder.write("a.csv", "a;b\n1;2\n")
    assert folder.values() == [{"a": "1", "b": "2"}]
    folder.restart()
    folder.write("a.csv", "3;4\n", more=True)
    assert folder.values() == [{"a": "3", "b": "4"}]


def test_every_place_to_stop_gives_the_same(tmp_path: Path) -> None:
    """However many records a transaction takes, and wherever the process starts anew."""
    text = "a,b\n" + "".join(f'{n},"x\n{n}"\n' if n % 3 else f"{n}\n" for n in range(30))
    found = []
    for size in (1, 2, 7, 100):
        (tmp_path / str(size)).mkdir()
        folder = Folder(tmp_path / str(size), max_records=size)
        folder.write("a.csv", text)
        values: list[Any] = []
        rejected: list[Any] = []
        while True:
            polled = folder._source.poll()
            if polled is None:
                break
            folder._parts.update(polled.parts)
            values += [record.value for record in polled.records]
            rejected += [(record.value, record.headers) for record in polled.rejected]
            folder.restart()
        found.append((values, rejected))
    assert len(found[0][0]) == 20
    assert len(found[0][1]) == 10
    assert all(one == found[0] for one in found)


# -- whole files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", ["x" * 300_000, "<a>1</a>" * 40_000, "<a><b>" * 9 + "x" * 300_000 + "</b></a>" * 9])
def test_an_xml_element_that_is_too_large_is_put_aside_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: str
) -> None:
    """Such as the whole of a file, which would be in memory at once."""
    monkeypatch.setattr(file_formats, "ELEMENT_BYTES", 100_000)
    folder = Folder(tmp_path, format_of_files="xml", record="r")
    folder.write("a", f"<w><r>1</r><r id='2'>{large}</r><r>3</r></w>")
    folder.settle()
    values, rejected = folder.poll()
    assert values == [{"#text": "1"}, {"#text": "3"}]
    ((raw, _, reason),) = rejected
    assert reason == "is an element of more than 100000 bytes"
    assert len(raw) < 1_000


def test_xml_elements_as_dicts(tmp_path: Path) -> None:
    folder = Folder(tmp_path, format_of_files="xml", record="obs", types={"temp": "double"}, max_records=2)
    folder.write(
        "a.xml",
        '<w xmlns:n="urn:x"><n:obs id="1"><temp>1.5</temp><tag>a</tag><tag>b</tag></n:obs>\n'
        '<obs><temp>warm</temp></obs><obs><at unit="m">3</at></obs><other/><obs>text</obs></w>',
    )
    assert folder.values() == []  # it may still be written
    folder.settle()
    values, rejected = folder.poll()
    assert values == [
        {"@id": "1", "temp": 1.5, "tag": ["a", "b"]},
        {"at": {"@unit": "m", "#text": "3"}},
        {"#text": "text"},
    ]
    assert [line for _, line, _ in rejected] == ["2"]
    folder.restart()
    folder.settle()
    assert folder.values() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<w><obs><a>1</a></obs><obs>", "the rest of the file is lost: no element found"),
        ("<!DOCTYPE w [<!ENTITY e 'x'>]><w><obs>&e;</obs></w>", "DOCTYPE"),
    ],
)
def test_what_is_no_xml_is_put_aside(tmp_path: Path, text: str, reason: str) -> None:
    folder = Folder(tmp_path, format_of_files="xml", record="obs")
    folder.write("a.xml", text)
    folder.settle()
    values, rejected = folder.poll()
    assert len(values) == text.count("</obs>") - text.count("ENTITY")
    assert reason in rejected[0][2]
    assert folder.poll() == ([], [])


def test_a_disk_that_cannot_read_is_no_end_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path, format_of_files="xml", record="r")
    folder.write("a", "<d><r>1</r><r>2</r></d>")
    folder.settle()
    with monkeypatch.context() as failing:
        original = files.read_xml

        def read(*given: Any) -> Iterator[Any]:
            yield next(original(*given))
            raise OSError(errno.EIO, "Input/output error")

        failing.setattr(files, "read_xml", read)
        with pytest.raises(OSError, match="Input/output error"):
            folder.poll()
    folder.restart()
    folder.settle()
    assert [value["#text"] for value in folder.values()] == ["1", "2"]


def test_parquet_is_taken_once_it_is_whole(tmp_path: Path) -> None:
    folder = Folder(tmp_path, format_of_files="parquet", max_records=3)
    pq.write_table(pa.table({"n": list(range(10))}), tmp_path / "x.parquet")
    data = (tmp_path / "x.parquet").read_bytes()
    folder.write("x.parquet", data[:-20])
    assert folder.values() == []
    folder.write("x.parquet", data[-20:], more=True)
    polled = folder._source.poll()
    folder._parts.update(polled.parts)
    assert [record.value for record in polled.records] == [{"n": 0}, {"n": 1}, {"n": 2}]
    folder.restart()  # in the middle of the file
    assert folder.values() == [{"n": n} for n in range(3, 10)]
    folder.write("y.parquet", data[:-20])
    folder.settle()
    values, rejected = folder.poll()
    assert values == []
    assert "the rest of the file is lost" in rejected[0][2]


def test_numbers_that_json_does_not_have_are_texts() -> None:
    deep: Any = [math.nan, -math.inf]
    for _ in range(MAX_NESTING - 1):
        deep = [deep]
    assert json_text(deep).strip("[]") == '"NaN","-Infinity"'


# -- settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "folder: is missing"),
        ({"folder": "x", "patern": "*"}, "patern: there is no such setting; did you mean 'pattern'?"),
        ({"folder": 3}, "folder: expected a path, got 3"),
        ({"folder": "x", "format_of_files": "tsv"}, "format_of_files: expected one of csv"),
        ({"folder": "x", "format_of_files": "xml"}, "record: is missing"),
        ({"folder": "x", "format_of_files": "lines", "key": "a"}, "key: lines have no fields"),
        ({"folder": "x", "types": {"a": "int"}}, "types.a: expected one of string"),
        ({"folder": "x", "delimiter": ";;"}, "delimiter: expected one character"),
        ({"folder": "x", "delimiter": '"'}, "delimiter: expected one character"),
        ({"folder": "x", "pattern": "in/*.csv"}, "pattern: is compared with names without folders"),
        ({"folder": "x", "columns": ["a", "b", "a"]}, "columns: names a column twice: a, b, a"),
        ({"folder": "x", "encoding": "latin-99"}, "encoding: there is no encoding"),
        ({"folder": "x", "encoding": "utf-16"}, "encoding: files are read by lines, and in 'utf-16' a line"),
        ({"folder": "x", "encoding": "hex"}, "encoding: files are read by lines"),
        ({"folder": "x", "max_records": 0}, "max_records: must be at least 1"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as raised:
        FilesSource(settings, About(name="x", folder=tmp_path, clock=ManualClock()))
    assert said in str(raised.value)
