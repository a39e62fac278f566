"""Chains of operators that are drawn: each must give, record by record, what Kafka Streams' own driver gives.

A fixed share in an ordinary run, some seconds of it; `make soak` draws for `SUIRO_SOAK_SECONDS`. A chain is made of its
seed alone: what a failure names can be had again with `drawn(seed)`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import SystemRandom

import pytest
from support.kafka_streams_chains import (
    Drawn,
    KafkaStreamsAnswers,
    Row,
    answer_of_suiro,
    drawn,
    smallest,
)

SHARE = 40
FULL = 0.5
"""How many of the chains at least must give anything: else little was compared."""


@pytest.fixture(scope="module")
def kafka_streams() -> Iterator[KafkaStreamsAnswers]:
    with KafkaStreamsAnswers() as answers:
        yield answers


def answer(case: Drawn) -> list[Row] | str:
    try:
        return answer_of_suiro(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def compare(kafka_streams: KafkaStreamsAnswers, seed: int) -> bool:
    """Whether anything came out. A chain that ends in an error must end in one here, too."""

    def differs(case: Drawn) -> bool:
        theirs, ours = kafka_streams(case), answer(case)
        return theirs != ours and not (isinstance(theirs, str) and isinstance(ours, str))

    case = drawn(seed)
    if differs(case):
        case = smallest(case, differs)
        pytest.fail(f"seed {seed}: {case}\n  Kafka Streams {kafka_streams(case)}\n  suiro         {answer(case)}")
    found = answer(case)
    return bool(found) and not isinstance(found, str)


def test_a_share_of_drawn_chains(kafka_streams: KafkaStreamsAnswers) -> None:
    full = [compare(kafka_streams, seed) for seed in range(SHARE)]
    assert sum(full) >= FULL * SHARE


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_drawn_chains_for_long(kafka_streams: KafkaStreamsAnswers) -> None:
    seed, count, full = SystemRandom().randrange(1 << 40), 0, 0
    until = time.monotonic() + int(os.environ.get("SUIRO_SOAK_SECONDS", "600"))
    while time.monotonic() < until:
        full += compare(kafka_streams, seed + count)
        count += 1
    print(f"{count} chains from seed {seed}, {full} of them gave records")
    assert full >= FULL * count
