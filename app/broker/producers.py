"""InitProducerId and DescribeProducers: who the idempotent producers are (facts B2, C6)."""

from functools import partial

from ...core.cluster.producer_ids import claim_block
from ...core.traffic.steps import Steps
from ...ports.broker_api import Caller, Reply
from ...ports.broker_api.producers import (
    ActiveProducer,
    DescribedPartition,
    DescribeProducers,
    DescribeProducersResult,
    InitProducerId,
    InitProducerIdResult,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from .state import BrokerState

EPOCH_MAX = 2**15 - 1
_PRODUCERS_PER_STEP = 64


class ProducerService:
    """Gives out producer ids and epochs; tells which producers a partition knows. Owner thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._ids = range(0)
        self._waiting: list[tuple[InitProducerId, Reply[InitProducerIdResult]]] = []

    def init(self, request: InitProducerId, _caller: Caller, reply: Reply[InitProducerIdResult]) -> None:
        refused = _refusal(request)
        if refused is not ErrorCode.NONE:
            reply(InitProducerIdResult(error=refused))
        elif self._ids:
            reply(self._identity(request))
        else:
            self._waiting.append((request, reply))
            if len(self._waiting) == 1:
                self._claim()

    def _identity(self, request: InitProducerId) -> InitProducerIdResult:
        """The next epoch of an id that was given out (KIP-360), else a fresh id. There must be one left."""
        epoch = request.producer_epoch + 1
        if 0 <= request.producer_id < self._ids.start and epoch < EPOCH_MAX:
            return InitProducerIdResult(producer_id=request.producer_id, producer_epoch=epoch)
        fresh, self._ids = self._ids[0], self._ids[1:]
        return InitProducerIdResult(producer_id=fresh, producer_epoch=0)

    def _claim(self) -> None:
        """Take a block of ids, for all who wait; those who come meanwhile wait, too."""
        state = self._state
        make = partial(claim_block, state.registry.coordination, state.node_id)
        state.changes.submit("taking a block of producer ids", make, self._claimed)

    def _claimed(self, block: range | BarnabasError) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(block, BarnabasError):
            # What Kafka says while it has no ids: clients ask again.
            for _, reply in waiting:
                reply(InitProducerIdResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        self._ids = block
        for request, reply in waiting:
            if self._ids:
                reply(self._identity(request))
            else:
                self.init(request, Caller(), reply)

    def describe(self, request: DescribeProducers, caller: Caller, reply: Reply[DescribeProducersResult]) -> None:
        """A partition that is named twice is described once."""

        def all_of_them() -> Steps[DescribeProducersResult]:
            described = []
            for topic, numbers in request.topics.items():
                for number in dict.fromkeys(numbers):
                    described.append((yield from self._described(topic, number)))
                    yield None
            return DescribeProducersResult(partitions=described)

        self._state.answer_in_steps("DescribeProducers", all_of_them(), caller, reply)

    def _described(self, topic: str, number: int) -> Steps[DescribedPartition]:
        try:
            partition = self._state.replicas.led(topic, number)
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


def _refusal(request: InitProducerId) -> ErrorCode:
    """What is wrong with the request. The answer has no place for a text: the code must say it."""
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is not None:
        # Transactions are not there yet; at UNSUPPORTED_VERSION librdkafka would ask again and again.
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE
