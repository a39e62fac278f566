from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.errors import ConfigError, FatalError
from suiro.spark.checkpoint import names_in, query_id_of, read_planned, same_cluster_offsets
from suiro.spark.offsets import digest
from suiro.spark.options import SinkOptions
from suiro.spark.sink import _Sink

OURS = '{"in": {"0": 5, "1": 7}, "@ids": {"in": "aa"}}'


def checkpoint(directory: Path, *sources: str, batch_id: int = 0) -> str:
    (directory / "offsets").mkdir(exist_ok=True)
    text = "\n".join(["v1", '{"batchWatermarkMs":0}', *sources])
    (directory / "offsets" / str(batch_id)).write_text(text)
    return str(directory)


def test_sources_are_read_from_sparks_offset_log(tmp_path: Path) -> None:
    location = checkpoint(tmp_path, OURS, "-", "17")
    for way in (location, f"file://{location}", f"file:{location}", f"{location}/"):
        planned = read_planned(way, 0)
        assert planned.sources == (OURS, None, "17")
        assert names_in(f"{way.rstrip('/')}/offsets") == ["0"]
        assert names_in(f"{way.rstrip('/')}/commits") == []
    assert read_planned(location, 1) is None


def test_the_id_of_a_query_is_read_or_what_is_wrong_is_said(tmp_path: Path) -> None:
    assert query_id_of(str(tmp_path)) is None
    (tmp_path / "metadata").write_text('{"id": "5f"}')
    assert query_id_of(f"{tmp_path}/") == "5f"
    for damaged in ("", "{", "[1]", "{}"):
        (tmp_path / "metadata").write_text(damaged)
        with pytest.raises(FatalError, match=r"/metadata is not what Spark writes"):
            query_id_of(str(tmp_path))


def test_sources_have_names_in_the_second_version_of_the_offset_log(tmp_path: Path) -> None:
    """Their offsets were not committed. A rebuild of a topology found none, and wrote everything again."""
    first = read_planned(checkpoint(tmp_path, OURS, "-"), 0)
    path = tmp_path / "offsets" / "0"
    path.write_text(path.read_text().replace("v1", "v2").replace(OURS, f"0:{OURS}").replace("\n-", "\n1:-"))
    found = read_planned(str(tmp_path), 0)
    assert first is not None
    assert found is not None
    assert found.sources == first.sources
    assert found.digest == digest(f"0:{OURS}\n1:-"), "as an earlier build has it in its marker"
    path.write_text(path.read_text().replace("v2", "v3"))
    with pytest.raises(FatalError, match="not an offset log"):
        read_planned(str(tmp_path), 0)


def test_a_uri_names_the_folder_that_hadoop_makes_of_it(tmp_path: Path) -> None:
    """Python's `as_uri` gives %20 for a space; to Hadoop these are three characters of the folder's name."""
    folder = tmp_path / "with%20what?is#left"
    folder.mkdir()
    checkpoint(folder, OURS)
    for way in (f"file://{folder}", f"file:{folder}", str(folder)):
        assert read_planned(way, 0) is not None


def test_the_digest_is_of_the_sources_only(tmp_path: Path) -> None:
    location = checkpoint(tmp_path, OURS)
    before = read_planned(location, 0)
    path = tmp_path / "offsets" / "0"
    path.write_text(path.read_text().replace('"batchWatermarkMs":0', '"batchWatermarkMs":9'))
    assert read_planned(location, 0) == before
    checkpoint(tmp_path, OURS.replace("7", "8"))
    after = read_planned(location, 0)
    assert before is not None
    assert after.digest != before.digest


def test_offsets_of_the_same_cluster_only(tmp_path: Path) -> None:
    foreign = '{"in": {"0": 3}}'  # Spark's own connector: no topic ids
    planned = read_planned(checkpoint(tmp_path, OURS, foreign, "not json"), 0)
    assert planned is not None
    assert same_cluster_offsets(planned, {"in": "aa"}) == {("in", 0): 5, ("in", 1): 7}
    assert same_cluster_offsets(planned, {"in": "bb"}) == {}
    assert same_cluster_offsets(planned, {}) == {}


def test_the_offsets_of_a_topic_that_was_made_again_during_a_run_are_committed(tmp_path: Path) -> None:
    """A rebuild finds in them how far the new topic was processed."""
    options = {"kafka.bootstrap.servers": "h:1", "application.id": "a", "checkpointLocation": str(tmp_path)}
    sink, topic_id = _Sink(SinkOptions.parse(options).for_stream()), "aa"
    asked: list[list[str]] = []

    def metadata(names: list[str]) -> dict[str, Any]:
        asked.append(names)
        return {"in": SimpleNamespace(topic_id=SimpleNamespace(hex=topic_id))}

    sink._client = SimpleNamespace(metadata=metadata)  # type: ignore[assignment]
    for topic_id in ("aa", "aa", "bb", "bb"):
        planned = read_planned(checkpoint(tmp_path, OURS.replace("aa", topic_id)), 0)
        assert planned is not None
        assert sink._source_offsets(planned) == {("in", 0): 5, ("in", 1): 7}
    assert asked == [["in"], ["in"]]


def test_what_is_not_an_offset_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("something else")
    with pytest.raises(FatalError, match="not an offset log"):
        read_planned(str(tmp_path), 0)


def test_a_checkpoint_in_an_object_store_is_read_by_the_name_that_spark_has_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from moto.server import ThreadedMotoServer
    from pyarrow.fs import FileSystem

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
        for name, value in (settings | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
            monkeypatch.setenv(name, value)
        store, _ = FileSystem.from_uri("s3://bucket?allow_bucket_creation=true&region=us-east-1")
        store.create_dir("bucket")
        with store.open_output_stream("bucket/checkpoint/offsets/0") as stream:
            stream.write(f"v1\n{{}}\n{OURS}".encode())
        planned = read_planned("s3a://bucket/checkpoint", 0)
        assert planned.sources == (OURS,)
        assert read_planned("s3a://bucket/checkpoint", 1) is None
        assert names_in("s3a://bucket/checkpoint/offsets") == ["0"]
        assert names_in("s3a://bucket/checkpoint/commits") == []
        with store.open_output_stream("bucket/with%20what is?left/offsets/0") as stream:
            stream.write(f"v1\n{{}}\n{OURS}".encode())
        assert read_planned("s3a://bucket/with%20what is?left", 0) is not None
        assert names_in("s3a://bucket/with%20what is?left/offsets") == ["0"]
    finally:
        server.stop()
    with pytest.raises(ConfigError, match="wasbs://c@a/checkpoint"):
        read_planned("wasbs://c@a/checkpoint", 0)
