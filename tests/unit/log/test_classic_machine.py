"""The classic log against a plain bytearray: append, flush, crash, power cut, open again, retain, truncate, read."""

import shutil
import tempfile
import weakref
from collections.abc import Callable

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.classic_frames import entry, gzip_wrapper, message_set
from support.classic_logs import open_classic, put_set

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.durability import FlushWork
from barnabas.core.traffic.steps import complete
from barnabas.ports.storage import LogDir
from barnabas.testing.logs import bytes_of

_payloads = st.lists(st.binary(max_size=30), min_size=1, max_size=4)
_sets = st.one_of(
    _payloads.map(lambda payloads: message_set(*payloads)),
    _payloads.map(lambda payloads: gzip_wrapper(*payloads)),
    _payloads.map(lambda payloads: b"".join(entry(payload, magic=0) for payload in payloads)),
)


class ClassicLogMachine(RuleBasedStateMachine):
    """`data` is the whole log since position 0; `ends` is where sets end, `visible_end` where readers stop."""

    def __init__(self) -> None:
        super().__init__()
        self.reopen = self.fresh()
        self.log_dir = self.reopen()
        self.now_ms = 1000
        self.data = bytearray()
        self.start = 0
        self.visible_end = 0
        self.last_base = 0
        self.work: FlushWork | None = None
        self.target = 0
        self.ends = [0]

    def fresh(self) -> Callable[[], LogDir]:
        disk = MemoryDisk(now_ms=lambda: 0)
        return lambda: MemoryLogDir(disk)

    @initialize(
        config=st.builds(
            LogConfig,
            segment_bytes=st.sampled_from([14, 60, 500]),
            segment_ms=st.sampled_from([10, 10**9]),
            retention_ms=st.just(-1),
        )
    )
    def begin(self, config: LogConfig) -> None:
        self.config = config
        self._open(recover=True)

    def _open(self, *, recover: bool) -> None:
        self.work = None
        self.log = open_classic(
            self.log_dir.folder("t-0"),
            recover=recover,
            log_start_offset=self.start,
            now_ms=self.now_ms,
            config=self.config,
        )

    def _take_note_of_rolls(self) -> None:
        """A roll flushes what the sealed segment has."""
        base = self.log.segments[-1].base_offset
        if base > self.last_base:
            self.visible_end = max(self.visible_end, base)
        self.last_base = base

    @rule(records=_sets, cut=st.integers(0, 12))
    def append(self, records: bytes, cut: int) -> None:
        self.now_ms += 3
        tail = entry(b"cut")[:cut]
        assert put_set(self.log, records + tail, now_ms=self.now_ms) == len(self.data)
        self.data += records
        self.ends.append(len(self.data))
        self._take_note_of_rolls()

    @rule()
    def begin_flush(self) -> None:
        if self.work is None:
            self.work = self.log.flushes.begin_flush(self.now_ms)
            self.target = len(self.data)

    @rule()
    def end_flush(self) -> None:
        if self.work is not None:
            self.work()
            self.log.flushes.end_flush(self.work)
            self.work = None
            self.visible_end = max(self.visible_end, min(self.target, len(self.data)))

    @rule()
    def flush(self) -> None:
        self.log.flushes.now(self.now_ms)
        self.visible_end = len(self.data)

    @rule(share=st.floats(0, 1), limit_share=st.floats(0, 2), max_bytes=st.integers(0, 100))
    def read(self, share: float, limit_share: float, max_bytes: int) -> None:
        offset = self.start + int((self.visible_end - self.start) * share)
        limit = int(self.visible_end * limit_share)
        found = bytes_of(self.log, offset, max_bytes=max_bytes, limit=limit)
        end = min(limit, self.visible_end, offset + max_bytes)
        assert found == self.data[offset : offset + len(found)]
        bases = [segment.base_offset for segment in self.log.segments if segment.base_offset > offset]
        assert len(found) == max(0, min([end, *bases[:1]]) - offset)
        assert self.log.available_bytes(offset, limit, 10**9) == max(0, min(limit, self.visible_end) - offset)

    @rule(size=st.integers(0, 400))
    def retain(self, size: int) -> None:
        self.log.update_config(evolve(self.log.config, retention_bytes=size))
        above_start = self.log.log_end_offset - self.start
        for segment in complete(self.log.retain(self.now_ms, self.log.readable_end)):
            segment.delete()
        assert self.log.size_bytes >= min(above_start, size)
        assert self.start <= self.log.log_start_offset <= self.visible_end
        self.start = self.log.log_start_offset
        self.log.update_config(evolve(self.log.config, retention_bytes=-1))
        self._take_note_of_rolls()

    @rule(share=st.floats(0, 1))
    def advance_log_start(self, share: float) -> None:
        self.start += int((self.visible_end - self.start) * share)
        self.log.advance_log_start(self.start)

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        ends = [end for end in self.ends if end >= self.start]
        if not ends:
            return
        end = ends[int((len(ends) - 1) * share)]
        self.log.truncate_to(end, self.now_ms)
        if end < len(self.data):
            self.target = 0  # a flush that is under way does not count
            self._cut(end)
        self.last_base = self.log.segments[-1].base_offset

    def _cut(self, end: int) -> None:
        del self.data[end:]
        self.ends = [each for each in self.ends if each <= end]
        self.visible_end = min(self.visible_end, end)

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(self.now_ms)
        self.log_dir.close()
        self.log_dir = self.reopen()
        self._open(recover=False)
        self.visible_end = len(self.data)

    @rule()
    def kill_and_start(self) -> None:
        self.log.abandon()
        self._open(recover=True)
        self.visible_end = len(self.data)

    @rule(share=st.floats(0, 1), garbage=st.binary(max_size=8))
    def cut_power_and_start(self, share: float, garbage: bytes) -> None:
        """Lose a part of the unflushed bytes, and tear the end."""
        base = self.log.segments[-1].base_offset
        self.log.abandon()
        cut_end = self.visible_end + int((len(self.data) - self.visible_end) * share)
        file = self.log_dir.folder("t-0").open(f"{base:020d}.kafka")
        file.truncate(cut_end - base)
        file.append(bytes(4) + garbage)
        file.close()
        self._open(recover=True)
        end = self.log.log_end_offset
        assert self.visible_end <= end <= len(self.data), "zeros may be what was there"
        self._cut(end)
        self.visible_end = end

    @invariant()
    def is_what_the_bytes_are(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, len(self.data))
        assert log.readable_end == self.visible_end
        found = bytearray()
        while self.start + len(found) < self.visible_end:
            found += bytes_of(log, self.start + len(found))
        assert found == self.data[self.start : self.visible_end]
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.abandon()
        self.log_dir.close()


class FileClassicLogMachine(ClassicLogMachine):
    def fresh(self) -> Callable[[], LogDir]:
        path = tempfile.mkdtemp(prefix="barnabas-log-")

        def reopen() -> LogDir:
            return open_log_dir(path, open_files_max=4)

        weakref.finalize(reopen, shutil.rmtree, path)
        return reopen


TestClassicLogMachine = ClassicLogMachine.TestCase
TestFileClassicLogMachine = FileClassicLogMachine.TestCase
