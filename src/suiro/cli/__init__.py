"""The command line `suiro`: one module for each group of commands, imported when one of its commands is called.

A command imports only the module of its own group, because importing all of them takes longer than starting a node.
"""

from __future__ import annotations

import io
import os
import signal
import sys

from suiro import descriptors

# Commands that run until they are told to stop, and then exit with 0. The others do one thing and end: SIGTERM kills
# them, so that the caller learns that it was not done.
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

# The extra that a command needs, and which of its subcommands if not all: the others only ask a server.
_EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{name: (name, ()) for name in ("capture", "demo", "registry")},
    **dict.fromkeys(("prepare", "run", "spark"), ("spark", ())),
    "connect": ("connect", ("check", "run")),
    "view": ("spark", ("adopt", "deploy", "serve")),
}


def main() -> None:
    """The entry point `suiro`."""
    _open_streams()
    try:
        try:
            _main()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        # The rest of the buffer would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        has_told = isinstance(error.__context__, SystemExit) and error.__context__.code
        if not has_told and not isinstance(error, BrokenPipeError):
            print(f"suiro: {str(error) or type(error).__name__}", file=sys.stderr)
        sys.exit(1)
    except ImportError as error:
        from suiro.errors import MissingExtraError
        from suiro.extras import explained

        said = explained(error) if isinstance(error, ModuleNotFoundError) else error
        if not isinstance(said, MissingExtraError):
            raise
        print(f"suiro: {said}", file=sys.stderr)
        sys.exit(1)


def _main() -> None:
    arguments = sys.argv[1:]
    if "_SUIRO_COMPLETE" in os.environ:
        from suiro.cli.completion import candidates

        print("\n".join(candidates(arguments)))
        return
    is_service = any(tuple(arguments[: len(names)]) == names for names in _SERVICES)
    if is_service and "--hash-password" not in arguments:
        # Before other imports, which may take a second. A service replaces these handlers by its own once there is
        # something to stop.
        undone = "suiro run: stopped before all was processed; run it again to continue"
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: sys.exit(undone if "--until-done" in arguments else 0))
        # Also before imports: modules compute their shares of files and connections from the limit.
        descriptors.raise_limit()
    from suiro.cli.commands import COMMANDS

    command = "".join(arguments[:1])
    extra, needing = _EXTRAS.get(command, ("", ()))
    if extra and (not needing or "".join(arguments[1:2]) in needing) and not {"-h", "--help"} & set(arguments[1:]):
        from suiro.extras import require

        require(extra)
    if command in COMMANDS:
        from suiro.cli.command_groups import group_of

        sys.exit(group_of(command).main(arguments[1:]))
    from suiro.cli.completion import overview

    sys.exit(overview(arguments))


def _open_streams() -> None:
    """Opens /dev/null for each stream that the caller closed. Otherwise the next opened file would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            stream = open(number, mode, encoding="utf-8")  # noqa: SIM115 - open as long as the process
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a locale may have less than Unicode
