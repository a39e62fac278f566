"""The common part of the stores whose rows begin with the bytes of a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suiro.streams.serdes.block_forms import Failed, encode_rows
from suiro.streams.stores.ordered import OrderedMap
from suiro.streams.topology.nodes import StoreSpec


class KeyedStore:
    def __init__(self, spec: StoreSpec, rows: OrderedMap) -> None:
        self.spec = spec
        self._rows = rows
        self._topic = f"{spec.name}-changelog"

    def key_of(self, key: Any) -> bytes:
        """Returns the bytes of a key, for the methods whose names end in `_at`."""
        return self.spec.key.serialize(self._topic, key)

    def keys_of(self, keys: Sequence[Any]) -> tuple[list[bytes | None], Failed]:
        """Returns the bytes of keys, None for each that failed, and the failures."""
        return encode_rows(self.spec.key, keys, self._topic)
