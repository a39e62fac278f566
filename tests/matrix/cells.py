"""What happens in each cell: somebody dies, sleeps or is cut off at one step, and the query must come to its right end.

A step is a fault point of the sink, or a request of it: not received, or answered and the answer not received. A
fault that did not happen fails the cell, but for requests that the protocol in use does not have (`NotSent`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from threading import Barrier
from typing import Literal

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from suiro.client import NewTopic
from tests.matrix.driver import DONE, FENCED, PARTITIONS, REFUSED, STOPPED, SUPERSEDED
from tests.matrix.scene import DEADLINE_S, LOOK_AGAIN_S, Running, Scene
from tests.support.waiting import wait_until

PLANNING, TASKS, FENCING = ("planned",), ("task_start", "task_staged"), ("before_fence", "after_fence")
OPEN = ("after_add_partitions", "after_first_produce", "after_produce", "after_commit_offsets")
DECIDED, NOTED = ("after_end", "after_bump", "before_return"), ("noted",)
FOOTER = ("after_trailing_record",)  # with transactions that have one
WORKER_POINTS = (*TASKS, *FENCING, *OPEN, *FOOTER, *DECIDED)
POINTS = (*PLANNING, *WORKER_POINTS, *NOTED)  # those two are the driver's own
BEGINS_ANEW = {"checkpoint.missing": "begin"}
REQUESTS = {
    "InitProducerId, the fence": ("init_producer_id", 0),
    "OffsetFetch of the marker": ("offset_fetch", 0),
    "AddPartitionsToTxn": ("add_partitions_to_txn", 1),
    "AddOffsetsToTxn": ("add_offsets_to_txn", 1),
    "Produce": ("produce", 1),
    "TxnOffsetCommit": ("txn_offset_commit", 1),
    "EndTxn": ("end_txn", 1),
    "InitProducerId, the next epoch": ("init_producer_id", 1),
    # A transaction with a footer has two of Produce. The first one's footer asks thrice, as it looks for the last cut.
    "ListOffsets for the footer": ("list_offsets", 3),
    "Produce of the footer": ("produce", 3),
}
"""API, and how many of it go well before."""
OUTAGE_S = 3 * DEADLINE_S
TIMEOUT_MS = "20000"  # a driver on a busy machine comes to its step before it
V1_ONLY = ("AddPartitionsToTxn", "AddOffsetsToTxn", "InitProducerId, the next epoch")


class NotSent(Exception):
    """The protocol in use has no such request."""


class Outage:
    """One death of the broker for all cells that wait for it: each has its driver at its own step by then."""

    def __init__(self, parties: int, kill: Callable[[], None], restart: Callable[[], None]) -> None:
        self._down = Barrier(parties, action=kill, timeout=OUTAGE_S)
        self._up = Barrier(parties, action=restart, timeout=OUTAGE_S)

    def seat(self) -> Seat:
        return Seat([self._down, self._up])


class Seat:
    """One cell's. A cell that failed keeps nobody waiting: it goes through what is left at its end."""

    def __init__(self, barriers: list[Barrier]) -> None:
        self._left = barriers

    def next(self) -> None:
        """First the broker dies, then it is there again."""
        self._left.pop(0).wait()

    def leave(self) -> None:
        while self._left:
            self.next()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """`run` is given the scene, and a seat where `needs_outage`."""

    who: str
    when: str
    run: Callable[..., None]
    needs_outage: bool = False
    row: int | None = None
    """Of the failure table, where this is one of its rows."""

    @property
    def name(self) -> str:
        return f"{self.who} | {self.when}"


def all_cells() -> list[Cell]:
    from tests.matrix import barrier_cells  # which are made of these

    return [*_pairs(), *_requests(), *_rows(), *barrier_cells.all_cells()]


def _at(point: str) -> str:
    # The fence is passed in the first micro-batch of a run only.
    return f"{point}@batch={0 if point in FENCING else 1}:stop"


