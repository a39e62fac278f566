"""The formats of files: lines (text, JSON, CSV), in files that grow, and XML and Parquet, which are read whole.

A reader of lines gets bytes that begin at a line, and tells how many of them it has read. A malformed part becomes a
`Malformed` with its line and the reason, and reading continues after it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO
from xml.parsers import expat

from suiro.foundation.nesting import MAX_NESTING, TooDeepError, parse_json
from suiro.streams.expressions.rules import cast_value

CSV_TYPES = ("string", "long", "double", "boolean")
XML_CHUNK_BYTES = 256 * 1024
ELEMENT_BYTES = 64 * 1024 * 1024
"""The limit of an XML element that is a record. As values of Python, it takes several times as much memory."""
HEADER_CHARS = 100_000
"""The limit of the header of a CSV file: its names are a part of the position, which must fit into a record."""


@dataclass(frozen=True, slots=True)
class Item:
    line: int  # from 1; of XML the line of its element, of Parquet the row
    value: Any
    parsed: Any = None  # of JSON, whose value is its bytes


@dataclass(frozen=True, slots=True)
class Malformed:
    line: int
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The items of some lines, which have `size` bytes."""

    items: list[Item | Malformed]
    size: int
    lines: int
    columns: tuple[str, ...] = ()


class Typed:
    """Converts text fields to the types of the settings. The texts in `nulls` become null."""

    def __init__(self, types: dict[str, str], nulls: Sequence[str]) -> None:
        self._kinds = {name: _KINDS[kind] for name, kind in types.items() if kind != "string"}
        self._nulls = frozenset(nulls)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Raises `ValueError` that names the field."""
        if self._nulls:
            for name, text in row.items():
                if isinstance(text, str) and text in self._nulls:
                    row[name] = None
        for name, (convert, words) in self._kinds.items():
            text = row.get(name)
            if text is not None:
                try:
                    row[name] = convert(text)
                except (ValueError, TypeError):
                    raise ValueError(f"field {name!r} is {text!r}, not {words}") from None
        return row


def _cast(text: str, kind: str) -> Any:
    """Converts by the rules of expressions. Python itself accepts 1_000 and `nan`, which is not JSON."""
    found = cast_value(text, kind) if isinstance(text, str) else None
    if found is None:
        raise ValueError
    return found


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False, "t": True, "f": False, "1": True, "0": False}[text.lower()]
    except (KeyError, AttributeError):  # an element with child elements is not a text
        raise ValueError from None


_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "long": (lambda text: _cast(text, "long"), "a whole number of 64 bits"),
    "double": (lambda text: _cast(text, "double"), "a number"),
    "boolean": (_boolean, "true or false"),
}


# Files of lines


def read_lines(data: bytes, line: int, limit: int, *, as_json: bool) -> Parsed:
    """Reads complete lines of text or of JSON, without empty ones. `line`: the number of lines before."""
    items: list[Item | Malformed] = []
    first, offset = line, 0
    for raw in data.splitlines(keepends=True) if b"\r" not in data else _split(data):
        if len(items) >= limit:
            break
        line += 1
        offset += len(raw)
        text = raw.rstrip(b"\r\n")
        if not text.strip():
            continue
        parsed: Any = None
        if as_json:
            try:
                parsed = parse_json(text, allow_nan=False)
            except ValueError as error:
                items.append(Malformed(line, text, str(error)))
                continue
        items.append(Item(line, text, parsed))
    return Parsed(items, offset, line - first)


def _split(data: bytes) -> list[bytes]:
    """Splits at \\n; a lone \\r is a part of the text."""
    lines = data.split(b"\n")
    last = lines.pop()
    return [text + b"\n" for text in lines] + ([last] if last else [])


def read_csv(
    data: bytes,
    line: int,
    limit: int,
    *,
    columns: tuple[str, ...],
    delimiter: str,
    encoding: str,
    typed: Typed,
    final: bool,
) -> Parsed:
    """Reads rows as dicts. Without `columns`, the first row has their names. A row may have several lines in quotes. A
    row whose quotes are not closed yet is not read unless this is `final`."""
    feed = _Feed(_split(data), encoding)
    items: list[Item | Malformed] = []
    # An item before there are columns is a malformed header. The next line is not a header.
    while len(items) < limit and (columns or not items):
        start = feed.next
        try:
            row = next(feed.reader(delimiter))
        except StopIteration:
            break
        except csv.Error as error:
            if not final and feed.next == len(feed.lines) and "unexpected end" in str(error):
                feed.restart(start)
                break
            feed.restart(start + 1)  # only this line is rejected; the next ones may be correct
            items.append(Malformed(line + start + 1, feed.raw(start), f"is not CSV: {error}"))
            continue
        except UnicodeDecodeError as error:
            bad = feed.next - 1
            feed.restart(bad + 1)
            items.append(Malformed(line + bad + 1, feed.raw(start), f"is not {encoding}: {error}"))
            continue
        if not row:
            continue
        try:
            if not columns:
                columns = _header(row)
            elif len(row) != len(columns):
                raise ValueError(f"has {len(row)} fields, not {len(columns)}")
            else:
                items.append(Item(line + start + 1, typed(dict(zip(columns, row, strict=True)))))
        except ValueError as error:
            items.append(Malformed(line + start + 1, feed.raw(start), str(error)))
    return Parsed(items, feed.size, feed.next, columns)


def _header(row: list[str]) -> tuple[str, ...]:
    """Raises `ValueError`."""
    columns = tuple(name.strip() for name in row)
    if len(set(columns)) < len(columns) or "" in columns:
        raise ValueError("a header with an empty or repeated name")
    if sum(map(len, columns)) > HEADER_CHARS:
        raise ValueError(f"a header of more than {HEADER_CHARS} characters")
    return columns


class _Feed:
    """The lines for a `csv.reader`, which takes exactly the lines of its next row. So this knows where rows end."""

    def __init__(self, lines: list[bytes], encoding: str) -> None:
        self.lines = lines
        self.next = 0
        self._encoding = encoding
        self._reader: Iterator[list[str]] | None = None

    def __iter__(self) -> Iterator[str]:
        while self.next < len(self.lines):
            raw = self.lines[self.next]
            self.next += 1
            yield raw.decode(self._encoding)

    def reader(self, delimiter: str) -> Iterator[list[str]]:
        if self._reader is None:
            self._reader = csv.reader(iter(self), delimiter=delimiter, strict=True)
        return self._reader

    def restart(self, line: int) -> None:
        self.next = line
        self._reader = None

    def raw(self, start: int) -> bytes:
        return b"".join(self.lines[start : max(self.next, start + 1)]).rstrip(b"\r\n")

    @property
    def size(self) -> int:
        return sum(map(len, self.lines[: self.next]))


# Files that are read as a whole


def read_xml(file: BinaryIO, element: str, typed: Typed) -> Iterator[Item | Malformed]:
    """Yields every element with this name as a dict: children by their names (a list if repeated), attributes with `@`
    before their names, text beside them as `#text`; without namespaces. XML that is not well-formed ends the file. An
    element that is nested deeper than `MAX_NESTING` is rejected, without its deepest parts. So is one that is larger
    than `ELEMENT_BYTES`, without its content. Closes the file."""
    found: list[Item | Malformed] = []
    builder = _Elements(element, found, typed)
    with file:
        while True:
            chunk = file.read(XML_CHUNK_BYTES)
            try:
                builder.parser.Parse(chunk, not chunk)
            except (expat.ExpatError, ValueError) as error:
                yield from found
                yield Malformed(builder.parser.CurrentLineNumber, b"", f"the rest of the file is lost: {error}")
                return
            yield from found
            found.clear()
            if not chunk:
                return


class _Elements:
    def __init__(self, element: str, found: list[Item | Malformed], typed: Typed) -> None:
        self._element = element
        self._found = found
        self._typed = typed
        self._stack: list[tuple[dict[str, Any], list[str]]] = []
        self._too_deep = False  # whether the current record is
        self._too_large = False  # the same
        self._began = 0  # where it began in the file
        self._below = 0  # the number of open elements below the deepest one that is kept
        self._line = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._doctype

    def _doctype(self, *declared: Any) -> None:
        raise ValueError("it declares a DOCTYPE, which this source does not follow (entities could be anything)")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._stack:
            if _local(name) != self._element:
                return
            self._line = self.parser.CurrentLineNumber
            self._too_deep = self._too_large = False
            self._began = self.parser.CurrentByteIndex
        if len(self._stack) == MAX_NESTING:
            self._too_deep = True
            self._below += 1
            return
        fields = {f"@{_local(key)}": value for key, value in attributes.items() if not key.startswith("xmlns")}
        self._stack.append(({} if self._drops() else fields, []))

    def _drops(self) -> bool:
        """Whether the current record is too large. Then nothing of it is kept."""
        if not self._too_large and self.parser.CurrentByteIndex - self._began > ELEMENT_BYTES:
            self._too_large = True
            for fields, texts in self._stack:
                fields.clear()
                texts.clear()
        return self._too_large

    def _text(self, text: str) -> None:
        if self._stack and not self._below and not self._drops():
            self._stack[-1][1].append(text)

    def _end(self, name: str) -> None:
        if not self._stack:
            return
        if self._below:
            self._below -= 1
            return
        fields, texts = self._stack.pop()
        text = "".join(texts).strip()
        if self._stack:
            if not self._drops():
                _add(self._stack[-1][0], _local(name), _leaf(fields, text))
            return
        if text:
            fields["#text"] = text
        try:
            if self._too_deep:
                raise TooDeepError
            if self._too_large:
                raise ValueError(f"is an element of more than {ELEMENT_BYTES} bytes")
            self._found.append(Item(self._line, self._typed(fields)))
        except ValueError as error:
            raw = json.dumps(fields, ensure_ascii=False).encode()
            self._found.append(Malformed(self._line, raw, str(error)))


def _local(name: str) -> str:
    return name.rpartition(":")[2]


def _leaf(fields: dict[str, Any], text: str) -> Any:
    if not fields:
        return text
    return fields | {"#text": text} if text else fields


def _add(fields: dict[str, Any], name: str, value: Any) -> None:
    if name not in fields:
        fields[name] = value
    elif isinstance(fields[name], list):
        fields[name].append(value)
    else:
        fields[name] = [fields[name], value]


def check_parquet(file: BinaryIO) -> None:
    """Raises an error of pyarrow if the file is incomplete."""
    import pyarrow.parquet as pq

    pq.read_metadata(file)
    file.seek(0)


def read_parquet(file: BinaryIO, rows: int) -> Iterator[Item]:
    """Yields every row as a dict. Raises an error of pyarrow if the file is incomplete. Closes the file."""
    import pyarrow.parquet as pq

    line = 0
    with file, pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(batch_size=rows):
            for row in batch.to_pylist():
                line += 1
                yield Item(line, row)
