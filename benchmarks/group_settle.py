"""Time of a rebalance of 1,000 members with 10,000 partitions, and of 250 members with as many partitions each: the
cost of a member should not depend on their number.
"""

import time

from group_wire import Member, assignment_of, connect, join_all, subscription_to, wait_for_coordinator
from harness import Result, broker

TOPIC = "bench"
MEMBERS = 1_000
FEWER = 250
PARTITIONS_EACH = 10
CONNECTIONS = 20
MEMBERS_IN_ALL = 6_000
"""The number of members that are measured of either size, one rebalance after the other."""


def _measure_join(count: int) -> tuple[float, float]:
    """Return the seconds of a rebalance in which every member joins again, and the broker's CPU seconds of one."""
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
        join_all(members, subscription_to(TOPIC))
        rounds = MEMBERS_IN_ALL // count
        seconds = []
        cpu = running.cpu_seconds()
        for number in range(rounds):
            started = time.perf_counter()
            join_all(members, subscription_to(f"{TOPIC}{number}"))
            seconds.append(time.perf_counter() - started)
        cpu = (running.cpu_seconds() - cpu) / rounds
        for client in clients:
            client.close()
    return min(seconds), cpu


def measure() -> list[Result]:
    few_seconds, few_cpu = _measure_join(FEWER)
    seconds, cpu = _measure_join(MEMBERS)
    return [
        Result(
            "broker CPU of a member's rebalance: of 1,000 / of 250",
            cpu / MEMBERS / (few_cpu / FEWER),
            "",
            2.0,
            at_least=False,
            details={"s of 1,000": seconds, "CPU s": cpu, "s of 250": few_seconds, "CPU s of 250": few_cpu},
        )
    ]
