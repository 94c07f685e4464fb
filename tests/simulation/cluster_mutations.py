"""Bugs that the code of a cluster could have: each is one decision, made otherwise. The story has to find every one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from attrs import define, evolve
from simulation.cluster_story import ClusterStory
from simulation.transaction_story import TransactionStory

from barnabas.app.broker.handlers import replicas
from barnabas.app.broker.handlers.transactions import TransactionVerifier
from barnabas.app.broker.state.broker_state import BrokerState
from barnabas.core.cluster import broker_lifecycle, controller, election, reassignment, topic_store
from barnabas.core.cluster.broker_lifecycle import BrokerLifecycleManager
from barnabas.core.cluster.election import ElectionRules
from barnabas.core.cluster.lease import Lease
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.core.cluster.topics import PartitionState, ReplicaId
from barnabas.core.coordinator import log as coordinator_log
from barnabas.core.coordinator.group.offsets import GroupOffsets
from barnabas.core.coordinator.log_loader import _Reading
from barnabas.core.coordinator.table import CoordinatorTable
from barnabas.core.coordinator.transaction.transactional_id import TransactionalId
from barnabas.core.log.producers.producer_state import NO_OFFSET, ProducerStates
from barnabas.core.replica.leader import appender
from barnabas.core.replica.leader.delayed_produce import ProducePartitionStatus
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.core.replica.partition.followers import NO_BOUND, Followers
from barnabas.core.replica.partition.isr_manager import IsrManager
from barnabas.core.replica.partition.local_partitions import LocalPartitions
from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.coordination import SessionState, SetNode
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import Offset, TopicPartition
from simulation import cluster_story

SEEDS_MAX = 15


@define(frozen=True)
class Mutation:
    """`says`: the words, one of which the story must begin its complaint with."""

    make: Callable[[pytest.MonkeyPatch], None]
    says: frozenset[str]
    kinds: tuple[str, ...] = ()
    """The disasters that it takes; none: some of them by the seed."""
    acts: tuple[str, ...] = ()
    """The operator's actions; empty: some of them by the seed."""
    lasting: float = 0.0
    settings: Mapping[str, Any] = {}
    """The settings of the brokers."""
    story: Callable[..., Any] = ClusterStory
    quick: bool = False
    """True: it is found soon, so `make test` plays it. `make prove` plays all."""
    first: int = 0
    """The first seed."""
    step: int = 1

    def play(self, number: int) -> None:
        """Play a seed of its story."""
        chosen: Mapping[str, Any] = {"kinds": self.kinds, "acts": self.acts, "lasting": self.lasting}
        own = {key: value for key, value in chosen.items() if value}
        self.story(self.first + self.step * number, **own, **self.settings).play()

    def find(self, patch: pytest.MonkeyPatch) -> int:
        """Make the bug and play seeds until one finds it; print and return how many that took.

        Raises `AssertionError` if `SEEDS_MAX` seeds do not find it.
        """
        patch.setattr(cluster_story, "some_knobs", lambda _: {})  # a bug is looked for where it shows most
        self.make(patch)
        complaints = []
        for number in range(SEEDS_MAX):
            try:
                self.play(number)
            except AssertionError as error:
                complaints.append(" ".join(str(error).split()))
                if complaints[-1].partition(":")[0] in self.says:
                    print(f"{self.name}: found by {number + 1} seeds: {complaints[-1]}")
                    return number + 1
        raise AssertionError(f"{SEEDS_MAX} seeds do not find {self.name}; they complain of {complaints}")

    @property
    def name(self) -> str:
        return self.make.__name__


def by_cost(mutations: Iterable[Mutation]) -> list[Any]:
    """Return parameters of a test: mutations that are not quick are for `make prove` only."""
    return [each if each.quick else pytest.param(each, marks=pytest.mark.slow) for each in mutations]


def elects_outside_the_isr(patch: pytest.MonkeyPatch) -> None:
    """Elect any live replica."""

    def elected(
        state: PartitionState, replicas: Sequence[int], brokers: Any, rules: ElectionRules, *_: Any, **__: Any
    ) -> PartitionState | None:
        live = [each for each in replicas if each in brokers]
        return election.uncleanly_led(state, live[-1], replicas, brokers, rules) if live else None

    patch.setattr(election, "_elected", elected)


