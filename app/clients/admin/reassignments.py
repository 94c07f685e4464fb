"""Reassignments: plans that are even and move little, the throttle of copies, and the JSON format of Kafka's tool."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....ports.broker_api.configs import ConfigSource, ResourceKind
from ....ports.errors import ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition

if TYPE_CHECKING:
    from ....ports.broker_api.cluster import BrokerNode, LogDirDescription
    from .admin import Admin

ReplicaAssignment = Mapping[TopicPartition, Sequence[int]]
"""Partition → the brokers that hold it, the preferred leader first."""
Racks = Mapping[int, str | None]

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Broker settings in bytes per second: the rate of a throttled leader, and of a throttled follower."""
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic settings, `PARTITION:BROKER,...`: the throttled replicas that send, and that receive."""
PARTITIONS_AT_A_TIME = 50
"""The most partitions in one request: a broker stores each move by a commit of its own."""


def racks_of(brokers: Iterable[BrokerNode]) -> Racks:
    """Return the rack of each broker for a plan; where none has one, its host, which workers of a machine share."""
    nodes = {node.node_id: node for node in brokers}
    has_racks = any(node.rack is not None for node in nodes.values())
    return {number: node.rack if has_racks else node.host for number, node in nodes.items()}


def planned(
    current: ReplicaAssignment, brokers: Racks, replication_factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return an assignment that gives `brokers` (id → rack) equal shares of these partitions' replicas and leaders.

    A replica moves only off a broker that is not among them, to make shares equal, or for more replicas. Raises
    `ConfigError` if there are fewer brokers than replicas.
    """
    replicas = {tp: _cut(held, replication_factor) for tp, held in current.items()}
    for tp, held in replicas.items():
        if len(held) > len(brokers):
            raise too_few_brokers(tp, len(held), len(brokers))
    shares = _Shares(replicas, brokers)
    shares.fill()
    shares.level()
    shares.level_leaders()
    return {tp: tuple(held) for tp, held in shares.held.items()}


def too_few_brokers(tp: TopicPartition, replicas: int, brokers: int) -> ConfigError:
    """Return the error for a partition whose replicas find no place, with the ways out."""
    needs = f"{tp} needs {counted(replicas, 'replica')}, but only {counted(brokers, 'broker')}"
    lower = f"lower the replication factor with --replication-factor {brokers}, or " if brokers else ""
    return ConfigError(f"{needs} {'remains' if brokers == 1 else 'remain'}; {lower}add a broker")


