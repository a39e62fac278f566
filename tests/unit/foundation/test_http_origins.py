"""What web pages may not do: the one rule of all servers."""

from __future__ import annotations

import pytest

from suiro.foundation.http import Origins

HERE = {"host": "127.0.0.1:8081"}
JSON = {"content-type": "application/json", "content-length": "2"}
OPEN = Origins(loopback_only=True)
WITH_USERS = Origins(loopback_only=False)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8081", None),
        ("localhost", None),
        ("LOCALHOST:1", None),
        ("[::1]:8081", None),
        (None, None),  # no browser leaves it out
        ("pages.example", 403),
        ("127.0.0.1.pages.example", 403),
        ("localhost@pages.example", 403),
        ("[::1].pages.example", None),  # no such name can be looked up
        ("2130706433", 403),
        ("", 403),
    ],
)
def test_without_users_only_names_of_this_machine(host: str | None, status: int | None) -> None:
    headers = {} if host is None else {"host": host}
    for method in ("GET", "HEAD", "DELETE"):
        refused = OPEN.refusal(method, headers)
        assert (refused[0] if refused else None) == status
        assert WITH_USERS.refusal(method, headers) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"origin": "http://127.0.0.1:8081"}, None),  # a page of its own
        ({"origin": "http://127.0.0.1:8081", "sec-fetch-site": "same-origin"}, None),
        ({"sec-fetch-site": "none"}, None),
        ({"origin": "http://127.0.0.1"}, 403),  # another port is another origin
        ({"origin": "http://pages.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"origin": "file://127.0.0.1:8081"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "http://127.0.0.1:8081", "sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_commands_of_pages_of_others_are_refused(headers: dict[str, str], status: int | None) -> None:
    for rule in (OPEN, WITH_USERS):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            refused = rule.refusal(method, HERE | headers)
            assert (refused[0] if refused else None) == status
        assert rule.refusal("GET", HERE | headers) is None  # a page of others cannot read the answer


def test_the_default_port_may_be_said_or_not() -> None:
    for origin, host in [
        ("https://log.example", "log.example"),
        ("https://log.example:443", "log.example"),
        ("http://LOG.example", "log.example:80"),
    ]:
        assert WITH_USERS.refusal("PUT", {"host": host, "origin": origin}) is None
    assert WITH_USERS.refusal("PUT", {"host": "log.example:80", "origin": "https://log.example"}) is not None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (JSON, None),
        (JSON | {"content-type": "application/json; charset=utf-8"}, None),
        (JSON | {"content-type": "text/plain"}, 415),
        (JSON | {"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-length": "2"}, 415),
        ({"transfer-encoding": "chunked"}, 415),
        ({"content-length": "0"}, None),
    ],
)
def test_bodies_are_of_a_type_that_no_page_sends_unasked(headers: dict[str, str], status: int | None) -> None:
    refused = WITH_USERS.refusal("POST", HERE | headers)
    assert (refused[0] if refused else None) == status
    lenient = Origins(loopback_only=False, body_types=("application/json", ""))
    assert (lenient.refusal("POST", HERE | headers) is None) == (status is None or "content-type" not in headers)
