"""Partitions that move to other brokers: new replicas come first; when all are in sync the others go (KIP-455).

A replica that goes deletes its log, so every step that lets replicas go asks first whether those that stay have every
committed message.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from attrs import evolve

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import TopicPartition
from . import layout
from .assignment import NO_MACHINES, Machines, Racks, machine_key
from .election import Brokers, ElectionRules, later, settled
from .image import ClusterImage
from .topics import UNKNOWN_EPOCH, PartitionState, Topic, first_state

STATES_NODES_AT_A_TIME = 5


def target_of(topic: Topic, number: int) -> tuple[int, ...]:
    """Return the replicas of a partition after its reassignment."""
    going = topic.removing.get(number, ())
    return tuple(broker for broker in topic.partitions[number] if broker not in going)


def origin_of(topic: Topic, number: int) -> tuple[int, ...]:
    """Return the replicas of a partition before its reassignment."""
    coming = topic.adding.get(number, ())
    return tuple(broker for broker in topic.partitions[number] if broker not in coming)


def is_moving(topic: Topic, number: int) -> bool:
    return number in topic.adding or number in topic.removing


def begin_move(topic: Topic, number: int, target: Sequence[int], live: Collection[int]) -> Topic:
    """Return the topic with a partition on its way to these brokers, the preferred leader first.

    A move may take the place of another one. The replicas that the other move was adding stay, as `removing`, until the
    new target is in sync: they may have the only copies of committed messages. A broker that is in `adding` and in
    `removing` belongs neither to the origin nor to the target. Raises `ApiError(INVALID_REPLICA_ASSIGNMENT)`.
    """
    key = TopicPartition(topic.name, number)
    origin = origin_of(topic, number)
    unknown = sorted(set(target) - set(live) - set(origin))
    fault = ""
    if not target:
        fault = "has no replicas"
    elif len(set(target)) != len(target):
        fault = f"names a broker twice: {list(target)}"
    elif unknown:
        fault = f"names brokers that are not alive: {unknown}"
    if fault:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment of {key} {fault}")
    replicas = tuple(dict.fromkeys((*target, *origin, *topic.partitions[number])))
    coming = tuple(broker for broker in replicas if broker not in origin)
    going = tuple(broker for broker in replicas if broker not in target)
    return _with(topic, number, replicas, coming, going)


def cancel_move(
    topic: Topic, number: int, image: ClusterImage, rules: ElectionRules
) -> tuple[Topic, dict[int, PartitionState]]:
    """Return the topic with a partition where it was before its move, and the states that change with it.

    Raises `ApiError`: NO_REASSIGNMENT_IN_PROGRESS; INVALID_REPLICA_ASSIGNMENT where that would delete the only copies
    of committed messages (Kafka's PartitionReassignmentRevert), unless `unclean.leader.election.enable` allows it.
    """
    key = TopicPartition(topic.name, number)
    if not is_moving(topic, number):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{key} is not moving")
    origin, known, brokers = origin_of(topic, number), image.state(key), image.brokers_with(key)
    if not rules.unclean and not may_keep_only(origin, known, brokers, rules):
        in_sync, needed = sorted(set(live_isr(known, brokers)) & set(origin)), rules.enough(origin, known)
        text = (
            f"cancelling the reassignment of {key} would leave its replicas on the brokers {list(origin)}, of which"
            f" {in_sync} are alive and in sync; committed messages need {needed} of them. Start these"
            f" brokers and wait until they are in the ISR, or reassign {key} to {list(origin)}: then the other"
            " replicas are deleted only when these are in sync"
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    state = settled(known, origin, brokers, rules) or touched(known)
    return _with(topic, number, origin, (), ()), {number: _among(state, origin)}


def _among(state: PartitionState, replicas: Sequence[int]) -> PartitionState:
    """Return the state without members that are no replicas and whose logs are deleted: one that comes again later has
    nothing of what it had when it was in sync.

    Where no member is left in the ISR, it is unknown which replica has most: the members that are left, or all replicas
    if none is, are in doubt, so one of them leads when they have claimed what they have, or uncleanly.
    """
    isr, elr, suspects = (tuple(e for e in some if e in replicas) for some in (state.isr, state.elr, state.suspects))
    if isr:
        return evolve(state, isr=isr, elr=elr, suspects=suspects)
    first, *others = (*elr, *suspects) or tuple(replicas)
    return evolve(state, isr=(first,), elr=(), suspects=tuple(others), broker_epochs={})


def live_isr(state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    """Return the members of the ISR whose brokers live, in the life in which they were in sync."""
    epochs = state.broker_epochs
    return tuple(
        each for each in state.isr if each in brokers and brokers[each].broker_epoch == epochs.get(each, UNKNOWN_EPOCH)
    )


def may_keep_only(staying: Sequence[int], state: PartitionState, brokers: Brokers, rules: ElectionRules) -> bool:
    """Return True if all replicas but `staying` may be deleted without loss of committed messages.

    That holds if `min.insync.replicas` of those that stay are alive and in the ISR, or if the others are members of
    nothing: neither in the ISR, nor eligible, nor suspects.
    """
    if set(state.members) <= set(staying):
        return True
    return len(set(live_isr(state, brokers)) & set(staying)) >= rules.enough(staying, state)


def grown(topic: Topic, wanted: int, racks: Racks, machines: Machines = NO_MACHINES) -> Topic:
    """Return the topic with its partitions moving to `wanted` replicas, as far as there are live machines for them.

    New replicas come last, so that the preferred leaders stay; they go to machines without a replica of the partition,
    to racks without one, and to the brokers with the fewest of the topic. Returns the same object where there is
    nothing to do.
    """
    load = Counter(broker for replicas in topic.partitions.values() for broker in replicas)
    for number, replicas in topic.partitions.items():
        target = list(replicas)
        while len(target) < wanted and not is_moving(topic, number):
            taken = {machine_key(machines, broker) for broker in target}
            free = sorted(broker for broker in racks if machine_key(machines, broker) not in taken)
            if not free:
                break
            used = {racks.get(broker) for broker in target} - {None}
            target.append(min(free, key=lambda broker: (racks[broker] in used, load[broker])))
            load[target[-1]] += 1
        if len(target) > len(replicas):
            topic = begin_move(topic, number, target, racks)
    return topic


def finished_moves(
    topic: Topic, image: ClusterImage, rules: ElectionRules
) -> tuple[Topic, dict[int, PartitionState]] | None:
    """Return the topic without its completed reassignments, and the states that change with them; None: there are none.

    A topic with very many partitions completes only as many as fit into one commit; the next call completes others.
    """
    after, states = topic, {}
    nodes: set[int] = set()
    for number in sorted({*topic.adding, *topic.removing}):
        if len(nodes | {layout.states_node(number)}) > STATES_NODES_AT_A_TIME:
            break
        key = TopicPartition(topic.name, number)
        target, known, brokers = target_of(topic, number), image.state(key), image.brokers_with(key)
        if not set(target) <= set(live_isr(known, brokers)):
            continue  # a member that died is in the ISR until the controller takes it out
        state = settled(known, target, brokers, rules)
        if state is not None and state.leader not in target:
            continue
        after = _with(after, number, target, (), ())
        nodes.add(layout.states_node(number))
        states[number] = state or touched(known)
    return None if after is topic else (after, states)


def touched(state: PartitionState) -> PartitionState:
    """Return this state with the next partition epoch, so that the leader's decisions about other replicas no longer
    count."""
    return later(state, state)


def states_with_assignment(
    before: Topic, after: Topic, states: Mapping[int, PartitionState], known: Mapping[int, PartitionState]
) -> dict[int, PartitionState]:
    """Return the states to store with a topic whose assignment changes from `before` to `after`: each has its replicas.

    Topics and states are read apart. A leader that knew a later state with an earlier assignment would have a replica
    join the ISR that is about to delete its log, and a controller would elect it.

    Where a replica goes, the leader epoch rises, as Kafka's does: a fetch that it has sent speaks of a log that it then
    deletes, and must not count when the replica has come again, with an empty log. The leader may stay the same.
    `states`: those that change for another reason. `known`: the present ones.
    """
    stored = dict(states)
    for number, replicas in after.partitions.items():
        if number in before.partitions and (number in states or before.partitions[number] != replicas):
            present = known.get(number) or first_state(before.partitions[number])
            state = states.get(number) or touched(present)
            if state.leader_epoch == present.leader_epoch and not set(before.partitions[number]) <= set(replicas):
                state = evolve(state, leader_epoch=state.leader_epoch + 1)
            stored[number] = evolve(state, replicas=replicas)
    return stored


def _with(
    topic: Topic, number: int, replicas: tuple[int, ...], coming: tuple[int, ...], going: tuple[int, ...]
) -> Topic:
    adding = {other: brokers for other, brokers in topic.adding.items() if other != number}
    removing = {other: brokers for other, brokers in topic.removing.items() if other != number}
    if coming:
        adding[number] = coming
    if going:
        removing[number] = going
    former = tuple(sorted({*topic.former, *topic.partitions[number]} - set(replicas)))
    return evolve(
        topic, partitions={**topic.partitions, number: replicas}, adding=adding, removing=removing, former=former
    )
