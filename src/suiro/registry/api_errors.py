"""Errors of the REST API, with Confluent's error codes and messages."""

from __future__ import annotations

from functools import partial

from suiro.errors import UsageError

INVALID_SCHEMA = 42201


class ApiError(UsageError):
    """A response with an HTTP status of 400 or more, with which `code` begins."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.status = int(str(code)[:3])
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


unprocessable = partial(ApiError, 422)
invalid_schema = partial(ApiError, INVALID_SCHEMA)
not_permitted = partial(ApiError, 42205)
store_failed = partial(ApiError, 50001)
timed_out = partial(ApiError, 50002)


def subject_not_found(subject: str) -> ApiError:
    return ApiError(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> ApiError:
    return ApiError(40402, f"Version {version} not found.")


def schema_not_found(schema_id: object = None) -> ApiError:
    what = "Schema" if schema_id is None else f"Schema {schema_id}"
    return ApiError(40403, f"{what} not found")


def invalid_version(version: object) -> ApiError:
    return ApiError(
        42202,
        f"The specified version '{version}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"',
    )
