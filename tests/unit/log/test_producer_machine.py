"""Idempotent producers that send again what they have no answer to, over stops, kills, power cuts and lost snapshots.

No message stands in the log twice, none that was acknowledged is lost, and each producer's come in order. An answer is
an acknowledgement when its message is flushed, as with flush.messages=1.
"""

import random

from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.adapters.system import SeededEntropy
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.traffic.steps import complete
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.simulation.disk import FaultyDisk
from barnabas.testing.logs import numbered, open_log, put, read_all

IN_FLIGHT_MAX = 5
MASK = 0x7FFFFFFF


@define
class Sent:
    """A batch without an acknowledgement."""

    values: tuple[bytes, ...]
    sequence: int


@define
class Writer:
    number: int
    epoch: int = 0
    next_sequence: int = 0
    waiting: list[Sent] = field(factory=list)
    acknowledged: list[bytes] = field(factory=list)
    made: int = 0


_writers = st.integers(0, 2)


class ProducerMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([400, 1000, 10**6]),
        interval=st.sampled_from([0, 200]),
        sequence=st.sampled_from([0, 2**31 - 7]),
    )
    def begin(self, seed: int, segment_bytes: int, interval: int, sequence: int) -> None:
        self.random = random.Random(seed)
        self.disk = FaultyDisk(SeededEntropy(seed), lambda: 0)
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.writers = [Writer(number, next_sequence=sequence) for number in range(3)]
        self.start = 0
        self.log_dir = self.disk.open()
        self.log = self._open(recover=True)

    def _open(self, *, recover: bool, recovery_point: int = 0) -> UnifiedLog:
        folder = self.log_dir.folder("t-0")
        return open_log(
            folder,
            recover=recover,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            config=self.config,
            now_ms=1000,
        )

    def _append(self, writer: Writer, sent: Sent) -> int:
        records = numbered(*sent.values, producer=writer.number, epoch=writer.epoch, sequence=sent.sequence)
        return self.log.append(records, leader_epoch=0, now_ms=1000).base_offset

    @rule(number=_writers, count=st.integers(1, 3), lost=st.booleans())
    def send(self, number: int, count: int, lost: bool) -> None:
        """A new batch; if it was `lost` on the way nothing after it arrives before it is sent again."""
        writer = self.writers[number]
        if len(writer.waiting) >= IN_FLIGHT_MAX:
            return
        values = tuple(b"%d:%d" % (number, writer.made + index) for index in range(count))
        writer.made += count
        writer.waiting.append(Sent(values, writer.next_sequence))
        writer.next_sequence = (writer.next_sequence + count) & MASK
        if not lost and self._knows_all_before(writer):
            end = self.log.log_end_offset
            assert self._append(writer, writer.waiting[-1]) == end

    def _knows_all_before(self, writer: Writer) -> bool:
        present = {value for _, value in read_all(self.log)}
        return all(sent.values[0] in present for sent in writer.waiting[:-1])

    @rule(number=_writers)
    def send_again(self, number: int) -> None:
        """All that waits, in order: what is there keeps its offset, the rest is appended."""
        writer = self.writers[number]
        known = {value: offset for offset, value in read_all(self.log)}
        for sent in writer.waiting:
            offset, end = known.get(sent.values[0]), self.log.log_end_offset
            assert self._append(writer, sent) == (end if offset is None else offset)

    @rule(number=_writers)
    def send_one_again(self, number: int) -> None:
        """A late copy of any batch that waits and is there."""
        writer = self.writers[number]
        known = {value: offset for offset, value in read_all(self.log)}
        there = [sent for sent in writer.waiting if sent.values[0] in known]
        if there:
            sent = self.random.choice(there)
            assert self._append(writer, sent) == known[sent.values[0]]

    @rule(number=_writers)
    def out_of_order(self, number: int) -> None:
        writer = self.writers[number]
        if number not in self.log.producers.producers or len(writer.waiting) >= IN_FLIGHT_MAX:
            return
        gap = Sent((b"never",), (writer.next_sequence + 9) & MASK)
        try:
            self._append(writer, gap)
        except ApiError as error:
            assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            raise AssertionError("a gap was not noticed")

    @rule(number=_writers)
    def new_epoch(self, number: int) -> None:
        """All is acknowledged, and the producer starts again."""
        writer = self.writers[number]
        if not writer.waiting:
            writer.epoch, writer.next_sequence = writer.epoch + 1, 0

    @rule()
    def others(self) -> None:
        put(self.log, b"plain")

    @rule()
    def flush(self) -> None:
        work = self.log.flushes.begin_flush(0)
        if work is not None:
            work()
            self.log.flushes.end_flush(work)
        present = {value for _, value in read_all(self.log)}
        for writer in self.writers:
            while writer.waiting and writer.waiting[0].values[0] in present:
                writer.acknowledged += writer.waiting.pop(0).values

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.log = self._open(recover=False)

    @rule(from_recovery_point=st.booleans())
    def kill(self, from_recovery_point: bool) -> None:
        recovery_point = self.log.recovery_point if from_recovery_point else 0
        self.log.abandon()
        self.log = self._open(recover=True, recovery_point=recovery_point)

    @rule(from_recovery_point=st.booleans())
    def cut_power(self, from_recovery_point: bool) -> None:
        recovery_point = self.log.recovery_point if from_recovery_point else 0
        self.disk.power_cut()
        self.log_dir = self.disk.open()
        self.log = self._open(recover=True, recovery_point=recovery_point)

    @rule(damage=st.booleans())
    def lose_snapshots(self, damage: bool) -> None:
        self.log.close()
        folder = self.log_dir.folder("t-0")
        for name in [name for name in folder.files() if name.endswith(".snapshot")]:
            if self.random.random() < 0.5:
                folder.delete(name)
                if damage:
                    folder.write_small(name, b"\0\1 no snapshot")
        self.log = self._open(recover=False)

    @rule(offset=st.floats(0, 1))
    def forget_old_records(self, offset: float) -> None:
        """Only what everybody has an answer to goes."""
        waiting = {value for writer in self.writers for sent in writer.waiting for value in sent.values}
        limit = min((o for o, value in read_all(self.log) if value in waiting), default=self.log.recovery_point)
        self.log.advance_log_start(int(min(limit, self.log.recovery_point) * offset))
        for segment in complete(self.log.retain(0, self.log.log_start_offset)):
            segment.delete()
        self.start = self.log.log_start_offset
        present = {value for _, value in read_all(self.log)}
        for writer in self.writers:
            writer.acknowledged = [value for value in writer.acknowledged if value in present]

    @invariant()
    def nothing_twice_nothing_lost(self) -> None:
        if not hasattr(self, "log"):
            return
        values = [value for _, value in read_all(self.log) if value is not None]
        numbers = [value for value in values if value != b"plain"]
        assert len(numbers) == len(set(numbers))
        for writer in self.writers:
            mine = [value for value in numbers if value.startswith(b"%d:" % writer.number)]
            wanted = writer.acknowledged + [value for sent in writer.waiting for value in sent.values]
            assert mine == wanted[: len(mine)]
            assert len(mine) >= len(writer.acknowledged)


TestProducerMachine = ProducerMachine.TestCase
TestProducerMachine.settings = settings(stateful_step_count=40, deadline=None)
