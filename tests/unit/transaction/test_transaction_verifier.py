"""Verifications of transactions at another broker that coordinates them."""

from typing import Any

import pytest

from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.app.broker.handlers.transactions import TransactionVerifier
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.transactions import AddPartitionsToTxnResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition


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
    scheduler = ManualScheduler(ManualClock())
    verifier = TransactionVerifier(
        own_id=1,
        coordinator=None,  # type: ignore[arg-type]  # it is another broker
        coordinator_of=lambda _: 2,
        submit=lambda _node, _request, answered: answered(result),
        scheduler=scheduler,
        is_on=lambda: True,
        failures=MemoryMetrics().counter("failures_total", ""),
    )
    outcomes: list[ErrorCode] = []
    verifier.verify("tx", 7, 0, TopicPartition("t", 0), outcomes.append)
    scheduler.advance(1)
    assert outcomes == [expected]
