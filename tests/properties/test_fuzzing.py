"""Garbage for the parsers of frames and of batches, and for a node: errors that say so, nothing worse.

The node closes the connection that sent it, or answers with an error; others are served, and memory stays bounded.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.admin import ask
from support.fuzzing import batches, frames, most_memory, spoiled, with_crc
from support.share import examples
from support.wire import Wire

from suiro.errors import CorruptRecordError
from suiro.node import NodeProcess
from suiro.protocol.compression import compress, decompress
from suiro.protocol.messages import read_request
from suiro.protocol.record_batch import iter_headers, read_header, verify
from suiro.protocol.records import Record, count_without_key, decode_batch, encode_batch

MIB = 1 << 20
BOMB = 128 * MIB
PRODUCED = 900 * 1024
HELD = 64 * MIB
"""A node that is sent garbage may take so much more than it had; a bomb's content is far more."""
PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck))


# -- the parsers ---------------------------------------------------------------------------------------------------


@settings(PATIENT, max_examples=examples(400))
@given(frame=spoiled(frames(), keep=4))
def test_a_spoiled_frame_is_read_or_refused(frame: bytes) -> None:
    """What is raised is an `Exception`: a panic of the parser, which is none, would end the node."""
    api_key, version = struct.unpack_from(">hh", frame)
    with contextlib.suppress(Exception):
        read_request(frame, api_key, version)


@settings(PATIENT, max_examples=examples(400))
@given(data=st.one_of(spoiled(batches()), spoiled(batches()).map(with_crc), st.binary(max_size=200)))
def test_a_spoiled_batch_is_corrupt_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(CorruptRecordError):
        for position, header in iter_headers(data):
            verify(data, position, header)
    for read in (read_header, decode_batch, count_without_key):
        with contextlib.suppress(CorruptRecordError):
            read(data)  # type: ignore[operator]


@settings(PATIENT, max_examples=examples(200))
@given(codec=st.integers(0, 7), data=st.binary(max_size=100), limit=st.integers(0, 1000))
def test_what_decompresses_is_never_more_than_the_limit(codec: int, data: bytes, limit: int) -> None:
    with contextlib.suppress(CorruptRecordError):
        assert len(decompress(codec, data, limit=limit)) <= max(limit, len(data) if codec == 0 else 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_recognised_before_it_is_unpacked(codec: int) -> None:
    packed = compress(codec, bytes(64 * MIB))
    program = (
        "import sys, resource\n"
        "from suiro.protocol.compression import TooMuchError, decompress\n"
        "packed = sys.stdin.buffer.read()\n"
        "import pyarrow\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n"
        f"    decompress({codec}, packed, limit={MIB})\n"
        "except TooMuchError:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=packed, capture_output=True, check=True)
    assert int(done.stdout) < 32 * 1024, "KiB"


# -- a node --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    started = NodeProcess.start(data=tmp_path_factory.mktemp("node"))
    with Wire(started.bootstrap_servers) as wire:
        topics = {
            "fuzzed": {},
            "compacted": {"cleanup.policy": "compact"},
            "recompressed": {"compression.type": "uncompressed"},
        }
        for name, configs in topics.items():
            wanted = {
                "name": name,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": (),
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            ask(wire, "create_topics", 7, topics=(wanted,), timeout=10_000)
        for codec in range(5):  # what looks into batches is loaded once
            batch = encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")], compression=codec)
            for name in topics:
                assert wire.produce(name, batch)[0] == "none"
    yield started
    assert started.stop() == 0


def still_serves(node: NodeProcess) -> None:
    assert node.is_running
    with Wire(node.bootstrap_servers) as wire:
        assert ask(wire, "api_versions", 0)["error_code"] == "none"


@settings(PATIENT, max_examples=examples(60))
@given(
    sent=st.one_of(
        spoiled(frames(), keep=4).map(lambda frame: struct.pack(">i", len(frame)) + frame),
        spoiled(frames()).map(lambda frame: struct.pack(">i", len(frame)) + frame),
        st.binary(min_size=1, max_size=64),
    )
)
@example(sent=struct.pack(">i", 21) + bytes.fromhex("002a000200000000000000ffffffff757a7a000100"))
@example(sent=struct.pack(">i", -1))
@example(sent=struct.pack(">i", 2**31 - 1) + bytes(64))
@example(sent=struct.pack(">i", 104_857_600))
@example(sent=struct.pack(">ihhi", 8, 32767, 0, 1))
@example(sent=struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1))
def test_a_node_that_is_sent_garbage_serves_the_others(sent: bytes, node: NodeProcess) -> None:
    before = most_memory(node.pid)
    host, _, port = node.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as peer:
        with contextlib.suppress(OSError):
            peer.sendall(sent)
            peer.shutdown(socket.SHUT_WR)
        still_serves(node)
    assert most_memory(node.pid) - before < HELD


@settings(PATIENT, max_examples=examples(60))
@given(
    batch=st.one_of(spoiled(batches()), spoiled(batches(), keep=61).map(with_crc)),
    topic=st.sampled_from(("fuzzed", "compacted", "recompressed")),
)
def test_a_spoiled_batch_is_answered_and_the_log_stays_whole(batch: bytes, topic: str, node: NodeProcess) -> None:
    with Wire(node.bootstrap_servers) as wire:
        assert wire.produce(topic, batch, transactional_id="fuzz")[0] != "unknown_server_error"
    still_serves(node)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("content", ["zeros", "records"])
@pytest.mark.parametrize("topic", ["compacted", "recompressed"])
def test_a_bomb_does_not_fill_the_node(node: NodeProcess, topic: str, codec: int, content: str) -> None:
    """To topics that look into batches: one that expands to much, or to millions of records."""
    few = [Record(offset=0, timestamp=0, key=b"k", value=b"")]
    small = encode_batch(few, compression=codec)
    plain = bytes(BOMB) if content == "zeros" else b"\x0c\0\0\0\x01\x01\0" * (8 * MIB)
    count = 1 if content == "zeros" else 8 * MIB
    bomb = bytearray(small[:61] + compress(codec, plain)[:PRODUCED])
    bomb[57:61] = count.to_bytes(4, "big")
    before = most_memory(node.pid)
    with Wire(node.bootstrap_servers) as wire:
        code, _ = wire.produce(topic, with_crc(bytes(bomb)))
    assert code in ("message_too_large", "invalid_record")
    still_serves(node)
    assert most_memory(node.pid) - before < HELD


# -- for as long as wanted -----------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("target", ["frame", "batch"])
def test_fuzzed_by_coverage(target: str, tmp_path: Path) -> None:
    """atheris (libFuzzer) follows the branches of the parsers for SUIRO_SOAK_SECONDS (600), memory limited."""
    pytest.importorskip("atheris")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, batch in enumerate(batches() if target == "batch" else ()):
        (corpus / str(number)).write_bytes(batch)
    seconds = os.environ.get("SUIRO_SOAK_SECONDS", "600")
    done = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).parents[1] / "support" / "fuzz_target.py"),
            target,
            str(corpus),
            f"-max_total_time={seconds}",
            "-rss_limit_mb=2048",
            "-timeout=30",
            f"-artifact_prefix={tmp_path}/",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stderr[-1000:])
    assert done.returncode == 0, done.stderr[-6000:]
