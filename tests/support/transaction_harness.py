"""A transaction coordinator with a log and partitions in memory, under a clock that the test moves."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from support.group_driver import Asked
from support.log_lines import warnings_of

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.coordinator.log import Record
from barnabas.core.coordinator.transaction.config import TransactionConfig
from barnabas.core.coordinator.transaction.coordinator import TransactionCoordinator
from barnabas.core.coordinator.transaction.markers import MarkerSender, PartitionLookup
from barnabas.core.traffic.steps import StepRunner
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.producers import InitProducerId
from barnabas.ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransactions,
    EndTxn,
    ListTransactions,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResult,
    WrittenTxnMarker,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

PARTITIONS = 4
HERE, ELSEWHERE = 1, 2
CALLER = Caller(client_id="app", host="127.0.0.1")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

Written = tuple[TopicPartition, int, int, bool]
"""A marker that is in a partition: producer id, epoch, committed."""


class TransactionHarness:
    """A coordinator of all `PARTITIONS`; with `hold`, appends wait in `held` until `finish`, and so do markers with
    `hold_markers`, in `asked_to_mark`, until `mark`.

    Topic t is led here, u by another broker.
    """

    def __init__(
        self, log: dict[int, list[Record]] | None = None, *, load: bool = True, first_id: int = 100, **config: int
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.log: dict[int, list[Record]] = {} if log is None else log
        self.hold = self.hold_markers = False
        self.held: list[tuple[int, list[Record], Callable[[ErrorCode], None]]] = []
        self.error = ErrorCode.NONE
        self.leads = True
        self.coordinator_epoch = 5
        self.leaders: dict[TopicPartition, int | None] = {T0: HERE, T1: HERE, U0: ELSEWHERE}
        self.asked_to_mark: list[tuple[int, Sequence[TxnMarker], Callable[[Any], None]]] = []
        self.not_known_yet: set[TopicPartition] = set()
        """Partitions that the tree has, though this broker has not heard of them, or knows an earlier topic only."""
        self.tree_answers = True
        self.asked_the_tree = 0
        self.marker_error: dict[TopicPartition, ErrorCode] = {}
        self.markers: list[Written] = []
        self.lines: list[str] = []
        self.next_id: int | None = first_id
        self.transaction_version = 0
        self.sent: list[TxnMarker] = []
        """All markers that were to be written, each as often as it was."""
        sender = MarkerSender(
            own_id=HERE,
            leader_of=self.leaders.get,
            look_up=self._look_up,
            write_here=lambda markers, done, _: self._mark(HERE, markers, lambda result: done(result.markers)),
            submit=self._submit,
            clock=self.clock,
            scheduler=self.scheduler,
            report=self.lines.append,
        )
        self.coordinator = TransactionCoordinator(
            config=TransactionConfig(**{"completion_delay_ms": 0, **config}),
            partition_count=PARTITIONS,
            clock=self.clock,
            scheduler=self.scheduler,
            append=self._append,
            markers=sender,
            fresh_id=self._fresh_id,
            refusal=lambda key: ErrorCode.NONE if key in self.leaders else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            offsets_partition=lambda _: T1,
            leads=lambda _: self.leads,
            steps=StepRunner(self.scheduler, self.clock, lambda error: self.lines.append(str(error))),
            report=self.lines.append,
            transaction_version=lambda: self.transaction_version,
        )
        self.sender = sender
        if load:
            self.load()
            self.coordinator.start()

    @property
    def reports(self) -> list[str]:
        """Return the log lines for an operator."""
        return warnings_of(self.lines)

    def load(self) -> None:
        for partition in range(PARTITIONS):
            loading = self.coordinator.begin_load(partition, self.coordinator_epoch)
            for key, value in self.log.get(partition, ()):
                loading.add(key, value)
            self.coordinator.loaded(loading)

    def _look_up(self, partitions: Collection[TopicPartition], looked: Callable[[PartitionLookup], None]) -> None:
        self.asked_the_tree += 1
        if not self.tree_answers:
            looked(PartitionLookup(is_answered=False))
            return
        deleted = {each for each in partitions if each not in self.leaders and each not in self.not_known_yet}
        looked(PartitionLookup(deleted, self.not_known_yet.intersection(partitions)))

    def restarted(self) -> "TransactionHarness":
        """Another coordinator that reads what this one has written; this one is as if killed."""
        log = {partition: list(records) for partition, records in self.log.items()}
        return TransactionHarness(log, first_id=1000)

    def run_until_idle(self) -> None:
        """Let happen what happens in no time."""
        self.scheduler.run_pending()

    def pass_time(self, ms: float) -> None:
        self.scheduler.advance(ms)

    def finish(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the append that has waited longest."""
        partition, records, done = self.held.pop(0)
        if error is ErrorCode.NONE:
            self.log.setdefault(partition, []).extend(records)
        done(error)
        self.run_until_idle()

    def mark(self, lost: bool = False) -> None:
        """Answer the request for markers that has waited longest."""
        _, markers, reply = self.asked_to_mark.pop(0)
        reply(None if lost else self._written(markers))
        self.run_until_idle()

    def _append(
        self, partition: int, records: Sequence[Record], done: Callable[[ErrorCode], None], _producer: object = None
    ) -> None:
        self.held.append((partition, list(records), done))
        if not self.hold:
            self.scheduler.call_soon(lambda: self.finish(self.error) if self.held else None)

    def _submit(self, node: int, request: Any, reply: Callable[[Any], None]) -> None:
        assert isinstance(request, WriteTxnMarkers)
        self._mark(node, request.markers, reply)

    def _mark(self, node: int, markers: Sequence[TxnMarker], reply: Callable[[Any], None]) -> None:
        self.asked_to_mark.append((node, markers, reply))
        if not self.hold_markers:
            self.scheduler.call_soon(self.mark)

    def _written(self, markers: Sequence[TxnMarker]) -> WriteTxnMarkersResult:
        written = []
        self.sent += markers
        for marker in markers:
            outcomes = []
            for key in marker.partitions:
                error = self.marker_error.get(key, ErrorCode.NONE)
                outcomes.append(PartitionOutcome(*key, error))
                if error is ErrorCode.NONE:
                    self.markers.append((key, marker.producer_id, marker.producer_epoch, marker.committed))
            written.append(WrittenTxnMarker(producer_id=marker.producer_id, partitions=outcomes))
        return WriteTxnMarkersResult(markers=written)

    def _fresh_id(self, observed: Callable[[int | None], None]) -> None:
        fresh = self.next_id
        if fresh is not None:
            self.next_id = fresh + 1
        observed(fresh)

    def _ask(self, handler: Callable[..., None], request: Any) -> Asked:
        asked = Asked()
        handler(request, CALLER, asked)
        self.run_until_idle()
        return asked

    # --- requests

    def init(self, name: str = "x", producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000) -> Asked:
        request = InitProducerId(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        return self._ask(self.coordinator.init_producer_id, request)

    def identity(self, name: str = "x", *before: int, timeout_ms: int = 60_000) -> tuple[int, int]:
        """Return the producer id and epoch of a starting producer."""
        result = self.init(name, *before, timeout_ms=timeout_ms).result
        assert result.error is ErrorCode.NONE, result
        return result.producer_id, result.producer_epoch

    def add(
        self, who: tuple[int, int], *partitions: TopicPartition, name: str = "x", verify: bool = False, v2: bool = False
    ) -> Asked:
        request = AddPartitionsToTxn(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            partitions=partitions,
            verify_only=verify,
            supports_epoch_bump=v2,
        )
        return self._ask(self.coordinator.add_partitions, request)

    def added(
        self, who: tuple[int, int], *partitions: TopicPartition, name: str = "x", v2: bool = False
    ) -> list[ErrorCode]:
        return [each.error for each in self.add(who, *partitions, name=name, v2=v2).result.partitions]

    def verified(self, who: tuple[int, int], *partitions: TopicPartition, name: str = "x") -> list[ErrorCode]:
        return [each.error for each in self.add(who, *partitions, name=name, verify=True).result.partitions]

    def add_offsets(self, who: tuple[int, int], name: str = "x", group: str = "g") -> Asked:
        request = AddOffsetsToTxn(transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id=group)
        return self._ask(self.coordinator.add_offsets, request)

    def end(self, who: tuple[int, int], name: str = "x", *, commit: bool = True, v2: bool = False) -> Asked:
        request = EndTxn(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            committed=commit,
            supports_epoch_bump=v2,
        )
        return self._ask(self.coordinator.end, request)

    def describe(self, name: str = "x") -> Any:
        return self._ask(self.coordinator.describe, DescribeTransactions(transactional_ids=[name])).result.transactions[
            0
        ]

    def state(self, name: str = "x") -> str:
        state: str = self.describe(name).state
        return state

    def listed(self, **filters: Any) -> Any:
        return self._ask(self.coordinator.list_transactions, ListTransactions(**filters)).result