def keeps_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    """A new leader leads in the epoch of the one before."""
    led_by = election.led_by

    def led(state: PartitionState, *others: Any) -> PartitionState:
        return evolve(led_by(state, *others), leader_epoch=max(1, state.leader_epoch))

    patch.setattr(election, "led_by", led)


def takes_a_restarted_broker_for_in_sync(patch: pytest.MonkeyPatch) -> None:
    """Ignore broker epochs when fetches are accepted."""
    patch.setattr(election._Liveness, "lives_on", lambda self, member: member in self._brokers)


def elects_the_first_log_end_report(patch: pytest.MonkeyPatch) -> None:
    """Elect the first replica to return of those that may have lost messages."""
    patch.setattr(election, "_longest", lambda state, replicas, brokers, rules: next(iter(state.claims), None))


def shrinks_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """Compute the high watermark without a replica while its removal from the ISR is still pending."""
    maybe_shrink_isr = IsrManager.maybe_shrink_isr

    def shrunk(self: IsrManager, partition: Partition, now_ms: float) -> bool:
        risen = maybe_shrink_isr(self, partition, now_ms)
        state = partition.isr_state
        if partition.followers is not None and partition.is_leader:
            lagging = self.lagging(partition, now_ms - self._lag_time_max_ms)
            state = evolve(state, isr=tuple(each for each in state.isr if each not in lagging))
        return partition.set_isr_state(state) or risen

    patch.setattr(IsrManager, "maybe_shrink_isr", shrunk)


def forgets_the_slowest_in_sync(patch: pytest.MonkeyPatch) -> None:
    """The high watermark waits for all of the ISR but one."""

    def lowest_log_end(self: Followers, isr: Iterable[ReplicaId], _catching_up: Any) -> Offset:
        ends = sorted(self._by_id[each.broker_id].log_end for each in isr if each.broker_id in self._by_id)
        return ends[-1] if ends else NO_BOUND

    patch.setattr(Followers, "lowest_log_end", lowest_log_end)


def commits_with_too_few_in_sync(patch: pytest.MonkeyPatch) -> None:
    """The high watermark rises however small the ISR is (before KIP-966)."""
    patch.setattr(Partition, "under_min_isr", False)


def serves_groups_without_having_read_their_partition(patch: pytest.MonkeyPatch) -> None:
    """A coordinator begins where the log ends."""
    begin = _Reading.__init__

    def begun(self: Any, partition: Partition, *others: Any) -> None:
        begin(self, partition, *others)
        self.offset = partition.log.log_end_offset

    patch.setattr(_Reading, "__init__", begun)


