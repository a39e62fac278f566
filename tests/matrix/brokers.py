"""The columns of the matrix: real brokers, each a process that can be killed and comes back with its data and port."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess

# How often timed-out transactions are looked for: cells wait for it.
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


class Broker(Protocol):
    title: str
    bootstrap_servers: str

    @property
    def pid(self) -> int: ...
    def kill(self) -> None: ...
    def restart(self) -> None: ...
    def stop(self) -> None: ...


class _Node:
    def __init__(self, title: str, directory: Path, settings: Mapping[str, str]) -> None:
        self.title = title
        self._directory = directory
        self._settings = settings
        self._start("127.0.0.1:0")

    def _start(self, listen: str) -> None:
        log = self._directory / "node.log"
        self._process = NodeProcess.start(
            data=self._directory / "data", listen=listen, settings=self._settings, log=log, timeout_s=120
        )
        self.bootstrap_servers = self._process.bootstrap_servers

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def restart(self) -> None:
        self._start(self.bootstrap_servers)

    def stop(self) -> None:
        self._process.stop()


class _Kafka:
    def __init__(
        self,
        title: str,
        directory: Path,
        settings: Mapping[str, str],
        *,
        version: str,
        format_options: tuple[str, ...] = (),
    ) -> None:
        self.title = title
        # Kafka is killed when the thread that started it ends.
        self._keeper = ThreadPoolExecutor(1)
        self._process = KafkaProcess.start(
            directory, version=version, format_options=format_options, settings=settings, heap="512m"
        )
        self.bootstrap_servers = self._process.bootstrap_servers

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def restart(self) -> None:
        self._keeper.submit(self._process.restart).result()

    def stop(self) -> None:
        self._process.stop()
        self._keeper.shutdown()


TITLES = {
    "node": "suiro node",
    "kafka-4.3-v2": "Kafka 4.3, transactions V2",
    "kafka-4.3-v1": "Kafka 4.3, transactions V1",
    "kafka-3.9": "Kafka 3.9",
}


def start(name: str, directory: Path, *, settings: Mapping[str, str] | None = None) -> Broker:
    """`settings`: further ones of the broker. Raises `KafkaUnavailable` where Apache Kafka cannot be started."""
    directory.mkdir(parents=True, exist_ok=True)
    title = TITLES[name]
    chosen = SETTINGS | dict(settings or {})
    match name:
        case "node":
            return _Node(title, directory, chosen)
        case "kafka-4.3-v2":
            options = ("--feature", "transaction.version=2")
            return _Kafka(title, directory, chosen, version="4.3.1", format_options=options)
        case "kafka-4.3-v1":
            options = ("--feature", "transaction.version=1")
            return _Kafka(title, directory, chosen, version="4.3.1", format_options=options)
        case _:
            return _Kafka(title, directory, chosen, version="3.9.1")
