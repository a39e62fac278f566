"""Associations: which subject the keys or values of a topic have. Recent clients ask for them.

An association connects a resource (with a type and a namespace, such as a topic in a cluster) to a subject, as its
"key" or "value". A STRONG association owns its subject: if it is deleted with `cascadeLifecycle`, the subject is
deleted. A resource has one association of each type; creating a different one of the same type is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suiro.registry import deletion
from suiro.registry.api_errors import ApiError, subject_not_found, unprocessable
from suiro.registry.records import TENANT, association_key, content_hash, guid_of, normal
from suiro.registry.settings import check_name
from suiro.registry.state import Change, Decision, State

STRONG, WEAK = "STRONG", "WEAK"
ANY_NAMESPACE = "-"
DEFAULT_TYPE = "topic"
DEFAULT_ASSOCIATION = "value"


def find(state: State, name: str, namespace: str, resource_type: str, types: Sequence[str]) -> list[dict[str, Any]]:
    found = _of_resource(state, "resourceName", name, resource_type, types)
    return [one for one in found if namespace in (ANY_NAMESPACE, one.get("resourceNamespace"))]


def _of_resource(
    state: State, member: str, value: str, resource_type: str, types: Sequence[str]
) -> list[dict[str, Any]]:
    return [
        one
        for one in state.associations.values()
        if one.get(member) == value
        and (not resource_type or one.get("resourceType") == resource_type)
        and (not types or one.get("associationType") in types)
    ]


def check(body: Mapping[str, Any]) -> None:
    """Raises `ApiError` 422 for a request that `create` cannot take."""
    for name in ("resourceName", "resourceNamespace", "resourceId"):
        if not isinstance(body.get(name), str) or not body[name]:
            raise unprocessable(f"{name!r} is missing")
    asked = body.get("associations")
    if not isinstance(asked, list) or not asked or not all(isinstance(one, dict) for one in asked):
        raise unprocessable("'associations' is a list of at least one JSON object")
    texts = [("resourceType", body)]
    texts += [(name, one) for one in asked for name in ("associationType", "subject", "lifecycle")]
    for name, given in texts:
        if not isinstance(given.get(name) or "", str):
            raise unprocessable(f"{name!r} is a text")
    if not all(isinstance(one.get("schema") or {}, dict) for one in asked):
        raise unprocessable("'schema' is a JSON object")
    for one in asked:
        lifecycle = (one.get("lifecycle") or STRONG).upper()
        if lifecycle not in (STRONG, WEAK):
            raise unprocessable(f"lifecycle is STRONG or WEAK, not {lifecycle!r}")
    types = [one.get("associationType") or DEFAULT_ASSOCIATION for one in asked]
    if len(set(types)) < len(types):
        raise unprocessable("a resource has one association of each type, and 'associations' names a type twice")


def named(body: Mapping[str, Any], one: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the type and the subject of an association that is asked for."""
    type_ = one.get("associationType") or DEFAULT_ASSOCIATION
    return type_, normal(one.get("subject") or f":.{body['resourceNamespace']}:{body['resourceName']}-{type_}")


def create(state: State, body: Mapping[str, Any], *, replace: bool = False) -> Decision[dict[str, Any]]:
    """The caller has registered the schemas of the request. `replace` changes associations of the same type."""
    resource_type = body.get("resourceType") or DEFAULT_TYPE
    resource = {
        "resourceName": body["resourceName"],
        "resourceNamespace": body["resourceNamespace"],
        "resourceId": body["resourceId"],
        "resourceType": resource_type,
    }
    changes: list[Change] = []
    infos = []
    for one in body["associations"]:
        type_, subject = named(body, one)
        check_name(subject)
        if not state.versions(subject):
            raise subject_not_found(subject)
        made: dict[str, Any] = {
            "subject": subject,
            **resource,
            "associationType": type_,
            "lifecycle": (one.get("lifecycle") or STRONG).upper(),
            "frozen": bool(one.get("frozen")),
        }
        for old in find(state, body["resourceName"], body["resourceNamespace"], resource_type, [type_]):
            if _same(made, old):
                made["guid"] = old["guid"]
            elif not replace:
                raise ApiError(
                    40901,
                    f"Resource {body['resourceName']!r} already has the association {type_!r}, with subject "
                    f"{old['subject']!r}",
                )
            elif old["subject"] != subject:
                changes.append(Change(association_key(old), None))
        # The same for the same association, so that a repeated request writes the same record.
        identity = "\n".join(str(made[name]) for name in ("resourceId", "resourceType", "associationType", "subject"))
        made.setdefault("guid", guid_of(content_hash(identity)))
        if not any(_same(made, one) for one in state.associations.values()):
            changes.append(Change(association_key(made), {"tenant": TENANT, **made}))
        infos.append({name: made[name] for name in ("subject", "associationType", "lifecycle", "frozen")})
    return Decision({**resource, "associations": infos}, changes)


def _same(made: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether `old` has the members of `made`. It may have others that this registry does not know."""
    return all(old.get(name) == value for name, value in made.items())


def delete(
    state: State, resource_id: str, resource_type: str, types: Sequence[str], *, cascade: bool
) -> Decision[None]:
    changes: list[Change] = []
    for one in _of_resource(state, "resourceId", resource_id, resource_type, types):
        if one.get("frozen") and not cascade:
            raise ApiError(40902, f"The association of {one['subject']!r} is frozen; use cascadeLifecycle=true")
        changes.append(Change(association_key(one), None))
        if cascade and one.get("lifecycle") == STRONG and state.versions(one["subject"]):
            changes += deletion.delete_subject(state, one["subject"], permanent=False).changes
    return Decision(None, changes)
