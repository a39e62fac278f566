"""The topics of a topology. Internal topics are created; the user's must exist, or are created on request."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from suiro.errors import UnknownTopicError
from suiro.streams.errors import TopologyError
from suiro.streams_spark.plan import InternalTopic

if TYPE_CHECKING:
    from suiro.client import TopicInfo

_log = logging.getLogger(__name__)


def require_topics(
    client: Any, *, read: Sequence[str], written: Sequence[str], create: bool = False
) -> Mapping[str, TopicInfo]:
    """Returns the cluster's description of the topics that are read. `client` is a `suiro.client.Client`.

    With `create`, missing topics are created. They get as many partitions as the largest topic that is read, or the
    cluster's default if none is there. Without it, raises `UnknownTopicError` that names all of them.
    """
    there = client.metadata([*dict.fromkeys((*read, *written))]) if read or written else {}
    missing = [topic for topic in dict.fromkeys((*read, *written)) if topic not in there]
    if missing and not create:
        said = [
            f"{verb} {'topics' if len(gone) > 1 else 'topic'} {', '.join(map(repr, sorted(gone)))}"
            for verb, topics in (("reads", read), ("writes", written))
            if (gone := set(topics) & set(missing))
        ]
        raise UnknownTopicError(
            f"the topology {' and '.join(said)}, which {'do' if len(missing) > 1 else 'does'} not exist; create "
            f"{'them' if len(missing) > 1 else 'it'} first, or let `suiro run --create-topics` (in Python: "
            "create_topics=True) do so",
            "UNKNOWN_TOPIC_OR_PARTITION",
        )
    if missing:
        from suiro.client import NewTopic

        counts = [len(there[topic].partitions) for topic in read if topic in there]
        new = [NewTopic(topic, max(counts)) if counts else NewTopic(topic) for topic in missing]
        client.create_topics(new, exist_ok=True)
        _log.info("created topic %s", ", ".join(missing))
        there = client.metadata([*read])
    return {topic: there[topic] for topic in read}


def create_internal_topics(client: Any, topics: Sequence[InternalTopic], *, has_state: bool = False) -> None:
    """Those that exist must have the partitions that the topology needs now. `has_state`: micro-batches have run."""
    from suiro.client import NewTopic

    if not topics:
        return
    there = client.metadata([topic.name for topic in topics])
    for topic in topics:
        found = there.get(topic.name)
        if found is not None and len(found.partitions) != topic.partitions:
            raise TopologyError(
                f"topic {topic.name!r} has {len(found.partitions)} partitions, the topology needs {topic.partitions}: "
                "did a source topic get more partitions, or repartition() another number? A new application id reads "
                "from the beginning"
            )
    missing = [topic for topic in topics if topic.name not in there]
    if has_state:
        for topic in missing:
            _log.warning(
                "topic %s is made now, although the application has run before: it is new in the topology, or it was "
                "deleted. It has only what is written from now on. Of a changelog, a rebuild writes all rows "
                "(rebuild=True, suiro run --rebuild)",
                topic.name,
            )
    new = [NewTopic(topic.name, topic.partitions, configs=topic.configs) for topic in missing]
    client.create_topics(new, exist_ok=True)
