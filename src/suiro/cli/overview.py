"""`suiro --help` without Typer (20 MB, optional): every command with its summary."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import suiro

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "node": "Run a node: a log that any Kafka client can use.",
    "registry": "Run a schema registry with Confluent's REST API.",
    "capture": "Capture a database: its tables become topics.",
    "demo": "Every flight out of New York in 2013, from Postgres to a view with a bug, which is fixed while it is "
    "read.",
    "run": "Runs a topology.",
    "prepare": "Compile the kernels and archive Spark's classes, so that the first start is as quick as all others.",
    "cluster": "Show the brokers, how much is on them, and what is wrong now.",
    "console": "Serve the console.",
    "topic": "Topics: list, describe, create, alter, delete; read and write records.",
    "group": "Consumer groups: list, describe with lag, reset offsets, delete.",
    "acl": "Access rules: list, add, remove.",
    "user": "Users that log in by SCRAM: list, add, remove.",
    "quota": "Quotas of users, client ids and addresses: list, set, remove.",
    "schema": "Schemas of a registry: list, get, register, check, diff, delete.",
    "dead-letter": "Records that were put aside: list, show, redrive.",
    "app": "Applications: how they stand, their graph, rows of their stores and what they are made of; what a change "
    "keeps of their state.",
    "kafka": "A real Apache Kafka, and the way from a node to one.",
    "log": "The files of a node that is not running.",
    "connect": "Sources and sinks beside the log: run them, look, pause, resume.",
    "spark": "Queries of Spark Structured Streaming.",
    "view": "Views: data derived from the log and served, rebuilt, compared, switched and rolled back.",
}
"""As Typer lists them; a test compares."""


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0, or 2 for a command that is none (`SystemExit`)."""
    parser = argparse.ArgumentParser(
        prog="suiro",
        description="Event streaming in Python: a log that speaks the Kafka protocol, and exactly-once Spark "
        "pipelines.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=suiro.__version__, help="Print it.")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, line in COMMANDS.items():
        commands.add_parser(name, help=line.replace("%", "%%"), add_help=False)
    parser.parse_args(arguments)
    parser.print_help()
    return 2
