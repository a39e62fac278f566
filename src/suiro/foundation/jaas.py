"""JAAS lines as Kafka's `sasl.jaas.config` has them: `module flag option=value option="value";`, one or several.

Read by the rules of Java's StreamTokenizer as Kafka sets it up: blanks separate, `;` and `=` stand alone, `"` and `'`
quote (with `\\` escapes), and `/` begins a comment. Nothing of a line is ever shown in an error: it holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from suiro.errors import ConfigError

FLAGS = ("required", "requisite", "sufficient", "optional")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_TOKEN = re.compile(
    r"""[\0-\x20]+ | /\*.*?(?:\*/|\Z) | /[^\n]*  # blanks and comments
    | (?P<sign>[;=])
    | (?P<quote>["'])(?P<quoted>(?:\\.|\\\Z|(?!(?P=quote))[^\\\r\n])*)(?P=quote)?  # the end of a line ends it, too
    | (?P<word>[^\0-\x20;=/"']+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<char>.))", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoginModule:
    """One entry; `name` is a Java class."""

    name: str
    options: Mapping[str, str]


def parse_jaas(text: str, *, source: str) -> tuple[LoginModule, ...]:
    """Every entry of the line. Raises `ConfigError`, which names `source` and what is wrong with the form."""
    tokens = list(_tokens(text))
    modules = []
    position = 0

    def take() -> tuple[str, bool] | None:
        nonlocal position
        position += 1
        return tokens[position - 1] if position <= len(tokens) else None

    while position < len(tokens):
        name, flag = take(), take()
        if name is None or not name[1]:
            raise ConfigError(f"{source}: an entry begins with the name of a login module")
        if flag is None or flag[0].lower() not in FLAGS:
            raise ConfigError(f"{source}: after the login module comes one of {', '.join(FLAGS)}")
        options: dict[str, str] = {}
        while (key := take()) != (";", False):
            if key is None:
                raise ConfigError(f"{source}: the entry of {name[0]} does not end with a semicolon")
            equals, value = take(), take()
            if not key[1] or equals != ("=", False) or value is None or not value[1]:
                raise ConfigError(f"{source}: an option of {name[0]} is not of the form name=value")
            options[key[0]] = value[0]
        modules.append(LoginModule(name=name[0], options=options))
    if not modules:
        raise ConfigError(f"{source}: there is no login module in it")
    return tuple(modules)


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a word or a quoted string; otherwise it is `;` or `=`)."""
    for found in _TOKEN.finditer(text):
        if found["sign"]:
            yield found["sign"], False
        elif found["quote"]:
            yield _ESCAPE.sub(_unescaped, found["quoted"]), True
        elif found["word"]:
            yield found["word"], True


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found["octal"], 8)) if found["octal"] else _ESCAPES.get(found["char"], found["char"])
