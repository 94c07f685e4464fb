"""What a client is told when a request failed as a whole: the error in every place that its answer has for one.

A connection closed instead would make the client ask again and again without a word of why.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.coordinator.transaction.answers import answer
from ...ports.broker_api import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    AlterConfigs,
    AlterConfigsResult,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    Coordinator,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeletedTopic,
    DeleteGroups,
    DeleteGroupsResult,
    DeleteRecords,
    DeleteRecordsResult,
    DeleteRecordsResultPartition,
    DeleteTopics,
    DeleteTopicsResult,
    DescribeClientQuotas,
    DescribeClientQuotasResult,
    DescribeCluster,
    DescribeClusterResult,
    DescribeConfigs,
    DescribeConfigsResult,
    DescribedPartition,
    DescribedTransaction,
    DescribeGroups,
    DescribeGroupsResult,
    DescribeLogDirs,
    DescribeLogDirsResult,
    DescribeProducers,
    DescribeProducersResult,
    DescribeTransactions,
    DescribeTransactionsResult,
    ElectLeaders,
    ElectLeadersResult,
    EndTxn,
    EpochEnd,
    Fetch,
    FetchedGroup,
    FetchedOffset,
    FetchResult,
    FetchResultPartition,
    FindCoordinator,
    FindCoordinatorResult,
    GroupDescription,
    GroupOutcome,
    Heartbeat,
    HeartbeatResult,
    IncrementalAlterConfigs,
    InitProducerId,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListGroups,
    ListGroupsResult,
    ListOffsets,
    ListOffsetsResult,
    ListOffsetsResultPartition,
    ListPartitionReassignments,
    ListPartitionReassignmentsResult,
    ListTransactions,
    ListTransactionsResult,
    Metadata,
    MetadataResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResult,
    PartitionOutcome,
    Produce,
    ProduceResult,
    ProduceResultPartition,
    Request,
    ResourceOutcome,
    SyncGroup,
    SyncGroupResult,
    TopicMetadata,
    TopicOutcome,
    TopicOutcomes,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
    WriteTxnMarkers,
    WriteTxnMarkersResult,
    WrittenTxnMarker,
)
from ...ports.errors import ApiError


def failed_result(request: Request[Any], error: ApiError) -> object:
    """A result of the request's own type that tells the error; the error itself where a result has no place for it."""
    make = _RESULTS.get(type(request))
    return error if make is None else make(request, error)


def _produce(request: Produce, error: ApiError) -> ProduceResult:
    return ProduceResult(
        partitions=[
            ProduceResultPartition(p.topic, p.partition, error.code, error_message=error.message)
            for p in request.partitions
        ]
    )


def _fetch(request: Fetch, error: ApiError) -> FetchResult:
    return FetchResult(
        partitions=[
            FetchResultPartition(p.topic, p.partition, error.code, topic_id=p.topic_id) for p in request.partitions
        ]
    )


def _list_offsets(request: ListOffsets, error: ApiError) -> ListOffsetsResult:
    return ListOffsetsResult(
        partitions=[
            ListOffsetsResultPartition(topic=p.topic, partition=p.partition, error=error.code)
            for p in request.partitions
        ]
    )


def _metadata(request: Metadata, error: ApiError) -> object:
    topics = [TopicMetadata(name=name, error=error.code) for name in request.topics or ()]
    topics += [TopicMetadata(name=None, topic_id=topic_id, error=error.code) for topic_id in request.topic_ids]
    if not topics:
        return error
    return MetadataResult(brokers=(), cluster_id=None, controller_id=-1, topics=topics)


def _offset_commit(request: OffsetCommit, error: ApiError) -> OffsetCommitResult:
    return OffsetCommitResult(
        partitions=[PartitionOutcome(p.topic, p.partition, error.code) for p in request.partitions]
    )


def _txn_offset_commit(request: TxnOffsetCommit, error: ApiError) -> TxnOffsetCommitResult:
    return TxnOffsetCommitResult(
        partitions=[PartitionOutcome(p.topic, p.partition, error.code) for p in request.partitions]
    )


def _offset_fetch(request: OffsetFetch, error: ApiError) -> OffsetFetchResult:
    def positions(group: OffsetFetchGroup) -> list[FetchedOffset]:
        """Old versions tell the error of a group by its partitions."""
        return [FetchedOffset(p.topic, p.partition, error=error.code) for p in group.partitions or ()]

    return OffsetFetchResult(
        groups=[FetchedGroup(group_id=g.group_id, partitions=positions(g), error=error.code) for g in request.groups]
    )


def _find_coordinator(request: FindCoordinator, error: ApiError) -> FindCoordinatorResult:
    return FindCoordinatorResult(
        coordinators=[Coordinator(key=key, error=error.code, error_message=error.message) for key in request.keys]
    )


def _describe_groups(request: DescribeGroups, error: ApiError) -> DescribeGroupsResult:
    return DescribeGroupsResult(
        groups=[
            GroupDescription(group_id=group_id, error=error.code, error_message=error.message)
            for group_id in request.group_ids
        ]
    )


def _delete_groups(request: DeleteGroups, error: ApiError) -> DeleteGroupsResult:
    return DeleteGroupsResult(groups=[GroupOutcome(group_id=name, error=error.code) for name in request.group_ids])


