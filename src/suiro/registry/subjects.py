"""Names of subjects: `:.sandbox:orders-value` in a context, `orders-value` in the default context `.`.

Each context has separate ids. A subject is always stored in its shortest form, without the default context.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
WILDCARD = ":*:"


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
