"""Who a client's certificate names: its subject as RFC 2253 text, and what `ssl.principal.mapping.rules` makes of it.

Python's `ssl` tells a subject without the types of its strings and with OpenSSL's names; Java's text, which rules
and access control lists are written against, has the order of RFC 2253 and OIDs for attributes outside of it. So
the subject is read from the certificate itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from suiro.errors import ConfigError

_VERSION = 0xA0
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_STRINGS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate that OpenSSL has accepted, e.g. `CN=app,OU=team,O=org`."""
    (_, content, _), *_ = _values(certificate)
    (_, body, _), *_ = _values(content)
    fields = [content for tag, content, _ in _values(body) if tag != _VERSION]
    subject = fields[4]  # serial number, signature, issuer, validity, subject
    names = []
    for _, of_name, _ in _values(subject):
        names.append("+".join(_attribute(content) for _, content, _ in _values(of_name)))
    return ",".join(reversed(names))


def _attribute(content: bytes) -> str:
    (_, oid, _), (kind, value, der) = _values(content)
    dotted = _dotted(oid)
    keyword = _KEYWORDS.get(dotted)
    if keyword is None or kind not in _STRINGS:
        return f"{keyword or dotted}=#{der.hex()}"
    return f"{keyword}={_escaped(value.decode(_STRINGS[kind], errors='replace'))}"


def _escaped(text: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", text)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(text) > 1 else text


def _values(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, content, all bytes) of the DER values in a row."""
    position = 0
    while position < len(data):
        first = position
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        yield tag, data[position:end], data[first:end]
        position = end


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


# Kafka's grammar of a rule: `DEFAULT`, or `RULE:pattern/replacement/` with `L` or `U` for the case of the result.
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,\s*|$)")


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        mapped = match.expand(self.replacement)
        return {"L": mapped.lower(), "U": mapped.upper()}.get(self.case, mapped)


@cache
def _rules(text: str) -> tuple[_Rule, ...]:
    rules: list[_Rule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None or match.end() == position:
            raise ConfigError(
                f"ssl.principal.mapping.rules: {text[position:]!r}: expected RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT"
            )
        position = match.end()
        if match[1]:
            rules.append(_Rule(None, "", ""))
            continue
        try:
            pattern = re.compile(match[2])
            replacement = re.sub(r"\$(\d)", r"\\g<\1>", match[3])
        except re.error as error:
            raise ConfigError(f"ssl.principal.mapping.rules: {match[2]!r} is no pattern: {error}") from error
        rules.append(_Rule(pattern, replacement, match[4]))
    return tuple(rules)


def check_rules(text: str) -> None:
    """Raises `ConfigError` if these are no mapping rules."""
    _rules(text)


def principal_of(certificate: bytes, rules: str) -> str | None:
    """`User:` and what the first matching rule makes of the subject; None if no rule matches."""
    name = subject_of(certificate)
    for rule in _rules(rules):
        mapped = rule.apply(name)
        if mapped is not None:
            return f"User:{mapped}"
    return None
