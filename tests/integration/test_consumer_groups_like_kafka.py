"""Requests of members by KIP-848 get equal answers from this broker and from Apache Kafka."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.api_connection import ApiConnection
from support.kafka_server import KafkaServer
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker
from barnabas.ports.broker_api.consumer_groups import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    TopicIdPartitions,
)
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.groups import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    ListGroups,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetFetch,
    OffsetFetchGroup,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

pytestmark = [pytest.mark.process, pytest.mark.slow]

UNTIMED = {
    "group.consumer.assignment.interval.ms": "0",
    **{f"group.consumer.{which}session.timeout.ms": "600000" for which in ("", "max.")},
}
"""A loaded machine takes longer for a story than sessions last, and between two requests than an interval."""
LATER = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Answer(NamedTuple):
    """The compared part of the answer to a heartbeat."""

    error: int
    epoch: int
    partitions: tuple[int, ...] | None


class Asker:
    """One broker, asked in the words of the protocol."""

    def __init__(self, bootstrap: str) -> None:
        self.connection = ApiConnection(bootstrap)
        self.answers: list[Any] = []
        with Admin(bootstrap) as admin:
            admin.create_topic("t", partitions=6)
        self.topic_id = self.connection.ask(Metadata(topics=["t"]), 12).topics[0].topic_id
        deadline = time.monotonic() + PATIENCE_S
        while self.connection.ask(FindCoordinator(keys=["g"]), 4).coordinators[0].error is not ErrorCode.NONE:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def beat(self, member: str, epoch: int = 0, *, group: str = "g", owned: Any = None, **given: Any) -> Answer:
        if epoch == 0:
            given = {"rebalance_timeout_ms": 600_000, "subscribed_topic_names": ["t"], **given}
            owned = () if owned is None else owned
        request = ConsumerGroupHeartbeat(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            topic_partitions=None
            if owned is None
            else [TopicIdPartitions(self.topic_id, list(owned))]
            if owned
            else [],
            **given,
        )
        result: Any = self._ask(request, 1)
        assignment = result.assignment
        partitions = (
            None if assignment is None else tuple(sorted(each for one in assignment for each in one.partitions))
        )
        answer = Answer(result.error.value, result.member_epoch, partitions)
        self.answers.append((member, epoch, answer))
        return answer

    def commit(self, member: str, epoch: int, partition: int = 0, version: int = 9) -> None:
        request = OffsetCommit(
            group_id="g",
            partitions=[OffsetCommitPartition("t", partition, 1)],
            member_id=member,
            generation_id=epoch,
            knows_group_id_not_found=version >= 9,
        )
        error = self._ask(request, version).partitions[0].error.value
        self.answers.append(("commit", member, epoch, partition, version, error))

    def fetch(self, member: str | None, epoch: int) -> None:
        group = OffsetFetchGroup(
            group_id="g", partitions=[TopicPartition("t", 0)], member_id=member, member_epoch=epoch
        )
        self.answers.append(("fetch", member, epoch, self._ask(OffsetFetch(groups=[group]), 9).groups[0].error.value))

    def describe(self, group: str = "g") -> None:
        (found,) = self._ask(ConsumerGroupDescribe(group_ids=[group]), 1).groups
        members = sorted(
            (each.member_id, each.member_epoch, each.instance_id, each.member_type, len(each.subscribed_topic_names))
            for each in found.members
        )
        state = found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name
        self.answers.append((found.error.value, state, members))

    def administer(self, group: str = "g") -> None:
        listed = [
            (each.group_id, each.protocol_type, each.state.lower(), each.group_type.lower())
            for each in self._ask(ListGroups(), 5).groups
        ]
        old = [
            (each.error.value, each.state)
            for version in (5, 6)
            for each in self._ask(DescribeGroups(group_ids=[group]), version).groups
        ]
        deleted = self._ask(DeleteGroups(group_ids=[group]), 2).groups[0].error.value
        self.answers.append((sorted(listed), old, deleted))

    def _ask(self, request: Request[Any], version: int) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            result = self.connection.ask(request, version)
            if getattr(result, "error", None) not in LATER or time.monotonic() > deadline:
                return result
            time.sleep(0.1)


def life_of_a_group(asker: Asker) -> None:
    """From the first member to the deletion."""
    asker.beat("a", 1)
    asker.beat("a", -1)
    asker.beat("a")
    asker.beat("a", 2)
    asker.describe()
    asker.beat("b")
    asker.beat("b", 2)
    partitions_of_a = asker.beat("a", 2).partitions
    asker.beat("b", 2)
    asker.describe()
    asker.beat("a", 2)
    asker.beat("a", 2, owned=range(6))
    asker.commit("a", 2, 5)
    asker.beat("a", 2, owned=partitions_of_a)
    given = asker.beat("b", 3).partitions
    asker.describe()
    full: dict[str, Any] = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 600_000}
    asker.beat("b", 3, owned=given, **full)
    asker.beat("a", 2, owned=partitions_of_a)
    asker.beat("a", 2)
    asker.beat("a", 4)
    for member, epoch in (("a", 3), ("a", 2), ("a", 4), ("a", 1), ("c", 3), ("", -1)):
        asker.commit(member, epoch)
    asker.commit("a", 2, 5)
    asker.commit("a", 3, version=8)
    for name, epoch in ((None, -1), ("a", 3), ("a", 2), ("a", 4), ("c", 3)):
        asker.fetch(name, epoch)
    asker.administer()
    asker.beat("a", 3, subscribed_topic_names=[])
    asker.beat("a", 3)
    asker.describe()
    asker.beat("a")
    asker.beat("b", -1)
    asker.beat("a", -1)
    asker.describe()
    asker.commit("", -1)
    asker.administer()
    asker.describe()


def static_members(asker: Asker) -> None:
    """One that returns, and others with its instance id."""
    asker.beat("a", instance_id="one")
    asker.beat("b", instance_id="one")
    asker.beat("b", 2, instance_id="one")
    asker.beat("b", -1, instance_id="one")
    asker.beat("a", 2, instance_id="two")
    asker.beat("a", -2, instance_id="one")
    asker.describe()
    asker.beat("a", 2, instance_id="one")
    asker.beat("b", instance_id="one")
    asker.beat("a", 2, instance_id="one")
    asker.describe()
    asker.beat("b", -1, instance_id="one")
    asker.describe()
    asker.administer()


def wrong_requests(asker: Asker) -> None:
    asker.beat("", 0)
    asker.beat("a", -3)
    asker.beat("a", -2)
    asker.beat("a", 0, instance_id="")
    asker.beat("a", 0, rack_id="")
    asker.beat("a", 0, rebalance_timeout_ms=-1)
    asker.beat("a", 0, owned=[1])
    asker.beat("a", 0, subscribed_topic_names=None)
    asker.beat("a", 0, server_assignor="none")
    asker.beat("a", 0, subscribed_topic_regex="(")
    asker.beat("a", 0, group="")
    asker.describe("nobody")
    asker.administer("nobody")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    server = KafkaServer(tmp_path_factory.mktemp("kafka"), more=UNTIMED)
    server.start()
    try:
        server.wait_ready()
        asker = Asker(server.bootstrap)
        with asker.connection:
            yield asker
    finally:
        server.stop()


@pytest.fixture(scope="module")
def barnabas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    folder: Path = tmp_path_factory.mktemp("barnabas")
    with Broker(data_dir=folder, config={**UNTIMED, "offsets.topic.num.partitions": "1"}) as broker:
        asker = Asker(broker.bootstrap)
        with asker.connection:
            yield asker


@pytest.mark.parametrize("story", [life_of_a_group, static_members, wrong_requests])
def test_answers_are_those_of_apache_kafka(story: Any, kafka: Asker, barnabas: Asker) -> None:
    for asker in (kafka, barnabas):
        asker.answers.clear()
        story(asker)
    assert len(kafka.answers) == len(barnabas.answers)
    differences = [
        f"{number}: Kafka {theirs}, here {ours}"
        for number, (theirs, ours) in enumerate(zip(kafka.answers, barnabas.answers, strict=True))
        if theirs != ours
    ]
    assert differences == []
