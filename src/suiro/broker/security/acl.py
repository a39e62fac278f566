"""The words of Kafka's access control, with their numbers on the wire (UNKNOWN for any other number); one rule,
and filters over rules.

A rule (`Acl`) lets a principal do an operation on the resources that its pattern names, or forbids it. What the
rules together say is `AclAuthorizer`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from suiro.broker.security.session import one_text_of

CLUSTER_NAME = "kafka-cluster"
"""The one resource of type CLUSTER."""

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"


class _Word(IntEnum):
    """A word by its number on the wire. Every class below has the member UNKNOWN."""

    __hash__ = int.__hash__  # Enum's own is Python code, and these are in the key of every decision

    @classmethod
    def _missing_(cls, value: object) -> Self:
        return cls["UNKNOWN"]


class Operation(_Word):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(_Word):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Word):
    """ANY and MATCH are for filters: every pattern of that name, and every pattern that covers that name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(_Word):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def _operations(names: str) -> tuple[Operation, ...]:
    return tuple(Operation[name] for name in names.split())


OPERATIONS_OF: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: _operations("READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"),
    ResourceType.GROUP: _operations("READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"),
    ResourceType.CLUSTER: _operations(
        "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE"
    ),
}
"""The operations on a resource: the bits of "authorized operations" in Kafka's answers."""

_IMPLY_DESCRIBE = frozenset((Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER))
_IMPLY_DESCRIBE_CONFIGS = frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One rule. `pattern` is LITERAL (where the name `*` stands for every resource) or PREFIXED."""

    kind: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def covers(self, name: str) -> bool:
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def concerns(self, principal: str, host: str) -> bool:
        return self.principal in (principal, WILDCARD_PRINCIPAL) and (
            self.host in (host, WILDCARD) or one_text_of(self.host) == host
        )

    def speaks_of(self, operation: Operation) -> bool:
        """Whether this rule decides about the operation. A permission implies some others, a denial does not."""
        if self.operation in (Operation.ALL, operation):
            return True
        if self.permission is not Permission.ALLOW:
            return False
        if operation is Operation.DESCRIBE:
            return self.operation in _IMPLY_DESCRIBE
        return operation is Operation.DESCRIBE_CONFIGS and self.operation in _IMPLY_DESCRIBE_CONFIGS

    def __str__(self) -> str:
        return (
            f"{self.principal} has {self.permission.name} permission for operations {self.operation.name} on "
            f"{self.kind.name}:{self.pattern.name}:{self.name} from hosts {self.host}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects rules to list or delete; None and ANY match everything, UNKNOWN nothing."""

    kind: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.kind in (ResourceType.ANY, acl.kind)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        return acl.covers(self.name) if self.pattern is PatternType.MATCH else acl.name == self.name
