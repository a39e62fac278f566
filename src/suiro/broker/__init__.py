"""Kafka's semantics over `suiro.log`: the server, its handlers, groups and transactions.

Read in this order: `context` (what a handler may use), `net/` (bytes), `dispatch` (which handler), `exchange` (one
request and its response), `handlers/` (one API a file), `coordination/`, `storage/`. `node` puts them together.

Who may do what is in `security/`, how fast in `quotas/`. Deliberately absent: replication, share groups, Streams
groups, delegation tokens. Clients fall back by what ApiVersions offers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.node import Broker, BrokerConfig
from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.broker.faults import Crash, Delay, Drop, Error, Fault, Faults, Rule
    from suiro.broker.handover import HandedOver, handing_over, node_id_of
    from suiro.broker.handover.topic_import import import_topics
    from suiro.broker.security.scram_store import ScramUser

__all__ = [
    "Broker",
    "BrokerConfig",
    "Crash",
    "Delay",
    "Drop",
    "Error",
    "Fault",
    "Faults",
    "HandedOver",
    "Rule",
    "ScramUser",
    "handing_over",
    "import_topics",
    "node_id_of",
]

# Names that the start of a node does not need.
__getattr__ = on_first_use(
    __name__,
    {
        "faults": "Crash Delay Drop Error Fault Faults Rule",
        "handover": "HandedOver handing_over node_id_of",
        "handover.topic_import": "import_topics",
        "security.scram_store": "ScramUser",
    },
)
