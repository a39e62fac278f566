"""The command line `suiro`: one module a command group, imported when its command is called.

`suiro node` does not go through Typer: importing that takes longer than the node needs to start.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point `suiro`."""
    if sys.argv[1:2] == ["node"]:
        from suiro.cli.node import main as node_main

        sys.exit(node_main(sys.argv[2:]))
    from suiro.cli.app import app

    app()
