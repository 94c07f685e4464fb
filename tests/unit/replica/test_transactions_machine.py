"""Transactions on three replicas under any faults in any order, ended by a coordinator that retries until it is done.

Readers of committed messages, at any replica, get those of a committed transaction in order, once they may be
seen, and never one of the others. (All of it comes at once unless another one that is open lies between, as in Kafka.)
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from support.replica_cluster import KEY, Member

from barnabas.core.client.consumer.fetch_position import filter_aborted
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.message.batch_header import parse_header
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.broker_api.produce import ProducePartition
from barnabas.ports.broker_api.transactions import TxnMarker
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.logs import numbered

from .test_replica_manager_machine import ReplicasMachine

_producers = st.integers(0, 1)


class _Transaction:
    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.committed: bool | None = None
        """The decision of the coordinator."""


class _Producer:
    """One transactional id, with its coordinator, which loses nothing."""

    def __init__(self, number: int) -> None:
        self.id = 100 + number
        self.epoch = 0
        self.sequence = 0
        self.unacknowledged: list[bytes] = []
        self.now: _Transaction | None = None
        self.ended: list[_Transaction] = []

    @property
    def is_ending(self) -> bool:
        return self.now is not None and self.now.committed is not None


class TransactionsMachine(ReplicasMachine):
    def __init__(self) -> None:
        super().__init__()
        self.producers = [_Producer(0), _Producer(1)]
        self.made = 0

    def _leader(self) -> Member | None:
        leader = self.cluster.state.leader
        return self.cluster[leader] if leader > 0 and self.cluster[leader].alive else None

    @rule(number=_producers)
    def send(self, number: int) -> None:
        """Another message of its transaction, or once more one that was not acknowledged."""
        producer, leader = self.producers[number], self._leader()
        if leader is None or producer.is_ending:
            return
        if producer.now is None:
            producer.now = _Transaction()
        if not producer.unacknowledged:
            self.made += 1
            producer.unacknowledged.append(b"%d:%d" % (producer.id, self.made))
            producer.now.values += producer.unacknowledged
        observed: list[ErrorCode] = []
        identity: dict[str, Any] = {"producer": producer.id, "epoch": producer.epoch, "sequence": producer.sequence}
        entry = ProducePartition("t", 0, numbered(*producer.unacknowledged, **identity, transactional=True))
        leader.replicas.append(
            [entry],
            lambda results: observed.extend(each.error for each in results),  # type: ignore[union-attr]
            acks=-1,
            timeout_ms=50,
            origin=AppendOrigin.TRANSACTION,
        )
        self.let_time_pass(60)
        if observed == [ErrorCode.NONE]:
            producer.unacknowledged.clear()
            producer.sequence += 1

    @rule(number=_producers, committed=st.booleans())
    def decide(self, number: int, committed: bool) -> None:
        """End a transaction; an incomplete one can only be aborted, and the producer starts again."""
        producer = self.producers[number]
        if producer.now is None or producer.is_ending:
            return
        producer.now.committed = committed and not producer.unacknowledged
        if producer.unacknowledged:
            producer.unacknowledged.clear()
            producer.epoch, producer.sequence = producer.epoch + 1, 0

    @rule(number=_producers)
    def end(self, number: int) -> None:
        producer, leader = self.producers[number], self._leader()
        if leader is None or producer.now is None or producer.now.committed is None:
            return
        observed: list[ErrorCode] = []
        marker = TxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=producer.now.committed,
            partitions=[KEY],
        )
        leader.replicas.markers.write([marker], lambda done: observed.append(done[0].partitions[0].error), 50)
        self.let_time_pass(60)
        if observed == [ErrorCode.NONE]:
            producer.ended.append(producer.now)
            producer.now = None

    @rule(number=_producers, count=st.integers(1, 3), committed=st.booleans())
    def whole_transaction_on_good_days(self, number: int, count: int, committed: bool) -> None:
        self._recover()
        self.end(number)
        for _ in range(count):
            self.send(number)
        self.decide(number, committed)
        self.end(number)

    def kill(self, broker_id: int, power: bool) -> None:
        """One disk that loses what was not flushed may be any; two could lose what was acknowledged."""
        losing = power and set(self.cluster.state.isr) == {1, 2, 3} and len(self.cluster.live) == 3
        super().kill(broker_id, losing)
        if losing:
            self._recover()

    kill = rule(broker_id=st.integers(1, 3), power=st.booleans())(kill)

    # --- what must hold

    def _committed_at(self, member: Member) -> list[bytes]:
        """Read as a consumer of committed messages does there."""
        found: list[bytes] = []
        offset: int = member.log.log_start_offset
        while True:
            records, aborted = member.partition.read_committed(offset, 300, whole_first_batch=True)
            content = records if isinstance(records, bytes | bytearray | memoryview) else records.read()
            batches, position = [], 0
            while position + 61 <= len(content) and position + parse_header(content, position).size <= len(content):
                batches.append((position, parse_header(content, position)))
                position += batches[-1][1].size
            if not batches:
                return found
            for place, header in filter_aborted(list(batches), content, aborted):
                found += [each.value or b"" for each in MessageSet(content[place : place + header.size], NO_CODECS)]
            offset = batches[-1][1].next_offset

    @invariant()
    def readers_see_committed_transactions(self) -> None:
        for member in self.cluster.live:
            seen = self._committed_at(member)
            assert len(seen) == len(set(seen))
            for producer in self.producers:
                for each in (*producer.ended, *([producer.now] if producer.now is not None else [])):
                    visible = [value for value in each.values if value in seen]
                    assert not visible or each.committed, (each.values, seen)
                    assert visible == each.values[: len(visible)], (each.values, seen)

    def teardown(self) -> None:
        for _ in range(3):
            self._recover()
            self.let_time_pass(3000)
            for number in (0, 1):
                self.decide(number, True)
                self.end(number)
        assert all(producer.now is None for producer in self.producers)
        self.let_time_pass(3000)
        seen = [self._committed_at(member) for member in self.cluster.live]
        assert seen[0] == seen[1] == seen[2]
        for producer in self.producers:
            for each in producer.ended:
                assert [value for value in each.values if value in seen[0]] == (each.values if each.committed else [])
        for member in self.cluster.live:
            assert member.partition.last_stable_offset == member.partition.high_watermark == member.log.log_end_offset


TestTransactionsMachine = TransactionsMachine.TestCase
TestTransactionsMachine.settings = settings(stateful_step_count=30, deadline=None)
