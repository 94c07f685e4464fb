"""A follower's log against its leader's: fetch, diverge, truncate, flush, roll, stop and kill, in any order."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.ports.storage import Folder
from barnabas.testing.logs import numbered, open_log, read_all

_configs = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([150, 400, 1000]),
    index_interval_bytes=st.sampled_from([0, 100, 300]),
    segment_index_bytes=st.sampled_from([24, 10_000]),
)


class FollowerMachine(RuleBasedStateMachine):
    """Both logs append own records while they lead; the follower is truncated to the common part, and copies."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0
        self.sequence = 0
        self.reports: list[str] = []

    @initialize(leader=_configs, follower=_configs)
    def begin(self, leader: LogConfig, follower: LogConfig) -> None:
        self.configs = [leader, follower]
        self.folders: list[Folder] = [MemoryLogDir(MemoryDisk(now_ms=lambda: 0)).folder("t-0") for _ in range(2)]
        self.logs = [self._open(number, recover=True) for number in range(2)]

    def _open(self, number: int, *, recover: bool, recovery_point: int = 0, start: int = 0) -> UnifiedLog:
        return open_log(
            self.folders[number],
            recover=recover,
            recovery_point=recovery_point,
            log_start_offset=start,
            config=self.configs[number],
            may_end_early=True,
            report=self.reports.append,
        )

    @property
    def leader(self) -> UnifiedLog:
        return self.logs[0]

    @property
    def follower(self) -> UnifiedLog:
        return self.logs[1]

    @rule(count=st.integers(1, 6), size=st.integers(0, 20))
    def lead(self, count: int, size: int) -> None:
        for number in range(count):
            value = b"%d/%d" % (self.epoch, self.leader.log_end_offset) + b"." * size
            records = numbered(value, b"second", producer=number % 3, sequence=self.sequence)
            self.sequence += 2
            self.leader.producers.clear()  # who is refused is not looked at here
            self.leader.append(records, leader_epoch=self.epoch, now_ms=0)

    @rule(max_bytes=st.integers(1, 1500))
    def fetch(self, max_bytes: int) -> None:
        leader, follower = self.leader, self.follower
        self._agree()
        if follower.log_end_offset < leader.log_start_offset:
            follower.truncate_fully_and_start_at(leader.log_start_offset)
        offset = follower.log_end_offset
        records = leader.read(offset, max_bytes=max_bytes, limit=leader.log_end_offset).records
        sent = records if isinstance(records, bytes) else records.read()
        taken = follower.append_replicated(memoryview(sent), now_ms=0)
        assert (taken.size > 0) == (offset < leader.log_end_offset)
        if leader.log_start_offset > follower.log_start_offset:
            follower.advance_log_start(min(leader.log_start_offset, follower.log_end_offset))

    def _agree(self) -> None:
        """Cut the follower to where it agrees with the leader (facts D6, KIP-595)."""
        leader, follower = self.leader, self.follower
        while (last := follower.epochs.latest) >= 0:
            if follower.log_start_offset == follower.log_end_offset:  # nothing is left to part with
                follower.truncate_fully_and_start_at(leader.log_start_offset)
                return
            epoch, end = leader.epochs.end_offset_for(last, leader.log_end_offset)
            if epoch < 0:  # the leader of a new epoch without a message
                epoch = leader.epochs.latest if leader.epochs.entries else last
                end = leader.log_end_offset
            if epoch == last and end >= follower.log_end_offset:
                return
            mine, my_end = follower.epochs.end_offset_for(epoch, follower.log_end_offset)
            before = follower.log_end_offset
            follower.truncate_to(my_end if mine != epoch else min(end, my_end))
            assert follower.log_end_offset < before
        if follower.log_end_offset > leader.log_end_offset:
            follower.truncate_fully_and_start_at(leader.log_start_offset)

    @rule()
    def elect_the_other(self) -> None:
        """Whether or not it has everything: an unclean election."""
        for each in (self.logs, self.folders, self.configs):
            each.reverse()
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def advance_log_start(self, share: float) -> None:
        log = self.leader
        log.advance_log_start(log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * share))

    @rule(number=st.integers(0, 1))
    def flush(self, number: int) -> None:
        self.logs[number].flushes.now()

    @rule(number=st.integers(0, 1))
    def stop_and_start(self, number: int) -> None:
        log = self.logs[number]
        end, start = log.log_end_offset, log.log_start_offset
        log.close()
        self.reports.clear()
        self.logs[number] = self._open(number, recover=False, recovery_point=end, start=start)
        assert (self.logs[number].log_end_offset, self.reports) == (end, [])

    @rule(number=st.integers(0, 1), known=st.booleans())
    def kill_and_start(self, number: int, known: bool) -> None:
        log = self.logs[number]
        log.abandon()
        point = log.recovery_point if known else 0
        self.logs[number] = self._open(number, recover=True, recovery_point=point, start=log.log_start_offset)
        assert self.logs[number].log_end_offset == log.log_end_offset

    @precondition(lambda self: hasattr(self, "logs"))
    @invariant()
    def agree_where_epochs_agree(self) -> None:
        """Log matching: one epoch at one offset means one history before it."""
        one, other = (dict(read_all(log)) for log in self.logs)
        start = max(log.log_start_offset for log in self.logs)
        end = min(log.log_end_offset for log in self.logs)
        same = [o for o in range(start, end) if self.leader.epochs.epoch_at(o) == self.follower.epochs.epoch_at(o)]
        upto = max(same, default=start - 1)
        assert [one[offset] for offset in range(start, upto + 1)] == [other[o] for o in range(start, upto + 1)]
        for log, found in ((self.leader, one), (self.follower, other)):
            for offset, value in found.items():
                if value != b"second":
                    assert int((value or b"").split(b"/")[0]) == log.epochs.epoch_at(offset)

    def teardown(self) -> None:
        for log in getattr(self, "logs", ()):
            log.abandon()


TestFollowerMachine = FollowerMachine.TestCase
