"""The second act: a view with a bug is served, fixed in a second version, compared, shifted to, rolled back.

Everything uses the public client (`suiro.views.Views`). Each step is shown as a `suiro view` command. A `ViewAccount`
records the answers and times, which are checked at the end.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from suiro.clock import monotonic_s
from suiro.demo.names import RAW, VIEW
from suiro.demo.processes import Session, freeze_when, open_transaction, readable_ends
from suiro.demo.reader import CALLERS
from suiro.demo.stage import Stage, stopwatch
from suiro.demo.view_check import Compared, ViewAccount, facts_of, most_apart
from suiro.errors import FatalError, TransientError
from suiro.views import Cut, Views

BUG = "DEPARTED = lit(1)\n"
FIX = "DEPARTED = when(IS_CANCELLED, 0).otherwise(1)\n"

STEPS = (1, 10, 50, 100)
KILL_AT = 10
KILL_WITHIN_S = 10  # of waiting for an open transaction


def copy_view(folder: Path) -> Path:
    """Copies `carrier_delays.py` as the file of a user, to be deployed, fixed and deployed again."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{VIEW}.py"
    path.write_text(Path(__file__).with_name(path.name).read_text(encoding="utf-8"), encoding="utf-8")
    return path


def fix_view(path: Path) -> list[str]:
    """Changes one line. Returns the lines of the diff."""
    before = path.read_text(encoding="utf-8")
    after = before.replace(BUG, FIX)
    assert after != before
    path.write_text(after, encoding="utf-8")
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[3:]


