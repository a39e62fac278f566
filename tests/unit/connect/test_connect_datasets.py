"""Each connector names what it reads or writes outside of Kafka, and no name has a secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.connecting import write

from suiro.connect import read_configuration
from suiro.connect.datasets import postgres_namespace
from suiro.connect.task import TaskContext
from suiro.telemetry import Column, Datasets

COLUMNS = 'metadata = false\ncolumns = { id = "long", name = "string" }'
CASES = {
    "delta": ("sink", f'table = "s3://lake/orders"\n{COLUMNS}', ("s3://lake", "orders")),
    "parquet": ("sink", f'folder = "out"\n{COLUMNS}', ("file", "FOLDER/out")),
    "postgres": (
        "sink",
        'dsn = "postgresql://u:secret@db:5433/shop"\ntable = "orders"\nkey = ["id"]',
        ("postgres://db:5433", "shop.public.orders"),
    ),
    "search": (
        "sink",
        'url = "http://u:secret@search:9200"\nindex = "orders"',
        ("http://search:9200", "orders"),
    ),
    "webhook": ("sink", 'url = "https://hooks/secret/path?token=secret"', ("https://hooks", "/")),
    "files": ("source", 'topic = "t"\nfolder = "in"\ncolumns = ["id"]', ("file", "FOLDER/in")),
    "rest": (
        "source",
        'topic = "t"\nurl = "https://u:secret@api/orders?key=secret"',
        ("https://api", "/orders"),
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_what_a_connector_reads_or_writes(kind: str, tmp_path: Path) -> None:
    side, settings, (namespace, name) = CASES[kind]
    topics = 'topics = ["t"]\ndead_letter_topic = "dead"' if side == "sink" else ""
    path = write(tmp_path, "h:9092", f'[{side}.one]\nkind = "{kind}"\n{topics}\n{settings}\n')
    (connector,) = read_configuration(path).connectors
    found: Datasets = connector.task.datasets(  # type: ignore[attr-defined]
        TaskContext(name="one", bootstrap_servers="h:9092", folder=tmp_path)
    )
    outside, of_kafka = (found.outputs, found.inputs) if side == "sink" else (found.inputs, found.outputs)
    assert (outside[0].namespace, outside[0].name) == (namespace, name.replace("FOLDER", str(tmp_path)))
    assert [(one.namespace, one.name) for one in of_kafka] == [("kafka://h:9092", "t")]
    assert [one.name for one in outside[1:]] == (["dead"] if side == "sink" else [])
    assert "secret" not in repr(found)
    if kind in ("delta", "parquet"):
        assert outside[0].columns == (Column(name="id", type="int64"), Column(name="name", type="string"))


@pytest.mark.parametrize(
    ("connection", "namespace"),
    [
        ({}, "postgres://localhost:5432"),
        ({"host": "/var/run/postgresql", "port": "5433"}, "postgres://localhost:5433"),
        ({"host": "a,b", "port": "1,2"}, "postgres://a:1"),
        ({"hostaddr": "10.0.0.1"}, "postgres://10.0.0.1:5432"),
    ],
)
def test_the_namespace_of_a_database(connection: dict[str, str], namespace: str) -> None:
    assert postgres_namespace(connection) == namespace
