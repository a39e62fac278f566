"""With the access rules of docs/guides/grow.md and no others pipelines run; without one of them the error names it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from support import kafka_archive
from support.batches import batch_of, read_all
from support.waiting import wait_until

from suiro.client import Client, NewTopic
from suiro.errors import RefusedError, SuiroError
from suiro.spark.committer import MARKER_TOPIC
from suiro.spark.options import SinkOptions, SourceOptions
from suiro.spark.reports import MicroBatchIdentity
from suiro.spark.sink import commit_micro_batch
from suiro.spark.source import StreamReader
from suiro.spark.stage import stage

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "grow.md"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret-admin" '
        'user_admin="secret-admin" user_pipeline="secret-pipeline";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


@dataclass(frozen=True)
class Rule:
    """A row of the guide's table."""

    who: str
    operation: str
    resource: str
    name: str
    pattern: str

    def __str__(self) -> str:
        return f"{self.operation} {self.resource} {self.name}"

    def of(self, names: dict[str, str]) -> Rule:
        return replace(self, name=re.sub(r"<[^>]+>", lambda found: names[found[0]], self.name))

    def binding(self) -> AclBinding:
        return AclBinding(
            ResourceType[self.resource.upper().replace(" ", "_")],
            self.name,
            ResourcePatternType[self.pattern.upper()],
            "User:pipeline",
            "*",
            AclOperation[self.operation],
            AclPermissionType.ALLOW,
        )


def rules() -> list[Rule]:
    text = GUIDE.read_text()
    table = text[text.index("| for | operation | on | name | pattern |") :]
    rows = table[: table.index("\n\n")].splitlines()[2:]
    found = []
    for row in rows:
        who, operation, resource, name, pattern = (cell.strip(" `") for cell in row.strip("|").split(" | "))
        found.append(Rule(who, operation, resource, name, pattern))
    return found


RULES = rules()
OF_TOPOLOGY = [rule for rule in RULES if rule.who.startswith("topology")]
OF_FORMAT = [rule for rule in RULES if rule not in OF_TOPOLOGY]
OF_LAG = next(rule for rule in RULES if rule.name == "<kafka.group.id>")
assert len(OF_FORMAT) >= 8
assert len(OF_TOPOLOGY) == 3


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from suiro.node import NodeProcess

    settings = {**SETTINGS, "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"}
    with NodeProcess.start(data=tmp_path_factory.mktemp("node"), settings=settings) as process:
        yield process.bootstrap_servers


