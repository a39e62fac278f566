"""`python -m tests.sim --seeds 10000`: run many seeds; the first that fails is told as a story."""

from __future__ import annotations

import argparse
import sys

from tests.sim.campaign import result_of, run_seeds, story_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--tell", type=int, metavar="SEED", help="run this one and tell its story")
    arguments = parser.parse_args()
    if arguments.tell is None:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        campaign = run_seeds(seeds, jobs=arguments.jobs)
        print(campaign)
        for seed, failure in sorted(campaign.failed.items()):
            print(f"seed {seed}: {failure}")
        if not campaign.failed:
            return 0
        arguments.tell = min(campaign.failed)
    result = result_of(arguments.tell)
    print(story_of(result))
    return 1 if result.violation else 0


if __name__ == "__main__":
    sys.exit(main())
