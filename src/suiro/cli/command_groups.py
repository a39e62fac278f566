"""Commands that are declared once, as functions, and parsed by argparse: `suiro GROUP COMMAND`.

The default of a parameter says how it is given: with `partitions: int = option(-1, "...", "N")` by `--partitions N`,
with `name: str = argument("TOPIC")` by a word. Types are str, int, float, bool, Path, these or None, and lists of them.
A bool with the default True has two spellings, `--wait` and `--no-wait`. Options and arguments may be mixed in any
order.

Options of several commands are the fields of a class with `@options`, declared in the same way. A command has a
parameter of that class, and gets an instance.

The module is small because every command imports it.
"""

from __future__ import annotations

import argparse
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NoReturn

from suiro.cli.commands import COMMANDS
from suiro.numerals import number, whole_number

_MODULES = {"app": "applications", "cluster": "topic", "log": "kafka"}  # if it differs from the name of the command


def group_of(command: str) -> Group:
    """Returns the declaration of a command. Needs no extra."""
    name = command.replace("-", "_")
    group: Group = getattr(import_module(f"suiro.cli.{_MODULES.get(name, name)}"), name)
    return group


PathKind = Literal["", "existing file", "file", "folder"]
T = typing.TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Declared:
    """An option, or an argument. The default of one that is needed is `...`."""

    default: Any
    help: str
    metavar: str
    is_argument: bool = False
    name: str = ""
    also: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    hidden: bool = False
    env: str = ""
    min: int | None = None
    path: PathKind = ""


def option(default: Any, help: str = "", metavar: str = "", **more: Any) -> Any:
    """`more`: `name` is derived from the parameter if it is not given, `also` has other spellings, `choices` the words
    that it takes. `hidden`: only programs of suiro use it. `env` is the variable with the value if the option is not
    given. `min` is the least number, `path` the kind of path that is checked."""
    return _Declared(default, help, metavar, **more)


def argument(metavar: str, help: str = "", *, default: Any = ..., path: PathKind = "") -> Any:
    return _Declared(default, help, metavar, is_argument=True, path=path)


@typing.dataclass_transform(frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """Makes a frozen dataclass whose fields are options and arguments."""
    for name in cls.__annotations__:
        declared = getattr(cls, name)
        default = MISSING if declared.default is ... else declared.default
        setattr(cls, name, field(default=default, metadata={"declared": declared}))
    return dataclass(frozen=True, slots=True)(cls)


class Group:
    """`suiro NAME COMMAND`. A group without further commands (`suiro NAME`) is declared by `itself`."""

    def __init__(self, name: str) -> None:
        self.name = name
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
        """Parses the arguments and runs the command. A wrong call ends with exit code 2 (`SystemExit`), as in
        argparse."""
        if self._itself is not None:
            return _run(self._parser(self._itself), self._itself, arguments)
        if arguments and (function := self.commands.get(arguments[0])) is not None:
            return _run(self._parser(function, arguments[0]), function, arguments[1:])
        parser = self._overview()
        if not arguments:
            parser.print_help()
            return 2
        parser.parse_args(arguments)
        return 2

    def parsers(self) -> dict[str, argparse.ArgumentParser]:
        """Returns the parsers by command; "" is the group itself."""
        if self._itself is not None:
            return {"": self._parser(self._itself)}
        return {name: self._parser(function, name) for name, function in self.commands.items()}

    def _overview(self) -> argparse.ArgumentParser:
        parser = Parser(prog=f"suiro {self.name}", description=COMMANDS.get(self.name), **_LAYOUT)
        commands = parser.add_subparsers(metavar="COMMAND", required=True)
        for name, function in self.commands.items():
            commands.add_parser(name, help=_first_line(function).replace("%", "%%"), **_LAYOUT)
        return parser

    def _parser(self, function: Callable[..., None], name: str = "") -> argparse.ArgumentParser:
        parser = Parser(prog=f"suiro {self.name} {name}".strip(), **_LAYOUT)
        parser.description = inspect.cleandoc(function.__doc__ or "")
        for one in sorted(_parameters(function), key=lambda one: not one.declared.is_argument):
            _add(parser, one)
        return parser


class Parser(argparse.ArgumentParser):
    """Escapes what is not printable in errors, which quote file names. Takes `--name=--`, which an older argparse takes
    for the end of options."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if arg_strings != ["--"] or not action.option_strings:
            return super()._get_values(action, arg_strings)
        value = self._get_value(action, "--")
        self._check_value(action, value)
        return value

    def error(self, message: str) -> NoReturn:
        from suiro.console.text import printable

        super().error(printable(message))


_LAYOUT: dict[str, Any] = {"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter}


def _first_line(function: Callable[..., None]) -> str:
    return inspect.cleandoc(function.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _run(parser: argparse.ArgumentParser, function: Callable[..., None], arguments: Sequence[str]) -> int:
    _called(function, vars(parser.parse_intermixed_args(arguments)))
    return 0


def _called(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    """Calls a function with the values of its parameters, including those of dataclasses."""
    hints = typing.get_type_hints(function)
    return function(
        **{
            name: _called(hints[name], values) if is_dataclass(hints[name]) else values[name]
            for name in inspect.signature(function).parameters
        }
    )


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    declared: _Declared
    type: Any  # without "or None"; of a list its items'
    is_list: bool

    @property
    def is_needed(self) -> bool:
        return self.declared.default is ...

    @property
    def reader(self) -> Callable[[str], Any]:
        """Converts a word to a value, and refuses words that do not fit."""
        least, path = self.declared.min, self.declared.path
        convert: Callable[[str], Any] = self.type if path else _CONVERTED.get(self.type, self.type)
        if convert is _text:
            return _text

        def read(text: str) -> Any:
            value = convert(text)
            if least is not None and value < least:
                raise argparse.ArgumentTypeError(f"{text}: give at least {least}")
            if self.type is Path and not text:  # which would be the current directory
                raise argparse.ArgumentTypeError("the path is empty")
            # The methods of `Path` raise if a name is too long, or a folder may not be entered.
            if path == "existing file" and not os.path.exists(text):
                raise argparse.ArgumentTypeError(f"{text} does not exist, or you may not see it")
            if path in ("file", "existing file") and os.path.isdir(text):
                raise argparse.ArgumentTypeError(f"{text} is a directory; give a file")
            if path == "folder" and os.path.isfile(text):
                raise argparse.ArgumentTypeError(f"{text} is a file; give a directory")
            return value

        read.__name__ = self.type.__name__  # argparse names it in errors
        return read


def _text(word: str) -> str:
    """Checks that a word is UTF-8, in which names and values are sent. Paths may be any bytes."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{word!a} is not UTF-8") from None
    return word


