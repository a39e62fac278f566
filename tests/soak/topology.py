"""The topology of the soak: each copy is counted by its word, past a repartition, and by its key, on columns."""

from __future__ import annotations

from suiro.streams import Materialized, StreamsBuilder, Topology, serdes
from tests.soak.records import COPIED, KEY_COUNTS, WORD_COUNTS, word_of


def build() -> Topology:
    builder = StreamsBuilder()
    copies = builder.stream(COPIED, key=serdes.string, value=serdes.string)
    by_word = copies.group_by(lambda _, value: word_of(value), key=serdes.string, name="by-word")
    counts = by_word.count(materialized=Materialized.as_("word-counts"), name="count-words")
    counts.to_stream(name="words-changes").to(WORD_COUNTS, value=serdes.long, name="to-words")
    by_key = copies.group_by_key().count(materialized=Materialized.as_("key-counts"), name="count-keys")
    by_key.to_stream(name="keys-changes").to(KEY_COUNTS, value=serdes.long, name="to-keys")
    return builder.build()
