"""The records that readers of a store see, by the events of its follower."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.view_output import spec_of
from support.view_stores import cut
from support.waiting import is_running, wait_until

from suiro.streams import KTable, StreamsBuilder, serdes
from suiro.views import topology_of, view
from suiro.views.cuts import Cut
from suiro.views.pipeline import supervision
from suiro.views.pipeline.applying import joined_topics
from suiro.views.pipeline.follower import Follower
from suiro.views.store import open_store

A, B = ("a", 0), ("b", 0)
SETTLED = cut(0, inputs={A: 10, B: 10})
BEHIND_IN_A = cut(1, inputs={A: 20, B: 20}, behind=[A])
BEHIND_IN_BOTH = cut(2, inputs={A: 30, B: 30}, behind=[A, B])


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(spec_of("delays"), tmp_path, tmp_path, bootstrap_servers="none")


def test_a_record_that_waits_for_another_partition_is_not_seen(follower: Follower) -> None:
    def at(reached: Cut) -> list[int]:
        """Of each partition, the last offset that is seen."""
        follower._hear({"event": "at", "cut": reached.to_json()})
        return [max((at for at in range(50) if follower.reflects({place: at})), default=-1) for place in (A, B)]

    assert not follower.reflects({A: 0})
    assert at(SETTLED) == [9, 9]
    assert at(BEHIND_IN_A) == [19, 9]
    assert at(BEHIND_IN_BOTH) == [19, 9]
    assert not follower.reflects({A: 19, B: 19})
    assert at(cut(3, inputs={A: 40, B: 30})) == [39, 29]
    assert follower.reflects({A: 39, B: 29})


def test_a_record_waits_only_for_partitions_of_its_task(follower: Follower) -> None:
    """A reader that had written to one partition got no answer as long as another one had a backlog."""
    joined = {"a": ["a", "b"], "b": ["a", "b"], "c": ["c"]}
    places = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0)]
    reached = cut(0, inputs=dict.fromkeys(places, 10), behind=[("a", 0)])
    follower._hear({"event": "begun", "cut": None, "joined": joined})  # once: a view may read many topics
    follower._hear({"event": "at", "cut": reached.to_json()})
    assert [place for place in places if not follower.reflects({place: 9})] == [("b", 0)]


def test_topics_whose_partitions_one_task_processes() -> None:
    def table(builder: StreamsBuilder, topic: str) -> KTable:
        return builder.table(topic, key=serdes.string, value=serdes.json)

    def of_one(builder: StreamsBuilder) -> KTable:
        return table(builder, "a")

    def of_two(builder: StreamsBuilder) -> KTable:
        return table(builder, "a").join(table(builder, "b"), lambda a, b: a | b)

    def by_another_key(builder: StreamsBuilder) -> KTable:
        return table(builder, "a").to_stream().group_by(lambda key, row: row["b"], key=serdes.string).count()

    def found(build: Any) -> Any:
        return joined_topics(topology_of(view("delays", key="id")(build).definition, "delays.v1"))  # type: ignore[attr-defined]

    assert found(of_one) == {"a": ["a"]}
    assert found(of_two) == {"a": ["a", "b"], "b": ["a", "b"]}
    assert found(by_another_key) is None


def test_what_the_store_has_at_the_start_is_seen(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open_store(spec_of("delays"), tmp_path) as store:
        for one in (SETTLED, BEHIND_IN_A, BEHIND_IN_BOTH):
            store.apply(one, [], [])

    def refuses(*_: Any, **__: Any) -> Any:
        raise OSError("no process")

    monkeypatch.setattr("suiro.views.pipeline.follower.process.start_command", refuses)
    follower.start()
    assert follower.cut == BEHIND_IN_BOTH
    assert follower.reflects({A: 9, B: 9})
    assert not follower.reflects({B: 10})
    follower.stop()


@pytest.mark.parametrize("forked", ["sleep 600", "setsid sh -c 'echo $$ >> alone; exec sleep 600'"])
def test_what_the_code_has_forked_keeps_no_child(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, forked: str
) -> None:
    """It has the pipe of the events, and the host waited for its end: to start the child again, or to stop."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervision, "LAST_EVENT_S", 0.1)
    script = f"""echo '{{"event": "begun", "cut": null, "joined": null}}'; {forked} & exec cat > /dev/null"""
    monkeypatch.setattr("suiro.views.pipeline.follower.apart", lambda command: ["sh", "-c", script])

    def said() -> list[str]:
        file = tmp_path / "alone"
        return file.read_text().split() if file.exists() else []

    follower.start()
    pids = []
    try:
        for _ in range(2):
            pids.append(wait_until(lambda: follower.pid not in pids and follower.pid, what="a child"))
            if "alone" in forked:
                wait_until(lambda: len(said()) == len(pids), what="its fork")
            if len(pids) == 1:
                os.kill(pids[0], signal.SIGKILL)
        stopping = threading.Thread(target=follower.stop, daemon=True)
        stopping.start()
        stopping.join(20)
        assert not stopping.is_alive()
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        for pid in map(int, said()):
            os.kill(pid, signal.SIGKILL)


def test_without_room_for_a_thread_it_is_tried_again(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without room for a process. Readers got the rows of that moment until the host was restarted."""
    script = """echo '{"event": "begun", "cut": null, "joined": null}'; exec cat > /dev/null"""
    monkeypatch.setattr("suiro.views.pipeline.follower.apart", lambda command: ["sh", "-c", script])
    start = threading.Thread.start
    refused: list[int] = []

    def start_unless_first(thread: threading.Thread) -> None:
        if thread._target.__name__ == "_hear_all" and not refused:  # type: ignore[attr-defined]
            refused.append(thread._target.__self__.pid)  # type: ignore[attr-defined]
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_unless_first)
    follower.start()
    wait_until(lambda: refused and follower.pid not in (None, *refused), what="another child")
    assert not is_running(refused[0])
    follower.stop()


@pytest.mark.parametrize(("error", "is_lasting"), [(PermissionError, True), (BlockingIOError, False)])
def test_a_folder_that_it_may_not_use_is_a_lasting_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[OSError], is_lasting: bool
) -> None:
    """The version stayed in construction without end. Too many processes are no fault of the version."""
    gave_up: list[str] = []
    tried = threading.Semaphore(0)
    follower = Follower(
        spec_of("delays"), tmp_path, tmp_path, bootstrap_servers="none", gave_up=lambda why: bool(gave_up.append(why))
    )

    def refuses(*_: Any, **__: Any) -> Any:
        tried.release()
        raise error(13, "it is refused", str(tmp_path / "follower.log"))

    monkeypatch.setattr("suiro.views.pipeline.follower.process.start_command", refuses)
    monkeypatch.setattr("suiro.views.pipeline.follower.FIRST_PAUSE_S", 0.01)
    follower.start()
    for _ in range(3 if is_lasting else 5):
        assert tried.acquire(timeout=20)
    if is_lasting:
        wait_until(lambda: gave_up, what="giving up")
    assert [("follower.log" in why) for why in gave_up] == [True] * is_lasting
    follower.stop()
    assert "it is refused" in str(follower.error)
