"""Formats of keys and values: decoding for people and programs, encoding, and filters.

Bytes that cannot be decoded are reported and shown as hex; they do not end the command. `auto` first tries the schema
id of a registry, then a JSON object or array, text, and eight bytes as a long. Everything else is hex.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from suiro.clock import SystemClock
from suiro.console.registry_waits import schema_waits
from suiro.console.text import plain
from suiro.errors import RegistryError, RegistryUnavailableError, SchemaNotFoundError, UsageError
from suiro.foundation.nesting import MAX_VALUES, has_too_many_values

if TYPE_CHECKING:
    from suiro.console.records import LogRecord
    from suiro.registry import Codec

FORMATS = ("string", "json", "avro", "long", "hex")

UNKNOWN_PAUSE_MS = 10_000
"""The pause for an id that the registry does not have, so that a page of a hundred records asks once. The bytes of a
long begin like a schema id."""
UNKNOWN_IDS_MAX = 1_000
BYTES_MAX = 16 * 1024 * 1024
"""The most bytes of a value that are decoded where others wait. A kilobyte of a batch may be a hundred megabytes."""
SCHEMA_BYTES_MAX = 4 * 1024 * 1024
"""The same of a value with a schema, each byte of which may be an object."""
SHOWN_BYTES = 1_024
QUICK_BYTES = 4_300
"""The longest values of JSON that are parsed together. In a longer one, a number may have more digits than Python
reads, which is noticed only if the number is needed."""
UNCLEAR_MAX = 5
_PLAIN = frozenset({str, int, bool, type(None)})
_FIRST, _LAST = itemgetter(0), itemgetter(-1)
_LONG = struct.Struct(">q")
_SCHEMA_ID = struct.Struct(">bI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """`value` is for programs, `text` for people. With `error` both may be hex. `format` is the format that was
    used."""

    value: Any
    text: str
    error: str | None = None
    format: str = ""
    schema_id: int | None = None


Decoder = Callable[[bytes | None], Decoded]

_JSON = frozenset({"json", "avro", "json-schema", "protobuf"})
"""Formats whose `Decoded.text` is JSON."""
_SPACES = {ord(space): " " for space in "\n\r\t"}


Exact = Callable[[str], Any]
"""Marks text that is JSON already, so that an encoder inserts it as it is."""


def exact_value(decoded: Decoded, exact: Exact) -> Any:
    """Returns the value for a line of JSON. What was JSON stays as it was written, with all digits, but on one line:
    strings in JSON have no raw line ends."""
    if decoded.error is None and decoded.format in _JSON:
        return exact(decoded.text.translate(_SPACES))
    return decoded.value


def record_fields(
    record: LogRecord,
    key: Decoded,
    value: Decoded,
    *,
    headers: Sequence[tuple[str, bytes | None]],
    exact: Exact,
) -> dict[str, Any]:
    """Returns the fields of a record for a line of JSON, which `suiro topic produce --json` reads. `headers` are pairs,
    because a name may occur twice."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": exact_value(key, exact),
        "value": exact_value(value, exact),
        "headers": [(name, _header(data)) for name, data in headers],
    }
    errors = {"key_error": _error_of(record.key, key), "value_error": _error_of(record.value, value)}
    return fields | {name: error for name, error in errors.items() if error is not None}


