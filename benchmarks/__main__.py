"""`make bench`: every benchmark, small, one after the other. Each file alone takes options for longer runs.

python -m benchmarks                                    # all, small
python -m benchmarks node.py restart.py                 # only these
python -m benchmarks --full node.py connections.py      # as long as they run alone
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

SMALL = {
    "codec.py": ["--records", "200000"],
    "log_append.py": [],
    "node.py": ["--rounds", "1"],
    "connections.py": ["--rounds", "1", "--seconds", "5"],
    "fetch_session.py": ["--rounds", "1", "--fetches", "500"],
    "compaction.py": ["--rounds", "1", "--megabytes", "200", "--keys", "100000"],
    "restart.py": ["crash", "--rounds", "1", "--gigabytes", "0.2"],
    "spark.py": ["--rounds", "1"],
    "streams.py": ["--rounds", "1", "--records", "1000000"],
    "flights.py": ["--rounds", "1", "--flights", "50000"],
    "nexmark.py": ["--rounds", "1", "--events", "200000", "--queries", "q1,q4,q8"],
    "async_calls.py": ["--rounds", "1", "--records", "5000"],
    "latency.py": ["--seconds", "5", "--warm-up", "20"],
    "rebuild.py": ["--records", "2000000"],
    "console.py": ["--topics", "2000", "--groups", "200", "--records", "200000", "--rounds", "1"],
    "views_compare.py": ["--rows", "500000", "--records", "50000", "--largest", "9000"],
    "views_lookups.py": ["--seconds", "5", "--records", "200000", "--keys", "20000"],
}


FULL = {"restart.py": ["crash"]}
"""What a benchmark must be told for its full length."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Every benchmark, small, one after the other.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these files")
    parser.add_argument("--full", action="store_true", help="at full length, as for published figures")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in SMALL:
            parser.error(f"there is no benchmark {name}: choose from {', '.join(SMALL)}")
    folder = Path(__file__).parent
    failed = []
    for name in asked.names or SMALL:
        options = FULL.get(name, []) if asked.full else SMALL[name]
        if subprocess.run([sys.executable, str(folder / name), *options], check=False).returncode != 0:
            failed.append(name)
    for name in failed:
        print(f"benchmarks/{name} failed: see above", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
