"""Verifications of transactions at another broker that coordinates them."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.app.broker.handlers.transactions import TransactionVerifier
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.transactions import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    TransactionSupportedOperation,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

T0 = TopicPartition("t", 0)
Operation = TransactionSupportedOperation
Ask = Callable[[AddPartitionsToTxn, Callable[[Any], None]], None]


def verifier_of(ask: Ask, *, is_on: bool = True) -> tuple[ManualScheduler, TransactionVerifier]:
    clock = ManualClock()
    scheduler = ManualScheduler(clock)

    def submit(_node: int, request: Request[Any], answered: Callable[[Any], None]) -> None:
        assert isinstance(request, AddPartitionsToTxn)
        ask(request, answered)

    verifier = TransactionVerifier(
        own_id=1,
        coordinator=None,  # type: ignore[arg-type]  # it is another broker
        coordinator_of=lambda _: 2,
        submit=submit,
        clock=clock,
        scheduler=scheduler,
        is_on=lambda: is_on,
        failures=MemoryMetrics().counter("failures_total", ""),
    )
    return scheduler, verifier


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (AddPartitionsToTxnResult(partitions=[PartitionOutcome("t", 0, ErrorCode.NONE)]), ErrorCode.NONE),
        (
            AddPartitionsToTxnResult(partitions=(), error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.INVALID_TXN_STATE,
        ),
        (None, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
    ids=["verified", "refused", "unreachable"],
)
def test_outcome_of_a_verification_is_one_that_a_client_may_see(result: Any, expected: ErrorCode) -> None:
    scheduler, verifier = verifier_of(lambda _request, answered: answered(result))
    outcomes: list[ErrorCode] = []
    verifier.verify("tx", 7, 0, T0, Operation.DEFAULT_ERROR, outcomes.append)
    scheduler.advance(1)
    assert outcomes == [expected]


def test_partitions_of_one_turn_are_added_together_though_verification_is_off() -> None:
    asked: list[AddPartitionsToTxn] = []

    def add(request: AddPartitionsToTxn, answered: Callable[[Any], None]) -> None:
        asked.append(request)
        answered(request.answer(ErrorCode.NONE))

    scheduler, verifier = verifier_of(add, is_on=False)
    outcomes: list[ErrorCode] = []
    for partition in (T0, TopicPartition("t", 1)):
        verifier.verify("tx", 7, 0, partition, Operation.ADD_PARTITION, outcomes.append)
    verifier.verify("tx", 7, 0, T0, Operation.GENERIC_ERROR_SUPPORTED, outcomes.append)
    assert outcomes == [ErrorCode.NONE], "not verified"
    scheduler.advance(1)
    assert outcomes == [ErrorCode.NONE] * 3
    (request,) = asked
    assert (len(request.partitions), request.supports_epoch_bump, request.verify_only) == (2, True, False)


@pytest.mark.parametrize(("busy", "expected"), [(3, ErrorCode.NONE), (99, ErrorCode.CONCURRENT_TRANSACTIONS)])
def test_adding_waits_a_while_for_the_end_of_the_transaction_before(busy: int, expected: ErrorCode) -> None:
    asked = 0

    def add(request: AddPartitionsToTxn, answered: Callable[[Any], None]) -> None:
        nonlocal asked
        asked += 1
        answered(request.answer(ErrorCode.CONCURRENT_TRANSACTIONS if asked <= busy else ErrorCode.NONE))

    scheduler, verifier = verifier_of(add)
    outcomes: list[ErrorCode] = []
    verifier.verify("tx", 7, 0, T0, Operation.ADD_PARTITION, outcomes.append)
    for _ in range(60):
        scheduler.advance(10)
    assert (outcomes, asked) == ([expected], min(busy + 1, 25))
