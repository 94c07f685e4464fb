"""Requests that lie unread in the socket of a leader that stands still, until another broker leads."""

from collections.abc import Callable

import pytest
from simulation.test_cluster_cases import cluster

from barnabas import Admin, Consumer, Producer
from barnabas.adapters.wire_kafka.client import KafkaLink, connect_kafka
from barnabas.core.cluster.lease import Lease
from barnabas.core.cluster.topics import NO_LEADER
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.transport import TransportError
from barnabas.simulation import World
from barnabas.testing.logs import batch

ALL, ONE = -1, 1


def connect(world: World, broker: int) -> KafkaLink:
    opened: list[KafkaLink | TransportError] = []
    connect_kafka(
        world.network.transport("sender"),
        world.scheduler,
        world.brokers[broker].address,
        client_id="sender",
        request_timeout_ms=60_000,
        connect_timeout_ms=1000,
        opened=opened.append,
    )
    world.run_until(lambda: bool(opened))
    assert isinstance(opened[0], KafkaLink)
    return opened[0]


def send(link: KafkaLink, value: bytes, acks: int) -> Callable[[], ErrorCode | None]:
    """Send a batch; return what says how it was answered, None as long as it is not."""
    answers: list[ErrorCode] = []

    def answered(result: ProduceResult | BarnabasError) -> None:
        is_error = isinstance(result, BarnabasError)
        answers.append(ErrorCode.NETWORK_EXCEPTION if is_error else result.partitions[0].error)  # type: ignore[union-attr]

    entry = ProducePartition("t", 0, batch(value))
    link.submit(Produce(partitions=[entry], acks=acks, timeout_ms=5_000), Caller(client_id="sender"), answered)
    return lambda: answers[0] if answers else None


def play(seed: int) -> tuple[dict[bytes, ErrorCode | None], list[bytes]]:
    """Let two requests wait unread while the leader changes; return the answers, and what was acknowledged and lost."""
    with cluster(seed) as world, Admin(world.client()) as admin:
        admin.create_topic("t", partitions=1, configs={"min.insync.replicas": "2"})
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"before").result()
        old = world.look.states("t")[0].leader
        link = connect(world, old)
        world.brokers[old].pause(6.0)  # three sessions
        answers = {b"one": send(link, b"one", ONE), b"all": send(link, b"all", ALL)}
        world.run_until(lambda: world.look.states("t")[0].leader not in (old, NO_LEADER))
        with Producer(world.client(), acks="all") as producer:
            producer.send("t", b"after").result()
        assert [answer() for answer in answers.values()] == [None, None], "they are unread"
        world.run_until(lambda: all(answer() is not None for answer in answers.values()))
        world.run_until(lambda: set(world.look.states("t")[0].isr) == set(world.brokers))
        values: list[bytes | None] = []
        with Consumer(world.client(), auto_offset_reset="earliest") as consumer:
            consumer.assign([("t", 0)])
            while (record := consumer.poll(2.0)) is not None:
                values.append(record.value)
        outcomes = {value: answer() for value, answer in answers.items()}
        assert [value for value in values if value in (b"before", b"after")] == [b"before", b"after"]
        return outcomes, [value for value, code in outcomes.items() if code is ErrorCode.NONE and value not in values]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_leader_that_stood_still_acknowledges_nothing_that_it_reads_after_its_session(number: int) -> None:
    outcomes, lost = play(number)
    assert outcomes == dict.fromkeys((b"one", b"all"), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not lost


def test_acks_1_rests_on_the_lease_and_acks_all_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "is_valid", True)
    outcomes, lost = play(1)
    assert lost == [b"one"]
    assert outcomes[b"all"] is not ErrorCode.NONE
