"""`suiro view adopt`: shows an operator the records that a host does not trust, and signs them.

It serves for the journal of a release without signatures, for a lost key, and for a topic that was copied or lost
records. It is a command, because a setting of the host would trust every record at each start.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self

from suiro.views.control.host import HostConfig, locked
from suiro.views.control.journal import Journal
from suiro.views.control.journal_records import SEEN_FILE
from suiro.views.state import POSITIONS, position_of


class Adoption:
    """A context manager. No host may run on the folder meanwhile. `unsigned`: adopt all records of the topic; otherwise
    only the signed ones."""

    def __init__(self, config: HostConfig, *, unsigned: bool) -> None:
        self._unsigned = unsigned
        with ExitStack() as stack:
            stack.enter_context(locked(config.data))
            self._journal = Journal(
                config.bootstrap_servers,
                keys=config.keys,
                seen=config.data / SEEN_FILE,
                trust="all" if unsigned else "signed",
                client_settings=config.client_settings,
            )
            stack.callback(self._journal.stop)
            self._journal.start()
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    def lines(self) -> Iterator[str]:
        """Yields lines that show which code would run, and who deployed it."""
        views = self._journal.views()
        if not views:
            yield "there is no view" + ("" if self._unsigned else "; --unsigned shows what is not signed, too")
        for name in sorted(views):
            view = views[name]
            yield _shown(f"{name}: revision {view.revision}, {POSITIONS[position_of(view)]}")
            deployed = {
                event.get("version"): event for event in self._journal.history(name) if event.get("command") == "deploy"
            }
            for version in view.versions:
                if version.freed:
                    continue
                who = deployed.get(version.number, {}).get("who", "nobody knows who")
                entry, code = version.spec.get("entry"), version.spec.get("code")
                yield _shown(f"  v{version.number} {version.state}: {entry}, code {code}, deployed by {who}")

    def sign(self) -> None:
        """Signs everything in one transaction, or nothing."""
        self._journal.adopt()


def _shown(line: str) -> str:
    """Nobody has signed the text yet, so its control characters must not reach the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)
