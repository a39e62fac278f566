"""A record as the API returns it: decoded, shortened for lists, and masked for users who may not see all of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from suiro.console.dead_letters import origin_topics, without_error
from suiro.console.formats import FORMATS, Decoded, Filter, column_reader, decoder, value_reader
from suiro.console.pages import Batch, LogEntry, Transaction
from suiro.console.records import LogRecord, bytes_of
from suiro.console.web.endpoint import Call
from suiro.console.web.masks import MASKED, Masks, masked
from suiro.errors import RegistryError, UsageError
from suiro.foundation.http import Role
from suiro.protocol.records import Choose

CUT_CHARS = 4 * 1024
"""The longest key or value in a list. The response for a single record has all of it."""
HEADER_CHARS = 1_024
HEADERS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """JSON is returned as the original text, so that numbers lose no digits. `cut`: the text is only the beginning."""

    format: str
    text: str
    error: str | None
    bytes: int
    schema_id: int | None
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    name: str
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordJson:
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Field | None
    value: Field | None
    headers: tuple[Header, ...]
    bytes: int
    batch: Batch | None
    transaction: Transaction | None
    key_hex: str | None = None
    value_hex: str | None = None


class RecordView:
    """Shows records of one topic to the user of a request. `key` and `value` of the query are the formats. If it
    `is_exact`, a registry that does not answer is an error (`decoder`).

    A dead letter is a copy of a record. So fields that are masked in its source topic are masked in it, and the headers
    that describe the error, which may quote the record, are hidden.
    """

    def __init__(self, call: Call, topic: str, *, is_exact: bool = False) -> None:
        settings = call.console.settings
        key, value = _format(call, "key"), _format(call, "value")
        waits = {"is_patient": False, "is_exact": is_exact}
        self._key = decoder(key, settings.registry, **waits)
        self._value = decoder(value, settings.registry, **waits)
        self._guessed_key = decoder("auto", settings.registry, **waits)
        self._value_of = value_reader(value, settings.registry, **waits)
        self._keys_of = partial(column_reader, key, settings.registry, is_exact=is_exact)
        self._values_of = partial(column_reader, value, settings.registry, is_exact=is_exact)
        self._masks = settings.masks if call.role < Role.ADMIN else Masks()
        self._masked = self._masks.of(topic)

    def hidden_paths(self, record: LogRecord) -> tuple[tuple[str, ...], ...]:
        """Returns the paths of masked fields; none if the whole record is shown."""
        if not self._masks.rules:
            return ()
        sources = origin_topics(record) - {record.topic}
        return self._masked + tuple(path for topic in sources for path in self._masks.of(topic))

    def headers(self, record: LogRecord) -> tuple[tuple[str, bytes | None], ...]:
        """As the user may see them."""
        return without_error(record.headers, MASKED) if self.hidden_paths(record) else record.headers

    def key_and_value(self, record: LogRecord) -> tuple[Decoded, Decoded]:
        """As the user may see them."""
        value = self._value(record.value)
        paths = self.hidden_paths(record)
        return self._key_of(record), _hidden(value, paths) if paths else value

    def _key_of(self, record: LogRecord) -> Decoded:
        """As the user may see it. If fields are masked, its format is guessed: another format would show its bytes."""
        paths = self.hidden_paths(record)
        if not paths:
            return self._key(record.key)
        key = self._guessed_key(record.key)
        # A long with a schema id may be a value of that schema, for which the registry could not be asked.
        has_no_fields = (key.format == "long" and key.schema_id is None) or (
            key.format == "string" and not _may_have_fields(key.text)
        )
        return key if has_no_fields and key.error is None else _hidden(key, paths)

    def key_for_a_filter(self, record: LogRecord) -> Any:
        return self._key_of(record).value

    def value_for_a_filter(self, record: LogRecord) -> Any:
        """As the user may see it."""
        paths = self.hidden_paths(record)
        return _hidden(self._value(record.value), paths).value if paths else self._value_of(record.value)

    def choose(self, wanted: Filter) -> Choose | None:
        """Returns a function that leaves out records for which the filter does not hold, by keys and values; None if
        this takes more of a record. It may choose too many, and never too few."""
        if self._masks.rules or "timestamp" in wanted.reads:
            return None
        has_keys, has_values = "key" in wanted.reads, "value" in wanted.reads
        keys_of, values_of = self._keys_of(), self._values_of(fields=wanted.fields)

        def which(count: int, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Sequence[int]:
            nothing = [None] * count
            try:
                return wanted.may_hold(
                    keys_of(keys) if has_keys else nothing, values_of(values) if has_values else nothing
                )
            except RegistryError:  # reported for the record, if it still is one then
                return range(count)

        return Choose(which=which, keys=has_keys, values=has_values)

    def of(self, entry: LogEntry, *, whole: bool = False) -> RecordJson:
        key, value = self.key_and_value(entry.record)
        return self.shown(entry.record, key, value, batch=entry.batch, state=entry.transaction, whole=whole)

    def shown(
        self,
        record: LogRecord,
        key: Decoded,
        value: Decoded,
        *,
        batch: Batch | None = None,
        state: Transaction | None = None,
        whole: bool = False,
    ) -> RecordJson:
        headers = self.headers(record)
        with_hex = whole and not self.hidden_paths(record)
        return RecordJson(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            key=_field(key, record.key, whole),
            value=_field(value, record.value, whole),
            headers=tuple(_header(name, data, whole) for name, data in headers[: None if whole else HEADERS_MAX]),
            bytes=bytes_of(record),
            batch=batch,
            transaction=state,
            key_hex=record.key.hex() if with_hex and record.key is not None else None,
            value_hex=record.value.hex() if with_hex and record.value is not None else None,
        )


def _may_have_fields(text: str) -> bool:
    """Whether a text is JSON with fields, or a text of JSON that holds such JSON. Its characters may be escapes."""
    while (text := text.strip()).startswith('"'):
        try:
            text = json.loads(text)
        except ValueError:  # somebody may still read it as JSON
            return True
    return text.startswith(("{", "[", "\\"))


def _hidden(value: Decoded, paths: Sequence[Sequence[str]]) -> Decoded:
    if value.text == "null":
        return value
    text = None if value.error is not None or value.format in ("string", "long", "hex") else value.text
    text = text if text is None else masked(text, paths)
    if text is None:
        return Decoded(value=MASKED, text=MASKED, format="masked", schema_id=value.schema_id)
    return Decoded(value=json.loads(text), text=text, format=value.format, schema_id=value.schema_id)


def _format(call: Call, name: str) -> str:
    found = call.query.get(name, "auto")
    if found != "auto" and found not in FORMATS:
        raise UsageError(f"{name}={found[:80]!r}: use one of auto, {', '.join(FORMATS)}")
    return found


def _field(decoded: Decoded, data: bytes | None, whole: bool) -> Field | None:
    if data is None:
        return None
    cut = not whole and len(decoded.text) > CUT_CHARS
    return Field(
        format=decoded.format,
        text=decoded.text[:CUT_CHARS] if cut else decoded.text,
        error=decoded.error,
        bytes=len(data),
        schema_id=decoded.schema_id,
        cut=cut,
    )


def _header(name: str, data: bytes | None, whole: bool) -> Header:
    text = None if data is None else data.decode(errors="backslashreplace")
    if text is not None and not whole:
        text = text[:HEADER_CHARS]
    return Header(name=name if whole else name[:HEADER_CHARS], text=text)
