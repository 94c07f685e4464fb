"""broker.id=-1: a number above reserved.broker.max.id, which the data folder keeps."""

from pathlib import Path

import pytest

from barnabas import Admin, Broker
from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.storage_memory import MemoryDisk
from barnabas.ports.errors import ConfigError
from barnabas.testing.manual_broker import ManualBroker


def test_generated_broker_id_survives_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(tmp_path / "data", broker_id=-1) as broker, Admin(broker) as admin:
            assert admin.describe_cluster().controller_id == 1001
    assert "broker.id=1001" in (tmp_path / "data" / "meta.properties").read_text()
    with Broker(tmp_path / "data", broker_id=1001) as broker, Admin(broker) as admin:
        assert [node.node_id for node in admin.describe_cluster().brokers] == [1001]


def test_a_number_that_was_given_once_stays(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", broker_id=7):
        pass
    with Broker(tmp_path / "data", broker_id=-1) as broker, Admin(broker) as admin:
        assert admin.describe_cluster().controller_id == 7


def test_each_broker_of_a_cluster_gets_its_own() -> None:
    tree = MemoryTree()
    for expected in (5001, 5002):
        broker = ManualBroker(
            disk=MemoryDisk(),
            tree=tree,
            broker_id=-1,
            reserved_broker_max_id=5000,
            listeners="classic://broker:9092",
        )
        assert broker.node.state.node_id == expected
        assert f"this broker has the generated id {expected}, which its data folders store" in broker.lines
        broker.restart()
        assert broker.node.state.node_id == expected
        broker.stop()


def test_a_broker_without_a_number_may_be_forbidden(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"set broker\.id"):
        Broker(tmp_path, config={"broker.id": -1, "broker.id.generation.enable": "false"}).start()


def test_folders_of_two_brokers_are_no_brokers(tmp_path: Path) -> None:
    for number in (7, 8):
        with Broker(tmp_path / str(number), broker_id=number):
            pass
    with pytest.raises(ConfigError, match="belong to different brokers"):
        Broker([tmp_path / "7", tmp_path / "8"], broker_id=-1).start()
