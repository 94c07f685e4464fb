"""Bugs that version 2 of transactions could have: each one decision, made otherwise. The story has to find them."""

from typing import Any

import pytest
from attrs import evolve
from simulation.cluster_mutations import Mutation
from simulation.transaction_story import TransactionStory

from barnabas.app.broker.handlers.transactions import TransactionVerifier
from barnabas.core.coordinator.group.shard import TransactingGroups
from barnabas.core.coordinator.transaction.transactional_id import TransactionalId
from barnabas.core.log.producers.producer_state import ProducerStates
from barnabas.core.message.batch_header import BatchHeader
from barnabas.ports.broker_api.transactions import EndTxn, EndTxnResult, TransactionSupportedOperation
from barnabas.ports.error_codes import ErrorCode

ADD = TransactionSupportedOperation.ADD_PARTITION


def ends_without_the_next_epoch(patch: pytest.MonkeyPatch) -> None:
    """A producer keeps its epoch from one transaction to the next, as in version 1."""
    end = TransactionalId.end

    def ended(self: TransactionalId, asked: Any, request: EndTxn, *others: Any) -> Any:
        return end(self, evolve(asked, request=_in_version_1(request)), _in_version_1(request), *others)

    def _in_version_1(request: EndTxn) -> EndTxn:
        return evolve(request, supports_epoch_bump=False)

    def answer(request: EndTxn, error: ErrorCode) -> EndTxnResult:
        return EndTxnResult(error=error, producer_id=request.producer_id, producer_epoch=request.producer_epoch)

    patch.setattr(TransactionalId, "end", ended)
    patch.setattr(EndTxn, "answer", answer)


def adds_no_partition(patch: pytest.MonkeyPatch) -> None:
    """A leader appends at once what the coordinator does not know of."""
    verify = TransactionVerifier.verify

    def verified(self: TransactionVerifier, *asked: Any) -> None:
        *_, partition, operation, callback = asked
        if operation is ADD and not partition.topic.startswith("__"):
            callback(ErrorCode.NONE)
        else:
            verify(self, *asked)

    patch.setattr(TransactionVerifier, "verify", verified)


def adds_no_partition_of_the_next_epoch(patch: pytest.MonkeyPatch) -> None:
    """A leader takes a batch of the next transaction for one of the transaction that is open there still."""
    patch.setattr(ProducerStates, "is_open", lambda self, producer_id, _epoch: _is_open(self, producer_id))
    patch.setattr(
        TransactingGroups,
        "is_open",
        lambda self, partition, producer_id, _epoch: producer_id in self._groups.get(partition, {}),
    )


def takes_batches_after_the_end(patch: pytest.MonkeyPatch) -> None:
    """A batch of an epoch that is over counts, and no coordinator is asked."""
    check = ProducerStates.check

    def checked(self: ProducerStates, header: BatchHeader, *others: Any) -> Any:
        known = self.producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return None
        return check(self, header, *others)

    def is_open(self: ProducerStates, producer_id: int, epoch: int) -> bool:
        known = self.producers.get(producer_id)
        return known is not None and (known.epoch > epoch or (known.epoch == epoch and known.txn_first_offset >= 0))

    patch.setattr(ProducerStates, "check", checked)
    patch.setattr(ProducerStates, "is_open", is_open)


def _is_open(states: ProducerStates, producer_id: int) -> bool:
    known = states.producers.get(producer_id)
    return known is not None and known.txn_first_offset >= 0


WRONG = frozenset({"exactly once", "half a transaction", "position", "liveness", "order", "inconsistent"})
VERSION_2: dict[str, Any] = {"version": 2}
LATE = {**VERSION_2, "late_requests": True}
MUTATIONS = (
    Mutation(ends_without_the_next_epoch, WRONG, ("kill_program",), settings=LATE, story=TransactionStory, first=13),
    Mutation(adds_no_partition, WRONG, settings=VERSION_2, story=TransactionStory),
    Mutation(adds_no_partition_of_the_next_epoch, WRONG, settings=VERSION_2, story=TransactionStory),
    Mutation(takes_batches_after_the_end, WRONG, ("kill_program",), settings=LATE, story=TransactionStory),
)
