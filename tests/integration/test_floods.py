"""One connection's requests, however many, delay no other connection for long."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from support.raw import RawConnection, produce_v3
from support.raw_groups import ask, framed, read_result, wait_for_groups
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker, Message
from barnabas.adapters.wire_kafka import KafkaServer
from barnabas.app.compose.broker import ServerOnDemand
from barnabas.core.message.batch_writer import encode_batch
from barnabas.plugins.host import PluginHost
from barnabas.ports.broker_api.cluster import DescribeLogDirs
from barnabas.ports.broker_api.configs import ConfigDescription, ConfigResource, DescribeConfigs, ResourceKind
from barnabas.ports.broker_api.envelope import BrokerApi, Caller, Reply, Request, ResultT
from barnabas.ports.broker_api.groups import (
    DescribeGroups,
    ListGroups,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetFetch,
    OffsetFetchGroup,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.topics import DeleteTopics
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError

pytestmark = pytest.mark.slow

LARGE = "large"
PARTITIONS = 4_000
TOPICS = [f"small-{number}" for number in range(200)]
BOMB = "bomb"
BOMB_BYTES = 60_000_000
GROUP = "positions"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        storage="memory", coordination="memory", offsets_topic_num_partitions=2, log_retention_ms=-1
    ) as running:
        with Admin(running) as admin:
            admin.create_topic(LARGE, partitions=PARTITIONS)
            admin.create_topic(BOMB, partitions=4)
            for name in TOPICS:
                admin.create_topic(name, partitions=1)
        wait_for_groups(running.bootstrap)
        codecs = PluginHost([], load_entry_points=False).codecs()
        batch = encode_batch(
            [Message(value=bytes(BOMB_BYTES), timestamp_ms=1000)], codec=codecs.by_name("gzip"), now_ms=1000
        )
        with RawConnection(running.bootstrap) as connection:
            for number in range(4):
                connection.exchange(produce_v3(BOMB, batch, partition=number))
            for start in range(0, PARTITIONS, 1000):
                positions = [OffsetCommitPartition(LARGE, n, 0, -1, "") for n in range(start, start + 1000)]
                committed = ask(connection, OffsetCommit(group_id=GROUP, partitions=positions))
                assert {each.error for each in committed.partitions} == {ErrorCode.NONE}
        yield running


def _bombs(numbers: Sequence[int]) -> ListOffsets:
    return ListOffsets(partitions=[ListOffsetsPartition(topic=BOMB, partition=n, timestamp=999) for n in numbers])


def _configs() -> DescribeConfigs:
    resources = [ConfigResource(kind=ResourceKind.TOPIC, name=name) for name in TOPICS]
    return DescribeConfigs(
        resources=[ConfigDescription(resource=resource) for resource in resources], include_synonyms=True
    )


FLOODS: dict[str, tuple[Callable[[], Request[Any]], int]] = {
    "Metadata": (lambda: Metadata(topics=None), 300),
    "ListOffsets by timestamp": (lambda: _bombs(range(4)), 15),
    "DescribeConfigs": (_configs, 30),
    "DescribeLogDirs": (DescribeLogDirs, 150),
    "OffsetFetch": (lambda: OffsetFetch(groups=[OffsetFetchGroup(group_id=GROUP)]), 150),
    "small ones": (
        lambda: ListOffsets(partitions=[ListOffsetsPartition(topic=BOMB, partition=0, timestamp=LATEST)]),
        4_000,
    ),
}


class Watch:
    """Stands before the broker, and notes whose requests are answered, in order."""

    def __init__(self, api: BrokerApi) -> None:
        self.answered: list[int] = []
        self._api = api

    def submit(self, request: Request[ResultT], caller: Caller, reply: Reply[ResultT]) -> None:
        def noted(result: ResultT | BarnabasError) -> None:
            self.answered.append(caller.connection)
            reply(result)

        self._api.submit(request, caller, noted)


@pytest.fixture
def watch(broker: Broker) -> Iterator[Watch]:
    assert broker._node is not None
    (on_demand,) = broker._node._servers
    assert isinstance(on_demand, ServerOnDemand)
    server = on_demand.made()
    assert isinstance(server, KafkaServer)
    before, server.api = server.api, Watch(server.api)
    yield server.api
    server.api = before


@contextmanager
def standing_still(broker: Broker) -> Iterator[None]:
    """The broker's thread looks at nothing before the end of the block: what is sent meanwhile comes together."""
    stopped, released = threading.Event(), threading.Event()

    def stand() -> None:
        stopped.set()
        released.wait(PATIENCE_S)

    broker.scheduler.call_soon(stand)
    assert stopped.wait(PATIENCE_S)
    try:
        yield
    finally:
        released.set()


