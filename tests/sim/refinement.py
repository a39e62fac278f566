"""Does the real sink on the real node do only what the model does?

The model follows along: it keeps every state that it could be in after what was seen so far. What nobody sees (an
answer that was lost on the way, a driver that gave up waiting) may have happened or not; whatever was seen (a request
sent, the node's answer to it, a plan that ran, a micro-batch noted as finished, what readers can see) must be possible
in one of the states at least. Where it is possible in none, the code has left the model: `Departure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from suiro.broker.coordination.transactions.state import TransactionState
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import decode_batch
from suiro.spark.committer import MARKER_TOPIC
from suiro.spark.decide import Marker
from tests.sim import exactly_once_model as m
from tests.sim import wording
from tests.sim.checker import Violation
from tests.sim.exactly_once_model import Answer, Kind, Model, Phase, Request, State
from tests.sim.network import Link
from tests.sim.node import AUDIT, OUT, TOPICS, Template
from tests.sim.query import APPLICATION, Driver, Place, Row
from tests.sim.scenario import Life, Plan
from tests.sim.world import Process

PLACES: list[Place] = sorted((topic, index) for topic in (OUT, AUDIT) for index in range(TOPICS[topic]))
_FENCED = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)


class Departure(Violation):
    def __init__(self, words: str) -> None:
        super().__init__("not in the model", words)


class Follower:
    """The model, following what is seen."""

    def __init__(self, *, is_v2: bool) -> None:
        self._places: dict[int, tuple[int, ...]] = {}
        self.model = Model(is_v2=is_v2, partitions=len(PLACES), batches=1_000_000, places_of=self._places.__getitem__)
        self.states = {self.model.beginning()}
        self.most_states = 1
        self.seen = 0

    def see(self, words: str, possible: Callable[[State], Iterable[State]]) -> None:
        following = {_settled(after) for state in self.states for after in possible(state)}
        if not following:
            raise Departure(f"{words}; the model could be in {len(self.states)} states: {self._told()}")
        self.states = following
        self.seen += 1
        self.most_states = max(self.most_states, len(following))

    def _told(self) -> str:
        state = next(iter(self.states))
        drivers = ", ".join(f"driver {d.run} in {d.phase.name} of micro-batch {d.batch}" for d in state.drivers)
        return f"one has epoch {state.epoch}, {state.coordinator.name}, {drivers}"

    def starts(self) -> None:
        self.see("a driver starts", lambda state: [self.model.started(state)])

    def is_gone(self, run: int) -> None:
        stopped = m.Driver(run=run, phase=Phase.STOPPED, batch=-1)
        self.see("a driver is gone", lambda state: [m._replaced(state, run - 1, stopped)])

    def runs_plan(self, run: int, batch: int, places: tuple[int, ...]) -> None:
        self._places[batch] = places

        def possible(state: State) -> Iterator[State]:
            driver = state.drivers[run - 1]
            if driver.phase is Phase.PLAN and driver.batch == batch:
                yield m._replaced(state, run - 1, self.model.ran(driver))

        self.see(f"driver {run} runs the plan of micro-batch {batch}", possible)

    def sends(self, request: Request) -> None:
        index = request.run - 1

        def possible(state: State) -> Iterator[State]:
            for driver in (state.drivers[index], self.model.gave_up(state.drivers[index])):
                if request in self.model.needs(driver) and request not in driver.answered:
                    yield self.model.sent(m._replaced(state, index, driver), index, request)

        self.see(f"driver {request.run} sends {_told(request)}", possible)

    def is_served(self, request: Request, answer: Answer | None) -> None:
        """`answer` is None where the node died meanwhile: it may have done it or not."""

        def possible(state: State) -> Iterator[State]:
            if answer is None:
                yield state
            if request not in state.under_way:
                return
            place = state.under_way.index(request)
            rest = state.under_way[:place] + state.under_way[place + 1 :]
            after, given = self.model.serve(state, request)
            after = after._replace(under_way=rest)
            if answer is None:
                yield after
            elif given == answer:
                yield after
                driver = after.drivers[request.run - 1]
                if self.model.waits_for(driver, request):
                    yield m._replaced(after, request.run - 1, self.model.hear(driver, request, given))

        self.see(f"the node answers {answer} to {_told(request)}", possible)

    def times_out(self) -> None:
        def possible(state: State) -> Iterator[State]:
            if state.coordinator is m.Coordinator.ONGOING:
                yield m._prepare_abort(state, self.model.is_v2)

        self.see("the coordinator times the transaction out", possible)

    def notes(self, run: int, batch: int) -> None:
        def possible(state: State) -> Iterator[State]:
            driver = state.drivers[run - 1]
            if driver.phase is Phase.BUMP:
                driver = self.model.gave_up(driver)
            if driver.phase is Phase.NOTE and driver.batch == batch:
                yield self.model.noted(m._replaced(state, run - 1, driver), run - 1)

        self.see(f"driver {run} notes micro-batch {batch} as finished", possible)

    def readers_see(self, visible: tuple[tuple[int, ...], ...], marker: tuple[int, int]) -> None:
        def possible(state: State) -> Iterator[State]:
            if state.marker == marker and tuple(log.committed for log in state.partitions) == visible:
                yield state

        self.see(f"readers see the micro-batches {visible}, the marker is {marker}", possible)


class FollowedDriver(Driver):
    batch_sizes = (1_000,)  # the model's micro-batches have one record batch for each partition

    def __init__(self, life: FollowedLife, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._life = life

    def began(self) -> None:
        self._life.runs[self.name] = len(self._life.runs) + 1
        self._life.follower.starts()

    def run_plan(self, batch_id: int) -> list[Row]:
        rows = super().run_plan(batch_id)
        places = tuple(sorted({PLACES.index((row.topic, row.partition)) for row in rows}))
        self._life.follower.runs_plan(self._life.runs[self.name], batch_id, places)
        return rows

    def finish(self, batch_id: int) -> None:
        self._life.compare()
        self._life.follower.notes(self._life.runs[self.name], batch_id)
        super().finish(batch_id)


class FollowedLife(Life):
    """A simulated life with the model beside it. Disks do not fail in it, and workers stay: the model has neither."""

    def __init__(self, seed: int | str, template: Template, **settings: Any) -> None:
        super().__init__(seed, template, **settings)
        self.plan.refuse_write = self.plan.new_worker = 0.0
        self.follower = Follower(is_v2=template.transaction_version == 2)
        self.runs: dict[str, int] = {}  # a driver's name -> its number in the model
        self._requests: dict[int, tuple[bytes, list[Request]]] = {}
        self._ongoing = -1  # the epoch of the open transaction, as seen after the last event
        self._answered_now = False

    def make_driver(self, name: str) -> Driver:
        plan = self.plan
        return FollowedDriver(
            self,
            self.world,
            self.query,
            name,
            settings=plan.settings,
            transaction_timeout_ms=plan.transaction_timeout_ms,
        )

    def looked(self) -> None:
        """After every event."""
        broker = self.node.broker
        found = broker and next(iter(broker.transactions), None)
        if found is not None:
            ongoing = found.producer_epoch if found.state is TransactionState.ONGOING else -1
            aborted = found.state is TransactionState.COMPLETE_ABORT
            if self._ongoing >= 0 and aborted and not self._answered_now:
                self.follower.times_out()
            self._ongoing = ongoing
        self._answered_now = False
        self.checker.look()

    def _requested(self, link: Link, frame: bytes) -> None:
        if link.name in self.runs:
            if id(frame) not in self._requests:
                self._requests[id(frame)] = frame, list(self._read(link.name, frame))
            for request in self._requests[id(frame)][1]:
                self.follower.sends(request)
        super()._requested(link, frame)

    def _answered(self, link: Link, request: bytes, answer: bytes) -> None:
        _, requests = self._requests.get(id(request), (b"", []))
        for one, given in zip(requests, self._answers(requests, request, answer), strict=True):
            self._answered_now = True
            self.follower.is_served(one, given)
        super()._answered(link, request, answer)

    def _node_was_killed(self) -> None:
        served = self.network.in_service
        if served is not None:
            for request in self._requests.get(id(served), (b"", []))[1]:
                self._answered_now = True
                self.follower.is_served(request, None)
        super()._node_was_killed()

    def _driver_ended(self, driver: Driver, process: Process, failure: BaseException | None) -> None:
        if isinstance(failure, Departure):
            self._failure = failure
        elif driver.name in self.runs:
            self.follower.is_gone(self.runs[driver.name])
            super()._driver_ended(driver, process, failure)
        else:
            super()._driver_ended(driver, process, failure)

    def compare(self) -> None:
        """What readers see is what the model's readers would see."""
        broker = self.node.broker
        if broker is None:
            return
        committed = broker.groups.offsets.store.committed(APPLICATION).get((MARKER_TOPIC, 0))
        marker = (-1, m.NOBODY)
        if committed is not None:
            found = Marker.from_metadata(committed.value.metadata)
            marker = found.batch_id, self.runs[found.run_id]
        visible = tuple(
            tuple(dict.fromkeys(int(value.split(":")[0]) for value in self.checker.visible.get(place, ())))
            for place in PLACES
        )
        self.follower.readers_see(visible, marker)

    def _read(self, name: str, frame: bytes) -> Iterator[Request]:
        """The model's requests in a frame."""
        api_key = int.from_bytes(frame[4:6], "big")
        if api_key not in wording.TRANSACTIONAL:
            return
        run, (_, request) = self.runs[name], wording.request_of(frame)
        if api_key == wording.INIT:
            yield Request(run, Kind.INIT, request.producer_epoch)
        elif api_key == wording.ADD_PARTITIONS:
            topics = request.v3_and_below_topics
            places = {PLACES.index((topic.name, index)) for topic in topics for index in topic.partitions}
            batch = next(driver.batch for state in self.follower.states for driver in [state.drivers[run - 1]])
            if places != set(self.follower.model.places(batch)):
                raise Departure(f"{name} adds other partitions than micro-batch {batch} writes to")
            yield Request(run, Kind.ADD_PARTITIONS, request.v3_and_below_producer_epoch, batch=batch)
        elif api_key == wording.ADD_OFFSETS:
            yield Request(run, Kind.ADD_OFFSETS, request.producer_epoch)
        elif api_key == wording.PRODUCE:
            yield from _produced(run, request)
        elif api_key == wording.COMMIT_OFFSETS:
            markers = [entry for topic in request.topics if topic.name == MARKER_TOPIC for entry in topic.partitions]
            if not markers:
                raise Departure(f"{name} commits offsets in its transaction without the marker")
            batch = markers[0].committed_offset - 1
            yield Request(run, Kind.COMMIT_OFFSETS, request.producer_epoch, batch=batch)
        elif api_key == wording.END:
            kind = Kind.END if request.committed else Kind.ABORT
            yield Request(run, kind, request.producer_epoch)
        else:
            yield Request(run, Kind.MARKER if request.require_stable else Kind.WHOSE_MARKER)

    def _answers(self, requests: list[Request], frame: bytes, answer: bytes) -> list[Answer]:
        if not requests:
            return []
        api_key, told = wording.answer_of(frame, answer)
        codes = wording.codes_of(api_key, told)
        if api_key == wording.PRODUCE:
            by_place = (f"{PLACES[r.place][0]}-{PLACES[r.place][1]}" for r in requests)
            return [Answer(_word(codes[place])) for place in by_place]
        words = {_word(code) for code in codes.values()}
        word = words.pop() if len(words) == 1 else next(word for word in words if word != "ok")
        if word == "ok" and (api_key == wording.INIT or (api_key == wording.END and self.follower.model.is_v2)):
            return [Answer(word, epoch=told.producer_epoch)]
        if word == "ok" and api_key == wording.FETCH_OFFSETS:
            entry = told.topics[0].partitions[0]
            if entry.committed_offset < 0:
                return [Answer(word)]
            marker = Marker.from_metadata(entry.metadata)
            return [Answer(word, batch=marker.batch_id, run=self.runs[marker.run_id])]
        return [Answer(word)]


def follow(seed: int | str, template: Template, *, plan: Plan | None = None) -> tuple[Any, Follower]:
    life = FollowedLife(seed, template, plan=plan)
    return life.run(), life.follower


def _produced(run: int, request: Any) -> Iterator[Request]:
    for topic in request.topic_data:
        for entry in topic.partition_data:
            for position, header in iter_headers(entry.records):
                batches = {
                    int((record.value or b"").split(b":")[0]) for record in decode_batch(entry.records, position)
                }
                (batch,) = batches
                place = PLACES.index((topic.name, entry.index))
                epoch, sequence = header.producer_epoch, header.base_sequence
                yield Request(run, Kind.PRODUCE, epoch, place, sequence, batch)


def _settled(state: State) -> State:
    """The node writes all markers before it answers anybody, or when it starts again."""
    while state.coordinator in m.PREPARED:
        state = m._mark(state, min(state.places))
    return state


def _word(code: ErrorCode) -> str:
    if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
        return "ok"
    if code in _FENCED:
        return "fenced"
    return "again" if code.retriable else "abortable"


def _told(request: Request) -> str:
    words = f"{request.kind.name} with epoch {request.epoch}"
    return words if request.batch < 0 else f"{words} of micro-batch {request.batch}"
