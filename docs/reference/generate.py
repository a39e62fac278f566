"""Writes the reference pages that are generated from the code: `make reference`. A test keeps them current."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path

from suiro.broker.apis import APIS, Api
from suiro.broker.metrics.families import FAMILIES
from suiro.broker.settings.kafka_settings import ALTERABLE
from suiro.cli.command_groups import group_of
from suiro.cli.commands import COMMANDS
from suiro.config import NodeSettings
from suiro.connect.control import METRICS as CONNECTOR_METRICS
from suiro.connect.control import STATE_METRIC
from suiro.connect.postgres.encoding import types
from suiro.connect.postgres.status import CaptureStatus
from suiro.spark import connector
from suiro.spark.metrics import HELP as QUERY_HELP
from suiro.spark.metrics import kind_of
from suiro.streams_spark.condition import CONDITIONS
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
        "Set them with `--set NAME=VALUE`, in a file with `--config`, or as `settings=` in Python. Names are Kafka's.",
        "An unknown name is an error, and so is a Kafka setting that the node does not support.",
        "",
        "A setting of listeners can be set for one listener, `listener.name.inside.ssl.keystore.location`, or for one",
        "of its SASL mechanisms, `listener.name.inside.plain.sasl.jaas.config` ([guide](../guides/security.md)).",
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
        "## Kafka settings that only admin clients set",
        "",
        "Admin clients of Apache Kafka can alter these while a broker runs. The node accepts them in the same way",
        "(AlterConfigs and IncrementalAlterConfigs), stores them, shows them with their source, and logs that they",
        "have no effect. It refuses a value that would promise something that the node does not do.",
        "",
        "| setting | Kafka's default | meaning |",
        "|---|---|---|",
    ]
    for name, setting in sorted(ALTERABLE.items()):
        lines.append(f"| `{name}` | {setting.default or ''} | {setting.doc} |")
    return "\n".join(lines) + "\n"


def apis() -> str:
    lines = [
        "# APIs of the node",
        "",
        "The Kafka APIs and versions that the node announces in ApiVersions. It refuses all others.",
        "",
        "They are those of Apache Kafka 4.3, except for share groups, delegation tokens, Streams groups, client",
        "telemetry and requests between brokers.",
        "",
        "| key | API | versions | notes |",
        "|---|---|---|---|",
    ]
    for api in sorted(APIS.values(), key=lambda api: api.key):
        name = "".join(part.capitalize() for part in api.name.split("_"))
        versions = f"{api.min_version} to {api.max_version}"
        lines.append(f"| {api.key} | {name} | {versions} | {_first_sentence(api, name)} |")
    return "\n".join(lines) + "\n"


def _first_sentence(api: Api, name: str) -> str:
    """The first sentence of the handler's docstring, without its name."""
    said = getattr(import_module(f"suiro.broker.handlers.{api.module}"), api.name).__doc__ or ""
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
        "The next client waits to be accepted, or is disconnected. A request that is too large closes its connection.",
    ),
    (
        "login",
        (
            "max.unauthenticated.connections",
            "connection.authentication.timeout.ms",
            "queued.max.unauthenticated.bytes",
        ),
        ("unauthenticatedconnections",),
        "Closes the oldest connection of the address with the most, one that takes too long, or the one that uses the "
        "most memory.",
    ),
    (
        "request queue",
        ("queued.max.request.bytes", "queued.max.requests"),
        ("requestqueuesize", "memorypoolused", "requestqueuetimems", "stalledconnectionsclosed_total"),
        "The node reads no new requests; TCP slows the clients down. After 10 s, it closes the connections with the "
        "largest requests that have not begun.",
    ),
    (
        "handlers",
        (),
        ("requesthandleravgidle_percent", "localtimems"),
        "One handler runs at a time, and one request of a connection.",
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
        "Closes the connection that has read nothing for the longest time.",
    ),
)
"""(stage, settings that limit it, suffixes of its metrics, what happens when it is full)"""

