"""Kill -9 of who changes a view, at each step of the change: it is as before, or as after, and the next change goes on.

With hosts and pipelines, at drawn moments: `test_views_kill`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from suiro.views.control import lifecycle
from suiro.views.control.journal import Journal
from suiro.views.control.journal_keys import Keys
from suiro.views.state import Change, View

CHANGE = """
import os, signal, sys
from suiro.client import TransactionalProducer
from suiro.views.control import lifecycle
from suiro.views.control.journal import Journal
from suiro.views.control.journal_keys import Keys

bootstrap, topic, step, command = sys.argv[1:]

def dies(when, name):
    step = getattr(TransactionalProducer, name)
    def run(self, *arguments, **named):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = step(self, *arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return done
    setattr(TransactionalProducer, name, run)

journal = Journal(bootstrap, topic=topic, keys=Keys.of(b"a secret of both, the killed one and its heir"))
journal.start()
dies(*step.split())
commands = {
    "deploy": lambda view: lifecycle.deploy(view, key=("id",), spec={}),
    "shift": lambda view: lifecycle.shift(view, 5_000, lag_ms=0),
    "rollback": lifecycle.rollback,
    "forward": lambda view: lifecycle.forward(view, lag_ms=0),
}
journal.change("delays", commands[command], who="killed", codes={"abc": b"zip"})
"""

KEYS = Keys.of(b"a secret of both, the killed one and its heir")
STEPS = {"after init": False, "after add_partitions": False, "before end": False, "after end": True}
"""Whether the change is there."""


COMMANDS: dict[str, Callable[[View], Change]] = {
    "deploy": lambda view: lifecycle.deploy(view, key=("id",), spec={}),
    "shift": lambda view: lifecycle.shift(view, 5_000, lag_ms=0),
    "rollback": lifecycle.rollback,
    "forward": lambda view: lifecycle.forward(view, lag_ms=0),
}


TWO = [
    COMMANDS["deploy"],
    partial(lifecycle.caught_up, number=1),
    COMMANDS["deploy"],
    partial(lifecycle.caught_up, number=2),
]
BEFORE: dict[str, list[Callable[[View], Change]]] = {
    "deploy": [],
    "shift": TWO,
    "rollback": [*TWO, COMMANDS["shift"]],
    "forward": [*TWO, COMMANDS["shift"], COMMANDS["rollback"]],
}


def cases() -> list[Any]:
    """Each step with each command; CI has time for each step and each command once."""
    pairs = [(step, command) for step in STEPS for command in COMMANDS]
    few = set(zip(STEPS, COMMANDS, strict=True))
    return [pytest.param(*pair, marks=() if pair in few else pytest.mark.soak) for pair in pairs]


@pytest.mark.parametrize(("step", "command"), cases())
def test_a_change_is_there_whole_or_not_at_all(suiro_node: Any, step: str, command: str) -> None:
    topic = f"_views-{uuid4().hex[:8]}"
    journal = Journal(suiro_node.bootstrap_servers, topic=topic, keys=KEYS)
    journal.start()
    try:
        for earlier in BEFORE[command]:
            journal.change("delays", earlier, who="ada")
        decide = COMMANDS[command]
        before, events = journal.views().get("delays", View(name="delays")), journal.history("delays")
        arguments = [suiro_node.bootstrap_servers, topic, step, command]
        killed = subprocess.run([sys.executable, "-c", CHANGE, *arguments], capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
        # Whoever comes next ends what the dead one left open, and knows at once how it stands.
        change = decide if not STEPS[step] else lambda view: Change(view=view, event=None)
        assert journal.change("delays", change, who="ada") == decide(before).view
        (event,) = journal.history("delays")[len(events) :]
        assert (event["who"], event["command"]) == ("killed" if STEPS[step] else "ada", command)
        assert ("delays/abc" in journal._known.codes) == STEPS[step]
    finally:
        journal.stop()
