"""The requests and effects of a group of the classic protocol, its members, and those that were given an id and have
not joined with it yet (KIP-394).

A client that only asks for ids makes many of the latter, each of which stays for a session. So their size and the next
deadline are known without a loop over all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from suiro.broker.coordination.groups.group_memory import A_MEMBER, classic_size
from suiro.protocol.fields import MAX_STRING_BYTES
from suiro.protocol.messages import ErrorCode

Token: TypeAlias = object
"""A request that waits for its answer."""
NO_GENERATION = -1
_MEMBER_ID_BYTES = 37
"""Length of an id behind its prefix: a hyphen and a UUID."""


class MemberIdentity(NamedTuple):
    """The member that a request names. One of the new protocol has its epoch as generation; -1: none."""

    member_id: str
    instance_id: str | None
    generation: int


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

    @property
    def member(self) -> MemberIdentity:
        return MemberIdentity(self.member_id, self.instance_id, self.generation)


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


@dataclass(slots=True, kw_only=True)
class Member:
    """One consumer. `instance_id` makes it static: it may be away for its session timeout without a rebalance."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    session_deadline: int = 0
    join_token: Token | None = None
    sync_token: Token | None = None
    size: int = field(init=False)
    """Bytes that it keeps (`group_memory`), without its assignment."""

    def __post_init__(self) -> None:
        self.measure()

    def measure(self) -> None:
        self.size = classic_size(self.protocols, self.member_id, self.instance_id, self.client_id)

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")


class PendingMembers:
    """Member ids and their deadlines, in milliseconds."""

    def __init__(self) -> None:
        self._deadlines: dict[str, int] = {}
        self.size = 0
        """Bytes, as `group_memory` counts them."""
        self.deadline: int | None = None
        """No member is due before this time. Call `expire` then."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._deadlines

    def add(self, member_id: str, deadline: int) -> None:
        self._deadlines[member_id] = deadline
        self.size += size_of(member_id)
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def remove(self, member_id: str) -> bool:
        """Returns whether it was there."""
        if self._deadlines.pop(member_id, None) is None:
            return False
        self.size -= size_of(member_id)
        if not self._deadlines:
            self.deadline = None
        return True

    def expire(self, now: int) -> int:
        """Forget the members that are due. Returns their number."""
        if self.deadline is None or self.deadline > now:
            return 0
        late = [member_id for member_id, deadline in self._deadlines.items() if deadline <= now]
        for member_id in late:
            self.remove(member_id)
        self.deadline = min(self._deadlines.values(), default=None)
        return len(late)


def size_of(member_id: str) -> int:
    return A_MEMBER + len(member_id)
