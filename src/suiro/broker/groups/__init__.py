"""Consumer groups: `group` decides (pure), `records` is the format of `__consumer_offsets`, `coordinator` acts."""

from __future__ import annotations

from suiro.broker.groups.coordinator import CommittedOffset, GroupCoordinator

__all__ = ["CommittedOffset", "GroupCoordinator"]
