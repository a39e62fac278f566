"""`python -m tests.soak --minutes N`: one soak. Exit code 1, and every folder kept, at the first anomaly."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
import traceback
from pathlib import Path

from tests.matrix.brokers import TITLES
from tests.soak import report
from tests.soak.chaos import Chaos
from tests.soak.report import Report
from tests.soak.stage import Stage
from tests.soak.story import Story, Trouble

BROKERS = {"node": "node", "kafka": "kafka-4.3-v2"}
TICK_S = 0.1
FINISH_S = 240.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--broker", choices=list(BROKERS), default="node")
    parser.add_argument("--seed", type=int, help="of what is done to whom; drawn by default")
    parser.add_argument("--rate", type=int, default=1000, help="records a second (1000)")
    parser.add_argument(
        "--stall",
        type=float,
        default=120.0,
        help="seconds without output that fail it (120), more on a busy machine",
    )
    parser.add_argument("--directory", type=Path, help="where everything is; a temporary one by default")
    parser.add_argument("--report", type=Path, help="where the report is written to, too")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DOCS",
        nargs="?",
        const=report.DOCS,
        help="add the run to DOCS and its page",
    )
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 10**6)
    directory = options.directory or Path(tempfile.mkdtemp(prefix="suiro-soak-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"soak: --seed {seed} --broker {options.broker}, in {directory}", flush=True)
    made = soak(
        broker=BROKERS[options.broker],
        directory=directory,
        seed=seed,
        minutes=options.minutes,
        rate=options.rate,
        stall_s=options.stall,
    )
    text = made.markdown()
    (directory / "report.md").write_text(text)
    if options.report is not None:
        options.report.write_text(text)
    if options.record is not None:
        report.record(made, options.record)
    print(text)
    if made.trouble:
        print(f"soak: FAILED; everything is kept in {directory}. Again: --seed {seed}", flush=True)
        return 1
    if options.directory is None:
        shutil.rmtree(directory / "log", ignore_errors=True)
    return 0


def soak(*, broker: str, directory: Path, seed: int, minutes: float, rate: int, stall_s: float) -> Report:
    story = Story(directory / "story.jsonl")
    dice = random.Random(seed)
    stage = Stage(broker, directory, story, random.Random(seed + 1), rate, stall_s)
    chaos = Chaos(stage, dice, minutes * 60)
    trouble = ""
    pause = threading.Event()
    try:
        while not chaos.is_over:
            stage.tick()
            chaos.tick()
            stage.check_progress(chaos.calm_since)
            pause.wait(TICK_S)
        stage.drain()
        stage.finish(FINISH_S)
    except Trouble as error:
        trouble = str(error)
    except (Exception, KeyboardInterrupt):
        trouble = traceback.format_exc()
    finally:
        if trouble:
            story.tell("FAILED", trouble)
        made = _report(stage, chaos, TITLES[broker], seed, trouble)
        stage.close()
        story.close()
    return made


def _report(stage: Stage, chaos: Chaos, title: str, seed: int, trouble: str) -> Report:
    counts = stage.counts
    return Report(
        broker=title,
        seed=seed,
        minutes=round(stage.story.now / 60, 1),
        records_in=stage.records_in,
        records_out=stage.records_out,
        micro_batches=sum(counts.get("committed", {}).values()),
        aborted=sum(counts.get("aborted", {}).values()),
        faults=dict(sorted(stage.faults.items())),
        restarts=sum(job.starts - 1 for job in stage.jobs),
        ends=dict(sorted(stage.ends.items())),
        offsets_checked=counts.get("offsets_checked", 0),
        longest_stall_s=round(stage.longest_stall_s, 1),
        recovery_s=report.median_and_longest(chaos.recoveries),
        memory={
            life.who: [
                round(number, 1)
                for number in (
                    life.warm.memory_mb,
                    life.last.memory_mb,
                    life.warm.files,
                    life.last.files,
                    life.watched_s / 60,
                    life.most_mb,
                )
            ]
            for life in stage.lives.longest()
            if life.warm is not None and life.last is not None
        },
        trouble=trouble[:2000],
    )


if __name__ == "__main__":
    sys.exit(main())
