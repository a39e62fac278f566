"""Turns blocks of pgoutput messages into records. All live changes pass through `Changes.process`.

Records are written to Kafka in commit order, each change once: changes before the position are skipped. A record holds
the whole row. This module does not end Kafka transactions; a transaction may end when `open` is false.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.connect.postgres.encoding.encoded_rows import EncodedRows, NullKeyError, UnsupportedValueError
from suiro.connect.postgres.encoding.pgoutput import Block, Int64s, Messages, RelationMessage, parse
from suiro.connect.postgres.encoding.plain_rows import completed
from suiro.connect.postgres.encoding.records import OPERATIONS, live_headers, with_traces
from suiro.connect.postgres.log_messages import PREFIX, parse_message
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.snapshot.snapshots import Snapshots
from suiro.connect.postgres.snapshot.topic_state import OLD, KeyedValues, load
from suiro.connect.postgres.snapshot.visibility import RecentTransactions
from suiro.connect.postgres.snapshot.window import Window
from suiro.connect.postgres.tables import TableSchema
from suiro.connect.postgres.unchanged_toast import (
    FieldExtractors,
    FilledRows,
    SkippedChange,
    fill_unchanged_toast,
)

logger = logging.getLogger(__name__)

UNKNOWN_REQUESTS_MAX = 100  # that are noted at once, of tables that are not captured

_BEGIN, _COMMIT, _RELATION, _TRUNCATE, _MESSAGE = (ord(letter) for letter in "BCRTM")
_INSERT, _UPDATE, _DELETE = (ord(letter) for letter in "IUD")
_OPERATION = np.zeros(256, np.int64)
_OPERATION[_UPDATE], _OPERATION[_DELETE] = 1, 2
_TRUNCATED = OPERATIONS.index("truncate")


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A block: where each message stood in the log, its facts, and the index of its transaction in the other arrays."""

    lsns: Int64s
    messages: Messages
    of: Int64s
    xids: Int64s
    commit_us: Int64s
    commit_lsns: Int64s

    def commits(self, indices: Int64s) -> tuple[Int64s, Int64s]:
        """Of these messages: the transactions' numbers and the places of their commits."""
        of = self.of[indices]
        return self.xids[of], self.commit_lsns[of]


