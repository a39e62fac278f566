"""Kafka's semantics over `suiro.log`: the server, its handlers, groups and transactions.

Read in this order: `broker` (who owns what), `server` and `connection` (bytes), `dispatch` (which handler),
`handlers/` (one API a file), `purgatory` (who waits), `groups/`, `transactions/`.

Deliberately absent: replication, security, quotas, fetch sessions, transactions V2 (KIP-890 part 2), the new
consumer group protocol (KIP-848). Clients fall back by what ApiVersions offers.
"""

from __future__ import annotations

from suiro.broker.broker import Broker, BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
