"""Cordoned brokers and data folders (KIP-1066): they keep their replicas, and get no new ones."""

from pathlib import Path

import pytest
from attrs import evolve

from barnabas import Admin, Broker
from barnabas.app.config import BrokerConfig
from barnabas.core.cluster import layout
from barnabas.core.cluster.deltas import BrokersChanged, ConfigsChanged
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.topics import BrokerRegistration, LastRegistration
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError

BROKERS = {each: BrokerRegistration(broker_id=each, endpoints=(), rack=f"r{each}") for each in (1, 2, 3)}


def test_image_gives_cordoned_brokers_no_new_replicas() -> None:
    image = ClusterImage().after(BrokersChanged(brokers=BROKERS))
    assert image.racks_for_new_replicas() == {1: "r1", 2: "r2", 3: "r3"}
    by_tree = image.after(ConfigsChanged(broker_id=2, configs={"cordoned.log.dirs": "*"}))
    assert by_tree.racks_for_new_replicas() == {1: "r1", 3: "r3"}
    by_broker = image.after(BrokersChanged(brokers={**BROKERS, 3: evolve(BROKERS[3], cordoned=True)}))
    assert by_broker.racks_for_new_replicas() == {1: "r1", 2: "r2"}
    assert by_tree.after(ConfigsChanged(broker_id=2, configs={})).racks_for_new_replicas().keys() == {1, 2, 3}
    one_folder = image.after(ConfigsChanged(broker_id=1, configs={"cordoned.log.dirs": "/data/1"}))
    assert not one_folder.is_cordoned(1)


def test_registrations_keep_their_marks_in_the_tree() -> None:
    cordoned = evolve(BROKERS[1], cordoned=True)
    assert layout.decode_broker("1", layout.encode_broker(cordoned)) == cordoned
    assert b"cordoned" not in layout.encode_broker(BROKERS[1])
    removed = LastRegistration(4, 17, ended=True, removed=True)
    assert layout.decode_last_registration(4, layout.encode_last_registration(removed)) == removed
    assert b"removed" not in layout.encode_last_registration(LastRegistration(4, 17))


def test_configuration_refuses_unknown_cordoned_folders() -> None:
    config = BrokerConfig.from_mapping({"log.dirs": "a,b", "cordoned.log.dirs": "b"})
    assert config.cordoned_dirs(config.cordoned_log_dirs) == {"b"}
    assert config.cordoned_dirs(["*"]) == {"a", "b"}
    assert config.cordoned_dirs([str(Path("a").absolute())]) == {"a"}
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs=c: this is not one of log\.dirs, a, b"):
        BrokerConfig.from_mapping({"log.dirs": "a,b", "cordoned.log.dirs": "c"})


def test_cordoned_folder_gets_no_new_partition_and_keeps_what_it_has(tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("one", "two")]
    with Broker(log_dirs=folders) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("before", partitions=4)
        number = admin.describe_cluster().brokers[0].node_id
        admin.alter_configs(ResourceKind.BROKER, number, {"cordoned.log.dirs": folders[0]})
        admin.create_topic("after", partitions=4)
        held = {
            folder.path: sorted(f"{each.topic}-{each.partition}" for each in folder.replicas)
            for folder in admin.describe_log_dirs()[number]
        }
        assert [each.startswith("before") for each in held[folders[0]]] == [True, True]
        assert len(held[folders[1]]) == 6
        assert [folder.is_cordoned for folder in admin.describe_log_dirs()[number]] == [True, False]
        for value, code in (("/elsewhere", ErrorCode.INVALID_CONFIG), ("*", None)):
            if code is None:
                admin.alter_configs(ResourceKind.BROKER, number, {"cordoned.log.dirs": value})
                continue
            with pytest.raises(ApiError) as refused:
                admin.alter_configs(ResourceKind.BROKER, number, {"cordoned.log.dirs": value})
            assert refused.value.code is code
        with pytest.raises(ApiError, match="1 broker is cordoned"):
            admin.create_topic("none")
        with pytest.raises(ApiError, match="set it for a broker by its id"):
            admin.alter_configs(ResourceKind.BROKER, "", {"cordoned.log.dirs": "*"})
        admin.cordon_broker(number, cordoned=False)
        admin.create_topic("again")
