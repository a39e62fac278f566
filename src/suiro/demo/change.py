"""The second act: a view with a bug is served, fixed in a second version, compared, shifted to, rolled back.

Everything goes through the public client (`suiro.views.Views`). Each step is shown as the `suiro view` command for it.
Answers and durations are recorded in a `ViewAccount`, which is checked at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import ge
from typing import Any, Protocol

import httpx

from suiro.client import LATEST, Client
from suiro.clock import Clock
from suiro.demo.app import App
from suiro.demo.display import Display
from suiro.demo.expected import Departures
from suiro.demo.faults import freeze_when, open_transaction
from suiro.demo.names import PARTITIONS, RAW, VIEW
from suiro.demo.processes import Session
from suiro.demo.reader import CALLERS, ROUND
from suiro.demo.system import System
from suiro.demo.view_check import Compared, ViewAccount, facts_of, most_apart
from suiro.demo.view_watch import Reading, VersionState, ViewState, ViewWatch
from suiro.errors import FatalError, TransientError
from suiro.views import Cut, Views

__all__ = ["Change", "Wait"]

STEPS = (1, 10, 50, 100)
KILL_AT = 10
KILL_WITHIN_S = 10  # of waiting for an open transaction


class Wait(Protocol):
    """Until it is reached; looks after everything meanwhile. Raises `FatalError` if that takes too long."""

    def __call__(self, reached: Callable[[], bool], what: str) -> None: ...


class Change:
    """One act after another; `look` now and then between."""

    def __init__(self, system: System, client: Client, show: Display, wait: Wait, clock: Clock) -> None:
        self._system = system
        self._client = client
        self._show = show
        self._wait = wait
        self._clock = clock
        self._app = App(system.directory / "app")
        self._views = Views(system.views_url, who="demo", timeout_s=120)
        self._watch = ViewWatch(system.views_url)
        self._watch.start()
        self._before_the_shift = b""
        self._cut_of_v1: Cut | None = None
        self.account = ViewAccount()

    def close(self) -> None:
        self._watch.stop()
        self._views.close()

    # -- all the time ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ViewState:
        return ViewState(versions=self._watch.versions, reading=self._reading)

    def look(self) -> ViewState:
        """How the view stands; as soon as v1 can be read, the reader begins."""
        state = self.state
        first = state.version(1)
        if self._system.reader is None and first is not None and first.state == "ready":
            self._system.start_reader()
        for version in state.versions:
            if version.state == "failed":
                raise FatalError(f"version {version.number} of the view failed: {version.error}")
        return state

    @property
    def _reading(self) -> Reading | None:
        reader = self._system.reader
        return Reading.of(reader.events[-1]) if reader is not None and reader.events else None

    def _version(self, number: int) -> VersionState:
        found = self.state.version(number)
        return VersionState(number=number, state="unknown", share=0.0) if found is None else found

    def _answered_again(self, what: str) -> None:
        """Every caller has been answered since now."""
        reader = self._system.reader
        assert reader is not None
        heard = len(reader.events)  # what was said so far is of before
        self._wait(lambda: len(reader.events) > heard, what)
        wanted = [turn + ROUND + 1 for turn in self._turns()]  # one was under way
        self._wait(lambda: all(map(ge, self._turns(), wanted)), what)

    def _turns(self) -> tuple[int, ...]:
        reading = self._reading
        return () if reading is None else reading.turns

    # -- act 3: a view serves ----------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Returns while it is being built."""
        self._show.command(f"suiro view deploy {self._app.path.name}:{VIEW}")
        self._views.deploy(self._app.entry)

    def serves(self) -> None:
        self._show.doing("v1 reads the flights")
        self._wait(lambda: self._version(1).state == "ready", "v1 of the view")
        self._wait(
            lambda: (found := self._reading) is not None and found.reads > 0, "the reader's first answer"
        )
        self._show.done(f"v1 serves; {len(CALLERS)} callers read it from now on, all the time")
        answer = self._views.get(VIEW, "YV", caller="demo")
        self._show.command(f"curl {self._system.views_url}/views/{VIEW}/rows/YV")
        self._show.text(json.dumps(answer["row"]))

    # -- act 4: beside it --------------------------------------------------------------------------------------------

    def mend(self) -> None:
        self._show.text("\n".join(line for line in self._app.mend() if line.strip()))
        self._show.command(f"suiro view deploy {self._app.path.name}:{VIEW}")
        began_ms = self._clock.monotonic_ms()
        self._views.deploy(self._app.entry)
        self._show.doing("v2 reads all flights from offset 0, beside v1, which goes on")
        worst_ms = 0

        def ready() -> bool:
            nonlocal worst_ms
            worst_ms = max(worst_ms, self._version(1).input_lag_ms or 0)
            return self._version(2).state == "ready"

        self._wait(ready, "v2 of the view")
        second = self._version(2)
        seconds = (self._clock.monotonic_ms() - began_ms) / 1000
        self.account = replace(self.account, rebuilt=second.done, rebuilt_s=seconds)
        self._show.done(
            f"v2 is ready: {second.done:,} flights from offset 0 on, and where v1 is",
            detail=f"{seconds:.1f} s; v1 never lacked a flight for longer than {worst_ms / 1000:.1f} s meanwhile",
        )

    # -- act 5: compared, explained ----------------------------------------------------------------------------------

    def compare(self) -> None:
        compared = self._compare()
        carrier = most_apart(compared.rows)
        self._show.command(f"suiro view explain {VIEW}")
        self._show.doing("replaying the flights through both versions")
        with ThreadPoolExecutor(1) as worker:  # two replays at a time
            of_one = worker.submit(self._views.explain, VIEW, [carrier])
            found = self._views.explain(VIEW)
            self.account = replace(self.account, explained=found["explained"], to_explain=found["differing"])
            self._show.text(found["text"])
            self._show.command(f"suiro view explain {VIEW} {carrier}")
            self._show.doing(f"replaying {carrier}'s flights through both versions")
            self._show.text(of_one.result()["text"])

    def _compare(self) -> Compared:
        self._show.command(f"suiro view compare {VIEW}")
        self._show.doing("comparing row by row at the same offsets")
        said = self._views.compare(VIEW)
        self._show.text(said["text"])
        result = said["result"]
        cuts = {1: Cut.from_json(result["old_cut"]), 2: Cut.from_json(result["new_cut"])}
        self._cut_of_v1 = cuts[1]
        compared = Compared(
            offsets={partition: end for (topic, partition), end in cuts[1].inputs.items() if topic == RAW},
            equal=result["equal"],
            differing=result["differing"],
            alone=result["only_old"]["rows"] + result["only_new"]["rows"],
            rows={version: self._rows(version, cut) for version, cut in cuts.items()},
        )
        self.account = replace(self.account, comparisons=(*self.account.comparisons, compared))
        return compared

    def _rows(self, version: int, cut: Cut) -> dict[str, Any]:
        answer = self._views.rows(VIEW, version=version, as_of=f"cut:{cut.number}")
        return {row["key"]["carrier"]: row["value"] for row in answer["rows"]}

    # -- act 6: readers move -----------------------------------------------------------------------------------------

    def shift(self) -> None:
        self._before_the_shift = self._page()
        resumed: Callable[[], None] | None = None
        for percent in STEPS:
            self._show.command(f"suiro view shift {VIEW} {percent}")
            self._views.shift(VIEW, percent)
            self._show.doing(f"{percent} % of the callers move to v2")
            self._answered_again(f"an answer for every caller at {percent} %")
            self._show.done(f"{self._on(2)} of {len(CALLERS)} callers are answered by v2")
            if percent == KILL_AT:
                resumed = self._kill_pipeline()
        if resumed is not None:
            resumed()

    def _on(self, version: int) -> int:
        reading = self._reading
        return 0 if reading is None else reading.callers.get(version, 0)

    def _page(self) -> bytes:
        """All rows, as of the offsets of the first comparison, as any caller gets them; not parsed."""
        assert self._cut_of_v1 is not None
        offsets = ",".join(f"{t}:{p}:{end}" for (t, p), end in sorted(self._cut_of_v1.inputs.items()))
        answer = httpx.get(
            f"{self._system.views_url}/views/{VIEW}/rows",
            params={"as_of": offsets, "caller": CALLERS[0]},
            timeout=60,
        )
        answer.raise_for_status()
        return answer.content

    def _kill_pipeline(self) -> Callable[[], None]:
        """Returns at once what waits for it to go on: the shift does not, since its readers are answered."""
        serving = self._version(1)
        if serving.pid is None:
            raise FatalError("the pipeline of v1 does not run")
        session = Session(serving.pid)
        self._show.doing("waiting for a micro-batch whose transaction is open, to kill v1's pipeline in it")
        topic = f"{VIEW}.v1"
        ends_ms = self._clock.monotonic_ms() + KILL_WITHIN_S * 1000
        found = freeze_when(
            session,
            lambda: open_transaction(self._client, (topic,)),
            f"open transaction on {topic}",
            clock=self._clock,
            until=lambda: self._clock.monotonic_ms() > ends_ms,
        )
        began_ms = self._clock.monotonic_ms()
        session.kill()
        self.account = replace(self.account, kills=self.account.kills + 1)
        detail = "between two micro-batches"
        if found is not None:
            name, partition, last_stable, end = found
            detail = f"{name}-{partition} ends at {end:,}, decided up to {last_stable:,}"
        self._show.struck("kill -9 of the pipeline of v1, which serves", detail=detail)
        self._show.doing("the host starts the pipeline of v1 again; readers are answered meanwhile")
        cut = self._version(1).cut or 0

        def resumed() -> bool:
            now = self._version(1)
            return now.restarts > serving.restarts and now.pid is not None and (now.cut or 0) > cut

        def wait() -> None:
            self._show.doing("waiting for the pipeline of v1, which starts again")
            self._wait(resumed, "the pipeline of v1 to go on")
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            self._show.done(
                "v1's pipeline goes on where it was",
                detail=f"{took_s:.1f} s, and the shift went on meanwhile; every reader was answered",
            )

        return wait

    # -- act 7: back, forward, retire --------------------------------------------------------------------------------

    def turn_back(self) -> None:
        self._show.command(f"suiro view rollback {VIEW}")
        began_ms = self._clock.monotonic_ms()
        self._views.rollback(VIEW)
        took_ms = self._clock.monotonic_ms() - began_ms
        same = self._page() == self._before_the_shift
        self._answered_again("an answer for every caller after the rollback")
        reading = self._reading
        last_ms = 0.0 if reading is None else reading.last_s.get(2, 0.0) * 1000 - began_ms
        self.account = replace(self.account, rollback_ms=max(took_ms, last_ms), same_bytes=same)
        self._show.done(
            f"rolled back in {max(took_ms, last_ms):.0f} ms, to the last caller: {self._on(1)} of {len(CALLERS)} "
            "are answered by v1",
            detail=f"at the offsets of the comparison the answer is {'byte for byte' if same else 'NOT'} what it was",
        )
        self._show.command(f"suiro view forward {VIEW}")
        self._views.forward(VIEW)
        self._answered_again("an answer for every caller")
        self._show.done(f"forward again: {self._on(2)} of {len(CALLERS)} callers are answered by v2")

    def compare_the_end(self, departures: dict[str, Departures]) -> None:
        """Once all flights are in."""
        ends = self._ends()
        self._show.doing("both versions read the last flights")
        reached = ",".join(f"{RAW}:{partition}:{end - 1}" for partition, end in ends.items() if end)
        for version in (1, 2):
            self._wait(partial(self._reflects, version, reached), f"v{version} at the end")
        self._compare()
        facts = facts_of(departures)
        (v1, v2), (before, after) = facts.means, facts.places
        self._show.done(
            f"of {facts.carriers} carriers {facts.differing} differ, for {facts.cancelled:,} cancelled flights; "
            f"equal: {', '.join(facts.equal) or 'none'}"
        )
        self._show.done(
            f"{facts.name}: {v1:.2f} -> {v2:.2f} minutes of mean departure delay, place {before} -> {after} of "
            f"{facts.carriers}"
        )

    def _ends(self) -> dict[int, int]:
        wanted = {(RAW, partition): LATEST for partition in range(PARTITIONS)}
        listed = self._client.list_offsets(wanted, read_committed=True)
        return {partition: item.offset for (_, partition), item in listed.items()}

    def _reflects(self, version: int, reached: str) -> bool:
        if self._version(version).done < self._version(version).total:
            return False
        try:
            self._views.rows(VIEW, version=version, min_offset=reached, timeout_ms=1_000, limit=1)
        except TransientError:
            return False
        return True

    def retire(self) -> None:
        self._show.command(f"suiro view retire {VIEW} 1 --yes")
        own = (f"{VIEW}.v1", f"{VIEW}-v1-")
        topics = self._named(own)
        self._views.retire(VIEW, 1, yes=True)
        self._wait(lambda: not self._named(own), "v1's topics to be deleted")
        self._show.done(
            f"v1 is retired: {len(topics)} topics and its store are gone; this cannot be undone, so it asks"
        )
        self._answered_again("an answer for every caller after v1 is gone")

    def _named(self, beginnings: Iterable[str]) -> list[str]:
        return [name for name in self._client.metadata() if name.startswith(tuple(beginnings))]

    def ended(self) -> ViewAccount:
        """Once the reader has stopped: with all that it was answered."""
        answers = json.loads(self._system.answers.read_text(encoding="utf-8"))
        return replace(self.account, answers=answers)
