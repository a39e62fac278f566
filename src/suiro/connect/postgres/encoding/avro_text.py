"""Encodes one Postgres value, given as text, to Avro. These slow, plain rules are the reference for the kernels.

Each function takes the bytes that the output function of the type writes under `types.SESSION_SETTINGS` and returns the
Avro bytes of the value without a union branch. It raises `ConversionError` if the value cannot be represented.
No value is rounded.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache, partial

from suiro.protocol.fields import put_varint

Encode = Callable[[bytes], bytes]

Place = tuple[int, str]
"""An attribute, by the oid of its composite type and its name; or 0 and a column."""

MICROS_INFINITY = (1 << 63) - 1
"""Timestamp `infinity`; its negative less one is `-infinity`, as in Postgres itself."""

DAYS_INFINITY = (1 << 31) - 1
"""Date `infinity`; its negative less one is `-infinity`."""

_DAY = 86_400_000_000
_DATE = re.compile(rb"(\d{4,7})-(\d\d)-(\d\d)")
_TIME = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ZONE = re.compile(rb"([+-])(\d\d)(?::(\d\d)(?::(\d\d))?)?")
_INTEGER = re.compile(rb"-?\d{1,20}")
_DECIMAL = re.compile(rb"(-?)(\d+)(?:\.(\d+))?")
_FLOAT = re.compile(rb"-?(?:\d+(?:\.\d+)?(?:e[+-]?\d+)?|Infinity)|NaN")
_QUOTED = re.compile(rb'"((?:[^"\\]++|\\.)*+)"', re.DOTALL)  # possessive: a value may have many megabytes
_ESCAPED = re.compile(rb"\\(.?)", re.DOTALL)
_BOUNDS = re.compile(rb"(?:\[-?\d+:-?\d+\])+=")
_PIECES = rb'"(?:[^"\\]++|\\.|"")*+"|\\.|[^"\\,)]++'  # of an attribute: in quotes, escaped or plain
_ATTRIBUTE = re.compile(rb"((?:" + _PIECES + rb")*+)([,)])", re.DOTALL)
_PIECE = re.compile(_PIECES, re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(rb'[\\"](.)', re.DOTALL)


class ConversionError(ValueError):
    """The Avro type of the column cannot hold the value. The message says why. `place`: where in a composite type, if
    the value has arrays there, and `depth` is theirs."""

    place: Place | None = None
    depth = 0


def varint(value: int) -> bytes:
    """Avro's int and long: zigzag, seven bits a byte."""
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def string(text: bytes) -> bytes:
    return varint(len(text)) + text


def bool_(text: bytes) -> bytes:
    if text == b"t":
        return b"\x01"
    if text == b"f":
        return b"\x00"
    raise ConversionError("it is not t or f")


