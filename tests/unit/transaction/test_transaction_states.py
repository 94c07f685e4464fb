"""The table of states: every pair is decided on purpose."""

from barnabas.core.coordinator.transaction.states import TRANSITIONS, Event, TransactionState
from barnabas.ports.error_codes import ErrorCode

S, E = TransactionState, Event


def test_producer_request_is_answered_in_every_state() -> None:
    for state in S:
        for event in (E.INIT, E.ADD, E.COMMIT, E.ABORT):
            assert (state, event) in TRANSITIONS, (state, event)


def test_only_what_is_decided_is_completed_and_only_what_is_ongoing_times_out() -> None:
    assert {state for state, event in TRANSITIONS if event is E.MARKED} == {S.PREPARE_COMMIT, S.PREPARE_ABORT}
    assert {state for state, event in TRANSITIONS if event is E.TIME_OUT} == {S.ONGOING}


def test_no_decision_is_ever_taken_back() -> None:
    """From PrepareCommit there is no way but to CompleteCommit, and as with abort."""
    follows = {
        state: {after for (before, _), after in TRANSITIONS.items() if before is state and isinstance(after, S)}
        for state in S
    }
    assert follows[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert follows[S.PREPARE_ABORT] == {S.COMPLETE_ABORT}
    assert {after for after in TRANSITIONS.values() if isinstance(after, ErrorCode)} == {
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }


def test_transaction_states_have_kafka_names() -> None:
    assert [state.word for state in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
    ]