class Change:
    """A method for each act, to be called in order."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._show = stage, stage.show
        self._file = copy_view(stage.system.directory / "app")
        self._views = Views(stage.system.views_url, who="demo", timeout_s=120)
        self._page_before = b""
        self._cut_of_v1: Cut | None = None
        self.account = ViewAccount()

    def close(self) -> None:
        self._views.close()

    def _reading(self) -> dict[str, Any]:
        """Returns the last report of the reader."""
        return dict(self._stage.reading or {"reads": 0, "callers": {}, "last_s": {}, "all_since_s": 0.0})

    def _answered_again(self, what: str) -> None:
        """Waits until every caller has got an answer to a request made after now."""
        now_s = monotonic_s()
        self._stage.wait(lambda: self._reading()["all_since_s"] > now_s, what)

    def _on(self, version: int) -> str:
        count = self._reading()["callers"].get(str(version), 0)
        return f"{count} of {len(CALLERS)} callers are answered by v{version}"

    # Act 3: a view serves

    def deploy(self) -> None:
        """Returns while it is being built."""
        self._show.command(f"suiro view deploy {self._file.name}:{VIEW}")
        self._views.deploy(f"{self._file}:{VIEW}")
        self._stage.views = self._views

    def serves(self) -> None:
        self._show.doing("v1 reads the flights")
        self._stage.wait(lambda: self._stage.version(1).state == "ready", "v1 of the view")
        self._stage.wait(lambda: self._reading()["reads"] > 0, "the reader's first answer")
        self._show.done(f"v1 serves; {len(CALLERS)} callers read it from now on, all the time")
        answer = self._views.get(VIEW, "YV", caller="demo")
        self._show.command(f"curl {self._views.url}/views/{VIEW}/rows/YV")
        self._show.text(json.dumps(answer["row"]))

    # Act 4: beside it

    def fix(self) -> None:
        self._show.text("\n".join(line for line in fix_view(self._file) if line.strip()))
        took = stopwatch()
        self.deploy()
        self._show.doing("v2 reads all flights from offset 0, beside v1, which goes on")
        worst_ms = 0

        def ready() -> bool:
            nonlocal worst_ms
            worst_ms = max(worst_ms, self._stage.version(1).input_lag_ms or 0)
            return self._stage.version(2).state == "ready"

        self._stage.wait(ready, "v2 of the view")
        account = self.account
        account.rebuilt, account.rebuilt_s = self._stage.version(2).progress.done, took()
        self._show.done(
            f"v2 is ready: {account.rebuilt:,} flights from offset 0 on, and where v1 is",
            detail=f"{account.rebuilt_s:.1f} s; v1 never lacked a flight for longer than {worst_ms / 1000:.1f} s "
            "meanwhile",
        )

    # Act 5: compared, explained

    def compare(self) -> None:
        carrier = most_apart(self._compare().rows)
        self._show.command(f"suiro view explain {VIEW}")
        self._show.doing("replaying the flights through both versions")
        with ThreadPoolExecutor(1) as worker:  # two replays at a time
            of_one = worker.submit(self._views.explain, VIEW, [carrier])
            found = self._views.explain(VIEW)
            self.account.explained, self.account.to_explain = found["explained"], found["differing"]
            self._show.text(found["text"])
            self._show.command(f"suiro view explain {VIEW} {carrier}")
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
        self.account.comparisons.append(compared)
        return compared

    def _rows(self, version: int, cut: Cut) -> dict[str, Any]:
        answer = self._views.rows(VIEW, version=version, as_of=f"cut:{cut.number}")
        return {row["key"]["carrier"]: row["value"] for row in answer["rows"]}

    # Act 6: readers move

    def shift(self) -> None:
        self._page_before = self._page()
        resumed: Callable[[], None] | None = None
        for percent in STEPS:
            self._show.command(f"suiro view shift {VIEW} {percent}")
            self._views.shift(VIEW, percent)
            self._show.doing(f"{percent} % of the callers move to v2")
            self._answered_again(f"an answer for every caller at {percent} %")
            self._show.done(self._on(2))
            if percent == KILL_AT:
                resumed = self._kill_pipeline()
        assert resumed is not None
        resumed()

    def _page(self) -> bytes:
        """Returns all rows as of the offsets of the first comparison, as any caller gets them, unparsed."""
        assert self._cut_of_v1 is not None
        offsets = ",".join(f"{t}:{p}:{end}" for (t, p), end in sorted(self._cut_of_v1.inputs.items()))
        query = {"as_of": offsets, "caller": CALLERS[0]}
        answer = httpx.get(f"{self._views.url}/views/{VIEW}/rows", params=query, timeout=60)
        return answer.raise_for_status().content

    def _kill_pipeline(self) -> Callable[[], None]:
        """Kills the pipeline. Returns a function that waits until it has resumed. The shift does not wait, because
        readers are answered."""
        stage, topic = self._stage, f"{VIEW}.v1"
        serving = stage.version(1)
        if serving.pipeline.pid is None:
            raise FatalError("the pipeline of v1 does not run")
        session = Session(serving.pipeline.pid)
        self._show.doing("waiting for a micro-batch whose transaction is open, to kill v1's pipeline in it")
        ends_s = monotonic_s() + KILL_WITHIN_S
        found = freeze_when(
            session,
            lambda: open_transaction(stage.client, topic),
            f"open transaction on {topic}",
            until=lambda: monotonic_s() > ends_s,
        )
        took = stopwatch()
        session.kill()
        self.account.kills += 1
        detail = "between two micro-batches" if found is None else str(found)
        self._show.struck("kill -9 of the pipeline of v1, which serves", detail=detail)
        self._show.doing("the host starts the pipeline of v1 again; readers are answered meanwhile")
        cut = stage.version(1).cut or 0

        def has_resumed() -> bool:
            now = stage.version(1)
            restarted = now.pipeline.restarts > serving.pipeline.restarts and now.pipeline.pid is not None
            return restarted and (now.cut or 0) > cut

        def wait() -> None:
            self._show.doing("waiting for the pipeline of v1, which starts again")
            stage.wait(has_resumed, "the pipeline of v1 to go on")
            self._show.done(
                "v1's pipeline goes on where it was",
                detail=f"{took():.1f} s, and the shift went on meanwhile; every reader was answered",
            )

        return wait

    # Act 7: back, forward, retire

    def turn_back(self) -> None:
        account = self.account
        self._show.command(f"suiro view rollback {VIEW}")
        began_s = monotonic_s()
        self._views.rollback(VIEW)
        took_s = monotonic_s() - began_s
        account.same_bytes = self._page() == self._page_before
        self._answered_again("an answer for every caller after the rollback")
        last_s = self._reading()["last_s"].get("2", 0.0) - began_s
        account.rollback_ms = 1000 * max(took_s, last_s)
        self._show.done(
            f"rolled back in {account.rollback_ms:.0f} ms, to the last caller: {self._on(1)}",
            detail=f"at the offsets of the comparison the answer is {'' if account.same_bytes else 'NOT '}byte for "
            "byte what it was",
        )
        self._show.command(f"suiro view forward {VIEW}")
        self._views.forward(VIEW)
        self._answered_again("an answer for every caller")
        self._show.done(f"forward again: {self._on(2)}")

    def compare_the_end(self) -> None:
        """Compares the versions after all flights are in."""
        self._show.doing("both versions read the last flights")
        ends = readable_ends(self._stage.client, RAW)
        reached = ",".join(f"{RAW}:{partition}:{end - 1}" for partition, end in ends.items() if end)
        for version in (1, 2):
            self._stage.wait(partial(self._reflects, version, reached), f"v{version} at the end")
        facts = facts_of(self._compare().rows)
        (v1, v2), (before, after) = facts.means, facts.places
        self._show.done(
            f"of {facts.carriers} carriers {facts.differing} differ, for {facts.cancelled:,} "
            f"cancelled flights; equal: {', '.join(facts.equal) or 'none'}"
        )
        self._show.done(
            f"{facts.name}: {v1:.2f} -> {v2:.2f} minutes of mean departure delay, place {before} -> {after} of "
            f"{facts.carriers}"
        )

    def _reflects(self, version: int, reached: str) -> bool:
        progress = self._stage.version(version).progress
        if progress.done < progress.total:
            return False
        try:
            self._views.rows(VIEW, version=version, min_offset=reached, timeout_ms=1_000, limit=1)
        except TransientError:
            return False
        return True

    def retire(self) -> None:
        def topics() -> int:
            return sum(name.startswith((f"{VIEW}.v1", f"{VIEW}-v1-")) for name in self._stage.client.metadata())

        self._show.command(f"suiro view retire {VIEW} 1 --yes")
        count = topics()
        self._views.retire(VIEW, 1, yes=True)
        self._stage.wait(lambda: not topics(), "v1's topics to be deleted")
        self._show.done(f"v1 is retired: {count} topics and its store are gone; this cannot be undone, so it asks")
        self._answered_again("an answer for every caller after v1 is gone")

    def ended(self) -> ViewAccount:
        """Returns the account with all answers, after the reader has stopped."""
        self.account.answers = json.loads(self._stage.system.answers.read_text(encoding="utf-8"))
        return self.account
