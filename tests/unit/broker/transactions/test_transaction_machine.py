"""Whatever producers, rivals, repetitions and failing markers do to one transactional id, its rules hold."""

from __future__ import annotations

from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.share import examples

from suiro.broker.coordination.transactions import state
from suiro.broker.coordination.transactions.records import decode_value, encode_value
from suiro.broker.coordination.transactions.state import (
    LAST_PRODUCER_EPOCH,
    MAX_PRODUCER_EPOCH,
    PREPARED,
    V1,
    V2,
    Decision,
    Transaction,
    TransactionState,
)
from suiro.protocol.messages import ErrorCode

S = TransactionState
PLACES = [("t", 0), ("t", 1), ("u", 0)]


class OneTransactionalId(RuleBasedStateMachine):
    """The coordinator in small: it writes what `state` decides, and a marker for each partition of a decision.

    `identities` are those that a client could bear, from the oldest to the newest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.new_ids = count(8)
        self.ended: set[tuple[int, int]] = set()  # identities whose transactions were decided in V2
        self.markers: dict[tuple[str, int], list[tuple[int, int]]] = {place: [] for place in PLACES}

    @initialize(epoch=st.sampled_from([-1, 0, 5, LAST_PRODUCER_EPOCH - 2, LAST_PRODUCER_EPOCH - 1]))
    def begin(self, epoch: int) -> None:
        self.transaction = Transaction(
            transactional_id="id", producer_id=7, producer_epoch=epoch, timeout_ms=1000, update_ms=0
        )
        self.identities = [(7, max(0, epoch))]

    # What comes from outside.

    def bearer(self, data: st.DataObject) -> tuple[int, int]:
        """An identity; most often the newest, else one that is late. Never the epoch that is for fences."""
        return data.draw(st.sampled_from([*self.identities[-4:], self.identities[-1]]))

    @rule(data=st.data(), known=st.booleans(), version=st.sampled_from([V1, V2]))
    def init(self, data: st.DataObject, known: bool, version: int) -> None:
        expected = self.bearer(data) if known and self.transaction.producer_epoch >= 0 else None
        before = self.transaction
        decision = state.init_producer(
            before,
            expected=expected,
            timeout_ms=1000,
            version=version,
            now_ms=self.now,
            new_producer_id=self.new_id,
        )
        if decision.code is ErrorCode.none:
            assert decision.next.state is S.EMPTY
            assert decision.next.producer_epoch <= LAST_PRODUCER_EPOCH, "an epoch is left to fence it with"
            assert before.state not in PREPARED
            if expected is None:
                handed_out = (decision.next.producer_id, decision.next.producer_epoch)
                assert handed_out not in self.identities or before.producer_epoch < 0
        self.take(decision)

    @rule(data=st.data(), place=st.sampled_from(PLACES), version=st.sampled_from([V1, V2]))
    def add(self, data: st.DataObject, place: tuple[str, int], version: int) -> None:
        bearer = self.bearer(data)
        before = self.transaction
        decision = state.add_partitions(
            before,
            producer=bearer,
            partitions=frozenset((place,)),
            version=version,
            now_ms=self.now,
        )
        if decision.code is ErrorCode.none:
            assert bearer == (before.producer_id, before.producer_epoch)
            assert bearer not in self.ended, "a late write got into the transaction after its own"
        self.take(decision)
        verified = state.verify(self.transaction, producer=bearer, partition=place)
        assert (verified is ErrorCode.none) == (decision.code is ErrorCode.none)

    @rule(data=st.data(), commit=st.booleans(), version=st.sampled_from([V1, V2]))
    def end(self, data: st.DataObject, commit: bool, version: int) -> None:
        bearer = self.bearer(data)
        before = self.transaction
        decision = state.end(
            before,
            producer=bearer,
            commit=commit,
            version=version,
            now_ms=self.now,
            new_producer_id=self.new_id,
        )
        if decision.next is not None:
            assert bearer == (before.producer_id, before.producer_epoch)
            assert decision.next.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
            if version >= V2:
                self.ended.add(bearer)
        elif decision.code is ErrorCode.none:
            assert before.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
        self.take(decision)
        if version >= V2 and decision.code is ErrorCode.none:
            # Its answer is lost: the same request again is no other one, until something else has happened.
            again = state.end(
                self.transaction,
                producer=bearer,
                commit=commit,
                version=version,
                now_ms=self.now,
                new_producer_id=self.new_id,
            )
            assert again.next is None
            if decision.next is None or self.transaction.state in PREPARED:
                assert again.code in (ErrorCode.none, ErrorCode.concurrent_transactions)

    @rule(version=st.sampled_from([V1, V2]))
    @precondition(lambda self: self.transaction.state is S.ONGOING)
    def time_out(self, version: int) -> None:
        fenced = state.fence(self.transaction, version=version, now_ms=self.now, new_producer_id=self.new_id)
        self.take(Decision(code=ErrorCode.none, next=fenced))

    @rule(place=st.sampled_from(PLACES), commit=st.booleans(), times=st.integers(1, 3))
    @precondition(lambda self: self.transaction.state not in PREPARED)
    def transactions(self, place: tuple[str, int], commit: bool, times: int) -> None:
        """Whole ones, of whoever holds the id: what comes late then comes after several epochs."""
        for _ in range(times):
            holder = (self.transaction.producer_id, self.transaction.producer_epoch)
            if not 0 <= holder[1] <= LAST_PRODUCER_EPOCH:
                return
            self.take(
                state.add_partitions(
                    self.transaction,
                    producer=holder,
                    partitions=frozenset((place,)),
                    version=V2,
                    now_ms=self.now,
                )
            )
            self.take(
                state.end(
                    self.transaction,
                    producer=holder,
                    commit=commit,
                    version=V2,
                    now_ms=self.now,
                    new_producer_id=self.new_id,
                )
            )
            self.ended.add(holder)
            self.write_markers()

    # What the coordinator does by itself.

    @rule()
    @precondition(lambda self: self.transaction.state in PREPARED)
    def write_markers(self) -> None:
        identity = (self.transaction.producer_id, self.transaction.producer_epoch)
        for place in self.transaction.partitions:
            self.markers[place].append(identity)
        self.take(Decision(code=ErrorCode.none, next=state.complete(self.transaction, now_ms=self.now)))

    @rule()
    def restart(self) -> None:
        """Only what is written down comes back: not the last epoch, so that a late repetition is fenced."""
        if self.transaction.producer_epoch >= 0:
            self.transaction = decode_value("id", encode_value(self.transaction))

    @rule(by=st.integers(1, 5000))
    def pass_time(self, by: int) -> None:
        self.now += by

    def new_id(self) -> int:
        return next(self.new_ids)

    def take(self, decision: Decision) -> None:
        before, after = self.transaction, decision.next
        if after is None:
            return
        assert after.update_ms >= before.update_ms
        if before.state in PREPARED:
            assert after.state is (S.COMPLETE_COMMIT if before.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT), (
                "a decision changed"
            )
            assert before.partitions or not after.partitions
        if before.state is S.ONGOING:
            assert after.state in (S.ONGOING, *PREPARED)
            assert before.partitions <= after.partitions, "a partition was lost before its marker"
        if after.producer_id == before.producer_id:
            assert after.producer_epoch >= before.producer_epoch, "an epoch went back"
        else:
            assert (after.producer_id, after.producer_epoch) > (before.producer_id, 0)
            assert after.producer_epoch == 0
            assert after.previous_producer_id == before.producer_id
        self.transaction = after
        identity = (after.producer_id, after.producer_epoch)
        if identity not in self.identities and identity[1] <= LAST_PRODUCER_EPOCH:
            self.identities.append(identity)

    @invariant()
    def fields_fit_the_state(self) -> None:
        if not hasattr(self, "transaction"):
            return
        now = self.transaction
        assert now.producer_epoch <= MAX_PRODUCER_EPOCH
        assert (now.state is S.ONGOING) <= bool(now.partitions)
        assert bool(now.partitions) <= (now.state is S.ONGOING or now.state in PREPARED)
        assert (now.state is not S.EMPTY) <= (now.start_ms >= 0)
        assert (now.next_producer_id >= 0) <= (now.state in PREPARED)
        assert (now.times_out_at() is None) == (now.state is not S.ONGOING)

    @invariant()
    def markers_rise(self) -> None:
        for identities in self.markers.values():
            assert identities == sorted(identities), "a marker under an older identity than the one before it"


TestOneTransactionalId = OneTransactionalId.TestCase
TestOneTransactionalId.settings = settings(max_examples=examples(300), stateful_step_count=40, deadline=None)
