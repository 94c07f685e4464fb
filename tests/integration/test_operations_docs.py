"""The commands of docs/operations.md run as written, and its metrics exist."""

import re
from pathlib import Path

import pytest
from support.cluster_process import cluster_process
from support.doc_commands import Reader
from support.documents import blocks, read
from support.etcd_server import EtcdServer

from barnabas import Admin, Broker
from barnabas.adapters.metrics_memory import MemoryMetrics
from barnabas.adapters.system import ManualClock
from barnabas.app.compose.coordination import COORDINATION_FILE
from barnabas.app.config import BrokerConfig
from barnabas.core.security.quotas.request_quotas import RequestQuotas
from barnabas.core.traffic.socket_server_metrics import SocketServerMetrics
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.testing import TestCluster

PAGE = "docs/operations.md"


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, monkeypatch)


def test_the_commands_of_one_broker(reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("a line\n")
    (commands,) = (block for block in blocks(PAGE, "sh") if "barnabas serve" in block.code)
    with Broker(tmp_path / "data", group_initial_rebalance_delay_ms=0) as broker:
        printed = reader.run(commands, broker.bootstrap)
    assert [out for line, out in printed.items() if " consume " in line] == ["a line\n"] * 2
    assert len(printed) >= 12


def test_the_commands_of_every_week(reader: Reader, tmp_path: Path) -> None:
    (commands,) = (block for block in blocks(PAGE, "sh") if "groups list --sort lag" in block.code)
    with Broker(tmp_path / "data", group_initial_rebalance_delay_ms=0) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("events", partitions=2)
        admin.alter_group_offsets("readers", {("events", 0): 0})
        printed = list(reader.run(commands, broker.bootstrap).values())
    assert len(printed) == 6
    assert "readers  Empty" in printed[1]
    assert printed[2].startswith("readers  Empty  lag 0")
    assert printed[3].splitlines()[1].startswith("events")
    assert "User:ANONYMOUS" in printed[4]


CHANGES = "docs/changing-a-cluster.md"


def test_commands_that_drain_and_remove_a_broker_take_it_out(reader: Reader) -> None:
    drain, remove = (block for block in blocks(CHANGES, "sh") if "barnabas brokers" in block.code)
    with TestCluster(brokers=4) as cluster:
        topic = cluster.create_topic("events", partitions=4, replication_factor=3)
        assert "broker 2 has" in next(iter(reader.run(drain, cluster.bootstrap).values()))
        assert all(2 not in cluster.replicas(topic, number) for number in range(4))
        cluster.stop(2)
        assert list(reader.run(remove, cluster.broker(1).bootstrap).values()) == ["removed broker 2\n"]


def test_commands_that_change_retention_show_its_value(reader: Reader, tmp_path: Path) -> None:
    (commands,) = (block for block in blocks(CHANGES, "sh") if "retention" in block.code)
    with Broker(tmp_path / "data") as broker, Admin(broker.bootstrap) as admin:
        admin.create_topic("events", partitions=1)
        printed = list(reader.run(commands, broker.bootstrap).values())
        assert "86400000" in printed[2]
        assert [entry.value for entry in admin.describe_configs(ResourceKind.TOPIC, "events", ["retention.ms"])] == [
            "259200000"
        ]


def test_effect_times_of_retention_are_those_of_the_defaults() -> None:
    defaults, text = BrokerConfig.from_mapping({}), read(CHANGES)
    assert f"`log.retention.check.interval.ms` ({defaults.log_retention_check_interval_ms // 60_000} min)" in text
    assert f"`file.delete.delay.ms` ({defaults.log_segment_delete_delay_ms // 60_000} min)" in text
    assert f"`segment.bytes` ({defaults.log_segment_bytes >> 30} GiB)" in text
    assert f"`segment.ms` ({defaults.log_roll_hours // 24} days)" in text


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.xdist_group("etcd")
def test_the_commands_of_several_brokers(reader: Reader, etcd_server: EtcdServer, tmp_path: Path) -> None:
    (commands,) = (block for block in blocks(PAGE, "sh") if "barnabas cluster start" in block.code)
    where = f"etcd://127.0.0.1:{etcd_server.port}/operations-{tmp_path.name}"
    with cluster_process(tmp_path / "cluster", "--brokers", "3", "--coordination", where) as cluster:
        assert len(reader.run(commands, cluster.bootstrap)) >= 4


def test_the_defaults_that_the_page_names() -> None:
    text = read(PAGE)
    defaults = BrokerConfig.from_mapping({})
    assert f"`background.threads` ({defaults.background_threads})" in text
    assert f"`max.connections` ({defaults.max_connections})" in text
    assert f"`queued.max.request.bytes` ({defaults.queued_max_request_bytes >> 20} MiB)" in text
    assert f"`socket.unsent.max.bytes` ({defaults.socket_unsent_max_bytes >> 20} MiB)" in text
    assert f"`log.cleaner.dedupe.buffer.size` ({defaults.log_cleaner_dedupe_buffer_size >> 20} MiB)" in text
    assert f"`slow.request.threshold.ms`, {defaults.slow_request_threshold_ms}" in text
    assert f"`{COORDINATION_FILE}`" in text


def test_the_metrics_that_the_page_names() -> None:
    """The dashboard's are compared with those of a broker by themselves."""
    named = set(re.findall(r"`((?:kafka|process)_[a-z_]+)`", read(PAGE)))
    assert len(named) > 10
    metrics = MemoryMetrics()
    RequestQuotas(ManualClock()).register_metrics(metrics)
    SocketServerMetrics(metrics, "SSL")
    without_dashboard = {name for name in named if name in metrics.names()}
    assert len(without_dashboard) == 6
    assert {name for name in named - without_dashboard if name not in read("docs/grafana.json")} == {
        "process_open_fds",
        "kafka_server_socketservermetrics_connections",
    }
