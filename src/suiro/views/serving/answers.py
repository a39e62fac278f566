"""The parameters that a reader writes into a URL, and the answers: JSON, and errors with their status codes.

    ?as_of=2013-07-04T12:00:00Z | cut:17 | flights:0:1200,flights:1:900      ?min_offset=flights:0:1199

The offsets of an answer and of `as_of` are the next offsets: the answer reflects the records below them. `min_offset`
is the offset of a record, as its producer gets it: the answer reflects this record.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from suiro.errors import SuiroError, TransientError, UsageError
from suiro.foundation.http import error_answer as http_error
from suiro.foundation.types import TopicPartition
from suiro.views.cuts import Cut
from suiro.views.definition import VersionSpec
from suiro.views.state import ConcurrentChangeError, RefusedChangeError, UnknownViewError
from suiro.views.store.json_text import encodable, servable
from suiro.views.store.rows import Change, CutGoneError, Row
from suiro.views.store.tables import Store

_OFFSETS = re.compile(r"([A-Za-z0-9._-]+):([0-9]{1,9}):([0-9]{1,18})")
_CUT = re.compile(r"cut:([0-9]{1,18})")
_TOKEN = re.compile(r"([0-9]{1,9})\.([0-9]{1,18})\.([A-Za-z0-9_-]*)")
_MILLISECONDS = re.compile(r"[0-9]{1,18}")


class WaitedError(TransientError):
    """The view did not reach the offsets that the reader named within the timeout."""


_STATUS: tuple[tuple[type[SuiroError], int], ...] = (
    (UnknownViewError, 404),
    (RefusedChangeError, 409),
    (ConcurrentChangeError, 409),
    (CutGoneError, 410),
    (UsageError, 400),
    (WaitedError, 504),
    (TransientError, 503),
)
"""The first class that an error belongs to counts. Other errors have status 500."""


def json_answer(found: Any) -> Response:
    text = servable(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
    return Response(encodable(text), media_type="application/json")


def error_answer(error: SuiroError, status: int | None = None) -> Response:
    """`status`: of the error's class, unless given."""
    if status is None:
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
    return http_error(status, str(error))


def offsets_of(text: str, name: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for part in text.split(","):
        match = _OFFSETS.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"{name}={text}: expected topic:partition:offset, or several with commas between them")
        topic, partition, offset = match.groups()
        found[topic, int(partition)] = int(offset)
    return found


def as_of(text: str, store: Store) -> Cut:
    """Returns the cut of this text. Raises `UsageError`, `CutGoneError`."""
    if match := _CUT.fullmatch(text):
        return store.cut_at(number=int(match[1]))
    if _MILLISECONDS.fullmatch(text):
        return store.cut_at(time_ms=int(text))
    try:
        time = datetime.fromisoformat(text.replace(" ", "+"))  # a plus in a query is read as a blank
    except ValueError:
        pass
    else:
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return store.cut_at(time_ms=int(time.timestamp() * 1000))
    try:
        return store.cut_at(inputs=offsets_of(text, "as_of"))
    except UsageError as error:
        if not str(error).startswith("as_of="):
            raise
        raise UsageError(
            f"as_of={text}: expected a time such as 2013-07-04T12:00:00Z or milliseconds, cut:NUMBER, or "
            "topic:partition:offset,..."
        ) from None


@dataclass(frozen=True, slots=True)
class PageToken:
    """The place where the next page begins, in the same version and cut, so that all pages show one state."""

    version: int
    cut: int
    place: bytes

    def __str__(self) -> str:
        return f"{self.version}.{self.cut}.{base64.urlsafe_b64encode(self.place).decode().rstrip('=')}"

    @classmethod
    def parse(cls, text: str) -> PageToken:
        match = _TOKEN.fullmatch(text)
        try:
            if match is None:
                raise ValueError(text)
            version, cut, place = match.groups()
            return cls(int(version), int(cut), base64.urlsafe_b64decode(place + "=" * (-len(place) % 4)))
        except ValueError:
            raise UsageError(f"after={text[:200]!r} is not the `next` of a page") from None


def head_text(spec: VersionSpec, cut: Cut) -> str:
    """Returns the beginning of every answer: which version answers, and the cut and offsets it reflects."""
    time = datetime.fromtimestamp(cut.time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    offsets = cut.inputs_to_json()
    head = {"view": spec.view, "version": spec.version, "cut": cut.number, "time": time, "offsets": offsets}
    return json.dumps(head, separators=(",", ":"))[:-1]


def row_text(columns: tuple[str, ...], row: Row | Change) -> str:
    """The value is the text that the store has, byte for byte."""
    key = json.dumps(dict(zip(columns, row.key, strict=True)), ensure_ascii=False, separators=(",", ":"))
    return f'{{"key":{encodable(key)},"value":{"null" if row.value is None else row.value}}}'


def rows_text(columns: tuple[str, ...], rows: Iterable[Row | Change]) -> str:
    return f"[{','.join(row_text(columns, row) for row in rows)}]"
