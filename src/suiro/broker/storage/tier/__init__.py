"""The node's side of tiered storage: one owner for all partitions, in `remote_tier`. Enter here."""

from suiro.broker.storage.tier.remote_tier import RemoteTier

__all__ = ["RemoteTier"]
