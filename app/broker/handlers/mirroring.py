"""MirrorRecords: a topic that mirrors one of another cluster, with the same offsets, batches and leader epochs.

The leader of a partition takes batches from outside as a follower takes them from its leader; its own followers copy
them as any others. Batches never have a later leader epoch than the partition, as in every log: the sender has the
leader epoch raised first.
"""

from functools import partial

from ....core.cluster.change_queue import elsewhere
from ....core.cluster.producer_ids import raise_above
from ....core.replica.follower.partition_fetch_state import truncation_offset
from ....core.replica.partition.partition import Partition
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.broker_api.fetch import DivergingEpoch
from ....ports.broker_api.mirroring import ONLY_DESCRIBE, MirrorRecords, MirrorRecordsResult
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.storage import StorageError
from ....ports.types import TopicPartition
from ...config.classic import V2
from ..state.broker_state import BrokerState
from ..state.leader_epochs import raise_leader_epoch


class MirrorService:
    """Appends to mirrors. Owner thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._confirmed: dict[TopicPartition, tuple[bytes, int]] = {}
        """The topic id and the leader epoch in which the tree has said, after the election, that it is a mirror."""

    def append(self, request: MirrorRecords, caller: Caller, reply: Reply[MirrorRecordsResult]) -> None:
        """Answer with the state of the partition, also where it was refused because of that."""
        replicas = self._state.replicas
        try:
            partition = replicas.led_for_append(request.topic, request.partition, all_in_sync=True)
            source = partition.log.config.mirror_source
            if source != request.source:
                known = f"mirrors {source}" if source else "mirrors no other one: mirror.source is not set"
                raise ApiError(ErrorCode.POLICY_VIOLATION, f"topic {request.topic} {known}")
            if partition.log.config.message_format != V2:
                text = f"topic {request.topic} has classic messages, whose offsets are positions"
                raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)
        except ApiError as error:
            reply(error)
            return
        if request.leader_epoch > partition.leader_epoch:
            self._raise_epoch(partition, request, reply)
            return
        if request.log_end != ONLY_DESCRIBE:
            if not self._is_confirmed(partition):
                self._confirm(partition, request, caller, reply)
                return
            refused = self._change(partition, request)
            if refused is not None:
                reply(_described(partition, refused))
                return
            replicas.purgatory.check(partition.topic_partition)
        reply(_described(partition))

    def _is_confirmed(self, partition: Partition) -> bool:
        own = partition.topic_id, partition.leader_epoch
        return self._state.is_alone or self._confirmed.get(partition.topic_partition) == own

    def _confirm(
        self, partition: Partition, request: MirrorRecords, caller: Caller, reply: Reply[MirrorRecordsResult]
    ) -> None:
        """Read the topic's configuration in the tree, once in each leader epoch, then process the request.

        An earlier leader may have heard that the topic was promoted, and acknowledged records of producers, before
        this broker, which was then elected, hears of it. A promotion that comes after the reading is complete only
        when this leader has heard of it.
        """
        registry, key = self._state.registry, partition.topic_partition
        own = partition.topic_id, partition.leader_epoch

        async def confirming() -> MirrorRecordsResult:
            await elsewhere(registry.coordination.heartbeat)  # what is read now is not older than this call
            await registry.reread(key.topic)
            return _described(partition)

        def confirmed(found: MirrorRecordsResult | BarnabasError) -> None:
            if isinstance(found, BarnabasError):
                reply(found)
                return
            self._confirmed[key] = own
            self.append(request, caller, reply)

        self._state.changes.submit("reading whether a topic is a mirror", confirming, confirmed)

    def _change(self, partition: Partition, request: MirrorRecords) -> ApiError | None:
        """Cut the log, delete its beginning and append, in this order; return the error where that is refused."""
        now_ms, log = self._state.clock.now_ms(), partition.log
        if (request.log_end, request.last_epoch) != (log.log_end_offset, log.epochs.latest):
            own, known = (log.log_end_offset, log.epochs.latest), (request.log_end, request.last_epoch)
            text = "{} ends at {} in leader epoch {}, not at {} in {}".format(partition.topic_partition, *own, *known)
            return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        try:
            if request.truncate_to >= 0:
                found = DivergingEpoch(request.truncate_epoch, request.truncate_to)
                cut = truncation_offset(log.epochs, log.log_end_offset, found)
                partition.truncate_mirror(cut, request.log_start, now_ms)
            if request.records or request.log_start > log.log_start_offset:
                partition.append_mirrored(memoryview(request.records), request.log_start, now_ms)
        except ApiError as error:
            return error
        except StorageError as error:
            self._state.report(f"{partition.topic_partition}: mirrored records cannot be written: {error}")
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log cannot be written; see the broker's log")
        return None

    def _raise_epoch(self, partition: Partition, request: MirrorRecords, reply: Reply[MirrorRecordsResult]) -> None:
        """Raise the leader epoch in the tree, and the next producer id above those of the log; the sender retries."""
        state = self._state
        largest = max(partition.log.producers.producers, default=-1)

        async def raising() -> MirrorRecordsResult:
            if largest >= 0:
                await elsewhere(partial(raise_above, state.registry.coordination, state.node_id, largest))
            await raise_leader_epoch(state, partition, request.leader_epoch)
            text = f"the leader epoch of {partition.topic_partition} is being raised to {request.leader_epoch}"
            return MirrorRecordsResult(error=ErrorCode.LEADER_NOT_AVAILABLE, error_message=text)

        state.changes.submit("MirrorRecords", raising, reply)


def _described(partition: Partition, refused: ApiError | None = None) -> MirrorRecordsResult:
    log = partition.log
    return MirrorRecordsResult(
        error=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else refused.message,
        log_start=log.log_start_offset,
        log_end=log.log_end_offset,
        high_watermark=partition.high_watermark,
        last_epoch=log.epochs.latest,
        leader_epoch=partition.leader_epoch,
    )
