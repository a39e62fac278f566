"""The command line `suiro`: one module a command group, imported when its command is called.

`suiro node`, `suiro capture` and `suiro registry` do not go through Typer: importing that takes longer than a node
needs to start.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point `suiro`."""
    if sys.argv[1:2] == ["node"]:
        from suiro.cli.node import main as node_main

        sys.exit(node_main(sys.argv[2:]))
    if sys.argv[1:2] == ["capture"]:
        from suiro.cli.capture import main as capture_main

        sys.exit(capture_main(sys.argv[2:]))
    if sys.argv[1:2] == ["registry"]:
        from suiro.cli.registry import main as registry_main

        sys.exit(registry_main(sys.argv[2:]))
    from suiro.cli.app import app

    app()