METRICS = """# Metrics

A node that is started with `--metrics HOST:PORT` (the setting `metrics.listen`) serves its metrics at `/metrics`, in
Prometheus' text format. Everyone who can reach that address can read them, so bind it to a network that only Prometheus
uses. A metric that Apache Kafka also has uses Kafka's name, as the sample rules of the JMX exporter write it. Names of
other metrics begin with `suiro_`.

```
suiro node --metrics 127.0.0.1:9404
```

`--otlp URL` (the setting `metrics.otlp.endpoint`) [pushes the same metrics](../guides/telemetry.md#metrics-by-otlp) to
a collector of OpenTelemetry.

A histogram has `_count`, `_sum` and the quantiles 0.5 to 0.999 of the last two and a half to five minutes, with an
error of at most 3 %. The empty topic is the sum of all topics, including deleted ones.

## Stages of a request

```text
read -> request queue -> handler -> purgatory -> response queue -> sent
```

The node handles the requests of a connection one at a time, in order. Each stage has a limit:

| stage | limited by | metrics | when it is full |
|---|---|---|---|
"""


QUERY_METRICS = """
## Metrics of a query

The driver of a query on Spark serves its metrics: `suiro run --metrics HOST:PORT`, or `suiro.spark.serve_metrics` in
your own program. Every metric has the label `query`. Metrics of transactions also have `transactional_id`, and those of
lag have `topic` and `partition`.

```
suiro run delays.py --metrics 127.0.0.1:9405
```

| metric | kind | meaning |
|---|---|---|
"""

CONNECT_METRICS = """
## Metrics of connectors and captures

`suiro connect run` serves `/metrics` on the address of its HTTP API. The metrics of a connector have the label
`connector`. Those of a capture have the label `name` (`TOPIC_PREFIX.SLOT`); `suiro capture postgres --metrics
HOST:PORT` serves only them. They begin again when a connector is restarted.

| metric | kind | meaning |
|---|---|---|
"""


