"""Topics: create, delete, describe their settings; and whether the cluster has an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

from suiro.client.cluster import Cluster, TopicInfo
from suiro.client.connection import Change, Connection
from suiro.client.error_codes import error_for, error_of, raise_for
from suiro.client.retry import Attempts
from suiro.errors import KafkaError, RetriableKafkaError, TopicExistsError, UnknownTopicError
from suiro.protocol.messages import ErrorCode

DEFAULT = -1  # the broker's default number of partitions or replicas
TOPIC = "topic"
CONFIG_RESOURCES = {TOPIC: 2, "broker": 4}
_NOBODY = "User:"  # no rule is asked for, only whether there are any
_ANY_ACL = 1  # resource, pattern, operation, permission: each has 1 for any

Answers: TypeAlias = Iterable[tuple[str, KafkaError | None]]
"""About each topic. None: it is done."""
Ask: TypeAlias = Callable[[Connection, Change, Sequence[str], int], Answers]
"""Sends one request for some topics: (connection to the controller, change, names, deadline)."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; `configs` are topic settings by their Kafka names."""

    name: str
    partitions: int = DEFAULT
    replication: int = DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)


class TopicRequests:
    """A part of `Client`."""

    _cluster: Cluster

    def create_topics(
        self, topics: Sequence[NewTopic], *, exist_ok: bool = False, timeout_ms: int | None = None
    ) -> None:
        """Creates topics; returns when every partition has a leader. Raises `TopicExistsError` unless `exist_ok`."""
        cluster = self._cluster
        attempts = cluster.attempts(f"create topics {', '.join(topic.name for topic in topics)}", timeout_ms)
        wanted = {topic.name: topic for topic in topics}

        def create(connection: Connection, change: Change, names: Sequence[str], deadline_ms: int) -> Answers:
            request = connection.request(
                "create_topics",
                2,
                7,
                topics=[
                    {
                        "name": topic.name,
                        "num_partitions": topic.partitions,
                        "replication_factor": topic.replication,
                        "assignments": (),
                        "configs": [{"name": name, "value": str(value)} for name, value in topic.configs.items()],
                    }
                    for topic in (wanted[name] for name in names)
                ],
                timeout=timedelta(milliseconds=cluster.settings.request_timeout_ms),
                validate_only=False,
            )
            for item in change.call(connection, request, deadline_ms=deadline_ms).topics:
                detail = getattr(item, "error_message", None)
                yield item.name, error_of(item.error_code, f"create topic {item.name!r}", detail=detail)

        change_topics(cluster, attempts, list(wanted), create, done=TopicExistsError, done_is_ok=exist_ok)
        attempts.run(lambda deadline_ms: _require_leaders(cluster, list(wanted), deadline_ms))

    def delete_topics(self, names: Sequence[str], *, missing_ok: bool = False, timeout_ms: int | None = None) -> None:
        """Deletes topics; returns when they are gone. Raises `UnknownTopicError` unless `missing_ok`."""
        cluster = self._cluster
        attempts = cluster.attempts(f"delete topics {', '.join(names)}", timeout_ms)

        def delete(connection: Connection, change: Change, names: Sequence[str], deadline_ms: int) -> Answers:
            timeout = timedelta(milliseconds=cluster.settings.request_timeout_ms)
            request = connection.request("delete_topics", 1, 5, topic_names=tuple(names), timeout=timeout)
            for item in change.call(connection, request, deadline_ms=deadline_ms).responses:
                error = error_of(item.error_code, f"delete topic {item.name!r}")
                if error is not None and item.error_code is ErrorCode.unknown_topic_or_partition:
                    error = UnknownTopicError(*error.args)
                yield item.name, error

        def gone(deadline_ms: int) -> None:
            left: dict[str, TopicInfo] = cluster.refresh(names, deadline_ms)
            if left:
                raise RetriableKafkaError(f"wait for topics {', '.join(left)} to go", "TOPIC_STILL_THERE")

        change_topics(cluster, attempts, names, delete, done=UnknownTopicError, done_is_ok=missing_ok)
        if names:
            attempts.run(gone)

    def describe_configs(
        self, topics: Sequence[str], *, timeout_ms: int | None = None
    ) -> dict[str, dict[str, str | None]]:
        """Returns {topic: {setting: value}}, including defaults."""

        def once(deadline_ms: int) -> dict[str, dict[str, str | None]]:
            results = configs_of(self._cluster.any_broker(deadline_ms), TOPIC, topics, deadline_ms)
            return {name: {item.name: item.value for item in result.configs} for name, result in results.items()}

        return self._cluster.attempts("describe topic settings", timeout_ms).run(once)

    def has_authorizer(self, *, timeout_ms: int | None = None) -> bool:
        """Whether the cluster has an authorizer. Without one, every client may do everything."""

        def once(deadline_ms: int) -> bool:
            # A broker rejects a user without the right to describe ACLs.
            connection = self._cluster.any_broker(deadline_ms)
            request = connection.request(
                "describe_acls",
                1,
                3,
                resource_type_filter=_ANY_ACL,
                resource_name_filter=_NOBODY,
                pattern_type_filter=_ANY_ACL,
                principal_filter=_NOBODY,
                host_filter=None,
                operation=_ANY_ACL,
                permission_type=_ANY_ACL,
            )
            code = connection.call(request, deadline_ms=deadline_ms).error_code
            if code in (ErrorCode.security_disabled, ErrorCode.cluster_authorization_failed):
                return code is not ErrorCode.security_disabled
            raise_for(code, "ask whether the brokers have an authorizer")
            return True

        return self._cluster.attempts("ask whether the brokers have an authorizer", timeout_ms).run(once)


