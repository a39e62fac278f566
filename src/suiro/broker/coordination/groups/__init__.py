"""Groups of consumers, of both protocols, and their offsets.

`group` (classic) and `consumer_group` (KIP-848, with `reconciliation` and `targets`) decide, purely; `records` and
`consumer_records` are the format of `__consumer_offsets`; `coordinator`, `consumer_edge` and `offsets` act.
"""

from __future__ import annotations

from suiro.broker.coordination.groups.coordinator import GroupCoordinator
from suiro.broker.coordination.groups.offsets import CommittedOffset

__all__ = ["CommittedOffset", "GroupCoordinator"]
