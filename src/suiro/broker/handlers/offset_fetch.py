"""OffsetFetch: committed offsets of one group, or (version 8) of several; of some partitions, or of all."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.groups import CommittedOffset
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode

_SUFFIX = {True: "s", False: ""}  # from version 8 on the nested types have a plural name


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    stable = getattr(request, "require_stable", False)
    if exchange.version < 8:
        topics = _topics(broker, exchange, request.group_id, request.topics, stable=stable)
        return exchange.response(throttle_time=NO_THROTTLE, topics=topics, error_code=ErrorCode.none)
    groups = tuple(
        exchange.make(
            "OffsetFetchResponseGroup",
            group_id=group.group_id,
            topics=_topics(broker, exchange, group.group_id, group.topics, stable=stable),
            error_code=ErrorCode.none,
        )
        for group in request.groups
    )
    return exchange.response(throttle_time=NO_THROTTLE, groups=groups)


def _topics(
    broker: Broker, exchange: Exchange, group_id: str, wanted: Any, *, stable: bool
) -> tuple[Any, ...]:
    committed = broker.groups.committed(group_id)
    undecided = broker.groups.undecided_places(group_id) if stable else set()
    if wanted is None:
        places: dict[str, list[int]] = {}
        for topic, index in sorted(committed.keys() | undecided):
            places.setdefault(topic, []).append(index)
    else:
        places = {topic.name: list(topic.partition_indexes) for topic in wanted}
    suffix = _SUFFIX[exchange.version >= 8]
    return tuple(
        exchange.make(
            "OffsetFetchResponseTopic" + suffix,
            name=topic,
            partitions=tuple(
                exchange.make(
                    "OffsetFetchResponsePartition" + suffix,
                    partition_index=index,
                    **_answer(committed.get((topic, index)), is_undecided=(topic, index) in undecided),
                )
                for index in indexes
            ),
        )
        for topic, indexes in places.items()
    )


def _answer(committed: CommittedOffset | None, *, is_undecided: bool) -> dict[str, Any]:
    if committed is None or is_undecided:
        code = ErrorCode.unstable_offset_commit if is_undecided else ErrorCode.none
        return {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": code}
    return {
        "committed_offset": committed.value.offset,
        "committed_leader_epoch": committed.value.leader_epoch,
        "metadata": committed.value.metadata,
        "error_code": ErrorCode.none,
    }
