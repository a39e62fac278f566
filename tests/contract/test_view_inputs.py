"""Before a version is built: are its inputs there from the beginning?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from support.admin import ask
from support.batches import batch_of
from support.wire import Wire

from suiro.client import Client, NewTopic
from suiro.errors import UnknownTopicError
from suiro.streams import serdes
from suiro.views import VersionSpec, view
from suiro.views.pipeline.inputs import InputsGoneError, NameTakenError, check_inputs, check_names, own_topics


@view("counts", key="word")
def counts(builder: Any) -> Any:
    return builder.stream("words", key=serdes.string, value=serdes.json).group_by_key().count()


def spec(*topics: str, **settings: str) -> VersionSpec:
    made = VersionSpec.of(counts.definition, 1, code="", entry="app.py:counts", settings=settings)  # type: ignore[attr-defined]
    return dataclasses.replace(made, inputs=topics)


def lose(bootstrap: str, topic: str, offset: int) -> None:
    entry = {"name": topic, "partitions": [{"partition_index": 1, "offset": offset}]}
    with Wire(bootstrap) as wire:
        wire.produce(topic, batch_of("a", "b", "c"), partition=1)
        answer = ask(wire, "delete_records", 2, topics=[entry], timeout=5_000)
    assert answer["topics"][0]["partitions"][0]["error_code"] == "none"


def test_inputs_that_are_whole(client: Client, bootstrap: str, new_topic: Callable[..., str]) -> None:
    check_inputs(client, spec(new_topic(2), new_topic(1, cleanup_policy="compact")))
    with pytest.raises(UnknownTopicError, match="reads topic 'no-such-topic', which does not exist"):
        check_inputs(client, spec(new_topic(), "no-such-topic"))


def test_names_that_are_taken(client: Client, unique: str, new_topic: Callable[..., str]) -> None:
    """A view that was forgotten left its group: a version of that name would leave out what the group has processed."""
    new = dataclasses.replace(
        spec(), application_id=f"{unique}-v1", output_topic=f"{unique}.v1", cuts_topic=f"{unique}.v1.cuts"
    )
    check_names(client, new)
    topic = new_topic(1)
    client.offset_commit(new.application_id, {(topic, 0): (3, "")})
    with pytest.raises(NameTakenError, match=f"there is consumer group '{unique}-v1' already"):
        check_names(client, new)
    with pytest.raises(NameTakenError, match=f"there is topic '{topic}' and consumer group"):
        check_names(client, dataclasses.replace(new, output_topic=topic))


def test_topics_of_an_application_whose_id_begins_with_the_versions_are_not_taken_for_its_own(
    client: Client, unique: str
) -> None:
    """They were deleted when the version was retired, if the application was started after the deploy."""
    made = VersionSpec.of(
        dataclasses.replace(counts.definition, name=unique.replace("-", "_")), 1, code="", entry="a.py:c"
    )  # type: ignore[attr-defined]
    store = "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
    mine, theirs = f"{made.application_id}-{store}-changelog", f"{made.application_id}-enrich-store-changelog"
    client.create_topics([NewTopic(theirs, 1)])
    check_names(client, made)
    client.create_topics([NewTopic(name, 1) for name in (mine, made.output_topic, made.cuts_topic)])
    written = [mine, made.output_topic, made.cuts_topic]
    assert sorted(own_topics(client, VersionSpec.from_json(made.to_json()))) == sorted(written)
    with pytest.raises(NameTakenError, match=f"there is topic .*'{mine}'.* already"):
        check_names(client, made)


def test_a_beginning_that_retention_removed_is_named(
    client: Client, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    lose(bootstrap, topic, 3)  # all of it: the partition is empty, and was not always
    with pytest.raises(InputsGoneError, match=f"{topic}-1 begins at offset 3"):
        check_inputs(client, spec(new_topic(), topic))
    check_inputs(client, spec(topic, startingOffsets="earliest"))


def test_of_what_was_processed_nothing_is_needed(client: Client, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    lose(bootstrap, topic, 2)
    check_inputs(client, spec(topic), processed={(topic, 1): 2})
    with pytest.raises(InputsGoneError, match=f"{topic}-1 begins at offset 2"):
        check_inputs(client, spec(topic), processed={(topic, 0): 2, (topic, 1): 1})


@pytest.mark.parametrize(("policy", "is_gone"), [("compact", False), ("compact,delete", True)])
def test_of_a_compacted_topic_the_last_of_each_key_is_there(
    policy: str, is_gone: bool, client: Client, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    lose(bootstrap, topic, 2)
    change = {"config_operation": 0, "name": "cleanup.policy", "value": policy}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    with Wire(bootstrap) as wire:
        ask(wire, "incremental_alter_configs", 1, resources=[resource])
    if is_gone:
        with pytest.raises(InputsGoneError):
            check_inputs(client, spec(topic))
    else:
        check_inputs(client, spec(topic))