def _pairs() -> Iterator[Cell]:
    for point in POINTS:
        yield Cell(who=DRIVER, when=point, run=_bound(_driver_dies, point))
        yield Cell(who=TWICE, when=point, run=_bound(_driver_dies_again, point))
        yield Cell(who=NETWORK, when=point, run=_bound(_network_fails, point))
        yield Cell(who=BROKER, when=point, run=_bound(_broker_dies, point), needs_outage=True)
        yield Cell(who=ZOMBIE, when=point, run=_bound(_driver_sleeps, point))
        yield Cell(who=RIVAL, when=point, run=_bound(_driver_wakes_too_early, point))
    for point in WORKER_POINTS:
        yield Cell(who=WORKER, when=point, run=_bound(_worker_dies, point))
    for point in (*OPEN[2:], *FOOTER):
        yield Cell(who=TIMEOUT, when=point, run=_bound(_transaction_times_out, point))


def _requests() -> Iterator[Cell]:
    for request in REQUESTS:
        yield Cell(who=DRIVER, when=f"{request} is answered", run=_bound(_driver_dies_unanswered, request))
        yield Cell(
            who=BROKER,
            when=f"{request} is answered",
            run=_bound(_broker_dies_unanswered, request),
            needs_outage=True,
        )
        for words, action in (
            ("is lost", "refuse"),
            ("answer is lost", "lose"),
            ("answer is cut off", "cut"),
        ):
            yield Cell(who=NETWORK, when=f"{request} {words}", run=_bound(_answer_fails, request, action))


def _bound(run: Callable[..., None], step: str, *given: str) -> Callable[..., None]:
    def bound(scene: Scene, *seat: Seat) -> None:
        if "footer" in step or step in FOOTER:
            scene.write_cuts()
        run(scene, *seat, step, *given)

    return bound


def _until(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, DEADLINE_S, what, poll_s=LOOK_AGAIN_S)


DRIVER = "the driver dies"
TWICE = "the driver dies, and again while it recovers"
WORKER = "a Python worker dies"
BROKER = "the broker dies"
SPARK_WORKER = "Spark: a Python worker dies"
EXECUTOR = "Spark: the executors' JVMs die"
SPARK_DRIVER = "Spark: the driver's JVM dies, with everything"
WITH_STATE = "Spark, tasks with state"
NETWORK = "the network between driver and broker fails"
ZOMBIE = "the driver sleeps, another one finishes, it wakes"
RIVAL = "the driver sleeps and wakes inside of its successor's transaction"
TIMEOUT = "the driver sleeps for longer than transaction.timeout.ms"


# Who dies at a point


def _driver_dies(scene: Scene, point: str) -> None:
    running = scene.start(_at(point))
    running.wait_stopped()
    running.kill()
    scene.look(complete=False)
    scene.finish()
    scene.look(complete=True)


def _driver_dies_again(scene: Scene, point: str) -> None:
    # The first death leaves a transaction open. (A fault happens once: the second needs a point of its own.)
    first = "after_produce" if point == "after_commit_offsets" else "after_commit_offsets"
    running = scene.start(f"{first}@batch=1:stop")
    running.wait_stopped()
    running.kill()
    again = scene.start(f"{point}@batch=1:stop")
    again.wait_stopped()
    again.kill()
    scene.look(complete=False)
    scene.finish()
    scene.look(complete=True)


def _worker_dies(scene: Scene, point: str) -> None:
    running = scene.start(_at(point).replace(":stop", ":kill"))
    code = running.wait()
    assert code == DONE, f"{code}\n{scene.said()}"
    assert list((scene.directory / "faults").iterdir()), "no worker died"
    scene.look(complete=True)


def _network_fails(scene: Scene, point: str) -> None:
    running = scene.start(_at(point))
    running.wait_stopped()
    scene.link.down()
    running.resume()
    # A connection was refused, or nothing more was to be said.
    _until(lambda: scene.link.refusals or running.has_ended, "a refused connection")
    scene.link.up()
    scene.finish(running)
    scene.look(complete=True)


def _broker_dies(scene: Scene, outage: Seat, point: str) -> None:
    running = scene.start(_at(point))
    running.wait_stopped()
    outage.next()
    running.resume()
    _until(lambda: scene.link.refusals or running.has_ended, "a refused connection")
    outage.next()
    scene.finish(running)
    scene.look(complete=True)


def _driver_sleeps(scene: Scene, point: str) -> None:
    zombie = scene.start(_at(point))
    zombie.wait_stopped()
    scene.finish()
    scene.look(complete=True)
    zombie.resume()
    # REFUSED: its staged files are gone, the other one has swept them.
    assert zombie.wait() in (FENCED, STOPPED, SUPERSEDED, REFUSED), scene.said()
    scene.look(complete=True)


