"""Deletion of subjects and versions, in two steps as in Confluent's registry.

A soft delete hides a version: it cannot be found by its subject, but its id still returns its schema, so that data
written with it stays readable. Only a soft-deleted version can be deleted permanently; data written with it can then no
longer be read. A version that other schemas reference cannot be deleted.
"""

from __future__ import annotations

from suiro.registry import records
from suiro.registry.api_errors import ApiError, subject_not_found, version_not_found
from suiro.registry.records import Key
from suiro.registry.settings import refuse_read_only
from suiro.registry.state import Change, Decision, State, StoredSchema


def delete_subject(state: State, subject: str, *, permanent: bool) -> Decision[list[int]]:
    """The result is the numbers of the deleted versions."""
    refuse_read_only(state, subject)
    live, all_versions = state.versions(subject), state.versions(subject, deleted=True)
    if not all_versions:
        raise subject_not_found(subject)
    if permanent:
        if live:
            raise ApiError(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        for one in all_versions:
            _refuse_referenced(state, one, permanent=True)
        changes = [Change(Key.schema(subject, one.version), None) for one in all_versions]
        changes += _own_settings(state, subject)
        return Decision([one.version for one in all_versions], changes)
    if not live:
        raise _is_soft_deleted(40404, f"Subject '{subject}'")
    for one in live:
        _refuse_referenced(state, one, permanent=False)
    last = all_versions[-1].version
    changes = [Change(Key.of_subject(records.DELETE_SUBJECT, subject), {"subject": subject, "version": last})]
    changes += _own_settings(state, subject)
    return Decision([one.version for one in live], changes)


def delete_version(state: State, subject: str, version: int, *, permanent: bool) -> Decision[int]:
    """`version` -1 is the latest. The result is the number of the version."""
    refuse_read_only(state, subject)
    all_versions = state.versions(subject, deleted=True)
    if not all_versions:
        raise subject_not_found(subject)
    if version == -1:
        candidates = all_versions if permanent else state.versions(subject)
        if not candidates:
            raise version_not_found(version)
        version = candidates[-1].version
    schema = state.subjects[subject].get(version)
    if schema is None:
        raise version_not_found(version)
    if permanent:
        if not schema.deleted:
            raise ApiError(
                40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
            )
        _refuse_referenced(state, schema, permanent=True)
        return Decision(version, (Change(Key.schema(subject, version), None),))
    if schema.deleted:
        raise _is_soft_deleted(40406, f"Subject '{subject}' Version {version}")
    _refuse_referenced(state, schema, permanent=False)
    changes = [Change(Key.schema(subject, version), {**schema.value, "deleted": True})]
    if len(state.versions(subject)) == 1:
        changes += _own_settings(state, subject)
    return Decision(version, changes)


def _is_soft_deleted(code: int, what: str) -> ApiError:
    return ApiError(code, f"{what} was soft deleted. Set permanent=true to delete permanently")


def _refuse_referenced(state: State, schema: StoredSchema, *, permanent: bool) -> None:
    """Soft-deleted schemas still need their references to be read, so they prevent a permanent delete."""
    if any(permanent or not one.deleted for one in state.referrers(schema.subject, schema.version)):
        key = f"{{magic=1,keytype=SCHEMA,subject={schema.subject},version={schema.version}}}"
        raise ApiError(42206, f"One or more references exist to the schema {key}.")


def _own_settings(state: State, subject: str) -> list[Change]:
    known = ((records.MODE, state.modes), (records.CONFIG, state.configs))
    return [Change(Key.of_subject(kind, subject), None) for kind, settings in known if subject in settings]
