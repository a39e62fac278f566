"""What Spark does around the sink, as a process that may be killed at any step: plan, run tasks, commit, note.

The sink is the real one: tasks `stage` files, a worker process of its own calls `StreamWriter.commit`, and `abort` when
that failed. The checkpoint is Spark's (`offsets/N` before the micro-batch, `commits/N` after it, each made once). Each
task and the commit have a process of their own, as Spark's Python workers do. A query that failed for a reason that
may pass is started again under a new run id, as a supervisor would.

Forked from a server that has imported everything, a driver starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from suiro.client import Client
from suiro.errors import FatalError, FencedError, TransientError, UsageError
from suiro.spark import faults
from suiro.spark.offsets import Positions
from suiro.spark.options import SinkOptions
from suiro.spark.reports import CommitMessage, MicroBatchIdentity
from suiro.spark.sink import StreamWriter, commit_micro_batch
from suiro.spark.stage import stage
from suiro.views.cuts import CutWriter

DONE, STOPPED, FENCED, REFUSED, GAVE_UP, SUPERSEDED = 0, 3, 4, 5, 6, 7
"""Exit codes: all was written; a `FatalError`; another driver took over; a `UsageError`; too many failures;
another driver writes this checkpoint."""

PARTITIONS = 2  # of the source and of each output topic
KEYS = 3  # of each source partition
TASK_FAILURES_MAX = 4  # as spark.task.maxFailures
RUNS_MAX = 6
SCHEMA = StructType(
    [StructField("key", BinaryType()), StructField("value", BinaryType()), StructField("topic", StringType())]
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One query. `rows`: how many records of each source partition a micro-batch reads."""

    bootstrap: str
    link: tuple[tuple[str, int], tuple[str, int]]  # where the broker is, and where to connect instead
    directory: Path
    application: str
    source: str
    source_id: str
    outputs: tuple[str, str]
    batches: int = 3
    rows: int = 3
    start: int = 0
    """The source offset of the first micro-batch."""
    label: int = 0
    """Added to the numbers of micro-batches in what is written, where another query went before."""
    checkpoint: str = "checkpoint"
    cuts: str | None = None
    """The topic of footers: each transaction then ends with a cut of the first output, as those of views do."""
    fault: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    speculative: bool = False
    """Every task runs twice; the second attempt's result is thrown away."""
    tasks_send: bool = False
    """As with producer.tasks: see `barrier_driver`."""
    sleepers_are_lost: bool = False
    """A sending task that a fault has stopped is taken for dead; its stage runs again beside it."""

    def ends(self, batch_id: int) -> dict[tuple[str, int], int]:
        return {(self.source, index): self.start + (batch_id + 1) * self.rows for index in range(PARTITIONS)}

    def records(self, batch_id: int, partition: int) -> list[tuple[str, str, str]]:
        """(topic, key, value) of one source partition's share, in its order."""
        first = self.start + batch_id * self.rows
        number = self.label + batch_id
        return [
            (self.outputs[offset % 2], f"{partition}-{offset // 2 % KEYS}", f"{number}:{partition}:{offset}")
            for offset in range(first, first + self.rows)
        ]

    def expected(self) -> Iterator[tuple[int, str, str, str]]:
        for batch_id in range(self.batches):
            for partition in range(PARTITIONS):
                for topic, key, value in self.records(batch_id, partition):
                    yield self.label + batch_id, topic, key, value


class WorkerDied(TransientError):
    pass


class Superseded(FatalError):
    """Somebody else has written this entry of the checkpoint."""


