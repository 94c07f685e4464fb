"""The log against a list: append, read, roll, retain, truncate, flush, stop and start, kill and start."""

import shutil
import tempfile
import weakref
from collections.abc import Callable

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.traffic.steps import complete
from barnabas.ports.storage import LogDir
from barnabas.testing.logs import batch, bytes_of, messages_in, open_log, read_all

Record = tuple[int, int, bytes]
"""(offset, timestamp, value)."""


_times = st.lists(st.integers(-5, 5), min_size=3, max_size=3)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.reopen = self.fresh()
        self.log_dir = self.reopen()
        self.now_ms = 1000
        self.records: list[Record] = []
        self.batch_starts: list[int] = []
        self.start = 0
        self.end = 0
        self.reports: list[str] = []

    def fresh(self) -> Callable[[], LogDir]:
        disk = MemoryDisk(now_ms=lambda: 0)
        return lambda: MemoryLogDir(disk)

    @initialize(
        config=st.builds(
            LogConfig,
            segment_bytes=st.sampled_from([150, 400, 1000]),
            index_interval_bytes=st.sampled_from([0, 100, 300]),
            segment_index_bytes=st.sampled_from([24, 10_000]),
            segment_ms=st.sampled_from([10, 10**9]),
            retention_ms=st.just(-1),
        )
    )
    def begin(self, config: LogConfig) -> None:
        self.config = config
        self._open(recover=True)

    def _open(self, *, recover: bool, recovery_point: int = 0) -> None:
        self.log = open_log(
            self.log_dir.folder("t-0"),
            recover=recover,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            now_ms=self.now_ms,
            config=self.config,
            report=self.reports.append,
        )

    @rule(
        values=st.lists(st.binary(max_size=20), min_size=1, max_size=3), times=st.lists(st.integers(-5, 5), min_size=3)
    )
    def append(self, values: list[bytes], times: list[int]) -> None:
        self.now_ms += 3
        stamps = [self.now_ms + time for time, _ in zip(times, values, strict=False)]
        appended = self.log.append(batch(*values, timestamps=stamps), leader_epoch=1, now_ms=self.now_ms)
        assert (appended.base_offset, appended.last_offset) == (self.end, self.end + len(values) - 1)
        self.batch_starts.append(self.end)
        self.records += [
            (self.end + number, stamp, value) for number, (stamp, value) in enumerate(zip(stamps, values, strict=True))
        ]
        self.end += len(values)

    def _expected(self, start: int, upto: int) -> list[tuple[int, bytes]]:
        return [(offset, value) for offset, _, value in self.records if start <= offset < upto]

    @rule(share=st.floats(0, 1), limit_share=st.floats(0, 1), max_bytes=st.integers(1, 500))
    def read(self, share: float, limit_share: float, max_bytes: int) -> None:
        offset = self.start + int((self.end - self.start) * share)
        limit = offset + int((self.end - offset) * limit_share)
        if limit not in self.batch_starts:
            limit = self.end
        found = messages_in(bytes_of(self.log, offset, max_bytes=max_bytes, limit=limit))
        wanted = [pair for pair in found if pair[0] >= offset]
        assert wanted == self._expected(offset, limit)[: len(wanted)]
        assert wanted or offset == limit
        ready = self.log.available_bytes(offset, limit, 10**9)
        assert (ready > 0) == (offset < limit)

    @rule(time=st.integers(-50, 50))
    def by_time(self, time: int) -> None:
        target = self.now_ms + time
        expected = next(((t, o, 1) for o, t, _ in self.records if t >= target and o >= self.start), None)
        assert complete(self.log.times.find_first_at(target)) == expected

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        self.log.truncate_to(offset, self.now_ms)
        if offset < self.end:
            starts = [start for start in self.batch_starts if start <= offset]
            self.end = max(starts[-1] if starts else offset, self.start)
            self.records = [record for record in self.records if record[0] < self.end]
            self.batch_starts = [start for start in self.batch_starts if start < self.end]

    @rule(share=st.floats(0, 1))
    def advance_log_start(self, share: float) -> None:
        self.start += int((self.end - self.start) * share)
        self.log.advance_log_start(self.start)

    @rule(size=st.integers(0, 2000), share=st.floats(0, 1))
    def retain(self, size: int, share: float) -> None:
        high_watermark = self.start + int((self.end - self.start) * share)
        self.log.update_config(evolve(self.config, retention_bytes=size))
        before = self.log.segments
        removed = complete(self.log.retain(self.now_ms, high_watermark))
        assert tuple(removed) == before[: len(removed)]
        for segment in removed:
            segment.delete()
        assert self.start <= self.log.log_start_offset <= max(high_watermark, self.start)
        self.start = self.log.log_start_offset
        self.log.update_config(self.config)

    @rule()
    def flush(self) -> None:
        work = self.log.flushes.begin_flush(self.now_ms)
        if work is not None:
            work()
            self.log.flushes.end_flush(work)
        assert self.log.recovery_point == self.end

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(self.now_ms)
        self.log_dir.close()
        self.log_dir = self.reopen()
        self.reports.clear()
        self._open(recover=False)
        assert not self.reports

    @rule(from_recovery_point=st.booleans())
    def kill_and_start(self, from_recovery_point: bool) -> None:
        recovery_point = self.log.recovery_point if from_recovery_point else 0
        self.log.abandon()
        self._open(recover=True, recovery_point=recovery_point)

    @rule()
    @precondition(lambda self: self.end > self.start)
    def lose_the_indexes(self) -> None:
        self.log.close(self.now_ms)
        folder = self.log_dir.folder("t-0")
        for name in folder.files():
            if name.endswith("index"):
                folder.delete(name)
        self._open(recover=False)

    @invariant()
    def is_what_the_list_is(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert read_all(self.log) == self._expected(self.start, self.end)
        assert self.log.recovery_point <= self.end
        bases = [segment.base_offset for segment in self.log.segments]
        assert bases == sorted(set(bases))

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.abandon()
        self.log_dir.close()


class FileLogMachine(LogMachine):
    def fresh(self) -> Callable[[], LogDir]:
        path = tempfile.mkdtemp(prefix="barnabas-log-")

        def reopen() -> LogDir:
            return open_log_dir(path, open_files_max=4)

        weakref.finalize(reopen, shutil.rmtree, path)
        return reopen


TestLogMachine = LogMachine.TestCase
TestFileLogMachine = FileLogMachine.TestCase
