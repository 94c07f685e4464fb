"""What a transactional producer asks its coordinators, and what of their answers tells how it went."""

from collections.abc import Mapping, Sequence
from typing import Any

from ....ports.broker_api.groups import OffsetCommitPartition
from ....ports.broker_api.producers import InitProducerId
from ....ports.broker_api.transactions import AddOffsetsToTxn, AddPartitionsToTxn, EndTxn, TxnOffsetCommit
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..group.events import CommittedOffset, GroupMetadata


@frozen(kw_only=True)
class TransactionRequests:
    """Who asks: the producer of a transactional id in one epoch; -1 before it has one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int

    def identify(self, timeout_ms: int) -> InitProducerId:
        return InitProducerId(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
        )

    def add_partitions(self, places: Sequence[TopicPartition]) -> AddPartitionsToTxn:
        return AddPartitionsToTxn(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            partitions=places,
        )

    def add_group(self, group_id: str) -> AddOffsetsToTxn:
        return AddOffsetsToTxn(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )

    def commit_positions(
        self, group: GroupMetadata, positions: Mapping[TopicPartition, CommittedOffset]
    ) -> TxnOffsetCommit:
        return TxnOffsetCommit(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            partitions=[
                OffsetCommitPartition(*place, at.offset, at.leader_epoch, at.metadata)
                for place, at in positions.items()
            ],
        )

    def end(self, *, committed: bool) -> EndTxn:
        return EndTxn(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )


def codes_of(result: Any) -> list[ErrorCode]:
    """The errors in the answer to any of these: one, or one of each partition."""
    return [part.error for part in result.partitions] if hasattr(result, "partitions") else [result.error]
