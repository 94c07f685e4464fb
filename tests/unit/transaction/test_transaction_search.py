"""Every order of events in a small scope, for version 2 of transactions (KIP-890): one producer, one partition, two
transactions, one of which may last too long, a coordinator that changes, messages that are late, lost, or come twice.

The coordinator's state machine and the producer state of the log are the real ones. Mutations show what the search
finds.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest
from attrs import define, evolve, field
from support.long_tests import first_is_quick

from barnabas.core.coordinator.transaction.config import TransactionConfig
from barnabas.core.coordinator.transaction.effects import (
    Effects,
    SendMarkers,
    StoreTransaction,
    TransactionAnswer,
    TransactionAsked,
)
from barnabas.core.coordinator.transaction.records import StoredTransaction
from barnabas.core.coordinator.transaction.states import TransactionState
from barnabas.core.coordinator.transaction.transactional_id import TransactionalId
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.producers.producer_state import ProducerStateEntry, ProducerStates
from barnabas.core.message.batch_header import parse_header
from barnabas.ports.broker_api.transactions import AddPartitionsToTxn, EndTxn
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered

TP = TopicPartition("t", 0)
PRODUCER = 7
DELIVERIES = 2
"""The most times that one message arrives."""
CONFIG = TransactionConfig()
HEADERS = [parse_header(numbered(b"v", producer=PRODUCER, epoch=epoch, transactional=True)) for epoch in range(8)]
Message = tuple[Any, ...]
"""(Produce, epoch, serial), (EndTxn, epoch, serial, committed), or (marker, epoch, coordinator epoch, version,
committed)."""


class Wrong(AssertionError):
    pass


@define
class World:
    """`serial`: of the client's present transaction. `phase`: what the client does in it. `open`: the transactions that
    have batches at the partition and no marker."""

    stored: StoredTransaction
    transactions: int
    coordinator_epoch: int = 0
    last_epoch: int = -1
    epoch: int = 0
    serial: int = 0
    phase: str = "idle"
    answered: dict[int, bool] = field(factory=dict)
    sent: dict[Message, int] = field(factory=dict)
    """Messages, and how often each has arrived."""
    producer: tuple[Any, ...] | None = None
    """The state of the producer at the partition."""
    end: int = 0
    open: tuple[int, ...] = ()
    fates: dict[int, bool] = field(factory=dict)
    changes: int = 0
    is_marked: bool = False
    """True while the coordinator has yet to write that the transaction has ended."""
    timed_out: int = -1
    """The epoch of a transaction that lasted too long; -1: none did."""

    def copy(self) -> "World":
        return evolve(self, answered=dict(self.answered), sent=dict(self.sent), fates=dict(self.fates))

    @property
    def key(self) -> Hashable:
        parts = (self.answered, self.sent, self.fates)
        known = tuple(tuple(sorted(part.items())) for part in parts)
        offsets = self.producer and (*self.producer[:3], self.producer[5], self.producer[6] >= 0)
        client = (self.epoch, self.serial, self.phase)
        coordinator = (
            self.stored,
            self.coordinator_epoch,
            self.last_epoch,
            self.changes,
            self.timed_out,
            self.is_marked,
        )
        return coordinator, client, known, offsets, self.open

    # --- the coordinator

    def ask(self, event: Callable[[TransactionalId], Effects]) -> Any:
        """Let the coordinator handle an event, and its writes; returns its answer."""
        transaction = TransactionalId("x", self.stored, CONFIG)
        transaction.last_id, transaction.last_epoch = -1, self.last_epoch
        transaction.is_marked = self.is_marked
        answers: list[Any] = []
        effects = [*event(transaction), *transaction.give_up_waiting()]
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, TransactionAnswer):
                answers.append(effect.result)
            elif isinstance(effect, StoreTransaction):
                effects = [*transaction.written(E.NONE), *effects]
            elif isinstance(effect, SendMarkers):
                self.send_markers(effect.value)
        self.stored, self.last_epoch = transaction.stored, transaction.last_epoch
        self.is_marked = transaction.is_marked
        return answers[0] if answers else None

    def send_markers(self, value: StoredTransaction) -> None:
        committed = value.state is TransactionState.PREPARE_COMMIT
        version = value.client_transaction_version
        self.put(("marker", value.producer_epoch, self.coordinator_epoch, version, committed))
        if not value.partitions:
            self.ask(lambda transaction: transaction.marked(0))

    def put(self, message: Message) -> None:
        self.sent.setdefault(message, 0)

    # --- the partition

    def states(self) -> ProducerStates:
        states = ProducerStates()
        if self.producer is not None:
            states.put(PRODUCER, ProducerStateEntry(*self.producer[:4], *self.producer[5:]))
        return states

    def keep(self, states: ProducerStates) -> None:
        known = states.producers[PRODUCER]
        entry = (known.epoch, known.last_sequence, known.batches, known.seen_ms, 0)
        self.producer = (*entry, known.coordinator_epoch, known.txn_first_offset)

    def produce(self, epoch: int, serial: int) -> E:
        """Append a batch as a leader does."""
        states = self.states()
        if not states.is_open(PRODUCER, epoch):
            request = AddPartitionsToTxn(
                transactional_id="x",
                producer_id=PRODUCER,
                producer_epoch=epoch,
                partitions=(TP,),
                supports_epoch_bump=True,
            )
            asked = TransactionAsked(request, lambda _: None)
            error = self.ask(lambda transaction: transaction.add(asked, request, (TP,), 0)).partitions[0].error
            if error is not E.NONE:
                return error  # type: ignore[no-any-return]
        try:
            known = states.check(HEADERS[epoch], AppendOrigin.TRANSACTION_VERSION_2)
        except ApiError as error:
            return error.code
        if known is None:
            states.update(HEADERS[epoch], self.end, 0)
            self.end += 1
            self.open += (serial,)
            self.keep(states)
        return E.NONE

    def mark(self, epoch: int, coordinator_epoch: int, version: int, committed: bool) -> bool:
        """Take a marker; returns whether the coordinator takes it for done."""
        states = self.states()
        try:
            states.check_marker(PRODUCER, epoch, coordinator_epoch, bumps_epoch=version >= 2)
        except ApiError as error:
            return error.code is E.INVALID_PRODUCER_EPOCH
        states.end(PRODUCER, epoch, coordinator_epoch, self.end, 0)
        self.end += 1
        for serial in self.open:
            self.fates[serial] = committed
            if self.answered.get(serial, committed) is not committed:
                raise Wrong(f"transaction {serial} has the fate {committed}; its producer got another answer")
            is_asked_for = self.phase not in ("sent", "acked", "failed") or self.timed_out == epoch - 1
            if serial == self.serial and not is_asked_for:
                raise Wrong(f"transaction {serial} was ended before its producer asked for it")
        self.open = ()
        self.keep(states)
        return True

    # --- what may happen

    def moves(self) -> Iterator[tuple[str, Callable[["World"], None]]]:
        if self.phase == "idle" and self.serial < self.transactions:
            yield "send", World.begin
        if self.phase == "sent":
            yield "give up", lambda world: setattr(world, "phase", "failed")
        if self.phase in ("acked", "failed"):
            for committed in (True, False)[self.phase == "failed" :]:
                yield f"end {committed}", lambda world, committed=committed: world.ask_end(committed)  # type: ignore[misc]
        for message, times in self.sent.items():
            if times < DELIVERIES:
                yield f"deliver {message}", lambda world, message=message: world.deliver(message)  # type: ignore[misc]
        if self.is_marked:
            yield "complete", lambda world: world.ask(lambda transaction: transaction.complete(0))
        if not self.changes:
            yield "another coordinator", World.change
        if self.timed_out < 0 and self.stored.state is TransactionState.ONGOING:
            yield "time out", World.time_out

    def begin(self) -> None:
        self.serial += 1
        self.phase = "sent"
        self.put(("Produce", self.epoch, self.serial))

    def ask_end(self, committed: bool) -> None:
        self.phase = f"ending {committed}"
        self.put(("EndTxn", self.epoch, self.serial, committed))

    def change(self) -> None:
        self.changes += 1
        self.coordinator_epoch += 1
        self.last_epoch = -1
        self.is_marked = False
        if self.stored.state.is_decided:
            self.send_markers(self.stored)

    def time_out(self) -> None:
        self.timed_out = self.stored.producer_epoch
        self.ask(lambda transaction: transaction.time_out(1_000_000))

    def deliver(self, message: Message) -> None:
        self.sent[message] += 1
        kind, epoch, *rest = message
        if kind == "Produce":
            (serial,) = rest
            error = self.produce(epoch, serial)
            if self.phase == "sent" and serial == self.serial and error is not E.CONCURRENT_TRANSACTIONS:
                self.phase = "acked" if error is E.NONE else "failed"
            elif error is E.CONCURRENT_TRANSACTIONS:
                self.sent[message] = 0  # the producer sends it again
        elif kind == "EndTxn":
            self.end_transaction(message, *rest)
        elif self.mark(epoch, *rest):
            now = self.stored.producer_epoch, self.coordinator_epoch
            if self.stored.state.is_decided and (epoch, rest[0]) == now:
                self.ask(lambda transaction: transaction.marked(0))
        else:
            self.sent[message] = DELIVERIES

    def end_transaction(self, message: Message, serial: int, committed: bool) -> None:
        request = EndTxn(
            transactional_id="x",
            producer_id=PRODUCER,
            producer_epoch=message[1],
            committed=committed,
            supports_epoch_bump=True,
        )
        asked = TransactionAsked(request, lambda _: None)
        result = self.ask(lambda transaction: transaction.end(asked, request, 0))
        if self.phase != f"ending {committed}" or serial != self.serial:
            return
        if result.error is E.CONCURRENT_TRANSACTIONS:
            self.sent[message] = 0
        elif result.error is E.NONE:
            self.answered[serial] = committed
            if serial in self.fates and self.fates[serial] is not committed:
                raise Wrong(f"transaction {serial} was to be ended otherwise")
            self.epoch, self.phase = max(self.epoch, result.producer_epoch), "idle"
        elif result.error is E.INVALID_TXN_STATE and committed and self.timed_out == message[1]:
            self.phase = "failed"
        else:
            raise Wrong(f"EndTxn {message} is refused: {result.error.name}")

    def check(self) -> None:
        if self.open and self.stored.state.is_idle:
            raise Wrong(f"transactions {self.open} are open, and no coordinator ends them")
        for serial in self.open:
            if serial != self.serial and len(set(self.open)) > 1:
                raise Wrong(f"transactions {self.open} are open at once")


def search(transactions: int = 2) -> int:
    """Play all orders; return the number of different states. Raises `Wrong` with the shortest way to it."""
    first = World(StoredTransaction(producer_id=PRODUCER, producer_epoch=0, timeout_ms=1000), transactions)
    seen = {first.key}
    front: list[tuple[World, tuple[str, ...]]] = [(first, ())]
    while front:
        following = []
        for world, way in front:
            for name, move in world.moves():
                after = world.copy()
                try:
                    move(after)
                    after.check()
                except Wrong as error:
                    error.add_note(" | ".join((*way, name)))
                    raise
                if after.key not in seen:
                    seen.add(after.key)
                    following.append((after, (*way, name)))
        front = following
    return len(seen)


@pytest.mark.parametrize(("transactions", "states"), first_is_quick([(1, 500), (2, 50_000)]))
def test_no_order_of_events_mixes_transactions(transactions: int, states: int) -> None:
    assert search(transactions) > states


def keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    end = TransactionalId.end

    def ended(self: TransactionalId, asked: Any, request: EndTxn, *others: Any) -> Effects:
        old = evolve(request, supports_epoch_bump=False)
        return end(self, TransactionAsked(old, asked.reply), old, *others)

    patch.setattr(TransactionalId, "end", ended)


def takes_markers_of_the_open_epoch(patch: pytest.MonkeyPatch) -> None:
    check = ProducerStates.check_marker
    patch.setattr(ProducerStates, "check_marker", lambda *known, **_: check(*known))


def takes_a_transaction_of_another_epoch_for_open(patch: pytest.MonkeyPatch) -> None:
    def is_open(self: ProducerStates, producer_id: int, _epoch: int) -> bool:
        known = self.producers.get(producer_id)
        return known is not None and known.txn_first_offset >= 0

    patch.setattr(ProducerStates, "is_open", is_open)


def adds_no_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "is_open", lambda *_: True)


def aborts_nothing_without_the_next_epoch(patch: pytest.MonkeyPatch) -> None:
    """An abort of a transaction of which the coordinator does not know leaves the epoch as it is."""
    end = TransactionalId.end

    def ended(self: TransactionalId, asked: Any, request: EndTxn, *others: Any) -> Effects:
        is_nothing = (
            self.state.is_idle and not request.committed and request.producer_epoch == self.stored.producer_epoch
        )
        if is_nothing:
            return [TransactionAnswer(asked, request.answer(E.NONE))]
        return end(self, asked, request, *others)

    patch.setattr(TransactionalId, "end", ended)


@pytest.mark.parametrize(
    "mutation",
    [
        keeps_the_epoch,
        takes_markers_of_the_open_epoch,
        takes_a_transaction_of_another_epoch_for_open,
        adds_no_partition,
        aborts_nothing_without_the_next_epoch,
    ],
)
def test_search_finds_bugs_that_are_put_in(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(Wrong):
        search()
