"""The cleaner of a running broker: what it compacts, and its metrics."""

from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import ManualBroker

_CLEANER, _MANAGER = "kafka_log_logcleaner", "kafka_log_logcleanermanager"


def filled(broker: ManualBroker, topic: str = "t") -> UnifiedLog:
    broker.create(topic, cleanup_policy="compact", segment_bytes="300", min_cleanable_dirty_ratio="0.01")
    for number in range(20):
        records = memoryview(encode_batch([Message(b"%d" % number, key=b"k")], now_ms=broker.clock.now_ms()))
        result = broker.ask(Produce(partitions=[ProducePartition(topic, 0, records)], acks=1))
        assert result.partitions[0].error is ErrorCode.NONE
    log = broker.node.state.logs.get(TopicPartition(topic, 0))
    assert log is not None
    return log


def gauge(broker: ManualBroker, name: str, **labels: str) -> float:
    value = broker.metrics.value(name, **labels)
    assert value is not None, name
    return value


def test_figures_by_kafkas_names() -> None:
    broker = ManualBroker()
    log = filled(broker)
    size = log.size_bytes
    broker.scheduler.advance(15_001)
    assert log.size_bytes < size / 2
    assert gauge(broker, f"{_MANAGER}_max_dirty_percent") == 0.0
    assert 0 < gauge(broker, f"{_CLEANER}_cleaner_recopy_percent") < 50
    assert gauge(broker, f"{_CLEANER}_deduplicated_bytes") == size - log.size_bytes
    assert gauge(broker, f"{_CLEANER}_read_bytes") > gauge(broker, f"{_CLEANER}_deduplicated_bytes")
    assert gauge(broker, f"{_CLEANER}_max_buffer_utilization_percent") > 0
    assert gauge(broker, f"{_CLEANER}_max_clean_time_secs") >= 0
    assert gauge(broker, f"{_MANAGER}_time_since_last_run_ms") < 15_000
    assert gauge(broker, f"{_MANAGER}_uncleanable_partitions_count", logDirectory="memory:") == 0


def test_uncleanable_logs_are_counted() -> None:
    broker = ManualBroker()
    log = filled(broker)
    data = broker.disk.folders["t-0"][log.segments[0].names[0]].data
    data[66] ^= 1
    broker.scheduler.advance(15_001)
    assert gauge(broker, f"{_MANAGER}_uncleanable_partitions_count", logDirectory="memory:") == 1
    assert gauge(broker, f"{_MANAGER}_uncleanable_bytes", logDirectory="memory:") == log.size_bytes


def test_cleaner_can_be_switched_off_and_on() -> None:
    broker = ManualBroker(log_cleaner_threads=0)
    log = filled(broker)
    size = log.size_bytes
    broker.scheduler.advance(60_000)
    assert log.size_bytes == size
    resource = ConfigResource(kind=ResourceKind.BROKER, name="1")
    change = ConfigAlteration(resource=resource, name="log.cleaner.threads", value="2")
    broker.ask(IncrementalAlterConfigs(resources=[resource], alterations=[change]))
    broker.scheduler.advance(15_001)
    assert log.size_bytes < size / 2
    never = ManualBroker(log_cleaner_enable=False)
    log = filled(never)
    never.scheduler.advance(60_000)
    assert log.size_bytes == size
    assert never.metrics.value(f"{_MANAGER}_max_dirty_percent") is None
