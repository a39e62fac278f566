"""What atheris runs: `fuzz_target.py frame|batch CORPUS [options of libFuzzer]`. All but the known errors is a find."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["suiro.protocol"]):
    from suiro.protocol import messages, record_batch, records

from suiro.errors import CorruptRecordError

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.fuzzing import frames

FRAMES = frames()


def frame(data: bytes) -> None:
    """A real frame, spoiled as the data say: the parser is native, so coverage alone would never find one.

    As for the node's dispatcher any `Exception` is a refusal; a panic is none.
    """
    drawn = atheris.FuzzedDataProvider(data)
    spoiled = bytearray(FRAMES[drawn.ConsumeIntInRange(0, len(FRAMES) - 1)])
    api_key, version = struct.unpack_from(">hh", spoiled)
    while drawn.remaining_bytes():
        at = drawn.ConsumeIntInRange(4, max(4, len(spoiled)))
        taken = drawn.ConsumeIntInRange(0, 4)
        spoiled[at : at + taken] = drawn.ConsumeBytes(drawn.ConsumeIntInRange(0, 12))
    try:
        messages.read_request(bytes(spoiled), api_key, version)
    except Exception:
        return


def batch(data: bytes) -> None:
    try:
        for position, header in record_batch.iter_headers(data):
            record_batch.verify(data, position, header)
    except CorruptRecordError:
        pass
    try:
        records.decode_batch(data, limit=1 << 20)
    except CorruptRecordError:
        pass
    try:
        records.count_without_key(data)
    except CorruptRecordError:
        pass


if __name__ == "__main__":
    target = {"frame": frame, "batch": batch}[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
