"""The topic `_suiro_views`: all decisions about views, who made them, and their results.

| key | value |
|---|---|
| `view/NAME` | the current view: versions, routing, revision (`View`) |
| `history/NAME/REVISION` | one event: when, who, what, from which position to which; the last 1,000 of a view |
| `code/NAME/SHA256` | the zip of a version's code, until the version is retired and freed |
| `comparison/NAME/ID` | the result of a comparison |
| `host` | the host that serves; a later one takes over, and the earlier one ends |
| `head` | a digest of all current records; the last record of each transaction |

**A change is one transaction, decided from everything before it.** To change a view, the host takes over the
transactional id of the topic (InitProducerId fences all other writers), reads to the end of the topic, lets the pure
rules decide, and writes the view and its event in one transaction. So a change is made as a whole or not at all. Of two
changes at once one wins, and the other is fenced and begins again. If the view has changed meanwhile, it gets
`ConcurrentChangeError`.

**Only signed records count.** The topic says which code runs, and the permission to write to it must not be enough to
decide that. So the host signs each record with its key, for the record's offset, and refuses all others
(`journal_records`). If somebody else wrote at the same moment, a transaction has other offsets than it was signed for,
and the host aborts it and writes it again. If others wrote a record with a known key, the serving host writes its own
again (`_mend`), before compaction removes it. If records are missing, the host trusts none: a start fails, and a
running host changes nothing more (`JournalNotTrustedError`).

After a lost answer, the writer takes over the id again and looks for the id of its event: it is there, or it never will
be.

The topic has one compacted partition, and a host reads all of it at its start. The host's folder has the offset of the
last head, to detect a topic that was set back to an earlier end. The change that makes a record unnecessary deletes it
(`forgetting_records`), so the topic stays small.

While the topic is read again, or if it is gone, the host serves the last known state. Without the topic it cannot
decide anything, but readers still get answers.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import UUID

import pyarrow as pa
from msgspec.structs import replace

from suiro.client import LATEST, Client, Fetched, TopicInfo, TransactionalBatch, TransactionalProducer
from suiro.clock import Clock, SystemClock
from suiro.errors import (
    AbortableError,
    DeadlineExceededError,
    FatalError,
    FencedError,
    SuiroError,
    UsageError,
)
from suiro.foundation.parts import in_parts
from suiro.protocol import columnar
from suiro.protocol.records import Record, encode_batch
from suiro.topic_table import BROKERS_DEFAULT, TopicTable, one_compacted_partition
from suiro.views.control.journal_keys import Keys, Signer
from suiro.views.control.journal_records import (
    HOST_KEY,
    SIGNATURE,
    JournalNotTrustedError,
    JournalRecord,
    Known,
    Seen,
    apply,
    as_bytes,
    code_key,
    comparison_record,
    doubt_of,
    event_records,
    forgetting_records,
    mending_records,
    said_of,
    sealed,
)
from suiro.views.state import Change, ConcurrentChangeError, UnknownViewError, View

JOURNAL_TOPIC = "_suiro_views"
PARTITION = 0
RECORD_BYTES = 256
"""Size of a record without its key and value: the signature and lengths."""
MAX_CODE_BYTES = 8 * 1024 * 1024
CONFIGS = {
    "segment.bytes": "67108864",
    "max.message.bytes": str(2 * MAX_CODE_BYTES),
}
MAX_BATCH_BYTES = 2 * MAX_CODE_BYTES - 1024 * 1024
TRANSACTION_TIMEOUT_MS, LONG_TRANSACTION_TIMEOUT_MS = 10_000, 60_000
"""Timeouts of a change, and of a transaction with all records."""
TIMEOUT_MS = 30_000
MEND_PAUSE_S = 10.0
TRIES = 5
KEPT_COMPARISONS = 20

Trust = Literal["whole", "signed", "all"]
"""The records to trust: signed ones if none is missing; signed ones in any case; all records."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class JournalGoneError(FatalError):
    """The topic was deleted, and perhaps created again. It has no decisions any more."""


