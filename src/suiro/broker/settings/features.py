"""Kafka's features: protocols that a cluster switches on as a whole, each at a level that administrators finalize.

The node has what Apache Kafka 4.3 has except share groups and Streams groups. The finalized levels are kept in the
cluster's state; clients learn them from ApiVersions (a producer looks there for `transaction.version`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from suiro.broker.settings.cluster_state import ClusterState

SECTION = "features"
ELIGIBLE_LEADERS = "eligible.leader.replicas.version"
_GROUPS = "group.version"
METADATA_VERSION = "metadata.version"
_NEVER_DOWN = "kraft.version"

SUPPORTED: dict[str, tuple[int, int]] = {
    ELIGIBLE_LEADERS: (0, 1),
    _GROUPS: (0, 1),
    "kraft.version": (0, 1),
    METADATA_VERSION: (7, 30),
    "transaction.version": (0, 2),
}
"""Lowest and highest level of each feature. 30 is Apache Kafka 4.3's metadata version."""


class UpdateType(IntEnum):
    """How an update may move a level, with its number on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """`update_type` is the number as it came: it may be none of `UpdateType`."""

    name: str
    level: int
    update_type: int


class InvalidUpdateError(Exception):
    """An update that Kafka would refuse too."""


class Features:
    """`finalized` are the levels in force; `epoch` grows with each change of them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        stored: dict[str, Any] = state.read(SECTION, {})
        newest = {name: high for name, (_, high) in SUPPORTED.items()}
        self.finalized: dict[str, int] = {**newest, **stored.get("levels", {})}
        self.epoch: int = stored.get("epoch", 1)

    @property
    def has_consumer_protocol(self) -> bool:
        """Whether members may use the consumer protocol of KIP-848. At level 0, its requests are refused."""
        return self.finalized[_GROUPS] > 0

    def update(self, updates: Iterable[FeatureUpdate], *, validate_only: bool) -> None:
        """All of them or none. Raises `InvalidUpdateError`."""
        levels = dict(self.finalized)
        for update in updates:
            _check(update, levels.get(update.name, 0))
            levels[update.name] = update.level
        if validate_only or levels == self.finalized:
            return
        self._state.write(SECTION, {"epoch": self.epoch + 1, "levels": levels})
        self.epoch += 1
        self.finalized = levels


def _check(update: FeatureUpdate, current: int) -> None:
    name, level, update_type = update.name, update.level, update.update_type
    refused = f"Invalid update version {level} for feature {name}."
    if update_type not in tuple(UpdateType):
        raise InvalidUpdateError(f"{refused} The controller does not support the given upgrade type.")
    if level < 0:
        raise InvalidUpdateError(f"{refused} A feature version cannot be less than 0.")
    if name not in SUPPORTED:
        why = "This node does not support this feature." if level else f"Feature {name} not found."
        raise InvalidUpdateError(f"{refused} {why}")
    low, high = SUPPORTED[name]
    if not low <= level <= high:
        raise InvalidUpdateError(f"{refused} This node only supports versions {low}-{high}")
    if level > current and update_type != UpdateType.UPGRADE:
        raise InvalidUpdateError(f"{refused} Can't downgrade to a newer version.")
    if level < current:
        _check_downgrade(update, current, refused)


def _check_downgrade(update: FeatureUpdate, current: int, refused: str) -> None:
    if update.update_type == UpdateType.UPGRADE:
        raise InvalidUpdateError(
            f"{refused} Can't downgrade the version of this feature without setting the upgrade type to either "
            "safe or unsafe downgrade."
        )
    if update.name == METADATA_VERSION:
        safe = update.update_type == UpdateType.SAFE_DOWNGRADE
        raise InvalidUpdateError(
            f"Unsupported metadata.version downgrade from {current} to {update.level}. "
            + (
                "Refusing to perform the requested downgrade because it might delete metadata information."
                if safe
                else "Unsafe metadata downgrade is not supported in this version."
            )
        )
    if update.name == _NEVER_DOWN:
        raise InvalidUpdateError(f"{refused} Can't downgrade the version of this feature.")
