"""InitProducerId and DescribeProducers: idempotent producers and their states (facts B2, C6)."""

from collections.abc import Callable

from ....core.traffic.steps import Steps
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.producers import (
    ActiveProducer,
    DescribedPartition,
    DescribeProducers,
    DescribeProducersResult,
    InitProducerId,
    InitProducerIdResult,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ..state.broker_state import BrokerState
from .producer_id_manager import ProducerIds

EPOCH_MAX = 2**15 - 1
_PRODUCERS_PER_STEP = 64


class ProducerService:
    """Assigns producer ids and epochs; describes the producers of a partition. Owner thread only.

    `transactional` answers InitProducerId of producers with a transactional id.
    """

    def __init__(
        self,
        state: BrokerState,
        ids: ProducerIds,
        transactional: Callable[[InitProducerId, Caller, Reply[InitProducerIdResult]], None],
    ) -> None:
        self._state = state
        self._ids = ids
        self._transactional = transactional

    def init(self, request: InitProducerId, caller: Caller, reply: Reply[InitProducerIdResult]) -> None:
        if request.transactional_id is not None:
            self._transactional(request, caller, reply)
            return
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            reply(InitProducerIdResult(error=ErrorCode.INVALID_REQUEST))
            return

        def answer(there_are: bool) -> None:
            # Kafka's error while it has no ids: clients retry.
            none = InitProducerIdResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            reply(self._identity(request) if there_are else none)

        self._ids.when_some(answer)

    def _identity(self, request: InitProducerId) -> InitProducerIdResult:
        """Return the next epoch of an assigned id (KIP-360), else an unused id. One must be left."""
        epoch = request.producer_epoch + 1
        if self._ids.are_given_out(request.producer_id) and epoch < EPOCH_MAX:
            return InitProducerIdResult(producer_id=request.producer_id, producer_epoch=epoch)
        return InitProducerIdResult(producer_id=self._ids.next(), producer_epoch=0)

    def describe(self, request: DescribeProducers, caller: Caller, reply: Reply[DescribeProducersResult]) -> None:
        """Describe the producers; a partition that is named twice is described once."""

        def all_of_them() -> Steps[DescribeProducersResult]:
            described = []
            for topic, numbers in request.topics.items():
                for number in dict.fromkeys(numbers):
                    described.append((yield from self._described(topic, number)))
                    yield None
            return DescribeProducersResult(partitions=described)

        self._state.answer_in_steps("DescribeProducers", all_of_them(), caller, reply)

    def _described(self, topic: str, number: int) -> Steps[DescribedPartition]:
        """Describe the producers of a replica, leader or not, as in Kafka: so that a missing producer can be found."""
        try:
            partition = self._state.replicas.held(topic, number)
        except ApiError as error:
            return DescribedPartition(topic=topic, partition=number, error=error.code, error_message=error.message)
        producers = []
        for count, (producer_id, producer) in enumerate(tuple(partition.log.producers.producers.items()), 1):
            producers.append(
                ActiveProducer(
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp_ms=producer.seen_ms,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=producer.txn_first_offset,
                )
            )
            if not count % _PRODUCERS_PER_STEP:
                yield None
        return DescribedPartition(topic=topic, partition=number, producers=producers)