def metrics() -> str:
    known = {field.name.replace("_", ".") for field in dataclasses.fields(NodeSettings)}
    lines = [METRICS.rstrip("\n")]
    for stage, limits, ends, full in STAGES:
        assert set(limits) <= known, f"{stage}: no settings {set(limits) - known}"
        names = [next(name for name in FAMILIES if name.endswith(f"_{end}")) for end in ends]
        lines.append(f"| {stage} | {_code(limits) or 'design'} | {_code(names)} | {full} |")
    lines += ["", "## All of them", "", "| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        kind = "summary" if family.kind == "histogram" else family.kind
        lines.append(f"| `{family.name}` | {kind} | {_code(family.labels)} | {family.doc} |")
    lines += [QUERY_METRICS.rstrip("\n")]
    for name, text in QUERY_HELP.items():
        lines.append(f"| `suiro_query_{name}` | {kind_of(name)} | {text} |")
    lines += [CONNECT_METRICS.rstrip("\n")]
    for _, name, kind, text in [*CONNECTOR_METRICS, STATE_METRIC]:
        lines.append(f"| `{name}` | {kind} | {text} |")
    for one in dataclasses.fields(CaptureStatus):
        kind, text = one.metadata["kind"], one.metadata["text"]
        lines.append(f"| `suiro_capture_{one.name}{'_total' * (kind == 'counter')}` | {kind} | {text} |")
    return "\n".join(lines) + "\n"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


EXAMPLES = {
    "node": "suiro node --listen 127.0.0.1:9092 --data ./log --set auto.create.topics.enable=false",
    "registry": "suiro registry --bootstrap-servers 127.0.0.1:9092 --listen 127.0.0.1:8081",
    "capture postgres": "suiro capture postgres --dsn postgresql:///shop --bootstrap-servers 127.0.0.1:9092 "
    "--registry http://127.0.0.1:8081 --topic-prefix shop",
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
    found = {}
    for name in COMMANDS:
        for inner, parser in group_of(name).parsers().items():
            example = " ".join(["suiro", f"{name} {inner}".strip(), *_needed(parser)])
            found[f"{name} {inner}".strip()] = (parser.description or "", list(_options(parser)), example)
    lines = [
        "# Commands",
        "",
        "`suiro COMMAND --help` prints the same. `suiro --version` prints the version.",
    ]
    for name in dict.fromkeys([*EXAMPLES, *found]):
        said, options, example = found[name]
        fence = "```text" if " " in name else "```"  # a test tries those of one word
        lines += ["", f"## suiro {name}", "", fence, EXAMPLES.get(name, example), "```", "", said]
        if options:
            lines += ["", "| option | meaning |", "|---|---|"]
        lines += [
            f"| {option.replace('|', chr(92) + '|')} | {means.replace('<', chr(92) + '<')} |"
            for option, means in options
        ]
    return "\n".join(lines) + "\n"


def _needed(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.required:
            yield " ".join([*action.option_strings[:1], str(action.metavar or action.dest)])


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.help is argparse.SUPPRESS or action.dest == "help":
            continue
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        name = action.option_strings[0] if action.option_strings else ""
        if isinstance(action, argparse.BooleanOptionalAction):
            name = "`, `".join(action.option_strings)
        if not name:
            value = {"?": f"[{value.strip()}]", "*": f"[{value.strip()}...]"}.get(str(action.nargs), value)
        yield f"`{(name + value).strip()}`", (action.help or "").replace("%%", "%")


def postgres_types() -> str:
    return f"# Types of Postgres in Avro\n\n{inspect.getdoc(types)}\n"


VIEWS = """# Positions of a view and its commands

The table lists every position that a command can lead to. The host refuses any other command, with a message that says
which ones are possible. The [guide](../guides/views.md) shows them in use. The host itself issues `caught up`, `fail`
and `trip` (a rollback condition).

| position | meaning |
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
        "A version is `building`, then `ready` or `failed`, and finally `retired`. A failed version can be retired in",
        "every position, because it was never served.",
    ]
    return "\n".join(lines) + "\n"


def tasks() -> str:
    lines = [
        "# Conditions of a stream task",
        "",
        "After each micro-batch, a task of a topology on Spark is in one of these conditions. Downstream tasks",
        "are those that receive its records over a repartition.",
        "The page is generated from `suiro.streams_spark.condition`.",
        "",
        "| the task saw | condition | meaning | sent to downstream tasks |",
        "|---|---|---|---|",
    ]
    for condition, meaning in CONDITIONS.items():
        lines.append(f"| {meaning.saw} | {condition.value} | {meaning.of} | {meaning.below} |")
    return "\n".join(lines) + "\n"


MOVING = """# Migration from Spark's Kafka connector

To migrate a job, change its format from `kafka` to `suiro`, and add the option `application.id` where it writes. This
page lists every option of the connector: supported, accepted without effect, or refused with an error that says what to
do. Any other option is an error that names the most similar known one. [spark.md](spark.md) lists the options that
suiro adds.

## The checkpoint

Stop the old job. Run

```text
suiro spark adopt CHECKPOINT --application-id NAME --bootstrap-servers HOST:PORT
```

and start the job with format suiro and the same `checkpointLocation`. It continues at the same offset, and keeps its
state, for example that of `dropDuplicates` or of an aggregation. The command only reads the checkpoint. If the old job
ended in the middle of a micro-batch, run it once more until it stops, or let the new job write that micro-batch again
with `--rewrite-last`: the connector's sink may have written a part of it, and it is not known which.

## Other differences

- **Output modes.** The sink supports append and complete. It does not support update, because Spark has no update mode
  for sinks in Python; use `foreachBatch` as in [the guide](../guides/spark.md#a-running-aggregation).
- **A batch write needs `.mode("append")`.** Spark allows its default mode (`errorifexists`) only for the connector.
  `overwrite` is refused, as in the connector.
- **Columns** are the same for reading and writing, including `topic`, `partition` and `headers` of a row. A column that
  the connector's sink would ignore, such as `offset`, is refused. A column `timestamp` becomes the record's timestamp.
- **`subscribePattern`** is a Python regular expression. The syntax is that of Java except for rare constructs such as
  `\\p{Alpha}`.
"""


def moving() -> str:
    lines = [MOVING, "## Options", "", "| option | for | support | note |", "|---|---|---|---|"]
    lines += _entries(connector.OPTIONS)
    lines += ["", "## Settings of Kafka's Java clients", "", "Names without their `kafka.`.", ""]
    lines += ["| setting | for | support | note |", "|---|---|---|---|", *_entries(connector.SETTINGS)]
    lines += [
        "",
        "Settings of the session, `spark.kafka.consumer.cache.*` and `spark.kafka.producer.cache.*`, have no effect:",
        "suiro has no Java clients to cache. Delegation tokens (`spark.kafka.clusters.*`) are not used.",
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
