"""Connected clients are listed by `Admin.describe_connections`, `barnabas brokers connections` and a metric."""

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from support.command import Command
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, ApiError, Consumer, ErrorCode, Producer
from barnabas.adapters.wire_kafka.server import KafkaServer, _api_versions
from barnabas.app.broker.handlers.cluster import SOFTWARES_MAX, count_software
from barnabas.app.broker.state.dependencies import Server
from barnabas.testing import TestBroker, TestCluster


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        running.create_topic("orders", partitions=1)
        running.produce("orders", [b"x" * 2000])
        yield running


def test_connections_name_client_software_address_principal_and_bytes(broker: TestBroker) -> None:
    before_ms = time.time_ns() // 1_000_000
    with Producer(broker.bootstrap, client_id="shop") as producer, Admin(broker.bootstrap, client_id="desk") as admin:
        producer.send("orders", b"x" * 1000).result(PATIENCE_S)
        found = admin.describe_connections()
        assert list(found) == [1]
        mine = {each.client_id: each for each in found[1] if each.client_id in ("shop", "desk")}
        shop = max((each for each in found[1] if each.client_id == "shop"), key=lambda each: each.bytes_in)
        assert mine.keys() == {"shop", "desk"}
        assert (shop.software_name, shop.host, shop.principal) == ("barnabas", "127.0.0.1", "User:ANONYMOUS")
        assert shop.software_version[0].isdigit()
        assert shop.listener.endswith(broker.bootstrap)
        assert before_ms - 1000 <= shop.connected_at_ms <= time.time_ns() // 1_000_000 + 1000
        assert shop.requests >= 2
        assert 1000 < shop.bytes_in < 2000
        assert shop.bytes_out > 0
        assert not shop.is_encrypted
        assert mine["desk"].in_flight == 1, "the request that asks for it"
    with Admin(broker.bootstrap, client_id="desk") as admin:
        wait_for(lambda: all(each.client_id != "shop" for each in admin.describe_connections([1])[1]))


def test_pages_return_each_connection_once_in_the_order_of_ids(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.app.clients.admin.admin._CONNECTIONS_PAGE", 2)
    clients = [Admin(broker.bootstrap, client_id=f"c{number}") for number in range(5)]
    try:
        for client in clients:
            client.describe_cluster()
        ids = [each.connection_id for each in clients[0].describe_connections()[1]]
        assert len(ids) >= 5
        assert ids == sorted(set(ids))
        assert [each.connection_id for each in clients[0].describe_connections([1], limit=3)[1]] == ids[:3]
    finally:
        for client in clients:
            client.close()


def test_command_lists_sorted_and_limited_connections(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    with Consumer(broker.bootstrap, client_id="re\x1b[2Jader", group_id=None) as consumer:
        consumer.assign("orders", position="earliest")
        wait_for(lambda: bool(consumer.poll_many(10, timeout=1)))
        lines = run("brokers", "connections", "--sort", "bytes").out.splitlines()
        assert lines[0].split() == [
            *("BROKER", "CLIENT_ID", "SOFTWARE", "ADDRESS", "PRINCIPAL", "LISTENER", "AGE", "REQUESTS", "IN", "OUT")
        ]
        (line,) = [line for line in lines if r"re\x1b[2Jader" in line and "KiB" in line]
        assert "User:ANONYMOUS" in line
        rows = json.loads(run("brokers", "connections", "--broker", "1", "--sort", "requests", "--json").out)
        assert [row["requests"] for row in rows] == sorted((row["requests"] for row in rows), reverse=True)
        assert {"client_id", "software_name", "address", "principal", "connected_at_ms", "bytes_in"} <= rows[0].keys()
        short = run("brokers", "connections", "--limit", "1")
        assert len(short.out.splitlines()) == 2
        assert "showing 1 of " in short.err
    assert "unknown broker 9" in run("brokers", "connections", "--broker", "9", expect=2).err


def test_another_clients_library_is_named(broker: TestBroker) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer({"bootstrap.servers": broker.bootstrap, "client.id": "foreign"})
    producer.produce("orders", b"x")
    producer.flush(PATIENCE_S)
    with Admin(broker.bootstrap) as admin:
        found = [each for each in admin.describe_connections()[1] if each.client_id == "foreign"]
    assert {each.software_name for each in found} == {"confluent-kafka-python"}
    assert all(each.software_version for each in found)


def test_a_broker_of_kafka_is_named_as_the_reason(
    broker: TestBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KafkaServer, "api_versions", lambda _, version, **__: _api_versions(version, False))
    refused = Command(capsys, "--bootstrap", broker.bootstrap)("brokers", "connections", expect=1).err
    assert "UNSUPPORTED_VERSION: broker 1 does not describe its connections: it is one of Kafka" in refused


def test_metric_counts_connections_by_software_and_is_bounded() -> None:
    made = [("librdkafka", "2.14.0")] * 3 + [("barnabas", "1")] + [("", "")] * 2
    made += [(f"x{number}", "1") for number in range(200)]
    server = cast(
        Server, SimpleNamespace(connections={n: SimpleNamespace(software=each) for n, each in enumerate(made)})
    )
    counted = list(count_software(server))
    assert counted[0] == (("librdkafka", "2.14.0"), 3.0)
    assert (("barnabas", "1"), 1.0) in counted
    assert len(counted) == SOFTWARES_MAX - 1, "clients without a name are not shown"


def test_each_broker_of_a_cluster_describes_its_own_connections() -> None:
    with TestCluster(brokers=2) as cluster, Admin(cluster.bootstrap, client_id="desk") as admin:
        found = admin.describe_connections()
        assert list(found) == [1, 2]
        followers = [each for each in found[1] if each.client_id == "broker-2-fetcher"]
        assert {each.software_name for each in followers} <= {"barnabas"}
        assert all(any(each.client_id == "desk" for each in found[broker]) for broker in found)


def test_describing_connections_needs_the_right_to_describe_the_cluster() -> None:
    with TestBroker(security="SASL_PLAINTEXT", users={"alice": "secret"}) as broker:
        broker.deny("User:alice", "Describe", "cluster")
        with (
            Admin(broker.bootstrap, config=broker.client_settings("alice")) as admin,
            pytest.raises(ApiError, match="Cluster authorization failed") as refused,
        ):
            admin.describe_connections([1])
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
