"""ListTransactions and DescribeTransactions: answers built in steps, since they may be large."""

from ....ports.broker_api.transactions import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResult,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResult,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ...traffic.steps import Steps
from ..regular_expression import RegularExpression
from .entry import TransactionTable
from .records import StoredTransaction
from .states import TransactionState

_IDS_PER_STEP = 64
_WORDS = {state.word for state in TransactionState}


def list_transactions(table: TransactionTable, request: ListTransactions, now_ms: int) -> Steps[ListTransactionsResult]:
    """Return the transactions that pass all filters; while a partition is being loaded, only
    COORDINATOR_LOAD_IN_PROGRESS."""
    if table.is_loading:
        return ListTransactionsResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        pattern = RegularExpression(request.pattern) if request.pattern else None
    except ApiError as error:
        return ListTransactionsResult(error=error.code)
    unknown = [state for state in request.states if state not in _WORDS]
    states, producer_ids = frozenset(request.states), frozenset(request.producer_ids)
    listed = []
    for number, entry in enumerate(tuple(table), 1):
        stored = entry.transaction.stored
        if (
            stored.producer_epoch >= 0
            and (not states or stored.state.word in states)
            and (not producer_ids or stored.producer_id in producer_ids)
            and _lasts(stored, request.duration_ms, now_ms)
            and (pattern is None or (yield from pattern.matches(entry.transaction.transactional_id)))
        ):
            listed.append(
                ListedTransaction(
                    transactional_id=entry.transaction.transactional_id,
                    producer_id=stored.producer_id,
                    state=stored.state.word,
                )
            )
        if not number % _IDS_PER_STEP:
            yield None
    return ListTransactionsResult(transactions=listed, unknown_states=unknown)


def _lasts(stored: StoredTransaction, duration_ms: int, now_ms: int) -> bool:
    """A transaction that has ended lasts no longer, though it is known when it began."""
    return duration_ms < 0 or (not stored.state.is_idle and now_ms - stored.started_ms > duration_ms)


def describe_transactions(table: TransactionTable, request: DescribeTransactions) -> Steps[DescribeTransactionsResult]:
    """Each id that is named, once."""
    described = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        described.append(_described(table, transactional_id))
        yield None
    return DescribeTransactionsResult(transactions=described)


def _described(table: TransactionTable, transactional_id: str) -> DescribedTransaction:
    error = table.check_key(transactional_id)
    entry = table.get(transactional_id) if error is ErrorCode.NONE else None
    if entry is None or entry.transaction.stored.producer_epoch < 0:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if error is ErrorCode.NONE else error
        return DescribedTransaction(transactional_id=transactional_id, error=error)
    stored = entry.transaction.stored
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(stored.partitions):
        topics.setdefault(topic, []).append(number)
    return DescribedTransaction(
        transactional_id=transactional_id,
        state=stored.state.word,
        timeout_ms=stored.timeout_ms,
        start_ms=stored.started_ms,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        topics=topics,
    )
