"""Whether a transactional write may go into its partitions (KIP-890): Produce and TxnOffsetCommit ask.

Nothing gets into a log outside of an open transaction that its coordinator knows of; else a late batch would
leave one behind that nobody ever ends. Where the log has this producer's transaction open already, that is the
answer. If not, the coordinator is asked (V1, unless that is switched off), or adds the partitions (V2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suiro.broker.coordination.transactions.state import V2
from suiro.broker.storage.topics import Partition
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.coordination.transactions.coordinator import TransactionCoordinator


def is_open_in(partition: Partition, producer_id: int, producer_epoch: int) -> bool:
    """Whether this producer's transaction is open in the partition's log, under this epoch."""
    entry = partition.log.producer(producer_id)
    return entry is not None and entry.transaction_first_offset >= 0 and entry.producer_epoch == producer_epoch


def admit_writes(
    transactions: TransactionCoordinator,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[Partition],
    version: int,
) -> dict[TopicPartition, ErrorCode]:
    """The refusal of each partition whose log has no transaction of this producer open; nothing: all may."""
    places = [(partition.topic, partition.index) for partition in partitions]
    if version >= V2:
        code = transactions.add_partitions(
            transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=frozenset(places),
            version=version,
        )
        codes = dict.fromkeys(places, code)
    elif not transactions.verifies:
        return {}
    else:
        codes = {
            place: transactions.verify(
                transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, partition=place
            )
            for place in places
        }
    # With this code a fenced producer can abort and go on.
    return {
        place: ErrorCode.invalid_producer_epoch if code is ErrorCode.producer_fenced else code
        for place, code in codes.items()
        if code is not ErrorCode.none
    }
