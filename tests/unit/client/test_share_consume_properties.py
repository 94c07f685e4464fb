"""Two share consumers against brokers that follow a script, in any order of events: what each record comes to."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.long_tests import examples
from support.plain_cluster import PlainCluster
from support.share_group_script import ShareGroupScript
from support.share_member import LOCK_MS, Member

from barnabas.core.client.share.share_consume_request_manager import ShareInFlightBatch
from barnabas.ports.broker_api.share_groups import AcknowledgeType, ShareAcknowledge, ShareFetch
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
FINAL = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
Record = tuple[TopicPartition, int]


class ShareConsumers(RuleBasedStateMachine):
    """Explicit mode. Records that were finally acknowledged, with success, never come again."""

    @initialize()
    def begin(self) -> None:
        self.cluster = PlainCluster(brokers=2, t=len(PARTITIONS))
        self.group: ShareGroupScript | None = None
        self.members: list[Member] = []
        for seed in (1, 2):
            member = Member(self.cluster, self.group, seed=seed, implicit=False, max_poll_records=4)
            if self.members:
                member.clock = self.members[0].clock
            member.on_note = partial(self.note_fetched, member)
            self.members.append(member)
            self.group = member.group
            member.join()
        self.held: list[dict[Record, ShareInFlightBatch]] = [{}, {}]
        self.decided: list[dict[Record, AcknowledgeType]] = [{}, {}]
        self.lost_locks: Counter[TopicPartition] = Counter()
        self.fetched: dict[ShareInFlightBatch, int] = {}
        """The number of times that the partition had lost its locks when the batch was fetched."""
        self.done: set[Record] = set()
        self.deliveries: Counter[Record] = Counter()

    # --- what users do

    @rule(member=st.integers(0, 1))
    def read_batch(self, member: int) -> None:
        self.poll(member)
        machine = self.members[member]
        batch = machine.manager.next_batch(machine.now)
        if batch is None:
            return
        assert batch.session.lost is None
        assert machine.now < batch.lock_until_ms
        while batch.decode_more():
            pass
        is_locked = self.fetched.get(batch) == self.lost_locks[batch.tp]
        for message in batch.messages:
            record = (batch.tp, message.offset)
            if is_locked:
                assert record not in self.done
                assert message.delivery_count > self.deliveries[record]
            self.deliveries[record] = max(self.deliveries[record], message.delivery_count)
            self.held[member][record] = batch
        machine.manager.finish_batch(batch, machine.now)

    @rule(member=st.integers(0, 1), data=st.data())
    def acknowledge(self, member: int, data: st.DataObject) -> None:
        machine, held = self.members[member], self.held[member]
        if not held:
            return
        record = data.draw(st.sampled_from(sorted(held)))
        kind = data.draw(st.sampled_from([*FINAL, AcknowledgeType.RENEW]))
        if kind is AcknowledgeType.RENEW:
            batch = held[record]
        else:
            batch = held.pop(record)
            self.decided[member][record] = kind
        machine.manager.acknowledge(batch, (record[1],), kind, machine.now)

    @rule(member=st.integers(0, 1))
    def commit(self, member: int) -> None:
        self.members[member].commit()
        self.note_results()

    # --- what happens to them

    @rule(tp=st.sampled_from(PARTITIONS), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
    def produce(self, tp: TopicPartition, sizes: list[int]) -> None:
        assert self.group is not None
        self.group.fill(tp, *sizes)

    @rule(ms=st.sampled_from([10, 200, 10_000, LOCK_MS + 1]))
    def wait(self, ms: int) -> None:
        if ms * 4 > LOCK_MS:
            self.count_lost_locks(lambda _tp: True)
        self.members[0].clock.advance(ms)
        for member in (0, 1):
            self.poll(member)

    @rule(broker=st.integers(1, 2))
    def lose_connections(self, broker: int) -> None:
        self.drop_sessions(broker)

    @rule(kind=st.sampled_from([ShareFetch, ShareAcknowledge]))
    def lose_request(self, kind: Any) -> None:
        """The broker never gets it; the connection, and with it the session, is gone."""

        left = [kind]

        def lose(broker: int, request: Any) -> TransportError | None:
            if not left or not isinstance(request, left[0]):
                return None
            left.clear()
            self.drop_sessions(broker)
            return TransportError("it is gone")

        self.cluster.script(lose)

    @rule(tp=st.sampled_from(PARTITIONS), broker=st.integers(1, 2))
    def move(self, tp: TopicPartition, broker: int) -> None:
        assert self.group is not None
        self.count_lost_locks(lambda each: each == tp)
        self.group.move(tp, broker)

    @rule(code=st.sampled_from([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]))
    def disturb(self, code: ErrorCode) -> None:
        assert self.group is not None
        self.group.acknowledge_errors.append(code)

    @rule()
    def forget_members(self) -> None:
        assert self.group is not None
        self.group.epochs.clear()

    # --- what must be true

    @invariant()
    def note_results(self) -> None:
        """Take the results; what was finally acknowledged with success must stay so."""
        for number, machine in enumerate(getattr(self, "members", ())):
            results = machine.manager.results
            while results:
                tp, offsets, error = results.popleft()
                for offset in offsets:
                    kind = self.decided[number].pop((tp, offset), None)
                    if error is None and kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
                        self.done.add((tp, offset))

    def drop_sessions(self, broker: int) -> None:
        assert self.group is not None
        self.count_lost_locks(lambda tp: self.cluster.leader(tp) == broker)
        self.group.drop_sessions(broker)

    def count_lost_locks(self, concerned: Callable[[TopicPartition], bool]) -> None:
        """The locks of what was fetched of these partitions may be gone, before a user gets it."""
        self.lost_locks.update(filter(concerned, PARTITIONS))

    def note_fetched(self, member: Member) -> None:
        for batch in member.manager.ready:
            self.fetched.setdefault(batch, self.lost_locks[batch.tp])

    def poll(self, member: int) -> None:
        """Let a user wait for records, as long as nothing comes at once."""
        machine = self.members[member]
        machine.membership.polled(machine.now)
        machine.manager.wants = True
        machine.run_until_idle()
        machine.manager.wants = False
        machine.manager.failures.clear()
        self.note_results()

    def teardown(self) -> None:
        """Check that a member can still finish every record."""
        if not hasattr(self, "members"):
            return
        assert self.group is not None
        self.group.acknowledge_errors.clear()
        for _ in range(200):
            if all(self.group.all_done(tp) for tp in PARTITIONS):
                break
            self.count_lost_locks(lambda _tp: True)
            self.members[0].clock.advance(LOCK_MS // 4)
            for member in (0, 1):
                self.read_batch(member)
                machine, held = self.members[member], self.held[member]
                for record, batch in held.items():
                    self.decided[member][record] = AcknowledgeType.ACCEPT
                    machine.manager.acknowledge(batch, (record[1],), AcknowledgeType.ACCEPT, machine.now)
                held.clear()
                machine.commit()
                self.note_results()
                assert not self.decided[member]
        assert all(self.group.all_done(tp) for tp in PARTITIONS)
        for machine in self.members:
            machine.finish()
            assert not machine.manager._sessions


TestShareConsumers = ShareConsumers.TestCase
TestShareConsumers.settings = settings(max_examples=examples(300), stateful_step_count=40, deadline=None)
