"""What is read of a batch without making records, against the records themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.errors import CorruptRecordError
from suiro.protocol.records import Record, count_without_key, decode_batch, encode_batch

sizes = st.sampled_from([0, 1, 30, 63, 64, 65, 127, 128, 9_000])
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(0, 1 << 41),
    key=st.none() | sizes.map(lambda size: b"k" * size),
    value=st.none() | sizes.map(lambda size: b"v" * size),
    headers=st.just(()) | st.just((("name", b"value"), ("none", None))),
)


@given(st.lists(records, min_size=1, max_size=300))
def test_records_without_a_key_are_counted(drawn: list[Record]) -> None:
    batch = encode_batch(
        [
            Record(offset=n, timestamp=r.timestamp, key=r.key, value=r.value, headers=r.headers)
            for n, r in enumerate(drawn)
        ]
    )
    assert count_without_key(batch) == sum(record.key is None for record in decode_batch(batch))


def test_a_record_that_leads_out_of_the_batch_is_told() -> None:
    batch = encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")])
    with pytest.raises(CorruptRecordError):
        count_without_key(batch[:-5][:64])
