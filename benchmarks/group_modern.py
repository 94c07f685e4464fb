"""Consumer groups by KIP-848: a member that joins 999 others with 10,000 partitions, and 10,000 idle groups."""

import time

from attrs import define, field
from group_wire import ask, connect, frame_of, result_of, wait_for_coordinator
from harness import BareClient, Result, broker

from barnabas import Admin
from barnabas.ports.broker_api.consumer_groups import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    TopicIdPartitions,
)
from barnabas.ports.error_codes import ErrorCode

TOPICS, PARTITIONS = 100, 100
MEMBERS = 1_000
CONNECTIONS = 20
IDLE_GROUPS = 10_000
HEARTBEAT_SECONDS = 5.0
IDLE_ROUNDS = 2
LIMIT_SECONDS = 120.0
VERSION = 1
REBALANCE_TIMEOUT_MS = 60_000


@define
class Member:
    """A member that does what its coordinator says, at once."""

    client: BareClient
    group_id: str
    member_id: str
    topics: list[str]
    epoch: int = 0
    owned: dict[bytes, frozenset[int]] = field(factory=dict)
    due: float = 0.0
    least: int | None = None
    """The fewest partitions that it has had."""

    @property
    def size(self) -> int:
        return sum(map(len, self.owned.values()))

    def request(self, *, is_full: bool) -> ConsumerGroupHeartbeat:
        joins = self.epoch == 0
        owned = [TopicIdPartitions(topic_id, sorted(numbers)) for topic_id, numbers in self.owned.items()]
        return ConsumerGroupHeartbeat(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if joins else -1,
            subscribed_topic_names=self.topics if joins else None,
            topic_partitions=owned if is_full or joins else None,
        )

    def beat(self) -> None:
        """Send a heartbeat; after a change of the assignment the next one, which confirms it, is due at once."""
        result = ask(self.client, self.request(is_full=self.due == 0.0), VERSION)
        self.take_answer(result)

    def take_answer(self, result: ConsumerGroupHeartbeatResult) -> None:
        if result.error is not ErrorCode.NONE:
            raise RuntimeError(f"{self.member_id}: {result.error.name}: {result.error_message}")
        self.epoch = result.member_epoch
        self.due = time.perf_counter() + result.heartbeat_interval_ms / 1000
        if result.assignment is not None:
            after = {each.topic_id: frozenset(each.partitions) for each in result.assignment}
            if after != self.owned:
                self.owned, self.due = after, 0.0
                if self.least is not None:
                    self.least = min(self.least, self.size)


def _measure_join(members: list[Member]) -> tuple[float, float]:
    """Return the seconds until all partitions have owners again, and until all members have the newest epoch too."""
    started, owned = time.perf_counter(), 0.0
    while True:
        now = time.perf_counter()
        for member in members:
            if member.due <= now:
                member.beat()
        newest = max(member.epoch for member in members)
        if not owned and all(member.size for member in members):
            is_owned = sum(member.size for member in members) == TOPICS * PARTITIONS
            owned = time.perf_counter() - started if is_owned else 0.0
        if owned and all(member.epoch == newest and member.due for member in members):
            return owned, time.perf_counter() - started
        if now - started > LIMIT_SECONDS:
            raise RuntimeError("the group does not settle")
        next_due = min(member.due for member in members)
        time.sleep(max(0.0, min(0.05, next_due - time.perf_counter())))


def _rebalance() -> Result:
    with broker(None) as running:
        names = [f"t{number}" for number in range(TOPICS)]
        with Admin(f"{running.host}:{running.port}") as admin:
            for name in names:
                admin.create_topic(name, partitions=PARTITIONS)
        clients = [connect(running) for _ in range(CONNECTIONS)]
        wait_for_coordinator(clients[0], "bench")
        members = [Member(clients[n % CONNECTIONS], "bench", f"m{n:04}", names) for n in range(MEMBERS)]
        first, _ = _measure_join(members[:-1])
        before = [member.owned for member in members]
        for member in members:
            member.least = member.size
        cpu = running.cpu_seconds()
        seconds, settled = _measure_join(members)
        cpu = running.cpu_seconds() - cpu
        moved = sum(
            len(numbers - member.owned.get(topic_id, frozenset()))
            for member, owned in zip(members, before, strict=True)
            for topic_id, numbers in owned.items()
        )
        for client in clients:
            client.close()
    return Result(
        "a member joins 999 with 10,000 partitions",
        seconds,
        "s",
        5.0,
        at_least=False,
        details={
            "partitions that moved": moved,
            "fewest of a member": min(member.least or 0 for member in members[:-1]),
            "s until all have the epoch": settled,
            "broker CPU s": cpu,
            "s for 999 at once": first,
        },
    )


def _idle() -> Result:
    with broker(None) as running:
        with Admin(f"{running.host}:{running.port}") as admin:
            admin.create_topic("t", partitions=1)
        clients = [connect(running) for _ in range(CONNECTIONS)]
        wait_for_coordinator(clients[0], "g0")
        members = [Member(clients[n % CONNECTIONS], f"g{n}", "m", ["t"]) for n in range(IDLE_GROUPS)]
        for member in members:
            member.beat()
            member.beat()
        heartbeats = [(member, member.request(is_full=False)) for member in members]
        frames = [(member, request, frame_of(request, VERSION)) for member, request in heartbeats]
        cpu, started = running.cpu_seconds(), time.perf_counter()
        for number, (member, request, frame) in enumerate(frames * IDLE_ROUNDS):
            due = started + number / IDLE_GROUPS * HEARTBEAT_SECONDS
            time.sleep(max(0.0, due - time.perf_counter()))
            member.take_answer(result_of(request, VERSION, member.client.exchange(frame)))
        seconds = time.perf_counter() - started
        cores = (running.cpu_seconds() - cpu) / seconds
        rate = IDLE_GROUPS * IDLE_ROUNDS / seconds
        cpu, started = running.cpu_seconds(), time.perf_counter()
        time.sleep(HEARTBEAT_SECONDS)
        silent = (running.cpu_seconds() - cpu) / (time.perf_counter() - started)
        for client in clients:
            client.close()
    return Result(
        "10,000 groups without requests",
        silent,
        "cores",
        0.1,
        at_least=False,
        details={"cores with heartbeats": cores, "heartbeats/s": rate, "us a heartbeat": cores / rate * 1e6},
    )


def measure() -> list[Result]:
    return [_rebalance(), _idle()]
