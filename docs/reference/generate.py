"""Writes the pages of the reference that are made from the code: `make reference`. A test keeps them current."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from suiro.broker.apis import APIS
from suiro.broker.metrics.families import FAMILIES
from suiro.broker.settings.kafka_settings import ALTERABLE
from suiro.cli.app import app
from suiro.cli.capture import capture_parser
from suiro.cli.node import _parser as node_parser
from suiro.cli.registry import registry_parser
from suiro.config import NodeSettings
from suiro.connect.postgres.encoding import types
from suiro.spark import connector
from suiro.spark.metrics import HELP as QUERY_HELP
from suiro.streams_spark.condition import CONDITIONS
from suiro.streams_spark.condition import TABLE as CONDITION_OF
from suiro.views.control.lifecycle import TABLE
from suiro.views.state import POSITIONS

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]  # `tools` and this folder are no part of what is installed

from python_pages import pages as python_pages  # noqa: E402

from tools import licences  # noqa: E402


def settings() -> str:
    lines = [
        "# Settings of the node",
        "",
        "Given with `--set NAME=VALUE`, in a file with `--config`, or as `settings=` in Python. Names are Kafka's. An",
        "unknown name is an error, and so is a setting of Kafka that the node does not have.",
        "",
        "What is said of listeners may be said of one, `listener.name.inside.ssl.keystore.location`, or of one of its",
        "SASL mechanisms, `listener.name.inside.plain.sasl.jaas.config` ([guide](../guides/security.md)).",
        "",
        "| setting | default | for a topic | meaning |",
        "|---|---|---|---|",
    ]
    for field in dataclasses.fields(NodeSettings):
        if "doc" not in field.metadata:
            continue
        default = str(field.default).lower() if isinstance(field.default, bool) else field.default
        topic = f"`{field.metadata['topic']}`" if field.metadata.get("topic") else ""
        lines.append(f"| `{field.name.replace('_', '.')}` | {default} | {topic} | {field.metadata['doc']} |")
    lines += [
        "",
        "## Settings of Kafka that only admin clients give",
        "",
        "Apache Kafka lets admin clients alter these while a broker runs. The node takes them in the same way",
        "(AlterConfigs and IncrementalAlterConfigs), keeps them, shows them with their source, and logs that they have",
        "no effect. Where another value would promise what the node does not do, it is refused.",
        "",
        "| setting | Kafka's default | meaning |",
        "|---|---|---|",
    ]
    for name, setting in sorted(ALTERABLE.items()):
        lines.append(f"| `{name}` | {setting.default or ''} | {setting.doc} |")
    return "\n".join(lines) + "\n"


def apis() -> str:
    lines = [
        "# What the node answers",
        "",
        "Kafka APIs and their versions, as the node tells clients in ApiVersions. Whatever is not here is refused.",
        "",
        "They are those of Apache Kafka 4.3, but for share groups, delegation tokens, Streams groups, client telemetry",
        "and what brokers say among themselves.",
        "",
        "| key | API | versions | notes |",
        "|---|---|---|---|",
    ]
    for api in sorted(APIS.values(), key=lambda api: api.key):
        name = "".join(part.capitalize() for part in api.name.split("_"))
        versions = f"{api.min_version} to {api.max_version}"
        lines.append(f"| {api.key} | {name} | {versions} | {_first_sentence(api.name, name)} |")
    return "\n".join(lines) + "\n"


def _first_sentence(module: str, name: str) -> str:
    """What the handler says of itself, without its name."""
    said = import_module(f"suiro.broker.handlers.{module}").__doc__ or ""
    sentence = " ".join(said.split("\n\n")[0].split()).removeprefix(name).lstrip(" :.,").split(". ")[0]
    return sentence[0].upper() + sentence[1:].rstrip(".") + "."


STAGES = (
    (
        "network",
        (
            "max.connections",
            "max.connections.per.ip",
            "max.connection.creation.rate",
            "socket.request.max.bytes",
        ),
        ("connection_count", "connection_refused_total"),
        "The next client waits outside, or is closed; too large a request closes its connection.",
    ),
    (
        "login",
        (
            "max.unauthenticated.connections",
            "connection.authentication.timeout.ms",
            "queued.max.unauthenticated.bytes",
        ),
        ("unauthenticatedconnections",),
        "The oldest of the address that has the most, the one that takes too long, or holds the most, is closed.",
    ),
    (
        "request queue",
        ("queued.max.request.bytes", "queued.max.requests"),
        ("requestqueuesize", "memorypoolused", "requestqueuetimems", "stalledconnectionsclosed_total"),
        "Nothing more is read from who holds nothing yet; TCP slows the clients down. After 10 s of that the largest "
        "requests that are not whole end with their connections.",
    ),
    (
        "handlers",
        (),
        ("requesthandleravgidle_percent", "localtimems"),
        "One handler at a time, one request of a connection at a time.",
    ),
    (
        "purgatory",
        ("max.connections", "fetch.max.wait.ms"),
        ("purgatorysize", "remotetimems"),
        "At most one request of each connection waits here.",
    ),
    (
        "response queue",
        ("queued.max.response.bytes",),
        ("responsequeuesize", "responsebytes", "responsesendtimems", "slowconnectionsclosed_total"),
        "The connection that has taken nothing for the longest is closed.",
    ),
)
"""(stage, settings that limit it, ends of the metrics' names, what happens when it is full)"""

METRICS = """# Metrics

A node that is started with `--metrics HOST:PORT` (the setting `metrics.listen`) has them at `/metrics`, in Prometheus'
text format, for everybody who can reach that address: bind it where only Prometheus is. Where Apache Kafka has the
metric, it has Kafka's name as the JMX exporter's sample rules write it; names that begin with `suiro_` are our own.

```
suiro node --metrics 127.0.0.1:9404
```

A histogram has `_count`, `_sum` and the quantiles 0.5 to 0.999 of the last two and a half to five minutes, each within
3 % of the truth. The empty topic is the sum over all topics, those that were deleted included.

## The way of a request

```text
read -> request queue -> handler -> purgatory -> response queue -> sent
```

Requests of one connection are handled one at a time, in order. Each stage has a limit:

| stage | limited by | seen by | when it is full |
|---|---|---|---|
"""


QUERY_METRICS = """
## Of a query

What runs on Spark is asked in its driver: `suiro run --metrics HOST:PORT`, or `suiro.spark.serve_metrics` in a program
of your own. Every metric has the label `query`; those of transactions `transactional_id` too, and the lag `topic` and
`partition`.

```
suiro run delays.py --metrics 127.0.0.1:9405
```

| metric | kind | meaning |
|---|---|---|
"""


def metrics() -> str:
    known = {field.name.replace("_", ".") for field in dataclasses.fields(NodeSettings)}
    lines = [METRICS.rstrip("\n")]
    for stage, limits, ends, full in STAGES:
        assert set(limits) <= known, f"{stage}: no settings {set(limits) - known}"
        names = [next(name for name in FAMILIES if name.endswith(f"_{end}")) for end in ends]
        lines.append(f"| {stage} | {_code(limits) or 'its nature'} | {_code(names)} | {full} |")
    lines += ["", "## All of them", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        kind = "summary" if family.kind == "histogram" else family.kind
        lines.append(f"| `{family.name}` | {kind} | {_code(family.labels)} | {family.doc} |")
    lines += [QUERY_METRICS.rstrip("\n")]
    for name, (kind, text) in QUERY_HELP.items():
        lines.append(f"| `suiro_query_{name}` | {kind} | {text} |")
    return "\n".join(lines) + "\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


PARSERS = {"node": node_parser, "registry": registry_parser, "capture": capture_parser}  # those without Typer
EXAMPLES = {
    "node": "suiro node --listen 127.0.0.1:9092 --data ./log --set auto.create.topics.enable=false",
    "registry": "suiro registry --bootstrap 127.0.0.1:9092 --listen 127.0.0.1:8081",
    "capture postgres": "suiro capture postgres --dsn postgresql:///shop --topic-prefix shop",
    "connect run": "suiro connect run connectors.toml",
    "log import": "suiro log import /kafka/flights-0 /kafka/flights-1 --data ./data --config retention.ms=-1",
    "kafka up": "suiro kafka up --brokers 3 --data ./kafka",
    "kafka handover": "suiro kafka handover --data ./log --to ./kafka --brokers 3",
    "spark adopt": "suiro spark adopt ./checkpoint --application-id flights",
    "run": "suiro run delays.py --application-id delays --bootstrap-servers 127.0.0.1:9092",
    "demo": "suiro demo --plain",
    "view serve": "suiro view serve --bootstrap-servers 127.0.0.1:9092 --data ./views",
    "view deploy": "suiro view deploy delays.py:carrier_delays",
    "view shift": "suiro view shift carrier_delays --steps 1,10,50,100 --hold 5m --guard errors=0.01",
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
        lines += [
            f"| {option.replace('|', chr(92) + '|')} | {means.replace('<', chr(92) + '<')} |"
            for option, means in options
        ]
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


VIEWS = """# Views: where they stand, and what leads where

What a command leaves is here or nowhere: the rules refuse everything else, and the message says what can be done. The
[guide](../guides/views.md) tells the story. `caught up`, `fail` and `trip` (a guard) are the host's own.

| position | means |
|---|---|
"""


def views() -> str:
    lines = [VIEWS.rstrip("\n")]
    lines += [f"| {name} | {means} |" for name, means in POSITIONS.items()]
    lines += [
        "",
        f"| command | {' | '.join(f'from {name}' for name in POSITIONS)} |",
        "|---" * (len(POSITIONS) + 1) + "|",
    ]
    for command, row in TABLE.items():
        cells = [" or ".join(row.get(name, ())) for name in POSITIONS]
        lines.append(f"| {command} | {' | '.join(cells)} |")
    lines += [
        "",
        "A version is `building`, then `ready` or `failed`, and at last `retired`. A failed one can be retired from",
        "any position; it was never served.",
    ]
    return "\n".join(lines) + "\n"


def tasks() -> str:
    lines = [
        "# Conditions of a stream task",
        "",
        "Made from `suiro.streams_spark.condition`. After each micro-batch a task of a topology on Spark is in one of",
        "these, by what it saw; those below are the tasks that get its records over a repartition.",
        "",
        "| it saw | it is then | means | those below are told |",
        "|---|---|---|---|",
    ]
    for saw, condition in CONDITION_OF.items():
        meaning = CONDITIONS[condition]
        lines.append(f"| {saw} | {condition.value} | {meaning.of} | {meaning.below} |")
    return "\n".join(lines) + "\n"


MOVING = """# Moving over from Spark's own Kafka connector

A job moves over by its format name, `kafka` to `suiro`, and one more option where it writes: `application.id`. Every
option of the connector is here: supported, taken without effect, or refused with an error that says what to do. Any
other option is an error that names the nearest known one. What suiro adds is in [spark.md](spark.md).

## The checkpoint goes on, too

Stop the old job, then

```text
suiro spark adopt CHECKPOINT --application-id NAME --bootstrap-servers HOST:PORT
```

and start it with format suiro and the same `checkpointLocation`: it reads on at the very offset, and state such as that
of `dropDuplicates` or of an aggregation is still there. The checkpoint is only read by this command. Where the old job
died inside of a micro-batch, run it once more until it stops, or have that micro-batch written again with
`--rewrite-last`: the connector's sink may have written part of it, and nobody can tell which.

## What else is another

- **Output modes.** Append and complete go to the sink as they are. Update does not, since Spark lets no sink in Python
  have it; [the guide](../guides/spark.md#a-running-aggregation) has the way by `foreachBatch`.
- **A batch write says `.mode("append")`.** Spark's default mode (`errorifexists`) is for the connector alone.
  `overwrite` is refused, as by the connector.
- **Columns** are the same in both directions, those of a row's own `topic`, `partition` and `headers` included. One
  that the connector's sink would pass over, such as `offset`, is refused by name; a column `timestamp` becomes the
  record's time.
- **`subscribePattern`** is a regular expression of Python's, whose notation is Java's but for rarities such as
  `\\p{Alpha}`.
"""


def moving() -> str:
    lines = [MOVING, "## Options", "", "| option | of | is | note |", "|---|---|---|---|"]
    lines += _entries(connector.OPTIONS)
    lines += ["", "## Settings of Kafka's Java clients", "", "Names without their `kafka.`.", ""]
    lines += ["| setting | of | is | note |", "|---|---|---|---|", *_entries(connector.SETTINGS)]
    lines += [
        "",
        "Settings of the session, `spark.kafka.consumer.cache.*` and `spark.kafka.producer.cache.*`, have no effect:",
        "there are no Java clients to keep. Delegation tokens (`spark.kafka.clusters.*`) are not used.",
    ]
    return "\n".join(lines) + "\n"


def _entries(table: Iterable[connector.Entry]) -> Iterator[str]:
    """Entries with one note are one row."""
    for (side, fate, note), group in groupby(table, key=lambda entry: (entry.side, entry.fate, entry.note)):
        yield f"| {_code(entry.name for entry in group)} | {side} | {fate} | {note} |"


PAGES = {
    "settings.md": settings,
    "apis.md": apis,
    "commands.md": commands,
    "licences.md": licences.page,
    "metrics.md": metrics,
    "postgres-types.md": postgres_types,
    "tasks.md": tasks,
    "views.md": views,
    "spark-connector.md": moving,
    **python_pages(),
}

if __name__ == "__main__":
    (HERE / "python").mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
