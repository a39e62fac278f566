"""Shared parts of the everyday commands: the address of the cluster, tables and JSON, one-line errors, confirmations.

The address comes from `--bootstrap-servers`, from a profile (`--profile` or SUIRO_PROFILE), or from
SUIRO_BOOTSTRAP_SERVERS. Otherwise the profile named "default" is used; without one, the address of a node that was
started without options. The default profile's password is sent only to the default profile's address. A profile that
is named explicitly decides the address.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from suiro.cli.command_groups import option, options

if TYPE_CHECKING:
    from suiro.client import Client

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
API_TIMEOUT_MS = 20_000
"""default.api.timeout.ms of the commands. It is short because a user waits."""

WORD_AFTER_S = 2.0

SECRETS = ("sasl.password", "sasl.jaas.config", "ssl.key.password", "registry.password")
_OWN = ("registry", "registry.user", "registry.password", "registry.ca")
"""Keys of a profile that are not settings of a Kafka client."""
_NOT_ASCII = re.compile(r"[^ -~]+")
_encode = json.JSONEncoder(default=str).encode

BOOTSTRAP_SERVERS = option(
    DEFAULT_BOOTSTRAP,
    "Brokers of the cluster.",
    "HOST:PORT",
    also=("--bootstrap-server", "--bootstrap"),
    env="SUIRO_BOOTSTRAP_SERVERS",
)
"""Of commands that read no profile. The default is DEFAULT_BOOTSTRAP."""
PROFILE = option(None, "Profile in ~/.config/suiro/profiles.toml. Also SUIRO_PROFILE.", "NAME")
REGISTRY = option(None, "Of schemas, for avro. Also SUIRO_REGISTRY, or a profile's registry.", "URL")
AS_JSON = option(False, "Print one line of JSON, for programs.", name="--json")
YES = option(False, "Do not ask for confirmation.", also=("-y",))


@options
class Connection:
    """The options of every command that connects to a cluster."""

    bootstrap: str | None = option(
        None,
        "Brokers of the cluster. Also SUIRO_BOOTSTRAP_SERVERS, or bootstrap.servers of a profile. Default: "
        "127.0.0.1:9092.",
        "HOST:PORT",
        name="--bootstrap-servers",
        also=("--bootstrap-server",),
    )
    profile: str | None = PROFILE
    command_config: Path | None = option(None, "File of client settings, as for Kafka's tools.", "FILE")

    @property
    def address(self) -> str | None:
        """What the option says, or the environment if no profile is named."""
        if self.bootstrap is not None or _named_profile(self.profile) is not None:
            return self.bootstrap
        return os.environ.get("SUIRO_BOOTSTRAP_SERVERS") or None


@contextmanager
def connected(connection: Connection) -> Iterator[Client]:
    """Opens a client for the cluster. Errors become one line and exit code 1."""
    with reporting():
        address, settings = connection_settings(connection)
        from suiro.client import Client
        from suiro.errors import DeadlineExceededError

        with Client(address, settings=settings) as client:
            try:
                if sys.stderr.isatty():
                    _reach(client, address)
                yield client
            except DeadlineExceededError as error:
                if address is not DEFAULT_BOOTSTRAP:
                    raise
                raise DeadlineExceededError(
                    f"{error} This is the default address; --bootstrap-servers HOST:PORT names another"
                ) from error


def _reach(client: Client, address: str) -> None:
    """Says what it waits for if no broker answers soon. It gives up after socket.connection.setup.timeout.ms."""
    word = threading.Timer(WORD_AFTER_S, note, (f"waiting for an answer of {address}",))
    word.start()
    try:
        client.brokers()
    finally:
        word.cancel()


def connection_settings(connection: Connection) -> tuple[str, dict[str, str]]:
    """Returns the address of the cluster and the settings of the client. Raises `ConfigError`."""
    settings = profile_of(connection)
    if connection.command_config is not None:
        from suiro.config import read_properties

        settings |= read_properties(connection.command_config)
    if connection.address is not None:
        settings["bootstrap.servers"] = connection.address
    address = settings.pop("bootstrap.servers", DEFAULT_BOOTSTRAP)
    settings.setdefault("default.api.timeout.ms", str(API_TIMEOUT_MS))
    return address, {key: settings[key] for key in settings if key not in _OWN}


def profile_of(connection: Connection) -> dict[str, str]:
    """Returns the settings of the named profile, or of the default one if nothing else names the cluster. Raises
    `ConfigError`."""
    named = _named_profile(connection.profile)
    return {} if named is None and connection.address is not None else settings_of(named)


def _named_profile(name: str | None) -> str | None:
    return name or os.environ.get("SUIRO_PROFILE") or None


def settings_of(name: str | None) -> dict[str, str]:
    """Returns the settings of a profile. The default profile may be missing. Raises `ConfigError`."""
    from suiro.errors import ConfigError

    name = _named_profile(name)
    # `Path.expanduser` raises for a user without a home.
    path = Path(os.path.expanduser(os.environ.get("XDG_CONFIG_HOME") or "~/.config")) / "suiro" / "profiles.toml"
    if not path.exists():
        if name is None:
            return {}
        raise ConfigError(f"there is no profile {name!r}: {path} does not exist")
    import tomllib

    from suiro.foundation.settings import with_environment

    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    table = tables.get(name or "default")
    if table is None and name is None:
        return {}
    if not isinstance(table, dict):
        known = ", ".join(sorted(one for one, table in tables.items() if isinstance(table, dict))) or "none"
        raise ConfigError(f"{path} has no profile {name or 'default'!r}; it has {known}")
    written = dict(_flat(table))
    try:
        settings = {key: with_environment(value, key) for key, value in written.items()}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    secrets = [written[key] for key in SECRETS if key in written]
    if any(not one.startswith("${env:") for one in secrets) and stat.S_IMODE(path.stat().st_mode) & 0o077:
        note(f"{path} contains a password, and other users can read it; run: chmod 600 {path}")
    return settings


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flattens nested tables, because `security.protocol = "SSL"` is a nested table in TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            name = "registry" if f"{prefix}{key}" == "registry.url" else f"{prefix}{key}"
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


def registry_url(registry: str | None, profile: Mapping[str, str]) -> str | None:
    """Returns the address of the registry. Requests to it use the user and the certificates of the profile."""
    url = registry or os.environ.get("SUIRO_REGISTRY") or profile.get("registry")
    if url is not None and not {"registry.user", "registry.ca"}.isdisjoint(profile):
        from suiro.registry import MOCK_SCHEME, RegistryClient, use_registry_client

        if url.startswith(MOCK_SCHEME):
            return url
        user = profile.get("registry.user")
        # The password of the profile is sent only to the registry of the profile.
        is_own = url == profile.get("registry") and user is not None
        auth = (user or "", profile.get("registry.password", "")) if is_own else None
        use_registry_client(url, RegistryClient(url, auth, ca=profile.get("registry.ca")))
    return url


def assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parses texts NAME=VALUE. Another text is a wrong call."""
    from suiro.errors import ConfigError
    from suiro.foundation import settings

    try:
        return {name: value.strip() for name, value in settings.assignments(texts, option).items()}
    except ConfigError as error:
        usage(str(error))


