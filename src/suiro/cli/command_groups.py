"""Commands that are declared once, as functions: argparse runs them, and Typer's tree is made of the same declarations.

Importing Typer takes longer than an everyday command may take. So argparse parses these commands, and Typer is loaded
only for `suiro --help`, shell completion and the reference.

A parameter is `Annotated[int, Option("--partitions", ...)]` with a default, or `Annotated[str, Argument(...)]` without
one. Types are str, int, float, bool, Path, these or None, and lists of str.
"""

from __future__ import annotations

import argparse
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

__all__ = ["Argument", "Group", "Option"]


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    metavar: str | None = None
    help: str = ""
    also: tuple[str, ...] = ()  # other spellings
    choices: tuple[str, ...] = ()
    hidden: bool = False  # from people: programs of suiro use it


@dataclass(frozen=True, slots=True)
class Argument:
    metavar: str
    help: str = ""


class Group:
    """`suiro NAME COMMAND`; one whose only command is itself (`suiro NAME`) is added by `itself`."""

    def __init__(self, name: str, help: str) -> None:
        self.name = name
        self.help = help
        self.commands: dict[str, Callable[..., None]] = {}
        self._itself: Callable[..., None] | None = None

    def command(self, function: Callable[..., None]) -> Callable[..., None]:
        """`delete_records` becomes `delete-records`; `list_` is `list`."""
        self.commands[function.__name__.rstrip("_").replace("_", "-")] = function
        return function

    def itself(self, function: Callable[..., None]) -> Callable[..., None]:
        self._itself = function
        return function

    def main(self, arguments: Sequence[str]) -> int:
        """Parses and runs. A wrong call ends with exit code 2 (`SystemExit`), as argparse does it."""
        prog = f"suiro {self.name}"
        if self._itself is not None:
            return _run(_filled(argparse.ArgumentParser(prog=prog, **_LAYOUT), self._itself), arguments)
        parser = argparse.ArgumentParser(prog=prog, description=self.help, **_LAYOUT)
        commands = parser.add_subparsers(metavar="COMMAND", required=True)
        for name, function in self.commands.items():
            # Only the one that is called is filled; all are listed.
            made = commands.add_parser(name, help=_first_line(function), **_LAYOUT)
            if name in arguments:
                _filled(made, function)
        if not arguments:
            parser.print_help()
            return 2
        return _run(parser, arguments)

    def parsers(self) -> dict[str, argparse.ArgumentParser]:
        """By what is typed; for the reference."""
        if self._itself is not None:
            prog = f"suiro {self.name}"
            return {prog: _filled(argparse.ArgumentParser(prog=prog, **_LAYOUT), self._itself)}
        return {
            f"suiro {self.name} {name}": _filled(
                argparse.ArgumentParser(prog=f"suiro {self.name} {name}", **_LAYOUT), function
            )
            for name, function in self.commands.items()
        }

    def add_to(self, app: typer.Typer) -> None:
        """The same commands in Typer's tree."""
        import typer

        if self._itself is not None:
            app.command(self.name)(_for_typer(self._itself))
            return
        group = typer.Typer(name=self.name, no_args_is_help=True, help=self.help)
        for name, function in self.commands.items():
            group.command(name)(_for_typer(function))
        app.add_typer(group)


_LAYOUT: dict[str, Any] = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}


def _first_line(function: Callable[..., None]) -> str:
    return inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _run(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    options = vars(parser.parse_args(arguments))
    options.pop("_function")(**options)
    return 0


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    declared: Option | Argument
    type: Any  # without "or None"; of a list its items'
    is_list: bool
    default: Any


def _parameters(function: Callable[..., None]) -> list[_Parameter]:
    hints = typing.get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        if typing.get_origin(hint) in (types.UnionType, typing.Union):  # an alias, or None
            hint = next(part for part in typing.get_args(hint) if part is not type(None))
        kind, declared = typing.get_args(hint)[:2]
        if typing.get_origin(kind) in (types.UnionType, typing.Union):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        is_list = typing.get_origin(kind) is list
        found.append(
            _Parameter(
                name, declared, typing.get_args(kind)[0] if is_list else kind, is_list, parameter.default
            )
        )
    return found


def _filled(parser: argparse.ArgumentParser, function: Callable[..., None]) -> argparse.ArgumentParser:
    parser.description = inspect.cleandoc(function.__doc__ or "")
    parser.set_defaults(_function=function)
    for one in _parameters(function):
        declared = one.declared
        is_hidden = isinstance(declared, Option) and declared.hidden
        help_text = argparse.SUPPRESS if is_hidden else declared.help.replace("%", "%%")
        if isinstance(declared, Argument):
            is_needed = one.default is inspect.Parameter.empty
            more: dict[str, Any] = {} if is_needed else {"nargs": "?", "default": one.default}
            if one.is_list:
                more["nargs"] = "+" if is_needed else "*"
            parser.add_argument(one.name, metavar=declared.metavar, help=help_text, type=one.type, **more)
        elif one.type is bool:
            parser.add_argument(
                declared.name, *declared.also, dest=one.name, action="store_true", help=help_text
            )
        else:
            parser.add_argument(
                declared.name,
                *declared.also,
                dest=one.name,
                type=one.type,
                default=None if one.default is inspect.Parameter.empty else one.default,
                required=one.default is inspect.Parameter.empty,
                action="append" if one.is_list else "store",
                choices=declared.choices or None,
                metavar=declared.metavar or "|".join(declared.choices) or None,
                help=help_text,
            )
    return parser


def _for_typer(function: Callable[..., None]) -> Callable[..., None]:
    import typer

    signature = inspect.signature(function)
    changed = []
    for one in _parameters(function):
        declared = one.declared
        made: Any
        if isinstance(declared, Argument):
            made = typer.Argument(metavar=declared.metavar, help=declared.help)
        else:
            metavar = declared.metavar or "|".join(declared.choices) or None
            completed = (
                (lambda choices: lambda: list(choices))(declared.choices) if declared.choices else None
            )
            made = typer.Option(
                declared.name,
                *declared.also,
                metavar=metavar,
                help=declared.help,
                autocompletion=completed,
                hidden=declared.hidden,
            )
        kind = list[one.type] if one.is_list else one.type  # type: ignore[name-defined]
        if one.default is None:
            kind = kind | None
        changed.append(signature.parameters[one.name].replace(annotation=typing.Annotated[kind, made]))

    def call(**options: Any) -> None:
        function(**options)

    call.__name__, call.__doc__ = function.__name__, function.__doc__
    call.__signature__ = signature.replace(parameters=changed)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in changed}
    return call
