"""A member of a group of the classic protocol."""

from __future__ import annotations

from dataclasses import dataclass, field

from suiro.broker.coordination.groups.group_memory import classic_size
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
