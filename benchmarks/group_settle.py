"""How long a rebalance of 1,000 members with 10,000 partitions takes, and 250 members of as many partitions each: the
cost of a member should not depend on how many there are."""

import time

from group_wire import Member, assignment_of, connect, settle, subscription_to, wait_for_coordinator
from harness import Result, broker

TOPIC = "bench"
MEMBERS = 1_000
FEWER = 250
PARTITIONS_EACH = 10
CONNECTIONS = 20
ROUNDS = 3


def _settle(count: int) -> tuple[float, float]:
    """Seconds and broker CPU seconds of a rebalance in which everybody joins anew."""
    with broker(None, "group.initial.rebalance.delay.ms=1000") as running:
        clients = [connect(running) for _ in range(CONNECTIONS)]
        wait_for_coordinator(clients[0], "bench")
        members = [
            Member(
                clients[number % CONNECTIONS],
                "bench",
                assignment_of(TOPIC, range(number * PARTITIONS_EACH, (number + 1) * PARTITIONS_EACH)),
            )
            for number in range(count)
        ]
        settle(members, subscription_to(TOPIC))
        times = []
        for number in range(ROUNDS):
            cpu, started = running.cpu_seconds(), time.perf_counter()
            settle(members, subscription_to(f"{TOPIC}{number}"))
            times.append((time.perf_counter() - started, running.cpu_seconds() - cpu))
        for client in clients:
            client.close()
    return min(seconds for seconds, _ in times), min(cpu for _, cpu in times)


def measure() -> list[Result]:
    few_seconds, few_cpu = _settle(FEWER)
    seconds, cpu = _settle(MEMBERS)
    return [
        Result(
            "a member of a rebalance: cost among 1,000 / among 250",
            seconds / MEMBERS / (few_seconds / FEWER),
            "",
            2.0,
            at_least=False,
            details={
                "s at 1,000 members": seconds,
                "broker CPU s": cpu,
                "s at 250 members": few_seconds,
                "broker CPU s at 250": few_cpu,
            },
        )
    ]
