"""`suiro --help`: every command with its summary, without importing the commands."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import suiro
from suiro.cli.commands import COMMANDS
from suiro.cli.completion import SHELLS, Install, Show


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code. An unknown command ends with 2 (`SystemExit`)."""
    parser = argparse.ArgumentParser(
        prog="suiro",
        description="Event streaming in Python: a log that speaks the Kafka protocol, and exactly-once Spark "
        "pipelines.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=suiro.__version__, help="Print the version.")
    shell: dict[str, Any] = {"nargs": "?", "choices": SHELLS, "metavar": "SHELL"}
    parser.add_argument(
        "--install-completion", action=Install, help="Install completion for bash, zsh or fish.", **shell
    )
    parser.add_argument("--show-completion", action=Show, help="Print the completion script.", **shell)
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, line in COMMANDS.items():
        commands.add_parser(name, help=line.replace("%", "%%"), add_help=False)
    parser.parse_args(arguments)
    parser.print_help()
    return 2
