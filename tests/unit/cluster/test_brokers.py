import json

import pytest

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.system import SeededEntropy
from barnabas.core.cluster.brokers import (
    broker_configs,
    cluster_id,
    live_brokers,
    random_uuid,
    set_broker_configs,
)
from barnabas.core.cluster.layout import broker_path, decode_id, encode_broker, encode_id
from barnabas.core.cluster.topics import BrokerRegistration
from barnabas.ports.coordination import CoordinationError


def test_a_cluster_has_one_id() -> None:
    tree = MemoryTree()
    made = cluster_id(tree.session(), SeededEntropy(1))
    assert len(made) == 22
    assert cluster_id(tree.session(), SeededEntropy(2)) == made
    assert json.loads(tree.session().get("/barnabas/cluster/id").data) == {"version": 1, "id": made}


@pytest.mark.parametrize("garbage", [b"", b"{}", b'{"version":1,"id":"../../etc"}', b'{"version":1,"id":5}'])
def test_a_cluster_id_that_is_none_is_not_replaced(garbage: bytes) -> None:
    session = MemoryTree().session()
    session.create("/barnabas/cluster/id", garbage)
    with pytest.raises(CoordinationError, match="/barnabas/cluster/id"):
        cluster_id(session, SeededEntropy(1))
    assert session.get("/barnabas/cluster/id").data == garbage


def test_random_uuids_are_version_four() -> None:
    entropy = SeededEntropy(3)
    made = {random_uuid(entropy) for _ in range(100)}
    assert len(made) == 100
    for uuid in made:
        assert (len(uuid), uuid[6] >> 4, uuid[8] >> 6) == (16, 4, 2)
        assert decode_id(encode_id(uuid)) == uuid


@pytest.mark.parametrize(
    "text", ["", "A", "AAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAB", "AAAA AAAAAAAAAAAAAAAAA"]
)
def test_texts_that_are_no_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"identifier|base64|Incorrect|Invalid"):
        decode_id(text)


def test_brokers_come_and_go_with_their_sessions() -> None:
    tree = MemoryTree()
    one, other = tree.session(), tree.session()
    first = BrokerRegistration(broker_id=1, endpoints=("kafka://a:1", "kafka://[::1]:2"), rack="r", started_ms=5)
    tenth = BrokerRegistration(broker_id=10, endpoints=("kafka://b:1",))
    for session, broker in ((other, tenth), (one, first)):
        session.create(broker_path(broker.broker_id), encode_broker(broker), ephemeral=True)
    assert live_brokers(other, pytest.fail) == [first, tenth]
    one.close()
    assert live_brokers(other, pytest.fail) == [tenth]


def test_no_broker_at_all() -> None:
    assert live_brokers(MemoryTree().session(), pytest.fail) == []


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("1", b"junk"),
        ("x", b'{"version":1,"endpoints":[],"rack":null,"started_ms":0}'),
        ("-1", b'{"version":1,"endpoints":[],"rack":null,"started_ms":0}'),
        ("1", b'{"version":1,"endpoints":"a","rack":null,"started_ms":0}'),
        ("1", b'{"version":1,"endpoints":[],"rack":7,"started_ms":0}'),
        ("1", b'{"version":1,"endpoints":[],"rack":null,"started_ms":"0"}'),
    ],
)
def test_a_node_that_describes_no_broker_is_skipped(name: str, data: bytes) -> None:
    session = MemoryTree().session()
    session.create(f"/barnabas/brokers/ids/{name}", data)
    reports: list[str] = []
    assert live_brokers(session, reports.append) == []
    assert len(reports) == 1
    assert f"/barnabas/brokers/ids/{name}" in reports[0]


def test_broker_configs_are_stored_and_read() -> None:
    session = MemoryTree().session()
    reports: list[str] = []
    assert broker_configs(session, 1, reports.append) == {}
    set_broker_configs(session, 1, {"log.retention.ms": "5"})
    set_broker_configs(session, None, {"log.retention.ms": "6"})
    set_broker_configs(session, None, {"log.retention.ms": "7"})
    assert broker_configs(session, 1, reports.append) == {"log.retention.ms": "5"}
    assert broker_configs(session, None, reports.append) == {"log.retention.ms": "7"}
    assert session.children("/barnabas/config/brokers") == ["1", "<default>"]
    assert reports == []
    session.set("/barnabas/config/brokers/1", b"junk")
    assert broker_configs(session, 1, reports.append) == {}
    assert "/barnabas/config/brokers/1" in reports[0]
