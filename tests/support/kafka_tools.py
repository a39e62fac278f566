"""Kafka's own command-line tools, run in one JVM that starts once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from suiro.kafka import java_command, kafka_classpath
from support import kafka_archive

_RUNNER = Path(__file__).parent / "ToolRunner.java"

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}


COMPLAINTS = ("ismatch", "out of order", "isvalid: false", "not found", "Exception", "corrupt", "skipping")
"""Of DumpLogSegments."""


class KafkaTools:
    """A context manager. Raises `KafkaUnavailable` where there is no Java or no Maven."""

    def __init__(self) -> None:
        options = ["-XX:TieredStopAtLevel=1", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        command = [java_command(), *options, *kafka_archive.options(), "-cp", kafka_classpath(), str(_RUNNER)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def run(self, tool: str, *arguments: str, stdin: bytes = b"") -> tuple[int, str]:
        """The exit code, and what the tool printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert not any("\n" in argument for argument in arguments)
        lines = [TOOLS[tool], str(len(arguments)), *arguments, str(len(stdin))]
        self._process.stdin.write("\n".join(lines).encode() + b"\n" + stdin)
        self._process.stdin.flush()
        answer = self._process.stdout.readline().split()
        assert answer, f"the tools' JVM has ended: exit {self._process.poll()}"
        return int(answer[0]), self._process.stdout.read(int(answer[1])).decode()

    def __call__(self, tool: str, *arguments: str, stdin: bytes = b"") -> str:
        """What the tool printed; it must have succeeded."""
        code, printed = self.run(tool, *arguments, stdin=stdin)
        assert code == 0, f"{tool} {' '.join(arguments)}: exit {code}\n{printed}"
        return printed

    def dumped(self, files: Iterable[Path], *options: str) -> str:
        """What DumpLogSegments prints of files; it must find nothing wrong."""
        printed = self("kafka-dump-log", *options, "--files", ",".join(sorted(map(str, files))))
        assert [complaint for complaint in COMPLAINTS if complaint in printed] == [], printed
        return printed

    def __enter__(self) -> KafkaTools:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
