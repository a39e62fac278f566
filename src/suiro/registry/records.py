"""The records of the `_schemas` topic. The bytes of keys are the same as those of Confluent's registry.

Keys and values are JSON. The members of a key have a fixed order, because compaction compares the bytes of keys:

| keytype | key besides `keytype` and `magic` | value |
|---|---|---|
| SCHEMA | subject, version | a version of a subject; null: deleted permanently |
| CONFIG | subject, or null for all | compatibility level and the like; null: back to the default |
| MODE | subject, or null for all | mode; null: back to the default |
| DELETE_SUBJECT | subject | the last version that was soft-deleted with it |
| CLEAR_SUBJECT | subject | all versions are deleted permanently |
| NOOP | | nothing; a registry writes it to find the end of the log, this one also to take the log over |
| CONTEXT | tenant, context | a context that exists |
| ASSOC | tenant, resourceName, resourceNamespace, resourceType, associationType, subject | a topic's subject |

Members that this version does not know are kept in the value and written back.

Names of subjects are `:.sandbox:orders-value` in a context, `orders-value` in the default context `.`. Each context has
separate ids. A subject is always stored in its shortest form, without the default context.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

SCHEMA = "SCHEMA"
CONFIG = "CONFIG"
MODE = "MODE"
DELETE_SUBJECT = "DELETE_SUBJECT"
CLEAR_SUBJECT = "CLEAR_SUBJECT"
NOOP = "NOOP"
CONTEXT = "CONTEXT"
ASSOC = "ASSOC"
_EARLIER_ASSOC = "ASSOCIATION"
"""The key type that early versions of this registry wrote. No other registry reads it."""

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
WILDCARD = ":*:"

TENANT = "default"
_SCHEMA_MAGIC, _OTHER_MAGIC = 1, 0


def compact_json(value: Any, *, allow_nan: bool = True) -> str:
    """Returns JSON as Jackson writes it: without spaces, non-ASCII characters unescaped. Without `allow_nan`, numbers
    that JSON cannot express raise `ValueError`."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=allow_nan)


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a record. Equal keys mean the same thing, even if their bytes differ."""

    type: str
    members: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def schema(cls, subject: str, version: int) -> Self:
        return cls(SCHEMA, (("subject", subject), ("version", version)))

    @classmethod
    def of_subject(cls, type_: str, subject: str | None) -> Self:
        return cls(type_, (("subject", subject),))

    @classmethod
    def noop(cls) -> Self:
        return cls(NOOP)

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """Returns None if the bytes are not the key of a registry."""
        try:
            members = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(members, dict) or not isinstance(members.get("keytype"), str):
            return None
        type_ = members.pop("keytype")
        members.pop("magic", None)
        match type_:
            case "SCHEMA":
                return cls.schema(members.get("subject", ""), members.get("version", 0))
            case "CONFIG" | "MODE" | "DELETE_SUBJECT" | "CLEAR_SUBJECT":
                return cls.of_subject(type_, members.get("subject"))
            case _:
                return cls(ASSOC if type_ == _EARLIER_ASSOC else type_, tuple(members.items()))

    def encode(self) -> bytes:
        magic = _SCHEMA_MAGIC if self.type == SCHEMA else _OTHER_MAGIC
        return compact_json({"keytype": self.type, **dict(self.members), "magic": magic}).encode()

    def __getitem__(self, name: str) -> Any:
        return dict(self.members)[name]


def association_key(association: Mapping[str, Any]) -> Key:
    names = ("resourceName", "resourceNamespace", "resourceType", "associationType", "subject")
    return Key(ASSOC, (("tenant", TENANT), *((name, association.get(name)) for name in names)))


def content_hash(
    text: str,
    references: Sequence[Mapping[str, Any]] = (),
    metadata: Mapping[str, Any] | None = None,
    rule_set: Mapping[str, Any] | None = None,
) -> bytes:
    """The MD5 that identifies a schema. Without metadata and rules it is the one that Confluent's registry computes."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference["name"].encode())
        digest.update(reference["subject"].encode())
        digest.update(int(reference["version"]).to_bytes(4, "big", signed=True))
    for part in (metadata, rule_set):
        if part is not None:
            digest.update(json.dumps(part, sort_keys=True, ensure_ascii=False).encode())
    return digest.digest()


def guid_of(content: bytes) -> str:
    return str(uuid.UUID(bytes=content))


class QualifiedSubject(NamedTuple):
    context: str
    subject: str

    @classmethod
    def parse(cls, name: str) -> QualifiedSubject:
        if name.startswith(":."):
            context, _, subject = name[1:].partition(":")
            return cls(context, subject)
        return cls(DEFAULT_CONTEXT, name)

    def __str__(self) -> str:
        if self.context == DEFAULT_CONTEXT:
            return self.subject
        return f":{self.context}:{self.subject}"


def normal(name: str) -> str:
    """`:.:orders` is `orders`."""
    return str(QualifiedSubject.parse(name))


def qualify_reference(subject: str, parent: str) -> str:
    """A reference without a context is in the context of the schema that refers to it."""
    if subject.startswith(":."):
        return normal(subject)
    return str(QualifiedSubject(QualifiedSubject.parse(parent).context, subject))
