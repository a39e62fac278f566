"""Source `files`: reads the files in a folder, and what is added to them. Exactly once.

    [source.weather]
    kind = "files"
    folder = "weather"
    pattern = "*.csv"
    format_of_files = "csv"        # csv, jsonl, lines, xml, parquet
    topic = "weather"
    key = ["station"]
    dead_letter_topic = "weather-rejected"

The place up to which a file was read is committed in the transaction with its records, as one part of the position
(`file_identity` identifies files). A last line without a newline is read once its file has not changed for `settle_ms`;
so are XML files. A Parquet file is read as soon as it is complete. The source does not rename or delete files.
"""

from __future__ import annotations

import codecs
import csv
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO

from suiro.clock import sleep_s
from suiro.connect.connectors import ERROR_PREFIX, About, Polled, SourceRecord, short_reason
from suiro.connect.datasets import file_dataset
from suiro.connect.sources.file_formats import (
    CSV_TYPES,
    Item,
    Malformed,
    Parsed,
    Typed,
    check_parquet,
    read_csv,
    read_lines,
    read_parquet,
    read_xml,
)
from suiro.connect.sources.file_identity import (
    FileInfo,
    FileState,
    file_info,
    fingerprints,
    fingerprints_of_all,
    fits,
    holds,
    is_same,
    opened,
)
from suiro.connect.values import key_text
from suiro.errors import TransientError
from suiro.foundation.settings import SettingError, read_settings, require_least, require_one_of
from suiro.telemetry import Column, Dataset

FORMATS = ("csv", "jsonl", "lines", "xml", "parquet")
WHOLE = ("xml", "parquet")
CHUNK_BYTES = 1024 * 1024
POLL_BYTES = 16 * 1024 * 1024  # read from several files in one poll
SCAN_BYTES = 1 << 30  # of whole files that are hashed in one scan of the folder
RAW_BYTES = 10_000  # of a line that is too long, in its dead letter

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSettings:
    folder: Path
    pattern: str = "*"
    recursive: bool = False
    format_of_files: str = "csv"
    key: tuple[str, ...] = ()  # fields; the key is their value, or a JSON list of several
    delimiter: str = ","
    encoding: str = "utf-8"
    columns: tuple[str, ...] = ()  # of CSV without a header
    types: dict[str, str] = field(default_factory=dict)  # of CSV and XML: long, double, boolean, string
    null: tuple[str, ...] = ()  # texts that mean null
    record: str | None = None  # of XML: the element that is a record
    place_headers: bool = False  # file and line as headers of each record
    max_records: int = 10_000  # in a transaction
    max_line_bytes: int = 1_000_000
    interval_ms: int = 500  # between two looks at the folder
    settle_ms: int = 5_000
    forget_after_ms: int = 7 * 24 * 3600 * 1000  # a file that is gone for so long is new if it comes back

    def __post_init__(self) -> None:
        require_one_of("format_of_files", self.format_of_files, FORMATS)
        if self.format_of_files == "xml" and not self.record:
            raise SettingError("record", 'is missing: format_of_files "xml" needs the name of the element')
        for name, kind in self.types.items():
            require_one_of(f"types.{name}", kind, CSV_TYPES)
        if self.key and self.format_of_files == "lines":
            raise SettingError("key", "lines have no fields to take a key from")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise SettingError(
                "delimiter", f"expected one character, not a quote or a line end; got {self.delimiter!r}"
            )
        if "/" in self.pattern:
            raise SettingError("pattern", "is compared with names without folders; set folder, or recursive = true")
        if len(set(self.columns)) < len(self.columns):
            named = ", ".join(self.columns)
            raise SettingError(
                "columns", f"names a column twice: {named}; each is a field of the record, with its name"
            )
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise SettingError("encoding", f"there is no encoding {self.encoding!r}") from None
        try:
            ends = b"\n".decode(self.encoding) == "\n"
        except (LookupError, UnicodeError):  # LookupError: not an encoding of text
            ends = False
        if not ends:
            raise SettingError(
                "encoding",
                f"files are read by lines, and in {self.encoding!r} a line does not end with the byte 10; write the "
                "files in another encoding, such as utf-8",
            )
        require_least(self, max_records=1, max_line_bytes=1, interval_ms=1)