def _driver_wakes_too_early(scene: Scene, point: str, successor_at: str = "after_produce") -> None:
    zombie = scene.start(_at(point))
    zombie.wait_stopped()
    successor = scene.start(f"{successor_at}@batch=2:stop")
    successor.wait_stopped()
    zombie.resume()
    zombie.wait()
    successor.resume()
    scene.finish(successor)
    scene.look(complete=True)


def _transaction_times_out(scene: Scene, point: str) -> None:
    running = scene.start(_at(point), options={"kafka.transaction.timeout.ms": TIMEOUT_MS})
    running.wait_stopped()
    _until(lambda: all(stable == end for stable, end in scene.stable().values()), "the coordinator's timeout")
    scene.look(complete=False)
    running.resume()
    scene.finish(running)
    scene.look(complete=True)


# What is lost on the way


def _planned_fault(scene: Scene, request: str, action: Literal["refuse", "lose", "cut", "hold"]) -> None:
    api, skip = REQUESTS[request]
    scene.link.plan(api, action, skip=skip)


def _happened(scene: Scene, request: str) -> None:
    if not scene.link.happened:
        if request in V1_ONLY and scene.speaks_v2:
            raise NotSent(request)
        raise AssertionError(f"{request} was never sent\n{scene.said()}")


def _answer_fails(scene: Scene, request: str, action: Literal["refuse", "lose", "cut"]) -> None:
    _planned_fault(scene, request, action)
    scene.finish()
    _happened(scene, request)
    scene.look(complete=True)


def _held(scene: Scene, running: Running, request: str) -> None:
    _until(lambda: scene.link.held.is_set() or running.has_ended, f"the answer to {request}")
    if not scene.link.held.is_set():
        scene.look(complete=True)
    _happened(scene, request)


def _driver_dies_unanswered(scene: Scene, request: str) -> None:
    _planned_fault(scene, request, "hold")
    running = scene.start()
    _held(scene, running, request)
    running.kill()
    scene.look(complete=False)
    scene.finish()
    scene.look(complete=True)


def _broker_dies_unanswered(scene: Scene, outage: Seat, request: str) -> None:
    _planned_fault(scene, request, "hold")
    running = scene.start()
    not_sent = None
    try:
        _held(scene, running, request)
    except NotSent as error:
        not_sent = error
    running.stop()  # it must not give up the request while others are on their way to their own steps
    outage.next()
    scene.link.lose_held()
    running.resume()
    outage.next()
    if not_sent is not None:
        raise not_sent
    scene.finish(running)
    scene.look(complete=True)


# Rows of the failure table that are no pair


def _rows() -> Iterator[Cell]:
    yield Cell(row=2, who="speculation", when="every task has a second attempt", run=_speculation)
    yield Cell(row=5, who="the driver stays down", when="until the transaction's timeout", run=_stays_down)
    yield Cell(row=14, who="two healthy drivers", when="one application.id, two checkpoints", run=_two_drivers)
    yield Cell(row=16, who="the broker refuses", when="MESSAGE_TOO_LARGE", run=_too_large)
    yield Cell(row=17, who="the checkpoint", when="is deleted", run=_checkpoint_deleted)
    yield Cell(row=18, who="the checkpoint", when="is an older copy", run=_checkpoint_restored)
    yield Cell(row=19, who="the marker", when="is deleted after the commit", run=_marker_deleted_committed)
    yield Cell(row=19, who="the marker", when="is deleted before the commit", run=_marker_deleted_aborted)
    yield Cell(row=21, who="commit() fails", when="after the decision, abort() follows", run=_commit_raises)
    yield Cell(row=22, who="an output topic", when="is deleted inside of the transaction", run=_topic_deleted)


def _speculation(scene: Scene) -> None:
    scene.finish(speculative=True)
    scene.look(complete=True)
    left = list((scene.directory / "staging").rglob("*.batches"))
    assert not left, f"staged files were left behind: {left}"


def _stays_down(scene: Scene) -> None:
    running = scene.start("after_commit_offsets@batch=1:stop", options={"kafka.transaction.timeout.ms": TIMEOUT_MS})
    running.wait_stopped()
    running.kill()
    _until(
        lambda: all(stable == end for stable, end in scene.stable().values()),
        "readers that go on without the driver",
    )
    scene.look(complete=False)
    scene.finish()
    scene.look(complete=True)


