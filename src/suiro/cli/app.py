"""The commands as `suiro --help` lists them. Each imports its modules when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

import suiro
from suiro.cli.acl import acl
from suiro.cli.applications import app as applications
from suiro.cli.cluster import cluster
from suiro.cli.connect import connect
from suiro.cli.console import console
from suiro.cli.dead_letter import dead_letter
from suiro.cli.demo import demo
from suiro.cli.group import group
from suiro.cli.kafka import kafka
from suiro.cli.log import log
from suiro.cli.prepare import prepare
from suiro.cli.quota import quota
from suiro.cli.run import run
from suiro.cli.schema import schema
from suiro.cli.spark import spark
from suiro.cli.topic import topic
from suiro.cli.user import user
from suiro.cli.view import view

app = typer.Typer(name="suiro", no_args_is_help=True, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(suiro.__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Event streaming in Python: a log that speaks the Kafka protocol, and exactly-once Spark pipelines."""


@app.command(
    "node",
    help="Run a node: a log that any Kafka client can use. `suiro node --help` has the options.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def _node(context: typer.Context) -> None:
    from suiro.cli.node import main

    raise typer.Exit(main(context.args))


@app.command(
    "registry",
    help="Run a schema registry with Confluent's REST API. `suiro registry --help` has the options.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def _registry(context: typer.Context) -> None:
    from suiro.cli.registry import main

    raise typer.Exit(main(context.args))


@app.command(
    "capture",
    help="Capture a database: its tables become topics. `suiro capture --help` has the options.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def _capture(context: typer.Context) -> None:
    from suiro.cli.capture import main

    raise typer.Exit(main(context.args))


app.command("demo")(demo)
app.command("run")(run)
app.command("prepare")(prepare)
for _group in (
    topic,
    group,
    cluster,
    acl,
    user,
    quota,
    schema,
    dead_letter,
    console,
    applications,
    kafka,
    log,
):
    _group.add_to(app)
app.add_typer(connect)
app.add_typer(spark)
app.add_typer(view)