def drive(job: Job) -> None:
    """The process."""
    log = os.open(job.directory / "driver.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ[faults.VARIABLE] = job.fault
    once = job.directory / "faults"
    once.mkdir(exist_ok=True)
    os.environ[faults.ONCE_VARIABLE] = str(once)
    target, instead = job.link
    connect = socket.create_connection
    socket.create_connection = lambda address, *args, **kwargs: connect(  # type: ignore[assignment]
        instead if tuple(address) == target else address, *args, **kwargs
    )
    code = supervise(job)
    exit_file(job.directory, os.getpid()).write_text(str(code))
    sys.exit(code)


def exit_file(directory: Path, pid: int) -> Path:
    """Where a driver that was not killed leaves its exit code. The start of a process in another thread may take away
    what multiprocessing says of it: whoever waits then gets 255."""
    return directory / f"exit-{pid}"


def supervise(job: Job) -> int:
    for _ in range(RUNS_MAX):
        try:
            _query(job).run()
            return DONE
        except FencedError as error:
            return _said(FENCED, error)
        except Superseded as error:
            return _said(SUPERSEDED, error)
        except FatalError as error:
            return _said(STOPPED, error)
        except UsageError as error:
            return _said(REFUSED, error)
        except TransientError as error:
            _said(GAVE_UP, error)
    return GAVE_UP


def _query(job: Job) -> Query:
    if job.tasks_send:
        from tests.matrix.barrier_driver import SendingQuery

        return SendingQuery(job)
    return Query(job)


def _said(code: int, error: Exception) -> int:
    print(f"[{os.getpid()}] {code} {type(error).__name__}: {error}", flush=True)
    return code


class Query:
    """One run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._run_id = uuid.uuid4().hex
        self._checkpoint = Checkpoint(job.directory / job.checkpoint)
        self._options = {
            "kafka.bootstrap.servers": job.bootstrap,
            "application.id": job.application,
            "checkpointLocation": str(job.directory / job.checkpoint),
            "staging.dir": str(job.directory / "staging"),
            **job.options,
        }
        self._sink = StreamWriter(SinkOptions.parse(self._options).for_stream(), SCHEMA)
        self._committing = Worker(self._sink.commit if job.cuts is None else self._commit_with_cut)
        self._tasks = Worker(stage_rows)
        self._attempts = iter(range(1, 1 << 30))
        self._cuts: CutWriter | None = None

    def run(self) -> None:
        try:
            first = self._checkpoint.newest("commits") + 1  # planned by an earlier run perhaps, and not noted
            for number in range(first, self._job.batches):
                if number != first or self._checkpoint.newest("offsets") < number:
                    self._checkpoint.add("offsets", number, self._planned(number))
                faults.reach("planned", number)
                self.write(number)
                self._checkpoint.add("commits", number, 'v1\n{"nextBatchWatermarkMs":0}')
                faults.reach("noted", number)
        finally:
            self._tasks.close()
            self._committing.close()

    def write(self, number: int) -> None:
        self._commit([self._task(number, index) for index in range(PARTITIONS)], number)

    def _commit(self, messages: list[CommitMessage], number: int) -> None:
        try:
            self._committing.call(messages, number)
        except BaseException:
            self._sink.abort(list(messages), number)
            raise

    def _commit_with_cut(self, messages: list[CommitMessage], number: int) -> None:
        """In the commit's own process, which keeps the writer as the driver of a view does."""
        if self._cuts is None:
            assert self._job.cuts is not None
            client = Client(self._job.bootstrap)
            self._cuts = CutWriter(client, output_topic=self._job.outputs[0], cuts_topic=self._job.cuts)
        commit_micro_batch(messages, number, SinkOptions.parse(self._options).for_stream(), trailing_record=self._cuts)

    def _planned(self, number: int) -> str:
        positions = Positions(offsets=self._job.ends(number), topic_ids={self._job.source: self._job.source_id})
        return f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":0}}\n{json.dumps(positions.to_json())}'

    def _task(self, number: int, index: int) -> CommitMessage:
        for _ in range(TASK_FAILURES_MAX):
            try:
                message = self._attempt(number, index)
                if self._job.speculative:
                    self._attempt(number, index)
                return message
            except WorkerDied as error:
                died = error
        raise died

    def _attempt(self, number: int, index: int) -> CommitMessage:
        identity = MicroBatchIdentity(query_id=self._checkpoint.query_id, run_id=self._run_id, batch_id=number)
        properties = {"task": str(next(self._attempts)), "task index": str(index)}
        rows = self._job.records(number, index)
        made = self._tasks.call(rows, SinkOptions.parse(self._options), identity, properties)
        assert isinstance(made, CommitMessage)
        return made


def stage_rows(
    rows: list[tuple[str, str, str]],
    options: SinkOptions,
    identity: MicroBatchIdentity,
    properties: dict[str, str],
) -> CommitMessage:
    """A task."""
    return stage(iter([rows_of_task(rows, identity)]), options, identity, properties)


def rows_of_task(rows: list[tuple[str, str, str]], identity: MicroBatchIdentity) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key.encode() for _, key, _ in rows], pa.binary()),
            "value": pa.array([f"{value}:{identity.run_id}".encode() for _, _, value in rows], pa.binary()),
            "topic": pa.array([topic for topic, _, _ in rows], pa.string()),
        }
    )


class Worker:
    """A Python worker: a process forked from the driver at its first call, and kept as Spark keeps its own."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work = work
        self._pipe: Connection | None = None
        self._child = 0

    def call(self, *arguments: Any) -> Any:
        """Raises what it raised, and `WorkerDied`."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(arguments)
            good, value = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            child = self._child
            self.close()
            raise WorkerDied(f"worker {child} died") from None
        if not good:
            raise value
        return value

    def _start(self) -> None:
        self._pipe, there = Pipe()
        self._child = os.fork()
        if self._child == 0:
            self._pipe.close()
            while True:
                try:
                    arguments = there.recv()
                except EOFError:
                    os._exit(0)
                _answer(there, self._work, arguments)
        there.close()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
            os.kill(self._child, signal.SIGKILL)  # a later worker has a copy of the pipe: it does not end by itself
            os.waitpid(self._child, 0)


def _answer(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        answer = (True, work(*arguments))
    except BaseException as error:
        if not isinstance(error, (FatalError, UsageError, TransientError)):
            traceback.print_exc()
        answer = (False, error)
    try:
        pipe.send_bytes(pickle.dumps(answer))
    except OSError:
        os._exit(1)  # the driver is gone


class Checkpoint:
    """Spark's: entries are made once, whole, and never changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("offsets", "commits"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        metadata = directory / "metadata"
        if not metadata.exists():
            metadata.write_text(uuid.uuid4().hex)
        self.query_id = metadata.read_text()

    def add(self, kind: str, number: int, text: str) -> None:
        made = self._directory / kind / f".{number}.{uuid.uuid4().hex}"
        made.write_text(text)
        try:
            os.link(made, self._directory / kind / str(number))
        except FileExistsError:
            raise Superseded(f"{kind}/{number} of this checkpoint is there: another driver uses it") from None
        finally:
            made.unlink()

    def newest(self, kind: str) -> int:
        names = (one.name for one in (self._directory / kind).iterdir())
        return max((int(name) for name in names if name.isdigit()), default=-1)
