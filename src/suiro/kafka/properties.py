"""`server.properties` of the brokers of a cluster on one machine: from names and addresses to settings. No I/O.

Every broker is also a member of the quorum and has three kinds of listeners: those of the clients; BROKERS, for traffic
between brokers; CONTROLLER, for the quorum. The last two are on the loopback interface. If the cluster has an
authorizer (`authorizer.class.name`), they require a password that is new at every start, and their users are super
users.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from suiro.errors import ConfigError
from suiro.foundation.settings import parse_address

LOOPBACK = "127.0.0.1"
CONTROLLER, BROKERS = "CONTROLLER", "BROKERS"
BROKERS_USER = "kafka-brokers"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_MODULES = {
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def shifted(self, by: int) -> Listener:
        """The same on a later port, for another broker; a port that is to be free (0) stays so."""
        return replace(self, port=self.port + by) if self.port else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses of one broker. `advertised` is empty if clients are told `clients`."""

    clients: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    brokers_port: int
    controller_port: int


def client_listeners(text: str, *, setting: str = "listeners") -> tuple[Listener, ...]:
    """Those of `listeners` or `advertised.listeners` that are not ours. Raises `ConfigError`."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = part.partition("://")
        if not separator:
            raise ConfigError(f"{setting} = {text!r}: expected NAME://HOST:PORT, found {part!r}")
        host, port = parse_address(address, option=setting)
        found.append(Listener(name=name.upper(), host=host, port=port))
    return tuple(listener for listener in found if listener.name not in (CONTROLLER, BROKERS))


def cluster_defaults(brokers: int) -> dict[str, str]:
    """Return settings with as many copies as brokers, up to three. With three, a write is safe when two have it."""
    copies, in_sync = (3, 2) if brokers >= 3 else (1, 1)
    return {
        "default.replication.factor": str(copies),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
        "share.coordinator.state.topic.replication.factor": str(copies),
        "share.coordinator.state.topic.min.isr": str(in_sync),
        "group.initial.rebalance.delay.ms": "0",
    }


def broker_properties(
    node_id: int,
    given: Mapping[str, str],
    *,
    data: str,
    addresses: Addresses,
    controllers: Mapping[int, int],
    password: str,
) -> dict[str, str]:
    """All settings of one broker: `given`, with ours on top. `controllers` are ports by node id."""
    ours = (
        Listener(name=BROKERS, host=LOOPBACK, port=addresses.brokers_port),
        Listener(name=CONTROLLER, host=LOOPBACK, port=addresses.controller_port),
    )
    secured = bool(given.get("authorizer.class.name"))
    protocol = "SASL_PLAINTEXT" if secured else "PLAINTEXT"
    protocols = _protocols(given.get("listener.security.protocol.map", ""), addresses.clients)
    return {
        **_login_modules(given, addresses.clients, protocols),
        **given,
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{one}@{LOOPBACK}:{port}" for one, port in controllers.items()),
        "listeners": _listed((*addresses.clients, *ours)),
        "advertised.listeners": _listed((*(addresses.advertised or addresses.clients), *ours)),
        "listener.security.protocol.map": ",".join(
            f"{name}:{used}" for name, used in {**protocols, BROKERS: protocol, CONTROLLER: protocol}.items()
        ),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": BROKERS,
        "log.dirs": data,
        **(_login(given.get("super.users", ""), password) if secured else {}),
    }


def _login(super_users: str, password: str) -> dict[str, str]:
    user = BROKERS_USER
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{password}" user_{user}="{password}";'
    )
    users = [name for name in super_users.split(";") if name.strip() not in ("", f"User:{user}")]
    return {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "super.users": ";".join([*users, f"User:{user}"]),
        **{
            f"listener.name.{listener.lower()}.{setting}": value
            for listener in (BROKERS, CONTROLLER)
            for setting, value in (("sasl.enabled.mechanisms", "PLAIN"), ("plain.sasl.jaas.config", jaas))
        },
    }


def _login_modules(
    given: Mapping[str, str], clients: Sequence[Listener], protocols: Mapping[str, str]
) -> dict[str, str]:
    """Return the login modules, which Kafka needs even for mechanisms without further options."""
    found = {}
    for listener in clients:
        if not protocols[listener.name].startswith("SASL"):
            continue
        prefix = f"listener.name.{listener.name.lower()}."
        enabled = "sasl.enabled.mechanisms"
        for mechanism in given.get(prefix + enabled, given.get(enabled, "")).split(","):
            module = _MODULES.get(mechanism.strip().upper())
            if module is not None:
                found[f"{prefix}{mechanism.strip().lower()}.sasl.jaas.config"] = f"{module} required;"
    return found


def _protocols(given: str, clients: Sequence[Listener]) -> dict[str, str]:
    """Return the security protocol of each listener. Raises `ConfigError` if one has none."""
    protocols = {}
    for part in filter(None, (part.strip() for part in given.split(","))):
        name, _, protocol = part.partition(":")
        protocols[name.strip().upper()] = protocol.strip().upper()
    for listener in clients:
        if listener.name not in protocols and listener.name not in _PROTOCOLS:
            raise ConfigError(
                f"listener {listener.name} has no protocol; say it in listener.security.protocol.map, such as "
                f"{listener.name}:PLAINTEXT"
            )
        protocols.setdefault(listener.name, listener.name)
    return protocols


def _listed(listeners: Sequence[Listener]) -> str:
    return ",".join(map(str, listeners))


def properties_text(settings: Mapping[str, str]) -> str:
    """The lines of a Java properties file. They are ASCII: Kafka reads Latin-1."""
    lines = []
    for name, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        lines.append(f"{name}={_NOT_ASCII.sub(_java_escape, escaped)}\n")
    return "".join(lines)


def _java_escape(found: re.Match[str]) -> str:
    """Java's characters are units of UTF-16."""
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