def _two_drivers(scene: Scene) -> None:
    job = replace(scene.job, batches=2)
    first = scene.start("noted@batch=1:stop")
    first.wait_stopped()
    other = replace(job, start=job.rows * 2, label=2, checkpoint="other")
    scene.finish(start=other.start, label=2, checkpoint="other", batches=2, options=BEGINS_ANEW)
    first.resume()
    assert first.wait() == FENCED, scene.said()
    assert "another start of it, with another state directory, writes its results now" in scene.said()
    assert scene.start().wait() == STOPPED, scene.said()
    assert "belong to different lineages" in scene.said(), scene.said()
    scene.look([job, other], complete=True)


def _too_large(scene: Scene) -> None:
    topic = scene.job.outputs[1]
    # Enough for a marker (78 bytes), which a broker of Kafka's would not write otherwise, and never try again.
    _configure(scene, topic, "max.message.bytes", "100")
    assert scene.start().wait() == REFUSED, scene.said()
    assert "MESSAGE_TOO_LARGE" in scene.said()
    scene.look(complete=False)
    _configure(scene, topic, "max.message.bytes", "1000000")
    scene.finish()
    scene.look(complete=True)


def _configure(scene: Scene, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = _admin(scene)  # it must outlive its answers
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()
    _until(lambda: scene.client.describe_configs([topic])[topic][name] == value, name)


def _admin(scene: Scene) -> AdminClient:
    return AdminClient({"bootstrap.servers": scene.bootstrap})


def _checkpoint_deleted(scene: Scene) -> None:
    first = replace(scene.job, batches=2)
    scene.finish(batches=2)
    shutil.rmtree(scene.directory / "checkpoint")
    second = replace(scene.job, batches=2, start=scene.job.rows * 2, label=2, checkpoint="new")
    changes = {"batches": 2, "start": second.start, "label": 2, "checkpoint": "new"}
    assert scene.start(**changes).wait() == STOPPED, scene.said()
    assert "this checkpoint is new, and Kafka holds micro-batch" in scene.said()
    scene.finish(**changes, options=BEGINS_ANEW)
    first = replace(first, checkpoint="gone")
    scene.look([first, second], complete=True)


def _checkpoint_restored(scene: Scene) -> None:
    running = scene.start("noted@batch=0:stop")
    running.wait_stopped()
    shutil.copytree(scene.directory / "checkpoint", scene.directory / "copy")
    running.resume()
    scene.finish(running)
    scene.look(complete=True)
    shutil.rmtree(scene.directory / "checkpoint")
    shutil.copytree(scene.directory / "copy", scene.directory / "checkpoint")
    assert scene.start().wait() == STOPPED, scene.said()
    assert "rolled back" in scene.said()
    scene.look(complete=True)


def _marker_deleted_committed(scene: Scene) -> None:
    _without_marker(scene, "before_return", "suppress")


def _marker_deleted_aborted(scene: Scene) -> None:
    _without_marker(scene, "after_fence", "produce")


def _without_marker(scene: Scene, point: str, policy: str) -> None:
    if point in FENCING:
        scene.finish(batches=1)  # the next run begins with a fence
    running = scene.start(f"{point}@batch=1:stop")
    running.wait_stopped()
    running.kill()
    group = scene.job.application
    admin = _admin(scene)
    for done in admin.delete_consumer_groups([group]).values():
        done.result()
    assert scene.start().wait() == STOPPED, scene.said()
    assert "Kafka has no marker of this query" in scene.said()
    scene.finish(options={"marker.missing": policy})
    scene.look(complete=True)


def _commit_raises(scene: Scene) -> None:
    assert scene.start("before_return@batch=1:raise").wait() == DONE, scene.said()
    assert "fault injected at before_return@batch=1" in scene.said()
    scene.look(complete=True)


def _topic_deleted(scene: Scene) -> None:
    running = scene.start("after_first_produce@batch=0:stop")
    running.wait_stopped()
    topic = scene.job.outputs[1]
    scene.client.delete_topics([topic])
    running.resume()
    assert running.wait() == REFUSED, scene.said()
    assert topic in scene.said()
    scene.client.create_topics([NewTopic(topic, PARTITIONS)])
    scene.finish()
    scene.look(complete=True)
