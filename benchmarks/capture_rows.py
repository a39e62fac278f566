"""Rows of Postgres to Avro, without Postgres: how fast the parser and the encoder are, on one core.

    python benchmarks/capture_rows.py [--rows 200000] [--rounds 5]

pgbench's row (three integers, one text of 84 bytes) and a row of many types, from pgoutput's messages and from
COPY's binary form, in one joined buffer each; keys and values come out in Confluent's wire format. The plain rules
are timed too, on fewer rows. The best of the rounds counts, in
CPU time, so that a busy machine does not blur it.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import load
import numpy as np

from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.avro_rows import RowEncoder
from suiro.connect.postgres.encoding.pgoutput import Block, join
from suiro.connect.postgres.encoding.pgoutput import parse as parse_block
from suiro.connect.postgres.encoding.schemas import Relation
from suiro.connect.postgres.encoding.types import Column, Rules

_RULES = Rules(namespace="bench")
_INT, _TEXT, _CHAR, _FLOAT, _STAMP, _DATE, _UUID, _BYTEA, _NUMERIC, _BOOL = (
    23, 25, 1042, 701, 1184, 1082, 2950, 17, 1700, 16
)  # fmt: skip

Rows = list[tuple[list[bytes], list[bytes]]]  # (as text, as COPY sends it)


def pgbench(rows: int) -> tuple[Relation, Rows]:
    columns = tuple(
        Column(name=name, type=kind) for name, kind in [("aid", 23), ("bid", 23), ("abalance", 23), ("filler", 1042)]
    )
    random = np.random.default_rng(1)
    balances = random.integers(-100_000, 100_000, rows).tolist()
    made = []
    for aid in range(rows):
        numbers = (aid, aid % 20, balances[aid])
        texts = [*(str(number).encode() for number in numbers), b" " * 84]
        made.append((texts, [*(struct.pack(">i", number) for number in numbers), b" " * 84]))
    return Relation(oid=1, schema="public", name="pgbench_accounts", columns=columns, key=(0,)), made


def mixed(rows: int) -> tuple[Relation, Rows]:
    kinds = [_INT, _TEXT, _FLOAT, _STAMP, _DATE, _UUID, _BYTEA, _NUMERIC, _BOOL]
    columns = tuple(
        Column(name=f"c{n}", type=kind, typmod=((12 << 16) | 2) + 4 if kind == _NUMERIC else -1)
        for n, kind in enumerate(kinds)
    )
    random = np.random.default_rng(2)
    floats = random.random(rows).tolist()
    made = []
    for n in range(rows):
        amount = f"{n % 100_000}.{n % 100:02}".encode()
        texts = [
            str(n).encode(), b"a name", repr(floats[n]).encode(), b"2024-07-01 12:34:56.%06d+00" % (n % 1_000_000),
            b"2024-07-01", b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", b"\\x00ff10ab", amount, b"t",
        ]  # fmt: skip
        binary = [
            struct.pack(">i", n), b"a name", struct.pack(">d", floats[n]), struct.pack(">q", 773_152_496_000_000 + n),
            struct.pack(">i", 8948), bytes(range(16)), b"\x00\xff\x10\xab", amount, b"\x01",
        ]  # fmt: skip
        made.append((texts, binary))
    return Relation(oid=1, schema="public", name="mixed", columns=columns, key=(0,)), made


def messages_of(made: Rows) -> list[bytes]:
    return [
        b"U\0\0\0\x01N"
        + len(texts).to_bytes(2, "big")
        + b"".join(b"t" + len(text).to_bytes(4, "big") + text for text in texts)
        for texts, _ in made
    ]


def block_of(messages: list[bytes]) -> Block:
    return join(messages, [0] * len(messages))


def copy_of(made: Rows) -> bytes:
    return b"".join(
        len(values).to_bytes(2, "big") + b"".join(len(value).to_bytes(4, "big") + value for value in values)
        for _, values in made
    )


def best(rounds: int, work: Callable[[], Any]) -> float:
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=200_000)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    started = time.perf_counter()
    engine.load(timeout_s=None)
    print(f"kernels loaded in {time.perf_counter() - started:.2f} s")
    print(f"{'row':10} {'from':22} {'kernels, rows/s':>16} {'plain, rows/s':>14}")
    for make in (pgbench, mixed):
        relation, made = make(given.rows)
        encoder = RowEncoder(relation, _RULES, key_schema_id=1, value_schema_id=2)
        messages = messages_of(made)
        block = block_of(messages)
        copied = copy_of(made)
        indices = np.arange(len(messages))

        def parse(block: Block = block) -> Any:
            return parse_block(block)

        parsed = parse()
        plain_messages = messages[: max(1, given.rows // 100)]
        plain_copy = copy_of(made[: len(plain_messages)])

        def plain_changes(encoder: RowEncoder = encoder, messages: list[bytes] = plain_messages) -> Any:
            with engine.choose(compiled=False):
                return encoder.encode_changes(parse_block(block_of(messages)), np.arange(len(messages)))

        def plain_rows(encoder: RowEncoder = encoder, data: bytes = plain_copy) -> Any:
            with engine.choose(compiled=False):
                return encoder.encode_copy(data)

        def encode(encoder: RowEncoder = encoder, parsed: Any = parsed, indices: Any = indices) -> Any:
            return encoder.encode_changes(parsed, indices)

        def both(encoder: RowEncoder = encoder, indices: Any = indices, parse: Any = parse) -> Any:
            return encoder.encode_changes(parse(), indices)

        def copy(encoder: RowEncoder = encoder, data: bytes = copied) -> Any:
            return encoder.encode_copy(data)

        few = len(plain_messages)
        for name, work, plain in (
            ("pgoutput, parse", parse, None),
            ("pgoutput, encode", encode, None),
            ("pgoutput, both", both, plain_changes),
            ("COPY", copy, plain_rows),
        ):
            fast = given.rows / best(given.rounds, work)
            slow = f"{few / best(1, plain):14,.0f}" if plain else ""
            print(f"{make.__name__:10} {name:22} {fast:16,.0f} {slow}")


if __name__ == "__main__":
    sys.exit(load.run(main))
