"""The access control rules of a node: kept in the cluster's state, found by the resource they cover.

A literal rule is found by its name; a prefixed one by each prefix of the name that has the length of some rule's,
so that a look-up costs a few dictionary reads whatever the number of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from suiro.broker.security.acl import (
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from suiro.broker.settings.cluster_state import ClusterState

SECTION = "acls"


class AclStore:
    """Rules are a set in the order they came. A change is on disk before it holds."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._acls: dict[Acl, None] = {}
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = {}
        self._prefix_lengths: dict[ResourceType, list[int]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._replace(dict.fromkeys(_from_json(item) for item in state.read(SECTION, [])))

    def on_change(self, callback: Callable[[], None]) -> None:
        self._listeners.append(callback)

    def covering(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """Every rule whose pattern covers this resource."""
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((kind, name[:length]), ())

    def of_type(self, kind: ResourceType) -> Iterator[Acl]:
        return (acl for acl in self._acls if acl.kind is kind)

    def all(self) -> Iterator[Acl]:
        return iter(self._acls)

    def matching(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self._acls if wanted.matches(acl)]

    def add(self, acls: Iterable[Acl]) -> None:
        """Raises `StorageError` where it cannot be written down, and then nothing has changed."""
        self._change({**self._acls, **dict.fromkeys(acls)})

    def remove(self, acls: Iterable[Acl]) -> None:
        """Raises `StorageError` where it cannot be written down, and then nothing has changed."""
        gone = set(acls)
        self._change({acl: None for acl in self._acls if acl not in gone})

    def _change(self, acls: dict[Acl, None]) -> None:
        if len(acls) == len(self._acls):
            return  # rules are only added or only removed
        self._state.write(SECTION, [_to_json(acl) for acl in acls])
        self._replace(acls)
        for callback in self._listeners:
            callback()

    def _replace(self, acls: dict[Acl, None]) -> None:
        self._acls = acls
        self._literal, self._prefixed = {}, {}
        lengths: dict[ResourceType, set[int]] = {}
        for acl in acls:
            if acl.pattern is PatternType.PREFIXED:
                self._prefixed.setdefault((acl.kind, acl.name), []).append(acl)
                lengths.setdefault(acl.kind, set()).add(len(acl.name))
            else:
                self._literal.setdefault((acl.kind, acl.name), []).append(acl)
        self._prefix_lengths = {kind: sorted(found) for kind, found in lengths.items()}


def _to_json(acl: Acl) -> dict[str, str]:
    return {
        "resourceType": acl.kind.name,
        "name": acl.name,
        "patternType": acl.pattern.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permissionType": acl.permission.name,
    }


def _from_json(item: dict[str, Any]) -> Acl:
    return Acl(
        kind=ResourceType[item["resourceType"]],
        name=item["name"],
        pattern=PatternType[item["patternType"]],
        principal=item["principal"],
        host=item["host"],
        operation=Operation[item["operation"]],
        permission=Permission[item["permissionType"]],
    )
