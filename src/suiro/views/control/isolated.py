"""Runs user code and long tasks in a separate process, within limits: the check of a deploy, compare, explain.

The host answers reads, and user code must not stop, slow or crash it. So the host starts `python -m
suiro.views.control.isolated` for each task, writes one JSON object to it, and reads one (`foundation.process`).
Output of user code goes to standard error, and so to the host's log.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suiro.client import Client
from suiro.clock import Clock, SystemClock, sleep_s
from suiro.errors import TransientError
from suiro.foundation import process
from suiro.foundation.process import answer, answered
from suiro.views.cpus import apart
from suiro.views.cuts import Cut
from suiro.views.definition import RowCodec, VersionSpec
from suiro.views.settings import RunSettings
from suiro.views.store import open_store
from suiro.views.store.json_text import encodable

LOOK_S = 0.5
POLL_S = 0.1
END_S = 5.0
"""The wait for the end of the answer, once its processes were killed. One in a session of its own may still have it."""


class Limit:
    """Begins when it is created. `what`: the name of the task in the error, "the comparison". Thread-safe."""

    def __init__(
        self,
        what: str,
        *,
        stopping: threading.Event,
        seconds: float,
        gone: threading.Event | None = None,
        longer: str = "",
        clock: Clock | None = None,
    ) -> None:
        """`stopping`: set when the host ends. `gone`: set when nobody waits for the answer any more. `longer`: the end
        of the message, which says how to get more time."""
        self._what = what
        self._stopping = stopping
        self.seconds = seconds
        self._gone = gone
        self._longer = longer
        self._clock = clock or SystemClock()
        self._begun_ms = self._clock.monotonic_ms()

    @property
    def is_over(self) -> bool:
        return self._why() is not None

    def check(self, detail: str = "") -> None:
        """Raises `TransientError` once it is over. `detail`: the end of the message."""
        why = self._why()
        if why is not None:
            raise TransientError(f"{self._what} was ended after {self.elapsed_s:.0f} s: {why}{detail}")

    @property
    def elapsed_s(self) -> float:
        return (self._clock.monotonic_ms() - self._begun_ms) / 1000

    def _why(self) -> str | None:
        if self._stopping.is_set():
            return "the host ends"
        if self._gone is not None and self._gone.is_set():
            return "its caller has gone"
        if self.elapsed_s > self.seconds:
            return f"it may take {self.seconds:g} s{self._longer}"
        return None


def run_isolated(task: str, given: Mapping[str, Any], *, limit: Limit) -> Any:
    """Returns the result of the task, or raises its error by kind. When the limit is over, kills the process and raises
    the error of the limit. What the user's code has started ends in any case."""
    started = subprocess.Popen(
        apart([sys.executable, "-m", "suiro.views.control.isolated", task, str(os.getpid())]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    answers: list[bytes] = []
    text = json.dumps(given).encode()
    talk = threading.Thread(target=lambda: answers.append(started.communicate(text)[0]), daemon=True)
    try:
        talk.start()
        while started.poll() is None and not limit.is_over:
            talk.join(POLL_S)
        is_over = started.poll() is None
    finally:
        # Also the processes that the user's code has started: they have the pipe of the answer, too.
        process.kill_group(started)
    talk.join(END_S)
    if is_over:
        limit.check()
    return answered(
        b"".join(answers),
        missing=f"the {task} ended with exit code {started.returncode} and no answer; the host's log says why",
    )


# The tasks, in the process of their own


def _check(given: Mapping[str, Any]) -> Any:
    """Loads the code, builds the topology, checks settings and inputs, and returns the version's spec. `versions`: for
    each view the next number and the spec of the serving version."""
    from suiro.streams import KafkaStreams

    definition = _loaded(given["code_file"], given["entry"])
    known = given["versions"].get(definition.name, {"next": 1, "leader": None})
    leader = known["leader"]
    spec = VersionSpec.of(
        definition,
        known["next"],
        code=given["code"],
        entry=given["entry"],
        settings=given["settings"],
        schema_registry_url=given["registry"],
        leader=None if leader is None else VersionSpec.from_json(leader),
        journal_id=given["journal_id"],
    )
    settings = RunSettings.parse(spec.settings)
    KafkaStreams(
        spec.topology_of(definition),
        application_id=spec.application_id,
        bootstrap_servers=given["bootstrap_servers"],
        on_processing_error=settings.on_processing_error,
        on_deserialization_error=settings.on_deserialization_error,
        settings=settings.reading,
    ).check_settings()
    with Client(given["bootstrap_servers"], settings=given["client_settings"]) as client:
        from suiro.views.pipeline.inputs import check_inputs

        check_inputs(client, spec)
    return spec.to_json()


def _compare(given: Mapping[str, Any]) -> Any:
    from suiro.views.analysis.compare.comparison import compare
    from suiro.views.analysis.compare.text import text_of

    with _held(given["old"]) as old, _held(given["new"]) as new:
        old_cut, new_cut = _common(old, new)
        found = compare(
            old,
            new,
            old_cut=old_cut,
            new_cut=new_cut,
            tolerances=given["tolerances"],
            ignored=tuple(given["ignored"]),
        )
        return {"result": found.to_json(), "text": encodable(text_of(found)), "share": found.share}


def _explain(given: Mapping[str, Any]) -> Any:
    """Explains `keys`, or a few examples of each pattern of the `comparison`."""
    from suiro.lineage import Inputs
    from suiro.views.analysis.compare.comparison import Comparison
    from suiro.views.analysis.compare.values import Comparator
    from suiro.views.analysis.explain.differences import explain_differences
    from suiro.views.analysis.explain.result import text_of
    from suiro.views.analysis.explain.rows import explain

    # A replay keeps its objects until the process ends. Garbage collection among millions of them took a third of the
    # time, and did not lower the peak of memory.
    gc.disable()
    comparison = None if given["comparison"] is None else Comparison.from_json(given["comparison"])
    keys = [tuple(key) for key in given["keys"]]
    with _held(given["old"]) as old, _held(given["new"]) as new:
        if keys or comparison is None:
            old_cut, new_cut = _common(old, new)
            shown = keys = _as_in_stores(keys, old, new)
        else:
            old_cut, new_cut = comparison.old_cut, comparison.new_cut
            shown = list(comparison.example_keys())
        sides = _side(given["old"], old, shown, old_cut), _side(given["new"], new, shown, new_cut)
    with Client(given["bootstrap_servers"], settings=given["client_settings"]) as client:
        log = Inputs(client, {**old_cut.inputs, **new_cut.inputs})
        if comparison is not None and not keys:
            found = explain_differences(comparison, *sides, log)
            return {**dataclasses.asdict(found), "text": encodable(found.text())}
        explanations = explain(keys, *sides, log, Comparator.of(given["tolerances"], given["ignored"]))
    return {
        "explanations": [one.to_json() for one in explanations],
        "text": encodable("\n\n".join(text_of(one, full=given["full"]) for one in explanations)),
    }


def _loaded(code_file: str, entry: str) -> Any:
    from suiro.views.pipeline.archive import Code

    return Code(Path(code_file).read_bytes()).load(entry)


@contextmanager
def _held(side: Mapping[str, Any]) -> Iterator[Any]:
    with open_store(VersionSpec.from_json(side["spec"]), side["location"]) as store, store.held(is_long=True):
        yield store


def _common(old: Any, new: Any) -> tuple[Cut, Cut]:
    from suiro.views.store.meeting import common_cut, no_common_cut

    found = common_cut(old, new)
    if found is None:
        raise no_common_cut(old, new)
    return found


def _side(side: Mapping[str, Any], store: Any, keys: list[tuple[Any, ...]], cut: Cut) -> Any:
    from suiro.streams.operators.context import TaskSettings
    from suiro.views.analysis.explain.replay import RowKey, Side

    spec = VersionSpec.from_json(side["spec"])
    topology = spec.topology_of(_loaded(side["code_file"], spec.entry))
    rows = {RowKey(key): store.get(key, as_of=cut.number).row for key in keys}
    settings = RunSettings.parse(spec.settings)
    return Side(
        version=spec.version,
        topology=topology,
        codec=RowCodec(topology, spec.key),
        rows={key: None if row is None else row.value for key, row in rows.items()},
        settings=TaskSettings(on_processing_error=settings.on_processing_error, application_id=spec.application_id),
        on_deserialization_error=settings.on_deserialization_error,
    )


def _as_in_stores(keys: list[tuple[Any, ...]], old: Any, new: Any) -> list[tuple[Any, ...]]:
    """Converts the parts of keys, typed or in JSON, to the types that they have in either store."""
    from suiro.views.store.keys import key_of_values

    types = tuple(a | b for a, b in zip(old.key_types(), new.key_types(), strict=True))
    return [key_of_values(key, old.spec.key, types) for key in keys]


TASKS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "check": _check,
    "compare": _compare,
    "explain": _explain,
}


def main(task: str, host: int) -> int:
    threading.Thread(target=_end_with, args=(host,), daemon=True).start()
    given = json.loads(sys.stdin.buffer.read())
    answer(lambda: TASKS[task](given), place=_place)
    return 0


def _end_with(host: int) -> None:
    """Ends this process, and those that the user's code has started, with its host: the code may never end."""
    while os.getppid() == host:
        sleep_s(LOOK_S)
    os.killpg(0, signal.SIGKILL)


def _place(error: BaseException) -> str:
    """The line of the user's code that raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if "suiro" not in Path(frame.filename).parts]
    return f" ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
