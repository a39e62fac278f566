"""Settings of Apache Kafka that may be altered there while a broker runs, and that a node does not have.

Tools set them on every cluster. Most have no effect here, and without one they promise nothing: they are accepted, kept
and shown, and the log says so. For some, another value than the usual one would promise something that the node does
not do (who is let in, how data is encrypted): that value is refused. A setting that Kafka does not know is a plugin's,
and is kept, as Kafka does (`dynamic_settings`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from suiro.errors import ConfigError
from suiro.numerals import number, whole_number

_JMX = "org.apache.kafka.common.metrics.JmxReporter"
_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


@dataclass(frozen=True, slots=True)
class KafkaSetting:
    """`kind`, `default`, `low` and `high` are Kafka's; `why` tells users why it has no effect here."""

    kind: str
    default: str | None
    why: str
    low: int | None = None
    high: int | None = None
    only: tuple[str, ...] | None = None
    """The values that are taken; None: all."""

    @property
    def doc(self) -> str:
        if self.only is None:
            return f"Accepted without effect: {self.why}."
        usual = " or ".join(value or "empty" for value in self.only)
        return f"Accepted without effect if it is {usual}: {self.why}." if usual else f"Refused: {self.why}."

    def check(self, name: str, text: str, *, source: str) -> None:
        """Raises `ConfigError`."""
        text = text.strip()
        if self.only is not None and text not in self.only:
            raise ConfigError(f"{name} = {text!r} ({source}): a suiro node cannot do that: {self.why}")
        if self.kind == "BOOLEAN" and text.lower() not in ("true", "false"):
            raise ConfigError(f"{name} = {text!r} ({source}): expected true or false")
        if self.kind in _NUMBERS:
            self._check_number(name, text, source=source)

    def _check_number(self, name: str, text: str, *, source: str) -> None:
        read, low, high = _NUMBERS[self.kind]
        try:
            value = read(text)
        except ValueError:
            raise ConfigError(f"{name} = {text!r} ({source}): not a number of type {self.kind}") from None
        low, high = low if self.low is None else self.low, high if self.high is None else self.high
        if not low <= value <= high:
            raise ConfigError(f"{name} = {text} ({source}): must be between {low} and {high}")


_NUMBERS: Mapping[str, tuple[Callable[[str], float], float, float]] = {
    "SHORT": (whole_number, -(2**15), 2**15 - 1),
    "INT": (whole_number, -(2**31), 2**31 - 1),
    "LONG": (whole_number, -(2**63), 2**63 - 1),
    "DOUBLE": (number, float("-inf"), float("inf")),
}
_NO_KERBEROS = "Kerberos is not offered"
_NO_LOGIN = "the node does not log in to a broker"
_JAVAS = "TLS is Python's, which does without it"


def _fixed(kind: str, default: str | None, why: str, *only: str) -> KafkaSetting:
    return KafkaSetting(kind, default, why, only=only)


ALTERABLE: Mapping[str, KafkaSetting] = MappingProxyType(
    {
        "config.providers": _fixed("LIST", "", "values that name a provider would be taken as they stand", ""),
        "cordoned.log.dirs": _fixed("LIST", "", "there is one folder, and new partitions go there", ""),
        "follower.fetch.last.tiered.offset.enable": KafkaSetting("BOOLEAN", "false", "a single node has no replicas"),
        "group.coordinator.cached.buffer.max.bytes": KafkaSetting(
            "INT", "1048588", "the coordinator keeps no buffer", low=524_288
        ),
        "group.share.assignment.interval.ms": KafkaSetting(
            "INT", "1000", "share groups are not offered", low=0, high=15_000
        ),
        "group.streams.assignment.interval.ms": KafkaSetting(
            "INT", "1000", "Streams groups are not offered", low=0, high=15_000
        ),
        "metric.reporters": _fixed(
            "LIST", _JMX, "it loads no Java classes, and its metrics are at metrics.listen", "", _JMX
        ),
        "principal.builder.class": _fixed("CLASS", _PRINCIPALS, "it loads no Java classes", _PRINCIPALS),
        "remote.log.manager.expiration.thread.pool.size": KafkaSetting(
            "INT", "10", "the threads that copy segments delete them too", low=1
        ),
        "remote.log.manager.follower.thread.pool.size": KafkaSetting(
            "INT", "2", "a single node has no replicas", low=1
        ),
        "sasl.kerberos.kinit.cmd": KafkaSetting("STRING", "/usr/bin/kinit", _NO_KERBEROS),
        "sasl.kerberos.min.time.before.relogin": KafkaSetting("LONG", "60000", _NO_KERBEROS),
        "sasl.kerberos.principal.to.local.rules": KafkaSetting("LIST", "DEFAULT", _NO_KERBEROS),
        "sasl.kerberos.service.name": KafkaSetting("STRING", None, _NO_KERBEROS),
        "sasl.kerberos.ticket.renew.jitter": KafkaSetting("DOUBLE", "0.05", _NO_KERBEROS),
        "sasl.kerberos.ticket.renew.window.factor": KafkaSetting("DOUBLE", "0.8", _NO_KERBEROS),
        "sasl.login.refresh.buffer.seconds": KafkaSetting("SHORT", "300", _NO_LOGIN),
        "sasl.login.refresh.min.period.seconds": KafkaSetting("SHORT", "60", _NO_LOGIN),
        "sasl.login.refresh.window.factor": KafkaSetting("DOUBLE", "0.8", _NO_LOGIN),
        "sasl.login.refresh.window.jitter": KafkaSetting("DOUBLE", "0.05", _NO_LOGIN),
        "sasl.mechanism.inter.broker.protocol": KafkaSetting("STRING", "GSSAPI", "there is no other broker"),
        "share.coordinator.cached.buffer.max.bytes": KafkaSetting(
            "INT", "1048588", "share groups are not offered", low=524_288
        ),
        "ssl.cipher.suites": _fixed("LIST", "", "it leaves the choice of cipher suites to OpenSSL", ""),
        "ssl.endpoint.identification.algorithm": KafkaSetting("STRING", "https", "the node is no client of a broker"),
        "ssl.engine.factory.class": _fixed("CLASS", None, "it loads no Java classes"),
        "ssl.keymanager.algorithm": KafkaSetting("STRING", "SunX509", _JAVAS),
        "ssl.protocol": _fixed("STRING", "TLSv1.3", "ssl.enabled.protocols says which versions it speaks", "TLSv1.3"),
        "ssl.provider": _fixed("STRING", None, "it loads no Java classes", ""),
        "ssl.secure.random.implementation": KafkaSetting("STRING", None, _JAVAS),
        "ssl.trustmanager.algorithm": KafkaSetting("STRING", "PKIX", _JAVAS),
    }
)

OF_A_LISTENER_ONLY = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""Settings that Kafka alters only with a listener's prefix."""

_OF_A_BROKER = ("sasl.", "ssl.", "cordoned.log.dirs", "principal.builder.class")
_OF_ALL_LISTENERS = (
    "connection.authentication.timeout.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.unauthenticated.connections",
)


def is_of_one_broker(name: str) -> bool:
    """Whether Kafka takes a setting only for a broker, not as the cluster's default. False for unknown names."""
    if name.startswith("listener.name."):
        return not name.endswith(_OF_ALL_LISTENERS)
    return name.startswith(_OF_A_BROKER)
