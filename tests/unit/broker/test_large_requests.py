"""Requests of many elements: the work of one grows with its size, not with the square of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.broker.coordination.transactions.state import Transaction
from suiro.broker.handlers import configs
from suiro.broker.handlers.replicas import alter_replica_log_dirs, check_replicas
from suiro.broker.handlers.transactions import list_transactions
from suiro.broker.handlers.users import describe_user_scram_credentials
from suiro.broker.refusals import RefusedError
from suiro.broker.settings.configs import ResourceKind
from suiro.clock import ManualClock

COUNT = 300


class Number(int):
    """Counts how often numbers are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Number.compared += 1
        return int.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = int.__hash__


class Name(str):
    """Counts how often names are compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


class Exchange:
    """A client that may do everything, and hears values as dictionaries."""

    def __init__(self, **broker: Any) -> None:
        self.broker = SimpleNamespace(clock=ManualClock(), **broker)

    def may_on_cluster(self, operation: object) -> bool:
        return True

    def permits(self, *asked: object) -> bool:
        return True

    response = staticmethod(dict)


def of_numbers() -> Sequence[Number]:
    return tuple(Number(number) for number in range(COUNT))


def test_replicas_of_one_partition() -> None:
    with pytest.raises(RefusedError, match=f"includes the broker {COUNT - 1} more than once"):
        check_replicas((*of_numbers(), Number(COUNT - 1)), node_id=1)
    assert Number.compared < 10 * COUNT


def test_credentials_of_many_users() -> None:
    names = [Name(f"u{number}") for number in range(COUNT)]
    request = SimpleNamespace(users=[SimpleNamespace(name=name) for name in (*names, Name("u0"))])
    exchange: Any = Exchange(scram=SimpleNamespace(users={}))
    answer: Any = describe_user_scram_credentials(exchange, request)  # type: ignore[arg-type]
    codes = {result["user"]: result["error_code"].name for result in answer["results"]}
    assert codes == dict.fromkeys(names, "resource_not_found") | {"u0": "duplicate_resource"}
    assert Name.compared < 10 * COUNT


def test_transactions_of_many_producers() -> None:
    known = [
        Transaction(transactional_id=f"t{number}", producer_id=Number(number), timeout_ms=1) for number in range(COUNT)
    ]
    exchange: Any = Exchange(transactions=known)
    Number.compared = 0
    request = SimpleNamespace(state_filters=(), producer_id_filters=of_numbers()[1:])
    answer: Any = list_transactions(exchange, request)  # type: ignore[arg-type]
    assert len(answer["transaction_states"]) == COUNT - 1
    assert Number.compared < 10 * COUNT


def test_a_long_path_of_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []

    def noted(look: Callable[..., object]) -> Callable[..., object]:
        def noting(path: object, **how: Any) -> object:
            looks.append(path)
            return look(path, **how)

        return noting

    for name in ("lstat", "stat"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    topics = [SimpleNamespace(name="t", partitions=range(COUNT))]
    paths = (
        "/x" * COUNT,
        "/x" * 10_000,
        str(tmp_path) + "\0",
        str(tmp_path / "." / "no" / ".."),
        str(tmp_path),
    )
    exchange: Any = Exchange(data=tmp_path, topics=SimpleNamespace(partition=lambda *_: None))
    codes: list[str] = []
    for path in paths:
        request: Any = SimpleNamespace(dirs=[SimpleNamespace(path=path, topics=topics)])
        answer: Any = alter_replica_log_dirs(exchange, request)
        codes += {result["error_code"].name for result in answer["results"][0]["partitions"]}
    assert codes == ["log_dir_not_found"] * 4 + ["unknown_topic_or_partition"]
    assert len(looks) < COUNT


@pytest.mark.parametrize("operation", ["APPEND", "SUBTRACT"])
def test_a_setting_that_is_a_long_list(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parts(text: str) -> list[Name]:
        return [Name(part) for part in text.split(",")]

    monkeypatch.setattr(configs, "_parts", parts)
    monkeypatch.setattr(configs, "_list_default", lambda *_: "")
    Name.compared = 0
    had, given = (",".join(f"{letter}{number}" for number in range(COUNT)) for letter in "ab")
    change = SimpleNamespace(name="listeners", config_operation=configs._Op[operation], value=given)
    broker: Any = None
    content = configs._changed(broker, ResourceKind.BROKER, {"listeners": had}, [change])
    assert content == {"listeners": f"{had},{given}" if operation == "APPEND" else had}
    assert Name.compared < 10 * COUNT
