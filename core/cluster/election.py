"""Rules for the election of leaders: from a partition state to the next one (facts D2, D5; KIP-966). Nothing is stored
here.

The rules rest on this: every committed message is on all members of the ISR in the state, and still on the replicas
that left it while it was smaller than min.insync.replicas, since the high watermark stands still then. The members of a
state are all of these replicas. A replica counts in the broker epoch in which it was in sync, and in the next one if
nothing was lost in between.

A member that may have lost messages leads only when no other member can, and when min.insync.replicas members have
reported their log ends: one of them has all committed messages, and the one with the longest log has no less. That
holds among members alone. The log of another replica may end with a later leader epoch and lack messages that were
committed since (Raft, figure 8), so it leads only by an unclean election.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from ...ports.values import frozen
from .topics import NO_LEADER, UNKNOWN_EPOCH, BrokerRegistration, LogClaim, PartitionState, ReplicaId

Brokers = Mapping[int, BrokerRegistration]

EPOCHS_LEFT_OUT = 1000
"""More leader epochs than a partition has between a backup of the coordination service and its restoration."""


@frozen(kw_only=True)
class ElectionRules:
    """The configuration of a topic for elections: `min.insync.replicas`, `unclean.leader.election.enable`.

    `is_common`: this `min.insync.replicas` was set for the topic, or for all brokers. Otherwise it is from the file of
    the broker that decides, and the one in a state stays until the brokers of all replicas have the new one.
    """

    min_isr: int = 1
    unclean: bool = False
    is_common: bool = True

    def enough(self, replicas: Sequence[int], state: PartitionState) -> int:
        """Return the number of in-sync replicas that make a message committed in this state."""
        return state.enough_in_sync(replicas, self.min_isr)

    def applied_to(self, state: PartitionState, replicas: Sequence[int], brokers: Brokers) -> PartitionState:
        """Return the state with the present `min.insync.replicas`, if it applies."""
        if state.min_isr == self.min_isr:
            return state
        is_agreed = all(each in brokers and brokers[each].min_isr == self.min_isr for each in replicas)
        if state.min_isr is None or self.is_common or is_agreed:
            return evolve(state, min_isr=self.min_isr)
        return state


class _Liveness:
    """The members of a state compared with the live brokers and their epochs."""

    def __init__(self, state: PartitionState, brokers: Brokers) -> None:
        self._epochs = state.broker_epochs
        self._brokers = brokers

    def lives_on(self, member: int) -> bool:
        """Return True if the member's broker lives, in the epoch in which it was in sync."""
        broker = self._brokers.get(member)
        return broker is not None and self._epochs.get(member, UNKNOWN_EPOCH) == broker.broker_epoch

    def came_back(self, member: int) -> bool:
        """Return True if the member's broker lives in the next epoch after that, and has lost no data in between."""
        broker, known = self._brokers.get(member), self._epochs.get(member, UNKNOWN_EPOCH)
        return broker is not None and known != UNKNOWN_EPOCH and broker.previous_epoch == known

    def may_lack_records(self, member: int) -> bool:
        """Return True if the member's broker lives in a later epoch, and may have lost data."""
        return member in self._brokers and not (self.lives_on(member) or self.came_back(member))

    def stays(self, member: int) -> bool:
        """Return True if the member lives on and is not about to stop."""
        return self.lives_on(member) and not self._brokers[member].leaving

    def epoch(self, member: int) -> int:
        """Return the member's present broker epoch; if it does not live or is in doubt, the one in which it was in
        sync."""
        if member in self._brokers and not self.may_lack_records(member):
            return self._brokers[member].broker_epoch
        return self._epochs.get(member, UNKNOWN_EPOCH)


def new_state(
    replicas: Sequence[int], brokers: Brokers, *, leader_epoch: int = 0, min_isr: int | None = None
) -> PartitionState:
    """Return the state of a new partition: all its live replicas are in sync, and the first of them leads."""
    live = tuple(member for member in replicas if member in brokers)
    return PartitionState(
        leader=live[0] if live else NO_LEADER,
        leader_epoch=leader_epoch,
        isr=live or tuple(replicas[:1]),
        broker_epochs={member: brokers[member].broker_epoch for member in live},
        min_isr=min_isr,
    )


