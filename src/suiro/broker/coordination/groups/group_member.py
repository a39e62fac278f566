"""Members of a group of the classic protocol, and those that were given an id and have not joined with it yet
(KIP-394).

A client that only asks for ids makes many of the latter, each of which stays for a session. So their size and the next
deadline are known without a loop over all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from suiro.broker.coordination.groups.group_memory import A_MEMBER, classic_size
from suiro.broker.coordination.groups.group_messages import Token


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
