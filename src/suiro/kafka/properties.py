"""`server.properties` of the brokers of a cluster on one machine: names and addresses in, settings out, no I/O.

Every broker is a member of the quorum too, and has three kinds of listeners: those of the clients; BROKERS, by which
the brokers reach each other; CONTROLLER, that of the quorum. The last two are on the loopback. Where the cluster checks
who may do what (`authorizer.class.name`) they ask for a password, new at every start: whoever comes in by them is a
super user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from suiro.config import parse_address
from suiro.errors import ConfigError

LOOPBACK = "127.0.0.1"
CONTROLLER, BROKERS = "CONTROLLER", "BROKERS"
BROKERS_USER = "kafka-brokers"
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
    """Where one broker listens, and what it tells clients where they differ."""

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
    """As many copies as there are brokers, up to three; with three, a write is safe when two have it."""
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
    return {
        **given,
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{one}@{LOOPBACK}:{port}" for one, port in controllers.items()),
        "listeners": _listed((*addresses.clients, *ours)),
        "advertised.listeners": _listed((*(addresses.advertised or addresses.clients), *ours)),
        "listener.security.protocol.map": _protocol_map(
            given.get("listener.security.protocol.map", ""), addresses.clients, protocol
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


def _protocol_map(given: str, clients: Sequence[Listener], ours: str) -> str:
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
    protocols |= {BROKERS: ours, CONTROLLER: ours}
    return ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())


def _listed(listeners: Sequence[Listener]) -> str:
    return ",".join(map(str, listeners))


def properties_text(settings: Mapping[str, str]) -> str:
    """The lines of a Java properties file."""
    lines = []
    for name, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        lines.append(f"{name}={escaped}\n")
    return "".join(lines)
