"""Errors of the REST API, with Confluent's error codes and messages."""

from __future__ import annotations

from collections.abc import Sequence

from suiro.errors import UsageError

INVALID_SCHEMA = 42201

_COMPATIBILITIES = "none, backward, forward, full, backward_transitive, forward_transitive, and full_transitive"


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


def incompatible(subject: str, messages: Sequence[str]) -> ApiError:
    details = ", ".join(messages)
    return ApiError(
        409,
        409,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{details}]',
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


def not_permitted(message: str) -> ApiError:
    return ApiError(422, 42205, message)


def invalid_rule_set(message: str) -> ApiError:
    return ApiError(422, 42210, message)


def store_failed(message: str) -> ApiError:
    return ApiError(500, 50001, message)


def timed_out(message: str) -> ApiError:
    return ApiError(500, 50002, message)
