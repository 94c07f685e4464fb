"""`Admin`: transactions, the producers of partitions, and the abort of hanging transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....core.client.calls import CoordinatorOf
from ....ports.broker_api.groups import TRANSACTION_COORDINATOR, Coordinator
from ....ports.broker_api.producers import ActiveProducer, DescribeProducers, DescribeProducersResult
from ....ports.broker_api.transactions import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResult,
    ListTransactions,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResult,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..shared.connect import first_error
from .asker import AdminRequests, Place, check, passing
from .topics import TopicAdmin


@frozen(kw_only=True)
class TransactionListing:
    """A transactional id with its producer and state; `coordinator`: the id of the broker that coordinates it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@frozen(kw_only=True)
class OpenTransaction:
    """An open transaction in a partition; `read_committed` consumers get no messages from `start_offset` on."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    """The time of the producer's last append."""


class TransactionAdmin:
    """Lists and describes transactions; finds hanging ones, and aborts them."""

    def __init__(self, asker: AdminRequests, topics: TopicAdmin) -> None:
        self._asker = asker
        self._topics = topics

    def list_transactions(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration_ms: int = -1
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers, sorted by name.

        Filters restrict them to these states ("Ongoing", ...), to these producers, and to transactions that last longer
        than `duration_ms`. Raises `ApiError`, `ConfigError` for an unknown state.
        """
        request = ListTransactions(states=states, producer_ids=producer_ids, duration_ms=duration_ms)
        found: dict[str, TransactionListing] = {}
        for node, result in self._asker.ask_brokers(request):
            check(result.error, None, f"the transactions of broker {node}")
            if result.unknown_states:
                raise ConfigError(f"{', '.join(result.unknown_states)}: no state of transactions")
            for each in result.transactions:
                found[each.transactional_id] = TransactionListing(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    state=each.state,
                    coordinator=node,
                )
        return [found[name] for name in sorted(found)]

    def transaction_coordinator(self, transactional_id: str) -> Coordinator:
        """Return the broker that coordinates a transactional id. Raises `ApiError`."""
        return self._asker.coordinator(_coordinator_of(transactional_id), f"transactional id {transactional_id}")

    def describe_transactions(self, transactional_ids: Sequence[str]) -> list[DescribedTransaction]:
        """Return state, producer and partitions of transactions, in the order of the ids.

        Raises `ApiError` (TRANSACTIONAL_ID_NOT_FOUND).
        """

        def describe(name: str) -> DescribedTransaction:
            def errors(result: DescribeTransactionsResult) -> Iterable[ErrorCode]:
                return [each.error for each in result.transactions]

            request = DescribeTransactions(transactional_ids=[name])
            result = self._asker.shell.ask(request, _coordinator_of(name), retriable=passing(errors))
            check(result.transactions[0].error, None, f"transactional id {name}")
            return result.transactions[0]

        return [describe(name) for name in transactional_ids]

    def describe_producers(self, places: Iterable[Place]) -> dict[TopicPartition, Sequence[ActiveProducer]]:
        """Return the idempotent and transactional producers of these partitions, as their leaders know them.

        Raises `ApiError`.
        """
        asked = sorted({TopicPartition(*place) for place in places})

        def build(group: Sequence[TopicPartition]) -> DescribeProducers:
            topics: dict[str, list[int]] = {}
            for topic, partition in group:
                topics.setdefault(topic, []).append(partition)
            return DescribeProducers(topics=topics)

        def outcomes(result: DescribeProducersResult) -> list[tuple[ErrorCode, Any]]:
            described = sorted(result.partitions, key=lambda each: (each.topic, each.partition))
            return [(each.error, each.producers) for each in described]

        answers = self._asker.shell.ask_leaders(asked, lambda place: place, build, outcomes)
        first_error(answers)
        return dict(zip(asked, answers, strict=True))

    def find_hanging_transactions(
        self, *, max_timeout_ms: int = 900_000, topics: Sequence[str] | None = None, now_ms: int | None = None
    ) -> list[OpenTransaction]:
        """Return the hanging transactions: open in a partition for too long, and unknown to their coordinator.

        `max_timeout_ms`: the longest time without an append, the brokers' `transaction.max.timeout.ms`. A hanging
        transaction blocks `read_committed` consumers for ever: see `abort_transaction`. Raises `ApiError`.
        """
        now = self._asker.shell.connector.clock.now_ms() if now_ms is None else now_ms
        described = self._topics.describe_topics(topics)
        places = [TopicPartition(topic.name or "", p.partition) for topic in described for p in topic.partitions]
        old = [
            (place, producer)
            for place, producers in self.describe_producers(places).items()
            for producer in producers
            if producer.current_txn_start_offset >= 0 and producer.last_timestamp_ms + max_timeout_ms < now
        ]
        known = self._partitions_of({producer.producer_id for _, producer in old}) if old else {}
        return [_open(place, producer) for place, producer in old if place not in known.get(producer.producer_id, ())]

    def abort_transaction(
        self, place: Place, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = -1
    ) -> None:
        """Abort a transaction in one partition, in place of its coordinator; only for hanging transactions.

        The leader writes an ABORT marker, whatever state the coordinator has. Raises `ApiError`: INVALID_PRODUCER_EPOCH
        or TRANSACTION_COORDINATOR_FENCED if the partition knows a later epoch.
        """
        asked = TopicPartition(*place)
        marker = TxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=False,
            partitions=[asked],
            coordinator_epoch=max(0, coordinator_epoch),
        )

        def outcomes(result: WriteTxnMarkersResult) -> list[tuple[ErrorCode, Any]]:
            return [(each.error, None) for written in result.markers for each in written.partitions]

        build = WriteTxnMarkers(markers=[marker])
        first_error(self._asker.shell.ask_leaders([asked], lambda each: each, lambda _: build, outcomes))

    def _partitions_of(self, producer_ids: Iterable[int]) -> Mapping[int, set[TopicPartition]]:
        """Return the partitions in the transactions of these producers, as their coordinators know them."""
        listed = self.list_transactions(producer_ids=sorted(producer_ids))
        known: dict[int, set[TopicPartition]] = {}
        for found in self.describe_transactions([each.transactional_id for each in listed]):
            places = {TopicPartition(topic, number) for topic, numbers in found.topics.items() for number in numbers}
            known.setdefault(found.producer_id, set()).update(places)
        return known


def _coordinator_of(transactional_id: str) -> CoordinatorOf:
    return CoordinatorOf(transactional_id, TRANSACTION_COORDINATOR)


def _open(place: TopicPartition, producer: ActiveProducer) -> OpenTransaction:
    return OpenTransaction(
        topic=place.topic,
        partition=place.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=producer.current_txn_start_offset,
        last_timestamp_ms=producer.last_timestamp_ms,
    )
