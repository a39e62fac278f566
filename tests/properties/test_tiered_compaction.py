"""A compacted topic in the remote tier: whoever reads it from its start knows of every key what was written last.

Drawn are writes, deletions of keys, cleanings, the tier's work, local retention, time, and deaths. Held against a
dictionary; cleaning and its compiled loops run in this process.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tiering import TieredNode

from suiro.log import Cleaned, CleanerSettings, CleaningJob, GroupCleaned, dirtiness
from suiro.log.cleaning import clean
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import Record, decode_batch, encode_batch

KEYS = 4
DELETE_RETENTION_MS = 1000

keys = st.integers(0, KEYS - 1)
actions = st.one_of(
    st.tuples(st.just("write"), keys),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.sampled_from(["clean", "tier", "retain", "time", "kill", "fill"]), st.just(0)),
    st.tuples(st.sampled_from(["age", "settle", "copy", "copy nothing", "keep all", "compact"]), st.just(0)),
)


class World:
    """A node with one compacted, tiered topic, and what must be in it."""

    def __init__(self, directory: Path) -> None:
        self.node = TieredNode(directory, log_cleaner_enable="false", log_cleaner_backoff_ms="1000000")
        self.node.tier.run_cleaning = cleaned_here
        self.node.create(
            cleanup_policy="compact",
            delete_retention_ms=str(DELETE_RETENTION_MS),
            local_retention_ms="-2",
            local_retention_bytes="1",
            internal_segment_bytes="250",
        )
        self.model: dict[bytes, bytes] = {}

    def do(self, *actions: str, key: int = 0) -> None:
        for action in actions:
            self._do(action, key)

    def _do(self, action: str, key: int) -> None:
        node = self.node
        match action:
            case "write":
                self.append(key, b"value-%d" % node.log.log_end_offset)
            case "delete":
                self.append(key, None)
            case "fill":  # a segment's worth, of a key of its own
                for _ in range(4):
                    self.append(KEYS, b"filler-%d" % node.log.log_end_offset)
            case "age":  # what was cleaned once is cleaned again when tombstones may go
                for _ in range(2):
                    self.do("fill")
                    self.clean()
                    self.do("time")
                self.do("fill")
                self.clean()
            case "clean":
                self.clean()
            case "tier":
                node.until_idle()
            case "retain":
                node.log.retention.apply()
            case "time":
                node.clock.advance(DELETE_RETENTION_MS + 1)
            case "settle":  # only the tier has what was written so far
                self.do("fill")
                self.clean()
                node.until_idle()
                node.log.retention.apply()
                node.until_idle()
            case "copy" | "copy nothing":
                local = {"local.retention.bytes": "1"}
                if action == "copy nothing":
                    local = {"local.retention.bytes": "-2", "remote.log.copy.disable": "true"}
                configs = node.topic.configs
                kept = {name: text for name, text in configs.items() if name != "remote.log.copy.disable"}
                node.broker.topics.alter_configs(node.topic, kept | local)
            case "keep all" | "compact":
                node.alter(cleanup_policy="compact" if action == "compact" else "delete")
            case "kill":
                node.tier.work()
                node.broker.write_cleaner_offsets()
                node.kill()
                node.start()
                node.tier.run_cleaning = cleaned_here

    def append(self, key: int, value: bytes | None) -> None:
        name = b"key-%d" % key
        if value is None:
            self.model.pop(name, None)
        else:
            self.model[name] = value
        record = Record(offset=0, timestamp=self.node.clock.wall_ms(), key=name, value=value)
        self.node.log.append(encode_batch([record]))

    def clean(self) -> None:
        """What the broker's cleaner does, here and now."""
        log = self.node.log
        if not log.config.compacted or self.node.tier.holds_cleaning(log) or len(log.kept_segments) < 2:
            return
        found = dirtiness(
            log.cleaning.facts(),
            log.config,
            checkpoint=log.cleaned_offset,
            now_ms=self.node.clock.wall_ms(),
        )
        if not found.cleanable_bytes:
            return
        job = log.cleaning.begin(found, CleanerSettings(dedupe_buffer_bytes=1 << 16))
        for done in clean(job):
            if isinstance(done, GroupCleaned):
                log.cleaning.replace_segments(done.bases)
            else:
                log.cleaned_offset = done.end_offset
        log.cleaning.end()

    def check(self) -> None:
        """Read it all, as a consumer that builds a table does."""
        found: dict[bytes, bytes] = {}
        offset, last = self.node.log.log_start_offset, -1
        while offset < self.node.log.log_end_offset:
            result = self.node.read(offset, max_bytes=1)
            if not result.regions:
                break
            data = b"".join(os.pread(fd, length, position) for fd, position, length in result.regions)
            for position, header in iter_headers(data):
                for record in decode_batch(data, position):
                    assert record.offset > last
                    last = record.offset
                    assert record.key is not None
                    if record.value is None:
                        found.pop(record.key, None)
                    else:
                        found[record.key] = record.value
                offset = header.next_offset
        assert found == self.model

    def remote_records(self) -> int:
        """Records with a value in the tier."""
        count = 0
        for name in self.node.stored(".log"):
            data = (self.node.objects / name).read_bytes()
            for position, _ in iter_headers(data):
                count += sum(1 for record in decode_batch(data, position) if record.value is not None)
        return count


def cleaned_here(job: CleaningJob) -> int:
    (last,) = [done for done in clean(job) if isinstance(done, Cleaned)]
    return last.end_offset


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(actions, max_size=40))
def test_every_key_has_its_last_value(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as directory:
        world = World(Path(directory))
        for action, key in steps:
            world.do(action, key=key)
            if action in ("tier", "retain", "kill", "settle"):
                world.check()
        world.check()
        world.node.stop()


def test_a_deleted_key_does_not_come_back_from_the_tier(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.do("write", "settle")
    assert world.node.log.local_log_start_offset > 0
    world.do("delete", "age")
    world.check()
    world.do("settle", "age")
    world.check()
    world.node.stop()


def test_a_key_that_is_deleted_while_nothing_is_copied_stays_deleted(tmp_path: Path) -> None:
    """Its records in the tier are not cleaned meanwhile, so its tombstone must not go here."""
    world = World(tmp_path)
    world.do("write", "settle", "copy nothing", "delete", "age")
    world.check()
    world.do("copy", "settle", "age")
    world.check()
    assert world.node.log.cleaned_offset > 0
    world.node.stop()


@pytest.mark.parametrize("was_compacted", [False, True])
def test_a_key_that_is_deleted_once_its_topic_is_compacted_stays_deleted(tmp_path: Path, was_compacted: bool) -> None:
    """What was copied while the topic kept all was not cleaned with the keys that came after it."""
    world = World(tmp_path)
    if was_compacted:
        world.do("settle")
    world.do("keep all", "write", "settle", "compact", "tier", "delete")
    for action in ("settle", "age", "settle", "age", "settle"):
        world.do(action)
        world.check()
    assert world.remote_records() < 20
    world.node.stop()


def test_the_tier_holds_little_more_than_the_last_values(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in range(300):
        world.do("write" if number % 7 else "delete", key=number % KEYS)
        if number % 20 == 19:
            world.do("settle", "time")
            world.check()
    world.do("settle")
    log = world.node.log
    assert log.local_log_start_offset > 250
    assert world.remote_records() <= KEYS + 8
    world.check()
    world.node.restart()
    world.check()
    world.node.stop()
