"""Dead letters: counted by reason, shown next to their source records, and sent back.

A dead-letter topic may have any number of records. A request reads only the newest ones, within a limit of records and
bytes, and tells whether these were all. Few such reads run at once, and requests for the same topic share one. A
redrive reads everything that it sends, and runs to its end even if its caller disconnects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suiro.client import Client
from suiro.console import dead_letters, redrives
from suiro.console.dead_letters import (
    SHOWN,
    DeadLetter,
    DeadLetterTopic,
    Letters,
    Seen,
    Selection,
    Summary,
    origin_topics,
)
from suiro.console.records import LogRecord
from suiro.console.redrives import Plan, Redriven
from suiro.console.web.api.records import FORMATS, place_of
from suiro.console.web.endpoint import Body, Call, ConflictError, NotFoundError, get, post
from suiro.console.web.masks import MASKED
from suiro.console.web.record_json import RecordJson, RecordView
from suiro.console.web.turns import Turns
from suiro.errors import FencedError, UsageError
from suiro.foundation.http import Role

LETTERS = 100
LETTERS_MAX = 500
TEXT_CHARS_MAX = 4 * 1024
"""The longest reason of one dead letter. Its headers have all of it."""
PLACES_MAX = 10_000
NUMBER_MAX = (1 << 63) - 1

_CHOSEN: Mapping[str, str] = {
    "origin_topic": "only what comes from this topic; empty: what names none",
    "exception": "only this exception, all of it",
    "reason": "only those with this in exception or reason",
    "group_reason": "only those that are counted under this reason",
}

_readings = Turns("readings of dead letters", at_once=2, waiting=4)
_redrives = Turns("redrives", at_once=2, waiting=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicList:
    topics: tuple[DeadLetterTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginJson:
    topic: str
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """`refusal` tells why it cannot be sent back. `done`: it was sent back."""

    record: RecordJson
    exception: str
    reason: str
    origin: OriginJson | None
    refusal: str | None
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterList:
    """Without `complete` there may be others, after these or older than the records that were read."""

    letters: tuple[Letter, ...]
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginRecord:
    """null: the log does not have it any more, or the headers do not name it."""

    record: RecordJson | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    topic: str
    partition: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    reason: str
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJson:
    """`redriven` is the number of records that were sent back; null if nothing was done. Without `complete`, only the
    newest records were read."""

    records: int
    done_before: int
    targets: tuple[Target, ...]
    refused: tuple[Refused, ...]
    redriven: int | None
    complete: bool

    @classmethod
    def of(cls, plan: Plan, *, is_done: bool) -> PlanJson:
        return cls(
            records=plan.records,
            done_before=plan.done_before,
            targets=tuple(
                Target(topic=topic, partition=partition, records=records)
                for (topic, partition), records in sorted(plan.targets.items())
            ),
            refused=tuple(Refused(reason=reason, records=records) for reason, records in plan.refused.items()),
            redriven=plan.records if is_done else None,
            complete=plan.complete,
        )


class RedriveBody(Body):
    """Without `places`, `origin_topic`, `exception`, `reason` and `group_reason` it chooses all. `only_to` has the
    topics that the user agreed to, such as those of a dry run; dead letters that name another stay."""

    dry_run: bool
    places: list[tuple[int, int]] | None = None
    origin_topic: str | None = None
    exception: str | None = None
    reason: str | None = None
    group_reason: str | None = None
    by_key: bool = False
    only_to: list[str] | None = None


@get("/dead-letters")
def _topics(call: Call, client: Client) -> TopicList:
    """Topics with dead or dlq in their names."""
    return TopicList(topics=dead_letters.count_topics(client))


@get("/dead-letters/{topic}", summary=f"Dead letters counted by origin and reason; at most the newest {SHOWN.records}")
def _groups(call: Call) -> Summary:
    topic = call.path["topic"]

    def read() -> Summary:
        with call.console.client() as client:
            return dead_letters.summarise(Letters(client, topic, bound=SHOWN, seen=_seen_by(call)))

    return _readings.shared((call.console, topic, call.role >= Role.ADMIN), read, call.gone)


@get("/dead-letters/{topic}/records", query={**_CHOSEN, **FORMATS, "limit": f"at most {LETTERS_MAX}"})
def _records(call: Call) -> LetterList:
    """Dead letters with why and whence."""
    topic = call.path["topic"]
    limit = call.number("limit", LETTERS, most=LETTERS_MAX) or 1
    chosen: dict[str, Any] = {name: call.query.get(name) for name in _CHOSEN}
    selection = Selection(**chosen)
    view = RecordView(call, topic)
    found: list[Letter] = []
    with _readings.taken(call.gone), call.console.client() as client:
        letters = Letters(client, topic, bound=SHOWN, seen=_seen_by(call))
        for letter, is_done in letters:
            if not selection.chooses(letter):
                continue
            if len(found) == limit:
                return LetterList(letters=tuple(found), complete=False)
            found.append(_letter(view, letter, is_done))
    return LetterList(letters=tuple(found), complete=letters.complete)


def _letter(view: RecordView, letter: DeadLetter, is_done: bool) -> Letter:
    return Letter(
        record=_shown(view, letter.record),
        exception=letter.exception[:TEXT_CHARS_MAX],
        reason=letter.reason[:TEXT_CHARS_MAX],
        origin=None if letter.origin is None else OriginJson(**letter.origin._asdict()),
        refusal=letter.refusal,
        done=is_done,
    )


def _shown(view: RecordView, record: LogRecord, *, whole: bool = False) -> RecordJson:
    return view.shown(record, *view.key_and_value(record), whole=whole)


def _seen_by(call: Call) -> Seen:
    """If fields are masked for the user, the reason is hidden too, because it may quote the record."""
    masks = call.console.settings.masks

    def seen(letter: DeadLetter) -> DeadLetter:
        if any(map(masks.of, {letter.record.topic, *origin_topics(letter.record)})):
            return dataclasses.replace(letter, reason=MASKED)
        return letter

    return seen if call.role < Role.ADMIN and masks.rules else (lambda letter: letter)


@get(
    "/dead-letters/{topic}/origin",
    query={"partition": "of the dead letter", "offset": "of the dead letter", **FORMATS},
)
def _origin(call: Call, client: Client) -> OriginRecord:
    """The record that a dead letter was made of."""
    topic = call.path["topic"]
    partition, offset = place_of(call)
    letter = dead_letters.dead_letter_at(client, topic, partition, offset)
    if letter is None:
        raise NotFoundError(f"{topic}-{partition} has no record at offset {offset}")
    found = dead_letters.origin_record(client, letter)
    if found is None:
        return OriginRecord(record=None)
    return OriginRecord(record=_shown(RecordView(call, found.topic), found, whole=True))


@get("/dead-letters/{topic}/history")
def _history(call: Call) -> tuple[Redriven, ...]:
    """The last redrives of a topic, the newest first: when, who, how many, where to."""
    with _readings.taken(call.gone), call.console.client() as client:
        return redrives.history(client, call.path["topic"])


@post("/dead-letters/{topic}/redrive", Role.OPERATOR, RedriveBody)
def _redrive(call: Call) -> PlanJson:
    """Send dead letters back, each once; with dry_run only say what would go where."""
    topic, body = call.path["topic"], call.body
    selection = Selection(places=_places(body), **{name: getattr(body, name) for name in _CHOSEN})
    seen = _seen_by(call)
    if body.dry_run:
        with _readings.taken(call.gone), call.console.client() as client:
            planned = redrives.plan_redrive(client, topic, selection, by_key=body.by_key, bound=SHOWN, seen=seen)
        return PlanJson.of(planned, is_done=False)
    with _redrives.taken(call.gone), call.console.client() as client:
        try:
            done = redrives.redrive(
                client,
                topic,
                selection,
                by=call.user or "console",
                by_key=body.by_key,
                only_to=None if body.only_to is None else frozenset(body.only_to),
                clock=call.console.clock,
                seen=seen,
            )
        except FencedError:
            raise ConflictError(
                f"another redrive of {topic} took over; what this one had committed is done. Look at the history, then "
                "redrive what still waits"
            ) from None
    return PlanJson.of(done, is_done=True)


def _places(body: RedriveBody) -> frozenset[tuple[int, int]]:
    if body.places is None:
        return frozenset()
    if not body.places:
        raise UsageError('"places" is empty, so that nothing is chosen; leave it out to choose by reason, or all')
    if len(body.places) > PLACES_MAX:
        raise UsageError(
            f'"places" has {len(body.places)}, and {PLACES_MAX} is the most; choose by reason, or in parts'
        )
    for partition, offset in body.places:
        if not (0 <= partition <= NUMBER_MAX and 0 <= offset <= NUMBER_MAX):
            raise UsageError(f'"places": [{partition}, {offset}] is no partition and offset')
    return frozenset(body.places)
