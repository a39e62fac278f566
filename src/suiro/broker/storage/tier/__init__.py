"""The node's side of tiered storage: one owner for all partitions, in `remote_tier`. Enter here."""

from suiro.broker.storage.tier.metadata_topic import METADATA_TOPIC
from suiro.broker.storage.tier.remote_tier import RemoteTier

__all__ = ["METADATA_TOPIC", "RemoteTier"]
