"""Names of operators, stores and internal topics, as Kafka Streams generates them.

One counter for a whole topology. Whatever is built takes its numbers in Kafka Streams' order, also where a user's name
makes the generated one unnecessary, so that naming one operator renames no other one.
"""

from __future__ import annotations

import re

from suiro.streams.dsl.named import Name, name_of
from suiro.streams.errors import TopologyError

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_NUMBERED = re.compile(r".*-[0-9]{10}.*")


class Names:
    """The counter."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def generate(self, prefix: str) -> str:
        number = self._next
        self._next += 1
        return f"{prefix}{number:010d}"

    def processor(self, prefix: str, name: Name = None, suffix: str = "") -> str:
        """Returns the user's name with a suffix, or a generated name. Both use up a number."""
        generated = self.generate(prefix)
        given = name_of(name)
        return generated if given is None else legal_name(given + suffix)

    def store(self, prefix: str) -> str:
        return self.generate(f"{prefix}STATE-STORE-")


def is_legal(name: str) -> bool:
    """Tells whether a topic may have the name."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def legal_name(name: str) -> str:
    """Returns the name. Raises TopologyError if it cannot be a part of a Kafka topic's name."""
    if not is_legal(name):
        raise TopologyError(
            f"{name!r} cannot be a name: it becomes a part of topic names; use up to 249 letters, "
            "digits, '.', '_' and '-'"
        )
    return name


def is_generated(name: str) -> bool:
    """Tells whether a name was generated for a stream operator. Further names made from it would say nothing more."""
    return _GENERATED.fullmatch(name) is not None


def moves_with_its_place(name: str) -> bool:
    """Tells whether the name contains a number of the counter. Such a name changes when operators are added above."""
    return _NUMBERED.fullmatch(name) is not None
