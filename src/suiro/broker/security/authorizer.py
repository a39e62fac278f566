"""May this session do this? The node asks one `Authorizer`; without access control it is `AllowAll`.

`AclAuthorizer` decides as Apache Kafka's StandardAuthorizer does. In this order: a super user may do everything; a
rule that denies wins over all that allow; a rule that allows; and where no rule covers the resource at all, the
setting `allow.everyone.if.no.acl.found`. Every decision is kept until a rule changes, so that a client which does
the same again costs one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from suiro.broker.security.acl import (
    OPERATIONS_OF,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from suiro.broker.security.acl_store import AclStore
from suiro.broker.security.session import Session
from suiro.broker.settings.cluster_state import ClusterState
from suiro.config import NodeSettings

_CACHED_DECISIONS = 20_000
_CACHED_CHARACTERS = 300
"""Of a name: a request may bring thousands of names of any length, which must not stay."""


class Authorizer(Protocol):
    """Three questions. `name` is the topic, group, transactional id..."""

    def permits(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool: ...

    def denied_by(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> str | None:
        """The rule that denies it, for the audit log; None: it is permitted."""
        ...

    def allows_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is at least one resource of this type on which the operation is allowed (KIP-679)."""
        ...


class AllowAll:
    def permits(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        return True

    def denied_by(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> str | None:
        return None

    def allows_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        return True


def authorized_operations(authorizer: Authorizer, session: Session, kind: ResourceType, name: str) -> int:
    """The operations that the session may do on a resource, as the bit field of Kafka's answers (KIP-430)."""
    bits = 0
    for operation in OPERATIONS_OF[kind]:
        if authorizer.permits(session, operation, kind, name):
            bits |= 1 << operation
    return bits


@dataclass(frozen=True, slots=True)
class _Decision:
    allowed: bool
    rule: str


class AclAuthorizer:
    """See the module. `acls` holds the rules; changing them there changes the decisions at once."""

    def __init__(self, acls: AclStore, *, super_users: Iterable[str], allow_if_no_acl: bool) -> None:
        self.acls = acls
        self._super_users = frozenset(super_users)
        self._default = _Decision(True, "DefaultAllow") if allow_if_no_acl else _DEFAULT_DENY
        self._decisions: dict[tuple[str, str, Operation, ResourceType, str], _Decision] = {}
        acls.on_change(self._decisions.clear)

    def permits(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._decide(session, operation, kind, name).allowed

    def denied_by(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> str | None:
        decision = self._decide(session, operation, kind, name)
        return None if decision.allowed else decision.rule

    def allows_any(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        if self.permits(session, operation, kind, "hardcode"):
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

    def _decide(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> _Decision:
        key = (session.principal, session.host, operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._find(session, operation, kind, name)
            if len(name) > _CACHED_CHARACTERS:
                return decision
            if len(self._decisions) >= _CACHED_DECISIONS:  # a client that goes through names must not fill us
                self._decisions.clear()
            self._decisions[key] = decision
        return decision

    def _find(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> _Decision:
        if session.principal in self._super_users:
            return _SUPER_USER
        allowing = None
        covered = False
        for acl in self.acls.covering(kind, name):
            covered = True
            if acl.concerns(session.principal, session.host) and acl.speaks_of(operation):
                if acl.permission is Permission.DENY:
                    return _Decision(False, f"MatchingAcl(acl={acl})")
                allowing = acl
        if allowing is not None:
            return _Decision(True, f"MatchingAcl(acl={allowing})")
        return _DEFAULT_DENY if covered else self._default


_SUPER_USER = _Decision(True, "SuperUser")
_DEFAULT_DENY = _Decision(False, "DefaultDeny")


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
