"""Any history of appends, markers, rolls, flushes and restarts, cut anywhere: what is left is a prefix.

The model is the list of what was appended. A crash is a copy of the directory with its newest
segment file cut at an arbitrary byte behind the recovery point; the reopened log must equal a log in
which only the surviving steps ever happened.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.logs import NOW_MS, batch, open_log, read_all, state_of
from support.share import examples

from suiro.log import LogConfig, PartitionLog

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=150)


@dataclass(frozen=True, slots=True)
class Step:
    kind: str  # plain | idempotent | transactional | commit | abort | roll | flush | reopen
    producer: int = 0
    count: int = 1


steps = st.lists(
    st.one_of(
        st.builds(
            Step,
            kind=st.sampled_from(["plain", "idempotent", "transactional", "transactional"]),
            producer=st.integers(0, 2),
            count=st.integers(1, 4),
        ),
        st.builds(Step, kind=st.sampled_from(["commit", "abort"]), producer=st.integers(0, 2)),
        st.builds(Step, kind=st.sampled_from(["roll", "flush", "reopen"])),
    ),
    max_size=30,
)


class Writer:
    """Drives a log through steps as its producers would, and remembers the size after each batch."""

    def __init__(self, directory: Path) -> None:
        self.log: PartitionLog = open_log(directory, config=CONFIG)
        self.sequences: dict[int, int] = {}
        self.batches = 0

    def apply(self, step: Step) -> None:
        match step.kind:
            case "roll":
                self.log.roll()
            case "flush":
                self.log.flush()
            case "reopen":
                self.log.close()
                self.log = open_log(
                    self.log.directory, config=CONFIG, clean=True, recovery_point=self.log.recovery_point
                )
            case "commit" | "abort":
                self.log.append_control(step.kind == "commit", 100 + step.producer, 0, 0, NOW_MS)
                self.batches += 1
            case "plain":
                self.log.append(batch(step.count))
                self.batches += 1
            case kind:
                # Idempotent producers and transactional ones are different ones: neither may do the other.
                producer = step.producer + (100 if kind == "transactional" else 10)
                sequence = self.sequences.get(producer, 0)
                self.sequences[producer] = sequence + step.count
                self.log.append(
                    batch(
                        step.count,
                        producer_id=producer,
                        epoch=0,
                        sequence=sequence,
                        transactional=kind == "transactional",
                    )
                )
                self.batches += 1


def _comparable(log: PartitionLog) -> dict[str, object]:
    state = state_of(log)
    # Index entries depend on where segments were reopened; what they lead to is compared by reading.
    del state["offsets"]
    # After a reopen only the last of the five batches is known until one of the others is asked for.
    state["producers"] = [(*entry[:4], entry[4][-1:]) for entry in state["producers"]]  # type: ignore[attr-defined]
    return state


@settings(max_examples=examples(60), deadline=None)
@given(history=steps, cut=st.floats(0, 1), data=st.data())
def test_a_crash_leaves_a_prefix(history: list[Step], cut: float, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        writer = Writer(Path(name) / "log")
        for step in history:
            writer.apply(step)
        log = writer.log
        active = log.segments[-1]
        synced = active.position_of(log.recovery_point) if log.recovery_point > active.base_offset else 0
        first_cut = active.size if synced is None else synced
        cut_at = first_cut + round(cut * (active.size - first_cut))

        crashed = Path(name) / "crashed"
        shutil.copytree(log.directory, crashed)
        with open(crashed / active.path.name, "r+b") as file:
            file.truncate(cut_at)
        recovered = open_log(crashed, config=CONFIG, recovery_point=log.recovery_point)

        lost = sum(position + header.size > cut_at for position, header in active.headers())
        survivor = Writer(Path(name) / "survivor")
        for step in history:
            appends = step.kind not in ("roll", "flush", "reopen")
            if appends and survivor.batches == writer.batches - lost:
                break
            survivor.apply(step)
        assert _comparable(recovered) == _comparable(survivor.log)
        assert read_all(recovered, read_committed=True) == read_all(survivor.log, read_committed=True)

        more = data.draw(steps)
        survivor.log.close()
        recovered.close()
        survivor.log = open_log(survivor.log.directory, config=CONFIG, clean=True)
        resumed = Writer(Path(name) / "unused")
        resumed.log = open_log(crashed, config=CONFIG, clean=True)
        resumed.sequences = dict(survivor.sequences)
        for step in more:
            survivor.apply(step)
            resumed.apply(step)
        assert _comparable(resumed.log) == _comparable(survivor.log)
