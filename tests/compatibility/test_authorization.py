"""Apache Kafka and Barnabas refuse each attempt without one of its rights with the same error."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from support.api_connection import ApiConnection
from support.authorization_cases import CASES, SHARE_GROUP, STANDARD, TP, Case, Right, codes
from support.kafka_frames import newest
from support.kafka_server import KafkaServer
from support.raw import frame, text
from support.waiting import wait_for

from barnabas import Broker
from barnabas.adapters.wire_kafka.table import BY_REQUEST
from barnabas.ports.broker_api.acls import AclBinding, AclBindingFilter, CreateAcls, DeleteAcls, DescribeAcls
from barnabas.ports.broker_api.classic import ClassicFetch, ClassicOffsets, ClassicProduce
from barnabas.ports.broker_api.cluster import DescribeConnections
from barnabas.ports.broker_api.epochs import OffsetForLeaderEpoch
from barnabas.ports.broker_api.groups import (
    FindCoordinator,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetFetch,
    OffsetFetchGroup,
)
from barnabas.ports.broker_api.mirroring import MirrorRecords
from barnabas.ports.broker_api.offsets import ListOffsets
from barnabas.ports.broker_api.share_groups import ShareGroupHeartbeat
from barnabas.ports.broker_api.share_partitions import DescribeSharePartitions
from barnabas.ports.broker_api.topics import CreateTopics, NewTopic
from barnabas.ports.error_codes import ErrorCode

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.xdist_group("kafka-authorization")]

USERS = {"alice": "alice-secret", "admin": "admin-secret"}
CLASSIC = (ClassicProduce, ClassicFetch, ClassicOffsets)


def is_ours_alone(case: Case) -> bool:
    """Return True for the classic protocol, our own APIs, and requests beyond Kafka's: in these two a replica id is a
    broker's."""
    is_replica = getattr(case.request, "replica_id", -1) >= 0
    return isinstance(case.request, (*CLASSIC, DescribeConnections, DescribeSharePartitions, MirrorRecords)) or (
        is_replica and isinstance(case.request, ListOffsets | OffsetForLeaderEpoch)
    )


ATTEMPTS = [
    pytest.param(case, right, id=f"{case.name}-{right[0].name}-{right[1].name}-{number}")
    for number, case in enumerate(CASES)
    if not is_ours_alone(case)
    for right in case.rights
]


class Server:
    """A server with both users logged in. The highest version of each API is that of the server, without ids."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.admin, self.alice = self._connected("admin"), self._connected("alice")
        answer = self.admin.exchange(frame(18, 0, b""))
        (count,) = struct.unpack_from(">i", answer, 6)
        rows = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
        self._highest = {key: high for key, _, high in rows}

    def _connected(self, user: str) -> ApiConnection:
        connection = ApiConnection(self._bootstrap)
        connection.exchange(frame(17, 1, text("PLAIN")))
        token = f"\0{user}\0{USERS[user]}".encode()
        answer = connection.exchange(frame(36, 0, struct.pack(">i", len(token)) + token))
        assert answer[4:6] == b"\0\0", answer
        return connection

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self.admin, self.alice):
            connection.__exit__(None, None, None)

    def ask(self, connection: ApiConnection, request: Any) -> Any:
        api = BY_REQUEST[type(request)]
        return connection.ask(request, min(newest(request), self._highest[api.key], api.ids_since - 1))

    def reconnect(self) -> None:
        self.alice.__exit__(None, None, None)
        self.alice = self._connected("alice")

    def set_rights(self, rights: list[Right]) -> None:
        self.ask(self.admin, DeleteAcls(filters=[AclBindingFilter()]))
        acls = [
            AclBinding(resource_type=kind, resource_name=name, operation=operation, principal="User:alice")
            for operation, kind, name in rights
        ]
        if acls:
            result = self.ask(self.admin, CreateAcls(acls=acls))
            assert all(each.error is ErrorCode.NONE for each in result.results)
        wait_for(lambda: set(self.ask(self.admin, DescribeAcls()).acls) == set(acls))


@pytest.fixture(scope="module", params=["Kafka", "Barnabas"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if request.param == "Kafka":
        kafka = KafkaServer(tmp_path_factory.mktemp("kafka"), users=USERS)
        kafka.start()
        try:
            kafka.wait_ready()
            with Server(kafka.bootstrap) as server:
                yield _with_topic(server)
        finally:
            kafka.kill()
        return
    known = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    settings: dict[str, Any] = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"PlainLoginModule required {known};",
        "authorizer.class.name": STANDARD,
        "super.users": "User:admin",
    }
    with Broker(storage="memory", **settings) as broker, Server(broker.bootstrap) as server:
        yield _with_topic(server)


def _with_topic(server: Server) -> Server:
    made = server.ask(server.admin, CreateTopics(topics=[NewTopic(name="t", partitions=1, replication_factor=1)]))
    assert made.topics[0].error is ErrorCode.NONE
    coordinated = OffsetFetch(groups=[OffsetFetchGroup(group_id="g", partitions=[TP])])
    wait_for(
        lambda: (
            not codes(server.ask(server.admin, FindCoordinator(keys=["g"])))
            and not codes(server.ask(server.admin, coordinated))
        )
    )
    stored = server.ask(server.admin, OffsetCommit(group_id="g", partitions=[OffsetCommitPartition("t", 0, 0)]))
    assert not codes(stored)
    _make_share_group(server)
    return server


def _make_share_group(server: Server) -> None:
    """Have a member join and leave: the error of a group that is no share group would come before that of a topic."""
    joining = ShareGroupHeartbeat(group_id=SHARE_GROUP, member_id="m", member_epoch=0, subscribed_topic_names=["t"])
    wait_for(lambda: not codes(server.ask(server.admin, joining)))
    assert not codes(server.ask(server.admin, evolve(joining, member_epoch=-1, subscribed_topic_names=None)))


@pytest.mark.parametrize(("case", "missing"), ATTEMPTS)
def test_attempt_without_one_right_is_refused_with_the_same_error(server: Server, case: Case, missing: Right) -> None:
    server.set_rights([right for right in case.rights if right != missing])
    try:
        answer = server.ask(server.alice, case.request)
    except OSError:
        server.reconnect()
        raise
    assert codes(answer) == {case.rights[missing]}
