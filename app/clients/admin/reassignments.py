"""Plans of replica assignments that are even and move little, and the JSON format of Kafka's tool."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from ....ports.errors import ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition

ReplicaAssignment = Mapping[TopicPartition, Sequence[int]]
"""Partition → the brokers that hold it, the preferred leader first."""


def planned(
    current: ReplicaAssignment, brokers: Mapping[int, str | None], replication_factor: int | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return an assignment that gives `brokers` (id → rack) equal shares of these partitions' replicas and leaders.

    A replica moves only off a broker that is not among them, to make shares equal, or for more replicas. Raises
    `ConfigError` if there are fewer brokers than replicas.
    """
    replicas = {place: _cut(held, replication_factor) for place, held in current.items()}
    for place, held in replicas.items():
        if len(held) > len(brokers):
            text = f"{place} shall have {counted(len(held), 'replica')}"
            raise ConfigError(f"{text}, and {counted(len(brokers), 'broker is', 'brokers are')} there for them")
    shares = _Shares(replicas, brokers)
    shares.fill()
    shares.level()
    shares.level_leaders()
    return {place: tuple(held) for place, held in shares.held.items()}


def moved(before: ReplicaAssignment, after: ReplicaAssignment) -> list[tuple[TopicPartition, int]]:
    """Return the replicas that must be copied: partition, and the broker that does not have it yet."""
    return [(place, broker) for place, held in after.items() for broker in held if broker not in before.get(place, ())]


def _cut(held: Sequence[int], replication_factor: int | None) -> list[int]:
    """Cut or extend the replicas to the replication factor; -1 stands for a broker that is still to be chosen."""
    count = replication_factor or len(held)
    return [*held[:count], *[-1] * (count - len(held))]


class _Shares:
    """A plan in progress; `load` counts the replicas of each broker."""

    def __init__(self, replicas: Mapping[TopicPartition, list[int]], brokers: Mapping[int, str | None]) -> None:
        self._racks = brokers
        self._before = {place: frozenset(held) for place, held in replicas.items()}
        self.held = {
            place: [broker if broker in brokers else -1 for broker in held] for place, held in sorted(replicas.items())
        }
        self.load = Counter(dict.fromkeys(brokers, 0))
        for held in self.held.values():
            self.load.update(broker for broker in held if broker != -1)

    def fill(self) -> None:
        """Give every open replica to the broker with the fewest, in a rack without a replica where possible."""
        for held in self.held.values():
            while -1 in held:
                racks = [self._racks[broker] for broker in held if broker != -1]
                free = [broker for broker in self._racks if broker not in held]
                chosen = min(free, key=lambda b: (racks.count(self._racks[b]), self.load[b], b))
                held[held.index(-1)] = chosen
                self.load[chosen] += 1

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
                places = [p for p, held in self.held.items() if most in held and self._may_move(held, most, least)]
                if places:
                    held = self.held[min(places, key=lambda place: self._cost(place, most))]
                    held[held.index(most)] = least
                    self.load[most] -= 1
                    self.load[least] += 1
                    return True
        return False

    def _cost(self, place: TopicPartition, broker: int) -> tuple[bool, bool]:
        """Return the cost of a move: none for a replica that does not exist yet; the preferred leader should stay."""
        return broker in self._before[place], self.held[place][0] == broker

    def _may_move(self, held: Sequence[int], goes: int, comes: int) -> bool:
        if comes in held:
            return False
        after = {self._racks[broker] for broker in held if broker != goes} | {self._racks[comes]}
        return len(after) >= len({self._racks[broker] for broker in held})

    def level_leaders(self) -> None:
        """Change the first replicas (the preferred leaders), which moves no data, until the counts are even."""
        led = Counter(dict.fromkeys(self._racks, 0))
        led.update(held[0] for held in self.held.values() if held)
        while True:
            for most in sorted(led, key=lambda broker: (-led[broker], broker)):
                path = self._path(most, {b for b, count in led.items() if count <= led[most] - 2})
                if path:
                    break
            else:
                return
            for giver, (taker, place) in zip([most, *(step[0] for step in path)], path, strict=False):
                held = self.held[place]
                at = held.index(taker)
                held[0], held[at] = taker, giver
            led[most] -= 1
            led[path[-1][0]] += 1

    def _path(self, start: int, ends: set[int]) -> list[tuple[int, TopicPartition]]:
        """Return the leaderships to pass on, from `start` to one of `ends`: (new leader, partition) for each step."""
        came: dict[int, tuple[int, TopicPartition]] = {}
        hands: dict[int, list[tuple[int, TopicPartition]]] = {}
        for place, held in self.held.items():
            hands.setdefault(held[0], []).extend((other, place) for other in held[1:])
        waiting = deque([start])
        while waiting:
            giver = waiting.popleft()
            for taker, place in hands.get(giver, ()):
                if taker == start or taker in came:
                    continue
                came[taker] = giver, place
                if taker not in ends:
                    waiting.append(taker)
                    continue
                path, at = [], taker
                while at != start:
                    path.append((at, came[at][1]))
                    at = came[at][0]
                return path[::-1]
        return []


def to_json(assignment: ReplicaAssignment) -> str:
    """Return the assignment in the JSON format of `kafka-reassign-partitions`."""
    entries = [
        {"topic": place.topic, "partition": place.partition, "replicas": list(held), "log_dirs": ["any"] * len(held)}
        for place, held in sorted(assignment.items())
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
        place, held = _entry(entry, what)
        if place in assignment:
            raise ConfigError(f"{what} has {place} twice")
        assignment[place] = held
    return assignment


def _entry(entry: Any, what: str) -> tuple[TopicPartition, tuple[int, ...]]:
    try:
        place, held = TopicPartition(entry["topic"], entry["partition"]), tuple(entry["replicas"])
    except (TypeError, KeyError):
        place, held = TopicPartition("", -1), ()
    if not (place.topic and isinstance(place.topic, str) and all(map(_is_number, (place.partition, *held)))):
        raise ConfigError(f'{what} has an entry without "topic", "partition" and "replicas": {str(entry)[:200]}')
    if not held or len(set(held)) != len(held):
        raise ConfigError(f"{what}: {place} needs brokers, each once, not {list(held)}")
    return place, held


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