def drained(
    current: ReplicaAssignment,
    broker: int,
    others: Racks,
    sizes: Mapping[TopicPartition, int] | None = None,
    replication_factor: int | None = None,
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the new replicas of those of these partitions that `broker` holds; no other replica moves.

    Each replica goes to a broker of `others` (id → rack) in a rack without a replica of the partition, where there is
    one, so that the counts of replicas differ as little as they can; the largest partitions are placed first, and sizes
    decide between equal counts. Leaders are shared in the same way. Partitions with more than `replication_factor`
    replicas lose theirs on `broker`. Raises `ConfigError` if a replica finds no place.
    """
    sizes = sizes or {}
    load, size, led = (Counter(dict.fromkeys(others, 0)) for _ in range(3))
    of_topic: Counter[tuple[int, str]] = Counter()
    for tp, held in current.items():
        if held[0] in others:
            led[held[0]] += 1
        for each in set(held) & set(others):
            load[each] += 1
            size[each] += sizes.get(tp, 0)
            of_topic[each, tp.topic] += 1
    leaving = sorted((p for p, held in current.items() if broker in held), key=lambda p: (-sizes.get(p, 0), p))
    after = {tp: [each for each in current[tp] if each != broker] for tp in leaving}
    chosen: dict[TopicPartition, int] = {}
    for tp in leaving:
        held = after[tp]
        if held and replication_factor is not None and len(held) >= replication_factor:
            continue
        free = [each for each in others if each not in held]
        if not free:
            raise too_few_brokers(tp, len(current[tp]), len(others))
        racks = Counter(others.get(each) for each in held)
        target = min(free, key=lambda b: (racks[others[b]], load[b], of_topic[b, tp.topic], size[b], b))
        chosen[tp] = target
        load[target] += 1
        size[target] += sizes.get(tp, 0)
        of_topic[target, tp.topic] += 1
    _level_chosen(chosen, after, others, load)
    for tp, target in chosen.items():
        after[tp].append(target)
    led_there = {tp: after[tp] for tp in leaving if current[tp][0] == broker}
    for held in led_there.values():
        held.sort(key=lambda each: each not in others)  # brokers that are down, or drained as well, lead last
        led[held[0]] += held[0] in others
    _level_leaders(led_there, led)
    return {tp: tuple(held) for tp, held in sorted(after.items())}


def _level_chosen(chosen: dict[TopicPartition, int], held: ReplicaAssignment, racks: Racks, load: Counter[int]) -> None:
    """Change the chosen brokers of replicas along chains, until no chain makes the counts more even."""

    def edges(giver: int) -> list[tuple[int, TopicPartition]]:
        found = []
        for tp, target in chosen.items():
            if target == giver:
                used = Counter(racks.get(each) for each in held[tp])
                found += [
                    (b, tp)
                    for b, rack in racks.items()
                    if b != giver and b not in held[tp] and used[rack] <= used[racks[giver]]
                ]
        return found

    while True:
        for most in sorted(racks, key=lambda b: (-load[b], b)):
            path = _chain(most, {b for b in racks if load[b] <= load[most] - 2}, edges)
            if path:
                break
        else:
            return
        for taker, tp in path:
            load[chosen[tp]] -= 1
            chosen[tp] = taker
            load[taker] += 1


def moved(before: ReplicaAssignment, after: ReplicaAssignment) -> list[tuple[TopicPartition, int]]:
    """Return the replicas that must be copied: partition, and the broker that does not have it yet."""
    return [(tp, broker) for tp, held in after.items() for broker in held if broker not in before.get(tp, ())]


def _cut(held: Sequence[int], replication_factor: int | None) -> list[int]:
    """Cut or extend the replicas to the replication factor; -1 stands for a broker that is still to be chosen."""
    count = replication_factor or len(held)
    return [*held[:count], *[-1] * (count - len(held))]


class _Shares:
    """A plan in progress; `load` counts the replicas of each broker."""

    def __init__(self, replicas: Mapping[TopicPartition, list[int]], brokers: Racks) -> None:
        self._racks = brokers
        self._before = {tp: frozenset(held) for tp, held in replicas.items()}
        self.held = {
            tp: [broker if broker in brokers else -1 for broker in held] for tp, held in sorted(replicas.items())
        }
        self.load = Counter(dict.fromkeys(brokers, 0))
        self._of_topic: Counter[tuple[int, str]] = Counter()
        for tp, held in self.held.items():
            self.load.update(broker for broker in held if broker != -1)
            self._of_topic.update((broker, tp.topic) for broker in held if broker != -1)

    def fill(self) -> None:
        """Give every open replica to the broker with the fewest, in a rack without a replica where possible."""
        for tp, held in self.held.items():
            while -1 in held:
                racks = [self._racks[broker] for broker in held if broker != -1]
                free = [broker for broker in self._racks if broker not in held]
                cost = {b: (racks.count(self._racks[b]), self.load[b], self._of_topic[b, tp.topic]) for b in free}
                chosen = min(free, key=lambda b: (cost[b], b))
                held[held.index(-1)] = chosen
                self.load[chosen] += 1
                self._of_topic[chosen, tp.topic] += 1

    def level(self) -> None:
        """Move replicas from the brokers with most to those with fewest, until the counts differ by one at most."""
        while self._moved_one():
            pass

    def _moved_one(self) -> bool:
        ordered = sorted(self.load, key=lambda broker: (self.load[broker], broker))
        for most in reversed(ordered):
            for least in ordered:
                if self.load[most] - self.load[least] <= 1:
                    break
                partitions = [p for p, held in self.held.items() if most in held and self._may_move(held, most, least)]
                if partitions:
                    tp = min(partitions, key=lambda tp: self._cost(tp, most, least))
                    held = self.held[tp]
                    held[held.index(most)] = least
                    self.load[most] -= 1
                    self.load[least] += 1
                    self._of_topic[most, tp.topic] -= 1
                    self._of_topic[least, tp.topic] += 1
                    return True
        return False

    def _cost(self, tp: TopicPartition, goes: int, comes: int) -> tuple[bool, bool, int]:
        """Return the cost of a move: none for a replica that does not exist yet; the preferred leader should stay; the
        partitions of a topic should be spread."""
        spread = self._of_topic[comes, tp.topic] - self._of_topic[goes, tp.topic]
        return goes in self._before[tp], self.held[tp][0] == goes, spread

    def _may_move(self, held: Sequence[int], goes: int, comes: int) -> bool:
        if comes in held:
            return False
        after = {self._racks[broker] for broker in held if broker != goes} | {self._racks[comes]}
        return len(after) >= len({self._racks[broker] for broker in held})

    def level_leaders(self) -> None:
        """Change the first replicas (the preferred leaders), which moves no data, until the counts are even."""
        led = Counter(dict.fromkeys(self._racks, 0))
        led.update(held[0] for held in self.held.values() if held)
        _level_leaders(self.held, led)


def _level_leaders(replicas: Mapping[TopicPartition, list[int]], led: Counter[int]) -> None:
    """Change the first replicas of these partitions until the counts of leaders (`led`) are even, or no chain of
    changes makes them more so."""

    def edges(giver: int) -> list[tuple[int, TopicPartition]]:
        return hands.get(giver, [])

    while True:
        hands: dict[int, list[tuple[int, TopicPartition]]] = {}
        for tp, held in replicas.items():
            hands.setdefault(held[0], []).extend((other, tp) for other in held[1:] if other in led)
        for most in sorted(led, key=lambda broker: (-led[broker], broker)):
            path = _chain(most, {b for b, count in led.items() if count <= led[most] - 2}, edges)
            if path:
                break
        else:
            return
        for taker, tp in path:
            held = replicas[tp]
            giver, at = held[0], held.index(taker)
            held[0], held[at] = taker, giver
            led[giver] -= 1
            led[taker] += 1


def _chain(
    start: int, ends: Collection[int], edges: Callable[[int], Iterable[tuple[int, TopicPartition]]]
) -> list[tuple[int, TopicPartition]]:
    """Return the shortest chain of things to pass on, from `start` to one of `ends`: (taker, partition) for each
    step; empty: there is none. `edges` returns what a broker may pass on, and to which."""
    came: dict[int, tuple[int, TopicPartition]] = {}
    waiting = deque([start] if ends else [])
    while waiting:
        giver = waiting.popleft()
        for taker, tp in edges(giver):
            if taker == start or taker in came:
                continue
            came[taker] = giver, tp
            if taker not in ends:
                waiting.append(taker)
                continue
            path, at = [], taker
            while at != start:
                path.append((at, came[at][1]))
                at = came[at][0]
            return path[::-1]
    return []


# What a cluster has at the moment, and the throttle.


def current_assignment(admin: Admin, topics: Sequence[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition, also of internal topics; for a running move, the target replicas."""
    found = {
        TopicPartition(str(topic.name), each.partition): tuple(each.replicas)
        for topic in admin.describe_topics(topics)
        for each in topic.partitions
    }
    for move in admin.list_reassignments():
        tp = TopicPartition(move.topic, move.partition)
        if tp in found:
            found[tp] = tuple(broker for broker in move.replicas if broker not in move.removing)
    return found


def replica_sizes(log_dirs: Mapping[int, Sequence[LogDirDescription]]) -> dict[TopicPartition, int]:
    """Return the size of the largest replica of each partition in bytes."""
    sizes: dict[TopicPartition, int] = {}
    for folders in log_dirs.values():
        for replica in (replica for folder in folders for replica in folder.replicas):
            tp = TopicPartition(replica.topic, replica.partition)
            sizes[tp] = max(sizes.get(tp, 0), replica.size_bytes)
    return sizes


def set_throttle(admin: Admin, wanted: ReplicaAssignment, current: ReplicaAssignment, rate: int) -> None:
    """Limit the copies of a reassignment to `rate` bytes per second, to and from each broker."""
    copies = moved(current, wanted)
    for topic in sorted({tp.topic for tp, _ in copies}):
        partitions = sorted({tp for tp, _ in copies if tp.topic == topic})
        gives = [f"{tp.partition}:{broker}" for tp in partitions for broker in current[tp]]
        takes = [f"{tp.partition}:{broker}" for tp, broker in copies if tp.topic == topic]
        changes = dict(zip(THROTTLED, (",".join(gives), ",".join(takes)), strict=True))
        admin.alter_configs(ResourceKind.TOPIC, topic, changes)
    for node in admin.describe_cluster().brokers:
        admin.alter_configs(ResourceKind.BROKER, node.node_id, dict.fromkeys(RATES, str(rate)))


def remove_throttle(admin: Admin, topics: Iterable[str]) -> None:
    """Reset what `set_throttle` has set; a deleted topic has no settings."""
    for topic in sorted(set(topics) & set(admin.list_topics(internal=True))):
        _reset(admin, ResourceKind.TOPIC, topic, THROTTLED)
    for node in admin.describe_cluster().brokers:
        _reset(admin, ResourceKind.BROKER, node.node_id, RATES)


def _reset(admin: Admin, kind: ResourceKind, name: str | int, keys: Sequence[str]) -> None:
    changed = [e.name for e in admin.describe_configs(kind, name, keys) if e.source is not ConfigSource.DEFAULT]
    if changed:
        admin.alter_configs(kind, name, dict.fromkeys(changed))


def to_json(assignment: ReplicaAssignment) -> str:
    """Return the assignment in the JSON format of `kafka-reassign-partitions`."""
    entries = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(held), "log_dirs": ["any"] * len(held)}
        for tp, held in sorted(assignment.items())
    ]
    return json.dumps({"version": 1, "partitions": entries}, ensure_ascii=False)


