"""Three replicas under any faults in any order: what was acknowledged survives, and logs that agree are one history."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.replica_cluster import Member, ReplicaCluster

from barnabas.core.log.config import LogConfig
from barnabas.ports.broker_api.produce import ProduceResultPartition
from barnabas.ports.error_codes import ErrorCode

MIN_ISR = 2
_brokers = st.integers(1, 3)


class _Sent:
    """A message whose acknowledgement is awaited, or has come."""

    def __init__(self, value: bytes, observed: list[ProduceResultPartition]) -> None:
        self.value = value
        self.observed = observed
        self.in_sync: set[int] | None = None
        """The replicas in sync since the acknowledgement; None: it was not acknowledged."""
        self.offset = -1
        self.lost_by: set[int] = set()
        """The brokers whose power was cut since."""


class ReplicasMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        config = LogConfig(min_insync_replicas=MIN_ISR, segment_bytes=400, index_interval_bytes=100)
        self.cluster = ReplicaCluster(3, config=config)
        self.sent: list[_Sent] = []
        self.high_watermarks: dict[tuple[int, int], int] = {}

    def _member(self, broker_id: int) -> Member:
        return self.cluster[broker_id]

    # --- what happens

    @rule(broker_id=_brokers, count=st.integers(1, 4))
    def produce(self, broker_id: int, count: int) -> None:
        member = self._member(broker_id)
        if member.alive:
            for _ in range(count):
                value = b"%d" % len(self.sent)
                self.sent.append(_Sent(value, member.produce(value)))
        self._note_acknowledged()

    @rule(count=st.integers(1, 3), ms=st.sampled_from([1, 5, 50]))
    def produce_to_the_leader(self, count: int, ms: int) -> None:
        if self.cluster.state.leader > 0:
            self.produce(self.cluster.state.leader, count)
            self.let_time_pass(ms)

    @rule(count=st.integers(1, 3))
    def produce_on_good_days(self, count: int) -> None:
        """All faults are over for a while."""
        self._recover()
        self.produce_to_the_leader(count, 50)

    @rule(kills=st.lists(st.tuples(_brokers, st.booleans()), min_size=1, max_size=2))
    def kill_the_leader_and_elect(self, kills: list[tuple[int, bool]]) -> None:
        leader = self.cluster.state.leader
        if leader > 0:
            self.kill(leader, kills[0][1])
            self.control()
            for broker_id, power in kills[1:]:
                self.kill(broker_id, power)

    @rule(ms=st.sampled_from([1, 5, 50, 500, 3000]))
    def let_time_pass(self, ms: int) -> None:
        for _ in range(5):
            self.cluster.run(ms / 5)
            self._note_acknowledged()

    @rule()
    def control(self) -> None:
        self.cluster.run_until_idle()
        self.let_time_pass(5)

    @rule(broker_id=_brokers, power=st.booleans())
    def kill(self, broker_id: int, power: bool) -> None:
        if self._member(broker_id).alive:
            self.cluster.kill(broker_id, power=power)
            self._note_acknowledged()
            for each in self.sent if power else ():
                each.lost_by.add(broker_id)

    @rule(broker_id=_brokers)
    def start(self, broker_id: int) -> None:
        if not self._member(broker_id).alive:
            self.cluster.start(broker_id)

    @rule(broker_id=_brokers)
    def expire(self, broker_id: int) -> None:
        if broker_id in self.cluster.brokers:
            self.cluster.expire(broker_id)

    @rule(broker_id=_brokers)
    def register_again(self, broker_id: int) -> None:
        if self._member(broker_id).alive and broker_id not in self.cluster.brokers:
            self.cluster.register_again(broker_id)

    @rule(broker_id=_brokers)
    def isolate(self, broker_id: int) -> None:
        self.cluster.isolate(broker_id)

    @rule(one=_brokers, other=_brokers)
    def cut(self, one: int, other: int) -> None:
        if one != other:
            self.cluster.cut.add(frozenset((one, other)))

    @precondition(lambda self: self.cluster.cut)
    @rule()
    def heal(self) -> None:
        self.cluster.heal()

    @rule(broker_id=_brokers)
    def flush(self, broker_id: int) -> None:
        member = self._member(broker_id)
        if member.alive:
            member.logs.flush(member.log)
            member.logs.checkpoint()

    # --- what must hold

    def _note_acknowledged(self) -> None:
        for each in self.sent:
            if each.in_sync is None and each.observed and each.observed[0].error is ErrorCode.NONE:
                each.in_sync = set()
                each.offset = each.observed[0].base_offset
            if each.in_sync is not None:
                each.in_sync.update(self.cluster.state.isr)

    def _may_be_lost(self, sent: _Sent) -> bool:
        """Return True for an acknowledged message when too many of those who had it have lost power since."""
        return sent.in_sync is not None and len(sent.lost_by & sent.in_sync) >= MIN_ISR

    @invariant()
    def no_epoch_has_two_leaders(self) -> None:
        leaders = [member.partition.leader_epoch for member in self.cluster.live if member.partition.is_leader]
        assert len(leaders) == len(set(leaders))

    @invariant()
    def logs_agree_below_the_high_watermarks(self) -> None:
        seen = [member.visible for member in self.cluster.live]
        longest = max(seen, key=len, default=[])
        agree = all(each == longest[: len(each)] for each in seen)
        assert agree or any(self._may_be_lost(each) for each in self.sent)

    @invariant()
    def the_high_watermark_of_a_life_never_goes_back(self) -> None:
        for member in self.cluster.live:
            life = (member.broker_id, member.life)
            before, now = self.high_watermarks.get(life, 0), member.partition.high_watermark
            # A follower that kept what a whole ISR lost with its power follows that ISR, as in Kafka.
            assert now >= before or any(self._may_be_lost(each) for each in self.sent)
            self.high_watermarks[life] = member.partition.high_watermark

    def _recover(self) -> None:
        cluster = self.cluster
        cluster.heal()
        for member in cluster.members.values():
            if not member.alive:
                cluster.start(member.broker_id)
            elif member.broker_id not in cluster.brokers:
                cluster.register_again(member.broker_id)
        for _ in range(3):
            cluster.run_until_idle()
            cluster.run(300)
            self._note_acknowledged()

    def teardown(self) -> None:
        cluster = self.cluster
        for _ in range(3):
            self._recover()
            self.let_time_pass(3000)
        assert set(cluster.state.isr) == {1, 2, 3}, cluster.state
        logs = [member.values for member in cluster.live]
        assert logs[0] == logs[1] == logs[2]
        for each in self.sent:
            if each.in_sync is not None and not self._may_be_lost(each):
                assert logs[0][each.offset] == each.value, f"{each.value!r} at {each.offset} is lost"
        assert len(logs[0]) == len(set(logs[0])), "nothing twice"


TestReplicasMachine = ReplicasMachine.TestCase
