"""Options that several services have, and requests of commands to a running service, which answers in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from suiro.cli.command_groups import option

LISTEN = "Address to listen on. Port 0 selects a free port."
TLS_CERTIFICATE = option(None, "PEM file of the certificate and its chain, for HTTPS.", "FILE")
TLS_KEY = option(None, "PEM file of the private key.", "FILE")
CLIENT_CONFIG = option(
    None,
    "File of client settings for that Kafka, with Kafka's names: security.protocol, sasl.mechanism...",
    "FILE",
    path="file",
)
SERVER_CONFIG = option(None, "File of settings, as Kafka's server.properties.", "FILE")
SERVER_SETTINGS = option(None, "A setting, with Kafka's name; repeatable.", "NAME=VALUE")
SCHEMA_REGISTRY = option(
    None, "Schema registry of serdes.avro, json_schema and protobuf.", "URL", env="SUIRO_REGISTRY", name="--registry"
)
METRICS = option(None, "Serve /metrics for Prometheus on this address.", "HOST:PORT")
OTLP = option(
    None, "Send metrics and traces to this URL by OTLP over HTTP. Default: OTEL_EXPORTER_OTLP_ENDPOINT.", "URL"
)
OPENLINEAGE = option(
    None,
    "Send OpenLineage events to this URL or file: the run, its topics and their columns.",
    "URL-OR-FILE",
    env="OPENLINEAGE_URL",
)
# For a service that another program of suiro starts: it ends with that program, and gets a socket that listens already.
WHILE_STDIN_IS_OPEN = option(False, hidden=True)
LISTEN_FD = option(None, hidden=True)

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024


def shown_url(url: str) -> str:
    """Returns the URL without its password, for messages. It may not be a URL: the scheme may be missing, and the
    password may have a slash."""
    return re.sub(r"^(\w+://)?.*@", r"\1", url, flags=re.DOTALL)[:200]


@contextmanager
def understood(url: str, expected: str) -> Iterator[None]:
    """Within it, an answer is read. Raises `UsageError` for one of another shape than that of `expected`."""
    from suiro.errors import UsageError

    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise UsageError(f"{shown_url(url)} does not answer as {expected} does") from None


def ask_service(
    method: str,
    url: str,
    path: str,
    *,
    expected: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """Returns the answer, None if it is empty. `expected` is what should answer. Raises `UsageError` and
    `TransientError`."""
    import httpx

    from suiro.clock import SystemClock
    from suiro.errors import TransientError, UsageError
    from suiro.foundation.http import ask, summary_of

    named = shown_url(url)
    try:
        with httpx.Client(timeout=timeout_s) as http:
            answer = ask(
                http,
                method,
                url.rstrip("/") + path,
                clock=SystemClock(),
                max_bytes=ANSWER_BYTES_MAX,
                headers=headers,
                **({} if body is None else {"json": body}),
            )
    except (httpx.InvalidURL, UnicodeError) as error:  # a name that no host can have
        # The error may name a part of the password.
        raise UsageError(f"{named!r} is no URL" + ("" if "@" in url else f": {error}")) from None
    except httpx.UnsupportedProtocol:
        raise UsageError(f"{named!r}: expected http://HOST:PORT") from None
    except httpx.HTTPError as error:
        raise TransientError(f"no answer from {named}: {error}. Is {expected} running there?") from None
    try:
        found = json.loads(answer.content) if answer.content else None
    except (ValueError, RecursionError):
        raise UsageError(f"{named} does not answer as {expected} does: {summary_of(answer)}") from None
    if not answer.is_success:
        message = found.get("message") if isinstance(found, dict) else None
        raise UsageError(str(message) if message else summary_of(answer))
    return found
