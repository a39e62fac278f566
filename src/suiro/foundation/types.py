"""Types that every layer uses."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["TopicPartition"]

TopicPartition: TypeAlias = tuple[str, int]
"""A topic's name and a partition's number."""
