"""Checks of the brokers that an administrator assigns a partition to: only this node can be one, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from suiro.broker.refusals import RefusedError
from suiro.protocol.messages import ErrorCode


def check_replicas(broker_ids: Sequence[int], *, node_id: int) -> None:
    """The replicas of one partition. Raises `RefusedError`."""
    if not broker_ids:
        raise _invalid("The manual partition assignment includes an empty replica list.")
    times = Counter(broker_ids)
    if len(times) != len(broker_ids):
        twice = min(broker_id for broker_id, count in times.items() if count > 1)
        raise _invalid(f"The manual partition assignment includes the broker {twice} more than once.")
    for broker_id in sorted(broker_ids):
        if broker_id != node_id:
            raise _invalid(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )


def check_new_topic(assignments: Sequence[tuple[int, Sequence[int]]], *, node_id: int) -> int:
    """(partition, replicas) of a topic to be made; returns the count. Raises `RefusedError`."""
    seen: set[int] = set()
    for partition, broker_ids in assignments:
        if partition in seen:
            raise _invalid(f"Found multiple manual partition assignments for partition {partition}")
        check_replicas(broker_ids, node_id=node_id)
        seen.add(partition)
    if seen != set(range(len(seen))):
        raise _invalid("partitions should be a consecutive 0-based integer sequence")
    return len(seen)


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.invalid_replica_assignment, message)
