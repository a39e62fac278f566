"""Two registries on one log, writers at both, and kill -9 of registries and node at drawn moments, for a while."""

from __future__ import annotations

import json
import random
import socket
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from support.waiting import wait_until

from suiro.errors import RegistryError
from suiro.node import NodeProcess
from suiro.registry import RegistryClient, RegistryProcess, Schema

DEATHS = 30
WRITERS = 4


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def schema(name: str, fields: int) -> Schema:
    made = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(fields)]
    return Schema(json.dumps({"type": "record", "name": name, "fields": made}, separators=(",", ":")))


class Writers:
    """Threads that register, at either registry, schemas that several of them want at the same time."""

    def __init__(self, addresses: list[str]) -> None:
        self.answers: dict[tuple[str, str], set[int]] = defaultdict(set)  # (subject, text) -> ids answered
        self.done = 0
        self._addresses = addresses
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(WRITERS)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        draw = random.Random(number)
        while not self._ending.is_set():
            with RegistryClient(f"http://{draw.choice(self._addresses)}", retries=0, timeout_s=20) as client:
                subject, fields = f"s{draw.randint(0, 200)}", draw.randint(0, 3)
                made = schema(subject, fields)
                try:
                    found = client.register(subject, made)
                except RegistryError:
                    continue
            with self._lock:
                self.answers[subject, made.text].add(found)
                self.done += 1

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_two_registries_and_a_node_that_die_in_turn(tmp_path: Path) -> None:
    draw = random.Random(20_261_122)
    log, addresses = free_address(), [free_address(), free_address()]

    def start_node() -> NodeProcess:
        return NodeProcess.start(data=tmp_path / "data", listen=log, log=tmp_path / "node.log")

    def start_registry(address: str) -> RegistryProcess:
        return RegistryProcess.start(log, listen=address, log=tmp_path / "registry.log")

    node = start_node()
    registries = [start_registry(address) for address in addresses]
    writers = Writers(addresses)
    try:
        for _ in range(DEATHS):
            goal = writers.done + draw.randint(1, 60)
            wait_until(lambda: writers.done >= goal, 120, "some registrations")  # noqa: B023
            victim = draw.randint(0, 2)
            if victim == 2:
                node.kill()
                node.stop()
                node = start_node()
            else:
                registries[victim].kill()
                registries[victim] = start_registry(addresses[victim])
    finally:
        writers.end()
    with RegistryClient(f"http://{addresses[0]}") as client:
        for (subject, text), ids in writers.answers.items():
            (schema_id,) = ids  # the same schema never had two ids
            assert client.schema(schema_id) == Schema(text)
            assert client.lookup(subject, Schema(text)).id == schema_id
        ids_of = {text: ids for (_, text), ids in writers.answers.items()}
        assert len({schema_id for ids in ids_of.values() for schema_id in ids}) == len(ids_of)
    print(f"{writers.done} registrations, {len(writers.answers)} schemas, {DEATHS} deaths")
    for registry in registries:
        assert registry.stop() == 0
    assert node.stop() == 0
