"""`suiro view`: deploy, compare, shift, roll back and retire versions of views; `suiro view serve` is the host."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from suiro.cli.command_groups import Group, argument, option, options
from suiro.cli.everyday import (
    AS_JSON,
    BOOTSTRAP_SERVERS,
    YES,
    log_to_stderr,
    print_json,
    reporting,
    require_yes,
    say,
    say_lines,
    usage,
)
from suiro.cli.services import (
    CLIENT_CONFIG,
    LISTEN,
    SCHEMA_REGISTRY,
    TLS_CERTIFICATE,
    TLS_KEY,
    WHILE_STDIN_IS_OPEN,
    understood,
)
from suiro.cli.view_output import busy, done, print_history, print_status, watch_build, watch_steps
from suiro.clock import monotonic_s
from suiro.foundation.settings import assignments
from suiro.numerals import natural

if TYPE_CHECKING:
    from suiro.views import HostConfig, Views

T = TypeVar("T")

view = Group("view")

_VIEW = argument("VIEW", "Name of the view.")
_MAX_LAG = option(None, "Maximum lag of the candidate. Default: 10s.", "TIME")
_TIMEOUT = option("1h", "Give up after this time, on the host too. Ctrl-C does the same.", "TIME")
_OLD = option(None, "Old version. Default: the serving version.", "N")
_NEW = option(None, "New version. Default: the candidate.", "N")


@options
class _Host:
    """The options of every command that calls the host."""

    url: str | None = option(
        None, "Address of the view host. Default: http://127.0.0.1:8085.", "URL", env="SUIRO_VIEWS_URL"
    )
    as_json: bool = AS_JSON

    @contextmanager
    def views(self, caller: str | None = None) -> Iterator[Views]:
        from suiro.views import Views

        with reporting("suiro view"), Views(self.url, caller=caller) as views, understood(views.url, "a host of views"):
            yield views

    def show(self, found: Any, text: str) -> None:
        """Prints the host's answer as JSON, or the text."""
        if self.as_json:
            print_json(found)
        else:
            say_lines(text.split("\n"))


@options
class _Place:
    """The options that say where a host stores its views."""

    bootstrap_servers: str = BOOTSTRAP_SERVERS
    data: Path = option(Path("views"), "Stores, checkpoints and logs of the versions.", "DIR", path="folder")
    client_config: Path | None = CLIENT_CONFIG
    journal_key: Path | None = option(
        None,
        "The key that signs what is decided, the same for all hosts of a log: lines of at least 32 characters, the "
        "first of which signs. Default: the folder's own.",
        "FILE",
        path="file",
    )

    def config(self, **more: Any) -> HostConfig:
        """Raises `ConfigError`."""
        from suiro.config import read_properties
        from suiro.views import HostConfig

        return HostConfig(
            bootstrap_servers=self.bootstrap_servers,
            data=self.data.absolute(),
            client_settings={} if self.client_config is None else read_properties(self.client_config),
            journal_key=self.journal_key,
            **more,
        )


@view.command
def serve(
    place: _Place,
    listen: str = option("127.0.0.1:8085", LISTEN, "HOST:PORT"),
    registry: str | None = SCHEMA_REGISTRY,
    postgres: str | None = option(None, 'Database of views with serve="postgres".', "DSN", env="SUIRO_VIEWS_POSTGRES"),
    replication_factor: int = option(
        -1, "Replicas of the topic _suiro_views if the host creates it; -1: the broker's default.", "N"
    ),
    auth_file: Path | None = option(
        None,
        "File of users: lines of name:password, or name:HASH from `suiro registry --hash-password`, in sections "
        "[viewer], [operator] and [admin]. Required beyond 127.0.0.1, because a deploy runs code.",
        "FILE",
    ),
    tls_certificate: Path | None = TLS_CERTIFICATE,
    tls_key: Path | None = TLS_KEY,
    read_cpus: int = option(
        0, "CPUs to reserve for answers; pipelines, followers and comparisons run on the others.", "N", min=0
    ),
    java_memory: str = option("2g", "Maximum heap of the JVM that the versions share: 2g, 800m.", "SIZE"),
    while_stdin_is_open: bool = WHILE_STDIN_IS_OPEN,
) -> None:
    """Run the view host until SIGTERM or SIGINT. One JSON line on stdout has its address. A restart continues."""
    from suiro.foundation.settings import parse_address
    from suiro.views import Listen as HostListen
    from suiro.views import serve as serve_host

    log_to_stderr()
    with reporting("suiro view"):
        host, port = parse_address(listen)
        config = place.config(
            schema_registry_url=registry,
            postgres=postgres,
            replication_factor=replication_factor,
            java_memory=java_memory,
        )
        where = HostListen(
            host=host, port=port, users=auth_file, tls_certificate=tls_certificate, tls_key=tls_key, read_cpus=read_cpus
        )
        why = serve_host(config, where, while_stdin_is_open=while_stdin_is_open)
    if why is not None:
        print(f"suiro view serve: {why}", file=sys.stderr)
        sys.exit(1)