def fail(message: str, by: str = "suiro") -> NoReturn:
    note(message, by)
    raise SystemExit(1)


def usage(message: str) -> NoReturn:
    """Ends a wrong call with exit code 2."""
    note(message)
    raise SystemExit(2)


def note(message: str, by: str = "suiro") -> None:
    """Prints one line for people to standard error."""
    from suiro.console.text import printable

    print(f"{by}: {printable(message)}", file=sys.stderr)


@contextmanager
def reporting(by: str = "suiro") -> Iterator[None]:
    """Turns an error into one line and exit code 1. A reader that has gone away (`| head`) is not an error."""
    from suiro.errors import SuiroError

    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The rest of the buffer would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (SuiroError, OSError) as error:
        fail(str(error), by)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def require_yes(question: str, yes: bool) -> None:
    """Asks on a terminal. Elsewhere `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        usage(f"{question} There is no terminal to ask on; give --yes")
    sys.stdout.flush()  # the question may be about lines that are still in the buffer
    note(f"{question} [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        fail("nothing was done")


def ask_password(of: str = "") -> str:
    """Asks twice on a terminal. Elsewhere it reads the first line of standard input. Raises `UsageError`."""
    from suiro.errors import UsageError

    try:
        if not sys.stdin.isatty():
            password = sys.stdin.readline().rstrip("\r\n")
            password.encode()
        else:
            import getpass

            password = getpass.getpass(f"password{of}: ", stream=sys.stderr)
            if getpass.getpass("again: ", stream=sys.stderr) != password:
                raise UsageError("the two passwords differ; nothing was done")
    except EOFError:
        raise UsageError("no password was given; nothing was done") from None
    except UnicodeError:
        raise UsageError("the password is not UTF-8; nothing was done") from None
    if not password:
        raise UsageError("the password is empty; give it on the standard input")
    return password


class _Formatter(logging.Formatter):
    """A message may quote a record, or the answer of another server. Control characters are escaped, and its further
    lines are indented, so that none of them looks like one of the log."""

    def format(self, record: logging.LogRecord) -> str:
        from suiro.console.text import printable

        return "\n    ".join(map(printable, super().format(record).split("\n")))


def log_to_stderr() -> None:
    """Sends logs to standard error, because the standard output of services is for programs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def say(text: str = "") -> None:
    """Prints one line. Characters that are not printable are escaped."""
    from suiro.console.text import printable

    sys.stdout.write(printable(text) + "\n")