def _create_topics(request: CreateTopics, error: ApiError) -> CreateTopicsResult:
    return CreateTopicsResult(
        topics=[CreatedTopic(name=t.name, error=error.code, error_message=error.message) for t in request.topics]
    )


def _create_partitions(request: CreatePartitions, error: ApiError) -> TopicOutcomes:
    return TopicOutcomes(
        topics=[TopicOutcome(name=t.topic, error=error.code, error_message=error.message) for t in request.topics]
    )


def _delete_topics(request: DeleteTopics, error: ApiError) -> DeleteTopicsResult:
    code, text = error.code, error.message
    topics = [DeletedTopic(name=name, error=code, error_message=text) for name in request.names]
    topics += [DeletedTopic(name=None, topic_id=id_, error=code, error_message=text) for id_ in request.topic_ids]
    return DeleteTopicsResult(topics=topics)


def _delete_records(request: DeleteRecords, error: ApiError) -> DeleteRecordsResult:
    return DeleteRecordsResult(
        partitions=[
            DeleteRecordsResultPartition(topic=p.topic, partition=p.partition, error=error.code)
            for p in request.partitions
        ]
    )


def _epochs(request: OffsetForLeaderEpoch, error: ApiError) -> OffsetForLeaderEpochResult:
    return OffsetForLeaderEpochResult(
        partitions=[EpochEnd(topic=p.topic, partition=p.partition, error=error.code) for p in request.partitions]
    )


def _describe_producers(request: DescribeProducers, error: ApiError) -> DescribeProducersResult:
    return DescribeProducersResult(
        partitions=[
            DescribedPartition(topic=topic, partition=number, error=error.code, error_message=error.message)
            for topic, numbers in request.topics.items()
            for number in numbers
        ]
    )


def _write_txn_markers(request: WriteTxnMarkers, error: ApiError) -> WriteTxnMarkersResult:
    return WriteTxnMarkersResult(
        markers=[
            WrittenTxnMarker(
                producer_id=marker.producer_id,
                partitions=[PartitionOutcome(key.topic, key.partition, error.code) for key in marker.partitions],
            )
            for marker in request.markers
        ]
    )


def _outcomes(request: DescribeConfigs | AlterConfigs, error: ApiError) -> Sequence[ResourceOutcome]:
    return [
        ResourceOutcome(resource=wanted.resource, error=error.code, error_message=error.message)
        for wanted in request.resources
    ]


def _alter_configs(request: IncrementalAlterConfigs, error: ApiError) -> AlterConfigsResult:
    return AlterConfigsResult(
        resources=[
            ResourceOutcome(resource=resource, error=error.code, error_message=error.message)
            for resource in request.resources
        ]
    )


_RESULTS: Mapping[type[Request[Any]], Callable[[Any, ApiError], object]] = {
    Produce: _produce,
    Fetch: _fetch,
    ListOffsets: _list_offsets,
    Metadata: _metadata,
    OffsetCommit: _offset_commit,
    OffsetFetch: _offset_fetch,
    TxnOffsetCommit: _txn_offset_commit,
    OffsetDelete: lambda _, error: OffsetDeleteResult(error=error.code),
    FindCoordinator: _find_coordinator,
    JoinGroup: lambda request, error: JoinGroupResult(error=error.code, member_id=request.member_id),
    SyncGroup: lambda _, error: SyncGroupResult(error=error.code),
    Heartbeat: lambda _, error: HeartbeatResult(error=error.code),
    LeaveGroup: lambda _, error: LeaveGroupResult(error=error.code),
    DescribeGroups: _describe_groups,
    ListGroups: lambda _, error: ListGroupsResult(groups=(), error=error.code),
    DeleteGroups: _delete_groups,
    CreateTopics: _create_topics,
    CreatePartitions: _create_partitions,
    DeleteTopics: _delete_topics,
    DeleteRecords: _delete_records,
    **dict.fromkeys(
        (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn),
        lambda request, error: answer(request, error.code),
    ),
    DescribeTransactions: lambda request, error: DescribeTransactionsResult(
        transactions=[
            DescribedTransaction(transactional_id=each, error=error.code) for each in request.transactional_ids
        ]
    ),
    ListTransactions: lambda _, error: ListTransactionsResult(error=error.code),
    DescribeProducers: _describe_producers,
    WriteTxnMarkers: _write_txn_markers,
    OffsetForLeaderEpoch: _epochs,
    DescribeConfigs: lambda request, error: DescribeConfigsResult(resources=_outcomes(request, error)),
    AlterConfigs: lambda request, error: AlterConfigsResult(resources=_outcomes(request, error)),
    IncrementalAlterConfigs: _alter_configs,
    DescribeLogDirs: lambda _, error: DescribeLogDirsResult(log_dirs=(), error=error.code),
    DescribeCluster: lambda _, error: DescribeClusterResult(
        cluster_id="", controller_id=-1, brokers=(), error=error.code, error_message=error.message
    ),
    ElectLeaders: lambda _, error: ElectLeadersResult(partitions=(), error=error.code),
    AlterPartitionReassignments: lambda _, error: AlterPartitionReassignmentsResult(
        partitions=(), error=error.code, error_message=error.message
    ),
    ListPartitionReassignments: lambda _, error: ListPartitionReassignmentsResult(
        partitions=(), error=error.code, error_message=error.message
    ),
    DescribeClientQuotas: lambda _, error: DescribeClientQuotasResult(
        entries=None, error=error.code, error_message=error.message
    ),
}
