"""The share coordinator: what it writes, answers and loads."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples
from support.memory_persister import MemoryPersister

from barnabas.core.coordinator.log import Record
from barnabas.core.coordinator.share.coordinator import ShareCoordinator, ShareCoordinatorConfig
from barnabas.core.coordinator.share.records import UPDATE, decode_key, decode_snapshot
from barnabas.core.share.persister import SharePartitionKey
from barnabas.core.traffic.steps import StepRunner
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.share_state import (
    DeleteShareGroupState,
    InitializePartition,
    InitializeShareGroupState,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    StateBatch,
    StatePartition,
    WritePartition,
    WriteShareGroupState,
)
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.testing.by_hand import ManualClock, ManualScheduler

TOPIC, GONE = bytes(range(16)), bytes(16)
CALLER = Caller()


class Harness:
    """A coordinator of one partition over a log of plain lists, whose appends are done at once unless `held`."""

    def __init__(self, records: Sequence[Record] = (), start: int = 0, **config: int) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.records = list(records)
        self.start = start
        self.leads = True
        self.error = E.NONE
        self.held: list[Callable[[E], None]] | None = None
        self.topics = {TOPIC}
        self.reports: list[str] = []
        self.failures: list[BaseException] = []
        self.coordinator = ShareCoordinator(
            config=ShareCoordinatorConfig(**config),
            partition_count=1,
            clock=self.clock,
            scheduler=self.scheduler,
            append=self.append,
            leads=lambda _: self.leads,
            has_partition=lambda topic, partition: topic in self.topics and partition < 100,
            log_end_offset=lambda _: len(self.records),
            delete_records=self.delete_records,
            steps=StepRunner(self.scheduler, self.clock, self.failures.append),
            report=self.reports.append,
        )
        loading = self.coordinator.begin_load(0)
        for offset, (key, value) in enumerate(self.records[start:], start):
            loading.begin_batches(offset)
            loading.add(key, value)
        self.coordinator.loaded(loading)
        self.coordinator.start()

    def append(self, partition: int, records: Sequence[Record], done: Callable[[E], None], _: Any = None) -> None:
        assert partition == 0
        if self.error in (E.NONE, E.REQUEST_TIMED_OUT):
            self.records += records
        if self.held is None:
            done(self.error)
        else:
            self.held.append(done)

    def delete_records(self, _: int, offset: int) -> None:
        self.start = max(self.start, offset)

    def again(self) -> "Harness":
        """Another coordinator, which loads what is in the log."""
        return Harness(self.records, self.start)

    # --- requests

    def initialize(self, partition: int = 0, state_epoch: int = 0, start: int = -1, topic: bytes = TOPIC) -> list[E]:
        some = [InitializePartition(topic, partition, state_epoch, start)]
        return self.asked(self.coordinator.initialize, InitializeShareGroupState(group_id="g", partitions=some))

    def write(self, first: int, last: int, state: int = 2, count: int = 1, **more: Any) -> list[E]:
        given = {"topic_id": TOPIC, "partition": 0, "state_epoch": 0, "leader_epoch": 0, **more}
        some = [WritePartition(**given, state_batches=[StateBatch(first, last, state, count)])]
        return self.asked(self.coordinator.write, WriteShareGroupState(group_id="g", partitions=some))

    def delete(self, partition: int = 0) -> list[E]:
        some = [StatePartition(TOPIC, partition)]
        return self.asked(self.coordinator.delete, DeleteShareGroupState(group_id="g", partitions=some))

    def read(self, partition: int = 0, leader_epoch: int = -1) -> Any:
        answers: list[Any] = []
        some = [ReadPartition(TOPIC, partition, leader_epoch)]
        self.coordinator.read(ReadShareGroupState(group_id="g", partitions=some), CALLER, answers.append)
        return answers[0].partitions[0] if answers else None

    def summary(self, partition: int = 0) -> Any:
        answers: list[Any] = []
        some = [ReadPartition(TOPIC, partition)]
        self.coordinator.read_summary(ReadShareGroupStateSummary(group_id="g", partitions=some), CALLER, answers.append)
        return answers[0].partitions[0]

    def asked(self, handle: Callable[..., None], request: Any) -> list[E]:
        """Return the errors of the answer so far: none while it waits."""
        errors: list[E] = []
        handle(request, CALLER, lambda result: errors.extend(each.error for each in result.partitions))
        return errors

    def batches(self) -> list[tuple[int, int, int, int]]:
        state = self.read()
        assert state.error is E.NONE
        return [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in state.state_batches
        ]


def test_a_state_begins_with_a_snapshot_and_its_changes_are_updates() -> None:
    harness = Harness()
    assert harness.initialize(start=5) == [E.NONE]
    assert harness.write(5, 9) == [E.NONE]
    assert harness.write(7, 7, 0, 2) == [E.NONE]
    assert [decode_key(key)[0] for key, _ in harness.records] == [0, UPDATE, UPDATE]
    expected = [(5, 6, 2, 1), (7, 7, 0, 2), (8, 9, 2, 1)]
    assert harness.batches() == expected
    assert harness.again().batches() == expected
    assert harness.summary().start_offset == harness.again().summary().start_offset == 5


def test_the_whole_state_is_written_after_the_updates_of_the_setting() -> None:
    harness = Harness(updates_per_snapshot=3)
    harness.initialize(start=0)
    for offset in range(9):
        assert harness.write(2 * offset, 2 * offset) == [E.NONE]
    assert [decode_key(key)[0] for key, _ in harness.records] == [0, 1, 1, 1, 0, 1, 1, 1, 0, 1]
    _key, value = harness.records[8]
    assert value is not None
    snapshot = decode_snapshot(value)
    assert (snapshot.snapshot_epoch, len(snapshot.offset.state_batches)) == (2, 8)
    assert harness.again().batches() == harness.batches()


def test_a_write_in_a_higher_state_epoch_is_a_snapshot() -> None:
    harness = Harness()
    harness.initialize()
    assert harness.write(0, 0, state_epoch=4) == [E.NONE]
    assert harness.again().read().state_epoch == 4


def test_a_read_of_a_new_leader_is_stored_and_fences_earlier_leaders() -> None:
    harness = Harness()
    harness.initialize(start=3)
    assert harness.read(leader_epoch=5).start_offset == 3
    assert len(harness.records) == 2
    assert harness.read(leader_epoch=5).error is E.NONE
    assert len(harness.records) == 2, "the epoch is known"
    later = harness.again()
    assert later.read(leader_epoch=4).error is E.FENCED_LEADER_EPOCH
    assert later.write(3, 3, leader_epoch=4) == [E.FENCED_LEADER_EPOCH]
    assert later.write(3, 3, leader_epoch=5) == [E.NONE]
    assert later.read().start_offset == 3


def test_requests_that_cannot_be_done_have_kafkas_errors() -> None:
    harness = Harness()
    assert harness.write(0, 0) == [E.INVALID_REQUEST]
    assert harness.read().error is E.INVALID_REQUEST
    assert harness.initialize(topic=GONE) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert harness.initialize(partition=100) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert harness.initialize(partition=-1) == [E.INVALID_REQUEST]
    assert harness.initialize(state_epoch=3) == [E.NONE]
    assert harness.initialize(state_epoch=2) == [E.FENCED_STATE_EPOCH]
    assert harness.write(0, 0, state_epoch=2) == [E.FENCED_STATE_EPOCH]
    assert harness.delete(5) == [E.NONE], "it has none"
    assert len(harness.records) == 1
    assert len(harness.coordinator) == 1
    harness.leads = False
    assert harness.write(0, 0, state_epoch=3) == [E.NOT_COORDINATOR]
    assert harness.read().error is E.NOT_COORDINATOR
    assert harness.summary().error is E.NOT_COORDINATOR


def test_one_answer_has_all_partitions_in_their_order() -> None:
    harness = Harness()
    some = [InitializePartition(TOPIC, each, 0) for each in (3, 100, 1)]
    request = InitializeShareGroupState(group_id="g", partitions=some)
    assert harness.asked(harness.coordinator.initialize, request) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    assert harness.asked(harness.coordinator.initialize, InitializeShareGroupState(group_id="g", partitions=[])) == []
    assert (
        harness.asked(harness.coordinator.initialize, InitializeShareGroupState(group_id="", partitions=some))
        == [E.INVALID_REQUEST] * 3
    )


def test_a_deleted_state_is_gone_and_may_begin_again() -> None:
    harness = Harness()
    harness.initialize()
    assert harness.delete() == [E.NONE]
    assert harness.records[-1][1] is None
    assert len(harness.coordinator) == 0
    assert harness.again().read().error is E.INVALID_REQUEST
    assert harness.initialize(state_epoch=0) == [E.NONE]


def test_changes_of_a_share_partition_are_written_one_after_the_other() -> None:
    harness = Harness()
    harness.initialize()
    harness.held = []
    first, second = harness.write(0, 0), harness.write(1, 1)
    read: list[Any] = []
    request = ReadShareGroupState(group_id="g", partitions=[ReadPartition(TOPIC, 0)])
    harness.coordinator.read(request, CALLER, read.append)
    assert (first, second, read, len(harness.held)) == ([], [], [], 1)
    harness.held.pop()(E.NONE)
    assert (first, second, len(harness.held)) == ([E.NONE], [], 1)
    harness.held.pop()(E.NONE)
    assert second == [E.NONE]
    assert read[0].partitions[0].state_batches == (StateBatch(0, 1, 2, 1),)


@pytest.mark.parametrize(
    ("error", "answer", "is_stored"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE, False),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE, True),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR, False),
    ],
)
def test_after_a_failed_write_the_state_is_that_of_the_log(error: E, answer: E, is_stored: bool) -> None:
    harness = Harness()
    harness.initialize(start=0)
    harness.error = error
    assert harness.write(0, 4) == [answer]
    harness.error = E.NONE
    assert harness.batches() == ([(0, 4, 2, 1)] if is_stored else [])
    assert harness.again().batches() == harness.batches()


def test_another_leader_of_the_log_ends_all_that_waits() -> None:
    harness = Harness()
    harness.initialize()
    harness.held = []
    first, second = harness.write(0, 0), harness.write(1, 1)
    harness.coordinator.unload(0)
    assert (first, second) == ([E.NOT_COORDINATOR], [E.NOT_COORDINATOR])
    harness.held.pop()(E.NONE)
    assert harness.read().error is E.NOT_COORDINATOR
    harness.coordinator.begin_load(0)
    assert harness.write(0, 0) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    harness.coordinator.close()
    assert harness.write(0, 0) == [E.NOT_COORDINATOR]


def test_records_before_the_snapshots_are_deleted() -> None:
    harness = Harness(updates_per_snapshot=10, cold_snapshot_interval_ms=10**9)
    harness.initialize(0)
    for offset in range(25):
        harness.write(2 * offset, 2 * offset)
    harness.scheduler.advance(300_000)
    assert harness.start == 22
    assert harness.again().batches() == harness.batches()
    harness.initialize(1)
    for offset in range(25):
        harness.write(2 * offset, 2 * offset)
    harness.scheduler.advance(300_000)
    assert harness.start == 26, "the snapshot of partition 1 is needed"
    assert harness.again().batches() == harness.batches()
    assert harness.again().read(1).error is E.NONE
    harness.delete(0)
    harness.delete(1)
    harness.scheduler.advance(300_000)
    assert harness.start == len(harness.records)


def test_a_share_partition_without_changes_gets_one_snapshot() -> None:
    harness = Harness()
    harness.initialize()
    harness.write(0, 0)
    before = harness.batches()
    harness.scheduler.advance(1_000_000)
    assert [decode_key(key)[0] for key, _ in harness.records] == [0, 1, 0]
    assert harness.start == 2
    assert harness.again().batches() == before


def test_an_old_snapshot_is_written_again_when_much_came_after_it() -> None:
    harness = Harness()
    harness.initialize(1)
    harness.initialize(0)
    for _ in range(40):
        for offset in range(30):
            harness.write(offset, offset)
        harness.scheduler.advance(1_000)
    harness.scheduler.advance(700_000)
    assert harness.start > 1_000
    assert harness.again().summary(1).error is E.NONE


def test_the_states_of_a_deleted_topic_go() -> None:
    harness = Harness()
    harness.initialize()
    harness.topics.clear()
    harness.scheduler.advance(300_000)
    assert len(harness.coordinator) == 0
    assert harness.records[-1][1] is None


def test_memory_is_that_of_the_states() -> None:
    harness = Harness()
    harness.initialize()
    small = harness.coordinator._runtime.size_bytes
    for offset in range(10):
        harness.write(2 * offset, 2 * offset)
    assert harness.coordinator._runtime.size_bytes > small
    assert harness.again().coordinator._runtime.size_bytes == harness.coordinator._runtime.size_bytes
    harness.delete()
    assert harness.coordinator._runtime.size_bytes == 0


requests = st.one_of(
    st.builds(lambda p, e, s: ("initialize", p, e, s), st.integers(0, 1), st.integers(0, 2), st.integers(-1, 5)),
    st.builds(lambda p: ("delete", p), st.integers(0, 1)),
    st.builds(lambda p, e: ("read", p, e), st.integers(0, 1), st.integers(-1, 3)),
    st.builds(
        lambda p, se, le, start, first, size, state, count: ("write", p, se, le, start, first, size, state, count),
        st.integers(0, 1),
        st.integers(-1, 2),
        st.integers(-1, 3),
        st.integers(-1, 8),
        st.integers(0, 10),
        st.integers(0, 4),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 5),
    ),
)


@settings(max_examples=examples(300))
@given(st.lists(requests, max_size=25), st.integers(0, 3))
def test_any_story_gives_the_answers_of_a_persister_in_memory_also_after_loading(
    story: list[tuple[Any, ...]], updates_per_snapshot: int
) -> None:
    harness, memory = Harness(updates_per_snapshot=updates_per_snapshot), MemoryPersister()
    for name, partition, *rest in story:
        request: Any
        if name == "initialize":
            some = [InitializePartition(TOPIC, partition, *rest)]
            request = InitializeShareGroupState(group_id="g", partitions=some)
        elif name == "delete":
            request = DeleteShareGroupState(group_id="g", partitions=[StatePartition(TOPIC, partition)])
        elif name == "read":
            request = ReadShareGroupState(group_id="g", partitions=[ReadPartition(TOPIC, partition, *rest)])
        else:
            state_epoch, leader_epoch, start, first, size, state, count = rest
            batch = StateBatch(first, first + size, state, count)
            write = WritePartition(TOPIC, partition, state_epoch, leader_epoch, start, [batch], count)
            request = WriteShareGroupState(group_id="g", partitions=[write])
        ours: list[Any] = []
        theirs: list[Any] = []
        getattr(harness.coordinator, name)(request, CALLER, ours.append)
        getattr(memory, f"{name}_state")(request, theirs.append)
        assert ours == theirs
    for coordinator in (harness, harness.again()):
        for partition in (0, 1):
            expected = memory.offsets.get(SharePartitionKey("g", TOPIC, partition))
            entry = coordinator.coordinator._table.get(str(SharePartitionKey("g", TOPIC, partition)))
            assert (None if entry is None else entry.state.offset) == expected