def with_isr(
    state: PartitionState,
    isr: Iterable[ReplicaId],
    replicas: Sequence[int],
    brokers: Brokers,
    rules: ElectionRules,
) -> PartitionState:
    """Return the state with this ISR. A replica that leaves an ISR too small to commit stays eligible, or a suspect."""
    epochs = {each.broker_id: each.broker_epoch for each in isr}
    liveness = _Liveness(state, brokers)
    elr: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    if len(epochs) < rules.enough(replicas, state):
        left = [each for each in state.members if each not in epochs and each in replicas]
        doubtful = {each for each in left if each in state.suspects or liveness.may_lack_records(each)}
        elr = tuple(each for each in left if each not in doubtful)
        suspects = tuple(each for each in left if each in doubtful)
        epochs |= {each: liveness.epoch(each) for each in left}
    return evolve(
        state,
        isr=tuple(each for each in epochs if each not in elr and each not in suspects),
        elr=elr,
        suspects=suspects,
        broker_epochs=epochs,
        claims={} if state.leader != NO_LEADER else state.claims,
    )


def led_by(
    state: PartitionState,
    leader: int,
    isr: Sequence[int],
    replicas: Sequence[int],
    brokers: Brokers,
    rules: ElectionRules,
) -> PartitionState:
    """Return the state after an election, with a leader epoch later than every one that replicas reported."""
    in_sync = [ReplicaId(each, brokers[each].broker_epoch) for each in isr]
    latest = max([state.leader_epoch, *(claim.last_epoch for claim in state.claims.values())])
    led = evolve(rules.applied_to(state, replicas, brokers), leader=leader, leader_epoch=latest + 1)
    return with_isr(led, in_sync, replicas, brokers, rules)