def say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


class JsonText(str):
    """JSON, which `print_json` prints as it is."""


def print_json(value: Any) -> None:
    """Prints one line of ASCII, so that it has no control sequences for a terminal. In objects of objects, a value may
    be `JsonText`."""
    sys.stdout.write(_line(value) + "\n")


def _line(value: Any) -> str:
    if isinstance(value, JsonText):
        # Only strings of JSON have other characters, and there an escape is the same.
        return _NOT_ASCII.sub(lambda found: _encode(found[0])[1:-1], value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_encode(str(name))}: {_line(one)}" for name, one in value.items()) + "}"
    return _encode(_json(value))


def _json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _json(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(item) for item in value]
    return value


Made = Callable[[Any], Any]


def print_table(columns: str, rows: Iterable[Any], **made: Made) -> None:
    """Prints an aligned table on a terminal. Elsewhere columns are separated by tabs.

    `columns` has the titles: "topic=name, in-sync". A title stands for the field of a row, a dataclass or a dict, that
    has its name or the one behind it, or for the place in a row that is a sequence. `made`: fields that are made of a
    row.
    """
    titles, cells = _cells(columns, rows, made)
    if not sys.stdout.isatty():
        sys.stdout.writelines("\t".join(row) + "\n" for row in [titles, *cells])
        return
    titles = [title.upper() for title in titles]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    numeric = [
        bool(cells) and all(row[index].lstrip("-").isdigit() or not row[index] for row in cells)
        for index in range(len(titles))
    ]
    for row in [titles, *cells]:
        aligned = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        sys.stdout.write("  ".join(aligned).rstrip() + "\n")


def print_rows(found: Any, as_json: bool, columns: str, rows: Iterable[Any] | None = None, **made: Made) -> None:
    """Prints `found` as JSON, or as a table: its rows, or those that were made from it."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, found if rows is None else rows, **made)


def print_fields(columns: str, row: Any, **made: Made) -> None:
    """Prints a line for each column."""
    titles, (cells,) = _cells(columns, [row], made)
    for title, cell in zip(titles, cells, strict=True):
        say(f"{title}: {cell}")


def _cells(columns: str, rows: Iterable[Any], made: Mapping[str, Made]) -> tuple[list[str], list[list[str]]]:
    from suiro.console.text import printable

    parts = [column.partition("=") for column in columns.split(", ")]
    names = [name or title.replace("-", "_") for title, _, name in parts]

    def field(row: Any, place: int, name: str) -> Any:
        if name in made:
            return made[name](row)
        return getattr(row, name) if is_dataclass(row) else row[name if isinstance(row, Mapping) else place]

    return [title for title, _, _ in parts], [
        [printable(_cell(field(row, *one))) for one in enumerate(names)] for row in rows
    ]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | frozenset | set):
        return ",".join(map(str, value))
    return str(value)
