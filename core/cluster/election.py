"""Who leads a partition: rules from a state to the next one (facts D2, D5; KIP-966). Nothing is stored here.

They rest on this: every committed message is on all members of the ISR that the state shows, and still on those that
left it while it was smaller than min.insync.replicas, since the high watermark stands still then. A replica counts in
the life (broker epoch) in which it was in sync, and in the next one if nothing was lost in between. What may have lost
messages leads only when there is nobody else, and when as many of such replicas have told what they have as the cluster
promises to survive: one of them has all that was committed, and it is the one with the longest log.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve

from ...ports.values import frozen
from .topics import NO_LEADER, UNKNOWN_EPOCH, BrokerRegistration, LogClaim, PartitionState, ReplicaId

Brokers = Mapping[int, BrokerRegistration]


@frozen(kw_only=True)
class ElectionRules:
    """What the configuration of a topic says: `min.insync.replicas`, `unclean.leader.election.enable`."""

    min_isr: int = 1
    unclean: bool = False

    def enough(self, replicas: Sequence[int]) -> int:
        """How many replicas in sync make a message committed: no more than there are."""
        return min(self.min_isr, len(replicas))


class _Liveness:
    """How the members of a state stand to the brokers that live."""

    def __init__(self, state: PartitionState, brokers: Brokers) -> None:
        self._epochs = state.broker_epochs
        self._brokers = brokers

    def lives_on(self, member: int) -> bool:
        """It is still the broker that was in sync."""
        broker = self._brokers.get(member)
        return broker is not None and self._epochs.get(member, UNKNOWN_EPOCH) == broker.broker_epoch

    def came_back(self, member: int) -> bool:
        """It is the next life of that broker, and has all that it had."""
        broker, known = self._brokers.get(member), self._epochs.get(member, UNKNOWN_EPOCH)
        return broker is not None and known != UNKNOWN_EPOCH and broker.previous_epoch == known

    def is_in_doubt(self, member: int) -> bool:
        """It is a later life, which may have lost something."""
        return member in self._brokers and not (self.lives_on(member) or self.came_back(member))

    def stays(self, member: int) -> bool:
        """It lives on and is not about to stop."""
        return self.lives_on(member) and not self._brokers[member].leaving

    def epoch(self, member: int) -> int:
        """Of its present life; of the one in which it was in sync, if it does not live or is in doubt."""
        if member in self._brokers and not self.is_in_doubt(member):
            return self._brokers[member].broker_epoch
        return self._epochs.get(member, UNKNOWN_EPOCH)


def new_state(replicas: Sequence[int], brokers: Brokers, *, leader_epoch: int = 0) -> PartitionState:
    """Of a partition that is made now: all its replicas that live are in sync, the first of them leads."""
    live = tuple(member for member in replicas if member in brokers)
    return PartitionState(
        leader=live[0] if live else NO_LEADER,
        leader_epoch=leader_epoch,
        isr=live or tuple(replicas[:1]),
        broker_epochs={member: brokers[member].broker_epoch for member in live},
    )


def with_isr(
    state: PartitionState,
    isr: Iterable[ReplicaId],
    replicas: Sequence[int],
    brokers: Brokers,
    rules: ElectionRules,
) -> PartitionState:
    """The state with this ISR. Who leaves one that is too small to commit anything stays eligible, or a suspect."""
    epochs = {each.broker_id: each.broker_epoch for each in isr}
    liveness = _Liveness(state, brokers)
    elr: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    if len(epochs) < rules.enough(replicas):
        left = [each for each in state.members if each not in epochs and each in replicas]
        doubtful = {each for each in left if each in state.suspects or liveness.is_in_doubt(each)}
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
    """The state after an election: the next leader epoch."""
    in_sync = [ReplicaId(each, brokers[each].broker_epoch) for each in isr]
    led = evolve(state, leader=leader, leader_epoch=state.leader_epoch + 1)
    return with_isr(led, in_sync, replicas, brokers, rules)


def settled(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState | None:
    """What the controller makes of a state, given who lives; None: it is as it should be."""
    liveness = _Liveness(state, brokers)
    after: PartitionState | None
    if state.leader in replicas and liveness.lives_on(state.leader) and state.leader in state.isr:
        after = _with_leader(state, replicas, brokers, rules, liveness)
    else:
        after = _elected(state, replicas, brokers, rules, liveness)
        if after is None and state.leader != NO_LEADER:
            after = evolve(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
    if after is None or after == state:
        return None
    return later(after, state)


def later(after: PartitionState, known: PartitionState) -> PartitionState:
    """The state as the next one after `known`."""
    return evolve(after, partition_epoch=known.partition_epoch + 1)


def may_join(replica: ReplicaId, brokers: Brokers) -> bool:
    """True if a replica may come into an ISR: its broker lives, in this life, and is not about to stop."""
    broker = brokers.get(replica.broker_id)
    return broker is not None and broker.broker_epoch == replica.broker_epoch and not broker.leaving


def _with_leader(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules, liveness: _Liveness
) -> PartitionState:
    """Those who are not there any more leave the ISR, those who are about to stop too; the leader last."""
    leader = state.leader
    stay = [each for each in state.isr if each in replicas and liveness.stays(each)]
    if leader in stay:
        return with_isr(state, _lives(stay, brokers), replicas, brokers, rules)
    if stay:
        return led_by(state, _first(replicas, stay), stay, replicas, brokers, rules)
    return with_isr(state, _lives([leader], brokers), replicas, brokers, rules)


def _elected(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules, liveness: _Liveness
) -> PartitionState | None:
    """The state with a new leader; None: nobody can lead."""
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
    if rules.unclean:
        anyone = next((each for each in replicas if each in brokers), None)
        if anyone is not None:
            return uncleanly_led(state, anyone, replicas, brokers, rules)
    return None


def uncleanly_led(
    state: PartitionState, leader: int, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState:
    """Any replica leads, whatever it lacks: what the others have besides is given up."""
    forgotten = evolve(state, isr=(), elr=(), suspects=(), broker_epochs={})
    return led_by(forgotten, leader, [leader], replicas, brokers, rules)


def _longest(state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules) -> int | None:
    """Who has most of those who may have lost something, once enough of them have told.

    Replicas that were not in sync are heard as well, if they are there: one may have kept what all members lost.
    """
    members = [each for each in state.members if each in replicas]
    if len(replicas) == 1 and members and members[0] in brokers:
        return members[0]
    heard = {each for each in replicas if each in brokers}
    told = {
        each: claim
        for each, claim in state.claims.items()
        if each in heard and claim.broker_epoch == brokers[each].broker_epoch
    }
    enough = min(rules.enough(replicas), len(members))
    if heard != told.keys() or sum(each in told for each in members) < enough:
        return None
    order = {each: number for number, each in enumerate(replicas)}

    def rank(each: int) -> tuple[int, int, bool, int]:
        return told[each].last_epoch, told[each].log_end, each in members, -order.get(each, len(order))

    best = max(told, key=rank)
    absent = [claim for each, claim in state.claims.items() if each in replicas and each not in heard]
    if any((claim.last_epoch, claim.log_end) > rank(best)[:2] for claim in absent):
        return None  # one that has told, and is away now, is known to have more
    return best


def wants_claim(state: PartitionState, replicas: Sequence[int], own: ReplicaId) -> bool:
    """True if the partition waits for what this replica has to tell."""
    if state.leader != NO_LEADER or own.broker_id not in replicas or len(replicas) == 1:
        return False
    known = state.claims.get(own.broker_id)
    return known is None or known.broker_epoch != own.broker_epoch


def claimed(state: PartitionState, own: ReplicaId, last_epoch: int, log_end: int) -> PartitionState:
    """The state with what this replica has."""
    claims = {**state.claims, own.broker_id: LogClaim(own.broker_epoch, last_epoch, log_end)}
    return later(evolve(state, claims=claims), state)


def told_most(state: PartitionState, member: int) -> bool:
    """True if nobody who has told what it has is known to have more than this replica."""
    claims = {each: (claim.last_epoch, claim.log_end) for each, claim in state.claims.items()}
    return member in claims and claims[member] == max(claims.values())


def preferred(
    state: PartitionState, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState | None:
    """The state led by the first replica; None: it leads already, or is not in sync."""
    return moved_to(state, replicas[0], replicas, brokers, rules)


def moved_to(
    state: PartitionState, leader: int, replicas: Sequence[int], brokers: Brokers, rules: ElectionRules
) -> PartitionState | None:
    """The state led by another member of the ISR; None: it leads already, or is not in sync."""
    liveness = _Liveness(state, brokers)
    if leader == state.leader or leader not in state.isr or not liveness.stays(leader):
        return None
    in_sync = [each for each in state.isr if liveness.stays(each)]
    return later(led_by(state, leader, in_sync, replicas, brokers, rules), state)


def _lives(members: Iterable[int], brokers: Brokers) -> list[ReplicaId]:
    return [ReplicaId(each, brokers[each].broker_epoch) for each in members]


def _first(replicas: Sequence[int], among: Sequence[int]) -> int:
    """By the order of the assignment."""
    return next((each for each in replicas if each in among), among[0])
