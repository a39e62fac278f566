"""Records that are left out are counted on Spark as in the interpreter, on columns and record by record."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.spark_streams import Running, Sent

from suiro.streams import StreamsBuilder, TimeWindows, serdes

pytestmark = pytest.mark.spark


def test_dropped_records_are_counted_by_reason(run: Callable[..., Running], name: str) -> None:
    builder = StreamsBuilder()
    for kind, mapper in (("columns", None), ("rules", lambda value: value)):
        stream = builder.stream(f"{name}.{kind}", key=serdes.string, value=serdes.string)
        if mapper is not None:
            stream = stream.map_values(mapper, value=serdes.string)
        windowed = stream.group_by_key().windowed_by(TimeWindows.of_size(10))
        windowed.count().to_stream().to(f"{name}.{kind}.out")
    numbers = builder.stream(f"{name}.numbers", key=serdes.string, value=serdes.long, on_deserialization_error="skip")
    numbers.to(f"{name}.numbers.out")
    topology = builder.build()
    sent = [
        Sent(f"{name}.{kind}", key, "v", timestamp)
        for kind in ("columns", "rules")
        for key, timestamp in (("a", 5), ("a", 25), ("a", 7), (None, 26), ("b", 9), ("b", 27))
    ]
    with run(topology, name, before=sent) as running:
        from suiro.protocol.records import Record, encode_batch

        bad = Record(offset=0, timestamp=0, key=b"k", value=b"no number")
        running.client.produce({(f"{name}.numbers", 0): encode_batch([bad])})
        came = running.finish()
        assert running.streams.dropped_records == {"late": 4, "null key": 2, "deserialization error": 1}
        assert running.streams.dropped_records_total == 7
    assert len(came[f"{name}.columns.out"]) == len(came[f"{name}.rules.out"]) == 3
    assert came[f"{name}.numbers.out"] == []
