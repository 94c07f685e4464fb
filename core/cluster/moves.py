"""Partitions that move to other brokers: new replicas come first; when all are in sync the others go (KIP-455)."""

from collections import Counter
from collections.abc import Collection, Sequence

from attrs import evolve

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.words import TopicPartition
from .assignment import Racks
from .election import ElectionRules, later, settled
from .image import ClusterImage
from .topics import PartitionState, Topic


def target_of(topic: Topic, number: int) -> tuple[int, ...]:
    """The brokers that shall hold the partition in the end."""
    going = topic.removing.get(number, ())
    return tuple(broker for broker in topic.partitions[number] if broker not in going)


def origin_of(topic: Topic, number: int) -> tuple[int, ...]:
    """The brokers that held it before the move."""
    coming = topic.adding.get(number, ())
    return tuple(broker for broker in topic.partitions[number] if broker not in coming)


def is_moving(topic: Topic, number: int) -> bool:
    return number in topic.adding or number in topic.removing


def begin_move(topic: Topic, number: int, target: Sequence[int], live: Collection[int]) -> Topic:
    """The topic with a partition on its way to these brokers, the preferred leader first; also instead of another move.

    Raises `ApiError(INVALID_REPLICA_ASSIGNMENT)`.
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
    going = tuple(broker for broker in origin if broker not in target)
    coming = tuple(broker for broker in target if broker not in origin)
    return _with(topic, number, (*target, *going), coming, going)


def cancel_move(topic: Topic, number: int) -> Topic:
    """The topic with a partition where it was. Raises `ApiError(NO_REASSIGNMENT_IN_PROGRESS)`."""
    if not is_moving(topic, number):
        text = f"{TopicPartition(topic.name, number)} is not moving"
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, text)
    return _with(topic, number, origin_of(topic, number), (), ())


def grown(topic: Topic, wanted: int, racks: Racks) -> Topic:
    """The topic with its partitions on their way to so many replicas, as far as there are live brokers for them.

    New replicas come last, so that nobody else leads; on racks without one, and where the topic has fewest. The same
    topic where there is nothing to do.
    """
    load = Counter(broker for replicas in topic.partitions.values() for broker in replicas)
    for number, replicas in topic.partitions.items():
        target = list(replicas)
        while len(target) < wanted and (free := sorted(racks.keys() - set(target))) and not is_moving(topic, number):
            used = {racks.get(broker) for broker in target} - {None}
            target.append(min(free, key=lambda broker: (racks[broker] in used, load[broker])))
            load[target[-1]] += 1
        if len(target) > len(replicas):
            topic = begin_move(topic, number, target, racks)
    return topic


def finished_moves(
    topic: Topic, image: ClusterImage, rules: ElectionRules
) -> tuple[Topic, dict[int, PartitionState]] | None:
    """The topic without the moves that are at their end, and the states that change with them; None: there are none."""
    after, states = topic, {}
    for number in {*topic.adding, *topic.removing}:
        key = TopicPartition(topic.name, number)
        target, known = target_of(topic, number), image.state(key)
        if not set(target) <= set(known.isr):
            continue
        state = settled(known, target, image.brokers_with(key), rules)
        if state is not None and state.leader not in target:
            continue
        after = _with(after, number, target, (), ())
        states[number] = state or touched(known)
    return None if after is topic else (after, states)


def touched(state: PartitionState) -> PartitionState:
    """The same as a later state: what a leader has decided about other replicas does not count any more."""
    return later(state, state)


def _with(
    topic: Topic, number: int, replicas: tuple[int, ...], coming: tuple[int, ...], going: tuple[int, ...]
) -> Topic:
    adding = {other: brokers for other, brokers in topic.adding.items() if other != number}
    removing = {other: brokers for other, brokers in topic.removing.items() if other != number}
    if coming:
        adding[number] = coming
    if going:
        removing[number] = going
    return evolve(topic, partitions={**topic.partitions, number: replicas}, adding=adding, removing=removing)
