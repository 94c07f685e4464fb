"""What one connection asks for, however much, makes no other wait for long."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from support.raw import RawConnection, produce_v3
from support.raw_groups import ask, framed, read_result, wait_for_groups

from barnabas import Admin, Broker, Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.plugins.host import PluginHost
from barnabas.ports.broker_api import (
    LATEST,
    ConfigDescription,
    ConfigResource,
    DeleteTopics,
    DescribeConfigs,
    DescribeGroups,
    DescribeLogDirs,
    ListGroups,
    ListOffsets,
    ListOffsetsPartition,
    Metadata,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetFetch,
    OffsetFetchGroup,
    Request,
    ResourceKind,
)
from barnabas.ports.error_codes import ErrorCode

LARGE = "large"
PARTITIONS = 4_000
TOPICS = [f"small-{number}" for number in range(200)]
BOMB = "bomb"
BOMB_BYTES = 60_000_000
GROUP = "positions"
WAIT_SECONDS_MAX = 1.0
"""Of a neighbour. Before requests had turns each of these floods took many seconds; a busy machine gets a margin."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", offsets_topic_num_partitions=2) as running:
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
        20_000,
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_neighbour_of_a_flood_waits_little(broker: Broker, name: str) -> None:
    make, count = FLOODS[name]
    frame = framed(make())
    question = ListOffsets(partitions=[ListOffsetsPartition(topic=TOPICS[0], partition=0, timestamp=LATEST)])
    answered = 0
    with RawConnection(broker.bootstrap) as flood, RawConnection(broker.bootstrap) as neighbour:
        ask(neighbour, question)

        def receive() -> None:
            nonlocal answered
            with suppress(OSError):  # it ends in the middle
                while answered < count:
                    flood.answer()
                    answered += 1

        def send() -> None:
            with suppress(OSError):
                flood.send(frame * count)

        threads = [threading.Thread(target=work) for work in (send, receive)]
        for thread in threads:
            thread.start()
        waits = []
        until = time.monotonic() + 2
        while answered < count and time.monotonic() < until:
            began = time.monotonic()
            assert ask(neighbour, question).partitions[0].error is ErrorCode.NONE
            waits.append(time.monotonic() - began)
        flood.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
    assert waits and max(waits) < WAIT_SECONDS_MAX
    assert answered > 0, "the flood itself is served, too"


def test_many_floods_together_still_leave_room(broker: Broker) -> None:
    floods = [RawConnection(broker.bootstrap) for _ in range(10)]
    frame = framed(_configs())
    with RawConnection(broker.bootstrap) as neighbour:
        for flood in floods:
            flood.send(frame * 20)
        for _ in range(20):
            began = time.monotonic()
            ask(neighbour, Metadata(topics=[TOPICS[0]]))
            assert time.monotonic() - began < WAIT_SECONDS_MAX
    for flood in floods:
        flood.socket.close()


def test_a_partition_named_twice_is_refused(broker: Broker) -> None:
    with RawConnection(broker.bootstrap) as connection:
        once, *twice = ask(connection, _bombs([1, 2, 2])).partitions
    assert once.error is ErrorCode.NONE and once.offset == 0
    assert [each.error for each in twice] == [ErrorCode.INVALID_REQUEST] * 2


def test_what_is_named_twice_is_described_once(broker: Broker) -> None:
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=TOPICS[0])
    described = DescribeConfigs(resources=[ConfigDescription(resource=resource)] * 50)
    with RawConnection(broker.bootstrap) as connection:
        assert len(ask(connection, described).resources) == 1
        assert len(ask(connection, DescribeGroups(group_ids=[GROUP] * 50)).groups) == 1
        assert [group.group_id for group in ask(connection, ListGroups()).groups] == [GROUP]


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
