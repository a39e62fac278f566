"""The marker that ends a transaction of one producer in one partition, and the offsets that depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.storage.topics import OFFSETS_TOPIC, Partition

if TYPE_CHECKING:
    from suiro.broker.coordination.host import TransactionHost


def write_marker(
    host: TransactionHost,
    partition: Partition,
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    version: int,
) -> None:
    """Raises LogError where the partition does not take it. `version` is that of the transaction."""
    partition.log.append_control(
        commit=commit,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        timestamp=host.clock.wall_ms(),
    )
    end_offsets(host, partition, producer_id, commit=commit)
    partition.grown()


def end_offsets(host: TransactionHost, partition: Partition, producer_id: int, *, commit: bool) -> None:
    """Tell the group coordinator the end of the transaction whose offsets wait in this partition."""
    if partition.topic == OFFSETS_TOPIC:
        host.groups.complete_transaction(partition.index, producer_id, commit=commit)
