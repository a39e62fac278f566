"""Runs cells on one broker: those that need its death together, all others some at a time."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.matrix.brokers import Broker
from tests.matrix.cells import Cell, NotSent, Outage, Seat
from tests.matrix.scene import Scene, Source, Violated

AT_A_TIME = 48  # nearly all of a cell's time is waiting


@dataclass(frozen=True, kw_only=True)
class Result:
    """`anomalies`: names of what the checker found. `failure`: what was wrong, in words; "" where nothing was."""

    cell: Cell
    failure: str = ""
    anomalies: Sequence[str] = field(default_factory=tuple)
    was_sent: bool = True


Tell = Callable[[Result], None]


def run_round(broker: Broker, cells: Sequence[Cell], directory: Path, tell: Tell, *, seed: int = 0) -> list[Result]:
    """Every cell once, in an order that `seed` draws."""
    directory.mkdir(parents=True)
    source = Source(broker.bootstrap_servers)
    together = [cell for cell in cells if cell.needs_outage]
    others = [cell for cell in cells if not cell.needs_outage]
    random.Random(seed).shuffle(others)
    results: list[Result] = []

    def run(cell: Cell, seat: Seat | None = None) -> None:
        result = run_cell(broker, source, cell, directory, seat)
        results.append(result)
        tell(result)

    if together:
        outage = Outage(len(together), broker.kill, broker.restart)
        with ThreadPoolExecutor(len(together)) as pool:
            list(pool.map(run, together, [outage.seat() for _ in together]))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(run, others))
    return results


def run_cell(broker: Broker, source: Source, cell: Cell, directory: Path, seat: Seat | None) -> Result:
    where = directory / f"{time.monotonic_ns()}"
    scene: Scene | None = None
    try:
        scene = Scene(broker.bootstrap_servers, source, where)
        cell.run(*((scene,) if seat is None else (scene, seat)))
    except NotSent:
        return Result(cell=cell, was_sent=False)
    except Violated as error:
        return Result(cell=cell, failure=str(error), anomalies=[one.name for one in error.anomalies])
    except Exception as error:
        return Result(cell=cell, failure=f"{type(error).__name__}: {error}")
    else:
        shutil.rmtree(where)  # kept where something is to be looked at
        return Result(cell=cell)
    finally:
        if seat is not None:
            seat.leave()
        if scene is not None:
            scene.close()