def _header(data: bytes | None) -> str | dict[str, str] | None:
    """Returns bytes that are not UTF-8 as hex, so that `suiro topic produce --json` writes the same bytes."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def _error_of(data: bytes | None, decoded: Decoded) -> str | None:
    """Returns why `suiro topic produce --json` could not write these bytes, or None."""
    if decoded.error is None and decoded.value is None and data is not None:
        return "is a null of its format, which would be written as if it were missing"
    return decoded.error


def decoder(
    name: str,
    registry: str | None = None,
    *,
    is_patient: bool = True,
    is_exact: bool = False,
    is_shown: bool = True,
) -> Decoder:
    """Returns a decoder for one of `FORMATS`, or "auto". Avro needs the URL of a registry: it waits for an answer as
    long as the registry's client if it `is_patient`, else like "auto". If the registry does not answer, Avro raises
    `RegistryUnavailableError`; so does "auto" if it `is_exact`, else it guesses. If it is not `is_shown`, `Decoded` may
    lack the text."""
    decode = _decode_of(name, registry, is_patient, is_exact, is_shown)

    def decoded(data: bytes | None) -> Decoded:
        if data is None:
            return Decoded(value=None, text="null")
        if not is_patient and len(data) > BYTES_MAX:
            text, error = data[:SHOWN_BYTES].hex(), _too_large(data, BYTES_MAX)
            # A file of CSV has no other place that says that this is only the beginning.
            return Decoded(value=text, text=f"0x{text}... ({error})", error=error, format="hex")
        try:
            return decode(data)
        except (ValueError, RecursionError) as error:
            text = data.hex()
            return Decoded(value=text, text=f"0x{text}", error=str(error) or type(error).__name__, format="hex")

    return decoded


def value_reader(
    name: str, registry: str | None = None, *, is_patient: bool = True, is_exact: bool = False
) -> Callable[[bytes | None], Any]:
    """Like `decoder`, but returns only the `value`, for filters that look at many records to show a few."""
    decode = decoder(name, registry, is_patient=is_patient, is_exact=is_exact, is_shown=False)
    if name not in ("auto", "json"):
        return lambda data: decode(data).value
    parse = msgspec.json.decode

    def value_of(data: bytes | None) -> Any:
        if data is not None and data[:1] in (b"{", b"[") and not has_too_many_values(data):
            try:
                return parse(data)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                pass  # the standard library accepts more, or reports the error
        return decode(data).value

    return value_of


def column_reader(
    name: str, registry: str | None = None, *, fields: Iterable[str] = (), is_exact: bool = False
) -> Callable[[Sequence[bytes | None]], Sequence[Any]]:
    """Like `value_reader`, for many small values at once. With `fields`, objects of JSON have no others."""
    one = value_reader(name, registry, is_patient=False, is_exact=is_exact)
    together: Callable[[Sequence[bytes]], list[Any] | None] | None = None
    # The parser does not find fields with other names.
    if name in ("auto", "json") and fields and all(map(str.isascii, fields)):
        together = _objects_of(fields)
    elif name in ("auto", "string"):
        together = partial(_texts, is_guessed=name == "auto")

    def values_of(data: Sequence[bytes | None]) -> Sequence[Any]:
        some = [item for item in data if item is not None]
        found = None if together is None else together(some)
        if found is None:
            found = [one(item) for item in some]
        rest = iter(found)
        return found if len(some) == len(data) else [None if item is None else next(rest) for item in data]

    return values_of


def _objects_of(fields: Iterable[str]) -> Callable[[Sequence[bytes]], list[Any] | None]:
    """Returns a reader of objects in JSON with these fields; it returns None if one must be looked at alone."""
    types: Any = TypedDict
    parse = msgspec.json.Decoder(types("Fields", dict.fromkeys(fields, Any), total=False)).decode_lines

    def objects(data: Sequence[bytes]) -> list[Any] | None:
        try:
            if set(map(_FIRST, data)) != {ord("{")} or set(map(_LAST, data)) != {ord("}")}:
                return None
            if max(map(len, data)) > QUICK_BYTES:
                return None
            lines = b"\n".join(data)
            # The parser does not check the UTF-8 of other fields.
            lines.decode()
            found: list[Any] = parse(lines)
        except (msgspec.MsgspecError, ValueError, RecursionError, IndexError):
            return None
        # Nowhere in JSON stands a bracket, a line end and a bracket: each line has whole objects, one or more.
        return found if len(found) == len(data) else None

    return objects


def _texts(data: Sequence[bytes], *, is_guessed: bool) -> list[Any] | None:
    """Returns None if one must be looked at alone."""
    try:
        text = b"\n".join(data).decode()
    except UnicodeDecodeError:
        return None
    if is_guessed:
        may_be_json = text.startswith(("{", "[")) or "\n{" in text or "\n[" in text
        if may_be_json or not text.replace("\n", " ").isprintable():
            return None
    found = text.split("\n")
    return found if len(found) == len(data) else None


def _decode_of(
    name: str, registry: str | None, is_patient: bool, is_exact: bool, is_shown: bool
) -> Callable[[bytes], Decoded]:
    if name == "avro":
        return _avro(registry, is_patient, is_shown)
    if name == "auto":
        return _Guessing(registry, is_exact, is_shown)
    plainly = {"string": _string, "json": _json if is_patient else _small_json, "long": _long, "hex": _hex}
    if name in plainly:
        return plainly[name]
    raise UsageError(f"there is no format {name!r}; use one of {', '.join(FORMATS)}")


def _string(data: bytes) -> Decoded:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    return Decoded(value=text, text=text, format="string")


def _hex(data: bytes) -> Decoded:
    return Decoded(value=data.hex(), text=data.hex(), format="hex")


def _json(data: bytes) -> Decoded:
    from suiro.foundation.nesting import parse_json

    # People see the original text: a float would lose digits of a number.
    return Decoded(value=parse_json(data), text=data.decode(), format="json")


def _small_json(data: bytes) -> Decoded:
    if has_too_many_values(data):
        raise ValueError(f"has more than {MAX_VALUES} values, and is not decoded here")
    return _json(data)


def _too_large(data: bytes, most: int) -> str:
    return f"has {len(data)} bytes, more than the {most} that are decoded here"


def _long(data: bytes) -> Decoded:
    if len(data) != _LONG.size:
        raise ValueError(f"is no long: it has {len(data)} bytes, a long has {_LONG.size}")
    (number,) = _LONG.unpack(data)
    return Decoded(value=number, text=str(number), format="long")


def _avro(registry: str | None, is_patient: bool, is_shown: bool) -> Callable[[bytes], Decoded]:
    from suiro.registry import CodecSettings, Undecodable, codec_of

    if registry is None:
        raise UsageError("format avro needs a registry; give --registry URL")
    codec = codec_of("AVRO", CodecSettings(registry=registry))
    known: set[int] = set()

    def decode(data: bytes) -> Decoded:
        schema_id = _schema_id(data)
        try:
            if schema_id is not None and not is_patient:
                if len(data) > SCHEMA_BYTES_MAX:
                    raise ValueError(_too_large(data, SCHEMA_BYTES_MAX))
                if schema_id not in known:
                    schema_waits(registry).wait(schema_id, partial(_by_schema, registry, schema_id, data))
                    known.add(schema_id)
            return _of_schema(codec.decode(data), "avro", schema_id, is_shown)
        # The registry may have the schema and not one that it refers to.
        except (Undecodable, SchemaNotFoundError) as error:
            raise ValueError(f"cannot be read: {error}") from None

    return decode


def _of_schema(value: Any, name: str, schema_id: int | None, is_shown: bool) -> Decoded:
    if not is_shown and _stays_in_json(value):
        return Decoded(value=value, text="", format=name, schema_id=schema_id)
    from suiro.connect import plain_json

    text = json.dumps(plain(value), default=plain_json, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair stays escaped
        text = json.dumps(plain(value), default=plain_json)
    return Decoded(value=json.loads(text), text=text, format=name, schema_id=schema_id)


def _stays_in_json(value: Any, levels: int = 20) -> bool:
    """Whether a value of few levels is the same after it was written as JSON and read."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is float:
        return isfinite(value)
    if levels and kind is dict:
        return set(map(type, value)) <= {str} and all(_stays_in_json(item, levels - 1) for item in value.values())
    return levels > 0 and kind is list and all(_stays_in_json(item, levels - 1) for item in value)