def settled(
    state: PartitionState,
    replicas: Sequence[int],
    brokers: Brokers,
    rules: ElectionRules,
    *,
    is_overdue: bool = False,
) -> PartitionState | None:
    """Return the state that the controller writes for these live brokers; None: nothing has to change.

    `is_overdue`: an unclean election, where that is enabled, no longer waits for replicas that have reported no log
    end.
    """
    liveness = _Liveness(state, brokers)
    after: PartitionState | None
    if state.leader in replicas and liveness.lives_on(state.leader) and state.leader in state.isr:
        after = _with_leader(state, replicas, brokers, rules, liveness)
    else:
        after = _elected(state, replicas, brokers, rules, liveness, is_overdue=is_overdue)
        if after is None and state.leader != NO_LEADER:
            after = evolve(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
    if after is None or after == state:
        return None
    return later(after, state)


def later(after: PartitionState, known: PartitionState) -> PartitionState:
    """Return the state with the partition epoch after that of `known`."""
    return evolve(after, partition_epoch=known.partition_epoch + 1)


def may_join(replica: ReplicaId, brokers: Brokers) -> bool:
    """Return True if a replica may join an ISR: its broker lives, in this broker epoch, and is not about to stop."""
    broker = brokers.get(replica.broker_id)
    return broker is not None and broker.broker_epoch == replica.broker_epoch and not broker.leaving


def _with_leader(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules, liveness: _Liveness
) -> PartitionState:
    """Remove dead and stopping replicas from the ISR of a partition with a live leader; the leader leaves last.

    A changed `min.insync.replicas` is applied with its consequences: a lower one, with which the leader may commit
    alone, removes in the same change the eligibility of replicas that will lack what it commits.
    """
    state = rules.applied_to(state, replicas, brokers)
    leader = state.leader
    stay = [each for each in state.isr if each in replicas and liveness.stays(each)]
    if leader in stay:
        return with_isr(state, _lives(stay, brokers), replicas, brokers, rules)
    if stay:
        return led_by(state, _first(replicas, stay), stay, replicas, brokers, rules)
    return with_isr(state, _lives([leader], brokers), replicas, brokers, rules)


def _elected(
    state: PartitionState,
    replicas: Sequence[int],
    brokers: Brokers,
    rules: ElectionRules,
    liveness: _Liveness,
    *,
    is_overdue: bool,
) -> PartitionState | None:
    """Return the state with a new leader; None: no replica can lead, or not yet."""
    alive = [each for each in state.isr if each in replicas and liveness.lives_on(each)]
    in_sync = [each for each in alive if liveness.stays(each)] or alive
    if in_sync:
        return led_by(state, _first(replicas, in_sync), in_sync, replicas, brokers, rules)
    eligible = [each for each in (*state.isr, *state.elr) if each in replicas]
    complete = [each for each in eligible if liveness.lives_on(each) or liveness.came_back(each)]
    if complete:
        leader = _first(replicas, complete)
        return led_by(state, leader, [leader], replicas, brokers, rules)
    longest = _longest(state, replicas, brokers, rules)
    if longest is not None:
        return led_by(state, longest, [longest], replicas, brokers, rules)
    if awaits_unclean_election(state, brokers, rules) and (
        is_overdue or len(live_claims(state, replicas, brokers)) == len(replicas)
    ):
        best = best_known(state, replicas, brokers)
        if best is not None:
            return uncleanly_led(state, best, replicas, brokers, rules)
    return None


def awaits_unclean_election(state: PartitionState, brokers: Brokers, rules: ElectionRules) -> bool:
    """Return True if the partition has no leader, and an unclean election may give it one."""
    return rules.unclean and state.leader == NO_LEADER and bool(brokers)


def best_known(state: PartitionState, replicas: Sequence[int], brokers: Brokers) -> int | None:
    """Return the live replica with the longest reported log, or without reports the first live one; None: no replica
    lives. This is for an unclean election: the replica may lack committed messages."""
    claims = live_claims(state, replicas, brokers)
    if claims:
        return max(claims, key=lambda each: (*claims[each].extent, each in state.members, -replicas.index(each)))
    return next((each for each in replicas if each in brokers), None)


def asked_to_elect(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState | None:
    """Return the state after an election that an operator requested: an unclean one only if no clean one is possible.

    None: the partition has a leader, or no replica lives.
    """
    if state.leader != NO_LEADER:
        return None
    clean = settled(state, replicas, brokers, evolve(rules, unclean=False))
    if clean is not None and clean.leader != NO_LEADER:
        return clean
    best = best_known(state, replicas, brokers)
    return None if best is None else later(uncleanly_led(state, best, replicas, brokers, rules), state)


def awaited_claims(state: PartitionState, replicas: Sequence[int], brokers: Brokers) -> list[int]:
    """Return the live replicas of a partition without a leader that have not reported their log ends yet."""
    lives = (ReplicaId(each, brokers[each].broker_epoch) for each in replicas if each in brokers)
    return [each.broker_id for each in lives if wants_claim(state, replicas, each)]


def describe_loss(state: PartitionState, replicas: Sequence[int], brokers: Brokers) -> str | None:
    """Describe the loss for which a partition has no leader although its members are back: they have lost their logs.
    None: there is another reason, or a leader."""
    if state.leader != NO_LEADER or not state.claims:
        return None
    members = [each for each in state.members if each in replicas]
    claims = live_claims(state, members, brokers)
    if not claims or not all(each.lost for each in claims.values()):
        return None
    if any(each in brokers and each not in claims for each in members):
        return None
    known = live_claims(state, replicas, brokers)
    others = [
        f"the log of broker {each}, which was not in sync, ends at offset {claim.log_end}"
        for each, claim in known.items()
        if each not in claims
    ]
    others += [f"broker {each} is not alive" for each in replicas if each not in brokers]
    lost = "the disk of broker" if len(claims) == 1 else "the disks of brokers"
    text = f"{lost} {', '.join(map(str, sorted(claims)))} lost messages that were in sync"
    return ", and ".join([text, *others])


def uncleanly_led(
    state: PartitionState, leader: int, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState:
    """Return the state led by any replica, whatever it lacks: messages that only the others have are lost."""
    forgotten = evolve(state, isr=(), elr=(), suspects=(), broker_epochs={})
    return led_by(forgotten, leader, [leader], replicas, brokers, rules)


def _longest(state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules) -> int | None:
    """Return the member with the longest log, once enough members that may have lost data have reported their log ends.

    The log of a replica that is no member does not count: each member had every committed message, and lost only the
    end of its log since, so the longest of these logs is complete if one of them is. If all members have lost messages,
    that no longer holds: one leads only if every replica has reported its log end, and none has a longer log. A single
    replica leads whatever it has, since no other could have more.
    """
    members = [each for each in state.members if each in replicas]
    if len(replicas) == 1 and members and members[0] in brokers:
        return members[0]
    claims = live_claims(state, members, brokers)
    enough = len(members) if _knows_no_life(state) else min(rules.enough(replicas, state), len(members))
    if not claims or len(claims) < enough or any(each in brokers and each not in claims for each in members):
        return None
    best = max(claims, key=lambda each: (*claims[each].extent, -replicas.index(each)))
    absent = [claim for each, claim in state.claims.items() if each in members and each not in brokers]
    if any(claim.extent > claims[best].extent for claim in absent):
        return None  # a member with a longer reported log is not alive now
    if all(claim.lost for claim in claims.values()):
        known = live_claims(state, replicas, brokers)
        if len(known) < len(replicas) or any(claim.extent > claims[best].extent for claim in known.values()):
            return None
    return best


def live_claims(state: PartitionState, among: Iterable[int], brokers: Brokers) -> Mapping[int, LogClaim]:
    """Return the claims of these replicas that their brokers made in their present broker epochs."""
    return {
        each: state.claims[each]
        for each in among
        if each in state.claims and each in brokers and state.claims[each].broker_epoch == brokers[each].broker_epoch
    }


def distrusted(
    state: PartitionState, replicas: Sequence[int], own: ReplicaId, last_epoch: int, log_end: int
) -> PartitionState:
    """Return the state of a partition whose later states the coordination service has lost, as this replica found out.

    The replicas that were in sync are unknown then. So the partition has no leader until all replicas have reported
    their log ends, or an unclean election decides. Leaders that wrote nothing left their epochs in no log, but clients
    have seen them, and refuse metadata with an earlier one: so some epochs are left out.
    """
    others = tuple(each for each in replicas if each != own.broker_id)
    after = evolve(
        state,
        leader=NO_LEADER,
        leader_epoch=max(state.leader_epoch, last_epoch) + EPOCHS_LEFT_OUT,
        isr=(own.broker_id,),
        elr=(),
        suspects=others,
        broker_epochs={},
        claims={own.broker_id: LogClaim(own.broker_epoch, last_epoch, log_end)},
    )
    return later(after, state)


def is_distrusted(state: PartitionState, replicas: Sequence[int]) -> bool:
    """Return True if every replica is a member, and it is unknown of all of them in which life they were in sync."""
    return set(replicas) <= set(state.members) and _knows_no_life(state)


def _knows_no_life(state: PartitionState) -> bool:
    """Return True if the state does not say of any member in which life it was in sync: each may be the only one."""
    return all(state.broker_epochs.get(each, UNKNOWN_EPOCH) == UNKNOWN_EPOCH for each in state.members)


def wants_claim(state: PartitionState, replicas: Sequence[int], own: ReplicaId) -> bool:
    """Return True if the partition waits for the log end report of this replica."""
    if state.leader != NO_LEADER or own.broker_id not in replicas or len(replicas) == 1:
        return False
    known = state.claims.get(own.broker_id)
    return known is None or known.broker_epoch != own.broker_epoch


def claimed(
    state: PartitionState, own: ReplicaId, last_epoch: int, log_end: int, *, lost: bool = False
) -> PartitionState:
    """Return the state with the log end report of this replica; `lost`: it lacks messages that it had when it was in
    sync."""
    claims = {**state.claims, own.broker_id: LogClaim(own.broker_epoch, last_epoch, log_end, lost)}
    return later(evolve(state, claims=claims), state)


def preferred(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState | None:
    """Return the state led by the first replica; None: it leads already, or is not in sync."""
    return moved_to(state, replicas[0], replicas, brokers, rules)


def moved_to(
    state: PartitionState, leader: int, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState | None:
    """Return the state led by another member of the ISR; None: it leads already, or is not in sync."""
    liveness = _Liveness(state, brokers)
    if leader == state.leader or leader not in state.isr or not liveness.stays(leader):
        return None
    in_sync = [each for each in state.isr if liveness.stays(each)]
    return later(led_by(state, leader, in_sync, replicas, brokers, rules), state)


def _lives(members: Iterable[int], brokers: Brokers) -> list[ReplicaId]:
    return [ReplicaId(each, brokers[each].broker_epoch) for each in members]


def _first(replicas: Sequence[int], among: Sequence[int]) -> int:
    """Return the first of these replicas in the order of the assignment."""
    return next((each for each in replicas if each in among), among[0])
