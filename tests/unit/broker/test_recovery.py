"""A tree made again from folders: nothing in it goes back behind what clients have seen already."""

from support.elections import elect_again

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.adapters.system import SeededEntropy
from barnabas.app.broker.lifecycle.topic_recovery import Recovery, carry_out, plan_recovery
from barnabas.app.config import BrokerConfig
from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.producer_ids import LEFT_OUT
from barnabas.core.cluster.registry import ClusterRegistry
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.producers import InitProducerId
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker


def recover(broker: ManualBroker, **settings: object) -> Recovery:
    """With a stopped broker."""
    log_dir, session, entropy = MemoryLogDir(broker.disk), broker.tree.session(), SeededEntropy(3)
    registry = ClusterRegistry(session, broker.reports.append)
    complete(registry.load())
    config = BrokerConfig.from_mapping({"storage": "memory"}, settings)
    plan = plan_recovery([log_dir], config, registry, entropy, broker.reports.append)
    carry_out(plan, registry, entropy)
    session.close()
    log_dir.close()
    return plan


def lose_tree(broker: ManualBroker) -> None:
    broker.stop()
    broker.tree = MemoryTree(deliver=broker.scheduler.call_soon)


def observed(plan: Recovery) -> dict[str, tuple[str, str]]:
    return {topic.name: (topic.action, topic.note) for topic in plan.topics}


def test_recovered_topics_continue_leader_epochs() -> None:
    broker = ManualBroker()
    broker.create("t", 2)
    for _ in range(3):
        elect_again(broker.node.state.registry, "t", 1)
    broker.restart()
    broker.produce("t", b"in epoch 3", partition=1)
    topic_id = broker.node.state.image.topic("t").topic_id
    lose_tree(broker)
    assert observed(recover(broker)) == {"t": ("create", "")}
    broker.node = broker._started()
    found = broker.ask(Metadata(topics=["t"])).topics[0]
    assert found.topic_id == topic_id
    assert [(p.leader, p.leader_epoch) for p in found.partitions] == [(1, 0), (1, 4)]
    assert broker.produce("t", b"in epoch 4", partition=1).base_offset == 1
    assert broker.values("t", partition=1) == [b"in epoch 3", b"in epoch 4"]


def test_no_producer_id_is_given_out_twice() -> None:
    broker = ManualBroker()
    broker.create("t")
    given = broker.ask(InitProducerId(transactional_id=None)).producer_id
    lose_tree(broker)
    plan = recover(broker)
    assert (plan.producer_ids_from or 0) >= LEFT_OUT
    broker.node = broker._started()
    assert broker.ask(InitProducerId(transactional_id=None)).producer_id > given + LEFT_OUT // 2


def test_recovery_reports_missing_ids_and_impossible_partitions() -> None:
    broker = ManualBroker()
    broker.create("gap", 3)
    broker.create("huge")
    broker.produce("huge", b"x")  # the start removes a folder without label and records
    lose_tree(broker)
    del broker.disk.folders["gap-1"]
    broker.disk.folders["huge-4000000"] = broker.disk.folders.pop("huge-0")
    for files in broker.disk.folders.values():
        files.pop("partition.metadata", None)
    assert observed(recover(broker)) == {
        "gap": ("create", "no folder has its topic id; it gets a new one; no folder of 1"),
        "huge": ("refuse", "a partition 4000000 is more than is possible"),
    }
    broker.node = broker._started()
    assert broker.produce("gap", b"x", partition=1).error is ErrorCode.NONE
    assert "huge-4000000" in broker.disk.folders