def _schema_id(data: bytes) -> int | None:
    """Returns the id in the first five bytes of Confluent's format, or None."""
    if len(data) < _SCHEMA_ID.size or data[0] != 0:
        return None
    found: int = _SCHEMA_ID.unpack_from(data)[1]
    return found


def _by_schema(registry: str, schema_id: int, data: bytes) -> tuple[Codec, str]:
    """Decodes a record, which fetches all that its schema needs. Returns the codec and the format. Raises `ValueError`
    for bytes that are not of the schema."""
    from suiro.registry import CodecSettings, codec_of, registry_client

    language = registry_client(registry).schema(schema_id).type
    codec = codec_of(language, CodecSettings(registry=registry))
    _decoded_by(codec, data)
    return codec, {"JSON": "json-schema"}.get(language, language.lower())


def _decoded_by(codec: Codec, data: bytes) -> Any:
    try:
        return codec.decode(data)
    except UsageError as failure:
        from suiro.registry import Undecodable

        if isinstance(failure, Undecodable):
            raise ValueError(str(failure)) from None
        raise


class _Guessing:
    """Guesses the format of bytes. If they begin like a schema id that the registry does not have, another format is
    used."""

    def __init__(self, registry: str | None, is_exact: bool, is_shown: bool) -> None:
        self._registry = registry
        self._is_exact = is_exact
        self._is_shown = is_shown
        self._clock = SystemClock()
        self._known: dict[int, tuple[Codec, str]] = {}
        # Ids that the registry does not have, and when it is asked for them again.
        self._unknown: dict[int, int] = {}

    def __call__(self, data: bytes) -> Decoded:
        schema_id = _schema_id(data)
        now_ms = self._clock.monotonic_ms()
        if schema_id is None or self._registry is None or now_ms < self._unknown.get(schema_id, 0):
            return self._by_bytes(data)
        if len(data) > SCHEMA_BYTES_MAX:
            said = _too_large(data, SCHEMA_BYTES_MAX)
            return replace(self._by_bytes(data), error=said, schema_id=schema_id)
        try:
            known = self._known.get(schema_id)
            if known is None:
                decode = partial(_by_schema, self._registry, schema_id, data)
                schema_waits(self._registry).wait(schema_id, decode)
                known = self._known[schema_id] = decode()
            codec, name = known
            return _of_schema(_decoded_by(codec, data), name, schema_id, self._is_shown)
        except SchemaNotFoundError:
            if len(self._unknown) >= UNKNOWN_IDS_MAX:
                self._unknown.clear()
            self._unknown[schema_id] = self._clock.monotonic_ms() + UNKNOWN_PAUSE_MS
            return self._by_bytes(data)
        except RegistryError as failure:
            if self._is_exact and isinstance(failure, RegistryUnavailableError):
                raise
            found = self._by_bytes(data)
            # It may well be a long: the bytes of one begin like a schema id.
            error = None if found.format == "long" and not self._is_exact else str(failure)
        except ValueError as failure:
            found, error = self._by_bytes(data), str(failure)
        return replace(found, error=error, schema_id=schema_id)

    def _by_bytes(self, data: bytes) -> Decoded:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and text[:1] in ("{", "["):
            try:
                return _small_json(data)
            except (ValueError, RecursionError):
                pass
        if text is not None and text.translate(_SPACES).isprintable():
            return Decoded(value=text, text=text, format="string")
        return _long(data) if len(data) == _LONG.size else _hex(data)


