"""One version of a view on Spark: `python -m suiro.views.pipeline.run FOLDER`, started by `process`.

The first line of standard input says where Kafka is. For a version that `shares_jvm`, a second line says how to reach
the JVM (`suiro.spark.shared_jvm`). The process ends with its standard input, because then the host is gone. `FOLDER`
has the version's `spec.json` and its code, and gets its state. The process writes events to standard output, one JSON
object per line. Output of the user's code goes to standard error.

| event | meaning |
|---|---|
| `running` | the query runs |
| `progress` | records read, in total, per second; time left; the newest cut |
| `ready` | it has caught up; sent once |
| `failed` | `error`; whether it `is_transient`, `is_of_record` (`error` names one), `has_lost_jvm`; the process ends |
| `ended` | it was told to end |

A restarted process continues where it was. If its state is lost, it rebuilds the state from the inputs, and writes
nothing twice. It fails if the inputs have lost their beginning, unless the version keeps no state. Cuts continue with
the next number.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.client import EARLIEST, LATEST, Client, NewTopic
from suiro.clock import SystemClock
from suiro.errors import FatalError, SuiroError, TransientError, UnknownTopicError, UsageError
from suiro.foundation.files import is_of_the_disk
from suiro.foundation.process import event_writer, lines_of_stdin, session_members
from suiro.foundation.stopping import Stopping
from suiro.foundation.types import TopicPartition
from suiro.spark import java_started_early
from suiro.streams import KafkaStreams
from suiro.streams.errors import ProcessingError
from suiro.streams.serdes import DeserializationError
from suiro.streams_spark import lineage_report
from suiro.streams_spark.rebuild import begins_anew
from suiro.telemetry import Column, Dataset, traces_to
from suiro.views.cuts import Cut, CutLog, CutWriter, last_cut
from suiro.views.definition import VersionSpec
from suiro.views.pipeline import CODE, LOCK, LOG, SPEC, STATE
from suiro.views.pipeline.archive import definition_in, split_entry
from suiro.views.pipeline.inputs import check_inputs
from suiro.views.pipeline.leader import VersionPace
from suiro.views.pipeline.progress import Arrival, Speed
from suiro.views.settings import RunSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BUSY_MACHINE = (
    "Python worker failed to connect back",
    "CANNOT_OPEN_SOCKET",
)  # a time-out of Spark's own worker; its texts are the same in every language

LOST = "Spark's JVM, which the versions of this host share, has ended; all of them go on with the next one"

LOOK_S = 0.5
KEPT_UNCOMPACTED_MS = 3_600_000
CUTS_SEGMENT_BYTES = 8 * 1024 * 1024

Say = Callable[..., None]
Answers = queue.SimpleQueue[Mapping[str, Any]]
"""What the host says about the JVM that its versions share."""


def main(folder: Path) -> int:
    say = event_writer()
    stopping = Stopping()
    told = lines_of_stdin()
    where = json.loads(next(told))
    answers: Answers = queue.SimpleQueue()
    threading.Thread(target=_until_input_ends, args=(told, stopping, answers), daemon=True).start()
    try:
        spec = VersionSpec.from_json(json.loads((folder / SPEC).read_text(encoding="utf-8")))
        with _alone(folder, stopping):
            if stopping.is_set():  # while it waited; the earlier one may still run
                say("ended")
                return 0
            settings = RunSettings.parse(spec.settings)
            early = java_started_early(master=settings.master, settings=settings.spark, topologies_only=True)
            with contextlib.nullcontext() if where["shares_jvm"] else early:
                _run(spec, settings, folder, where, stopping, say, answers)
    except Exception as error:  # noqa: BLE001 - a user's code raises anything; the host gets it
        has_lost_jvm = False
        if where["shares_jvm"]:
            from suiro.spark import is_jvm_gone

            has_lost_jvm = is_jvm_gone()
        kind = "" if isinstance(error, SuiroError) else f"{type(error).__name__}: "
        say(
            "failed",
            error=LOST if has_lost_jvm else f"{kind}{error}",
            is_transient=has_lost_jvm
            or isinstance(error, TransientError)
            or is_of_the_disk(error)
            or any(text in str(error) for text in _BUSY_MACHINE),
            is_of_record=isinstance(error, ProcessingError | DeserializationError),
            has_lost_jvm=has_lost_jvm,
        )
        return 1
    say("ended")
    return 0


def _run(
    spec: VersionSpec,
    settings: RunSettings,
    folder: Path,
    where: Mapping[str, Any],
    stopping: Stopping,
    say: Say,
    answers: Answers,
) -> None:
    bootstrap_servers, client_settings = where["bootstrap_servers"], where["client_settings"]
    topology = spec.topology_of(_definition(spec, folder / CODE))
    with (
        Client(bootstrap_servers, settings=client_settings) as client,
        Client(bootstrap_servers, settings=client_settings) as committing,
    ):
        make_topics(client, spec, settings)
        shared = _shared_session(answers, stopping, settings, folder) if where["shares_jvm"] else None
        if stopping.is_set():
            return
        state_dir = folder / STATE
        is_new = begins_anew(state_dir / spec.application_id)
        if is_new:
            # As at the deploy. Retention may have removed records since, and a state without them has other rows. What
            # a version without state has processed, it does not need again.
            processed: dict[TopicPartition, int] = {}
            if not topology.stores:
                # An open transaction, of a process that was killed, may commit larger ones.
                offsets = client.offset_fetch(spec.application_id, None, require_stable=False)
                processed = {place: item.offset for place, item in offsets.items() if item is not None}
            check_inputs(client, spec, processed=processed)
        traces = traces_to(None, "suiro-views")
        streams = KafkaStreams(
            topology,
            application_id=spec.application_id,
            bootstrap_servers=bootstrap_servers,
            spark=shared or settings.session(spec.application_id),
            state_dir=state_dir,
            on_processing_error=settings.on_processing_error,
            on_deserialization_error=settings.on_deserialization_error,
            max_offsets_per_trigger=settings.max_offsets_per_trigger,
            trigger={"processingTime": settings.trigger},
            settings={f"kafka.{name}": str(value) for name, value in client_settings.items()} | dict(settings.reading),
            schema_registry_url=spec.schema_registry_url,
            rebuild=is_new,
            traces=traces,
            trailing_record=CutWriter(committing, output_topic=spec.output_topic, cuts_topic=spec.cuts_topic),
            pace=VersionPace(
                folder,
                bootstrap_servers=bootstrap_servers,
                settings=client_settings,
                leader_cuts_topic=spec.leader_cuts_topic,
                takes_more=settings.takes_more,
            ),
        )
        # The table that readers see, for OpenLineage (OPENLINEAGE_URL of the host).
        columns = tuple(Column(name=name) for name in spec.key)
        table = Dataset(namespace="suiro-views", name=spec.view, columns=columns)
        with lineage_report(streams, name=spec.view, table=table):
            try:
                streams.start()
                say("running")
                watch = _Watch(client, spec, say)
                while streams.state == "RUNNING" and not stopping.wait(LOOK_S):
                    with contextlib.suppress(TransientError):
                        watch.look(_position(streams))
                if streams.exception is not None:
                    raise streams.exception
            finally:
                streams.close()
                if traces is not None:
                    traces.close()


class _Watch:
    """Reports the version's progress, and once that it has caught up."""

    def __init__(self, client: Client, spec: VersionSpec, say: Say) -> None:
        self._client = client
        self._spec = spec
        self._say = say
        self._clock = SystemClock()
        self._cuts = CutLog(client, spec.cuts_topic)
        self._newest: Cut | None = last_cut(client, spec.cuts_topic)
        self._speed: Speed | None = None
        self._arrival: Arrival | None = Arrival()
        self._places: list[TopicPartition] = []

    def look(self, position: Mapping[TopicPartition, int]) -> None:
        """`position`: the offsets of the last micro-batch, with or without a cut."""
        found = self._cuts.poll()
        self._newest = found[-1] if found else self._newest
        if self._speed is None:
            infos = self._client.metadata(list(self._spec.inputs))
            self._places = [(name, item.partition) for name, info in infos.items() for item in info.partitions]
            starts = self._client.list_offsets(dict.fromkeys(self._places, EARLIEST))
            self._speed = Speed({place: item.offset for place, item in starts.items()})
        listed = self._client.list_offsets(dict.fromkeys(self._places, LATEST), read_committed=True)
        ends = {place: item.offset for place, item in listed.items()}
        now, cut = self._clock.monotonic_ms(), self._newest
        reached = dict(cut.inputs) if cut is not None else {}
        reached |= {place: max(offset, reached.get(place, 0)) for place, offset in position.items()}
        progress = self._speed.progress(now, reached, ends)
        self._say("progress", progress=asdict(progress), cut=None if cut is None else cut.number)
        if self._arrival is None or cut is None:
            return
        if self._arrival.is_there(now, cut.inputs, self._target(ends)):
            self._arrival = None
            _take_part_fully()
            self._say("ready")

    def _target(self, ends: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Returns the offsets of the leader's last cut; without a leader, the ends of the inputs."""
        topic = self._spec.leader_cuts_topic
        try:
            leading = None if topic is None else last_cut(self._client, topic)
        except UnknownTopicError:
            leading = None  # it was retired
        if leading is None:
            return ends
        return {place: offset for place, offset in leading.inputs.items() if place[0] in self._spec.inputs}


def make_topics(client: Client, spec: VersionSpec, settings: RunSettings) -> None:
    """Creates the output topic and the cuts topic, unless they exist. Raises `FatalError` if they were there before:
    new ones would lack the rows of the records that the version has processed."""
    own = [spec.output_topic, spec.cuts_topic]
    missing = set(own) - client.metadata(own).keys()
    if not missing:
        return
    if client.offset_fetch(spec.application_id, None):
        raise FatalError(
            f"topic {', '.join(map(repr, sorted(missing)))} of version {spec.version} of view {spec.view!r} was "
            "deleted, with rows that would not be written again. Readers get the rows until then. Deploy the view "
            "again: the next version is built from the beginning of its inputs"
        )
    leading = (spec.leader_cuts_topic or "").removesuffix(".cuts")
    found = client.metadata([leading] if leading else [])
    # As many partitions as the version beside which it is built; without one, as many as the widest input.
    if not found:
        found = client.metadata(list(spec.inputs))
    widest = max((len(info.partitions) for info in found.values()), default=1)
    # An older cut can be read exactly as long as compaction has removed none of its records. The lag counts from a
    # record's timestamp. By event time, records of years ago would be compacted at once.
    compacted = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(max(spec.history_ms, KEPT_UNCOMPACTED_MS)),
        "message.timestamp.type": "LogAppendTime",
    }
    client.create_topics(
        [
            NewTopic(spec.output_topic, settings.output_partitions or widest, configs=compacted),
            NewTopic(spec.cuts_topic, 1, configs=compacted | {"segment.bytes": str(CUTS_SEGMENT_BYTES)}),
        ],
        exist_ok=True,
    )


