"""Settings of topics and brokers: every entry with its source, and incremental changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from suiro.client.cluster import Cluster
from suiro.client.connection import Connection
from suiro.client.error_codes import raise_for
from suiro.client.topics import CONFIG_RESOURCES, TOPIC, configs_of

_SET, _DELETE = 0, 1
SOURCES = {
    0: "unknown",
    1: "topic",
    2: "broker (dynamic)",
    3: "all brokers (dynamic)",
    4: "broker (file)",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting. `source` is one of `SOURCES`; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == "default"


class ConfigRequests:
    """Settings of topics and brokers: a part of `Admin`."""

    _cluster: Cluster

    def config_entries(self, kind: str, names: Sequence[str]) -> dict[str, tuple[ConfigEntry, ...]]:
        """`kind`: "topic" or "broker" (named by its id; "" for the cluster-wide default). Defaults are included."""
        found: dict[str, tuple[ConfigEntry, ...]] = {}

        def once(connection: Connection, asked: Sequence[str], deadline_ms: int) -> None:
            for name, result in configs_of(connection, kind, asked, deadline_ms).items():
                found[name] = tuple(
                    ConfigEntry(
                        name=item.name,
                        value=None if item.is_sensitive else item.value,
                        source=SOURCES.get(item.config_source, "unknown"),
                        is_read_only=item.read_only,
                        is_sensitive=item.is_sensitive,
                    )
                    for item in sorted(result.configs, key=lambda item: str(item.name))
                )

        _at_owners(self._cluster, kind, names, f"describe {kind} settings", once)
        return found

    def alter_configs(
        self, kind: str, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> None:
        """Changes single settings; None removes one."""

        def once(connection: Connection, asked: Sequence[str], deadline_ms: int) -> None:
            resources = [
                {
                    "resource_type": CONFIG_RESOURCES[kind],
                    "resource_name": name,
                    "configs": [
                        {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
                        for key, value in changes[name].items()
                    ],
                }
                for name in asked
            ]
            request = connection.request(
                "incremental_alter_configs", 0, 1, resources=resources, validate_only=validate_only
            )
            what = f"alter the settings of {kind}"
            results = connection.call(request, deadline_ms=deadline_ms).responses
            answers = ((result.resource_name, result) for result in results)
            for name, result in connection.matched(what, asked, answers).items():
                raise_for(result.error_code, f"{what} {name!r}", detail=result.error_message)

        _at_owners(self._cluster, kind, list(changes), f"alter {kind} settings", once)


def _at_owners(
    cluster: Cluster,
    kind: str,
    names: Sequence[str],
    what: str,
    once: Callable[[Connection, Sequence[str], int], None],
) -> None:
    """Only the broker itself returns its settings; any broker returns those of topics and of all brokers ("")."""
    if not names:
        return

    def ask(owner: str, asked: Sequence[str], deadline_ms: int) -> None:
        connection = cluster.broker(int(owner), deadline_ms) if owner else cluster.any_broker(deadline_ms)
        once(connection, asked, deadline_ms)

    attempts = cluster.attempts(what)
    for owner, asked in [("", names)] if kind == TOPIC else [(name, [name]) for name in names]:
        attempts.run(partial(ask, owner, asked))
