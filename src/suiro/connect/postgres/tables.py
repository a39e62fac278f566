"""The captured tables: the topic, the schemas and the row encoder of each.

A schema is registered before the first record that uses it. If the subject's compatibility rule rejects it, the capture
stops with `SchemaRefusedError`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suiro.connect.postgres.encoding.avro_rows import RowEncoder
from suiro.connect.postgres.encoding.avro_text import Place
from suiro.connect.postgres.encoding.copy_binary import copy_columns
from suiro.connect.postgres.encoding.encoded_rows import UnsupportedValueError
from suiro.connect.postgres.encoding.names import quoted
from suiro.connect.postgres.encoding.pgoutput import RelationMessage
from suiro.connect.postgres.encoding.schemas import (
    RELATION_QUERY,
    KeylessTableError,
    Relation,
    announced,
    as_in_topic,
    changed_meanings,
    key_schema,
    value_schema,
    with_earlier_types,
)
from suiro.connect.postgres.encoding.types import TYPES_QUERY, Column, Rules, types_of
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.progress import SchemaChanges, changed_column, differences, fields_by_name
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import (
    Table,
    TableDroppedError,
    key_if_full,
    published_tables,
    read_table,
)
from suiro.errors import ConfigError, IncompatibleSchemaError, SchemaNotFoundError, UsageError
from suiro.registry import RegistryClient, Schema

logger = logging.getLogger(__name__)


class SchemaRefusedError(UsageError):
    """The registry rejects the new schema of a table because of the subject's compatibility level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table from one place in the log on, and how its rows are written.

    `value_schema_id` is 0 until the schema is registered: see `Tables.schema_of`. `selected` is the select list of a
    snapshot.
    """

    relation: Relation
    topic: str
    encoder: RowEncoder
    key_schema_id: int
    value_schema_id: int
    value_schema: dict[str, Any]
    selected: str


class Tables:
    """`published`: the captured tables by name, as the catalogue has them. `live`: the schemas that the stream has
    announced, by oid."""

    def __init__(
        self,
        database: Database,
        registry: RegistryClient,
        options: CaptureOptions,
        version: int,
        schema_changes: SchemaChanges,
    ) -> None:
        self._database = database
        self._registry = registry
        self._options = options
        self._version = version
        self._schema_changes = schema_changes
        self._rules = Rules(
            namespace=options.topic_prefix,
            numeric="string" if options.decimals == "string" else "decimal",
            as_text=frozenset(options.as_text),
        )
        self.published: dict[str, Table] = {}
        self._by_topic: dict[str, Table] = {}
        self.live: dict[int, TableSchema] = {}
        # With the key, which the log does not tell with replica identity full.
        self._announced: dict[int, tuple[RelationMessage, Sequence[str] | None]] = {}
        self._last_announced: dict[str, int] = {}  # oids by topic: tables may have exchanged their names
        self._depths: dict[str, dict[Place, int]] = {}  # of arrays that were not as deep as declared, by table

    def look(self) -> list[Table]:
        """Reads the published tables. Raises `ConfigError` if two of them would be written to one topic."""
        found = published_tables(self._database, self._options, self._version)
        by_topic: dict[str, Table] = {}
        for table in found:
            topic = self._options.topic(table.schema, table.name)
            other = by_topic.setdefault(topic, table)
            if other is not table:
                first, second = (quoted(one.schema, one.name) for one in (other, table))
                raise ConfigError(
                    f"tables {first} and {second} would both be topic {topic}: Kafka's topics have letters, digits, "
                    "'.', '_' and '-' only, and any other character becomes '_'. Choose: rename one of them; or name "
                    "the tables to capture (tables, --tables), and capture the other one under another prefix"
                )
        self.published = {table.full_name: table for table in found}
        self._by_topic = by_topic
        return found

    def is_wanted(self, schema: str, name: str) -> bool:
        return not self._options.tables or f"{schema}.{name}" in self._options.tables

    def refresh_table(self, schema: str, name: str, database: Database | None = None) -> Table:
        """`database`: the connection that has locked the table. Another one would wait behind queued requests."""
        table = read_table(database or self._database, self._options.publication, schema, name, self._version)
        self.published[table.full_name] = table
        return table

    def schema_of(self, table: Table, database: Database | None = None, *, is_final: bool = False) -> TableSchema:
        """Returns the schema that the catalogue has now, for a snapshot. `database` is in the snapshot's transaction.

        The value schema is registered only if `is_final`: the stream may be behind the catalogue, and the versions of a
        subject are in the order in which the table had these schemas.
        """
        asked = database or self._database
        row = asked.row(RELATION_QUERY, {"relation": table.oid}, what=f"read the definition of {table.full_name}")
        if row is None:
            raise TableDroppedError(f"table {table.full_name} does not exist any more")
        depths = {name: dimensions for name, dimensions, _, _ in row[0]}
        columns = tuple(
            Column(name=one.name, type=one.type_oid, typmod=one.typmod, dimensions=depths.get(one.name, 0))
            for one in table.columns
        )
        names = [column.name for column in columns]
        relation = Relation(
            oid=table.oid,
            schema=table.schema,
            name=table.name,
            columns=columns,
            key=tuple(sorted(names.index(name) for name in table.key)),
            nullable_key=not table.key_is_unique,
            types=self._types(columns, asked),
        )
        return self._table_schema(relation, is_final=is_final)

    def register_value(self, schema: TableSchema) -> int:
        """Registers the value schema of a snapshot. The stream has passed all earlier schemas of the table."""
        return self._register_value(schema.topic, schema.value_schema, schema.relation)

    def announce(self, message: RelationMessage) -> tuple[TableSchema, bool] | None:
        """Returns the schema from here on and whether it differs from the topic's last one; None if the table is not
        captured, or has no key here, so that its changes cannot be written."""
        if not self.is_wanted(message.schema, message.name):
            self._leave_out(message.oid)
            return None
        known = self.live.get(message.oid)
        key = key_if_full(self._database, message.oid) if message.replica_identity == "f" else None
        if known is not None and self._announced.get(message.oid) == (message, key):
            is_another = self._last_announced[known.topic] != message.oid
            self._last_announced[known.topic] = message.oid
            return known, is_another
        columns = [Column(name=one.name, type=one.type, typmod=one.typmod) for one in message.columns]
        row = self._database.row(
            RELATION_QUERY,
            {"relation": message.oid},
            what=f"read the definition of {message.schema}.{message.name}",
        )
        wanted = key
        if message.replica_identity == "f" and row is None:  # dropped; its topic may have the keys of another one
            replacement = self.published.get(f"{message.schema}.{message.name}")
            wanted = replacement.key if replacement is not None and replacement.key_is_unique else None
        if wanted is not None and not set(wanted) <= {column.name for column in columns}:
            wanted = None
        try:
            relation = announced(message, types=self._types(columns, self._database), row=row, key=wanted)
        except KeylessTableError as error:
            if self._options.snapshot == "never":
                raise
            # It has got a key since, or the next look at the tables ends the capture until it has one.
            logger.info("%s", error)
            self._leave_out(message.oid)
            return None
        topic = self._options.topic(relation.schema, relation.name)
        relation = with_earlier_types(relation, row=row, versions=self._versions(f"{topic}-value"))
        rival = self._by_topic.get(topic)
        if rival is not None and rival.full_name != relation.full_name:
            self.look()  # raises `ConfigError` if both tables still exist
        schema = self._table_schema(relation, is_final=True)
        self.live[message.oid] = schema
        self._announced[message.oid] = message, key
        self._last_announced[schema.topic] = message.oid
        return schema, True

    def _leave_out(self, oid: int) -> None:
        """It may have had another name or a key before."""
        self.live.pop(oid, None)
        self._announced.pop(oid, None)

    def look_at_types(self, oid: int) -> TableSchema | None:
        """Returns the schema with the current types, or None if they have not changed. Postgres does not announce that
        a composite type was altered."""
        before = self.live[oid].relation
        if self._as_in_topic(replace(before, types=self._types(before.columns, self._database))) == before:
            return None
        announced = self.announce(self._announced.pop(oid)[0])
        return None if announced is None else announced[0]

    def is_outdated(self, table: Table, schema: TableSchema, error: UnsupportedValueError) -> bool:
        """Whether the schema that could not hold a value of a snapshot is another one now: the lock on a table does not
        hold for its types."""
        self.note_depth(error)
        return self.schema_of(table).relation != schema.relation

    def note_depth(self, error: UnsupportedValueError) -> None:
        """Notes the depth of an array, which its column may not have."""
        known = self._depths.setdefault(error.table, {})
        known[error.place] = max(known.get(error.place, 0), error.depth)

    def _as_in_topic(self, relation: Relation) -> Relation:
        if all(one.kind not in ("array", "composite") for one in relation.types.values()):
            return relation
        latest = self._latest(f"{self._options.topic(relation.schema, relation.name)}-value")
        return as_in_topic(relation, self._rules, latest=latest, met=self._depths.get(relation.full_name, {}))

    def forget_announcements(self) -> None:
        """Called when the stream starts again: it announces every table before its first change."""
        self._announced.clear()
        self._last_announced.clear()
        self.live.clear()

    def _types(self, columns: Iterable[Column], database: Database) -> Any:
        oids = sorted({column.type for column in columns})
        return types_of(database.rows(TYPES_QUERY, {"oids": oids}, what="look at the types of columns"))

    def _table_schema(self, relation: Relation, *, is_final: bool) -> TableSchema:
        topic = self._options.topic(relation.schema, relation.name)
        relation = self._as_in_topic(relation)
        value = value_schema(relation, self._rules)
        key_id, _ = self._register(f"{topic}-key", key_schema(relation, self._rules), relation)
        value_id = self._register_value(topic, value, relation) if is_final else 0
        encoder = RowEncoder(relation, self._rules, key_schema_id=key_id, value_schema_id=value_id)
        return TableSchema(
            relation=relation,
            topic=topic,
            encoder=encoder,
            key_schema_id=key_id,
            value_schema_id=value_id,
            value_schema=value,
            selected=copy_columns(relation, self._rules),
        )

    def _register_value(self, topic: str, schema: dict[str, Any], relation: Relation) -> int:
        schema_id, before = self._register(f"{topic}-value", schema, relation)
        self._schema_changes.see(relation.full_name, topic, schema_id, schema, before)
        return schema_id

    def _register(self, subject: str, schema: dict[str, Any], relation: Relation) -> tuple[int, dict[str, Any] | None]:
        """Returns the schema's id and, if it is new, the subject's latest schema before it."""
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
        try:
            return self._registry.lookup(subject, Schema(text)).id, None
        except SchemaNotFoundError:
            before = self._latest(subject)
        if before is not None:
            _refuse_changed_meanings(subject, before, schema, relation)
        try:
            return self._registry.register(subject, Schema(text)), before
        except IncompatibleSchemaError as error:
            before = json.loads(self._registry.latest(subject).schema.text)
            raise SchemaRefusedError(_refusal(subject, before, schema, relation, error)) from error

    def _versions(self, subject: str) -> Iterator[dict[str, Any]]:
        try:
            numbers = self._registry.versions(subject)
        except SchemaNotFoundError:
            return
        for number in sorted(numbers, reverse=True):
            yield json.loads(self._registry.version(subject, number).schema.text)

    def _latest(self, subject: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._registry.latest(subject).schema.text)
        except SchemaNotFoundError:
            return None
        return found


def _refuse_changed_meanings(subject: str, before: dict[str, Any], schema: dict[str, Any], relation: Relation) -> None:
    """Raises `SchemaRefusedError` for a schema that the registry would accept, but that gives old values another
    meaning."""
    if wrong := changed_meanings(before, schema):
        old, new = fields_by_name(before), fields_by_name(schema)
        changes = "; ".join(changed_column(old[name], new[name]) for name in wrong)
        raise SchemaRefusedError(
            f"table {relation.full_name} changed, or what is captured of it: {changes}. Avro's rules let readers of "
            f"subject {subject} take the old values for new ones, and they would get them wrong. Choose: undo the "
            "change; capture into another topic prefix; or inform the subject's readers, register this schema "
            "for it yourself and start the capture again: it continues with this change: "
            + json.dumps(schema, ensure_ascii=False)
        )


def _refusal(
    subject: str,
    before: dict[str, Any],
    after: dict[str, Any],
    relation: Relation,
    error: IncompatibleSchemaError,
) -> str:
    old, new = fields_by_name(before), fields_by_name(after)
    changes = differences(before, after)
    first = next((name for name in new if name not in old or old[name]["type"] != new[name]["type"]), None)
    column = f"{relation.full_name}.{first}" if first else f"{relation.full_name}.<column>"
    return (
        f"table {relation.full_name} changed and subject {subject} refuses its new schema: {'; '.join(changes)}. "
        "Choose: undo the change of the table; capture the column as text (as_text = "
        f"{column}) if it was a string before; or let the subject take it (PUT /config/{subject} with compatibility "
        "NONE, after you have informed its readers), then start the capture again: it continues with this change. The "
        f"registry says: {error}"
    )