def from_json(text: str | bytes, what: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse the JSON of `to_json`. Raises `ConfigError`, whose text begins with `what`, for anything else."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what} is not JSON: {error}") from error
    entries = found.get("partitions") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f'{what} has no list "partitions", as `barnabas cluster reassign plan` prints one')
    if found.get("version", 1) != 1:
        raise ConfigError(f"{what} is of version {found['version']!r}; version 1 is known")
    assignment: dict[TopicPartition, tuple[int, ...]] = {}
    for entry in entries:
        tp, held = _entry(entry, what)
        if tp in assignment:
            raise ConfigError(f"{what} has {tp} twice")
        assignment[tp] = held
    return assignment


def _entry(entry: Any, what: str) -> tuple[TopicPartition, tuple[int, ...]]:
    try:
        tp, held = TopicPartition(entry["topic"], entry["partition"]), tuple(entry["replicas"])
    except (TypeError, KeyError):
        tp, held = TopicPartition("", -1), ()
    if not (tp.topic and isinstance(tp.topic, str) and all(map(_is_number, (tp.partition, *held)))):
        raise ConfigError(f'{what} has an entry without "topic", "partition" and "replicas": {str(entry)[:200]}')
    if not held or len(set(held)) != len(held):
        raise ConfigError(f"{what}: {tp} needs brokers, each once, not {list(held)}")
    return tp, held


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
