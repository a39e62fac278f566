"""The denials of one request, as lines of the audit log: one for each operation and type, however many names it has.

A request may name hundreds of thousands of topics. A line for each would cost more than all else and fill the disk;
so a line has the first names and counts the rest.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from suiro.broker.refusals import on_one_line
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.security.session import Session

audit = logging.getLogger("suiro.audit")

NAMES_SHOWN = 3


@dataclass(slots=True)
class _Denied:
    rule: str
    names: list[str] = field(default_factory=list)
    count: int = 0
    by_others: bool = False


class Denials:
    """Collects the denials of a request; `write` logs and forgets them."""

    __slots__ = ("_session", "_where")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._where: dict[tuple[Operation, ResourceType], _Denied] = {}

    def add(self, operation: Operation, kind: ResourceType, name: str, rule: str) -> None:
        found = self._where.get((operation, kind))
        if found is None:
            found = self._where[operation, kind] = _Denied(rule)
        found.count += 1
        found.by_others |= found.rule != rule
        if len(found.names) < NAMES_SHOWN:
            found.names.append(on_one_line(name))

    def write(self) -> None:
        for (operation, kind), denied in self._where.items():
            more = denied.count - len(denied.names)
            audit.info(
                "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s%s "
                "based on rule %s%s",
                *(on_one_line(self._session.principal), operation.name, self._session.host, kind.name),
                ", ".join(denied.names),
                f" and {more} more" if more else "",
                denied.rule,
                " and others" if denied.by_others else "",
            )
        self._where.clear()
