"""The commands of `suiro` and their summaries. `suiro --help` and the completion of the first word load no more."""

from __future__ import annotations

COMMANDS = {
    "node": "Run a node: a log that any Kafka client can use.",
    "registry": "Run a schema registry with Confluent's REST API.",
    "capture": "Capture a database: its tables become topics.",
    "demo": "Run the demo: a year of flights, from Postgres to a view with a bug, which is fixed while "
    "clients read it.",
    "run": "Run a topology on Spark.",
    "prepare": "Compile the kernels and archive Spark's classes, so that later starts are faster.",
    "cluster": "Show the brokers, the number of topics and groups, and current problems.",
    "console": "Serve the web console.",
    "topic": "Topics: list, describe, create, alter, delete; read and write records.",
    "group": "Consumer groups: list, describe with lag, reset offsets, delete.",
    "acl": "ACLs: list, add, remove.",
    "user": "SCRAM users: list, add, remove.",
    "quota": "Quotas of users, client ids and addresses: list, set, remove.",
    "schema": "Schemas of a registry: list, get, register, check, diff, delete.",
    "dead-letter": "Dead letters: list, show, redrive.",
    "app": "Running applications: list, graph, rows of stores and their input records. Also checks a changed topology.",
    "kafka": "Run a real Apache Kafka, or hand the data of a node over to one.",
    "log": "Import topics of Apache Kafka into a stopped node.",
    "connect": "Sources and sinks: run, check, status, pause, resume, restart.",
    "spark": "Take over queries of Spark's own Kafka connector.",
    "view": "Views: serve, deploy, compare, explain, shift, roll back, retire.",
}
"""What `suiro --help` says of each group of commands. A test compares it with the docstrings."""
