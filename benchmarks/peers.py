"""The other side of every benchmark: clients and peers that we did not write, and what a process costs.

Apache Kafka itself is started by `suiro.kafka`. Here are Spark's own Kafka connector (jars from Maven Central,
resolved once into the user's cache folder), Kafka Streams (`benchmarks/kafka_streams`), the franz-go consumer of
`benchmarks/consumer`, Kafka's own `ProducerPerformance`, and vegeta, which sends HTTP requests.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suiro.kafka import LOGGING_OPTIONS, java_command, kafka_tool

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
VEGETA = "v12.12.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suiro"
CONSUMER_SOURCE = Path(__file__).parent / "consumer"
STREAMS_SOURCE = Path(__file__).parent / "kafka_streams"
DEBEZIUM_SOURCE = Path(__file__).parent / "debezium"


class Unavailable(RuntimeError):
    """A peer cannot be had on this machine; the message names the missing tool."""


def connector_jars() -> list[Path]:
    """Spark's Kafka connector and what it needs, as `spark.jars` wants them."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Spark's own Kafka connector is resolved with Maven: mvn is not on the PATH")
    jars = []
    for coordinate in CONNECTOR:
        _, artifact, version = coordinate.split(":")
        jar = CACHE / "spark-connector" / f"{artifact}-{version}.jar"
        if not jar.exists():
            subprocess.run(
                [
                    maven,
                    "-q",
                    "dependency:copy",
                    f"-Dartifact={coordinate}",
                    f"-DoutputDirectory={jar.parent}",
                ],
                check=True,
            )
        jars.append(jar)
    return jars


def kafka_streams() -> Path:
    """The folder with the compiled topologies (`classes`) and Kafka Streams' `jars`, made once for each source."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Kafka Streams is resolved and compiled with Maven: mvn is not on the PATH")
    sources = [STREAMS_SOURCE / "pom.xml", *sorted(STREAMS_SOURCE.glob("*.java"))]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = CACHE / f"kafka-streams-{digest}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="resolving-") as work:
            filled = Path(work) / "filled"
            command = [maven, "-q", "-B", "-f", str(sources[0]), f"-Dpeer.directory={filled}"]
            command += ["compile", "dependency:copy-dependencies"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise Unavailable(f"Maven could not make Kafka Streams: {done.stdout.strip()[-2000:]}")
            filled.rename(folder)
    return folder


def kafka_streams_command(
    folder: Path, arguments: Sequence[str], *, heap: str, peer: str = "KafkaStreamsPeer"
) -> list[str]:
    """The command line of `peer` with these arguments."""
    class_path = f"{folder / 'classes'}:{folder / 'jars' / '*'}"
    return [
        java_command(),
        f"-Xmx{heap}",
        *LOGGING_OPTIONS,
        "-cp",
        class_path,
        peer,
        *arguments,
    ]


def debezium_command() -> list[str]:
    """Runs `DebeziumCount`, compiled once against Debezium from Maven Central; its arguments come behind."""
    maven, compiler = shutil.which("mvn"), shutil.which("javac")
    if maven is None or compiler is None:
        raise Unavailable("Debezium is resolved with Maven and compiled: mvn and javac must be on the PATH")
    sources = [DEBEZIUM_SOURCE / "pom.xml", DEBEZIUM_SOURCE / "DebeziumCount.java"]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = CACHE / f"debezium-{digest}"
    if not (folder / "classes" / "DebeziumCount.class").exists():
        jars = [
            maven,
            "-q",
            "-f",
            str(sources[0]),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={folder / 'jars'}",
        ]
        subprocess.run(jars, check=True)
        classes = ["-cp", f"{folder}/jars/*", "-d", str(folder / "classes"), str(sources[1])]
        subprocess.run([compiler, *classes], check=True)
    return [java_command(), "-Xmx2g", "-cp", f"{folder}/classes:{folder}/jars/*", "DebeziumCount"]


def http_load() -> Path:
    """The compiled vegeta: HTTP requests at a steady rate, whether answers come or not."""
    binary = CACHE / f"vegeta-{VEGETA}" / "vegeta"
    if not binary.exists():
        go = shutil.which("go")
        if go is None:
            raise Unavailable("look-ups are asked for by vegeta, which is compiled with Go: go is not on the PATH")
        binary.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [go, "install", f"github.com/tsenart/vegeta/v12@{VEGETA}"],
            env={**os.environ, "GOBIN": str(binary.parent)},
            check=True,
        )
    return binary


def consumer() -> Path:
    """The compiled franz-go consumer."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("the fetch benchmark's consumer is written in Go: go is not on the PATH")
    binary = CACHE / "benchmark-consumer"
    binary.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "build", "-o", str(binary), "."], cwd=CONSUMER_SOURCE, check=True)
    return binary


def produce(bootstrap: str, topic: str, *, records: int, record_bytes: int) -> float:
    """Records a second that Kafka's own `ProducerPerformance` reports (acks=all, linger 5 ms, 128 kB batches)."""
    settings = f"bootstrap.servers={bootstrap} acks=all linger.ms=5 batch.size=131072 buffer.memory=134217728"
    result = subprocess.run(
        kafka_tool(
            "org.apache.kafka.tools.ProducerPerformance",
            ["--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes),
             "--throughput", "-1", "--producer-props", *settings.split()],
            heap="1g",
        ),
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = re.findall(r"([\d.]+) records/sec", result.stdout.strip().splitlines()[-1])
    if not found:
        raise RuntimeError(f"ProducerPerformance said no rate: {result.stdout[-500:]} {result.stderr[-500:]}")
    return float(found[-1])


def consume(binary: Path, bootstrap: str, topic: str, *, records: int) -> float:
    """Records a second of one franz-go consumer reading the topic from its start."""
    result = subprocess.run([str(binary), bootstrap, topic, str(records)], check=True, capture_output=True, text=True)
    answer = json.loads(result.stdout)
    return float(answer["records"] / answer["seconds"])


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process has used so far."""

    cpu_seconds: float
    rss_mib: float


def cost(pid: int) -> Cost:
    """CPU seconds (user and system, all threads) and resident memory of one process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Cost(
        cpu_seconds=ticks / os.sysconf("SC_CLK_TCK"),
        rss_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )


def tree(root: int) -> set[int]:
    """A process, its descendants, and whoever is left of the session that it leads."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it ended meanwhile
            parents[int(entry.name)] = (int(fields[1]), int(fields[3]))
    found = {pid for pid, (_, session) in parents.items() if session == root or pid == root}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return found


def peak_rss_mib(pids: set[int]) -> float:
    """The peaks (VmHWM) of these processes, added up. Pages that processes share count once for each."""
    return _memory_mib(pids, "status", "VmHWM")


def pss_mib(pids: set[int]) -> float:
    """Their memory now, a page that n processes share counted as 1/n in each."""
    return _memory_mib(pids, "smaps_rollup", "Pss")


def _memory_mib(pids: set[int], file: str, field: str) -> float:
    """A field of a file in /proc, of all processes that are still there, added up."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/{file}").read_text()
        except OSError:
            continue
        found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024
