"""Cost of idle members: 500 of them, each on a connection of its own, with a heartbeat every 3 s."""

import time

from group_wire import Member, assignment_of, connect, frame_of, join_all, subscription_to, wait_for_coordinator
from harness import Result, broker

TOPIC = "bench"
GROUPS = 50
MEMBERS = 500
HEARTBEAT_SECONDS = 3.0
ROUNDS = 3
HEARTBEAT_VERSION = 3
TOGETHER = 1.0 / HEARTBEAT_SECONDS * MEMBERS


def measure() -> list[Result]:
    with broker(None, "group.initial.rebalance.delay.ms=500") as running:
        members = [
            Member(connect(running), f"g{number % GROUPS}", assignment_of(TOPIC, [0])) for number in range(MEMBERS)
        ]
        for member in members[:GROUPS]:
            wait_for_coordinator(member.client, member.group_id)
        join_all(members, subscription_to(TOPIC))
        resident = running.resident_bytes()
        heartbeats = [(member.client, frame_of(member.heartbeat(), HEARTBEAT_VERSION)) for member in members]
        cpu, started = running.cpu_seconds(), time.perf_counter()
        for number, (client, frame) in enumerate(heartbeats * ROUNDS):
            due = started + number / MEMBERS * HEARTBEAT_SECONDS
            time.sleep(max(0.0, due - time.perf_counter()))
            answer = client.exchange(frame)
            if bytes(answer[-2:]) != b"\0\0":
                raise RuntimeError("a heartbeat failed")
        seconds = time.perf_counter() - started
        cores = (running.cpu_seconds() - cpu) / seconds
        for member in members:
            member.client.close()
    return [
        Result(
            "500 idle members with a heartbeat every 3 s",
            cores,
            "cores",
            0.05,
            at_least=False,
            details={"MB of the broker": resident / 1e6, "us a heartbeat": cores / TOGETHER * 1e6},
        )
    ]