@contextlib.contextmanager
def _alone(folder: Path, stopping: Stopping) -> Iterator[None]:
    """Waits until an earlier process of this folder, whose host was killed, is gone: a checkpoint has one query."""
    with (folder / LOCK).open("w") as file:
        while not stopping.is_set():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                stopping.wait(LOOK_S)
        yield


def _definition(spec: VersionSpec, code: Path) -> Any:
    """Imports the code as any program imports its modules, so that Spark's workers can import it, too."""
    file, _ = split_entry(spec.entry)
    sys.path.insert(0, str(code))
    if file.removesuffix(".py") in sys.modules:
        raise UsageError(
            f"{file} has the name of a module that is loaded already; give the file another name and deploy it again"
        )
    return definition_in(import_module(file.removesuffix(".py")), spec.entry)


def _position(streams: KafkaStreams) -> Mapping[TopicPartition, int]:
    from suiro.spark import Positions

    progress = streams.query.lastProgress
    if progress is None:
        return {}
    text = progress["sources"][0]["endOffset"]
    value = text if isinstance(text, dict) else json.loads(text or "null")
    return {} if value is None else Positions.from_json(value).offsets


def _shared_session(answers: Answers, stopping: Stopping, settings: RunSettings, folder: Path) -> SparkSession | None:
    """Waits until this version may join the JVM of its host. Returns None if the process must stop before."""
    from suiro.spark import session_on_shared_jvm

    while not stopping.is_set():
        with contextlib.suppress(queue.Empty):
            told = answers.get(timeout=LOOK_S)
            if "error" in told:
                raise FatalError(told["error"])
            port, secret = told["port"], told["secret"]
            return session_on_shared_jvm(port, secret, settings=settings.spark, folder=folder, log=folder / LOG)
    return None


def _until_input_ends(told: Iterator[bytes], stopping: Stopping, answers: Answers) -> None:
    for line in told:
        answers.put(json.loads(line))
    stopping.set()
    # The host is gone, and the next one may be starting. Spark gets a moment to end in order.
    threading.Timer(10.0, os._exit, args=[1]).start()


def _take_part_fully() -> None:
    """Gives a version that was built at a low priority (`nice`) the normal one, if the system permits it."""
    for member in session_members(os.getsid(0)):
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{member}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(task.name), 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
