"""The topologies of the soak. In one, each copy is counted by its word, past a repartition, and by its key, on columns.
In the other, tasks read the copies themselves, and join them with the counts of a compacted topic."""

from __future__ import annotations

from suiro.streams import Materialized, StreamsBuilder, Topology, serdes
from tests.soak.records import COPIED, JOINED, KEY_COUNTS, WORD_COUNTS, joined, word_of


def counts() -> Topology:
    builder = StreamsBuilder()
    copies = builder.stream(COPIED, key=serdes.string, value=serdes.string)
    by_word = copies.group_by(lambda _, value: word_of(value), key=serdes.string, name="by-word")
    words = by_word.count(materialized=Materialized.as_("word-counts"), name="count-words")
    words.to_stream(name="words-changes").to(WORD_COUNTS, value=serdes.long, name="to-words")
    by_key = copies.group_by_key().count(materialized=Materialized.as_("key-counts"), name="count-keys")
    by_key.to_stream(name="keys-changes").to(KEY_COUNTS, value=serdes.long, name="to-keys")
    return builder.build()


def join() -> Topology:
    builder = StreamsBuilder()
    copies = builder.stream(COPIED, key=serdes.string, value=serdes.string)
    counts = builder.table(KEY_COUNTS, key=serdes.string, value=serdes.long, materialized=Materialized.as_("counts"))
    copies.left_join(counts, joined, name="join").to(JOINED, value=serdes.string, name="to-joined")
    return builder.build()
