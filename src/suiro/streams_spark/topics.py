"""The topics a topology writes: those of others must be there, its own are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suiro.errors import UnknownTopicError
from suiro.streams.errors import TopologyError
from suiro.streams_spark.plan import InternalTopic

__all__ = ["create_internal_topics", "require_topics"]


def require_topics(client: Any, topics: Sequence[str]) -> None:
    """`client` is a `suiro.client.Client`."""
    missing = sorted(set(topics) - set(client.metadata(list(topics)))) if topics else []
    if missing:
        raise UnknownTopicError(
            f"the topology writes topic {', '.join(map(repr, missing))}, which does not exist; create it first",
            "UNKNOWN_TOPIC_OR_PARTITION",
        )


def create_internal_topics(client: Any, topics: Sequence[InternalTopic]) -> None:
    """Those that exist must have the partitions that the topology needs now."""
    from suiro.client import NewTopic

    if not topics:
        return
    there = client.metadata([topic.name for topic in topics])
    for topic in topics:
        found = there.get(topic.name)
        if found is not None and len(found.partitions) != topic.partitions:
            raise TopologyError(
                f"topic {topic.name!r} has {len(found.partitions)} partitions, the topology needs {topic.partitions}: "
                "did a source topic get more partitions? A new application id reads from the beginning"
            )
    new = [
        NewTopic(topic.name, topic.partitions, configs=topic.configs)
        for topic in topics
        if topic.name not in there
    ]
    client.create_topics(new, exist_ok=True)