@pytest.fixture(scope="module")
def kafka_with_rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {
        **SETTINGS,
        # By default it would call itself without SASL, whatever its listener is mapped to.
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    with kafka_archive.killed(tmp_path_factory.mktemp("kafka"), settings=settings) as process:
        yield process.bootstrap_servers


@pytest.fixture(params=["node", pytest.param("kafka_with_rules", marks=[pytest.mark.kafka, pytest.mark.soak])])
def log(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


class Access:
    """The administrator's side."""

    def __init__(self, log: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": log, "log_level": 0, **login("admin")})

    def allow_only(self, wanted: list[Rule]) -> None:
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            "User:pipeline",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for deleted in self._admin.delete_acls([everything]).values():
            deleted.result(30)
        made = [rule.binding() for rule in wanted]
        for created in self._admin.create_acls(made).values():
            created.result(30)
        expected = len({str(item) for item in made})
        wait_until(lambda: len(self._admin.describe_acls(everything).result(30)) == expected, what="the rules")


def login(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"secret-{user}",
    }


class Pipeline:
    """What Spark does for a query: plan, read, stage, commit."""

    def __init__(self, log: str, unique: str, directory: Path) -> None:
        self.names = {
            "<source topic>": f"{unique}-in",
            "<sink topic>": f"{unique}-out",
            "<application.id>": unique,
            "<kafka.group.id>": f"{unique}-readers",
        }
        # An own client name, so that no connection of an earlier case is used again.
        kafka = {f"kafka.{name}": value for name, value in login("pipeline").items()}
        kafka |= {"kafka.bootstrap.servers": log, "kafka.client.id": unique}
        source = {"subscribe": self.names["<source topic>"], "startingOffsets": "earliest"}
        self._source = SourceOptions.parse(kafka | source | {"kafka.group.id": self.names["<kafka.group.id>"]})
        self._sinks = [
            SinkOptions.parse(
                kafka
                | {
                    "topic": self.names["<sink topic>"],
                    "application.id": unique,
                    "sink.name": name,
                    "checkpointLocation": str(directory),
                    "staging.dir": str(directory / "staging"),
                }
            )
            for name in ("", "named")
        ]
        self._directory = directory

    def run(self) -> None:
        reader = StreamReader(self._source)
        try:
            begin = reader.initialOffset()
            end = reader.latestOffset(begin, reader.getDefaultReadLimit())
            rows = [
                batch.select(["key", "value"]) for part in reader.partitions(begin, end) for batch in reader.read(part)
            ]
            (self._directory / "offsets").mkdir(exist_ok=True)
            (self._directory / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}")
            for number, sink in enumerate(self._sinks):
                self._write(rows, sink, f"{self.names['<application.id>']}-{number}")
            reader.latestOffset(end, reader.getDefaultReadLimit())  # tells its group how far it is
        finally:
            reader.stop()

    def _write(self, rows: list[pa.RecordBatch], sink: SinkOptions, query: str) -> None:
        identity = MicroBatchIdentity(query_id=query, run_id="run", batch_id=0)
        message = stage(iter(rows), sink, identity, {"task": "0", "task index": "0"})
        commit_micro_batch([message], 0, sink)


@pytest.fixture
def administered(log: str) -> Iterator[tuple[Access, Client]]:
    with Client(log, settings=login("admin")) as client:
        yield Access(log), client


def prepared(client: Client, log: str, unique: str, directory: Path) -> Pipeline:
    pipeline = Pipeline(log, unique, directory)
    source, sink = pipeline.names["<source topic>"], pipeline.names["<sink topic>"]
    client.delete_topics([MARKER_TOPIC], missing_ok=True)
    wait_until(lambda: MARKER_TOPIC not in client.metadata(), what="the earlier case's marker topic to be gone")
    client.create_topics([NewTopic(source, 1), NewTopic(sink, 1)])
    client.produce({(source, 0): batch_of("a", "b")})
    return pipeline


def test_with_these_rules_and_no_others_a_pipeline_runs(
    log: str, administered: tuple[Access, Client], unique: str, tmp_path: Path
) -> None:
    access, client = administered
    pipeline = prepared(client, log, unique, tmp_path)
    access.allow_only([rule.of(pipeline.names) for rule in OF_FORMAT])
    pipeline.run()
    assert read_all(client, pipeline.names["<sink topic>"]) == ["a", "b"] * 2


@pytest.mark.parametrize("missing", OF_FORMAT, ids=str)
def test_without_one_of_the_rules_the_error_names_what_it_is_for(
    log: str,
    administered: tuple[Access, Client],
    unique: str,
    tmp_path: Path,
    missing: Rule,
    caplog: pytest.LogCaptureFixture,
) -> None:
    access, client = administered
    pipeline = prepared(client, log, unique, tmp_path)
    access.allow_only([rule.of(pipeline.names) for rule in OF_FORMAT if rule != missing])
    if missing == OF_LAG:
        pipeline.run()
        assert read_all(client, pipeline.names["<sink topic>"]) == ["a", "b"] * 2
        told = caplog.text
    else:
        with pytest.raises(RefusedError) as caught:
            pipeline.run()
        told = str(caught.value)
    assert "ACL" in told
    assert missing.of(pipeline.names).name in told


@pytest.mark.parametrize("missing", [None, *OF_TOPOLOGY], ids=str)
def test_the_topics_of_a_topology_are_made_written_and_read(
    log: str, administered: tuple[Access, Client], unique: str, missing: Rule | None
) -> None:
    access, _ = administered
    names = {"<application.id>": unique}
    access.allow_only([rule.of(names) for rule in OF_TOPOLOGY if rule != missing])
    topic = f"{unique}-counts-repartition"

    def use() -> Any:
        with Client(log, settings=login("pipeline")) as client:
            client.create_topics([NewTopic(topic, 1)])
            client.produce({(topic, 0): batch_of("a")})
            return client.fetch({(topic, 0): 0})[topic, 0]

    if missing is None:
        assert len(use().data)
    else:
        with pytest.raises(SuiroError, match=re.escape(topic)):
            use()
