"""`make bench`: every benchmark, small, one after the other. Each file alone takes options for longer runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SMALL = {
    "codec.py": ["--records", "200000"],
    "log_append.py": [],
    "node.py": ["--rounds", "1"],
    "spark.py": ["--rounds", "1"],
    "streams.py": ["--rounds", "1", "--records", "1000000"],
}


def main() -> int:
    folder = Path(__file__).parent
    failed = [
        name
        for name, options in SMALL.items()
        if subprocess.run([sys.executable, str(folder / name), *options], check=False).returncode != 0
    ]
    for name in failed:
        print(f"benchmarks/{name} failed: see above", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
