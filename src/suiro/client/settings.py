"""The client's settings, under the names Kafka's own clients use; one table documents and checks them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from suiro.errors import ConfigError
from suiro.numerals import whole_number

# Not settings of Kafka's: how long this client waits in places where Kafka's clients have no name for it.
UNKNOWN_TOPIC_GRACE_MS = 5_000  # a topic just created may not be known to every broker
CONCURRENT_BACKOFF_MS = 2  # the first wait for an earlier transaction's markers, which take a few ms
OFFSET_METADATA_MAX_CHARS = 4_096  # brokers' default offset.metadata.max.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """A field's name with dots for underscores is the setting's name. Picklable."""

    client_id: str = "suiro"
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    delivery_timeout_ms: int = 120_000  # how long produce goes on without a single acknowledgement
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 16 * 1024 * 1024  # where produce stops joining batches into one request
    buffer_memory: int = 64 * 1024 * 1024  # batches produce holds back before it takes the next
    receive_message_max_bytes: int = 1024 * 1024 * 1024  # a longer response is not Kafka's
    send_buffer_bytes: int = -1  # -1: the operating system's choice
    receive_buffer_bytes: int = -1
    fetch_from_files: str = "true"  # of a node on this machine: map its log's files (`protocol.file_regions`)
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = ""
    sasl_jaas_config: str = ""
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = ""
    ssl_endpoint_identification_algorithm: str = "https"

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str | int]) -> ClientSettings:
        """Raises `ConfigError` that names an unknown setting or a value out of range."""
        known = {field.name.replace("_", "."): field for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in settings.items():
            field = known.get(name)
            if field is None:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
                raise ConfigError(f"the client has no setting {name!r}{hint}")
            values[field.name] = str(value) if field.type == "str" else _whole_number(name, value)
        made = cls(**values)
        made._check()
        return made

    def _check(self) -> None:
        minimum = {field.name: 1 for field in fields(self) if field.type == "int"}
        minimum |= {"send_buffer_bytes": -1, "receive_buffer_bytes": -1, "retry_backoff_ms": 0}
        for name, least in minimum.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name.replace('_', '.')} must be at least {least}, got {getattr(self, name)}")
        if self.fetch_from_files not in ("true", "false"):
            raise ConfigError(f"fetch.from.files is true or false, got {self.fetch_from_files!r}")
        # A word that nobody knows must not turn the check of host names off.
        if self.ssl_endpoint_identification_algorithm.lower() not in ("https", "none", ""):
            raise ConfigError(
                "ssl.endpoint.identification.algorithm is https, or none (certificates of other hosts are taken, too), "
                f"got {self.ssl_endpoint_identification_algorithm!r}"
            )
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError(
                "max.in.flight.requests.per.connection must be at most 5, "
                f"got {self.max_in_flight_requests_per_connection}: a broker remembers five batches of a producer"
            )


def _whole_number(name: str, value: str | int) -> int:
    try:
        return whole_number(str(value))
    except ValueError:
        raise ConfigError(f"{name} must be a whole number, got {value!r}") from None
