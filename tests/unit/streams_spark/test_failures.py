"""The error that ended a query is one of ours again, and says what it said."""

from __future__ import annotations

from suiro.errors import RegistryUnavailableError
from suiro.streams_spark.runner import cause_of


def test_an_error_with_more_to_it_than_its_text() -> None:
    told = str(RegistryUnavailableError("GET http://r:8081/schemas/ids/1: refused; is the registry running?", 0, 0))
    failure = RuntimeError(f"Traceback\n  File x\nsuiro.errors.RegistryUnavailableError: {told}\n")
    found = cause_of(failure)
    assert isinstance(found, RegistryUnavailableError)
    assert str(found) == told
    assert type(found).__name__ == "RegistryUnavailableError"
    assert found.__cause__ is failure
    assert cause_of(ValueError("x")).args == ("x",)
