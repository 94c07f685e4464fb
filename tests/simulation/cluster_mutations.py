"""Bugs that the code of a cluster could have: each is one decision, made otherwise. The story has to find every one."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import define, evolve

from barnabas.core.cluster import election
from barnabas.core.cluster.election import ElectionRules
from barnabas.core.cluster.topics import PartitionState
from barnabas.core.coordinator.log_loader import _Reading
from barnabas.core.log.producer_state import ProducerStates
from barnabas.core.replica import append
from barnabas.core.replica.delayed_produce import Required
from barnabas.core.replica.followers import NO_BOUND, Followers
from barnabas.core.replica.insync import InSync
from barnabas.core.replica.isolation import FetchIsolation
from barnabas.core.replica.partition import Partition


@define(frozen=True)
class Mutation:
    """`says`: the words, one of which the story must begin its complaint with."""

    make: Callable[[pytest.MonkeyPatch], None]
    says: frozenset[str]
    kinds: tuple[str, ...] = ()
    """The disasters that it takes; none: all of them."""

    @property
    def story(self) -> dict[str, Any]:
        """How the story is to be played."""
        return {"kinds": self.kinds} if self.kinds else {}

    @property
    def name(self) -> str:
        return self.make.__name__


def elects_outside_the_isr(patch: pytest.MonkeyPatch) -> None:
    """Whoever lives leads."""

    def elected(
        state: PartitionState, replicas: Sequence[int], brokers: Any, rules: ElectionRules, _standing: Any
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
    """Broker epochs fence nobody."""
    patch.setattr(election._Liveness, "lives_on", lambda self, member: member in self._brokers)


def believes_the_first_that_tells(patch: pytest.MonkeyPatch) -> None:
    """Of replicas that may have lost something the first to come back leads."""
    patch.setattr(election, "_longest", lambda state, replicas, brokers, rules: next(iter(state.claims), None))


def shrinks_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """The high watermark waits no more for who is about to be taken out of the ISR."""
    check = InSync.check

    def checked(self: InSync, partition: Partition, now_ms: float) -> bool:
        risen = check(self, partition, now_ms)
        followers = partition.followers
        if followers is not None and partition.is_leader:
            for member in followers.lagging(partition.log.log_end_offset, now_ms - self._lag_time_max_ms):
                followers._isr.pop(member, None)
            followers.recount()
        return partition.in_sync_changed() or risen

    patch.setattr(InSync, "check", checked)


def forgets_the_slowest_in_sync(patch: pytest.MonkeyPatch) -> None:
    """The high watermark waits for all of the ISR but one."""

    def recount(self: Followers) -> None:
        ends = sorted(self._by_id[each].log_end for each in self._isr if each in self._by_id)
        self.low = ends[-1] if ends else NO_BOUND

    patch.setattr(Followers, "recount", recount)


def commits_with_too_few_in_sync(patch: pytest.MonkeyPatch) -> None:
    """The high watermark rises however small the ISR is (before KIP-966)."""
    patch.setattr(Partition, "under_min_isr", False)


def serves_groups_without_having_read_their_partition(patch: pytest.MonkeyPatch) -> None:
    """A coordinator begins where the log ends."""
    begin = _Reading.__init__

    def begun(self: Any, partition: Partition, loading: Any, now_ms: float) -> None:
        begin(self, partition, loading, now_ms)
        self.offset = partition.log.log_end_offset

    patch.setattr(_Reading, "__init__", begun)


def cuts_nothing_off(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader has otherwise."""
    patch.setattr(Partition, "diverging", lambda *_: None)


def takes_repeated_batches_again(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether a batch of an idempotent producer was there before."""
    patch.setattr(ProducerStates, "check", lambda *_: None)


def answers_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered when the leader has it."""

    class AtOnce(Required):
        def reached(self) -> bool:
            return True

    patch.setattr(append, "Required", AtOnce)


def lets_consumers_read_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    def end_for(self: Partition, _isolation: FetchIsolation) -> int:
        return self.log.readable_end

    patch.setattr(Partition, "end_for", end_for)


LEADERS_CHANGE = ("partition", "pause", "expire", "lose_coordination")
LOSSES = ("power_cut", "lose_disk", "pause", "partition")
MUTATIONS = (
    Mutation(elects_outside_the_isr, frozenset({"election"})),
    Mutation(keeps_the_leader_epoch, frozenset({"race", "two leaders", "epoch"})),
    Mutation(takes_a_restarted_broker_for_in_sync, frozenset({"lost", "commit", "race", "epoch"})),
    Mutation(believes_the_first_that_tells, frozenset({"election", "lost"})),
    Mutation(shrinks_before_it_is_stored, frozenset({"commit", "lost"})),
    Mutation(forgets_the_slowest_in_sync, frozenset({"commit", "lost"})),
    Mutation(commits_with_too_few_in_sync, frozenset({"commit", "lost"}), LOSSES),
    Mutation(serves_groups_without_having_read_their_partition, frozenset({"group"}), LEADERS_CHANGE),
    Mutation(cuts_nothing_off, frozenset({"disagreement", "epoch", "lost", "commit"}), LEADERS_CHANGE),
    Mutation(takes_repeated_batches_again, frozenset({"twice"})),
    Mutation(answers_before_it_is_committed, frozenset({"acknowledged"})),
    Mutation(lets_consumers_read_what_is_not_committed, frozenset({"inconsistent", "consumer", "group"})),
)
