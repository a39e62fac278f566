"""Who is at the other end of a connection."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`principal`: Kafka's text, `User:name`. `host`: the peer's address by `one_text_of`. `listener`: its name."""

    principal: str
    host: str
    listener: str


ANONYMOUS = "User:ANONYMOUS"


@lru_cache(maxsize=1024)
def one_text_of(address: str) -> str:
    """Of each IP address one text, whoever wrote it: a socket for both families names IPv4 as `::ffff:10.0.0.1`, and
    Java writes `::1` as `0:0:0:0:0:0:0:1`. What is no address stays as it is."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
