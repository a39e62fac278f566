"""The commands of `suiro`: their names, summaries and modules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from suiro.cli.command_groups import Group

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
"""A test compares these with the summaries of the commands."""

_MODULES = {"app": "applications"}  # if it differs from the name of the command


def group_of(command: str) -> Group:
    """Returns the declaration of a command. Needs no extra."""
    name = command.replace("-", "_")
    group: Group = getattr(import_module(f"suiro.cli.{_MODULES.get(name, name)}"), name)
    return group


def parsers_of(command: str) -> dict[str, ArgumentParser]:
    """Returns the parsers by subcommand; "" is the command itself."""
    return group_of(command).parsers()