class Changes:
    """`position` is the end of the last complete transaction, or the place of a later logical message that is of none.
    `open`: a part of another transaction has been written."""

    def __init__(
        self,
        resources: Resources,
        snapshots: Snapshots,
        *,
        position: int,
        on_new_schema: Callable[[TableSchema], None],
    ) -> None:
        registry = resources.registry
        self._options = resources.options
        self._tables = resources.tables
        self._delivery = resources.delivery
        self._client = resources.client
        self._values_file = resources.values
        self._extractors = FieldExtractors(lambda schema_id: registry.schema(schema_id).text)
        self._on_new_schema = on_new_schema
        self._snapshots = snapshots
        self._reselect = snapshots.reselect
        self._carried = (0, 0, 0)
        self._waiting: dict[int, RelationMessage] = {}  # announcements that were not followed by a change yet
        self._last_values: dict[str, KeyedValues] = {}
        self.position = position
        self.open = False
        self.window: Window | None = None
        self.recent = RecentTransactions()
        self.passed_mark = ""  # the last mark of a window that the stream has brought
        self.requests: dict[str, None] = {}  # tables to read again
        self.transactions = 0
        self.last_commit_us = 0

    def reset(self) -> None:
        """Must be called before the slot is read in another way: the relation messages of all tables follow again."""
        self._tables.forget_announcements()
        self._carried = (0, 0, 0)
        self._waiting.clear()

    def process(self, block: Block) -> None:
        messages = parse(block)
        parsed = self._parsed(block, messages)
        kinds = messages.kind
        known = parsed.commit_lsns < self.position
        wanted = ~known[parsed.of]
        self.recent.add(parsed.xids[1:])
        marks = np.flatnonzero(np.isin(kinds, (_RELATION, _TRUNCATE, _MESSAGE)))
        first = 0
        for mark in [*marks.tolist(), len(block)]:
            self._write(parsed, first, mark, wanted)
            if mark < len(block):
                self._handle(parsed, mark, bool(wanted[mark]))
            first = mark + 1
        commits = np.flatnonzero(kinds == _COMMIT)
        if len(commits):
            self.transactions += len(commits)
            self.position = max(self.position, int(messages.end_lsn[commits[-1]]))
            self.last_commit_us = int(messages.time[commits[-1]])
        ends = np.flatnonzero((kinds == _COMMIT) | (kinds == _BEGIN))
        if len(ends):
            self.open = bool(kinds[ends[-1]] == _BEGIN)

    def _parsed(self, block: Block, messages: Messages) -> _Parsed:
        begins = np.flatnonzero(messages.kind == _BEGIN)
        xid, commit_us, lsn = self._carried  # of a transaction that began in an earlier block
        found = _Parsed(
            lsns=block.lsns,
            messages=messages,
            of=np.cumsum(messages.kind == _BEGIN),
            xids=np.concatenate(([xid], messages.xid[begins])),
            commit_us=np.concatenate(([commit_us], messages.time[begins])),
            commit_lsns=np.concatenate(([lsn if self.open else 1 << 62], messages.lsn[begins])),
        )
        self._carried = (int(found.xids[-1]), int(found.commit_us[-1]), int(found.commit_lsns[-1]))
        return found

    def _write(self, parsed: _Parsed, first: int, end: int, wanted: Any) -> None:
        """Writes the changes among messages first to end, table by table. Between two tables order does not matter."""
        if first >= end:
            return
        relations = parsed.messages.relation[first:end]
        kinds = parsed.messages.kind[first:end]
        changes = wanted[first:end] & ((kinds == _INSERT) | (kinds == _UPDATE) | (kinds == _DELETE))
        for oid in np.unique(relations[changes]).tolist():
            self._announce(oid)
            schema = self._tables.live.get(oid)
            if schema is None:
                continue  # the table is published, but not captured
            indices = first + np.flatnonzero(changes & (relations == oid))
            while True:
                try:
                    self._write_table(schema, parsed, indices)
                    break
                except NullKeyError:  # with replica identity full, the catalogue tells the key, which may be newer
                    if self._options.snapshot == "never":
                        raise
                    self._snapshots.restart_replaced_table(schema.relation)
                    break
                except UnsupportedValueError as error:  # nothing was written
                    self._tables.note_depth(error)
                    now = self._tables.look_at_types(oid)
                    if now is None:
                        raise
                    self._on_new_schema(now)
                    schema = now

    def _write_table(self, schema: TableSchema, parsed: _Parsed, indices: Int64s) -> None:
        table, messages = schema.relation.full_name, parsed.messages
        values = self._last_values.get(schema.topic)
        window = self.window if self.window is not None and self.window.schema.topic == schema.topic else None
        newer = completes = np.zeros(len(indices), np.bool_)
        if window is not None:
            commits = parsed.commits(indices)
            newer, completes = ~window.snapshot.sees(*commits), window.snapshot.misses(*commits)
        unknown: dict[bytes, SkippedChange] = {}
        if messages.unchanged[indices].any():
            values = values or self._load_last_values(schema)
            filled = self._fill_unchanged_toast(schema, messages, indices, values, window, completes)
            unknown = filled.keys
            rows = schema.encoder.encode_changes(messages, indices, fill=filled.fill)
            if filled.rows:
                rows = rows.without_changes(filled.rows)
        else:
            rows = schema.encoder.encode_changes(messages, indices)
        keys = [] if values is None and window is None else rows.all_keys()
        if values is not None:
            values.update(dict(zip(keys, rows.values.to_pylist(), strict=True)))
        if window is not None:
            window.remove(keys[record] for record in np.flatnonzero(newer[rows.sources]).tolist())
            window.remove(key for key, skipped in unknown.items() if newer[skipped.row])
        if self._reselect.of(table):
            self._reselect.remove(table, keys or rows.all_keys())
        if len(rows):
            self._add(schema, parsed, indices, rows)
        if unknown:
            self._add_reselect_keys(schema, messages, indices, unknown, newer, window)

    def _fill_unchanged_toast(
        self,
        schema: TableSchema,
        messages: Messages,
        indices: Int64s,
        values: KeyedValues,
        window: Window | None,
        completes: Any,
    ) -> FilledRows:
        reselect = self._reselect.of(schema.relation.full_name)
        if window is not None:
            self._extractors.set_unregistered(window.schema.value_schema)

        def last_value(key: bytes, row: int) -> bytes | None:
            found = None if key in reselect else values.get(key)
            if found is not None and found != OLD:
                return found
            # A row that was read after this change may have values of later ones, too.
            return window.value(key) if window is not None and completes[row] else None

        return fill_unchanged_toast(schema, messages, indices, last_value=last_value, extractors=self._extractors)

    def _add_reselect_keys(
        self,
        schema: TableSchema,
        messages: Messages,
        indices: Int64s,
        unknown: dict[bytes, SkippedChange],
        newer: Any,
        window: Window | None,
    ) -> None:
        """Adds the keys whose row is unknown now, except those that a later range reads."""
        table = schema.relation.full_name
        keys = list(unknown)
        texts = []
        for skipped in unknown.values():
            index = int(indices[skipped.row])
            row = completed(messages.values(index, old=True), messages.values(index) or ())
            texts.append([cell.decode() for column in schema.relation.key if isinstance(cell := row[column], bytes)])
        # On a standby, a change that may be newer removes its row from the window, and an older change may follow it.
        are_newer = [
            bool(newer[skipped.row]) or (window is not None and window.has_removed(key))
            for key, skipped in unknown.items()
        ]
        will_be_read = self._snapshots.will_read(schema, texts, are_newer, window)
        for key, skipped, key_texts, is_read in zip(keys, unknown.values(), texts, will_be_read, strict=True):
            # The next session would take an older value in the topic for that of the row.
            if not is_read or skipped.has_older:
                self._reselect.add(table, key, key_texts)
                if self._reselect.is_over_limit:
                    largest = self._reselect.largest
                    self._snapshots.on_reselect_limit(largest)
                    if largest == table:
                        return

    def _add(self, schema: TableSchema, parsed: _Parsed, indices: Int64s, rows: EncodedRows) -> None:
        sources = indices[rows.sources]
        operations = np.where(rows.tombstones, OPERATIONS.index("delete"), _OPERATION[parsed.messages.kind[sources]])
        self._delivery.add(
            schema.topic,
            keys=rows.keys,
            values=rows.values,
            timestamps=parsed.commit_us[parsed.of[sources]] // 1000,
            headers=self._headers(parsed, sources, operations),
        )

    def _headers(self, parsed: _Parsed, sources: Int64s, operations: Int64s) -> pa.Array:
        """Of records that come from these messages."""
        of = parsed.of[sources]
        headers = live_headers(parsed.lsns[sources], of, operations, parsed.xids, parsed.commit_us)
        spans = self._delivery.spans
        if spans is None:
            return headers
        rows, values = spans.traceparents(of, parsed.xids, parsed.commit_us, parsed.commit_lsns)
        return with_traces(headers, rows, values) if len(rows) else headers

    def _handle(self, parsed: _Parsed, index: int, is_wanted: bool) -> None:
        messages = parsed.messages
        kind = messages.kind[index]
        if kind == _RELATION:
            self._waiting[int(messages.relation[index])] = messages.relation_message(index)
        elif kind == _MESSAGE:
            is_transactional, prefix, content = messages.logical_message(index)
            if not is_transactional:
                # No capture writes one. It comes at its own place in the log, behind all earlier commits.
                self.position = max(self.position, int(messages.lsn[index]))
            elif prefix == PREFIX and is_wanted and (message := parse_message(content)) is not None:
                self._note_message(message)
        elif is_wanted:
            for oid in messages.truncated(index):
                self._announce(oid)
                schema_of_table = self._tables.live.get(oid)
                if schema_of_table is not None:
                    self._truncate(schema_of_table, parsed, index)

    def _note_message(self, message: dict[str, Any]) -> None:
        """Notes what the capture acts on between transactions. Any role may write messages, and millions of them in one
        transaction, so what is noted is limited."""
        if message.get("capture") != self._options.name:
            return
        window, mark, table = self.window, message.get("mark"), message.get("snapshot")
        if mark is not None:
            if window is not None and mark == window.watermark:
                self.passed_mark = window.watermark
        elif isinstance(table, str) and (table in self._tables.published or len(self.requests) < UNKNOWN_REQUESTS_MAX):
            self.requests[table] = None

    def _announce(self, oid: int) -> None:
        """Takes the announcement of a table right before its first change: one of a subtransaction that was rolled back
        never became the table."""
        message = self._waiting.pop(oid, None)
        if message is None:
            return
        announced = self._tables.announce(message)
        if announced is None:
            self._snapshots.restart_incomplete_table(oid)
            return
        schema, is_new = announced
        if self._snapshots.is_behind(schema.relation.full_name):
            # From here on, the same names may be other columns.
            self._forget_last_values(schema.topic)
        if is_new:
            self._on_new_schema(schema)

    def _truncate(self, schema: TableSchema, parsed: _Parsed, index: int) -> None:
        """Writes a tombstone for every live key of the topic."""
        values = self._last_values.get(schema.topic)
        live = values or self._load_last_values(schema)
        if self.window is not None and self.window.schema.topic == schema.topic:
            self.window.truncate(*parsed.commits(np.array([index], np.int64)))
        self._reselect.forget(schema.relation.full_name)
        commit_ms = int(parsed.commit_us[parsed.of[index]]) // 1000
        tombstones = 0
        for keys in live.portions():
            tombstones += len(keys)
            sources = np.full(len(keys), index, np.int64)
            headers = self._headers(parsed, sources, np.full(len(keys), _TRUNCATED, np.int64))
            self._delivery.add_tombstones(schema.topic, keys, timestamp_ms=commit_ms, headers=headers)
        live.clear()
        if values is None:  # only this TRUNCATE needed them
            self._last_values.pop(schema.topic).close()
        logger.info("TRUNCATE of %s: %d tombstones", schema.relation.full_name, tombstones)

    def _load_last_values(self, schema: TableSchema) -> KeyedValues:
        """Loads the last values from the topic; they are updated from here on."""
        since = self._snapshots.trusted_from(schema.relation.full_name)
        self._delivery.flush()
        values = KeyedValues(self._values_file)
        load(values, self._client, schema.topic, self._delivery.partition_count(schema.topic), since=since)
        self._last_values[schema.topic] = values
        return values

    def restart(self, topic: str) -> None:
        """Called when a snapshot of the table begins. Drops its window and its last values: other values of the topic
        may be trusted from now on, and they are loaded again when they are needed."""
        if self.window is not None and self.window.schema.topic == topic:
            self.window = None
        self._forget_last_values(topic)
        # Perhaps because a composite type was altered. Changes that follow the rows that are read have its new form.
        for oid in [oid for oid, schema in self._tables.live.items() if schema.topic == topic]:
            self._tables.look_at_types(oid)

    def _forget_last_values(self, topic: str) -> None:
        values = self._last_values.pop(topic, None)
        if values is not None:
            values.close()

    def note_snapshot_rows(self, topic: str, rows: EncodedRows, written: Int64s) -> None:
        """Called for rows that a snapshot wrote: a later change may leave their TOAST values out."""
        values = self._last_values.get(topic)
        if values is not None:
            values.update({rows.key(record): rows.value(record) for record in written.tolist()})
