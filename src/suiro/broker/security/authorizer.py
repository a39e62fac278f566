"""May this session do this? The node asks one `Authorizer`; without access control it is `AllowAll`.

`AclAuthorizer` decides as Apache Kafka's StandardAuthorizer does. In this order: a super user may do everything; a
rule that denies wins over all that allow; a rule that allows; and where no rule covers the resource at all, the
setting `allow.everyone.if.no.acl.found`. Every decision is kept until a rule changes, so that a client which does
the same again costs one look-up.

`AclStore` keeps the rules in the cluster's state. A literal rule is found by its name; a prefixed one by each prefix of
the name that has the length of some rule's, so that a look-up costs a few dictionary reads whatever the number of
rules.

`Denials` are those of one request, as lines of the audit log: one for each operation and type. A request may name
hundreds of thousands of topics. A line for each would cost more than all else and fill the disk; so a line has the
first names and counts the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from suiro.broker.refusals import on_one_line
from suiro.broker.security.acl import (
    OPERATIONS_OF,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from suiro.broker.security.session import Session
from suiro.broker.settings.cluster_state import ClusterState
from suiro.config import NodeSettings

_CACHED_DECISIONS = 20_000
_CACHED_CHARACTERS = 300
"""Of a name: a request may bring thousands of names of any length, which must not stay."""


class Authorizer(Protocol):
    """Two questions. `name` is the topic, group, transactional id..."""

    def denied_by(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> str | None:
        """The rule that denies it, for the audit log; None: it is permitted."""
        ...

    def allows_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is at least one resource of this type on which the operation is allowed (KIP-679)."""
        ...


class AllowAll:
    def denied_by(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> str | None:
        return None

    def allows_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        return True


def authorized_operations(authorizer: Authorizer, session: Session, kind: ResourceType, name: str) -> int:
    """The operations that the session may do on a resource, as the bit field of Kafka's answers (KIP-430)."""
    bits = 0
    for operation in OPERATIONS_OF[kind]:
        if authorizer.denied_by(session, operation, kind, name) is None:
            bits |= 1 << operation
    return bits


_PERMIT = ""
_DEFAULT_DENY = "DefaultDeny"


class AclAuthorizer:
    """See the module. `acls` holds the rules; changing them there changes the decisions at once."""

    def __init__(self, acls: AclStore, *, super_users: Iterable[str], allow_if_no_acl: bool) -> None:
        self.acls = acls
        self._super_users = frozenset(super_users)
        self._default = _PERMIT if allow_if_no_acl else _DEFAULT_DENY
        self._decisions: dict[tuple[str, str, Operation, ResourceType, str], str] = {}
        acls.on_change(self._decisions.clear)

    def denied_by(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> str | None:
        key = (session.principal, session.host, operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(session, operation, kind, name)
            if len(name) <= _CACHED_CHARACTERS:
                if len(self._decisions) >= _CACHED_DECISIONS:  # a client that goes through names must not fill us
                    self._decisions.clear()
                self._decisions[key] = decision
        return decision or None

    def _decide(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> str:
        """The rule that denies it, or `_PERMIT`."""
        if session.principal in self._super_users:
            return _PERMIT
        is_allowed = is_covered = False
        for acl in self.acls.covering(kind, name):
            is_covered = True
            if acl.concerns(session.principal, session.host) and acl.speaks_of(operation):
                if acl.permission is Permission.DENY:
                    return f"MatchingAcl(acl={acl})"
                is_allowed = True
        if is_allowed:
            return _PERMIT
        return _DEFAULT_DENY if is_covered else self._default

    def allows_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        if self.denied_by(session, operation, kind, "hardcode") is None:
            return True  # super users, whatever is denied; the name is the one that Kafka tries
        rules = [
            acl
            for acl in self.acls.of_type(kind)
            if acl.concerns(session.principal, session.host)
            and acl.operation in (operation, Operation.ALL)  # nothing is implied here
        ]
        denied = {(acl.pattern, acl.name) for acl in rules if acl.permission is Permission.DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        for acl in rules:
            if acl.permission is not Permission.ALLOW:
                continue
            if acl.pattern is PatternType.LITERAL:
                if acl.name == WILDCARD:
                    return True
                if (PatternType.LITERAL, acl.name) in denied:
                    continue
            if not any((PatternType.PREFIXED, acl.name[:n]) in denied for n in range(1, len(acl.name) + 1)):
                return True
        return False


def super_users_of(setting: str) -> Iterator[str]:
    """The principals of `super.users`, `User:a;User:b`."""
    for part in setting.split(";"):
        if part.strip():
            yield part.strip()


def make_authorizer(settings: NodeSettings, state: ClusterState) -> Authorizer:
    """The authorizer that the settings ask for."""
    if not settings.authorizer_class_name:
        return AllowAll()
    return AclAuthorizer(
        AclStore(state),
        super_users=super_users_of(settings.super_users),
        allow_if_no_acl=settings.allow_everyone_if_no_acl_found,
    )


SECTION = "acls"


class AclStore:
    """Rules are a set in the order they came. A change is on disk before it holds."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._acls: dict[Acl, None] = {}
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefix_lengths: dict[ResourceType, list[int]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._replace(dict.fromkeys(_from_json(item) for item in state.read(SECTION, [])))

    def on_change(self, callback: Callable[[], None]) -> None:
        self._listeners.append(callback)

    def covering(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """Every rule whose pattern covers this resource."""
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((kind, name[:length]), ())

    def of_type(self, kind: ResourceType) -> Iterator[Acl]:
        return (acl for acl in self._acls if acl.kind is kind)

    def all(self) -> Iterator[Acl]:
        return iter(self._acls)

    def matching(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self._acls if wanted.matches(acl)]

    def add(self, acls: Iterable[Acl]) -> None:
        """Raises `StorageError` where it cannot be written down, and then nothing has changed."""
        self._change({**self._acls, **dict.fromkeys(acls)})

    def remove(self, acls: Iterable[Acl]) -> None:
        """Raises `StorageError` where it cannot be written down, and then nothing has changed."""
        gone = set(acls)
        self._change({acl: None for acl in self._acls if acl not in gone})

    def _change(self, acls: dict[Acl, None]) -> None:
        if len(acls) == len(self._acls):
            return  # rules are only added or only removed
        self._state.write(SECTION, [_to_json(acl) for acl in acls])
        self._replace(acls)
        for callback in self._listeners:
            callback()

    def _replace(self, acls: dict[Acl, None]) -> None:
        self._acls = acls
        self._literal, self._prefixed = {}, {}
        lengths: dict[ResourceType, set[int]] = {}
        for acl in acls:
            if acl.pattern is PatternType.PREFIXED:
                self._prefixed.setdefault((acl.kind, acl.name), []).append(acl)
                lengths.setdefault(acl.kind, set()).add(len(acl.name))
            else:
                self._literal.setdefault((acl.kind, acl.name), []).append(acl)
        self._prefix_lengths = {kind: sorted(found) for kind, found in lengths.items()}


def _to_json(acl: Acl) -> dict[str, str]:
    return {
        "resourceType": acl.kind.name,
        "name": acl.name,
        "patternType": acl.pattern.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permissionType": acl.permission.name,
    }


def _from_json(item: dict[str, Any]) -> Acl:
    return Acl(
        kind=ResourceType[item["resourceType"]],
        name=item["name"],
        pattern=PatternType[item["patternType"]],
        principal=item["principal"],
        host=item["host"],
        operation=Operation[item["operation"]],
        permission=Permission[item["permissionType"]],
    )


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
