"""Kafka's semantics over `suiro.log`: the server, its handlers, groups and transactions.

Read in this order: `context` (what a handler may use), `net/` (bytes), `dispatch` (which handler), `exchange` (one
request and its response), `handlers/` (one API a file), `coordination/`, `storage/`. `node` puts them together.

Who may do what is in `security/`, how fast in `quotas/`. Deliberately absent: replication, share groups, Streams
groups, delegation tokens. Clients fall back by what ApiVersions offers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.node import Broker, BrokerConfig

if TYPE_CHECKING:
    from suiro.broker.faults import Crash, Delay, Drop, Error, Fault, Faults, Rule
    from suiro.broker.handover import HandedOver, handing_over, node_id_of
    from suiro.broker.handover.topic_import import ImportedTopic, import_topics
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
    "ImportedTopic",
    "Rule",
    "ScramUser",
    "handing_over",
    "import_topics",
    "node_id_of",
]

_MODULES = {
    "HandedOver": "handover",
    "handing_over": "handover",
    "node_id_of": "handover",
    "ScramUser": "security.scram_store",
    "ImportedTopic": "handover.topic_import",
    "import_topics": "handover.topic_import",
}


def __getattr__(name: str) -> Any:
    # What a node's start does not need is imported when asked for.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'faults')}"), name)
