from __future__ import annotations

import pytest

from suiro.errors import ConfigError
from suiro.spark.decide import MissingMarker
from suiro.spark.options import EARLIEST, LATEST, SinkOptions, SourceOptions

SOURCE = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
SINK = {"kafka.bootstrap.servers": "h:1"}


def source(**more: str) -> SourceOptions:
    return SourceOptions.parse(SOURCE | more)


def test_defaults() -> None:
    options = source()
    assert options.bootstrap_servers == "h:1"
    assert options.subscription.topics == ("a",)
    assert options.starting is None
    assert options.ending.default == LATEST
    assert options.fail_on_data_loss
    assert options.read_committed
    assert not options.include_headers
    assert options.max_offsets_per_trigger is None


def test_names_arrive_in_lower_case_from_spark() -> None:
    options = source(startingoffsets="earliest", maxoffsetspertrigger="10", failondataloss="FALSE")
    assert options.starting.default == EARLIEST
    assert options.max_offsets_per_trigger == 10
    assert not options.fail_on_data_loss


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean startingOffsets"):
        source(startingOffset="earliest")
    with pytest.raises(ConfigError, match="sink option"):
        SinkOptions.parse(SINK | {"subscribe": "a"})


def test_client_settings_pass_through_without_their_prefix() -> None:
    options = SourceOptions.parse(SOURCE | {"kafka.client.id": "me"})
    assert options.client_settings == {"client.id": "me"}


@pytest.mark.parametrize("missing", [{"subscribe": "a"}, {"subscribe": "a", "kafka.bootstrap.servers": " "}])
def test_bootstrap_servers_are_required(missing: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        SourceOptions.parse(missing)


def test_exactly_one_kind_of_subscription() -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        source(subscribePattern="a.*")
    with pytest.raises(ConfigError, match="exactly one"):
        SourceOptions.parse(SINK)
    assert source(subscribe=" a, b,a ,").subscription.topics == ("a", "b")
    only = {"kafka.bootstrap.servers": "h:1"}
    assert SourceOptions.parse(only | {"subscribePattern": "a.*"}).subscription.pattern == "a.*"
    assigned = SourceOptions.parse(only | {"assign": '{"a":[1,0],"b":[2]}'}).subscription.assigned
    assert assigned == (("a", 0), ("a", 1), ("b", 2))


@pytest.mark.parametrize("text", ["x", "[]", "{}", '{"a":3}', '{"a":["x"]}'])
def test_a_malformed_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match="assign"):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "assign": text})


def test_offsets_by_partition() -> None:
    options = source(startingOffsets='{"a":{"0":23,"1":-2}}', endingOffsets='{"a":{"0":50,"1":-1}}')
    assert options.starting.offsets == {("a", 0): 23, ("a", 1): EARLIEST}
    assert options.ending.offsets == {("a", 0): 50, ("a", 1): LATEST}


@pytest.mark.parametrize("text", ["soonest", "{", '{"a":1}', '{"a":{"0":-3}}', '{"a":{"0":"x"}}', "{}"])
def test_malformed_offsets(text: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        source(startingOffsets=text)


def test_timestamps() -> None:
    options = source(startingTimestamp="1000", endingOffsetsByTimestamp='{"a":{"0":5}}')
    assert options.starting.timestamp == 1000
    assert options.ending.timestamps == {("a", 0): 5}


def test_a_read_cannot_end_at_the_earliest() -> None:
    with pytest.raises(ConfigError, match="endingOffsets"):
        source(endingOffsets="earliest")

    with pytest.raises(ConfigError, match="endingOffsets"):
        source(endingOffsets='{"a":{"0":5,"1":-2}}')


def test_a_batch_refuses_what_only_a_stream_may_say() -> None:
    """Spark's connector refuses it, too: nothing would be read, and nothing said."""
    for latest in ("latest", '{"a":{"0":5,"1":-1}}'):
        with pytest.raises(ConfigError, match="batch read cannot begin at the latest"):
            source(startingOffsets=latest).for_batch()
    for limit in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        with pytest.raises(ConfigError, match=f"{limit} is for streams"):
            SourceOptions.parse(SOURCE | {limit: "5"}).for_batch()
    for good in ({}, {"startingOffsets": "earliest"}, {"startingTimestamp": "1"}):
        source(**good).for_batch()


@pytest.mark.parametrize("text", ["a(", r"\p{Alpha}+"])
def test_a_pattern_that_is_no_regular_expression_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"option subscribePattern: .* regular expression"):
        SourceOptions.parse(SINK | {"subscribePattern": text})


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_limit_is_a_positive_number(value: str) -> None:
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger"):
        source(maxOffsetsPerTrigger=value)


def test_isolation_level() -> None:
    assert not SourceOptions.parse(SOURCE | {"kafka.isolation.level": "read_uncommitted"}).read_committed
    with pytest.raises(ConfigError, match="isolation"):
        SourceOptions.parse(SOURCE | {"kafka.isolation.level": "dirty"})


def test_sink_defaults() -> None:
    options = SinkOptions.parse(SINK)
    assert options.topic is None
    assert options.compression == 0
    assert options.missing_marker is MissingMarker.FAIL
    assert options.client_settings == {}


def test_sink_settings_of_its_own_are_not_passed_to_the_client() -> None:
    options = SinkOptions.parse(
        SINK | {"kafka.compression.type": "zstd", "kafka.acks": "all", "kafka.enable.idempotence": "true"}
    )
    assert options.compression == 4
    assert options.client_settings == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.acks", "1"),
        ("kafka.enable.idempotence", "false"),
        ("kafka.compression.type", "rar"),
        ("kafka.batch.size", "1"),
        ("marker.missing", "guess"),
        ("checkpoint.missing", "produce"),
    ],
)
def test_sink_settings_that_break_the_promise(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        SinkOptions.parse(SINK | {name: value})


def test_a_stream_needs_an_application_and_a_checkpoint() -> None:
    with pytest.raises(ConfigError, match=r"application\.id"):
        SinkOptions.parse(SINK).for_stream()
    with pytest.raises(ConfigError, match="checkpointLocation"):
        SinkOptions.parse(SINK | {"application.id": "a"}).for_stream()
    SinkOptions.parse(SINK | {"application.id": "a", "checkpointLocation": "/c"}).for_stream()
