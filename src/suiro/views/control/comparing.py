"""Compares and explains two versions of a view for the host: selects the versions and cuts, and keeps the results.

The work runs in separate processes (`isolated`), two at a time: it needs memory, and reads have priority. Those of
guards have turns of their own, because callers are on the candidate meanwhile. A view has one at most.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from suiro.clock import Clock
from suiro.errors import UsageError
from suiro.views.control.isolated import Limit, run_isolated
from suiro.views.control.journal import Journal
from suiro.views.control.running import HostEnvironment
from suiro.views.definition import VersionSpec, note_of
from suiro.views.serving.served import Served
from suiro.views.state import position_of

COMMON_CUT_TIMEOUT_S = 30.0
"""The wait for a common cut that is as new as the served one. After that, any common cut will do."""
TIMEOUT_MS = 3_600_000
POLL_S = 0.1
HEAVY_AT_ONCE = 2
GUARDS_AT_ONCE = 6


class _Turns:
    """So many tasks run at a time. The one that has waited longest is the next."""

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()
        self._free = count
        self._waiting: list[Limit] = []

    @contextmanager
    def taken(self, limit: Limit) -> Iterator[None]:
        """Waits for a turn, within the limit."""
        with self._changed:
            self._waiting.append(limit)
            try:
                while not self._changed.wait_for(lambda: self._free and self._waiting[0] is limit, POLL_S):
                    limit.check(". Another comparison or explanation had not ended")
                self._free -= 1
            finally:
                self._waiting.remove(limit)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()


class Comparing:
    """`served(view, number)` returns a version that lives."""

    def __init__(
        self,
        journal: Journal,
        environment: HostEnvironment,
        *,
        served: Callable[[str, int], Served],
        clock: Clock,
        stopping: threading.Event,
    ) -> None:
        self._journal = journal
        self._environment = environment
        self._served = served
        self._clock = clock
        self._stopping = stopping
        self._turns = _Turns(HEAVY_AT_ONCE)
        self._guards = _Turns(GUARDS_AT_ONCE)

    def kept(self, view: str) -> dict[str, dict[str, Any]]:
        self._journal.view(view)
        return self._journal.comparisons(view)

    def compare(
        self,
        view: str,
        *,
        who: str,
        old: int | None = None,
        new: int | None = None,
        tolerances: dict[str, Any] | None = None,
        ignored: list[Any] | None = None,
        timeout_ms: int = TIMEOUT_MS,
        gone: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Compares both versions at the newest offsets that both have, and keeps the result in the journal. `gone`: set
        once the caller does not wait for it any more."""
        limit = self._limit("the comparison", timeout_ms, gone)
        texts = [str(one) for one in ignored or ()]
        return self._compared(view, self._sides(view, old, new), self._turns, limit, who, tolerances or {}, texts)

    def difference(self, view: str, old: int, new: int, over: threading.Event) -> float:
        """The share of rows that differ, for a guard. `over`: set once the guard needs it no more."""
        limit = self._limit("the comparison", TIMEOUT_MS, over)
        share: float = self._compared(view, self._sides(view, old, new), self._guards, limit, "host", {}, [])["share"]
        return share

    def _compared(
        self,
        view: str,
        sides: Mapping[str, Any],
        turns: _Turns,
        limit: Limit,
        who: str,
        tolerances: Mapping[str, Any],
        ignored: Sequence[str],
    ) -> dict[str, Any]:
        self._wait_for_common_cut(view, sides, limit)
        asked = {"tolerances": dict(tolerances), "ignored": list(ignored)}
        with turns.taken(limit):
            found = run_isolated("compare", {**sides, **asked}, limit=limit)
        specs = [sides[side]["spec"] for side in ("old", "new")]
        note = note_of({spec["version"]: tuple(spec["by_arrival"]) for spec in specs})
        if note is not None and found["share"]:
            found = found | {"note": note, "text": f"{found['text']}\n\n{note}"}
        made: dict[str, Any] = {
            "id": f"{self._clock.wall_ms()}-{uuid.uuid4().hex[:8]}",  # two may end in one millisecond
            "view": view,
            "who": who,
            "time_ms": self._clock.wall_ms(),
            "old": sides["old"]["spec"]["version"],
            "new": sides["new"]["spec"]["version"],
            **asked,
            **found,
        }
        self._journal.keep_comparison(view, made["id"], made)
        return made

    def explain(
        self,
        view: str,
        *,
        keys: list[Any] | None = None,
        old: int | None = None,
        new: int | None = None,
        full: bool = False,
        timeout_ms: int = TIMEOUT_MS,
        gone: threading.Event | None = None,
    ) -> dict[str, Any]:
        """Explains why rows differ: the rows of these keys, or examples of each pattern of the last comparison."""
        limit = self._limit("the explanation", timeout_ms, gone)
        sides = self._sides(view, old, new)
        numbers = sides["old"]["spec"]["version"], sides["new"]["spec"]["version"]
        columns = sides["old"]["spec"]["key"]
        keys = keys or []
        for key in keys:
            if not isinstance(key, list):
                raise UsageError('\'keys\' is a list of keys, each a list of its parts: [["UA", "2013-07-04"]]')
            if len(key) != len(columns):
                raise UsageError(
                    f"a key of view {view} is ({', '.join(columns)}), {len(columns)} parts; {key} has {len(key)}"
                )
        kept = [one for one in self._journal.comparisons(view).values() if (one["old"], one["new"]) == numbers]
        last = kept[-1] if kept else None
        if last is None and not keys:
            raise UsageError(
                f"versions {numbers[0]} and {numbers[1]} of view {view} were not compared yet: suiro view compare "
                f"{view}; or name a key to explain"
            )
        given = {
            **sides,
            "keys": keys,
            "full": full,
            "comparison": None if last is None else last["result"],
            "tolerances": {} if last is None else last["tolerances"],
            "ignored": [] if last is None else last["ignored"],
            "bootstrap_servers": self._environment.bootstrap_servers,
            "client_settings": dict(self._environment.client_settings),
        }
        with self._turns.taken(limit):
            found = run_isolated("explain", given, limit=limit)
        return {"view": view, "old": numbers[0], "new": numbers[1], **found}

    def _sides(self, view: str, old: int | None, new: int | None) -> dict[str, Any]:
        state = self._journal.view(view)
        first = state.routing.serving if old is None else old
        second = state.routing.candidate if new is None else new
        if first is None or second is None:
            raise UsageError(
                f"view {view} is {position_of(state)}: it has no two versions to compare; deploy a second "
                "one first (suiro view deploy APP.PY:FUNCTION)"
            )
        versions = state.version(first), state.version(second)
        for version in versions:
            if not version.lives:
                raise UsageError(
                    f"version {version.number} of view {view} is {version.state}, and has no rows any more"
                )
        specs = [VersionSpec.from_json(version.spec) for version in versions]
        return {"old": self._environment.side(specs[0]), "new": self._environment.side(specs[1])}

    def _limit(self, what: str, timeout_ms: int, gone: threading.Event | None) -> Limit:
        return Limit(
            what,
            stopping=self._stopping,
            seconds=timeout_ms / 1000,
            gone=gone,
            longer="; --timeout gives it longer",
            clock=self._clock,
        )

    def _wait_for_common_cut(self, view: str, sides: Mapping[str, Any], limit: Limit) -> None:
        """Waits for a common cut that is as new as the served one; after a while, for any common cut."""
        from suiro.views.store.meeting import Meeting, no_common_cut

        old = self._served(view, sides["old"]["spec"]["version"])
        new = self._served(view, sides["new"]["spec"]["version"])
        wanted = old.follower.cut
        patience_s = min(COMMON_CUT_TIMEOUT_S, limit.seconds / 2)
        meeting = Meeting(old.store, new.store)
        while True:
            found = meeting.look()
            if found is not None and (wanted is None or found[0] >= wanted.number):
                return
            apart = None if found is not None else no_common_cut(old.store, new.store)
            if isinstance(apart, UsageError):
                raise apart
            if limit.elapsed_s > patience_s:
                break
            limit.check("" if apart is None else f". {apart}")
            self._stopping.wait(POLL_S)
        if apart is not None:
            raise apart
