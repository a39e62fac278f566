"""The cells of a query whose tasks send the records themselves: the same deaths, at the steps that it has.

One is its own: a sending task sleeps, its stage runs again, and it wakes inside of the second attempt's transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.matrix import cells
from tests.matrix.cells import Cell
from tests.matrix.scene import Scene

PREFIX = "tasks send: "
SENDING = ("after_gather", "after_add_partitions", "after_first_produce", "after_produce")
TASK_POINTS = (*cells.TASKS, *cells.FENCING, *SENDING)
DECIDING = ("all_sent", "after_commit_offsets", "after_end", "before_return")
POINTS = (*cells.PLANNING, *TASK_POINTS, *DECIDING, *cells.NOTED)
OPEN = ("after_produce", "all_sent", "after_commit_offsets")
TASK = PREFIX + "a task dies"
SLEEPER = PREFIX + "a task sleeps, its stage runs again, it wakes"


def all_cells() -> list[Cell]:
    return [*_pairs(), *_requests()]


def _pairs() -> Iterator[Cell]:
    for point in POINTS:
        yield _cell(cells.DRIVER, point, cells._bound(cells._driver_dies, point))
        yield _cell(cells.NETWORK, point, cells._bound(cells._network_fails, point))
        yield _cell(cells.BROKER, point, cells._bound(cells._broker_dies, point), needs_outage=True)
        yield _cell(cells.ZOMBIE, point, cells._bound(cells._driver_sleeps, point))
        yield _cell(cells.RIVAL, point, cells._bound(cells._driver_wakes_too_early, point, "all_sent"))
    for point in TASK_POINTS:
        yield replace(_cell("", point, cells._bound(cells._worker_dies, point)), who=TASK)
    for point in SENDING:
        yield replace(_cell("", point, cells._bound(_task_sleeps, point)), who=SLEEPER)
    for point in OPEN:
        yield _cell(cells.TIMEOUT, point, cells._bound(cells._transaction_times_out, point))


def _requests() -> Iterator[Cell]:
    for request in cells.REQUESTS:
        if "footer" in request:  # there is none
            continue
        for words, action in (
            ("is lost", "refuse"),
            ("answer is lost", "lose"),
            ("answer is cut off", "cut"),
        ):
            run = cells._bound(cells._answer_fails, request, action)
            yield _cell(cells.NETWORK, f"{request} {words}", run)


def _cell(who: str, when: str, run: Callable[..., None], *, needs_outage: bool = False) -> Cell:
    def sending(scene: Scene, *rest: object) -> None:
        scene.job = replace(scene.job, tasks_send=True)
        run(scene, *rest)

    return Cell(who=PREFIX + who, when=when, run=sending, needs_outage=needs_outage)


def _task_sleeps(scene: Scene, point: str) -> None:
    scene.job = replace(scene.job, sleepers_are_lost=True)
    running = scene.start(f"{point}@batch=1:stop,all_sent@batch=1:stop")
    running.wait_stopped()
    running.wait_stopped(beside=1)
    running.resume()
    scene.finish(running)
    scene.look(complete=True)
