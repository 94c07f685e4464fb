"""Brokers that share a machine (`broker.machine`): what they register, and what that changes for internal topics."""

from attrs import evolve

from barnabas.app.broker.handlers.internal_topics import as_it_must_be
from barnabas.app.config import BrokerConfig
from barnabas.core.cluster import layout
from barnabas.core.cluster.deltas import BrokersChanged
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.topics import BrokerRegistration
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.testing.manual_broker import ManualBroker

WORKER = BrokerRegistration(broker_id=1, endpoints=(), machine="host-a")


def test_registrations_name_the_machine_where_it_is_set() -> None:
    assert layout.decode_broker("1", layout.encode_broker(WORKER)) == WORKER
    alone = evolve(WORKER, machine=None)
    assert layout.decode_broker("1", layout.encode_broker(alone)) == alone
    assert b"machine" not in layout.encode_broker(alone)
    image = ClusterImage().after(BrokersChanged(brokers={1: WORKER, 2: evolve(alone, broker_id=2)}))
    assert image.machines() == {1: "host-a"}


def test_internal_topics_have_a_replica_on_each_machine_at_most() -> None:
    new = NewTopic(name="__consumer_offsets")
    assert as_it_must_be(new, BrokerConfig(), 2).replication_factor == 2
    assert as_it_must_be(new, BrokerConfig(), 5).replication_factor == 3


def test_workers_of_a_machine_count_once() -> None:
    broker = ManualBroker(shared=True)
    other = broker.tree.session()
    for number, machine in ((2, "host-a"), (3, "host-a"), (4, None)):
        node = evolve(WORKER, broker_id=number, machine=machine, endpoints=("kafka://h:9092",))
        other.create(layout.broker_path(number), layout.encode_broker(node), ephemeral=True)
    for _ in range(2):
        broker.scheduler.run_pending()
        broker.scheduler.advance(500)
    assert broker.node.state.racks().keys() == {1, 2, 3, 4}
    assert broker.node.state.live_machines() == 3
    other.close()
    broker.stop()
