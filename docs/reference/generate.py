"""Writes the pages of the reference that are made from the code: `make reference`. A test keeps them current."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from suiro.broker.apis import APIS
from suiro.cli.app import app
from suiro.cli.capture import capture_parser
from suiro.cli.node import _parser as node_parser
from suiro.cli.registry import registry_parser
from suiro.config import NodeSettings
from suiro.connect.postgres import types

HERE = Path(__file__).parent


def settings() -> str:
    lines = [
        "# Settings of the node",
        "",
        "Given with `--set NAME=VALUE`, in a file with `--config`, or as `settings=` in Python. Names are Kafka's. An",
        "unknown name is an error, and so is a setting of Kafka that the node does not have.",
        "",
        "| setting | default | for a topic | meaning |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(NodeSettings):
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        topic = f"`{field.metadata['topic']}`" if field.metadata.get("topic") else ""
        lines.append(f"| `{field.name.replace('_', '.')}` | {default} | {topic} | {field.metadata['doc']} |")
    return "\n".join(lines) + "\n"


def apis() -> str:
    lines = [
        "# What the node answers",
        "",
        "Kafka APIs and their versions, as the node tells clients in ApiVersions. Whatever is not here is refused.",
        "",
        "| key | API | versions |",
        "|---|---|---|",
    ]
    for api in APIS.values():
        name = "".join(part.capitalize() for part in api.name.split("_"))
        lines.append(f"| {api.key} | {name} | {api.min_version} to {api.max_version} |")
    return "\n".join(lines) + "\n"


PARSERS = {"node": node_parser, "registry": registry_parser, "capture": capture_parser}  # those without Typer
EXAMPLES = {
    "node": "suiro node --listen 127.0.0.1:9092 --data ./log --set auto.create.topics.enable=false",
    "registry": "suiro registry --bootstrap 127.0.0.1:9092 --listen 127.0.0.1:8081",
    "capture postgres": "suiro capture postgres --dsn postgresql:///shop --topic-prefix shop",
    "connect run": "suiro connect run connectors.toml",
    "log import": "suiro log import /kafka/flights-0 --data ./log",
    "run": "suiro run delays.py --application-id delays --bootstrap-servers 127.0.0.1:9092",
    "demo": "suiro demo --plain",
}


def commands() -> str:
    """Typer's commands, and those that do without Typer."""
    found: dict[str, tuple[str, list[tuple[str, str]]]] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        if name in PARSERS:
            for full, parser in _parsers(name, PARSERS[name]()):
                found[full] = (parser.description or "", list(_of_argparse(parser)))
            continue
        for inner, one in getattr(command, "commands", {"": command}).items():
            found[f"{name} {inner}".strip()] = (one.help or "", list(_of_typer(one)))
    lines = ["# Commands", "", "`suiro --version` prints the version, `suiro COMMAND --help` what is here."]
    for name in dict.fromkeys([*EXAMPLES, *found]):
        said, options = found[name]
        fence = "```text" if " " in name else "```"  # a test tries those of one word
        lines += ["", f"## suiro {name}", "", fence, EXAMPLES.get(name, f"suiro {name}"), "```", "", said]
        if options:
            lines += ["", "| option | means |", "|---|---|"]
        lines += [f"| {option} | {means.replace('<', chr(92) + '<')} |" for option, means in options]
    return "\n".join(lines) + "\n"


def _parsers(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not inner:
        yield name, parser
    for action in inner:
        for word, one in action.choices.items():
            yield f"{name} {word}", one


def _of_typer(command: Any) -> Iterator[tuple[str, str]]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
            continue
        if not parameter.opts[0].startswith("-"):
            yield f"`{parameter.metavar}`", parameter.help
            continue
        value = "" if parameter.is_flag else f" {parameter.metavar or 'VALUE'}"
        default = f" Default: `{parameter.default}`." if isinstance(parameter.default, str) else ""
        yield f"`{parameter.opts[0]}{value}`", (parameter.help or "") + default


def _of_argparse(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS and action.dest != "help":
            value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
            name = action.option_strings[0] if action.option_strings else ""
            yield f"`{(name + value).strip()}`", action.help or ""


def postgres_types() -> str:
    return f"# Types of Postgres in Avro\n\n{inspect.getdoc(types)}\n"


PAGES = {
    "settings.md": settings,
    "apis.md": apis,
    "commands.md": commands,
    "postgres-types.md": postgres_types,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
