"""The clock of the machine is set back by an hour: the node does what is due all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.brokers import started
from support.logs import batch

from suiro.broker import Broker
from suiro.broker.coordination.transactions.state import V1, TransactionState
from suiro.clock import ManualClock

HOUR_MS = 3_600_000


class SettableClock(ManualClock):
    def set_back(self, ms: int) -> None:
        self._wall_ms -= ms


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def broker(tmp_path: Path, clock: SettableClock) -> Iterator[Broker]:
    with started(tmp_path, clock) as made:
        yield made


def test_records_are_synced_when_flush_ms_is_over(broker: Broker, clock: SettableClock) -> None:
    log = broker.create_topic("t", configs={"flush.ms": "1000"}).partitions[0].log
    log.append(batch())
    clock.set_back(HOUR_MS)
    clock.advance(999)
    broker._sync_due()
    assert broker._syncing is None
    clock.advance(1)
    broker._sync_due()
    assert broker._syncing is not None
    broker.loop.run_until_complete(broker._syncing)
    assert log.recovery_point == 1


def test_deleted_files_are_removed_when_their_delay_is_over(
    broker: Broker, clock: SettableClock, tmp_path: Path
) -> None:
    broker.delete_topic(broker.create_topic("t"))
    assert list(tmp_path.glob("t-0.*-delete"))
    clock.set_back(HOUR_MS)
    clock.advance(60_000)
    broker._remove_deleted_files()
    broker.loop.run_until_complete(broker.loop.shutdown_default_executor())
    assert not list(tmp_path.glob("t-0.*-delete"))


def test_a_transaction_is_aborted_when_its_timeout_is_over(broker: Broker, clock: SettableClock) -> None:
    broker.create_topic("t")
    transactions = broker.transactions
    _, producer_id, epoch = transactions.init_producer_id("id", timeout_ms=60_000, expected=None)
    transactions.add_partitions("id", producer=(producer_id, epoch), partitions=frozenset([("t", 0)]), version=V1)
    clock.set_back(HOUR_MS)
    states = []
    for wait_ms in (10_000, 60_000, 1):
        clock.advance(wait_ms)
        transactions.retry_and_time_out()
        found = transactions.find("id")
        assert found is not None
        states.append(found.state)
    assert states == [TransactionState.ONGOING] * 2 + [TransactionState.COMPLETE_ABORT]
