"""Both murmur2s against values from Java, librdkafka, KafkaJS and kafka-python."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from suiro.errors import UsageError
from suiro.protocol.columnar import partitions_of
from suiro.protocol.murmur2 import murmur2, partition_for_key

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "protocol" / "murmur2.json").read_text())
HASHES = [(bytes.fromhex(v["key_hex"]), v["hash_int32"]) for v in VECTORS["murmur2"]]
PARTITIONS = [(bytes.fromhex(v["key_hex"]), v["partitions"], v["partition"]) for v in VECTORS["partition_of_key"]]
LIBRDKAFKA = [
    (bytes.fromhex(v["key_hex"]), v["positive_hash"])
    for v in VECTORS["librdkafka_partitioners"]["cases"]
    if v["partitioner"].startswith("murmur2 ")
]


def test_hashes() -> None:
    assert HASHES
    assert [murmur2(key) for key, _ in HASHES] == [value for _, value in HASHES]


def test_partitions() -> None:
    assert PARTITIONS
    for key, count, partition in PARTITIONS:
        assert partition_for_key(key, count) == partition
        assert partitions_of(pa.array([key]), count).tolist() == [partition]


def test_positive_hashes_of_librdkafka() -> None:
    assert LIBRDKAFKA
    assert [murmur2(key) & 0x7FFFFFFF for key, _ in LIBRDKAFKA] == [value for _, value in LIBRDKAFKA]


def test_a_column_of_keys() -> None:
    keys = [key for key, _ in HASHES]
    column = pa.array([b"left out", None, *keys, None])[1:]
    wanted = [-1, *(partition_for_key(key, 7) for key in keys), -1]
    assert partitions_of(column, 7).tolist() == wanted
    assert partitions_of(pa.chunked_array([column, column]), 7).tolist() == wanted * 2


def test_strings_are_hashed_as_utf_8() -> None:
    assert partitions_of(pa.array(["straße"]), 64).tolist() == [partition_for_key("straße".encode(), 64)]


def test_no_partitions() -> None:
    with pytest.raises(UsageError, match="at least one partition"):
        partitions_of(pa.array([b"k"]), 0)
