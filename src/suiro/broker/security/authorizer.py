"""May this session do this? The node asks one `Authorizer`; without access control it is `AllowAll`."""

from __future__ import annotations

from typing import Protocol

from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.security.session import Session


class Authorizer(Protocol):
    def allows(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        """The answer, with an audit line for a denial. `name` is the topic, group, transactional id..."""
        ...


class AllowAll:
    def allows(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        return True
