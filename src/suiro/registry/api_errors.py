"""Errors of the REST API, with Confluent's error codes and messages."""

from __future__ import annotations

from collections.abc import Sequence

from suiro.errors import UsageError
from suiro.registry.subjects import QualifiedSubject

INVALID_SCHEMA = 42201

_COMPATIBILITIES = (
    "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"
)
_MODES = "READWRITE, READONLY, READONLY_OVERRIDE, IMPORT"


class ApiError(UsageError):
    """A response with an HTTP status of 400 or more. `code` begins with the status."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


def denied(why: str) -> ApiError:
    return ApiError(403, 40301, f"User is denied: {why}")


def subject_not_found(subject: str) -> ApiError:
    return ApiError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> ApiError:
    return ApiError(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: object = None) -> ApiError:
    what = "Schema" if schema_id is None else f"Schema {schema_id}"
    return ApiError(404, 40403, f"{what} not found")


def subject_soft_deleted(subject: str) -> ApiError:
    message = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return ApiError(404, 40404, message)


def subject_not_soft_deleted(subject: str) -> ApiError:
    message = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return ApiError(404, 40405, message)


def version_soft_deleted(subject: str, version: int) -> ApiError:
    message = (
        f"Subject '{subject}' Version {version} was soft deleted. Set permanent=true to delete permanently"
    )
    return ApiError(404, 40406, message)


def version_not_soft_deleted(subject: str, version: int) -> ApiError:
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return ApiError(404, 40407, message)


def no_compatibility_of(subject: str) -> ApiError:
    message = f"Subject '{subject}' does not have subject-level compatibility configured"
    return ApiError(404, 40408, message)


def no_mode_of(subject: str) -> ApiError:
    return ApiError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: Sequence[str]) -> ApiError:
    details = ", ".join(messages)
    return ApiError(
        409,
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
        f"details: [{details}]",
    )


def unprocessable(message: str) -> ApiError:
    return ApiError(422, 422, message)


def invalid_schema(message: str) -> ApiError:
    return ApiError(422, INVALID_SCHEMA, message)


def invalid_version(version: object) -> ApiError:
    return ApiError(
        422,
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )


def invalid_compatibility(level: object) -> ApiError:
    return ApiError(422, 42203, f"Invalid compatibility level {level!r}. Valid values are {_COMPATIBILITIES}")


def invalid_mode(mode: object) -> ApiError:
    return ApiError(422, 42204, f"Invalid mode {mode!r}. Valid values are {_MODES}.")


def not_permitted(message: str) -> ApiError:
    return ApiError(422, 42205, message)


def not_permitted_in(subject: str, why: str) -> ApiError:
    name = QualifiedSubject.parse(subject)
    return not_permitted(f"Subject {name.subject} in context {name.context} {why}")


def reference_exists(subject: str, version: int) -> ApiError:
    return ApiError(
        422,
        42206,
        "One or more references exist to the schema "
        f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def invalid_subject(subject: str) -> ApiError:
    return ApiError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large(message: str) -> ApiError:
    return ApiError(422, 42209, message)


def invalid_rule_set(message: str) -> ApiError:
    return ApiError(422, 42210, message)


def store_failed(message: str) -> ApiError:
    return ApiError(500, 50001, message)


def timed_out(message: str) -> ApiError:
    return ApiError(500, 50002, message)