def change_topics(
    cluster: Cluster,
    attempts: Attempts,
    names: Sequence[str],
    ask: Ask,
    *,
    done: type[KafkaError] | tuple[()] = (),
    done_is_ok: bool = False,
) -> None:
    """Asks the controller until no topic is left. `done`: the error that says that a topic is so already."""
    pending, change = dict.fromkeys(names), Change()

    def once(deadline_ms: int) -> None:
        connection = cluster.controller(deadline_ms)
        may_be_done = change.may_be_done
        failure: KafkaError | None = None
        answers = connection.matched(attempts.what, pending, ask(connection, change, tuple(pending), deadline_ms))
        for name, error in answers.items():
            # After a lost answer it may well be our own doing.
            if error is None or (isinstance(error, done) and (done_is_ok or may_be_done)):
                pending.pop(name, None)
                continue
            change.may_be_done |= error.code_name == "REQUEST_TIMED_OUT"
            failure = failure or error
        if failure is not None:
            raise failure

    if pending:
        attempts.run(once)


def _require_leaders(cluster: Cluster, names: Sequence[str], deadline_ms: int) -> None:
    found = cluster.refresh(names, deadline_ms)
    for name in names:
        info = found.get(name)
        if info is None or any(partition.leader < 0 for partition in info.partitions):
            raise error_for(ErrorCode.leader_not_available, f"wait for the leaders of topic {name!r}")


def configs_of(connection: Connection, kind: str, names: Sequence[str], deadline_ms: int) -> dict[str, Any]:
    """Returns kio's DescribeConfigsResult of each topic or broker, with all settings."""
    request = connection.request(
        "describe_configs",
        1,
        4,
        resources=[
            {"resource_type": CONFIG_RESOURCES[kind], "resource_name": name, "configuration_keys": None}
            for name in dict.fromkeys(names)
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    what = f"describe the settings of {kind}"
    results = connection.call(request, deadline_ms=deadline_ms).results
    found = connection.matched(what, names, ((result.resource_name, result) for result in results))
    for name, result in found.items():
        raise_for(result.error_code, f"{what} {name!r}", detail=result.error_message)
    return found
