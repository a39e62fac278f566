"""Consumer groups: the list, one group, a reset of offsets, deletion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from suiro.client import Client
from suiro.console.groups import GroupDetails, NewOffset, Reset, describe_group, plan_reset, reset_offsets
from suiro.console.web.endpoint import Body, Call, ConfirmBody, fields_of, get, post, require_confirmed
from suiro.foundation.http import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage(GroupDetails):
    lag: int
    lag_ms: int | None
    history: tuple[tuple[int, int, int | None], ...]


class ResetBody(Body):
    to: Literal["earliest", "latest", "current", "offset", "datetime", "shift"]
    dry_run: bool
    value: int = 0
    topics: dict[str, list[int] | None] | None = None


@get("/groups", from_memory=True)
def _list(call: Call) -> bytes:
    """All groups."""
    return call.console.model.groups_json


@get("/groups/{group}")
def _one(call: Call, client: Client) -> GroupPage:
    """A group: members, committed offsets, lag in records and in time."""
    name = call.path["group"]
    found = describe_group(client, name, now_ms=call.console.clock.wall_ms())
    waits = [one.lag_ms for one in found.partitions if one.lag_ms is not None]
    return GroupPage(
        **fields_of(found),
        lag=found.total_lag,
        lag_ms=max(waits, default=None),
        history=call.console.model.group_history(name),
    )


@post("/groups/{group}/reset", Role.OPERATOR, ResetBody)
def _reset(call: Call, client: Client) -> tuple[NewOffset, ...]:
    """Set committed offsets; with dry_run only say which."""
    body: ResetBody = call.body
    name = call.path["group"]
    planned = plan_reset(client, name, Reset(to=body.to, value=body.value), body.topics)
    if not body.dry_run:
        reset_offsets(client, name, planned)
        call.console.model.look_again()
    return planned


@post("/groups/{group}/delete", Role.ADMIN, ConfirmBody)
def _delete(call: Call, client: Client) -> Mapping[str, Any]:
    """Delete a group and what it committed."""
    name = call.path["group"]
    require_confirmed(call.body.confirm, name)
    client.admin.delete_group(name)
    call.console.model.look_again()
    return {"group": name}
