"""`suiro view`: deploy, compare, shift, roll back and retire versions of views; `suiro view serve` is the host."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import log_to_stderr, reporting
from suiro.cli.view_output import (
    busy,
    done,
    print_history,
    print_json,
    print_status,
    say_lines,
    watch_build,
    watch_steps,
)
from suiro.clock import monotonic_s
from suiro.foundation.settings import assignments

if TYPE_CHECKING:
    from suiro.views import Views

view = Group(
    "view",
    "Views: data derived from the log and served, rebuilt, compared, switched and rolled back.",
)

_View = Annotated[str, Argument(metavar="VIEW", help="The view.")]
_Url = Annotated[
    str | None,
    Option("--url", metavar="URL", env="SUIRO_VIEWS_URL", help="The host, http://127.0.0.1:8085 otherwise."),
]
_Json = Annotated[bool, Option("--json", help="The answer as JSON.")]
_MaxLag = Annotated[
    str | None, Option("--max-lag", metavar="TIME", help="The candidate may lag so much. Default: 10s.")
]
_Timeout = Annotated[
    str,
    Option("--timeout", metavar="TIME", help="Give up after it, on the host too; so does Ctrl-C."),
]
_Old = Annotated[int | None, Option("--old", metavar="N", help="Default: the serving version.")]
_New = Annotated[int | None, Option("--new", metavar="N", help="Default: the candidate.")]

_JournalKey = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        path="file",
        help="The key that signs what is decided, the same for all hosts of a log: lines of at least 32 characters, "
        "the first of which signs. Default: the folder's own.",
    ),
]


_BootstrapServers = Annotated[
    str,
    Option(
        metavar="HOST:PORT",
        env="SUIRO_BOOTSTRAP_SERVERS",
        help="The Kafka whose topics the views are derived from.",
    ),
]
_Data = Annotated[
    Path,
    Option(path="folder", metavar="DIR", help="Stores, checkpoints and logs of the versions."),
]
_Listen = Annotated[str, Option(metavar="HOST:PORT", help="Port 0: a free one, named in the ready line.")]
_Registry = Annotated[
    str | None,
    Option(
        metavar="URL",
        env="SUIRO_SCHEMA_REGISTRY_URL",
        help="The schema registry of serdes.avro, json_schema and protobuf.",
    ),
]
_Postgres = Annotated[
    str | None,
    Option(metavar="DSN", env="SUIRO_VIEWS_POSTGRES", help='The database of views with serve="postgres".'),
]
_ReplicationFactor = Annotated[
    int,
    Option(metavar="N", help="Of the topic _suiro_views, where it is made now. -1: the broker's."),
]
_ClientConfig = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        path="file",
        help="How to reach that Kafka, by the names of Kafka's clients: security.protocol, sasl.mechanism...",
    ),
]
_AuthFile = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Who may call: lines of name:password, or name:HASH as `suiro registry --hash-password` prints it, "
        "below [viewer], [operator] or [admin]. Needed beyond 127.0.0.1, because a deploy runs code.",
    ),
]
_TlsCertificate = Annotated[Path | None, Option(metavar="FILE", help="PEM, with its chain: serve https.")]
_ReadCpus = Annotated[
    int,
    Option(
        metavar="N",
        min=0,
        help="CPUs that the host keeps to, for its answers; pipelines, followers, comparisons run on the others.",
    ),
]
_JavaMemory = Annotated[
    str,
    Option(metavar="SIZE", help="Of the JVM that the versions share: 2g, 800m. Java takes it as needed."),
]


@view.command
def serve(
    bootstrap_servers: _BootstrapServers = "127.0.0.1:9092",
    data: _Data = Path("views"),
    listen: _Listen = "127.0.0.1:8085",
    registry: _Registry = None,
    postgres: _Postgres = None,
    replication_factor: _ReplicationFactor = -1,
    client_config: _ClientConfig = None,
    auth_file: _AuthFile = None,
    tls_certificate: _TlsCertificate = None,
    tls_key: Annotated[Path | None, Option(metavar="FILE", help="PEM.")] = None,
    journal_key: _JournalKey = None,
    read_cpus: _ReadCpus = 0,
    java_memory: _JavaMemory = "2g",
    while_stdin_is_open: Annotated[bool, Option("--while-stdin-is-open", hidden=True)] = False,
) -> None:
    """Run the host of views until SIGTERM or SIGINT; one JSON line says where it answers. Started again, it goes on."""
    from suiro.config import read_properties
    from suiro.foundation.settings import parse_address
    from suiro.views import HostConfig, Listen
    from suiro.views import serve as serve_host

    log_to_stderr()
    with reporting("suiro view"):
        host, port = parse_address(listen)
        why = serve_host(
            HostConfig(
                bootstrap_servers=bootstrap_servers,
                data=data.absolute(),
                client_settings={} if client_config is None else read_properties(client_config),
                schema_registry_url=registry,
                postgres=postgres,
                replication_factor=replication_factor,
                journal_key=journal_key,
                java_memory=java_memory,
            ),
            Listen(
                host=host,
                port=port,
                users=auth_file,
                tls_certificate=tls_certificate,
                tls_key=tls_key,
                read_cpus=read_cpus,
            ),
            while_stdin_is_open=while_stdin_is_open,
        )
    if why is not None:
        print(f"suiro view serve: {why}", file=sys.stderr)
        sys.exit(1)


@view.command
def adopt(
    bootstrap_servers: Annotated[
        str,
        Option(metavar="HOST:PORT", env="SUIRO_BOOTSTRAP_SERVERS", help="As of `suiro view serve`."),
    ] = "127.0.0.1:9092",
    data: Annotated[Path, Option(path="folder", metavar="DIR", help="As of `suiro view serve`.")] = Path(
        "views"
    ),
    client_config: Annotated[
        Path | None, Option(metavar="FILE", path="file", help="As of `suiro view serve`.")
    ] = None,
    journal_key: _JournalKey = None,
    unsigned: Annotated[
        bool,
        Option(
            "--unsigned",
            help="Also what no key of this host has signed, as it stands in the topic: of a release without "
            "signatures, of a lost key, of a topic that was copied.",
        ),
    ] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Show what the topic _suiro_views says, and sign it with the key of this host, which must not run.

    Once signed it is believed: the code of these versions will run here. So look at their hashes, and at names.
    """
    from suiro.config import read_properties
    from suiro.errors import UsageError
    from suiro.views import Adoption, HostConfig

    with reporting("suiro view"):
        config = HostConfig(
            bootstrap_servers=bootstrap_servers,
            data=data.absolute(),
            client_settings={} if client_config is None else read_properties(client_config),
            journal_key=journal_key,
        )
        with Adoption(config, unsigned=unsigned) as adoption:
            for line in adoption.lines():
                print(line)
            if not yes:
                if not sys.stdin.isatty():
                    raise UsageError("signing this lets the code above run; say --yes")
                if not _confirmed("Sign this? The code above will run on the host"):
                    sys.exit(1)
            adoption.sign()
            print("signed; start the host: suiro view serve")


