"""One registry at a time writes: what happens when two do it at the same moment, or an answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from conftest import LogUnderTest
from support.waiting import wait_until

from suiro.client import Client
from suiro.errors import DeadlineExceededError, FencedError
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch
from suiro.registry.records import Key
from suiro.registry.registration import Request, register
from suiro.registry.state import Decision, State
from suiro.registry.storage import Storage, StorageError
from suiro.registry.work import Work


@pytest.fixture
def topic() -> str:
    return f"_schemas-{uuid4().hex[:8]}"


@pytest.fixture
def start(log_under_test: LogUnderTest, topic: str) -> Iterator[Callable[[], Storage]]:
    with ExitStack() as stack:

        def begin() -> Storage:
            storage = Storage(log_under_test.bootstrap_servers, topic=topic)
            storage.start()
            stack.callback(storage.stop)
            return storage

        yield begin


def registering(subject: str, text: str) -> Callable[[State], Decision[dict[str, Any]]]:
    work = Work()

    def decide(state: State) -> Decision[dict[str, Any]]:
        return work.run(lambda: register(state, subject, Request(text=text), normalize=None, work=work))

    return decide


def schemas(storage: Storage) -> dict[str, int]:
    storage.catch_up()
    with storage.state() as state:
        return {one.subject: one.id for one in state.all_schemas()}


def test_a_write_decided_before_another_took_over_is_decided_again(start: Callable[[], Storage]) -> None:
    first, second = start(), start()
    first.write(registering("s", '"int"'))
    decided: list[dict[str, Any]] = []

    def decide(state: State) -> Decision[dict[str, Any]]:
        decision = registering("t", '"long"')(state)
        decided.append(decision.result)
        if len(decided) == 1:  # between the decision and the append
            second.write(registering("u", '"string"'))
        return decision

    made = first.write(decide)
    assert [one["id"] for one in decided] == [2, 3]
    assert made["id"] == 3
    assert schemas(first) == schemas(second) == {"s": 1, "u": 2, "t": 3}


def test_the_same_schema_decided_by_both_is_written_once(start: Callable[[], Storage]) -> None:
    first, second = start(), start()
    calls: list[int] = []

    def decide(state: State) -> Decision[dict[str, Any]]:
        decision = registering("s", '"int"')(state)
        calls.append(len(decision.changes))
        if len(calls) == 1:
            assert second.write(registering("s", '"int"'))["id"] == 1
        return decision

    made = first.write(decide)
    assert (made["id"], made["version"]) == (1, 1)
    assert calls == [1, 0]


def test_an_owner_under_another_producer_id_is_shut_out_too(
    start: Callable[[], Storage], client: Client, topic: str
) -> None:
    """A coordinator may have forgotten the transactional id, and hands out another producer id."""
    storage = start()
    storage.write(registering("s", '"int"'))
    other = client.transaction(f"other-{topic}").init()

    def append(key: Key, sequence: int) -> None:
        record = Record(offset=0, timestamp=1, key=key.encode(), value=None)
        batch = encode_batch([record], producer_id=other.id, producer_epoch=other.epoch, base_sequence=sequence)
        client.produce({(topic, 0): batch})

    append(Key.noop(), 0)  # takes over
    append(Key.of_subject("CONFIG", "x"), 1)  # and may write
    storage.write(registering("t", '"long"'))
    with pytest.raises(FencedError):
        append(Key.of_subject("CONFIG", "x"), 2)
    assert schemas(storage) == {"s": 1, "t": 2}
    assert schemas(start()) == {"s": 1, "t": 2}


@pytest.mark.parametrize("arrived", [True, False])
def test_a_lost_answer(start: Callable[[], Storage], monkeypatch: pytest.MonkeyPatch, arrived: bool) -> None:
    """Whether the write arrived or not, it is there once in the end, and its answer is what was decided."""
    storage = start()
    storage.write(registering("s", '"int"'))
    produce, calls = storage._produce, []

    def lose(*arguments: Any) -> int:
        calls.append(arguments)
        if len(calls) == 1:
            if arrived:
                produce(*arguments)
            raise DeadlineExceededError("the answer is lost")
        return produce(*arguments)

    monkeypatch.setattr(storage, "_produce", lose)
    decided = []

    def decide(state: State) -> Decision[int]:
        decision = registering("t", '"long"')(state)
        decided.append(decision)
        # Not what the log would say of a repeated request: the answer of the first decision is kept.
        return Decision(len(decided), decision.changes)

    assert storage.write(decide) == (1 if arrived else 2)
    assert schemas(storage) == schemas(start()) == {"s": 1, "t": 2}


def test_a_write_that_waits_for_the_log_ends_with_its_storage(tmp_path: Path) -> None:
    with NodeProcess.start(data=tmp_path / "data") as node, ThreadPoolExecutor(1) as pool:
        storage = Storage(node.bootstrap_servers)
        storage.start()
        storage.write(registering("s", '"int"'))
        node.kill()
        written = pool.submit(storage.write, registering("t", '"long"'))
        wait_until(storage._write_lock.locked, what="the write")
        storage.stop()
        with pytest.raises(StorageError):
            written.result(timeout=10)


def test_a_topic_that_is_made_again_begins_again(start: Callable[[], Storage], client: Client, topic: str) -> None:
    storage = start()
    for n in range(3):
        storage.write(registering(f"s{n}", '"int"'))
    client.delete_topics([topic])
    start()  # makes it

    def is_empty() -> bool:
        with storage.state() as state:
            return not state.subjects

    wait_until(is_empty, what="the empty state")
    storage.write(registering("t", '"long"'))
    assert schemas(storage) == {"t": 1}
