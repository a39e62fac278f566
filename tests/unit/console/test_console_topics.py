"""Names of topics that are misspelt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from suiro.console import topics
from suiro.errors import UnknownTopicError

NAMES = [f"prod.team-{number % 40:02d}.service-{number:05d}.events" for number in range(10_000)]


@pytest.mark.parametrize(
    "misspelt",
    [
        "podr.team-07.service-00007.events",
        "prod.team-07.servise-00007.events",
        "prod.team-07.service-00007.event",
    ],
)
def test_the_nearest_of_many_topics_is_suggested(monkeypatch: pytest.MonkeyPatch, misspelt: str) -> None:
    """The comparison of each took half a second of CPU, which any viewer could ask for."""
    compared: list[int] = []

    def matches(name: str, possible: list[str], n: int) -> list[str]:
        compared.append(len(possible))
        return near(name, possible, n=n)

    near = topics.get_close_matches
    monkeypatch.setattr(topics, "get_close_matches", matches)
    client: Any = SimpleNamespace(metadata=lambda asked=None: {} if asked else dict.fromkeys(NAMES))
    with pytest.raises(UnknownTopicError, match=r"did you mean 'prod\.team-07\.service-00007\.events'"):
        topics.topic_info(client, misspelt)
    assert compared == [topics.SUGGESTED_FROM]