@view.command
def adopt(
    place: _Place,
    unsigned: bool = option(
        False,
        "Also adopt records that no key of this host has signed: of a release without signatures, of a lost key, or "
        "of a copied topic.",
    ),
    yes: bool = YES,
) -> None:
    """Show the contents of the topic _suiro_views, and sign them with the key of this host. The host must be stopped.

    The host runs the code of signed versions. Check their names and hashes before you confirm.
    """
    from suiro.views import Adoption

    with reporting("suiro view"), Adoption(place.config(), unsigned=unsigned) as adoption:
        for line in adoption.lines():
            print(line)
        require_yes("Sign this? The code above will run on the host.", yes)
        adoption.sign()
        print("signed; start the host: suiro view serve")


@view.command
def deploy(
    app: str = argument("APP.PY:FUNCTION", "Python file, and its function with @view."),
    set_: list[str] | None = option(
        None, "A setting of the pipeline of the version, also of the client (`kafka.*`); repeatable.", "NAME=VALUE"
    ),
    registry: str | None = option(None, "Schema registry of the version. Default: that of the host.", "URL"),
    throttle: int | None = option(None, "Maximum number of records a second that the build reads.", "N"),
    wait: bool = option(True, "Show the progress until the version is ready or has failed."),
    *,
    host: _Host,
) -> None:
    """Build a version of a view from offset 0: the first version, or a new one next to the serving version."""
    with host.views() as views:
        settings = _read(lambda: assignments(set_ or (), "--set"))
        made = views.deploy(app, settings=settings, registry=registry, throttle=throttle)
        name, number = made["view"], made["deployed"]
        if wait:
            made = watch_build(views, name, number, quiet=host.as_json) | {"deployed": number}
        if host.as_json:
            print_json(made)
            return
        position = made["position"]
        say(f"{name} v{number} {'is being built' if not wait else 'is ready'}; the view is {position}")


@view.command
def status(host: _Host, name: str | None = argument("[VIEW]", "Only this view.", default=None)) -> None:
    """Show the versions of views with their callers, lag, progress and errors."""
    with host.views() as views:
        found = views.views() if name is None else [views.status(name)]
        if host.as_json:
            print_json(found if name is None else found[0])
            return
        if not found:
            print("there is no view yet; create one with suiro view deploy APP.PY:FUNCTION")
        for one in found:
            print_status(one)


@view.command
def compare(
    name: str = _VIEW,
    old: int | None = _OLD,
    new: int | None = _NEW,
    tolerance: list[str] | None = option(
        None, "Ignore differences of a column up to this size: delay=0.01; repeatable.", "COLUMN=SIZE"
    ),
    ignore: list[str] | None = option(None, "Ignore this column; repeatable.", "COLUMN"),
    timeout: str = _TIMEOUT,
    *,
    host: _Host,
) -> None:
    """Compare two versions row by row, at the same offsets. The host stores the result with the offsets."""
    with host.views() as views:
        timeout_ms = _timeout_ms(timeout)
        tolerances = _read(lambda: assignments(tolerance or (), "--tolerance"))
        with busy("comparing", quiet=host.as_json):
            found = views.compare(
                name, old=old, new=new, tolerances=tolerances, ignored=ignore or (), timeout_ms=timeout_ms
            )
        host.show(found, found["text"])


@view.command
def explain(
    name: str = _VIEW,
    key: list[str] | None = argument(
        "[KEY...]",
        "Parts of the key: UA 2013-07-04. Default: examples of each group of the last comparison.",
        default=None,
    ),
    old: int | None = _OLD,
    new: int | None = _NEW,
    full: bool = option(False, "Show every step, not only those in which the versions differ."),
    timeout: str = _TIMEOUT,
    *,
    host: _Host,
) -> None:
    """Explain why a row differs: show its input records, and the step at which the two versions diverge."""
    with host.views() as views:
        timeout_ms = _timeout_ms(timeout)
        with busy("replaying", quiet=host.as_json):
            found = views.explain(name, *([key] if key else []), old=old, new=new, full=full, timeout_ms=timeout_ms)
        host.show(found, found["text"])


