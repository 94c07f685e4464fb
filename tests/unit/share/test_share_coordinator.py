"""The share coordinator: what it writes, answers and loads."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


class House:
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

    def again(self) -> "House":
        """Another coordinator, which loads what is in the log."""
        return House(self.records, self.start)

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
        """The errors of the answer, as they are by now: empty while it waits."""
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
    house = House()
    assert house.initialize(start=5) == [E.NONE]
    assert house.write(5, 9) == [E.NONE]
    assert house.write(7, 7, 0, 2) == [E.NONE]
    assert [decode_key(key)[0] for key, _ in house.records] == [0, UPDATE, UPDATE]
    expected = [(5, 6, 2, 1), (7, 7, 0, 2), (8, 9, 2, 1)]
    assert house.batches() == expected
    assert house.again().batches() == expected
    assert house.summary().start_offset == house.again().summary().start_offset == 5


def test_the_whole_state_is_written_after_the_updates_of_the_setting() -> None:
    house = House(updates_per_snapshot=3)
    house.initialize(start=0)
    for offset in range(9):
        assert house.write(2 * offset, 2 * offset) == [E.NONE]
    assert [decode_key(key)[0] for key, _ in house.records] == [0, 1, 1, 1, 0, 1, 1, 1, 0, 1]
    _key, value = house.records[8]
    assert value is not None
    snapshot = decode_snapshot(value)
    assert (snapshot.snapshot_epoch, len(snapshot.offset.state_batches)) == (2, 8)
    assert house.again().batches() == house.batches()


def test_a_write_in_a_higher_state_epoch_is_a_snapshot() -> None:
    house = House()
    house.initialize()
    assert house.write(0, 0, state_epoch=4) == [E.NONE]
    assert house.again().read().state_epoch == 4


def test_a_read_of_a_new_leader_is_stored_and_fences_earlier_leaders() -> None:
    house = House()
    house.initialize(start=3)
    assert house.read(leader_epoch=5).start_offset == 3
    assert len(house.records) == 2
    assert house.read(leader_epoch=5).error is E.NONE
    assert len(house.records) == 2, "the epoch is known"
    later = house.again()
    assert later.read(leader_epoch=4).error is E.FENCED_LEADER_EPOCH
    assert later.write(3, 3, leader_epoch=4) == [E.FENCED_LEADER_EPOCH]
    assert later.write(3, 3, leader_epoch=5) == [E.NONE]
    assert later.read().start_offset == 3


def test_requests_that_cannot_be_done_have_kafkas_errors() -> None:
    house = House()
    assert house.write(0, 0) == [E.INVALID_REQUEST]
    assert house.read().error is E.INVALID_REQUEST
    assert house.initialize(topic=GONE) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert house.initialize(partition=100) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert house.initialize(partition=-1) == [E.INVALID_REQUEST]
    assert house.initialize(state_epoch=3) == [E.NONE]
    assert house.initialize(state_epoch=2) == [E.FENCED_STATE_EPOCH]
    assert house.write(0, 0, state_epoch=2) == [E.FENCED_STATE_EPOCH]
    assert house.delete(5) == [E.NONE], "it has none"
    assert len(house.records) == 1
    assert len(house.coordinator) == 1
    house.leads = False
    assert house.write(0, 0, state_epoch=3) == [E.NOT_COORDINATOR]
    assert house.read().error is E.NOT_COORDINATOR
    assert house.summary().error is E.NOT_COORDINATOR


def test_one_answer_has_all_partitions_in_their_order() -> None:
    house = House()
    some = [InitializePartition(TOPIC, each, 0) for each in (3, 100, 1)]
    request = InitializeShareGroupState(group_id="g", partitions=some)
    assert house.asked(house.coordinator.initialize, request) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.NONE]
    assert house.asked(house.coordinator.initialize, InitializeShareGroupState(group_id="g", partitions=[])) == []
    assert (
        house.asked(house.coordinator.initialize, InitializeShareGroupState(group_id="", partitions=some))
        == [E.INVALID_REQUEST] * 3
    )


def test_a_deleted_state_is_gone_and_may_begin_again() -> None:
    house = House()
    house.initialize()
    assert house.delete() == [E.NONE]
    assert house.records[-1][1] is None
    assert len(house.coordinator) == 0
    assert house.again().read().error is E.INVALID_REQUEST
    assert house.initialize(state_epoch=0) == [E.NONE]


def test_changes_of_a_share_partition_are_written_one_after_the_other() -> None:
    house = House()
    house.initialize()
    house.held = []
    first, second = house.write(0, 0), house.write(1, 1)
    read: list[Any] = []
    request = ReadShareGroupState(group_id="g", partitions=[ReadPartition(TOPIC, 0)])
    house.coordinator.read(request, CALLER, read.append)
    assert (first, second, read, len(house.held)) == ([], [], [], 1)
    house.held.pop()(E.NONE)
    assert (first, second, len(house.held)) == ([E.NONE], [], 1)
    house.held.pop()(E.NONE)
    assert second == [E.NONE]
    assert read[0].partitions[0].state_batches == (StateBatch(0, 1, 2, 1),)


@pytest.mark.parametrize(
    ("error", "answer", "is_there"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE, False),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE, True),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR, False),
    ],
)
def test_after_a_failed_write_the_state_is_that_of_the_log(error: E, answer: E, is_there: bool) -> None:
    house = House()
    house.initialize(start=0)
    house.error = error
    assert house.write(0, 4) == [answer]
    house.error = E.NONE
    assert house.batches() == ([(0, 4, 2, 1)] if is_there else [])
    assert house.again().batches() == house.batches()


def test_another_leader_of_the_log_ends_all_that_waits() -> None:
    house = House()
    house.initialize()
    house.held = []
    first, second = house.write(0, 0), house.write(1, 1)
    house.coordinator.unload(0)
    assert (first, second) == ([E.NOT_COORDINATOR], [E.NOT_COORDINATOR])
    house.held.pop()(E.NONE)
    assert house.read().error is E.NOT_COORDINATOR
    house.coordinator.begin_load(0)
    assert house.write(0, 0) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    house.coordinator.close()
    assert house.write(0, 0) == [E.NOT_COORDINATOR]


def test_records_before_the_snapshots_are_deleted() -> None:
    house = House(updates_per_snapshot=10, cold_snapshot_interval_ms=10**9)
    house.initialize(0)
    for offset in range(25):
        house.write(2 * offset, 2 * offset)
    house.scheduler.advance(300_000)
    assert house.start == 22
    assert house.again().batches() == house.batches()
    house.initialize(1)
    for offset in range(25):
        house.write(2 * offset, 2 * offset)
    house.scheduler.advance(300_000)
    assert house.start == 26, "the snapshot of partition 1 is needed"
    assert house.again().batches() == house.batches()
    assert house.again().read(1).error is E.NONE
    house.delete(0)
    house.delete(1)
    house.scheduler.advance(300_000)
    assert house.start == len(house.records)


def test_a_share_partition_without_changes_gets_one_snapshot() -> None:
    house = House()
    house.initialize()
    house.write(0, 0)
    before = house.batches()
    house.scheduler.advance(1_000_000)
    assert [decode_key(key)[0] for key, _ in house.records] == [0, 1, 0]
    assert house.start == 2
    assert house.again().batches() == before


def test_an_old_snapshot_is_written_again_when_much_came_after_it() -> None:
    house = House()
    house.initialize(1)
    house.initialize(0)
    for _ in range(40):
        for offset in range(30):
            house.write(offset, offset)
        house.scheduler.advance(1_000)
    house.scheduler.advance(700_000)
    assert house.start > 1_000
    assert house.again().summary(1).error is E.NONE


def test_the_states_of_a_deleted_topic_go() -> None:
    house = House()
    house.initialize()
    house.topics.clear()
    house.scheduler.advance(300_000)
    assert len(house.coordinator) == 0
    assert house.records[-1][1] is None


def test_memory_is_that_of_the_states() -> None:
    house = House()
    house.initialize()
    small = house.coordinator._runtime.size_bytes
    for offset in range(10):
        house.write(2 * offset, 2 * offset)
    assert house.coordinator._runtime.size_bytes > small
    assert house.again().coordinator._runtime.size_bytes == house.coordinator._runtime.size_bytes
    house.delete()
    assert house.coordinator._runtime.size_bytes == 0


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


@settings(max_examples=300)
@given(st.lists(requests, max_size=25), st.integers(0, 3))
def test_any_story_gives_the_answers_of_a_persister_in_memory_also_after_loading(
    story: list[tuple[Any, ...]], updates_per_snapshot: int
) -> None:
    house, memory = House(updates_per_snapshot=updates_per_snapshot), MemoryPersister()
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
        getattr(house.coordinator, name)(request, CALLER, ours.append)
        getattr(memory, f"{name}_state")(request, theirs.append)
        assert ours == theirs
    for coordinator in (house, house.again()):
        for partition in (0, 1):
            expected = memory.offsets.get(SharePartitionKey("g", TOPIC, partition))
            entry = coordinator.coordinator._table.get(str(SharePartitionKey("g", TOPIC, partition)))
            assert (None if entry is None else entry.state.offset) == expected