@view.command
def deploy(
    app: Annotated[str, Argument(metavar="APP.PY:FUNCTION", help="The file, and the function with @view.")],
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A setting of the version's pipeline, `kafka.*` too."),
    ] = None,
    registry: Annotated[
        str | None, Option(metavar="URL", help="The version's schema registry. Default: the host's.")
    ] = None,
    throttle: Annotated[
        int | None, Option(metavar="N", help="Records a second that building it may read.")
    ] = None,
    wait: Annotated[bool, Option(help="Show how it is built, until it is ready or failed.")] = True,
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Build a version of a view from offset 0: the first, or the next one beside the one that serves."""
    with _host(url) as views:
        settings = assignments(set_ or (), "--set")
        made = views.deploy(app, settings=settings, registry=registry, throttle=throttle)
        name, number = made["view"], made["deployed"]
        if wait:
            made = watch_build(views, name, number, quiet=as_json) | {"deployed": number}
        if as_json:
            print_json(made)
            return
        position = made["position"]
        print(f"{name} v{number} {'is being built' if not wait else 'is ready'}; the view is {position}")


@view.command
def status(
    name: Annotated[str | None, Argument(metavar="[VIEW]", help="One view only.")] = None,
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """How views stand: versions, who is answered by which, lag, progress, errors."""
    with _host(url) as views:
        found = views.views() if name is None else [views.status(name)]
    if as_json:
        print_json(found if name is None else found[0])
        return
    if not found:
        print("there is no view yet; suiro view deploy APP.PY:FUNCTION")
    for one in found:
        print_status(one)


@view.command
def compare(
    name: _View,
    old: _Old = None,
    new: _New = None,
    tolerance: Annotated[
        list[str] | None,
        Option("--tolerance", metavar="COLUMN=SIZE", help="Differences up to this are none: delay=0.01."),
    ] = None,
    ignore: Annotated[
        list[str] | None, Option("--ignore", metavar="COLUMN", help="A column that may differ.")
    ] = None,
    timeout: _Timeout = "1h",
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Compare two versions, row by row, at the same offsets. The result is kept, with the offsets."""
    with _host(url) as views:
        timeout_ms = _timeout_ms(timeout)
        tolerances = assignments(tolerance or (), "--tolerance")
        with busy("comparing", quiet=as_json):
            found = views.compare(
                name, old=old, new=new, tolerances=tolerances, ignored=ignore or (), timeout_ms=timeout_ms
            )
    if as_json:
        print_json(found)
    else:
        say_lines(found["text"])


