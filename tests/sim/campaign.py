"""Many seeds, in one process or several, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from time import perf_counter, process_time

from tests.sim.node import Template
from tests.sim.scenario import Result, run

Outcome = tuple[int, str, int, int, Counter[str], float]
VERSIONS = (1, 2)


@dataclass(slots=True, kw_only=True)
class Campaign:
    """`failed`: seed -> what it violated."""

    seeds: int = 0
    events: int = 0
    virtual_ms: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    failed: dict[int, str] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in self.happened.most_common())
        each_minute = 60 * self.seeds / max(self.cpu_seconds, 1e-9)
        return (
            f"{self.seeds} seeds in {self.seconds:.0f} s, {each_minute:.0f} to a minute of one processor; "
            f"{self.events} events in {self.virtual_ms / 3_600_000:.1f} virtual hours, {len(self.failed)} failed\n"
            f"{kinds}"
        )


@cache
def _template(transaction_version: int) -> Template:
    return Template(transaction_version=transaction_version)


def result_of(seed: int) -> Result:
    """Odd seeds are of a cluster with transactions V2, even ones of one with V1."""
    return run(seed, _template(VERSIONS[seed % 2]))


def outcome_of(seed: int) -> Outcome:
    began = process_time()
    result = result_of(seed)
    spent = process_time() - began
    failure = "" if result.violation is None else str(result.violation)
    return seed, failure, result.events, result.virtual_ms, result.happened, spent


def run_seeds(seeds: Iterable[int], *, jobs: int = 1, for_seconds: float | None = None) -> Campaign:
    """All of them, or as many as there is time for."""
    campaign, began = Campaign(), perf_counter()
    with _outcomes(seeds, jobs) as outcomes:
        for seed, failure, events, virtual_ms, happened, spent in outcomes:
            campaign.seeds += 1
            campaign.cpu_seconds += spent
            campaign.events += events
            campaign.virtual_ms += virtual_ms
            campaign.happened += happened
            if failure:
                campaign.failed[seed] = failure
            campaign.seconds = perf_counter() - began
            if for_seconds is not None and campaign.seconds > for_seconds:
                break
    return campaign


@contextmanager
def _outcomes(seeds: Iterable[int], jobs: int) -> Iterator[Iterator[Outcome]]:
    if jobs == 1:
        yield map(outcome_of, seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield pool.imap_unordered(outcome_of, seeds, chunksize=8)


def story_of(result: Result) -> str:
    return "\n".join([*result.story, f"seed {result.seed}: {result.violation or 'exactly once'}"])
