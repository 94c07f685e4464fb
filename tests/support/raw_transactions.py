"""A transactional producer of bare requests: it stops where a test wants it to."""

import time
from typing import Any

from support.api_connection import ApiConnection
from support.waiting import PATIENCE_S

from barnabas.ports.broker_api.groups import TRANSACTION_COORDINATOR, FindCoordinator
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.producers import InitProducerId
from barnabas.ports.broker_api.transactions import AddOffsetsToTxn, AddPartitionsToTxn, DescribeTransactions, EndTxn
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered

RETRIED = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


class RawTransactions:
    """Asks as clients do: finds the coordinator, tries again what passes; every other error is the answer."""

    def __init__(self, bootstrap: str, transactional_id: str = "raw", *, timeout_ms: int = 60_000) -> None:
        self.bootstrap = bootstrap
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self._sequences: dict[TopicPartition, int] = {}

    def init(self) -> ErrorCode:
        """Become the producer of the id."""
        request = InitProducerId(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms, producer_id=-1
        )
        result = self._ask_coordinator(request)
        self.producer_id, self.epoch = result.producer_id, result.producer_epoch
        self._sequences.clear()
        error: ErrorCode = result.error
        return error

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def add(self, *partitions: tuple[str, int]) -> list[ErrorCode]:
        keys = [TopicPartition(*each) for each in partitions]
        result = self._ask_coordinator(AddPartitionsToTxn(**self._identity, partitions=keys), version=3)
        return [each.error for each in result.partitions]

    def add_offsets(self, group: str) -> ErrorCode:
        error: ErrorCode = self._ask_coordinator(AddOffsetsToTxn(**self._identity, group_id=group)).error
        return error

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """Send the values as one batch of the transaction."""
        key = TopicPartition(topic, partition)
        sequence = self._sequences.get(key, 0)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            records = numbered(
                *values,
                producer=self.producer_id,
                epoch=self.epoch,
                sequence=sequence,
                at=int(time.time() * 1000),
                transactional=True,
            )
            entry = ProducePartition(topic, partition, records)
            request = Produce(partitions=[entry], acks=-1, transactional_id=self.transactional_id)
            error = self._ask_leader(key, request)
            if error not in RETRIED or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if error is ErrorCode.NONE:
            self._sequences[key] = sequence + len(values)
        return error

    def end(self, *, commit: bool, is_stuck: bool = False) -> ErrorCode:
        """With `is_stuck`, not all markers can be written: if the first answer is lost, the next one is that the
        transaction is about to end."""
        retried = RETRIED - {ErrorCode.CONCURRENT_TRANSACTIONS} if is_stuck else RETRIED
        request = EndTxn(**self._identity, committed=commit)
        error: ErrorCode = self._ask_coordinator(request, retried=retried).error
        return ErrorCode.NONE if is_stuck and error is ErrorCode.CONCURRENT_TRANSACTIONS else error

    def describe(self) -> Any:
        request = DescribeTransactions(transactional_ids=[self.transactional_id])
        return self._ask_coordinator(request).transactions[0]

    def coordinator(self) -> int:
        """Return its node; -1 while there is none."""
        node: int = self._find()[0]
        return node

    # --- within

    def _find(self) -> tuple[int, str]:
        request = FindCoordinator(keys=[self.transactional_id], key_type=TRANSACTION_COORDINATOR)
        for address in self.bootstrap.split(","):
            try:
                with _connected(address) as connection:
                    (found,) = connection.ask(request).coordinators
            except (OSError, EOFError, TimeoutError):
                continue
            if found.error is ErrorCode.NONE:
                return found.node_id, f"{found.host}:{found.port}"
        return -1, ""

    def _ask_coordinator(
        self, request: Any, version: int | None = None, *, retried: frozenset[ErrorCode] = RETRIED
    ) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            result = None
            try:
                node, address = self._find()
                if node >= 0:
                    with _connected(address) as connection:
                        result = connection.ask(request, version)
            except (OSError, EOFError, TimeoutError):
                pass
            if result is not None and not retried & set(_errors(result)):
                return result
            if time.monotonic() > deadline:
                raise TimeoutError(f"{type(request).__name__} gets no answer but {result}")
            time.sleep(0.02)

    def _ask_leader(self, key: TopicPartition, request: Produce) -> ErrorCode:
        for address in self.bootstrap.split(","):
            try:
                with _connected(address) as connection:
                    observed = connection.ask(Metadata(topics=[key.topic]))
                leader = observed.topics[0].partitions[key.partition].leader
                nodes = {node.node_id: f"{node.host}:{node.port}" for node in observed.brokers}
                if leader in nodes:
                    with _connected(nodes[leader]) as connection:
                        error: ErrorCode = connection.ask(request).partitions[0].error
                        return error
            except (OSError, EOFError, TimeoutError, IndexError):
                continue
        return ErrorCode.LEADER_NOT_AVAILABLE


def _connected(address: str) -> ApiConnection:
    """Connect with a short timeout, so that a suspended broker is left soon."""
    connection = ApiConnection(address)
    connection.socket.settimeout(2.0)
    return connection


def _errors(result: Any) -> list[ErrorCode]:
    """Return the error of the whole answer, if it can have one, and those of its parts."""
    parts = getattr(result, "partitions", None) or getattr(result, "transactions", None) or ()
    return [each.error for each in (*parts, result) if hasattr(each, "error")]