@view.command
def explain(
    name: _View,
    key: Annotated[
        list[str] | None,
        Argument(
            metavar="[KEY...]",
            help="The key's parts: UA 2013-07-04. None: examples of each group of the last comparison.",
        ),
    ] = None,
    old: _Old = None,
    new: _New = None,
    full: Annotated[bool, Option("--full", help="Every step, not only where the versions part.")] = False,
    timeout: _Timeout = "1h",
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Why a row differs: the input records that made it, and where the two versions part ways."""
    with _host(url) as views, busy("replaying", quiet=as_json):
        timeout_ms = _timeout_ms(timeout)
        found = views.explain(
            name, *([key] if key else []), old=old, new=new, full=full, timeout_ms=timeout_ms
        )
    if as_json:
        print_json(found)
    else:
        say_lines(found["text"])


@view.command
def shift(
    name: _View,
    percent: Annotated[
        float | None, Argument(metavar="[PERCENT]", help="Of the callers, on the candidate.")
    ] = None,
    steps: Annotated[
        str | None, Option("--steps", metavar="P,P,...", help="One after another: 1,10,50,100.")
    ] = None,
    hold: Annotated[str, Option("--hold", metavar="TIME", help="How long each step is held.")] = "0s",
    guard: Annotated[
        list[str] | None,
        Option(
            "--guard",
            metavar="NAME=LIMIT",
            help="errors=0.01, p99=50ms, difference=0.2, lag=10s: beyond it all callers go back by themselves.",
        ),
    ] = None,
    max_lag: _MaxLag = None,
    wait: Annotated[bool, Option(help="Of steps: show them until the last one is done.")] = True,
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Move readers to the candidate, a share of the callers at a time."""
    from suiro.errors import UsageError
    from suiro.streams.durations import milliseconds
    from suiro.views import guards_of, steps_of

    with _host(url) as views:
        if (percent is None) == (steps is None):
            raise UsageError("give a percentage, or --steps")
        percents = [percent] if percent is not None else [step / 100 for step in steps_of(steps or "")]
        guards = guards_of(guard or [])
        hold_ms = milliseconds(hold, what="--hold")
        found = views.shift(
            name,
            *[one for one in percents if one is not None],
            hold_ms=hold_ms,
            guards={
                field: value
                for field in ("errors", "p99_ms", "difference", "lag_ms")
                if (value := getattr(guards, field)) is not None
            },
            max_lag_ms=None if max_lag is None else milliseconds(max_lag, what="--max-lag"),
        )
        if wait and found["routing"]["guide"] is not None:
            found = watch_steps(views, name, found, quiet=as_json)
    done(found, as_json)
    if found["position"] == "rolled back":
        sys.exit(1)


@view.command
def rollback(name: _View, url: _Url = None, as_json: _Json = False) -> None:
    """All callers are answered by the serving version again, at once: it was fed all the time."""
    with _host(url) as views:
        started = monotonic_s()
        found = views.rollback(name)
        took = monotonic_s() - started
    done(found, as_json, f" ({took * 1000:.0f} ms)")


@view.command
def forward(name: _View, max_lag: _MaxLag = None, url: _Url = None, as_json: _Json = False) -> None:
    """Back to the share that was there before the rollback."""
    from suiro.streams.durations import milliseconds

    with _host(url) as views:
        largest = None if max_lag is None else milliseconds(max_lag, what="--max-lag")
        found = views.forward(name, max_lag_ms=largest)
    done(found, as_json)


@view.command
def retire(
    name: _View,
    version: Annotated[int, Argument(metavar="VERSION", help="Its number.")],
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    last: Annotated[
        bool, Option("--last", help="Though it is the only one, and nothing is served then.")
    ] = False,
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Stop a version, and delete its topics and its store. It cannot be undone, and asks."""
    from suiro.errors import UsageError

    with _host(url) as views:
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(f"retiring version {version} of {name} cannot be undone; say --yes")
            asked = f"Delete version {version} of {name}: its topics and its store? It cannot be undone"
            if not _confirmed(asked):
                sys.exit(1)
        found = views.retire(name, version, yes=True, last=last)
    done(found, as_json)


@view.command
def throttle(
    name: _View,
    records: Annotated[
        str,
        Argument(
            metavar="N", help="Records a second that building a version may read; 0: pause; off: no limit."
        ),
    ],
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Limit what building a version takes from the one that serves."""
    from suiro.errors import UsageError

    with _host(url) as views:
        if records != "off" and not records.isdecimal():
            raise UsageError(f"{records!r}: expected records a second, or off")
        found = views.throttle(name, None if records == "off" else int(records))
    done(found, as_json)


@view.command
def history(name: _View, url: _Url = None, as_json: _Json = False) -> None:
    """The changes of a view, the last 1,000: when, who, what. They are in the log, in the topic _suiro_views."""
    with _host(url) as views:
        found = views.history(name)
    if as_json:
        print_json(found)
        return
    print_history(found)


@view.command
def topic(
    name: _View,
    caller: Annotated[
        str | None,
        Option(metavar="NAME", help="Who asks; while readers are shifted, some have another version."),
    ] = None,
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """The output topic of the version that serves: the view's name is the alias of its versions' topics."""
    from suiro.views import Views

    with reporting("suiro view"), Views(url, caller=caller) as views:
        found = views.topic(name)
    if as_json:
        print_json(found)
    else:
        print(found["topic"])


@view.command
def consumers(
    name: _View,
    version: Annotated[int, Argument(metavar="VERSION", help="Whose output topic they read from then on.")],
    group: Annotated[str, Option("--group", metavar="GROUP", help="The consumer group; it must be stopped.")],
    url: _Url = None,
    as_json: _Json = False,
) -> None:
    """Move a consumer group from one version's output topic to another's, at the matching offsets."""
    with _host(url) as views:
        found = views.move_consumers(name, group, version)
    if as_json:
        print_json(found)
    else:
        print(f"group {group} goes on in version {version}: {json.dumps(found['moved'])}")


# -- inside ----------------------------------------------------------------------------------------------------


@contextmanager
def _host(url: str | None) -> Iterator[Views]:
    from suiro.views import Views

    with reporting("suiro view"), Views(url) as views:
        yield views


def _confirmed(question: str) -> bool:
    print(f"{question} [y/N]: ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _timeout_ms(text: str) -> int:
    from suiro.errors import UsageError
    from suiro.streams.durations import milliseconds

    found = milliseconds(text, what="--timeout")
    if not found:
        raise UsageError(f"--timeout {text}: give more than 0")
    return found
