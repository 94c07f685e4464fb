"""Small commits of one consumer, one after the other without waiting in between, against single small records produced
in the same way. A commit is a record in `__consumer_offsets`, so it should cost not much more than one."""

import threading
import time
from collections.abc import Sequence

from group_wire import Member, assignment_of, frame_of, join_all, subscription_to, wait_for_coordinator
from harness import BareClient, Result, RunningBroker, broker, produce_frame

from barnabas import Admin, Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.ports.broker_api.groups import OffsetCommit, OffsetCommitPartition

TOPIC = "bench"
PARTITIONS = 10
REQUESTS = 20_000
ROUNDS = 3
COMMIT_VERSION = 7
GOAL = 10_000


def _commits(member: Member, count: int) -> list[bytes]:
    return [
        frame_of(
            OffsetCommit(
                group_id=member.group_id,
                generation_id=member.generation_id,
                member_id=member.member_id,
                partitions=[OffsetCommitPartition(TOPIC, number % PARTITIONS, number, 0, "")],
            ),
            COMMIT_VERSION,
        )
        for number in range(count)
    ]


def _commit_failed(answer: bytes) -> bool:
    return answer[-2:] != b"\0\0"


def _produces(count: int) -> list[bytes]:
    batch = bytes(encode_batch([Message(value=bytes(50), key=bytes(50))], now_ms=1_700_000_000_000))
    return [produce_frame(TOPIC, number % PARTITIONS, batch, acks=-1) for number in range(count)]


def _produce_failed(answer: bytes) -> bool:
    at = 4 + 4 + 2 + len(TOPIC) + 4 + 4
    return answer[at : at + 2] != b"\0\0"


def _rate(running: RunningBroker, client: BareClient, frames: Sequence[bytes]) -> tuple[float, float, list[bytes]]:
    """Requests per second, broker CPU seconds per request, answers."""
    everything = b"".join(frames)
    cpu, started = running.cpu_seconds(), time.perf_counter()
    sender = threading.Thread(target=client.socket.sendall, args=(everything,))
    sender.start()
    answers = [bytes(client.receive()) for _ in frames]
    seconds = time.perf_counter() - started
    sender.join()
    return len(frames) / seconds, (running.cpu_seconds() - cpu) / len(frames), answers


def measure() -> list[Result]:
    commits: list[tuple[float, float]] = []
    produces: list[float] = []
    with broker(None, "group.initial.rebalance.delay.ms=0") as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        client = BareClient(running.host, running.port)
        member = Member(client, "bench", assignment_of(TOPIC, range(PARTITIONS)))
        wait_for_coordinator(client, member.group_id)
        join_all([member], subscription_to(TOPIC))
        for _ in range(ROUNDS):
            rate, cpu, answers = _rate(running, client, _commits(member, REQUESTS))
            if any(map(_commit_failed, answers)):
                raise RuntimeError("a commit failed")
            commits.append((rate, cpu))
            rate, _, answers = _rate(running, client, _produces(REQUESTS))
            if any(map(_produce_failed, answers)):
                raise RuntimeError("a produce failed")
            produces.append(rate)
        client.close()
    rate, produced, cpu = max(r for r, _ in commits), max(produces), min(c for _, c in commits)
    return [
        Result("small commits of one consumer", rate, "/s", GOAL),
        Result("broker CPU per 10,000 commits/s", cpu * GOAL, "cores", 1.0, at_least=False),
        Result("commits / single small records", rate / produced, "", details={"records/s": produced}),
    ]
