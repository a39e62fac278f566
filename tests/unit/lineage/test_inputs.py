"""The input of a topology, from a log of which compaction has removed records."""

from __future__ import annotations

from typing import Any, cast

from suiro.client import EARLIEST, Client, Fetched, ListedOffset
from suiro.lineage import Inputs
from suiro.protocol.records import Record, encode_batch
from suiro.streams import StreamsBuilder, serdes

PLACE = ("names", 0)


class Log:
    """It has one record at offset 0; those up to its end at offset 3 were removed."""

    def describe_configs(self, topics: Any) -> dict[str, dict[str, str]]:
        return {topic: {"cleanup.policy": "compact"} for topic in topics}

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, ListedOffset]:
        offset = 0 if wanted[PLACE] == EARLIEST else 3
        return {PLACE: ListedOffset(offset=offset, timestamp=-1, leader_epoch=-1)}

    def fetch(self, wanted: Any, **_: Any) -> dict[Any, Fetched]:
        data = encode_batch([Record(offset=0, timestamp=1, key=b"k", value=b"1")]) if wanted[PLACE] == 0 else b""
        return {
            PLACE: Fetched(
                data=memoryview(data), aborted=(), high_watermark=3, last_stable_offset=3, log_start_offset=0
            )
        }


def test_a_compacted_topic_may_end_with_removed_records() -> None:
    """An explanation of a view over it failed with a deadline, ten seconds later."""
    builder = StreamsBuilder()
    builder.stream(PLACE[0], key=serdes.string, value=serdes.string).to("out")
    inputs = Inputs(cast("Client", Log()), {PLACE: 3})
    assert [(record.offset, record.key) for record in inputs.read(builder.build())] == [(0, b"k")]
