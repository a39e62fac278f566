"""Bytes for the fuzz tests: real request frames and real batches, and ways to spoil them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from uuid import UUID

from hypothesis import strategies as st

from suiro.broker.apis import APIS
from suiro.protocol.messages import request_class, write_request
from suiro.protocol.record_batch import read_header
from suiro.protocol.records import Record, encode_batch
from support.every_request import World, bare, fill

WORLD = World(topic="fuzzed", topic_id=UUID(int=7))
EXTREMES = (
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    b"\x40\0\0\0",
)
"""Counts and lengths as nobody has them: -1, the greatest and the least, the same as varints."""


@cache
def frames() -> tuple[bytes, ...]:
    """Two frames of each version of each API: everything filled in, and next to nothing."""
    return tuple(
        write_request(make, correlation_id=7, client_id="fuzz")
        for api in APIS.values()
        for version in range(api.min_version, api.max_version + 1)
        for message in (request_class(api.key, version),)
        for make in (fill(message, WORLD), bare(message))
    )


@cache
def batches() -> tuple[bytes, ...]:
    """Of each codec, with and without an identity."""
    records = [
        Record(
            offset=n,
            timestamp=1_700_000_000_000 + n,
            key=b"k%d" % n,
            value=b"v" * n * 10,
            headers=(("h", b"x"),),
        )
        for n in range(5)
    ]
    identities = ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True})
    return tuple(
        encode_batch(records, compression=codec, **identity)  # type: ignore[arg-type]
        for codec in range(5)
        for identity in identities
    )


@st.composite
def spoiled(draw: st.DrawFn, originals: Iterable[bytes], *, keep: int = 0) -> bytes:
    """One of them with bits turned, bytes cut off, taken out, put in or written over; the first `keep` stay."""
    data = bytearray(draw(st.sampled_from(tuple(originals))))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(keep, max(keep, len(data) - 1)))
        match draw(st.integers(0, 5)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del data[at:]
            case 2:
                del data[at : at + draw(st.integers(1, 8))]
            case 3:
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case _:
                extreme = draw(st.sampled_from(EXTREMES))
                data[at : at + len(extreme)] = extreme
    return bytes(data)


def with_crc(batch: bytes) -> bytes:
    """With a length and a checksum that are right: what is wrong is inside."""
    from suiro.protocol.record_batch import crc_of

    if len(batch) < 61:
        return batch
    fixed = bytearray(batch)
    fixed[8:12] = (len(batch) - 12).to_bytes(4, "big")
    fixed[16] = 2
    fixed[17:21] = crc_of(bytes(fixed), 0, read_header(bytes(fixed))).to_bytes(4, "big")
    return bytes(fixed)


def most_memory(pid: int) -> int:
    """The most bytes that a process has held so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))
