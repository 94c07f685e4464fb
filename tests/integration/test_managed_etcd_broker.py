"""A broker that runs its own etcd: what it agreed on is there again, and the server goes with the broker."""

from pathlib import Path

import pytest
from support.command import barnabas_here
from support.managed_etcd import etcd_of, has_ended
from support.ports import free_pairs, free_port
from support.process import broker_process
from support.waiting import wait_for

from barnabas import Broker
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.ports.errors import ConfigError

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("etcd")]


def _url() -> str:
    return f"etcd+managed://127.0.0.1:{free_pairs(1)[0]}/prefix"


@pytest.mark.slow
def test_topics_outlive_a_killed_broker_and_its_etcd_does_not(tmp_path: Path) -> None:
    data, settings = tmp_path / "data", [f"coordination={_url()}", "zookeeper.session.timeout.ms=2000"]
    listen = [f"kafka://127.0.0.1:{free_port()}"]
    with broker_process(data, *settings, listen=listen) as broker:
        barnabas_here("topics", "create", "kept", "--partitions", "2", "--bootstrap", broker.bootstrap)
        first = etcd_of(data / "etcd")
        assert first is not None
        broker.kill()
        wait_for(lambda: has_ended(first))
    with broker_process(data, *settings, listen=listen) as broker:
        observed = barnabas_here("topics", "list", "--bootstrap", broker.bootstrap).stdout
        assert b"kept" in observed
        server = etcd_of(data / "etcd")
        assert server is not None
        assert broker.stop() == 0
        assert has_ended(server)
        assert f"{data}/etcd" not in broker.log()  # no folder of a partition, but ours


def test_in_process_clients_share_managed_etcd_session_of_broker(tmp_path: Path) -> None:
    listeners = ["kafka://127.0.0.1:0", "classic://127.0.0.1:0"]
    with Broker(tmp_path / "data", listeners=listeners, coordination=_url()) as broker:
        with ClassicProducer(coordination=broker) as producer:
            producer.send("t", b"x")
        wait_for(lambda: etcd_of(tmp_path / "data" / "etcd") is not None)
    assert etcd_of(tmp_path / "data" / "etcd") is None


def test_a_broker_without_folders_has_no_place_for_it() -> None:
    with pytest.raises(ConfigError, match="its data need a folder"):
        Broker(storage="memory", coordination=_url()).start()
