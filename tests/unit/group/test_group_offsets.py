from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.core.coordinator.group.deadlines import Deadlines
from barnabas.core.coordinator.group.loading import Loading
from barnabas.core.coordinator.group.offsets import GroupOffsets, PendingCommit
from barnabas.core.coordinator.group.records import (
    StoredGroup,
    StoredOffset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from barnabas.core.coordinator.group.states import GroupState
from barnabas.core.coordinator.group.subscription import subscribed_topics
from barnabas.core.coordinator.table import partition_of
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_position_counts_once_it_is_written() -> None:
    offsets = GroupOffsets()
    commit = offsets.prepare_commit({A0: StoredOffset(5)})
    assert offsets.get(A0) is None
    assert offsets.is_pending(A0)
    offsets.finish(commit, stored=True)
    assert offsets.get(A0) == StoredOffset(5)
    assert not offsets.is_pending(A0)
    offsets.finish(offsets.prepare_commit({A0: StoredOffset(6)}), stored=False)
    assert offsets.get(A0) == StoredOffset(5)


def test_the_later_commit_counts_whichever_is_written_first() -> None:
    offsets = GroupOffsets()
    early, late = offsets.prepare_commit({A0: StoredOffset(1)}), offsets.prepare_commit({A0: StoredOffset(2)})
    offsets.finish(late, stored=True)
    offsets.finish(early, stored=True)
    assert offsets.get(A0) == StoredOffset(2)


def test_expired_offset_is_not_restored_by_a_late_write() -> None:
    offsets = GroupOffsets({A1: StoredOffset(9)})
    commit = offsets.prepare_commit({A0: StoredOffset(1), A1: StoredOffset(10)})
    assert offsets.forget([A0, B0]) == [A0]
    offsets.finish(commit, stored=True)
    assert dict.fromkeys(offsets) == {A1: None}
    assert set(offsets.forget_all()) == {A1}
    assert offsets.is_void


def test_a_topic_that_is_deleted_costs_no_step_for_each_position_of_a_group() -> None:
    hashed: list[object] = []

    class Counted(TopicPartition):
        def __hash__(self) -> int:
            hashed.append(self)
            return super().__hash__()

    offsets = GroupOffsets({Counted("a", number): StoredOffset(1) for number in range(1000)})
    hashed.clear()
    assert offsets.touch(frozenset([A0, B0])) and not offsets.touch(frozenset([B0]))
    assert not hashed


def _expired(offsets: GroupOffsets, now_ms: int, **over: Any) -> set[TopicPartition]:
    given = {"state": GroupState.EMPTY, "state_since_ms": 0, "is_simple": False, "topics": None, **over}
    return set(offsets.expired(now_ms=now_ms, retention_ms=100, **given))


def test_offsets_of_empty_group_expire_after_retention_since_empty() -> None:
    offsets = GroupOffsets({A0: StoredOffset(1, commit_timestamp_ms=10), B0: StoredOffset(1)})
    assert not _expired(offsets, 1099, state_since_ms=1000)
    assert _expired(offsets, 1100, state_since_ms=1000) == {A0, B0}
    assert _expired(offsets, 109, state_since_ms=-1) == {B0}
    reset = GroupOffsets({A0: StoredOffset(1, commit_timestamp_ms=5000)})
    assert not _expired(reset, 5099, state_since_ms=1000)


def test_offsets_of_simple_group_expire_after_retention_since_commit() -> None:
    offsets = GroupOffsets({A0: StoredOffset(1, commit_timestamp_ms=10), B0: StoredOffset(1, -1, "", 50)})
    assert _expired(offsets, 110, state_since_ms=1000, is_simple=True) == {A0}


def test_a_group_with_members_forgets_what_they_do_not_read() -> None:
    offsets = GroupOffsets({A0: StoredOffset(1, -1, "", 0), B0: StoredOffset(1, -1, "", 0)})
    assert _expired(offsets, 100, state=GroupState.STABLE, topics={"a"}) == {B0}
    assert not _expired(offsets, 100, state=GroupState.STABLE)
    assert not _expired(offsets, 100, state=GroupState.PREPARING_REBALANCE, topics={"a"})
    offsets.prepare_commit({B0: StoredOffset(2)})
    assert not _expired(offsets, 100, state=GroupState.STABLE, topics={"a"})


def test_an_expiry_of_its_own_counts() -> None:
    offsets = GroupOffsets({A0: StoredOffset(1, -1, "", 0, 5000), B0: StoredOffset(1, -1, "", 0, 50)})
    assert _expired(offsets, 4999) == {B0}
    assert _expired(offsets, 5000) == {A0, B0}


class OffsetsMachine(RuleBasedStateMachine):
    """Commits that are written in any order, against the log: the last record of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = GroupOffsets()
        self.pending: list[PendingCommit] = []
        self.log: list[tuple[PendingCommit | None, TopicPartition, StoredOffset | None]] = []
        self.written: set[PendingCommit] = set()
        self.count = 0

    @rule(partitions=st.sets(st.sampled_from([A0, A1, B0]), min_size=1))
    def begin(self, partitions: set[TopicPartition]) -> None:
        self.count += 1
        positions = {each: StoredOffset(self.count) for each in sorted(partitions)}
        commit = self.offsets.prepare_commit(dict(positions))
        self.pending.append(commit)
        self.log += [(commit, each, position) for each, position in positions.items()]

    @rule(which=st.integers(0, 5), stored=st.booleans())
    def finish(self, which: int, stored: bool) -> None:
        if self.pending:
            commit = self.pending.pop(which % len(self.pending))
            self.offsets.finish(commit, stored=stored)
            if stored:
                self.written.add(commit)

    @rule(partitions=st.sets(st.sampled_from([A0, A1, B0])))
    def forget(self, partitions: set[TopicPartition]) -> None:
        self.offsets.forget(partitions)
        self.log += [(None, each, None) for each in partitions]

    @invariant()
    def memory_says_what_the_log_says(self) -> None:
        said: dict[TopicPartition, StoredOffset | None] = {}
        for commit, partition, position in self.log:
            if commit is None or commit in self.written:
                said[partition] = position
        for partition in (A0, A1, B0):
            assert self.offsets.get(partition) == said.get(partition)
        assert self.pending or not any(self.offsets.is_pending(each) for each in (A0, A1, B0))


TestOffsetsMachine = OffsetsMachine.TestCase


def test_the_last_value_of_each_key_counts() -> None:
    loading = Loading(7)
    group = StoredGroup(protocol_type="consumer", generation=1)
    loading.add(encode_offset_key("g", "a", 0), encode_offset(StoredOffset(1)))
    loading.add(encode_group_key("g"), encode_group(group))
    loading.add(encode_offset_key("g", "a", 1), encode_offset(StoredOffset(3)))
    loading.add(encode_offset_key("g", "a", 0), encode_offset(StoredOffset(2)))
    loading.add(encode_offset_key("g", "a", 1), None)
    loading.add(encode_group_key("gone"), encode_group(group))
    loading.add(encode_group_key("gone"), None)
    assert loading.groups["g"].stored == group
    assert loading.groups["g"].offsets == {A0: StoredOffset(2)}
    assert loading.groups["gone"].stored is None
    assert loading.report() is None


ID, OTHER_ID = b"a" * 16, b"b" * 16


def test_offsets_of_a_topic_that_has_another_id_are_dropped_at_load() -> None:
    loading = Loading(7)
    for number, topic_id in enumerate((ID, OTHER_ID, NO_TOPIC_ID)):
        stored = StoredOffset(number, topic_id=topic_id)
        loading.add(encode_offset_key("g", "a", number), encode_offset(stored))
        loading.add_open(5, (encode_offset_key("h", "a", number), encode_offset(stored)))
    loading.add(encode_offset_key("g", "b", 0), encode_offset(StoredOffset(9)))
    assert loading.topics_unlike({"a": ID, "b": ID}.get) == ["a"]
    assert loading.topics_unlike({"a": ID}.get) == ["a", "b"]
    loading.drop_other_topics({"a": ID})
    assert {tp.partition for tp in loading.groups["g"].offsets if tp.topic == "a"} == {0, 2}
    assert [tp.partition for _, tp, _ in loading.groups["h"].open] == [0, 2]
    assert loading.stale == {"g": [TopicPartition("a", 1)]}
    loading.drop_other_topics({"b": None})
    assert B0 not in loading.groups["g"].offsets, "the record names no topic, and there is none of this name"


def test_an_offset_in_an_open_transaction_is_not_deleted_with_the_stale_one_before_it() -> None:
    loading = Loading(7)
    loading.add(encode_offset_key("g", "a", 0), encode_offset(StoredOffset(1, topic_id=OTHER_ID)))
    loading.add_open(5, (encode_offset_key("g", "a", 0), encode_offset(StoredOffset(2, topic_id=ID))))
    loading.drop_other_topics({"a": ID})
    assert not loading.groups["g"].offsets
    assert loading.groups["g"].open == [(5, A0, StoredOffset(2, topic_id=ID))]
    assert not loading.stale


def test_unreadable_offset_records_are_skipped_and_reported() -> None:
    loading = Loading(7)
    key = encode_offset_key("g", "a", 0)
    loading.add(key, encode_offset(StoredOffset(1)))
    loading.add(key, b"\x00\x09later")
    loading.add(key, b"\x00\x03cut")
    loading.add(b"\x00\x09", b"")
    loading.add(None, b"")
    assert loading.groups["g"].offsets == {A0: StoredOffset(1)}
    report = loading.report()
    assert report is not None
    assert "__consumer_offsets-7: 4 records" in report
    for number in range(300):
        loading.add(encode_group_key("h"), bytes((0, 3, 0, 0, 0, 0, 0, 0)) + bytes(number % 250))
    assert len(loading.skipped) <= 101


def test_groups_belong_to_the_partitions_that_kafka_puts_them_in() -> None:
    # "abc".hashCode() is 96354; that of "polygenelubricants" is -2147483648
    assert partition_of("abc", 50) == 96354 % 50
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("", 50) == 0
    assert partition_of("\U0001f600", 50) == ((0xD83D * 31 + 0xDE00) & 0x7FFFFFFF) % 50


def test_topics_of_a_subscription() -> None:
    assert subscribed_topics(bytes.fromhex("0001 00000002 0001 61 0001 62 ffffffff 00000000")) == frozenset({"a", "b"})
    for nonsense in ("", "0001", "ffff 00000000", "0001 7fffffff", "0001 00000001 0005 61", "0001 00000001 ffff"):
        assert subscribed_topics(bytes.fromhex(nonsense)) is None


def test_deadlines_that_were_dropped_take_no_room() -> None:
    deadlines = Deadlines()
    deadlines.set((0, "a member"), 10)
    for number in range(10_000):
        deadlines.set((1, f"given out {number}"), 1_800_000 + number)
        deadlines.drop((1, f"given out {number}"))
    assert len(deadlines._heap) < 200 and len(deadlines._queued) < 200
    assert deadlines.next_ms() == 10 and deadlines.due(10) == [(0, "a member")]


class DeadlinesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deadlines = Deadlines()
        self.times: dict[tuple[int, str], float] = {}
        self.now = 0.0

    @rule(key=st.sampled_from([(0, "a"), (0, "b"), (1, "")]), delay=st.integers(-1, 10))
    def set(self, key: tuple[int, str], delay: int) -> None:
        self.deadlines.set(key, self.now + delay)
        self.times[key] = self.now + delay

    @rule(key=st.sampled_from([(0, "a"), (0, "b"), (1, "")]))
    def drop(self, key: tuple[int, str]) -> None:
        self.deadlines.drop(key)
        self.times.pop(key, None)

    @rule(ms=st.integers(0, 5))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        due = sorted((at, key) for key, at in self.times.items() if at <= self.now)
        assert self.deadlines.due(self.now) == [key for _, key in due]
        for _, key in due:
            del self.times[key]

    @invariant()
    def it_wakes_in_time(self) -> None:
        next_ms = self.deadlines.next_ms()
        assert (next_ms is None) == (not self.times)
        assert next_ms is None or next_ms <= min(self.times.values())
        assert all(self.deadlines.get(key) == at for key, at in self.times.items())


TestDeadlinesMachine = DeadlinesMachine.TestCase