def cuts_nothing_off(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader has otherwise."""
    patch.setattr(Partition, "diverging", lambda *_: None)


def takes_repeated_batches_again(patch: pytest.MonkeyPatch) -> None:
    """Skip the search for duplicate batches of an idempotent producer."""
    patch.setattr(ProducerStates, "check", lambda *_: None)


def answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered when the leader has it."""

    class AtOnce(ProducePartitionStatus):
        def reached(self) -> bool:
            return True

    patch.setattr(appender, "ProducePartitionStatus", AtOnce)


def lets_consumers_read_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    def end_for(self: Partition, _isolation: FetchIsolation) -> int:
        return self.log.readable_end

    patch.setattr(Partition, "end_for", end_for)


# --- elections, and min.insync.replicas


def believes_the_shortest_log(patch: pytest.MonkeyPatch) -> None:
    """Elect the replica with the smallest log of those that report their ends."""

    def shortest(state: PartitionState, _replicas: Any, live: Any, _rules: Any) -> int | None:
        claims = {each: claim for each, claim in state.claims.items() if each in live}
        return min(claims, key=lambda each: claims[each].log_end) if claims else None

    patch.setattr(election, "_longest", shortest)


def keeps_replicas_eligible_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Keep a former ISR member eligible, although enough others are in sync to commit without it."""
    patch.setattr(ElectionRules, "enough", lambda _self, replicas, _state: len(replicas))


def counts_dead_replicas_as_eligible(patch: pytest.MonkeyPatch) -> None:
    """A life that ended in no order counts like one that ended in order."""

    def came_back(self: Any, member: int) -> bool:
        return member in self._brokers

    patch.setattr(election._Liveness, "came_back", came_back)


def says_that_it_stopped_in_order(patch: pytest.MonkeyPatch) -> None:
    """A broker that was killed registers as one that has lost nothing."""
    begin = BrokerLifecycleManager.__init__

    def begun(self: BrokerLifecycleManager, *arguments: Any, **others: Any) -> None:
        begin(self, *arguments, **{**others, "last": evolve(others["last"], in_order=True)})

    patch.setattr(BrokerLifecycleManager, "__init__", begun)


def requires_one_copy(patch: pytest.MonkeyPatch) -> None:
    """The leader does not go by min.insync.replicas."""
    patch.setattr(Partition, "min_isr", property(lambda _self: 1))


def counts_one_more_in_sync_than_there_are(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "under_min_isr", property(lambda self: len(self.isr) + 1 < self.min_isr))


# --- leaders and followers


def leads_with_all_committed(patch: pytest.MonkeyPatch) -> None:
    """The high watermark of a new leader is the end of its log."""
    apply_state = Partition.apply_state

    def applied(self: Partition, *arguments: Any, **others: Any) -> bool:
        before = self.leader_epoch if self.is_leader else -1
        risen = apply_state(self, *arguments, **others)
        if self.is_leader and self.leader_epoch != before and self.followers is not None:
            self.high_watermark = self.log.log_end_offset
        return risen

    patch.setattr(Partition, "apply_state", applied)


def cuts_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower of a new leader cuts its log at its own high watermark, and not where the epochs part (KIP-101)."""
    apply_state = Partition.apply_state

    def applied(self: Partition, *arguments: Any, **others: Any) -> bool:
        before = self.leader_epoch
        risen = apply_state(self, *arguments, **others)
        if not self.is_leader and self.leader >= 0 and 0 <= before < self.leader_epoch:
            self.truncate_to(self.high_watermark, 0)
        return risen

    patch.setattr(Partition, "apply_state", applied)


def counts_followers_of_earlier_lives(patch: pytest.MonkeyPatch) -> None:
    """The leader counts fetches of a follower in any broker epoch, not only in that of the ISR."""

    def lowest_log_end(self: Followers, isr: Iterable[ReplicaId], catching_up: Iterable[ReplicaId]) -> Offset:
        waited = {each.broker_id for each in (*isr, *catching_up)}
        return min((self._by_id[each].log_end for each in waited if each in self._by_id), default=NO_BOUND)

    patch.setattr(Followers, "lowest_log_end", lowest_log_end)


def joins_below_the_start_of_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """A follower comes into the ISR at the leader's high watermark, which may be behind that of the leader before."""
    apply_state = Partition.apply_state

    def applied(self: Partition, *arguments: Any, **others: Any) -> bool:
        risen = apply_state(self, *arguments, **others)
        self.epoch_start_offset = Offset(0)
        return risen

    patch.setattr(Partition, "apply_state", applied)


def takes_the_leaders_high_watermark_as_it_is(patch: pytest.MonkeyPatch) -> None:
    """A follower's high watermark may pass the end of its log."""
    appended = Partition.append_as_follower

    def followed(self: Partition, records: memoryview, *, high_watermark: int, log_start: int, now_ms: int) -> bool:
        risen = appended(self, records, high_watermark=high_watermark, log_start=log_start, now_ms=now_ms)
        self.high_watermark = max(self.high_watermark, Offset(high_watermark))
        return risen

    patch.setattr(Partition, "append_as_follower", followed)


# --- reassignments


def ends_moves_at_once(patch: pytest.MonkeyPatch) -> None:
    """A move does not wait for its new replicas."""

    def finished(topic: Any, image: Any, rules: ElectionRules) -> Any:
        after, states = topic, {}
        for number in sorted({*topic.adding, *topic.removing}):
            key = TopicPartition(topic.name, number)
            target, known, live = reassignment.target_of(topic, number), image.state(key), image.brokers_with(key)
            if target[0] in live:
                after = reassignment._with(after, number, target, (), ())
                states[number] = election.later(election.uncleanly_led(known, target[0], target, live, rules), known)
        return None if after is topic else (after, states)

    patch.setattr(controller, "finished_moves", finished)


def forgets_who_joined_a_replaced_move(patch: pytest.MonkeyPatch) -> None:
    """A move that takes the place of another one deletes at once what that one had added."""
    begin_move = reassignment.begin_move

    def begun(topic: Any, number: int, target: Sequence[int], live: Any) -> Any:
        origin = reassignment.origin_of(topic, number)
        begin_move(topic, number, target, live)  # refuses what it refuses
        going = tuple(broker for broker in origin if broker not in target)
        coming = tuple(broker for broker in target if broker not in origin)
        return reassignment._with(topic, number, (*target, *going), coming, going)

    patch.setattr(reassignment, "begin_move", begun)
    patch.setattr(replicas, "begin_move", begun)


def leaves_replicas_that_moved_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerState, "moved_away", lambda *_: [])


