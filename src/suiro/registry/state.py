"""The state of the `_schemas` topic: subjects, levels and modes, updated record by record.

Pure and single-threaded; `storage` applies records under its lock. The last record of a key counts, so a compacted
topic gives the same state. This module does not decide whether a record should have been written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from suiro.registry import records
from suiro.registry.records import (
    DEFAULT_CONTEXT,
    Key,
    QualifiedSubject,
    content_hash,
    guid_of,
    normal,
    qualify_reference,
)
from suiro.registry.schemas import AVRO

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """A record to write; `value` None deletes."""

    key: Key
    value: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """The changes to write, all or none, and the result after that. Without changes the result is final."""

    result: T
    changes: Sequence[Change] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """A version of a subject as the log has it. `value` is the whole record, including unknown members."""

    subject: str
    version: int
    id: int
    text: str
    type: str
    references: tuple[dict[str, Any], ...]
    metadata: dict[str, Any] | None
    rule_set: dict[str, Any] | None
    deleted: bool
    guid: str
    content: bytes
    timestamp: int
    value: dict[str, Any]

    @classmethod
    def from_record(cls, value: dict[str, Any], timestamp: int) -> StoredSchema:
        references = tuple(value.get("references") or ())
        metadata, rule_set = value.get("metadata"), value.get("ruleSet")
        content = content_hash(value["schema"], references, metadata, rule_set)
        return cls(
            subject=normal(value["subject"]),
            version=value["version"],
            id=value["id"],
            text=value["schema"],
            type=value.get("schemaType") or AVRO,
            references=references,
            metadata=metadata,
            rule_set=rule_set,
            deleted=bool(value.get("deleted")),
            guid=value.get("guid") or guid_of(content),
            content=content,
            timestamp=timestamp,
            value=value,
        )

    @property
    def context(self) -> str:
        return QualifiedSubject.parse(self.subject).context

    def refers_to(self) -> Iterator[tuple[str, int]]:
        for reference in self.references:
            yield qualify_reference(reference["subject"], self.subject), reference["version"]


_Index = dict[Hashable, dict[tuple[str, int], StoredSchema]]
"""Versions by a value that several may have. Each is stored by its subject and number."""


@dataclass(slots=True)
class State:
    subjects: dict[str, dict[int, StoredSchema]] = field(default_factory=dict)
    configs: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)
    contexts: set[str] = field(default_factory=lambda: {DEFAULT_CONTEXT})
    associations: dict[Key, dict[str, Any]] = field(default_factory=dict)
    raw_keys: dict[Key, bytes] = field(default_factory=dict)
    """The bytes with which each key was last written. A tombstone must have the same bytes, or compaction keeps the
    record."""

    _of_id: _Index = field(default_factory=dict)
    _of_content: _Index = field(default_factory=dict)
    _of_guid: _Index = field(default_factory=dict)
    _referrers: _Index = field(default_factory=dict)
    _max_id: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def apply(self, key: Key, value: dict[str, Any] | None, *, raw_key: bytes, timestamp: int) -> None:
        """Apply a record as it was read; `value` is None for a tombstone. Compaction compares `raw_key`."""
        if key.type not in (records.NOOP, records.DELETE_SUBJECT, records.CLEAR_SUBJECT):
            if value is None:
                self.raw_keys.pop(key, None)
            else:
                self.raw_keys[key] = raw_key
        match key.type:
            case records.SCHEMA:
                if value is None:
                    self._remove(normal(key["subject"]), key["version"])
                else:
                    self._add(StoredSchema.from_record(value, timestamp))
            case records.CONFIG:
                self._apply_setting(self.configs, key["subject"], value)
            case records.MODE:
                mode = None if value is None else value.get("mode")
                self._apply_setting(self.modes, key["subject"], mode)
            case records.DELETE_SUBJECT if value is not None:
                self._delete_subject(normal(value["subject"]), value["version"])
            case records.CLEAR_SUBJECT if value is not None:
                for version in list(self.subjects.get(normal(value["subject"]), ())):
                    self._remove(normal(value["subject"]), version)
            case records.CONTEXT if value is not None:
                self.contexts.add(value["context"])
            case records.ASSOC:
                if value is None:
                    self.associations.pop(key, None)
                else:
                    self.associations[key] = value

    @staticmethod
    def _apply_setting(settings: dict[str | None, Any], subject: str | None, value: Any) -> None:
        subject = None if subject is None else normal(subject)
        if value is None:
            settings.pop(subject, None)
        else:
            settings[subject] = value

    def _delete_subject(self, subject: str, last_version: int) -> None:
        for version, schema in list(self.subjects.get(subject, {}).items()):
            if version <= last_version and not schema.deleted:
                self._add(StoredSchema.from_record({**schema.value, "deleted": True}, schema.timestamp))

    def _add(self, schema: StoredSchema) -> None:
        """Instead of the same version, if it is there."""
        self._remove(schema.subject, schema.version)
        versions = self.subjects.setdefault(schema.subject, {})
        versions[schema.version] = schema
        if len(versions) > 1 and schema.version != max(versions):
            self.subjects[schema.subject] = dict(sorted(versions.items()))
        for index, key in self._indexed(schema):
            index.setdefault(key, {})[schema.subject, schema.version] = schema
        self.contexts.add(schema.context)
        self._max_id[schema.context] = max(self._max_id[schema.context], schema.id)

    def _remove(self, subject: str, version: int) -> None:
        schema = self.subjects.get(subject, {}).pop(version, None)
        if schema is None:
            return
        if not self.subjects[subject]:
            del self.subjects[subject]
        for index, key in self._indexed(schema):
            # A schema may refer to another one twice.
            if key in index:
                index[key].pop((subject, version), None)
                if not index[key]:
                    del index[key]

    def _indexed(self, schema: StoredSchema) -> Iterator[tuple[_Index, Hashable]]:
        """The indexes that have this version, and its key in each."""
        yield self._of_id, (schema.context, schema.id)
        yield self._of_content, (schema.context, schema.content)
        yield self._of_guid, schema.guid
        for target in schema.refers_to():
            yield self._referrers, target

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """The versions of a subject, oldest first; with `deleted`, soft-deleted ones too."""
        return [one for one in self.subjects.get(subject, {}).values() if deleted or not one.deleted]

    def max_id(self, context: str) -> int:
        return self._max_id.get(context, 0)

    def max_ids(self) -> dict[str, int]:
        return dict(self._max_id)

    def note_max_ids(self, max_ids: Mapping[str, int]) -> None:
        """Marks ids up to these as used, even if no schema in the log has them any more."""
        for context, max_id in max_ids.items():
            self._max_id[context] = max(self._max_id[context], max_id)

    def with_id(self, context: str, schema_id: int) -> list[StoredSchema]:
        return list(self._of_id.get((context, schema_id), {}).values())

    def with_content(self, context: str, content: bytes) -> list[StoredSchema]:
        return list(self._of_content.get((context, content), {}).values())

    def with_guid(self, guid: str) -> list[StoredSchema]:
        return list(self._of_guid.get(guid, {}).values())

    def referrers(self, subject: str, version: int) -> list[StoredSchema]:
        return list(self._referrers.get((subject, version), {}).values())

    def all_schemas(self) -> Iterable[StoredSchema]:
        for name in sorted(self.subjects):
            yield from self.subjects[name].values()

    def raw_key(self, key: Key) -> bytes:
        return self.raw_keys.get(key) or key.encode()
