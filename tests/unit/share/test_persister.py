"""The persister in memory: the rules of the share coordinator."""

from collections.abc import Callable
from typing import Any

from support.memory_persister import MemoryPersister

from barnabas.core.share.persister import SharePartitionKey
from barnabas.ports.broker_api.share_state import (
    DeleteShareGroupState,
    InitializePartition,
    InitializeShareGroupState,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    ReadStatePartition,
    StateBatch,
    StateOutcome,
    StatePartition,
    StateSummary,
    WritePartition,
    WriteShareGroupState,
)
from barnabas.ports.error_codes import ErrorCode

TOPIC = bytes(range(16))


class Asking:
    """A persister whose answers are returned, for one partition of the group g."""

    def __init__(self) -> None:
        self.persister = MemoryPersister()

    def _one(self, method: Callable[..., None], request: object) -> Any:
        answers: list[Any] = []
        method(request, answers.append)
        (answer,) = answers
        (outcome,) = answer.partitions
        assert (outcome.topic_id, outcome.partition) == (TOPIC, 0)
        return outcome

    def initialize(self, state_epoch: int = 0, start_offset: int = -1) -> StateOutcome:
        partition = InitializePartition(TOPIC, 0, state_epoch, start_offset)
        request = InitializeShareGroupState(group_id="g", partitions=[partition])
        outcome: StateOutcome = self._one(self.persister.initialize_state, request)
        return outcome

    def read(self, leader_epoch: int = -1) -> ReadStatePartition:
        request = ReadShareGroupState(group_id="g", partitions=[ReadPartition(TOPIC, 0, leader_epoch)])
        outcome: ReadStatePartition = self._one(self.persister.read_state, request)
        return outcome

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = -1,
        complete: int = -1,
    ) -> StateOutcome:
        rows = [StateBatch(*each) for each in batches]
        partition = WritePartition(TOPIC, 0, state_epoch, leader_epoch, start_offset, rows, complete)
        outcome: StateOutcome = self._one(
            self.persister.write_state, WriteShareGroupState(group_id="g", partitions=[partition])
        )
        return outcome

    def delete(self) -> StateOutcome:
        request = DeleteShareGroupState(group_id="g", partitions=[StatePartition(TOPIC, 0)])
        outcome: StateOutcome = self._one(self.persister.delete_state, request)
        return outcome

    def summary(self) -> StateSummary:
        request = ReadShareGroupStateSummary(group_id="g", partitions=[ReadPartition(TOPIC, 0)])
        outcome: StateSummary = self._one(self.persister.read_state_summary, request)
        return outcome


def test_a_partition_without_state_refuses_reads_and_writes_with_invalid_request() -> None:
    asking = Asking()
    assert asking.read().error is ErrorCode.INVALID_REQUEST
    assert asking.write((0, 1, 2, 1)).error is ErrorCode.INVALID_REQUEST
    assert asking.summary() == StateSummary(TOPIC, 0)
    assert asking.delete().error is ErrorCode.NONE


def test_writes_are_read_back_as_combined_batches_with_the_start_offset() -> None:
    asking = Asking()
    asking.initialize(start_offset=5)
    asking.write((5, 9, 0, 1))
    asking.write((6, 6, 2, 1), start_offset=6, complete=1)
    read = asking.read(leader_epoch=0)
    assert (read.start_offset, list(read.state_batches)) == (6, [StateBatch(6, 6, 2, 1), StateBatch(7, 9, 0, 1)])
    assert (asking.summary().start_offset, asking.summary().delivery_complete_count) == (6, 1)


def test_a_read_in_a_higher_leader_epoch_fences_the_leader_before() -> None:
    asking = Asking()
    asking.initialize()
    assert asking.read(leader_epoch=3).error is ErrorCode.NONE
    assert asking.write(leader_epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert asking.read(leader_epoch=2).error is ErrorCode.FENCED_LEADER_EPOCH
    assert asking.read().error is ErrorCode.NONE
    assert asking.write(leader_epoch=3).error is ErrorCode.NONE


def test_a_higher_state_epoch_replaces_the_state_and_fences_lower_ones() -> None:
    asking = Asking()
    asking.initialize()
    asking.write((0, 9, 2, 1), start_offset=0)
    assert asking.initialize(state_epoch=1, start_offset=4).error is ErrorCode.NONE
    assert asking.write((0, 9, 2, 1), state_epoch=0).error is ErrorCode.FENCED_STATE_EPOCH
    assert asking.initialize(state_epoch=0).error is ErrorCode.FENCED_STATE_EPOCH
    read = asking.read()
    assert (read.state_epoch, read.start_offset, list(read.state_batches)) == (1, 4, [])


def test_a_batch_that_ends_before_its_beginning_is_refused_with_invalid_request() -> None:
    asking = Asking()
    asking.initialize()
    assert asking.write((3, 2, 2, 1)).error is ErrorCode.INVALID_REQUEST


def test_deleted_state_is_that_of_a_partition_without_one() -> None:
    asking = Asking()
    asking.initialize()
    asking.delete()
    assert asking.read().error is ErrorCode.INVALID_REQUEST


def test_the_key_of_a_share_partition_has_the_topic_id_in_22_characters() -> None:
    assert str(SharePartitionKey("g:1", TOPIC, 7)) == "g:1:AAECAwQFBgcICQoLDA0ODw:7"
