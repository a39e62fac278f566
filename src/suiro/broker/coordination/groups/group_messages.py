"""The requests and effects of a group of the classic protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from suiro.broker.coordination.groups.group_memory import classic_size
from suiro.protocol.fields import MAX_STRING_BYTES
from suiro.protocol.messages import ErrorCode

Token: TypeAlias = object
"""A request that waits for its answer."""
NO_GENERATION = -1
_MEMBER_ID_BYTES = 37
"""Length of an id behind its prefix: a hyphen and a UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_known_member_id: bool = False
    may_skip_assignment: bool = False

    @property
    def fits_records(self) -> bool:
        """Whether the records of its group, and answers, can hold the id that it may get: a request has no longer
        names, but the id is longer than its prefix."""
        return len(self.prefix.encode()) + _MEMBER_ID_BYTES <= MAX_STRING_BYTES

    @property
    def prefix(self) -> str:
        """The prefix of the id that the member gets."""
        return self.instance_id or self.client_id

    @property
    def size(self) -> int:
        """The size of the member that it makes, in bytes."""
        return classic_size(self.protocols, self.member_id, self.instance_id, self.client_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    token: Token
    code: ErrorCode
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False

    def failed(self, code: ErrorCode) -> JoinReply:
        """The same answer if what it depends on could not be written down."""
        return JoinReply(token=self.token, code=code, member_id=self.member_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """`protocol_type` and `protocol` are None where the version has none."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    token: Token
    code: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""

    def failed(self, code: ErrorCode) -> SyncReply:
        """The same answer if what it depends on could not be written down."""
        return SyncReply(token=self.token, code=code)


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the group's metadata now, before the answers that follow."""


Effect: TypeAlias = JoinReply | SyncReply | Persist