def _before_the_neighbour(
    broker: Broker, watch: Watch, floods: Sequence[RawConnection], frames: bytes, question: Request[Any]
) -> int:
    """Count the answers to the floods before the answer to a concurrent request of another connection."""
    with RawConnection(broker.bootstrap) as neighbour:
        ask(neighbour, question)
        number = watch.answered[-1]
        watch.answered.clear()
        senders = [threading.Thread(target=_send, args=(flood, frames)) for flood in floods]
        with standing_still(broker):
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join(0.5)  # some wait for room
            neighbour.send(framed(question))
        read_result(neighbour, question)
        answered = tuple(watch.answered)
        for flood in floods:
            flood.socket.shutdown(socket.SHUT_RDWR)
        for sender in senders:
            sender.join()
    return answered.index(number)


def _send(flood: RawConnection, frames: bytes) -> None:
    with suppress(OSError):  # it ends in the middle
        flood.send(frames)


@pytest.mark.parametrize("name", FLOODS)
def test_a_neighbour_of_a_flood_has_its_turn(broker: Broker, watch: Watch, name: str) -> None:
    make, count = FLOODS[name]
    question = ListOffsets(partitions=[ListOffsetsPartition(topic=TOPICS[0], partition=0, timestamp=LATEST)])
    with RawConnection(broker.bootstrap) as flood:
        ask(flood, Metadata(topics=[]))
        before = _before_the_neighbour(broker, watch, [flood], framed(make()) * count, question)
    assert before <= count // 5


def test_short_answers_do_not_wait_for_the_long_ones_of_many(broker: Broker, watch: Watch) -> None:
    frames = framed(_configs()) * 10
    with ExitStack() as stack:
        floods = [stack.enter_context(RawConnection(broker.bootstrap)) for _ in range(20)]
        before = _before_the_neighbour(broker, watch, floods, frames, Metadata(topics=[TOPICS[0]]))
    assert before < 20


def test_a_flood_is_answered_wholly(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as connection:
        for name in ("Metadata", "OffsetFetch", "small ones"):
            request = FLOODS[name][0]()
            connection.send(framed(request) * 3)
            assert (
                read_result(connection, request) == read_result(connection, request) == read_result(connection, request)
            )


def test_a_partition_named_twice_is_refused(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as connection:
        once, *twice = ask(connection, _bombs([1, 2, 2])).partitions
    assert once.error is ErrorCode.NONE and once.offset == 0
    assert [each.error for each in twice] == [ErrorCode.INVALID_REQUEST] * 2


def test_topic_named_twice_is_described_once(broker: Broker) -> None:
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=TOPICS[0])
    described = DescribeConfigs(resources=[ConfigDescription(resource=resource)] * 50)
    with RawConnection(broker.bootstrap) as connection:
        assert len(ask(connection, described).resources) == 1
        assert len(ask(connection, DescribeGroups(group_ids=[GROUP] * 50)).groups) == 1
        assert [group.group_id for group in ask(connection, ListGroups()).groups] == [GROUP]


@pytest.mark.slow
def test_metadata_follows_every_change(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as connection, Admin(broker) as admin:

        def partitions() -> dict[str | None, int]:
            """By an answer about all topics, and by one about this one, which agree."""
            everything = {topic.name: len(topic.partitions) for topic in ask(connection, Metadata(topics=None)).topics}
            request = Metadata(topics=["changing"], allow_auto_topic_creation=False)
            (named,) = ask(connection, request).topics
            assert (named.error is ErrorCode.NONE) == ("changing" in everything)
            assert everything.get("changing", 0) == len(named.partitions)
            assert all(part.error is ErrorCode.NONE for part in named.partitions)
            return everything

        before = partitions()
        for _ in range(2):
            admin.create_topic("changing", partitions=2)
            assert partitions() == {**before, "changing": 2}
            admin.create_partitions("changing", 5)
            assert partitions() == {**before, "changing": 5}
            ask(connection, DeleteTopics(names=["changing"]))
            assert partitions() == before
        connection.send(framed(Metadata(topics=None)) * 2)
        assert read_result(connection, Metadata(topics=None)) == read_result(connection, Metadata(topics=None))
