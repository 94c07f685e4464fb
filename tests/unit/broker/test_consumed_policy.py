"""Topics that keep what named groups have not read: from committed positions to segments that go."""

from collections.abc import Iterator

import pytest
from support.group_requests import commit, find

from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.broker_api.groups import DeleteGroups
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

CHECK_MS = 1000


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker(log_retention_check_interval_ms=CHECK_MS, group_initial_rebalance_delay_ms=0)
    simulated.create("t", deletion_policy="consumed:billing,audit", segment_bytes="300", retention_ms="1")
    for _ in range(6):
        simulated.produce("t", b"x" * 150)
    yield simulated
    simulated.stop()


def start_of(broker: ManualBroker) -> int:
    return int(broker.node.state.replicas.partitions["t", 0].log.log_start_offset)


def looks_again(broker: ManualBroker) -> int:
    """After a check that has asked for the positions, and one that goes by them."""
    broker.scheduler.advance(2 * CHECK_MS)
    return start_of(broker)


def test_segments_stay_until_all_groups_have_read_them(broker: ManualBroker) -> None:
    assert looks_again(broker) == 0, "there is not even a topic for positions"
    find(broker)
    commit(broker, "billing", {("t", 0): 4})
    assert looks_again(broker) == 0
    commit(broker, "audit", {("t", 0): 3})
    assert looks_again(broker) == 3
    commit(broker, "audit", {("t", 0): 6})
    assert looks_again(broker) == 4
    commit(broker, "billing", {("t", 0): 6})
    assert looks_again(broker) == 6
    assert broker.produce("t", b"more").base_offset == 6


def test_nothing_goes_while_the_positions_are_not_known(broker: ManualBroker) -> None:
    find(broker)
    for group in ("billing", "audit"):
        commit(broker, group, {("t", 0): 3})
    assert looks_again(broker) == 3
    for group in ("billing", "audit"):
        commit(broker, group, {("t", 0): 6})
    assert broker.ask(DeleteGroups(group_ids=["audit"])).groups[0].error is ErrorCode.NONE
    assert looks_again(broker) == 3
    broker.restart()
    assert looks_again(broker) == 3
    commit(broker, "audit", {("t", 0): 5})
    assert looks_again(broker) == 5


def test_other_groups_by_another_config(broker: ManualBroker) -> None:
    find(broker)
    commit(broker, "billing", {("t", 0): 4})
    resource = ConfigResource(kind=ResourceKind.TOPIC, name="t")

    def alter(value: str) -> tuple[ErrorCode, str | None]:
        change = ConfigAlteration(resource=resource, name="deletion.policy", value=value)
        outcome = broker.ask(IncrementalAlterConfigs(resources=[resource], alterations=[change])).resources[0]
        return outcome.error, outcome.error_message

    error, text = alter("consumed:")
    assert error is ErrorCode.INVALID_CONFIG
    assert "needs the groups to wait for" in (text or "")
    assert alter("no-such:x")[0] is ErrorCode.INVALID_CONFIG
    assert looks_again(broker) == 0
    assert alter("consumed:billing")[0] is ErrorCode.NONE
    broker.scheduler.advance(CHECK_MS)
    assert looks_again(broker) == 4