# --- leases


def lease_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Lease, "is_valid", property(lambda _self: True))


def lease_lasts_twice_as_long(patch: pytest.MonkeyPatch) -> None:
    """Count the lease from a later moment than the beginning of the request that renewed the session."""

    def is_valid(self: Lease) -> bool:
        return self._clock.monotonic_ms() < self._until_ms + 2000

    patch.setattr(Lease, "is_valid", property(is_valid))


def lease_outlives_its_session(patch: pytest.MonkeyPatch) -> None:
    """Ignore the end of the session when it is reported."""
    patch.setattr(Lease, "revoke", lambda _self: None)
    patch.setattr(BrokerLifecycleManager, "_in_session", _in_any_session)


def _in_any_session(self: BrokerLifecycleManager, state: SessionState) -> None:
    if not self._is_closed and state is SessionState.CONNECTED:
        self._register()


def serves_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    """Leaders answer as long as they have not heard of another one."""
    patch.setattr(LocalPartitions, "check_led", lambda _self, partition, epoch=-1: partition.check_leader(epoch))


def coordinators_do_not_ask_whether_they_lead(patch: pytest.MonkeyPatch) -> None:
    begin = CoordinatorTable.__init__

    def begun(self: Any, count: int, _leads: Any, *, bad_key: ErrorCode) -> None:
        begin(self, count, lambda _: True, bad_key=bad_key)

    patch.setattr(CoordinatorTable, "__init__", begun)


def coordinators_serve_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """Let a coordinator serve the records it has loaded before they are below the high watermark."""
    patch.setattr(_Reading, "is_committed", True)


def coordinators_answer_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """Let a coordinator answer when its own leader has the write, before it is committed."""
    patch.setattr(coordinator_log, "ALL_IN_SYNC", 1)


# --- transactions, and their verification


def appends_without_verification(patch: pytest.MonkeyPatch) -> None:
    """No coordinator is asked if a partition belongs to the transaction that is written there."""
    patch.setattr(TransactionVerifier, "verify", lambda *arguments: arguments[-1](ErrorCode.NONE))


def verifies_with_its_own_coordinator_only(patch: pytest.MonkeyPatch) -> None:
    """Accept batches whose transactions another broker would have to verify."""
    verify = TransactionVerifier.verify

    def verified(self: TransactionVerifier, transactional_id: str, *others: Any) -> None:
        if self._coordinator_of(transactional_id) != self._own_id:
            others[-1](ErrorCode.NONE)
            return
        verify(self, transactional_id, *others)

    patch.setattr(TransactionVerifier, "verify", verified)