class Journal:
    """`start` returns once everything in the topic is read. The reading thread calls `changed` when a view or the host
    has changed. `seen`: the file with the offset of the last head. Thread-safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        keys: Keys,
        seen: Path | None = None,
        trust: Trust = "whole",
        client_settings: Mapping[str, str | int] | None = None,
        replication_factor: int = BROKERS_DEFAULT,
        topic: str = JOURNAL_TOPIC,
        changed: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
    ) -> None:
        self.topic = topic
        self.keys = keys
        self._seen = None if seen is None else Seen(seen)
        self._trust: Trust = trust
        self._bootstrap_servers = bootstrap_servers
        self._client_settings = {"client.id": "suiro-views", **(client_settings or {})}
        self._replication_factor = replication_factor
        self._changed = changed
        self._clock = clock or SystemClock()
        self._writer = self._new_client()  # under `_writing`
        self._writing = threading.Lock()
        self._has_news = False
        self._table = TopicTable(
            topic,
            new_client=self._new_client,
            new_state=self._empty,
            decode=_decode,
            apply=self._apply,
            name="views-journal",
            check_topic=self._require,
            validate=self._judge,
            rejections=(JournalGoneError, JournalNotTrustedError),
            on_change=self._notify,
            partition_fetch_bytes=4 * MAX_CODE_BYTES,
        )
        self._read_on = self._table.changed  # guards the state, and the fields below
        self._doubt: str | None = None
        self._judged: Known | None = None
        self._judged_head = -1
        self._host: dict[str, Any] | None = None  # this host, once it has taken over
        self._refused_records = 0
        self._looked_to = -1  # refused records below this offset were reported already
        self.topic_id: UUID | None = None
        """The topic's id, from `start` on; None if the brokers have no topic ids."""
        self._mender: threading.Thread | None = None

    def _new_client(self) -> Client:
        return Client(self._bootstrap_servers, settings=self._client_settings)

    def start(self) -> None:
        """Raises `ConfigError` if the topic cannot be used for decisions, and `JournalNotTrustedError` if its records
        are not those that hosts with these keys wrote."""
        with self._writing:
            found = one_compacted_partition(
                self._writer,
                self.topic,
                why_one=(
                    "what is decided about views is in one, because its order counts. Delete the topic if it is not "
                    "ours"
                ),
                rows="views",
                configs=CONFIGS,
                replication_factor=self._replication_factor,
            )
            self.topic_id = found.topic_id
            self._table.start()
            self._catch_up()

    def stop(self) -> None:
        self._table.stop()
        if self._mender is not None:
            self._mender.join(TIMEOUT_MS / 1000)
        self._writer.close()

    def _require(self, found: TopicInfo | None) -> None:
        """Raises `JournalGoneError`."""
        if found is not None and found.topic_id == self.topic_id:
            return
        what = "was deleted" if found is None else "was deleted and made anew"
        raise JournalGoneError(
            f"topic {self.topic} {what} while this host runs. It answers reads on, from what it knows, and can change "
            "nothing: what was decided was in that topic. Restore the topic from a backup and start the host again; or "
            "start one on an empty folder, and deploy the views anew"
        )

    def views(self) -> dict[str, View]:
        with self._read_on:
            return dict(self._known.views)

    def view(self, name: str) -> View:
        """Raises `UnknownViewError`."""
        with self._read_on:
            found = self._known.views.get(name)
            known = ", ".join(sorted(self._known.views)) or "none yet"
        if found is None:
            raise UnknownViewError(
                f"there is no view {name!r}; there are: {known}. Deploy one: suiro view deploy APP.PY:FUNCTION"
            )
        return found

    def history(self, name: str) -> list[dict[str, Any]]:
        """The last 1,000 events, the oldest first."""
        with self._read_on:
            events = self._known.history.get(name, {})
            return [events[revision] for revision in sorted(events)]

    def code(self, view: str, sha256: str) -> bytes:
        with self._read_on:
            found = self._known.codes.get(code_key(view, sha256).removeprefix("code/"))
        if found is None:
            raise UsageError(
                f"topic {self.topic} does not hold the code {sha256} of view {view}; deploy the version again"
            )
        return found

    def comparisons(self, name: str) -> dict[str, dict[str, Any]]:
        """The last comparisons by id, the newest last."""
        with self._read_on:
            return dict(self._known.comparisons.get(name, {}))

    @property
    def host(self) -> dict[str, Any] | None:
        with self._read_on:
            return self._known.host

    def status(self) -> dict[str, Any]:
        """Whether the records are trusted, and how many no host with these keys has signed, since the start."""
        with self._read_on:
            return {
                "topic": self.topic,
                "key": self.keys.id,
                "records": len(self._known.live),
                "refused_records": self._refused_records,
                "last_refused": self._known.last_refused or None,
                "error": self._doubt,
            }

    def change(
        self,
        name: str,
        decide: Callable[[View], Change],
        *,
        who: str,
        codes: Mapping[str, bytes] | None = None,
        expected_revision: int | None = None,
    ) -> View:
        """Calls `decide` with the current view, writes the change, and returns the changed view.

        Errors of `decide` are raised. `expected_revision`: change nothing if the view has another one.
        """
        for sha256, code in (codes or {}).items():
            if len(code) > MAX_CODE_BYTES:
                raise UsageError(
                    f"the code of view {name} is {len(code)} bytes in a zip, and at most {MAX_CODE_BYTES} are taken "
                    f"({sha256[:12]}); keep large files out of the folder that it imports from"
                )
        event_id = uuid.uuid4().hex
        revision = expected_revision

        def made() -> tuple[View, list[JournalRecord] | None]:
            nonlocal revision
            view = self._known.views.get(name) or View(name=name)
            if any(event["id"] == event_id for event in self._known.history.get(name, {}).values()):
                return view, None  # an earlier attempt was committed, and its answer was lost
            if revision not in (None, view.revision):
                raise ConcurrentChangeError(
                    f"somebody else changed view {name} at the same moment, and nothing of this change was made; "
                    f"look how it stands (suiro view status {name}), then repeat it if it is still wanted"
                )
            revision = view.revision
            change = decide(view)
            if change.event is None:
                return change.view, None
            records = forgetting_records(self._known, change.view)
            records += [(code_key(name, sha), code) for sha, code in (codes or {}).items()]
            records += event_records(
                change.view, change.event, event_id=event_id, who=who, time_ms=self._clock.wall_ms()
            )
            return change.view, records

        return self._committed(made, f"view {name} is changed by others all the time; repeat this later")

    def keep_comparison(self, name: str, comparison_id: str, result: Mapping[str, Any]) -> None:
        """Keeps the result, and deletes the oldest ones."""

        def made() -> tuple[None, list[JournalRecord] | None]:
            kept = self._known.comparisons.get(name, {})
            if comparison_id in kept:
                return None, None
            old = list(kept)[: max(0, len(kept) + 1 - KEPT_COMPARISONS)]
            records = [comparison_record(name, one, None) for one in old]
            return None, [*records, comparison_record(name, comparison_id, result)]

        self._committed(made, f"view {name} is changed by others all the time; repeat this later")

    def take_over(self, host: Mapping[str, Any]) -> None:
        """From now on this host serves. An earlier host reads that, changes nothing more, and ends. Signs again what an
        older key has signed, and from now on repairs records that others overwrite."""
        busy = "other hosts take these views over at the same moment; start one host only"
        record = HOST_KEY, as_bytes(host)
        with self._read_on:
            key_id = self._known.head_key
        if key_id is not None and key_id != self.keys.id:
            # An earlier host may still run with only the older key, and must trust this record.
            self._committed(lambda: (None, [record]), busy, keys=self.keys.signing_with(key_id))

        def made() -> tuple[int, list[JournalRecord]]:
            again = self._again(self._known.signed_by_others(self.keys.id))
            return len(again), [*again, record]

        count = self._committed(made, busy, is_long=True)
        with self._read_on:
            self._host = dict(host)
        if count:
            logger.warning(
                "%d records of topic %s are signed anew with key %s; the keys below it in %s are not needed any more",
                count, self.topic, self.keys.id, self.keys.where,
            )  # fmt: skip
        self._mender = threading.Thread(target=self._mend, name="views-journal-mend", daemon=True)
        self._mender.start()

    def adopt(self) -> None:
        """Signs everything that is known with the host's key, in one transaction. From now on it is decided."""

        def made() -> tuple[None, list[JournalRecord]]:
            deletions = [one for one in mending_records(self._known) if one[1] is None]
            return None, self._again(list(self._known.live)) + deletions

        self._committed(made, "a host works on this topic; stop it, and repeat this", is_long=True)

    def _again(self, keys: Sequence[str]) -> list[JournalRecord]:
        return [(key, self._known.live[key].value) for key in keys]

    def _mend(self) -> None:
        """Writes our records again if others wrote a record with the same key, because compaction would keep theirs.
        Pauses each time, so that others cannot keep the host busy."""

        def mended() -> tuple[int, list[JournalRecord]]:
            records = mending_records(self._known)
            return len(records), records

        while True:
            with self._read_on:
                self._read_on.wait_for(
                    lambda: self._table.is_stopping or self._is_over() or (self._known.shadowed and not self._doubt)
                )
                if self._table.is_stopping or self._is_over():
                    return
            try:
                count = self._committed(mended, "others write it", is_long=True)
                logger.warning("%d records of topic %s were written again", count, self.topic)
            except SuiroError as error:
                logger.warning("writing records of topic %s again: %s", self.topic, error)
            self._table.pause(MEND_PAUSE_S)

    def _committed(
        self,
        made: Callable[[], tuple[T, Sequence[JournalRecord] | None]],
        busy: str,
        *,
        is_long: bool = False,
        keys: Keys | None = None,
    ) -> T:
        """Takes the topic over, and writes the records that `made` returns with its result, unless they are None. Again
        if others write meanwhile, and in the end raises `ConcurrentChangeError` (`busy`)."""
        with self._writing:
            for _ in range(TRIES):
                producer = self._taken_over(LONG_TRANSACTION_TIMEOUT_MS if is_long else TRANSACTION_TIMEOUT_MS)
                with self._read_on:
                    result, records = made()
                if records is None or self._write(producer, records, keys or self.keys):
                    return result
        raise ConcurrentChangeError(busy)

    def _taken_over(self, timeout_ms: int) -> TransactionalProducer:
        """Fences all others who write under this id, and reads everything that they wrote."""
        self._require(self._writer.metadata([self.topic]).get(self.topic))
        producer = self._writer.transaction(f"suiro-views/{self.topic}", timeout_ms=timeout_ms)
        producer.init(timeout_ms=TIMEOUT_MS)
        self._catch_up()
        with self._read_on:
            if self._is_over():
                raise ConcurrentChangeError(
                    f"another host has taken these views over: {self._known.host}; ask that one"
                )
        return producer

    def _is_over(self) -> bool:
        """Whether this host has served, and another one does now."""
        return self._host is not None and self._known.host != self._host

    def _write(self, producer: TransactionalProducer, records: Sequence[JournalRecord], keys: Keys) -> bool:
        """Writes one transaction. Returns False if it was not committed, or if that is unknown."""
        target = (self.topic, PARTITION)
        end = self._writer.list_offsets({target: LATEST}, timeout_ms=TIMEOUT_MS)[target].offset
        with self._read_on:
            made = sealed(self._known, records, self._signer(keys), base_offset=end, time_ms=self._clock.wall_ms())
        try:
            producer.add_partitions([target])
            for part in in_parts(made, _size_of, max_size=MAX_BATCH_BYTES):
                batch = encode_batch([replace(record, offset=at) for at, record in enumerate(part)])
                batches = [TransactionalBatch(self.topic, PARTITION, batch, len(part))]
                (landed,) = producer.produce(batches, timeout_ms=TIMEOUT_MS)
                if landed != part[0].offset:
                    logger.info("somebody wrote to %s at the same moment; this is written again", self.topic)
                    producer.end(commit=False, timeout_ms=TIMEOUT_MS)
                    return False
            producer.end(timeout_ms=TIMEOUT_MS)
        except (FencedError, AbortableError, DeadlineExceededError) as error:
            logger.info("a transaction of %s did not come through: %s", producer.transactional_id, error)
            return False
        self._catch_up()
        if self._seen is not None:
            self._seen.note(str(self.topic_id or ""), made[-1].offset)
        return True

    def _signer(self, keys: Keys) -> Signer:
        return Signer(keys=keys, topic=self.topic, topic_id=str(self.topic_id or ""))

    def _catch_up(self) -> None:
        """Returns once everything that is in the topic now is read, including open transactions, which end soon or are
        ended by the coordinator."""
        target = (self.topic, PARTITION)
        end = self._writer.list_offsets({target: LATEST}, timeout_ms=TIMEOUT_MS)[target].offset
        ends = {PARTITION: end}
        self._table.wait(lambda: self._table.has_read(ends) or self._doubt is not None, TIMEOUT_MS)
        with self._read_on:
            if self._doubt is not None:
                raise JournalNotTrustedError(self._doubt)
            if not self._table.has_read(ends):
                position = self._table.positions[PARTITION] if self._table.is_current else "?"
                raise DeadlineExceededError(
                    f"topic {self.topic} was read up to offset {position}, not {end}, within "
                    f"{TIMEOUT_MS} ms; does the log answer, and does a transaction hang in that topic?"
                )

    @property
    def _known(self) -> Known:
        """The state; while the topic is read again, the last one before."""
        return self._table.state

    def _empty(self) -> Known:
        self._has_news = True
        return Known()

    def _apply(self, known: Known, partition: int, rows: pa.RecordBatch) -> None:
        signer = None if self._trust == "all" else self._signer(self.keys)
        columns = (rows.column(name).to_pylist() for name in ("offset", "key", "value", "headers"))
        refused = 0
        with self._read_on:
            for offset, key, value, headers in zip(*columns, strict=True):
                before = known.refusals
                self._has_news |= apply(known, signer, offset, key, value, _signature_of(headers))
                if offset >= self._looked_to:
                    refused += known.refusals > before
                    self._looked_to = offset + 1
            self._refused_records += refused
        if refused:
            logger.error("%s", said_of(self.topic, refused, known))

    def _judge(self, known: Known) -> None:
        """Checks the state once everything was read. Raises `JournalNotTrustedError`."""
        if known is self._judged and known.head_offset == self._judged_head:
            return
        self._judged, self._judged_head = known, known.head_offset
        if self._trust != "whole":
            return
        seen = -1 if self._seen is None else self._seen.offset(str(self.topic_id or ""))
        self._doubt = doubt_of(self.topic, known, self.keys, seen)
        if self._doubt is not None:
            raise JournalNotTrustedError(self._doubt)

    def _notify(self) -> None:
        with self._read_on:
            has_news, self._has_news = self._has_news, False
        if has_news:
            self._changed()


def _size_of(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + RECORD_BYTES


def _decode(part: Fetched, position: int) -> tuple[pa.RecordBatch, int]:
    """Returns the committed records from `position` on, and the offset behind them."""
    rows = columnar.decode(
        part.data,
        start_offset=position,
        end_offset=part.last_stable_offset,
        aborted=part.aborted,
        headers=True,
    )
    return rows.batch, rows.next_offset


def _signature_of(headers: Sequence[Mapping[str, Any]] | None) -> bytes | None:
    """Returns the signature of a record without other headers. A record with others is refused: they are not signed."""
    if headers is None or len(headers) != 1 or headers[0]["key"] != SIGNATURE:
        return None
    signature: bytes | None = headers[0]["value"]
    return signature
