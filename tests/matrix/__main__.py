"""`python -m tests.matrix`: runs the failure matrix, and with --record adds its runs to the page of exactly once."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.matrix import brokers, results, spark_cells
from tests.matrix.campaign import Result, run_round
from tests.matrix.cells import Cell, all_cells


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--broker", action="append", choices=list(brokers.TITLES), help="all by default")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--missing", action="store_true", help="only cells that the file has no run of")
    parser.add_argument("--only", default="", help="cells with this in their names")
    parser.add_argument("--spark", type=int, default=0, metavar="ROUNDS", help="of Spark's cells (minutes each)")
    parser.add_argument("--record", action="store_true", help="add the runs to the file and print the page anew")
    parser.add_argument("--page", action="store_true", help="only print the page anew from the file")
    options = parser.parse_args()
    if options.page:
        results.write_page()
        return 0

    def wanted(broker: str, cell: Cell) -> bool:
        return options.only in cell.name and not (options.missing and results.has(broker, cell))

    ran = failures = 0
    directory = Path(tempfile.mkdtemp(prefix="suiro-matrix-"))
    for name in options.broker or brokers.TITLES:

        def tell(result: Result, name: str = name) -> None:
            if result.failure:
                print(f"FAILED {result.cell.name}\n{result.failure}", flush=True)
            if options.record:
                results.record(name, result)

        broker = brokers.start(name, directory / name / "broker")
        try:
            for number in range(options.rounds):
                begun = time.monotonic()
                chosen = [cell for cell in all_cells() if wanted(name, cell)]
                done = run_round(broker, chosen, directory / name / str(number), tell, seed=number)
                failed = [one for one in done if one.failure]
                ran += len(done)
                failures += len(failed)
                print(
                    f"{name}, round {number}: {len(done)} cells, {len(failed)} failed, "
                    f"{sum(not one.was_sent for one in done)} not sent, {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
            for number in range(options.spark):
                where = directory / name / f"spark-{number}"
                done = spark_cells.run_spark(broker, where, tell, lambda cell, name=name: wanted(name, cell))
                ran += len(done)
                failures += sum(bool(one.failure) for one in done)
                print(f"{name}, Spark's round {number}: {len(done)} cells", flush=True)
        finally:
            broker.stop()
    if options.record:
        results.write_page()
    if not ran and not options.missing:
        print("no cell was run: no name has what --only says")
        return 1
    print(f"{failures} failed" if failures else "no anomaly", f"(logs of failed cells: {directory})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
