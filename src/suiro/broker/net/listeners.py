"""The addresses that a node listens on and those that clients are told, from Kafka's settings. Nothing is bound here.

`listeners` names the addresses, `listener.security.protocol.map` what is spoken there, `advertised.listeners` what
clients are told. The command's `--listen HOST:PORT` is the short form of one PLAINTEXT listener.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from suiro.config import NodeSettings
from suiro.errors import ConfigError

WILDCARDS = ("0.0.0.0", "::")
_ADDRESS = re.compile(r"(?P<name>[\w.-]+)://\[?(?P<host>[^\]/]*?)\]?:(?P<port>\d{1,5})")


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address. `port` 0 until it is bound. `advertised`: what clients are told instead of host and port."""

    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised: tuple[str, int] | None = None

    def bound(self, host: str, port: int) -> Listener:
        """This listener with the address that it is bound to."""
        advertised = self.advertised
        if advertised is not None and advertised[1] == 0:
            advertised = (advertised[0], port)
        return replace(self, host=host, port=port, advertised=advertised)

    def address_for(self, local_address: tuple[str, int]) -> tuple[str, int]:
        """The address for a client that connected to `local_address`: that one, if the node listens on all."""
        if self.advertised is not None:
            return self.advertised
        return local_address if self.host in WILDCARDS else (self.host, self.port)

    @property
    def bootstrap_servers(self) -> str:
        """The address for a client on this machine."""
        host = "127.0.0.1" if self.host in WILDCARDS else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def read_listeners(settings: NodeSettings, *, otherwise: tuple[str, int]) -> tuple[Listener, ...]:
    """The listeners that the settings name; `otherwise` is the one there is if they name none.

    Raises `ConfigError` naming the setting.
    """
    protocols = _protocol_map(settings.listener_security_protocol_map)
    advertised = {
        name: (host, port) for name, host, port in _addresses(settings.advertised_listeners, "advertised.listeners")
    }
    own = _addresses(settings.listeners, "listeners") or (("PLAINTEXT", *otherwise),)
    unknown = sorted(set(advertised) - {name for name, _, _ in own})
    if unknown:
        raise ConfigError(f"advertised.listeners names {', '.join(unknown)}, which listeners does not")
    for name, (host, _) in advertised.items():
        if host in ("", *WILDCARDS):
            raise ConfigError(
                f"advertised.listeners: {name} has the address {host or '(none)'!r}, which means all addresses "
                "and leads no client here; give the one that clients use"
            )
    listeners = []
    for name, host, port in own:
        if name not in protocols:
            raise ConfigError(
                f"listener {name}: listener.security.protocol.map does not say what it speaks; "
                f"add {name}:PLAINTEXT, {name}:SSL, {name}:SASL_PLAINTEXT or {name}:SASL_SSL"
            )
        listeners.append(
            Listener(
                name=name,
                protocol=protocols[name],
                host=host or "0.0.0.0",
                port=port,
                advertised=advertised.get(name),
            )
        )
    return tuple(listeners)


def _addresses(text: str, setting: str) -> tuple[tuple[str, str, int], ...]:
    found = []
    for part in text.split(","):
        if not part:
            continue
        match = _ADDRESS.fullmatch(part)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigError(f"{setting}: {part!r}: expected NAME://HOST:PORT, such as PLAINTEXT://127.0.0.1:9092")
        found.append((match["name"].upper(), match["host"], int(match["port"])))
    names = [name for name, _, _ in found]
    if len(set(names)) < len(names):
        raise ConfigError(f"{setting} = {text}: each listener must have a different name")
    return tuple(found)


def _protocol_map(text: str) -> dict[str, SecurityProtocol]:
    found = {}
    for part in text.split(","):
        if not part:
            continue
        name, _, protocol = part.partition(":")
        if protocol.upper() not in SecurityProtocol.__members__:
            raise ConfigError(
                f"listener.security.protocol.map: {part!r}: expected NAME:PROTOCOL with one of "
                f"{', '.join(SecurityProtocol)}"
            )
        found[name.upper()] = SecurityProtocol[protocol.upper()]
    return found
