"""Addresses, as users write them."""

from __future__ import annotations

import pytest

from suiro.errors import ConfigError
from suiro.foundation.settings import host_and_port, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:0", ("::1", 0)),
        (":65535", ("", 65_535)),
        ("localhost:65536", None),
        ("localhost:-1", None),
        ("localhost:²", None),
        ("localhost:", None),
        ("9092", None),
        ("", None),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, address: tuple[str, int] | None) -> None:
    assert host_and_port(text) == address


def test_a_port_alone_where_that_suffices() -> None:
    assert host_and_port("9404", port_suffices=True) == ("", 9404)


def test_without_a_host_all_addresses_are_listened_on() -> None:
    assert parse_address(":9092") == ("0.0.0.0", 9092)
    with pytest.raises(ConfigError, match=r"--metrics 'x': expected HOST:PORT"):
        parse_address("x", option="--metrics")
