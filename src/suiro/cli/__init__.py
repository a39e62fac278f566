"""The command line `suiro`: one module a command group, imported when its command is called.

`suiro node`, `suiro capture` and `suiro registry` do not go through Typer: importing that takes longer than a node
needs to start. An everyday command loads the module of its own group and no other.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

from suiro import descriptors

# The commands that run until they are told to stop, and then exit with 0. The others do one thing and end: SIGTERM
# kills them, so that the caller learns that the thing was not done.
_SERVICES = (
    ("node",),
    ("registry",),
    ("capture", "postgres"),
    ("connect", "run"),
    ("console",),
    ("kafka", "up"),
    ("run",),
    ("view", "serve"),
)

_EVERYDAY = frozenset(
    (
        "acl",
        "app",
        "cluster",
        "console",
        "dead-letter",
        "group",
        "kafka",
        "log",
        "quota",
        "schema",
        "topic",
        "user",
    )
)

# The others, by the extra that has what they need.
_EXTRAS = {
    **{name: name for name in ("capture", "connect", "demo", "registry")},
    **dict.fromkeys(("prepare", "run", "spark", "view"), "spark"),
}


def main() -> None:
    """The entry point `suiro`."""
    try:
        _main()
    except ImportError as error:
        from suiro.errors import MissingExtraError
        from suiro.extras import explained

        said = explained(error) if isinstance(error, ModuleNotFoundError) else error
        if not isinstance(said, MissingExtraError):
            raise
        print(f"suiro: {said}", file=sys.stderr)
        sys.exit(1)


def _main() -> None:
    if any(tuple(sys.argv[1 : 1 + len(names)]) == names for names in _SERVICES):
        # Before anything else is imported, which may take a second. Each service has handlers of its own once there
        # is something to stop; they take the place of these.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _exit)
        # Also before: the shares of files and connections are made of it as their modules are imported.
        descriptors.raise_limit()
    command = "".join(sys.argv[1:2])
    if command == "node":
        from suiro.cli.node import main as node_main

        sys.exit(node_main(sys.argv[2:]))
    is_without_typer = command in ("capture", "registry")
    if command in _EXTRAS and not (is_without_typer and {"-h", "--help"} & set(sys.argv[2:])):
        from suiro.extras import require

        require(_EXTRAS[command])
    if command == "capture":
        from suiro.cli.capture import main as capture_main

        sys.exit(capture_main(sys.argv[2:]))
    if command == "registry":
        from suiro.cli.registry import main as registry_main

        sys.exit(registry_main(sys.argv[2:]))
    if command in _EVERYDAY and "_SUIRO_COMPLETE" not in os.environ:
        # kio looks for Hypothesis, and importing that where tests are installed would take longer than the command.
        sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
        group = command.replace("-", "_")
        module = {"app": "applications"}.get(group, group)  # `suiro.cli.app` is the tree of all commands
        sys.exit(getattr(import_module(f"suiro.cli.{module}"), group).main(sys.argv[2:]))
    if command not in _EXTRAS and "_SUIRO_COMPLETE" not in os.environ:
        from suiro.extras import is_installed

        if not is_installed("typer"):
            from suiro.cli.overview import main as overview_main

            sys.exit(overview_main(sys.argv[1:]))
    from suiro.cli.app import app

    app(prog_name="suiro")


def _exit(*_: object) -> None:
    sys.exit(0)