def verifies_whatever_the_partition(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that knows the producer does not look at the partitions of its transaction."""
    patch.setattr(TransactionalId, "verified", lambda _self, request: [ErrorCode.NONE for _ in request.partitions])


def counts_offsets_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    end = GroupOffsets.end
    patch.setattr(GroupOffsets, "end", lambda self, producer_id, **_: end(self, producer_id, committed=True))


def takes_markers_of_deposed_coordinators(patch: pytest.MonkeyPatch) -> None:
    check = ProducerStates.check_marker

    def checked(
        self: ProducerStates, producer_id: int, producer_epoch: int, _coordinator_epoch: int, **others: bool
    ) -> None:
        check(self, producer_id, producer_epoch, LATEST, **others)

    patch.setattr(ProducerStates, "check_marker", checked)


def shows_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """Readers of committed messages read up to the high watermark."""
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def forgets_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """Leave aborted transactions out of the answers for readers of committed messages."""
    read = Partition.read_committed

    def read_all(self: Partition, *arguments: Any, **others: Any) -> Any:
        return read(self, *arguments, **others)[0], ()

    patch.setattr(Partition, "read_committed", read_all)


def ends_no_transaction(patch: pytest.MonkeyPatch) -> None:
    """A marker leaves the transaction open that it ends."""
    end = ProducerStates.end

    def ended(self: ProducerStates, producer_id: int, *others: Any) -> Any:
        known = self._producers.get(producer_id)
        first = NO_OFFSET if known is None else known.txn_first_offset
        if known is not None and first >= 0 and first % 5 == 0:
            known.txn_first_offset = NO_OFFSET
        return end(self, producer_id, *others)

    patch.setattr(ProducerStates, "end", ended)


# --- versions of the tree


def writes_whatever_the_version(patch: pytest.MonkeyPatch) -> None:
    """Write partition states without a comparison of their version."""
    change = topic_store.states_change

    def changed(*arguments: Any) -> Any:
        made = change(*arguments)
        return SetNode(made.path, made.data, None) if isinstance(made, SetNode) else made

    patch.setattr(topic_store, "states_change", changed)


def learns_versions_without_contents(patch: pytest.MonkeyPatch) -> None:
    """A node that was changed in between is written again, by what was known of it before."""
    applied = ClusterRegistry._apply_states

    def version_only(self: ClusterRegistry, name: str, topic_id: bytes, number: int, node: Any) -> Any:
        known = self.image.states_version(name, number)
        if node is None or known is None or node.version <= known:
            return applied(self, name, topic_id, number, node)
        topic = self.image.topics[name]
        old = topic_store.encode_states_node(topic, number, self.image.states_of(name))
        return applied(self, name, topic_id, number, evolve(node, data=old) if node.version % 4 == 0 else node)

    patch.setattr(ClusterRegistry, "_apply_states", version_only)


def keeps_the_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    """States have no order."""
    patch.setattr(election, "later", lambda after, _known: after)


def gives_every_life_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """Registrations are not counted."""
    patch.setattr(broker_lifecycle, "next_broker_epoch", lambda _: 1)


LATEST = 1 << 30
LEADERS_CHANGE = ("partition", "pause", "expire", "lose_coordination")
LOSSES = ("power_cut", "lose_disk", "pause", "partition")
HANGS = ("long_partition", "long_partition", "kill", "restart")
RETURNS = ("kill", "kill", "restart", "stop_all")
SLOW_COPIES = {"replica_fetch_max_bytes": 200, "replica_fetch_response_max_bytes": 400}
MOVES = ("move", "replace_move", "cancel_move")
LOST = frozenset({"lost", "commit", "disagreement", "truncated", "copies"})
GROUP = frozenset({"group", "stale position"})
TRANSACTIONS = frozenset(
    {"exactly once", "half a transaction", "position", "unexpected", "liveness", "inconsistent", "order"}
)
MUTATIONS = (
    Mutation(elects_outside_the_isr, LOST, LOSSES),
    Mutation(keeps_the_leader_epoch, frozenset({"race", "two leaders", "epoch"})),
    Mutation(takes_a_restarted_broker_for_in_sync, frozenset({"lost", "commit", "race", "epoch"})),
    Mutation(elects_the_first_log_end_report, frozenset({"lost", "commit"})),
    Mutation(shrinks_before_it_is_stored, frozenset({"commit", "lost"})),
    Mutation(forgets_the_slowest_in_sync, frozenset({"commit", "lost"}), quick=True),
    Mutation(commits_with_too_few_in_sync, frozenset({"commit", "lost"}), LOSSES),
    Mutation(serves_groups_without_having_read_their_partition, frozenset({"group", "stale position"}), LEADERS_CHANGE),
    Mutation(cuts_nothing_off, frozenset({"disagreement", "epoch", "lost", "commit"}), LEADERS_CHANGE),
    Mutation(takes_repeated_batches_again, frozenset({"twice"})),
    Mutation(answers_before_it_is_committed, frozenset({"acknowledged"}), quick=True),
    Mutation(lets_consumers_read_what_is_not_committed, frozenset({"inconsistent", "consumer", "group"})),
    Mutation(believes_the_shortest_log, LOST, ("kill_all", "kill", "partition")),
    Mutation(keeps_replicas_eligible_for_ever, LOST, ("kill", "restart", "stop_all", "partition")),
    Mutation(counts_dead_replicas_as_eligible, LOST, LOSSES),
    Mutation(says_that_it_stopped_in_order, LOST, ("power_cut", "power_cut", "kill_all")),
    Mutation(requires_one_copy, LOST, LOSSES),
    Mutation(counts_one_more_in_sync_than_there_are, LOST, LOSSES),
    Mutation(leads_with_all_committed, LOST, LEADERS_CHANGE),
    Mutation(cuts_to_the_high_watermark, LOST, ("partition", "pause"), lasting=3.0),
    Mutation(counts_followers_of_earlier_lives, LOST, ("power_cut", "kill", "slow_work")),
    Mutation(
        joins_below_the_start_of_the_epoch,
        LOST | {"stale end"},
        ("restart", "kill", "pause", "stop_all", "partition"),
        lasting=1.5,
        settings=SLOW_COPIES,
        first=25,
    ),
    Mutation(takes_the_leaders_high_watermark_as_it_is, frozenset({"high watermark"})),
    Mutation(ends_moves_at_once, LOST, ("restart", "kill", "pause"), MOVES),
    Mutation(forgets_who_joined_a_replaced_move, LOST, ("kill_program",), ("replace_move",)),
    Mutation(leaves_replicas_that_moved_away, frozenset({"liveness"}), ("restart", "kill", "pause"), MOVES),
    Mutation(lease_never_ends, frozenset({"lease", "stale position"}), LEADERS_CHANGE, quick=True),
    Mutation(serves_without_a_lease, frozenset({"lease", "stale position"}), LEADERS_CHANGE),
    Mutation(lease_lasts_twice_as_long, frozenset({"lease", "stale position"}), LEADERS_CHANGE),
    Mutation(lease_outlives_its_session, frozenset({"lease", "stale position", "leaderless"}), LEADERS_CHANGE),
    Mutation(coordinators_do_not_ask_whether_they_lead, GROUP | {"lease"}, ("lose_coordination",), lasting=5.0),
    Mutation(coordinators_serve_before_it_is_committed, GROUP, LEADERS_CHANGE, first=15),
    Mutation(coordinators_answer_before_it_is_committed, GROUP | {"acknowledged"}),
    Mutation(appends_without_verification, TRANSACTIONS, story=TransactionStory),
    Mutation(
        takes_markers_of_deposed_coordinators,
        TRANSACTIONS,
        ("kill_program",),
        settings={"late_markers": True, "every": 2.0, "version": 1},
        story=TransactionStory,
        first=1,
        step=2,
    ),
    Mutation(verifies_with_its_own_coordinator_only, TRANSACTIONS, story=TransactionStory, first=1, step=2),
    Mutation(verifies_whatever_the_partition, TRANSACTIONS, story=TransactionStory, settings={"version": 1}),
    Mutation(counts_offsets_of_aborted_transactions, TRANSACTIONS, story=TransactionStory),
    Mutation(shows_open_transactions, TRANSACTIONS, story=TransactionStory),
    Mutation(forgets_aborted_transactions, TRANSACTIONS, story=TransactionStory),
    Mutation(ends_no_transaction, TRANSACTIONS, story=TransactionStory),
    Mutation(writes_whatever_the_version, frozenset({"race", "lost", "commit", "two leaders", "liveness"})),
    Mutation(keeps_the_partition_epoch, frozenset({"race", "lost", "commit", "two leaders", "liveness"})),
    Mutation(learns_versions_without_contents, frozenset({"race", "lost", "commit", "two leaders"})),
    Mutation(
        gives_every_life_the_same_epoch,
        frozenset({"race", "lost", "commit", "two leaders", "liveness", "gives up"}),
    ),
)
