"""Who is at the other end of a connection, and what they may do there. Handlers ask through `Exchange.may`."""

from __future__ import annotations

from suiro.broker.security.acl import CLUSTER_NAME, Operation, ResourceType
from suiro.broker.security.acl_store import AclStore
from suiro.broker.security.authorizer import (
    AclAuthorizer,
    AllowAll,
    Authorizer,
    authorized_operations,
    make_authorizer,
    super_users_of,
)
from suiro.broker.security.denials import Denials
from suiro.broker.security.session import ANONYMOUS, Session

__all__ = [
    "ANONYMOUS",
    "CLUSTER_NAME",
    "AclAuthorizer",
    "AclStore",
    "AllowAll",
    "Authorizer",
    "Denials",
    "Operation",
    "ResourceType",
    "Session",
    "authorized_operations",
    "make_authorizer",
    "super_users_of",
]
