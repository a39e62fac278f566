"""Partitions: add partitions, delete records, describe sizes, replicas and log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from suiro.client.cluster import Cluster
from suiro.client.connection import Change, Connection, each_partition
from suiro.client.error_codes import error_for, error_of, raise_for
from suiro.client.leaders import Answered, ask_leaders, by_topic
from suiro.client.topics import Answers, change_topics
from suiro.errors import RetriableKafkaError
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller: int  # -1: not known
    brokers: tuple[Broker, ...]


class PartitionRequests:
    """A part of `Admin`."""

    _cluster: Cluster

    def describe_cluster(self) -> ClusterDescription:
        def once(deadline_ms: int) -> ClusterDescription:
            connection = self._cluster.any_broker(deadline_ms)
            request = connection.request(
                "describe_cluster",
                0,
                2,
                include_cluster_authorized_operations=False,
                include_fenced_brokers=False,
            )
            answer = connection.call(request, deadline_ms=deadline_ms)
            raise_for(answer.error_code, "describe the cluster", detail=answer.error_message)
            return ClusterDescription(
                cluster_id=answer.cluster_id,
                controller=answer.controller_id,
                brokers=tuple(
                    Broker(id=item.broker_id, host=item.host, port=item.port, rack=item.rack)
                    for item in sorted(answer.brokers, key=lambda item: int(item.broker_id))
                ),
            )

        return self._cluster.attempts("describe the cluster").run(once)

    def create_partitions(self, counts: Mapping[str, int], *, validate_only: bool = False) -> None:
        """`counts`: {topic: the new number of partitions}. Returns when each new partition has a leader."""
        attempts = self._cluster.attempts(f"add partitions to {', '.join(counts)}")

        def add(connection: Connection, change: Change, names: Sequence[str], deadline_ms: int) -> Answers:
            request = connection.request(
                "create_partitions",
                0,
                3,
                topics=[{"name": name, "count": counts[name], "assignments": None} for name in names],
                timeout=timedelta(milliseconds=self._cluster.settings.request_timeout_ms),
                validate_only=validate_only,
            )
            may_be_done = change.may_be_done and not validate_only
            for result in change.call(connection, request, deadline_ms=deadline_ms).results:
                name, code = result.name, result.error_code
                refused = may_be_done and code is ErrorCode.invalid_partitions
                is_done = code is ErrorCode.none or (refused and has_as_many(name, deadline_ms))
                what = f"add partitions to {name!r}"
                yield name, None if is_done else error_for(code, what, detail=result.error_message)

        def has_as_many(name: str, deadline_ms: int) -> bool:
            info = self._cluster.refresh([name], deadline_ms).get(name)
            return info is not None and len(info.partitions) == counts[name]

        def there(deadline_ms: int) -> None:
            found = self._cluster.refresh(list(counts), deadline_ms)
            for name, count in counts.items():
                info = found.get(name)
                leaders = () if info is None else [item.leader for item in info.partitions if item.leader >= 0]
                if len(leaders) < count:
                    raise RetriableKafkaError(f"wait for the leaders of topic {name!r}", "LEADER_NOT_AVAILABLE")

        change_topics(self._cluster, attempts, list(counts), add)
        if not validate_only:
            attempts.run(there)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the records before an offset (-1: all); returns the new log start offset of each partition."""

        def send(connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int) -> None:
            topics = [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": partition, "offset": offset} for partition, offset in partitions
                    ],
                }
                for topic, partitions in by_topic(items).items()
            ]
            request = connection.request(
                "delete_records",
                0,
                2,
                topics=topics,
                timeout=timedelta(milliseconds=self._cluster.settings.request_timeout_ms),
            )
            connection.send(request, deadline_ms=deadline_ms)

        def receive(connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int) -> Answered[int]:
            for place, item in each_partition(connection.receive(deadline_ms=deadline_ms).topics):
                what = f"delete the records of {place[0]}-{place[1]} before offset {items.get(place)}"
                yield place, error_of(item.error_code, what) or item.low_watermark

        return ask_leaders(self._cluster, "delete records", offsets, send=send, receive=receive)

    def partition_sizes(self, topics: Iterable[str] | None = None) -> dict[TopicPartition, int]:
        """Returns the size on disk, in bytes, of the largest replica of each partition. This needs the right to
        describe the cluster. Replicas in a failed log directory are absent."""
        what = "ask for the sizes of partitions"
        asked = None if topics is None else set(topics)
        sizes: dict[TopicPartition, int] = {}

        def once(connection: Connection, deadline_ms: int) -> None:
            # All of them: to name a topic's partitions they would have to be known.
            request = connection.request("describe_log_dirs", 1, 4, topics=None)
            answer = connection.call(request, deadline_ms=deadline_ms)
            raise_for(getattr(answer, "error_code", ErrorCode.none), what)
            # Older versions have no error code of their own.
            if not answer.results and request.__version__ < 3:
                raise error_for(ErrorCode.cluster_authorization_failed, what)
            for result in answer.results:
                if result.error_code is ErrorCode.kafka_storage_error:
                    continue
                raise_for(result.error_code, f"{what} in {result.log_dir}")
                for topic in result.topics:
                    if asked is not None and topic.name not in asked:
                        continue
                    for item in topic.partitions:
                        place = (topic.name, item.partition_index)
                        sizes[place] = max(sizes.get(place, 0), item.partition_size)

        self._cluster.at_each_broker(what, once)
        return sizes
