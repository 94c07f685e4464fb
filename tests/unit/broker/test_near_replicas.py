"""The answers of leaders and followers to consumers that may read from another replica."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.replica_harness import led_in_sync, reached

from barnabas.core.cluster.deltas import BrokersChanged
from barnabas.core.cluster.topics import BrokerRegistration
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.replica.leader.replica_selector import NearReader, ReplicaView
from barnabas.core.replica.partition.partition import Partition
from barnabas.plugins import hookimpl
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResultPartition
from barnabas.ports.broker_api.offsets import (
    EARLIEST,
    LATEST,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResultPartition,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import HERE, ITSELF, ManualBroker

OWN_RACK = "a"


class Selectors:
    """Chooses whom the test says, or fails."""

    def __init__(self, chosen: int | None) -> None:
        self.chosen = chosen
        self.asked: list[tuple[TopicPartition, NearReader, list[int]]] = []

    @hookimpl
    def barnabas_replica_selector(self, name: str) -> "Selectors | None":
        return self if name == "ours" else None

    def select(
        self, tp: TopicPartition, reader: NearReader, leader: ReplicaView, replicas: Sequence[ReplicaView]
    ) -> int:
        assert leader.broker_id == 1
        self.asked.append((tp, reader, [view.broker_id for view in replicas]))
        if self.chosen is None:
            raise RuntimeError("lost the map")
        return self.chosen


def _broker(selector: str | None = "rack-aware", plugins: Sequence[object] = ()) -> ManualBroker:
    settings: dict[str, Any] = {"broker.rack": OWN_RACK}
    if selector is not None:
        settings["replica.selector.class"] = selector
    broker = ManualBroker(plugins=plugins, **settings)
    broker.create("t")
    broker.produce("t", b"x", b"y")
    state = broker.node.state
    others = {
        each: BrokerRegistration(broker_id=each, endpoints=(f"kafka://b{each}:1",), rack=rack, leaving=each == 4)
        for each, rack in ((2, "b"), (3, "c"), (4, "d"))
    }
    state.registry.apply(BrokersChanged(brokers={1: state.image.brokers[1], **others}))
    led_in_sync(state.replicas, _partition(broker), (1, 2, 3, 4, 5))
    broker.produce("t", b"z")
    for follower, offset in ((2, 3), (3, 2), (4, 3), (5, 3)):
        reached(_partition(broker), follower, offset)
    return broker


def _partition(broker: ManualBroker) -> Partition:
    return broker.node.state.replicas.partitions["t", 0]


def _fetch(
    broker: ManualBroker, rack: str, offset: int = 0, *, epoch: int = -1, **others: object
) -> FetchResultPartition:
    options: dict[str, Any] = {"max_wait_ms": 60_000, **others}
    asked = Fetch(partitions=[FetchPartition("t", 0, offset, 1 << 20, epoch)], rack_id=rack, **options)
    (result,) = broker.ask(asked).partitions
    return result


def test_a_consumer_is_sent_to_a_replica_in_its_rack() -> None:
    broker = _broker()
    observed = _fetch(broker, "b", 3)  # it has read all, and is answered at once
    assert (observed.error, observed.preferred_read_replica, bytes(observed.records)) == (ErrorCode.NONE, 2, b"")  # type: ignore[arg-type]
    assert (observed.high_watermark, observed.log_start_offset) == (2, 0)
    assert _fetch(broker, "c", 2).preferred_read_replica == 3


def test_a_consumer_that_comes_back_for_the_same_offset_reads_at_the_leader() -> None:
    broker = _broker()
    assert _fetch(broker, "b", 0).preferred_read_replica == 2
    assert _fetch(broker, "b", 0).records, "the replica may be damaged there"
    assert _fetch(broker, "b", 1).preferred_read_replica == 2
    broker.scheduler.advance(30_001)
    assert _fetch(broker, "b", 1).preferred_read_replica == 2


@pytest.mark.parametrize("rack", [OWN_RACK, "nowhere", ""])
def test_others_read_at_the_leader(rack: str) -> None:
    observed = _fetch(_broker(), rack)
    assert observed.preferred_read_replica == -1
    assert observed.records


def test_a_replica_that_has_not_what_is_asked_for_is_no_choice() -> None:
    assert _fetch(_broker(), "c", 3, max_wait_ms=0).preferred_read_replica == -1


def test_neither_is_one_about_to_stop_nor_one_that_does_not_live() -> None:
    ours = Selectors(1)
    broker = _broker("ours", [ours])
    assert _fetch(broker, "d").preferred_read_replica == -1
    ((place, reader, choice),) = ours.asked
    assert (place, choice) == (TopicPartition("t", 0), [1, 2, 3])
    assert (reader.rack, reader.client_id, reader.host) == ("d", HERE.client_id, HERE.host)


@pytest.mark.parametrize("others", [{"allows_follower": False}, {"replica_id": -2}])
def test_fetch_that_allows_no_follower_gets_records_of_the_leader(others: dict[str, Any]) -> None:
    assert _fetch(_broker(), "b", **others).records


def test_fetch_without_replica_selector_is_served_by_leader() -> None:
    assert _fetch(_broker(None), "b").records


def test_fetch_with_old_epoch_is_fenced_before_replica_selection() -> None:
    broker = _broker()
    led_in_sync(broker.node.state.replicas, _partition(broker), (1, 2), epochs=3)
    assert _fetch(broker, "b", epoch=1).error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("chosen", [99, -1, 1, 4])
def test_a_selector_of_ones_own_may_only_name_a_choice(chosen: int) -> None:
    broker = _broker("ours", [Selectors(chosen)])
    assert _fetch(broker, "b").records


def test_a_selector_that_raises_is_reported() -> None:
    broker = _broker("ours", [Selectors(None)])
    assert _fetch(broker, "b").records
    assert any("replica.selector.class failed: RuntimeError: lost the map" in line for line in broker.lines)


def test_unknown_replica_selector_raises_config_error() -> None:
    with pytest.raises(ConfigError, match=r"unknown replica selector 'nobody'; known: leader, .*rack-aware"):
        ManualBroker(replica_selector_class="nobody")


# --- at a follower


def _following(broker: ManualBroker) -> None:
    led_in_sync(broker.node.state.replicas, _partition(broker), (1, 2), leader=2, epochs=1)


def test_a_follower_answers_consumers_up_to_the_high_watermark_that_it_knows() -> None:
    broker = _broker()
    _following(broker)
    observed = _fetch(broker, "a")
    assert (observed.error, observed.high_watermark) == (ErrorCode.NONE, 2)
    assert observed.records
    assert _fetch(broker, "a", 3, max_wait_ms=0).error is ErrorCode.NONE
    assert _fetch(broker, "a", allows_follower=False).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_has_less_than_a_reader_is_behind() -> None:
    """A reader that takes it for the leader is to ask again: it would go back to where this log ends."""
    broker = _broker()
    _following(broker)
    end = _partition(broker).log.log_end_offset
    asked = FetchPartition("t", 0, end + 1, 1 << 20, last_fetched_epoch=0)
    (observed,) = broker.ask(Fetch(partitions=[asked], rack_id="a", max_wait_ms=60_000)).partitions
    assert (observed.error, observed.diverging) == (ErrorCode.OFFSET_NOT_AVAILABLE, None)


def test_a_follower_with_damage_sends_consumers_to_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = _broker()

    def rotten(*_: object, **__: object) -> None:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "damaged")

    monkeypatch.setattr(UnifiedLog, "read", rotten)
    assert _fetch(broker, OWN_RACK).error is ErrorCode.CORRUPT_MESSAGE, "a leader has no other replica to name"
    _following(broker)
    assert _fetch(broker, OWN_RACK).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def _offsets(broker: ManualBroker, timestamp: int, replica_id: int = -1) -> ListOffsetsResultPartition:
    asked = ListOffsetsPartition(topic="t", partition=0, timestamp=timestamp)
    (observed,) = broker.ask(ListOffsets(partitions=[asked], replica_id=replica_id), ITSELF).partitions
    return observed


def test_follower_answers_list_offsets_for_debug_consumers_only() -> None:
    broker = _broker()
    _following(broker)
    assert _offsets(broker, LATEST).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert _offsets(broker, LATEST, -2).offset == 2


def test_new_leader_answers_offset_not_available_until_high_watermark_catches_up() -> None:
    broker = _broker()
    led_in_sync(broker.node.state.replicas, _partition(broker), (1, 2), epochs=1)
    partition = _partition(broker)
    assert (partition.high_watermark, partition.epoch_start_offset) == (2, 3)
    for timestamp in (LATEST, 2**50):
        assert _offsets(broker, timestamp).error is ErrorCode.OFFSET_NOT_AVAILABLE
    assert _offsets(broker, EARLIEST).offset == 0
    assert _offsets(broker, 0).offset == 0
    assert _offsets(broker, LATEST, 2).offset == 3  # replicas ask for the log end
    reached(partition, 2, 3)
    assert (_offsets(broker, LATEST).offset, _offsets(broker, 2**50).offset) == (3, -1)
