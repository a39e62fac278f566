"""`suiro --help`, without importing the commands; completion of `suiro` in bash, zsh and fish: the scripts, and the
candidates for a word.

A script calls `suiro` with the words so far and the variable _SUIRO_COMPLETE, and gets one candidate a line. If there
is none, the shell completes file names.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import suiro
from suiro.cli.commands import COMMANDS
from suiro.errors import ConfigError
from suiro.foundation.files import home_folder

SCRIPTS = {
    "bash": """\
_suiro() {
    local IFS=$'\\n'
    COMPREPLY=($(_SUIRO_COMPLETE=1 suiro "${COMP_WORDS[@]:1:$COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _suiro suiro
""",
    "zsh": """\
#compdef suiro
_suiro() {
    local -a found
    found=("${(@f)$(_SUIRO_COMPLETE=1 suiro "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _suiro suiro
""",
    "fish": """\
function _suiro
    set -l words (commandline -opc) (commandline -ct)
    set -l found (_SUIRO_COMPLETE=1 suiro $words[2..-1] 2>/dev/null)
    if test -n "$found[1]"
        string join \\n $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete --no-files --command suiro --arguments "(_suiro)"
""",
}
SHELLS = tuple(SCRIPTS)
_OPTIONS = ("--help", "--install-completion", "--show-completion", "--version")


def overview(arguments: Sequence[str]) -> int:
    """Returns the exit code. An unknown command ends with 2 (`SystemExit`)."""
    parser = argparse.ArgumentParser(
        prog="suiro",
        description="Event streaming in Python: a log that speaks the Kafka protocol, and exactly-once Spark "
        "pipelines.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=suiro.__version__, help="Print the version.")
    shell: dict[str, Any] = {"nargs": "?", "const": False, "choices": SHELLS, "metavar": "SHELL"}
    parser.add_argument("--install-completion", help="Install completion for bash, zsh or fish.", **shell)
    parser.add_argument("--show-completion", help="Print the completion script.", **shell)
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, line in COMMANDS.items():
        commands.add_parser(name, help=line.replace("%", "%%"), add_help=False)
    said = parser.parse_args(arguments)
    if said.show_completion is not None:
        print(SCRIPTS[_shell(parser, said.show_completion)], end="")
    elif said.install_completion is not None:
        chosen = _shell(parser, said.install_completion)
        try:
            path = _install(chosen, home_folder())
        except ConfigError as error:
            parser.error(str(error))
        print(f"{chosen} completion is in {path}; it works in the next shell")
    else:
        parser.print_help()
        return 2
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Returns the candidates for the last of `words`, which is the beginning of a word or empty."""
    *before, last = words or [""]
    if not before:
        return _beginning(last, [*COMMANDS, *_OPTIONS])
    command, *before = before
    if command not in COMMANDS:
        return []
    from suiro.cli.command_groups import group_of

    parsers = group_of(command).parsers()
    parser = parsers.get("")
    if parser is None:
        if not before:
            return _beginning(last, [*parsers, "--help"])
        parser, before = parsers.get(before[0]), before[1:]
    return [] if parser is None else _beginning(last, _of_parser(parser, before, last))


def _of_parser(parser: argparse.ArgumentParser, before: Sequence[str], last: str) -> list[str]:
    named = {name: action for action in parser._actions for name in action.option_strings}
    asked = named.get(before[-1]) if before else None
    if asked is not None and asked.nargs != 0 and not isinstance(asked, argparse.BooleanOptionalAction):
        return [str(choice) for choice in asked.choices or ()]
    if last.startswith("-"):
        return [name for name, action in named.items() if action.help != argparse.SUPPRESS]
    return [str(choice) for action in parser._actions if not action.option_strings for choice in action.choices or ()]


def _beginning(last: str, found: Sequence[str]) -> list[str]:
    return [one for one in found if one.startswith(last)]


def _shell(parser: argparse.ArgumentParser, given: str | bool) -> str:
    shell = str(given or Path(os.environ.get("SHELL", "")).name)
    if shell not in SCRIPTS:
        parser.error(f"which shell? Give one of {', '.join(SHELLS)}")
    return shell


def _install(shell: str, home: Path) -> Path:
    """Writes the script and returns its path. Adds a line that reads it to the shell's file, once."""
    places = {
        "bash": (".bash_completions/suiro.sh", ".bashrc", "source '{path}'"),
        "zsh": (".zfunc/_suiro", ".zshrc", "autoload -Uz compinit; compinit; source '{path}'"),
        "fish": (".config/fish/completions/suiro.fish", "", ""),
    }
    place, profile, line = places[shell]
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPTS[shell], encoding="utf-8")
    if profile:
        file, added = home / profile, line.format(path=path).encode()
        said = file.read_bytes() if file.exists() else b""
        if added not in said.splitlines():
            # Appending does not lose the file if the disk is full.
            with file.open("ab") as lines:
                lines.write((b"\n" if said and not said.endswith(b"\n") else b"") + added + b"\n")
    return path
