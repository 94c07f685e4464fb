"""A compacted log against a list and a dict: append, roll, clean, stop, kill, truncate, and read all along."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.cleaned_log import CleanedLogs, last_values, messages_of

from barnabas.core.log.compaction.cleaning_job import CleanerSettings
from barnabas.core.message.batch_reader import whole_batches
from barnabas.ports.types import Offset
from barnabas.testing.logs import TP, bytes_of

_keys = st.sampled_from([b"a", b"b", b"c", b"a longer key"])
_values = st.one_of(st.none(), st.binary(max_size=12))
_DAY_MS = 86_400_000


class CompactionMachine(RuleBasedStateMachine):
    """Deletions are kept for a day, so that none may go while time passes in seconds only."""

    def __init__(self) -> None:
        super().__init__()
        self.logs = CleanedLogs()
        self.written: list[tuple[int, bytes, bytes | None]] = []
        """(offset, key, value), all that was ever appended and not cut off."""
        self.decided = 0

    @initialize(
        segment_bytes=st.sampled_from([250, 400, 1000]),
        dedupe_buffer_bytes=st.sampled_from([1, 10_000]),
        backoff_ms=st.sampled_from([10, 1000]),
    )
    def begin(self, segment_bytes: int, dedupe_buffer_bytes: int, backoff_ms: int) -> None:
        self.logs.configure(segment_bytes=segment_bytes, delete_retention_ms=_DAY_MS)
        self.logs.settings = CleanerSettings(dedupe_buffer_bytes=dedupe_buffer_bytes, backoff_ms=backoff_ms)

    @rule(batches=st.lists(st.lists(st.tuples(_keys, _values), min_size=1, max_size=4), min_size=1, max_size=8))
    def append(self, batches: list[list[tuple[bytes, bytes | None]]]) -> None:
        for pairs in batches:
            base = self.logs.put(*pairs)
            self.written += [(base + number, key, value) for number, (key, value) in enumerate(pairs)]

    @rule()
    def clean(self) -> None:
        self.decided = self.logs.log.log_end_offset
        self.logs.decided_to = {TP: Offset(self.decided)}
        self.logs.wait(2000)

    @rule(ms=st.integers(0, 3000))
    def wait(self, ms: int) -> None:
        self.logs.wait(ms)

    @rule(share=st.floats(0, 1))
    def decide(self, share: float) -> None:
        """The high watermark rises to somewhere."""
        end = self.logs.log.log_end_offset
        self._all_but_the_newest_may_be_cleaned()
        self.decided = max(self.decided, int(end * share))
        self.logs.decided_to = {TP: Offset(self.decided)}

    def _all_but_the_newest_may_be_cleaned(self) -> None:
        """Raise the limit to the newest segment, as long as no transaction limits it."""
        if TP not in self.logs.decided_to:
            self.decided = int(self.logs.log.segments[-1].base_offset)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Above the high watermark, or, in a rare case, not: an unclean leader."""
        end = self.logs.log.log_end_offset
        self._all_but_the_newest_may_be_cleaned()
        offset = self.decided + int((end - self.decided) * share) if share < 0.9 else int(end * share)
        self.logs.log.truncate_to(offset, self.logs.clock.now_ms())
        self.logs.manager.checkpoint()  # as after every truncation
        self.logs.wait(0)
        end = self.logs.log.log_end_offset
        self.written = [each for each in self.written if each[0] < end]
        if end < self.decided:  # what was cleaned away may be the last value of its key now
            self.written = [(each.offset, each.key or b"", each.value) for each in messages_of(self.logs.log)]
        self.decided = min(self.decided, end)
        self.logs.decided_to = {TP: Offset(self.decided)}

    @rule()
    def stop_and_start(self) -> None:
        self.logs.stop()
        self.logs.start()

    @rule()
    def kill_and_start(self) -> None:
        self.logs.kill()
        self.logs.start()

    @invariant()
    def remaining_records_were_written(self) -> None:
        everything = {(offset, key): value for offset, key, value in self.written}
        found = [(message.offset, message.key, message.value) for message in messages_of(self.logs.log)]
        assert [each[0] for each in found] == sorted({each[0] for each in found})
        for offset, key, value in found:
            assert key is not None
            assert everything[offset, key] == value

    @invariant()
    def newest_values_remain(self) -> None:
        wanted = {key: value for _, key, value in self.written}
        assert last_values(self.logs.log) == {key: value for key, value in wanted.items() if value is not None}

    @invariant()
    def what_is_not_cleaned_is_whole(self) -> None:
        decided = self.logs.decided_to.get(TP)
        start = 0 if decided is None else decided
        start = max(start, self.logs.log.segments[-1].base_offset) if decided is None else start
        found = [message.offset for message in messages_of(self.logs.log) if message.offset >= start]
        assert found == [offset for offset, _, _ in self.written if offset >= start]

    @invariant()
    def every_offset_can_be_asked_for(self) -> None:
        log = self.logs.log
        found = [message.offset for message in messages_of(log)]
        for offset in range(log.log_start_offset, log.log_end_offset):
            records = bytes_of(log, offset)
            batches = list(whole_batches(records))
            assert batches or offset > max(found, default=-1)
            if batches:
                assert batches[0][1].next_offset > offset
                earlier = [each for each in found if offset <= each < batches[0][1].base_offset]
                assert not earlier

    @invariant()
    def nothing_is_wrong(self) -> None:
        wrong = [line for line in self.logs.reports if "lost" in line or "damaged" in line or "cannot" in line]
        assert not wrong, wrong


TestCompactionMachine = CompactionMachine.TestCase
