"""Kafka's semantics over `suiro.log`: the server, its handlers, groups and transactions.

Read in this order: `broker` (who owns what), `server` and `connection` (bytes), `dispatch` (which handler),
`handlers/` (one API a file), `purgatory` (who waits), `groups/`, `transactions/`.

Who may do what is in `security/`, how fast in `quotas/`. Deliberately absent: replication, share groups, Streams
groups, delegation tokens. Clients fall back by what ApiVersions offers.
"""

from __future__ import annotations

from suiro.broker.broker import Broker, BrokerConfig
from suiro.broker.faults import Crash, Delay, Drop, Error, Fault, Faults, Rule
from suiro.broker.security.scram_store import ScramUser
from suiro.broker.topic_import import ImportedTopic, import_topics

__all__ = [
    "Broker",
    "BrokerConfig",
    "Crash",
    "Delay",
    "Drop",
    "Error",
    "Fault",
    "Faults",
    "ImportedTopic",
    "Rule",
    "ScramUser",
    "import_topics",
]
