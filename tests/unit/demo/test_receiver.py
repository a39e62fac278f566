"""Who gets the alerts: acts once on each, and loses an answer now and then."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from suiro.demo.system import LOSES_EVERY, AlertReceiver


@pytest.fixture
def receiver() -> Iterator[AlertReceiver]:
    made = AlertReceiver()
    yield made
    made.stop()


def test_what_comes_again_is_taken_once(receiver: AlertReceiver) -> None:
    with httpx.Client() as client:
        answers = []
        for number in (1, 1, 2):
            answers.append(client.post(receiver.url, json={"n": number}, headers={"Idempotency-Key": f"a-{number}"}))
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert client.post(receiver.url, json={"n": 3}).status_code == 400, "nothing to know it again by"
    assert receiver.taken == {"a-1": {"n": 1}, "a-2": {"n": 2}}
    assert receiver.posts == 3


def test_a_lost_answer_is_of_an_alert_that_was_taken(receiver: AlertReceiver) -> None:
    answered = [receiver.take(str(number), {}) for number in range(2 * LOSES_EVERY)]
    assert answered.count(False) == 2
    assert len(receiver.taken) == 2 * LOSES_EVERY
    lost = str(answered.index(False))
    assert receiver.take(lost, {}), "the second time it is answered"
