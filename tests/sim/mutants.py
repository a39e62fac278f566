"""The sink and the node with one rule broken on purpose each: simulation and model must notice every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from suiro.broker.coordination.transactions import coordinator
from suiro.broker.coordination.transactions import state as transaction_state
from suiro.broker.coordination.transactions.state import Decision
from suiro.client.transaction import ProducerIdentity, TransactionalProducer
from suiro.errors import KafkaError, TransientError
from suiro.log.producer_state import ProducerStates
from suiro.protocol.messages import ErrorCode
from suiro.spark.committer import MARKER_TOPIC, Committer, Outcome, _Held, read_marker
from suiro.spark.decide import Plan, Suppress, decide
from tests.sim.query import Driver, Row

Place = tuple[str, int]


def ask_before_fencing(patch: Patch) -> None:
    """Rule 1."""

    def fence(self: Any, plan: Plan) -> _Held:
        marker = read_marker(self._cluster, self._destination, stable=True)
        identity = self._transactions.init(None)
        self._held = _Held(identity=identity, marker=marker, run_id=plan.run_id, fresh=True)
        return self._held

    patch(Committer, "_fence", fence)


def marker_outside_of_the_transaction(patch: Patch) -> None:
    """Rule 2: it is committed right after."""
    commit_offsets, end = TransactionalProducer.commit_offsets, TransactionalProducer.end

    def without_marker(self: Any, group: str, offsets: Mapping[Place, tuple[int, str]]) -> None:
        rest = {place: value for place, value in offsets.items() if place[0] != MARKER_TOPIC}
        self.left_out = group, {MARKER_TOPIC_PLACE: offsets[MARKER_TOPIC_PLACE]}
        commit_offsets(self, group, rest)

    def end_and_note(self: Any, *, commit: bool = True, timeout_ms: int | None = None) -> None:
        from suiro.client.offsets import OffsetRequests

        end(self, commit=commit)
        OffsetRequests.offset_commit(self, *self.left_out)

    patch(TransactionalProducer, "commit_offsets", without_marker)
    patch(TransactionalProducer, "end", end_and_note)


def one_epoch_for_several_transactions(patch: Patch) -> None:
    """Rule 3: after a commit it goes on as it is."""
    init = TransactionalProducer.init

    def init_once(self: Any, expected: ProducerIdentity | None = None, **rest: Any) -> ProducerIdentity:
        if expected is not None and expected == self._identity:
            self._spent = False
            return expected
        return init(self, expected, **rest)

    patch(TransactionalProducer, "init", init_once)


def abort_by_end_txn(patch: Patch) -> None:
    """Rule 4: what failed is aborted, and the same epoch goes on."""
    init = TransactionalProducer.init

    def abort_and_go_on(self: Any, expected: ProducerIdentity | None = None, **rest: Any) -> ProducerIdentity:
        identity: ProducerIdentity | None = self._identity
        if expected is not None or identity is None:
            return init(self, expected, **rest)
        self._spent = False
        try:
            self.end(commit=False)
        except (KafkaError, TransientError):
            pass  # nothing was open
        self._spent = False
        return identity

    patch(TransactionalProducer, "init", abort_and_go_on)


def plan_left_out(patch: Patch) -> None:
    """Rule 5: a micro-batch that is in Kafka already is passed over, plan and all."""
    micro_batch, run_plan = Driver.micro_batch, Driver.run_plan

    def ask_first(self: Any, batch_id: int) -> Outcome:
        committer = self._worker()
        ends = self.query.checkpoint.ends[batch_id]
        plan = Plan(batch_id=batch_id, lineage="query", run_id=self.name, start_digest="", end_digest=str(ends))
        if not self._asked:
            self._asked = True
            if decide(committer._fence(plan).marker, plan) == Suppress():
                return Outcome.SUPPRESSED
        return micro_batch(self, batch_id)

    def run_from_what_is_there(self: Any, batch_id: int) -> list[Row]:
        states = self.query.checkpoint.states
        states.setdefault(batch_id, states[max(number for number in states if number <= batch_id)])
        return run_plan(self, batch_id)

    patch(Driver, "_asked", False)
    patch(Driver, "micro_batch", ask_first)
    patch(Driver, "run_plan", run_from_what_is_there)


def node_forgets_repeated_batches(patch: Patch) -> None:
    """The log takes a batch that it has for a new one."""
    patch(ProducerStates, "duplicate_of", lambda self, *numbers: None)
    patch(ProducerStates, "check_batch", lambda self, *numbers, **kind: None)


def node_decides_without_writing_it_down(patch: Patch) -> None:
    """Markers first: a crash between two of them leaves a transaction half ended."""
    apply = coordinator.TransactionCoordinator._apply

    def apply_at_once(self: Any, decision: Decision) -> ErrorCode:
        if decision.next is not None and decision.next.state in transaction_state.PREPARED:
            self._transactions[decision.next.transactional_id] = decision.next
            self._complete(decision.next)
            return decision.code
        return apply(self, decision)

    patch(coordinator.TransactionCoordinator, "_apply", apply_at_once)


def node_takes_requests_of_old_epochs(patch: Patch) -> None:
    """The coordinator looks at the producer id only."""

    def check(transaction: Any, producer_id: int, producer_epoch: int) -> Decision | None:
        return None if transaction is not None else Decision(code=ErrorCode.invalid_producer_id_mapping)

    patch(transaction_state, "_check_producer", check)


MARKER_TOPIC_PLACE = (MARKER_TOPIC, 0)
Patch = Callable[[Any, str, Any], None]
Mutant = Callable[[Patch], None]

SINK: Sequence[Mutant] = (
    ask_before_fencing,
    marker_outside_of_the_transaction,
    one_epoch_for_several_transactions,
    abort_by_end_txn,
    plan_left_out,
)


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    before: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, replacement: Any) -> None:
        before.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, replacement)

    mutant(patch)
    try:
        yield
    finally:
        for owner, name, original in reversed(before):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
