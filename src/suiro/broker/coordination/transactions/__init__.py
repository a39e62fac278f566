"""Transactions: `state` decides (pure), `records` is the format of `__transaction_state`, `coordinator` acts."""

from __future__ import annotations

from suiro.broker.coordination.transactions.coordinator import TransactionCoordinator

__all__ = ["TransactionCoordinator"]
