"""State stores: typed views of an ordered map of bytes (`ordered`), one module for each kind.

`open_store` makes the store a `StoreSpec` describes. A store is used by one task only and does no I/O: runners load
the map before and persist its changes after.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from suiro.streams.stores.ordered import OrderedMap, Row
from suiro.streams.topology.nodes import StoreSpec

__all__ = ["OrderedMap", "Row", "open_store"]

_KINDS = {
    "key-value": ("key_value", "KeyValueStore"),
    "global": ("key_value", "KeyValueStore"),
    "versioned": ("versioned", "VersionedStore"),
    "window": ("windowed", "WindowStore"),
    "session": ("windowed", "SessionStore"),
    "stream-join": ("stream_join", "StreamJoinStore"),
    "buffer": ("buffer", "TimeOrderedBuffer"),
}


_KEEPING = ("key-value", "window", "session")


def open_store(spec: StoreSpec, rows: OrderedMap, *, keeps: bool = False) -> Any:
    """Opens the store of a spec. `keeps`: the store keeps rows as values until the map's changes are taken, if its kind
    can (`decoded`)."""
    module, name = _KINDS[spec.kind]
    kind = getattr(import_module(f"suiro.streams.stores.{module}"), name)
    return kind(spec, rows, keeps=True) if keeps and spec.kind in _KEEPING else kind(spec, rows)
