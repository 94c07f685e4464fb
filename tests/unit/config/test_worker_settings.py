"""The settings of each worker of `barnabas serve --workers`, from the configuration of all."""

from collections.abc import Callable
from itertools import count

import pytest

from barnabas.app.config import BrokerConfig
from barnabas.app.config.workers import worker_settings
from barnabas.ports.errors import ConfigError


def settings(**given: object) -> list[dict[str, object]]:
    config = BrokerConfig.from_mapping({"workers": 2, "log.dirs": "/data", **given})
    return worker_settings(config, _free_ports(), machine="host-a")


def _free_ports() -> Callable[[str], int]:
    ports = count(40_001)
    return lambda _host: next(ports)


def test_each_worker_is_a_broker_with_its_own_number_folder_and_port() -> None:
    first, second = settings(listeners="kafka://127.0.0.1:9092", **{"broker.id": 7})
    assert first == {
        "workers": 1,
        "broker.id": 7,
        "broker.machine": "host-a",
        "listeners": "kafka://127.0.0.1:9093",
        "log.dirs": "/data/worker-1",
        "metrics.listen": "",
    }
    assert (second["broker.id"], second["listeners"]) == (8, "kafka://127.0.0.1:9094")
    assert second["log.dirs"] == "/data/worker-2"
    for each in (first, second):
        assert BrokerConfig.from_mapping(each).metrics_address is None


def test_ports_are_the_same_at_each_start_and_chosen_where_the_listener_has_none() -> None:
    assert settings(listeners="SSL://[::1]:9092,kafka://:0")[1]["listeners"] == "SSL://[::1]:9094,kafka://:40002"


def test_advertised_ports_follow_the_advertised_one() -> None:
    given = {
        "listeners": "kafka://:9092,classic://:7000",
        "advertised.listeners": "kafka://a.example:19092,classic://b:0",
    }
    first, second = settings(**given)
    assert first["advertised.listeners"] == "kafka://a.example:19093,classic://b:0"
    assert second["advertised.listeners"] == "kafka://a.example:19094,classic://b:0"


def test_generated_numbers_and_the_machine_of_the_configuration_stay() -> None:
    for each in settings(**{"broker.id": -1, "broker.machine": "rack-3-node-9"}):
        assert each["broker.id"] == -1
        assert each["broker.machine"] == "rack-3-node-9"


def test_each_data_folder_has_one_of_each_worker() -> None:
    _, second = settings(**{"log.dirs": "/a,/b", "cordoned.log.dirs": "/b"})
    assert (second["log.dirs"], second["cordoned.log.dirs"]) == ("/a/worker-2,/b/worker-2", "/b/worker-2")
    assert "log.dirs" not in settings(storage="memory")[0]
    assert "cordoned.log.dirs" not in settings(**{"cordoned.log.dirs": "*"})[0]


def test_services_run_only_with_the_first_worker() -> None:
    first, second = settings(**{"schema.registry.listen": "127.0.0.1:8081"})
    assert "schema.registry.listen" not in first
    assert second["schema.registry.listen"] == ""


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"listeners": "kafka://:65534"}, "2 workers need as many ports after it"),
        (
            {"listeners": "kafka://:9092", "advertised.listeners": "kafka://a:65535"},
            "advertised.listeners=kafka://a:65535",
        ),
        ({"listeners": "kafka://:9092,ssl://10.0.0.1:9094"}, "leave a gap of more than 2"),
        ({"broker.id": 1000}, "reaches beyond reserved.broker.max.id=1000"),
    ],
)
def test_ports_and_numbers_that_cannot_be(given: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        settings(**given)


def test_listeners_of_different_hosts_may_have_the_same_port() -> None:
    assert settings(listeners="kafka://10.0.0.1:9092,ssl://10.0.0.2:9092")
