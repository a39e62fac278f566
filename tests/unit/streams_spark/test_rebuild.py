"""Where an application was, as the log tells it, and what a start makes of that."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch
from suiro.spark import MARKER_TOPIC, Positions, SinkOptions
from suiro.streams import KafkaStreams, Materialized, StreamsBuilder, serdes
from suiro.streams.errors import CheckpointError, TopologyError
from suiro.streams_spark.rebuild import NOT_READ, Boundary, BufferedFrom, boundary_of, settled
from suiro.testing import node

A, B = ("a", 0), ("b", 1)


def test_a_boundary_is_kept_in_a_file(tmp_path: Path) -> None:
    boundary = Boundary(offsets={A: 5, B: 7}, waiting={B: 900})
    assert Boundary.load(tmp_path) is None
    boundary.save(tmp_path / "made")
    assert Boundary.load(tmp_path / "made") == boundary
    (tmp_path / "suiro-rebuild.json").write_text('{"version": 2}')
    with pytest.raises(CheckpointError, match="format 2"):
        Boundary.load(tmp_path)
    for damaged in ("", '{"version": 1', "[]", "{}"):
        (tmp_path / "suiro-rebuild.json").write_text(damaged)
        with pytest.raises(CheckpointError, match=r"suiro-rebuild.json is damaged .*Restore the checkpoint"):
            Boundary.load(tmp_path)


def test_input_partitions_pause_where_the_old_run_had_more() -> None:
    boundary = Boundary(offsets={A: 5, B: 7}, waiting={A: -1, B: 900})
    assert boundary.paused(Positions(offsets={A: 5, B: 6}, replayed=True)) == {A: -1}
    assert boundary.paused(Positions(offsets={A: 5, B: 7})) == {}


@pytest.mark.parametrize("others", [[], [BufferedFrom("a", 0, 6, 800)]])
@pytest.mark.parametrize("is_last", [True, False])
def test_records_that_wait_are_not_committed(others: list[BufferedFrom], is_last: bool) -> None:
    """Of those that wait in several tasks, the first one says where a rebuild goes on."""
    planned = Positions(offsets={A: 9, B: 9}, behind=frozenset({A, B}))
    first = BufferedFrom("a", 0, 4, 900)
    found = settled([planned], {A: 9, B: 9}, [*others, first] if is_last else [first, *others], None)
    assert found == {A: (4, "900"), B: (9, NOT_READ)}


def test_replayed_micro_batches_commit_the_boundary() -> None:
    boundary = Boundary(offsets={A: 5}, waiting={A: 900})
    found = settled([Positions(offsets={A: 2, B: 1}, replayed=True)], {A: 2, B: 1}, [], boundary)
    assert found == {A: (5, "900"), B: (1, "")}
    assert settled([Positions(offsets={A: 8})], {A: 8}, [], boundary) == {A: (8, "")}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with node() as log:
        with Client(log.bootstrap_servers) as client:
            client.create_topics([NewTopic("in", 1), NewTopic("other", 1)])
            records = [Record(offset=n, timestamp=n, key=b"k", value=b"v") for n in range(5)]
            client.produce({("in", 0): encode_batch(records)})
        yield log.bootstrap_servers


def look(server: str, application: str, checkpoint: Path, *, rebuild: bool = False) -> Boundary | None:
    sink = SinkOptions.parse({"kafka.bootstrap.servers": server, "application.id": application})
    internal = [f"{application}-counts-changelog"]
    with Client(server) as client:
        return boundary_of(client, sink, ("in",), checkpoint, rebuild=rebuild, internal_topics=internal)


def committed(server: str, application: str, offset: int, metadata: str = "") -> None:
    with Client(server) as client:
        client.offset_commit(application, {("in", 0): (offset, metadata), ("other", 0): (1, "")})


def test_a_first_start_has_no_boundary(server: str, tmp_path: Path) -> None:
    assert look(server, "new", tmp_path) is None
    assert look(server, "new", tmp_path, rebuild=True) is None
    assert not list(tmp_path.iterdir())


def test_an_application_whose_offsets_have_expired_is_not_rebuilt(
    server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every result would be written again. Kafka Streams reads from the beginning then, and so does a start."""
    changelog = "expired-counts-changelog"
    with Client(server) as client:
        client.create_topics([NewTopic(changelog, 2)])
        assert look(server, "expired", tmp_path, rebuild=True) is None, "it was killed before it wrote anything"
        client.produce({(changelog, 1): encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")])})
    with pytest.raises(CheckpointError, match=rf"{changelog} has records.*no committed offsets.*without rebuild"):
        look(server, "expired", tmp_path, rebuild=True)
    assert not caplog.records
    assert look(server, "expired", tmp_path) is None
    assert "Everything is read and written again" in caplog.text


def test_a_rebuild_that_writes_results_again_says_so(
    server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an application without internal topics, only what it wrote may tell that it has run."""
    for rebuild, output_topics in ((True, []), (False, ["in"]), (True, ["other"]), (True, ["in", "other"])):
        assert not caplog.records
        options = SinkOptions.parse({"kafka.bootstrap.servers": server, "application.id": "forgotten"})
        with Client(server) as client:
            found = boundary_of(client, options, ("in",), tmp_path, rebuild=rebuild, output_topics=output_topics)
            assert found is None
    assert "All results are written, also those that are in in already" in caplog.text


def test_a_start_without_the_checkpoint_is_refused(server: str, tmp_path: Path) -> None:
    committed(server, "gone", 3)
    place = tmp_path / "gone"
    with pytest.raises(CheckpointError, match=r"in-0 at 3.*is not in .*/gone.*new application id.*rebuild"):
        look(server, "gone", place)
    assert not place.exists()
    (place / "offsets").mkdir(parents=True)
    (place / "offsets" / "0").touch()
    assert look(server, "gone", place) is None
    with pytest.raises(CheckpointError, match="has the state of 'gone' already"):
        look(server, "gone", place, rebuild=True)


def test_a_rebuild_notes_the_marker_that_it_begins_after(server: str, tmp_path: Path) -> None:
    with Client(server) as client:
        client.create_topics([NewTopic(MARKER_TOPIC, 1)])
        client.offset_commit("marked", {("in", 0): (3, ""), (MARKER_TOPIC, 0): (8, "seven")})
    found = look(server, "marked", tmp_path, rebuild=True)
    assert found is not None
    assert found.marker == "seven"
    assert Boundary.load(tmp_path) == found


def test_a_rebuild_begins_and_goes_on(server: str, tmp_path: Path) -> None:
    committed(server, "again", 3, NOT_READ)
    wanted = Boundary(offsets={("in", 0): 3}, waiting={("in", 0): -1}, marker="")
    assert look(server, "again", tmp_path, rebuild=True) == wanted
    committed(server, "again", 5)
    for rebuild in (False, True):
        assert look(server, "again", tmp_path, rebuild=rebuild) == wanted


def test_what_the_log_does_not_have_any_more(server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    committed(server, "ahead", 9)
    with pytest.raises(CheckpointError, match=r"in-0 ends at 5 and was read up to 9.*made again"):
        look(server, "ahead", tmp_path, rebuild=True)
    assert not list(tmp_path.iterdir())


def test_a_rebuild_that_goes_on_looks_at_the_log_again(server: str, tmp_path: Path) -> None:
    """It was killed before it planned anything; then its topic was made again, and has other records."""
    sink = SinkOptions.parse({"kafka.bootstrap.servers": server, "application.id": "remade"})
    with Client(server) as client:
        client.create_topics([NewTopic("made", 1)])
        record = Record(offset=0, timestamp=0, key=b"k", value=b"v")
        client.produce({("made", 0): encode_batch([record])})
        client.offset_commit("remade", {("made", 0): (1, "")})
        assert boundary_of(client, sink, ("made",), tmp_path, rebuild=True) is not None
        client.delete_topics(["made"])
        client.create_topics([NewTopic("made", 1)])
        with pytest.raises(CheckpointError, match=r"made-0 ends at 0 and was read up to 1.*made again"):
            boundary_of(client, sink, ("made",), tmp_path, rebuild=False)


def test_a_start_that_planned_nothing_binds_no_other_topology(server: str, tmp_path: Path) -> None:
    """The first start fails at a topic that is in its way. The next one has a topology without it."""

    def prepared(store: str) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=serdes.string, value=serdes.string)
        stream.group_by_key().count(materialized=Materialized.as_(store))
        KafkaStreams(builder.build(), application_id="first", bootstrap_servers=server, state_dir=tmp_path)._prepared()

    with Client(server) as client:
        client.create_topics([NewTopic("first-one-changelog", 7)])
    with pytest.raises(TopologyError, match="has 7 partitions"):
        prepared("one")
    prepared("two")
    # That one has planned a micro-batch.
    (tmp_path / "first" / "offsets").mkdir()
    (tmp_path / "first" / "offsets" / "0").touch()
    with pytest.raises(TopologyError, match="was written by another topology"):
        prepared("three")


class Shortened:
    """A client of a log whose first records retention has removed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.transaction = client.transaction
        self.offset_fetch = client.offset_fetch

    def list_offsets(self, wanted: dict[tuple[str, int], int]) -> object:
        found = self._client.list_offsets(wanted)
        return {
            place: type(item)(offset=2, timestamp=item.timestamp, leader_epoch=item.leader_epoch)
            if wanted[place] == -2
            else item
            for place, item in found.items()
        }


def test_what_retention_removed_is_told(server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    committed(server, "short", 4)
    sink = SinkOptions.parse({"kafka.bootstrap.servers": server, "application.id": "short"})
    with Client(server) as client, caplog.at_level(logging.WARNING):
        assert boundary_of(Shortened(client), sink, ("in",), tmp_path, rebuild=True) is not None
    assert "misses what retention removed: in-0 begins at offset 2" in caplog.text