class FilesSource:
    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(FilesSettings, settings)
        self._source = about.name
        self._folder = about.folder / self._settings.folder
        self._clock = about.clock
        self._whole = self._settings.format_of_files in WHOLE
        self._typed = Typed(self._settings.types, self._settings.null)
        csv.field_size_limit(max(csv.field_size_limit(), self._settings.max_line_bytes))
        self._forget()

    def datasets(self) -> Sequence[Dataset]:
        return [file_dataset(self._folder, [Column(name=one) for one in self._settings.columns])]

    def _forget(self) -> None:
        self._states: dict[str, FileState] = {}
        self._known_files: dict[str, FileInfo] = {}  # as they were when they were compared with their states
        self._unchanged_since_ms: dict[str, tuple[FileInfo, int]] = {}
        self._gone_since_ms: dict[str, int] = {}
        self._open: dict[str, Iterator[Item | Malformed]] = {}  # whole files that are being read
        self._lag = 0
        self._next_scan_ms = 0

    def open_parts(self, parts: dict[str, Any]) -> None:
        self._forget()
        self._states = {key: FileState.from_json(value) for key, value in parts.items()}

    def open(self, position: dict[str, Any] | None) -> None:
        if not self._folder.is_dir():
            raise TransientError(f"there is no folder {self._folder}; create it, or fix folder")

    def close(self) -> None:
        self._open.clear()

    def lag(self) -> int:
        """Bytes that are not read yet."""
        return self._lag

    def poll(self) -> Polled | None:
        now_ms = self._clock.monotonic_ms()
        changed: dict[str, Any] = {}
        if now_ms >= self._next_scan_ms:
            self._next_scan_ms = now_ms + self._settings.interval_ms
            changed = self._scan()
        records: list[SourceRecord] = []
        rejected: list[SourceRecord] = []
        lag = size = 0
        for key, info in self._known_files.items():
            state = self._states.get(key, FileState(path=self._name(info.path)))
            room = self._settings.max_records - len(records) - len(rejected)
            has_more = not state.done and (self._whole or info.size > state.at)
            if room > 0 and size < POLL_BYTES and has_more:
                before = state
                state, items = self._read(key, info, state, room)
                for item in items:
                    self._sort(item, state.path, records, rejected)
                if state != before:
                    size += max(0, state.tail[0] - before.tail[0])
                    self._states[key] = state
                    changed[key] = state.to_json()
            lag += self._unread(info, state)
        self._lag = lag
        if not changed:
            self._next_scan_ms = 0
            sleep_s(min(self._settings.interval_ms, 1_000) / 1_000)
            return None
        return Polled(records=records, rejected=rejected, parts=changed)

    def _unread(self, info: FileInfo, state: FileState | None) -> int:
        if state is None:
            return info.size
        return 0 if state.done else info.size - (0 if self._whole else state.at)

    def _say_unread(self, key: str, why: str) -> None:
        """Reports a file whose content is gone, if it was not read to its end."""
        info = self._known_files.get(key)
        if info is not None and (unread := self._unread(info, self._states.get(key))) > 0:
            name = self._name(info.path)
            _log.warning("source %s: %s %s, and %d bytes of it were not read", self._source, name, why, unread)

    def _scan(self) -> dict[str, Any]:
        """Looks at every file. Returns the changed parts of the position. If many whole files have changed, as after a
        restore of the folder, some wait for the next scan."""
        changed: dict[str, Any] = {}
        compared, later, renamed = 0, set(), set()
        found = {info.key: info for info in sorted(self._found(), key=lambda info: (info.changed_ns, info.path))}
        by_path = {state.path: key for key, state in self._states.items() if key not in found}
        for key, info in found.items():
            if self._known_files.get(key) == info:
                continue
            known_as = key if key in self._states else by_path.get(self._name(info.path), key)
            renamed.add(known_as)
            state = self._states.get(known_as)
            if state is not None and not (known_as == key and self._is_unchanged(info, state)):
                if self._whole:
                    if compared >= SCAN_BYTES:
                        later.add(key)
                        continue
                    compared += info.size
                try:
                    if not fits(info, state, whole=self._whole):
                        self._say_unread(known_as, "has other content now")
                        state = None
                except FileNotFoundError:  # renamed or deleted meanwhile; the next scan finds it
                    later.add(key)
                    continue
            changed |= self._forget_content(key) if state is None else self._rename(known_as, info, state)
        for key in self._known_files.keys() - found.keys() - renamed:
            self._say_unread(key, "is gone from the folder, or has a name beyond the pattern")
        self._known_files = {key: info for key, info in found.items() if key not in later}
        if later:
            self._next_scan_ms = 0
        self._open = {key: reading for key, reading in self._open.items() if key in found}
        self._forget_deleted(found, changed)
        return changed

    def _forget_content(self, key: str) -> dict[str, Any]:
        """The file has other content, which replaces the state when it is read. Returns the changed parts."""
        self._open.pop(key, None)
        return {} if self._states.pop(key, None) is None else {key: None}

    def _rename(self, known_as: str, info: FileInfo, state: FileState) -> dict[str, Any]:
        """The file has the content of a state, perhaps with another key or name now. Returns the changed parts."""
        changed: dict[str, Any] = {}
        if known_as != info.key:
            changed[known_as] = None
            del self._states[known_as]
        renamed = self._noted(info, replace(state, path=self._name(info.path)))
        if renamed != self._states.get(info.key):
            self._states[info.key] = renamed
            changed[info.key] = renamed.to_json()
        return changed

    def _is_unchanged(self, info: FileInfo, state: FileState) -> bool:
        return self._whole and (info.size, info.changed_ns) == (state.tail[0], state.changed_ns)

    def _noted(self, info: FileInfo, state: FileState) -> FileState:
        """Returns the state of a file that fits. For a file that is read whole, notes the time of its last change."""
        if not self._whole or state.changed_ns == info.changed_ns:
            return state
        try:
            with opened(info) as file:
                noted = fingerprints_of_all(file, state, info)
                # It may have been rewritten at this moment. That content was not read.
                return noted if is_same(file, info) else state
        except FileNotFoundError:
            return state

    def _found(self) -> Iterator[FileInfo]:
        if not self._folder.is_dir():  # a lost mount does not mean that all files were deleted
            raise TransientError(f"the folder {self._folder} no longer exists")
        paths = self._folder.rglob("*") if self._settings.recursive else self._folder.iterdir()
        for path in paths:
            if fnmatch(path.name, self._settings.pattern) and (info := file_info(path)) is not None:
                yield info

    def _forget_deleted(self, found: Mapping[str, FileInfo], changed: dict[str, Any]) -> None:
        now_ms = self._clock.monotonic_ms()
        for key in self._unchanged_since_ms.keys() - self._known_files.keys():
            del self._unchanged_since_ms[key]
        for key in list(self._states):
            if key in found:
                self._gone_since_ms.pop(key, None)
            elif now_ms - self._gone_since_ms.setdefault(key, now_ms) >= self._settings.forget_after_ms:
                del self._states[key], self._gone_since_ms[key]
                changed[key] = None

    def _name(self, path: Path) -> str:
        """Returns the name as text that UTF-8 can encode: a name may have any bytes."""
        return os.fsencode(path.relative_to(self._folder)).decode(errors="backslashreplace")

    def _settled(self, key: str, info: FileInfo) -> bool:
        now_ms = self._clock.monotonic_ms()
        seen, since_ms = self._unchanged_since_ms.get(key, (None, now_ms))
        if seen != info:
            since_ms = now_ms
        self._unchanged_since_ms[key] = (info, since_ms)
        return now_ms - since_ms >= self._settings.settle_ms

    def _read(self, key: str, info: FileInfo, state: FileState, room: int) -> tuple[FileState, list[Item | Malformed]]:
        try:
            if self._whole:
                return self._read_whole(key, info, state, room)
            return self._read_piece(key, info, state, room)
        except FileNotFoundError:  # renamed or deleted meanwhile; the next scan finds it
            return state, []

    def _read_piece(
        self, key: str, info: FileInfo, state: FileState, room: int
    ) -> tuple[FileState, list[Item | Malformed]]:
        limit = self._settings.max_line_bytes
        settled = self._settled(key, info)
        with opened(info) as file:
            if not holds(file, state):  # rewritten since the scan
                state = FileState(path=state.path)
            file.seek(state.at)
            data = file.read(max(CHUNK_BYTES, limit + 1))
            read = len(data)
            # If the file has grown since the scan, its last line is not the last one, or incomplete.
            final = settled and state.at + read >= info.size and is_same(file, info)
            if not final:
                data = data[: data.rfind(b"\n") + 1] or (data if len(data) > limit else b"")
            if not data:
                return state, []
            if state.skipping:
                parsed, state = _skipped(data, state, [])
            else:
                parsed = self._parse(data, state, room, final=final)
                if not parsed.size and read > limit:  # one line, or one row in quotes, beyond all bounds
                    reason = f"is longer than max_line_bytes ({limit})"
                    line = Malformed(state.line + 1, data[:RAW_BYTES], reason)
                    parsed, state = _skipped(data, state, [line])
            offset = state.at + parsed.size
            bad_header = (
                self._settings.format_of_files == "csv"
                and bool(parsed.items)
                and not (parsed.columns or state.columns or self._settings.columns)
            )
            state = replace(
                state,
                at=offset,
                line=state.line + parsed.lines,
                columns=parsed.columns or state.columns,
                done=bad_header,
            )
            return fingerprints(file, state, offset), parsed.items

    def _parse(self, data: bytes, state: FileState, room: int, *, final: bool) -> Parsed:
        settings = self._settings
        if not (data.endswith(b"\n") or final):  # not a whole line
            return Parsed([], 0, 0)
        mark = len(codecs.BOM_UTF8) if state.at == 0 and data.startswith(codecs.BOM_UTF8) else 0
        if settings.format_of_files == "csv":
            parsed = read_csv(
                data[mark:],
                state.line,
                room,
                columns=settings.columns or state.columns,
                delimiter=settings.delimiter,
                encoding=settings.encoding,
                typed=self._typed,
                final=final,
            )
        else:
            parsed = read_lines(data[mark:], state.line, room, as_json=settings.format_of_files == "jsonl")
        return replace(parsed, size=parsed.size + mark)

    def _read_whole(
        self, key: str, info: FileInfo, state: FileState, room: int
    ) -> tuple[FileState, list[Item | Malformed]]:
        settled = self._settled(key, info)
        reading = self._open.get(key)
        items: list[Item | Malformed] = []
        ended = False
        before = state
        try:
            if reading is None:
                if not settled and self._settings.format_of_files == "xml":
                    return state, []
                with ExitStack() as unread:
                    file = unread.enter_context(opened(info))
                    if not is_same(file, info):
                        return state, []
                    if not settled:
                        check_parquet(file)  # an incomplete file is not hashed
                    # Hashed before it is read: if it is rewritten meanwhile, it no longer fits.
                    state = fingerprints_of_all(file, state, info)
                    unread.pop_all()
                reading = self._reading(file, room)
                for _ in range(state.at):
                    next(reading)
                self._open[key] = reading
            while len(items) < room:
                items.append(next(reading))
        except StopIteration:
            ended = True
        except FileNotFoundError:
            raise
        except Exception as error:  # pyarrow has many errors for a file that is incomplete, or not Parquet
            if not settled:
                self._open.pop(key, None)
                return before, []
            if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
                raise  # an error of this machine, not of the file
            ended = True
            items.append(Malformed(state.at + len(items) + 1, b"", f"the rest of the file is lost: {error}"))
        state = replace(state, at=state.at + len(items), line=state.line + len(items), done=ended)
        if ended:
            self._open.pop(key, None)
        return state, items

    def _reading(self, file: BinaryIO, rows: int) -> Iterator[Item | Malformed]:
        if self._settings.format_of_files == "parquet":
            return read_parquet(file, rows)
        assert self._settings.record is not None
        return read_xml(file, self._settings.record, self._typed)

    def _sort(
        self, item: Item | Malformed, path: str, records: list[SourceRecord], rejected: list[SourceRecord]
    ) -> None:
        if isinstance(item, Item):
            try:
                key = self._key(item.value if item.parsed is None else item.parsed)
            except (KeyError, TypeError, ValueError) as error:
                raw = item.value if isinstance(item.value, bytes) else repr(item.value).encode()
                item = Malformed(item.line, raw, f"has no key: {error}")
            else:
                headers = _file_headers(path, item.line) if self._settings.place_headers else ()
                records.append(SourceRecord(key=key, value=item.value, headers=headers))
                return
        reason = (f"{ERROR_PREFIX}exception.message", short_reason(item.reason).encode())
        errors = tuple((ERROR_PREFIX + name, value) for name, value in _file_headers(path, item.line))
        rejected.append(SourceRecord(value=item.raw, headers=(*errors, reason)))

    def _key(self, fields: Any) -> str | None:
        if not self._settings.key:
            return None
        return key_text([fields[name] for name in self._settings.key])


def _skipped(data: bytes, state: FileState, items: list[Item | Malformed]) -> tuple[Parsed, FileState]:
    """Skips a line that is too long, or all of `data` if the end of the line is not there yet."""
    end = data.find(b"\n") + 1
    return Parsed(items, end or len(data), 1 if end else 0), replace(state, skipping=not end)


def _file_headers(path: str, line: int) -> tuple[tuple[str, bytes | None], ...]:
    return ("file", path.encode()), ("line", str(line).encode())
