"""The exactly-once sink and a transaction coordinator as a model small enough to try every order of events.

Drivers run the micro-batches 0, 1, 2... of one query; each writes one record batch to every partition, then its marker.
Everything that may go wrong may go wrong anywhere: requests arrive late, twice or never, answers are lost, drivers
stand still for a while or for ever (a crash is no more than that), start beside each other, give up waiting, the
coordinator times a transaction out and writes its markers one by one.

`explore` tries all of it within bounds and returns the shortest way to a state that must not be. `steps` is the model
itself, which `refinement` holds the real sink and node against. `Rules` takes a rule away, to see what it is for.
By transactions V1, or V2 (KIP-890): places join by being written to, and an end takes the next epoch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

OFFSETS = -1  # the place of the group's offsets in a transaction, beside the partitions 0, 1, ...
NOBODY = -1


class Coordinator(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


PREPARED = (Coordinator.PREPARE_COMMIT, Coordinator.PREPARE_ABORT)


class Kind(IntEnum):
    INIT = 0  # `epoch`: the one expected, or -1
    ADD_PARTITIONS = 1
    ADD_OFFSETS = 2
    PRODUCE = 3
    COMMIT_OFFSETS = 4
    END = 5
    ABORT = 6
    MARKER = 7  # waits until no transaction holds it
    WHOSE_MARKER = 8  # does not wait


class Request(NamedTuple):
    run: int
    kind: Kind
    epoch: int = -1
    place: int = OFFSETS
    sequence: int = 0
    batch: int = -1


class Answer(NamedTuple):
    word: str  # ok, again, fenced, abortable
    epoch: int = -1
    batch: int = -1
    run: int = NOBODY


OK, AGAIN, FENCED, ABORTABLE = (Answer(word) for word in ("ok", "again", "fenced", "abortable"))


class Phase(IntEnum):
    """What a driver does now: run the plan, or wait for the answers to a request."""

    PLAN = 0
    FENCE = 1
    ASK = 2
    ADD = 3
    JOIN = 4
    PRODUCE = 5
    OFFSETS = 6
    END = 7
    BUMP = 8
    NOTE = 9  # Kafka has it; Spark notes it as finished
    WHOSE = 10  # fenced: by another run?
    ABORT = 11  # only without rule 4
    STOPPED = 12


class Driver(NamedTuple):
    run: int
    phase: Phase
    batch: int
    epoch: int = -1
    known: int = -2  # the marker's batch as far as this driver knows; -2: it does not
    fresh: bool = False  # asked during this micro-batch
    sequence: int = 0
    sent: frozenset[Request] = frozenset()
    answered: frozenset[Request] = frozenset()


class Partition(NamedTuple):
    epoch: int = -1
    last_sequence: int = -1
    open: tuple[int, ...] = ()
    committed: tuple[int, ...] = ()


class State(NamedTuple):
    epoch: int
    last_epoch: int
    coordinator: Coordinator
    places: frozenset[int]  # of the transaction; while it is being ended, those without their marker
    partitions: tuple[Partition, ...]
    marker: tuple[int, int]  # batch, run
    pending: tuple[int, int, int] | None  # epoch, batch, run: committed with the open transaction
    finished: int  # the last micro-batch in Spark's commit log
    drivers: tuple[Driver, ...]
    under_way: tuple[Request, ...]  # sorted
    troubles: int  # how many more resends, lost answers and deadlines there may be


class Action(NamedTuple):
    """What happened, for traces and for counter-examples."""

    name: str
    run: int = NOBODY
    request: Request | None = None
    answer: Answer | None = None

    def __str__(self) -> str:
        who = f"driver {self.run} " if self.run != NOBODY else ""
        what = "" if self.request is None else f" {self.request.kind.name} epoch {self.request.epoch}"
        if self.request is not None and self.request.kind is Kind.PRODUCE:
            what += f" of micro-batch {self.request.batch} to partition {self.request.place}"
        return f"{who}{self.name}{what}" + ("" if self.answer is None else f": {self.answer.word}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds. `verification`: the broker asks whether a write belongs to an open transaction (Kafka 3.6 on)."""

    fence_before_asking: bool = True
    marker_in_transaction: bool = True
    one_epoch_per_transaction: bool = True
    abort_by_fencing: bool = True
    verification: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """`places_of` a micro-batch: which partitions it writes to. `epochs`: where `explore` goes no further. In V2 two
    drivers can fence each other for ever, each just when the other has aborted and does not yet hold its epoch."""

    rules: Rules = Rules()
    is_v2: bool = False
    partitions: int = 1
    batches: int = 2
    drivers: int = 2
    troubles: int = 1
    epochs: int = 99
    places_of: Callable[[int], tuple[int, ...]] | None = None

    def places(self, batch: int) -> tuple[int, ...]:
        return tuple(range(self.partitions)) if self.places_of is None else self.places_of(batch)

    def beginning(self) -> State:
        return State(
            epoch=-1,
            last_epoch=-1,
            coordinator=Coordinator.EMPTY,
            places=frozenset(),
            partitions=(Partition(),) * self.partitions,
            marker=(-1, NOBODY),
            pending=None,
            finished=-1,
            drivers=(),
            under_way=(),
            troubles=self.troubles,
        )

    # The node

    def serve(self, state: State, request: Request) -> tuple[State, Answer]:
        match request.kind:
            case Kind.INIT:
                return _init(state, request.epoch, self.is_v2)
            case Kind.ADD_PARTITIONS:
                return _add(state, request.epoch, frozenset(self.places(request.batch)))
            case Kind.ADD_OFFSETS:
                return _add(state, request.epoch, frozenset((OFFSETS,)))
            case Kind.PRODUCE:
                return self._produce(state, request)
            case Kind.COMMIT_OFFSETS:
                return self._commit_offsets(state, request)
            case Kind.END | Kind.ABORT:
                end = _end_v2 if self.is_v2 else _end
                return end(state, request.epoch, commit=request.kind is Kind.END)
            case Kind.MARKER if state.pending is not None:
                return state, AGAIN
            case _:
                return state, Answer("ok", batch=state.marker[0], run=state.marker[1])

    def _produce(self, state: State, request: Request) -> tuple[State, Answer]:
        epoch, sequence = request.epoch, request.sequence
        log = state.partitions[request.place]
        if not (log.open and log.epoch == epoch):
            state, refusal = self._admitted(state, epoch, request.place)
            if refusal is not None:
                return state, refusal
        if epoch < log.epoch:
            return state, FENCED
        if epoch == log.epoch and sequence == log.last_sequence:
            return state, OK  # it has this one
        begins = epoch != log.epoch
        if (begins and sequence and (log.epoch >= 0 or self.is_v2)) or (
            not begins and sequence != log.last_sequence + 1
        ):
            return state, ABORTABLE
        written = Partition(epoch, sequence, (*log.open, request.batch), log.committed)
        return state._replace(partitions=_with(state.partitions, request.place, written)), OK

    def _commit_offsets(self, state: State, request: Request) -> tuple[State, Answer]:
        if state.pending is None or state.pending[0] != request.epoch:
            state, refusal = self._admitted(state, request.epoch, OFFSETS)
            if refusal is not None:
                return state, refusal
            if state.pending is not None and state.pending[0] > request.epoch:
                return state, FENCED
        return state._replace(pending=(request.epoch, request.batch, request.run)), OK

    def _admitted(self, state: State, epoch: int, place: int) -> tuple[State, Answer | None]:
        if self.is_v2:
            state, answer = _add(state, epoch, frozenset((place,)))
            return state, None if answer is OK else answer
        if not self.rules.verification:
            return state, None
        if epoch != state.epoch:
            return state, FENCED
        if state.coordinator in PREPARED:
            return state, AGAIN
        return state, None if place in state.places else ABORTABLE

    def node_steps(self, state: State) -> Iterator[tuple[Action, State]]:
        """What the node does by itself."""
        if state.coordinator in PREPARED:
            for place in state.places:
                yield Action(f"marker in {'offsets' if place == OFFSETS else place}"), _mark(state, place)
        elif state.coordinator is Coordinator.ONGOING:
            yield Action("time-out"), _prepare_abort(state, self.is_v2)

    # The drivers

    def started(self, state: State) -> State:
        """One more driver. It goes on from the first micro-batch that is not finished."""
        driver = Driver(run=len(state.drivers) + 1, phase=Phase.PLAN, batch=state.finished + 1)
        if driver.batch == self.batches:
            driver = _in(driver, Phase.STOPPED)
        return state._replace(drivers=(*state.drivers, driver))

    def needs(self, driver: Driver) -> tuple[Request, ...]:
        """The requests whose answers it waits for."""
        run, epoch, batch = driver.run, driver.epoch, driver.batch
        match driver.phase:
            case Phase.FENCE:
                return (Request(run, Kind.INIT),)
            case Phase.BUMP:
                return (Request(run, Kind.INIT, epoch),)
            case Phase.ASK:
                return (Request(run, Kind.MARKER),)
            case Phase.WHOSE:
                return (Request(run, Kind.WHOSE_MARKER),)
            case Phase.ADD:
                return (Request(run, Kind.ADD_PARTITIONS, epoch, batch=batch),)
            case Phase.JOIN:
                return (Request(run, Kind.ADD_OFFSETS, epoch),)
            case Phase.PRODUCE:
                places = self.places(batch)
                return tuple(Request(run, Kind.PRODUCE, epoch, place, driver.sequence, batch) for place in places)
            case Phase.OFFSETS:
                return (Request(run, Kind.COMMIT_OFFSETS, epoch, batch=batch),)
            case Phase.END:
                return (Request(run, Kind.END, epoch),)
            case Phase.ABORT:
                return (Request(run, Kind.ABORT, epoch),)
        return ()

    def hear(self, driver: Driver, request: Request, answer: Answer) -> Driver:
        if answer.word == "again":
            return driver._replace(sent=driver.sent - {request})
        if answer.word in ("fenced", "abortable"):
            return self._failed(driver, answer)
        answered = driver.answered | {request}
        if not answered.issuperset(self.needs(driver)):
            return driver._replace(answered=answered)
        phase = driver.phase
        if phase is Phase.FENCE:
            fenced = _in(driver, Phase.ASK, epoch=answer.epoch, sequence=0)
            return fenced if self.rules.fence_before_asking else self.decide(fenced)
        if phase is Phase.ASK:
            asked = driver._replace(known=answer.batch, fresh=True)
            return self.decide(asked) if self.rules.fence_before_asking else _in(asked, Phase.FENCE)
        if phase is Phase.WHOSE:
            return self._begin(driver) if answer.run == driver.run else _in(driver, Phase.STOPPED)
        if phase is Phase.ABORT:
            return _in(driver, Phase.ASK)
        if phase is Phase.END:
            if self.is_v2:
                return _in(driver, Phase.NOTE, epoch=answer.epoch, known=driver.batch, fresh=False, sequence=0)
            if self.rules.one_epoch_per_transaction:
                return _in(driver, Phase.BUMP)
            ended = driver._replace(known=driver.batch, fresh=False, sequence=driver.sequence + 1)
            return _in(ended, Phase.NOTE)
        if phase is Phase.BUMP:
            return _in(driver, Phase.NOTE, epoch=answer.epoch, known=driver.batch, fresh=False, sequence=0)
        after = {
            Phase.ADD: Phase.JOIN,
            Phase.JOIN: Phase.PRODUCE,
            Phase.PRODUCE: Phase.OFFSETS if self.rules.marker_in_transaction else Phase.END,
            Phase.OFFSETS: Phase.END,
        }
        return _in(driver, after[phase])

    def ran(self, driver: Driver) -> Driver:
        """The plan has run: write its rows, if they are not there already."""
        driver = driver._replace(fresh=False)
        return self._begin(driver) if driver.known < -1 else self.decide(driver)

    def decide(self, driver: Driver) -> Driver:
        if driver.batch == driver.known + 1 or not self.rules.marker_in_transaction:
            return _in(driver, Phase.PRODUCE if self.is_v2 else Phase.ADD)
        if not driver.fresh:
            return self._begin(driver)
        return _in(driver, Phase.NOTE if driver.batch == driver.known else Phase.STOPPED)

    def gave_up(self, driver: Driver) -> Driver:
        """Its deadline has passed without an answer."""
        if driver.phase in (Phase.WHOSE, Phase.ABORT):
            return _in(driver, Phase.STOPPED)
        return self._failed(driver, ABORTABLE)

    def _failed(self, driver: Driver, answer: Answer) -> Driver:
        if driver.phase is Phase.BUMP:
            return _in(driver, Phase.NOTE, known=-2)  # the micro-batch is in Kafka; the next one fences
        if answer.word == "fenced":
            return _in(driver, Phase.STOPPED if driver.fresh else Phase.WHOSE)
        if not self.rules.abort_by_fencing and driver.phase not in (Phase.FENCE, Phase.ASK):
            return _in(driver, Phase.ABORT)
        return self._begin(driver)

    def _begin(self, driver: Driver) -> Driver:
        first = Phase.FENCE if self.rules.fence_before_asking else Phase.ASK
        return _in(driver, first, known=-2)

    def noted(self, state: State, index: int) -> State:
        """Spark's commit log: an entry is made once; who comes too late stops."""
        driver = state.drivers[index]
        if state.finished == driver.batch - 1:
            is_last = driver.batch + 1 == self.batches
            following = _in(driver, Phase.STOPPED if is_last else Phase.PLAN, batch=driver.batch + 1)
            state = state._replace(finished=driver.batch)
        else:
            following = _in(driver, Phase.STOPPED)
        return _replaced(state, index, following)

    # Everything

    def steps(self, state: State) -> Iterator[tuple[Action, State]]:
        """Every event that may happen next, and what it leads to."""
        yield from self.node_steps(state)
        for position, request in enumerate(state.under_way):
            if position and request == state.under_way[position - 1]:
                continue
            served, answer = self.serve(state, request)
            rest = state.under_way[:position] + state.under_way[position + 1 :]
            served = served._replace(under_way=rest)
            action = Action("is served", request.run, request, answer)
            index = request.run - 1
            driver = state.drivers[index]
            if not self.waits_for(driver, request):
                yield action, served
                continue
            yield action, _replaced(served, index, self.hear(driver, request, answer))
            if state.troubles:
                yield action._replace(name="is served, and does not hear it,"), served
        for index, driver in enumerate(state.drivers):
            if driver.phase is Phase.STOPPED:
                continue
            if driver.phase is Phase.PLAN:
                yield Action("runs the plan", driver.run), _replaced(state, index, self.ran(driver))
                continue
            if driver.phase is Phase.NOTE:
                yield Action("notes it as finished", driver.run), self.noted(state, index)
                continue
            for request in self.needs(driver):
                if request not in driver.sent and request not in driver.answered:
                    yield Action("sends", driver.run, request), self.sent(state, index, request)
                elif state.troubles and request not in driver.answered:
                    again = self.sent(state, index, request)
                    yield (
                        Action("sends again", driver.run, request),
                        again._replace(troubles=state.troubles - 1),
                    )
            if state.troubles:
                given_up = _replaced(state, index, self.gave_up(driver))
                yield (
                    Action("gives up waiting", driver.run),
                    given_up._replace(troubles=state.troubles - 1),
                )
        if len(state.drivers) < self.drivers:
            yield Action("a driver starts"), self.started(state)

    def waits_for(self, driver: Driver, request: Request) -> bool:
        return request in driver.sent and request not in driver.answered

    def sent(self, state: State, index: int, request: Request) -> State:
        driver = state.drivers[index]
        under_way = tuple(sorted((*state.under_way, request)))
        return _replaced(state, index, driver._replace(sent=driver.sent | {request}))._replace(under_way=under_way)

    def wrong(self, state: State) -> str:
        """What must not be in this state, or nothing."""
        for place, log in enumerate(state.partitions):
            if len(set(log.committed)) < len(log.committed):
                return f"duplicate: partition {place} has the micro-batches {log.committed}"
            if list(log.committed) != sorted(log.committed):
                return f"order inversion: partition {place} has the micro-batches {log.committed}"
        if state.coordinator in PREPARED:
            return ""  # not all markers are written
        for place, log in enumerate(state.partitions):
            expected = [b for b in range(state.marker[0] + 1) if place in self.places(b)]
            if self.rules.marker_in_transaction and list(log.committed) != expected:
                return f"torn transaction: the marker is at {state.marker[0]}, {place} has {log.committed}"
            if log.open and state.coordinator is not Coordinator.ONGOING:
                return f"hanging transaction: nobody will end micro-batch {log.open} in partition {place}"
            for batch in range(state.finished + 1):
                if place in self.places(batch) and batch not in log.committed:
                    return f"lost write: micro-batch {batch} is finished and not in partition {place}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """`states` tried. `story` leads to what is `wrong`; `whole`: nothing within the bounds was left out."""

    states: int
    wrong: str = ""
    story: tuple[Action, ...] = ()
    whole: bool = True

    def __str__(self) -> str:
        if not self.wrong:
            return f"{self.states} states{'' if self.whole else ' (not all)'}, nothing wrong"
        return "\n".join([*(f"  {action}" for action in self.story), f"{self.wrong}, after {self.states} states"])


def explore(model: Any, *, most: int = 10_000_000) -> Explored:
    """Every state within the bounds, nearest first. `model`: a `Model`, or what has the same methods."""
    beginning = model.beginning()
    came_from: dict[Any, tuple[Any, Action] | None] = {beginning: None}
    queue = deque((beginning,))
    while queue:
        state = queue.popleft()
        if state.epoch >= model.epochs:
            continue
        for action, following in model.steps(state):
            if following in came_from:
                continue
            came_from[following] = (state, action)
            wrong = model.wrong(following)
            if wrong:
                return Explored(states=len(came_from), wrong=wrong, story=_story(came_from, following))
            queue.append(following)
        if len(came_from) > most:
            return Explored(states=len(came_from), whole=False)
    return Explored(states=len(came_from))


def _story(came_from: dict[Any, tuple[Any, Action] | None], state: Any) -> tuple[Action, ...]:
    actions = []
    while (before := came_from[state]) is not None:
        state, action = before
        actions.append(action)
    return tuple(reversed(actions))


def _init(state: State, expected: int, is_v2: bool) -> tuple[State, Answer]:
    if state.coordinator in PREPARED:
        return state, AGAIN
    if state.coordinator is Coordinator.ONGOING:
        return _prepare_abort(state, is_v2), AGAIN
    if expected in (-1, state.epoch):
        epoch, last = state.epoch + 1, -1 if expected < 0 else state.epoch
    elif expected == state.last_epoch:
        epoch, last = state.epoch, state.last_epoch  # done before; its answer was lost
    else:
        return state, FENCED
    empty = state._replace(epoch=epoch, last_epoch=last, coordinator=Coordinator.EMPTY, places=frozenset())
    return empty, Answer("ok", epoch=epoch)


def _add(state: State, epoch: int, places: frozenset[int]) -> tuple[State, Answer]:
    if epoch != state.epoch:
        return state, FENCED
    if state.coordinator in PREPARED:
        return state, AGAIN
    before = state.places if state.coordinator is Coordinator.ONGOING else frozenset()
    return state._replace(coordinator=Coordinator.ONGOING, places=before | places), OK


def _end(state: State, epoch: int, *, commit: bool) -> tuple[State, Answer]:
    if epoch != state.epoch:
        return state, FENCED
    prepare = Coordinator.PREPARE_COMMIT if commit else Coordinator.PREPARE_ABORT
    match state.coordinator:
        case Coordinator.ONGOING:
            return state._replace(coordinator=prepare), OK
        case Coordinator.PREPARE_COMMIT | Coordinator.PREPARE_ABORT:
            return state, AGAIN if state.coordinator is prepare else ABORTABLE
        case Coordinator.COMPLETE_COMMIT:
            return state, OK if commit else ABORTABLE
        case Coordinator.COMPLETE_ABORT:
            return state, ABORTABLE if commit else OK
    return state, ABORTABLE


def _end_v2(state: State, epoch: int, *, commit: bool) -> tuple[State, Answer]:
    """An end that is asked for again bears the epoch that the first one has taken away."""
    is_repeated = epoch + 1 == state.epoch
    prepare = Coordinator.PREPARE_COMMIT if commit else Coordinator.PREPARE_ABORT
    match state.coordinator:
        case Coordinator.PREPARE_COMMIT | Coordinator.PREPARE_ABORT if is_repeated:
            return state, AGAIN if state.coordinator is prepare else ABORTABLE
        case Coordinator.COMPLETE_COMMIT | Coordinator.COMPLETE_ABORT if is_repeated:
            was_commit = state.coordinator is Coordinator.COMPLETE_COMMIT
            return state, Answer("ok", epoch=state.epoch) if commit is was_commit else ABORTABLE
    if epoch != state.epoch or state.coordinator in PREPARED:
        return state, FENCED
    if state.coordinator is not Coordinator.ONGOING:
        return state, ABORTABLE  # (an abort of nothing, which a broker grants, is never asked for)
    ended = state._replace(epoch=epoch + 1, last_epoch=epoch, coordinator=prepare)
    return ended, Answer("ok", epoch=epoch + 1)


def _prepare_abort(state: State, is_v2: bool) -> State:
    last = state.epoch if is_v2 else -1
    return state._replace(epoch=state.epoch + 1, last_epoch=last, coordinator=Coordinator.PREPARE_ABORT)


def _mark(state: State, place: int) -> State:
    commit = state.coordinator is Coordinator.PREPARE_COMMIT
    if place == OFFSETS:
        if state.pending is not None and state.pending[0] <= state.epoch:
            if commit:
                state = state._replace(marker=state.pending[1:])
            state = state._replace(pending=None)
    else:
        log = state.partitions[place]
        if log.epoch <= state.epoch:
            last = log.last_sequence if log.epoch == state.epoch else -1
            committed = log.committed + log.open if commit else log.committed
            log = Partition(state.epoch, last, (), committed)
            state = state._replace(partitions=_with(state.partitions, place, log))
    places = state.places - {place}
    if places:
        return state._replace(places=places)
    done = Coordinator.COMPLETE_COMMIT if commit else Coordinator.COMPLETE_ABORT
    return state._replace(places=places, coordinator=done)


def _in(driver: Driver, phase: Phase, **changes: int | bool) -> Driver:
    if phase is Phase.STOPPED:
        return Driver(run=driver.run, phase=phase, batch=-1)
    return driver._replace(phase=phase, sent=frozenset(), answered=frozenset(), **changes)  # type: ignore[arg-type]


def _with(items: tuple[Partition, ...], index: int, item: Partition) -> tuple[Partition, ...]:
    return (*items[:index], item, *items[index + 1 :])


def _replaced(state: State, index: int, driver: Driver) -> State:
    drivers = state.drivers
    return state._replace(drivers=(*drivers[:index], driver, *drivers[index + 1 :]))