_CONVERTED: Mapping[type, Callable[[str], Any]] = {str: _text, int: whole_number, float: number}


def _parameters(function: Callable[..., Any]) -> list[_Parameter]:
    if is_dataclass(function):
        declared = {one.name: one.metadata["declared"] for one in fields(function)}
    else:
        declared = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    hints = typing.get_type_hints(function)
    found: list[_Parameter] = []
    for name, one in declared.items():
        kind = hints[name]
        if is_dataclass(kind):
            found += _parameters(kind)  # type: ignore[arg-type]
            continue
        if typing.get_origin(kind) is types.UnionType:
            kind = next(part for part in typing.get_args(kind) if part is not types.NoneType)
        is_list = typing.get_origin(kind) is list
        found.append(_Parameter(name, one, typing.get_args(kind)[0] if is_list else kind, is_list))
    return found


def _add(parser: argparse.ArgumentParser, one: _Parameter) -> None:
    declared, default = one.declared, None if one.is_needed else one.declared.default
    help_text = declared.help.replace("%", "%%")
    if declared.is_argument:
        nargs = ("+" if one.is_needed else "*") if one.is_list else None if one.is_needed else "?"
        metavar = declared.metavar if one.is_needed else declared.metavar.strip("[].")
        parser.add_argument(one.name, metavar=metavar, help=help_text, type=one.reader, nargs=nargs, default=default)
        return
    names = (declared.name or f"--{one.name.rstrip('_').replace('_', '-')}", *declared.also)
    if declared.hidden:
        help_text = argparse.SUPPRESS
    if one.type is bool:
        action = argparse.BooleanOptionalAction if default else "store_true"
        parser.add_argument(*names, dest=one.name, action=action, default=default, help=help_text)
        return
    if default not in (None, "", -1) and "Default:" not in help_text and not declared.hidden:  # -1: the broker's
        help_text = f"{help_text} Default: {default}.".lstrip()
    if declared.env:
        help_text += f" Also {declared.env}."
        default = os.environ.get(declared.env) or default
    parser.add_argument(
        *names,
        dest=one.name,
        type=one.reader,
        default=default,
        required=one.is_needed and default is None,
        action="append" if one.is_list else "store",
        choices=declared.choices or None,
        metavar=declared.metavar or "|".join(declared.choices) or "VALUE",
        help=help_text,
    )