def encoder(name: str, registry: str | None = None, *, subject: str = "") -> Callable[[Any], bytes | None]:
    """Returns an encoder of text, or of a JSON value. Null stays null. Raises `UsageError`."""
    if name == "avro":
        from suiro.registry import CodecSettings, codec_of

        if registry is None:
            raise UsageError("format avro needs a registry; give --registry URL")
        codec = codec_of("AVRO", CodecSettings(registry=registry, subject=subject))

    def encode(value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            match name:
                case "string":
                    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
                case "json":
                    text = value if isinstance(value, str) else json.dumps(value)
                    json.loads(text)
                    return text.encode()
                case "long":
                    return _LONG.pack(int(value))
                case "hex":
                    return bytes.fromhex(value)
                case "avro":
                    return codec.encode(subject, json.loads(value) if isinstance(value, str) else value)
        except (ValueError, TypeError, RecursionError, struct.error) as error:
            raise UsageError(f"{value!r} cannot be written as {name}: {error}") from None
        raise UsageError(f"there is no format {name!r}; use one of {', '.join(FORMATS)}")

    return encode


class Filter:
    """A rule over records, in the language of the connectors' `when` rules: it compares, and cannot do anything else.

    A rule may ask for what a record does not have. Such records are left out and counted: `unclear`. `first_unclear`
    names the first and says why. `reads`: key, value, timestamp; `fields`: those of the value.
    """

    def __init__(self, text: str) -> None:
        from suiro.connect import rule_expression

        expression = rule_expression("filter", text)
        self._rule = expression.as_callable("record")
        self.reads = expression.roots()
        self.fields = expression.fields() or frozenset()
        self.unclear = 0
        self.first_unclear: str | None = None

    @property
    def left_out(self) -> dict[str, Any]:
        """The number of records that are unclear so far, and the first of them."""
        return {"unclear": self.unclear, "first_unclear": self.first_unclear}

    def said(self) -> str:
        """Returns how many records are unclear, for people."""
        return f"the filter could not be applied to {self.unclear} records, the first is {self.first_unclear}"

    def holds(self, record: LogRecord, value: Any, key: Any) -> bool:
        """`value` and `key`: those of the record, decoded."""
        try:
            return self._rule(key, value, record.timestamp) is True
        except Exception as error:  # noqa: BLE001 - whatever the rule raises for a value that it does not fit
            self.unclear += 1
            if self.first_unclear is None:
                self.first_unclear = f"{record.topic}-{record.partition} offset {record.offset}: {error}"
            return False

    def may_hold(self, keys: Sequence[Any], values: Sequence[Any]) -> list[int]:
        """Returns the places of the records for which it holds, of those that are unclear, and of all behind many
        unclear ones, which take the most time. For a filter that does not read the timestamp."""
        rule, unclear = self._rule, 0
        found: list[int] = []
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                if rule(key, value, None) is not True:
                    continue
            except Exception:  # noqa: BLE001 - whatever the rule raises for a value that it does not fit
                unclear += 1
                if unclear == UNCLEAR_MAX:
                    return [*found, *range(place, len(values))]
            found.append(place)
        return found
