"""Transactions against a plain list of what was appended, over stops, kills, power cuts, cuts and lost files.

Readers of committed records see, in order, all plain messages and all of committed transactions, and nothing of aborted
ones, up to the first offset that is not decided.
"""

import random

from attrs import define
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.adapters.system import SeededEntropy
from barnabas.core.client.consumer.fetch_position import filter_aborted
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import parse_header
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.control_records import read_marker
from barnabas.core.message.message_set import MessageSet
from barnabas.core.traffic.steps import complete
from barnabas.ports.broker_api.fetch import AbortedTransaction
from barnabas.ports.storage import Folder
from barnabas.simulation.disk import FaultyDisk
from barnabas.testing.logs import batch, numbered, open_log

PRODUCERS = 3
PLAIN, DATA, COMMIT, ABORT = range(4)
_producers = st.integers(0, PRODUCERS - 1)


@define
class Item:
    """A batch in the log."""

    offset: int
    kind: int
    values: list[bytes]
    producer: int = -1

    @property
    def next_offset(self) -> int:
        return self.offset + max(1, len(self.values))


@define
class Transaction:
    producer: int
    first: int
    marker: int = -1
    committed: bool = False


class TransactionMachine(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        segment_bytes=st.sampled_from([250, 600, 10**6]),
        interval=st.sampled_from([0, 200]),
    )
    def begin(self, seed: int, segment_bytes: int, interval: int) -> None:
        self.random = random.Random(seed)
        self.disk = FaultyDisk(SeededEntropy(seed), lambda: 0)
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
        self.items: list[Item] = []
        self.start = 0
        self.epochs = [0] * PRODUCERS
        self.made = 0
        self.log_dir = self.disk.open()
        self.log = self._open(recover=True)

    def _open(self, *, recover: bool, recovery_point: int = 0) -> UnifiedLog:
        return open_log(
            self.folder(),
            recover=recover,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            config=self.config,
            now_ms=1000,
        )

    def folder(self) -> Folder:
        return self.log_dir.folder("t-0")

    # --- what is done

    def _values(self, count: int) -> list[bytes]:
        self.made += count
        return [b"%d" % (self.made - number) for number in range(count)]

    @rule(count=st.integers(1, 3))
    def plain(self, count: int) -> None:
        values = self._values(count)
        appended = self.log.append(batch(*values), leader_epoch=0, now_ms=1000)
        self.items.append(Item(appended.base_offset, PLAIN, values))

    @rule(producer=_producers, count=st.integers(1, 3))
    def send(self, producer: int, count: int) -> None:
        known = self.log.producers.producers.get(producer)
        epoch = self.epochs[producer] = max(self.epochs[producer], known.epoch if known is not None else 0)
        sequence = known.last_sequence + 1 if known is not None and known.epoch == epoch else 0
        values = self._values(count)
        records = numbered(*values, producer=producer, epoch=epoch, sequence=sequence, transactional=True)
        appended = self.log.append(records, leader_epoch=0, now_ms=1000, origin=AppendOrigin.TRANSACTION)
        self.items.append(Item(appended.base_offset, DATA, values, producer))

    @rule(producer=_producers, committed=st.booleans(), fences=st.booleans())
    def end(self, producer: int, committed: bool, fences: bool) -> None:
        """End a transaction, or none; a coordinator may raise the epoch by it."""
        known = self.log.producers.producers.get(producer)
        self.epochs[producer] = max(self.epochs[producer], known.epoch if known is not None else 0) + fences
        appended = self.log.append_marker(producer, self.epochs[producer], committed, 0, leader_epoch=0, now_ms=1000)
        self.items.append(Item(appended.base_offset, COMMIT if committed else ABORT, [], producer))

    @rule()
    def flush(self) -> None:
        work = self.log.flushes.begin_flush(0)
        if work is not None:
            work()
            self.log.flushes.end_flush(work)

    @rule()
    def stop_and_start(self) -> None:
        before = self._states()
        self.log.close()
        self.log = self._open(recover=False)
        assert self._states().items() >= before.items()  # recovery may have left a snapshot unread that is read now

    @rule(from_recovery_point=st.booleans())
    def kill(self, from_recovery_point: bool) -> None:
        recovery_point = self.log.recovery_point if from_recovery_point else 0
        self.log.abandon()
        self.log = self._open(recover=True, recovery_point=recovery_point)

    @rule(from_recovery_point=st.booleans())
    def cut_power(self, from_recovery_point: bool) -> None:
        recovery_point = self.log.recovery_point if from_recovery_point else 0
        durable = self.log.recovery_point
        self.disk.power_cut()
        self.log_dir = self.disk.open()
        self.log = self._open(recover=True, recovery_point=recovery_point)
        assert self.log.log_end_offset >= durable
        self._reload_records()

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        self.log.truncate_to(self.start + int((self.log.log_end_offset - self.start) * share), 1000)
        self._forget_from(self.log.log_end_offset)

    def _reload_records(self) -> None:
        """Accept truncated records that are present again: truncations are not durable at once."""
        self.items = []
        for segment in self.log.segments:
            for position, header in segment.batches():
                content = segment.region(position, header.size).read()
                values = [message.value or b"" for message in MessageSet(content, NO_CODECS)]
                if header.control:
                    marker = read_marker(content, header)
                    assert marker is not None
                    self.items.append(
                        Item(header.base_offset, COMMIT if marker.committed else ABORT, [], header.producer_id)
                    )
                else:
                    kind = DATA if header.transactional else PLAIN
                    self.items.append(Item(header.base_offset, kind, values, header.producer_id))

    def _forget_from(self, end: int) -> None:
        first = self.log.segments[0].base_offset  # a log that is cut below its start starts again
        self.items = [item for item in self.items if item.next_offset <= end and item.next_offset > first]
        assert not self.items or self.items[-1].next_offset == end or end == self.start

    @rule(share=st.floats(0, 1))
    def forget_old_records(self, share: float) -> None:
        self.log.advance_log_start(int(self.log.log_end_offset * share))
        for segment in complete(self.log.retain(0, self.log.log_start_offset)):
            segment.delete()
        self.start = self.log.log_start_offset
        self.items = [item for item in self.items if item.next_offset > self.log.segments[0].base_offset]

    @rule(suffix=st.sampled_from([".snapshot", ".index", ".timeindex"]))
    def lose_files(self, suffix: str) -> None:
        self.log.close()
        for name in [name for name in self.folder().files() if name.endswith(suffix)]:
            if self.random.random() < 0.5:
                self.folder().delete(name)
                if suffix == ".index":
                    self.folder().delete(name.replace(".index", ".txnindex"))
        self.log = self._open(recover=False)

    @rule(content=st.sampled_from([b"\0", b"\xff" * 34, b"\0" * 34, b"\0" * 68]))
    def damage_indexes(self, content: bytes) -> None:
        self.log.close()
        for name in [name for name in self.folder().files() if name.endswith(".txnindex")]:
            file = self.folder().open(name)
            if file.size and self.random.random() < 0.5:
                file.truncate(self.random.choice([0, file.size]))
                file.append(content)
            file.close()
        self.log = self._open(recover=False)

    # --- what is known

    def _states(self) -> dict[int, tuple[int, int, int, int]]:
        return {
            number: (each.epoch, each.last_sequence, each.txn_first_offset, each.coordinator_epoch)
            for number, each in self.log.producers.producers.items()
        }

    def _transactions(self) -> list[Transaction]:
        """By the list; of some the beginning may be gone."""
        found: list[Transaction] = []
        open_now: dict[int, Transaction] = {}
        for item in self.items:
            if item.kind == DATA and item.producer not in open_now:
                open_now[item.producer] = Transaction(item.producer, item.offset)
                found.append(open_now[item.producer])
            elif item.kind in (COMMIT, ABORT) and item.producer in open_now:
                ended = open_now.pop(item.producer)
                ended.marker, ended.committed = item.offset, item.kind == COMMIT
        return found

    def _expected(self, start: int, upto: int) -> list[tuple[int, bytes]]:
        transactions = self._transactions()
        found = []
        for item in self.items:
            if item.kind == DATA:
                mine = [each for each in transactions if each.producer == item.producer and each.first <= item.offset]
                if not mine[-1].committed:
                    continue
            if item.kind in (PLAIN, DATA):
                found += list(enumerate(item.values, item.offset))
        return [(offset, value) for offset, value in found if start <= offset < upto]

    def _read_committed(self, start: int, upto: int, max_bytes: int) -> list[tuple[int, bytes | None]]:
        """Read as a consumer, with the aborted transactions of each fetch."""
        found: list[tuple[int, bytes | None]] = []
        offset = start
        while offset < upto:
            observed = self.log.read(offset, max_bytes=max_bytes, limit=upto)
            content = observed.records if isinstance(observed.records, bytes) else observed.records.read()
            entries = self.log.transactions.aborted_in(offset, observed)
            aborted = [AbortedTransaction(each.producer_id, each.first_offset) for each in entries]
            batches, position = [], 0
            while position + 61 <= len(content) and position + parse_header(content, position).size <= len(content):
                batches.append((position, parse_header(content, position)))
                position += batches[-1][1].size
            assert batches
            for place, header in filter_aborted(batches, content, aborted):
                messages = MessageSet(content[place : place + header.size], NO_CODECS)
                found += [(each.offset, each.value) for each in messages if each.offset >= offset]
            offset = batches[-1][1].next_offset
        return found

    @invariant()
    def readers_see_what_is_decided(self) -> None:
        if not hasattr(self, "log"):
            return
        end = self.log.log_end_offset
        first = self.log.transactions.first_unstable_offset(end)
        transactions = [each for each in self._transactions() if each.marker < 0]
        stable = end if first is None else max(first, self.start)
        # A log that has forgotten how a transaction began knows where the rest of it begins.
        assert stable <= max(min([each.first for each in transactions], default=end), self.start)
        remaining = [
            min(item.offset for item in self.items if item.producer == each.producer and item.offset >= each.first)
            for each in transactions
        ]
        assert stable >= min([*remaining, end]) or stable == self.start
        start = self.random.choice([self.start, self.start + (stable - self.start) // 2])
        max_bytes = self.random.choice([1, 300, 10**6])
        assert self._read_committed(start, stable, max_bytes) == self._expected(start, stable)

    @invariant()
    def the_index_has_what_was_aborted(self) -> None:
        if not hasattr(self, "log"):
            return
        wanted = {
            (each.producer, each.marker)
            for each in self._transactions()
            if each.marker >= self.start and not each.committed
        }
        found = [(each.producer_id, each.last_offset) for each in self.log.transactions.aborted(self.start, 1 << 40)]
        assert len(found) == len(set(found))
        assert wanted <= set(found)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(stateful_step_count=30, deadline=None)