@view.command
def shift(
    name: str = _VIEW,
    percent: float | None = argument(
        "[PERCENT]", "Share of the callers to move to the candidate, in percent.", default=None
    ),
    steps: str | None = option(None, "Percentages, one after the other: 1,10,50,100.", "P,P,..."),
    hold: str = option("0s", "Length of each step.", "TIME"),
    guard: list[str] | None = option(
        None,
        "Rollback condition: errors=0.01, p99=50ms, difference=0.2 or lag=10s. If it is violated, the host moves all "
        "callers back. Repeatable.",
        "NAME=LIMIT",
    ),
    max_lag: str | None = _MAX_LAG,
    wait: bool = option(True, "With --steps: show the progress until the last step is done."),
    *,
    host: _Host,
) -> None:
    """Move a share of the callers to the candidate."""
    from suiro.views import guards_of, steps_of

    with host.views() as views:
        if percent is not None and steps is None:
            percents = [percent]
        elif steps is not None and percent is None:
            percents = [step / 100 for step in _read(lambda: steps_of(steps))]
        else:
            usage("give a percentage, or --steps")
        guards = asdict(_read(lambda: guards_of(guard or [])))
        found = views.shift(
            name,
            *percents,
            hold_ms=_ms(hold, "--hold"),
            guards={field: value for field, value in guards.items() if value is not None},
            max_lag_ms=_max_lag_ms(max_lag),
        )
        if wait and found["routing"]["guide"] is not None:
            found = watch_steps(views, name, found, quiet=host.as_json)
        done(found, host.as_json)
        if found["position"] == "rolled back":
            sys.exit(1)


@view.command
def rollback(host: _Host, name: str = _VIEW) -> None:
    """Move all callers back to the serving version, which was kept up to date. This takes milliseconds."""
    with host.views() as views:
        started = monotonic_s()
        found = views.rollback(name)
        took = monotonic_s() - started
        done(found, host.as_json, f" ({took * 1000:.0f} ms)")


@view.command
def forward(name: str = _VIEW, max_lag: str | None = _MAX_LAG, *, host: _Host) -> None:
    """Restore the share from before the rollback."""
    with host.views() as views:
        found = views.forward(name, max_lag_ms=_max_lag_ms(max_lag))
        done(found, host.as_json)


@view.command
def retire(
    name: str = _VIEW,
    version: int = argument("VERSION", "Number of the version."),
    yes: bool = YES,
    last: bool = option(False, "Retire the only version, so that nothing is served."),
    *,
    host: _Host,
) -> None:
    """Stop a version, and delete its topics and its store. This cannot be undone, so the command asks for
    confirmation."""
    with host.views() as views:
        require_yes(f"Delete version {version} of {name}, its topics and its store? It cannot be undone.", yes)
        found = views.retire(name, version, yes=True, last=last)
        done(found, host.as_json)


@view.command
def throttle(
    host: _Host,
    name: str = _VIEW,
    records: str = argument("N", "Records a second that the build reads; 0: pause; off: no limit."),
) -> None:
    """Limit the rate at which a version is built."""
    with host.views() as views:
        rate = natural(records)
        if records != "off" and rate is None:
            usage(f"{records[:80]!r}: expected records a second, or off")
        found = views.throttle(name, rate)
        done(found, host.as_json)


@view.command
def history(host: _Host, name: str = _VIEW) -> None:
    """Show the last 1,000 changes of a view: time, user and command. The topic _suiro_views stores them."""
    with host.views() as views:
        found = views.history(name)
        if host.as_json:
            print_json(found)
            return
        print_history(found)


@view.command
def topic(
    name: str = _VIEW,
    caller: str | None = option(
        None, "Caller for whom to resolve the name; during a shift, callers have different versions.", "NAME"
    ),
    *,
    host: _Host,
) -> None:
    """Print the output topic of the version that serves a caller."""
    with host.views(caller) as views:
        views.status(name)  # a read, as `topic` is, waits for a host that does not answer
        found = views.topic(name)
        host.show(found, found["topic"])


@view.command
def consumers(
    name: str = _VIEW,
    version: int = argument("VERSION", "Version whose output topic the group reads afterwards."),
    group: str = option(..., "Consumer group; it must be stopped.", "GROUP"),
    *,
    host: _Host,
) -> None:
    """Move a consumer group to the output topic of another version, at the equivalent offsets."""
    with host.views() as views:
        found = views.move_consumers(name, group, version)
        host.show(found, f"group {group} continues in version {version}: {json.dumps(found['moved'])}")


def _read(read: Callable[[], T]) -> T:
    """What it reads in the words of the call; words that it refuses are a wrong call."""
    from suiro.errors import UsageError

    try:
        return read()
    except UsageError as error:
        usage(str(error))


def _ms(text: str, option: str) -> int:
    from suiro.streams.durations import milliseconds

    return _read(lambda: milliseconds(text, what=option))


def _max_lag_ms(text: str | None) -> int | None:
    return None if text is None else _ms(text, "--max-lag")


def _timeout_ms(text: str) -> int:
    found = _ms(text, "--timeout")
    if not found:
        usage(f"--timeout {text}: give more than 0")
    return found
