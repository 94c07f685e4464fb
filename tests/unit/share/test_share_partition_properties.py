"""A share partition under any order of events: no record is lost, none that was acknowledged comes back."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.long_tests import examples

from barnabas.core.share.share_group_offset import combine_state_batches
from barnabas.core.share.share_partition import (
    LogBatch,
    RecordState,
    SharePartition,
    SharePartitionSettings,
    StateWrite,
)
from barnabas.ports.broker_api.share_groups import AcknowledgementBatch, AcknowledgeType
from barnabas.ports.broker_api.share_state import StateBatch
from barnabas.ports.errors import ApiError

LIMIT, LOCK_MS, SIZE = 3, 100, 60
MEMBERS = ("a", "b", "c")
FINAL = (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


SELDOM = st.integers(0, 9).map(lambda number: number == 9)


class ShareMachine(RuleBasedStateMachine):
    """One share partition over a log of batches of five records, beside a model by single records."""

    def __init__(self) -> None:
        super().__init__()
        self.share = SharePartition(0, settings=self._settings())
        self.now_ms = 0
        self.delivered: dict[int, int] = {}
        self.done: set[int] = set()
        """The records whose acknowledgement is stored."""
        self.asked: dict[int, set[int]] = {}
        self.stored: tuple[StateBatch, ...] = ()
        self.stored_start = 0
        self.writing: StateWrite | None = None
        self.start_before = 0

    @staticmethod
    def _settings() -> SharePartitionSettings:
        return SharePartitionSettings(lock_duration_ms=LOCK_MS, delivery_count_limit=LIMIT, max_in_flight_records=25)

    @rule(
        member=st.sampled_from(MEMBERS),
        max_records=st.integers(1, 12),
        is_strict=st.booleans(),
        batch_size=st.integers(1, 10),
    )
    def acquire(self, member: str, max_records: int, is_strict: bool, batch_size: int) -> None:
        offset = self.share.next_fetch_offset()
        if offset is None or offset >= SIZE:
            return
        first = offset // 5 * 5
        batches = [LogBatch(each, each + 4, False, each + 5 - first) for each in range(first, SIZE, 5)]
        result = self.share.acquire(
            member,
            offset,
            batches,
            max_records=max_records,
            batch_size=batch_size,
            is_strict=is_strict,
            now_ms=self.now_ms,
        )
        assert result.record_count > 0
        assert not is_strict or result.record_count <= max_records
        for each in result.ranges:
            for record in range(each.first_offset, each.last_offset + 1):
                assert record not in self.done
                self.delivered[record] = self.delivered.get(record, 0) + 1
                assert each.delivery_count == self.delivered[record] <= LIMIT

    @rule(
        place=st.integers(0, 20),
        kinds=st.lists(st.integers(0, 4), min_size=1, max_size=12),
        size=st.integers(1, 12),
        other=SELDOM,
    )
    def acknowledge(self, place: int, kinds: list[int], size: int, other: bool) -> None:
        held = [each for each in self.share.batches if each.state is RecordState.ACQUIRED]
        if not held:
            return
        batch = held[place % len(held)]
        member = "nobody" if other else batch.member_id
        first, last = batch.first_offset, min(batch.last_offset, batch.first_offset + size - 1)
        types = bytes((kinds * 12)[: last - first + 1])
        try:
            number = self.share.acknowledge(
                member, [AcknowledgementBatch(first, last, types)], allows_renew=True, now_ms=self.now_ms
            )
        except ApiError:
            return
        for record, kind in zip(range(first, last + 1), types, strict=True):
            if kind in FINAL and record >= self.share.start_offset and number:
                assert not other
                self.asked.setdefault(number, set()).add(record)

    @rule()
    def begin_write(self) -> None:
        write = self.share.take_write()
        if write is not None:
            assert self.writing is None
            self.writing = write

    @rule(is_stored=st.booleans())
    def end_write(self, is_stored: bool) -> None:
        if self.writing is None:
            return
        write, self.writing = self.writing, None
        asked = self.asked.pop(write.number, set())
        if is_stored:
            self.done |= asked
            assert write.start_offset >= self.stored_start
            self.stored_start = write.start_offset
            self.stored = combine_state_batches(self.stored, write.state_batches, write.start_offset)
        self.share.complete_write(is_stored=is_stored)

    @rule(ms=st.integers(1, 120))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.share.release_lapsed(self.now_ms)

    @rule(member=st.sampled_from(MEMBERS))
    def lose_member(self, member: str) -> None:
        self.share.release_acquired(member)

    @rule(really=SELDOM)
    def change_leader(self, really: bool) -> None:
        if not really:
            return
        self.share = SharePartition(self.stored_start, self.stored, self._settings())
        self.writing = None
        self.asked = {}
        self.start_before = self.stored_start
        known = {
            record: each.delivery_count
            for each in self.stored
            for record in range(each.first_offset, each.last_offset + 1)
        }
        self.delivered = {
            record: known.get(record, 0) if record >= self.stored_start else count
            for record, count in self.delivered.items()
        }

    @invariant()
    def start_offset_only_rises(self) -> None:
        assert self.share.start_offset >= self.start_before
        self.start_before = self.share.start_offset

    @invariant()
    def no_record_is_passed_over(self) -> None:
        for record in range(max(self.share.start_offset, self.stored_start)):
            assert record in self.done or self.delivered.get(record, 0) >= LIMIT

    @invariant()
    def ranges_have_no_gaps(self) -> None:
        expected = self.share.start_offset
        for each in self.share.batches:
            assert each.first_offset == expected <= each.last_offset
            expected = each.last_offset + 1
        assert expected == self.share.end_offset + 1


ShareMachine.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
TestShareMachine = ShareMachine.TestCase
