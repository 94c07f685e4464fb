"""The built-in replica selectors."""

import pytest

from barnabas.core.replica.leader.replica_selector import NearReader, ReplicaSelector, ReplicaView
from barnabas.plugins.host import PluginHost
from barnabas.ports.broker_api.envelope import ANONYMOUS
from barnabas.ports.types import TopicPartition
from barnabas.testing.contracts.replica_selector import ReplicaSelectorContract

TP = TopicPartition("t", 0)


def _reader(rack: str) -> NearReader:
    return NearReader(rack=rack, client_id="c", host="10.0.0.1", listener="kafka://b:1", principal=ANONYMOUS)


def _view(broker_id: int, rack: str | None, log_end: int = 10, behind_ms: float = 0.0) -> ReplicaView:
    return ReplicaView(broker_id=broker_id, rack=rack, log_end_offset=log_end, behind_ms=behind_ms)


LEADER = _view(1, "a")


@pytest.mark.parametrize("name", ["rack-aware", "org.apache.kafka.common.replica.RackAwareReplicaSelector"])
@pytest.mark.parametrize(
    ("rack", "others", "chosen"),
    [
        ("b", [_view(2, "b"), _view(3, "c")], 2),
        ("c", [_view(2, "b"), _view(3, "c")], 3),
        ("a", [_view(2, "a", 99)], 1),
        ("d", [_view(2, "b")], 1),
        ("", [_view(2, "")], 1),
        ("b", [_view(2, None)], 1),
        ("b", [_view(2, "b", 8), _view(3, "b", 9), _view(4, "b", 7)], 3),
        ("b", [_view(2, "b", 9, 500.0), _view(3, "b", 9, 20.0)], 3),
        ("b", [_view(3, "b"), _view(2, "b")], 2),
    ],
)
def test_a_replica_in_the_rack_of_the_reader(name: str, rack: str, others: list[ReplicaView], chosen: int) -> None:
    selector = PluginHost(load_entry_points=False).replica_selector(name)
    assert selector.select(TP, _reader(rack), LEADER, [LEADER, *others]) == chosen


@pytest.mark.parametrize("name", ["leader", "org.apache.kafka.common.replica.LeaderSelector"])
def test_always_the_leader(name: str) -> None:
    selector = PluginHost(load_entry_points=False).replica_selector(name)
    assert selector.select(TP, _reader("b"), LEADER, [LEADER, _view(2, "b", 99)]) == 1


class TestRackAware(ReplicaSelectorContract):
    def make(self) -> ReplicaSelector:
        return PluginHost(load_entry_points=False).replica_selector("rack-aware")


class TestLeader(ReplicaSelectorContract):
    def make(self) -> ReplicaSelector:
        return PluginHost(load_entry_points=False).replica_selector("leader")
