"""The state of a cluster after a while without faults: replicas are equal, and nothing accumulates."""

from collections.abc import Collection

from simulation.cluster_checker import entries_of

from barnabas.core.replica.partition.partition import Partition
from barnabas.simulation import World

WAITING_MAX = 60
"""Requests that wait in one broker: fetches of followers and of the few clients of a story."""


def difference(world: World, topics: Collection[str]) -> str:
    """Return how a follower differs from its leader; empty if none does."""
    for name, topic in world.look.topics().items():
        if name not in topics:
            continue
        for number in topic.partitions:
            found = [world.partition(broker_id, name, number) for broker_id in topic.partitions[number]]
            here = [each for each in found if each is not None]
            leaders = [each for each in here if each.is_leader]
            if len(leaders) != 1 or len(here) != len(found):
                return f"{name}-{number} has {len(leaders)} leaders and {len(here)} of {len(found)} replicas"
            observed = next(filter(None, (_differs(leaders[0], each) for each in here)), "")
            if observed:
                return f"{name}-{number}: {observed}"
    return ""


def _differs(leader: Partition, other: Partition) -> str:
    # An earlier leader may have begun to delete records, which was not acknowledged and stays undone at the others.
    start = max(leader.log.log_start_offset, other.log.log_start_offset)
    facts = {
        "log start": (start, other.log.log_start_offset),
        "log end": (leader.log.log_end_offset, other.log.log_end_offset),
        "high watermark": (leader.high_watermark, other.high_watermark),
        "last stable offset": (leader.last_stable_offset, other.last_stable_offset),
        "producers": (_producers(leader, start), _producers(other, start)),
    }
    for what, (one, another) in facts.items():
        if one != another:
            return f"{what}: the leader {leader.broker_id} has {one}, broker {other.broker_id} has {another}"
    end = leader.log.log_end_offset
    if list(entries_of(leader.log, start, end)) != list(entries_of(other.log, start, end)):
        return f"the logs of the leader {leader.broker_id} and of broker {other.broker_id} hold different batches"
    return ""


def _producers(partition: Partition, start: int) -> dict[int, tuple[int, int, int]]:
    """By producer id: its epoch, its last sequence, and the first offset of its transaction. A replica that started
    after records were deleted does not know the producers of these."""
    return {
        each: (state.epoch, state.last_sequence, state.txn_first_offset)
        for each, state in sorted(partition.log.producers.producers.items())
        if state.batches and state.batches[-1].last_offset >= start
    }


def piled_up(world: World, *, old_disks: bool = False) -> str:
    """Return what has grown without an end to it; empty if nothing has.

    Brokers ignore folders of deleted topics that came back with an old copy of a disk, or with a broker that had been
    removed: that the topic was deleted is no longer known.
    """
    known = world.look.topics().keys()
    sessions = sum(len(machine.sessions) for machine in world.machines)
    if world.tree.session_count > sessions + world.abandoned_sessions:
        return f"{world.tree.session_count} sessions of {sessions} users"
    for broker in world.brokers.values():
        if broker.node is None:
            continue
        waiting = len(broker.node.state.replicas.purgatory)
        if waiting > WAITING_MAX:
            return f"{waiting} requests wait in {broker.name}"
        folders = {name for disk in broker.disks for name in disk.folders if name and not name.endswith("-stray")}
        if any(f"broker {broker.broker_id} was removed from the cluster" in line for line in world.reports):
            folders = {
                each for each in folders if not any(f"/{each} belongs to no topic" in line for line in world.reports)
            }
        gone = {name for name in folders if name.rpartition("-")[0] not in known}
        if gone and not old_disks:
            return f"{broker.name} still has the folders {sorted(gone)} of deleted topics"
        if stray := [name for name in sorted(folders - gone) if _is_stray(world, broker.broker_id, name)]:
            return f"{broker.name} still has the folders {stray} of partitions that are on other brokers"
    return ""


def _is_stray(world: World, broker_id: int, name: str) -> bool:
    """Return True for the folder of a replica that is elsewhere, unless the broker has said why it is left alone."""
    topic, _, number = name.rpartition("-")
    replicas = world.look.topics()[topic].partitions.get(int(number), ())
    return broker_id not in replicas and not any(f"/{name} is left alone" in line for line in world.reports)