def bytea(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        raise ConversionError("it does not start with \\x; the session's bytea_output must be hex")
    try:
        return string(bytes.fromhex(text[2:].decode("ascii")))
    except ValueError:
        raise ConversionError("it is not hexadecimal") from None


def integer_encoder(bits: int, *, signed: bool = True) -> Encode:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def encode(text: bytes) -> bytes:
        if not _INTEGER.fullmatch(text) or not low <= (value := int(text)) <= high:
            raise ConversionError(f"it is not an integer of {bits} bits")
        return varint(value)

    return encode


def double(text: bytes) -> bytes:
    if not _FLOAT.fullmatch(text):
        raise ConversionError("it is not a floating-point number")
    value = float(text)
    if math.isinf(value) and b"Infinity" not in text:
        raise ConversionError("it is outside the range of a double")
    return struct.pack("<d", value)


def float_(text: bytes) -> bytes:
    wide = double(text)
    value = struct.unpack("<d", wide)[0]
    if not math.isfinite(value) or value == 0:
        return struct.pack("<f", value)
    # A number that is converted by way of a double may be rounded twice, so the exact number decides.
    try:
        near = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise ConversionError("it is outside the range of a float") from None
    exact = Fraction(text.decode("ascii"))
    bits = struct.unpack("<i", struct.pack("<f", near))[0]
    neighbours = [struct.pack("<i", bits + step) for step in (0, -1, 1)]
    finite = [packed for packed in neighbours if math.isfinite(struct.unpack("<f", packed)[0])]

    def error(packed: bytes) -> tuple[Fraction, int]:
        return abs(Fraction(struct.unpack("<f", packed)[0]) - exact), packed[0] & 1  # ties to even

    return min(finite, key=error)


def decimal_encoder(precision: int, scale: int) -> Encode:
    """Encodes to Avro decimal bytes, the shortest two's complement. `scale`: the declared digits behind the point."""

    def encode(text: bytes) -> bytes:
        match = _DECIMAL.fullmatch(text)
        if not match:
            raise ConversionError("an Avro decimal cannot hold NaN or infinity")
        sign, whole, fraction = match.groups(default=b"")
        if len(fraction) > scale:
            raise ConversionError(f"it has more than the declared {scale} digits behind the point")
        digits = (whole + fraction.ljust(scale, b"0")).lstrip(b"0")
        if len(digits) > precision:
            raise ConversionError(f"it has more than the declared {precision} digits")
        value = int(sign + (digits or b"0"))
        size = ((value if value >= 0 else ~value).bit_length() // 8) + 1
        return string(value.to_bytes(size, "big", signed=True))

    return encode


def date(text: bytes) -> bytes:
    if text == b"infinity":
        return varint(DAYS_INFINITY)
    if text == b"-infinity":
        return varint(-DAYS_INFINITY - 1)
    days, end = _days(text, text.endswith(b" BC"))
    if text[end:] not in (b"", b" BC"):
        raise ConversionError(_NO_DATE)
    return varint(days)


def time(text: bytes) -> bytes:
    micros, end = _micros(text, 0)
    if end != len(text) or micros > _DAY:
        raise ConversionError("it is not a time of the form 04:05:06.789")
    return varint(micros)


_NO_DATE = "it is not a date of the form 2024-02-29; the session's datestyle must be ISO"


def _timestamp(text: bytes, *, zoned: bool) -> bytes:
    if text == b"infinity":
        return varint(MICROS_INFINITY)
    if text == b"-infinity":
        return varint(-MICROS_INFINITY - 1)
    days, at = _days(text, text.endswith(b" BC"))
    if text[at : at + 1] != b" ":
        raise ConversionError(_NO_DATE)
    micros, at = _micros(text, at + 1)
    if zoned:
        zone = _ZONE.match(text, at)
        if not zone:
            raise ConversionError("it has no zone such as +00")
        hours, minutes, seconds = (int(part) for part in zone.groups(default=b"0")[1:])
        offset = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
        micros += offset if zone[1] == b"-" else -offset
        at = zone.end()
    if text[at:] not in (b"", b" BC"):
        raise ConversionError(_NO_DATE)
    value = days * _DAY + micros
    if not -MICROS_INFINITY <= value < MICROS_INFINITY:
        raise ConversionError(
            "it is after 294247-01-10 04:00:54, the last that 64 bits of microseconds since 1970 hold"
        )
    return varint(value)


timestamp: Encode = partial(_timestamp, zoned=False)
timestamptz: Encode = partial(_timestamp, zoned=True)


def _days(text: bytes, before_christ: bool) -> tuple[int, int]:
    """Returns the days since 1970-01-01 in the proleptic Gregorian calendar, and where the date ends."""
    match = _DATE.match(text)
    if not match:
        raise ConversionError(_NO_DATE)
    year, month, day = (int(part) for part in match.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ConversionError(_NO_DATE)
    if before_christ:
        year = 1 - year
    # Years that begin in March put the leap day at the end.
    if month <= 2:
        year -= 1
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468, match.end()


def _micros(text: bytes, at: int) -> tuple[int, int]:
    match = _TIME.match(text, at)
    if not match:
        raise ConversionError("it has no time of the form 04:05:06.789")
    hours, minutes, seconds, fraction = match.groups(default=b"")
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1_000_000 + int(fraction.ljust(6, b"0")), match.end()


def array_encoder(element: Encode, *, dimensions: int, delimiter: str, is_mixed: bool = False) -> Encode:
    """Encodes to Avro arrays as deep as declared. Elements are a union of null and the element's type; with `is_mixed`,
    arrays may be less deep, and their items are unions of null, the element's type and an array.

    Lower bounds other than 1 are left out, as Postgres's own `array_to_json` does. An empty array has no
    dimensions in Postgres and fits any depth.
    """
    separator = delimiter.encode()
    bare = re.compile(rb"(?:[^\\{}" + re.escape(separator) + rb"]++|\\.?)*+", re.DOTALL)

    def encode(text: bytes) -> bytes:
        bounds = _BOUNDS.match(text)
        if bounds:
            text = text[bounds.end() :]
        encoded, end = read(text, 0, dimensions)
        if end != len(text):
            raise ConversionError("it goes on after the closing brace of the array")
        return encoded

    def read(text: bytes, at: int, depth: int) -> tuple[bytes, int]:
        if text[at : at + 1] != b"{":
            raise ConversionError(_dimensions(dimensions))
        if text[at : at + 2] == b"{}":
            return b"\x00", at + 2
        items = []
        while True:
            at += 1
            if depth > 1 and (not is_mixed or text[at : at + 1] == b"{"):
                item, at = read(text, at, depth - 1)
                item = b"\x04" + item if is_mixed else item
            else:
                is_quoted = text[at : at + 1] == b'"'
                match = (_QUOTED if is_quoted else bare).match(text, at)
                if match is None:
                    raise ConversionError("a quote in its array is not closed")
                at = match.end()
                word = _ESCAPED.sub(rb"\1", match[1] if is_quoted else match[0])
                if not is_quoted and (not word or text[at : at + 1] == b"{"):
                    raise ConversionError(_dimensions(dimensions))
                is_null = not is_quoted and word.upper() == b"NULL"
                item = b"\x00" if is_null else b"\x02" + element(word)
            items.append(item)
            follows = text[at : at + 1]
            if follows == b"}":
                return varint(len(items)) + b"".join(items) + b"\x00", at + 1
            if follows != separator:
                raise ConversionError("its array is not written as Postgres writes arrays")

    return encode


def _dimensions(declared: int) -> str:
    return f"it has not {declared} dimension{'s' * (declared > 1)}, as its column is declared with"


def array_depth(text: bytes) -> int:
    array = text[text.find(b"{") :]  # behind its bounds
    return len(array) - len(array.lstrip(b"{"))


def attribute_encoder(encode: Encode, place: Place) -> Encode:
    """Encodes the arrays of an attribute. The error for a value says where it is, and how deep."""

    def encode_attribute(text: bytes) -> bytes:
        try:
            return encode(text)
        except ConversionError as error:
            if error.place is None:
                error.place, error.depth = place, array_depth(text)
            raise

    return encode_attribute


def composite_encoder(name: str, fields: Sequence[Encode | int]) -> Encode:
    """Encodes to an Avro record of nullable fields, from Postgres's `(a,"b c",,"")`. `fields`: see `PgType`.

    Nothing says which attributes an older value has, so those of the newest form of the type with so many are taken
    that it fits. Where that is wrong, the table is read again: see `TableState`.
    """
    alive = [(place, field) for place, field in enumerate(fields) if not isinstance(field, int)]
    forms = cache(lambda count: list(_forms(fields, count)))

    def encode(text: bytes) -> bytes:
        words = _composite_words(text)
        if not alive:
            return b""
        failure: ConversionError | None = None
        for places in forms(len(words)):
            given = dict(zip(places, words, strict=True))
            try:
                return b"".join(
                    b"\x00" if (word := given.get(place)) is None else b"\x02" + field(word) for place, field in alive
                )
            except ConversionError as error:
                failure = failure or error
        raise failure or ConversionError(
            f"it has {len(words)} attributes where the type {name} is known with {len(alive)}"
        )

    return encode


def _forms(fields: Sequence[Encode | int], count: int) -> Iterator[list[int]]:
    """Yields the attributes that a type may have had when it had so many, by their places, the newest first. It got
    them in this order, and those that were dropped last were in it for the longest time."""
    for end in range(len(fields), -1, -1):
        dropped = sorted((field, place) for place, field in enumerate(fields[:end]) if isinstance(field, int))
        wanted = count - (end - len(dropped))
        if 0 <= wanted <= len(dropped):
            gone = {place for _, place in dropped[wanted:]}
            yield [place for place in range(end) if place not in gone]


def _composite_words(text: bytes) -> list[bytes | None]:
    if not (text.startswith(b"(") and text.endswith(b")")):
        raise ConversionError("it is not in brackets, as Postgres writes composite values")
    words: list[bytes | None] = []
    at, end = 1, b","
    while end == b",":
        match = _ATTRIBUTE.match(text, at)
        if match is None:
            raise ConversionError("a quote in its composite value is not closed")
        attribute, end = match.groups()
        words.append(b"".join(map(_unquoted, _PIECE.findall(attribute))) if attribute else None)
        at = match.end()
    if at != len(text):
        raise ConversionError("it goes on after the closing bracket of the composite value")
    return words


def _unquoted(piece: bytes) -> bytes:
    """Returns a piece of an attribute without quotes and escapes."""
    if piece.startswith(b'"'):
        return _ESCAPED_IN_QUOTES.sub(rb"\1", piece[1:-1])
    return piece.removeprefix(b"\\")
