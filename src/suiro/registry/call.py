"""A request of the API: its path, parameters and body as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from suiro.numerals import natural, whole_number
from suiro.registry.api_errors import invalid_version, schema_not_found, unprocessable
from suiro.registry.records import DEFAULT_CONTEXT, WILDCARD, QualifiedSubject, normal
from suiro.registry.schemas import MAX_NUMBER
from suiro.registry.state import State, StoredSchema
from suiro.registry.work import Work

LATEST = -1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Its methods raise `ApiError` for a parameter that cannot be understood."""

    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: Any = None
    context: str = DEFAULT_CONTEXT  # of a path below /contexts
    work: Work = field(default_factory=Work)

    def text(self, *names: str, default: str = "") -> str:
        return next((self.query[name][0] for name in names if self.query.get(name)), default)

    def flag(self, *names: str) -> bool:
        return self.text(*names).lower() == "true"

    def asked(self, name: str) -> bool | None:
        return self.flag(name) if self.query.get(name) else None

    def number(self, name: str, default: int) -> int:
        text = self.text(name, default=str(default))
        try:
            return whole_number(text)
        except ValueError:
            raise unprocessable(f"{name}={text}: a whole number is expected") from None

    def version(self) -> int:
        """The number of the path, or `LATEST`."""
        text = self.path["version"]
        if text.strip().lower() in ("latest", "-1"):
            return LATEST
        version = natural(text, MAX_NUMBER)
        if not version:
            raise invalid_version(text)
        return version

    def schema_id(self) -> int:
        found = natural(self.path["id"], MAX_NUMBER)
        if found is None:
            raise schema_not_found(self.path["id"])
        return found

    def subject(self) -> str:
        return self.qualify(self.path["subject"])

    def aliased(self, state: State) -> str:
        """The subject of the path, or the one that it stands for (`alias` of its configuration)."""
        subject = self.subject()
        alias = state.configs.get(subject, {}).get("alias")
        return normal(alias) if alias else subject

    def qualify(self, name: str) -> str:
        if self.context == DEFAULT_CONTEXT or name.startswith(":"):
            return normal(name)
        return str(QualifiedSubject(self.context, name))

    def scope(self) -> str | None:
        """The scope of a setting: a subject, a context (`:.ctx:`), or None for all."""
        if "subject" in self.path:
            return self.subject() or None
        return None if self.context == DEFAULT_CONTEXT else f":{self.context}:"

    def subject_asked(self) -> str | None:
        """The parameter `subject`; in a path below /contexts at least the context."""
        name = self.text("subject")
        return self.qualify(name) if name or self.context != DEFAULT_CONTEXT else None

    def prefixed(self, subjects: Iterable[str]) -> list[str]:
        """Selects by the parameter `subjectPrefix`: `:*:abc` from all contexts, `:.ctx:abc` from one, `abc` from the
        default context, or that of a path below /contexts."""
        prefix = self.text("subjectPrefix", default=WILDCARD if self.context == DEFAULT_CONTEXT else "")
        if self.context != DEFAULT_CONTEXT:
            prefix = f":{self.context}:{prefix}"
        context: str | None
        context, start = QualifiedSubject.parse(prefix)
        if prefix.startswith(WILDCARD):
            context, start = None, prefix.removeprefix(WILDCARD)
        parsed = ((name, QualifiedSubject.parse(name)) for name in sorted(subjects))
        return [name for name, one in parsed if context in (None, one.context) and one.subject.startswith(start)]

    def chosen(self, schemas: Iterable[StoredSchema]) -> list[StoredSchema]:
        """Selects those that are not deleted; with the parameter `deleted` all, with `deletedOnly` the deleted ones."""
        if self.flag("deletedOnly", "deleted_only"):
            return [one for one in schemas if one.deleted]
        deleted = self.flag("deleted")
        return [one for one in schemas if deleted or not one.deleted]

    def paged(self, items: Sequence[T], most: int = -1) -> list[T]:
        """A negative `limit` or `most` means no limit."""
        limit = self.number("limit", most)
        if most > 0 and not 0 < limit <= most:
            limit = most
        start = max(self.number("offset", 0), 0)
        return list(items[start:] if limit < 0 else items[start : start + limit])

    def object(self) -> Mapping[str, Any]:
        if not isinstance(self.body, dict):
            raise unprocessable("The request's body is a JSON object")
        return self.body
