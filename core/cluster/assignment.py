"""The assignment of new partitions' replicas to brokers (facts D7)."""

from collections.abc import Hashable, Mapping, Sequence

from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.report import counted

ReplicaList = tuple[int, ...]
Racks = Mapping[int, str | None]
"""Broker id to rack, None where the broker has none."""
Machines = Mapping[int, str]
"""Broker id to machine (`broker.machine`); a broker that is missing has a machine to itself."""
NO_MACHINES: Machines = {}


def assign_replicas(
    racks: Racks,
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
    machines: Machines = NO_MACHINES,
) -> dict[int, ReplicaList]:
    """Spread `partitions` new partitions, numbered from `first_partition`, over the brokers.

    Leaders are assigned round-robin from `start`; the distance of followers grows by one each round, from `shift`. If
    every broker has a rack, the replicas of a partition go to different racks as far as there are enough; if only some
    have one, racks do not count. Within that rule they go to different machines, as far as there are enough.
    Raises `ApiError` INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    check_counts(partitions, replication_factor, len(racks))
    rack_of = {broker: rack for broker, rack in racks.items() if rack is not None}
    aware = len(rack_of) == len(racks)
    machine_of = {broker: machine_key(machines, broker) for broker in sorted(racks)}
    apart = aware or len(set(machine_of.values())) < len(racks)
    brokers = list(machine_of)
    if apart:
        brokers = _alternate(brokers, machine_of)
    if aware:
        brokers = _alternate(sorted(brokers, key=rack_of.__getitem__), rack_of)
    assigned = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start) % len(brokers)
        if apart:
            places = (rack_of, machine_of) if aware else (machine_of,)
            assigned[partition] = _replicas_apart(brokers, places, first, shift, replication_factor)
        else:
            followers = (_follower(first, shift, j, len(brokers)) for j in range(replication_factor - 1))
            assigned[partition] = (brokers[first], *(brokers[index] for index in followers))
    return assigned


def assign_new_topic(
    racks: Racks, partitions: int, replication_factor: int, entropy: Entropy, machines: Machines = NO_MACHINES
) -> dict[int, ReplicaList]:
    """Assign the partitions of a new topic, from a random start."""
    check_counts(partitions, replication_factor, len(racks))
    start, shift = entropy.below(len(racks)), entropy.below(len(racks))
    return assign_replicas(racks, partitions, replication_factor, start=start, shift=shift, machines=machines)


def assign_added(
    racks: Racks, existing: Mapping[int, ReplicaList], added: int, machines: Machines = NO_MACHINES
) -> dict[int, ReplicaList]:
    """Assign further partitions of a topic, in the order that its first partition began."""
    brokers = sorted(racks)
    start = next((index for index, broker in enumerate(brokers) if broker >= existing[0][0]), 0)
    return assign_replicas(
        racks,
        added,
        len(existing[0]),
        start=start,
        shift=start,
        first_partition=len(existing),
        machines=machines,
    )


def machine_key(machines: Machines, broker: int) -> str | int:
    """Return a key of the broker's machine, which all brokers on that machine have."""
    return machines.get(broker, broker)


def check_counts(partitions: int, replication_factor: int, brokers: int) -> None:
    """Raise `ApiError` INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR for invalid counts."""
    if partitions < 1:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"the number of partitions must be at least 1, not {partitions}")
    if replication_factor < 1:
        text = f"the replication factor must be at least 1, not {replication_factor}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if replication_factor > brokers:
        text = f"the replication factor {replication_factor} is larger than the number of live brokers, {brokers}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def check_manual(
    assignments: Sequence[Sequence[int]], racks: Racks, *, replication_factor: int | None = None
) -> list[ReplicaList]:
    """Check a manual assignment: the same number of different, live brokers for each partition.

    `replication_factor` None = that of the first. Raises `ApiError(INVALID_REPLICA_ASSIGNMENT)`.
    """
    for index, replicas in enumerate(assignments):
        wanted = replication_factor or len(assignments[0])
        unknown = sorted(set(replicas) - set(racks))
        fault = ""
        if not replicas:
            fault = "has no replicas"
        elif len(replicas) != wanted:
            fault = f"has {counted(len(replicas), 'replica')} where the others have {wanted}"
        elif len(set(replicas)) != len(replicas):
            fault = f"names a broker twice: {list(replicas)}"
        elif unknown:
            fault = f"names brokers that are not alive: {unknown}"
        if fault:
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"entry {index} of the assignment {fault}")
    return [tuple(replicas) for replicas in assignments]


def _follower(first: int, shift: int, number: int, brokers: int) -> int:
    return (first + 1 + (shift + number) % (brokers - 1)) % brokers


def _alternate(brokers: Sequence[int], group_of: Mapping[int, Hashable]) -> list[int]:
    """Return the brokers so that the groups take turns; those of one group stay in order."""
    rows: dict[Hashable, list[int]] = {}
    for broker in brokers:
        rows.setdefault(group_of[broker], []).append(broker)
    depth = max(len(row) for row in rows.values())
    return [row[turn] for turn in range(depth) for row in rows.values() if turn < len(row)]


def _replicas_apart(
    brokers: Sequence[int], places: Sequence[Mapping[int, Hashable]], first: int, shift: int, replication_factor: int
) -> ReplicaList:
    """Choose brokers at different places; of several kinds of places, the first one counts most.

    A place is free while no replica is there, and again when there is one at each.
    """
    counts = [len(set(place_of.values())) for place_of in places]
    chosen = [brokers[first]]
    tries = 0
    while len(chosen) < replication_factor:
        used = [{place_of[broker] for broker in chosen} for place_of in places]
        best, best_rank, best_try = -1, (True,) * (len(places) + 1), tries
        for number in range(tries, tries + len(brokers) - 1):
            broker = brokers[_follower(first, shift * counts[0], number, len(brokers))]
            if broker in chosen:
                continue
            rank = tuple(
                place_of[broker] in taken and len(taken) < count
                for place_of, taken, count in zip(places, used, counts, strict=True)
            )
            if rank < best_rank:
                best, best_rank, best_try = broker, rank, number
                if not any(rank):
                    break
        chosen.append(best)
        tries = best_try + 1
    return tuple(chosen)
